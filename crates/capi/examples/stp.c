/* Both sides of a conversation over STP: `stp serve WHERE KEY`, `stp ask WHERE KEY`, and what is
 * refused. WHERE is a file by which the server tells its address; KEY is "plain" or a byte of
 * which the key consists. The tests of this crate let it talk with programs in other languages. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <signal.h>

#include "common.h"

enum { COUNT = 100, PORT = 7, LONG = 300000 };

static lf_stp *open_endpoint(const char *key)
{
    uint8_t bytes[32];
    lf_stp_config config = { "127.0.0.1:0", NULL, 1, 0, 0, 2000 };
    if (strcmp(key, "plain") != 0) {
        memset(bytes, atoi(key), sizeof bytes);
        config.key = bytes;
        config.flags = LF_STP_ENCRYPT_LOOPBACK;
    }
    return lf_stp_open(&config);
}

static void tell_local(const lf_stp *endpoint, const char *where)
{
    char address[64];
    MUST(lf_stp_local(endpoint, address, sizeof address) > 0);
    tell(address, where);
}

static lf_stp_connection *connect_to(const lf_stp *endpoint, const char *where)
{
    char address[64];
    find(address, sizeof address, where);
    return lf_stp_connect(endpoint, address, PORT, PATIENCE);
}

/* Answers messages until the client closes, and shares a counter meanwhile. */
static int serve(const char *where, const char *key)
{
    lf_stp *endpoint = open_endpoint(key);
    lf_stp_listener *listener = endpoint ? lf_stp_listen(endpoint, PORT) : NULL;
    MUST(listener);
    tell_local(endpoint, where);
    lf_stp_connection *connection = lf_stp_accept(listener, PATIENCE);
    if (!connection)
        return failed("lf_stp_accept");
    lf_region *region = lf_stp_region_open(endpoint, 4096);
    uint8_t shared[LF_STP_KEY];
    if (!region || lf_stp_share(connection, region, 0, 4096,
                                LF_STP_GET | LF_STP_PUT | LF_STP_FETCH, shared) != LF_OK)
        return failed("lf_stp_share");
    if (lf_stp_send(connection, shared, sizeof shared, 0, PATIENCE) != LF_OK)
        return failed("lf_stp_send");
    for (;;) {
        uint32_t opaque;
        int64_t length = lf_stp_next(connection, PATIENCE);
        if (length == LF_CLOSED)
            break;
        if (length < 0)
            return failed("lf_stp_next");
        uint8_t *bytes = malloc(length ? (size_t)length : 1);
        if (!bytes)
            return 1;
        if (length > 0 && lf_stp_receive(connection, bytes, 0, NULL, PATIENCE) != LF_TOO_LONG)
            return failed("a message that is too long");
        if (lf_stp_receive(connection, bytes, (size_t)length, &opaque, PATIENCE) != length)
            return failed("lf_stp_receive");
        for (int64_t i = 0; i < length; i++)
            bytes[i] ^= 0xff;
        if (lf_stp_send(connection, bytes, (size_t)length, opaque + 1, PATIENCE) != LF_OK)
            return failed("lf_stp_send");
        free(bytes);
    }
    uint64_t words[2];
    if (lf_region_read(region, 0, words, sizeof words) != LF_OK)
        return failed("lf_region_read");
    if (words[0] != 5 * COUNT || words[1] != 0x0807060504030201)
        return fprintf(stderr, "the memory is %" PRIu64 ", %" PRIx64 "\n", words[0], words[1]), 1;
    lf_stp_connection_close(connection, PATIENCE);
    lf_region_close(region);
    lf_stp_listener_close(listener);
    lf_stp_close(endpoint);
    return 0;
}

/* Receives by waiting at the descriptor, as a program with a loop of its own does. */
static int64_t receive_by_poll(const lf_stp *endpoint, const lf_stp_connection *connection,
                               void *bytes, size_t room, uint32_t *opaque)
{
    struct pollfd wait = { lf_stp_descriptor(endpoint), POLLIN, 0 };
    for (;;) {
        int64_t length = lf_stp_receive(connection, bytes, room, opaque, 0);
        uint64_t rings;
        if (length != LF_TIMED_OUT)
            return length;
        if (poll(&wait, 1, PATIENCE) != 1)
            return LF_TIMED_OUT;
        if (read(wait.fd, &rings, sizeof rings) < 0)
            continue; /* another thread has read them */
    }
}

