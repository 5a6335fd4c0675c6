/* Streams and datagrams of QPIP between two adapters of one process, and what is refused of them:
 * `services FOLDER`. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "pairs.h"

static const char *const PLACE = "10.77.0.1:9000";

static int is_equal(const lf_address *one, const lf_address *two)
{
    return one->version == two->version && one->port == two->port &&
           memcmp(one->ip, two->ip, sizeof one->ip) == 0;
}

static void addresses(void)
{
    static const char *const good[] = { "10.0.0.2:9000", "[fd00::2]:65535", "0.0.0.0:0" };
    static const char *const bad[] = { "", "10.0.0.2", "10.0.0:1", "10.0.0.2:65536", "a name:1",
                                       "fd00::2:1", "[fd00::2]" };
    lf_address address;
    char text[64];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        MUST(lf_address_read(good[i], &address) == LF_OK);
        MUST(address.version == (good[i][0] == '[' ? 6 : 4));
        MUST(lf_address_text(&address, text, sizeof text) == (int64_t)strlen(good[i]));
        MUST(strcmp(text, good[i]) == 0);
        MUST(lf_address_text(&address, text, strlen(good[i])) == LF_TOO_LONG);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        MUST(lf_address_read(bad[i], &address) == LF_INVALID && *lf_error());
    MUST(lf_address_read(NULL, &address) == LF_INVALID);
    MUST(lf_address_read(good[0], NULL) == LF_INVALID);
    MUST(lf_address_text(NULL, text, sizeof text) == LF_INVALID);
    for (uint8_t version = 0; version < 10; version += 5) {
        address.version = version;
        MUST(lf_address_text(&address, text, sizeof text) == LF_INVALID && *lf_error());
    }
}

static void nothing_is_nowhere(const struct end *end)
{
    lf_pair_options options = options_of(end);
    lf_address address = { { 0 }, 1, 4, 0 };
    MUST(!lf_pair_bind(NULL, PLACE, &options) && lf_error_code() == LF_INVALID);
    MUST(!lf_pair_bind(end->verbs, NULL, &options) && lf_error_code() == LF_INVALID);
    MUST(!lf_pair_bind(end->verbs, PLACE, NULL) && lf_error_code() == LF_INVALID);
    MUST(lf_pair_local(NULL, &address) == LF_INVALID);
    MUST(lf_pair_remote(NULL, &address) == LF_INVALID);
    MUST(lf_pair_shutdown(NULL) == LF_INVALID);
    MUST(lf_post_inline_to(NULL, 1, "", 0, &address) == LF_INVALID);
}

static void *connect_to(void *argument)
{
    struct end *end = argument;
    lf_pair_options options = options_of(end);
    options.flags = LF_STREAM;
    MUST(end->pair = lf_pair_connect(end->verbs, PLACE, &options, PATIENCE));
    return NULL;
}

/* Over other carriers there are messages alone. */
static void of_qpip_alone(const char *carrier, const char *folder)
{
    struct end one = open_end(carrier, folder, 1, NULL);
    lf_pair_options options = options_of(&one);
    MUST(!lf_pair_bind(one.verbs, PLACE, &options) && lf_error_code() == LF_INVALID);
    lf_pair_listener *listener = lf_pair_listen(one.verbs, place_of(carrier));
    MUST(listener && !lf_pair_accept(listener, &options, 0) && lf_error_code() == LF_TIMED_OUT);
    options.flags = LF_STREAM;
    MUST(!lf_pair_accept(listener, &options, 0) && lf_error_code() == LF_INVALID);
    MUST(!lf_pair_connect(one.verbs, "127.0.0.1:1/7", &options, 0) &&
         lf_error_code() == LF_INVALID);
    lf_pair_listener_close(listener);
    close_end(&one);
}

static int post_to(const struct end *end, lf_work work, uint64_t length)
{
    lf_part part = { end->memory, 0, length };
    work.parts = &part;
    work.count = 1;
    return lf_post_sends(end->pair, &work, 1, NULL);
}

/* Takes this many bytes of a stream, out of rooms of four, and sees that they lie one behind the
 * other. Rooms that are used up are posted again. */
