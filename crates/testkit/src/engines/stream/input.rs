//! What a unit that came does to the connection.

use landfall_inet::{Flags, Options, tcp};
use landfall_placement::{
    Check, Instant, InternetSum, Landing, Placement, Refusal, Serial32, Spans, Ticket, Unit,
};
use zerocopy::FromBytes;

use super::frame::Found;
use super::receiver::{Pending, SegmentControl};
use super::{Event, State, Stream};

/// How far from what is expected a segment without payload may be.
const FAR: i64 = 1 << 30;

impl Stream {
    /// Sorts a unit in, or says which check refused it.
    #[inline]
    pub(super) fn sort_in(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if unit.path != self.config.path {
            return Err(Refusal::WrongAddress);
        }
        let found = match self.frame.find(unit)? {
            Ok(found) => found,
            Err(need) => return Ok(Placement::NeedHead(need)),
        };
        let (tcp, _) = tcp::Header::ref_from_prefix(&unit.head[found.start..])
            .map_err(|_| Refusal::Truncated)?;
        let tcp_len = tcp.header_len();
        if tcp_len < tcp::LEN {
            return Err(Refusal::Malformed);
        }
        if found.len < tcp_len as u32 {
            return Err(Refusal::Truncated);
        }
        let head_len = found.start + tcp_len;
        let Some(options) = unit.head.get(found.start + tcp::LEN..head_len) else {
            return Ok(Placement::NeedHead(head_len as u16));
        };
        let (local, remote) = self.frame.ports();
        if tcp.destination.get() != local || tcp.source.get() != remote {
            return Err(Refusal::WrongAddress);
        }
        if tcp.flags.contains(Flags::RST) {
            return Err(Refusal::Unsupported);
        }
        if found.len > tcp_len as u32 {
            return self.place_payload(tcp, options, &found, into);
        }
        if !is_sum_right(&unit.head[found.start..head_len], found.pseudo) {
            return Err(Refusal::BadChecksum);
        }
        let options = Options::read(options)?;
        self.take_control(now, tcp, &options)?;
        self.settle(now);
        Ok(Placement::Consumed)
    }

    /// Which byte of their stream this number is; their opening is byte -1.
    #[inline]
    fn offset_of(&self, sequence: u32) -> i64 {
        let next = self.receiver.next;
        let expected = Serial32(self.terms.remote_first).plus(1).plus(next as u32);
        next as i64 + i64::from(Serial32(sequence).offset_from(expected))
    }

    /// Which byte of our stream they expect; `None` if that was never sent.
    #[inline]
    fn acknowledged_by(&self, acknowledgement: u32) -> Option<u64> {
        let una = self.sender.una;
        let expected = Serial32(self.terms.local_first).plus(1).plus(una as u32);
        let ahead = i64::from(Serial32(acknowledgement).offset_from(expected));
        let upto = u64::try_from(una as i64 + ahead).ok()?;
        (upto <= self.sender.sent_end).then_some(upto)
    }

    #[inline]
    fn place_payload(
        &mut self,
        tcp: &tcp::Header,
        options: &[u8],
        found: &Found,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if !matches!(self.state, State::Open | State::Answering) {
            return Err(Refusal::Unexpected);
        }
        if !tcp.flags.contains(Flags::ACK) || tcp.flags.contains(Flags::SYN) {
            return Err(Refusal::Malformed);
        }
        let acknowledged = self.acknowledged_by(tcp.ack.get()).ok_or(Refusal::WrongKey)?;
        let tcp_len = tcp::LEN + options.len();
        let payload = found.len - tcp_len as u32;
        let start = self.offset_of(tcp.seq.get());
        let end = start + i64::from(payload);
        let said = SegmentControl {
            acknowledged,
            window_end: self.window_end(acknowledged, tcp.window.get()),
            timestamp: timestamp_of(options)?,
            end: u64::try_from(end).ok().filter(|_| tcp.flags.contains(Flags::FIN)),
        };
        let head_len = found.start + tcp_len;
        let (skipped, ticket) =
            self.receiver.claim(start, payload, said, into).inspect_err(|_| {
                // It may not know what is here, or where the window ends.
                self.receiver.ack_due = true;
            })?;
        let Ok(at) = u16::try_from(head_len as u64 + u64::from(skipped)) else {
            self.receiver.pending.remove(ticket);
            into.clear();
            return Err(Refusal::OutOfBounds);
        };
        self.receiver.observe(head_len as u16, payload);
        let check = if self.frame.is_bare() && !self.config.checksum {
            Check::None
        } else {
            Check::InternetSum { from: found.start as u16, len: found.len, seed: found.pseudo }
        };
        Ok(Placement::Into { at, check, ticket })
    }

    fn window_end(&self, acknowledged: u64, window: u16) -> u64 {
        acknowledged.saturating_add(u64::from(window) << self.terms.remote_scale)
    }

    #[inline]
    pub(super) fn take_landing(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let Some(Pending { bytes, said }) = self.receiver.pending.remove(ticket) else { return };
        let must_check = !self.frame.is_bare() || self.config.checksum;
        let is_good = match landing {
            Landing::Verified => true,
            Landing::Unchecked => !must_check,
            Landing::Corrupt => {
                self.refusals.count(Refusal::BadChecksum);
                false
            }
            Landing::Old(_) | Landing::Failed => false,
        };
        if !is_good || self.state == State::Failed {
            // The sender hears that there is a hole, as if it had not come.
            self.receiver.ack_due = self.state != State::Failed;
            return self.settle(now);
        }
        if self.state == State::Answering {
            self.become_open();
        }
        self.receiver.accept(bytes);
        if let Some(end) = said.end {
            self.receiver.learn_end(end);
        }
        if let Some(clock) = said.timestamp {
            self.terms.remote_clock = clock;
        }
        self.receiver.owe(now, &self.config);
        let first = self.config.retransmit_after;
        self.sender.acknowledge(now, said.acknowledged, said.window_end, first);
        self.settle(now);
    }