static int use_memory(const lf_stp *endpoint, const lf_stp_connection *connection)
{
    uint8_t key[LF_STP_KEY], bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, back[8];
    uint64_t old, value;
    if (lf_stp_receive(connection, key, sizeof key, NULL, PATIENCE) != LF_STP_KEY)
        return failed("the key");
    lf_stp_remote *remote = lf_stp_remote_open(connection, key, PATIENCE);
    if (!remote)
        return failed("lf_stp_remote_open");
    for (uint64_t i = 0; i < COUNT; i++) {
        if (lf_stp_fetch(remote, 0, 8, LF_ADD, 5, 0, &old, PATIENCE) != LF_OK || old != 5 * i)
            return failed("lf_stp_fetch");
    }
    if (lf_stp_put(remote, 8, bytes, sizeof bytes, PATIENCE) != LF_OK)
        return failed("lf_stp_put");
    if (lf_stp_get(remote, 8, back, sizeof back, PATIENCE) != LF_OK || memcmp(back, bytes, 8))
        return failed("lf_stp_get");
    /* Begun, all of it is under way at once. */
    lf_region *region = lf_stp_region_open(endpoint, 64);
    lf_stp_operation *put = lf_stp_begin_put(remote, 16, "begun", 5);
    lf_stp_operation *get = lf_stp_begin_get(remote, 16, region, 32, 5);
    lf_stp_operation *fetch = lf_stp_begin_fetch(remote, 0, 8, LF_LOAD, 0, 0);
    if (lf_stp_status(put, NULL, PATIENCE) != LF_OK || lf_stp_status(get, NULL, PATIENCE) != LF_OK)
        return failed("lf_stp_status");
    if (lf_stp_status(fetch, &value, PATIENCE) != LF_OK || value != 5 * COUNT)
        return failed("lf_stp_begin_fetch");
    if (lf_region_read(region, 32, back, 5) != LF_OK || memcmp(back, "begun", 5))
        return failed("lf_stp_begin_get");
    lf_stp_operation_close(put);
    lf_stp_operation_close(get);
    lf_stp_operation_close(fetch);
    /* What lies outside, or is no word, or was not shared, is refused. */
    if (lf_stp_put(remote, 4090, bytes, 8, PATIENCE) != LF_INVALID)
        return failed("a put outside");
    if (lf_stp_fetch(remote, 3, 8, LF_ADD, 1, 0, NULL, PATIENCE) != LF_INVALID)
        return failed("a word at no multiple");
    key[0] ^= 0x55;
    if (lf_stp_remote_open(connection, key, PATIENCE) || lf_error_code() != LF_REFUSED)
        return failed("a key that is made up");
    lf_region_close(region);
    lf_stp_remote_close(remote);
    return 0;
}

static int ask(const char *where, const char *key)
{
    lf_stp *endpoint = open_endpoint(key);
    MUST(endpoint);
    lf_stp_connection *connection = connect_to(endpoint, where);
    MUST(connection);
    if (use_memory(endpoint, connection))
        return 1;
    uint8_t *bytes = malloc(LONG), *back = malloc(LONG);
    for (uint32_t i = 0; bytes && back && i < COUNT; i++) {
        size_t length = i % 10 == 9 ? LONG : i;
        uint32_t opaque;
        for (size_t j = 0; j < length; j++)
            bytes[j] = (uint8_t)(i + j);
        if (lf_stp_send(connection, bytes, length, i, PATIENCE) != LF_OK)
            return failed("lf_stp_send");
        int64_t got = i % 2 ? receive_by_poll(endpoint, connection, back, LONG, &opaque)
                            : lf_stp_receive(connection, back, LONG, &opaque, PATIENCE);
        if (got != (int64_t)length || opaque != i + 1)
            return failed("lf_stp_receive");
        for (size_t j = 0; j < length; j++) {
            if ((back[j] ^ bytes[j]) != 0xff)
                return fprintf(stderr, "message %" PRIu32 " is wrong\n", i), 1;
        }
    }
    free(bytes);
    free(back);
    if (lf_stp_connection_close(connection, PATIENCE) != LF_OK)
        return failed("lf_stp_connection_close");
    lf_stp_close(endpoint);
    return 0;
}

