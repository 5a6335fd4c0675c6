//! What is sent next.

use landfall_inet::{Flags, Options, tcp};
use landfall_placement::{Ecn, Instant, InternetSum, Segment, Spans, SumSlot, Ticket, Transmit};
use zerocopy::IntoBytes;

use super::frame::PREFIX_MAX;
use super::intervals::Interval;
use super::sender::Piece;
use super::{State, Stream};

/// The ticket of a unit that reads no memory: no table has that many slots.
const CONTROL: Ticket = Ticket::new(u32::MAX, 0);

/// One segment, before it is written.
struct Draft {
    sequence: u32,
    flags: Flags,
    options: Options,
    payload: u32,
    /// Into how many pieces the device cuts it.
    pieces: u16,
}

impl Stream {
    #[inline]
    pub(super) fn next_transmit(
        &mut self,
        now: Instant,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let limits = self.limits?;
        if head.len() < PREFIX_MAX + tcp::LEN_MAX
            || (limits.unit as usize) <= self.frame.prefix_len() + tcp::LEN_MAX
        {
            return None;
        }
        match self.state {
            State::Opening | State::Answering if self.open_due => self.send_opening(now, head),
            State::Open => {
                if self.receiver.ack_due && self.receiver.has_holes() {
                    return self.send_acknowledgement(now, head);
                }
                match self.sender.next_piece() {
                    Some(Piece::Bytes { bytes, is_again }) => {
                        self.send_bytes(now, bytes, is_again, head, from)
                    }
                    Some(Piece::End(at)) => self.send_end(now, at, head),
                    None if core::mem::take(&mut self.sender.probe_due) => {
                        self.send_probe(now, head)
                    }
                    None if self.receiver.ack_due => self.send_acknowledgement(now, head),
                    None => {
                        // What was posted since the last answer may be shut out.
                        self.sender.arm(now, self.config.retransmit_after);
                        None
                    }
                }
            }
            _ => None,
        }
    }

    /// The number of a byte of our stream.
    const fn sequence(&self, at: u64) -> u32 {
        self.terms.local_first.wrapping_add(1).wrapping_add(at as u32)
    }

    fn timestamp(&self, now: Instant) -> Option<(u32, u32)> {
        Some(((now.as_nanos() / 1_000_000) as u32, self.terms.remote_clock))
    }

    pub(super) fn arm_opening(&mut self, now: Instant) {
        let wait = self.config.retransmit_after * (1 << self.sender.retries.min(4));
        self.sender.deadline = now + wait;
    }

