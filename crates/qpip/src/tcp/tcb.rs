//! [`Tcb`]: one connection, with the states of RFC 9293, 3.3.2.

use alloc::boxed::Box;
use core::fmt;

use landfall_placement::{Duration, Instant, Span};

use super::accurate_ecn::AccurateEcn;
use super::config::{Mapping, TcpConfig};
use super::ecn::{EcnFeedback, EcnState};
use super::fast_open::FastOpen;
use super::immediate::Immediates;
use super::listen::{FirstStamps, HalfOpen, Secret, Terms};
use super::receiver::{Claim, Receiver};
use super::segment::{Draft, Timestamps};
use super::sender::Sender;
use super::state::ConnectionState as State;
use super::time_wait::TimeWait;
use super::{Ends, OwnOffer};
use crate::ip::size_search::ProbeOutcome;
use crate::offload;
use crate::queue::Queues;
use crate::wire::tcp::Flags;
use crate::work::Status;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Both sides have said all they had to say.
    Finished,
    /// Nobody listens there.
    Refused,
    /// The other side reset the connection.
    Reset,
    /// The other side stopped answering, or never did.
    TimedOut,
    /// The network says that there is no way.
    Unreachable,
    /// This side gave it up.
    Aborted,
    /// A device on the path takes options out of segments that both sides had agreed on, and
    /// with them words that belong to messages.
    OptionsRemoved,
}

impl CloseReason {
    /// What becomes of requests that are left.
    pub(crate) const fn status(self) -> Status {
        match self {
            Self::Finished | Self::Aborted | Self::OptionsRemoved => Status::Flushed,
            Self::Refused | Self::Reset => Status::Reset,
            Self::TimedOut => Status::TimedOut,
            Self::Unreachable => Status::Unreachable,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finished => "both sides have closed",
            Self::Refused => "nobody listens there",
            Self::Reset => "the other side reset the connection",
            Self::TimedOut => "the other side does not answer",
            Self::Unreachable => "there is no way to the other side",
            Self::Aborted => "given up by this side",
            Self::OptionsRemoved => "a device on the path removes TCP options",
        })
    }
}

/// What the adapter has to know of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnectionEvent {
    /// It is open.
    Connected,
    /// The other side will send no more.
    PeerFinished,
    /// It is over. What is left has to be remembered for a while.
    Closed(CloseReason, Option<TimeWait>),
}

/// Where a segment's payload belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// How many bytes of it are skipped.
    pub(crate) skip: u32,
    /// To be handed back with the landing.
    pub(crate) claim: Claim,
}

/// What became of a payload whose place was claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landed {
    pub(crate) claim: Claim,
    /// It is in its place, and its checksum is right.
    pub(crate) is_good: bool,
}

/// What was not told yet, each once.
#[derive(Clone, Copy, Debug)]
struct PendingEvents {
    connected: bool,
    peer_finished: bool,
    /// Why it is over.
    closed: Option<CloseReason>,
}

/// An opening that is repeated until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) is_due: bool,
    pub(super) tries: u8,
    pub(super) sent_at: Instant,
    /// The largest segment that we want.
    pub(super) mss: u16,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Tcb {
    pub(crate) ends: offload::Ends,
    pub(super) state: State,
    pub(super) mapping: Mapping,
    pub(super) terms: Terms,
    pub(super) stamps: Option<Timestamps>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) opening: Opening,
    pub(super) fast_open: Option<Box<FastOpen>>,
    pub(super) ecn: EcnState,
    pub(super) immediates: Immediates,
    /// The bytes of TCP header and options in front of a payload, at most.
    pub(super) header_len: u8,
    /// The user said that nothing more will be sent.
    pub(super) is_shut: bool,
    /// When something of the other side came last.
    pub(super) heard: Instant,
    /// Questions whether the other side is there, without an answer.
    pub(super) alive_probes: u8,
    pub(super) is_probe_due: bool,
    /// When something has to happen for the state alone: an opening is repeated, a closed half
    /// waits for the other no longer, what is closed is not remembered any more.
    state_until: Instant,
    /// RFC 5961, 7: since when this many challenges were sent.
    pub(super) challenged: Instant,
    pub(super) challenges: u8,
    pending_events: PendingEvents,
}

const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

impl Tcb {
    pub(crate) fn ends(&self) -> Ends {
        let (local, remote) = self.ends.addresses();
        Ends { local, remote }
    }

