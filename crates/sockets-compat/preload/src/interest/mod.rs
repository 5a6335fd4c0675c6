//! What an epoll descriptor watches, and what of that is ready by memory alone.
//!
//! Every descriptor of the set is known here by a number that the kernel hands back with
//! an event; the program's own words for it are put in its place. What was added past this library
//! (`io_uring`, calls without libc) has the program's words, and keeps them.
//!
//! An entry that is shared memory is either *hot* or *armed*. A hot one is looked at in
//! memory with each wait, and nobody rings for it: so is one that is busy. Before a thread
//! sleeps it arms all hot ones; then the other end rings, the kernel tells, and the entry
//! is hot again. With it all others are that were busy until lately, so that one ring is
//! enough for many. So what is idle costs nothing, and what is busy costs no calls.
//!
//! Programs take a descriptor away and add it again with each request. So what the program
//! took away is *parked*: it is still with the kernel. If an event comes of such an entry
//! nevertheless, it is taken away in earnest.
//!
//! What lives in the modules below: how one sleeps, the pipe that wakes who does, and what is parked.

mod parked;
mod pipe;
pub(crate) mod sleeping;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use libc::{EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLWRNORM, epoll_event};

use crate::connection::SegmentView;
use crate::kernel::Outcome;
use crate::rings::Watch;
use crate::table::Guard;
use crate::{kernel, readiness, table, watched};

use self::pipe::SetPipe;

const WRITE: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
const EDGE: u32 = EPOLLET as u32;
const ONCE: u32 = EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What the kernel alone may know of.
const ENDS: u32 = (libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLRDHUP) as u32;
/// An entry of which nothing was told for this many sleeps waits for its ring.
const IDLE_SLEEPS: u8 = 8;
/// After this many looks at memory alone the kernel is asked anyway.
const LOOKS_BY_MEMORY: u32 = 32;

/// What the kernel hands back with an event of an entry: where that is, and in which use. No
/// pointer and no descriptor looks like it, which are the words that programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    at: u32,
    generation: u32,
}

/// The word of an entry that there is not: for descriptors of the library's own.
pub(crate) const NO_ENTRY: u64 = Word { at: Word::MASK, generation: Word::MASK }.to_u64();

impl Word {
    const MARK: u64 = 0xA5C3;
    const BITS: u32 = 24;
    const MASK: u32 = (1 << Self::BITS) - 1;

    const fn to_u64(self) -> u64 {
        let [at, generation] =
            [(self.at & Self::MASK) as u64, (self.generation & Self::MASK) as u64];
        Self::MARK << (2 * Self::BITS) | generation << Self::BITS | at
    }

    fn of(data: u64) -> Option<Self> {
        let part = |shift: u32| (data >> shift) as u32 & Self::MASK;
        (data >> (2 * Self::BITS) == Self::MARK)
            .then(|| Self { at: part(0), generation: part(Self::BITS) })
    }
}

/// A watch that was made before a sleep, and of which connection. (An entry may be older than
/// that: nginx adds a socket to its set before it connects it.)
#[derive(Clone, Copy, Debug)]
struct Watching {
    watch: Watch,
    serial: u64,
}

/// One descriptor that is watched.
#[derive(Clone, Copy, Debug)]
struct Entry {
    fd: i32,
    /// Counted up with each use of this place, so that an old event finds nobody.
    generation: u32,
    /// What the program asked for, and its word for it.
    events: u32,
    data: u64,
    /// What the kernel was asked for.
    asked: u32,
    is_free: bool,
    is_parked: bool,
    /// Of the connection that it was added for; zero if that is none of ours.
    serial: u64,
    is_hot: bool,
    /// Anyone who sleeps has to look for it now and then, since no ring is sure to come.
    needs_looks: bool,
    /// Its end was told of, as the carriers say it.
    seen_end: bool,
    /// Made before a sleep: the other end rings.
    watch: Option<Watching>,
    /// Sleeps since it was told of.
    idle_sleeps: u8,
    /// Told once, and not to be told again before it is asked for anew.
    is_done: bool,
    /// For edges: the position of the ring, and how often it was full, when last told.
    seen_position: u64,
    seen_full: u32,
    /// Nothing was told yet since it was asked for.
    is_fresh: bool,
    /// The turn in which it was told last: not twice in one.
    turn: u64,
    /// For edges: what the kernel told in that turn, for the next.
    missed: u32,
}

