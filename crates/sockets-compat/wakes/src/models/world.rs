//! One end of a connection with several threads, and its peer: what runs is what runs in earnest,
//! over the words of `loom`.

use std::num::NonZeroU32;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::{
    Bed, End, RoomWatchers, RoomWish, Shortcut, Waiters, Watch, Wishes, drop_rings, rings_may_go,
    sleeps_for_bytes, somebody_may_need_a_ring, stops_watching, watches,
};

/// What lies in TCP's queue of the end, all of it rings but for the first `real`.
#[derive(Default)]
pub(super) struct Tcp {
    pub(super) queued: usize,
    pub(super) real: usize,
    /// Something came that `epoll` has not told of yet.
    pub(super) edge: bool,
    /// The same of a shortcut.
    pub(super) shortcut: bool,
    /// What those watch who sleep by memory.
    pub(super) word: u32,
}

/// The only shortcut that there is.
pub(super) const SHORTCUT: u32 = 1;

/// Rules that are left out, to see that the models miss them.
#[derive(Clone, Copy, Default)]
pub(super) struct LeftOut {
    /// Sleepers do not look whether the lock is held.
    pub(super) the_lock: bool,
    /// A ring goes without a new wish for room.
    pub(super) the_wish_for_room: bool,
    /// All of TCP's queue is taken while its way is not known.
    pub(super) measuring: bool,
    /// Nobody looks once more after a shortcut was given up.
    pub(super) the_look: bool,
    /// Who leaves a set on which others sleep says nothing to them.
    pub(super) the_others: bool,
    /// A shortcut is taken as if all had joined it.
    pub(super) joining: bool,
}

/// One end of a connection, whose rings of bytes hold one byte each.
#[derive(Default)]
pub(super) struct Model {
    pub(super) put: AtomicU64,
    pub(super) taken: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) sent_taken: AtomicU64,
    pub(super) wishes: Wishes,
    pub(super) waiters: Waiters,
    pub(super) shortcut: Shortcut,
    pub(super) room_wish: RoomWish,
    pub(super) room_watchers: RoomWatchers,
    pub(super) lock: AtomicU32,
    /// One more than the bytes that the peer sent by TCP, once it has gone over to memory.
    pub(super) switched: AtomicU64,
    pub(super) by_tcp: AtomicU64,
    pub(super) tcp: Mutex<Tcp>,
    pub(super) arrival: Condvar,
    pub(super) without: LeftOut,
}

impl End for Model {
    fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn room_watchers(&self) -> &RoomWatchers {
        &self.room_watchers
    }

    fn shortcut(&self) -> &Shortcut {
        &self.shortcut
    }

    fn wakes_by_memory(&self) {
        self.tcp.lock().unwrap().word += 1;
        self.arrival.notify_all();
    }

    fn has_bytes(&self) -> bool {
        self.put.load(Ordering::Acquire) != self.taken.load(Ordering::Acquire)
    }

    fn wants_room(&self) {
        self.room_wish.make(1);
    }

    fn has_room(&self) -> bool {
        self.sent.load(Ordering::Relaxed) == self.sent_taken.load(Ordering::Acquire)
    }

    fn is_sending_switched(&self) -> bool {
        !self.without.the_wish_for_room
    }

    fn is_being_received(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.without.the_lock && self.lock.load(Ordering::Relaxed) != 0
    }

    fn queued(&self) -> usize {
        self.tcp.lock().unwrap().queued
    }

    fn discard(&self, bytes: usize) {
        self.tcp.lock().unwrap().queued -= bytes;
    }
}

/// The lock of the half that receives.
pub(super) struct Held<'a>(&'a Model);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}

// What the peer does.
impl Model {
    pub(super) fn ring(&self) {
        let by_shortcut = self.shortcut.of_all().map(NonZeroU32::get);
        let mut tcp = self.tcp.lock().unwrap();
        match by_shortcut {
            Some(Shortcut::MEMORY) => tcp.word += 1,
            None if !self.without.joining => {
                tcp.queued += 1;
                tcp.edge = true;
            }
            _ => tcp.shortcut = true,
        }
        self.arrival.notify_all();
    }

    pub(super) fn peer_puts(&self) {
        self.put.fetch_add(1, Ordering::Release);
        if self.wishes.fulfil() {
            self.ring();
        }
    }

    pub(super) fn peer_takes(&self) {
        self.sent_taken.fetch_add(1, Ordering::Release);
        if self.room_wish.fulfil(|| true) != 0 {
            self.ring();
        }
    }
}

