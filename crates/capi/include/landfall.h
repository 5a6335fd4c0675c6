/* landfall.h: shared memory between processes of one host, messages and memory between hosts over
 * the Scheduled Transfer Protocol (STP), and queue pairs over both and over TCP, for C (99 and
 * later) and C++. At the end: reassembly of fragments of IP.
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
#define LF_ABI 4
uint32_t lf_abi(void);

enum {
    LF_OK = 0,
    LF_TIMED_OUT = -1,     /* the deadline is over, or nothing is there yet */
    LF_CLOSED = -2,        /* the peer has ended it, and all was received */
    LF_LOST = -3,          /* the peer is gone */
    LF_MISBEHAVED = -4,    /* the peer wrote what no correct peer writes */
    LF_OTHER_LAYOUT = -5,  /* the peer's elements are of another layout */
    LF_REFUSED = -6,       /* the peer, or this machine's rights, do not let it be */
    LF_TOO_LONG = -7,      /* more bytes than fit */
    LF_INVALID = -8,       /* an argument makes no sense */
    LF_FAILED = -9,        /* everything else */
    LF_FULL = -10          /* a queue is full: take completions, and post again */
};

/* Why the last call of this thread failed. Valid until the thread's next call. */
const char *lf_error(void);
/* Its code: for functions that return a pointer. */
int lf_error_code(void);

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

/* ---- STP: messages and memory between hosts, over UDP ------------------------------ *
 *
 * Both sides open an endpoint; one listens at a port, the other connects to it. A message is
 * sent whole and received whole, straight into memory that waits for it. Memory that one side
 * has shared the other one writes, reads and counts in, without a call of its owner.
 *
 * Handles of STP may be used by several threads at once, until they are closed; messages are
 * received by one thread at a time. They may be closed in any order.
 */

typedef struct lf_stp lf_stp;
typedef struct lf_stp_listener lf_stp_listener;
typedef struct lf_stp_connection lf_stp_connection;
typedef struct lf_region lf_region;
typedef struct lf_stp_remote lf_stp_remote;
typedef struct lf_stp_operation lf_stp_operation;

enum {
    LF_STP_PLAINTEXT = 1,        /* encrypts nothing, not even what leaves the host */
    LF_STP_ENCRYPT_LOOPBACK = 2  /* encrypts also what stays on the host: for tests */
};

/* Both sides give the same key and flags. */
typedef struct lf_stp_config {
    const char *address; /* of UDP: "192.0.2.1:8181"; with port 0 the kernel chooses one */
    const uint8_t *key;  /* 32 random bytes that both sides have; NULL: the user's identity */
    uint32_t threads;    /* engines that share the work; 0 and 1: one */
    uint32_t flags;      /* of the above; 0: what leaves the host is encrypted */
    uint32_t keep_alive; /* milliseconds of silence after which a peer is asked whether it lives;
                          * 0: 5,000, or a quarter of the next */
    uint32_t patience;   /* milliseconds of silence after which a peer counts as gone, and what
                          * waits for it ends: about so many, 100 or more; 0: half a minute */
} lf_stp_config;

lf_stp *lf_stp_open(const lf_stp_config *config);
/* Copies the address of UDP where peers reach it, as a text of up to `room` bytes with its zero:
 * how long it is, or an error. */
int64_t lf_stp_local(const lf_stp *endpoint, char *address, size_t room);
/* An event descriptor, for poll and the like: it becomes readable when what was tried with a
 * timeout of 0 and gave LF_TIMED_OUT may be there. Read its eight bytes first, and then try all
 * of it again. It belongs to the endpoint, and is closed with it. */
int lf_stp_descriptor(const lf_stp *endpoint);
/* Closes its connections gracefully, which takes five seconds at most. */
void lf_stp_close(lf_stp *endpoint);

/* Lets connections come in at a port of STP, which has nothing to do with ports of UDP. */
lf_stp_listener *lf_stp_listen(const lf_stp *endpoint, uint16_t port);
lf_stp_connection *lf_stp_accept(const lf_stp_listener *listener, int64_t timeout);
void lf_stp_listener_close(lf_stp_listener *listener);
/* Connects to "HOST:PORT", where PORT is of UDP, or "HOST" (then it is 8181). It waits for five
 * seconds at most, and not at all with a timeout of 0, which is of no use here. */
