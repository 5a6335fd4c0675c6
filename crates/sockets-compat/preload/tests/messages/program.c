/* A program that knows nothing of Landfall: the socket call of the paper, and what one
 * does with a socket. It says which of its expectations was wrong, and with which errno. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define IPPROTO_STP 118

#define EXPECT(what)                                                                   \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s, line %d: not so: %s (errno: %s)\n", role, __LINE__,   \
                    #what, strerror(errno));                                           \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static const char *role;
static struct sockaddr_in address;
static char message[4 << 20];
static char got[4 << 20];

static const size_t SIZES[] = {1, 2, 1000, 32767, 32768, 32769, 131072, 524288, 7};
#define COUNT (sizeof SIZES / sizeof *SIZES)

static void fill(size_t len, int with) {
    for (size_t at = 0; at < len; at++)
        message[at] = (char)(at * 31 + at / 251 + (size_t)with);
}

static int new_socket(void) {
    int fd = socket(PF_INET, SOCK_SEQPACKET, IPPROTO_STP);
    EXPECT(fd >= 0);
    return fd;
}

static int listening(int limit) {
    int fd = new_socket();
    struct sockaddr_in here = address;
    socklen_t len = sizeof here;
    EXPECT(bind(fd, (struct sockaddr *)&here, len) == 0);
    if (limit)
        EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &limit, sizeof limit) == 0);
    EXPECT(listen(fd, 16) == 0);
    EXPECT(getsockname(fd, (struct sockaddr *)&here, &len) == 0);
    EXPECT(here.sin_port == address.sin_port && len == sizeof here);
    puts("ready");
    fflush(stdout);
    return fd;
}

static int accepted(int listener) {
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int fd = accept(listener, (struct sockaddr *)&from, &len);
    EXPECT(fd >= 0);
    EXPECT(from.sin_family == AF_INET && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    return fd;
}

static int connected(void) {
    int fd = new_socket();
    EXPECT(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    struct sockaddr_in there;
    socklen_t len = sizeof there;
    EXPECT(getpeername(fd, (struct sockaddr *)&there, &len) == 0);
    EXPECT(there.sin_port == address.sin_port);
    return fd;
}

/* Gives back each message as it came, until the other side ends. */
static void echo(int fd) {
    ssize_t len;
    while ((len = read(fd, got, sizeof got)) > 0)
        EXPECT(write(fd, got, (size_t)len) == len);
    EXPECT(len == 0);
    EXPECT(close(fd) == 0);
}

static void ask(int fd, size_t len, int with) {
    fill(len, with);
    EXPECT(write(fd, message, len) == (ssize_t)len);
    EXPECT(read(fd, got, sizeof got) == (ssize_t)len);
    EXPECT(memcmp(got, message, len) == 0);
}

static void serve_echo(void) {
    int listener = listening(0);
    echo(accepted(listener));
    EXPECT(close(listener) == 0);
}

static void ask_echo(void) {
    int fd = connected(), number;
    socklen_t len = sizeof number;
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_TYPE, &number, &len) == 0 && number == SOCK_SEQPACKET);
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &number, &len) == 0 && number == IPPROTO_STP);
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &number, &len) == 0 && number == AF_INET);
    for (size_t at = 0; at < COUNT; at++)
        ask(fd, SIZES[at], (int)at);
    /* Several before the first is read: they keep their bounds and their order. */
    for (size_t at = 0; at < COUNT; at++) {
        fill(SIZES[at], (int)at);
        EXPECT(send(fd, message, SIZES[at], 0) == (ssize_t)SIZES[at]);
    }
    for (size_t at = 0; at < COUNT; at++) {
        fill(SIZES[at], (int)at);
        EXPECT(recv(fd, got, sizeof got, 0) == (ssize_t)SIZES[at]);
        EXPECT(memcmp(got, message, SIZES[at]) == 0);
    }
    /* Vectors, and a look before the message is taken. */
    fill(5000, 9);
    struct iovec out[3] = {{message, 10}, {message + 10, 4000}, {message + 4010, 990}};
    EXPECT(writev(fd, out, 3) == 5000);
    EXPECT(recv(fd, got, sizeof got, MSG_PEEK) == 5000);
    /* A buffer that is too short: nothing is cut off, the message stays. */
    EXPECT(recv(fd, got, 4999, 0) == -1 && errno == EMSGSIZE);
    memset(got, 0, 5000);
    struct iovec in[2] = {{got, 1}, {got + 1, 6000}};
    struct msghdr header = {.msg_iov = in, .msg_iovlen = 2};
    EXPECT(recvmsg(fd, &header, 0) == 5000);
    EXPECT(memcmp(got, message, 5000) == 0);
    EXPECT(shutdown(fd, SHUT_WR) == 0);
    EXPECT(read(fd, got, sizeof got) == 0);
    EXPECT(close(fd) == 0);
}

