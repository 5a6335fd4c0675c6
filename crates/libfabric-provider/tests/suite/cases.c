/* What a provider of reliable datagrams has to do, case by case:
 *
 *     cases PROVIDER CASE [ADDRESS NAMESPACE OTHER-ADDRESS]
 *
 * ends with 0 where it does. Each case has two processes; the second may be in another
 * network namespace, whose file is named (- where it isn't). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>

#include "fabric.h"
#include "abuse.h"
#include "connected.h"

static const struct wanted usual = { .caps = FI_MSG | FI_TAGGED | FI_RMA };

enum { TAG = 0x1234 };

static void tagged(void)
{
    uint8_t bytes[64];
    struct fi_context context[2];
    open_side(&usual);
    if (side.is_first) {
        fill(bytes, sizeof bytes, 1);
        AGAIN(fi_tsend(side.ep, bytes, sizeof bytes, NULL, side.peer, TAG, &context[0]));
        struct fi_cq_tagged_entry sent = completion();
        CHECK(sent.op_context == &context[0]);
        CHECK(sent.flags & FI_SEND && sent.flags & FI_TAGGED);
    } else {
        /* From whom does not matter, for nobody has asked for directed receives. */
        OK(fi_trecv(side.ep, bytes, sizeof bytes, NULL, 4711, TAG, 0, &context[1]));
        struct fi_cq_tagged_entry got = completion();
        CHECK(got.op_context == &context[1]);
        CHECK(got.flags & FI_RECV && got.flags & FI_TAGGED);
        CHECK(got.len == sizeof bytes && got.tag == TAG);
        CHECK(is_filled(bytes, sizeof bytes, 1));
    }
    turn_until_other();
}

/* Of the messages that are there the first that fits is taken, whatever its tag's other bits. */
static void ignored_bits(void)
{
    uint32_t value, got[3];
    struct fi_context context[3];
    open_side(&usual);
    if (side.is_first) {
        for (value = 0; value < 3; value++) {
            AGAIN(fi_tsend(side.ep, &value, sizeof value, NULL, side.peer, 0x100 + value, &context[0]));
            completion();
        }
    }
    turn_until_other();
    if (!side.is_first) {
        OK(fi_trecv(side.ep, &got[0], 4, NULL, FI_ADDR_UNSPEC, 0x102, 0, &context[0]));
        CHECK(completion().tag == 0x102 && got[0] == 2);
        OK(fi_trecv(side.ep, &got[1], 4, NULL, FI_ADDR_UNSPEC, 0x100, 0xff, &context[1]));
        CHECK(completion().tag == 0x100 && got[1] == 0);
        OK(fi_trecv(side.ep, &got[2], 4, NULL, FI_ADDR_UNSPEC, 0, ~0ULL, &context[2]));
        CHECK(completion().tag == 0x101 && got[2] == 1);
    }
    turn_until_other();
}

static const size_t lengths[] = { 0, 1, 7, 64, 4096, 16384, 16385, 65536, 1000003, 9 << 20 };
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* Every length, of both kinds, received before it comes and after. */
static void all_lengths(void)
{
    uint8_t *bytes = malloc(lengths[LENGTHS - 1] + 8);
    struct fi_context context;
    open_side(&usual);
    for (int round = 0; round < 4; round++) {
        bool is_late = round & 1, is_tagged = round & 2;
        for (unsigned at = 0; at < LENGTHS; at++) {
            size_t len = lengths[at];
            /* Words are in no special place. */
            uint8_t *place = bytes + at % 8;
            if (side.is_first) {
                if (!is_late)
                    turn_until_other();
                fill(place, len, at);
                if (is_tagged)
                    AGAIN(fi_tsend(side.ep, place, len, NULL, side.peer, at, &context));
                else
                    AGAIN(fi_send(side.ep, place, len, NULL, side.peer, &context));
                if (is_late)
                    turn_until_other();
                CHECK(completion().op_context == &context);
            } else {
                memset(place, 0xee, len);
                if (is_late)
                    turn_until_other();
                if (is_tagged)
                    OK(fi_trecv(side.ep, place, len, NULL, FI_ADDR_UNSPEC, at, 0, &context));
                else
                    OK(fi_recv(side.ep, place, len, NULL, FI_ADDR_UNSPEC, &context));
                if (!is_late)
                    turn_until_other();
                CHECK(completion().len == len);
                CHECK(is_filled(place, len, at));
            }
        }
    }
    turn_until_other();
    free(bytes);
}

/* Many messages keep their order, though nobody receives them for a while. */
static void order(void)
{
    enum { COUNT = 3000 };
    static uint64_t values[COUNT];
    static struct fi_context contexts[COUNT];
    open_side(&usual);
    if (side.is_first) {
        for (uint64_t at = 0; at < COUNT; at++) {
            AGAIN(fi_inject(side.ep, &at, sizeof at, side.peer));
        }
        turn_until_other();
    } else {
        turn_until_other();
        for (size_t from = 0; from < COUNT; from += 500) {
            for (size_t at = from; at < from + 500; at++)
                AGAIN(fi_recv(side.ep, &values[at], 8, NULL, FI_ADDR_UNSPEC, &contexts[at]));
            for (size_t at = from; at < from + 500; at++)
                CHECK(completion().op_context == &contexts[at]);
        }
        for (uint64_t at = 0; at < COUNT; at++)
            CHECK(values[at] == at);
    }
    turn_until_other();
}

/* Messages of no bytes take the least room, and are the most that may be on their way. */
static void empty_messages(void)
{
    enum { COUNT = 3000 };
    static struct fi_context contexts[COUNT];
    open_side(&usual);
    if (side.is_first) {
        for (int at = 0; at < COUNT; at++)
            AGAIN(fi_tinject(side.ep, NULL, 0, side.peer, at));
    } else {
        for (int from = 0; from < COUNT; from += 500) {
            for (int at = from; at < from + 500; at++)
                AGAIN(fi_trecv(side.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, at, 0, &contexts[at]));
            for (int at = from; at < from + 500; at++)
                CHECK(completion().op_context == &contexts[at]);
        }
    }
    turn_until_other();
}