// What the threads of the end do, as the preload does it.
impl Model {
    pub(super) fn holds_at_once(&self) -> Option<Held<'_>> {
        let taken = self.lock.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok().then(|| Held(self))
    }

    pub(super) fn holds(&self) -> Held<'_> {
        loop {
            if let Some(held) = self.holds_at_once() {
                return held;
            }
            thread::yield_now();
        }
    }

    fn is_ready(&self, bytes: bool, room: bool) -> bool {
        bytes && self.has_bytes() || room && self.has_room()
    }

    /// `transfer::silence`.
    fn silence(&self, held: bool) {
        let mut has_tried = false;
        loop {
            let keeps = !held || somebody_may_need_a_ring(self);
            let queued = self.queued();
            if queued == 0 {
                return;
            }
            if !keeps {
                self.discard(queued);
            } else if !held || has_tried || !rings_may_go(self) {
                return;
            } else {
                drop_rings(self);
                has_tried = true;
            }
        }
    }

    /// `readiness::takes_rings_away`.
    pub(super) fn takes_rings_away_for_room(&self) -> bool {
        let Some(_held) = self.holds_at_once() else { return false };
        let may = !somebody_may_need_a_ring(self);
        if may {
            self.silence(true);
        }
        may
    }

    /// `Shared::take_rings_away`.
    pub(super) fn takes_rings_away(&self) {
        if let Some(_held) = self.holds_at_once()
            && rings_may_go(self)
        {
            drop_rings(self);
        }
    }

    /// The kernel would end each sleep at once.
    fn keeps_a_ring_for_another(&self) -> bool {
        self.waiters.count() > 1 && self.queued() > 0
    }

    fn sleeps_by_level(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        while tcp.queued == 0 {
            tcp = self.arrival.wait(tcp).unwrap();
        }
    }

    fn sleeps_by_edge(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        while !tcp.edge || tcp.queued == 0 {
            // Told of, but taken away meanwhile: that is no event.
            tcp.edge = false;
            tcp = self.arrival.wait(tcp).unwrap();
        }
        tcp.edge = false;
    }

    /// `poll` and `select`.
    pub(super) fn polls(&self, bytes: bool, room: bool) {
        loop {
            if self.is_ready(bytes, room) {
                return;
            }
            let held = self.holds_at_once();
            self.silence(held.is_some());
            drop(held);
            let is_short = room && !bytes && !self.takes_rings_away_for_room();
            let watch = watches(self, bytes, room, 0);
            let is_blind = !is_short && self.keeps_a_ring_for_another();
            if self.is_ready(bytes, room) {
                stops_watching(self, watch);
                return;
            }
            if is_short || is_blind || !watch.is_sure {
                thread::yield_now();
            } else {
                self.sleeps_by_level();
            }
            stops_watching(self, watch);
        }
    }

    /// Takes a byte if there is one; `transfer::receive_now`.
    fn takes(&self) -> bool {
        let _held = self.holds();
        if !self.has_bytes() {
            self.silence(true);
            return false;
        }
        self.taken.fetch_add(1, Ordering::Release);
        if rings_may_go(self) {
            drop_rings(self);
        }
        true
    }

    /// `recv` that waits.
    pub(super) fn receives(&self) {
        while !self.takes() {
            let sleep = |bed: Bed| {
                if bed == (Bed::Tcp { is_sure: true }) && !self.keeps_a_ring_for_another() {
                    self.sleeps_by_level();
                } else {
                    thread::yield_now();
                }
            };
            if let (_, true) = sleeps_for_bytes(self, false, sleep) {
                self.takes_rings_away();
            }
        }
    }

    /// The same by memory, where nobody sleeps otherwise.
    pub(super) fn receives_by_memory(&self) {
        while !self.takes() {
            let seen = self.tcp.lock().unwrap().word;
            let sleep = |bed: Bed| match bed {
                Bed::Memory => {
                    let mut tcp = self.tcp.lock().unwrap();
                    while tcp.word == seen {
                        tcp = self.arrival.wait(tcp).unwrap();
                    }
                }
                Bed::Tcp { is_sure: true } if !self.keeps_a_ring_for_another() => {
                    self.sleeps_by_level();
                }
                Bed::Tcp { .. } => thread::yield_now(),
            };
            if let (_, true) = sleeps_for_bytes(self, true, sleep) {
                self.takes_rings_away();
            }
        }
    }

    /// The same as it was: the lock is looked at after memory.
    pub(super) fn receives_in_the_old_order(&self) {
        loop {
            self.waiters.adds_sleeper();
            let wish = self.wishes.make();
            if !self.has_bytes() {
                if self.is_being_received() || self.keeps_a_ring_for_another() {
                    thread::yield_now();
                } else {
                    self.sleeps_by_level();
                }
            }
            self.wishes.take_back(wish);
            if self.waiters.loses_sleeper() {
                self.takes_rings_away();
            }
            if self.takes() {
                return;
            }
        }
    }

    /// Waits in `poll` for a byte, and takes it.
    pub(super) fn polls_and_takes(&self) {
        loop {
            self.polls(true, false);
            if self.takes() {
                return;
            }
        }
    }
}

