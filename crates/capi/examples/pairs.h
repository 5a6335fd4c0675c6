/* One end of a queue pair over any carrier, and its memory. */
#ifndef PAIRS_H
#define PAIRS_H

#include "common.h"

/* Each message has its own piece of the memory; the first two are for what is sent. */
enum { PIECE = 300000, PIECES = 8, LENGTH = PIECE * PIECES };

struct end {
    lf_node *node;    /* over shared memory */
    lf_stp *endpoint; /* over STP */
    lf_verbs *verbs;
    lf_completions *done;
    lf_region *memory;
    lf_pair *pair;
    int reaches_memory;
};

/* The carrier is "node", "stp" or "qpip"; the node's folder is where both sides find each other.
 * `self` is the last byte of an address of QPIP, and `peer` where the other end's frames go. */
static inline struct end open_end(const char *carrier, const char *folder, int self,
                                  const char *peer)
{
    struct end end = { NULL, NULL, NULL, NULL, NULL, NULL, strcmp(carrier, "qpip") != 0 };
    if (strcmp(carrier, "node") == 0) {
        MUST(end.node = lf_node_open(folder));
        end.verbs = lf_verbs_over_node(end.node);
    } else if (strcmp(carrier, "stp") == 0) {
        lf_stp_config config = { "127.0.0.1:0", NULL, 1, 0, 200, 0 };
        MUST(end.endpoint = lf_stp_open(&config));
        end.verbs = lf_verbs_over_stp(end.endpoint);
    } else {
        char address[32];
        snprintf(address, sizeof address, "10.77.0.%d/24", self);
        lf_qpip config = { "udp:127.0.0.1:0", address, NULL, peer, 0, 0 };
        end.verbs = lf_verbs_over_qpip(&config);
    }
    MUST(end.verbs);
    MUST(end.done = lf_completions_open(end.verbs, 64));
    MUST(end.memory = lf_region_open(end.verbs, LENGTH, LF_READ | LF_WRITE));
    return end;
}

/* What a queue pair of this end is like. */
static inline lf_pair_options options_of(const struct end *end)
{
    lf_pair_options options = { end->done, end->done, NULL, 16, 16, 0, 0 };
    return options;
}

/* At which place an end over this carrier listens. */
static inline const char *place_of(const char *carrier)
{
    return strcmp(carrier, "node") == 0 ? "pairs"
           : strcmp(carrier, "stp") == 0 ? "7"
                                         : "10.77.0.1:9000";
}

static inline void close_end(struct end *end)
{
    lf_pair_close(end->pair);
    lf_region_close(end->memory);
    lf_completions_close(end->done);
    lf_verbs_close(end->verbs);
    lf_stp_close(end->endpoint);
    lf_node_close(end->node);
}

/* The next completion. */
static inline lf_completion next(const struct end *end)
{
    lf_completion one;
    int64_t found;
    while ((found = lf_completions_wait(end->done, &one, 1, PATIENCE)) == 0)
        ; /* a queue pair has ended: what was posted to it completes */
    MUST(found == 1);
    return one;
}

/* Posts room in a piece of the memory, which names it. */
static inline int post_room(const struct end *end, uint64_t piece, uint64_t length)
{
    lf_part part = { end->memory, piece * PIECE, length };
    lf_room room = { piece, &part, 1, 0 };
    return lf_post_receives(end->pair, &room, 1, NULL);
}

#endif
