/* What programs and peers should not do: each ends in an error or in waiting, and loses nothing. */
#include "abuse.h"
#include "fabric.h"

enum { TAG = 0x1234, KEY = 9 };

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The second does not read its queue, which each write of the first adds to, unasked. The first has
 * to wait at last, and nothing of what it was let do is lost. */
void overflowing_queue(void)
{
    enum { QUEUE = 64, MOST = 300000, BOUND = QUEUE + (1 << 16) + 4096 };
    static uint8_t memory[64];
    struct fid_mr *region;
    struct wanted wanted = { .caps = FI_MSG | FI_TAGGED | FI_RMA, .queue = QUEUE, .counts = true };
    uint64_t sent = 0;
    open_side(&wanted);
    OK(fi_mr_reg(side.domain, memory, sizeof memory, FI_REMOTE_WRITE, 0, KEY, 0, &region, NULL));
    turn_until_other();
    if (side.is_first) {
        long began = milliseconds();
        while (sent < MOST && milliseconds() - began < 500) {
            ssize_t result = fi_inject_writedata(side.ep, memory, 8, sent, side.peer, 0, KEY);
            if (result == -FI_EAGAIN) {
                turn();
                continue;
            }
            OK(result);
            sent++;
            began = milliseconds();
        }
        CHECK(sent > QUEUE);
        CHECK(write(side.other, &sent, sizeof sent) == sizeof sent);
        turn_until_other();
    } else {
        struct pollfd other = { .fd = side.other, .events = POLLIN };
        /* Turns without a look at the queue. */
        while (poll(&other, 1, 0) == 0)
            CHECK(fi_cntr_read(side.receives) <= BOUND);
        CHECK(read(side.other, &sent, sizeof sent) == sizeof sent);
        for (uint64_t at = 0; at < sent; at++) {
            struct fi_cq_tagged_entry got = completion();
            CHECK(got.flags & FI_REMOTE_CQ_DATA && got.data == at);
        }
        turn_until_other();
    }
    OK(fi_close(&region->fid));
}

/* More receives are posted than the queue has places. All of them are told of, and none is posted
 * while the queue is full. */
void unread_messages(void)
{
    enum { QUEUE = 8, COUNT = 500 };
    static struct fi_context contexts[COUNT + 1];
    static uint64_t sent[COUNT], got[COUNT + 1];
    struct wanted wanted = { .caps = FI_MSG | FI_TAGGED, .queue = QUEUE, .counts = true };
    open_side(&wanted);
    if (!side.is_first)
        for (int at = 0; at < COUNT; at++)
            OK(fi_recv(side.ep, &got[at], 8, NULL, FI_ADDR_UNSPEC, &contexts[at]));
    turn_until_other();
    if (side.is_first) {
        for (uint64_t at = 0; at < COUNT; at++) {
            sent[at] = at;
            AGAIN(fi_send(side.ep, &sent[at], 8, NULL, side.peer, &contexts[at]));
        }
        for (int at = 0; at < COUNT; at++)
            completion();
        turn_until_other();
    } else {
        while (fi_cntr_read(side.receives) < COUNT)
            ;
        CHECK(fi_recv(side.ep, &got[COUNT], 8, NULL, FI_ADDR_UNSPEC, &contexts[COUNT]) == -FI_EAGAIN);
        for (uint64_t at = 0; at < COUNT; at++) {
            CHECK(completion().op_context == &contexts[at]);
            CHECK(got[at] == at);
        }
        turn_until_other();
    }
}

/* Memory is closed, and other memory has its key: what the peer knows of the old one leads nowhere,
 * or to the new one. Addresses beyond the end, or beyond all numbers, are refused. */
