//! The writer's half: the frames of a group's stream, and what each member has of them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use landfall_congestion::{Arrived, Window};
use landfall_placement::{Duration, Instant, PathId, Peer, Refusal, Serial32, Span, Spans};

use crate::address::{Address, HostId, LinkId, WindowId, WriteId};
use crate::error::Ended;
use crate::event::GroupKey;
use crate::link::{FramePayload, MAX_SPANS, SenderConfig};
use crate::nic::updates::{Bytes, Note};
use crate::wire::frame::{FrameFlags, FrameHeader, HEADER_LEN, MAX_ENTRIES};

/// Later frames that have to arrive before one counts as lost, as on a link.
const REORDERING: u32 = 3;
/// A repair goes again after this time at the earliest, where no round trip was measured.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);
/// At most this many frames of one member wait to be sent again.
const MOST_REPAIRS: usize = 64;
/// After this many time-outs in a row a member holds up nobody any more.
const MOST_TIMEOUTS: u8 = 2;
/// How often the network is asked for the first time whether it multicasts.
const PROBES: u8 = 12;
/// After those, and until every member was heard, this seldom.
const SELDOM: Duration = Duration::from_secs(5);

/// A frame of a group's stream, kept for as long as a member may miss it.
#[derive(Debug)]
pub(crate) struct GroupFrame {
    /// The table, and behind it what is copied.
    head: Box<[u8]>,
    spans: ArrayVec<Span, MAX_SPANS>,
    /// What it touches in the group's memory.
    pub(crate) notes: ArrayVec<Bytes, MAX_ENTRIES>,
    pub(crate) entries: u8,
    pub(crate) payload_len: u16,
}

impl GroupFrame {
    /// What was put together. `None` where its entries contradict its bytes.
    pub(crate) fn of(payload: &FramePayload) -> Option<Self> {
        let payload_len = u16::try_from(payload.bytes()).ok()?;
        if payload.entries.is_empty() || u32::from(payload_len) != payload.payload_len() {
            return None;
        }
        let mut head: Vec<u8> = payload.entries.iter().flat_map(|e| e.to_bytes()).collect();
        head.extend_from_slice(&payload.inline);
        let bytes_of = |note: &Note| match *note {
            Note::Written(_, bytes) | Note::From(_, _, bytes) | Note::Dma(_, _, bytes) => bytes,
            Note::Served(..) => unreachable!("a group is only written"),
        };
        Some(Self {
            head: head.into_boxed_slice(),
            spans: payload.spans.clone(),
            notes: payload.notes.iter().map(bytes_of).collect(),
            entries: payload.entries.len() as u8,
            payload_len,
        })
    }

    /// The length of the frame.
    pub(crate) fn len(&self) -> u64 {
        (HEADER_LEN + self.head.len()) as u64
            + self.spans.iter().map(|span| u64::from(span.len)).sum::<u64>()
    }

    /// How much of it is written into the head of a unit.
    pub(crate) fn head_len(&self) -> usize {
        HEADER_LEN + self.head.len()
    }

    pub(crate) fn holds_memory(&self) -> bool {
        !self.spans.is_empty()
    }

    /// Writes it behind the place of its header.
    pub(crate) fn write(&self, head: &mut [u8], from: &mut Spans) -> Option<()> {
        head.get_mut(HEADER_LEN..self.head_len())?.copy_from_slice(&self.head);
        self.spans.iter().try_for_each(|span| from.push(*span)).ok()
    }
}

/// How far a member takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It was told of the stream, and nobody knows yet whether the network reaches it.
    Invited,
    /// It hears the group's address, and gets nothing by it now.
    Reachable,
    /// What is published goes to it.
    Attached,
    /// It gets nothing more, until it has what it was sent.
    Draining,
}

/// What a host is to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Unknown,
    Member,
    /// It gets the rest of what it was sent.
    Leaving,
    /// Its link is gone, and a driver still holds memory of what was sent to it.
    Gone,
}

/// Something that was published, as one member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    /// Its frames.
    pub(crate) first: Serial32,
    pub(crate) last: Serial32,
    /// Which of the things it is that barriers of the member's link wait for.
    pub(crate) link: LinkId,
    pub(crate) number: u64,
    /// The write from memory that it is, and its length.
    pub(crate) write: Option<(WriteId, u64)>,
}