/// What one epoll descriptor watches.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_fd: BTreeMap<i32, u32>,
    parked: BTreeMap<i32, u32>,
    hot: Vec<u32>,
    /// Armed for a sleep, and hot again after it.
    resting: Vec<u32>,
    /// Threads that sleep on this set.
    asleep: u32,
    /// Somebody may sleep on another set, or a list, that this one is in.
    is_armed_for_another: bool,
    /// Looks at memory since the kernel was asked.
    looks: u32,
    turn: u64,
    /// Entries that are such sets themselves.
    nested: Vec<u32>,
    /// Told by the kernel while somebody only asked whether there is anything.
    kept: Vec<epoll_event>,
    /// Which descriptor of [`crate::bell`] the kernel's set watches; zero if none.
    bell: u32,
    /// By which those who sleep on this set are woken.
    pipe: SetPipe,
}

/// What to do with the kernel's set so that it is told what we need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    operation: i32,
    pub(crate) fd: i32,
    pub(crate) event: epoll_event,
}

fn shared_of(fd: i32) -> Option<Guard> {
    table::find(fd).filter(|guard| guard.shared().is_some())
}

fn serial_of(guard: &Guard) -> u64 {
    guard.serial.load(Ordering::Relaxed)
}

impl Entry {
    /// Nobody sleeps any more who waits for this one.
    fn stops_watching(&mut self) {
        let watch = self.watch.take();
        self.lets_go(watch);
    }

    /// The same of one that is no more the entry's.
    fn lets_go(&self, watching: Option<Watching>) {
        if let Some(Watching { watch, serial }) = watching
            && let Some(guard) = shared_of(self.fd)
            && serial_of(&guard) == serial
            && let Some(shared) = guard.shared()
        {
            shared.stops_watching(self.fd, watch);
        }
    }

    /// Whether the kernel, asked the same again, would have nothing new to say.
    fn is_by_level(&self) -> bool {
        self.asked & (EDGE | ONCE | EXCLUSIVE) == 0
            && shared_of(self.fd).is_some_and(|guard| serial_of(&guard) == self.serial)
    }
}

impl Interest {
    /// Asked for anew, or in other words; what the kernel shall be asked for.
    pub(crate) fn set(&mut self, fd: i32, event: epoll_event) -> Change {
        let at = match self.by_fd.get(&fd) {
            Some(&at) => at,
            None => self.place_for(fd),
        };
        let entry = &mut self.entries[at as usize];
        (entry.events, entry.data) = (event.events, event.u64);
        (entry.is_done, entry.is_fresh, entry.seen_end) = (false, true, false);
        entry.missed = 0;
        entry.asked = asked(fd, event.events);
        let found = table::find(fd);
        entry.serial = found.as_ref().map_or(0, serial_of);
        if found.is_some_and(|guard| guard.shared().is_some()) {
            self.heat(at);
            self.arm_for_sleepers(at);
        }
        if watched::is_known(fd) && !self.nested.contains(&at) {
            self.nested.push(at);
        }
        self.change(at)
    }