void renewed_memory(void)
{
    enum { LEN = 4096 };
    static uint8_t memory[2][LEN], bytes[LEN];
    static const uint64_t beyond[] = { LEN - 7, LEN, UINT64_MAX, UINT64_MAX - 7, 1ULL << 63 };
    struct fi_context context;
    struct fid_mr *region = NULL;
    const struct wanted wanted = { .caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC };
    const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    open_side(&wanted);
    for (int at = 0; at < 2; at++) {
        if (!side.is_first) {
            if (region)
                OK(fi_close(&region->fid));
            OK(fi_mr_reg(side.domain, memory[at], LEN, access, 0, KEY, 0, &region, NULL));
        }
        turn_until_other();
        if (side.is_first) {
            fill(bytes, LEN, at);
            AGAIN(fi_write(side.ep, bytes, LEN, NULL, side.peer, 0, KEY, &context));
            struct fi_cq_tagged_entry entry;
            ssize_t count;
            while ((count = fi_cq_read(side.cq, &entry, 1)) == -FI_EAGAIN)
                ;
            if (count == -FI_EAVAIL) {
                CHECK(at > 0 && failure().err == FI_EKEYREJECTED);
                AGAIN(fi_write(side.ep, bytes, LEN, NULL, side.peer, 0, KEY, &context));
                CHECK(completion().op_context == &context);
            }
            for (unsigned far = 0; far < sizeof beyond / sizeof *beyond; far++) {
                uint64_t one = 1, held = 0;
                AGAIN(fi_write(side.ep, bytes, 8, NULL, side.peer, beyond[far], KEY, &context));
                CHECK(failure().op_context == &context);
                AGAIN(fi_read(side.ep, bytes, 8, NULL, side.peer, beyond[far], KEY, &context));
                CHECK(failure().op_context == &context);
                AGAIN(fi_fetch_atomic(side.ep, &one, 1, NULL, &held, NULL, side.peer, beyond[far], KEY, FI_UINT64, FI_SUM, &context));
                CHECK(failure().op_context == &context && held == 0);
            }
        }
        turn_until_other();
        if (!side.is_first)
            for (int known = 0; known <= at; known++)
                CHECK(is_filled(memory[known], LEN, known));
        turn_until_other();
    }
    if (region)
        OK(fi_close(&region->fid));
}

/* A child of a fork: nothing that its parent has opened does anything for it, and closing it
 * closes nothing of the parent's. */
static void use_what_was_inherited(struct fid_mr *region)
{
    static uint8_t bytes[64];
    struct fi_context context;
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = { 0 };
    struct fid_mr *other;
    struct fid *fid = &side.cq->fid;
    CHECK(fi_send(side.ep, bytes, 8, NULL, side.peer, &context) == -FI_EOPBADSTATE);
    CHECK(fi_tinject(side.ep, bytes, 8, side.peer, TAG) == -FI_EOPBADSTATE);
    CHECK(fi_recv(side.ep, bytes, 8, NULL, FI_ADDR_UNSPEC, &context) == -FI_EOPBADSTATE);
    CHECK(fi_write(side.ep, bytes, 8, NULL, side.peer, 0, KEY, &context) == -FI_EOPBADSTATE);
    CHECK(fi_cq_read(side.cq, &entry, 1) == -FI_EOPBADSTATE);
    CHECK(fi_cq_sread(side.cq, &entry, 1, NULL, -1) == -FI_EOPBADSTATE);
    CHECK(fi_cq_readerr(side.cq, &error, 0) == -FI_EAGAIN);
    CHECK(fi_trywait(side.fabric, &fid, 1) == -FI_EOPBADSTATE);
    CHECK(fi_cntr_wait(side.receives, 1000, -1) == -FI_EOPBADSTATE);
    CHECK(fi_mr_reg(side.domain, bytes, 8, FI_REMOTE_READ, 0, KEY + 1, 0, &other, NULL) == -FI_EOPBADSTATE);
    OK(fi_close(&region->fid));
    close_side();
}

/* Endpoints of the child's own are as good as any. */
static void open_its_own(void)
{
    uint64_t sent = 4711, got = 0;
    struct fi_context context[2];
    int pair[2];
    uint8_t nobody[128] = { 0 };
    const struct wanted wanted = { .caps = FI_MSG | FI_TAGGED };
    ((struct sockaddr_in *)nobody)->sin_family = AF_INET;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(write(pair[1], nobody, sizeof nobody) == sizeof nobody);
    side.other = pair[0];
    side.sends = side.receives = NULL;
    open_side(&wanted);
    OK(fi_trecv(side.ep, &got, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &context[0]));
    AGAIN(fi_tsend(side.ep, &sent, 8, NULL, side.self, TAG, &context[1]));
    completion();
    completion();
    CHECK(got == sent);
    close_side();
}

