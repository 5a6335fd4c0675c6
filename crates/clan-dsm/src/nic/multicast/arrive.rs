//! A member's part: invitations, where frames of a stream belong, and what is acknowledged.

use arrayvec::ArrayVec;
use landfall_placement::{
    Check, Ecn, Instant, Landing, Peer, Placement, Refusal, Serial32, Spans, Unit,
};

use super::{Invitation, are_for};
use crate::address::{HostId, Kind, LinkId, Purpose, TicketParts, WHOLE, pack};
use crate::cookie::Rights;
use crate::event::Event;
use crate::link::{FrameDecision, HeldFrame, Receiver};
use crate::multicast::{GroupReceiver, ReceiverName, StreamTags};
use crate::nic::Nic;
use crate::nic::PacketEffect;
use crate::nic::arrive::{Checked, FrameOwner, need};
use crate::wire::frame::{Frame, FrameFlags, MAX_ENTRIES};

impl Nic {
    /// A writer says that it multicasts. A host that is no member does not listen.
    pub(in crate::nic) fn group_invited(
        &mut self,
        link: LinkId,
        host: HostId,
        invitation: &Invitation,
    ) -> Result<(), Refusal> {
        let Invitation { group, tag, ack_tag, seq, key } = *invitation;
        if group.kind != Kind::Multicast || group.mask != WHOLE || group.word != 0 {
            return Err(Refusal::Malformed);
        }
        self.memory.check(Some(host), &group, 1, Rights::Write)?;
        if !self.memory.takes_from(&group, Some(host)) {
            return Err(Refusal::Forbidden);
        }
        let multicast = &mut self.multicast;
        if multicast.by_tag.contains_key(&tag) {
            return Err(Refusal::Duplicate);
        }
        let (frames, early) = (self.config.frames as u16, self.config.early_bytes);
        let receiver = Receiver::starting_at(frames, early, Serial32(seq));
        let mut stream = GroupReceiver::new(link, group, StreamTags { tag, ack_tag }, receiver);
        stream.key = key.map(|key| key.number);
        let name = multicast.receivers.insert(stream).ok_or(Refusal::NoRoom)?;
        multicast.by_tag.insert(tag, name.index);
        if let Some(key) = key {
            // Where that finds no room this host does not hear the address, and gets copies.
            self.events.push(Event::GroupKey { key });
        }
        Ok(())
    }

    /// From this frame on a stream is meant for this host.
    pub(in crate::nic) fn group_started(
        &mut self,
        link: LinkId,
        tag: u64,
        seq: u32,
    ) -> Result<(), Refusal> {
        let at = self.stream_over(link, tag)?;
        let stream = self.multicast.receivers.get_mut(at).ok_or(Refusal::UnknownId)?;
        stream.start(Serial32(seq));
        self.multicast.note_ack(at);
        self.deposit_next(at);
        Ok(())
    }

    /// A stream is meant for this host no longer.
    pub(in crate::nic) fn group_ended(&mut self, link: LinkId, tag: u64) -> Result<(), Refusal> {
        let at = self.stream_over(link, tag)?;
        self.multicast.forget_receiver(at);
        Ok(())
    }

    /// The stream with this proof, whose writer is behind that link.
    fn stream_over(&self, link: LinkId, tag: u64) -> Result<u32, Refusal> {
        let at = *self.multicast.by_tag.get(&tag).ok_or(Refusal::UnknownId)?;
        let stream = self.multicast.receivers.get(at).ok_or(Refusal::UnknownId)?;
        if stream.link == link { Ok(at) } else { Err(Refusal::BadProof) }
    }

    /// The stream that a unit with this proof is of, if it comes from its writer.
    fn stream_of(&self, from: Peer, tag: u64) -> Result<u32, Refusal> {
        let at = *self.multicast.by_tag.get(&tag).ok_or(Refusal::UnknownId)?;
        let stream = self.multicast.receivers.get(at).ok_or(Refusal::UnknownId)?;
        let (_, peer) = self.links.way_of(stream.link).ok_or(Refusal::Unexpected)?;
        let is_sealed = stream.key.is_some_and(|number| from == Peer::Node(number));
        if peer == from || is_sealed { Ok(at) } else { Err(Refusal::BadProof) }
    }

