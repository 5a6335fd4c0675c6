//! The writer's half: the frames of a group's stream, and what each member has of them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use landfall_congestion::Window;
use landfall_placement::{Duration, Instant, PathId, Peer, Serial32};

use super::acknowledgements::patience;
use super::member::{Member, Repair, Unacked};
use super::{GroupFrame, Membership, Mode, Publication, Room};
use crate::address::{Address, HostId, LinkId, WindowId};
use crate::error::Ended;
use crate::event::GroupKey;
use crate::link::SenderConfig;
use crate::nic::updates::Bytes;

/// Later frames that have to arrive before one counts as lost, as on a link.
pub(super) const REORDERING: u32 = 3;
/// A repair goes again after this time at the earliest, where no round trip was measured.
pub(super) const LEAST_PATIENCE: Duration = Duration::from_millis(1);
/// At most this many frames of one member wait to be sent again.
pub(super) const MOST_REPAIRS: usize = 64;
/// How often the network is asked for the first time whether it multicasts.
const PROBES: u8 = 12;
/// After those, and until every member was heard, this seldom.
const SELDOM: Duration = Duration::from_secs(5);

/// A frame on its first way, or about to go.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) frame: Arc<GroupFrame>,
    pub(super) sent: Option<Instant>,
    /// How many attached members are not known to have it, and are waited for.
    pub(super) waiting: u32,
    pub(super) was_repaired: bool,
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
pub(super) struct Probe {
    pub(super) at: Instant,
    times: u8,
    pub(super) is_due: bool,
}

/// What a stream is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) window: WindowId,
    /// The first word of the group's memory.
    pub(crate) group: Address,
    pub(crate) path: PathId,
    pub(crate) to: Peer,
    pub(crate) tag: u64,
    pub(crate) key: Option<GroupKey>,
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
    pub(super) members: BTreeMap<HostId, Member>,
    /// What every member has room for, beyond what it has acknowledged.
    pub(super) least: Room,
    pub(super) flights: VecDeque<Flight>,
    /// The number of the first of them.
    pub(super) first: Serial32,
    /// How many of them have left.
    pub(super) left: usize,
    /// Bytes that have left, and that not all attached members have.
    pub(super) under_way: u64,
    /// Bytes that have not left.
    pub(super) waiting_bytes: u64,
    pub(super) repairs: VecDeque<Repair>,
    /// Transmissions that hold memory, by the number of their frame.
    pub(super) held: BTreeMap<u32, u32>,
    pub(super) updates: VecDeque<GroupUpdate>,
    pub(super) window_bytes: Window,
    pub(super) paced: Instant,
    /// Until when the pace holds back what waits.
    pub(super) held_until: Option<Instant>,
    pub(super) probe: Option<Probe>,
    pub(super) check_at: Option<Instant>,
}

impl GroupSender {
    pub(crate) fn new(config: &SenderConfig, stream: Stream) -> Self {
        let Stream { window, group, path, to, tag, key } = stream;
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
    pub(crate) fn membership(&self, host: HostId) -> Membership {
        match self.members.get(&host) {
            None => Membership::Unknown,
            Some(member) if member.gone.is_some() => Membership::Gone,
            Some(member) if member.is_leaving => Membership::Leaving,
            Some(_) => Membership::Member,
        }
    }

    /// Has this member of the group not all that it was sent?
    pub(crate) fn is_behind(&self, group: &Address, host: HostId) -> bool {
        self.group == *group
            && self
                .members
                .get(&host)
                .is_some_and(|member| member.gone.is_none() && !member.unacked.is_empty())
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
    pub(crate) fn add(&mut self, now: Instant, host: HostId, link: LinkId, room: Room) {
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
        // It was put there just now.
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
        // It is no member of this group.
        let Some(member) = self.members.get_mut(&host) else { return };
        member.gone = Some(why);
        member.unacked.clear();
        self.repairs.retain(|repair| repair.member != host);
        self.settle(host);
    }

    /// It gets nothing more until it has what it was sent.
    pub(crate) fn detach(&mut self, host: HostId) {
        // It is no member of this group.
        let Some(member) = self.members.get_mut(&host) else { return };
        if member.mode != Mode::Attached {
            return;
        }
        member.mode = if member.unacked.is_empty() { Mode::Reachable } else { Mode::Draining };
        self.wait_no_longer(host);
    }

    /// The others do not wait for what this member has not acknowledged.
    pub(super) fn wait_no_longer(&mut self, host: HostId) {
        // It is no member of this group.
        let Some(member) = self.members.get_mut(&host) else { return };
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
        // Nobody is waited for.
        let Some(front) = self.flights.iter().find(|flight| flight.waiting > 0) else {
            return false;
        };
        let is_old = front
            .sent
            .is_some_and(|sent| now.since(sent) > patience(&self.window_bytes, config, 0));
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
            let mut waiting = 0;
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
                    is_counted: !member.is_silent(),
                });
                waiting += u32::from(!member.is_silent());
            }
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
        // Nobody is to be asked now.
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
        self.repairs.front().map(|repair| repair.member)
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
        let Repair { member: host, seq } = self.repairs.pop_front()?;
        let member = self.members.get_mut(&host)?;
        let at = seq.since(member.acked) as usize;
        // The first may only have to ask.
        let unacked =
            member.unacked.get_mut(at).filter(|unacked| at == 0 || !unacked.has_arrived)?;
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
        // It left with what was settled before.
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

    /// Frames that have left, and that nobody is waited for with.
    pub(super) fn drop_flights(&mut self) {
        let is_over = |flight: &Flight| flight.waiting == 0 && flight.sent.is_some();
        while self.flights.front().is_some_and(is_over) {
            self.flights.pop_front();
            self.first = self.first.plus(1);
            self.left -= 1;
        }
    }
}
