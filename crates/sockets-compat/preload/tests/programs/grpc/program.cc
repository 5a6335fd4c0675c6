// gRPC's C++ library at both ends: a server, a client that asks it in each of the four kinds of call, one that
// asks until it is gone.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "echo.grpc.pb.h"

using grpc::Status;
using landfall::Note;

namespace {

constexpr uint32_t kTurns = 40;

std::string Body(uint32_t client, uint32_t turn) {
  std::string body(1 + turn * (client + 1) * 977 % 60000, '\0');
  for (size_t at = 0; at < body.size(); at++) body[at] = static_cast<char>(at * 7 + client * 13 + turn);
  return body;
}

class Server final : public landfall::Echo::Service {
  Status Say(grpc::ServerContext*, const Note* asked, Note* answer) override {
    *answer = *asked;
    return Status::OK;
  }

  Status Repeat(grpc::ServerContext*, const Note* asked, grpc::ServerWriter<Note>* writer) override {
    Note note = *asked;
    for (uint32_t at = 0; at < asked->count(); at++) {
      note.set_count(at);
      if (!writer->Write(note)) return Status::CANCELLED;
    }
    return Status::OK;
  }

  Status Gather(grpc::ServerContext*, grpc::ServerReader<Note>* reader, Note* answer) override {
    Note note;
    while (reader->Read(&note)) {
      answer->mutable_body()->append(note.body());
      answer->set_count(answer->count() + 1);
    }
    return Status::OK;
  }

  Status Talk(grpc::ServerContext*, grpc::ServerReaderWriter<Note, Note>* stream) override {
    Note note;
    while (stream->Read(&note) && stream->Write(note)) {
    }
    return Status::OK;
  }
};

class Client {
 public:
  Client(const std::string& address, uint32_t number) : number_(number) {
    grpc::ChannelArguments arguments;
    // A connection for each client, not one for all.
    arguments.SetInt("client", static_cast<int>(number));
    arguments.SetMaxReceiveMessageSize(64 << 20);
    stub_ = landfall::Echo::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  void Ask() {
    for (uint32_t turn = 0; turn < kTurns; turn++) Say(turn);
    Repeat();
    Gather();
    Talk();
  }

  /// What a call says that fails.
  Status UntilGone() {
    for (uint32_t turn = 0;; turn++) {
      Note answer;
      grpc::ClientContext context;
      Deadline(context);
      Status status = stub_->Say(&context, Asked(turn % kTurns, turn), &answer);
      if (!status.ok()) return status;
      Check(answer, turn % kTurns, turn);
      if (turn == 20) std::cout << "asks" << std::endl;
    }
  }

 private:
  static void Deadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.set_wait_for_ready(false);
  }

  Note Asked(uint32_t turn, uint32_t count) const {
    Note note;
    note.set_body(Body(number_, turn));
    note.set_count(count);
    return note;
  }

  void Check(const Note& note, uint32_t turn, uint32_t count) const {
    if (note.count() == count && note.body() == Body(number_, turn)) return;
    std::cerr << "client " << number_ << ", turn " << turn << ": another answer" << std::endl;
    std::exit(1);
  }

  static void Check(const Status& status) {
    if (status.ok()) return;
    std::cerr << status.error_code() << ": " << status.error_message() << std::endl;
    std::exit(1);
  }

  void Say(uint32_t turn) {
    Note answer;
    grpc::ClientContext context;
    Deadline(context);
    Check(stub_->Say(&context, Asked(turn, turn), &answer));
    Check(answer, turn, turn);
  }

  void Repeat() {
    grpc::ClientContext context;
    Deadline(context);
    auto reader = stub_->Repeat(&context, Asked(30, kTurns));
    Note note;
    uint32_t count = 0;
    while (reader->Read(&note)) Check(note, 30, count++);
    Check(reader->Finish());
    if (count != kTurns) std::exit(2);
  }

  void Gather() {
    grpc::ClientContext context;
    Deadline(context);
    Note answer;
    auto writer = stub_->Gather(&context, &answer);
    std::string wanted;
    for (uint32_t turn = 0; turn < kTurns; turn++) {
      wanted += Body(number_, turn);
      if (!writer->Write(Asked(turn, turn))) break;
    }
    writer->WritesDone();
    Check(writer->Finish());
    if (answer.body() != wanted || answer.count() != kTurns) std::exit(3);
  }

  void Talk() {
    grpc::ClientContext context;
    Deadline(context);
    auto stream = stub_->Talk(&context);
    std::thread writes([&] {
      for (uint32_t turn = 0; turn < kTurns; turn++) stream->Write(Asked(turn, turn));
      stream->WritesDone();
    });
    Note note;
    uint32_t turn = 0;
    for (; stream->Read(&note); turn++) Check(note, turn, turn);
    writes.join();
    Check(stream->Finish());
    if (turn != kTurns) std::exit(4);
  }

  uint32_t number_;
  std::unique_ptr<landfall::Echo::Stub> stub_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  std::string what = argv[1], address = argv[2];
  if (what == "serve") {
    Server server;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&server);
    auto running = builder.BuildAndStart();
    if (!running) return 1;
    running->Wait();
  } else if (what == "ask") {
    std::vector<std::thread> clients;
    for (uint32_t number = 0; number < 8; number++) {
      clients.emplace_back([&, number] { Client(address, number).Ask(); });
    }
    for (auto& client : clients) client.join();
    std::cout << "all came back" << std::endl;
  } else {
    Status status = Client(address, 3).UntilGone();
    std::cout << "gone: " << status.error_code() << std::endl;
  }
}