    /// A connection that we ask for.
    pub(crate) fn connect(
        now: Instant,
        config: &TcpConfig,
        secret: &Secret,
        ends: Ends,
        mapping: Mapping,
        mss: u16,
    ) -> Self {
        let Ends { local, remote } = ends;
        let clock_offset = secret.clock_offset(local, remote);
        let terms = Terms {
            local_first: secret.first_number(now, local, remote),
            remote_first: 0,
            local_scale: 0,
            remote_scale: 0,
            remote_mss: Terms::usual_mss(remote),
            sack: false,
            stamps: Some(FirstStamps { clock_offset, theirs: 0 }),
            ecn: EcnFeedback::None,
            immediates: false,
        };
        let mut tcb = Self::new(now, config, ends, mapping, terms, OwnOffer { window: 0, mss });
        tcb.state = State::SynSent;
        tcb.stamps = None;
        tcb.set_header_len();
        tcb.opening.is_due = true;
        tcb
    }

    /// A connection that was asked for, when it has proved that it hears us.
    /// The segment that proved it is handed in next.
    pub(crate) fn accept(
        now: Instant,
        config: &TcpConfig,
        half: &HalfOpen,
        mapping: Mapping,
        mss: u16,
    ) -> Self {
        let own = OwnOffer { window: half.offered, mss };
        let mut tcb = Self::new(now, config, half.ends(), mapping, half.terms, own);
        match half.round_trip(now) {
            Some(rtt) => tcb.sender.sample(now, rtt),
            None if half.was_repeated() => tcb.sender.opening_was_lost(),
            None => {}
        }
        tcb.ecn.is_capable &= !half.left_ecn_out;
        if half.greeting.is_some() {
            tcb.hear_of_words(half.greeting);
        }
        tcb.pending_events.connected = true;
        tcb
    }

    pub(super) fn new(
        now: Instant,
        config: &TcpConfig,
        ends: Ends,
        mapping: Mapping,
        terms: Terms,
        own: OwnOffer,
    ) -> Self {
        let mut tcb = Self {
            ends: offload::Ends::new(ends.local, ends.remote),
            state: State::Established,
            mapping,
            terms,
            stamps: terms
                .stamps
                .map(|stamps| Timestamps::new(stamps.clock_offset, stamps.theirs, now)),
            sender: Sender::new(now, config, &terms),
            receiver: Receiver::new(
                terms.remote_first,
                mapping,
                own.window.into(),
                terms.local_scale,
            ),
            opening: Opening { is_due: false, tries: 0, sent_at: now, mss: own.mss },
            fast_open: None,
            ecn: EcnState::new(config, &terms),
            immediates: Immediates::new(terms.immediates, false, mapping),
            header_len: 0,
            is_shut: false,
            heard: now,
            alive_probes: 0,
            is_probe_due: false,
            state_until: now + FIRST_TIMEOUT,
            challenged: now,
            challenges: 0,
            pending_events: PendingEvents { connected: false, peer_finished: false, closed: None },
        };
        tcb.terms.immediates = tcb.immediates.marks_ends();
        if terms.ecn == EcnFeedback::Accurate {
            tcb.sender.count_marks_of(AccurateEcn::new(true));
        }
        tcb.set_header_len();
        tcb
    }

    /// The other side answered our opening: from now on the terms are known.
    pub(super) fn agree(&mut self, now: Instant, config: &TcpConfig, terms: Terms, offered: u64) {
        self.terms = terms;
        self.stamps =
            terms.stamps.map(|stamps| Timestamps::new(stamps.clock_offset, stamps.theirs, now));
        self.ecn = EcnState::new(config, &terms);
        self.agree_on_words(terms.immediates);
        self.set_header_len();
        self.receiver = Receiver::new(terms.remote_first, self.mapping, offered, terms.local_scale);
        self.sender = Sender::new(now, config, &terms);
        if self.opening.tries <= 1 {
            self.sender.sample(now, now.since(self.opening.sent_at));
        } else {
            self.sender.opening_was_lost();
        }
    }

    pub(super) fn become_open(&mut self, now: Instant) {
        self.state = State::Established;
        self.heard = now;
        self.pending_events.connected |= self.finish_fast_server(now);
    }

    /// The user hears of the connection before the handshake is over.
    pub(super) fn tell_early(&mut self) {
        self.pending_events.connected |= self.note_first_data();
    }

    /// What happened since it was last asked.
    pub(crate) fn poll_event(&mut self) -> Option<ConnectionEvent> {
        if core::mem::take(&mut self.pending_events.connected) {
            return Some(ConnectionEvent::Connected);
        }
        if core::mem::take(&mut self.pending_events.peer_finished) {
            return Some(ConnectionEvent::PeerFinished);
        }
        let reason = self.pending_events.closed.take()?;
        let until = self.state_until;
        let remembered = (until != Instant::FAR_FUTURE).then(|| self.time_wait(until));
        Some(ConnectionEvent::Closed(reason, remembered))
    }