/* The other side has another key. */
static int ask_with_other_key(const char *where, const char *key)
{
    lf_stp *endpoint = open_endpoint(key);
    MUST(endpoint);
    if (connect_to(endpoint, where) || !*lf_error())
        return fprintf(stderr, "it is connected\n"), 1;
    int code = lf_error_code();
    lf_stp_close(endpoint);
    return code == LF_REFUSED || code == LF_LOST || code == LF_TIMED_OUT ? 0 : failed("the code");
}

/* Is killed in the middle of a conversation. */
static int die(const char *where, const char *key)
{
    char text[5];
    lf_stp *endpoint = open_endpoint(key);
    lf_stp_listener *listener = endpoint ? lf_stp_listen(endpoint, PORT) : NULL;
    MUST(listener);
    tell_local(endpoint, where);
    lf_stp_connection *connection = lf_stp_accept(listener, PATIENCE);
    if (!connection || lf_stp_receive(connection, text, 5, NULL, PATIENCE) != 5)
        return failed("lf_stp_receive");
    return raise(SIGKILL);
}

/* The other side is killed while a receive waits. */
static int wait_for_nothing(const char *where, const char *key)
{
    char byte;
    lf_stp *endpoint = open_endpoint(key);
    MUST(endpoint);
    lf_stp_connection *connection = connect_to(endpoint, where);
    MUST(connection);
    if (lf_stp_send(connection, "ready", 5, 0, PATIENCE) != LF_OK)
        return failed("lf_stp_send");
    if (lf_stp_receive(connection, &byte, 1, NULL, PATIENCE) != LF_LOST || !*lf_error())
        return failed("lf_stp_receive");
    if (lf_stp_send(connection, "anybody?", 8, 0, PATIENCE) != LF_LOST)
        return failed("a send to nobody");
    lf_stp_connection_close(connection, PATIENCE);
    lf_stp_close(endpoint);
    return 0;
}

static int mistakes_of_endpoints(void)
{
    uint8_t key[32] = { 0 };
    lf_stp_config wrong[] = {
        { NULL, NULL, 1, 0, 0, 0 },           { "nowhere", NULL, 1, 0, 0, 0 },
        { "127.0.0.1:0", NULL, 65, 0, 0, 0 }, { "127.0.0.1:0", NULL, 1, 8, 0, 0 },
        { "127.0.0.1:0", NULL, 1, 0, 0, 1 },  { "\xff", NULL, 1, 0, 0, 0 },
        { "203.0.113.9:1", NULL, 1, 1, 0, 0 },
        { "127.0.0.1:0", key, 1, LF_STP_PLAINTEXT, 0, 0 },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (lf_stp_open(&wrong[i]) || !*lf_error() || !lf_error_code())
            return fprintf(stderr, "configuration %zu is taken\n", i), 1;
    }
    if (lf_stp_open(NULL) || lf_stp_listen(NULL, 1) || lf_stp_connect(NULL, "127.0.0.1:1", 1, 0))
        return 1;
    if (lf_stp_local(NULL, NULL, 0) != LF_INVALID || lf_stp_descriptor(NULL) != LF_INVALID)
        return 1;
    return 0;
}

