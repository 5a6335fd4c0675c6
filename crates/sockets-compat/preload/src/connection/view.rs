//! [`SegmentView`]: the memory of a connection as one of its ends sees it; who is here, which
//! way bytes go, and what has ended.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::GATE;
use crate::between_hosts;
use crate::kernel::{self, Outcome};
use crate::lock::{hold_at_once, hold_for_call};
use crate::log::Verdict;
use crate::ring::{self, Incoming, Outgoing};
use crate::segment::{BetweenHosts, Direction, End, EndState, Role, Segment};
use crate::socket_diag;

/// `has_ended` of a half that was shut down: nothing more comes, or is wanted.
pub(crate) const SHUT: u32 = 1;
/// `has_ended` of an end that nobody has open any more.
pub(crate) const CLOSED: u32 = 2;
/// `has_ended` of an end that was closed so that the other hears of a reset.
pub(crate) const RESET: u32 = 3;

/// The memory of a connection, seen from one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentView<'a> {
    pub(super) segment: Segment,
    pub(super) role: Role,
    proof: &'a AtomicBool,
    announced: &'a AtomicU32,
    pub(crate) outgoing: Outgoing<'a>,
    pub(crate) incoming: Incoming<'a>,
    /// Counters and locks of what we send, and of what we receive.
    pub(crate) sends: &'a Direction,
    pub(crate) receives: &'a Direction,
    /// What only the processes of this end have.
    pub(crate) own: &'a EndState,
    /// Of a connection between hosts.
    pub(crate) between: Option<&'a BetweenHosts>,
}

impl<'a> SegmentView<'a> {
    pub(super) fn new(
        segment: Segment,
        role: Role,
        proof: &'a AtomicBool,
        announced: &'a AtomicU32,
    ) -> Self {
        let (outgoing, incoming) = ring::ends(segment, role);
        Self {
            segment,
            role,
            proof,
            announced,
            outgoing,
            incoming,
            sends: segment.direction_from(role),
            receives: segment.direction_from(role.other()),
            own: segment.own(),
            between: Some(segment.between()).filter(|between| between.transport().is_some()),
        }
    }

    /// Whether the carrier wakes this process when there is news.
    pub(crate) fn is_woken_by_carrier(&self) -> bool {
        crate::bell::is_rung_for(self.announced.load(Ordering::Relaxed))
    }

