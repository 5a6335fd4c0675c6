//! One link: the life of it, and how its two halves share frames.

use landfall_placement::{
    Duration, Ecn, Instant, PathId, PathLimits, Peer, Refusal, Serial32, Spans, Ticket, Transmit,
};

use crate::address::{HostId, LinkId};
use crate::error::{Ended, Reason};
use crate::link::frame_payload::{FramePayload, FrameRoom, Stored};
use crate::link::handshake::{self, Hello, Stage};
use crate::link::receiver::Receiver;
use crate::link::sender::{Sender, SenderConfig};
use crate::wire::frame::{Entry, Frame, FrameFlags, FrameHeader, FrameKind, HEADER_LEN, SUM_SLOT};

/// What all links of an adapter have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkContext {
    pub(crate) sender_config: SenderConfig,
    pub(crate) host: HostId,
    pub(crate) incarnation: u64,
    pub(crate) frames: u16,
    pub(crate) early_bytes: u32,
    pub(crate) wants_sums: bool,
    pub(crate) give_up_after: u8,
    /// For how long a side may be silent before it is given up, however often
    /// it was asked: a busy machine may pause for seconds.
    pub(crate) silence: Duration,
    pub(crate) keep_alive: Option<Duration>,
}

impl LinkContext {
    /// What this side says of itself.
    pub(crate) const fn hello(&self, stage: Stage, tag: u64) -> Hello {
        Hello {
            stage,
            wants_sums: self.wants_sums,
            host: self.host,
            frames: self.frames,
            tag,
            incarnation: self.incarnation,
            early_bytes: self.early_bytes,
        }
    }
}

/// How far a link has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// We ask who is there.
    Asking,
    /// We know, and say that we heard.
    Confirming,
    Up,
    /// We have said goodbye; perhaps it was not heard.
    Parting(Reason),
    Ended,
}

/// Something that is said until there is an answer.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// When it was said last, or first became due.
    at: Instant,
    times: u8,
    /// It is to be said (again).
    is_due: bool,
}

impl Question {
    const fn new(at: Instant) -> Self {
        Self { at, times: 0, is_due: true }
    }

    fn repeat_at(&self, patience: Duration) -> Instant {
        self.at + patience.saturating_mul(1 << self.times.min(4))
    }
}

/// How often a goodbye is said.
const BYE_REPEATS: u8 = 3;

/// One link.
#[derive(Debug)]
pub(crate) struct Link<N> {
    pub(crate) id: LinkId,
    pub(crate) path: PathId,
    pub(crate) peer: Peer,
    pub(crate) state: State,
    /// What the other side proves itself with.
    pub(crate) tag: u64,
    /// The same, where it was called while it called: either tag may be the one
    /// that the other side heard of last. Zero where there is none.
    pub(crate) other_tag: u64,
    pub(crate) theirs: Option<Hello>,
    pub(crate) sender: Sender<N>,
    pub(crate) receiver: Receiver,
    /// Hello, goodbye, or whether the other side is there.
    question: Option<Question>,
    /// The other side has said Xoff, or has no credit for us: when to ask
    /// whether that is still so, and how often that was asked.
    held_back: Option<(Instant, u8)>,
    peer_xoff: bool,
    xoff: bool,
    heard: Instant,
    /// Time-outs since anything was heard.
    strikes: u8,
    /// Since when it has to prove that it lives, because another says to be it.
    challenged: Option<Instant>,
    /// Until when the pace held something back.
    paced: Option<Instant>,
    /// It is in the list of links that may have something to send.
    pub(crate) is_ready: bool,
    /// Its owner was told to ask for notes, and has not.
    pub(crate) has_told: bool,
    /// How many frames had come back when it asked last.
    pub(crate) told_released: u64,
}

impl<N: Copy> Link<N> {
    pub(crate) fn new(
        common: &LinkContext,
        now: Instant,
        path: PathId,
        peer: Peer,
        tag: u64,
    ) -> Self {
        Self {
            id: LinkId::new(0, 0),
            path,
            peer,
            state: State::Asking,
            tag,
            other_tag: 0,
            theirs: None,
            sender: Sender::new(&common.sender_config),
            receiver: Receiver::new(common.frames, common.early_bytes as usize),
            question: Some(Question::new(now)),
            held_back: None,
            peer_xoff: false,
            xoff: false,
            heard: now,
            strikes: 0,
            challenged: None,
            paced: None,
            is_ready: false,
            has_told: false,
            told_released: 0,
        }
    }

