//! The pipe that wakes who sleeps on a set ([`crate::wake_pipe`]): when it gets one, what a ring
//! means, and how it does without.
//!
//! A ring by TCP names the entry that it is for; one by the pipe is for any that was armed for a
//! sleep. So entries that have grown idle are woken by TCP: there may be thousands of them, and
//! nobody looks through those.

use libc::EPOLLOUT;

use super::{Change, Entry, Interest, is_worth_a_look, shared_of};
use crate::wake_pipe::{WORTH_A_PIPE, WakePipe};

/// The pipe of a set, if it has one.
#[derive(Debug, Default)]
pub(super) struct SetPipe {
    pipe: Option<WakePipe>,
    /// Sleeps for memory, until it has one.
    sleeps: u32,
    /// It gets none any more.
    is_over: bool,
}

impl SetPipe {
    pub(super) const fn get(&self) -> Option<&WakePipe> {
        self.pipe.as_ref()
    }

    /// Somebody will sleep on this set for memory.
    pub(super) fn before_sleep(&mut self, epoll: i32) {
        if self.pipe.is_some() || self.is_over {
            return;
        }
        self.sleeps += 1;
        if self.sleeps == WORTH_A_PIPE {
            self.pipe = WakePipe::for_set(epoll);
            self.is_over = self.pipe.is_none();
        }
    }

    fn gives_up(&mut self) -> Option<WakePipe> {
        self.is_over = true;
        self.pipe.take()
    }
}

impl Entry {
    /// It is woken by TCP from now on; whether there is something to tell.
    fn gives_up_shortcut(&self) -> bool {
        let Some(guard) = shared_of(self.fd) else { return false };
        let Some(shared) = guard.shared() else { return false };
        shared.gives_up_shortcut();
        is_worth_a_look(self, &guard, &shared)
    }
}

impl Interest {
    /// The pipe was rung. Where others sleep on, what was armed for them is looked at, and armed
    /// anew by who leaves ([`Interest::arm_for_the_others`]).
    pub(crate) fn is_rung(&mut self) {
        for at in std::mem::take(&mut self.resting) {
            self.heat(at);
        }
    }

    /// An entry stays armed and is not looked at any more; whether that is too early.
    pub(super) fn grows_idle(&self, at: u32) -> bool {
        let entry = &self.entries[at as usize];
        self.pipe.get().is_some() && entry.watch.is_some() && entry.gives_up_shortcut()
    }

    /// All who sleep are woken by TCP from now on.
    pub(crate) fn gives_up_pipe(&mut self) -> Vec<Change> {
        let pipe = self.pipe.gives_up();
        pipe.map_or_else(Vec::new, |_| self.wakes_without())
    }

    /// The program closes these descriptors: the same if the pipe is one of them.
    pub(crate) fn loses_pipe(&mut self, first: i32, last: i32) -> Vec<Change> {
        if !self.pipe.get().is_some_and(|pipe| pipe.is_between(first, last)) {
            return Vec::new();
        }
        if let Some(pipe) = self.pipe.gives_up() {
            pipe.forget();
        }
        self.wakes_without()
    }

    /// What is armed is woken by TCP; who sleeps is woken now where there is something already.
    fn wakes_without(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for at in 0..self.entries.len() as u32 {
            let entry = &mut self.entries[at as usize];
            if entry.is_free || entry.watch.is_none() || !entry.gives_up_shortcut() {
                continue;
            }
            entry.asked |= EPOLLOUT as u32;
            changes.push(self.change(at));
        }
        changes
    }
}
