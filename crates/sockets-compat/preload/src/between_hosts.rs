//! A connection between hosts: how a program is joined to its host's carrier.
//!
//! The memory of such a connection has a program at one end and the carrier of the same
//! host at the other; the carrier of the other host has another such memory with the other
//! program. Both are kept alike: bytes of the rings, and the words that say what has ended
//! and who has changed its way ([`crate::carrier`]). So all that is done with bytes is done
//! here as within one host. Three things are not:
//!
//! **Waking.** A carrier has no part in the TCP connection, so it cannot ring. It wakes who
//! waits in `recv` by memory. The sending *program* rings by TCP, now and then: a hint that
//! bytes are on their way by another road. Anyone who waits in `poll` or `epoll` looks by
//! itself for a while after each news, and then sleeps until the next ring. A ring must not
//! be taken for data, so none is sent before the other host has said that it knows of the
//! change of ways.
//!
//! **Ends.** The end by TCP may overtake bytes that are with the carriers. It counts once
//! the carriers have said so, too, who keep all in its order.
//!
//! **Breaks.** Who loses its carrier, or hears from it that the other host is lost, breaks
//! the TCP connection off: both programs hear of a reset, and not of a shortened stream.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_socket_rules::Transport;
use libc::{POLLERR, POLLHUP, POLLRDHUP};

use crate::bell::{self, Doorbell};
use crate::connection::{CLOSED, RESET, SHUT, SegmentView};
use crate::kernel::{self, Errno};
use crate::patience::SleepLimit;
use crate::segment::BetweenHosts;
use crate::transfer::TcpStatus;

/// `has_ended` of an end that nobody has any more, as its kernel says; how it ended is for
/// TCP to tell.
pub(crate) const LEFT: u32 = 4;

/// A ring is a hint: more of them in so short a time say no more.
const BETWEEN_RINGS_MS: u64 = 25;
/// Where something came or went, more is looked for very often for so long, then often, and
/// then less often.
const BRISK_MS: u64 = 3;
const BRISK: Duration = Duration::from_micros(50);
const BUSY_MS: u64 = 100;
const LIVELY_MS: u64 = 2_000;
const LIVELY: Duration = Duration::from_millis(10);
/// Who waits for longer is woken by a ring; should that be lost, it looks by itself.
const QUIET: Duration = Duration::from_secs(1);
/// When TCP has ended and neither bytes nor a word of the end come for so long, then
/// they are lost.
const PATIENCE_MS: u64 = 10_000;

/// What has become of an offer to another host, as its carrier says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Answer {
    None = 0,
    /// The other host has it; the other program has not, yet.
    Offered = 1,
    /// This host's carrier carries as much as it may.
    Full = 2,
    /// No carrier is heard from there.
    Unreached = 3,
    /// The carrier there does not want it.
    Refused = 4,
    /// The program there did not take it.
    Nobody = 5,
    /// This host's carrier takes nothing new, for it comes to its end.
    Ending = 6,
}

impl Answer {
    pub(crate) fn of(word: &AtomicU32) -> Self {
        let word = word.load(Ordering::Acquire);
        let all =
            [Self::Offered, Self::Full, Self::Unreached, Self::Refused, Self::Nobody, Self::Ending];
        all.into_iter().find(|answer| *answer as u32 == word).unwrap_or(Self::None)
    }

    /// Whether it is an answer that ends the matter.
    pub(crate) const fn is_no(self) -> bool {
        !matches!(self, Self::None | Self::Offered)
    }
}

/// How a way stands in memory.
pub(crate) const fn number_of(transport: Transport) -> u32 {
    match transport {
        Transport::Memory | Transport::Tcp => 0,
        Transport::Stp => 1,
        Transport::Qpip => 2,
    }
}

pub(crate) const fn way_of(number: u32) -> Option<Transport> {
    match number {
        1 => Some(Transport::Stp),
        2 => Some(Transport::Qpip),
        _ => None,
    }
}

impl BetweenHosts {
    /// What carries the bytes, if it is between hosts at all.
    pub(crate) fn transport(&self) -> Option<Transport> {
        way_of(self.transport.load(Ordering::Relaxed))
    }

    /// Writes down who is at it.
    pub(crate) fn note_user(&self) {
        self.process.store(crate::process::owner(), Ordering::Relaxed);
    }