lf_stp_connection *lf_stp_connect(const lf_stp *endpoint, const char *peer, uint16_t port,
                                  int64_t timeout);
/* Ends it now, with all that is under way: calls of other threads return, and the other side is
 * told. The handle is still to be closed. */
int lf_stp_abort(const lf_stp_connection *connection);
/* Closes it after what is under way; what is not over in time is ended. The handle is gone
 * whatever this returns. */
int lf_stp_connection_close(lf_stp_connection *connection, int64_t timeout);

/* Sends a copy of a message and waits until the other side has received it; one that is not
 * received in time is not sent any more. `opaque` goes along. Two sides that both send before
 * they receive wait for each other: begin one of the sends. Messages that are begun before others
 * are received may overtake each other where packets get lost: `opaque` can number them. */
int lf_stp_send(const lf_stp_connection *connection, const void *bytes, size_t length,
                uint32_t opaque, int64_t timeout);
/* How long the next message is, or an error. It stays the next one; lf_stp_receive passes over it
 * if its sender gives it up. */
int64_t lf_stp_next(const lf_stp_connection *connection, int64_t timeout);
/* Copies the next message, of up to `room` bytes: how long it is, or an error. LF_TOO_LONG and
 * LF_TIMED_OUT lose nothing: call it again. `opaque` (may be NULL) is what the sender said. */
int64_t lf_stp_receive(const lf_stp_connection *connection, void *bytes, size_t room,
                       uint32_t *opaque, int64_t timeout);
/* Refuses the message that lf_stp_next has shown, or that was too long: its sender is told. */
int lf_stp_refuse(const lf_stp_connection *connection);

/* Registered memory, all zero at first, from where bytes are sent and where they land without a
 * copy. What is shared or under way keeps it after it was closed. Queue pairs have some, too. */
lf_region *lf_stp_region_open(const lf_stp *endpoint, uint64_t length);
int lf_region_write(const lf_region *region, uint64_t at, const void *bytes, size_t length);
int lf_region_read(const lf_region *region, uint64_t at, void *bytes, size_t length);
void lf_region_close(lf_region *region);

/* The same bytes where they lie, without a copy: they stay there until the view is closed, also when
 * the region was before. Keep what requests rely on: what is being sent from there is not written,
 * and what is being received there is neither read nor written, until that is over. What was shared
 * the other side may change at any moment. At least one byte. */
typedef struct lf_view lf_view;
lf_view *lf_view_open(const lf_region *region, uint64_t at, uint64_t length);
void *lf_view_bytes(const lf_view *view);
void lf_view_close(lf_view *view);

enum { LF_STP_GET = 1, LF_STP_PUT = 2, LF_STP_FETCH = 4 }; /* rights: any of them */
enum { LF_STP_KEY = 13 };                                  /* bytes of a key */

/* Lets the other side of a connection use some of a region. It finds it by the key, plain bytes
 * that a message carries, until that is withdrawn or the connection is closed. */
int lf_stp_share(const lf_stp_connection *connection, const lf_region *region, uint64_t at,
                 uint64_t length, uint32_t rights, uint8_t *key);
/* Ends that: when it returns, the other side changes nothing there any more. */
int lf_stp_withdraw(const lf_stp_connection *connection, const uint8_t *key);
/* The memory of a key that the other side has sent. What was not shared is refused. */
lf_stp_remote *lf_stp_remote_open(const lf_stp_connection *connection, const uint8_t *key,
                                  int64_t timeout);
void lf_stp_remote_close(lf_stp_remote *remote);

/* Writes, and returns when the bytes are in place. What is begun takes effect, in order, even
 * if the time is over before that is known. */
int lf_stp_put(const lf_stp_remote *remote, uint64_t at, const void *bytes, size_t length,
               int64_t timeout);
int lf_stp_get(const lf_stp_remote *remote, uint64_t at, void *bytes, size_t length,
               int64_t timeout);

enum { /* what is done to a word */
    LF_LOAD = 0,
    LF_STORE = 1,
    LF_SWAP = 2,
    LF_ADD = 3,
    LF_AND = 4,
    LF_OR = 5,
    LF_XOR = 6,
    LF_COMPARE_SWAP = 7 /* stores `operand` if the word holds `expected` */
};

/* Changes a word of `width` bytes (4 or 8) in one step, at a multiple of its width. `old` (may
 * be NULL) is what it held before. */
