//! Sleeping at a word: the kernel's futex, across processes.

use std::io;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::WakeError;

/// The half of the word that holds its low bits: the kernel compares 32 bits.
const fn low_half(word: &AtomicU64) -> *const u32 {
    let first = word.as_ptr().cast_const().cast::<u32>();
    if cfg!(target_endian = "big") { first.wrapping_add(1) } else { first }
}

/// Sleeps until somebody calls [`wake`], or the time is over; not at all if the low half
/// of the word is another than that of `seen` now. It may return early.
pub(super) fn wait(word: &AtomicU64, seen: u64, at_most: Duration) -> Result<(), WakeError> {
    // Bounded by the caller to parts of a second.
    let time = libc::timespec {
        tv_sec: at_most.as_secs() as libc::time_t,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let (word, operation) = (low_half(word), libc::FUTEX_WAIT);
    // SAFETY: the kernel reads four bytes of a live atomic, which are aligned, and a time
    // that outlives the call.
    match unsafe { libc::syscall(libc::SYS_futex, word, operation, seen as u32, &raw const time) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)
                ) =>
            {
                Ok(())
            }
            error => Err(WakeError::System { call: "futex", error }),
        },
    }
}

/// Wakes all that sleep at the word.
pub(super) fn wake(word: &AtomicU64) {
    let (word, operation, all) = (low_half(word), libc::FUTEX_WAKE, i32::MAX);
    let no_time = ptr::null::<libc::timespec>();
    // SAFETY: four bytes of a live atomic; the kernel takes their address, and reads
    // nothing. Nobody there is no error.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word, operation, all, no_time) };
}