    fn place_for(&mut self, fd: i32) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                fd: -1,
                generation: 0,
                events: 0,
                data: 0,
                asked: 0,
                is_free: true,
                is_parked: false,
                serial: 0,
                is_hot: false,
                needs_looks: false,
                seen_end: false,
                watch: None,
                idle_sleeps: 0,
                is_done: false,
                seen_position: 0,
                seen_full: 0,
                is_fresh: true,
                turn: 0,
                missed: 0,
            });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[at as usize];
        entry.fd = fd;
        entry.generation = entry.generation.wrapping_add(1) & Word::MASK;
        (entry.is_free, entry.is_hot, entry.idle_sleeps) = (false, false, 0);
        entry.needs_looks = false;
        self.by_fd.insert(fd, at);
        at
    }

    fn change(&self, at: u32) -> Change {
        let entry = &self.entries[at as usize];
        let u64 = Word { at, generation: entry.generation }.to_u64();
        let event = epoll_event { events: entry.asked, u64 };
        Change { operation: libc::EPOLL_CTL_MOD, fd: entry.fd, event }
    }

    /// Not watched any more; what the kernel has to forget that was only parked.
    pub(crate) fn remove(&mut self, fd: i32) -> Option<Change> {
        if let Some(at) = self.by_fd.remove(&fd) {
            self.cool(at);
            self.give_up(at);
        }
        self.remove_parked(fd)
    }

    /// Nobody looks at it in memory, or waits for its ring.
    fn cool(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        entry.stops_watching();
        if std::mem::take(&mut entry.is_hot) {
            self.hot.retain(|&hot| hot != at);
        }
        self.resting.retain(|&resting| resting != at);
    }

    /// The place is free; what the kernel has to be told if it still has the entry.
    fn give_up(&mut self, at: u32) -> Change {
        let change = Change { operation: libc::EPOLL_CTL_DEL, ..self.change(at) };
        let entry = &mut self.entries[at as usize];
        (entry.is_free, entry.is_parked) = (true, false);
        entry.generation = entry.generation.wrapping_add(1) & Word::MASK;
        self.nested.retain(|&nested| nested != at);
        self.free.push(at);
        change
    }

    pub(crate) fn has(&self, fd: i32) -> bool {
        self.by_fd.contains_key(&fd)
    }

    /// What the kernel is asked for of this descriptor, where its answer is the same each
    /// time it is asked.
    pub(crate) fn asked_by_level(&self, fd: i32) -> Option<u32> {
        let entry = &self.entries[*self.by_fd.get(&fd)? as usize];
        entry.is_by_level().then_some(entry.asked)
    }

    /// Looked at in memory from now on. While a thread sleeps, the other end rings as well.
    fn heat(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        if self.asleep == 0 {
            entry.stops_watching();
        }
        if !entry.is_hot {
            entry.is_hot = true;
            self.hot.push(at);
        }
    }

    /// The descriptor has become shared memory: from now on it is looked at here, too.
    pub(crate) fn became_shared(&mut self, fd: i32) -> Option<Change> {
        let at = *self.by_fd.get(&fd)?;
        let entry = &mut self.entries[at as usize];
        let wanted = asked(fd, entry.events);
        let changes = wanted != entry.asked && !entry.is_done;
        if changes {
            entry.asked = wanted;
        }
        entry.idle_sleeps = 0;
        self.heat(at);
        changes.then(|| self.change(at))
    }

    /// An event of the kernel's in the program's words, if it is still of interest;
    /// `changes` is what the kernel shall be asked for from now on.
    pub(crate) fn translate(
        &mut self,
        event: &epoll_event,
        changes: &mut Vec<Change>,
    ) -> Option<epoll_event> {
        let Some(Word { at, generation }) = Word::of(event.u64) else { return Some(*event) };
        let entry = self.entries.get(at as usize)?;
        if entry.is_free || entry.generation != generation {
            return None;
        }
        let fd = entry.fd;
        if entry.is_parked {
            changes.extend(self.remove_parked(fd));
            return None;
        }
        let Some(guard) = shared_of(fd) else {
            if self.nested.contains(&at) {
                // Of a set within the set the kernel knows half: it is asked for separately.
                return None;
            }
            return self.translate_plain(at, event, changes);
        };
        let shared = guard.shared()?;
        changes.extend(self.became_shared(fd));
        if !guard.is_watched_twice.load(Ordering::Relaxed) {
            // Anyone who they were for looks at memory from now on.
            shared.take_rings_away(fd);
        }
        let told = self.tell(at, &guard, &shared, Some(event.events));
        if told.is_none() && self.entries[at as usize].events & ONCE != 0 {
            // The kernel thinks that it was told.
            changes.push(self.change(at));
        }
        told
    }

    /// The same of what the kernel alone knows. Where memory was offered in vain, it may
    /// still have been asked for more than the program.
    fn translate_plain(
        &mut self,
        at: u32,
        event: &epoll_event,
        changes: &mut Vec<Change>,
    ) -> Option<epoll_event> {
        const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let entry = &mut self.entries[at as usize];
        let (wanted, data) = (entry.events, entry.data);
        // To ask anew would be an edge of its own.
        if entry.asked != wanted && wanted & (EDGE | ONCE) == 0 {
            entry.asked = wanted;
            changes.push(self.change(at));
        }
        let events = event.events & (wanted | ALWAYS);
        (events != 0).then_some(epoll_event { events, u64: data })
    }

    /// Another wait begins: each entry may be told once.
    pub(crate) fn begin_turn(&mut self) {
        self.pipe.before_wait();
        self.turn += 1;
        self.is_armed_for_another = false;
    }

    /// What is ready by memory alone, in the program's words; whether the kernel has
    /// nothing to add, as far as memory knows.
    pub(crate) fn ready(&mut self, into: &mut Vec<epoll_event>, most: usize) -> bool {
        let mut is_all = self.hot.len() == self.by_fd.len() && self.looks < LOOKS_BY_MEMORY;
        // Who was told first is asked last: nobody starves.
        let hot = std::mem::take(&mut self.hot);
        let mut told = 0;
        for (turn, &at) in hot.iter().enumerate() {
            if into.len() >= most {
                break;
            }
            let before = into.len();
            if let Some(guard) = shared_of(self.entries[at as usize].fd)
                && let Some(shared) = guard.shared()
            {
                let writes = self.entries[at as usize].events & WRITE != 0;
                is_all &= shared.is_done_with_tcp()
                    && !shared.knows_of_an_end()
                    && (!writes || shared.is_sending_switched());
                into.extend(self.tell(at, &guard, &shared, None));
            } else {
                is_all = false;
            }
            if into.len() > before {
                told = turn + 1;
            }
        }
        self.hot.extend_from_slice(&hot[told..]);
        self.hot.extend_from_slice(&hot[..told]);
        self.looks = if is_all { self.looks + 1 } else { 0 };
        is_all
    }

    /// The sets within this set, with what is told of each that has something to tell.
    pub(crate) fn nested(&self) -> Vec<(i32, epoll_event)> {
        let entries = self.nested.iter().map(|&at| &self.entries[at as usize]);
        entries
            .filter(|entry| entry.events & EPOLLIN as u32 != 0)
            .map(|entry| (entry.fd, epoll_event { events: EPOLLIN as u32, u64: entry.data }))
            .collect()
    }

    /// Keeps what would be told only once, for who really waits.
    pub(crate) fn keep(&mut self, told: &[epoll_event]) {
        let once = |event: &&epoll_event| {
            let data = event.u64;
            self.entries.iter().any(|entry| {
                !entry.is_free && entry.data == data && entry.events & (EDGE | ONCE) != 0
            })
        };
        let once: Vec<_> = told.iter().filter(once).copied().collect();
        self.kept.extend(once);
    }

    /// What was kept.
    pub(crate) fn take_kept(&mut self, most: usize) -> Vec<epoll_event> {
        let count = self.kept.len().min(most);
        self.kept.drain(..count).collect()
    }

    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether memory alone has something to tell; `None` where there is none to look at.
    pub(crate) fn looks_ready(&self) -> Option<bool> {
        if self.hot.is_empty() {
            return None;
        }
        Some(self.hot.iter().any(|&at| {
            let entry = &self.entries[at as usize];
            shared_of(entry.fd).is_some_and(|guard| {
                guard.shared().is_some_and(|shared| is_worth_a_look(entry, &guard, &shared))
            })
        }))
    }

    /// What the entry has to tell; marks it as told.
    fn tell(
        &mut self,
        at: u32,
        guard: &Guard,
        shared: &SegmentView<'_>,
        by_kernel: Option<u32>,
    ) -> Option<epoll_event> {
        let entry = &mut self.entries[at as usize];
        if entry.is_done {
            return None;
        }
        if entry.turn == self.turn {
            if has_edges(entry) {
                // The kernel says it once.
                entry.missed |= by_kernel.unwrap_or(0);
            }
            return None;
        }
        let by_kernel = by_kernel.unwrap_or(0) | std::mem::take(&mut entry.missed);
        if by_kernel == 0 && !is_worth_a_look(entry, guard, shared) {
            return None;
        }
        let (fd, wanted) = (entry.fd, wanted(entry.events));
        // Before it is looked at: what becomes ready meanwhile is news for the next.
        let position = shared.incoming.position();
        let full = guard.was_full.load(Ordering::Acquire);
        let ready = if by_kernel & ENDS != 0 {
            readiness::by_kernel(shared, fd, wanted)
        } else {
            readiness::now(guard, shared, fd, wanted)
        };
        let by_tcp = by_kernel & EPOLLIN as u32 != 0 && !shared.is_done_with_tcp();
        let news = !has_edges(entry)
            || is_edge(entry, guard, shared, ready)
            || (by_tcp && ready & readiness::READING != 0);
        let entry = &mut self.entries[at as usize];
        if ready == 0 || !news {
            return None;
        }
        (entry.is_fresh, entry.turn, entry.idle_sleeps) = (false, self.turn, 0);
        // Of what it is not ready for yet it has to be told.
        if ready & readiness::READING != 0 {
            entry.seen_position = position;
            entry.seen_end = shared.knows_of_a_carried_end();
        }
        if ready & readiness::WRITING != 0 {
            entry.seen_full = full;
        }
        entry.is_done = entry.events & ONCE != 0;
        let events = u32::from(ready.cast_unsigned());
        Some(epoll_event { events, u64: entry.data })
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        for entry in &mut self.entries {
            entry.stops_watching();
        }
    }
}

