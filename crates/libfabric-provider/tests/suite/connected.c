/* What endpoints have to do that are connected: FI_EP_MSG. The first process listens. */
#include "fabric.h"
#include "abuse.h"
#include "connected.h"

#include <sys/epoll.h>

/* Completions may be waited for on each side while events are, and the other way round. */
static struct fid_eq *eq;
static struct fid_pep *pep;
/* A connection that was asked for, with what was said along. */
struct asked {
    struct fi_info *info;
    uint8_t said[64];
    size_t len;
};
struct event {
    uint32_t number;
    ssize_t len;
    union {
        struct fi_eq_cm_entry entry;
        uint8_t room[sizeof(struct fi_eq_cm_entry) + 64];
    };
};

static void open_fabric(const char *node, const char *service, uint64_t flags)
{
    struct fi_info *hints = fi_allocinfo();
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_MSG;
    hints->mode = FI_CONTEXT;
    hints->domain_attr->mr_mode = 0;
    hints->fabric_attr->prov_name = strdup(side.provider);
    if (is_qpip()) {
        CHECK(fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, &side.info) == -FI_ENODATA);
        hints->caps &= ~FI_RMA;
    }
    OK(fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, &side.info));
    CHECK(side.info->ep_attr->type == FI_EP_MSG && !(side.info->caps & FI_RMA) == is_qpip());
    fi_freeinfo(hints);
    OK(fi_fabric(side.info->fabric_attr, &side.fabric, NULL));
    OK(fi_domain(side.fabric, side.info, &side.domain, NULL));
    struct fi_cq_attr cq = { .size = 1024, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
    OK(fi_cq_open(side.domain, &cq, &side.cq, NULL));
    struct fi_eq_attr attr = { .size = 64, .wait_obj = FI_WAIT_FD, .flags = FI_WRITE };
    OK(fi_eq_open(side.fabric, &attr, &eq, NULL));
}

/* The first listens, and tells the second where. */
static void open_both(void)
{
    uint8_t name[128] = { 0 };
    size_t len = sizeof name;
    if (!side.is_first) {
        CHECK(read(side.other, name, sizeof name) == sizeof name);
        char port[8];
        snprintf(port, sizeof port, "%u", ntohs(((struct sockaddr_in *)name)->sin_port));
        open_fabric(getenv("CASES_ADDRESS_OF_FIRST"), port, 0);
        CHECK(side.info->dest_addr);
        return;
    }
    open_fabric(side.address, NULL, FI_SOURCE);
    OK(fi_passive_ep(side.fabric, side.info, &pep, &pep));
    OK(fi_pep_bind(pep, &eq->fid, 0));
    OK(fi_listen(pep));
    OK(fi_getname(&pep->fid, name, &len));
    CHECK(len == side.info->src_addrlen);
    CHECK(write(side.other, name, sizeof name) == sizeof name);
    size_t most = 0, room = sizeof most;
    OK(fi_getopt(&pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &room));
    CHECK(most >= 64);
}

static void close_both(void)
{
    if (pep)
        OK(fi_close(&pep->fid));
    OK(fi_close(&eq->fid));
    OK(fi_close(&side.cq->fid));
    OK(fi_close(&side.domain->fid));
    OK(fi_close(&side.fabric->fid));
    fi_freeinfo(side.info);
}

static struct event next_event(void)
{
    struct event event = { 0 };
    while ((event.len = fi_eq_read(eq, &event.number, event.room, sizeof event.room, 0)) == -FI_EAGAIN)
        turn();
    return event;
}

static void expect_event(uint32_t number, struct fid_ep *ep, const char *said)
{
    struct event event = next_event();
    OK(event.len);
    CHECK(event.number == number && event.entry.fid == &ep->fid);
    size_t len = strlen(said);
    CHECK((size_t)event.len >= sizeof event.entry + len);
    CHECK(memcmp(event.entry.data, said, len) == 0);
}

static struct asked next_request(void)
{
    struct event event = next_event();
    struct asked asked = { .info = event.entry.info };
    OK(event.len);
    CHECK(event.number == FI_CONNREQ && event.entry.fid == &pep->fid && asked.info);
    CHECK(asked.info->handle && asked.info->ep_attr->type == FI_EP_MSG);
    CHECK(asked.info->dest_addr && ntohs(((struct sockaddr_in *)asked.info->dest_addr)->sin_port));
    asked.len = event.len - sizeof event.entry;
    memcpy(asked.said, event.entry.data, asked.len);
    return asked;
}

