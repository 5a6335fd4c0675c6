/* An echo of one connection, by a program with an io_uring that it asks the kernel for by itself, as
 * liburing does where it is linked in. `polls`: it waits for the connection by the ring, and reads by
 * libc. `files`: the ring is for a file, and it waits in libc. */
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long by_itself(long number, long a, long b, long c, long d)
{
    long result;
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(result)
        : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    result = x0;
#endif
    return result;
}

static struct io_uring_params told;
static struct io_uring_sqe *entries;
static char *ring;
static int number;

static void *map(long at, size_t len)
{
    void *there = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, number, at);
    if (there == MAP_FAILED) { perror("mmap"); exit(1); }
    return there;
}

/* Asks for one thing and waits until it is done. */
static int does(int opcode, int fd, void *at, unsigned len)
{
    unsigned *tail = (unsigned *)(ring + told.sq_off.tail), *head = (unsigned *)(ring + told.cq_off.head);
    unsigned place = *tail & *(unsigned *)(ring + told.sq_off.ring_mask);
    struct io_uring_sqe *entry = entries + place;
    memset(entry, 0, sizeof *entry);
    entry->opcode = opcode;
    entry->fd = fd;
    entry->addr = (unsigned long)at;
    entry->len = len;
    if (opcode == IORING_OP_POLL_ADD) entry->poll32_events = POLLIN;
    ((unsigned *)(ring + told.sq_off.array))[place] = place;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (by_itself(__NR_io_uring_enter, number, 1, 1, IORING_ENTER_GETEVENTS) < 0) { puts("no enter"); exit(1); }
    unsigned last = *head & *(unsigned *)(ring + told.cq_off.ring_mask);
    int result = ((struct io_uring_cqe *)(ring + told.cq_off.cqes))[last].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(int count, char **words)
{
    if (count != 3) return 2;
    int polls = !strcmp(words[1], "polls");
    number = by_itself(__NR_io_uring_setup, 8, (long)&told, 0, 0);
    if (number < 0) { puts("no ring"); return 1; }
    size_t submitted = told.sq_off.array + told.sq_entries * sizeof(unsigned);
    size_t completed = told.cq_off.cqes + told.cq_entries * sizeof(struct io_uring_cqe);
    ring = map(IORING_OFF_SQ_RING, submitted > completed ? submitted : completed);
    entries = map(IORING_OFF_SQES, told.sq_entries * sizeof *entries);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 5)) {
        perror("listen");
        return 1;
    }
    FILE *file = tmpfile();
    static char bytes[65536];
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        long got;
        int rounds = 0;
        for (;; rounds++) {
            if (polls) does(IORING_OP_POLL_ADD, fd, NULL, 0);
            got = read(fd, bytes, sizeof bytes);
            if (got <= 0) break;
            if (!polls && does(IORING_OP_WRITE, fileno(file), bytes, got) != got) { puts("no file"); return 1; }
            for (long sent = 0; sent < got;) sent += write(fd, bytes + sent, got - sent);
        }
        close(fd);
        if (rounds) break; /* The first may have been one that only looked who listens. */
    }
    puts("a ring");
    return 0;
}