/// A set of `epoll` with one entry, which several threads wait on.
#[derive(Default)]
pub(super) struct Set {
    pub(super) asleep: u32,
    pub(super) watch: Option<Watch>,
}

impl Model {
    fn disarms(&self, set: &mut Set) {
        if let Some(watch) = set.watch.take() {
            stops_watching(self, watch);
        }
    }

    /// Waits on the set for a byte, and takes it. Who `arms_late` lets go of the watch of others
    /// before it has one of its own.
    pub(super) fn waits_and_takes(&self, set: &Mutex<Set>, by_edge: bool, arms_late: bool) {
        loop {
            let is_sure = {
                let mut set = set.lock().unwrap();
                set.asleep += 1;
                if arms_late {
                    self.disarms(&mut set);
                }
                let watch = watches(self, true, false, 0);
                self.disarms(&mut set);
                set.watch = Some(watch);
                watch.is_sure && !self.keeps_a_ring_for_another()
            };
            if !self.has_bytes() {
                match (is_sure, by_edge) {
                    (false, _) => thread::yield_now(),
                    (true, false) => self.sleeps_by_level(),
                    (true, true) => self.sleeps_by_edge(),
                }
            }
            {
                let mut set = set.lock().unwrap();
                set.asleep -= 1;
                if set.asleep == 0 {
                    self.disarms(&mut set);
                }
            }
            self.takes_rings_away();
            if self.has_bytes() && self.takes() {
                return;
            }
        }
    }
}

// A set of `epoll` that a shortcut wakes.
impl Model {
    /// Until the shortcut or TCP tells of something, which one sleeper hears.
    fn sleeps_by_shortcut(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        while !tcp.shortcut && tcp.queued == 0 {
            tcp = self.arrival.wait(tcp).unwrap();
        }
        tcp.shortcut = false;
    }

    fn watches_anew(&self, set: &mut Set) -> bool {
        let watch = watches(self, true, false, SHORTCUT);
        self.disarms(set);
        set.watch = Some(watch);
        watch.is_sure && !self.keeps_a_ring_for_another()
    }

    /// Waits on the set for a byte, and takes it.
    pub(super) fn waits_by_shortcut_and_takes(&self, set: &Mutex<Set>) {
        loop {
            let is_sure = {
                let mut set = set.lock().unwrap();
                set.asleep += 1;
                self.watches_anew(&mut set)
            };
            if !self.has_bytes() {
                if is_sure { self.sleeps_by_shortcut() } else { thread::yield_now() }
            }
            {
                let mut set = set.lock().unwrap();
                set.asleep -= 1;
                if set.asleep == 0 {
                    self.disarms(&mut set);
                }
            }
            self.takes_rings_away();
            let has_taken = self.has_bytes() && self.takes();
            let mut set = set.lock().unwrap();
            if set.asleep > 0 && !self.without.the_others {
                self.watches_anew(&mut set);
                if self.has_bytes() {
                    self.tcp.lock().unwrap().shortcut = true;
                    self.arrival.notify_all();
                }
            }
            if has_taken {
                return;
            }
        }
    }

    /// One who was idle for long stays armed, and gives the shortcut up before it sleeps on.
    pub(super) fn grows_idle_and_takes(&self) {
        let watch = watches(self, true, false, SHORTCUT);
        self.shortcut.is_given_up();
        if self.without.the_look || !self.has_bytes() {
            if watch.is_sure { self.sleeps_by_level() } else { thread::yield_now() }
        }
        stops_watching(self, watch);
        self.receives();
    }
}

impl Model {
    /// Until a ring lies behind what is the program's.
    pub(super) fn sleeps_by_room(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        while tcp.queued == tcp.real {
            tcp = self.arrival.wait(tcp).unwrap();
        }
    }
}