static struct fid_ep *open_endpoint(struct fi_info *info, void *context)
{
    struct fid_ep *ep;
    OK(fi_endpoint(side.domain, info, &ep, context));
    OK(fi_ep_bind(ep, &eq->fid, 0));
    OK(fi_ep_bind(ep, &side.cq->fid, FI_TRANSMIT | FI_RECV));
    OK(fi_enable(ep));
    return ep;
}

/* One connection between the two. */
static struct fid_ep *connected_endpoint(const char *asks, const char *answers)
{
    struct fid_ep *ep;
    if (side.is_first) {
        struct asked asked = next_request();
        CHECK(asked.len >= strlen(asks) && memcmp(asked.said, asks, strlen(asks)) == 0);
        ep = open_endpoint(asked.info, NULL);
        fi_freeinfo(asked.info);
        OK(fi_accept(ep, answers, strlen(answers)));
        expect_event(FI_CONNECTED, ep, "");
    } else {
        ep = open_endpoint(side.info, NULL);
        OK(fi_connect(ep, side.info->dest_addr, asks, strlen(asks)));
        expect_event(FI_CONNECTED, ep, answers);
    }
    return ep;
}

void connection(void)
{
    static const size_t lengths[] = { 0, 1, 4096, 16384, 17409, 65536, 3, 1000003, 20000, 2 };
    enum { COUNT = sizeof lengths / sizeof *lengths };
    static uint8_t sent[1000003], got[COUNT][1000003];
    struct fi_context contexts[COUNT], context;
    open_both();
    struct fid_ep *ep = connected_endpoint("who asks", "who answers");
    /* Its port is in the same place, whatever the version of IP. */
    union {
        struct sockaddr_in of_any;
        struct sockaddr_in6 longest;
    } peer;
    size_t len = sizeof peer;
    int family = strchr(side.address, ':') ? AF_INET6 : AF_INET;
    OK(fi_getpeer(ep, &peer, &len));
    CHECK(len == side.info->src_addrlen && peer.of_any.sin_family == family && peer.of_any.sin_port);
    for (int round = 0; round < 4; round++) {
        if (side.is_first == (round % 2 == 0)) {
            /* The receives are there, or come later. */
            if (round < 2)
                turn_until_other();
            for (unsigned at = 0; at < COUNT; at++) {
                fill(sent, lengths[at], at);
                AGAIN(fi_send(ep, sent, lengths[at], NULL, 0, &context));
                CHECK(completion().op_context == &context);
            }
        } else {
            if (round >= 2)
                usleep(20000);
            for (unsigned at = 0; at < COUNT; at++)
                OK(fi_recv(ep, got[at], sizeof got[at], NULL, 0, &contexts[at]));
            if (round < 2)
                turn_until_other();
            /* In their order, whatever their lengths. */
            for (unsigned at = 0; at < COUNT; at++) {
                struct fi_cq_tagged_entry entry = completion();
                CHECK(entry.op_context == &contexts[at] && entry.flags & FI_RECV);
                CHECK(entry.len == lengths[at] && is_filled(got[at], lengths[at], at));
            }
        }
        turn_until_other();
    }
    /* One ends it; receives that wait are given back. */
    if (side.is_first) {
        OK(fi_shutdown(ep, 0));
    } else {
        OK(fi_recv(ep, got[0], sizeof got[0], NULL, 0, &context));
        expect_event(FI_SHUTDOWN, ep, "");
        /* Some do so only when the endpoint is closed. */
        if (strcmp(side.provider, "tcp") != 0) {
            struct fi_cq_err_entry error = failure();
            CHECK(error.op_context == &context && error.err == FI_ECANCELED);
        }
    }
    turn_until_other();
    OK(fi_close(&ep->fid));
    close_both();
}