    /// What this end says of itself.
    pub(crate) fn own_end(&self) -> &'a End {
        self.segment.end(self.role)
    }

    /// What the other end says of itself.
    pub(super) fn other_end(&self) -> &'a End {
        self.segment.end(self.role.other())
    }

    /// What has become of it, once both are here.
    pub(super) fn together(&self) -> Verdict {
        self.between.and_then(BetweenHosts::transport).map_or(Verdict::BothHere, Verdict::Carried)
    }

    /// Whether the other end of the memory is known to be that of the connection.
    pub(super) fn is_proven(&self) -> bool {
        self.proof.load(Ordering::Relaxed)
    }

    /// Whether somebody has claimed it, no matter who that is.
    pub(super) fn is_claimed(&self) -> bool {
        self.other_end().is_here.load(Ordering::Acquire) != 0
    }

    /// This end is sure of who has claimed its offer, and answers.
    pub(super) fn is_here_too(&self) {
        self.proof.store(true, Ordering::Relaxed);
        self.own.is_sure.store(1, Ordering::Release);
        self.own_end().is_here.store(1, Ordering::Release);
        self.notify_carrier();
    }

    /// Whether both ends know of each other.
    pub(crate) fn are_both_here(&self) -> bool {
        let is_here = |role| self.segment.end(role).is_here.load(Ordering::Acquire) != 0;
        self.is_proven() && is_here(Role::Acceptor) && is_here(Role::Connector)
    }

    /// Bytes that go by TCP before those of the ring; `None` while all do.
    pub(crate) fn incoming_by_tcp(&self) -> Option<u64> {
        if !self.is_proven() {
            return None;
        }
        self.receives.sending.switched.load(Ordering::SeqCst).checked_sub(1)
    }

    /// Whether all that the other end sends by TCP alone has been taken.
    pub(crate) fn is_done_with_tcp(&self) -> bool {
        let taken = self.receives.receiving.by_tcp.load(Ordering::Relaxed);
        self.incoming_by_tcp().is_some_and(|by_tcp| by_tcp <= taken)
    }

    /// Whether one of the four halves has ended, as far as memory knows.
    pub(crate) fn knows_of_an_end(&self) -> bool {
        [self.sends, self.receives].into_iter().any(|direction| {
            direction.sending.has_ended.load(Ordering::Acquire) != 0
                || direction.receiving.has_ended.load(Ordering::Acquire) != 0
        })
    }

    /// TCP has told of the end of what comes. Who has not said so in memory was killed, or
    /// ended it past us: whether he is there at all is found out when something is sent.
    pub(crate) fn has_ended_by_tcp(&self) {
        // To another host the carriers tell of it, and the end by TCP may overtake them.
        if self.between.is_none() && self.receives.sending.has_ended.load(Ordering::Acquire) == 0 {
            self.receives.receiving.is_doubtful.store(1, Ordering::Relaxed);
        }
    }

    /// Whether the other end may have been killed: the kernel refuses a byte for it.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.receives.receiving.is_doubtful.load(Ordering::Relaxed) != 0
    }

    /// Whether calls on this end wait.
    pub(crate) fn waits(&self, fd: i32) -> bool {
        let word = &self.segment.end(self.role).waits;
        crate::patience::do_they(word, || !kernel::is_nonblocking(fd))
    }

    /// Whether what we send goes into the ring.
    pub(crate) fn is_sending_switched(&self) -> bool {
        self.sends.sending.switched.load(Ordering::SeqCst) != 0
    }

    /// Lets what we send go into the ring from here on, if that can be.
    pub(crate) fn switch_sending(&self, fd: i32) {
        // Anyone who is gone takes nothing out of a ring, and its kernel says so of bytes by TCP.
        if !self.are_both_here() || (self.between.is_some() && between_hosts::is_over_by_tcp(fd)) {
            return;
        }
        let own = &self.sends.sending;
        // While somebody is at it, the sum is not final: another time.
        let Some(_held) = hold_at_once(&self.own.sending.lock) else { return };
        if own.in_flight.compare_exchange(0, GATE, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        let by_tcp = own.by_tcp.load(Ordering::SeqCst);
        if socket_diag::sent(fd, self.role) != Some(by_tcp) {
            own.in_flight.fetch_and(!GATE, Ordering::SeqCst);
            return;
        }
        self.sends_at_once(fd);
        own.switched.store(by_tcp + 1, Ordering::SeqCst);
        self.notify_carrier();
    }

    /// Returns when nobody changes the way of what we send. Anyone who does has the lock of that
    /// half; one who has died meanwhile has left the gate closed.
    pub(super) fn waits_for_the_gate(&self) {
        if let Ok(_held) = hold_for_call(&self.own.sending.lock, || true)
            && !self.is_sending_switched()
        {
            self.sends.sending.in_flight.fetch_and(!GATE, Ordering::SeqCst);
        }
    }

    /// Bytes go by TCP, and are counted; `None` if they must not any more.
    pub(super) fn send_by_tcp(&self, send: impl FnOnce() -> Outcome) -> Option<Outcome> {
        let own = &self.sends.sending;
        let is_open = own.in_flight.fetch_add(1, Ordering::SeqCst) & GATE == 0;
        let result = is_open.then(|| {
            let sent = send();
            if let Ok(bytes) = sent {
                own.by_tcp.fetch_add(bytes as u64, Ordering::SeqCst);
            }
            sent
        });
        own.in_flight.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// This half or that is shut down: what the ring has is still taken.
    pub(super) fn shut(&self, sending: bool, receiving: bool) {
        let raise = |flag: &AtomicU32| flag.fetch_max(SHUT, Ordering::AcqRel);
        if sending {
            raise(&self.sends.sending.has_ended);
        }
        if receiving {
            raise(&self.receives.receiving.has_ended);
        }
        self.wakes_of_an_end();
        self.notify_carrier();
    }

    /// Nobody has this end open any more.
    pub(super) fn close(&self, fd: i32) {
        // The kernel resets a connection whose bytes nobody read; so does it for ours.
        let is_unread = self.incoming_by_tcp().is_some() && self.incoming.available() != Ok(0);
        if fd >= 0 && is_unread {
            let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
            let _ = kernel::set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
        }
        let how = if fd >= 0 && kernel::resets_when_closed(fd) { RESET } else { CLOSED };
        self.sends.sending.has_ended.store(how, Ordering::Release);
        self.receives.receiving.has_ended.store(CLOSED, Ordering::Release);
        kernel::wake(self.incoming.word_of_room(), i32::MAX);
        self.wakes_of_an_end();
        self.notify_carrier();
    }

    /// Whether the ring still has what came before an end, and the end was no reset on
    /// purpose.
    pub(crate) fn has_bytes_before_the_end(&self) -> bool {
        self.incoming_by_tcp().is_some()
            && self.incoming.available() != Ok(0)
            && self.receives.sending.has_ended.load(Ordering::Acquire) != RESET
    }

    /// Whether the other end closed in peace, whatever the kernel makes of a ring that came
    /// too late for it.
    pub(crate) fn has_ended_in_peace(&self) -> bool {
        matches!(self.receives.sending.has_ended.load(Ordering::Acquire), SHUT | CLOSED)
    }
}
