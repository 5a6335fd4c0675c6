//! [`TimeWait`]: what is left of a connection that both sides have closed, so
//! that late segments of it harm nobody (RFC 9293, 3.4.2).

use core::net::SocketAddr;

use landfall_placement::{Instant, Serial32};

use super::segment::Segment;
use super::timestamps::{self, Timestamps};
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
}

/// What a segment to such a connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// Nothing.
    Ignore,
    /// They did not hear our last acknowledgement: it is sent again, and the
    /// time starts again.
    Acknowledge,
    /// A new connection of the same two ends: this one is forgotten
    /// (RFC 9293, 3.10.7.4 and RFC 6191).
    Reopen,
}

impl TimeWait {
    pub(crate) fn handle(&self, now: Instant, segment: &Segment) -> Late {
        if segment.has(Flags::RST) {
            // RFC 1337: a late reset must not cut the time short.
            return Late::Ignore;
        }
        let is_later = match (&self.stamps, segment.options.timestamp) {
            (Some(stamps), Some((value, _))) if value != stamps.recent() => {
                !stamps.is_old(now, value)
            }
            _ => Serial32(self.receive_next).precedes(Serial32(segment.seq)),
        };
        match (segment.has(Flags::SYN), segment.has(Flags::ACK)) {
            (true, false) if is_later => Late::Reopen,
            (false, _) if segment.len() == 0 && segment.seq == self.receive_next => Late::Ignore,
            _ => Late::Acknowledge,
        }
    }

    /// The timestamp option of the acknowledgement.
    pub(crate) fn timestamp(&self, now: Instant) -> Option<(u32, u32)> {
        let stamps = self.stamps.as_ref()?;
        Some((timestamps::clock(stamps.offset(), now), stamps.recent()))
    }
}