    /// Does this tag prove that its sender hears us?
    pub(crate) const fn is_ours(&self, tag: u64) -> bool {
        tag != 0 && (tag == self.tag || tag == self.other_tag)
    }

    pub(crate) fn host(&self) -> Option<HostId> {
        self.theirs.map(|theirs| theirs.host)
    }

    /// They have answered: what they say is to be confirmed.
    pub(crate) fn handle_answer(&mut self, now: Instant, theirs: Hello) {
        self.state = State::Confirming;
        self.theirs = Some(theirs);
        self.heard = now;
        self.question = Some(Question::new(now));
    }

    /// They know us, and we know them.
    pub(crate) fn set_up(&mut self, now: Instant, theirs: Hello) {
        self.state = State::Up;
        self.theirs = Some(theirs);
        self.sender.set_peer(theirs.frames, theirs.early_bytes);
        self.question = None;
        self.receiver.hurry();
        self.handle_heard(now);
    }

    /// Something came that only the other side can have sent.
    pub(crate) fn handle_heard(&mut self, now: Instant) {
        self.heard = now;
        self.strikes = 0;
        if self.state == State::Up {
            self.question = None;
        }
    }

    /// Another says to be this host. Returns whether this one was found alive
    /// since that was said first.
    pub(crate) fn challenge(&mut self, now: Instant) -> bool {
        match self.challenged {
            Some(at) if self.heard > at => {
                self.challenged = None;
                true
            }
            Some(_) => false,
            None => {
                self.challenged = Some(now);
                self.ask(now);
                false
            }
        }
    }

    /// Has nobody else said to be this host, since it was found alive?
    pub(crate) const fn is_uncontested(&self) -> bool {
        self.challenged.is_none()
    }

    /// Asks for an acknowledgement, now.
    pub(crate) fn ask(&mut self, now: Instant) {
        if self.state == State::Up && self.question.is_none() {
            self.question = Some(Question::new(now));
        }
    }

    pub(crate) fn set_xoff(&mut self, xoff: bool) {
        if self.xoff != xoff {
            self.xoff = xoff;
            self.receiver.hurry();
        }
    }

    /// Ends the link on this side. What was sent goes back to its owner.
    pub(crate) fn end(&mut self) {
        self.state = State::Ended;
        self.question = None;
        self.sender.abandon();
    }

    /// Ends the link, and says so.
    pub(crate) fn part(&mut self, now: Instant, reason: Reason) {
        let can_say = matches!(self.state, State::Confirming | State::Up);
        self.end();
        if can_say {
            self.state = State::Parting(reason);
            self.question = Some(Question::new(now));
        }
    }

    /// What an acknowledgement or a frame of data says in its header.
    pub(crate) fn handle_header(
        &mut self,
        common: &LinkContext,
        now: Instant,
        frame: &Frame<'_>,
    ) -> Result<(), Refusal> {
        let header = frame.header();
        let is_stale = Serial32(header.ack).precedes(self.sender.acked());
        let more = if header.kind == FrameKind::Ack { frame.payload() } else { &[] };
        let is_late = header.flags.has(FrameFlags::LATE);
        self.sender.handle_ack(&common.sender_config, now, header, more, is_late)?;
        self.handle_heard(now);
        if header.flags.has(FrameFlags::ASK) {
            self.receiver.hurry();
        }
        if !is_stale {
            self.peer_xoff = header.flags.has(FrameFlags::XOFF);
        }
        let is_held = self.peer_xoff || self.sender.is_idle() && self.sender.has_no_credit();
        if !is_held {
            self.held_back = None;
        } else if self.held_back.is_none() {
            self.held_back = Some((now + self.sender.patience(&common.sender_config), 0));
        }
        Ok(())
    }

    /// The next frame of this link.
    pub(crate) fn poll_transmit(
        &mut self,
        common: &LinkContext,
        now: Instant,
        out: &mut Outgoing<'_>,
        payload: &mut FramePayload<N>,
        load: &mut dyn FnMut(LinkId, &FrameRoom, &mut FramePayload<N>),
    ) -> Option<Transmit> {
        match self.state {
            State::Ended => None,
            State::Asking | State::Confirming => {
                self.take_question(now)?;
                let stage = if self.state == State::Asking { Stage::Ask } else { Stage::Confirm };
                let to = self.theirs.map_or(0, |theirs| theirs.tag);
                let body = common.hello(stage, self.tag).to_bytes();
                bare(FrameKind::Hello, to, &body, self.peer, out.head)
            }
            State::Parting(reason) => {
                self.take_question(now)?;
                let to = self.theirs?.tag;
                bare(FrameKind::Bye, to, &handshake::bye(reason), self.peer, out.head)
            }
            State::Up => self
                .poll_data(common, now, out, payload, load)
                .or_else(|| self.poll_ack(common, now, out)),
        }
    }