int lf_stp_fetch(const lf_stp_remote *remote, uint64_t at, uint32_t width, uint32_t function,
                 uint64_t operand, uint64_t expected, uint64_t *old, int64_t timeout);

/* The same without waiting: each begins at once, in the order of the calls, and lf_stp_status
 * tells when it is over. Those with a region copy nothing. */
lf_stp_operation *lf_stp_begin_send(const lf_stp_connection *connection, const void *bytes,
                                    size_t length, uint32_t opaque);
lf_stp_operation *lf_stp_begin_send_from(const lf_stp_connection *connection,
                                         const lf_region *region, uint64_t at,
                                         uint64_t length, uint32_t opaque);
/* Memory for a message that is yet to come; a longer one than `length` is refused. What waits so
 * goes before lf_stp_receive. */
lf_stp_operation *lf_stp_begin_receive(const lf_stp_connection *connection,
                                       const lf_region *region, uint64_t at,
                                       uint64_t length);
lf_stp_operation *lf_stp_begin_put(const lf_stp_remote *remote, uint64_t at, const void *bytes,
                                   size_t length);
lf_stp_operation *lf_stp_begin_get(const lf_stp_remote *remote, uint64_t at,
                                   const lf_region *region, uint64_t region_at,
                                   uint64_t length);
lf_stp_operation *lf_stp_begin_fetch(const lf_stp_remote *remote, uint64_t at, uint32_t width,
                                     uint32_t function, uint64_t operand, uint64_t expected);
/* LF_OK if it is done, LF_TIMED_OUT while it is under way, or how it failed: as often as it is
 * called. `value` (may be NULL) is the length of what was sent, received or got, or what the
 * word held before. */
int lf_stp_status(const lf_stp_operation *operation, uint64_t *value, int64_t timeout);
/* Cancels it if it is not over; a put or fetch takes effect nevertheless. */
void lf_stp_operation_close(lf_stp_operation *operation);

/* ---- Queue pairs: requests that are posted, and complete ---------------------------- *
 *
 * The verbs of the Virtual Interface Architecture. Work is posted to a queue pair and goes on by
 * itself; what became of it stands in a completion queue. Three carriers have them, with the
 * same functions:
 *
 *                        between          RDMA  empty messages  longer than their room
 *   lf_verbs_over_node   processes        yes   yes             LF_LONGER
 *   lf_verbs_over_stp    hosts, by UDP    yes   yes             LF_LONGER
 *   lf_verbs_over_qpip   hosts, by TCP    no    no              LF_CONTINUES
 *
 * What fails ends its queue pair, at both ends: all that is left completes as flushed. Handles may
 * be used by several threads at once, until they are closed; completions of a queue are taken by
 * one thread at a time. They may be closed in any order; what goes over STP ends with its endpoint.
 *
 * QPIP has two more services, whose other end is any socket: streams of bytes (LF_STREAM) over TCP,
 * and datagrams of UDP (lf_pair_bind).
 */

typedef struct lf_verbs lf_verbs;
typedef struct lf_completions lf_completions;
typedef struct lf_shared_receives lf_shared_receives;
typedef struct lf_pair lf_pair;
typedef struct lf_pair_listener lf_pair_listener;

/* An adapter of QPIP: a TCP of its own on an interface. */
typedef struct lf_qpip {
    const char *link;    /* "packet:eth0", "xdp:eth0", "tap:NAME" (all need privileges), or frames
                          * within UDP: "udp:192.0.2.1:4791", with port 0 the kernel chooses one */
    const char *address; /* its own, that no kernel has: "10.0.0.2/24" */
    const char *gateway; /* NULL: none */
    const char *peer;    /* within UDP: where the other one is. NULL: who sends first */
    uint32_t flags;      /* 0 */
    uint32_t reserved;   /* 0 */
} lf_qpip;

lf_verbs *lf_verbs_over_node(lf_node *node);
lf_verbs *lf_verbs_over_stp(const lf_stp *endpoint);
lf_verbs *lf_verbs_over_qpip(const lf_qpip *config);
/* Copies where UDP reaches it, with a zero byte: how long it is. Over a node: nothing. */
int64_t lf_verbs_local(const lf_verbs *verbs, char *address, size_t room);
void lf_verbs_close(lf_verbs *verbs);

