//! The sending half of a link: what is under way, what is lost, and what may
//! be sent.

use alloc::collections::VecDeque;

use landfall_congestion::{Arrived, Config as Congestion, Window};
use landfall_placement::{Duration, Instant, Refusal, Serial32, Spans};

use crate::link::frame_payload::{FramePayload, RetransmitBuffer, Stored};
use crate::wire::frame::FrameHeader;

/// How a link sends: from the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderConfig {
    pub(crate) congestion: Congestion,
    /// Whether the window and its pauses are obeyed.
    pub(crate) yields: bool,
    pub(crate) frames: usize,
    pub(crate) retry_after: Duration,
    pub(crate) retry_floor: Duration,
}

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    /// To be sent again.
    Lost,
    UnderWay,
    Arrived,
}

/// A frame that is not known to have arrived, or whose memory a driver holds.
#[derive(Clone, Copy, Debug)]
struct InFlightFrame {
    sent: Instant,
    /// Which transmission of all it was that went last.
    serial: Serial32,
    stored: Stored,
    whereabouts: FrameState,
    /// How often it was sent.
    times: u8,
    /// How many transmissions of it hold its memory.
    held: u8,
}

/// What was acknowledged at one time.
#[derive(Debug, Default)]
struct Batch {
    bytes: u64,
    /// The last transmission among them, and whether it tells of the round trip.
    newest: Option<(Serial32, Instant, bool)>,
}

/// How many later transmissions have to arrive before one counts as lost
/// (RFC 9002, 6.1.1); more where that was found to be wrong.
const REORDERING: u32 = 3;
const MOST_REORDERING: u32 = 64;

/// How far ahead of its pace a link may send: one call of a driver sends many
/// frames.
const BURST: Duration = Duration::from_millis(1);

/// What one call of a driver carries at most.
const BATCH: u64 = 64 << 10;

/// The sending half.
#[derive(Debug)]
pub(crate) struct Sender<N> {
    flights: VecDeque<InFlightFrame>,
    /// The number of the first of them.
    first: Serial32,
    /// All before this one are known to have arrived.
    acked: Serial32,
    retransmit: RetransmitBuffer<N>,
    /// The transmissions that may still get lost, in their order; `oldest` is
    /// the serial of the first of them.
    order: VecDeque<Serial32>,
    oldest: Serial32,
    /// The last transmission that is known to have arrived.
    newest_arrived: Option<Serial32>,
    reordering: u32,
    under_way: u64,
    /// Bytes from `acked` on.
    unacked_bytes: u64,
    lost: usize,
    /// No frame before this one is lost.
    lost_from: Serial32,
    /// The frame that the other side has no credit for any more.
    edge: Serial32,
    peer_bytes: u64,
    /// There was no room for the next frame, and since then none for a batch.
    is_full: bool,
    window: Window,
    paced: Instant,
    /// Since when something is unanswered.
    since: Instant,
    backoff: u8,
    marks: u8,
    /// The frames that came back to their owner.
    released: u64,
}

impl<N: Copy> Sender<N> {
    pub(crate) fn new(sender_config: &SenderConfig) -> Self {
        Self {
            flights: VecDeque::new(),
            first: Serial32(0),
            acked: Serial32(0),
            retransmit: RetransmitBuffer::new(),
            order: VecDeque::new(),
            oldest: Serial32(0),
            newest_arrived: None,
            reordering: REORDERING,
            under_way: 0,
            unacked_bytes: 0,
            lost: 0,
            lost_from: Serial32(0),
            edge: Serial32(0),
            peer_bytes: 0,
            is_full: false,
            window: Window::new(&sender_config.congestion),
            paced: Instant::ZERO,
            since: Instant::ZERO,
            backoff: 0,
            marks: 0,
            released: 0,
        }
    }

    /// What the other side takes.
    pub(crate) fn set_peer(&mut self, frames: u16, early_bytes: u32) {
        self.edge = self.acked.plus(u32::from(frames).min(1 << 15));
        self.peer_bytes = u64::from(early_bytes);
    }