    /// Nothing more will be posted to the send queue: the end follows what is
    /// there. The other direction goes on.
    pub(crate) fn shutdown(&mut self) {
        self.is_shut = true;
    }

    /// Has the end of the other side's stream been taken notice of?
    pub(super) const fn is_peer_finished_told(&self) -> bool {
        matches!(self.state, State::CloseWait | State::Closing | State::LastAck | State::Closed)
    }

    /// Is nothing left of it?
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Is it open, in at least one direction?
    pub(crate) const fn is_synchronized(&self) -> bool {
        self.state.is_synchronized()
    }

    /// May sends be posted?
    pub(crate) fn can_send(&self) -> bool {
        !self.is_shut && self.state != State::Closed
    }

    /// May more come?
    pub(crate) fn can_receive(&self) -> bool {
        self.state != State::Closed && !self.receiver.is_finished()
    }

    /// Returns the connection up. The reset has to be sent, where there is
    /// somebody who would otherwise wait.
    pub(crate) fn abort(
        &mut self,
        now: Instant,
        reason: CloseReason,
        queues: &mut Queues,
    ) -> Option<Draft> {
        let is_known = self.state.is_synchronized() || self.state == State::SynReceived;
        let next = self.sender.next_number();
        let draft = is_known.then(|| self.reset(now, Flags::RST | Flags::ACK, next));
        self.close(reason, None, queues);
        draft
    }