/* What the receiver refuses comes back to the writer. */
static void serve_limit(void) {
    int listener = listening(1000);
    int fd = accepted(listener);
    EXPECT(read(fd, got, sizeof got) == 1000);
    int limit = 300000;
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &limit, sizeof limit) == 0);
    EXPECT(write(fd, "more", 4) == 4);
    EXPECT(read(fd, got, sizeof got) == 300000);
    EXPECT(read(fd, got, sizeof got) == 0);
}

static void ask_limit(void) {
    int fd = connected();
    fill(sizeof message, 1);
    EXPECT(write(fd, message, 1001) == -1 && errno == EMSGSIZE);
    EXPECT(strcmp(strerror(errno), "Message too long") == 0);
    EXPECT(write(fd, message, 300000) == -1 && errno == EMSGSIZE);
    EXPECT(write(fd, message, 1000) == 1000);
    EXPECT(read(fd, got, sizeof got) == 4);
    EXPECT(write(fd, message, 300001) == -1 && errno == EMSGSIZE);
    EXPECT(write(fd, message, 300000) == 300000);
    /* Who does not wait hears of it later. */
    EXPECT(send(fd, message, 300001, MSG_DONTWAIT) == 300001);
    int why = 0;
    for (int turn = 0; turn < 10000 && why == 0; turn++) {
        socklen_t len = sizeof why;
        EXPECT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) == 0);
        usleep(1000);
    }
    EXPECT(why == EMSGSIZE);
    EXPECT(close(fd) == 0);
}

static void wait_for(int fd, short events, short wanted) {
    struct pollfd entry = {.fd = fd, .events = events};
    EXPECT(poll(&entry, 1, 60000) == 1);
    EXPECT((entry.revents & wanted) == wanted);
}

