//! [`Links`]: every link of an adapter.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use landfall_placement::{
    Duration, Ecn, Instant, PathId, PathLimits, Peer, Random, Refusal, Serial32, Spans, Timeout,
    Transmit, Unit, assumed,
};
use landfall_tables::{HashIndex, HashSecret, IndexedHeap, Table};

use crate::address::{HostId, LinkId};
use crate::config::{Config, usual_congestion};
use crate::error::{Ended, Error, Reason};
use crate::link::frame_payload::{FramePayload, FrameRoom};
use crate::link::handshake::{HandshakeResponder, Hello, Reply};
use crate::link::link_state::{Link, LinkContext, Outgoing, State, bare};
use crate::link::receiver::{FrameDecision, HeldFrame};
use crate::link::sender::SenderConfig;
use crate::nic::updates::Note;
use crate::wire::frame::{Frame, FrameKind};

/// What to do with a frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameAction {
    /// The next of this link: it may go to its place at once, or be kept.
    Next(LinkId),
    /// It came too early: it may be kept.
    Early(LinkId),
    /// All that it said was heard.
    Consumed,
}

/// What the adapter should know of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkUpdate {
    /// A link is up.
    Up { link: LinkId, host: HostId },
    /// Another says to be who is at the other end of this link.
    Contested { link: LinkId, path: PathId, peer: Peer },
    /// Frames have come back: ask for their notes, and for the progress.
    Notes { link: LinkId },
    /// A link is over. Notes that come from now on are of frames of which
    /// nobody knows whether they arrived.
    Down { link: LinkId, why: Ended },
    /// Everything has come back: the name means nothing any more.
    Gone { link: LinkId },
}

/// How many frames of one link go before the next has its turn: what the
/// drivers send in one call.
const QUANTUM: u32 = 64;

/// The links of one path that may have something to send.
#[derive(Debug)]
struct Ready {
    path: PathId,
    links: VecDeque<u32>,
    /// How many frames the first has sent in its turn.
    sent: u32,
}

/// Every link of an adapter, found by peer and by host.
#[derive(Debug)]
pub(crate) struct Links<N: Copy = Note> {
    pub(super) common: LinkContext,
    pub(super) table: Table<Link<N>>,
    pub(super) by_peer: HashIndex,
    /// Who was found last.
    pub(super) recent: u32,
    /// The links that are up, one for each host.
    pub(super) by_host: BTreeMap<HostId, u32>,
    pub(super) responder: HandshakeResponder,
    pub(super) random: Random,
    timers: IndexedHeap<Instant>,
    ready: Vec<Ready>,
    most_paths: usize,
    pub(super) updates: VecDeque<LinkUpdate>,
    payload: FramePayload<N>,
    /// The native link while it is up, and who is at its other end; none is a switch.
    pub(crate) native: Option<(LinkId, Option<HostId>)>,
}

impl<N: Copy> Links<N> {
    pub(crate) fn new(config: &Config, host: HostId, random: &mut Random) -> Self {
        let mut random = Random::new(random.fork());
        let frames = config.frames as u16;
        let sender_config = SenderConfig {
            congestion: config.congestion.unwrap_or_else(|| usual_congestion(1_460)),
            yields: config.congestion.is_some(),
            frames: usize::from(frames),
            retry_after: config.retry_after,
            retry_floor: config.retry_floor,
        };
        let common = LinkContext {
            sender_config,
            host,
            incarnation: random.next_u64(),
            frames,
            early_bytes: config.early_bytes as u32,
            wants_sums: config.checksum,
            give_up_after: config.give_up_after,
            silence: config.retry_after.saturating_mul(256),
            keep_alive: config.keep_alive,
        };
        Self {
            common,
            table: Table::new(config.links),
            by_peer: HashIndex::new(HashSecret::new(random.next_u64(), random.next_u64())),
            recent: 0,
            by_host: BTreeMap::new(),
            responder: HandshakeResponder::new(&mut random),
            random,
            timers: IndexedHeap::new(),
            ready: Vec::new(),
            most_paths: config.paths,
            updates: VecDeque::new(),
            payload: FramePayload::default(),
            native: None,
        }
    }