    /// The number of the next new frame.
    pub(crate) fn next(&self) -> Serial32 {
        self.first.plus(self.flights.len() as u32)
    }

    /// Is everything that was sent known to have arrived?
    pub(crate) fn is_idle(&self) -> bool {
        self.acked == self.next()
    }

    /// All frames before this one are known to have arrived.
    pub(crate) const fn acked(&self) -> Serial32 {
        self.acked
    }

    /// How many frames are not known to have arrived, in order.
    pub(crate) fn in_flight(&self) -> u32 {
        self.next().since(self.acked)
    }

    /// How many frames were loaded, and how many of them came back, in order.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.released + self.flights.len() as u64, self.released)
    }

    /// May a new frame of up to `unit` bytes go now?
    ///
    /// Who has run into a bound waits until a batch has room. Else each
    /// acknowledgement of a few frames would let as few leave, they would be
    /// acknowledged as soon, and no call of a driver would ever have many again:
    /// the silly window of RFC 1122, 4.2.3.4, with batches for segments.
    pub(crate) fn may_send(
        &mut self,
        sender_config: &SenderConfig,
        now: Instant,
        unit: u32,
    ) -> bool {
        let least =
            if self.is_full { self.batch(sender_config).max(u64::from(unit)) } else { unit.into() };
        self.is_full = !self.has_room(sender_config, least);
        !self.is_full && self.paced_until(sender_config, now).is_none()
    }

    /// Have this many more bytes room, at the other side and in the network?
    pub(crate) fn has_room(&self, sender_config: &SenderConfig, bytes: u64) -> bool {
        self.flights.len() < sender_config.frames
            && !self.has_no_credit()
            && (self.is_idle() || self.unacked_bytes + bytes <= self.peer_bytes)
            && self.has_window(sender_config, bytes)
    }

    /// What is worth to be waited for: a driver's call, but not more than half of
    /// what may be under way, nor than what passes in a moment. Where the way is
    /// long, acknowledgements let frames leave one by one, as they should.
    fn batch(&self, sender_config: &SenderConfig) -> u64 {
        let window = if sender_config.yields { self.window.bytes() } else { u64::MAX };
        let most = self.peer_bytes.min(window);
        let round = self.window.rtt().smoothed().unwrap_or_default().max(BURST);
        let in_a_moment = most.saturating_mul(BURST.as_nanos() as u64) / round.as_nanos() as u64;
        BATCH.min(most / 2).min(in_a_moment)
    }

    /// Has the other side no room for more frames?
    pub(crate) fn has_no_credit(&self) -> bool {
        !self.next().precedes(self.edge)
    }

    /// A frame may be longer than the window. Then half of the window has to be free: a
    /// word that is under way holds no other one up.
    fn has_window(&self, sender_config: &SenderConfig, bytes: u64) -> bool {
        !sender_config.yields
            || self.under_way == 0
            || self.window.room(&sender_config.congestion, self.under_way)
                >= bytes.min(self.window.bytes() / 2)
    }

    /// Until when the pace holds everything back.
    pub(crate) fn paced_until(
        &self,
        sender_config: &SenderConfig,
        now: Instant,
    ) -> Option<Instant> {
        if !sender_config.yields {
            return None;
        }
        // Below one unit the pause alone keeps the rate down.
        let is_small = self.window.bytes() < u64::from(sender_config.congestion.unit);
        let until = if is_small { self.paced } else { self.paced - BURST };
        (until > now).then_some(until)
    }

    /// Puts a new frame on the shelf, to be written by [`Self::write`].
    pub(crate) fn load(
        &mut self,
        sender_config: &SenderConfig,
        now: Instant,
        payload: &FramePayload<N>,
    ) -> Option<Serial32> {
        let stored = self.retransmit.put(payload)?;
        if sender_config.yields && self.under_way == 0 {
            self.window.handle_start(&sender_config.congestion, now);
        }
        let seq = self.next();
        self.unacked_bytes += u64::from(stored.frame_len());
        self.lost += 1;
        self.flights.push_back(InFlightFrame {
            sent: now,
            serial: Serial32(0),
            stored,
            whereabouts: FrameState::Lost,
            times: 0,
            held: 0,
        });
        Some(seq)
    }

    /// The frame to be sent again, if there is one and it may go now.
    pub(crate) fn next_lost(
        &mut self,
        sender_config: &SenderConfig,
        now: Instant,
    ) -> Option<Serial32> {
        if self.lost == 0 || self.paced_until(sender_config, now).is_some() {
            return None;
        }
        let from = self.lost_from.later(self.acked).since(self.first) as usize;
        let ahead = self.flights.range(from.min(self.flights.len())..);
        let nth = ahead.take_while(|flight| flight.whereabouts != FrameState::Lost).count();
        let seq = self.first.plus((from + nth) as u32);
        self.lost_from = seq;
        let flight = self.flights.get(from + nth)?;
        self.has_window(sender_config, flight.stored.frame_len().into()).then_some(seq)
    }

    /// Writes a frame behind the place of its header. Returns what the header has
    /// to say of it, and whether the driver holds memory until it says otherwise.
    pub(crate) fn write(
        &mut self,
        sender_config: &SenderConfig,
        now: Instant,
        seq: Serial32,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Stored> {
        let flight = self.flights.get_mut(seq.since(self.first) as usize)?;
        let stored = flight.stored;
        self.retransmit.write(&stored, head, from)?;
        let serial = self.oldest.plus(self.order.len() as u32);
        let len = u64::from(stored.frame_len());
        if flight.whereabouts == FrameState::Lost {
            self.lost -= 1;
            self.under_way += len;
        }
        flight.whereabouts = FrameState::UnderWay;
        (flight.sent, flight.serial) = (now, serial);
        flight.times = flight.times.saturating_add(1);
        flight.held = flight.held.saturating_add(u8::from(stored.spans > 0));
        if self.under_way == len {
            self.since = now;
        }
        if self.order.len() >= sender_config.frames.saturating_mul(4) {
            // So old that the time-out sees to it.
            self.order.pop_front();
            self.oldest = self.oldest.plus(1);
        }
        self.order.push_back(seq);
        if sender_config.yields {
            let pause = self.window.pause(&sender_config.congestion, len);
            self.paced = self.paced.max(now - BURST) + pause;
        }
        Some(stored)
    }

    /// A driver holds the memory of one transmission of this frame no longer.
    pub(crate) fn handle_sent(&mut self, seq: Serial32) {
        if let Some(flight) = self.flights.get_mut(seq.since(self.first) as usize) {
            flight.held = flight.held.saturating_sub(1);
        }
        self.release();
    }

    /// What a header, and the body of an acknowledgement, say of what arrived.
    /// Returns whether anything is new.
    pub(crate) fn handle_ack(
        &mut self,
        sender_config: &SenderConfig,
        now: Instant,
        header: &FrameHeader,
        more_sack: &[u8],
        is_late: bool,
    ) -> Result<bool, Refusal> {
        let (ack, next) = (Serial32(header.ack), self.next());
        if next.precedes(ack) {
            return Err(Refusal::OutOfBounds);
        }
        if ack.precedes(self.acked) {
            return Ok(false); // Overtaken by a later one.
        }
        self.edge = self.edge.later(ack.plus(u32::from(header.credit).min(1 << 15)));
        if ack == self.acked && header.sack == 0 {
            return Ok(false);
        }
        let mut batch = Batch::default();
        let under_way = self.under_way;
        for n in 0..ack.since(self.acked) {
            self.handle_arrived(sender_config, now, self.acked.plus(n), &mut batch);
        }
        for n in self.acked.since(self.first)..ack.since(self.first) {
            let flight = &self.flights[n as usize];
            self.unacked_bytes -= u64::from(flight.stored.frame_len());
        }
        self.acked = ack;
        let later = more_sack.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
        for (nth, mut word) in core::iter::once(header.sack).chain(later).enumerate() {
            while word != 0 {
                let n = nth as u32 * 64 + word.trailing_zeros() + 1;
                word &= word - 1;
                if ack.plus(n).precedes(next) {
                    self.handle_arrived(sender_config, now, ack.plus(n), &mut batch);
                }
            }
        }
        self.update_window(sender_config, now, &batch, header.marks, under_way, is_late);
        self.find_lost(sender_config, now);
        self.release();
        let is_new = batch.bytes > 0;
        if is_new {
            (self.since, self.backoff) = (now, 0);
        }
        Ok(is_new)
    }

    /// One frame has arrived.
    fn handle_arrived(
        &mut self,
        sender_config: &SenderConfig,
        now: Instant,
        seq: Serial32,
        batch: &mut Batch,
    ) {
        // It is none of those that are waited for: it came before.
        let Some(flight) = self.flights.get_mut(seq.since(self.first) as usize) else { return };
        let len = u64::from(flight.stored.frame_len());
        let before = core::mem::replace(&mut flight.whereabouts, FrameState::Arrived);
        let flight = *flight;
        match before {
            FrameState::Arrived => return,
            FrameState::UnderWay => self.under_way -= len,
            FrameState::Lost => self.lost -= 1,
        }
        batch.bytes += len;
        // Of a frame that was sent twice nobody knows which of the two arrived:
        // the first, if the answer came sooner than any can (RFC 8985, 6.2).
        let shortest = self.window.rtt().shortest().unwrap_or_default();
        let was_needless =
            before == FrameState::Lost || flight.times > 1 && now.since(flight.sent) < shortest;
        if was_needless {
            let most = MOST_REORDERING.min(sender_config.frames as u32).max(REORDERING);
            self.reordering = (self.reordering * 2).min(most);
            return;
        }
        let newest = (flight.serial, flight.sent, flight.times == 1);
        if batch.newest.is_none_or(|(serial, ..)| serial.precedes(flight.serial)) {
            batch.newest = Some(newest);
        }
        if self.newest_arrived.is_none_or(|serial| serial.precedes(flight.serial)) {
            self.newest_arrived = Some(flight.serial);
        }
    }

    fn update_window(
        &mut self,
        sender_config: &SenderConfig,
        now: Instant,
        batch: &Batch,
        marks: u8,
        under_way: u64,
        is_late: bool,
    ) {
        if batch.bytes == 0 {
            return;
        }
        let marked = (1..128).contains(&marks.wrapping_sub(self.marks));
        if marked {
            self.marks = marks;
        }
        let (sent, timed) =
            batch.newest.map_or((self.since, false), |(_, sent, once)| (sent, once));
        let timed = timed && !is_late;
        let arrived = Arrived { bytes: batch.bytes, sent, timed, marked, under_way };
        self.window.handle_arrived(&sender_config.congestion, now, &arrived);
    }

    /// Transmissions that later ones have overtaken by a margin are lost.
    fn find_lost(&mut self, sender_config: &SenderConfig, now: Instant) {
        // Nothing has overtaken anything yet.
        let Some(newest) = self.newest_arrived else { return };
        // RFC 9002, 6.1.2.
        let smoothed = self.window.rtt().smoothed().unwrap_or(sender_config.retry_after);
        let patience = (smoothed * 9 / 8).max(Duration::from_millis(1));
        while let Some(seq) = self.order.front() {
            let serial = self.oldest;
            let flight = self.flights.get_mut(seq.since(self.first) as usize);
            if let Some(flight) = flight
                && flight.whereabouts == FrameState::UnderWay
                && flight.serial == serial
            {
                let is_overtaken = newest.offset_from(serial) >= self.reordering as i32;
                let is_old = serial.precedes(newest) && now.since(flight.sent) > patience;
                if !is_overtaken && !is_old {
                    return;
                }
                let (sent, len) = (flight.sent, u64::from(flight.stored.frame_len()));
                self.lose(*seq);
                if sender_config.yields {
                    self.window.handle_lost(&sender_config.congestion, now, sent, len);
                }
            }
            self.order.pop_front();
            self.oldest = self.oldest.plus(1);
        }
    }

    /// A frame under way is to be sent again.
    fn lose(&mut self, seq: Serial32) {
        // It is none of those that are waited for: it came before.
        let Some(flight) = self.flights.get_mut(seq.since(self.first) as usize) else { return };
        if flight.whereabouts == FrameState::UnderWay {
            landfall_placement::trace!(?seq, "lost");
            flight.whereabouts = FrameState::Lost;
            self.under_way -= u64::from(flight.stored.frame_len());
            self.lost += 1;
            if seq.precedes(self.lost_from) {
                self.lost_from = seq;
            }
        }
    }

    /// Nothing new arrived for a whole time-out: first the oldest frame is sent
    /// again, to hear what is missing; if that is not heard either, all are. A host
    /// that has much to do pauses for longer than most round trips take, and that is
    /// no reason to begin anew (RFC 9002, 7.6.1).
    pub(crate) fn handle_timeout(&mut self, sender_config: &SenderConfig, now: Instant) {
        self.backoff = self.backoff.saturating_add(1);
        self.since = now;
        let oldest = (0..self.flights.len())
            .find(|n| self.flights[*n].whereabouts != FrameState::Arrived)
            .map(|n| self.first.plus(n as u32));
        // All has arrived.
        let Some(oldest) = oldest else { return };
        let is_probe = match sender_config.yields {
            true => self.window.handle_silence(&sender_config.congestion, now, self.backoff),
            false => sender_config.congestion.is_probe(self.backoff),
        };
        if is_probe {
            return self.lose(oldest);
        }
        for n in oldest.since(self.first)..self.flights.len() as u32 {
            self.lose(self.first.plus(n));
        }
        self.oldest = self.oldest.plus(self.order.len() as u32);
        self.order.clear();
        self.paced = now;
    }

    /// When what is under way should have been answered.
    pub(crate) fn timeout_at(&self, sender_config: &SenderConfig) -> Option<Instant> {
        (!self.is_idle()).then(|| self.since + self.patience(sender_config))
    }

    /// How long to wait for an answer (RFC 6298, 2.3), longer each time.
    pub(crate) fn patience(&self, sender_config: &SenderConfig) -> Duration {
        let rtt = self.window.rtt();
        let once = match (rtt.smoothed(), rtt.variation()) {
            (Some(smoothed), Some(variation)) => {
                smoothed.saturating_add(variation.saturating_mul(4)).max(sender_config.retry_floor)
            }
            _ => sender_config.retry_after,
        };
        once.saturating_mul(1 << self.backoff.min(4))
    }

    /// Frames that arrived and that nobody holds go back to their owner, in order.
    fn release(&mut self) {
        while let Some(flight) = self.flights.front()
            && flight.whereabouts == FrameState::Arrived
            && flight.held == 0
            && self.first.precedes(self.acked)
        {
            self.retransmit.take_away(&flight.stored);
            self.flights.pop_front();
            self.first = self.first.plus(1);
            self.released += 1;
        }
    }

    /// The link is gone: what was sent goes back as soon as nobody holds it.
    pub(crate) fn abandon(&mut self) {
        for flight in &mut self.flights {
            flight.whereabouts = FrameState::Arrived;
        }
        self.acked = self.next();
        (self.under_way, self.unacked_bytes, self.lost) = (0, 0, 0);
        self.order = VecDeque::new();
        self.release();
    }

    pub(crate) fn poll_note(&mut self) -> Option<N> {
        self.retransmit.poll_note()
    }

    /// Has everything gone back to its owner?
    pub(crate) fn is_drained(&self) -> bool {
        self.flights.is_empty() && !self.retransmit.has_notes()
    }
}

#[cfg(test)]
mod tests;