void rejected(void)
{
    open_both();
    for (int round = 0; round < 3; round++) {
        if (side.is_first) {
            struct asked asked = next_request();
            OK(fi_reject(pep, asked.info->handle, "not today", 9));
            fi_freeinfo(asked.info);
            /* Until the other side has heard it. */
            struct pollfd other = { .fd = side.other, .events = POLLIN };
            struct event none;
            while (poll(&other, 1, 0) == 0)
                CHECK(fi_eq_read(eq, &none.number, none.room, sizeof none.room, 0) == -FI_EAGAIN);
        } else {
            struct fid_ep *ep = open_endpoint(side.info, &round);
            OK(fi_connect(ep, side.info->dest_addr, "may I", 5));
            CHECK(next_event().len == -FI_EAVAIL);
            struct fi_eq_err_entry error = { 0 };
            CHECK(fi_eq_readerr(eq, &error, 0) == sizeof error);
            CHECK(error.fid == &ep->fid && error.context == &round);
            CHECK(error.err == FI_ECONNREFUSED && error.err_data_size >= 9);
            CHECK(memcmp(error.err_data, "not today", 9) == 0);
            OK(fi_close(&ep->fid));
        }
        meet();
    }
    /* A connection is taken after all. */
    struct fid_ep *ep = connected_endpoint("once more", "well");
    turn_until_other();
    OK(fi_close(&ep->fid));
    close_both();
}

void connected_memory(void)
{
    enum { LENGTH = 200000 };
    static uint8_t memory[LENGTH], own[LENGTH];
    struct fi_context context;
    struct fid_mr *mr;
    open_both();
    struct fid_ep *ep = connected_endpoint("", "");
    fill(memory, LENGTH, side.is_first);
    OK(fi_mr_reg(side.domain, memory, LENGTH, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL));
    uint64_t key[2] = { fi_mr_key(mr) }, theirs;
    CHECK(write(side.other, key, 8) == 8 && read(side.other, &theirs, 8) == 8);
    turn_until_other();
    AGAIN(fi_read(ep, own, LENGTH - 100, NULL, 0, 100, theirs, &context));
    CHECK(completion().op_context == &context);
    uint8_t expected[LENGTH];
    fill(expected, LENGTH, !side.is_first);
    CHECK(memcmp(own, expected + 100, LENGTH - 100) == 0);
    turn_until_other();
    uint8_t word[9] = "written!";
    AGAIN(fi_write(ep, word, 8, NULL, 0, 3, theirs, &context));
    CHECK(completion().op_context == &context);
    /* It is complete there, not here. */
    while (memcmp(memory + 3, "written!", 8) != 0)
        turn();
    turn_until_other();
    OK(fi_close(&mr->fid));
    turn_until_other();
    OK(fi_close(&ep->fid));
    close_both();
}

/* Several at once, of one queue; one that ends does not end the others. */
void several_connections(void)
{
    enum { COUNT = 12 };
    struct fid_ep *eps[COUNT];
    struct fi_context contexts[COUNT];
    uint64_t got[COUNT], value;
    open_both();
    if (side.is_first) {
        for (int at = 0; at < COUNT; at++) {
            struct asked asked = next_request();
            eps[at] = open_endpoint(asked.info, NULL);
            fi_freeinfo(asked.info);
            OK(fi_recv(eps[at], &got[at], 8, NULL, 0, &contexts[at]));
            OK(fi_accept(eps[at], NULL, 0));
            expect_event(FI_CONNECTED, eps[at], "");
        }
        bool seen[COUNT] = { false };
        for (int at = 0; at < COUNT; at++) {
            struct fi_cq_tagged_entry entry = completion();
            int which = 0;
            while (which < COUNT && entry.op_context != &contexts[which])
                which++;
            CHECK(which < COUNT && !seen[which] && got[which] < COUNT);
            seen[which] = true;
        }
        turn_until_other();
        /* The other side closes one of them. */
        struct event event = next_event();
        CHECK(event.len > 0 && event.number == FI_SHUTDOWN);
        for (int at = 0; at < COUNT; at++) {
            value = 100 + got[at];
            if (event.entry.fid == &eps[at]->fid)
                continue;
            AGAIN(fi_send(eps[at], &value, 8, NULL, 0, &contexts[at]));
            CHECK(completion().op_context == &contexts[at]);
        }
    } else {
        for (int at = 0; at < COUNT; at++) {
            eps[at] = open_endpoint(side.info, NULL);
            OK(fi_connect(eps[at], side.info->dest_addr, NULL, 0));
            expect_event(FI_CONNECTED, eps[at], "");
        }
        for (uint64_t at = 0; at < COUNT; at++) {
            OK(fi_recv(eps[at], &got[at], 8, NULL, 0, &contexts[at]));
            value = at;
            AGAIN(fi_inject(eps[at], &value, 8, 0));
        }
        turn_until_other();
        OK(fi_close(&eps[5]->fid));
        for (int at = 0; at < COUNT - 1; at++) {
            struct fi_cq_tagged_entry entry;
            ssize_t count;
            /* That of the one which was closed may be given back. */
            while ((count = fi_cq_read(side.cq, &entry, 1)) == -FI_EAGAIN || count == -FI_EAVAIL) {
                struct fi_cq_err_entry error = { 0 };
                if (count == -FI_EAVAIL && fi_cq_readerr(side.cq, &error, 0) == 1)
                    CHECK(error.op_context == &contexts[5] && error.err == FI_ECANCELED);
            }
            OK(count);
            uint64_t *place = NULL;
            for (int of = 0; of < COUNT; of++)
                if (entry.op_context == &contexts[of])
                    place = &got[of];
            CHECK(place && place != &got[5] && *place == 100 + (uint64_t)(place - got));
        }
    }
    turn_until_other();
    for (int at = 0; at < COUNT; at++)
        if (side.is_first || at != 5)
            OK(fi_close(&eps[at]->fid));
    close_both();
}