/// A frame that a member is not known to have.
#[derive(Debug)]
struct Unacked {
    frame: Arc<GroupFrame>,
    /// When it left for this member last. `None`: not yet.
    sent: Option<Instant>,
    /// How often it was sent again.
    repairs: u8,
    has_arrived: bool,
    is_queued: bool,
    /// The frame's flight counts this member.
    is_counted: bool,
}

#[derive(Debug)]
struct Member {
    mode: Mode,
    /// Its window of the group is gone: it ends once it has all.
    is_leaving: bool,
    /// The frames before this one have arrived.
    acked: Serial32,
    unacked: VecDeque<Unacked>,
    bytes: u64,
    publications: VecDeque<Publication>,
    /// Since when nothing new has arrived, or something was sent again.
    since: Instant,
    heard: Instant,
    backoff: u8,
    marks: u8,
    most_frames: usize,
    most_bytes: u64,
    /// The link that it was invited over.
    link: LinkId,
    /// That link is gone.
    gone: Option<Ended>,
}

/// A frame on its first way, or about to go.
#[derive(Debug)]
struct Flight {
    frame: Arc<GroupFrame>,
    sent: Option<Instant>,
    /// How many attached members are not known to have it.
    waiting: u32,
    was_repaired: bool,
}

/// What a member may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) frames: usize,
    pub(crate) bytes: u64,
}

/// A frame that is to leave.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) seq: Serial32,
    pub(crate) frame: Arc<GroupFrame>,
}

/// What the owner has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupUpdate {
    /// These bytes came to lie in the memory of one more member.
    Touched(Bytes),
    /// A member has all of a publication, or never will.
    Over { member: HostId, publication: Publication, result: Result<(), Ended> },
    /// A member acknowledges nothing any more.
    Silent { member: HostId },
    /// A member that left has all that it was sent.
    Left { member: HostId, link: LinkId, tag: u64 },
}

/// Asks who can be reached by the group's address.
#[derive(Clone, Copy, Debug)]
struct Probe {
    at: Instant,
    times: u8,
    is_due: bool,
}

/// The stream of one group.
#[derive(Debug)]
pub(crate) struct GroupSender {
    /// The window that is written through; none: it is closed.
    pub(crate) window: Option<WindowId>,
    /// The path with the group's address.
    pub(crate) path: PathId,
    pub(crate) to: Peer,
    /// The proof that frames carry.
    pub(crate) tag: u64,
    /// The key that frames are sealed with, by a layer below.
    pub(crate) key: Option<GroupKey>,
    /// The first word of the group's memory.
    pub(crate) group: Address,
    /// A member wants a sum over every payload.
    pub(crate) wants_sums: bool,
    members: BTreeMap<HostId, Member>,
    /// What every member has room for, beyond what it has acknowledged.
    least: Room,
    flights: VecDeque<Flight>,
    /// The number of the first of them.
    first: Serial32,
    /// How many of them have left.
    left: usize,
    /// Bytes that have left, and that not all attached members have.
    under_way: u64,
    /// Bytes that have not left.
    waiting_bytes: u64,
    repairs: VecDeque<(HostId, Serial32)>,
    /// Transmissions that hold memory, by the number of their frame.
    held: BTreeMap<u32, u32>,
    updates: VecDeque<GroupUpdate>,
    window_bytes: Window,
    paced: Instant,
    /// Until when the pace holds back what waits.
    held_until: Option<Instant>,
    probe: Option<Probe>,
    check_at: Option<Instant>,
}

impl GroupSender {
    pub(crate) fn new(
        config: &SenderConfig,
        (window, group): (WindowId, Address),
        (path, to): (PathId, Peer),
        (tag, key): (u64, Option<GroupKey>),
    ) -> Self {
        Self {
            window: Some(window),
            path,
            to,
            tag,
            key,
            group,
            wants_sums: false,
            members: BTreeMap::new(),
            least: Room { frames: usize::MAX, bytes: u64::MAX },
            flights: VecDeque::new(),
            first: Serial32(0),
            left: 0,
            under_way: 0,
            waiting_bytes: 0,
            repairs: VecDeque::new(),
            held: BTreeMap::new(),
            updates: VecDeque::new(),
            window_bytes: Window::new(&config.congestion),
            paced: Instant::ZERO,
            held_until: None,
            probe: None,
            check_at: None,
        }
    }

    /// The number of the next frame.
    pub(crate) fn next(&self) -> Serial32 {
        self.first.plus(self.flights.len() as u32)
    }