/* A message from one region into another: nothing is copied. */
static int between_regions(const lf_stp_connection *a, const lf_region *from,
                           const lf_stp_connection *b, const lf_region *into)
{
    char text[5];
    uint64_t value = 0;
    if (lf_region_write(from, 7, "bytes", 5) != LF_OK)
        return failed("lf_region_write");
    lf_stp_operation *receive = lf_stp_begin_receive(b, into, 3, 20);
    if (lf_stp_status(receive, &value, 0) != LF_TIMED_OUT || value != 0)
        return failed("a receive of what was not sent");
    lf_stp_operation *send = lf_stp_begin_send_from(a, from, 7, 5, 0);
    if (lf_stp_status(receive, &value, PATIENCE) != LF_OK || value != 5)
        return failed("lf_stp_begin_receive");
    if (lf_stp_status(send, &value, PATIENCE) != LF_OK || value != 5)
        return failed("lf_stp_begin_send_from");
    if (lf_region_read(into, 3, text, 5) != LF_OK || memcmp(text, "bytes", 5))
        return failed("lf_region_read");
    if (lf_stp_begin_receive(b, into, 60, 5) || lf_stp_begin_send_from(a, from, 64, 1, 0))
        return failed("outside of a region");
    lf_stp_operation_close(send);
    lf_stp_operation_close(receive);
    return 0;
}

static int mistakes_of_connections(lf_stp *one, lf_stp *two)
{
    char address[64], small[4];
    uint8_t key[LF_STP_KEY], byte = 0;
    if (lf_stp_local(one, small, sizeof small) != LF_TOO_LONG)
        return failed("a small address");
    lf_stp_listener *listener = lf_stp_listen(one, PORT);
    if (lf_stp_local(one, address, sizeof address) < 0 || lf_stp_listen(one, PORT))
        return failed("a port that is taken");
    if (lf_stp_accept(listener, 0) || lf_error_code() != LF_TIMED_OUT)
        return failed("nobody is there");
    if (lf_stp_connect(two, "127.0.0.1:http?", PORT, PATIENCE) || lf_error_code() != LF_INVALID)
        return failed("no such host");
    if (lf_stp_connect(two, address, PORT + 1, PATIENCE) || lf_error_code() != LF_REFUSED)
        return failed("nobody listens");
    lf_stp_connection *a = lf_stp_connect(two, address, PORT, PATIENCE);
    lf_stp_connection *b = lf_stp_accept(listener, PATIENCE);
    lf_region *region = lf_stp_region_open(one, 64), *other = lf_stp_region_open(two, 64);
    if (!a || !b || !region || !other)
        return failed("a connection");
    if (lf_stp_send(a, NULL, 1, 0, 0) != LF_INVALID || lf_stp_send(a, key, SIZE_MAX, 0, 0) >= 0)
        return failed("bytes that are not there");
    if (lf_stp_send(b, "nobody receives", 15, 0, 20) != LF_TIMED_OUT)
        return failed("a send that nobody receives");
    if (lf_stp_refuse(b) != LF_INVALID || lf_stp_receive(b, &byte, 1, NULL, 0) != LF_TIMED_OUT)
        return failed("nothing to refuse");
    lf_stp_operation *sending = lf_stp_begin_send(a, "too long", 8, 0);
    if (lf_stp_receive(b, &byte, 1, NULL, PATIENCE) != LF_TOO_LONG || lf_stp_refuse(b) != LF_OK)
        return failed("a refusal");
    if (lf_stp_status(sending, NULL, PATIENCE) != LF_TOO_LONG)
        return failed("what the sender hears");
    if (lf_stp_status(sending, NULL, 0) != LF_TOO_LONG || !*lf_error())
        return failed("what it hears again");
    lf_stp_operation_close(sending);
    if (lf_stp_region_open(one, 0) || lf_stp_region_open(one, UINT64_MAX))
        return failed("no region");
    if (lf_region_write(region, 60, key, 5) != LF_INVALID ||
        lf_region_read(region, UINT64_MAX, key, 5) != LF_INVALID)
        return failed("outside of a region");
    if (lf_stp_share(b, region, 60, 5, LF_STP_GET, key) != LF_INVALID ||
        lf_stp_share(b, region, 0, 5, 0, key) != LF_INVALID ||
        lf_stp_share(b, region, 0, 5, 8, key) != LF_INVALID ||
        lf_stp_share(b, region, 0, 5, LF_STP_GET, NULL) != LF_INVALID)
        return failed("what cannot be shared");
    lf_stp_operation *foreign = lf_stp_begin_send_from(a, region, 0, 5, 0);
    if (!foreign || lf_stp_status(foreign, NULL, PATIENCE) != LF_INVALID)
        return failed("memory of another endpoint");
    lf_stp_operation_close(foreign);
    if (between_regions(a, other, b, region))
        return 1;
    if (lf_stp_share(b, region, 0, 64, LF_STP_GET, key) != LF_OK)
        return failed("lf_stp_share");
    lf_stp_remote *remote = lf_stp_remote_open(a, key, PATIENCE);
    if (!remote || lf_stp_put(remote, 0, key, 1, PATIENCE) != LF_REFUSED)
        return failed("a put that is not allowed");
    if (lf_stp_fetch(remote, 0, 3, LF_ADD, 1, 0, NULL, 0) != LF_INVALID ||
        lf_stp_fetch(remote, 0, 8, 99, 1, 0, NULL, 0) != LF_INVALID)
        return failed("no function");
    if (lf_stp_withdraw(b, key) != LF_OK || lf_stp_withdraw(b, key) != LF_INVALID)
        return failed("lf_stp_withdraw");
    if (lf_stp_get(remote, 0, &byte, 1, PATIENCE) >= 0)
        return failed("a get from what was withdrawn");
    /* In any order. */
    lf_stp_listener_close(listener);
    lf_stp_connection_close(a, PATIENCE);
    if (lf_stp_receive(b, &byte, 1, NULL, PATIENCE) != LF_CLOSED)
        return failed("the end");
    lf_stp_close(one);
    lf_stp_close(two);
    if (lf_stp_get(remote, 0, &byte, 1, PATIENCE) >= 0 || lf_stp_send(b, "x", 1, 0, PATIENCE) >= 0)
        return failed("what is closed");
    lf_stp_remote_close(remote);
    lf_region_close(region);
    lf_region_close(other);
    lf_stp_connection_close(b, 0);
    return 0;
}