/* Who waits at the descriptor of an event queue is told. */
void event_descriptor(void)
{
    open_both();
    int set = epoll_create1(0), fd = -1;
    OK(fi_control(&eq->fid, FI_GETWAIT, &fd));
    struct epoll_event wanted = { .events = EPOLLIN };
    CHECK(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) == 0);
    struct event event = { 0 };
    struct fid_ep *ep = NULL;
    if (!side.is_first) {
        usleep(30000);
        ep = open_endpoint(side.info, NULL);
        OK(fi_connect(ep, side.info->dest_addr, "hello", 5));
    }
    for (int told = 0; told < (side.is_first ? 2 : 1);) {
        struct fid *fids[] = { &eq->fid };
        if (fi_trywait(side.fabric, fids, 1) == FI_SUCCESS)
            CHECK(epoll_wait(set, &wanted, 1, 10000) == 1);
        event.len = fi_eq_read(eq, &event.number, event.room, sizeof event.room, 0);
        if (event.len == -FI_EAGAIN)
            continue;
        OK(event.len);
        if (event.number == FI_CONNREQ) {
            ep = open_endpoint(event.entry.info, NULL);
            fi_freeinfo(event.entry.info);
            OK(fi_accept(ep, NULL, 0));
        }
        told++;
    }
    CHECK(event.number == FI_CONNECTED && event.entry.fid == &ep->fid);
    /* What the program itself writes comes the same way, and may be looked at before. */
    struct fi_eq_entry own = { .data = 4711 };
    CHECK(fi_eq_sread(eq, &event.number, event.room, sizeof event.room, 5, 0) == -FI_EAGAIN);
    OK(fi_eq_write(eq, FI_NOTIFY, &own, sizeof own, 0));
    CHECK(fi_eq_sread(eq, &event.number, event.room, sizeof event.room, 10000, FI_PEEK) == sizeof own);
    CHECK(fi_eq_sread(eq, &event.number, event.room, sizeof event.room, 10000, 0) == sizeof own);
    CHECK(event.number == FI_NOTIFY && ((struct fi_eq_entry *)event.room)->data == 4711);
    turn_until_other();
    OK(fi_close(&ep->fid));
    close(set);
    close_both();
}

/* A process that is killed ends its connections. */
void dead_connection(void)
{
    uint64_t value = 0;
    struct fi_context context;
    open_both();
    struct fid_ep *ep = connected_endpoint("", "");
    if (!side.is_first) {
        turn_until_other();
        raise(SIGKILL);
    }
    OK(fi_recv(ep, &value, 8, NULL, 0, &context));
    turn_until_other();
    expect_event(FI_SHUTDOWN, ep, "");
    struct fi_cq_err_entry error = failure();
    CHECK(error.op_context == &context);
    /* The call tells, or the completion. */
    if (fi_send(ep, &value, 8, NULL, 0, &context) == 0)
        CHECK(failure().err > 0);
    OK(fi_close(&ep->fid));
    close_both();
    side.child = 0;
}

/* Nobody listens there. */
void nobody_listens(void)
{
    open_fabric(side.address, "9", 0);
    struct fid_ep *ep = open_endpoint(side.info, NULL);
    OK(fi_connect(ep, side.info->dest_addr, NULL, 0));
    CHECK(next_event().len == -FI_EAVAIL);
    struct fi_eq_err_entry error = { 0 };
    CHECK(fi_eq_readerr(eq, &error, 0) == sizeof error && error.fid == &ep->fid && error.err > 0);
    CHECK(fi_eq_strerror(eq, error.prov_errno, error.err_data, NULL, 0));
    OK(fi_close(&ep->fid));
    close_both();
}

