//! Before a thread sleeps on a set, and after it.
//!
//! While one sleeps, whatever becomes of interest to it has to be rung for, no matter who else
//! works with the set meanwhile.

use super::{
    Change, Entry, IDLE_SLEEPS, Interest, WRITE, Watching, is_worth_a_look, serial_of, shared_of,
};
use crate::bell::{self, Pair};
use crate::patience::SleepLimit;
use crate::readiness;
use crate::wake_pipe::WakePipe;
use libc::EPOLLOUT;

/// Who is about to sleep when a set is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// A thread that waits on this set.
    OnThis,
    /// One that waits on a set, or a list, that this one is in.
    OnAnother,
}

impl Interest {
    /// Says to all other ends what is waited for, so that they ring; `None` if something is
    /// there already, else how long the kernel can be left to it. `is_scarce`: cores are, as far as is
    /// known, and one is woken by the pipe if there is one. (Else it would do harm: the kernel lets who
    /// is woken by a pipe run on the core of the one who wakes it.)
    pub(crate) fn arm(
        &mut self,
        epoll: i32,
        sleeper: Sleeper,
        is_scarce: bool,
    ) -> Option<SleepLimit> {
        let mut all = SleepLimit::NONE;
        let by_pipe = is_scarce && sleeper == Sleeper::OnThis;
        if by_pipe && !self.hot.is_empty() {
            self.pipe.before_sleep(epoll);
        }
        for at in 0..self.hot.len() {
            let entry = &mut self.entries[self.hot[at] as usize];
            let pipe = self.pipe.get().filter(|_| by_pipe);
            match arm_one(entry, pipe) {
                Armed::Quiet(sleep_limit) => all = all.and(sleep_limit),
                Armed::Ready => {
                    self.disarm(at + 1);
                    return None;
                }
            }
        }
        for at in std::mem::take(&mut self.hot) {
            if self.entries[at as usize].needs_looks {
                self.hot.push(at);
                continue;
            }
            self.entries[at as usize].is_hot = false;
            if sleeper == Sleeper::OnThis {
                self.resting.push(at);
            }
        }
        self.is_armed_for_another |= sleeper == Sleeper::OnAnother;
        Some(all)
    }

    /// The descriptor by which carriers wake this process, if one of them has to and the
    /// kernel's set does not watch it yet.
    pub(crate) fn lacks_the_bell(&mut self) -> Option<Pair> {
        let pair = bell::pair().filter(|pair| pair.serial != self.bell)?;
        let is_between_hosts = |at: &u32| {
            let guard = shared_of(self.entries[*at as usize].fd);
            guard.is_some_and(|guard| guard.shared().is_some_and(|shared| shared.between.is_some()))
        };
        if !self.hot.iter().any(is_between_hosts) {
            return None;
        }
        self.bell = pair.serial;
        Some(pair)
    }

    /// Nobody will sleep after all.
    fn disarm(&mut self, how_many: usize) {
        if self.asleep == 0 {
            for &at in &self.hot[..how_many] {
                self.entries[at as usize].stops_watching();
            }
        }
    }

    /// A thread goes to sleep on this set; it will be armed.
    pub(crate) fn falls_asleep(&mut self) {
        self.asleep += 1;
    }

    /// A thread that slept on this set does so no more. What was armed for that is looked
    /// at in memory again, if it has been busy lately.
    pub(crate) fn wakes_up(&mut self) {
        self.asleep = self.asleep.saturating_sub(1);
        if self.asleep > 0 {
            return;
        }
        for &at in &self.hot {
            self.entries[at as usize].stops_watching();
        }
        for at in std::mem::take(&mut self.resting) {
            let entry = &mut self.entries[at as usize];
            entry.idle_sleeps = entry.idle_sleeps.saturating_add(1);
            let is_busy = entry.idle_sleeps < IDLE_SLEEPS && !entry.is_done;
            if is_busy || self.grows_idle(at) {
                self.heat(at);
            }
        }
    }

