/* A program for each half of a queue, a publication and calls: `exchange FOLDER WHAT`. The tests
 * of this crate let it talk with programs in other languages. */
#include "common.h"

enum { COUNT = 1000 };

struct quote {
    double price;
    uint32_t size;
    char venue[4];
};

static lf_queue queue_of_quotes(void)
{
    lf_queue queue = { sizeof(struct quote), 16, 4, 0, 0 };
    queue.layout = lf_layout("{price:f64@0,size:u32@8,venue:[u8;4]@12}16");
    return queue;
}

static int send_quotes(lf_node *node)
{
    lf_queue queue = queue_of_quotes();
    lf_offer *offer = lf_offer_open(node, "quotes");
    if (!offer)
        return failed("lf_offer_open");
    lf_sender *sender = lf_accept_sender(node, offer, &queue, PATIENCE);
    if (!sender)
        return failed("lf_accept_sender");
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i % 2) {
            struct quote quote = { i / 2.0, i, { 'X', 'E', 'T', 'R' } };
            if (lf_put(sender, &quote, PATIENCE) != LF_OK)
                return failed("lf_put");
        } else {
            struct quote *quote = lf_loan(sender, PATIENCE);
            if (!quote)
                return failed("lf_loan");
            quote->price = i / 2.0;
            quote->size = i;
            memcpy(quote->venue, "XETR", 4);
            if (lf_publish(sender) != LF_OK)
                return failed("lf_publish");
        }
    }
    if (lf_flush(sender) != LF_OK || lf_drain(sender, PATIENCE) != LF_OK)
        return failed("lf_drain");
    lf_sender_close(sender);
    lf_offer_close(offer);
    return 0;
}

static int receive_quotes(lf_node *node)
{
    lf_queue queue = queue_of_quotes();
    lf_receiver *receiver = lf_find_receiver(node, "quotes", &queue, PATIENCE);
    if (!receiver)
        return failed("lf_find_receiver");
    uint32_t next = 0;
    while (next < COUNT) {
        size_t count, stride;
        const volatile char *there = lf_peek(receiver, &count, &stride, PATIENCE);
        if (!there)
            return failed("lf_peek");
        for (size_t i = 0; i < count; i++, next++) {
            const volatile struct quote *quote =
                (const volatile struct quote *)(there + i * stride);
            if (quote->size != next || quote->price != next / 2.0 || quote->venue[3] != 'R')
                return fprintf(stderr, "quote %" PRIu32 " is wrong\n", next), 1;
        }
        if (lf_release(receiver, count) != LF_OK)
            return failed("lf_release");
    }
    struct quote after;
    if (lf_get(receiver, &after, PATIENCE) != LF_CLOSED)
        return failed("the end");
    lf_receiver_close(receiver);
    return 0;
}

/* Takes the same bytes for something else: both sides notice. */
static int receive_others(lf_node *node)
{
    lf_queue queue = queue_of_quotes();
    struct quote quote;
    queue.layout = lf_layout("{size:u32@0,venue:[u8;4]@4,price:f64@8}16");
    lf_receiver *receiver = lf_find_receiver(node, "quotes", &queue, PATIENCE);
    if (!receiver)
        return failed("lf_find_receiver");
    int got = lf_get(receiver, &quote, PATIENCE);
    lf_receiver_close(receiver);
    return got == LF_OTHER_LAYOUT ? 0 : failed("lf_get");
}

static int publish(lf_node *node)
{
    lf_offer *offer = lf_offer_open(node, "news");
    lf_publisher *publisher = lf_publisher_open(node, 64, 256);
    if (!offer || !publisher)
        return failed("lf_publisher_open");
    if (lf_accept_subscriber(publisher, offer, PATIENCE) != LF_OK)
        return failed("lf_accept_subscriber");
    for (int i = 0; i < 100; i++) {
        char text[64];
        int length = snprintf(text, sizeof text, "news %d", i);
        if (lf_publish_bytes(publisher, text, (size_t)length) != 1)
            return failed("lf_publish_bytes");
    }
    /* Until the reader has gone, what it reads is there. */
    lf_offer *gone = lf_offer_open(node, "news are read");
    lf_server *server = gone ? lf_accept_client(node, gone, 8, 8, PATIENCE) : NULL;
    if (!server)
        return failed("lf_accept_client");
    if (lf_request(server, NULL, 0, PATIENCE) != 0 || lf_reply(server, NULL, 0) != LF_OK)
        return failed("lf_request");
    lf_server_close(server);
    lf_offer_close(gone);
    lf_publisher_close(publisher);
    lf_offer_close(offer);
    return 0;
}