    /// Is there something to be said? Then it is said now.
    fn take_question(&mut self, now: Instant) -> Option<()> {
        let question = self.question.as_mut().filter(|question| question.is_due)?;
        (question.is_due, question.at) = (false, now);
        Some(())
    }

    fn poll_data(
        &mut self,
        common: &LinkContext,
        now: Instant,
        out: &mut Outgoing<'_>,
        payload: &mut FramePayload<N>,
        load: &mut dyn FnMut(LinkId, &FrameRoom, &mut FramePayload<N>),
    ) -> Option<Transmit> {
        let sender_config = &common.sender_config;
        let unit = out.limits.unit.min(u32::from(u16::MAX));
        self.paced = self.sender.paced_until(sender_config, now);
        payload.clear();
        let seq = match self.sender.next_lost(sender_config, now) {
            Some(seq) => seq,
            None if self.sender.may_send(sender_config, now, unit) => {
                let head = out.head.len().min(usize::from(out.limits.head));
                let room = FrameRoom::of(head, unit as usize, self.peer_xoff);
                if room.head.min(room.unit) < Entry::LEN {
                    return None;
                }
                load(self.id, &room, payload);
                self.sender.load(sender_config, now, payload)?
            }
            None => return None,
        };
        let stored = self.sender.write(sender_config, now, seq, out.head, out.from)?;
        let is_last = stored.spans > 0 && payload.is_last
            || self.sender.in_flight() == 1 && !self.sender.has_room(sender_config, unit.into());
        let flags = if is_last { FrameFlags::ASK } else { FrameFlags::default() };
        Some(self.finish_data(common, seq, &stored, flags, out.head))
    }

    fn finish_data(
        &mut self,
        common: &LinkContext,
        seq: Serial32,
        stored: &Stored,
        flags: FrameFlags,
        head: &mut [u8],
    ) -> Transmit {
        let has_sum = common.wants_sums || self.theirs.is_some_and(|theirs| theirs.wants_sums);
        let flags = if has_sum { flags.with(FrameFlags::SUM) } else { flags };
        let header = FrameHeader {
            seq: seq.0,
            entries: stored.entries,
            payload_len: stored.payload_len,
            ..self.header(common, FrameKind::Data, flags)
        };
        header.write(head);
        let holds = stored.spans > 0;
        Transmit {
            to: self.peer,
            head_len: stored.head_len() as u16,
            segment: None,
            checksum: has_sum.then_some(SUM_SLOT),
            sum_only: 0,
            ecn: if common.sender_config.yields { Ecn::Capable0 } else { Ecn::NotCapable },
            ticket: if holds { Ticket::new(seq.0, 0) } else { Ticket::new(0, 1) },
        }
    }

    /// An acknowledgement, or a question whether the other side is there.
    fn poll_ack(
        &mut self,
        common: &LinkContext,
        now: Instant,
        out: &mut Outgoing<'_>,
    ) -> Option<Transmit> {
        let is_asking = self.take_question(now).is_some();
        if !is_asking && !self.receiver.wants_ack() {
            return None;
        }
        let body = self.receiver.more_sack();
        out.head.get_mut(HEADER_LEN..HEADER_LEN + body.len())?.copy_from_slice(&body);
        let flags = if is_asking { FrameFlags::ASK } else { FrameFlags::default() };
        let header = FrameHeader {
            seq: self.sender.next().0,
            payload_len: body.len() as u16,
            ..self.header(common, FrameKind::Ack, flags)
        };
        header.write(out.head);
        Some(bare_transmit(self.peer, HEADER_LEN + body.len(), BARE))
    }

    /// What every frame says of what has arrived.
    fn header(&mut self, common: &LinkContext, kind: FrameKind, flags: FrameFlags) -> FrameHeader {
        let (ack, sack) = self.receiver.ack();
        let is_late = self.receiver.note_acked();
        let late = if is_late { FrameFlags::LATE } else { FrameFlags::default() };
        let xoff = if self.xoff { FrameFlags::XOFF } else { FrameFlags::default() };
        FrameHeader {
            kind,
            flags: flags.with(late).with(xoff),
            tag: self.theirs.map_or(0, |theirs| theirs.tag),
            seq: 0,
            ack,
            sack,
            credit: common.frames,
            marks: self.receiver.marks(),
            entries: 0,
            payload_len: 0,
        }
    }