    pub(crate) fn mode(&self, member: HostId) -> Option<Mode> {
        let is_member = |member: &&Member| !member.is_leaving && member.gone.is_none();
        self.members.get(&member).filter(is_member).map(|member| member.mode)
    }

    /// Must this host be invited?
    pub(crate) fn standing(&self, host: HostId) -> Standing {
        match self.members.get(&host) {
            None => Standing::Unknown,
            Some(member) if member.gone.is_some() => Standing::Gone,
            Some(member) if member.is_leaving => Standing::Leaving,
            Some(_) => Standing::Member,
        }
    }

    /// Has this member of the group not all that it was sent?
    pub(crate) fn is_behind(&self, group: &Address, host: HostId) -> bool {
        self.group == *group
            && self.members.get(&host).is_some_and(|member| {
                member.gone.is_none() && !member.unacked.is_empty()
            })
    }

    /// The number of its key.
    pub(crate) fn key_number(&self) -> Option<u32> {
        self.key.map(|key| key.number)
    }

    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.members.keys().copied()
    }

    /// How many take part now.
    pub(crate) fn attached(&self) -> usize {
        self.members.values().filter(|member| member.mode == Mode::Attached).count()
    }

    /// One more, which is about to be invited; or one that left comes back before it was gone.
    pub(crate) fn add(&mut self, now: Instant, (host, link): (HostId, LinkId), room: Room) {
        let acked = self.next();
        let member = self.members.entry(host).or_insert_with(|| Member {
            mode: Mode::Invited,
            is_leaving: false,
            acked,
            unacked: VecDeque::new(),
            bytes: 0,
            publications: VecDeque::new(),
            since: now,
            heard: now,
            backoff: 0,
            marks: 0,
            most_frames: 0,
            most_bytes: 0,
            link,
            gone: None,
        });
        (member.most_frames, member.most_bytes) = (room.frames, room.bytes);
        member.is_leaving = false;
        self.least = self.members.values().fold(room, |least, member| Room {
            frames: least.frames.min(member.most_frames),
            bytes: least.bytes.min(member.most_bytes),
        });
        let Some(member) = self.members.get(&host) else { return };
        if member.mode == Mode::Invited {
            self.probe = Some(Probe { at: now, times: 0, is_due: true });
        }
    }

    /// Nothing more is meant for it. It still gets what it was sent.
    pub(crate) fn leave(&mut self, host: HostId) {
        if let Some(member) = self.members.get_mut(&host) {
            member.is_leaving = true;
            self.detach(host);
            self.settle(host);
        }
    }

    /// The member over this link.
    pub(crate) fn member_over(&self, link: LinkId) -> Option<HostId> {
        let mut members = self.members.iter().filter(|(_, member)| member.gone.is_none());
        members.find(|(_, member)| member.link == link).map(|(host, _)| *host)
    }

    /// Its link is gone.
    pub(crate) fn lose(&mut self, host: HostId, why: Ended) {
        self.detach(host);
        let Some(member) = self.members.get_mut(&host) else { return };
        member.gone = Some(why);
        member.unacked.clear();
        self.repairs.retain(|(member, _)| *member != host);
        self.settle(host);
    }

    /// It gets nothing more until it has what it was sent.
    pub(crate) fn detach(&mut self, host: HostId) {
        let Some(member) = self.members.get_mut(&host) else { return };
        if member.mode != Mode::Attached {
            return;
        }
        member.mode = if member.unacked.is_empty() { Mode::Reachable } else { Mode::Draining };
        let mut number = member.acked;
        for unacked in &mut member.unacked {
            if core::mem::take(&mut unacked.is_counted) {
                let at = number.since(self.first) as usize;
                if let Some(flight) = self.flights.get_mut(at) {
                    flight.waiting -= 1;
                    if flight.waiting == 0 && flight.sent.is_some() {
                        self.under_way -= flight.frame.len();
                    }
                }
            }
            number = number.plus(1);
        }
        self.drop_flights();
    }

    /// Attaches a member that is reachable and has all that it was sent before.
    pub(crate) fn attach(&mut self, now: Instant, host: HostId) {
        let next = self.next();
        if let Some(member) = self.members.get_mut(&host) {
            debug_assert!(member.unacked.is_empty(), "{host:?} is behind");
            (member.mode, member.acked) = (Mode::Attached, next);
            (member.since, member.backoff) = (now, 0);
        }
    }

    /// Has this member room for that much? One that has everything takes whatever is published.
    pub(crate) fn has_room(&self, host: HostId, frames: usize, bytes: u64) -> bool {
        self.members.get(&host).is_some_and(|member| {
            let fits = member.unacked.len() + frames <= member.most_frames
                && member.bytes + bytes <= member.most_bytes;
            fits || member.unacked.is_empty()
        })
    }

    /// Is there room for more among what waits to leave?
    pub(crate) fn may_queue(&self, bytes: u64, limit: u64) -> bool {
        self.waiting_bytes == 0 || self.waiting_bytes + bytes <= limit
    }

    /// Detaches members that others wait for. Returns whether there were any.
    pub(crate) fn detach_slow(&mut self, config: &SenderConfig, now: Instant) -> bool {
        let Some(front) = self.flights.iter().find(|flight| flight.waiting > 0) else {
            return false;
        };
        let is_old = front.sent.is_some_and(|sent| now.since(sent) > patience(&self.window_bytes, config, 0));
        let slow: Vec<HostId> = self
            .members
            .iter()
            .filter(|(_, member)| member.mode == Mode::Attached)
            .filter(|(_, member)| member.unacked.front().is_some_and(|first| first.is_counted))
            .map(|(host, _)| *host)
            .collect();
        // When all are behind alike it is the network that is slow.
        if !is_old || slow.len() == self.attached() {
            return false;
        }
        slow.iter().for_each(|host| self.detach(*host));
        !slow.is_empty()
    }

    /// Puts frames behind what waits to leave, for these members, which are attached and
    /// have room. Returns the numbers of the first and the last.
    pub(crate) fn publish(
        &mut self,
        config: &SenderConfig,
        now: Instant,
        frames: Vec<GroupFrame>,
        members: &[HostId],
    ) -> (Serial32, Serial32) {
        let first = self.next();
        for frame in frames {
            let frame = Arc::new(frame);
            self.waiting_bytes += frame.len();
            for host in members {
                let Some(member) = self.members.get_mut(host) else { continue };
                if member.unacked.is_empty() {
                    (member.since, member.heard, member.backoff) = (now, now, 0);
                }
                member.bytes += frame.len();
                member.unacked.push_back(Unacked {
                    frame: Arc::clone(&frame),
                    sent: None,
                    repairs: 0,
                    has_arrived: false,
                    is_queued: false,
                    is_counted: true,
                });
            }
            let waiting = members.len() as u32;
            self.flights.push_back(Flight { frame, sent: None, waiting, was_repaired: false });
        }
        let at = now + config.retry_after;
        self.check_at = Some(self.check_at.map_or(at, |set| set.min(at)));
        (first, self.next().minus(1))
    }

    /// A member was given a publication.
    pub(crate) fn promise(&mut self, host: HostId, publication: Publication) {
        if let Some(member) = self.members.get_mut(&host) {
            member.publications.push_back(publication);
        }
    }

    // What leaves.

    /// Is it time to ask who hears the group's address?
    pub(crate) fn poll_probe(&mut self, config: &SenderConfig, now: Instant) -> bool {
        let Some(Probe { times, is_due: true, .. }) = self.probe else { return false };
        let is_wanted = self.members.values().any(|member| member.mode == Mode::Invited);
        let next = match times {
            0..PROBES => config.retry_after.saturating_mul((1 << times.min(6)) >> 2),
            _ => SELDOM,
        };
        let next = next.clamp(LEAST_PATIENCE, SELDOM);
        let (at, times, is_due) = (now + next, times.saturating_add(1), false);
        self.probe = is_wanted.then_some(Probe { at, times, is_due });
        is_wanted
    }

    /// The member whose turn it is to get something again.
    pub(crate) fn next_repair(&self) -> Option<HostId> {
        self.repairs.front().map(|(host, _)| *host)
    }

    /// That member can be sent nothing now: it is another's turn.
    pub(crate) fn rotate_repairs(&mut self) {
        if let Some(first) = self.repairs.pop_front() {
            self.repairs.push_back(first);
        }
    }

    pub(crate) fn repairs_waiting(&self) -> usize {
        self.repairs.len()
    }

    /// The next frame that the first of the members is to get again.
    pub(crate) fn poll_repair(&mut self, now: Instant) -> Option<Sent> {
        let (host, seq) = self.repairs.pop_front()?;
        let member = self.members.get_mut(&host)?;
        let at = seq.since(member.acked) as usize;
        let unacked = member.unacked.get_mut(at).filter(|unacked| !unacked.has_arrived)?;
        unacked.is_queued = false;
        unacked.sent = Some(now);
        unacked.repairs = unacked.repairs.saturating_add(1);
        let frame = Arc::clone(&unacked.frame);
        if let Some(flight) = self.flights.get_mut(seq.since(self.first) as usize) {
            flight.was_repaired = true;
        }
        self.note_held(&frame, seq);
        Some(Sent { seq, frame })
    }

    /// The next frame for all, if it may go now.
    pub(crate) fn poll_first(&mut self, config: &SenderConfig, now: Instant) -> Option<Sent> {
        self.drop_flights();
        let flight = self.flights.get(self.left)?;
        let len = flight.frame.len();
        let has_room = self.left < self.least.frames && self.under_way + len <= self.least.bytes;
        if self.under_way > 0 && !has_room {
            return None;
        }
        if config.yields {
            let room = self.window_bytes.room(&config.congestion, self.under_way);
            let is_full = self.under_way > 0 && room < len.min(self.window_bytes.bytes() / 2);
            self.held_until = Some(self.paced - LEAST_PATIENCE).filter(|at| *at > now);
            if is_full || self.held_until.is_some() {
                return None;
            }
            if self.under_way == 0 {
                self.window_bytes.handle_start(&config.congestion, now);
            }
            let pause = self.window_bytes.pause(&config.congestion, len);
            self.paced = self.paced.max(now - LEAST_PATIENCE) + pause;
        }
        let seq = self.first.plus(self.left as u32);
        let frame = Arc::clone(&flight.frame);
        let flight = &mut self.flights[self.left];
        flight.sent = Some(now);
        self.waiting_bytes -= len;
        if flight.waiting > 0 {
            self.under_way += len;
        }
        self.left += 1;
        for member in self.members.values_mut() {
            let at = seq.since(member.acked) as usize;
            if let Some(unacked) = member.unacked.get_mut(at) {
                unacked.sent = Some(now);
            }
            if at == 0 {
                member.since = now;
            }
        }
        self.note_held(&frame, seq);
        let at = now + patience(&self.window_bytes, config, 0);
        self.check_at = Some(self.check_at.map_or(at, |set| set.min(at)));
        Some(Sent { seq, frame })
    }

    fn note_held(&mut self, frame: &GroupFrame, seq: Serial32) {
        if frame.holds_memory() {
            *self.held.entry(seq.0).or_default() += 1;
        }
    }

    /// A driver holds the memory of one transmission no longer.
    pub(crate) fn handle_sent(&mut self, seq: u32) {
        if let Some(held) = self.held.get_mut(&seq) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&seq);
                let hosts: Vec<HostId> = self.hosts().collect();
                hosts.into_iter().for_each(|host| self.settle(host));
            }
        }
    }

    // What comes back.

    /// A member says what it has. `is_started`: of the stream, not only of the address.
    ///
    /// # Errors
    /// It has what was never sent, or is no member.
    pub(crate) fn handle_ack(
        &mut self,
        config: &SenderConfig,
        now: Instant,
        host: HostId,
        header: &FrameHeader,
        more_sack: &[u8],
    ) -> Result<(), Refusal> {
        let is_late = header.flags.has(FrameFlags::LATE);
        let next = self.next();
        let member = self.members.get_mut(&host).ok_or(Refusal::UnknownId)?;
        member.heard = now;
        if member.mode == Mode::Invited {
            member.mode = Mode::Reachable;
        }
        if header.credit == 0 {
            // It hears the address, and has nothing of the stream.
            return Ok(());
        }
        let ack = Serial32(header.ack);
        if next.precedes(ack) {
            return Err(Refusal::OutOfBounds);
        }
        if ack.precedes(member.acked) {
            return Ok(());
        }
        let marked = (1..128).contains(&header.marks.wrapping_sub(member.marks));
        if marked {
            member.marks = header.marks;
        }
        let mut arrived = Vec::new();
        for n in 0..ack.since(member.acked).min(member.unacked.len() as u32) {
            arrived.push(n);
        }
        let mut newest = None;
        let later = more_sack.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
        let ahead = ack.since(member.acked);
        for (nth, mut word) in core::iter::once(header.sack).chain(later).enumerate() {
            while word != 0 {
                let n = ahead + nth as u32 * 64 + word.trailing_zeros() + 1;
                word &= word - 1;
                if (n as usize) < member.unacked.len() {
                    arrived.push(n);
                    newest = Some(n);
                }
            }
        }
        for n in arrived {
            self.note_arrived(config, now, host, n, (marked, is_late));
        }
        self.release(now, host, ack);
        if let Some(newest) = newest.and_then(|newest| newest.checked_sub(ahead)) {
            self.find_lost(config, now, host, newest);
        }
        self.settle(host);
        self.drop_flights();
        Ok(())
    }

    /// A member has the frame that is this many behind the first that it was not known to have.
    fn note_arrived(
        &mut self,
        config: &SenderConfig,
        now: Instant,
        host: HostId,
        n: u32,
        (marked, is_late): (bool, bool),
    ) {
        let Some(member) = self.members.get_mut(&host) else { return };
        let seq = member.acked.plus(n);
        let Some(unacked) = member.unacked.get_mut(n as usize) else { return };
        if core::mem::replace(&mut unacked.has_arrived, true) {
            return;
        }
        (member.since, member.backoff) = (now, 0);
        for bytes in &unacked.frame.notes {
            self.updates.push_back(GroupUpdate::Touched(*bytes));
        }
        if !core::mem::take(&mut unacked.is_counted) {
            return;
        }
        let Some(flight) = self.flights.get_mut(seq.since(self.first) as usize) else { return };
        flight.waiting -= 1;
        if flight.waiting > 0 {
            return;
        }
        // Now all have it: the window is that of the slowest.
        let (bytes, under_way) = (flight.frame.len(), self.under_way);
        if let Some(sent) = flight.sent {
            self.under_way -= bytes;
            let timed = !flight.was_repaired && !is_late;
            let arrived = Arrived { bytes, sent, timed, marked, under_way };
            self.window_bytes.handle_arrived(&config.congestion, now, &arrived);
        }
    }

    /// Frames before this one are no longer kept for a member.
    fn release(&mut self, now: Instant, host: HostId, ack: Serial32) {
        let Some(member) = self.members.get_mut(&host) else { return };
        while member.acked.precedes(ack) {
            match member.unacked.pop_front() {
                Some(unacked) => member.bytes -= unacked.frame.len(),
                // It has heard what was meant for others.
                None => {
                    member.acked = ack;
                    break;
                }
            }
            member.acked = member.acked.plus(1);
        }
        if member.unacked.is_empty() && member.mode == Mode::Draining {
            member.mode = Mode::Reachable;
        }
        member.since = now.max(member.since);
    }

    /// What later frames have overtaken by a margin is sent again.
    fn find_lost(&mut self, config: &SenderConfig, now: Instant, host: HostId, newest: u32) {
        let patience = self.reorder_patience();
        let Some(member) = self.members.get_mut(&host) else { return };
        let before = newest.saturating_sub(REORDERING - 1);
        let mut lost = 0;
        for (n, unacked) in (0..before).zip(&mut member.unacked) {
            let is_recent = unacked.repairs > 0
                && unacked.sent.is_some_and(|sent| now.since(sent) <= patience);
            if unacked.has_arrived || unacked.is_queued || is_recent || lost >= MOST_REPAIRS {
                continue;
            }
            lost += 1;
            unacked.is_queued = true;
            self.repairs.push_back((host, member.acked.plus(n)));
            if let Some(sent) = unacked.sent.filter(|_| config.yields && unacked.repairs == 0) {
                let len = unacked.frame.len();
                self.window_bytes.handle_lost(&config.congestion, now, sent, len);
            }
        }
    }

    fn reorder_patience(&self) -> Duration {
        let smoothed = self.window_bytes.rtt().smoothed().unwrap_or_default();
        (smoothed * 9 / 8).max(LEAST_PATIENCE)
    }

    // Time.

    /// Sends again what should have been acknowledged, and finds out who holds the others up.
    pub(crate) fn handle_timeout(&mut self, config: &SenderConfig, limits: Patience, now: Instant) {
        self.held_until = self.held_until.filter(|at| *at > now);
        if let Some(probe) = self.probe.as_mut().filter(|probe| probe.at <= now) {
            probe.is_due = true;
        }
        if self.check_at.is_none_or(|at| at > now) {
            return;
        }
        let left = self.first.plus(self.left as u32);
        let attached = self.attached();
        let (mut late, mut silent, mut next) = (0, Vec::new(), None::<Instant>);
        let mut backoffs = Vec::new();
        for (host, member) in &mut self.members {
            if member.unacked.is_empty() {
                continue;
            }
            let has_left = member.acked.precedes(left);
            if !has_left {
                // The window holds it back.
                member.since = now;
            }
            let due = member.since + patience(&self.window_bytes, config, member.backoff);
            if due <= now {
                member.backoff = member.backoff.saturating_add(1);
                member.since = now;
                late += usize::from(member.mode == Mode::Attached);
                if member.backoff > MOST_TIMEOUTS && attached > 1 {
                    silent.push(*host);
                }
                let is_over = now.since(member.heard) >= limits.silence;
                if member.backoff > limits.give_up_after && is_over {
                    self.updates.push_back(GroupUpdate::Silent { member: *host });
                }
                backoffs.push(member.backoff);
                queue_again(&mut self.repairs, *host, member, left);
            }
            let due = member.since + patience(&self.window_bytes, config, member.backoff);
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        self.check_at = next;
        if late > 0 && late == attached && config.yields {
            let nth = backoffs.into_iter().min().unwrap_or(1);
            self.window_bytes.handle_silence(&config.congestion, now, nth);
            self.paced = now;
        }
        silent.into_iter().for_each(|host| self.detach(host));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let probe = self.probe.filter(|probe| !probe.is_due).map(|probe| probe.at);
        [self.check_at, probe, self.held_until].into_iter().flatten().min()
    }

    pub(crate) fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    pub(crate) fn poll_update(&mut self) -> Option<GroupUpdate> {
        self.updates.pop_front()
    }

    /// Tells of publications that a member has, and whose memory nobody holds.
    pub(crate) fn settle(&mut self, host: HostId) {
        let Some(member) = self.members.get_mut(&host) else { return };
        while let Some(publication) = member.publications.front().copied() {
            let Publication { first, last, .. } = publication;
            let len = last.since(first) + 1;
            let is_held = self.held.keys().any(|seq| Serial32(*seq).is_within(first, len));
            let result = match member.gone {
                None if last.precedes(member.acked) => Ok(()),
                None => break,
                Some(why) => Err(why),
            };
            if is_held {
                break;
            }
            member.publications.pop_front();
            self.updates.push_back(GroupUpdate::Over { member: host, publication, result });
        }
        let is_empty = member.publications.is_empty() && member.unacked.is_empty();
        if is_empty && (member.gone.is_some() || member.is_leaving) {
            let (link, tag) = (member.link, self.tag);
            self.members.remove(&host);
            self.updates.push_back(GroupUpdate::Left { member: host, link, tag });
        }
    }

    /// Frames that all have, or that are meant for nobody any more.
    fn drop_flights(&mut self) {
        while self.flights.front().is_some_and(|flight| flight.waiting == 0) {
            let Some(flight) = self.flights.pop_front() else { return };
            self.first = self.first.plus(1);
            if flight.sent.is_some() {
                self.left -= 1;
            } else {
                // Those that drain still get it, as something that was lost.
                self.waiting_bytes -= flight.frame.len();
            }
        }
    }
}

/// When a member is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) give_up_after: u8,
    pub(crate) silence: Duration,
}

/// How long an acknowledgement may take after this many time-outs (RFC 6298, 2.3).
fn patience(window: &Window, config: &SenderConfig, backoff: u8) -> Duration {
    let rtt = window.rtt();
    let once = match (rtt.smoothed(), rtt.variation()) {
        (Some(smoothed), Some(variation)) => {
            smoothed.saturating_add(variation.saturating_mul(4)).max(config.retry_floor)
        }
        _ => config.retry_after,
    };
    once.saturating_mul(1 << backoff.min(4))
}

/// The first frames that a member does not have: more each time.
fn queue_again(
    repairs: &mut VecDeque<(HostId, Serial32)>,
    host: HostId,
    member: &mut Member,
    left: Serial32,
) {
    let mut most = (1 << member.backoff.min(5)).min(member.most_frames);
    for (n, unacked) in (0..).zip(&mut member.unacked) {
        let seq = member.acked.plus(n);
        if most == 0 || !seq.precedes(left) {
            return;
        }
        if !unacked.has_arrived && !unacked.is_queued {
            unacked.is_queued = true;
            repairs.push_back((host, seq));
            most -= 1;
        }
    }
}
