//! Groups over networks that multicast: who is in them, what leaves, and what is over.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `publish` | which members get a publication by the group's address, and its frames |
//! | `arrive` | a member's part: invitations, where frames belong |
//!
//! The streams themselves are in [`crate::multicast`].

mod arrive;
mod publish;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use landfall_placement::{
    Ecn, Instant, PathId, Peer, Placement, Refusal, Spans, Ticket, Timeout, Transmit, Unit,
};
use landfall_tables::Table;

use super::Nic;
use crate::address::{Address, HostId, LinkId, Purpose, TicketParts, WindowId, pack};
use crate::error::{Ended, Error, Reason};
use crate::event::{Event, GroupKey};
use crate::link::{SenderConfig, bare_transmit};
use crate::multicast::{
    GroupReceiver, GroupSender, GroupUpdate, Membership, Mode, Patience, ReceiverName, Room, Stream,
};
use crate::wire::frame::{Frame, FrameFlags, FrameHeader, FrameKind, HEADER_LEN, SUM_SLOT};
use crate::wire::{Command, Entry};

pub(super) use publish::Written;

/// What a writer says of its group to one that is to receive it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Invitation {
    pub(super) group: Address,
    pub(super) tag: u64,
    pub(super) ack_tag: u64,
    pub(super) seq: u32,
    pub(super) key: Option<GroupKey>,
}

/// One that is to be told that it is no member of a group any more.
#[derive(Clone, Copy, Debug)]
struct Ending {
    link: LinkId,
    member: HostId,
    tag: u64,
}

/// All streams of groups of one host.
#[derive(Debug)]
pub(super) struct Multicast {
    senders: Table<GroupSender>,
    by_window: BTreeMap<WindowId, u32>,
    /// Whose acknowledgements carry which proof.
    by_ack_tag: BTreeMap<u64, (u32, HostId)>,
    receivers: Table<GroupReceiver>,
    by_tag: BTreeMap<u64, u32>,
    /// Streams that are received and have something to acknowledge.
    acks: VecDeque<ReceiverName>,
    /// No acknowledgement is due before.
    ack_at: Option<Instant>,
    /// The sender that was served last.
    served: u32,
    is_turn: bool,
    /// Somebody may have to be invited, or be told that it is no member.
    pub(super) has_invitations: bool,
    /// Members that are to be told so.
    ends: Vec<Ending>,
    /// Numbers of keys that nothing is sealed with any more.
    keys_over: Vec<u32>,
}