/* The one who listens has another carrier: who connects is told. */
void other_carrier(void)
{
    open_both();
    if (!side.is_first) {
        struct fid_ep *ep = open_endpoint(side.info, NULL);
        OK(fi_connect(ep, side.info->dest_addr, NULL, 0));
        CHECK(next_event().len == -FI_EAVAIL);
        struct fi_eq_err_entry error = { 0 };
        CHECK(fi_eq_readerr(eq, &error, 0) == sizeof error && error.fid == &ep->fid && error.err > 0);
        const char *why = fi_eq_strerror(eq, error.prov_errno, error.err_data, NULL, 0);
        printf("%s\n", why);
        CHECK(strstr(why, "FI_LANDFALL_CARRIER"));
        OK(fi_close(&ep->fid));
    }
    turn_until_other();
    close_both();
}

/* Who connects is a socket of the kernel, in another program: it asks for a connection, and sends
 * a short message and a long one, which come back. The port is told at standard output. */
void with_socket(void)
{
    enum { LONG = 100000 };
    static uint8_t got[LONG];
    struct fi_context context;
    uint8_t name[128];
    size_t len = sizeof name;
    open_fabric(side.address, NULL, FI_SOURCE);
    OK(fi_passive_ep(side.fabric, side.info, &pep, &pep));
    OK(fi_pep_bind(pep, &eq->fid, 0));
    OK(fi_listen(pep));
    OK(fi_getname(&pep->fid, name, &len));
    printf("%u\n", ntohs(((struct sockaddr_in *)name)->sin_port));
    fflush(stdout);
    struct asked asked = next_request();
    CHECK(asked.len == 8 && memcmp(asked.said, "a socket", 8) == 0);
    struct fid_ep *ep = open_endpoint(asked.info, NULL);
    fi_freeinfo(asked.info);
    OK(fi_accept(ep, "come in", 7));
    expect_event(FI_CONNECTED, ep, "");
    for (int round = 0; round < 2; round++) {
        OK(fi_recv(ep, got, LONG, NULL, 0, &context));
        struct fi_cq_tagged_entry entry = completion();
        CHECK(entry.flags & FI_RECV);
        OK(fi_send(ep, got, entry.len, NULL, 0, &context));
        CHECK(completion().flags & FI_SEND);
    }
    expect_event(FI_SHUTDOWN, ep, "");
    OK(fi_close(&ep->fid));
    close_both();
}

/* The one who listens is a socket of the kernel: it takes the connection, and a message comes back. */
void to_socket(void)
{
    uint8_t sent[1000], got[1000];
    struct fi_context contexts[2];
    open_fabric(side.address, getenv("CASES_PEER_PORT"), 0);
    struct fid_ep *ep = open_endpoint(side.info, NULL);
    OK(fi_recv(ep, got, sizeof got, NULL, 0, &contexts[0]));
    OK(fi_connect(ep, side.info->dest_addr, "a program", 9));
    expect_event(FI_CONNECTED, ep, "a socket");
    fill(sent, sizeof sent, 5);
    OK(fi_send(ep, sent, sizeof sent, NULL, 0, &contexts[1]));
    bool is_sent = false, is_back = false;
    while (!is_sent || !is_back) {
        struct fi_cq_tagged_entry entry = completion();
        is_sent |= entry.op_context == &contexts[1];
        is_back |= entry.op_context == &contexts[0];
    }
    CHECK(is_filled(got, sizeof got, 5));
    /* It closes, in order and without a word. */
    expect_event(FI_SHUTDOWN, ep, "");
    OK(fi_close(&ep->fid));
    close_both();
}

/* The one who listens is another program, which greets as other versions do. */
void connected_to_other_version(void)
{
    open_fabric(side.address, getenv("CASES_PEER_PORT"), 0);
    for (int round = 0; round < 2; round++) {
        struct fid_ep *ep = open_endpoint(side.info, NULL);
        OK(fi_connect(ep, side.info->dest_addr, NULL, 0));
        CHECK(next_event().len == -FI_EAVAIL);
        struct fi_eq_err_entry error = { 0 };
        CHECK(fi_eq_readerr(eq, &error, 0) == sizeof error && error.fid == &ep->fid);
        CHECK(error.err == FI_ECONNREFUSED);
        expect_other_version(fi_eq_strerror(eq, error.prov_errno, error.err_data, NULL, 0));
        OK(fi_close(&ep->fid));
    }
    close_both();
}