    // Who is there.

    pub(crate) fn find(&self, path: PathId, peer: Peer) -> Option<LinkId> {
        self.get(self.index_of(path, peer)?).map(|link| link.id)
    }

    pub(super) fn index_of(&self, path: PathId, peer: Peer) -> Option<u32> {
        let is_meant = |index: u32| {
            self.table.get(index).is_some_and(|link| {
                link.path == path && link.peer == peer && link.state != State::Ended
            })
        };
        // Frames come in runs.
        if is_meant(self.recent) {
            return Some(self.recent);
        }
        self.by_peer.find(&(path, peer), is_meant)
    }

    /// The link to a host, if it is up.
    pub(crate) fn to_host(&self, host: HostId) -> Option<LinkId> {
        match self.by_host.get(&host) {
            Some(index) => self.get(*index).map(|link| link.id),
            None => {
                let (link, there) = self.native?;
                there.is_none_or(|there| there == host).then_some(link)
            }
        }
    }

    /// The link that is in this slot of the table now.
    pub(crate) fn id_at(&self, index: u32) -> Option<LinkId> {
        self.get(index).map(|link| link.id)
    }

    /// Who is at the other side, once that is known.
    pub(crate) fn host_of(&self, link: LinkId) -> Option<HostId> {
        match (self.named(link), self.native) {
            (Some(link), _) => link.host(),
            (None, Some((native, host))) if native == link => host,
            (None, _) => None,
        }
    }