enum { LF_READ = 1, LF_WRITE = 2 }; /* rights: what the other side may do; both: atomics, too */

/* Registered memory, all zero at first: see lf_region_write. Over a node the rights are the
 * processor's, for the whole region: room for messages needs LF_WRITE, and who has sent a message
 * may write there wherever it likes. */
lf_region *lf_region_open(const lf_verbs *verbs, uint64_t length, uint32_t rights);

/* An address of IP, with a port. */
typedef struct lf_address {
    uint8_t ip[16];   /* as the network has it; of IPv4 the first four */
    uint16_t port;
    uint8_t version;  /* 4 or 6; 0: there is none */
    uint8_t reserved; /* 0 */
} lf_address;

/* From "10.0.0.2:9000" or "[fd00::2]:9000", and back with a zero byte: how long the text is. */
int lf_address_read(const char *text, lf_address *address);
int64_t lf_address_text(const lf_address *address, char *text, size_t room);

enum { LF_SENT = 0, LF_RECEIVED = 1 }; /* of which queue a request was */

enum { /* what became of it: lf_status_text has it in words */
    LF_DONE = 0,
    LF_LONGER = 1,        /* the message was longer than the room whose turn it was */
    LF_FLUSHED = 2,       /* the queue pair ended before its turn */
    LF_GONE = 3,          /* the other side is gone, or ended the connection */
    LF_NO_ANSWER = 4,     /* the other side stopped answering */
    LF_MEMORY_GONE = 5,   /* the memory cannot be used (any more) */
    LF_REMOTE_ACCESS = 6, /* the other side's memory may not be used so */
    LF_UNREACHABLE = 7
};

typedef struct lf_completion {
    uint64_t id;        /* your own name for the request */
    uint64_t pair;      /* lf_pair_id of the queue pair */
    uint32_t operation; /* LF_SENT, also of what reached memory, or LF_RECEIVED */
    uint32_t status;
    uint32_t length;    /* bytes that were sent, or came; of a datagram with LF_LONGER, which is
                         * not written anywhere, all that it had */
    uint32_t flags;     /* LF_IMMEDIATE: there is such a word. LF_CONTINUES: the message goes on
                         * in the next room; it says nothing of a stream. LF_STAYS: see LF_STREAM */
    uint32_t immediate;
    uint32_t offset;    /* of a stream: where in its room the bytes that came begin */
    lf_address from;    /* who has sent a datagram */
} lf_completion;

/* With this many places: a request that could not complete is refused (LF_FULL) when it is
 * posted. A stream takes one for itself, where it receives. */
lf_completions *lf_completions_open(const lf_verbs *verbs, uint32_t capacity);
/* Takes at most `room` completions, and returns how many: 0 if there are none. */
int64_t lf_completions_poll(const lf_completions *completions, lf_completion *into, size_t room);
/* The same, once there is one. 0: none, but a queue pair has ended. */
int64_t lf_completions_wait(const lf_completions *completions, lf_completion *into, size_t room,
                            int64_t timeout);

/* Any completion; what was received, and what failed (of a stream not all: LF_NEXT is for those). */
enum { LF_NEXT = 0, LF_MESSAGES = 1 };

/* Before sleeping at the descriptor, for poll and epoll. It returns 1, and the descriptor becomes
 * readable when something completes or a queue pair ends: do not read it, poll. 0: there is
 * something already. */
int lf_completions_arm(const lf_completions *completions, uint32_t what);
int lf_completions_descriptor(const lf_completions *completions);
/* The next queue pair that has ended: 1 and its state (see lf_pair_state), or 0 if there is none.
 * Nobody has to ask. */
int lf_completions_ended(const lf_completions *completions, uint64_t *pair, int *state);
void lf_completions_close(lf_completions *completions);
/* A status in words. */
const char *lf_status_text(uint32_t status);

typedef struct lf_pair_options {
    const lf_completions *sends;      /* where they complete */
    const lf_completions *receives;   /* the same, or another one */
    const lf_shared_receives *shared; /* NULL: it has room of its own. Otherwise what it receives
                                       * completes where that room does; `receives` is not used */
    uint32_t send_depth;              /* requests that may be under way; 0: 128 */
    uint32_t receive_depth;
    uint32_t inlined; /* the most bytes of lf_post_inline; 0: 1024 */
    uint32_t flags;   /* LF_STREAM, or 0 */
} lf_pair_options;