    /// A segment without payload, whose checksum is right.
    fn take_control(
        &mut self,
        now: Instant,
        tcp: &tcp::Header,
        options: &Options,
    ) -> Result<(), Refusal> {
        match (tcp.flags.contains(Flags::SYN), tcp.flags.contains(Flags::ACK)) {
            (true, false) => return self.take_opening(now, tcp, options),
            (true, true) => return self.take_answer(now, tcp, options),
            (false, false) => return Err(Refusal::Malformed),
            (false, true) => {}
        }
        if !matches!(self.state, State::Open | State::Answering) {
            return Err(Refusal::Unexpected);
        }
        let upto = self.acknowledged_by(tcp.ack.get()).ok_or(Refusal::WrongKey)?;
        let offset = self.offset_of(tcp.seq.get());
        if !(-1..=self.receiver.next as i64 + FAR).contains(&offset)
            || offset < self.receiver.next as i64 - FAR
        {
            return Err(Refusal::OutOfBounds);
        }
        if self.state == State::Answering {
            self.become_open();
        }
        if tcp.flags.contains(Flags::FIN) {
            let end = u64::try_from(offset).map_err(|_| Refusal::OutOfBounds)?;
            self.receiver.learn_end(end);
            self.receiver.ack_due = true;
        } else if offset < self.receiver.next as i64 {
            // It asks whether we are still there, and what we have.
            self.receiver.ack_due = true;
        }
        if let Some((clock, _)) = options.timestamp {
            self.terms.remote_clock = clock;
        }
        let window_end = self.window_end(upto, tcp.window.get());
        self.sender.acknowledge(now, upto, window_end, self.config.retransmit_after);
        for (start, end) in options.sack.iter() {
            if let (Some(start), Some(end)) =
                (self.acknowledged_by(*start), self.acknowledged_by(*end))
            {
                self.sender.select(start, end);
            }
        }
        Ok(())
    }

    /// The other side opens.
    fn take_opening(
        &mut self,
        now: Instant,
        tcp: &tcp::Header,
        options: &Options,
    ) -> Result<(), Refusal> {
        let first = tcp.seq.get();
        match self.state {
            State::Listening | State::Answering => {
                // While nothing came over it, a new opening replaces an old one.
                if !self.receiver.pending.is_empty() {
                    return Err(Refusal::Unexpected);
                }
                self.agree(first, options);
                self.state = State::Answering;
                self.open_due = true;
                if self.sender.deadline == Instant::FAR_FUTURE {
                    self.arm_opening(now);
                }
                Ok(())
            }
            State::Open if first == self.terms.remote_first => {
                self.receiver.ack_due = true;
                Err(Refusal::Duplicate)
            }
            State::Open | State::Opening | State::Failed => Err(Refusal::Unexpected),
        }
    }

    /// The other side answers our opening.
    fn take_answer(
        &mut self,
        now: Instant,
        tcp: &tcp::Header,
        options: &Options,
    ) -> Result<(), Refusal> {
        match self.state {
            State::Opening => {
                let expected = self.terms.local_first.wrapping_add(1);
                if tcp.ack.get() != expected {
                    return Err(Refusal::WrongKey);
                }
                self.agree(tcp.seq.get(), options);
                self.become_open();
                self.receiver.ack_due = true;
                // The window of an opening is not shifted (RFC 7323, 2.2).
                let window_end = u64::from(tcp.window.get());
                self.sender.acknowledge(now, 0, window_end, self.config.retransmit_after);
                Ok(())
            }
            State::Open if tcp.seq.get() == self.terms.remote_first => {
                self.receiver.ack_due = true;
                Err(Refusal::Duplicate)
            }
            _ => Err(Refusal::Unexpected),
        }
    }

    fn agree(&mut self, first: u32, options: &Options) {
        self.terms.remote_first = first;
        // Without the option the other side shifts nothing, and neither may we.
        self.terms.remote_scale = options.window_scale.unwrap_or(0);
        if options.window_scale.is_none() {
            self.terms.local_scale = 0;
        }
        // RFC 9293, 3.7.1: without the option, 536.
        self.terms.remote_mss = options.mss.unwrap_or(536).max(64);
        self.terms.remote_clock = options.timestamp.map_or(0, |(clock, _)| clock);
        self.set_sizes();
    }

    fn become_open(&mut self) {
        self.state = State::Open;
        self.open_due = false;
        self.sender.retries = 0;
        self.sender.deadline = Instant::FAR_FUTURE;
        self.events.push_back(Event::Connected);
    }
}

fn is_sum_right(segment: &[u8], pseudo: u16) -> bool {
    let mut sum = InternetSum::new();
    sum.add_word(pseudo);
    sum.add(segment);
    sum.sum() == 0xffff
}

/// The clock of the other side. Nearly always the timestamp stands alone.
#[inline]
fn timestamp_of(options: &[u8]) -> Result<Option<u32>, Refusal> {
    match options {
        [] => Ok(None),
        [1, 1, 8, 10, a, b, c, d, _, _, _, _] => Ok(Some(u32::from_be_bytes([*a, *b, *c, *d]))),
        _ => Ok(Options::read(options)?.timestamp.map(|(clock, _)| clock)),
    }
}