    /// A thread leaves with what it was told while others sleep: they hear of what comes next.
    pub(crate) fn arm_for_the_others(&mut self) {
        if self.asleep == 0 {
            return;
        }
        let mut is_more = false;
        for &at in &self.hot {
            let armed = arm_one(&mut self.entries[at as usize], self.pipe.get());
            is_more |= matches!(armed, Armed::Ready);
        }
        // A ring by the pipe was heard by one of them.
        if let Some(pipe) = self.pipe.get().filter(|_| is_more) {
            pipe.ring();
        }
    }

    /// In a child of a fork: those who sleep are the parent's, and so are their wishes.
    pub(crate) fn after_fork(&mut self) {
        self.pipe.after_fork();
        self.asleep = 0;
        self.resting.clear();
        for at in 0..self.entries.len() {
            let entry = &mut self.entries[at];
            if !entry.is_free && entry.watch.take().is_some() {
                self.heat(at as u32);
            }
        }
    }

    /// Another thread may sleep in the kernel already. What it waits for there is what was
    /// asked before: so the other end rings from now on, and if something is there already
    /// the kernel is asked for something that it has.
    pub(super) fn arm_for_sleepers(&mut self, at: u32) {
        if self.asleep > 0 || self.is_armed_for_another {
            let entry = &mut self.entries[at as usize];
            let pipe = self.pipe.get().filter(|_| !self.is_armed_for_another);
            if matches!(arm_one(entry, pipe), Armed::Ready) || entry.needs_looks {
                entry.asked |= EPOLLOUT as u32;
            }
        }
    }
}

impl Interest {
    /// The descriptor has just become memory. A thread that sleeps already is rung for from now
    /// on; it is woken where there is something already, and where it must look by itself.
    pub(crate) fn wakes_who_sleeps(&mut self, fd: i32) -> Option<Change> {
        let at = *self.by_fd.get(&fd)?;
        if self.asleep == 0 && !self.is_armed_for_another {
            return None;
        }
        let entry = &mut self.entries[at as usize];
        let pipe = self.pipe.get().filter(|_| !self.is_armed_for_another);
        if !matches!(arm_one(entry, pipe), Armed::Ready) && !entry.needs_looks {
            return None;
        }
        entry.asked |= EPOLLOUT as u32;
        Some(self.change(at))
    }
}

/// What came of arming an entry.
enum Armed {
    /// All that it waits for will be rung for, or has to be looked for.
    Quiet(SleepLimit),
    Ready,
}

fn arm_one(entry: &mut Entry, pipe: Option<&WakePipe>) -> Armed {
    // Another thread may sleep by the watch that there is: it ends when the next has begun, else
    // who takes rings away meanwhile would see nobody.
    let before = entry.watch.take();
    let armed = watch_anew(entry, pipe, before);
    if entry.watch.is_none() {
        entry.lets_go(before);
    }
    armed
}

/// Watches it, in the place of who did before.
fn watch_anew(entry: &mut Entry, pipe: Option<&WakePipe>, before: Option<Watching>) -> Armed {
    const QUIET: Armed = Armed::Quiet(SleepLimit::NONE);
    entry.needs_looks = false;
    if entry.is_done {
        return QUIET;
    }
    let Some(guard) = shared_of(entry.fd) else { return QUIET };
    let Some(shared) = guard.shared() else { return QUIET };
    if shared.between.is_some() {
        guard.looks_for_the_other(&shared, entry.fd);
    }
    let waits_for_room = entry.events & WRITE != 0 && shared.is_sending_switched();
    let watch = shared.watches(entry.fd, true, waits_for_room, pipe);
    let mut sleep_limit = shared.sleep_limit(entry.fd).and(watch.sleep_limit);
    entry.watch = Some(Watching { watch, serial: serial_of(&guard) });
    entry.lets_go(before);
    if shared.keeps_a_ring_for_another(entry.fd) {
        sleep_limit = sleep_limit.and(SleepLimit::BLIND);
    }
    if waits_for_room && readiness::needs_looks_for_room(&shared) {
        sleep_limit = sleep_limit.and(SleepLimit::SHORT);
    }
    entry.needs_looks = shared.between.is_some() || sleep_limit != SleepLimit::NONE;
    if is_worth_a_look(entry, &guard, &shared) { Armed::Ready } else { Armed::Quiet(sleep_limit) }
}
