/* Both sides of a conversation over a queue pair: `pairs serve CARRIER FOLDER` and `pairs ask
 * CARRIER FOLDER`. The carrier is "node" (the shared memory of a host), "stp" or "qpip". The
 * tests of this crate let it talk with programs in other languages. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>

#include "pairs.h"

enum { COUNT = 100, ROOMS = 4, FIRST = 2 };

static void in_folder(char *path, size_t room, const char *folder)
{
    snprintf(path, room, "%s/address", folder);
}

/* What the server answers. */
static void invert(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] ^= 0xff;
}

/* Sends the answer of a message that lies in this piece, out of the first one. */
static void answer(const struct end *end, const lf_completion *message)
{
    uint8_t *bytes = malloc(message->length + 1);
    MUST(bytes);
    MUST(lf_region_read(end->memory, message->id * PIECE, bytes, message->length) == LF_OK);
    invert(bytes, message->length);
    MUST(lf_region_write(end->memory, 0, bytes, message->length) == LF_OK);
    free(bytes);
    lf_part part = { end->memory, 0, message->length };
    lf_work work = { .id = 100, .parts = &part, .count = 1, .operation = LF_SEND,
                     .flags = LF_IMMEDIATE, .immediate = message->immediate + 1 };
    MUST(post_room(end, message->id, PIECE) == LF_OK);
    MUST(lf_post_sends(end->pair, &work, 1, NULL) == LF_OK);
}

static int serve(const char *carrier, const char *folder)
{
    struct end end = open_end(carrier, folder, 1, NULL);
    lf_pair_options options = options_of(&end);
    lf_pair_listener *listener = lf_pair_listen(end.verbs, place_of(carrier));
    MUST(listener);
    char address[64], where[4096];
    if (lf_verbs_local(end.verbs, address, sizeof address) > 0) {
        in_folder(where, sizeof where, folder);
        tell(address, where);
    }
    MUST(end.pair = lf_pair_accept(listener, &options, PATIENCE));
    for (uint64_t piece = FIRST; piece < FIRST + ROOMS; piece++)
        MUST(post_room(&end, piece, PIECE) == LF_OK);

    /* Memory that the client uses, without a call of ours. Its key is a message. */
    lf_region *shared = lf_region_open(end.verbs, 4096, LF_READ | LF_WRITE);
    uint8_t key[LF_KEY];
    MUST(shared);
    if (end.reaches_memory) {
        MUST(lf_share(end.pair, shared, key) == LF_OK);
        MUST(lf_post_inline(end.pair, 101, key, sizeof key) == LF_OK);
    }
    for (;;) {
        lf_completion done = next(&end);
        if (done.status == LF_FLUSHED || done.status == LF_GONE)
            break; /* the client has ended it */
        if (done.status != LF_DONE)
            return fprintf(stderr, "%s\n", lf_status_text(done.status)), 1;
        if (done.operation == LF_RECEIVED && done.pair == lf_pair_id(end.pair))
            answer(&end, &done);
    }
    lf_completion left; /* what is flushed may complete before the state is known */
    while (lf_pair_state(end.pair) == LF_OK)
        MUST(lf_completions_wait(end.done, &left, 1, PATIENCE) >= 0);
    if (end.reaches_memory) {
        uint64_t words[2];
        MUST(lf_region_read(shared, 0, words, sizeof words) == LF_OK);
        MUST(words[0] == 5 * COUNT && words[1] == 0x0807060504030201);
    }
    lf_region_close(shared);
    lf_pair_listener_close(listener);
    close_end(&end);
    return 0;
}

/* The next completion by sleeping at a descriptor, as a program with a loop of its own does. */
static lf_completion next_by_poll(const struct end *end)
{
    struct pollfd wait = { lf_completions_descriptor(end->done), POLLIN, 0 };
    lf_completion one;
    for (;;) {
        if (lf_completions_poll(end->done, &one, 1) == 1)
            return one;
        if (lf_completions_arm(end->done, LF_NEXT) == 1)
            MUST(poll(&wait, 1, PATIENCE) == 1);
    }
}

