//! Bytes by TCP whose only meaning is that they come: who needs them, and when they go.
//!
//! The rules by which no wake-up is lost are in `landfall-socket-wakes`, with their models; here
//! they get the socket and the memory ([`SleepingEnd`]).

use std::sync::atomic::{Ordering, fence};

use landfall_socket_wakes::{self as wakes, Bed, End, RoomWatchers, Shortcut, Waiters, Wishes};

use crate::connection::SegmentView;
use crate::kernel::Outcome;
use crate::lock::{hold_at_once, hold_for_call, is_held};
use crate::patience::SleepLimit;
use crate::ring::ROOM_BY_TCP;
use crate::segment::Receiving;
use crate::transfer::time_limit;
use crate::wake_pipe::{self, WakePipe};
use crate::{kernel, ring};

/// For so long one sleeps by memory alone: of one who was killed, and of a reset, TCP knows.
const BY_MEMORY_MS: u32 = 20;

/// Somebody who sleeps, or is about to, and watches an end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    watch: wakes::Watch,
    /// How long it may sleep before it looks by itself.
    pub(crate) sleep_limit: SleepLimit,
}

/// An end as the rules of sleeping and waking see it.
struct SleepingEnd<'a> {
    shared: &'a SegmentView<'a>,
    /// Its TCP socket.
    fd: i32,
}

impl End for SleepingEnd<'_> {
    fn wishes(&self) -> &Wishes {
        &self.shared.receives.receiving.wishes
    }

    fn waiters(&self) -> &Waiters {
        &self.shared.receives.receiving.waiters
    }

    fn room_watchers(&self) -> &RoomWatchers {
        &self.shared.own.room_watchers
    }

    fn shortcut(&self) -> &Shortcut {
        &self.shared.receives.receiving.shortcut
    }

    fn wakes_by_memory(&self) {
        wake_by_memory(&self.shared.receives.receiving);
    }

    fn has_bytes(&self) -> bool {
        self.shared.incoming.available() != Ok(0)
    }

    fn wants_room(&self) {
        let _ = self.shared.outgoing.wants_room(ROOM_BY_TCP);
    }

    fn has_room(&self) -> bool {
        self.shared.outgoing.has_room_worth_telling() != Ok(false)
    }

    fn is_sending_switched(&self) -> bool {
        self.shared.is_sending_switched()
    }

    fn is_being_received(&self) -> bool {
        is_held(&self.shared.own.receiving.lock)
    }

    fn queued(&self) -> usize {
        kernel::queued(self.fd, libc::FIONREAD).unwrap_or(0) as usize
    }

    fn discard(&self, bytes: usize) {
        kernel::discard(self.fd, bytes);
    }
}

