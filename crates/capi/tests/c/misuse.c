/* What is refused of queue pairs, and how they end: `misuse WHAT CARRIER FOLDER`. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include "pairs.h"

enum { DEPTH = 4, INLINED = 64 };

/* One that connects while the other end accepts. */
struct connecting {
    struct end *end;
    lf_pair_options options;
    char place[96];
};

static void *connect_to(void *argument)
{
    struct connecting *it = argument;
    it->end->pair = lf_pair_connect(it->end->verbs, it->place, &it->options, PATIENCE);
    MUST(it->end->pair);
    return NULL;
}

/* Two ends of one process, and where they meet. */
struct both {
    struct end a, b;
    lf_pair_listener *listener;
    struct connecting connecting;
};

static struct both *open_both(const char *carrier, const char *folder)
{
    struct both *both = calloc(1, sizeof *both);
    char address[64];
    MUST(both);
    both->b = open_end(carrier, folder, 1, NULL);
    MUST(lf_verbs_local(both->b.verbs, address, sizeof address) >= 0);
    both->a = open_end(carrier, folder, 2, *address ? address : NULL);
    MUST(both->listener = lf_pair_listen(both->b.verbs, place_of(carrier)));
    snprintf(both->connecting.place, sizeof both->connecting.place, "%s%s%s",
             both->b.endpoint ? address : "", both->b.endpoint ? "/" : "", place_of(carrier));
    both->connecting.end = &both->a;
    return both;
}

/* A new queue pair between them; the last one is closed, and what it has left is taken. */
static void join_with(struct both *both, const lf_completions *sends)
{
    pthread_t thread;
    lf_completion left[16];
    lf_pair_close(both->a.pair);
    lf_pair_close(both->b.pair);
    both->a.pair = both->b.pair = NULL;
    while (lf_completions_poll(both->a.done, left, 16) ||
           lf_completions_poll(both->b.done, left, 16))
        ;
    while (lf_completions_ended(both->a.done, NULL, NULL) ||
           lf_completions_ended(both->b.done, NULL, NULL))
        ;
    lf_pair_options options = { sends, both->a.done, NULL, DEPTH, DEPTH, INLINED, 0 };
    both->connecting.options = options;
    MUST(pthread_create(&thread, NULL, connect_to, &both->connecting) == 0);
    options.sends = options.receives = both->b.done;
    MUST(both->b.pair = lf_pair_accept(both->listener, &options, PATIENCE));
    MUST(pthread_join(thread, NULL) == 0);
}

static void join(struct both *both)
{
    join_with(both, both->a.done);
}

static int post(const struct end *end, lf_work work, uint64_t at, uint64_t length)
{
    lf_part part = { end->memory, at, length };
    work.parts = &part;
    work.count = 1;
    return lf_post_sends(end->pair, &work, 1, NULL);
}

/* The pair of this end is over, and says why. */
static void is_over(const struct end *end)
{
    uint64_t pair = 0;
    int state = 0;
    lf_completion left;
    while (lf_completions_ended(end->done, &pair, &state) == 0)
        MUST(lf_completions_wait(end->done, &left, 1, PATIENCE) >= 0);
    MUST(pair == lf_pair_id(end->pair) && state == LF_LOST);
    MUST(lf_pair_state(end->pair) == LF_LOST && *lf_error());
    MUST(lf_completions_ended(end->done, &pair, &state) == 0);
    MUST(lf_post_inline(end->pair, 1, "late", 4) == LF_CLOSED && *lf_error());
}

