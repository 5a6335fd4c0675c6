//! Whether small pieces wait for more: what the program said of that, once its bytes do not
//! go by TCP any more.
//!
//! A ring is a byte that must not wait for another. So TCP sends at once from then on, and
//! the program hears of its two options what it has set: that changes nothing in memory.

use std::sync::atomic::Ordering;

use crate::connection::Shared;
use crate::kernel;

const OPTIONS: [i32; 2] = [libc::TCP_NODELAY, libc::TCP_CORK];

/// The bit of an option, if it is one of the two.
fn bit(level: i32, name: i32) -> Option<u32> {
    let at = OPTIONS.iter().position(|option| level == libc::IPPROTO_TCP && *option == name)?;
    Some(1 << at)
}

impl Shared<'_> {
    /// Remembers what the program has set, and lets TCP send each byte at once.
    pub(crate) fn sends_at_once(&self, fd: i32) {
        for name in OPTIONS {
            let is_set = kernel::option(fd, libc::IPPROTO_TCP, name).is_ok_and(|value| value != 0);
            self.write_down(1 << u32::from(name != OPTIONS[0]), is_set);
        }
        for (name, value) in OPTIONS.into_iter().zip([1_i32, 0]) {
            let _ = kernel::set_option(fd, libc::IPPROTO_TCP, name, &value);
        }
    }

    fn write_down(&self, bit: u32, is_set: bool) {
        let manner = &self.sends.sending.manner;
        if is_set {
            manner.fetch_or(bit, Ordering::Relaxed);
        } else {
            manner.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// What the program has set, if it is one of the two and the kernel does not know.
    pub(crate) fn manner(&self, level: i32, name: i32) -> Option<i32> {
        let bit = bit(level, name).filter(|_| self.is_sending_switched())?;
        Some(i32::from(self.sends.sending.manner.load(Ordering::Relaxed) & bit != 0))
    }

    /// Writes down what the program sets; whether that was all there is to do.
    pub(crate) fn set_manner(&self, level: i32, name: i32, value: i32) -> bool {
        let bit = bit(level, name).filter(|_| self.is_sending_switched());
        if let Some(bit) = bit {
            self.write_down(bit, value != 0);
        }
        bit.is_some()
    }
}