    fn send_opening(&mut self, now: Instant, head: &mut [u8]) -> Option<Transmit> {
        self.open_due = false;
        if self.sender.deadline == Instant::FAR_FUTURE {
            self.arm_opening(now);
        }
        let limits = self.limits?;
        let overhead = (self.frame.prefix_len() + tcp::LEN) as u32;
        let mss = limits.unit.saturating_sub(overhead).min(u32::from(u16::MAX)) as u16;
        let options = Options {
            mss: Some(mss),
            window_scale: Some(self.terms.local_scale),
            sack_permitted: true,
            timestamp: self.timestamp(now),
            ..Options::default()
        };
        let flags =
            if self.state == State::Answering { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let sequence = self.terms.local_first;
        self.write_control(&Draft { sequence, flags, options, payload: 0, pieces: 1 }, head)
    }

    fn send_acknowledgement(&mut self, now: Instant, head: &mut [u8]) -> Option<Transmit> {
        self.send_empty(now, Flags::ACK, self.sender.sent_end, head)
    }

    /// A byte that the other side has already: it answers with what it knows.
    fn send_probe(&mut self, now: Instant, head: &mut [u8]) -> Option<Transmit> {
        self.send_empty(now, Flags::ACK, self.sender.una.wrapping_sub(1), head)
    }

    fn send_end(&mut self, now: Instant, at: u64, head: &mut [u8]) -> Option<Transmit> {
        self.sender.arm(now, self.config.retransmit_after);
        self.send_empty(now, Flags::ACK | Flags::FIN, at, head)
    }

    fn send_empty(
        &mut self,
        now: Instant,
        flags: Flags,
        at: u64,
        head: &mut [u8],
    ) -> Option<Transmit> {
        let mut options = Options { timestamp: self.timestamp(now), ..Options::default() };
        let first = self.terms.remote_first.wrapping_add(1);
        self.receiver.blocks(|at| first.wrapping_add(at as u32), &mut options);
        let sequence = self.sequence(at);
        self.write_control(&Draft { sequence, flags, options, payload: 0, pieces: 1 }, head)
    }

    fn write_control(&mut self, draft: &Draft, head: &mut [u8]) -> Option<Transmit> {
        let head_len = self.write(draft, head)?;
        Some(Transmit {
            to: self.frame.peer(),
            head_len,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: CONTROL,
        })
    }

    #[inline]
    fn send_bytes(
        &mut self,
        now: Instant,
        bytes: Interval,
        is_again: bool,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let end = self.sender.areas.fill(bytes.start, bytes.end, from);
        let bytes = Interval { start: bytes.start, end };
        let payload = u32::try_from(end.checked_sub(bytes.start)?).ok().filter(|len| *len > 0)?;
        let ticket = self.sender.held.insert(bytes)?;
        self.sender.sent(bytes);
        self.sender.arm(now, self.config.retransmit_after);
        self.segments = self.segments.wrapping_add(1);
        let every = self.config.short_head_every;
        let is_short = every > 0 && self.segments.is_multiple_of(every);
        let timestamp = if is_short { None } else { self.timestamp(now) };
        let size = self.sender.segment();
        let pieces = payload.div_ceil(size).min(u32::from(u16::MAX)) as u16;
        let is_last = end == self.sender.areas.end();
        let draft = Draft {
            sequence: self.sequence(bytes.start),
            flags: if is_last && !is_again { Flags::ACK | Flags::PSH } else { Flags::ACK },
            options: Options { timestamp, ..Options::default() },
            payload,
            pieces,
        };
        let head_len = self.write(&draft, head)?;
        let segment = match self.frame.segment_kind() {
            Some(kind) if pieces > 1 => Some(Segment { kind, size: size as u16 }),
            _ => None,
        };
        let has_sum = !self.frame.is_bare() || self.config.checksum;
        let start = self.frame.prefix_len() as u16;
        let checksum = has_sum.then_some(SumSlot { start, offset: tcp::SUM_OFFSET });
        let to = self.frame.peer();
        Some(Transmit {
            to,
            head_len,
            segment,
            checksum,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket,
        })
    }

    /// Writes the whole head. Every segment acknowledges what is in place.
    #[inline]
    fn write(&mut self, draft: &Draft, head: &mut [u8]) -> Option<u16> {
        let start = self.frame.prefix_len();
        let options_len = draft.options.write(head.get_mut(start + tcp::LEN..)?);
        let tcp_len = tcp::LEN + options_len;
        let len = tcp_len as u32 + draft.payload;
        self.frame.write(head, len, draft.pieces)?;
        let is_opening = draft.flags.contains(Flags::SYN);
        let scale = if is_opening { 0 } else { self.terms.local_scale };
        let expected = self.receiver.next + u64::from(self.receiver.is_finished);
        let acknowledgement = if !draft.flags.contains(Flags::ACK) {
            0
        } else {
            self.terms.remote_first.wrapping_add(1).wrapping_add(expected as u32)
        };
        let (source, destination) = self.frame.ports();
        let pseudo = self.frame.pseudo(len);
        let mut tcp = tcp::Header {
            source: source.into(),
            destination: destination.into(),
            seq: draft.sequence.into(),
            ack: acknowledgement.into(),
            words: (tcp_len as u8 / 4) << 4,
            flags: draft.flags,
            window: self.receiver.window(scale).into(),
            sum: 0.into(),
            urgent: 0.into(),
        };
        if draft.payload == 0 {
            let mut sum = InternetSum::new();
            sum.add_word(pseudo);
            sum.add(tcp.as_bytes());
            sum.add(&head[start + tcp::LEN..start + tcp_len]);
            tcp.sum = sum.checksum().into();
        } else if !self.frame.is_bare() {
            tcp.sum = pseudo.into();
        }
        tcp.write_to_prefix(&mut head[start..]).ok()?;
        let has_told_all = !self.receiver.has_holes() || draft.payload == 0;
        if draft.flags.contains(Flags::ACK) && !is_opening && has_told_all {
            self.receiver.acknowledged();
        }
        Some((start + tcp_len) as u16)
    }
}
