//! What a segment does to a connection (RFC 9293, 3.10.7, with RFC 5961 and 7323).
//!
//! A segment with payload is looked at twice: [`Tcb::place`] only says where the
//! payload belongs, and changes nothing but claims; once the driver has put it
//! there and its checksum is right, [`Tcb::landed`] lets it count.

use landfall_placement::{Duration, Instant, Refusal, Spans};

use super::config::{Mapping, TcpConfig};
use super::ecn::EcnFeedback;
use super::immediate::Agreement;
use super::listen::{OwnNumbers, Terms};
use super::receiver::{Claim, Payload};
use super::recovery::{Ack, CLOCK_STEP};
use super::segment::{Draft, Joined, Segment};
use super::state::ConnectionState as State;
use super::tcb::{CloseReason, Landed, Placed, Tcb};
use crate::queue::Queues;
use crate::wire::tcp::Flags;

/// RFC 5961, 7: this many challenges within the time are enough for anybody.
const MOST_CHALLENGES: u8 = 10;
const CHALLENGE_SPAN: Duration = Duration::from_secs(5);

/// What became of a segment.
pub(crate) type SegmentResult = Result<Option<Draft>, Refusal>;

impl Tcb {
    /// Does what a segment says beside its payload allow it to have one?
    #[inline]
    fn takes_payload(&self, now: Instant, segment: &Segment) -> bool {
        let is_old = self.is_from_the_past(now, segment);
        let is_plain =
            !segment.flags.intersects(Flags::SYN | Flags::RST) && segment.has(Flags::ACK);
        // Who acknowledges the answer of a simultaneous opening may send with it.
        let is_proved = self.state == State::SynReceived && self.belongs_to_opening(segment);
        let is_open = self.state.is_synchronized() || is_proved;
        let is_refused = !is_plain || is_old || !is_open || self.may_be_anybodys(segment);
        !is_refused && !self.receiver.is_finished() && self.is_acknowledgement_possible(segment)
    }

    /// Is it ahead of what is expected, without the timestamp that was agreed on (RFC 7323, 3.2)?
    /// Anybody has good chances to guess such numbers where windows are wide, and what it
    /// acknowledges would never be sent again. One that is next is believed: some middleboxes take
    /// timestamps away.
    #[inline]
    fn may_be_anybodys(&self, segment: &Segment) -> bool {
        self.stamps.is_some()
            && segment.options.timestamp.is_none()
            && self.receiver.position_of(segment.seq) > self.receiver.next() as i64
    }

    /// Has the payload of a segment a place in the window, and not in memory?
    pub(crate) fn lacks_memory(&self, now: Instant, segment: &Segment, queues: &Queues) -> bool {
        let at = self.receiver.position_of(segment.seq);
        self.receiver.lacks_memory(at, segment.payload, &queues.receive)
            && self.takes_payload(now, segment)
    }

    /// Where the payload of a segment belongs. Its checksum was not looked at, but all
    /// else that [`check`](Self::check) asks: what has a place here is not asked again.
    #[inline]
    pub(crate) fn place(
        &mut self,
        now: Instant,
        segment: &Segment,
        queues: &Queues,
        into: &mut Spans,
    ) -> Placed {
        if !self.takes_payload(now, segment) {
            return Placed { skip: 0, claim: Claim::default() };
        }
        let at = self.receiver.position_of(segment.seq);
        let is_pushed = segment.has(Flags::PSH);
        let (skip, claim) =
            self.receiver.claim(at, segment.payload, is_pushed, &queues.receive, into);
        Placed { skip, claim }
    }

    /// A segment's payload is in its place, or failed its check.
    #[inline]
    pub(crate) fn landed(
        &mut self,
        now: Instant,
        segment: &Segment,
        landed: Landed,
        config: &TcpConfig,
        queues: &mut Queues,
    ) -> SegmentResult {
        let Landed { claim, is_good } = landed;
        if !is_good {
            self.receiver.give_up(claim);
            return Ok(None);
        }
        if self.misses_word(segment) {
            self.receiver.give_up(claim);
            return self.refuse_without_word(now, segment, config, queues);
        }
        let verdict = self.process(now, segment, claim, config, queues);
        if verdict.is_err() {
            self.receiver.give_up(claim);
        }
        verdict
    }

