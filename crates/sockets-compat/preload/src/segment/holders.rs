//! Which processes have been counted among those that have an end of a connection.
//!
//! A fork, and who passes a descriptor in a message, counts the other process before that has it. A
//! program that is started by `vfork` or `posix_spawn` nobody has counted: it inherits descriptors all the
//! same, and counts itself. So each says here who it is, since a program that comes by `exec` knows
//! nothing of what its process was before.

use std::sync::atomic::{AtomicU32, Ordering};

/// Of more it is not known that they were counted: then they are counted twice, and their end is
/// TCP's to tell, as that of a killed process is.
const MOST: usize = 96;

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Holders([AtomicU32; MOST]);

impl Holders {
    /// This process has been counted.
    pub(crate) fn enters(&self, process: u32) {
        if self.has(process) {
            return;
        }
        let _ = self.0.iter().any(|place| {
            place.compare_exchange(0, process, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
    }

    /// Whether it has been.
    pub(crate) fn has(&self, process: u32) -> bool {
        self.0.iter().any(|place| place.load(Ordering::Acquire) == process)
    }

    /// It is counted no more.
    pub(crate) fn leaves(&self, process: u32) {
        for place in &self.0 {
            let _ = place.compare_exchange(process, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_enter_once_and_leave_and_too_many_are_not_known() {
        let holders = Holders([const { AtomicU32::new(0) }; MOST]);
        for process in 1..=MOST as u32 + 2 {
            assert!(!holders.has(process));
            holders.enters(process);
            holders.enters(process);
        }
        assert!(holders.has(1) && holders.has(MOST as u32) && !holders.has(MOST as u32 + 1));
        holders.leaves(7);
        assert!(!holders.has(7));
        holders.enters(4711);
        assert!(holders.has(4711) && holders.has(8));
    }
}