static void injected_data(void)
{
    uint8_t bytes[40];
    struct fi_context context;
    open_side(&usual);
    if (side.is_first) {
        fill(bytes, sizeof bytes, 3);
        AGAIN(fi_tinjectdata(side.ep, bytes, sizeof bytes, 0xfeedf00d, side.peer, TAG));
        /* The memory is the program's again. */
        memset(bytes, 0, sizeof bytes);
        AGAIN(fi_tsenddata(side.ep, bytes, 0, NULL, 77, side.peer, TAG + 1, &context));
        CHECK(completion().op_context == &context);
    } else {
        OK(fi_trecv(side.ep, bytes, sizeof bytes, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
        struct fi_cq_tagged_entry got = completion();
        CHECK(got.flags & FI_REMOTE_CQ_DATA && got.data == 0xfeedf00d);
        CHECK(is_filled(bytes, sizeof bytes, 3));
        OK(fi_trecv(side.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, TAG + 1, 0, &context));
        got = completion();
        CHECK(got.data == 77 && got.len == 0);
    }
    turn_until_other();
}

static void pieces(void)
{
    enum { PART = 30000 };
    static uint8_t bytes[4 * PART];
    struct fi_context context;
    struct iovec parts[4];
    open_side(&usual);
    for (int at = 0; at < 4; at++) {
        /* Another order in memory than in the message. */
        parts[at].iov_base = bytes + (3 - at) * PART;
        parts[at].iov_len = PART;
    }
    for (size_t len = 100; len <= PART; len += PART - 100) {
        for (int at = 0; at < 4; at++)
            parts[at].iov_len = len;
        if (side.is_first) {
            for (int at = 0; at < 4; at++)
                fill(parts[at].iov_base, len, at);
            AGAIN(fi_tsendv(side.ep, parts, NULL, 4, side.peer, TAG, &context));
        } else {
            OK(fi_trecvv(side.ep, parts, NULL, 4, FI_ADDR_UNSPEC, TAG, 0, &context));
        }
        struct fi_cq_tagged_entry done = completion();
        CHECK(done.op_context == &context);
        for (int at = 0; at < 4; at++)
            CHECK(is_filled(parts[at].iov_base, len, at));
        turn_until_other();
    }
}

static void truncated(void)
{
    static uint8_t bytes[100000];
    struct fi_context context;
    open_side(&usual);
    for (size_t len = 100; len <= sizeof bytes; len += sizeof bytes - 100) {
        if (side.is_first) {
            fill(bytes, len, 9);
            AGAIN(fi_tsend(side.ep, bytes, len, NULL, side.peer, TAG, &context));
            turn_until_other();
        } else {
            memset(bytes, 0, len);
            OK(fi_trecv(side.ep, bytes, 40, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
            struct fi_cq_err_entry error = failure();
            CHECK(error.err == FI_ETRUNC && error.op_context == &context);
            CHECK(error.olen == len - 40);
            CHECK(bytes[40] == 0);
            turn_until_other();
        }
        /* The connection goes on. */
        if (side.is_first) {
            completion();
            AGAIN(fi_tsend(side.ep, bytes, 10, NULL, side.peer, TAG + 1, &context));
            completion();
        } else {
            OK(fi_trecv(side.ep, bytes, 10, NULL, FI_ADDR_UNSPEC, TAG + 1, 0, &context));
            CHECK(completion().len == 10 && is_filled(bytes, 10, 9));
        }
        turn_until_other();
    }
}

static void cancelled(void)
{
    uint8_t bytes[8];
    struct fi_context contexts[2];
    open_side(&usual);
    OK(fi_trecv(side.ep, bytes, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &contexts[0]));
    OK(fi_trecv(side.ep, bytes, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &contexts[1]));
    OK(fi_cancel(&side.ep->fid, &contexts[0]));
    struct fi_cq_err_entry error = failure();
    CHECK(error.err == FI_ECANCELED && error.op_context == &contexts[0]);
    /* The other one is still there. */
    uint64_t value = side.is_first;
    AGAIN(fi_tinject(side.ep, &value, 8, side.peer, TAG));
    CHECK(completion().op_context == &contexts[1]);
    turn_until_other();
}

/* Looks for a message until it is there. */
static struct fi_cq_tagged_entry peek(const struct fi_msg_tagged *message, uint64_t flags)
{
    for (;;) {
        struct fi_cq_tagged_entry entry;
        ssize_t count = fi_trecvmsg(side.ep, message, FI_PEEK | flags);
        if (count == -FI_ENOMSG || count == -FI_EAGAIN) {
            turn();
            continue;
        }
        OK(count);
        while ((count = fi_cq_read(side.cq, &entry, 1)) == -FI_EAGAIN)
            ;
        if (count == 1)
            return entry;
        CHECK(failure().err == FI_ENOMSG);
    }
}

static void peeked(void)
{
    uint8_t bytes[200];
    struct fi_context context, other;
    open_side(&usual);
    struct fi_msg_tagged message = { .addr = FI_ADDR_UNSPEC, .tag = TAG, .context = &context };
    if (!side.is_first) {
        ssize_t result = fi_trecvmsg(side.ep, &message, FI_PEEK);
        if (result != -FI_ENOMSG) {
            OK(result);
            CHECK(failure().err == FI_ENOMSG);
        }
    }
    turn_until_other();
    if (side.is_first) {
        for (unsigned at = 0; at < 3; at++) {
            fill(bytes, sizeof bytes, at);
            AGAIN(fi_tinject(side.ep, bytes, 50 + at, side.peer, TAG));
        }
        turn_until_other();
    } else {
        turn_until_other();
        /* It stays. */
        struct fi_cq_tagged_entry seen = peek(&message, 0);
        CHECK(seen.len == 50 && seen.tag == TAG && seen.op_context == &context);
        /* It is set aside: the next receive takes the second. */
        CHECK(peek(&message, FI_CLAIM).len == 50);
        OK(fi_trecv(side.ep, bytes, sizeof bytes, NULL, FI_ADDR_UNSPEC, TAG, 0, &other));
        seen = completion();
        CHECK(seen.len == 51 && seen.op_context == &other && is_filled(bytes, 51, 1));
        struct iovec place = { bytes, sizeof bytes };
        message.msg_iov = &place;
        message.iov_count = 1;
        OK(fi_trecvmsg(side.ep, &message, FI_CLAIM));
        CHECK(completion().len == 50 && is_filled(bytes, 50, 0));
        /* The third is dropped. */
        peek(&message, FI_DISCARD);
        ssize_t result = fi_trecvmsg(side.ep, &message, FI_PEEK);
        if (result != -FI_ENOMSG) {
            OK(result);
            CHECK(failure().err == FI_ENOMSG);
        }
    }
    turn_until_other();
}

/* Remote writes and reads, of memory that begins anywhere. */
static void remote_memory(void)
{
    enum { LEN = 300000, KEY = 41 };
    static uint8_t memory[LEN + 16], bytes[LEN];
    static const size_t accesses[] = { 1, 8, 1000, 5000, LEN };
    struct fi_context context;
    struct fid_mr *region = NULL;
    open_side(&usual);
    uint8_t *start = memory + 3;
    if (!side.is_first) {
        OK(fi_mr_reg(side.domain, start, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &region, NULL));
        memory[2] = memory[3 + LEN] = 0x55;
    }
    turn_until_other();
    for (unsigned at = 0; at < sizeof accesses / sizeof *accesses; at++) {
        size_t len = accesses[at], from = LEN - len;
        if (side.is_first) {
            fill(bytes, len, at);
            AGAIN(fi_write(side.ep, bytes, len, NULL, side.peer, from, KEY, &context));
            struct fi_cq_tagged_entry done = completion();
            CHECK(done.op_context == &context && done.flags & FI_WRITE && done.flags & FI_RMA);
            memset(bytes, 0, len);
            AGAIN(fi_read(side.ep, bytes, len, NULL, side.peer, from, KEY, &context));
            done = completion();
            CHECK(done.op_context == &context && done.flags & FI_READ);
            CHECK(is_filled(bytes, len, at));
        }
        turn_until_other();
        if (!side.is_first) {
            CHECK(is_filled(start + from, len, at));
            CHECK(memory[2] == 0x55 && memory[3 + LEN] == 0x55);
        }
        turn_until_other();
    }
    if (region)
        OK(fi_close(&region->fid));
}

/* A write with data is in its place when the data comes. */
static void remote_data(void)
{
    enum { LEN = 20000, KEY = 5 };
    static uint8_t memory[LEN];
    struct fi_context context;
    struct fid_mr *region = NULL;
    open_side(&usual);
    if (!side.is_first)
        OK(fi_mr_reg(side.domain, memory, LEN, FI_REMOTE_WRITE, 0, KEY, 0, &region, NULL));
    turn_until_other();
    if (side.is_first) {
        fill(memory, LEN, 6);
        AGAIN(fi_writedata(side.ep, memory, LEN, NULL, 99, side.peer, 0, KEY, &context));
        CHECK(completion().op_context == &context);
        AGAIN(fi_inject_writedata(side.ep, memory, 64, 100, side.peer, 64, KEY));
    } else {
        for (uint64_t data = 99; data <= 100; data++) {
            struct fi_cq_tagged_entry got = completion();
            CHECK(got.flags & FI_REMOTE_CQ_DATA && got.flags & FI_REMOTE_WRITE);
            CHECK(got.data == data);
            CHECK(is_filled(memory, 64, 6));
        }
        CHECK(is_filled(memory + 64, 64, 6));
        CHECK(is_filled(memory, 64, 6));
    }
    turn_until_other();
    if (region)
        OK(fi_close(&region->fid));
}

/* Many that do not wait for each other, to one word: each finds what the one before it left. */
static void words_in_order(uint64_t at, uint64_t key)
{
    enum { COUNT = 100 };
    static uint64_t written[COUNT], held[COUNT], one = 1;
    static struct fi_context contexts[2 * COUNT];
    for (unsigned n = 0; n < COUNT; n++) {
        written[n] = 1000 * n;
        AGAIN(fi_atomic(side.ep, &written[n], 1, NULL, side.peer, at, key, FI_UINT64, FI_ATOMIC_WRITE, &contexts[2 * n]));
        AGAIN(fi_fetch_atomic(side.ep, &one, 1, NULL, &held[n], NULL, side.peer, at, key, FI_UINT64, FI_SUM, &contexts[2 * n + 1]));
    }
    for (unsigned n = 0; n < 2 * COUNT; n++)
        completion();
    for (unsigned n = 0; n < COUNT; n++)
        CHECK(held[n] == 1000 * n);
}

/* Words of the other one's memory are changed in one step, each of the two changing them. */
static void atomics(void)
{
    enum { WORDS = 16, KEY = 43, ROUNDS = 200 };
    static uint64_t memory[WORDS];
    uint64_t ones[4] = { 1, 1, 1, 1 }, held[4], expected = 0, value;
    uint32_t half = 7, half_held;
    struct fi_context context;
    struct fid_mr *region;
    struct wanted wanted = usual;
    wanted.caps |= FI_ATOMIC;
    open_side(&wanted);
    OK(fi_mr_reg(side.domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &region, NULL));
    size_t count = 0;
    OK(fi_atomicvalid(side.ep, FI_UINT64, FI_SUM, &count));
    CHECK(count >= 4);
    OK(fi_fetch_atomicvalid(side.ep, FI_INT64, FI_ATOMIC_READ, &count));
    OK(fi_compare_atomicvalid(side.ep, FI_UINT32, FI_CSWAP, &count));
    turn_until_other();
    for (int round = 0; round < ROUNDS; round++) {
        /* Both add to the words of the second, so that none may be lost. */
        fi_addr_t to = side.is_first ? side.peer : side.self;
        AGAIN(fi_atomic(side.ep, ones, 4, NULL, to, 0, KEY, FI_UINT64, FI_SUM, &context));
        struct fi_cq_tagged_entry done = completion();
        CHECK(done.op_context == &context && done.flags & FI_ATOMIC);
    }
    turn_until_other();
    if (!side.is_first)
        for (int at = 0; at < 4; at++)
            CHECK(memory[at] == 2 * ROUNDS);
    turn_until_other();
    if (side.is_first) {
        AGAIN(fi_fetch_atomic(side.ep, ones, 4, NULL, held, NULL, side.peer, 0, KEY, FI_UINT64, FI_SUM, &context));
        CHECK(completion().op_context == &context);
        CHECK(held[0] == 2 * ROUNDS && held[3] == 2 * ROUNDS);
        AGAIN(fi_fetch_atomic(side.ep, NULL, 2, NULL, held, NULL, side.peer, 8, KEY, FI_UINT64, FI_ATOMIC_READ, &context));
        completion();
        CHECK(held[0] == 2 * ROUNDS + 1 && held[1] == 2 * ROUNDS + 1);
        /* One that finds what it expects, and one that does not. */
        value = 99;
        AGAIN(fi_compare_atomic(side.ep, &value, 1, NULL, &expected, NULL, held, NULL, side.peer, 64, KEY, FI_UINT64, FI_CSWAP, &context));
        completion();
        CHECK(held[0] == 0);
        value = 100;
        AGAIN(fi_compare_atomic(side.ep, &value, 1, NULL, &expected, NULL, held, NULL, side.peer, 64, KEY, FI_UINT64, FI_CSWAP, &context));
        completion();
        CHECK(held[0] == 99);
        /* Halves of a word, one of which is left alone. */
        AGAIN(fi_fetch_atomic(side.ep, &half, 1, NULL, &half_held, NULL, side.peer, 76, KEY, FI_UINT32, FI_ATOMIC_WRITE, &context));
        completion();
        CHECK(half_held == 0);
        AGAIN(fi_inject_atomic(side.ep, &half, 1, side.peer, 76, KEY, FI_UINT32, FI_BXOR));
        value = 0x0f;
        AGAIN(fi_atomic(side.ep, &value, 1, NULL, side.peer, 80, KEY, FI_UINT64, FI_BOR, &context));
        completion();
        value = 0x3c;
        AGAIN(fi_fetch_atomic(side.ep, &value, 1, NULL, held, NULL, side.peer, 80, KEY, FI_UINT64, FI_BAND, &context));
        completion();
        CHECK(held[0] == 0x0f);
        words_in_order(88, KEY);
    }
    turn_until_other();
    if (!side.is_first) {
        CHECK(memory[8] == 99 && memory[9] == 0 && memory[10] == 0x0c);
        for (int at = 0; at < 4; at++)
            CHECK(memory[at] == 2 * ROUNDS + 1);
    }
    turn_until_other();
    OK(fi_close(&region->fid));
}

/* No memory with that key, not for that, not so much of it, not any more: each is an error of
 * its operation, and the connection goes on. */
static void forbidden_memory(void)
{
    enum { LEN = 4096, KEY = 7 };
    static uint8_t memory[LEN], bytes[2 * LEN];
    struct fi_context context;
    struct fid_mr *region = NULL;
    open_side(&usual);
    if (!side.is_first)
        OK(fi_mr_reg(side.domain, memory, LEN, FI_REMOTE_READ, 0, KEY, 0, &region, NULL));
    turn_until_other();
    if (side.is_first) {
        AGAIN(fi_write(side.ep, bytes, 8, NULL, side.peer, 0, KEY + 1, &context));
        CHECK(failure().op_context == &context);
        AGAIN(fi_write(side.ep, bytes, 8, NULL, side.peer, 0, KEY, &context));
        CHECK(failure().op_context == &context);
        AGAIN(fi_read(side.ep, bytes, 8, NULL, side.peer, LEN - 4, KEY, &context));
        CHECK(failure().op_context == &context);
        AGAIN(fi_read(side.ep, bytes, LEN, NULL, side.peer, 0, KEY, &context));
        CHECK(completion().op_context == &context);
    }
    turn_until_other();
    if (region)
        OK(fi_close(&region->fid));
    turn_until_other();
    if (side.is_first) {
        AGAIN(fi_read(side.ep, bytes, 8, NULL, side.peer, 0, KEY, &context));
        CHECK(failure().op_context == &context);
        AGAIN(fi_tinject(side.ep, bytes, 8, side.peer, TAG));
    } else {
        OK(fi_trecv(side.ep, bytes, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
        completion();
    }
    turn_until_other();
}

static void selective(void)
{
    uint64_t value = 1;
    struct fi_context context[3];
    struct wanted wanted = usual;
    wanted.cq_flags = FI_SELECTIVE_COMPLETION;
    open_side(&wanted);
    struct iovec part = { &value, sizeof value };
    if (side.is_first) {
        struct fi_msg_tagged message = {
            .msg_iov = &part, .iov_count = 1, .addr = side.peer, .tag = TAG, .context = &context[0],
        };
        AGAIN(fi_tsendmsg(side.ep, &message, 0));
        message.context = &context[1];
        AGAIN(fi_tsendmsg(side.ep, &message, FI_COMPLETION));
        CHECK(completion().op_context == &context[1]);
    } else {
        uint64_t got[2] = { 0 };
        struct iovec place = { &got[0], 8 };
        struct fi_msg_tagged message = {
            .msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = TAG, .context = &context[0],
        };
        OK(fi_trecvmsg(side.ep, &message, 0));
        place.iov_base = &got[1];
        message.context = &context[1];
        OK(fi_trecvmsg(side.ep, &message, FI_COMPLETION));
        CHECK(completion().op_context == &context[1]);
        CHECK(got[0] == 1 && got[1] == 1);
    }
    turn_until_other();
}

/* Who waits for a descriptor is told, and never sleeps beside a completion. */
static void descriptor(void)
{
    uint64_t value = 0;
    struct fi_context context;
    struct wanted wanted = usual;
    wanted.wait = FI_WAIT_FD;
    open_side(&wanted);
    int fd = -1;
    OK(fi_control(&side.cq->fid, FI_GETWAIT, &fd));
    CHECK(fd >= 0);
    for (uint64_t round = 0; round < 20; round++) {
        if (side.is_first == (round % 2 == 0)) {
            if (round % 4 < 2)
                usleep(2000);
            AGAIN(fi_tinject(side.ep, &round, 8, side.peer, TAG));
            continue;
        }
        OK(fi_trecv(side.ep, &value, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
        for (;;) {
            struct fid *fid = &side.cq->fid;
            struct pollfd ready = { .fd = fd, .events = POLLIN };
            struct fi_cq_tagged_entry entry;
            if (fi_trywait(side.fabric, &fid, 1) == FI_SUCCESS)
                CHECK(poll(&ready, 1, 10000) == 1);
            ssize_t count = fi_cq_read(side.cq, &entry, 1);
            if (count == -FI_EAGAIN)
                continue;
            OK(count);
            break;
        }
        CHECK(value == round);
    }
    turn_until_other();
    /* The other way to wait. */
    struct fi_cq_tagged_entry entry;
    if (side.is_first) {
        usleep(20000);
        AGAIN(fi_tinject(side.ep, &value, 8, side.peer, TAG));
    } else {
        CHECK(fi_cq_sread(side.cq, &entry, 1, NULL, 5) == -FI_EAGAIN);
        OK(fi_trecv(side.ep, &value, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
        CHECK(fi_cq_sread(side.cq, &entry, 1, NULL, 10000) == 1);
    }
    turn_until_other();
}

/* One receive for several messages: each behind the other, and the buffer is given back once. */
static void several(void)
{
    static const size_t sizes[] = { 100, 1000, 20000, 1, 5000, 30000, 700, 9000 };
    enum { COUNT = sizeof sizes / sizeof *sizes, ROOM = 70000 };
    static uint8_t room[2][ROOM], bytes[30000];
    struct fi_context context[2];
    struct wanted wanted = usual;
    wanted.caps |= FI_MULTI_RECV;
    open_side(&wanted);
    if (side.is_first) {
        struct fi_context sent;
        for (unsigned at = 0; at < COUNT; at++) {
            fill(bytes, sizes[at], at);
            AGAIN(fi_send(side.ep, bytes, sizes[at], NULL, side.peer, &sent));
            CHECK(completion().op_context == &sent);
            /* The first two come before there is a receive. */
            if (at == 1)
                meet();
        }
        turn_until_other();
        return;
    }
    size_t least = 30000, len = sizeof least;
    OK(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, len));
    turn_until_other();
    for (int rounds = 0; rounds < 1000; rounds++)
        turn();
    for (int at = 0; at < 2; at++) {
        struct iovec part = { room[at], ROOM };
        struct fi_msg message = {
            .msg_iov = &part, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &context[at],
        };
        OK(fi_recvmsg(side.ep, &message, FI_MULTI_RECV | FI_COMPLETION));
    }
    bool seen[COUNT] = { false }, released[2] = { false };
    for (unsigned count = 0; count < COUNT || !released[0];) {
        struct fi_cq_tagged_entry entry = completion();
        unsigned which = entry.op_context == &context[1];
        CHECK(entry.op_context == &context[which]);
        /* ofi_rxm tells so when it knows where the last message goes, which may have to be read yet. */
        CHECK(!released[which] || strstr(side.provider, "ofi_rxm"));
        released[which] = released[which] || entry.flags & FI_MULTI_RECV;
        if (!(entry.flags & FI_RECV))
            continue;
        uint8_t *place = entry.buf;
        CHECK(place >= room[which] && place + entry.len <= room[which] + ROOM);
        unsigned of = 0;
        while (of < COUNT && sizes[of] != entry.len)
            of++;
        CHECK(of < COUNT && !seen[of] && is_filled(place, entry.len, of));
        seen[of] = true;
        count++;
    }
    /* It has room left: only taking it back releases it. */
    CHECK(!released[1]);
    turn_until_other();
}

static void counters(void)
{
    uint64_t value = 3;
    struct fi_context context;
    struct wanted wanted = usual;
    wanted.counts = true;
    open_side(&wanted);
    OK(fi_trecv(side.ep, &value, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
    uint64_t other = 4;
    AGAIN(fi_tinject(side.ep, &other, 8, side.peer, TAG));
    OK(fi_cntr_wait(side.receives, 1, 10000));
    OK(fi_cntr_wait(side.sends, 1, 10000));
    CHECK(fi_cntr_read(side.receives) == 1 && fi_cntr_readerr(side.receives) == 0);
    OK(fi_cntr_add(side.receives, 5));
    CHECK(fi_cntr_read(side.receives) == 6);
    OK(fi_cntr_set(side.receives, 0));
    CHECK(fi_cntr_read(side.receives) == 0);
    CHECK(completion().op_context == &context && value == 4);
    turn_until_other();
}

static void self_sends(void)
{
    enum { LEN = 100000 };
    static uint8_t from[LEN], to[LEN];
    struct fi_context context[2];
    open_side(&usual);
    for (size_t len = 8; len <= LEN; len += LEN - 8) {
        fill(from, len, 2);
        OK(fi_trecv(side.ep, to, len, NULL, side.self, TAG, 0, &context[0]));
        AGAIN(fi_tsend(side.ep, from, len, NULL, side.self, TAG, &context[1]));
        void *one = completion().op_context, *two = completion().op_context;
        CHECK((one == &context[0] && two == &context[1]) || (one == &context[1] && two == &context[0]));
        CHECK(is_filled(to, len, 2));
    }
    turn_until_other();
}

/* What a carrier cannot do ends with an error that says so, and all else goes on. */
static void unreached(void)
{
    uint64_t value = 4711, got = 0;
    struct fi_context context[2];
    open_side(&usual);
    AGAIN(fi_write(side.ep, &value, 8, NULL, side.peer, 0, 7, &context[0]));
    struct fi_cq_err_entry error = failure();
    CHECK(error.op_context == &context[0] && error.err == FI_EOPNOTSUPP);
    AGAIN(fi_tsend(side.ep, &value, 8, NULL, side.self, TAG, &context[1]));
    error = failure();
    CHECK(error.op_context == &context[1] && error.err == FI_EOPNOTSUPP);
    OK(fi_trecv(side.ep, &got, 8, NULL, side.peer, TAG, 0, &context[0]));
    AGAIN(fi_tinject(side.ep, &value, 8, side.peer, TAG));
    CHECK(completion().op_context == &context[0] && got == value);
    turn_until_other();
    /* Another endpoint shares the address, and has a port of its own. */
    struct fid_ep *another;
    struct sockaddr_in names[2];
    size_t len = sizeof *names;
    OK(fi_endpoint(side.domain, side.info, &another, NULL));
    OK(fi_ep_bind(another, &side.av->fid, 0));
    OK(fi_ep_bind(another, &side.cq->fid, FI_TRANSMIT | FI_RECV));
    OK(fi_enable(another));
    OK(fi_getname(&another->fid, &names[0], &len));
    OK(fi_getname(&side.ep->fid, &names[1], &len));
    CHECK(names[0].sin_addr.s_addr == names[1].sin_addr.s_addr && names[0].sin_port != names[1].sin_port);
    OK(fi_trecv(side.ep, &got, 8, NULL, side.peer, TAG + 1, 0, &context[0]));
    value = 4712;
    AGAIN(fi_tinject(another, &value, 8, side.peer, TAG + 1));
    CHECK(completion().op_context == &context[0] && got == value);
    turn_until_other();
    OK(fi_close(&another->fid));
}

/* Both send at once, long and short, before either receives. */
static void crossing(void)
{
    enum { COUNT = 40, LEN = 200000 };
    static uint8_t out[COUNT][LEN], in[COUNT][LEN];
    static struct fi_context sends[COUNT], receives[COUNT];
    open_side(&usual);
    for (unsigned at = 0; at < COUNT; at++) {
        size_t len = at % 3 ? LEN : 500;
        fill(out[at], len, at);
        AGAIN(fi_tsend(side.ep, out[at], len, NULL, side.peer, at, &sends[at]));
    }
    /* In another order. */
    for (unsigned at = COUNT; at-- > 0;) {
        size_t len = at % 3 ? LEN : 500;
        AGAIN(fi_trecv(side.ep, in[at], len, NULL, side.peer, at, 0, &receives[at]));
    }
    for (unsigned at = 0; at < 2 * COUNT; at++)
        completion();
    for (unsigned at = 0; at < COUNT; at++)
        CHECK(is_filled(in[at], at % 3 ? LEN : 500, at));
    turn_until_other();
}

static void delivered(void)
{
    static uint8_t bytes[50000];
    struct fi_context context;
    open_side(&usual);
    for (size_t len = 100; len <= sizeof bytes; len += sizeof bytes - 100) {
        struct iovec part = { bytes, len };
        if (side.is_first) {
            struct fi_msg_tagged message = {
                .msg_iov = &part, .iov_count = 1, .addr = side.peer, .tag = TAG, .context = &context,
            };
            AGAIN(fi_tsendmsg(side.ep, &message, FI_DELIVERY_COMPLETE));
            CHECK(completion().op_context == &context);
            message.tag = TAG + 1;
            AGAIN(fi_tsendmsg(side.ep, &message, FI_TRANSMIT_COMPLETE));
            CHECK(completion().op_context == &context);
        } else {
            OK(fi_trecv(side.ep, bytes, len, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
            completion();
            OK(fi_trecv(side.ep, bytes, len, NULL, FI_ADDR_UNSPEC, TAG + 1, 0, &context));
            completion();
        }
        turn_until_other();
    }
}

/* A peer is killed: what is sent to it ends with an error, and so does what it had offered. */
static void dead_peer(void)
{
    static uint8_t bytes[1 << 20];
    struct fi_context context;
    open_side(&usual);
    if (!side.is_first) {
        AGAIN(fi_tinject(side.ep, bytes, 8, side.peer, TAG));
        /* Long enough for the other one to hear of it; it has no place for it yet. */
        AGAIN(fi_tsend(side.ep, bytes, sizeof bytes, NULL, side.peer, TAG + 1, &context));
        turn_until_other();
        kill(getpid(), SIGKILL);
    }
    OK(fi_trecv(side.ep, bytes, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &context));
    CHECK(completion().op_context == &context);
    turn_until_other();
    int status;
    CHECK(waitpid(side.child, &status, 0) == side.child && WIFSIGNALED(status));
    side.child = 0;
    AGAIN(fi_tsend(side.ep, bytes, sizeof bytes, NULL, side.peer, TAG, &context));
    struct fi_cq_err_entry error = failure();
    CHECK(error.op_context == &context);
    const char *text = fi_cq_strerror(side.cq, error.prov_errno, error.err_data, NULL, 0);
    CHECK(text && *text);
}

/* The other process is stopped in the middle of what comes, longer than it takes within a host to
 * take back what was told of, and shorter than peers are given up. All of it arrives later. */
static void stopped_peer(void)
{
    enum { COUNT = 48, LEN = 1 << 20 };
    static uint8_t bytes[COUNT][LEN];
    static struct fi_context contexts[COUNT];
    struct timespec began, now;
    open_side(&usual);
    for (unsigned at = 0; at < COUNT; at++) {
        if (!side.is_first) {
            OK(fi_trecv(side.ep, bytes[at], LEN, NULL, FI_ADDR_UNSPEC, at, 0, &contexts[at]));
            continue;
        }
        fill(bytes[at], LEN, at);
        AGAIN(fi_tsend(side.ep, bytes[at], LEN, NULL, side.peer, at, &contexts[at]));
    }
    completion();
    if (side.is_first) {
        CHECK(kill(side.child, SIGSTOP) == 0);
        clock_gettime(CLOCK_MONOTONIC, &began);
        do {
            turn();
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - began.tv_sec) * 10 + (now.tv_nsec - began.tv_nsec) / 100000000 < 15);
        CHECK(kill(side.child, SIGCONT) == 0);
    }
    for (unsigned at = 1; at < COUNT; at++)
        completion();
    for (unsigned at = 0; at < COUNT; at++)
        CHECK(is_filled(bytes[at], LEN, at));
    turn_until_other();
}

/* Nobody is there. */
static void absent_peer(void)
{
    uint8_t bytes[8] = { 0 };
    struct fi_context context;
    open_side(&usual);
    struct sockaddr_in nobody = { .sin_family = AF_INET, .sin_port = htons(9) };
    nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fi_addr_t to;
    CHECK(fi_av_insert(side.av, &nobody, 1, &to, 0, NULL) == 1);
    ssize_t result;
    while ((result = fi_tsend(side.ep, bytes, 8, NULL, to, TAG, &context)) == -FI_EAGAIN)
        turn();
    if (result == 0)
        CHECK(failure().op_context == &context);
    turn_until_other();
}

static void addresses(void)
{
    struct sockaddr_in address, back;
    size_t len = sizeof back;
    char text[64];
    open_side(&usual);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(4711);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fi_addr_t numbers[2];
    CHECK(fi_av_insert(side.av, &address, 1, &numbers[0], 0, NULL) == 1);
    OK(fi_av_lookup(side.av, numbers[0], &back, &len));
    CHECK(len == sizeof back && memcmp(&address, &back, 8) == 0);
    len = sizeof text;
    CHECK(fi_av_straddr(side.av, &address, text, &len) == text);
    CHECK(strstr(text, "127.0.0.1:4711"));
    CHECK(fi_av_insertsvc(side.av, "127.0.0.1", "4712", &numbers[1], 0, NULL) == 1);
    OK(fi_av_lookup(side.av, numbers[1], &back, &len));
    CHECK(ntohs(back.sin_port) == 4712);
    OK(fi_av_remove(side.av, numbers, 1, 0));
    len = sizeof back;
    CHECK(fi_getname(&side.ep->fid, &back, &len) == 0 && back.sin_port != 0);
    len = 1;
    CHECK(fi_getname(&side.ep->fid, &back, &len) == -FI_ETOOSMALL && len == sizeof back);
    turn_until_other();
}

/* What is offered is what was asked for, and what is not offered is refused. */
static void offers(void)
{
    struct fi_info *hints = fi_allocinfo(), *info, *each;
    hints->fabric_attr->prov_name = strdup(side.provider);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    for (each = info; each; each = each->next) {
        CHECK(each->caps & FI_TAGGED && each->ep_attr->type == FI_EP_RDM);
        CHECK(strcmp(each->fabric_attr->prov_name, side.provider) == 0);
        CHECK(each->src_addr && each->domain_attr->name && each->fabric_attr->name);
        CHECK(each->tx_attr->iov_limit >= 1 && each->ep_attr->max_msg_size >= 1 << 20);
    }
    /* By the name of a domain. */
    hints->domain_attr->name = strdup(info->domain_attr->name);
    struct fi_info *named;
    OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &named));
    CHECK(strcmp(named->domain_attr->name, info->domain_attr->name) == 0);
    fi_freeinfo(named);
    strcpy(hints->domain_attr->name, "~");
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &named) == -FI_ENODATA);
    free(hints->domain_attr->name);
    hints->domain_attr->name = NULL;
    fi_freeinfo(info);

    hints->caps = FI_TAGGED | FI_COLLECTIVE;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
    hints->caps = FI_TAGGED;
    hints->tx_attr->inject_size = 1 << 30;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
    hints->tx_attr->inject_size = 0;
    hints->ep_attr->type = FI_EP_DGRAM;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
    hints->ep_attr->type = FI_EP_RDM;

    /* To an address, and from one. */
    OK(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "4711", 0, hints, &info));
    CHECK(info->dest_addr && info->dest_addrlen == sizeof(struct sockaddr_in));
    fi_freeinfo(info);
    OK(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "4711", FI_SOURCE, hints, &info));
    CHECK(ntohs(((struct sockaddr_in *)info->src_addr)->sin_port) == 4711);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

/* Endpoints whose messages may be lost, and are not on one machine. */
static void datagrams(void)
{
    enum { COUNT = 40 };
    static uint8_t sent[1200], got[COUNT][1200];
    struct fi_context context[COUNT];
    const struct wanted wanted = { .type = FI_EP_DGRAM, .caps = FI_MSG };
    open_side(&wanted);
    CHECK(side.info->ep_attr->type == FI_EP_DGRAM && !(side.info->caps & (FI_RMA | FI_TAGGED)));
    CHECK(side.info->ep_attr->max_msg_size >= sizeof sent && side.info->ep_attr->max_msg_size < 1 << 20);
    static uint8_t far_too_long[1 << 20];
    CHECK(fi_send(side.ep, far_too_long, sizeof far_too_long, NULL, side.peer, &context[0]) < 0);
    for (int at = 0; at < COUNT; at++)
        OK(fi_recv(side.ep, got[at], sizeof got[at], NULL, FI_ADDR_UNSPEC, &context[at]));
    turn_until_other();
    struct fi_context here;
    bool seen[COUNT] = { false };
    for (unsigned at = 0; at < COUNT; at++) {
        fill(sent, 1 + at * 29, at);
        AGAIN(fi_send(side.ep, sent, 1 + at * 29, NULL, side.peer, &here));
        /* One there and one back, in whichever order they are told. */
        for (int told = 0; told < 2; told++) {
            struct fi_cq_tagged_entry entry = completion();
            if (entry.op_context == &here)
                continue;
            unsigned which = (struct fi_context *)entry.op_context - context, of = (entry.len - 1) / 29;
            CHECK(which < COUNT && of < COUNT && entry.len == 1 + of * 29 && !seen[of]);
            CHECK(is_filled(got[which], entry.len, of));
            seen[of] = true;
        }
    }
    turn_until_other();
}

/* Who sent it, and only from whom it is wanted: not every provider can tell. */
static void sources(void)
{
    uint64_t value = 8, got = 0;
    struct fi_context context[2];
    struct fi_cq_tagged_entry entry;
    fi_addr_t from = FI_ADDR_UNSPEC;
    struct wanted wanted = usual;
    wanted.caps |= FI_SOURCE | FI_DIRECTED_RECV;
    open_side(&wanted);
    /* Not from itself, though it comes first. */
    OK(fi_trecv(side.ep, &got, 8, NULL, side.self, TAG, 0, &context[0]));
    AGAIN(fi_tinject(side.ep, &value, 8, side.peer, TAG));
    OK(fi_trecv(side.ep, &got, 8, NULL, side.peer, TAG, 0, &context[1]));
    ssize_t count;
    while ((count = fi_cq_readfrom(side.cq, &entry, 1, &from)) == -FI_EAGAIN)
        ;
    OK(count);
    CHECK(entry.op_context == &context[1] && from == side.peer && got == 8);
    OK(fi_cancel(&side.ep->fid, &context[0]));
    CHECK(failure().err == FI_ECANCELED);
    turn_until_other();
}

static const struct {
    const char *name;
    void (*run)(void);
    bool is_alone;
} cases[] = {
    { "tagged", tagged, false },
    { "ignored_bits", ignored_bits, false },
    { "all_lengths", all_lengths, false },
    { "order", order, false },
    { "empty_messages", empty_messages, false },
    { "injected_data", injected_data, false },
    { "pieces", pieces, false },
    { "truncated", truncated, false },
    { "cancelled", cancelled, false },
    { "peeked", peeked, false },
    { "remote_memory", remote_memory, false },
    { "remote_data", remote_data, false },
    { "atomics", atomics, false },
    { "forbidden_memory", forbidden_memory, false },
    { "selective", selective, false },
    { "descriptor", descriptor, false },
    { "several", several, false },
    { "counters", counters, false },
    { "self_sends", self_sends, false },
    { "unreached", unreached, false },
    { "crossing", crossing, false },
    { "delivered", delivered, false },
    { "dead_peer", dead_peer, false },
    { "stopped_peer", stopped_peer, false },
    { "absent_peer", absent_peer, false },
    { "addresses", addresses, false },
    { "sources", sources, false },
    { "datagrams", datagrams, false },
    { "offers", offers, true },
    { "connection", connection, false },
    { "rejected", rejected, false },
    { "connected_memory", connected_memory, false },
    { "several_connections", several_connections, false },
    { "event_descriptor", event_descriptor, false },
    { "dead_connection", dead_connection, false },
    { "nobody_listens", nobody_listens, true },
    { "other_carrier", other_carrier, false },
    { "with_socket", with_socket, true },
    { "to_socket", to_socket, true },
    { "overflowing_queue", overflowing_queue, false },
    { "unread_messages", unread_messages, false },
    { "renewed_memory", renewed_memory, false },
    { "forked", forked, false },
    { "other_version", other_version, true },
    { "connected_to_other_version", connected_to_other_version, true },
};

/* What is meant for the second process alone: SECOND_NAME=value. */
static void take_settings(void)
{
    static const char prefix[] = "SECOND_";
    char *meant[16];
    size_t count = 0;
    for (char **next = environ; *next && count < sizeof meant / sizeof *meant; next++)
        if (strncmp(*next, prefix, sizeof prefix - 1) == 0)
            meant[count++] = *next + sizeof prefix - 1;
    while (count)
        CHECK(putenv(meant[--count]) == 0);
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 6)
        return 2;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        if (strcmp(argv[2], cases[at].name) != 0)
            continue;
        int ends[2], status = 0;
        /* Whatever happens, it ends. */
        alarm(40);
        signal(SIGPIPE, SIG_IGN);
        side.provider = argv[1];
        side.is_first = true;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            return 2;
        if (!cases[at].is_alone) {
            side.child = fork();
            side.is_first = side.child != 0;
            alarm(40);
        }
        setenv("CASES_ADDRESS_OF_FIRST", argc == 6 ? argv[3] : "127.0.0.1", 1);
        if (!side.is_first)
            take_settings();
        side.address = argc == 6 ? argv[side.is_first ? 3 : 5] : "127.0.0.1";
        if (argc == 6 && !side.is_first && strcmp(argv[4], "-") != 0) {
            int namespace = open(argv[4], O_RDONLY);
            CHECK(namespace >= 0 && setns(namespace, CLONE_NEWNET) == 0);
        }
        side.other = ends[side.is_first ? 0 : 1];
        close(ends[side.is_first ? 1 : 0]);
        cases[at].run();
        if (side.ep)
            close_side();
        if (!side.is_first || cases[at].is_alone || !side.child)
            return 0;
        waitpid(side.child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    fprintf(stderr, "there is no case %s\n", argv[2]);
    return 2;
}