fn has_edges(entry: &Entry) -> bool {
    entry.events & EDGE != 0
}

fn wanted(events: u32) -> i16 {
    (events & 0x3FFF) as i16
}

/// What the kernel is asked for where the program asks for these.
fn asked(fd: i32, events: u32) -> u32 {
    let Some(guard) = shared_of(fd) else { return events };
    let Some(shared) = guard.shared() else { return events };
    // What comes by memory comes to the kernel as something to read; and what it thinks of
    // room is worth nothing once bytes go by memory.
    let reading = EPOLLIN as u32;
    if shared.is_sending_switched() { (events & !WRITE) | reading } else { events | reading }
}

/// Whether memory alone says that there may be something to tell.
fn is_worth_a_look(entry: &Entry, guard: &Guard, shared: &SegmentView<'_>) -> bool {
    let ready = if entry.is_done { 0 } else { readiness::by_ring(shared, wanted(entry.events)) };
    entry.missed != 0 || ready != 0 && (!has_edges(entry) || is_edge(entry, guard, shared, ready))
}

/// Whether something has changed since the program was told.
fn is_edge(entry: &Entry, guard: &Guard, shared: &SegmentView<'_>, ready: i16) -> bool {
    let full = guard.was_full.load(Ordering::Acquire);
    let has_ends = ready & !(readiness::READING | readiness::WRITING) != 0;
    entry.is_fresh
        || has_ends
        || (ready & readiness::READING != 0 && shared.incoming.position() != entry.seen_position)
        || (ready & readiness::WRITING != 0 && full != entry.seen_full)
        || (ready & readiness::READING != 0 && is_news_of_an_end(entry, shared))
}

/// Whether something is to be read beside bytes, and was not told: that nothing will come. The
/// kernel has an edge of its own for it, which may have been before the carriers said so.
fn is_news_of_an_end(entry: &Entry, shared: &SegmentView<'_>) -> bool {
    match shared.knows_of_a_carried_end() {
        true => !entry.seen_end,
        false => shared.incoming.available() == Ok(0),
    }
}

/// Asks the kernel's set for something else.
pub(crate) fn apply(epoll: i32, change: &Change) -> Outcome {
    kernel::epoll_change(epoll, change.operation, change.fd, &change.event)
}