static void expect(const struct end *end, const char *wanted)
{
    char bytes[8];
    for (size_t length = strlen(wanted), at = 0; at < length;) {
        lf_completion part = next(end);
        if (part.operation == LF_SENT)
            continue;
        MUST(part.status == LF_DONE && part.offset + part.length <= 4);
        MUST(part.from.version == 0 && !(part.flags & LF_IMMEDIATE));
        /* It is used up when it is full, or when the stream has ended there. */
        MUST((part.flags & LF_STAYS) || part.offset + part.length == 4 ||
             at + part.length == length);
        MUST(lf_region_read(end->memory, part.id * PIECE + part.offset, bytes, part.length) ==
             LF_OK);
        MUST(at + part.length <= length && memcmp(bytes, wanted + at, part.length) == 0);
        at += part.length;
        if (!(part.flags & LF_STAYS))
            MUST(post_room(end, part.id, 4) == LF_OK);
    }
}

/* All rooms are flushed: the other side has sent all. */
static void expect_end(const struct end *end, int rooms)
{
    while (rooms > 0) {
        lf_completion part = next(end);
        /* A room that was filled in parts ends with the stream, with nothing more. */
        MUST(part.operation == LF_SENT || part.status == LF_FLUSHED ||
             (part.status == LF_DONE && part.length == 0));
        rooms -= part.operation == LF_RECEIVED;
    }
}

static void streams(struct end *server, struct end *client)
{
    enum { ROOMS = 5 };
    lf_pair_options options = options_of(server);
    lf_pair_listener *listener = lf_pair_listen(server->verbs, PLACE);
    pthread_t thread;
    lf_address here, there;
    uint8_t key[LF_KEY] = { 0 };
    options.flags = 2;
    MUST(listener && !lf_pair_accept(listener, &options, 0) && lf_error_code() == LF_INVALID);
    options.flags = LF_STREAM;
    MUST(pthread_create(&thread, NULL, connect_to, client) == 0);
    MUST(server->pair = lf_pair_accept(listener, &options, PATIENCE));
    MUST(pthread_join(thread, NULL) == 0);
    MUST(lf_pair_local(server->pair, &here) == LF_OK);
    MUST(lf_pair_remote(client->pair, &there) == LF_OK && is_equal(&here, &there));
    MUST(lf_pair_local(client->pair, &here) == LF_OK);
    MUST(lf_pair_remote(server->pair, &there) == LF_OK && is_equal(&here, &there));
    MUST(lf_pair_local(client->pair, NULL) == LF_INVALID);

    for (uint64_t i = 0; i < ROOMS; i++)
        MUST(post_room(server, i + 1, 4) == LF_OK && post_room(client, i + 1, 4) == LF_OK);
    /* There are no words beside the bytes, no other addresses, no memory of the other side. */
    MUST(post_to(client, (lf_work){ .flags = LF_IMMEDIATE }, 1) == LF_INVALID);
    MUST(post_to(client, (lf_work){ .to = &there }, 1) == LF_INVALID && *lf_error());
    MUST(post_to(client, (lf_work){ .operation = LF_RDMA_READ, .key = key }, 1) == LF_INVALID);
    MUST(lf_post_inline_to(client->pair, 1, "x", 1, &there) == LF_INVALID);
    /* Messages have no borders here. */
    MUST(lf_post_inline(client->pair, 1, "a question that ", 16) == LF_OK);
    MUST(lf_post_inline(client->pair, 1, "has two parts", 13) == LF_OK);
    MUST(lf_pair_shutdown(client->pair) == LF_OK);
    MUST(lf_post_inline(client->pair, 1, "late", 4) == LF_CLOSED && *lf_error());
    expect(server, "a question that has two parts");
    expect_end(server, ROOMS);
    MUST(lf_pair_state(server->pair) == LF_OK);
    /* The other half goes on. */
    MUST(post_room(server, 1, 4) == LF_OK && next(server).status == LF_FLUSHED);
    MUST(lf_post_inline(server->pair, 1, "the answer", 10) == LF_OK);
    expect(client, "the answer");
    MUST(lf_pair_shutdown(server->pair) == LF_OK);
    expect_end(client, ROOMS);
    for (int i = 0; i < 2; i++) {
        const struct end *end = i ? server : client;
        uint64_t pair = 0;
        int state = 0;
        lf_completion left;
        while (lf_completions_ended(end->done, &pair, &state) == 0)
            MUST(lf_completions_wait(end->done, &left, 1, PATIENCE) >= 0);
        MUST(pair == lf_pair_id(end->pair) && state == LF_CLOSED);
        MUST(lf_pair_state(end->pair) == LF_CLOSED && *lf_error());
    }
    lf_pair_close(server->pair);
    lf_pair_close(client->pair);
    server->pair = client->pair = NULL;
    lf_pair_listener_close(listener);
}