/* A stream of bytes, over QPIP: what was sent has no borders, and the other end may be any socket of
 * TCP. Rooms are filled one after another. One that is not full completes nevertheless with what has
 * come, with LF_STAYS: it is not used up, and completes again with what follows, from `offset` on
 * (the last time, it may be, with 0 bytes). So keep several posted: they are the window that the
 * other side sees, and its end, too, comes only where there is room. LF_FLUSHED of a room says that
 * the other side has sent all; it may still receive, until lf_pair_shutdown or lf_pair_close. */
enum { LF_STREAM = 1 };

/* Lets queue pairs connect. The place is a name over a node ("prices"), a port of STP ("7"), or
 * an address of QPIP and a port of TCP ("10.0.0.2:9000", "0.0.0.0:9000"). */
lf_pair_listener *lf_pair_listen(const lf_verbs *verbs, const char *place);
/* The next who has connected. Over QPIP one thread accepts at a time, and a call that timed out
 * leaves its queue pair, with its options, to the next. */
lf_pair *lf_pair_accept(const lf_pair_listener *listener, const lf_pair_options *options,
                        int64_t timeout);
void lf_pair_listener_close(lf_pair_listener *listener);
/* Connects to such a place: over STP it is "HOST:PORT/7", where PORT is of UDP. It waits for the
 * other side: a timeout of 0 is of no use here. */
lf_pair *lf_pair_connect(const lf_verbs *verbs, const char *place, const lf_pair_options *options,
                         int64_t timeout);
/* Datagrams, over QPIP: a queue pair that is bound to an address of its own and a port
 * ("10.0.0.2:9000", "0.0.0.0:9000"; port 0 takes any that is free), and not connected. What is
 * posted says to whom it goes, and completions say who has sent what came. */
lf_pair *lf_pair_bind(const lf_verbs *verbs, const char *place, const lf_pair_options *options);
/* Where its ends are, over QPIP: what it is bound or connected to here, and who is connected to it.
 * The version is 0 where that is nobody. */
int lf_pair_local(const lf_pair *pair, lf_address *address);
int lf_pair_remote(const lf_pair *pair, lf_address *address);
/* Behind what was posted nothing more is sent, over QPIP, and the other side hears of that. What it
 * still sends is received. */
int lf_pair_shutdown(const lf_pair *pair);
/* What completions call it. */
uint64_t lf_pair_id(const lf_pair *pair);
/* LF_OK while it is connected or bound, LF_CLOSED when both sides have closed, or LF_LOST: lf_error. */
int lf_pair_state(const lf_pair *pair);
/* Ends it; what is under way is cancelled, so wait for your sends before. Over QPIP it waits up to
 * a second for the other side, which hears of it by TCP. */
void lf_pair_close(lf_pair *pair);

/* Some bytes of a region. It may be closed when what was posted is done. */
typedef struct lf_part {
    const lf_region *region;
    uint64_t at;
    uint64_t length;
} lf_part;

enum { LF_SEND = 0, LF_RDMA_WRITE = 1, LF_RDMA_READ = 2, LF_ATOMIC = 3 };
enum {
    LF_SILENT = 1,    /* completes only if it fails: the next that completes says that it is done */
    LF_IMMEDIATE = 2, /* a word goes along; a write with one uses up a receive of the other side */
    LF_CONTINUES = 4, /* of completions: see there */
    LF_STAYS = 8
};
enum { LF_KEY = 32 }; /* bytes of a key */

/* Requests that send. Unused fields are 0. */
typedef struct lf_work {
    uint64_t id;          /* your own name for it: its completion brings it back */
    const lf_part *parts; /* where its bytes are, or go to, in order. QPIP takes four at most */
    uint32_t count;
    uint32_t operation;
    uint32_t flags;
    uint32_t immediate;
    const uint8_t *key;   /* memory of the other side: LF_KEY bytes */
    uint64_t at;          /* where in it; words are at multiples of eight */
    uint64_t operand;     /* of LF_ATOMIC, which changes a word of eight bytes in one step and */
    uint64_t expected;    /* writes what it held before to its one part, little-endian */
    uint32_t function;    /* LF_LOAD and so on */
    uint32_t reserved;    /* 0 */
    const lf_address *to; /* where a datagram goes */
} lf_work;