    /// What its peer proves itself with: for tests that play the peer.
    #[cfg(test)]
    pub(crate) fn tag_of(&self, link: LinkId) -> u64 {
        self.named(link).map_or(0, |link| link.tag)
    }

    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.named(link).is_some_and(|link| link.state == State::Up)
            || self.native.is_some_and(|(native, _)| native == link)
    }

    /// How many frames were loaded, and how many of them came back, in order.
    pub(crate) fn progress(&self, link: LinkId) -> Option<(u64, u64)> {
        self.named(link).map(|link| link.sender.progress())
    }

    fn get(&self, index: u32) -> Option<&Link<N>> {
        self.table.get(index)
    }

    fn named(&self, link: LinkId) -> Option<&Link<N>> {
        self.table.named(link.index, link.generation)
    }

    fn named_mut(&mut self, link: LinkId) -> Option<&mut Link<N>> {
        self.table.named_mut(link.index, link.generation)
    }

    // Beginning and end; see also `handshake`.

    /// Opens a link. [`LinkUpdate::Up`] or [`LinkUpdate::Down`] says how that went.
    ///
    /// # Errors
    /// There is one already, or no room for one more.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        path: PathId,
        peer: Peer,
    ) -> Result<LinkId, Error> {
        if self.index_of(path, peer).is_some() {
            return Err(Error::Taken);
        }
        let tag = self.random.next_u64().max(1);
        let index = self.enter(now, path, peer, tag).ok_or(Error::NoRoom)?;
        self.touch(index);
        self.id_at(index).ok_or(Error::NoRoom)
    }

    /// A new link, if there is room.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        path: PathId,
        peer: Peer,
        tag: u64,
    ) -> Option<u32> {
        let has_ready = self.ready.iter().any(|ready| ready.path == path);
        if !has_ready && self.ready.len() >= self.most_paths {
            return None;
        }
        let link = Link::new(&self.common, now, path, peer, tag);
        let key = self.table.insert(link)?;
        let index = key.index;
        self.table.get_mut(index)?.id = LinkId::of(key);
        self.by_peer.insert(&(path, peer), index);
        if !has_ready {
            self.ready.push(Ready { path, links: VecDeque::new(), sent: 0 });
        }
        Some(index)
    }

    /// Ends a link, and says so to the other side.
    ///
    /// # Errors
    /// It is gone already.
    pub(crate) fn close(
        &mut self,
        now: Instant,
        link: LinkId,
        reason: Reason,
    ) -> Result<(), Error> {
        let is_over = |link: &Link<N>| matches!(link.state, State::Ended | State::Parting(_));
        if self.named(link).is_none_or(is_over) {
            return Err(Error::Unknown);
        }
        self.part(now, link.index, reason, Ended::Here);
        Ok(())
    }

    /// Ends a link whose other end was started anew: it knows nothing more of it.
    ///
    /// # Errors
    /// It is not up.
    pub(crate) fn replace_link(&mut self, link: LinkId) -> Result<(), Error> {
        self.named(link).filter(|link| link.state == State::Up).ok_or(Error::NotOpen)?;
        self.lose(link.index, Ended::Restarted);
        Ok(())
    }

    /// How links send, and how many frames one takes.
    pub(crate) const fn sender_config(&self) -> &SenderConfig {
        &self.common.sender_config
    }

    /// When the other side of a link counts as gone: after this many unanswered repetitions, and
    /// this much silence.
    pub(crate) const fn patience(&self) -> (u8, Duration) {
        (self.common.give_up_after, self.common.silence)
    }

    /// What the other side of a link has said of itself.
    pub(crate) fn hello_of(&self, link: LinkId) -> Option<Hello> {
        self.named(link)?.theirs
    }

    /// Over which path a link goes, and where the other side is.
    pub(crate) fn way_of(&self, link: LinkId) -> Option<(PathId, Peer)> {
        self.named(link).map(|link| (link.path, link.peer))
    }

    // What comes in.

    /// A frame came. What it carries is not taken by that: the caller decides
    /// between [`Self::accept`], [`Self::keep`] and dropping it.
    ///
    /// # Errors
    /// The check that refused it.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<FrameAction, Refusal> {
        match frame.kind() {
            FrameKind::Hello => self.handle_hello(now, unit, frame),
            FrameKind::Bye => self.handle_bye(unit, frame),
            FrameKind::Stranger => self.handle_stranger(now, unit, frame),
            FrameKind::Ack | FrameKind::Data => self.handle_header(now, unit, frame),
            // They belong to no link.
            FrameKind::GroupData | FrameKind::GroupAck | FrameKind::GroupProbe => {
                Err(Refusal::Unexpected)
            }
        }
    }

    fn handle_header(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<FrameAction, Refusal> {
        let index = self.speaker(unit, frame)?;
        let Some(link) = self.table.get_mut(index) else { return Err(Refusal::UnknownId) };
        match link.state {
            State::Up => {}
            // They have heard our confirmation.
            State::Confirming => {
                let theirs = link.theirs.ok_or(Refusal::Unexpected)?;
                self.set_up(now, index, theirs);
            }
            _ => return Err(Refusal::Unexpected),
        }
        let common = &self.common;
        let Some(link) = self.table.get_mut(index) else { return Err(Refusal::UnknownId) };
        link.handle_header(common, now, frame)?;
        let arrival = match frame.kind() {
            FrameKind::Data if common.wants_sums && !frame.has_sum() => Err(Refusal::BadChecksum),
            FrameKind::Data => {
                let seq = Serial32(frame.header().seq);
                link.receiver.look(seq, frame.end()).map(|turn| match turn {
                    FrameDecision::Next => FrameAction::Next(link.id),
                    FrameDecision::Early => FrameAction::Early(link.id),
                })
            }
            _ => Ok(FrameAction::Consumed),
        };
        self.report_notes(index);
        self.make_ready(index);
        arrival
    }

    /// The next frame goes straight to its place: [`Self::handle_applied`] will
    /// say when it is there.
    pub(crate) fn accept(&mut self, link: LinkId, ecn: Ecn) {
        if let Some(link) = self.named_mut(link) {
            link.receiver.accept(ecn == Ecn::CongestionExperienced);
        }
    }

    /// The last frame that was accepted was lost on the way to its place: it counts as one that
    /// has not come.
    pub(crate) fn take_back(&mut self, link: LinkId) {
        if let Some(found) = self.named_mut(link) {
            found.receiver.take_back();
            self.make_ready(link.index);
            self.forget_if_drained(link.index);
        }
    }

    /// Keeps a frame, which is next or early, until it is its turn: `unit` is
    /// all of it. [`Self::next_kept`] gives it back.
    ///
    /// # Errors
    /// There is no room, or it is there already.
    pub(crate) fn keep(
        &mut self,
        link: LinkId,
        frame: &Frame<'_>,
        unit: &[u8],
        ecn: Ecn,
    ) -> Result<(), Refusal> {
        let whole = unit.get(..frame.end() as usize).ok_or(Refusal::Truncated)?;
        let is_marked = ecn == Ecn::CongestionExperienced;
        let link = self.named_mut(link).ok_or(Refusal::UnknownId)?;
        link.receiver.keep(Serial32(frame.header().seq), whole, is_marked)
    }

    /// The next frame of a link that was kept, once all before it are in place.
    /// It counts as accepted: [`Self::handle_applied`] will be called for it.
    pub(crate) fn next_kept(&mut self, link: LinkId) -> Option<HeldFrame> {
        let link = self.named_mut(link).filter(|link| link.state == State::Up)?;
        link.receiver.next_kept()
    }

    /// Whether [`Self::next_kept`] would give something.
    pub(crate) fn has_next_kept(&self, link: LinkId) -> bool {
        self.named(link)
            .is_some_and(|link| link.state == State::Up && link.receiver.has_next_kept())
    }

    /// The bytes of a kept frame are not needed any more.
    pub(crate) fn give_back(&mut self, link: LinkId, kept: HeldFrame) {
        if let Some(link) = self.named_mut(link) {
            link.receiver.give_back(kept);
        }
    }

    /// The first of the accepted frames that were not reported is in place, or
    /// refused with an exception: it counts as arrived.
    pub(crate) fn handle_applied(&mut self, now: Instant, link: LinkId) {
        if let Some(found) = self.named_mut(link) {
            found.receiver.handle_applied(now);
            self.make_ready(link.index);
            self.forget_if_drained(link.index);
        }
    }

    /// Says to the other side whether it may send requests and writes.
    pub(crate) fn set_xoff(&mut self, link: LinkId, xoff: bool) {
        if let Some(found) = self.named_mut(link) {
            found.set_xoff(xoff);
            self.touch(link.index);
        }
    }

    /// Wants to know soon what has arrived of all that was sent so far.
    pub(crate) fn ask(&mut self, now: Instant, link: LinkId) {
        if let Some(found) = self.named_mut(link) {
            found.ask(now);
            self.touch(link.index);
        }
    }

    // What goes out.

    /// There is cargo for this link.
    pub(crate) fn wake(&mut self, link: LinkId) {
        if self.named(link).is_some() {
            self.make_ready(link.index);
        }
    }

    /// Something about a link changed: perhaps it has something to send, or
    /// another deadline.
    pub(super) fn touch(&mut self, index: u32) {
        self.make_ready(index);
        self.set_timer(index);
    }

    /// Perhaps it has something to send. When it has nothing (more), its
    /// deadline is looked at: once for many frames.
    fn make_ready(&mut self, index: u32) {
        if let Some(link) = self.table.get_mut(index).filter(|link| !link.is_ready)
            && let Some(ready) = self.ready.iter_mut().find(|ready| ready.path == link.path)
        {
            link.is_ready = true;
            ready.links.push_back(index);
        }
    }

    /// The next frame for this path. `load` fills the cargo that it is given,
    /// or leaves it empty.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        limits: &PathLimits,
        head: &mut [u8],
        from: &mut Spans,
        load: &mut dyn FnMut(LinkId, &FrameRoom, &mut FramePayload<N>),
    ) -> Option<(LinkId, Transmit)> {
        let nth = self.ready.iter().position(|ready| ready.path == path);
        while let Some(ready) = nth.and_then(|nth| self.ready.get_mut(nth)) {
            let Some(index) = ready.links.front().copied() else { break };
            let mut out = Outgoing { limits, head: &mut *head, from: &mut *from };
            if let Some(link) = self.table.get_mut(index)
                && let Some(transmit) =
                    link.poll_transmit(&self.common, now, &mut out, &mut self.payload, load)
            {
                let id = link.id;
                ready.sent += 1;
                if ready.sent >= QUANTUM {
                    (ready.sent, _) = (0, ready.links.rotate_left(1));
                }
                return Some((id, transmit));
            }
            ready.links.pop_front();
            ready.sent = 0;
            if let Some(link) = self.table.get_mut(index) {
                link.is_ready = false;
            }
            self.set_timer(index);
        }
        self.poll_reply(path, head)
    }

    /// A later deadline is found out when the earlier one has passed.
    fn set_timer(&mut self, index: u32) {
        if let Some(link) = self.table.get(index)
            && let Some(at) = link.poll_timeout(&self.common)
            && self.timers.key_of(index).is_none_or(|set| at < set)
        {
            self.timers.set(index, at);
        }
    }

    /// What is said to those that no link leads to.
    fn poll_reply(&mut self, path: PathId, head: &mut [u8]) -> Option<(LinkId, Transmit)> {
        let Reply { to, kind, tag, body, .. } = self.responder.poll_reply(path)?;
        let nobody = LinkId::new(u32::MAX, u32::MAX);
        bare(kind, tag, &body, to, head).map(|transmit| (nobody, transmit))
    }

    /// A driver holds the memory of this frame no longer.
    pub(crate) fn handle_sent(&mut self, link: LinkId, seq: u32) {
        if let Some(found) = self.named_mut(link) {
            let (_, before) = found.sender.progress();
            found.sender.handle_sent(Serial32(seq));
            let (_, released) = found.sender.progress();
            if released != before {
                // It was acknowledged while the driver held it: only now another takes its place.
                self.make_ready(link.index);
            }
            self.report_notes(link.index);
        }
    }

    // News and time.

    /// Frames may have come back.
    pub(super) fn report_notes(&mut self, index: u32) {
        let Some(link) =
            assumed(self.table.get_mut(index), "a link stays while something of it is left")
        else {
            return;
        };
        let (_, released) = link.sender.progress();
        if released != link.told_released && !link.has_told {
            link.has_told = true;
            self.updates.push_back(LinkUpdate::Notes { link: link.id });
        }
        self.forget_if_drained(index);
    }

    /// The next note of this link, once [`LinkUpdate::Notes`] said that there are some.
    pub(crate) fn poll_note(&mut self, link: LinkId) -> Option<N> {
        let found = self.table.named_mut(link.index, link.generation)?;
        found.has_told = false;
        found.told_released = found.sender.progress().1;
        let note = found.sender.poll_note();
        if note.is_none() {
            self.forget_if_drained(link.index);
        }
        note
    }

    pub(crate) fn poll_update(&mut self) -> Option<LinkUpdate> {
        self.updates.pop_front()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, index)) = self.timers.pop_up_to(now) {
            let Some(link) = self.table.get_mut(index) else { continue };
            if let Some(why) = link.handle_timeout(&self.common, now) {
                self.lose(index, why);
            }
            self.touch(index);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timeout> {
        self.timers.first().map(|(at, _)| Timeout { at, timer: "link" })
    }

    /// Takes an ended link out of the table, once all has come back and all that was
    /// accepted is in its place: until then nothing else gets its slot, by which others
    /// find what belongs to it.
    pub(super) fn forget_if_drained(&mut self, index: u32) {
        let Some(link) =
            assumed(self.table.get(index), "a link stays while something of it is left")
        else {
            return;
        };
        let is_idle = link.sender.is_drained() && link.receiver.is_settled();
        if link.state != State::Ended || !is_idle || link.has_told {
            return;
        }
        let id = link.id;
        if link.is_ready
            && let Some(ready) = self.ready.iter_mut().find(|ready| ready.path == link.path)
        {
            ready.links.retain(|ready| *ready != index);
        }
        self.timers.remove(index);
        self.table.remove(index);
        self.updates.push_back(LinkUpdate::Gone { link: id });
    }
}