impl SegmentView<'_> {
    /// Wakes the receiver at the other end if it sleeps.
    pub(crate) fn ring_if_wanted(&self, fd: i32) {
        if let Some(between) = self.between {
            return self.announce_bytes(between, fd);
        }
        if self.outgoing.takes_the_wish_to_be_rung() && !self.rings_by_shortcut() {
            self.ring_by_tcp(fd);
        }
    }

    /// Wakes who sleeps at the other end by a shorter way than TCP, if there is one.
    fn rings_by_shortcut(&self) -> bool {
        let there = &self.sends.receiving;
        match there.shortcut.of_all() {
            None => false,
            Some(number) if number.get() == Shortcut::MEMORY => {
                wake_by_memory(there);
                true
            }
            Some(number) => wake_pipe::ring(number, there.shortcut_place.load(Ordering::Relaxed)),
        }
    }

    /// Nothing more will come of one of the two: who sleeps by memory hears that from nobody else.
    pub(crate) fn wakes_of_an_end(&self) {
        fence(Ordering::SeqCst);
        for end in [&self.sends.receiving, &self.receives.receiving] {
            if end.shortcut.of_all().is_some_and(|number| number.get() == Shortcut::MEMORY) {
                wake_by_memory(end);
            }
        }
    }

    /// Whether one who sleeps for bytes in a call may do it by memory alone.
    pub(crate) fn may_sleep_by_memory(&self, fd: i32) -> bool {
        self.between.is_none()
            && self.is_done_with_tcp()
            && !self.knows_of_an_end()
            && time_limit(fd, libc::SO_RCVTIMEO).is_none()
    }

    fn ring_by_tcp(&self, fd: i32) {
        let _ = kernel::ring(fd);
        self.sends.receiving.was_rung.store(1, Ordering::Release);
    }

    /// Whether a byte by TCP is known to be a ring. Who only receives has never changed
    /// its own way: a ring would be taken for what it sends, so it is changed now. Where that
    /// cannot be, the other end knows, and looks by itself.
    fn may_ring(&self, fd: i32) -> bool {
        if !self.is_sending_switched() {
            self.switch_sending(fd);
        }
        self.is_sending_switched()
    }

    /// Wakes a sender at the other end that waits for room, if there is enough now.
    pub(crate) fn wake_sender_if_wanted(&self, fd: i32) {
        let how = self.incoming.takes_the_wish_for_room();
        if how & ring::ROOM_BY_MEMORY != 0 {
            kernel::wake(self.incoming.word_of_room(), i32::MAX);
        }
        if how & ring::ROOM_BY_BELL != 0 {
            self.notify_carrier();
        }
        if how & ring::ROOM_BY_TCP == 0 || self.rings_by_shortcut() {
            return;
        }
        // To one who has ended a byte would be an offence: the kernel answers with a reset.
        let sends_on = self.receives.sending.has_ended.load(Ordering::Acquire) == 0;
        if sends_on && self.may_ring(fd) {
            self.ring_by_tcp(fd);
        }
    }

    /// Takes rings out of TCP's queue, where all real bytes have been taken out of it and
    /// nobody sleeps for them. Who else is at it does the same.
    pub(crate) fn take_rings_away(&self, fd: i32) {
        if let Some(_held) = hold_at_once(&self.own.receiving.lock)
            && self.is_all_but_rings()
            && self.rings_may_go(fd)
        {
            self.drop_rings(fd);
        }
    }

    /// The same before this process has it no more; `is_last` if no other has it either, but
    /// those that were killed.
    pub(crate) fn take_rings_away_at_last(&self, fd: i32, is_last: bool) {
        if is_last {
            self.receives.receiving.waiters.are_gone();
            self.receives.receiving.shortcut.all_are_gone();
        }
        // A byte that is left unread would make a reset of it.
        if let Ok(_held) = hold_for_call(&self.own.receiving.lock, || false)
            && self.is_all_but_rings()
        {
            self.drop_rings(fd);
        }
    }

    /// Whether no byte of the program's is in TCP's queue.
    fn is_all_but_rings(&self) -> bool {
        self.incoming_by_tcp() == Some(self.receives.receiving.by_tcp.load(Ordering::Relaxed))
    }

    fn sleeping<'a>(&'a self, fd: i32) -> SleepingEnd<'a> {
        SleepingEnd { shared: self, fd }
    }

    /// Whether rings are worth a try to take them away: nobody may need them, or they have
    /// stayed for long enough.
    pub(crate) fn rings_may_go(&self, fd: i32) -> bool {
        // Between hosts all look by themselves after a ring, no matter who has taken it.
        self.between.is_some() || wakes::rings_may_go(&self.sleeping(fd))
    }

    /// Whether a ring in TCP's queue may be for somebody who sleeps, or wakes just now.
    pub(crate) fn somebody_may_need_a_ring(&self, fd: i32) -> bool {
        self.between.is_none() && wakes::somebody_may_need_a_ring(&self.sleeping(fd))
    }

    /// Takes away what lies in TCP's queue, if it has nothing to tell to anybody any more. The
    /// caller has the lock of the half that receives, and knows that they are nothing but
    /// rings. An error that waits there stays: asking for the length does not take it.
    pub(crate) fn drop_rings(&self, fd: i32) {
        let Some(between) = self.between else { return wakes::drop_rings(&self.sleeping(fd)) };
        if let Ok(rings @ 1..) = kernel::queued(fd, libc::FIONREAD) {
            between.note_change();
            kernel::discard(fd, rings as usize);
        }
    }

    /// Somebody will sleep who watches this end, until [`SegmentView::stops_watching`]. Who
    /// calls this looks at the rings of bytes once more. Who sleeps on a set with a pipe is woken
    /// by that, if the other end can.
    pub(crate) fn watches(
        &self,
        fd: i32,
        for_bytes: bool,
        for_room: bool,
        pipe: Option<&WakePipe>,
    ) -> Watch {
        let pipe = pipe.filter(|_| self.between.is_none());
        if let Some(pipe) = pipe {
            self.receives.receiving.shortcut_place.store(pipe.place(), Ordering::Relaxed);
        }
        let number = pipe.map_or(0, WakePipe::number);
        let watch = wakes::watches(&self.sleeping(fd), for_bytes, for_room, number);
        Watch { watch, sleep_limit: limit_of(watch.is_sure) }
    }

    pub(crate) fn stops_watching(&self, fd: i32, watch: Watch) {
        wakes::stops_watching(&self.sleeping(fd), watch.watch);
    }

    /// Those who sleep at this end are woken by TCP from now on. Who calls this looks at the rings
    /// of bytes once more.
    pub(crate) fn gives_up_shortcut(&self) {
        self.receives.receiving.shortcut.is_given_up();
    }

    /// Sleeps for bytes, by memory or as `by_tcp` does it, unless there are some. `None` if there
    /// are; and whether nobody else sleeps so.
    pub(crate) fn sleeps_for_bytes(
        &self,
        fd: i32,
        by_memory: bool,
        by_tcp: impl FnOnce(SleepLimit) -> Outcome,
    ) -> (Option<Outcome>, bool) {
        let word = &self.receives.receiving.word_of_bytes;
        let seen = word.load(Ordering::Acquire);
        wakes::sleeps_for_bytes(&self.sleeping(fd), by_memory, |bed| match bed {
            // Of an end that was said just now.
            Bed::Memory if self.knows_of_an_end() => Ok(0),
            Bed::Memory => kernel::sleep_on(word, seen, BY_MEMORY_MS),
            Bed::Tcp { .. } if self.keeps_a_ring_for_another(fd) => by_tcp(SleepLimit::BLIND),
            Bed::Tcp { is_sure } => by_tcp(limit_of(is_sure)),
        })
    }

    /// Whether a ring lies in TCP's queue that is kept for another who watches: the kernel
    /// would end each sleep for it at once.
    pub(crate) fn keeps_a_ring_for_another(&self, fd: i32) -> bool {
        let own = &self.receives.receiving;
        own.was_rung.load(Ordering::Relaxed) != 0
            && own.waiters.count() > 1
            && self.is_all_but_rings()
            && kernel::queued(fd, libc::FIONREAD).is_ok_and(|bytes| bytes > 0)
    }
}

fn wake_by_memory(end: &Receiving) {
    end.word_of_bytes.fetch_add(1, Ordering::Release);
    kernel::wake(&end.word_of_bytes, i32::MAX);
}

/// How long one may sleep who has just said that it does: anyone who is at the rings now
/// may not know of it.
const fn limit_of(is_sure: bool) -> SleepLimit {
    if is_sure { SleepLimit::NONE } else { SleepLimit::SHORT }
}

// Whether small pieces wait for more: what the program said of that, once its bytes do not
// go by TCP any more.
//
// A ring is a byte that must not wait for another. So TCP sends at once from then on, and
// the program hears of its two options what it has set: that changes nothing in memory.

const OPTIONS: [i32; 2] = [libc::TCP_NODELAY, libc::TCP_CORK];

/// The bit of an option, if it is one of the two.
fn bit(level: i32, name: i32) -> Option<u32> {
    let at = OPTIONS.iter().position(|option| level == libc::IPPROTO_TCP && *option == name)?;
    Some(1 << at)
}

impl SegmentView<'_> {
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