    /// A segment without payload came; its checksum is right.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        segment: &Segment,
        config: &TcpConfig,
        queues: &mut Queues,
    ) -> SegmentResult {
        self.process(now, segment, Claim::default(), config, queues)
    }

    fn process(
        &mut self,
        now: Instant,
        segment: &Segment,
        claim: Claim,
        config: &TcpConfig,
        queues: &mut Queues,
    ) -> SegmentResult {
        match self.state {
            State::Closed => Err(Refusal::Unexpected),
            State::SynSent => self.handle_answer(now, segment, config, queues),
            _ => {
                // What has its place was checked when it got that. What came in between
                // would make it look old, and bytes that lie in place would be dropped.
                if claim.is_empty() {
                    self.check(now, segment, queues)?;
                }
                self.take(now, segment, claim, config, queues)
            }
        }
    }

    /// Is it from an earlier use of these numbers (PAWS)? Resets are not asked.
    fn is_from_the_past(&self, now: Instant, segment: &Segment) -> bool {
        let stamps = self.stamps.as_ref().zip(segment.options.timestamp);
        !segment.has(Flags::RST)
            && stamps.is_some_and(|(stamps, (value, _))| stamps.is_old(now, value))
    }

    /// Everything that can speak against a segment, before anything counts.
    #[inline]
    fn check(
        &mut self,
        now: Instant,
        segment: &Segment,
        queues: &mut Queues,
    ) -> Result<(), Refusal> {
        let at = self.receiver.position_of(segment.seq);
        if self.is_from_the_past(now, segment) {
            self.answer_unacceptable(now, segment);
            return Err(Refusal::Duplicate);
        }
        if !self.receiver.is_acceptable(at, segment.len()) {
            return self.refuse_outside(now, at, segment);
        }
        if segment.has(Flags::RST) {
            return self.handle_reset(now, at, queues);
        }
        if segment.has(Flags::SYN) {
            // RFC 5961, 4.2: anyone who really opened anew will reset.
            self.challenge(now);
            return Err(Refusal::Unexpected);
        }
        if !segment.has(Flags::ACK) {
            return Err(Refusal::Malformed);
        }
        if !self.is_acknowledgement_possible(segment) {
            self.challenge(now);
            return Err(Refusal::OutOfBounds);
        }
        if self.may_be_anybodys(segment) {
            self.answer_unacceptable(now, segment);
            return Err(Refusal::WrongKey);
        }
        Ok(())
    }

    /// RFC 5961, 5.2: was it sent, and not too long ago?
    #[inline]
    fn is_acknowledgement_possible(&self, segment: &Segment) -> bool {
        let acknowledged = self.sender.position_of(segment.ack);
        // Into a window that was never open go a probe and the end nevertheless, and what
        // the peer sends with its data may be older than its word on those.
        let widest = self.sender.widest.max(2);
        let oldest = self.sender.acknowledged() as i64 - i64::from(widest);
        acknowledged <= self.sender.flight.next() as i64 && acknowledged >= oldest
    }

    /// It does not touch the window: they do not know what we have.
    fn refuse_outside(&mut self, now: Instant, at: i64, segment: &Segment) -> Result<(), Refusal> {
        if segment.has(Flags::RST) {
            return Err(Refusal::OutOfBounds);
        }
        // The answer of a simultaneous opening repeats the opening.
        let is_answer = self.state == State::SynReceived && at == 0 && segment.has(Flags::SYN);
        if is_answer && segment.has(Flags::ACK) {
            return Ok(());
        }
        if is_answer && self.is_fast_server() {
            // They did not hear our answer.
            self.opening.is_due = true;
            return Err(Refusal::Duplicate);
        }
        if at == 0 && segment.has(Flags::SYN) && segment.has(Flags::ACK) {
            self.note_answer_again(segment);
        }
        self.answer_unacceptable(now, segment);
        let is_before = at + i64::from(segment.len()) <= self.receiver.next() as i64;
        if is_before && !segment.has(Flags::SYN) {
            self.receiver.note_old(at, segment.payload);
        }
        Err(if is_before { Refusal::Duplicate } else { Refusal::OutOfBounds })
    }

    /// RFC 9293, 3.10.7.4: what is not acceptable is acknowledged. Data is each time: it
    /// comes again because an acknowledgement was lost. All else may be the answer of a
    /// stack that takes ours for as unacceptable: two of them must not go on for ever, nor
    /// may a stranger draw one for each opening (RFC 5961, 7).
    fn answer_unacceptable(&mut self, now: Instant, segment: &Segment) {
        if segment.len() > 0 && !segment.has(Flags::SYN) {
            self.receiver.owe_now();
        } else {
            self.challenge(now);
        }
    }

    /// RFC 5961, 3.2: only the very next number resets.
    fn handle_reset(&mut self, now: Instant, at: i64, queues: &mut Queues) -> Result<(), Refusal> {
        if at != self.receiver.next() as i64 {
            self.challenge(now);
            return Err(Refusal::WrongKey);
        }
        let reason = if self.state == State::SynReceived {
            CloseReason::Refused
        } else {
            CloseReason::Reset
        };
        self.close(reason, None, queues);
        Err(Refusal::Unexpected)
    }

    /// Says where we are, to anyone who is on the other side, but not too often.
    fn challenge(&mut self, now: Instant) {
        if now.since(self.challenged) >= CHALLENGE_SPAN {
            (self.challenged, self.challenges) = (now, 0);
        }
        if self.challenges < MOST_CHALLENGES {
            self.challenges += 1;
            self.receiver.owe_now();
        }
    }

    /// Nothing speaks against it.
    fn take(
        &mut self,
        now: Instant,
        segment: &Segment,
        claim: Claim,
        config: &TcpConfig,
        queues: &mut Queues,
    ) -> SegmentResult {
        let at = self.receiver.position_of(segment.seq);
        if self.state == State::SynReceived {
            if !self.belongs_to_opening(segment) {
                let reset = self.reset(now, Flags::RST, segment.ack);
                return Ok(Some(reset));
            }
            if self.sender.position_of(segment.ack) > 0 {
                self.become_open(now);
                // More may be posted than an opening can offer.
                self.handle_posted_receive(queues);
            } else {
                self.tell_early();
            }
        }
        self.heard = now;
        self.alive_probes = 0;
        // Where messages wait for memory nothing is acknowledged, however long it takes: who
        // answers is there all the same.
        self.sender.heard(now, !matches!(self.mapping, Mapping::Stream));
        let told_before = self.handle_ecn(now, segment, queues);
        if self.immediates.agreement != Agreement::Nothing {
            self.handle_immediate(segment, at, &claim);
        }
        let told = self.receiver.reported() as i64;
        if let (Some(stamps), Some((value, _))) = (&mut self.stamps, segment.options.timestamp)
            && at <= told.max(1)
        {
            stamps.learn(now, value);
        }
        self.handle_acknowledgement(now, segment, at, config, queues);
        if self.state == State::Closed {
            return Ok(self.last_words(now, queues).or(told_before));
        }
        if segment.payload > 0 && !self.receiver.is_finished() {
            let is_pushed = segment.has(Flags::PSH);
            let delay = config.acknowledge_after;
            let len = segment.payload;
            let Joined { longest, last } =
                segment.joined.unwrap_or(Joined { longest: len, last: len });
            let payload = Payload { at, len, longest, last };
            self.receiver.accept(now, payload, is_pushed, claim, &mut queues.receive, delay);
            if segment.coalesced.is_some() {
                self.receiver.owe_now();
            }
        }
        self.handle_fin(now, segment, at, config, queues);
        self.limit_half_close(now, config, queues);
        Ok(self.last_words(now, queues).or(told_before))
    }

    /// Who enters TIME-WAIT is polled no more, and still has to acknowledge the
    /// other side's end.
    fn last_words(&mut self, now: Instant, queues: &Queues) -> Option<Draft> {
        let is_owed = self.state == State::Closed && self.receiver.is_owed_now();
        is_owed.then(|| self.ack_segment(now, queues))
    }

    /// RFC 3168, 6.1.3: marks are echoed until the other side says that it heard. Returns
    /// what is to be told first, where each mark is.
    #[inline]
    fn handle_ecn(&mut self, now: Instant, segment: &Segment, queues: &Queues) -> Option<Draft> {
        if !self.ecn.is_on {
            return None;
        }
        if self.ecn.is_accurate {
            self.count_marks(segment);
            return None;
        }
        if self.ecn.echoes_each {
            return self.echo_each_mark(now, segment, queues);
        }
        if segment.has(Flags::CWR) {
            self.ecn.set_echo(false);
        }
        if segment.ecn == landfall_placement::Ecn::CongestionExperienced {
            self.ecn.set_echo(true);
            self.receiver.owe_now();
        }
        None
    }

    /// RFC 8257, 3.2: an acknowledgement says whether what it covers was marked. Where that
    /// changes, what came before is acknowledged by itself.
    fn echo_each_mark(
        &mut self,
        now: Instant,
        segment: &Segment,
        queues: &Queues,
    ) -> Option<Draft> {
        let is_marked = segment.ecn == landfall_placement::Ecn::CongestionExperienced;
        if segment.payload == 0 || is_marked == self.ecn.echoes() {
            return None;
        }
        let is_owed = self.receiver.next() > self.receiver.reported().max(1);
        let before = is_owed.then(|| self.ack_segment(now, queues));
        self.ecn.set_echo(is_marked);
        before
    }

    fn handle_acknowledgement(
        &mut self,
        now: Instant,
        segment: &Segment,
        at: i64,
        config: &TcpConfig,
        queues: &mut Queues,
    ) {
        let upto = self.sender.position_of(segment.ack).max(0) as u64;
        let scale = if segment.has(Flags::SYN) { 0 } else { self.sender.scale };
        let ack = Ack {
            upto,
            at: at.max(0) as u64,
            window: u64::from(segment.window) << scale,
            is_in_order: at <= self.receiver.next() as i64,
            is_bare: segment.len() == 0,
            echo: self.echoed(now, segment),
            is_marked: self.ecn.is_on && self.may_tell_marks(segment),
            asks_again: segment.len() == 0 && segment.has(Flags::PSH),
        };
        let outcome = self.sender.handle_ack(now, &ack, &segment.options.sack);
        if outcome.reduced {
            self.ecn.says_reduced = !self.ecn.is_accurate;
        }
        if outcome.acknowledged > 0 {
            queues.send.finish(self.sender.acknowledged());
            if self.sender.is_end_acknowledged() {
                self.end_acknowledged(now, config, queues);
            }
        }
    }

    /// The latest moment at which the timestamp that they echo can have been sent.
    fn echoed(&self, now: Instant, segment: &Segment) -> Option<Instant> {
        let (_, echo) = segment.options.timestamp?;
        let (ours, _) = self.stamps.as_ref()?.option(now);
        let age = ours.wrapping_sub(echo);
        // The clock has steps: it may have been read at the end of its step.
        (age < 1 << 31).then(|| now - Duration::from_millis(u64::from(age)) + CLOCK_STEP)
    }

    fn handle_fin(
        &mut self,
        now: Instant,
        segment: &Segment,
        at: i64,
        config: &TcpConfig,
        queues: &mut Queues,
    ) {
        if segment.has(Flags::FIN) {
            let position = at + i64::from(segment.payload);
            let next = self.receiver.next() as i64;
            if position >= next {
                self.receiver.learn_fin(position as u64, &mut queues.receive);
            } else {
                self.receiver.owe_now();
            }
        }
        // The end may have come before; now what was in front of it came.
        if self.receiver.is_finished() && !self.is_peer_finished_told() {
            self.peer_finished(now, config, queues);
        }
    }

    /// The answer to our opening, or theirs at the same time (RFC 9293, 3.10.7.3).
    fn handle_answer(
        &mut self,
        now: Instant,
        segment: &Segment,
        config: &TcpConfig,
        queues: &mut Queues,
    ) -> SegmentResult {
        let expected = self.terms.local_first.wrapping_add(1);
        let acknowledges = segment.has(Flags::ACK);
        let (sent, taken) = (self.first_data_sent(), segment.ack.wrapping_sub(expected));
        if acknowledges && taken > sent {
            let reset =
                (!segment.has(Flags::RST)).then(|| self.reset(now, Flags::RST, segment.ack));
            return if reset.is_some() { Ok(reset) } else { Err(Refusal::WrongKey) };
        }
        if segment.has(Flags::RST) {
            if acknowledges {
                self.close(CloseReason::Refused, None, queues);
            }
            return Err(Refusal::Unexpected);
        }
        if !segment.has(Flags::SYN) {
            return Err(Refusal::Unexpected);
        }
        let clock_offset = self.terms.stamps.map_or(0, |stamps| stamps.clock_offset);
        let numbers = OwnNumbers { first: self.terms.local_first, clock_offset };
        let terms = Terms::agree(config, numbers, self.ends().remote, segment);
        let offered = u64::from(super::receiver::Receiver::first_window(&queues.receive));
        self.agree(now, config, terms, offered);
        let was_marked = self.begin_to_count_marks(segment);
        self.first_data_answered(segment);
        self.sender.sent_first(self.opening.sent_at, sent);
        if acknowledges {
            self.become_open(now);
            self.receiver.owe_now();
            let ack = Ack {
                upto: 1 + u64::from(taken),
                at: 0,
                window: u64::from(segment.window),
                is_in_order: true,
                is_bare: false,
                echo: None,
                is_marked: false,
                asks_again: false,
            };
            self.sender.handle_ack(now, &ack, &segment.options.sack);
            if was_marked {
                self.sender.opening_was_marked();
            }
            queues.send.finish(self.sender.acknowledged());
        } else {
            self.state = State::SynReceived;
            self.opening.is_due = true;
            self.opening.tries = 0;
        }
        // What they did not take leaves again, as if it had never left.
        self.sender.send_again_from(now, self.sender.acknowledged());
        Ok(None)
    }
}

