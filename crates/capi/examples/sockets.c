/* Queue pairs of QPIP and sockets of a kernel: streams of bytes by TCP, and datagrams of UDP.
 *
 *   sockets echo packet:eth0 10.0.0.100/24 10.0.0.100:9000    serves TCP: sends back what comes
 *   sockets ask packet:eth0 10.0.0.100/24 10.0.0.1:9000       is a client of such a server
 *   sockets datagrams packet:eth0 10.0.0.100/24 10.0.0.1:9000 is one of UDP
 *
 * The adapter has an address that no kernel has, and the kernel at the other end of the cable knows
 * nothing of Landfall. What comes back is the complement of each byte. */
#define _POSIX_C_SOURCE 200809L
#include "common.h"

enum { ROOMS = 32, ROOM = 16384, TOTAL = 400000, DATAGRAMS = 100, LONGEST = 1400 };

struct end {
    lf_verbs *verbs;
    lf_completions *sent, *came;
    lf_region *memory; /* rooms, and behind them what is sent */
    lf_pair *pair;
};

static struct end open_end(const char *link, const char *address)
{
    struct end end = { NULL, NULL, NULL, NULL, NULL };
    lf_qpip config = { link, address, NULL, NULL, 0, 0 };
    MUST(end.verbs = lf_verbs_over_qpip(&config));
    MUST(end.sent = lf_completions_open(end.verbs, ROOMS));
    MUST(end.came = lf_completions_open(end.verbs, ROOMS + 1));
    MUST(end.memory = lf_region_open(end.verbs, ROOMS * ROOM + TOTAL, LF_WRITE));
    return end;
}

static lf_pair_options options_of(const struct end *end, uint32_t flags)
{
    lf_pair_options options = { end->sent, end->came, NULL, ROOMS, ROOMS, ROOM, flags };
    return options;
}

static void close_end(struct end *end)
{
    lf_pair_close(end->pair);
    lf_region_close(end->memory);
    lf_completions_close(end->came);
    lf_completions_close(end->sent);
    lf_verbs_close(end->verbs);
}

static lf_completion next(const lf_completions *completions)
{
    lf_completion one = { 0 };
    int64_t found;
    while ((found = lf_completions_wait(completions, &one, 1, PATIENCE)) == 0)
        ; /* the queue pair has ended: what was posted to it completes */
    MUST(found == 1);
    return one;
}

static void post_room(const struct end *end, uint64_t number, uint64_t length)
{
    lf_part part = { end->memory, number * ROOM, length };
    lf_room room = { number, &part, 1, 0 };
    MUST(lf_post_receives(end->pair, &room, 1, NULL) == LF_OK);
}

static void post_rooms(const struct end *end)
{
    for (uint64_t number = 0; number < ROOMS; number++)
        post_room(end, number, ROOM);
}

static void complement(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)~bytes[i];
}

/* Sends this back. Where the queue is full something has to be sent first: how many are. */
static int send_back(const struct end *end, const lf_completion *part)
{
    static uint8_t bytes[ROOM];
    int sent = 0, code;
    uint64_t at = part->id * ROOM + part->offset;
    MUST(lf_region_read(end->memory, at, bytes, part->length) == LF_OK);
    complement(bytes, part->length);
    while ((code = lf_post_inline(end->pair, 0, bytes, part->length)) == LF_FULL) {
        MUST(next(end->sent).status == LF_DONE);
        sent++;
    }
    MUST(code == LF_OK);
    return sent;
}

static int echo(struct end *end, const char *place)
{
    lf_pair_options options = options_of(end, LF_STREAM);
    lf_pair_listener *listener = lf_pair_listen(end->verbs, place);
    MUST(listener && (end->pair = lf_pair_accept(listener, &options, PATIENCE)));
    lf_address client;
    char text[64];
    MUST(lf_pair_remote(end->pair, &client) == LF_OK);
    MUST(lf_address_text(&client, text, sizeof text) > 0);
    fprintf(stderr, "%s is connected\n", text);
    post_rooms(end);
    int sending = 0;
    for (;;) {
        lf_completion part = next(end->came);
        if (part.status == LF_FLUSHED)
            break; /* the client has sent all */
        MUST(part.status == LF_DONE);
        if (part.length > 0)
            sending += 1 - send_back(end, &part);
        if (!(part.flags & LF_STAYS))
            post_room(end, part.id, ROOM);
    }
    while (sending-- > 0)
        MUST(next(end->sent).status == LF_DONE);
    MUST(lf_pair_state(end->pair) == LF_OK && lf_pair_shutdown(end->pair) == LF_OK);
    lf_pair_listener_close(listener);
    return 0;
}