static int mistakes(const char *where, const char *key)
{
    uint8_t byte = 0;
    (void)where;
    if (mistakes_of_endpoints())
        return failed("an endpoint");
    if (lf_stp_accept(NULL, 0) || lf_stp_remote_open(NULL, &byte, 0) || lf_stp_region_open(NULL, 1))
        return 1;
    if (lf_stp_send(NULL, "", 0, 0, 0) != LF_INVALID || lf_stp_next(NULL, 0) != LF_INVALID ||
        lf_stp_receive(NULL, &byte, 1, NULL, 0) != LF_INVALID || lf_stp_refuse(NULL) != LF_INVALID)
        return 1;
    if (lf_stp_put(NULL, 0, "", 0, 0) != LF_INVALID || lf_stp_get(NULL, 0, &byte, 1, 0) >= 0 ||
        lf_stp_status(NULL, NULL, 0) != LF_INVALID || lf_stp_withdraw(NULL, NULL) != LF_INVALID)
        return 1;
    if (lf_stp_begin_send(NULL, "", 0, 0) || lf_stp_begin_receive(NULL, NULL, 0, 0) ||
        lf_stp_begin_put(NULL, 0, "", 0) || lf_stp_begin_get(NULL, 0, NULL, 0, 0) ||
        lf_stp_begin_fetch(NULL, 0, 8, 0, 0, 0) || lf_stp_begin_send_from(NULL, NULL, 0, 0, 0))
        return 1;
    lf_stp_close(NULL);
    lf_stp_listener_close(NULL);
    lf_region_close(NULL);
    lf_stp_remote_close(NULL);
    lf_stp_operation_close(NULL);
    if (lf_stp_connection_close(NULL, 0) != LF_OK || lf_stp_abort(NULL) != LF_INVALID)
        return 1;
    lf_stp *one = open_endpoint(key), *two = open_endpoint(key);
    return one && two ? mistakes_of_connections(one, two) : failed("lf_stp_open");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const char *, const char *);
    } parts[] = {
        { "serve", serve },
        { "ask", ask },
        { "other-key", ask_with_other_key },
        { "die", die },
        { "wait-for-nothing", wait_for_nothing },
        { "mistakes", mistakes },
    };
    for (size_t i = 0; argc == 4 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[1], parts[i].name) == 0)
            return parts[i].run(argv[2], argv[3]);
    }
    fprintf(stderr, "stp WHAT WHERE KEY\n");
    return 2;
}