/* Posts a list; its requests are done in its order. `posted` (may be NULL) is how many are. */
int lf_post_sends(const lf_pair *pair, const lf_work *list, size_t count, size_t *posted);
/* Posts a message whose bytes are copied now: no memory has to be registered for them. */
int lf_post_inline(const lf_pair *pair, uint64_t id, const void *bytes, size_t length);
/* The same to this address, of a datagram. */
int lf_post_inline_to(const lf_pair *pair, uint64_t id, const void *bytes, size_t length,
                      const lf_address *to);

/* Room for a message. */
typedef struct lf_room {
    uint64_t id;
    const lf_part *parts;
    uint32_t count;
    uint32_t reserved; /* 0 */
} lf_room;

int lf_post_receives(const lf_pair *pair, const lf_room *list, size_t count, size_t *posted);

/* Room that many queue pairs share, and take when a message needs it. */
lf_shared_receives *lf_shared_receives_open(const lf_verbs *verbs,
                                            const lf_completions *completions, uint32_t depth);
int lf_shared_receives_post(const lf_shared_receives *shared, const lf_room *list, size_t count,
                            size_t *posted);
void lf_shared_receives_close(lf_shared_receives *shared);

/* Lets the other side of this queue pair use a region, as far as its rights go, until that is
 * withdrawn. The key is plain bytes that a message carries. Over STP it is this queue pair's, and
 * ends with it; over a node it is the other process's, and ends with the region. */
int lf_share(const lf_pair *pair, const lf_region *region, uint8_t *key);
/* Its next request with the key fails. Over a node room in that region is refused, too. */
int lf_withdraw(const lf_pair *pair, const uint8_t *key);

/* ---- Reassembly: fragments of IPv4 and IPv6 in, packets out ------------------------- *
 *
 * For intrusion detection, gateways and tools that read captures. What overlaps, or is not
 * plainly one packet cut into fragments, is dropped; memory is bounded, in all and for each source.
 */

typedef struct lf_reassembler lf_reassembler;

enum {
    LF_LINK_ETHERNET = 0, /* frames with up to two tags of VLANs */
    LF_LINK_IP = 1        /* packets of IP with nothing before them, as of a TUN interface */
};

/* 0 is as usual. One source has a sixteenth of packets and bytes at most. */
typedef struct lf_reassembly {
    uint32_t link;     /* what stands before the header of IP */
    uint32_t packets;  /* the most that wait for fragments; 0: 16,384 */
    uint64_t bytes;    /* the most that they take; 0: 64 MiB */
    uint32_t lifetime; /* milliseconds from the first fragment of a packet; 0: 30,000 */
    uint32_t reserved; /* 0 */
} lf_reassembly;

typedef struct lf_reassembly_counts {
    uint64_t offered; /* frames, and packets that came out of fragments */
    uint64_t packets;
    uint64_t dropped; /* frames that were dropped, and packets that were too late or had no room */
    uint64_t expired;
    uint64_t waiting; /* packets that are not complete, and the bytes of memory now */
    uint64_t memory;
} lf_reassembly_counts;

/* With NULL all is as usual, for Ethernet. */
lf_reassembler *lf_reassembler_open(const lf_reassembly *config);
/* Takes a frame that came at `now`, in nanoseconds of any clock that does not go back. It returns
 * the length of what is to be looked at, and sets `packet` to it: the frame itself where it is no
 * fragment, or the packet that is complete with it, headers first, until the next call. It returns
 * 0 if others are missing, and LF_REFUSED if the frame was dropped: lf_error says why. */
int64_t lf_reassemble(lf_reassembler *reassembler, uint64_t now, const void *frame, size_t length,
                      const void **packet);
/* Forgets what was not complete in time, for times in which no frame comes. */
int lf_reassembler_expire(lf_reassembler *reassembler, uint64_t now);
int lf_reassembler_counts(const lf_reassembler *reassembler, lf_reassembly_counts *counts);
/* A reason for which frames are dropped, and how many were: from number 0 on. NULL: there is no
 * reason of this number. */
const char *lf_reassembler_dropped(const lf_reassembler *reassembler, uint32_t reason,
                                   uint64_t *count);
void lf_reassembler_close(lf_reassembler *reassembler);

#ifdef __cplusplus
}
#endif
#endif
