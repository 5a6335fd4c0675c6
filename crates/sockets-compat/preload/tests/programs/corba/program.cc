// An echo over CORBA, both ends. It knows of nothing but omniORB.
//
//     program [-ORB...] serve           answers until it is ended
//     program [-ORB...] ask URI         calls in each way, from several threads
//     program [-ORB...] called-back URI the server calls an object of this process
//     program [-ORB...] ping URI N      the time of N short calls, one after another
//     program [-ORB...] until-gone URI  calls until it hears that the server is gone

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "echo.hh"

namespace {

constexpr CORBA::ULong kMost = 3 << 19;  // Below what a message of GIOP may have here.

void expect(bool is_so, const char* what) {
    if (!is_so) {
        std::cerr << "not so: " << what << std::endl;
        std::exit(3);
    }
}

class Echo : public POA_Landfall::Echo {
public:
    Landfall::Octets* bytes(const Landfall::Octets& of) override {
        if (of.length() > kMost) throw Landfall::TooLong(kMost);
        return new Landfall::Octets(of);
    }

    Landfall::Reading* negated(const Landfall::Reading& of, CORBA::ULong& count) override {
        auto* answer = new Landfall::Reading(of);
        answer->value = -of.value;
        count = of.names.length();
        return answer;
    }

    CORBA::ULong ping(CORBA::ULong number) override { return number + 1; }

    void note(CORBA::ULong number) override {
        std::lock_guard<std::mutex> guard(lock_);
        noted_ += number;
    }

    CORBA::ULong noted() override {
        std::lock_guard<std::mutex> guard(lock_);
        return noted_;
    }

    CORBA::ULong calls_back(Landfall::Listener_ptr whom, CORBA::ULong times) override {
        CORBA::ULong sum = 0;
        for (CORBA::ULong at = 0; at < times; ++at) sum += whom->hears(at);
        return sum;
    }

private:
    std::mutex lock_;
    CORBA::ULong noted_ = 0;
};

class Listener : public POA_Landfall::Listener {
public:
    CORBA::ULong hears(CORBA::ULong number) override { return 3 * number; }
};

Landfall::Octets pattern(CORBA::ULong length, unsigned of) {
    Landfall::Octets octets;
    octets.length(length);
    for (CORBA::ULong at = 0; at < length; ++at) octets[at] = static_cast<CORBA::Octet>((at * 7 + of) % 251);
    return octets;
}

bool same(const Landfall::Octets& one, const Landfall::Octets& other) {
    if (one.length() != other.length()) return false;
    for (CORBA::ULong at = 0; at < one.length(); ++at)
        if (one[at] != other[at]) return false;
    return true;
}

// What each thread does: lengths about those of GIOP's fragments and of rings.
void ask_all(Landfall::Echo_ptr echo, unsigned thread) {
    for (CORBA::ULong length : {0u, 1u, 8191u, 8192u, 8193u, 65537u, 1000003u, 300u, 1500000u}) {
        Landfall::Octets sent = pattern(length + thread, thread);
        Landfall::Octets_var back = echo->bytes(sent);
        expect(same(sent, back.in()), "the bytes came back");
    }
    for (CORBA::ULong number = 0; number < 300; ++number)
        expect(echo->ping(number) == number + 1, "a ping is answered");

    Landfall::Reading reading;
    reading.value = 0.5 + thread;
    reading.when = 1ull << 40;
    reading.names.length(20);
    for (CORBA::ULong at = 0; at < 20; ++at) reading.names[at] = std::to_string(at * thread).c_str();
    CORBA::ULong count = 0;
    Landfall::Reading_var back = echo->negated(reading, count);
    expect(count == 20 && back->value == -reading.value && back->when == reading.when, "a structure");
    for (CORBA::ULong at = 0; at < 20; ++at)
        expect(std::string(back->names[at]) == std::string(reading.names[at]), "its strings");
    try {
        Landfall::Octets_var never = echo->bytes(pattern(kMost + 1, 0));
        expect(false, "an exception is raised");
    } catch (const Landfall::TooLong& too_long) {
        expect(too_long.most == kMost, "an exception has what it was given");
    }
}

void ask(Landfall::Echo_ptr echo) {
    CORBA::ULong before = echo->noted();
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 6; ++thread)
        threads.emplace_back([&echo, thread] { ask_all(echo, thread); });
    for (auto& thread : threads) thread.join();

    // Calls without an answer: all are heard before a later one that has one, or soon after,
    // since another thread of the server may be at them.
    for (CORBA::ULong number = 1; number <= 100; ++number) echo->note(number);
    for (int tries = 0; echo->noted() != before + 5050; ++tries) {
        expect(tries < 1000, "each note is heard");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::cout << "all came back" << std::endl;
}

void called_back(CORBA::ORB_ptr orb, Landfall::Echo_ptr echo) {
    CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    auto* listener = new Listener;
    PortableServer::ObjectId_var id = poa->activate_object(listener);
    Landfall::Listener_var whom = listener->_this();
    listener->_remove_ref();
    expect(echo->calls_back(whom, 200) == 3 * 199 * 100, "it is called back");
    std::cout << "was called back" << std::endl;
}

void ping(Landfall::Echo_ptr echo, unsigned long times) {
    for (CORBA::ULong number = 0; number < 1000; ++number) echo->ping(number);
    auto begin = std::chrono::steady_clock::now();
    for (CORBA::ULong number = 0; number < times; ++number)
        expect(echo->ping(number) == number + 1, "a ping is answered");
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    std::cout << took.count() / times << " us a call" << std::endl;
}

void until_gone(Landfall::Echo_ptr echo) {
    echo->ping(0);
    Landfall::Octets sent = pattern(100000, 1);
    std::cout << "calls" << std::endl;
    try {
        for (;;) {
            echo->ping(1);
            Landfall::Octets_var back = echo->bytes(sent);
            expect(same(sent, back.in()), "the bytes came back");
        }
    } catch (const CORBA::COMM_FAILURE&) {
        // In the middle of a call.
    } catch (const CORBA::TRANSIENT&) {
        // Between two calls: it is called anew, and nobody listens.
    }
}

void serve(CORBA::ORB_ptr orb) {
    // A name of its own choice in each URI: corbaloc::HOST:PORT/echo
    CORBA::Object_var object = orb->resolve_initial_references("omniINSPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("echo");
    auto* echo = new Echo;
    poa->activate_object_with_id(id, echo);
    echo->_remove_ref();
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    orb->run();
}

}  // namespace

int main(int argc, char** argv) {
    try {
        CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
        std::string part = argc > 1 ? argv[1] : "";
        if (part == "serve") {
            serve(orb);
            return 0;
        }
        if (argc < 3) {
            std::cerr << "serve, or ask, called-back, ping or until-gone with a URI" << std::endl;
            return 2;
        }
        CORBA::Object_var object = orb->string_to_object(argv[2]);
        Landfall::Echo_var echo = Landfall::Echo::_narrow(object);
        expect(!CORBA::is_nil(echo), "the object is an echo");
        if (part == "ask") ask(echo);
        if (part == "called-back") called_back(orb, echo);
        if (part == "ping") ping(echo, argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 10000);
        if (part == "until-gone") until_gone(echo);
        orb->destroy();
    } catch (const CORBA::Exception& exception) {
        std::cerr << "CORBA: " << exception._name() << std::endl;
        return 1;
    }
    return 0;
}