    /// The writer asks who hears the group's address.
    pub(in crate::nic) fn group_probe(
        &mut self,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<Placement, Refusal> {
        let at = self.stream_of(unit.from, frame.header().tag)?;
        if let Some(stream) = self.multicast.receivers.get_mut(at) {
            stream.receiver.hurry();
        }
        self.multicast.note_ack(at);
        Ok(Placement::Consumed)
    }

    /// A frame of a stream.
    pub(in crate::nic) fn group_data(
        &mut self,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let at = self.stream_of(unit.from, frame.header().tag)?;
        let placed = self.group_data_of(at, unit, frame, into);
        let stream = self.multicast.receivers.get_mut(at);
        if let Some(stream) = stream.filter(|_| frame.header().flags.has(FrameFlags::ASK)) {
            stream.receiver.hurry();
        }
        // A gap, or a copy of what is there, is to be told.
        self.multicast.note_ack(at);
        placed
    }

    fn group_data_of(
        &mut self,
        at: u32,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let name = self.multicast.receivers.key(at);
        let stream = self.multicast.receivers.get_mut(at).ok_or(Refusal::UnknownId)?;
        if !are_for(stream, frame.entries()) {
            return Err(Refusal::WrongAddress);
        }
        let (seq, is_open) = (Serial32(frame.header().seq), stream.is_open());
        let decision = stream.receiver.look(seq, frame.end())?;
        let is_depositing = self.is_depositing_of(FrameOwner::Group(name));
        let is_next = decision == FrameDecision::Next && is_open && !is_depositing;
        if is_next && let Some(effects) = self.place_group(at, frame, into) {
            let is_marked = unit.ecn == Ecn::CongestionExperienced;
            let stream = self.multicast.receivers.get_mut(at).ok_or(Refusal::UnknownId)?;
            stream.receiver.accept(is_marked);
            let number = stream.push_placed(effects);
            let ticket = pack(Purpose::GroupPlaced, LinkId::of(name), number);
            return Ok(Placement::Into { at: frame.payload_at(), check: Check::None, ticket });
        }
        self.keep_group(at, unit, frame)
    }

    /// Keeps a frame whole, until it is its turn.
    fn keep_group(
        &mut self,
        at: u32,
        unit: &Unit<'_>,
        frame: &Frame<'_>,
    ) -> Result<Placement, Refusal> {
        let Some(whole) = unit.head.get(..frame.end() as usize) else { return Ok(need(frame)) };
        let stream = self.multicast.receivers.get_mut(at).ok_or(Refusal::UnknownId)?;
        let is_marked = unit.ecn == Ecn::CongestionExperienced;
        stream.receiver.keep(Serial32(frame.header().seq), whole, is_marked)?;
        self.stats.kept += 1;
        self.deposit_next(at);
        Ok(Placement::Consumed)
    }

    /// What is kept may be next.
    fn deposit_next(&mut self, at: u32) {
        let name = self.multicast.receivers.key(at);
        // The stream is over.
        let Some(stream) = self.multicast.receivers.get(at) else { return };
        if stream.is_open() && stream.receiver.has_next_kept() {
            self.deposits.push_back(FrameOwner::Group(name));
        }
    }

    /// Lists the places of all packets, if none is refused.
    fn place_group(
        &self,
        at: u32,
        frame: &Frame<'_>,
        into: &mut Spans,
    ) -> Option<ArrayVec<PacketEffect, MAX_ENTRIES>> {
        let link = self.multicast.receivers.get(at)?.link;
        let mut effects = ArrayVec::new();
        for entry in frame.entries() {
            let checked = self.check(link, &entry, 0).ok();
            let listed = checked.filter(|checked| into.push(checked.span).is_ok());
            let Some(Checked { lands, .. }) = listed else {
                into.clear();
                return None;
            };
            effects.push(lands);
        }
        Some(effects)
    }

    /// A frame of a stream is in its place, or could not be put there.
    pub(in crate::nic) fn land_group(
        &mut self,
        now: Instant,
        meaning: &TicketParts,
        landing: Landing,
    ) {
        let at = meaning.link;
        let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
        let generation = self.multicast.receivers.generation(at);
        let Some(stream) =
            self.multicast.receivers.get_mut(at).filter(|_| meaning.is_of(generation))
        else {
            return; // The stream is over.
        };
        let link = stream.link;
        // It is no ticket of what is under way.
        let Some(effects) = stream.pop_placed(meaning.number) else { return };
        for effect in effects {
            self.land_one(link, effect, is_there);
        }
        self.group_applied(now, at);
    }

    /// The first of the frames that were accepted is in place.
    fn group_applied(&mut self, now: Instant, at: u32) {
        if let Some(stream) = self.multicast.receivers.get_mut(at) {
            stream.receiver.handle_applied(now);
            stream.try_start();
        }
        self.multicast.note_ack(at);
        self.deposit_next(at);
    }

    /// The next kept frame of a stream, and the link that its writer is behind.
    pub(in crate::nic) fn next_kept_of_group(
        &mut self,
        name: ReceiverName,
    ) -> Option<(LinkId, HeldFrame)> {
        let stream = self.multicast.receivers.named_mut(name.index, name.generation)?;
        if !stream.is_open() {
            return None;
        }
        let kept = stream.receiver.next_kept()?;
        Some((stream.link, kept))
    }

    /// A kept frame of a stream is dealt with.
    pub(in crate::nic) fn give_back_to_group(
        &mut self,
        now: Instant,
        name: ReceiverName,
        kept: HeldFrame,
    ) {
        // The stream may be over.
        let stream = self.multicast.receivers.named_mut(name.index, name.generation);
        if let Some(stream) = stream {
            stream.receiver.give_back(kept);
            self.group_applied(now, name.index);
        }
    }

    /// Is this the owner of frames still?
    pub(in crate::nic) fn owns_frames(&self, owner: FrameOwner) -> bool {
        match owner {
            FrameOwner::Link(_) => true,
            FrameOwner::Group(name) => {
                self.multicast.receivers.named(name.index, name.generation).is_some()
            }
        }
    }
}