    pub(super) fn close(
        &mut self,
        reason: CloseReason,
        remembered_until: Option<Instant>,
        queues: &mut Queues,
    ) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.pending_events.closed = Some(reason);
        self.state_until = remembered_until.unwrap_or(Instant::FAR_FUTURE);
        self.sender.stop();
        queues.flush(reason.status());
    }

    /// The other side's stream has ended.
    pub(super) fn peer_finished(&mut self, now: Instant, config: &TcpConfig, queues: &mut Queues) {
        self.pending_events.peer_finished = true;
        queues.receive.flush(Status::Flushed);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.wait_out(now, config, queues),
            _ => {}
        }
    }

    /// The other side has heard our end.
    pub(super) fn end_acknowledged(
        &mut self,
        now: Instant,
        config: &TcpConfig,
        queues: &mut Queues,
    ) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.limit_half_close(now, config, queues);
            }
            State::Closing => self.wait_out(now, config, queues),
            State::LastAck => self.close(CloseReason::Finished, None, queues),
            _ => {}
        }
    }

    /// Who has ended its own half and receives on may do so for as long as it likes: the
    /// other side sends when it sends. Only where nobody waits for anything does the end
    /// have to come, for nothing else would end the connection.
    pub(super) fn limit_half_close(&mut self, now: Instant, config: &TcpConfig, queues: &Queues) {
        if self.state == State::FinWait2 {
            let is_receiving = queues.receive.len() > 0 || queues.receive.shared().is_some();
            let limit = now + config.finish_within;
            self.state_until = if is_receiving { Instant::FAR_FUTURE } else { limit };
        }
    }

    fn wait_out(&mut self, now: Instant, config: &TcpConfig, queues: &mut Queues) {
        self.close(CloseReason::Finished, Some(now + config.time_wait), queues);
    }

    fn time_wait(&self, until: Instant) -> TimeWait {
        let (local, remote) = self.ends.addresses();
        TimeWait {
            local,
            remote,
            send_next: self.sender.next_number(),
            receive_next: self.receiver.next_number(),
            stamps: self.stamps,
            until,
            answered_at: None,
        }
    }

    /// A request to receive was posted: the window may open.
    pub(crate) fn handle_posted_receive(&mut self, queues: &Queues) {
        if !self.state.is_synchronized() {
            return;
        }
        self.receiver.ask_again();
        if self.receiver.is_update_due(&queues.receive) {
            self.receiver.owe_now();
        }
        if self.state == State::FinWait2 {
            self.state_until = Instant::FAR_FUTURE;
        }
    }

    /// Does it wait for room in memory?
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.state.is_synchronized() && self.receiver.is_short()
    }

    /// Where the next payloads will lie.
    pub(crate) fn guess(
        &self,
        nth: usize,
        most: Option<u32>,
        queues: &Queues,
    ) -> Option<(Span, u32)> {
        if !self.state.is_synchronized() {
            return None;
        }
        self.receiver.guess(nth, most, &queues.receive)
    }

    /// The bytes of TCP header and options in front of a payload, at most: what ends a
    /// message may have to say more than others.
    #[inline]
    pub(crate) const fn header_len(&self) -> u32 {
        self.header_len as u32
    }

    /// The same in front of most payloads.
    #[inline]
    pub(crate) const fn usual_header_len(&self) -> u32 {
        if self.stamps.is_some() { 32 } else { 20 }
    }

    /// The longest message that can leave as one segment, where each has to.
    pub(crate) fn longest_message(&self) -> Option<u32> {
        let is_bound = matches!(self.mapping, Mapping::Segment) && self.state.is_synchronized();
        let options = self.header_len() - 20;
        is_bound.then(|| u32::from(self.terms.remote_mss).saturating_sub(options))
    }

    /// Bytes that came into the window and found no memory.
    pub(crate) const fn bytes_without_memory(&self) -> u64 {
        self.receiver.no_memory
    }

    /// Bytes that were placed and forgotten, since a message ended in front of them.
    pub(crate) fn bytes_forgotten(&self) -> u64 {
        self.receiver.forgotten.into()
    }

    /// What the sender's half knows, for people.
    pub(crate) const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// When it wants [`handle_timeout`](Self::handle_timeout).
    #[inline]
    pub(crate) fn poll_timeout(&self, config: &TcpConfig) -> Option<Instant> {
        let at = match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived if !self.is_fast_server() => self.state_until,
            state => {
                let has_end = matches!(state, State::SynReceived | State::FinWait2);
                let end = if has_end { self.state_until } else { Instant::FAR_FUTURE };
                let alive = self.alive_deadline(config).unwrap_or(Instant::FAR_FUTURE);
                let ours = self.sender.deadline().min(self.receiver.deadline());
                ours.min(alive).min(end)
            }
        };
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// When the other side is asked whether it is there.
    fn alive_deadline(&self, config: &TcpConfig) -> Option<Instant> {
        let alive = config.keep_alive.filter(|_| self.sender.is_idle())?;
        let waits = alive.interval * u32::from(self.alive_probes);
        Some(self.heard + alive.idle + waits)
    }

    /// How often nothing was acknowledged in time.
    pub(crate) fn time_outs(&self) -> u64 {
        self.sender.repetitions().1
    }

    /// The most that IP may carry of a segment, as the other side wants it.
    #[inline]
    pub(crate) fn most_packet(&self) -> u32 {
        u32::from(self.terms.remote_mss) + 20
    }

    /// The bytes that IP carries of the probe of the path's size that is under way.
    #[inline]
    pub(crate) fn mtu_probe_packet(&self) -> Option<u32> {
        self.sender.mtu_probe_packet()
    }

    /// What became of such a probe, once.
    pub(crate) fn take_mtu_outcome(&mut self) -> Option<(u32, ProbeOutcome)> {
        self.sender.take_mtu_outcome()
    }

    /// Has nothing come back so often that the next station may be another by now?
    pub(crate) fn doubts_its_path(&self) -> bool {
        const OFTEN: u8 = 2;
        match self.state {
            State::SynSent | State::SynReceived => self.opening.tries >= OFTEN,
            _ => self.sender.time_outs_in_a_row() >= OFTEN,
        }
    }

    /// May nothing come through because it is too long?
    pub(crate) fn suspects_black_hole(&self) -> bool {
        self.state.is_synchronized() && self.sender.suspects_black_hole()
    }

    /// Time passed. A reset has to be sent where the connection is given up.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        config: &TcpConfig,
        queues: &mut Queues,
    ) -> Option<Draft> {
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived => {
                let is_fast = self.is_fast_server();
                self.opening_timed_out(now, config, queues);
                if !is_fast || self.state == State::Closed {
                    return None;
                }
            }
            _ => {}
        }
        self.receiver.handle_timeout(now, &mut queues.receive);
        let is_half_too_long = self.state == State::FinWait2 && self.state_until <= now;
        if self.sender.handle_timeout(now, config) || is_half_too_long {
            return self.abort(now, CloseReason::TimedOut, queues);
        }
        if self.alive_deadline(config).is_some_and(|at| at <= now) {
            let most = config.keep_alive.map_or(0, |alive| alive.probes);
            if self.alive_probes >= most {
                return self.abort(now, CloseReason::TimedOut, queues);
            }
            self.alive_probes += 1;
            self.is_probe_due = true;
        }
        None
    }

    fn opening_timed_out(&mut self, now: Instant, config: &TcpConfig, queues: &mut Queues) {
        if self.state_until > now {
            return;
        }
        if self.opening.tries > config.opening_retries {
            return self.close(CloseReason::TimedOut, None, queues);
        }
        self.opening.is_due = true;
        self.state_until = now + FIRST_TIMEOUT * (1 << self.opening.tries.min(6));
    }
}
