/* landfall.h: shared memory between processes of one host, for C (99 and later) and C++.
 *
 * A node meets others in a folder. One offers a name, another finds it, and with that they
 * have a queue, a publication or calls. Elements can be written where they will be read, and
 * read where they lie. README.md has a first program.
 *
 * Rules:
 *  - Functions that return int return LF_OK, another of the codes below, or what they say.
 *    Functions that return a pointer return NULL where they fail. lf_error says why, for the
 *    thread that asks.
 *  - Timeouts are milliseconds; 0 does not wait, a negative one waits as long as the peer lives.
 *  - One handle is used by one thread at a time. Handles of one node may be used by several.
 *  - Close what was opened; a node is closed last.
 *  - Memory that another process may write is not constant: a peer that does not keep to the
 *    rules may change an element that lf_peek gave, or read one that lf_loan gave. Copy out what
 *    has to stay as it was checked.
 */
#ifndef LANDFALL_H
#define LANDFALL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This header's version, and that of the library: they go together while they are equal. */
#define LF_ABI 1
uint32_t lf_abi(void);

enum {
    LF_OK = 0,
    LF_TIMED_OUT = -1,     /* the deadline is over, or nothing is there */
    LF_CLOSED = -2,        /* the peer has ended it, and all was received */
    LF_LOST = -3,          /* the peer is gone */
    LF_MISBEHAVED = -4,    /* the peer wrote what no correct peer writes */
    LF_OTHER_LAYOUT = -5,  /* the peer's elements are of another layout */
    LF_REFUSED = -6,       /* the peer, or this machine's rights, do not let it be */
    LF_TOO_LONG = -7,      /* more bytes than fit */
    LF_INVALID = -8,       /* an argument makes no sense */
    LF_FAILED = -9         /* everything else */
};

/* Why the last call of this thread failed. Valid until the thread's next call. */
const char *lf_error(void);

/* ---- Nodes and names ------------------------------------------------------------- */

typedef struct lf_node lf_node;
typedef struct lf_offer lf_offer;

/* A node in this folder, for processes of the same user. */
lf_node *lf_node_open(const char *folder);
void lf_node_close(lf_node *node);

/* A name that this node offers until it is closed or the process ends, however it does. */
lf_offer *lf_offer_open(lf_node *node, const char *name);
void lf_offer_close(lf_offer *offer);

/* ---- Queues: elements of one size, one producer, one consumer --------------------- */

typedef struct lf_sender lf_sender;
typedef struct lf_receiver lf_receiver;

/* Both sides give the same element and capacity. */
typedef struct lf_queue {
    uint32_t element;  /* bytes of an element */
    uint32_t capacity; /* so many are under way */
    uint32_t batch;    /* the receiver hears of so many at a time; 0 and 1: of each */
    uint32_t reserved; /* 0 */
    uint64_t layout;   /* see lf_layout; 0: not compared */
} lf_queue;

/* The fingerprint of a layout, as a text that is the same in every language:
 * "{price:f64@0,size:u32@8,venue:[u8;4]@12}16" has three fields and sixteen bytes. Numbers are
 * u8 to u64, i8 to i64, f32 and f64. */
uint64_t lf_layout(const char *text);

/* Who offers a name is the sender or the receiver of the next who finds it; that one is the
 * other. */
lf_sender *lf_accept_sender(lf_node *node, lf_offer *offer, const lf_queue *queue,
                            int64_t timeout);
lf_receiver *lf_accept_receiver(lf_node *node, lf_offer *offer, const lf_queue *queue,
                                int64_t timeout);
lf_sender *lf_find_sender(lf_node *node, const char *name, const lf_queue *queue,
                          int64_t timeout);
lf_receiver *lf_find_receiver(lf_node *node, const char *name, const lf_queue *queue,
                              int64_t timeout);

/* Copies an element in. */
int lf_put(lf_sender *sender, const void *element, int64_t timeout);
/* The place of the next element, in the memory of the receiver, at a multiple of eight. It is
 * put in by lf_publish; until then every lf_loan gives the same place. */
void *lf_loan(lf_sender *sender, int64_t timeout);
/* Puts the element in that was written where lf_loan said, and tells the receiver. */
int lf_publish(lf_sender *sender);
/* Tells the receiver of what waits for its batch. */
int lf_flush(lf_sender *sender);
/* Waits until all was taken out. */
int lf_drain(lf_sender *sender, int64_t timeout);
/* Ends the queue after what was put in. */
void lf_sender_close(lf_sender *sender);

/* Copies an element out. */
int lf_get(lf_receiver *receiver, void *element, int64_t timeout);
/* The next elements where they lie: how many lie in a row, and how many bytes from one to the
 * next. They stay until lf_release takes the first of them out. */
const volatile void *lf_peek(lf_receiver *receiver, size_t *count, size_t *stride,
                             int64_t timeout);
/* Takes so many out that lf_peek has shown; their places go back to the sender. */
int lf_release(lf_receiver *receiver, size_t count);
void lf_receiver_close(lf_receiver *receiver);

/* ---- Publications: one publisher, any number of subscribers, nobody waits ---------- */

typedef struct lf_publisher lf_publisher;
typedef struct lf_subscriber lf_subscriber;

/* Publications of up to `most` bytes; a subscriber may be `slots` of them late. */
lf_publisher *lf_publisher_open(lf_node *node, uint32_t most, uint32_t slots);
/* The next who finds the name becomes a subscriber. */
int lf_accept_subscriber(lf_publisher *publisher, lf_offer *offer, int64_t timeout);
/* Publishes to all; how many subscribers there are, or an error. */
int lf_publish_bytes(lf_publisher *publisher, const void *bytes, size_t length);
void lf_publisher_close(lf_publisher *publisher);

lf_subscriber *lf_find_publisher(lf_node *node, const char *name, uint32_t most, uint32_t slots,
                                 int64_t timeout);
/* Copies the next publication, of up to `room` bytes: how long it is, or an error. `missed`
 * (may be NULL) is how many were overwritten before it. */
int64_t lf_next(lf_subscriber *subscriber, void *bytes, size_t room, uint64_t *missed,
                int64_t timeout);
void lf_subscriber_close(lf_subscriber *subscriber);

/* ---- Calls: a request and its reply ------------------------------------------------ */

typedef struct lf_client lf_client;
typedef struct lf_server lf_server;

/* Both sides give the same lengths, the most that a request and a reply may have. */
lf_server *lf_accept_client(lf_node *node, lf_offer *offer, uint32_t request, uint32_t reply,
                            int64_t timeout);
lf_client *lf_find_server(lf_node *node, const char *name, uint32_t request, uint32_t reply,
                          int64_t timeout);
/* Calls, and copies the reply, of up to `room` bytes: how long it is, or an error. */
int64_t lf_call(lf_client *client, const void *request, size_t length, void *reply, size_t room,
                int64_t timeout);
void lf_client_close(lf_client *client);

/* Copies the next request, of up to `room` bytes: how long it is, or an error. It is answered by
 * lf_reply, or with nothing by the next lf_request. */
int64_t lf_request(lf_server *server, void *request, size_t room, int64_t timeout);
int lf_reply(lf_server *server, const void *reply, size_t length);
void lf_server_close(lf_server *server);

#ifdef __cplusplus
}
#endif
#endif
