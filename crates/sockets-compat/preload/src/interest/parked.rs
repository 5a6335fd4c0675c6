//! What the program took away, and the kernel has still: it is added again with the next request.

use super::{Change, Interest};

impl Interest {
    /// Takes it away without a word to the kernel, if that can be.
    pub(crate) fn parks(&mut self, fd: i32) -> bool {
        let Some(&at) = self.by_fd.get(&fd) else { return false };
        if !self.entries[at as usize].is_by_level() {
            return false;
        }
        self.by_fd.remove(&fd);
        self.cool(at);
        self.entries[at as usize].is_parked = true;
        self.parked.insert(fd, at);
        true
    }

    pub(crate) fn has_parked(&self, fd: i32) -> bool {
        self.parked.contains_key(&fd)
    }

    /// It is added again; `false` if it was not parked, or is another connection by now.
    pub(crate) fn unparks(&mut self, fd: i32) -> bool {
        let Some(at) = self.parked.remove(&fd) else { return false };
        if !self.entries[at as usize].is_by_level() {
            self.give_up(at);
            return false;
        }
        let entry = &mut self.entries[at as usize];
        (entry.is_parked, entry.idle_sleeps) = (false, 0);
        self.by_fd.insert(fd, at);
        true
    }

    /// It is taken away in earnest, if it is parked.
    pub(crate) fn remove_parked(&mut self, fd: i32) -> Option<Change> {
        let parked = self.parked.remove(&fd)?;
        Some(self.give_up(parked))
    }

    /// All that is parked is taken away in earnest.
    pub(crate) fn take_parked(&mut self) -> Vec<Change> {
        let parked = std::mem::take(&mut self.parked);
        parked.into_values().map(|at| self.give_up(at)).collect()
    }
}
