/* What is joined, dropped and refused: `reassembly`. */
#include "common.h"

/* A UDP datagram from 10.0.0.1 to 10.0.0.2 in two fragments. */
static const uint8_t first[] = {
    0x45, 0, 0, 36, 0, 7, 0x20, 0, 64, 17, 0x46, 0xc0, 10, 0, 0, 1, 10, 0, 0, 2,
    0, 9, 0, 9, 0, 20, 0, 0, 'f', 'r', 'a', 'g', 'm', 'e', 'n', 't',
};
static const uint8_t last[] = {
    0x45, 0, 0, 24, 0, 7, 0, 2, 64, 17, 0x66, 0xca, 10, 0, 0, 1, 10, 0, 0, 2, 'e', 'd', '!', '!',
};
/* In the place of the last one, with other bytes. */
static const uint8_t other[] = {
    0x45, 0, 0, 24, 0, 7, 0, 2, 64, 17, 0x66, 0xca, 10, 0, 0, 1, 10, 0, 0, 2, 'e', 'v', 'i', 'l',
};
/* The same to another port, whole. */
static const uint8_t whole[] = {
    0x45, 0, 0, 28, 0, 8, 0, 0, 64, 17, 0x66, 0xc7, 10, 0, 0, 1, 10, 0, 0, 2,
    0, 9, 0, 8, 0, 8, 0, 0,
};

int main(void)
{
    const uint64_t second = 1000000000;
    lf_reassembly config = { LF_LINK_IP, 0, 0, 0, 0 }, wrong = { 7, 0, 0, 0, 0 };
    lf_reassembly_counts counts;
    const void *packet;
    lf_reassembler *joins = lf_reassembler_open(&config);
    MUST(joins);

    MUST(lf_reassemble(joins, 0, whole, sizeof whole, &packet) == sizeof whole && packet == whole);
    MUST(lf_reassemble(joins, 0, last, sizeof last, &packet) == 0 && !packet);
    MUST(lf_reassemble(joins, 1, first, sizeof first, &packet) == 40);
    MUST(memcmp((const char *)packet + 28, "fragmented!!", 12) == 0);

    /* What overlaps ends its packet: the first fragment comes too late. */
    MUST(lf_reassemble(joins, second, last, sizeof last, &packet) == 0);
    MUST(lf_reassemble(joins, second, other, sizeof other, &packet) == LF_REFUSED && *lf_error());
    MUST(lf_reassemble(joins, second, first, sizeof first, &packet) == LF_REFUSED && !packet);
    /* After its time the same number may come again. */
    MUST(lf_reassemble(joins, 40 * second, first, sizeof first, &packet) == 0);
    MUST(lf_reassemble(joins, 40 * second, last, sizeof last, &packet) == 40);
    /* What is not complete in time is forgotten. */
    MUST(lf_reassemble(joins, 41 * second, first, sizeof first, &packet) == 0);
    MUST(lf_reassemble(joins, 90 * second, last, sizeof last, &packet) == 0);

    MUST(lf_reassembler_counts(joins, &counts) == LF_OK);
    MUST(counts.offered == 10 && counts.packets == 2 && counts.dropped == 2);
    MUST(counts.waiting == 1 && counts.memory > 0);
    MUST(lf_reassembler_expire(joins, 200 * second) == LF_OK);
    MUST(lf_reassembler_counts(joins, &counts) == LF_OK && counts.waiting == 0);
    MUST(counts.expired == 2);

    /* Why frames were dropped: each is counted once. */
    uint64_t count, all = 0;
    uint32_t reasons = 0;
    for (const char *why; (why = lf_reassembler_dropped(joins, reasons, &count)); reasons++) {
        MUST(*why);
        all += count;
    }
    MUST(reasons > 10 && all == counts.dropped);

    /* What makes no sense. */
    MUST(lf_reassemble(joins, UINT64_MAX, first, 30, &packet) == LF_REFUSED);
    MUST(lf_reassemble(joins, 0, first, 0, &packet) == LF_INVALID);
    MUST(lf_reassemble(joins, 0, NULL, 5, &packet) == LF_INVALID);
    MUST(lf_reassemble(joins, 0, first, sizeof first, NULL) == LF_INVALID);
    MUST(lf_reassemble(NULL, 0, first, sizeof first, &packet) == LF_INVALID);
    MUST(lf_reassembler_counts(joins, NULL) == LF_INVALID);
    MUST(lf_reassembler_counts(NULL, &counts) == LF_INVALID);
    MUST(lf_reassembler_expire(NULL, 0) == LF_INVALID && !lf_reassembler_dropped(NULL, 0, &count));
    MUST(!lf_reassembler_open(&wrong) && lf_error_code() == LF_INVALID);
    lf_reassembler_close(joins);
    lf_reassembler_close(NULL);

    /* Late in the time of all clocks. */
    joins = lf_reassembler_open(&config);
    MUST(joins);
    MUST(lf_reassemble(joins, UINT64_MAX - 100 * second, first, sizeof first, &packet) == 0);
    MUST(lf_reassemble(joins, UINT64_MAX - 99 * second, last, sizeof last, &packet) == 40);
    /* No packet lasts longer than they do, and none is joined then. */
    MUST(lf_reassemble(joins, UINT64_MAX, first, sizeof first, &packet) == 0);
    MUST(lf_reassemble(joins, UINT64_MAX, last, sizeof last, &packet) == 0);
    lf_reassembler_close(joins);
    return 0;
}
