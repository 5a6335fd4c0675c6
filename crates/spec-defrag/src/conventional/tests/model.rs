//! The rules word for word, for lists of pieces and bytes: slow and plain.

use super::*;

/// (host, version 6, id)
pub(super) type Name = (u32, bool, u32);

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) name: Name,
    pub(super) start: u32,
    pub(super) more: bool,
    pub(super) ecn: Ecn,
    pub(super) bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u32 {
        self.start + self.bytes.len() as u32
    }

    fn range(&self) -> (u32, u32, bool) {
        (self.start, self.end(), self.more)
    }
}

#[derive(Debug)]
struct Packet {
    name: Name,
    started: Instant,
    /// When it came: for the age in its source, and in its pool.
    opened: u64,
    took: u64,
    pieces: Vec<Piece>,
    is_refused: bool,
    is_large: bool,
    split: u32,
    held: u64,
}

/// The packets in the order of their start, and what is free.
#[derive(Debug)]
pub(super) struct Model {
    config: Config,
    packets: Vec<Packet>,
    pub(super) free_pages: u32,
    pub(super) free_large: u32,
    steps: u64,
}

type Outcome = Result<Option<Vec<u8>>, Refusal>;

impl Model {
    pub(super) fn new(config: Config, pages: u32, large: u32) -> Self {
        let packets = Vec::new();
        Self { config, packets, free_pages: pages, free_large: large, steps: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn contains(&self, name: Name) -> bool {
        self.packets.iter().any(|packet| packet.name == name)
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.packets.iter().map(|packet| packet.started + self.config.lifetime).min()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(at) =
            self.packets.iter().position(|packet| packet.started + self.config.lifetime <= now)
        {
            self.forget(at);
        }
    }

    fn forget(&mut self, at: usize) {
        let packet = self.packets.remove(at);
        if !packet.is_refused {
            self.free(packet.is_large);
        }
    }

    fn free(&mut self, is_large: bool) {
        *(if is_large { &mut self.free_large } else { &mut self.free_pages }) += 1;
    }

    fn forget_oldest(
        &mut self,
        kept: Option<Name>,
        among: impl Fn(&Packet) -> bool,
        age: impl Fn(usize, &Packet) -> u64,
    ) -> Result<(), Refusal> {
        let candidates = self.packets.iter().enumerate();
        let oldest = candidates
            .filter(|(_, packet)| Some(packet.name) != kept && among(packet))
            .min_by_key(|(at, packet)| age(*at, packet))
            .map(|(at, _)| at);
        self.forget(oldest.ok_or(Refusal::NoRoom)?);
        Ok(())
    }

    fn make_room(&mut self, kept: Option<Name>, name: Name, more: u64) -> Result<(), Refusal> {
        let source = |packet: &Packet| (packet.name.0, packet.name.1) == (name.0, name.1);
        let own = self.packets.iter().filter(|packet| Some(packet.name) == kept);
        let own: u64 = own.map(|packet| packet.held).sum();
        if own + more > self.config.bytes || own + more > self.config.bytes_per_source {
            return Err(Refusal::NoRoom);
        }
        let held = |packets: &[Packet], of: &dyn Fn(&Packet) -> bool| -> u64 {
            packets.iter().filter(|packet| of(packet)).map(|packet| packet.held).sum()
        };
        while held(&self.packets, &source) + more > self.config.bytes_per_source {
            self.forget_oldest(kept, source, |_, packet| packet.opened)?;
        }
        while held(&self.packets, &|_| true) + more > self.config.bytes {
            self.forget_oldest(kept, |_| true, |at, _| at as u64)?;
        }
        Ok(())
    }

    pub(super) fn take(&mut self, kept: Option<Name>, is_large: bool) -> Result<(), Refusal> {
        if (if is_large { self.free_large } else { self.free_pages }) == 0 {
            let holds = |packet: &Packet| !packet.is_refused && packet.is_large == is_large;
            self.forget_oldest(kept, holds, |_, packet| packet.took)?;
        }
        *(if is_large { &mut self.free_large } else { &mut self.free_pages }) -= 1;
        Ok(())
    }

    fn open(
        &mut self,
        started: Instant,
        name: Name,
        room: Option<u32>,
        split: u32,
    ) -> Result<(), Refusal> {
        let is_large = room.is_some_and(|room| room > PAGE);
        let held = u64::from(if is_large { LARGE } else { PAGE });
        self.make_room(None, name, held)?;
        if self.packets.len() >= self.config.packets as usize {
            self.forget_oldest(None, |_| true, |at, _| at as u64)?;
        }
        let has_page = |packet: &Packet| !packet.is_refused && !packet.is_large;
        let pages = self.packets.iter().filter(|packet| has_page(packet)).count();
        if !is_large && pages >= self.config.pages as usize {
            self.forget_oldest(None, has_page, |_, packet| packet.took)?;
        }
        if room.is_some() {
            self.take(None, is_large)?;
        }
        let at = self.packets.iter().rposition(|other| other.started <= started);
        self.steps += 1;
        let packet = Packet {
            name,
            started,
            opened: self.steps,
            took: self.steps,
            pieces: Vec::new(),
            is_refused: false,
            is_large,
            split,
            held,
        };
        self.packets.insert(at.map_or(0, |at| at + 1), packet);
        Ok(())
    }

    fn find(&mut self, name: Name) -> Option<usize> {
        self.packets.iter().position(|packet| packet.name == name)
    }

    fn refuse(&mut self, at: usize) {
        self.packets[at].is_refused = true;
        self.packets[at].held = 512;
        self.free(self.packets[at].is_large);
    }

    /// RFC 5722 and RFC 8200, section 4.5.
    fn accept(&mut self, name: Name, piece: &Piece) -> Result<(), Refusal> {
        let at = self.find(name).unwrap();
        let packet = &self.packets[at];
        if packet.is_refused {
            return Err(Refusal::Forbidden);
        }
        let others: Vec<_> = packet.pieces.iter().map(Piece::range).collect();
        let (start, end, more) = piece.range();
        if others.contains(&(start, end, more)) {
            return Err(Refusal::Duplicate);
        }
        let overlaps = others.iter().any(|other| other.0 < end && start < other.1);
        let total = others.iter().find(|other| !other.2).map(|other| other.1);
        let reached = others.iter().map(|other| other.1).max().unwrap_or(0);
        let disagrees = match total {
            Some(total) => !more || end > total,
            None => !more && end < reached,
        };
        if overlaps || disagrees {
            self.refuse(at);
            return Err(Refusal::Forbidden);
        }
        if !packet.is_large && end.saturating_sub(packet.split) > PAGE {
            self.make_room(Some(name), name, u64::from(LARGE - PAGE))?;
            self.take(Some(name), true)?;
            let at = self.find(name).unwrap();
            self.free(false);
            self.steps += 1;
            let packet = &mut self.packets[at];
            (packet.is_large, packet.took, packet.held) = (true, self.steps, u64::from(LARGE));
        }
        let at = self.find(name).unwrap();
        self.packets[at].pieces.push(piece.clone());
        Ok(())
    }

    fn finish(&mut self, name: Name) -> Outcome {
        let at = self.find(name).unwrap();
        let mut pieces = self.packets[at].pieces.clone();
        pieces.sort_by_key(|piece| piece.start);
        let Some(last) = pieces.last().filter(|last| !last.more) else { return Ok(None) };
        let payload: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.clone()).collect();
        if payload.len() as u32 != last.end() {
            return Ok(None);
        }
        let is = |ecn| move |piece: &Piece| piece.ecn == ecn;
        let capable = pieces.iter().filter(|piece| piece.ecn != Ecn::NotCapable).count();
        if capable != 0 && capable != pieces.len() {
            self.refuse(at);
            return Err(Refusal::Malformed);
        }
        let congested = pieces.iter().any(is(Ecn::CongestionExperienced));
        let ecn = if congested { Ecn::CongestionExperienced } else { pieces[0].ecn };
        // The buffer is the user's now.
        self.packets.remove(at);
        Ok(Some(whole(name, ecn, &payload)))
    }

    pub(super) fn insert(&mut self, now: Instant, piece: &Piece, split: u32) -> Outcome {
        self.expire(now);
        let room = piece.end().saturating_sub(split);
        if piece.start == 0 && !piece.more {
            self.take(None, room > PAGE)?;
            return Ok(Some(whole(piece.name, piece.ecn, &piece.bytes)));
        }
        if !self.contains(piece.name) {
            self.open(now, piece.name, Some(room), split)?;
        }
        self.accept(piece.name, piece)?;
        self.finish(piece.name)
    }

    /// A page was taken, and `pieces` lie in it.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        started: Instant,
        pieces: &[Piece],
        split: u32,
    ) -> Outcome {
        self.expire(now);
        let name = pieces[0].name;
        let is_known = self.contains(name);
        if !is_known && let Err(refusal) = self.open(started, name, None, split) {
            self.free(false);
            return Err(refusal);
        }
        let mut result = Ok(());
        for piece in pieces {
            result = self.accept(name, piece);
            if !matches!(result, Ok(()) | Err(Refusal::Duplicate)) {
                break;
            }
            result = Ok(());
        }
        if is_known {
            self.free(false);
        }
        result.and_then(|()| self.finish(name))
    }
}

pub(super) fn from(name: Name, ecn: Ecn) -> FragmentSource {
    FragmentSource { is_v6: name.1, host: name.0, ecn, ..V4 }
}

fn whole(name: Name, ecn: Ecn, payload: &[u8]) -> Vec<u8> {
    frame(from(name, ecn), (!name.1).then_some((name.2, 0, false)), payload)
}