static void make_nonblocking(int fd) {
    EXPECT(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

static int how_many_more(int epoll) {
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, 0);
}

static void serve_ready(void) {
    int listener = listening(0);
    make_nonblocking(listener);
    EXPECT(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    wait_for(listener, POLLIN, POLLIN);
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    EXPECT(fd >= 0);
    EXPECT(fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT(read(fd, got, sizeof got) == -1 && errno == EAGAIN);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    EXPECT(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    EXPECT(send(fd, "go", 2, 0) == 2);
    EXPECT(epoll_wait(epoll, &event, 1, 60000) == 1 && event.events == EPOLLIN);
    EXPECT(how_many_more(epoll) == 0);
    EXPECT(read(fd, got, sizeof got) == 3);
    EXPECT(read(fd, got, sizeof got) == -1 && errno == EAGAIN);
    EXPECT(send(fd, "go", 2, 0) == 2);
    /* Written until there is no more room, and read then: room comes back. */
    for (int sum = 0; sum < 3;) {
        wait_for(fd, POLLIN, POLLIN);
        ssize_t len = read(fd, got, sizeof got);
        EXPECT(len >= 0);
        sum += len == 1;
    }
    EXPECT(close(fd) == 0);
}

static void ask_ready(void) {
    int fd = socket(PF_INET, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_STP);
    EXPECT(fd >= 0);
    EXPECT(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == ENOTCONN);
    EXPECT(connect(fd, (struct sockaddr *)&address, sizeof address) == -1);
    EXPECT(errno == EINPROGRESS);
    wait_for(fd, POLLOUT, POLLOUT);
    int why = -1;
    socklen_t len = sizeof why;
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) == 0 && why == 0);
    EXPECT(connect(fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == EISCONN);
    wait_for(fd, POLLIN, POLLIN);
    EXPECT(recv(fd, got, sizeof got, 0) == 2);
    EXPECT(send(fd, "abc", 3, 0) == 3);
    wait_for(fd, POLLIN, POLLIN);
    EXPECT(recv(fd, got, sizeof got, 0) == 2);
    ssize_t sent;
    int count = 0;
    while ((sent = send(fd, message, 100000, MSG_NOSIGNAL)) == 100000 && count < 100000)
        count++;
    EXPECT(sent == -1 && errno == EAGAIN);
    for (int turn = 0; turn < 3; turn++) {
        do
            wait_for(fd, POLLOUT, POLLOUT);
        while ((sent = send(fd, "!", 1, MSG_NOSIGNAL)) == -1 && errno == EAGAIN);
        EXPECT(sent == 1);
    }
    /* The other side closes: readiness says so, and reading gives the end. */
    wait_for(fd, POLLIN | POLLRDHUP, POLLIN | POLLRDHUP);
    EXPECT(recv(fd, got, sizeof got, 0) == 0);
    EXPECT(close(fd) == 0);
}

/* One child for each connection, and children that accept by themselves. */
static void serve_forks(void) {
    int listener = listening(0);
    for (int turn = 0; turn < 3; turn++) {
        int fd = accepted(listener);
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            close(listener);
            echo(fd);
            exit(0);
        }
        close(fd);
    }
    for (int turn = 0; turn < 2; turn++) {
        if (fork() == 0) {
            echo(accepted(listener));
            _exit(0);
        }
    }
    for (int turn = 0; turn < 5; turn++) {
        int status;
        EXPECT(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void ask_forks(void) {
    int fds[3];
    for (int at = 0; at < 3; at++)
        fds[at] = connected();
    for (int at = 0; at < 3; at++)
        ask(fds[at], 50000 + (size_t)at, at);
    /* A descriptor that was doubled is the same socket. */
    int other = dup(fds[0]);
    close(fds[0]);
    ask(other, 10, 1);
    /* A child of a client goes on with it, and makes one of its own. */
    int of_child = 0;
    pid_t child = fork();
    if (child == 0) {
        ask(fds[1], 40000, 5);
        exit(0);
    }
    EXPECT(waitpid(child, &of_child, 0) == child && of_child == 0);
    ask(fds[1], 20, 6);
    close(other), close(fds[1]), close(fds[2]);
    child = fork();
    if (child == 0) {
        ask(connected(), 100, 7);
        exit(0);
    }
    ask(connected(), 200, 8);
    EXPECT(waitpid(child, &of_child, 0) == child && of_child == 0);
}

static void serve_last_words(void) {
    int fd = accepted(listening(0));
    for (int at = 0; at < 20; at++) {
        EXPECT(read(fd, got, sizeof got) == 1000 + at);
        usleep(1000);
    }
    EXPECT(read(fd, got, sizeof got) == 0);
}

/* What was sent without waiting arrives, though the program ends at once. */
static void ask_last_words(void) {
    int fd = connected();
    for (int at = 0; at < 20; at++)
        EXPECT(send(fd, message, 1000 + (size_t)at, MSG_DONTWAIT) == 1000 + at);
}

static void serve_then_die(void) {
    int fd = accepted(listening(0));
    EXPECT(read(fd, got, sizeof got) == 5);
    kill(getpid(), SIGKILL);
}

/* Who is killed shows, in time. */
static void ask_one_who_dies(void) {
    int fd = connected();
    EXPECT(write(fd, "hello", 5) == 5);
    signal(SIGPIPE, SIG_IGN);
    ssize_t len = read(fd, got, sizeof got);
    EXPECT(len == -1 && (errno == ETIMEDOUT || errno == ECONNRESET || errno == EPIPE));
    EXPECT(write(fd, "hello", 5) == -1);
    EXPECT(close(fd) == 0);
}

static void serve_late(void) {
    int fd = accepted(listening(0));
    EXPECT(read(fd, got, sizeof got) == 4);
    EXPECT(write(fd, "late", 4) == 4);
    EXPECT(read(fd, got, sizeof got) == 0);
}

static void ask_late(void) {
    int fd = connected();
    struct timeval limit = {.tv_usec = 50000};
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    EXPECT(read(fd, got, sizeof got) == -1 && errno == EAGAIN);
    limit.tv_usec = 0;
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    EXPECT(write(fd, "late", 4) == 4);
    FILE *stream = fdopen(fd, "r");
    EXPECT(stream != NULL && fread(got, 1, 4, stream) == 4);
    EXPECT(memcmp(got, "late", 4) == 0 && fclose(stream) == 0);
}

static void ask_nobody(void) {
    int fd = new_socket();
    EXPECT(connect(fd, (struct sockaddr *)&address, sizeof address) == -1);
    EXPECT(errno == ECONNREFUSED);
    fd = new_socket();
    make_nonblocking(fd);
    EXPECT(connect(fd, (struct sockaddr *)&address, sizeof address) == -1);
    EXPECT(errno == EINPROGRESS);
    wait_for(fd, POLLOUT, POLLOUT);
    int why = 0;
    socklen_t len = sizeof why;
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) == 0 && why == ECONNREFUSED);
    EXPECT(accept(fd, NULL, NULL) == -1 && errno == EINVAL);
}

/* The port is taken while somebody listens, and free again. */
static void listen_twice(void) {
    int one = listening(0), two = new_socket();
    EXPECT(bind(two, (struct sockaddr *)&address, sizeof address) == 0);
    EXPECT(listen(two, 1) == -1 && errno == EADDRINUSE);
    EXPECT(close(one) == 0);
    int turns = 0;
    while (listen(two, 1) == -1 && turns++ < 10000)
        usleep(1000);
    EXPECT(turns < 10000);
}

/* Many, one after the other: no descriptor is left behind. */
static void ask_often(void) {
    close(connected());
    int before = open("/dev/null", O_RDONLY);
    close(before);
    for (int turn = 0; turn < 200; turn++) {
        int fd = connected();
        ask(fd, 100 + 500 * (size_t)turn, turn);
        close(fd);
    }
    int turns = 0, after;
    do {
        usleep(1000);
        after = open("/dev/null", O_RDONLY);
        close(after);
    } while (after > before && turns++ < 20000);
    EXPECT(after <= before);
}

static void serve_often(void) {
    int listener = listening(0);
    for (int turn = 0; turn < 201; turn++)
        echo(accepted(listener));
}

static void no_such_socket(void) {
    EXPECT(socket(PF_INET, SOCK_SEQPACKET, IPPROTO_STP) == -1);
    EXPECT(errno == ESOCKTNOSUPPORT || errno == EPROTONOSUPPORT);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } roles[] = {
        {"serve_echo", serve_echo},
        {"ask_echo", ask_echo},
        {"serve_limit", serve_limit},
        {"ask_limit", ask_limit},
        {"serve_ready", serve_ready},
        {"ask_ready", ask_ready},
        {"serve_forks", serve_forks},
        {"ask_forks", ask_forks},
        {"serve_last_words", serve_last_words},
        {"ask_last_words", ask_last_words},
        {"serve_then_die", serve_then_die},
        {"ask_one_who_dies", ask_one_who_dies},
        {"serve_late", serve_late},
        {"ask_late", ask_late},
        {"ask_nobody", ask_nobody},
        {"listen_twice", listen_twice},
        {"serve_often", serve_often},
        {"ask_often", ask_often},
        {"no_such_socket", no_such_socket},
    };
    if (count != 3)
        return 2;
    role = words[1];
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((unsigned short)atoi(words[2]));
    alarm(300);
    for (size_t at = 0; at < sizeof roles / sizeof *roles; at++) {
        if (strcmp(roles[at].name, role) == 0) {
            roles[at].run();
            return 0;
        }
    }
    return 2;
}
