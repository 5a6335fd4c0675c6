//! [`TimeWait`]: what is left of a connection that both sides have closed, so that late segments
//! of it harm nobody (RFC 9293, 3.4.2).

use core::net::SocketAddr;

use landfall_placement::{Duration, Instant, Serial32};

use super::Ends;
use super::segment;
use super::segment::{Segment, Timestamps};
use crate::wire::tcp::Flags;

/// A connection in TIME-WAIT. It has no queue pair any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeWait {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The numbers behind our and their FIN.
    pub(crate) send_next: u32,
    pub(crate) receive_next: u32,
    pub(crate) stamps: Option<Timestamps>,
    /// When it is over.
    pub(crate) until: Instant,
    /// When something other than their end was answered last.
    pub(crate) answered_at: Option<Instant>,
}

impl TimeWait {
    pub(crate) const fn ends(&self) -> Ends {
        Ends { local: self.local, remote: self.remote }
    }
}

/// Two stacks that answer each other's acknowledgements do so this seldom.
const ANSWER_PAUSE: Duration = Duration::from_millis(500);

/// What a segment to such a connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateAction {
    /// Nothing.
    Ignore,
    /// They did not hear our last acknowledgement: it is sent again, and the
    /// time starts again.
    Restart,
    /// Something else that is late: it is acknowledged, but not too often, and the time
    /// goes on (RFC 9293, 3.10.7.4: it starts again for a FIN only).
    Acknowledge,
    /// A new connection of the same two ends: this one is forgotten
    /// (RFC 9293, 3.10.7.4 and RFC 6191).
    Reopen,
}

impl TimeWait {
    pub(crate) fn handle(&self, now: Instant, segment: &Segment) -> LateAction {
        if segment.has(Flags::RST) {
            // RFC 1337: a late reset must not cut the time short.
            return LateAction::Ignore;
        }
        let is_later = match (&self.stamps, segment.options.timestamp) {
            (Some(stamps), Some((value, _))) if value != stamps.recent() => {
                !stamps.is_old(now, value)
            }
            _ => Serial32(self.receive_next).precedes(Serial32(segment.seq)),
        };
        match (segment.has(Flags::SYN), segment.has(Flags::ACK)) {
            (true, false) if is_later => LateAction::Reopen,
            (false, _) if segment.len() == 0 && segment.seq == self.receive_next => {
                LateAction::Ignore
            }
            (false, _) if segment.has(Flags::FIN) => LateAction::Restart,
            _ if self.answered_at.is_some_and(|at| now.since(at) < ANSWER_PAUSE) => {
                LateAction::Ignore
            }
            _ => LateAction::Acknowledge,
        }
    }

    /// The timestamp option of the acknowledgement.
    pub(crate) fn timestamp(&self, now: Instant) -> Option<(u32, u32)> {
        let stamps = self.stamps.as_ref()?;
        Some((segment::timestamp_clock(stamps.offset(), now), stamps.recent()))
    }
}
