/* Two processes with an endpoint each. */
#include "fabric.h"

struct side side;

/* Completions that were read while something else was waited for. */
static struct fi_cq_tagged_entry kept[4096];
static size_t first_kept, count_kept;

void meet(void)
{
    char byte = 1;
    CHECK(write(side.other, &byte, 1) == 1);
    CHECK(read(side.other, &byte, 1) == 1);
}

void open_side(const struct wanted *wanted)
{
    struct fi_info *hints = fi_allocinfo();
    uint8_t name[128], other[128];
    size_t len = sizeof name;

    hints->caps = is_qpip() ? wanted->caps & ~FI_RMA : wanted->caps;
    hints->ep_attr->type = wanted->type ? wanted->type : FI_EP_RDM;
    hints->mode = FI_CONTEXT;
    hints->domain_attr->mr_mode = 0;
    hints->fabric_attr->prov_name = strdup(side.provider);
    OK(fi_getinfo(FI_VERSION(1, 17), side.address, NULL, FI_SOURCE, hints, &side.info));
    fi_freeinfo(hints);
    OK(fi_fabric(side.info->fabric_attr, &side.fabric, NULL));
    OK(fi_domain(side.fabric, side.info, &side.domain, NULL));
    struct fi_av_attr av = { .type = FI_AV_TABLE };
    OK(fi_av_open(side.domain, &av, &side.av, NULL));
    size_t size = wanted->queue ? wanted->queue : 1024;
    struct fi_cq_attr cq = { .size = size, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wanted->wait };
    OK(fi_cq_open(side.domain, &cq, &side.cq, NULL));
    OK(fi_endpoint(side.domain, side.info, &side.ep, NULL));
    OK(fi_ep_bind(side.ep, &side.av->fid, 0));
    OK(fi_ep_bind(side.ep, &side.cq->fid, FI_TRANSMIT | FI_RECV | wanted->cq_flags));
    if (wanted->counts) {
        struct fi_cntr_attr counter = { .events = FI_CNTR_EVENTS_COMP };
        OK(fi_cntr_open(side.domain, &counter, &side.sends, NULL));
        OK(fi_cntr_open(side.domain, &counter, &side.receives, NULL));
        OK(fi_ep_bind(side.ep, &side.sends->fid, FI_SEND));
        OK(fi_ep_bind(side.ep, &side.receives->fid, FI_RECV | FI_REMOTE_WRITE));
    }
    OK(fi_enable(side.ep));

    OK(fi_getname(&side.ep->fid, name, &len));
    CHECK(write(side.other, name, sizeof name) == sizeof name);
    CHECK(read(side.other, other, sizeof other) == sizeof other);
    CHECK(fi_av_insert(side.av, other, 1, &side.peer, 0, NULL) == 1);
    CHECK(fi_av_insert(side.av, name, 1, &side.self, 0, NULL) == 1);
}

void close_side(void)
{
    OK(fi_close(&side.ep->fid));
    if (side.sends) {
        OK(fi_close(&side.sends->fid));
        OK(fi_close(&side.receives->fid));
    }
    OK(fi_close(&side.cq->fid));
    OK(fi_close(&side.av->fid));
    OK(fi_close(&side.domain->fid));
    OK(fi_close(&side.fabric->fid));
    fi_freeinfo(side.info);
}

void turn(void)
{
    struct fi_cq_tagged_entry entry;
    ssize_t count = fi_cq_read(side.cq, &entry, 1);
    if (count == -FI_EAGAIN || count == -FI_EAVAIL)
        return;
    OK(count);
    CHECK(count_kept < sizeof kept / sizeof *kept);
    kept[(first_kept + count_kept++) % (sizeof kept / sizeof *kept)] = entry;
}

struct fi_cq_tagged_entry completion(void)
{
    while (!count_kept) {
        struct fi_cq_tagged_entry entry;
        ssize_t count = fi_cq_read(side.cq, &entry, 1);
        if (count == -FI_EAVAIL) {
            struct fi_cq_err_entry error = { 0 };
            OK(fi_cq_readerr(side.cq, &error, 0));
            fprintf(stderr, "an error: %s: %s\n", fi_strerror(error.err),
                    fi_cq_strerror(side.cq, error.prov_errno, error.err_data, NULL, 0));
            exit(1);
        }
        if (count == -FI_EAGAIN)
            continue;
        OK(count);
        return entry;
    }
    struct fi_cq_tagged_entry entry = kept[first_kept];
    first_kept = (first_kept + 1) % (sizeof kept / sizeof *kept);
    count_kept--;
    return entry;
}

struct fi_cq_err_entry failure(void)
{
    struct fi_cq_err_entry error = { 0 };
    struct fi_cq_tagged_entry entry;
    ssize_t count;
    while ((count = fi_cq_read(side.cq, &entry, 1)) == -FI_EAGAIN)
        ;
    CHECK(count == -FI_EAVAIL);
    OK(fi_cq_readerr(side.cq, &error, 0));
    return error;
}

void turn_until_other(void)
{
    char byte = 1;
    struct pollfd other = { .fd = side.other, .events = POLLIN };
    CHECK(write(side.other, &byte, 1) == 1);
    while (poll(&other, 1, 0) == 0)
        turn();
    CHECK(read(side.other, &byte, 1) == 1);
}