impl Tcb {
    /// How marks are told of.
    pub(crate) const fn ecn_feedback(&self) -> EcnFeedback {
        self.terms.ecn
    }

    /// How far the connection is.
    pub(crate) const fn state(&self) -> State {
        self.state
    }

    /// Is a segment with this number under way? Anybody can write an error; who
    /// does not see what we send has to guess this (RFC 5927, 4.1).
    pub(crate) fn is_under_way(&self, number: u32) -> bool {
        match self.state {
            State::Closed => false,
            State::SynSent | State::SynReceived => number == self.terms.local_first,
            _ => {
                let position = self.sender.position_of(number);
                let oldest = self.sender.acknowledged() as i64;
                position >= oldest && position < self.sender.flight.next() as i64
            }
        }
    }

    /// The segment with this number was too long for the path, and so were those behind
    /// it: they leave again at once, in shorter ones (RFC 1191, 6.4).
    pub(crate) fn handle_shorter_path(&mut self, now: Instant, number: u32) {
        if let Ok(position) = u64::try_from(self.sender.position_of(number))
            && self.state.is_synchronized()
        {
            self.sender.send_again_from(now, position);
        }
    }

    /// The part of a request that was reported last was polled: what came
    /// meanwhile may be told.
    pub(crate) fn handle_polled_part(&mut self, queues: &mut Queues) {
        if self.state.is_synchronized() && matches!(self.mapping, Mapping::Stream) {
            self.receiver.report(&mut queues.receive);
        }
    }
}