static int subscribe(lf_node *node)
{
    lf_subscriber *subscriber = lf_find_publisher(node, "news", 64, 256, PATIENCE);
    if (!subscriber)
        return failed("lf_find_publisher");
    for (int i = 0; i < 100; i++) {
        char text[64], expected[64];
        uint64_t missed;
        int64_t length = lf_next(subscriber, text, sizeof text, &missed, PATIENCE);
        if (length < 0 || missed)
            return failed("lf_next");
        snprintf(expected, sizeof expected, "news %d", i);
        if ((size_t)length != strlen(expected) || memcmp(text, expected, (size_t)length))
            return fprintf(stderr, "news %d are others\n", i), 1;
    }
    lf_subscriber_close(subscriber);
    lf_client *client = lf_find_server(node, "news are read", 8, 8, PATIENCE);
    if (!client || lf_call(client, NULL, 0, NULL, 0, PATIENCE) != 0)
        return failed("lf_call");
    lf_client_close(client);
    return 0;
}

static int serve(lf_node *node)
{
    lf_offer *offer = lf_offer_open(node, "sums");
    lf_server *server = offer ? lf_accept_client(node, offer, 64, 64, PATIENCE) : NULL;
    if (!server)
        return failed("lf_accept_client");
    for (;;) {
        uint64_t numbers[8] = { 0 }, sum = 0;
        int64_t length = lf_request(server, numbers, sizeof numbers, PATIENCE);
        if (length == LF_LOST || length == LF_REFUSED)
            break; /* the client has gone */
        if (length < 0)
            return failed("lf_request");
        for (int64_t i = 0; i < length / 8; i++)
            sum += numbers[i];
        if (lf_reply(server, &sum, sizeof sum) != LF_OK)
            return failed("lf_reply");
    }
    lf_server_close(server);
    lf_offer_close(offer);
    return 0;
}

static int call(lf_node *node)
{
    lf_client *client = lf_find_server(node, "sums", 64, 64, PATIENCE);
    if (!client)
        return failed("lf_find_server");
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t numbers[3] = { i, 2 * i, 7 }, sum;
        if (lf_call(client, numbers, sizeof numbers, &sum, sizeof sum, PATIENCE) != 8)
            return failed("lf_call");
        if (sum != 3 * i + 7)
            return fprintf(stderr, "the sum is %" PRIu64 "\n", sum), 1;
    }
    lf_client_close(client);
    return 0;
}

/* What makes no sense is refused, and the program goes on. */
static int mistakes(lf_node *node)
{
    lf_queue none = { 0, 0, 0, 0, 0 };
    lf_queue some = { 8, 4, 1, 0, 0 };
    char element[8] = "";
    size_t count;
    if (lf_node_open(NULL) || lf_node_open("/nowhere/at/all") || lf_node_open("\xff"))
        return 1;
    if (lf_offer_open(node, "") || lf_offer_open(NULL, "name") || lf_offer_open(node, NULL))
        return 2;
    if (lf_find_sender(node, "nobody", &some, 0) || !*lf_error())
        return 3;
    if (lf_find_sender(node, "nobody", &none, 0) || lf_find_receiver(node, "nobody", NULL, 0))
        return 4;
    if (lf_put(NULL, element, 0) != LF_INVALID || lf_get(NULL, element, 0) != LF_INVALID)
        return 5;
    if (lf_peek(NULL, &count, NULL, 0) || lf_loan(NULL, 0) || lf_release(NULL, 1) != LF_INVALID)
        return 6;
    if (lf_abi() != LF_ABI || lf_layout(NULL) != 0)
        return 7;
    lf_sender_close(NULL);
    lf_receiver_close(NULL);
    lf_offer_close(NULL);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(lf_node *);
    } parts[] = {
        { "send", send_quotes }, { "receive", receive_quotes }, { "receive-others", receive_others },
        { "publish", publish },  { "subscribe", subscribe },    { "serve", serve },
        { "call", call },        { "mistakes", mistakes },
    };
    for (size_t i = 0; argc == 3 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[2], parts[i].name) == 0) {
            lf_node *node = lf_node_open(argv[1]);
            if (!node)
                return failed("lf_node_open");
            int result = parts[i].run(node);
            lf_node_close(node);
            return result;
        }
    }
    fprintf(stderr, "exchange FOLDER WHAT\n");
    return 2;
}
