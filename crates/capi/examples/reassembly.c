/* Joins the fragments in a capture, and says what came out of them: `reassembly FILE`. The file is
 * what tcpdump writes (pcap, not pcapng), of Ethernet or of IP. */
#include "common.h"

enum { LONGEST = 1 << 18 };

/* A file's integers are those of the machine that has written it. */
struct capture {
    FILE *file;
    int swapped;
    uint64_t fraction; /* nanoseconds of the smaller unit of time */
    uint32_t link;
};

static uint32_t word(const struct capture *capture, uint32_t read)
{
    if (!capture->swapped)
        return read;
    return read >> 24 | (read >> 8 & 0xff00) | (read << 8 & 0xff0000) | read << 24;
}

static struct capture open_capture(const char *name)
{
    struct capture capture = { fopen(name, "rb"), 0, 0, 0 };
    uint32_t head[6];
    if (!capture.file || fread(head, sizeof head, 1, capture.file) != 1) {
        fprintf(stderr, "%s is no capture\n", name);
        exit(1);
    }
    capture.swapped = head[0] == 0xd4c3b2a1 || head[0] == 0x4d3cb2a1;
    uint32_t mark = word(&capture, head[0]), link = word(&capture, head[5]);
    capture.fraction = mark == 0xa1b2c3d4 ? 1000 : 1;
    capture.link = link == 1 ? LF_LINK_ETHERNET : LF_LINK_IP;
    /* 101 is "raw IP"; 228 and 229 are IPv4 and IPv6 alone. */
    if ((mark != 0xa1b2c3d4 && mark != 0xa1b23c4d) ||
        (link != 1 && link != 101 && link != 228 && link != 229)) {
        fprintf(stderr, "%s is no capture of Ethernet or IP\n", name);
        exit(1);
    }
    return capture;
}

/* The next frame: its length, or 0 at the end. What was captured in part is left out. */
static size_t next_frame(const struct capture *capture, uint8_t *frame, uint64_t *now)
{
    uint32_t head[4];
    while (fread(head, sizeof head, 1, capture->file) == 1) {
        uint32_t length = word(capture, head[2]);
        if (length > LONGEST || fread(frame, 1, length, capture->file) != length)
            return 0;
        *now = word(capture, head[0]) * UINT64_C(1000000000) +
               word(capture, head[1]) * capture->fraction;
        if (length > 0 && length == word(capture, head[3]))
            return length;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return fprintf(stderr, "reassembly FILE\n"), 2;
    struct capture capture = open_capture(argv[1]);
    lf_reassembly config = { capture.link, 0, 0, 0, 0 };
    lf_reassembler *joins = lf_reassembler_open(&config);
    uint8_t *frame = malloc(LONGEST);
    MUST(joins && frame);
    uint64_t now = 0;
    for (size_t length; (length = next_frame(&capture, frame, &now)) > 0;) {
        const void *packet;
        int64_t found = lf_reassemble(joins, now, frame, length, &packet);
        if (found == LF_REFUSED)
            printf("dropped: %s\n", lf_error());
        else if (found > 0 && packet != frame)
            printf("joined: %" PRId64 " bytes\n", found);
    }
    lf_reassembly_counts counts;
    MUST(lf_reassembler_counts(joins, &counts) == LF_OK);
    printf("%" PRIu64 " frames, %" PRIu64 " packets out of fragments, %" PRIu64 " dropped, %" PRIu64
           " not complete\n",
           counts.offered, counts.packets, counts.dropped, counts.waiting + counts.expired);
    lf_reassembler_close(joins);
    free(frame);
    fclose(capture.file);
    return 0;
}
