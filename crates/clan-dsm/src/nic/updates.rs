//! Links that come and go, what has arrived at the other side, and what is to be done then.

use landfall_placement::{Instant, Refusal, assumed};

use super::Nic;
use super::link_table::LinkState;
use super::multicast::Invitation;
use crate::address::{Address, HostId};
use crate::address::{ApertureId, DmaId, LinkId, WriteId};
use crate::cookie::Access;
use crate::endpoint::OutOfBand;
use crate::error::{Ended, Reason};
use crate::event::Event;
use crate::link::LinkUpdate;
use crate::transfer::reads::PeerRead;
use crate::tripwire::Place;
use crate::wire::{Command, ReplyTo};

impl Nic {
    /// Hands on what the parts have to say to each other. Asked after each input,
    /// and where little happened it costs little.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.native.is_some() {
            self.settle_native(now);
        }
        self.handle_link_updates(now);
        self.settle_groups(now);
        while let Some(host) = self.endpoints.poll_host() {
            if let Some(link) = self.links.to_host(host) {
                self.links.wake(link);
            }
        }
        self.settle_chains();
    }

    /// Takes note of links that came, have something to tell, or went.
    #[inline]
    pub(super) fn handle_link_updates(&mut self, now: Instant) {
        while let Some(updates) = self.links.poll_update() {
            match updates {
                LinkUpdate::Up { link, host } => self.link_up(now, link, host),
                LinkUpdate::Contested { link, path, peer } => {
                    self.events.push(Event::Contested { link, path, peer });
                }
                LinkUpdate::Notes { link } => self.arrived(link),
                LinkUpdate::Down { link, why } => self.link_down(link, why),
                LinkUpdate::Gone { link } => self.link_gone(link),
            }
        }
    }

    pub(super) fn link_up(&mut self, now: Instant, link: LinkId, host: HostId) {
        if self.lines.get(link).is_none() && !self.new_link_state(link) {
            // Nobody could be told of its end.
            let _ = self.links.close(now, link, Reason::NoRoom);
            return;
        }
        if let Some(line) = self.lines.get_mut(link) {
            line.host = Some(host);
        }
        self.events.push(Event::LinkUp { link, host });
        self.multicast.has_invitations = true;
        if self.endpoints.has_answers(host) {
            self.links.wake(link);
        }
    }

    /// Begins to keep what belongs to a link.
    pub(super) fn new_link_state(&mut self, link: LinkId) -> bool {
        let is_promised = self.events.promise();
        if is_promised {
            let mut line = LinkState::new(link, self.config.write_buffer);
            line.is_promised = true;
            if let Some(native) = &self.native {
                line.writes.send_packets(native.pio_burst());
            }
            self.lines.insert(line);
        }
        is_promised
    }

    /// Frames were acknowledged, or those of a link that is gone were let go.
    fn arrived(&mut self, link: LinkId) {
        let why = self.lines.get(link).and_then(|line| line.why);
        while let Some(note) = self.links.poll_note(link) {
            match why {
                None => self.note(note),
                Some(why) => self.note_lost(note, why),
            }
        }
        // It is gone, and all its frames have come back.
        let Some((_, acknowledged)) = self.links.progress(link) else { return };
        if let Some(line) = self.lines.get_mut(link).filter(|line| line.why.is_none()) {
            line.acknowledged = acknowledged;
            self.reach_barriers(link);
        }
    }

    #[inline(always)]
    pub(super) fn note(&mut self, note: Note) {
        match note {
            Note::Written(host, bytes) => self.touched_there(host, bytes),
            Note::From(write, host, bytes) => {
                self.touched_there(host, bytes);
                self.written(write, u64::from(bytes.len), Ok(()));
            }
            Note::Dma(dma, host, bytes) => {
                self.touched_there(host, bytes);
                self.dma.handle_done(dma, Ok(()));
            }
            Note::Served(aperture, at, len) => self.touched(aperture, at, len, Access::Read),
        }
    }

    fn note_lost(&mut self, note: Note, why: Ended) {
        match note {
            Note::Written(..) | Note::Served(..) => {}
            Note::From(write, _, bytes) => self.written(write, u64::from(bytes.len), Err(why)),
            Note::Dma(dma, ..) => self.dma.handle_done(dma, Err(why)),
        }
    }

    #[inline]
    pub(super) fn touched_there(&mut self, host: HostId, Bytes { slot, offset, len }: Bytes) {
        self.touch(Place::Remote(host, slot), offset, len, Access::Write);
    }

    pub(super) fn written(&mut self, write: WriteId, len: u64, result: Result<(), Ended>) {
        if let Some(result) = self.writes.done(write, len, result) {
            self.events.push_promised(Event::Written { write, result });
        }
    }

    /// Tells of barriers that are reached.
    pub(super) fn reach_barriers(&mut self, link: LinkId) {
        if let Some(line) = self.lines.get_mut(link) {
            while let Some(barrier) = line.barriers.poll_reached(line.acknowledged) {
                self.events.push_promised(Event::Barrier { barrier, result: Ok(()) });
            }
        }
    }

    /// Nothing more goes over a link. What is in the hands of drivers ends when
    /// they let go of it.
    pub(super) fn link_down(&mut self, link: LinkId, why: Ended) {
        // It went down before.
        let Some(line) = self.lines.get_mut(link).filter(|line| line.why.is_none()) else { return };
        line.why = Some(why);
        line.forget_answers();
        let (host, is_settled) = (line.host, line.is_settled());
        if let Some(piece) = line.piece.take() {
            self.dma.handle_done(piece.dma, Err(why));
        }
        while let Some(barrier) = line.barriers.poll_lost() {
            self.events.push_promised(Event::Barrier { barrier, result: Err(why) });
        }
        while let Some((write, len)) = self.lines.get_mut(link).and_then(|l| l.writes.poll_lost()) {
            self.written(write, len, Err(why));
        }
        self.dma.handle_link_gone(link.index, why);
        self.multicast.handle_link_down(link, why);
        if is_settled {
            self.end_questions(link);
        }
        // Another link to it changes nothing: what was said went over this one.
        if let Some(host) = host {
            let Self { endpoints, events, .. } = self;
            let tell = &mut |endpoint| {
                events.push(Event::OutOfBand { endpoint });
            };
            endpoints.handle_host_gone(host, why, tell);
        }
        self.events.push_promised(Event::LinkDown { link, why });
    }

    /// Nobody holds anything of it any more: what was accepted before its end is in its
    /// place, and what that touches was told.
    pub(super) fn link_gone(&mut self, link: LinkId) {
        debug_assert!(self.lines.get(link).is_none_or(LinkState::is_settled), "{link:?} is in use");
        self.end_questions(link);
        self.lines.remove(link);
    }
}

