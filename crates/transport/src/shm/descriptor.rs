//! What descriptors of another process may be, found out without waiting.
//!
//! A descriptor can be of a file system that answers when it likes, of a socket that takes its
//! time to close, of anything. So the questions here are put to the kernel alone, and what is
//! of no use is closed by a thread that may wait.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::thread;

/// Is it a file that is memory? Nothing else has seals.
pub(super) fn is_memory(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: an open descriptor and a constant.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) >= 0 }
}

/// Is it an eventfd? The kernel has given it this name, which begins as no path does.
pub(super) fn is_event(fd: BorrowedFd<'_>) -> std::io::Result<bool> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(std::fs::read_link(link)?.as_os_str() == "anon_inode:[eventfd]")
}

/// Closes descriptors, and does not wait for it. Where no thread can be had for that they
/// stay open.
pub(super) fn close_aside(fds: impl IntoIterator<Item = OwnedFd>) {
    let numbers: Vec<RawFd> = fds.into_iter().map(IntoRawFd::into_raw_fd).collect();
    if numbers.is_empty() {
        return;
    }
    let close = move || {
        for number in numbers {
            // SAFETY: it was given up above, and nobody else has it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    };
    let _ = thread::Builder::new().name("landfall-close".to_owned()).spawn(close);
}