    /// Time passed. Says why the link is over, if it is.
    pub(crate) fn handle_timeout(&mut self, common: &LinkContext, now: Instant) -> Option<Ended> {
        let patience = self.question_patience(common);
        let is_silent = now.since(self.heard) >= common.silence;
        if let Some(question) = &mut self.question
            && question.repeat_at(patience) <= now
        {
            question.times = question.times.saturating_add(1);
            (question.is_due, question.at) = (true, now);
            let most = match self.state {
                State::Parting(_) => BYE_REPEATS,
                State::Up => common.give_up_after,
                // Who claims a name that seems taken waits until its owner is
                // found to be gone.
                _ => common.give_up_after.saturating_mul(3),
            };
            if question.times > most && (is_silent || self.state != State::Up) {
                return Some(Ended::Silent);
            }
        }
        if self.state != State::Up {
            return None;
        }
        self.receiver.handle_timeout(now);
        self.paced = self.paced.filter(|until| *until > now);
        if self.sender.timeout_at(&common.sender_config).is_some_and(|at| at <= now) {
            self.strikes = self.strikes.saturating_add(1);
            if self.strikes > common.give_up_after && is_silent {
                return Some(Ended::Silent);
            }
            self.sender.handle_timeout(&common.sender_config, now);
        }
        if let Some((at, times)) = self.held_back
            && at <= now
        {
            self.ask(now);
            let next =
                self.sender.patience(&common.sender_config).saturating_mul(1 << times.min(4));
            self.held_back = Some((now + next, times.saturating_add(1)));
        }
        if self.sender.is_idle() && self.idle_until(common).is_some_and(|at| at <= now) {
            self.ask(now);
        }
        None
    }

    fn question_patience(&self, common: &LinkContext) -> Duration {
        match self.state {
            State::Up => self.sender.patience(&common.sender_config),
            _ => common.sender_config.retry_after,
        }
    }

    fn idle_until(&self, common: &LinkContext) -> Option<Instant> {
        common.keep_alive.map(|keep_alive| self.heard + keep_alive)
    }

    /// When [`Self::handle_timeout`], or [`Self::poll_transmit`], has something
    /// to do that nothing else will bring about.
    pub(crate) fn poll_timeout(&self, common: &LinkContext) -> Option<Instant> {
        let patience = || self.question_patience(common);
        let question = self.question.as_ref().map(|question| question.repeat_at(patience()));
        if self.state != State::Up {
            return question;
        }
        let repeat = self.sender.timeout_at(&common.sender_config);
        let idle =
            if repeat.is_none() && question.is_none() { self.idle_until(common) } else { None };
        let held_back = self.held_back.map(|(at, _)| at);
        let ack = self.receiver.ack_at();
        [question, repeat, idle, held_back, ack, self.paced].into_iter().flatten().min()
    }
}

/// Where a frame is written.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) limits: &'a PathLimits,
    pub(crate) head: &'a mut [u8],
    pub(crate) from: &'a mut Spans,
}

/// A frame without data: its kind, the tag of who gets it, and what it says.
pub(crate) fn bare(
    kind: FrameKind,
    tag: u64,
    body: &[u8],
    to: Peer,
    head: &mut [u8],
) -> Option<Transmit> {
    head.get_mut(HEADER_LEN..HEADER_LEN + body.len())?.copy_from_slice(body);
    let header = FrameHeader {
        kind,
        flags: FrameFlags::default(),
        tag,
        seq: 0,
        ack: 0,
        sack: 0,
        credit: 0,
        marks: 0,
        entries: 0,
        payload_len: body.len() as u16,
    };
    header.write(head);
    Some(bare_transmit(to, HEADER_LEN + body.len(), BARE))
}

/// The ticket of what holds no memory.
const BARE: Ticket = Ticket::new(0, 1);

/// A transmission that holds no memory.
pub(crate) fn bare_transmit(to: Peer, head_len: usize, ticket: Ticket) -> Transmit {
    Transmit {
        to,
        head_len: head_len as u16,
        segment: None,
        checksum: None,
        sum_only: 0,
        ecn: Ecn::NotCapable,
        ticket,
    }
}