static void nothing_is_nowhere(void)
{
    uint8_t key[LF_KEY] = { 0 };
    lf_completion done;
    MUST(!lf_verbs_over_node(NULL) && !lf_verbs_over_stp(NULL) && !lf_verbs_over_qpip(NULL));
    MUST(!lf_region_open(NULL, 1, LF_READ) && lf_error_code() == LF_INVALID);
    MUST(!lf_view_open(NULL, 0, 1) && lf_error_code() == LF_INVALID && !lf_view_bytes(NULL));
    MUST(!lf_completions_open(NULL, 1) && !lf_shared_receives_open(NULL, NULL, 1));
    MUST(!lf_pair_listen(NULL, "7") && !lf_pair_accept(NULL, NULL, 0));
    MUST(!lf_pair_connect(NULL, "7", NULL, 0) && lf_pair_id(NULL) == UINT64_MAX);
    MUST(lf_pair_state(NULL) == LF_INVALID && lf_verbs_local(NULL, NULL, 0) == LF_INVALID);
    MUST(lf_post_sends(NULL, NULL, 0, NULL) == LF_INVALID);
    MUST(lf_post_receives(NULL, NULL, 0, NULL) == LF_INVALID);
    MUST(lf_post_inline(NULL, 0, NULL, 0) == LF_INVALID);
    MUST(lf_shared_receives_post(NULL, NULL, 0, NULL) == LF_INVALID);
    MUST(lf_share(NULL, NULL, key) == LF_INVALID && lf_withdraw(NULL, key) == LF_INVALID);
    MUST(lf_completions_poll(NULL, &done, 1) == LF_INVALID);
    MUST(lf_completions_wait(NULL, &done, 1, 0) == LF_INVALID);
    MUST(lf_completions_arm(NULL, LF_NEXT) == LF_INVALID);
    MUST(lf_completions_descriptor(NULL) == LF_INVALID);
    MUST(lf_completions_ended(NULL, NULL, NULL) == LF_INVALID);
    MUST(*lf_status_text(LF_DONE) && *lf_status_text(LF_UNREACHABLE) && *lf_status_text(99));
    lf_verbs_close(NULL);
    lf_pair_close(NULL);
    lf_region_close(NULL);
    lf_view_close(NULL);
    lf_completions_close(NULL);
    lf_shared_receives_close(NULL);
    lf_pair_listener_close(NULL);
}