    /// This process has it no more, and others have: anyone who they are, if none of them was at
    /// it last.
    pub(crate) fn forget_user(&self) {
        let own = crate::process::owner();
        let _ = self.process.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The program has done something that the carrier has to know.
    pub(crate) fn notify_carrier(&self) {
        self.note_user();
        self.ring_bell();
    }

    fn ring_bell(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        if self.carrier_sleeps.load(Ordering::SeqCst) != 0
            && self.carrier_sleeps.swap(0, Ordering::SeqCst) != 0
            && let Some(transport) = self.transport()
        {
            bell::wake_carrier(transport);
        }
    }

    /// Something has come, or is on its way.
    pub(crate) fn note_change(&self) {
        self.changed_at.store(kernel::milliseconds(), Ordering::Relaxed);
    }

    /// Whether the carrier has come and is no more.
    pub(crate) fn has_lost_carrier(&self) -> bool {
        let carrier = self.carrier.load(Ordering::Acquire);
        carrier != 0 && !kernel::is_alive(carrier)
    }

    /// A ring, unless there was one just now, or it could be taken for data.
    fn ring_sometimes(&self, fd: i32) {
        let (now, before) = (kernel::milliseconds(), self.rung_at.load(Ordering::Relaxed));
        if now.saturating_sub(self.changed_at.load(Ordering::Relaxed)) < BUSY_MS {
            // Who has just spoken is awake.
            self.owes_ring.store(0, Ordering::Relaxed);
        } else if self.may_ring.load(Ordering::Acquire) == 0 {
            self.owes_ring.store(1, Ordering::Relaxed);
        } else if now.saturating_sub(before) >= BETWEEN_RINGS_MS
            && self
                .rung_at
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.owes_ring.store(0, Ordering::Relaxed);
            let _ = kernel::ring(fd);
        }
    }
}

