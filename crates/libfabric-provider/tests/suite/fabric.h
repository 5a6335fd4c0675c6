/* What the cases share: two processes with an endpoint each, made before libfabric is. */
#ifndef FABRIC_CASES_H
#define FABRIC_CASES_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__,      \
                    side.is_first ? "first" : "second", #condition);            \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* A call of libfabric that must succeed. */
#define OK(call)                                                                \
    do {                                                                        \
        ssize_t result_ = (call);                                               \
        if (result_ < 0) {                                                      \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__,          \
                    side.is_first ? "first" : "second", #call,                  \
                    fi_strerror((int)-result_));                                \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* One of the two processes. */
struct side {
    const char *provider;
    /* Where its endpoint is. */
    const char *address;
    bool is_first;
    /* A socket to the other process: for what is not tested here. */
    int other;
    pid_t child;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *sends, *receives;
    struct fid_ep *ep;
    fi_addr_t peer, self;
};

extern struct side side;

/* Is it our provider over QPIP, which reaches no memory of the other side? */
static inline bool is_qpip(void)
{
    const char *carrier = getenv("FI_LANDFALL_CARRIER");
    return carrier && strcmp(carrier, "qpip") == 0;
}

/* How an endpoint is to be. */
struct wanted {
    /* Where nothing is said: FI_EP_RDM. */
    enum fi_ep_type type;
    uint64_t caps;
    enum fi_wait_obj wait;
    uint64_t cq_flags;
    bool counts;
    /* Places of the completion queue; 1024 where nothing is said. */
    size_t queue;
};

void open_side(const struct wanted *wanted);
void close_side(void);
/* Both processes have come to this point. */
void meet(void);
/* The next completion; an error ends the test. Makes turns meanwhile. */
struct fi_cq_tagged_entry completion(void);
/* The next entry must be an error; makes turns meanwhile. */
struct fi_cq_err_entry failure(void);
/* Makes turns until the other process has said that it goes on. */
void turn_until_other(void);
/* Calls again while there is no room. */
#define AGAIN(call)                                                             \
    do {                                                                        \
        ssize_t again_;                                                         \
        while ((again_ = (call)) == -FI_EAGAIN)                                 \
            turn();                                                             \
        OK(again_);                                                             \
    } while (0)
void turn(void);

/* Bytes that tell where they belong. */
static inline void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t at = 0; at < len; at++)
        bytes[at] = (uint8_t)(at * 31 + (at >> 8) * 7 + seed);
}

static inline bool is_filled(const uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t at = 0; at < len; at++)
        if (bytes[at] != (uint8_t)(at * 31 + (at >> 8) * 7 + seed))
            return false;
    return true;
}

#endif