/* Processes with endpoints have children, which end without a word, end as programs do, or use what
 * they have inherited. The parents go on meanwhile, and afterwards. */
void forked(void)
{
    enum { LEN = 300000, ROUNDS = 6 };
    /* Over QPIP a child that opens its own takes the address of its parent, who goes on. */
    const int children = is_qpip() ? 3 : 4;
    static uint8_t out[LEN], in[LEN], memory[LEN];
    struct fi_context contexts[3];
    struct fid_mr *region;
    const struct wanted wanted = { .caps = FI_MSG | FI_TAGGED | FI_RMA, .counts = true };
    open_side(&wanted);
    OK(fi_mr_reg(side.domain, memory, LEN, FI_REMOTE_WRITE, 0, KEY, 0, &region, NULL));
    turn_until_other();
    for (int which = 0; which < children; which++) {
        fill(out, LEN, which);
        /* It is under way while the child begins. */
        AGAIN(fi_trecv(side.ep, in, LEN, NULL, side.peer, which, 0, &contexts[0]));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            if (which == 0)
                _exit(0);
            if (which >= 2)
                use_what_was_inherited(region);
            if (which == 3)
                open_its_own();
            exit(0);
        }
        for (int round = 0; round < ROUNDS; round++) {
            size_t len = round % 2 ? 100 : LEN;
            if (round > 0)
                AGAIN(fi_trecv(side.ep, in, LEN, NULL, side.peer, which, 0, &contexts[0]));
            AGAIN(fi_tsend(side.ep, out, len, NULL, side.peer, which, &contexts[1]));
            if (!is_qpip())
                AGAIN(fi_write(side.ep, out, LEN, NULL, side.peer, 0, KEY, &contexts[2]));
            for (int told = 0; told < (is_qpip() ? 2 : 3); told++)
                completion();
            CHECK(is_filled(in, len, which));
            turn_until_other();
            CHECK(is_qpip() || is_filled(memory, LEN, which));
            turn_until_other();
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        turn_until_other();
    }
    OK(fi_close(&region->fid));
}

void expect_other_version(const char *text)
{
    CHECK(text && strstr(text, "version"));
    puts(text);
    fflush(stdout);
}

/* Makes turns until there is a line from the one who has begun this. */
static void turn_until_told(void)
{
    char line[8];
    struct pollfd told = { .fd = 0, .events = POLLIN };
    while (poll(&told, 1, 0) == 0)
        turn();
    CHECK(read(0, line, sizeof line) > 0);
}

/* The peer is another program, at the port that is named, which greets as other versions do, and
 * is greeted. */
void other_version(void)
{
    int pair[2];
    uint8_t bytes[128] = { 0 };
    struct sockaddr_in *peer = (struct sockaddr_in *)bytes, name;
    size_t len = sizeof name;
    struct fi_context context;
    const struct wanted wanted = { .caps = FI_MSG | FI_TAGGED };
    peer->sin_family = AF_INET;
    peer->sin_port = htons(atoi(getenv("CASES_PEER_PORT")));
    peer->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(write(pair[1], bytes, sizeof bytes) == sizeof bytes);
    side.other = pair[0];
    open_side(&wanted);
    OK(fi_getname(&side.ep->fid, &name, &len));
    printf("%u\n", ntohs(name.sin_port));
    fflush(stdout);
    turn_until_told();
    for (int round = 0; round < 2; round++) {
        AGAIN(fi_send(side.ep, bytes, 8, NULL, side.peer, &context));
        struct fi_cq_err_entry error = failure();
        CHECK(error.op_context == &context && error.err == FI_ECONNREFUSED);
        expect_other_version(fi_cq_strerror(side.cq, error.prov_errno, error.err_data, NULL, 0));
    }
    close_side();
    side.ep = NULL;
}
