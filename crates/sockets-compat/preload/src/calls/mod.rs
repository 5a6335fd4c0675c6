//! The functions of libc that this library stands before.
//!
//! | module | what it takes |
//! | --- | --- |
//! | [`sockets`] | how connections begin (`connect`, `accept`); names and options |
//! | [`bytes`] | `read`, `write`, `send`, `recv` and their kin; `sendfile`, `splice` |
//! | [`messages`] | `sendmsg`, `recvmsg`, and several of them at once |
//! | [`waiting`] | `poll`, `select` |
//! | [`epoll`] | `epoll` |
//! | [`descriptors`] | `close`, `dup`, `fcntl`, `ioctl`, `shutdown` |
//! | [`processes`] | signals, what a program forbids itself, the end of a process |
//! | [`children`] | `vfork`, `clone`: children in this process's memory |
//! | [`libuv`] | which programs do without `io_uring` |
//! | [`streams`] | `fdopen` |
//!
//! Each is a few lines: is the descriptor one of ours, then ask the module that knows;
//! else what stood behind the name before.

mod bytes;
mod children;
mod descriptors;
mod epoll;
mod libuv;
mod messages;
mod processes;
mod sockets;
pub(crate) mod streams;
mod waiting;

use crate::kernel::{Errno, Outcome};

/// A result as C has it: a number that is not negative, or −1 and `errno`.
fn told(outcome: Outcome) -> isize {
    match outcome {
        Ok(number) => number.cast_signed(),
        Err(why) => {
            why.tell();
            -1
        }
    }
}

/// The same for functions that give an `int`.
fn told_int(outcome: Outcome) -> i32 {
    told(outcome) as i32
}

/// Ends with the reason.
fn fail(why: i32) -> isize {
    Errno(why).tell();
    -1
}