/// Bytes of an aperture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// The aperture's slot at its host.
    pub(crate) slot: u16,
    /// The first byte.
    pub(crate) offset: u64,
    /// How many.
    pub(crate) len: u32,
}

/// A remark on what a frame carries. The link keeps it with the frame, and
/// gives it back when the frame is acknowledged and nobody holds its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The program wrote these bytes of a host (or a group): outgoing
    /// tripwires listen for that.
    Written(HostId, Bytes),
    /// A piece of a write from memory wrote these.
    From(WriteId, HostId, Bytes),
    /// A piece of a chain of DMA requests wrote these.
    Dma(DmaId, HostId, Bytes),
    /// The other side read bytes of ours, this many from this one on. Its tripwires hear of it only
    /// now: until the answer has arrived it may be repeated, and is fetched
    /// again.
    Served(ApertureId, u64, u32),
}

// What others ask, answer and complain of.

impl Nic {
    /// A command came, in its turn.
    pub(super) fn command(
        &mut self,
        _now: Instant,
        link: LinkId,
        address: &Address,
        parameters: &[u8],
    ) {
        if let Err(refusal) = self.handle_command(link, address, parameters) {
            self.refusals.count(refusal);
        }
    }

    pub(super) fn handle_command(
        &mut self,
        link: LinkId,
        address: &Address,
        parameters: &[u8],
    ) -> Result<(), Refusal> {
        if address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let host = self.known_host(link).ok_or(Refusal::Unexpected)?;
        match Command::parse(address, parameters)? {
            Command::Read { from, len, reply } => {
                let ReplyTo { slot, nonce } = reply;
                let asked = PeerRead { host, address: from, len: u64::from(len), slot, nonce };
                self.asked(link, asked);
            }
            Command::ReadRefused { reply: ReplyTo { slot, nonce }, reason } => {
                let over = self.reads.refused(link.index, slot, nonce, reason)?;
                self.read_over(over);
            }
            // Were it allowed, it would have been done on its way.
            Command::WordOp { at, function, reply } => {
                let reason = match self.check_word(link, &at, function) {
                    Err(refusal) => Reason::from(self.refusals.count(refusal)),
                    Ok(_) => Reason::NoRoom,
                };
                self.answer(link, Command::WordReply { reply, result: Err(reason) });
            }
            Command::WordReply { reply: ReplyTo { slot, nonce }, result } => {
                let operation = self.operations.answered(link.index, slot, nonce)?;
                self.word_over(link, operation, result.map_err(Ended::There));
            }
            Command::OutOfBand(message) => self.message(host, &message)?,
            Command::Exception { address, reason } => {
                let window = self.windows.of(&address);
                let address = Some(address);
                self.events.push(Event::Exception { window, host, reason, address });
            }
            Command::GroupInvite { group, tag, ack_tag, seq, key } => {
                let invitation = Invitation { group, tag, ack_tag, seq, key };
                return self.group_invited(link, host, &invitation);
            }
            Command::GroupStart { tag, seq } => self.group_started(link, tag, seq)?,
            Command::GroupEnd { tag } => self.group_ended(link, tag)?,
            // A link that acknowledges needs none: who asks is told nothing that
            // it does not learn from that.
            Command::Barrier { .. } | Command::BarrierReached { .. } => {
                return Err(Refusal::Unsupported);
            }
        }
        Ok(())
    }

    /// The other side wants to read.
    fn asked(&mut self, link: LinkId, asked: PeerRead) {
        let most = self.config.reads.min(super::MOST_ASKED);
        let Self { lines, memory, .. } = self;
        let Some(line) =
            assumed(lines.get_mut(link), "only a link that there is brings a question")
        else {
            return;
        };
        let is_ours = asked.address.host == self.host;
        let result = match is_ours {
            true => line.serving.ask(memory, asked, most),
            false => Err(Reason::BadKey),
        };
        match result {
            Ok(()) => self.links.wake(link),
            Err(reason) => {
                let reply = ReplyTo { slot: asked.slot, nonce: asked.nonce };
                self.stats.refused += 1;
                self.answer(link, Command::ReadRefused { reply, reason });
            }
        }
    }

    fn message(&mut self, host: HostId, message: &[u8; OutOfBand::LEN]) -> Result<(), Refusal> {
        let message = OutOfBand::from_bytes(message).ok_or(Refusal::Malformed)?;
        let Self { endpoints, events, .. } = self;
        let tell = &mut |endpoint| {
            events.push(Event::OutOfBand { endpoint });
        };
        let lost = endpoints.handle_message(host, &message, tell);
        if lost.is_some() {
            let reason = Reason::NoRoom;
            let (window, address) = (None, None);
            self.events.push(Event::Exception { window, host, reason, address });
        }
        Ok(())
    }
}
