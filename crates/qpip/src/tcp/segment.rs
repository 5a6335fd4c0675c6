//! [`Segment`]: what a TCP header says; [`Draft`]: what one is to say.

use core::net::SocketAddr;
use core::num::NonZeroU32;

use landfall_placement::{Duration, Ecn, Instant, Serial32};

use crate::offload;
use crate::queue::Hold;
use crate::wire::Tcp;
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::Options;

/// A segment that came, without its payload, which stays where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    /// AE, a flag more (RFC 9768).
    pub(crate) has_ae: bool,
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// How many bytes of payload it has.
    pub(crate) payload: u32,
    /// Where it was joined from several: the payload of each but the last.
    pub(crate) coalesced: Option<u16>,
    /// Where the adapter joined several: what was in them.
    pub(crate) joined: Option<Joined>,
    pub(crate) ecn: Ecn,
}

/// The payloads of several segments that came one behind another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) longest: u32,
    pub(crate) last: u32,
}

impl Segment {
    /// How many positions it takes: SYN and FIN take one each.
    pub(crate) fn len(&self) -> u32 {
        let flags =
            u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN));
        self.payload + flags
    }

    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }

    /// What one says that came as predicted.
    #[inline]
    pub(crate) fn predicted(hit: &offload::Segment, coalesced: Option<u16>) -> Self {
        let pushed = if hit.is_pushed { Flags::PSH } else { Flags::NONE };
        Self {
            seq: hit.seq,
            ack: hit.ack,
            flags: Flags::ACK | pushed,
            has_ae: false,
            window: hit.window,
            options: Options { timestamp: hit.timestamp, ..Options::default() },
            payload: hit.len,
            coalesced,
            joined: None,
            ecn: hit.ecn,
        }
    }

    /// What it says when its payload is dropped: its end is not heard then.
    pub(crate) fn without_payload(&self) -> Self {
        let mut bare = *self;
        if self.payload > 0 {
            bare.payload = 0;
            bare.flags = bare.flags.without(Flags::FIN | Flags::PSH);
        }
        bare
    }
}

/// A segment to send: the adapter puts it into a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    /// AE, a flag more (RFC 9768).
    pub(crate) has_ae: bool,
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// How many bytes of payload its spans have.
    pub(crate) payload: u32,
    /// The device cuts it into pieces of this many bytes.
    pub(crate) cut: Option<u16>,
    /// It is one message and stays one segment: where it is longer than the
    /// link carries, it leaves in IP fragments.
    pub(crate) is_message: bool,
    /// It is longer than the path is known to carry, to find out whether it arrives.
    pub(crate) probes_path: bool,
    /// The requests whose memory it reads: to be handed to
    /// [`SendQueue::release`](crate::queue::SendQueue::release) when it was sent.
    pub(crate) hold: Hold,
    pub(crate) ecn: Ecn,
}

impl Draft {
    /// One without payload and window, of no connection or of one that is over.
    pub(crate) fn bare(flags: Flags, seq: u32, ack: u32) -> Self {
        Self {
            seq,
            ack,
            flags,
            has_ae: false,
            window: 0,
            options: Options::default(),
            payload: 0,
            cut: None,
            is_message: false,
            probes_path: false,
            hold: Hold::default(),
            ecn: Ecn::NotCapable,
        }
    }

    /// Its header, on the way from one end to the other.
    #[inline]
    pub(crate) fn header(&self, local: SocketAddr, remote: SocketAddr) -> Tcp {
        Tcp {
            source: local.port(),
            destination: remote.port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            has_ae: self.has_ae,
            window: self.window,
            urgent: 0,
            options: self.options,
        }
    }
}

/// How large a segment may be at the moment, as the path and the way to the
/// other side allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The bytes that IP may carry in one packet without fragments: TCP header,
    /// options and payload.
    pub(crate) packet: u32,
    /// The same where the device cuts; at least `packet`.
    pub(crate) super_packet: u32,
    /// Into how many pieces it cuts at most.
    pub(crate) pieces: u16,
    /// What a packet has that probes the path; no more than `packet` where none is to.
    pub(crate) probe: u32,
}

// `Timestamps`: the option of RFC 7323, and what it protects against.

/// Timestamps of a connection on which both sides send them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    /// Our clock starts anywhere, so that it tells nothing of the machine.
    offset: NonZeroU32,
    /// The latest of theirs that counts, and when it came.
    recent: u32,
    recent_at: Instant,
}

/// RFC 7323, 5.5: after so long without a segment the latest is too old to
/// compare with.
const OUTDATED: Duration = Duration::from_secs(24 * 24 * 3600);

impl Timestamps {
    pub(crate) fn new(offset: u32, recent: u32, now: Instant) -> Self {
        // Never at zero, so that having none takes no memory.
        let offset = NonZeroU32::new(offset).unwrap_or(NonZeroU32::MIN);
        Self { offset, recent, recent_at: now }
    }

    /// Our clock, in milliseconds, and the latest of theirs.
    #[inline]
    pub(crate) fn option(&self, now: Instant) -> (u32, u32) {
        (timestamp_clock(self.offset.get(), now), self.recent)
    }

    pub(crate) const fn recent(&self) -> u32 {
        self.recent
    }

    pub(crate) const fn offset(&self) -> u32 {
        self.offset.get()
    }

    /// PAWS (RFC 7323, 5.3, R1): does the segment come from an earlier time?
    #[inline]
    pub(crate) fn is_old(&self, now: Instant, value: u32) -> bool {
        Serial32(value).precedes(Serial32(self.recent)) && now.since(self.recent_at) < OUTDATED
    }

    /// RFC 7323, 4.3: a segment that is not in front of what was acknowledged
    /// last is the one to be echoed.
    #[inline]
    pub(crate) fn learn(&mut self, now: Instant, value: u32) {
        if !Serial32(value).precedes(Serial32(self.recent)) {
            self.recent = value;
            self.recent_at = now;
        }
    }
}

/// A clock that starts at `offset`, in milliseconds.
#[inline]
pub(crate) fn timestamp_clock(offset: u32, now: Instant) -> u32 {
    offset.wrapping_add((now.as_nanos() / 1_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_is_seen_across_the_wrap() {
        let now = Instant::from_millis(5);
        let mut stamps = Timestamps::new(0, u32::MAX - 1, now);
        assert!(!stamps.is_old(now, 3));
        stamps.learn(now, 3);
        assert!(stamps.is_old(now, u32::MAX));
        stamps.learn(now, u32::MAX);
        assert_eq!(stamps.recent(), 3, "time does not go back");
        assert!(!stamps.is_old(now + OUTDATED, u32::MAX), "after 24 days nothing is old");
    }
}
