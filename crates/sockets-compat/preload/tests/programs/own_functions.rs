//! A program with functions of its own that have names of libc's, as Erlang has a `sigaction`.

use std::process::Command;

use landfall_testbed::skip_unless;

use crate::test_folder::{TestFolder, Where, missing};

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

static int calls;

/* Each does what it is named for by the next of that name, as a program does that watches its own calls. */
#define OWN(name, next, ...)                                                        \
    {                                                                               \
        static int (*found)();                                                      \
        if (!found) found = (int (*)())dlsym(RTLD_NEXT, next);                      \
        if (++calls > 100) { puts("it never ends"); fflush(stdout); _exit(1); }     \
        return found(__VA_ARGS__);                                                  \
    }

int sigaction(int n, const struct sigaction *new, struct sigaction *old) OWN(sigaction, "__sigaction", n, new, old)
int __sigaction(int n, const struct sigaction *new, struct sigaction *old) OWN(__sigaction, "__sigaction", n, new, old)
int poll(struct pollfd *all, nfds_t count, int limit) OWN(poll, "__poll_chk", all, count, limit, count * sizeof *all)
int ppoll(struct pollfd *all, nfds_t count, const struct timespec *limit, const sigset_t *mask)
    OWN(ppoll, "__ppoll_chk", all, count, limit, mask, count * sizeof *all)
int epoll_pwait(int set, struct epoll_event *all, int most, int limit, const sigset_t *mask)
    OWN(epoll_pwait, "epoll_wait", set, all, most, limit)

static void handler(int number) { (void)number; }

int main(void)
{
    struct sigaction new = {.sa_handler = handler}, old = {.sa_handler = SIG_IGN};
    struct pollfd entry = {.fd = 0, .events = POLLOUT};
    struct timespec now = {0, 0};
    struct epoll_event event;
    int set = epoll_create1(0);
    printf("%d %d\n", sigaction(SIGUSR1, &new, &old), old.sa_handler == SIG_DFL);
    printf("%d %d\n", sigaction(SIGUSR1, NULL, &old), old.sa_handler == handler);
    printf("%d\n", signal(SIGUSR1, SIG_DFL) == handler);
    printf("%d %d\n", poll(&entry, 0, 0), ppoll(&entry, 0, &now, NULL));
    printf("%d\n", epoll_pwait(set, &event, 1, 0, NULL));
    return 0;
}
"#;

#[test]
fn functions_that_a_program_has_itself_end() {
    skip_unless!(missing(&["cc"]));
    let ground = TestFolder::new();
    let (source, program) = (ground.write("own.c", PROGRAM.as_bytes()), ground.path("own"));
    // Its functions are seen by the libraries, as those of Erlang are.
    let flags = ["-O1", "-w", "-rdynamic", "-o", &program, &source, "-ldl"];
    let made = Command::new("cc").args(flags).output().expect("cc starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let kernel = ground.run_text(Where::Neither, &program, &[]);
    assert_eq!(kernel.lines().count(), 5, "{kernel}");
    assert_eq!(ground.run_text(Where::Both, &program, &[]), kernel);
}