/* The next completion of the queue pair of this end: some of the last one may be left. */
static lf_completion next_of(const struct end *end)
{
    lf_completion one;
    do
        one = next(end);
    while (one.pair != lf_pair_id(end->pair));
    return one;
}

static void datagrams(struct end *server, struct end *client)
{
    lf_pair_options options = options_of(server), stream = options, others = options_of(client);
    lf_address at, from;
    char bytes[8];
    stream.flags = LF_STREAM;
    MUST(!lf_pair_bind(server->verbs, PLACE, &stream) && lf_error_code() == LF_INVALID);
    MUST(!lf_pair_bind(server->verbs, "10.77.0.1", &options) && lf_error_code() == LF_INVALID);
    MUST(!lf_pair_bind(server->verbs, "10.77.0.9:1", &options) && *lf_error());
    MUST(!lf_pair_bind(server->verbs, PLACE, &others) && lf_error_code() == LF_INVALID);
    MUST(server->pair = lf_pair_bind(server->verbs, PLACE, &options));
    MUST(!lf_pair_bind(server->verbs, PLACE, &options) && *lf_error());
    MUST(client->pair = lf_pair_bind(client->verbs, "10.77.0.2:0", &others));
    MUST(lf_pair_state(client->pair) == LF_OK && lf_pair_shutdown(client->pair) < 0);
    MUST(lf_pair_local(server->pair, &at) == LF_OK && at.port == 9000);
    MUST(lf_pair_remote(server->pair, &from) == LF_OK && from.version == 0);
    MUST(lf_pair_local(client->pair, &from) == LF_OK && from.port != 0);

    lf_address nobody = { { 0 }, 0, 0, 0 };
    MUST(post_to(client, (lf_work){ .id = 1 }, 1) == LF_INVALID && *lf_error());
    MUST(post_to(client, (lf_work){ .to = &nobody }, 1) == LF_INVALID && *lf_error());
    MUST(post_to(client, (lf_work){ .to = &at, .flags = LF_IMMEDIATE }, 1) == LF_INVALID);
    MUST(lf_post_inline(client->pair, 1, "x", 1) == LF_INVALID);

    /* A question, a longer one than its room, and one more: each room takes one. */
    MUST(post_room(server, 1, 8) == LF_OK && post_room(server, 2, 4) == LF_OK);
    MUST(post_room(server, 3, 8) == LF_OK && post_room(client, 1, 8) == LF_OK);
    MUST(lf_region_write(client->memory, 0, "question", 8) == LF_OK);
    for (uint64_t i = 1; i <= 3; i++) {
        MUST(post_to(client, (lf_work){ .id = i, .to = &at }, 8) == LF_OK);
        lf_completion sent = next_of(client), came = next_of(server);
        MUST(sent.id == i && sent.operation == LF_SENT && sent.status == LF_DONE);
        MUST(came.id == i && came.length == 8 && came.flags == 0 && came.offset == 0);
        MUST(came.status == (i == 2 ? LF_LONGER : LF_DONE) && is_equal(&came.from, &from));
        if (i == 1) {
            MUST(lf_region_read(server->memory, PIECE, bytes, 8) == LF_OK);
            MUST(memcmp(bytes, "question", 8) == 0);
            MUST(lf_post_inline_to(server->pair, 9, "reply", 5, &came.from) == LF_OK);
            MUST(next_of(server).id == 9);
            lf_completion reply = next_of(client);
            MUST(reply.length == 5 && is_equal(&reply.from, &at));
        }
    }
    /* What waits for a datagram is cancelled. */
    uint64_t last = lf_pair_id(server->pair);
    MUST(post_room(server, 4, 8) == LF_OK);
    lf_pair_close(server->pair);
    lf_completion left = next(server);
    MUST(left.id == 4 && left.pair == last && left.status == LF_FLUSHED);
    server->pair = NULL;
    /* And the port is free again. */
    MUST(server->pair = lf_pair_bind(server->verbs, PLACE, &options));
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return fprintf(stderr, "services FOLDER\n"), 2;
    char address[64];
    struct end server = open_end("qpip", argv[1], 1, NULL);
    MUST(lf_verbs_local(server.verbs, address, sizeof address) > 0);
    struct end client = open_end("qpip", argv[1], 2, address);
    addresses();
    nothing_is_nowhere(&server);
    of_qpip_alone("node", argv[1]);
    of_qpip_alone("stp", argv[1]);
    streams(&server, &client);
    datagrams(&server, &client);
    close_end(&client);
    close_end(&server);
    return 0;
}