/* Sends all of it in parts, and says that this was all; and receives the answer in its place. */
static int ask(struct end *end, const char *place)
{
    enum { PART = TOTAL / 10 };
    lf_pair_options options = options_of(end, LF_STREAM);
    MUST(end->pair = lf_pair_connect(end->verbs, place, &options, PATIENCE));
    lf_view *answer = lf_view_open(end->memory, 0, TOTAL);
    lf_view *question = lf_view_open(end->memory, ROOMS * ROOM, TOTAL);
    MUST(answer && question);
    uint8_t *bytes = lf_view_bytes(question);
    for (size_t i = 0; i < TOTAL; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    post_rooms(end);
    for (uint64_t i = 0; i < TOTAL / PART; i++) {
        lf_part part = { end->memory, ROOMS * ROOM + i * PART, PART };
        lf_work work = { .id = i, .parts = &part, .count = 1, .operation = LF_SEND };
        MUST(lf_post_sends(end->pair, &work, 1, NULL) == LF_OK);
    }
    MUST(lf_pair_shutdown(end->pair) == LF_OK);
    MUST(lf_post_inline(end->pair, 0, "late", 4) == LF_CLOSED);
    uint64_t came = 0;
    for (;;) {
        lf_completion part = next(end->came);
        if (part.status == LF_FLUSHED)
            break;
        if (part.status != LF_DONE)
            return fprintf(stderr, "%s\n", lf_status_text(part.status)), 1;
        /* One room after the other, and each from where it was left on. */
        MUST(part.id * ROOM + part.offset == came);
        came += part.length;
    }
    MUST(came == TOTAL);
    for (uint64_t i = 0; i < TOTAL / PART; i++) {
        lf_completion sent = next(end->sent);
        MUST(sent.id == i && sent.status == LF_DONE);
    }
    complement(bytes, TOTAL);
    MUST(memcmp(bytes, lf_view_bytes(answer), TOTAL) == 0);
    lf_view_close(question);
    lf_view_close(answer);
    return 0;
}

static void is_from(const lf_completion *came, const lf_address *server)
{
    MUST(came->from.version == server->version && came->from.port == server->port);
    MUST(memcmp(came->from.ip, server->ip, sizeof server->ip) == 0);
}

static int datagrams(struct end *end, const char *place)
{
    lf_pair_options options = options_of(end, 0);
    lf_address server, local;
    uint8_t bytes[LONGEST], back[LONGEST];
    MUST(lf_address_read(place, &server) == LF_OK);
    const char *any = server.version == 4 ? "0.0.0.0:0" : "[::]:0";
    MUST(end->pair = lf_pair_bind(end->verbs, any, &options));
    MUST(lf_pair_local(end->pair, &local) == LF_OK && local.port != 0);
    for (size_t i = 1; i <= DATAGRAMS; i++) {
        size_t length = i * 37 % LONGEST + 1;
        memset(bytes, (int)i, length);
        post_room(end, 1, ROOM);
        lf_part part = { end->memory, ROOMS * ROOM, length };
        lf_work work = { .id = i, .parts = &part, .count = 1, .to = &server };
        MUST(lf_region_write(end->memory, part.at, bytes, length) == LF_OK);
        if (i % 2)
            MUST(lf_post_sends(end->pair, &work, 1, NULL) == LF_OK);
        else
            MUST(lf_post_inline_to(end->pair, i, bytes, length, &server) == LF_OK);
        lf_completion sent = next(end->sent), came = next(end->came);
        MUST(sent.id == i && sent.status == LF_DONE && sent.from.version == 0);
        MUST(came.id == 1 && came.status == LF_DONE && came.length == length);
        is_from(&came, &server);
        MUST(lf_region_read(end->memory, ROOM, back, length) == LF_OK);
        complement(bytes, length);
        MUST(memcmp(back, bytes, length) == 0);
    }
    /* One that is longer than its room is told of, and lost; the next one is not. */
    post_room(end, 2, 8);
    post_room(end, 3, 64);
    for (int i = 0; i < 2; i++) {
        MUST(lf_post_inline_to(end->pair, 0, bytes, 64, &server) == LF_OK);
        lf_completion came = next(end->came);
        MUST(came.id == 2 + (uint64_t)i && came.length == 64);
        MUST(came.status == (i == 0 ? LF_LONGER : LF_DONE));
        is_from(&came, &server);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(struct end *, const char *);
    } parts[] = { { "echo", echo }, { "ask", ask }, { "datagrams", datagrams } };
    for (size_t i = 0; argc == 5 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[1], parts[i].name) != 0)
            continue;
        struct end end = open_end(argv[2], argv[3]);
        int code = parts[i].run(&end, argv[4]);
        close_end(&end);
        return code;
    }
    fprintf(stderr, "sockets echo|ask|datagrams LINK ADDRESS PLACE\n");
    return 2;
}