impl SegmentView<'_> {
    /// Bytes were put in: the other program is told now and then, and the carrier. In this
    /// order: a ring that comes behind its bytes lies unread with who needs it no more, and
    /// should he be killed, his kernel makes a reset of it.
    pub(crate) fn announce_bytes(&self, between: &BetweenHosts, fd: i32) {
        between.sent_at.store(kernel::milliseconds(), Ordering::Relaxed);
        between.ring_sometimes(fd);
        between.notify_carrier();
    }

    /// The carrier is told, if there is one.
    pub(crate) fn notify_carrier(&self) {
        if let Some(between) = self.between {
            between.notify_carrier();
        }
    }

    /// How long one may sleep who waits for what the kernel does not tell.
    pub(crate) fn sleep_limit(&self, fd: i32) -> SleepLimit {
        let Some(between) = self.between else { return SleepLimit::NONE };
        between.note_user();
        if between.owes_ring.load(Ordering::Relaxed) != 0 {
            between.ring_sometimes(fd);
        }
        if self.lacks_carried_end() && between.ended_at.load(Ordering::Relaxed) != 0 {
            return SleepLimit::BLIND;
        }
        if self.is_woken_by_carrier() {
            // Only of a carrier that is gone nobody tells.
            return match self.check_carrier(between, fd) {
                true => SleepLimit::SHORT,
                false => SleepLimit::of(QUIET),
            };
        }
        let busy_at =
            between.changed_at.load(Ordering::Relaxed).max(between.sent_at.load(Ordering::Relaxed));
        let age = kernel::milliseconds().saturating_sub(busy_at);
        if age < BRISK_MS {
            SleepLimit::of(BRISK)
        } else if age < BUSY_MS {
            SleepLimit::SHORT
        } else if age < LIVELY_MS {
            SleepLimit::of(LIVELY)
        } else if self.check_carrier(between, fd) {
            SleepLimit::SHORT
        } else {
            SleepLimit::of(QUIET)
        }
    }

    /// Breaks off if the carrier is gone on which something depends; whether that is so.
    fn check_carrier(&self, between: &BetweenHosts, fd: i32) -> bool {
        let is_lost = self.depends_on_carrier() && between.has_lost_carrier();
        if is_lost {
            self.break_off(between, fd);
        }
        is_lost
    }

    /// Whether the other end may have changed its way: this one has said that it is here.
    fn depends_on_carrier(&self) -> bool {
        self.own_end().is_here.load(Ordering::Acquire) != 0
    }

    /// Whether an end by TCP would say nothing yet.
    pub(crate) fn lacks_carried_end(&self) -> bool {
        self.between.is_some()
            && self.depends_on_carrier()
            && self.receives.receiving.has_ended.load(Ordering::Acquire) == 0
            && self.receives.sending.has_ended.load(Ordering::Acquire) == 0
    }

    /// Whether nothing will come behind what the ring has, as the carriers say.
    pub(crate) fn knows_of_a_carried_end(&self) -> bool {
        self.between.is_some_and(|between| {
            let how = self.receives.sending.has_ended.load(Ordering::Acquire);
            between.is_broken.load(Ordering::Relaxed) != 0
                || (matches!(how, SHUT | CLOSED | RESET) && self.is_done_with_tcp())
        })
    }

    /// Whether the connection is broken: then TCP is broken off, too, and knows what to say.
    pub(crate) fn is_broken(&self, fd: i32) -> bool {
        let Some(between) = self.between else { return false };
        let was_reset = || self.receives.sending.has_ended.load(Ordering::Acquire) == RESET;
        match between.is_broken.load(Ordering::Acquire) {
            0 if !was_reset() => false,
            BROKEN_OFF => true,
            _ => {
                self.break_off(between, fd);
                true
            }
        }
    }

    fn break_off(&self, between: &BetweenHosts, fd: i32) {
        if between.is_broken.swap(BROKEN_OFF, Ordering::AcqRel) != BROKEN_OFF {
            self.sends.receiving.has_ended.store(CLOSED, Ordering::Release);
            let how = &self.receives.sending.has_ended;
            let _ = how.compare_exchange(0, RESET, Ordering::AcqRel, Ordering::Relaxed);
            kernel::break_off(fd);
            between.notify_carrier();
        }
    }

    /// TCP has ended, and the carriers have not said so: more may come, but not for ever.
    pub(crate) fn await_carried_end(&self, fd: i32) {
        let Some(between) = self.between else { return };
        let now = kernel::milliseconds();
        let since = between.ended_at.load(Ordering::Relaxed);
        if since == 0 {
            between.ended_at.store(now, Ordering::Relaxed);
            return;
        }
        let since = since.max(between.changed_at.load(Ordering::Relaxed));
        if now.saturating_sub(since) > PATIENCE_MS || between.has_lost_carrier() {
            self.break_off(between, fd);
        }
    }

    /// What there is to say while the ring is empty and all of TCP's bytes are taken.
    pub(crate) fn carried_silence(&self, fd: i32) -> Result<TcpStatus, Errno> {
        if self.is_broken(fd) {
            return after_a_break(fd);
        }
        self.drop_rings(fd);
        match self.receives.sending.has_ended.load(Ordering::Acquire) {
            SHUT | CLOSED => return Ok(TcpStatus::End),
            LEFT => match kernel::glance(fd, libc::MSG_DONTWAIT) {
                Ok(0) => return Ok(TcpStatus::End),
                Ok(_) => {}
                Err(Errno(libc::EAGAIN)) => self.await_carried_end(fd),
                Err(why) => return Err(why),
            },
            _ if is_over_by_tcp(fd) => self.await_carried_end(fd),
            _ => {}
        }
        if self.is_broken(fd) { after_a_break(fd) } else { Ok(TcpStatus::Open) }
    }

    /// The same while bytes still come by TCP: that they do not any more is told by the carrier.
    fn sleeps_for_tcp(&self, fd: i32, limit: Option<Duration>) -> Result<(), Errno> {
        let doorbell = if self.is_woken_by_carrier() { Doorbell::new() } else { None };
        let Some(doorbell) = doorbell else {
            // Without one it has to look by itself.
            let is_deaf = self.is_woken_by_carrier();
            let limit = if is_deaf { SleepLimit::SHORT.within(limit) } else { limit };
            return kernel::poll_one_for(fd, libc::POLLIN, limit).map(|_| ());
        };
        let watch = self.watches(fd, true, false, None);
        let slept = match self.is_done_with_tcp() || self.knows_of_a_carried_end() {
            true => Ok(0),
            false => {
                let tcp = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                kernel::poll(&mut [tcp, doorbell.entry()], limit, std::ptr::null())
            }
        };
        self.stops_watching(fd, watch);
        slept.map(|_| ())
    }

    /// Sleeps until there may be bytes, or an end; at most for so long.
    pub(crate) fn sleeps_for_carried_bytes(
        &self,
        fd: i32,
        most: Option<Duration>,
    ) -> Result<(), Errno> {
        let sleep_limit = self.sleep_limit(fd);
        if !self.is_done_with_tcp() && !sleep_limit.is_blind {
            return self.sleeps_for_tcp(fd, sleep_limit.within(most));
        }
        // Here the carrier wakes us; what the kernel alone knows is looked at now and then.
        let by_memory = if sleep_limit.is_blind || sleep_limit == SleepLimit::of(QUIET) {
            sleep_limit
        } else {
            SleepLimit::of(LIVELY * 5)
        };
        let waiters = &self.receives.receiving.waiters;
        waiters.adds_sleeper();
        let word = self.incoming.word_of_bytes();
        let seen = self.incoming.bytes_seen();
        let slept = if self.incoming.available() == Ok(0) && !self.knows_of_a_carried_end() {
            let limit = by_memory.within(most).unwrap_or(QUIET);
            kernel::sleep_on(word, seen, limit.as_millis().max(1) as u32).map(|_| ())
        } else {
            Ok(())
        };
        waiters.loses_sleeper();
        match slept {
            Err(Errno(libc::EINTR)) => slept,
            _ => Ok(()),
        }
    }
}

/// In `is_broken`: TCP has been broken off. (One is what the carrier says.)
const BROKEN_OFF: u32 = 2;

/// Whether nothing more comes by TCP; nothing is taken.
pub(crate) fn is_over_by_tcp(fd: i32) -> bool {
    const ENDS: i16 = POLLRDHUP | POLLHUP | POLLERR;
    kernel::poll_one(fd, POLLRDHUP, 0).is_ok_and(|ready| ready & ENDS != 0)
}

/// What a socket says whose connection was broken off: the reset once, and then nothing.
fn after_a_break(fd: i32) -> Result<TcpStatus, Errno> {
    match kernel::glance(fd, libc::MSG_DONTWAIT) {
        Ok(0) | Err(Errno(libc::ENOTCONN)) => Ok(TcpStatus::End),
        Ok(_) | Err(Errno(libc::EAGAIN)) => Err(Errno(libc::ECONNRESET)),
        Err(why) => Err(why),
    }
}