/* Counts in memory of the server, writes there, and reads it again. */
static void use_memory(const struct end *end, const uint8_t *key)
{
    static const uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    uint8_t back[8];
    lf_part word = { end->memory, 0, 8 }, out = { end->memory, 8, 8 }, in = { end->memory, 16, 8 };
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t old;
        lf_work add = { .id = i, .parts = &word, .count = 1, .operation = LF_ATOMIC, .key = key,
                        .at = 0, .function = LF_ADD, .operand = 5 };
        MUST(lf_post_sends(end->pair, &add, 1, NULL) == LF_OK);
        lf_completion done = next(end);
        MUST(done.id == i && done.status == LF_DONE);
        MUST(lf_region_read(end->memory, 0, &old, sizeof old) == LF_OK && old == 5 * i);
    }
    /* In one list: the read finds what the write has put there, and tells of both. */
    lf_work both[2] = {
        { .id = 1, .parts = &out, .count = 1, .operation = LF_RDMA_WRITE, .flags = LF_SILENT,
          .key = key, .at = 8 },
        { .id = 2, .parts = &in, .count = 1, .operation = LF_RDMA_READ, .key = key, .at = 8 },
    };
    size_t posted;
    MUST(lf_region_write(end->memory, 8, bytes, sizeof bytes) == LF_OK);
    MUST(lf_post_sends(end->pair, both, 2, &posted) == LF_OK && posted == 2);
    lf_completion done = next(end);
    MUST(done.id == 2 && done.status == LF_DONE && done.operation == LF_SENT);
    MUST(lf_region_read(end->memory, 16, back, sizeof back) == LF_OK);
    MUST(memcmp(back, bytes, sizeof back) == 0);
}

/* One question, in two parts, and its answer. */
static void ask_one(const struct end *end, uint32_t number, uint8_t *bytes)
{
    size_t length = number % 10 == 9 ? PIECE : number + 1;
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(number + i);
    MUST(lf_region_write(end->memory, 0, bytes, length) == LF_OK);
    lf_part parts[2] = { { end->memory, 0, length / 2 },
                         { end->memory, length / 2, length - length / 2 } };
    /* Nobody has to be told that it is sent: there is an answer. */
    lf_work work = { .id = number, .parts = length > 1 ? parts : parts + 1,
                     .count = length > 1 ? 2 : 1, .operation = LF_SEND,
                     .flags = LF_IMMEDIATE | LF_SILENT, .immediate = number };
    MUST(post_room(end, FIRST, PIECE) == LF_OK);
    MUST(lf_post_sends(end->pair, &work, 1, NULL) == LF_OK);
    lf_completion done = number % 2 ? next_by_poll(end) : next(end);
    MUST(done.operation == LF_RECEIVED && done.status == LF_DONE && done.id == FIRST);
    MUST(done.length == length && done.flags & LF_IMMEDIATE && done.immediate == number + 1);
    invert(bytes, length);
    uint8_t *back = malloc(length);
    MUST(back && lf_region_read(end->memory, FIRST * PIECE, back, length) == LF_OK);
    MUST(memcmp(back, bytes, length) == 0);
    free(back);
}

static int ask(const char *carrier, const char *folder)
{
    char address[64] = "", where[4096], place[96];
    if (strcmp(carrier, "node") != 0) {
        in_folder(where, sizeof where, folder);
        find(address, sizeof address, where);
    }
    struct end end = open_end(carrier, folder, 2, address);
    lf_pair_options options = options_of(&end);
    if (end.endpoint)
        snprintf(place, sizeof place, "%s/%s", address, place_of(carrier));
    else
        snprintf(place, sizeof place, "%s", place_of(carrier));
    MUST(end.pair = lf_pair_connect(end.verbs, place, &options, PATIENCE));
    if (end.reaches_memory) {
        uint8_t key[LF_KEY];
        MUST(post_room(&end, FIRST, sizeof key) == LF_OK);
        lf_completion done = next(&end);
        MUST(done.status == LF_DONE && !(done.flags & LF_IMMEDIATE));
        MUST(done.length <= sizeof key);
        MUST(lf_region_read(end.memory, FIRST * PIECE, key, sizeof key) == LF_OK);
        use_memory(&end, key);
    }
    uint8_t *bytes = malloc(PIECE);
    MUST(bytes);
    for (uint32_t i = 0; i < COUNT; i++)
        ask_one(&end, i, bytes);
    free(bytes);
    close_end(&end);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "ask") == 0)
        return ask(argv[2], argv[3]);
    fprintf(stderr, "pairs serve|ask node|stp|qpip FOLDER\n");
    return 2;
}