static void opened_wrong(struct both *both, const char *carrier)
{
    lf_verbs *verbs = both->a.verbs;
    lf_qpip wrong[] = {
        { NULL, "10.0.0.1/24", NULL, NULL, 0, 0 },
        { "wire:0", "10.0.0.1/24", NULL, NULL, 0, 0 },
        { "udp:nowhere", "10.0.0.1/24", NULL, NULL, 0, 0 },
        { "udp:127.0.0.1:0", "10.0.0.1", NULL, NULL, 0, 0 },
        { "udp:127.0.0.1:0", "10.0.0.1/24", "?", NULL, 0, 0 },
        { "udp:127.0.0.1:0", "10.0.0.1/24", NULL, "?", 0, 0 },
        { "packet:lo", "10.0.0.1/24", NULL, "127.0.0.1:1", 0, 0 },
        { "packet:landfall-none", "10.0.0.1/24", NULL, NULL, 0, 0 },
        { "udp:127.0.0.1:0", "10.0.0.1/24", NULL, NULL, 1, 0 },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        MUST(!lf_verbs_over_qpip(&wrong[i]) && lf_error_code() < 0 && *lf_error());
    MUST(!lf_region_open(verbs, 0, LF_READ) && lf_error_code() == LF_INVALID);
    MUST(!lf_region_open(verbs, UINT64_MAX, LF_READ) && lf_error_code() < 0);
    MUST(!lf_region_open(verbs, 1, 0) && !lf_region_open(verbs, 1, 4));
    MUST(!lf_completions_open(verbs, 0) && !lf_completions_open(verbs, UINT32_MAX));
    MUST(!lf_shared_receives_open(verbs, both->a.done, 0));
    lf_pair_options options = options_of(&both->a), none = { 0 };
    const char *place = strcmp(carrier, "node") == 0 ? "" : "nowhere";
    MUST(!lf_pair_listen(verbs, place) && !lf_pair_listen(verbs, NULL));
    MUST(!lf_pair_connect(verbs, place, &options, 100) && lf_error_code() < 0);
    MUST(!lf_pair_connect(verbs, both->connecting.place, &none, 0));
    MUST(lf_error_code() == LF_INVALID);
    MUST(!lf_pair_accept(both->listener, &none, 0) && lf_error_code() == LF_INVALID);
    options.send_depth = 1 << 20;
    MUST(!lf_pair_connect(verbs, both->connecting.place, &options, 0));
    options = options_of(&both->b);
    MUST(!lf_pair_accept(both->listener, &options, 10) && lf_error_code() == LF_TIMED_OUT);
    MUST(!lf_pair_accept(both->listener, &options, 0) && lf_error_code() == LF_TIMED_OUT);
}

/* What belongs to another carrier is refused. */
static void of_another_carrier(struct both *both, const char *carrier, const char *folder)
{
    struct end other = open_end(strcmp(carrier, "node") ? "node" : "stp", folder, 3, NULL);
    lf_pair_options options = options_of(&other);
    lf_part part = { other.memory, 0, 1 };
    lf_work work = { .parts = &part, .count = 1 };
    uint8_t key[LF_KEY];
    MUST(lf_post_sends(both->a.pair, &work, 1, NULL) == LF_INVALID && *lf_error());
    MUST(lf_share(both->a.pair, other.memory, key) == LF_INVALID);
    MUST(!lf_shared_receives_open(both->a.verbs, other.done, 1) && lf_error_code() == LF_INVALID);
    MUST(!lf_pair_connect(other.verbs, both->connecting.place, &options, 0) && *lf_error());
    close_end(&other);
}

static void posted_wrong(struct both *both)
{
    const struct end *a = &both->a;
    lf_completion done;
    size_t posted = 7;
    char bytes[INLINED + 1] = { 0 };
    MUST(post(a, (lf_work){ 0 }, LENGTH, 1) == LF_INVALID && *lf_error());
    MUST(post(a, (lf_work){ 0 }, UINT64_MAX, 2) == LF_INVALID);
    MUST(post(a, (lf_work){ .flags = 8 }, 0, 1) == LF_INVALID);
    MUST(post(a, (lf_work){ .reserved = 1 }, 0, 1) == LF_INVALID);
    MUST(post(a, (lf_work){ .operation = 9 }, 0, 1) == LF_INVALID);
    MUST(post(a, (lf_work){ .operation = LF_RDMA_READ }, 0, 1) == LF_INVALID);
    MUST(post_room(a, PIECES, 1) == LF_INVALID);
    lf_part nowhere = { NULL, 0, 1 };
    lf_room room = { 0, &nowhere, 1, 0 };
    MUST(lf_post_receives(a->pair, &room, 1, NULL) == LF_INVALID);
    MUST(lf_post_receives(a->pair, NULL, 1, NULL) == LF_INVALID);
    MUST(lf_post_inline(a->pair, 1, bytes, sizeof bytes) == LF_TOO_LONG);
    MUST(lf_post_inline(a->pair, 1, NULL, 1) == LF_INVALID);
    MUST(lf_completions_poll(a->done, NULL, 1) == LF_INVALID);
    MUST(lf_completions_poll(a->done, &done, 0) == LF_INVALID);
    MUST(lf_completions_wait(a->done, &done, 1, 0) == LF_TIMED_OUT);
    MUST(lf_completions_wait(a->done, &done, 1, 10) == LF_TIMED_OUT);
    MUST(lf_completions_arm(a->done, 2) == LF_INVALID);
    /* Of a list all before the one that is wrong are posted. */
    lf_part parts[2] = { { a->memory, 0, 1 }, { a->memory, LENGTH, 1 } };
    lf_work list[2] = { { .id = 1, .parts = parts, .count = 1 },
                        { .id = 2, .parts = parts + 1, .count = 1 } };
    MUST(lf_post_sends(a->pair, list, 2, &posted) == LF_INVALID && posted == 1);
    MUST(post_room(&both->b, 2, 1) == LF_OK);
    MUST(next(&both->b).id == 2);
    /* A sent message wakes nobody who wants to know of received ones. */
    struct pollfd sleep = { lf_completions_descriptor(a->done), POLLIN, 0 };
    while (lf_completions_arm(a->done, LF_NEXT) == 1)
        MUST(poll(&sleep, 1, PATIENCE) == 1);
    MUST(lf_completions_arm(a->done, LF_MESSAGES) == 1);
    MUST(next(a).id == 1);
}

/* There is no room at the other side: queues fill up, and say so. */
static void filled(struct both *both)
{
    lf_part part = { both->a.memory, 0, 8 };
    lf_work list[DEPTH + 1];
    lf_room rooms[DEPTH + 1];
    lf_part places[DEPTH + 1];
    size_t posted = 0;
    for (uint64_t i = 0; i <= DEPTH; i++) {
        list[i] = (lf_work){ .id = i, .parts = &part, .count = 1 };
        places[i] = (lf_part){ both->b.memory, i * PIECE, 8 };
        rooms[i] = (lf_room){ i, &places[i], 1, 0 };
    }
    MUST(lf_post_sends(both->a.pair, list, DEPTH + 1, &posted) == LF_FULL && posted == DEPTH);
    MUST(*lf_error());
    MUST(lf_post_receives(both->b.pair, rooms, DEPTH, &posted) == LF_OK && posted == DEPTH);
    for (uint64_t i = 0; i < DEPTH; i++) {
        lf_completion sent = next(&both->a), received = next(&both->b);
        MUST(sent.id == i && sent.status == LF_DONE && sent.operation == LF_SENT);
        MUST(received.id == i && received.length == 8 && received.operation == LF_RECEIVED);
    }
    MUST(lf_post_receives(both->b.pair, rooms, DEPTH + 1, &posted) == LF_FULL && posted == DEPTH);
    /* And so does a completion queue: each of its requests has a place there. */
    lf_completions *small = lf_completions_open(both->a.verbs, 2);
    MUST(small);
    join_with(both, small);
    MUST(lf_post_sends(both->a.pair, list, 3, &posted) == LF_FULL && posted == 2);
    join(both);
    lf_completions_close(small);
}

struct waiting {
    const struct end *end;
    int64_t found;
};

static void *wait_a_moment(void *argument)
{
    struct waiting *waiting = argument;
    lf_completion done;
    do /* main may look just now */
        waiting->found = lf_completions_wait(waiting->end->done, &done, 1, 500);
    while (waiting->found == LF_INVALID);
    return NULL;
}

static void taken_twice(struct both *both)
{
    struct waiting waiting = { &both->a, 0 };
    pthread_t thread;
    lf_completion done;
    int64_t found;
    MUST(pthread_create(&thread, NULL, wait_a_moment, &waiting) == 0);
    time_t began = time(NULL);
    do
        found = lf_completions_poll(both->a.done, &done, 1);
    while (found == 0 && time(NULL) < began + PATIENCE / 1000);
    MUST(found == LF_INVALID && *lf_error());
    MUST(pthread_join(thread, NULL) == 0 && waiting.found == LF_TIMED_OUT);
}

/* A queue pair that takes shared room has none of its own. */
static void shared(struct both *both)
{
    struct end *b = &both->b;
    lf_shared_receives *room = lf_shared_receives_open(b->verbs, b->done, 2);
    lf_part part = { b->memory, 0, 8 };
    lf_room rooms[3] = { { 1, &part, 1, 0 }, { 2, &part, 1, 0 }, { 3, &part, 1, 0 } };
    size_t posted;
    pthread_t thread;
    MUST(room && lf_shared_receives_post(room, rooms, 3, &posted) == LF_FULL && posted == 2);
    lf_pair_close(both->a.pair);
    lf_pair_close(b->pair);
    lf_pair_options options = { b->done, NULL, room, DEPTH, DEPTH, INLINED, 0 };
    MUST(pthread_create(&thread, NULL, connect_to, &both->connecting) == 0);
    MUST(b->pair = lf_pair_accept(both->listener, &options, PATIENCE));
    MUST(pthread_join(thread, NULL) == 0);
    MUST(post_room(b, 1, 8) == LF_INVALID && *lf_error());
    MUST(lf_post_inline(both->a.pair, 1, "shared", 6) == LF_OK);
    lf_completion done;
    do /* what was flushed of the last queue pair comes first */
        done = next(b);
    while (done.pair != lf_pair_id(b->pair));
    MUST(done.id == 1 && done.length == 6 && done.status == LF_DONE);
    join(both);
    lf_shared_receives_close(room);
}

/* A message that is longer than its room ends the queue pair, at both ends. */
static void too_long(struct both *both)
{
    join(both);
    MUST(post_room(&both->b, 2, 4) == LF_OK);
    MUST(lf_post_inline(both->a.pair, 3, "too long", 8) == LF_OK);
    lf_completion received = next(&both->b), sent = next(&both->a);
    MUST(received.id == 2 && received.status == LF_LONGER);
    MUST(sent.id == 3 && sent.status != LF_DONE);
    is_over(&both->a);
    is_over(&both->b);
}

/* Over QPIP it goes on in the next room, and says so. */
static void continued(struct both *both)
{
    join(both);
    MUST(post_room(&both->b, 2, 4) == LF_OK && post_room(&both->b, 3, 8) == LF_OK);
    MUST(lf_post_inline(both->a.pair, 3, "two rooms", 9) == LF_OK);
    lf_completion begin = next(&both->b), end = next(&both->b);
    MUST(begin.id == 2 && begin.length == 4 && begin.flags == LF_CONTINUES);
    MUST(end.id == 3 && end.length == 5 && end.flags == 0);
}

/* A request that is refused over there completes so, and ends the queue pair. */
static void is_refused(struct both *both, lf_work work)
{
    work.id = 9;
    MUST(post(&both->a, work, 0, 8) == LF_OK);
    lf_completion done = next(&both->a);
    MUST(done.id == 9 && done.status == LF_REMOTE_ACCESS);
    is_over(&both->a);
    is_over(&both->b);
    join(both);
}

/* Bytes of a region where they lie, also when it was closed; and no others. */
static void seen_in_place(const struct both *both)
{
    enum { LENGTH = 200 };
    char bytes[8];
    lf_region *region = lf_region_open(both->a.verbs, LENGTH, LF_READ | LF_WRITE);
    MUST(region);
    MUST(!lf_view_open(region, 0, 0) && lf_error_code() == LF_INVALID);
    MUST(!lf_view_open(region, 0, LENGTH + 1) && !lf_view_open(region, LENGTH, 1));
    MUST(!lf_view_open(region, UINT64_MAX, 1) && !lf_view_open(region, 1, UINT64_MAX));
    lf_view *some = lf_view_open(region, 13, 8), *all = lf_view_open(region, 0, LENGTH);
    MUST(some && all && (char *)lf_view_bytes(all) + 13 == lf_view_bytes(some));
    memcpy(lf_view_bytes(some), "in place", 8);
    MUST(lf_region_read(region, 13, bytes, 8) == LF_OK && memcmp(bytes, "in place", 8) == 0);
    MUST(lf_region_write(region, 192, "the rest", 8) == LF_OK);
    MUST(memcmp((char *)lf_view_bytes(all) + 192, "the rest", 8) == 0);
    lf_view_close(some);
    lf_region_close(region);
    memset(lf_view_bytes(all), 7, LENGTH);
    lf_view_close(all);
}

static void reached_wrong(struct both *both)
{
    join(both);
    lf_region *all = lf_region_open(both->b.verbs, 64, LF_READ | LF_WRITE);
    lf_region *constant = lf_region_open(both->b.verbs, 64, LF_READ);
    uint8_t key[LF_KEY], no_key[LF_KEY];
    MUST(all && constant);
    memset(no_key, 0xff, sizeof no_key);
    MUST(lf_share(both->b.pair, constant, key) == LF_OK);
    lf_work write = { .operation = LF_RDMA_WRITE, .key = key };
    lf_work read = { .operation = LF_RDMA_READ, .key = key };
    lf_work add = { .operation = LF_ATOMIC, .key = key, .function = LF_ADD };
    MUST(post(&both->a, write, 0, 8) == LF_REFUSED && *lf_error());
    MUST(post(&both->a, add, 0, 8) == LF_REFUSED);
    MUST(post(&both->a, read, 0, 65) == LF_INVALID);
    read.at = UINT64_MAX;
    MUST(post(&both->a, read, 0, 8) == LF_INVALID);
    read.at = 0;
    MUST(post(&both->a, read, 0, 8) == LF_OK && next(&both->a).status == LF_DONE);
    read.flags = LF_IMMEDIATE;
    MUST(post(&both->a, read, 0, 8) == LF_INVALID);
    read.key = no_key;
    MUST(post(&both->a, read, 0, 8) == LF_INVALID && *lf_error());
    MUST(lf_share(both->b.pair, all, key) == LF_OK && lf_share(both->b.pair, all, NULL) < 0);
    /* A write with a word uses up a receive, and is in place when that completes. */
    lf_work told = { .operation = LF_RDMA_WRITE, .key = key, .at = 56, .flags = LF_IMMEDIATE,
                     .immediate = 77 };
    char bytes[8];
    MUST(lf_region_write(both->a.memory, 0, "in place", 8) == LF_OK);
    MUST(post_room(&both->b, 2, 8) == LF_OK && post(&both->a, told, 0, 8) == LF_OK);
    lf_completion hint = next(&both->b);
    MUST(hint.id == 2 && hint.flags & LF_IMMEDIATE && hint.immediate == 77 && hint.length == 0);
    MUST(lf_region_read(all, 56, bytes, 8) == LF_OK && memcmp(bytes, "in place", 8) == 0);
    MUST(next(&both->a).status == LF_DONE);
    add.at = 4;
    MUST(post(&both->a, add, 0, 8) == LF_INVALID);
    add.at = 0;
    MUST(post(&both->a, add, 0, 4) == LF_INVALID);
    add.function = 99;
    MUST(post(&both->a, add, 0, 8) == LF_INVALID);
    /* A key that was made up. */
    lf_work forged = { .operation = LF_RDMA_WRITE, .key = no_key };
    memcpy(no_key, key, sizeof key);
    no_key[both->a.node ? 20 : 0] ^= 0x55;
    is_refused(both, forged);
    /* A key of a queue pair that is gone, where keys are those of queue pairs, and one that was
     * withdrawn. */
    if (both->a.endpoint)
        is_refused(both, write);
    MUST(lf_share(both->b.pair, all, key) == LF_OK);
    MUST(post(&both->a, write, 0, 8) == LF_OK && next(&both->a).status == LF_DONE);
    MUST(lf_withdraw(both->b.pair, key) == LF_OK && lf_withdraw(both->b.pair, key) == LF_INVALID);
    lf_completion done;
    do { /* over a node it hears of it a little later */
        int posted = post(&both->a, write, 0, 8);
        MUST(posted == LF_OK || posted == LF_CLOSED);
        done = next(&both->a);
    } while (done.status == LF_DONE);
    MUST(done.status == LF_REMOTE_ACCESS || done.status == LF_FLUSHED);
    lf_region_close(all);
    lf_region_close(constant);
}

static int mistakes(const char *carrier, const char *folder)
{
    nothing_is_nowhere();
    struct both *both = open_both(carrier, folder);
    opened_wrong(both, carrier);
    join(both); /* QPIP has the options of the call that timed out */
    join(both);
    of_another_carrier(both, carrier, folder);
    posted_wrong(both);
    filled(both);
    taken_twice(both);
    shared(both);
    seen_in_place(both);
    if (both->a.reaches_memory) {
        too_long(both);
        reached_wrong(both);
    } else {
        continued(both);
        uint8_t key[LF_KEY] = { 0 };
        lf_work write = { .operation = LF_RDMA_WRITE, .key = key };
        MUST(post(&both->a, write, 0, 8) == LF_INVALID && *lf_error());
        MUST(lf_share(both->a.pair, both->a.memory, key) == LF_INVALID);
        MUST(lf_withdraw(both->a.pair, key) == LF_INVALID);
    }
    lf_pair_listener_close(both->listener);
    close_end(&both->a);
    close_end(&both->b);
    free(both);
    return 0;
}

/* Is killed in the middle of a conversation. */
static int die(const char *carrier, const char *folder)
{
    struct end end = open_end(carrier, folder, 1, NULL);
    char address[64], where[4096];
    lf_pair_options options = options_of(&end);
    lf_pair_listener *listener = lf_pair_listen(end.verbs, place_of(carrier));
    MUST(listener && lf_verbs_local(end.verbs, address, sizeof address) >= 0);
    snprintf(where, sizeof where, "%s/address", folder);
    tell(address, where);
    MUST(end.pair = lf_pair_accept(listener, &options, PATIENCE));
    MUST(post_room(&end, 2, 5) == LF_OK && next(&end).length == 5);
    return raise(SIGKILL);
}

/* The other side is killed while room is posted. */
static int be_left(const char *carrier, const char *folder)
{
    char address[64], where[4096], place[96];
    snprintf(where, sizeof where, "%s/address", folder);
    find(address, sizeof address, where);
    struct end end = open_end(carrier, folder, 2, address);
    snprintf(place, sizeof place, "%s%s%s", end.endpoint ? address : "", end.endpoint ? "/" : "",
             place_of(carrier));
    lf_pair_options options = options_of(&end);
    MUST(end.pair = lf_pair_connect(end.verbs, place, &options, PATIENCE));
    MUST(post_room(&end, 2, 8) == LF_OK);
    MUST(lf_post_inline(end.pair, 1, "ready", 5) == LF_OK);
    lf_completion done;
    do
        done = next(&end);
    while (done.status == LF_DONE && done.operation == LF_SENT);
    MUST(done.status != LF_DONE && *lf_status_text(done.status));
    is_over(&end);
    close_end(&end);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const char *, const char *);
    } parts[] = { { "mistakes", mistakes }, { "die", die }, { "be-left", be_left } };
    for (size_t i = 0; argc == 4 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[1], parts[i].name) == 0)
            return parts[i].run(argv[2], argv[3]);
    }
    fprintf(stderr, "misuse mistakes|die|be-left node|stp|qpip FOLDER\n");
    return 2;
}
