//! Where the bytes of a frame belong.
//!
//! A frame of writes and answers whose turn it is goes straight to its place.
//! What needs more care is kept whole and put into place packet by packet: a
//! frame that came early, one with a packet that is refused, one with commands
//! among writes.

use core::ops::Range;

use landfall_placement::{
    Check, Instant, InternetSum, Landing, Placement, Refusal, Spans, Ticket, Unit, WordFunction,
    WordOp,
};

use super::Nic;
use super::link_table::{PacketEffect, Placed};
use crate::address::{Address, HostId, Key, Kind, LinkId, Purpose, WHOLE, pack};
use crate::cookie::{Access, Rights};
use crate::error::Reason;
use crate::link::{FrameAction, HeldFrame};
use crate::multicast::ReceiverName;
use crate::offload::Destination;
use crate::wire::command::{ReplyTo, word_width};
use crate::wire::{Command, Entry, Frame, FrameKind, Incomplete};

/// A packet that was checked: where its bytes belong, and what that means.
pub(super) struct Checked {
    pub(super) span: landfall_placement::Span,
    pub(super) lands: PacketEffect,
}

impl Nic {
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let frame = match Frame::parse(unit.head, unit.len) {
            Ok(frame) => frame,
            Err(Incomplete::Need(more)) => return Ok(Placement::NeedHead(more)),
            Err(Incomplete::Refused(refusal)) => return Err(refusal),
        };
        if self.must_be_summed(&frame)? {
            let end = frame.end();
            let Some(whole) = unit.head.get(..end as usize) else {
                return Ok(need(&frame));
            };
            if !is_sum_right(&frame, whole) {
                return Err(Refusal::BadChecksum);
            }
        }
        match frame.kind() {
            FrameKind::GroupData => return self.group_data(unit, &frame, into),
            FrameKind::GroupAck => return self.group_ack(now, unit, &frame),
            FrameKind::GroupProbe => return self.group_probe(unit, &frame),
            FrameKind::Data
            | FrameKind::Ack
            | FrameKind::Hello
            | FrameKind::Bye
            | FrameKind::Stranger => {}
        }
        let arrival = self.links.handle_frame(now, unit, &frame)?;
        // A frame can be the word that the link is up. Who is there is known before what
        // the frame carries is looked at: a command that is taken counts as arrived, and
        // never comes again.
        self.handle_link_updates(now);
        match arrival {
            FrameAction::Consumed => Ok(Placement::Consumed),
            FrameAction::Next(link) | FrameAction::Early(link) if !self.is_known(link) => {
                // There was no room for what belongs to it: it ends. The frame was not taken.
                Err(Refusal::NoRoom)
            }
            FrameAction::Next(link) => self.next(now, link, unit, &frame, into),
            FrameAction::Early(link) => self.early(link, unit, &frame),
        }
    }

    /// Who is at the other side of this link, if that is known.
    pub(super) fn known_host(&self, link: LinkId) -> Option<HostId> {
        self.lines.get(link)?.host
    }

    /// Is it known who is at the other side of this link, and is there room for what
    /// belongs to it?
    fn is_known(&self, link: LinkId) -> bool {
        self.lines.get(link).is_some_and(|line| line.host.is_some())
    }

    fn must_be_summed(&self, frame: &Frame<'_>) -> Result<bool, Refusal> {
        let is_data = frame.kind().is_data();
        if is_data && self.config.checksum && !frame.has_sum() {
            return Err(Refusal::BadChecksum);
        }
        // It is summed before the frame is accepted, and not by the driver on
        // its way: frames behind it may already be on theirs, and must not be in
        // place before it.
        Ok(is_data && frame.has_sum())
    }

    /// A frame whose turn it is.
    #[inline]
    fn next(
        &mut self,
        now: Instant,
        link: LinkId,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if self.is_depositing(link) {
            // The frame before it is half in place.
            return self.early(link, unit, frame);
        }
        if !frame.entries().any(|entry| entry.address.kind == Kind::Command) {
            return match self.place_all(link, frame, into) {
                Some(packets) => Ok(self.send_on(link, unit, frame, packets)),
                None => self.keep(link, unit, frame),
            };
        }
        if !is_whole(frame) {
            return Ok(need(frame));
        }
        if let Some(placement) = self.place_word(link, unit, frame) {
            return Ok(placement);
        }
        let is_plain = frame.entries().all(|entry| entry.address.kind == Kind::Command)
            && self.lines.get(link).is_some_and(super::link_table::LinkState::is_settled);
        if !is_plain {
            return self.keep(link, unit, frame);
        }
        self.links.accept(link, unit.ecn);
        let mut payload = frame.payload();
        for entry in frame.entries() {
            let (parameters, rest) = payload.split_at(entry.payload_len() as usize);
            self.command(now, link, &entry.address, parameters);
            payload = rest;
        }
        self.applied(now, link);
        Ok(Placement::Consumed)
    }

    /// A frame that came too early waits for those before it.
    fn early(
        &mut self,
        link: LinkId,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<Placement, Refusal> {
        // An operation on a word cannot be deposited: it is repeated, and comes
        // in its turn.
        if frame.entries().any(|entry| is_word_operation(&entry)) {
            return Err(Refusal::NoRoom);
        }
        self.keep(link, unit, frame)
    }

    fn keep(
        &mut self,
        link: LinkId,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<Placement, Refusal> {
        let Some(whole) = unit.head.get(..frame.end() as usize) else { return Ok(need(frame)) };
        self.links.keep(link, frame, whole, unit.ecn)?;
        self.stats.kept += 1;
        if self.links.has_next_kept(link) {
            self.deposits.push_back(FrameOwner::Link(link));
        }
        Ok(Placement::Consumed)
    }

    /// Lists the places of all packets, if none is refused, and says how many
    /// they are.
    fn place_all(&mut self, link: LinkId, frame: &Frame<'_>, into: &mut Spans) -> Option<usize> {
        let mut packets = 0;
        for entry in frame.entries() {
            let checked = self.check(link, &entry, packets).ok();
            let line = self.lines.get_mut(link)?;
            let listed = checked.filter(|checked| into.push(checked.span).is_ok());
            let Some(Checked { lands, .. }) = listed else {
                line.lands.truncate(line.lands.len() - packets);
                into.clear();
                return None;
            };
            line.lands.push_back(lands);
            packets += 1;
        }
        Some(packets)
    }

    /// Where a packet belongs that comes after this many others of its frame.
    pub(super) fn check(
        &self,
        link: LinkId,
        entry: &Entry,
        packets: usize,
    ) -> Result<Checked, Refusal> {
        let Entry { address, words } = *entry;
        if address.kind == Kind::Reply {
            let ahead = self.lines.get(link).map_or(0, |line| line.ahead(packets, address.slot));
            let len = entry.payload_len();
            let (read, span) = self.reads.check(link.index, &address, len, ahead)?;
            return Ok(Checked { span, lands: PacketEffect::Read { read, len } });
        }
        if address.kind == Kind::Burst && address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let from = self.known_host(link);
        let Destination { slot, at, span } =
            self.memory.check(from, &address, u32::from(words), Rights::Write)?;
        if address.kind == Kind::Multicast && !self.memory.takes_from(&address, from) {
            return Err(Refusal::Forbidden);
        }
        let aperture = self.memory.id_of(slot).ok_or(Refusal::UnknownId)?;
        let lands = PacketEffect::Aperture { address, aperture, at, len: span.len };
        Ok(Checked { span, lands })
    }

    /// A frame goes straight to its places.
    fn send_on(
        &mut self,
        link: LinkId,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
        packets: usize,
    ) -> Placement {
        self.links.accept(link, unit.ecn);
        let Self { lines, reads, .. } = self;
        let number = lines.get_mut(link).map_or(0, |line| {
            for lands in line.lands.iter().rev().take(packets) {
                if let PacketEffect::Read { read, len } = *lands {
                    reads.placed(read, len);
                }
            }
            line.push_placed(Placed::Frame { packets })
        });
        let ticket = pack(Purpose::Placed, link, number);
        Placement::Into { at: frame.payload_at(), check: Check::None, ticket }
    }

    /// An operation on a word that is alone in its frame and allowed.
    fn place_word(
        &mut self,
        link: LinkId,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Option<Placement> {
        let mut entries = frame.entries();
        let (entry, None) = (entries.next()?, entries.next()) else { return None };
        let command = Command::parse(&entry.address, frame.payload()).ok()?;
        let Command::WordOp { at: address, function, reply } = command else { return None };
        let (operation, aperture, at) = self.check_word(link, &address, function).ok()?;
        let how = access_of(function);
        let len = operation.width.bytes();
        let placed = Placed::Word { address, aperture, at, len, how, reply };
        let number = self.lines.get_mut(link)?.push_placed(placed);
        // Only now: what is taken is put in its place, whatever comes.
        self.links.accept(link, unit.ecn);
        Some(Placement::Word(operation, pack(Purpose::Placed, link, number)))
    }

    /// May this word be changed, and where is it?
    pub(super) fn check_word(
        &self,
        link: LinkId,
        address: &Address,
        function: WordFunction,
    ) -> Result<(WordOp, crate::address::ApertureId, u64), Refusal> {
        let width = word_width(address).ok_or(Refusal::Malformed)?;
        if address.kind != Kind::Burst || address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let from = self.known_host(link);
        let Destination { slot, at, span } =
            self.memory.check(from, address, 1, Rights::ReadWrite)?;
        let aperture = self.memory.id_of(slot).ok_or(Refusal::UnknownId)?;
        let operation = WordOp { region: span.region, offset: span.offset, width, function };
        Ok((operation, aperture, at))
    }
}

/// What a command to change a word is known by.
const WORD_OP: u16 = {
    let key = Key::from_bits(0);
    let Some(host) = HostId::new(0) else { unreachable!() };
    let at = Address { kind: Kind::Burst, host, slot: 0, word: 0, mask: WHOLE, key };
    let reply = ReplyTo { slot: 0, nonce: key };
    Command::WordOp { at, function: WordFunction::Load, reply }.code()
};

/// How an operation touches its word.
const fn access_of(function: WordFunction) -> Access {
    match function {
        WordFunction::Load => Access::Read,
        WordFunction::Store(_) => Access::Write,
        _ => Access::Both,
    }
}

fn is_word_operation(entry: &Entry) -> bool {
    entry.address.kind == Kind::Command && entry.address.slot == WORD_OP
}

fn is_whole(frame: &Frame<'_>) -> bool {
    frame.payload().len() == frame.payload_len() as usize
}

/// Asks for the frame whole, without its padding.
pub(super) fn need(frame: &Frame<'_>) -> Placement {
    match u16::try_from(frame.end()) {
        Ok(end) => Placement::NeedHead(end),
        // No path carries such a unit.
        Err(_) => Placement::NeedHead(u16::MAX),
    }
}

pub(crate) fn is_sum_right(frame: &Frame<'_>, whole: &[u8]) -> bool {
    // No sum is asked for.
    let Check::InternetSum { from, seed, .. } = frame.check() else { return true };
    let mut sum = InternetSum::new();
    sum.add_word(seed);
    sum.add(whole.get(usize::from(from)..).unwrap_or_default());
    sum.sum() == u16::MAX
}

// Frames that had to be kept, put into place packet by packet.
//
// Each packet is checked when its turn comes, not when it arrived: what was
// revoked meanwhile is not touched.

/// Whose frame it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOwner {
    Link(LinkId),
    /// The stream of a group.
    Group(ReceiverName),
}

/// A kept frame whose turn it is.
#[derive(Debug)]
pub(super) struct PendingDeposit {
    owner: FrameOwner,
    /// The link that it came over, or that its group's writer is behind.
    link: LinkId,
    kept: HeldFrame,
    /// Which packet is next, and where in the payload it begins.
    entry: usize,
    at: usize,
    /// The packet that is being written. Its number is in the ticket.
    landing: Option<PacketEffect>,
    number: u32,
}

/// What comes of looking at the next packet.
enum Step {
    /// It has to be written.
    Write(Range<usize>, Ticket),
    /// It is dealt with.
    Done,
    /// There is none.
    End,
}

impl Nic {
    /// The next bytes of a kept frame that have to be written.
    pub(super) fn next_deposit(
        &mut self,
        now: Instant,
        into: &mut Spans,
    ) -> Option<(Range<usize>, Ticket)> {
        loop {
            if self.depositing.is_none() {
                self.depositing = Some(self.take_kept()?);
            }
            let mut current = self.depositing.take()?;
            if current.landing.is_some() {
                // The driver has not said yet what became of the last one.
                self.depositing = Some(current);
                return None;
            }
            match self.step(now, &mut current, into) {
                Step::Write(range, ticket) => {
                    self.depositing = Some(current);
                    return Some((range, ticket));
                }
                Step::Done => self.depositing = Some(current),
                Step::End => {
                    self.give_back(now, current.owner, current.kept);
                }
            }
        }
    }

    /// Is a frame of this link being put into place packet by packet?
    pub(super) fn is_depositing(&self, link: LinkId) -> bool {
        self.is_depositing_of(FrameOwner::Link(link))
    }

    /// The same for any owner of frames.
    pub(super) fn is_depositing_of(&self, owner: FrameOwner) -> bool {
        self.depositing.as_ref().is_some_and(|current| current.owner == owner)
    }

    /// A kept frame is dealt with.
    fn give_back(&mut self, now: Instant, owner: FrameOwner, kept: HeldFrame) {
        match owner {
            FrameOwner::Link(link) => {
                self.links.give_back(link, kept);
                self.applied(now, link);
            }
            FrameOwner::Group(name) => self.give_back_to_group(now, name, kept),
        }
    }

    /// The bytes of the kept frame that is being deposited.
    pub(super) fn deposited(&self, range: Range<usize>) -> Option<&[u8]> {
        self.depositing.as_ref()?.kept.frame()?.payload().get(range)
    }

    fn take_kept(&mut self) -> Option<PendingDeposit> {
        while let Some(owner) = self.deposits.front().copied() {
            let next = match owner {
                FrameOwner::Link(link) => self.links.next_kept(link).map(|kept| (link, kept)),
                FrameOwner::Group(name) => self.next_kept_of_group(name),
            };
            if let Some((link, kept)) = next {
                let (entry, at, landing, number) = (0, 0, None, 0);
                return Some(PendingDeposit { owner, link, kept, entry, at, landing, number });
            }
            self.deposits.pop_front();
        }
        None
    }

    fn step(&mut self, now: Instant, current: &mut PendingDeposit, into: &mut Spans) -> Step {
        let link = current.link;
        let Some(frame) = current.kept.frame() else { return Step::End };
        let entry = frame.entries().nth(current.entry);
        let is_alive = self.lines.get(link).is_some_and(|line| line.why.is_none())
            && self.owns_frames(current.owner);
        let Some(entry) = entry.filter(|_| is_alive) else { return Step::End };
        let range = current.at..current.at + entry.payload_len() as usize;
        current.entry += 1;
        current.at = range.end;
        if entry.address.kind == Kind::Command {
            let parameters = frame.payload().get(range).unwrap_or_default();
            self.command(now, link, &entry.address, parameters);
            return Step::Done;
        }
        match self.check(link, &entry, 0) {
            Ok(Checked { span, lands }) => {
                if let PacketEffect::Read { read, len } = lands {
                    self.reads.placed(read, len);
                }
                into.clear();
                // An empty list has room for one.
                let _ = into.push(span);
                current.landing = Some(lands);
                self.deposits_made = self.deposits_made.wrapping_add(1);
                current.number = self.deposits_made;
                Step::Write(range, pack(Purpose::Deposit, link, current.number))
            }
            Err(refusal) => {
                self.refusals.count(refusal);
                self.refused(link, &entry, Reason::from(refusal));
                Step::Done
            }
        }
    }

    /// A packet is refused, and the rest of its frame is not.
    fn refused(&mut self, link: LinkId, entry: &Entry, reason: Reason) {
        // Nobody waits for an answer to an answer.
        if entry.address.kind != Kind::Reply {
            self.complain(link, entry.address, reason);
        }
    }

    /// The packet that is being written is in place, or could not be put there.
    pub(super) fn land_deposit(&mut self, ticket: Ticket, landing: Landing) {
        // Nothing is being written: the ticket is of something before.
        let Some(current) = &mut self.depositing else { return };
        if pack(Purpose::Deposit, current.link, current.number) != ticket {
            return;
        }
        let link = current.link;
        if let Some(lands) = current.landing.take() {
            let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
            self.land_one(link, lands, is_there);
        }
    }
}