impl Multicast {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            senders: Table::new(most),
            by_window: BTreeMap::new(),
            by_ack_tag: BTreeMap::new(),
            receivers: Table::new(most),
            by_tag: BTreeMap::new(),
            acks: VecDeque::new(),
            ack_at: None,
            served: 0,
            is_turn: false,
            has_invitations: false,
            ends: Vec::new(),
            keys_over: Vec::new(),
        }
    }

    /// Whose turn it is alternates, while there is any group.
    pub(super) fn take_turn(&mut self) -> bool {
        let has_any = !self.senders.is_empty() || !self.receivers.is_empty();
        self.is_turn = has_any && !self.is_turn;
        self.is_turn
    }

    /// Is what is written through this window multicast?
    pub(super) fn has(&self, window: WindowId) -> bool {
        self.by_window.contains_key(&window)
    }

    /// A window onto a group is closed. What was written through it still arrives.
    pub(super) fn close(&mut self, window: WindowId) {
        let Some(sender) = self.by_window.remove(&window).and_then(|at| self.senders.get_mut(at))
        else {
            return; // It multicasts nothing.
        };
        sender.window = None;
        let hosts: Vec<HostId> = sender.hosts().collect();
        hosts.into_iter().for_each(|host| sender.leave(host));
        self.has_invitations = true;
    }

    /// Nothing more goes to a member of a group that is no member any more.
    pub(super) fn remove_member(&mut self, window: WindowId, host: HostId) {
        let sender = self.by_window.get(&window).and_then(|at| self.senders.get_mut(*at));
        if let Some(sender) = sender {
            sender.leave(host);
        }
    }

    /// A link is gone, and with it what was received and sent over it.
    pub(super) fn handle_link_down(&mut self, link: LinkId, why: Ended) {
        let indices: Vec<u32> = self.senders.indices().collect();
        for sender in indices {
            let Some(sender) = self.senders.get_mut(sender) else { continue };
            if let Some(host) = sender.member_over(link) {
                sender.lose(host, why);
            }
        }
        let gone: Vec<u32> = self
            .receivers
            .indices()
            .filter(|at| self.receivers.get(*at).is_some_and(|stream| stream.link == link))
            .collect();
        gone.into_iter().for_each(|at| self.forget_receiver(at));
    }

    fn forget_receiver(&mut self, at: u32) {
        if let Some(stream) = self.receivers.remove(at) {
            self.by_tag.remove(&stream.tag);
            self.keys_over.extend(stream.key);
        }
    }

    /// Is something under way to this host that was published before by an address which its
    /// group has no more?
    fn is_behind(&self, group: &Address, host: HostId) -> bool {
        let mut closing = self.senders.indices().filter_map(|at| self.senders.get(at));
        closing.any(|sender| sender.window.is_none() && sender.is_behind(group, host))
    }

    /// A sender that has something to tell.
    fn updated(&self) -> Option<u32> {
        let has_updates = |at: &u32| self.senders.get(*at).is_some_and(GroupSender::has_updates);
        self.senders.indices().find(has_updates)
    }

    /// A driver holds the memory of a transmission no longer.
    pub(super) fn handle_sent(&mut self, meaning: &TicketParts) {
        let generation = self.senders.generation(meaning.link);
        if let Some(sender) =
            self.senders.get_mut(meaning.link).filter(|_| meaning.is_of(generation))
        {
            sender.handle_sent(meaning.number);
        }
    }

    /// A stream may have something to acknowledge, now or soon.
    fn note_ack(&mut self, at: u32) {
        let name = self.receivers.key(at);
        // The stream is over.
        let Some(stream) = self.receivers.get_mut(at) else { return };
        if stream.receiver.wants_ack() {
            if !stream.is_ready {
                stream.is_ready = true;
                self.acks.push_back(name);
            }
        } else if let Some(due) = stream.receiver.ack_at() {
            self.ack_at = Some(self.ack_at.map_or(due, |at| at.min(due)));
        }
    }

    fn handle_ack_timeout(&mut self, now: Instant) {
        if self.ack_at.is_none_or(|at| at > now) {
            return;
        }
        self.ack_at = None;
        let indices: Vec<u32> = self.receivers.indices().collect();
        for at in indices {
            if let Some(stream) = self.receivers.get_mut(at) {
                stream.receiver.handle_timeout(now);
            }
            self.note_ack(at);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Timeout> {
        let senders = self.senders.indices().filter_map(|at| self.senders.get(at)?.poll_timeout());
        let at = senders.chain(self.ack_at).min()?;
        Some(Timeout { at, timer: "group" })
    }
}

impl Nic {
    /// What is written to a group leaves once from now on, to this address of the network, for
    /// all members that it reaches: they are asked. The others get copies, as before. Members
    /// acknowledge, and are sent again what they lost.
    ///
    /// Between such a group and what is written to the same host through other windows there
    /// is no order but that of [`barrier`](Self::barrier), which waits for both; and what a
    /// member joins for begins behind all that its link was given.
    ///
    /// Where a layer below seals, `to` is what it calls the group's key, which members are
    /// given over their links: [`Event::GroupKey`]. Called again, with another key,
    /// members that were removed before cannot open what follows.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Forbidden`] where the window is no group's or at a native
    /// link, [`Error::PathDown`], [`Error::NoRoom`].
    pub fn multicast(
        &mut self,
        now: Instant,
        window: WindowId,
        path: PathId,
        to: Peer,
        key: Option<GroupKey>,
    ) -> Result<(), Error> {
        let group = self.windows.get(window)?;
        if group.members().is_none() || self.native.is_some() {
            return Err(Error::Forbidden);
        }
        let group = group.base();
        if !self.paths.iter().any(|(known, _)| *known == path) {
            return Err(Error::PathDown);
        }
        if !self.multicast.senders.has_room() {
            return Err(Error::NoRoom);
        }
        self.multicast.close(window);
        let config = self.links.sender_config();
        let tag = self.random.next_u64();
        let stream = Stream { window, group, path, to, tag, key };
        let sender = GroupSender::new(config, stream);
        let key = self.multicast.senders.insert(sender).ok_or(Error::NoRoom)?;
        self.multicast.by_window.insert(window, key.index);
        self.multicast.has_invitations = true;
        self.settle(now);
        Ok(())
    }

    /// What is written to a group goes to each member by itself again, behind what has left for
    /// all of them.
    pub fn end_multicast(&mut self, now: Instant, window: WindowId) {
        self.multicast.close(window);
        self.settle(now);
    }

    /// How many members of a group get what is published by its address, at the moment.
    #[must_use]
    pub fn multicast_members(&self, window: WindowId) -> usize {
        let sender = self.multicast.by_window.get(&window);
        sender.and_then(|at| self.multicast.senders.get(*at)).map_or(0, GroupSender::attached)
    }

    /// Invites members that were not, and tells what is over.
    pub(super) fn settle_groups(&mut self, now: Instant) {
        while let Some(number) = self.multicast.keys_over.pop() {
            self.events.push(Event::GroupKeyOver { number });
        }
        if self.multicast.senders.is_empty() && self.multicast.ends.is_empty() {
            return;
        }
        while let Some(at) = self.multicast.updated() {
            while let Some(sender) = self.multicast.senders.get_mut(at) {
                let group = sender.group.host;
                let Some(update) = sender.poll_update() else { break };
                self.group_update(now, at, group, update);
            }
        }
        if core::mem::take(&mut self.multicast.has_invitations) {
            let indices: Vec<u32> = self.multicast.senders.indices().collect();
            for at in indices {
                self.invite_members(now, at);
                let is_over =
                    |sender: &GroupSender| sender.window.is_none() && !sender.has_members();
                if self.multicast.senders.get(at).is_some_and(is_over) {
                    let over = self.multicast.senders.remove(at);
                    self.multicast.keys_over.extend(over.and_then(|sender| sender.key_number()));
                }
            }
            self.end_memberships();
        }
    }

    fn group_update(&mut self, now: Instant, at: u32, group: HostId, update: GroupUpdate) {
        match update {
            GroupUpdate::Touched(bytes) => self.touched_there(group, bytes),
            GroupUpdate::Over { publication, result, .. } => {
                if let Some((write, len)) = publication.write {
                    self.written(write, len, result);
                }
                if let Some(line) = self.lines.get_mut(publication.link) {
                    line.barriers.chain_done(publication.number);
                    self.reach_barriers(publication.link);
                }
            }
            GroupUpdate::Silent { member } => {
                if let Some(link) = self.links.to_host(member) {
                    // It is gone: nothing is left to be closed.
                    let _ = self.links.close(now, link, Reason::NoRoom);
                }
            }
            GroupUpdate::Left { member, link, tag } => {
                self.multicast.by_ack_tag.retain(|_, of| *of != (at, member));
                // It may be a member again, or was the last of a group that is closed.
                self.multicast.has_invitations = true;
                self.multicast.ends.push(Ending { link, member, tag });
            }
        }
    }

    /// Tells members that they are none any more, as soon as there is room to.
    fn end_memberships(&mut self) {
        let Self { multicast, lines, links, .. } = self;
        multicast.ends.retain(|Ending { link, member, tag }| {
            // What is known of it went with the link.
            let Some(line) = lines.get_mut(*link).filter(|line| line.why.is_none()) else {
                return false;
            };
            let is_told =
                super::calls::put(line, &Command::GroupEnd { tag: *tag }, *member).is_ok();
            links.wake(*link);
            !is_told
        });
        multicast.has_invitations |= !multicast.ends.is_empty();
    }

    /// Invites the members of a group that were not invited yet, over their links.
    fn invite_members(&mut self, now: Instant, at: u32) {
        let Self { multicast, windows, links, lines, random, .. } = self;
        // The group is closed: nobody is invited any more.
        let Some(sender) = multicast.senders.get_mut(at) else { return };
        // The group is closed: nobody is invited any more.
        let Some(window) = sender.window.and_then(|window| windows.get(window).ok()) else {
            return;
        };
        for host in window.members().unwrap_or_default() {
            let membership = sender.membership(*host);
            if matches!(membership, Membership::Member | Membership::Gone) {
                continue;
            }
            // Invited when there is a link.
            let Some(link) = links.to_host(*host) else { continue };
            let (Some(line), Some(hello)) = (lines.get_mut(link), links.hello_of(link)) else {
                continue;
            };
            let room = Room { frames: hello.frames.into(), bytes: hello.early_bytes.into() };
            if membership == Membership::Unknown {
                let (ack_tag, seq) = (random.next_u64(), sender.next().0);
                let (tag, group, key) = (sender.tag, window.base(), sender.key);
                let invite = Command::GroupInvite { group, tag, ack_tag, seq, key };
                if super::calls::put(line, &invite, *host).is_err() {
                    multicast.has_invitations = true;
                    continue;
                }
                links.wake(link);
                multicast.by_ack_tag.insert(ack_tag, (at, *host));
            }
            sender.wants_sums |= hello.wants_sums;
            sender.add(now, *host, link, room);
        }
    }

    /// Time passed.
    pub(super) fn handle_group_timeout(&mut self, now: Instant) {
        let (give_up_after, silence) = self.links.patience();
        let patience = Patience { give_up_after, silence };
        let config = *self.links.sender_config();
        let indices: Vec<u32> = self.multicast.senders.indices().collect();
        for at in indices {
            if let Some(sender) = self.multicast.senders.get_mut(at) {
                sender.handle_timeout(&config, patience, now);
            }
        }
        self.multicast.handle_ack_timeout(now);
    }

    /// The next unit of a group for this path.
    pub(super) fn poll_group(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if let Some(ack) = self.poll_group_ack(path, head) {
            return Some(ack);
        }
        let config = *self.links.sender_config();
        let most = self.multicast.senders.indices().max()?;
        for n in 1..=most + 1 {
            let at = (self.multicast.served + n) % (most + 1);
            if let Some(transmit) = self.poll_sender(&config, now, at, path, head, from) {
                // It goes on until it has nothing more for the moment.
                self.multicast.served = (at + most) % (most + 1);
                return Some(transmit);
            }
        }
        None
    }

    fn poll_group_ack(&mut self, path: PathId, head: &mut [u8]) -> Option<Transmit> {
        let Self { multicast, links, config, .. } = self;
        for _ in 0..multicast.acks.len() {
            let name = multicast.acks.pop_front()?;
            let Some(stream) = multicast.receivers.named_mut(name.index, name.generation) else {
                continue;
            };
            let Some((way, peer)) = links.way_of(stream.link) else { continue };
            if way != path {
                multicast.acks.push_back(name);
                continue;
            }
            stream.is_ready = false;
            let body = stream.receiver.more_sack();
            head.get_mut(HEADER_LEN..HEADER_LEN + body.len())?.copy_from_slice(&body);
            let (ack, sack) = stream.receiver.ack();
            let is_late = stream.receiver.note_acked();
            let header = FrameHeader {
                kind: FrameKind::GroupAck,
                flags: if is_late { FrameFlags::LATE } else { FrameFlags::default() },
                tag: stream.ack_tag,
                seq: 0,
                ack,
                sack,
                credit: if stream.is_started { config.frames as u16 } else { 0 },
                marks: stream.receiver.marks(),
                entries: 0,
                payload_len: body.len() as u16,
            };
            header.write(head);
            return Some(bare_transmit(peer, HEADER_LEN + body.len(), bare_ticket()));
        }
        None
    }

    fn poll_sender(
        &mut self,
        config: &SenderConfig,
        now: Instant,
        at: u32,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let Self { multicast, links, .. } = self;
        let key = multicast.senders.key(at);
        let sender = multicast.senders.get_mut(at)?;
        let (tag, group_peer) = (sender.tag, sender.to);
        let header = FrameHeader {
            kind: FrameKind::GroupProbe,
            flags: FrameFlags::default(),
            tag,
            seq: sender.next().0,
            ack: 0,
            sack: 0,
            credit: 0,
            marks: 0,
            entries: 0,
            payload_len: 0,
        };
        if sender.path == path && sender.poll_probe(config, now) {
            header.write(head);
            return Some(bare_transmit(group_peer, HEADER_LEN, bare_ticket()));
        }
        let mut next = None;
        for _ in 0..sender.repairs_waiting() {
            let host = sender.next_repair()?;
            match links.to_host(host).and_then(|link| links.way_of(link)) {
                Some((way, peer)) if way == path => {
                    if let Some(sent) = sender.poll_repair(now) {
                        next = Some((sent, peer, FrameFlags::ASK));
                        break;
                    }
                }
                _ => sender.rotate_repairs(),
            }
        }
        if next.is_none() && sender.path == path {
            let first = sender.poll_first(config, now);
            next = first.map(|sent| (sent, group_peer, FrameFlags::default()));
        }
        let (sent, to, flags) = next?;
        let is_repair = flags.has(FrameFlags::ASK);
        self.stats.repairs += u64::from(is_repair);
        self.stats.multicasts += u64::from(!is_repair);
        sent.frame.write(head, from)?;
        let has_sum = self.config.checksum || sender.wants_sums;
        let flags = if has_sum { flags.with(FrameFlags::SUM) } else { flags };
        let header = FrameHeader {
            kind: FrameKind::GroupData,
            flags,
            seq: sent.seq.0,
            entries: sent.frame.entries,
            payload_len: sent.frame.payload_len,
            ..header
        };
        header.write(head);
        let link = LinkId::of(key);
        Some(Transmit {
            to,
            head_len: sent.frame.head_len() as u16,
            segment: None,
            checksum: has_sum.then_some(SUM_SLOT),
            sum_only: 0,
            ecn: if config.yields { Ecn::Capable0 } else { Ecn::NotCapable },
            ticket: match sent.frame.holds_memory() {
                true => pack(Purpose::GroupSent, link, sent.seq.0),
                false => pack(Purpose::SentBare, link, 0),
            },
        })
    }

    /// A member says what it has.
    pub(super) fn group_ack(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<Placement, Refusal> {
        let (at, host) =
            *self.multicast.by_ack_tag.get(&frame.header().tag).ok_or(Refusal::UnknownId)?;
        let link = self.links.to_host(host).ok_or(Refusal::Unexpected)?;
        let is_from = self.links.way_of(link).is_some_and(|(_, peer)| peer == unit.from);
        if !is_from {
            return Err(Refusal::BadProof);
        }
        let sender = self.multicast.senders.get_mut(at).ok_or(Refusal::UnknownId)?;
        let config = self.links.sender_config();
        sender.handle_ack(config, now, host, frame.header(), frame.payload())?;
        Ok(Placement::Consumed)
    }
}

/// The ticket of what holds no memory.
const fn bare_ticket() -> Ticket {
    Ticket::from_raw((Purpose::SentBare as u64) << 60)
}

/// Are all packets of a frame for this group?
fn are_for(stream: &GroupReceiver, mut entries: impl Iterator<Item = Entry>) -> bool {
    entries.all(|entry| stream.is_of(&entry.address))
}

/// May a publication go to a member that way?
const fn is_by_link(mode: Option<Mode>) -> bool {
    matches!(mode, None | Some(Mode::Invited))
}
