//! The pipe that wakes who sleeps on a set ([`crate::wake_pipe`]): when it gets one, what a ring
//! means, and how it does without.
//!
//! A ring by TCP names the entry that it is for; one by the pipe is for any that was armed for a
//! sleep. So entries that have grown idle are woken by TCP: there may be thousands of them, and
//! nobody looks through those.

use libc::EPOLLOUT;

use super::{Change, Entry, Interest, is_worth_a_look, shared_of};
use crate::family;
use crate::wake_pipe::{WORTH_A_PIPE, WakePipe};

/// The pipe of a set, if it has one.
#[derive(Debug, Default)]
pub(super) struct SetPipe {
    pipe: Option<WakePipe>,
    /// Sleeps for memory, until it has one.
    sleeps: u32,
    gets: Gets,
    /// This process had the set when it came by a fork.
    is_inherited: bool,
}

/// Whether a set gets a pipe when it sleeps often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gets {
    #[default]
    One,
    /// None while another process may wait on it, too.
    OneWhenAlone,
    NoneAnyMore,
}

impl SetPipe {
    pub(super) const fn get(&self) -> Option<&WakePipe> {
        self.pipe.as_ref()
    }

    /// Somebody will sleep on this set for memory.
    pub(super) fn before_sleep(&mut self, epoll: i32) {
        if self.pipe.is_some() || !self.gets_one_now() {
            return;
        }
        self.sleeps += 1;
        if self.sleeps == WORTH_A_PIPE {
            self.pipe = WakePipe::for_set(epoll);
            if self.pipe.is_none() {
                self.gets = Gets::NoneAnyMore;
            }
        }
    }

    fn gets_one_now(&mut self) -> bool {
        if self.gets == Gets::OneWhenAlone && family::is_alone() {
            (self.gets, self.sleeps) = (Gets::One, 0);
        }
        self.gets == Gets::One
    }

    fn gives_up(&mut self, gets: Gets) -> Option<WakePipe> {
        if self.gets != Gets::NoneAnyMore {
            self.gets = gets;
        }
        self.pipe.take()
    }

    /// In a child of a fork.
    pub(super) const fn after_fork(&mut self) {
        self.is_inherited = true;
    }

    /// Somebody waits on the set, and may take what was for others that have it.
    pub(super) fn before_wait(&self) {
        if self.is_inherited {
            family::stays();
        }
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

    /// All who sleep are woken by TCP from now on, until no other process has the set.
    pub(crate) fn gives_up_pipe(&mut self) -> Vec<Change> {
        let pipe = self.pipe.gives_up(Gets::OneWhenAlone);
        pipe.map_or_else(Vec::new, |_| self.wakes_without())
    }

    /// The program closes these descriptors: the same if the pipe is one of them.
    pub(crate) fn loses_pipe(&mut self, first: i32, last: i32) -> Vec<Change> {
        if !self.pipe.get().is_some_and(|pipe| pipe.is_between(first, last)) {
            return Vec::new();
        }
        if let Some(pipe) = self.pipe.gives_up(Gets::NoneAnyMore) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::tests::in_a_child;
    use crate::kernel;

    /// Whether a set that sleeps often has a pipe.
    fn sleeps(pipe: &mut SetPipe, epoll: i32) -> bool {
        (0..2 * WORTH_A_PIPE).for_each(|_| pipe.before_sleep(epoll));
        pipe.get().is_some()
    }

    #[test]
    fn a_set_has_a_pipe_again_when_children_that_never_waited_on_it_have_ended() {
        let epoll = kernel::call!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC).unwrap() as i32;
        let mut pipe = SetPipe::default();
        assert!(sleeps(&mut pipe, epoll));
        drop(pipe.gives_up(Gets::OneWhenAlone));
        family::grows();
        assert!(!sleeps(&mut pipe, epoll), "a child is there");
        // It is one that ends; a child of it ends as well.
        in_a_child(|| {
            in_a_child(family::leaves);
            family::leaves();
            family::leaves();
        });
        assert!(!sleeps(&mut pipe, epoll), "another has ended");
        // Who stands for it says so, too, and only once.
        in_a_child(|| {
            family::leaves();
            family::after_fork();
            family::leaves();
        });
        assert!(sleeps(&mut pipe, epoll), "nobody else is there");

        drop(pipe.gives_up(Gets::OneWhenAlone));
        in_a_child(|| {
            let mut inherited = SetPipe::default();
            inherited.before_wait();
            family::leaves();
            family::after_fork();
            inherited.after_fork();
            family::grows();
            inherited.before_wait();
            family::leaves();
        });
        assert!(!sleeps(&mut pipe, epoll), "one has waited on it");
        kernel::close(epoll).unwrap();
    }
}
