//! [`Tables`]: what is expected of every queue pair, and what an adapter does
//! with it.

use landfall_placement::{Check, PathId, Spans};

use super::ends::Ends;
use super::entry::{Entry, Known, Port, Prediction, Stream};
use super::head::{Incoming, read, unread};
use super::hit::Hit;
use super::index::{Index, Pointer};
use super::miss::{Miss, Missed, Whose};
use super::places::Places;
use crate::wire::protocol;

/// The tables, in storage that somebody else owns.
#[derive(Debug)]
pub struct Tables<'a> {
    /// By the slot of the queue pair.
    pub(super) entries: &'a mut [Entry],
    index: Index<'a>,
    secret: (u64, u64),
}

impl<'a> Tables<'a> {
    /// Tables in this storage, which starts as it was left, or with defaults.
    ///
    /// Twice as many `pointers` as entries make for short searches; as many as the
    /// greatest power of two not above their number are used. The `secret` stays
    /// the same as long as the storage is used: strangers must not know it.
    #[must_use]
    #[inline]
    pub fn new(entries: &'a mut [Entry], pointers: &'a mut [Pointer], secret: (u64, u64)) -> Self {
        Self { entries, index: Index::new(pointers), secret }
    }

    /// An entry, to be looked at.
    #[must_use]
    #[inline]
    pub fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    // ---- What the engine does ------------------------------------------------

    /// Enters a connection, of which nothing is predicted yet, under the slot of
    /// its queue pair. Says whether there is room for it; what had the slot before
    /// is closed.
    pub fn open(&mut self, slot: u32, ends: Ends, path: PathId) -> bool {
        let next = Prediction::default();
        self.enter(slot, ends, Known::Stream(Stream { ends, path, is_armed: false, next }))
    }

    /// Enters a bound port in the same way.
    pub fn bind(&mut self, slot: u32, ends: Ends) -> bool {
        let (course, places) = (0, Places::new());
        self.enter(slot, ends, Known::Port(Port { ends, is_armed: false, course, places }))
    }

    fn enter(&mut self, slot: u32, ends: Ends, known: Known) -> bool {
        self.close(slot);
        let Some(entry) = self.entries.get_mut(slot as usize) else { return false };
        let is_found = self.index.insert(ends.hash(self.secret), slot);
        if is_found {
            entry.0 = known;
        }
        is_found
    }

    /// Forgets an entry.
    pub fn close(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize) else { return };
        if let Some(ends) = entry.ends() {
            self.index.remove(ends.hash(self.secret), slot);
        }
        *entry = Entry::default();
    }

    /// Enters everything into the index again: its storage is new, and empty.
    pub fn index_anew(&mut self) {
        for (slot, entry) in (0..).zip(self.entries.iter()) {
            if let Some(ends) = entry.ends() {
                self.index.insert(ends.hash(self.secret), slot);
            }
        }
    }

    /// Says what comes next on a connection.
    #[inline]
    pub fn arm(&mut self, slot: u32, next: &Prediction) {
        if let Some(Known::Stream(stream)) = self.known_mut(slot) {
            stream.next = *next;
            stream.is_armed = true;
        }
    }

    /// Says where the next datagrams of a bound port belong: each takes a request.
    #[inline]
    pub fn arm_port(&mut self, slot: u32, places: &Places, course: u16) {
        if let Some(Known::Port(port)) = self.known_mut(slot) {
            (port.places, port.course) = (*places, course);
            port.is_armed = true;
        }
    }

    /// More memory, behind what is known. Says whether something is predicted, and
    /// it found room there.
    pub fn extend(&mut self, slot: u32, more: &Places) -> bool {
        match self.known_mut(slot) {
            Some(Known::Stream(stream)) => stream.is_armed && stream.next.places.append(more),
            Some(Known::Port(port)) => port.is_armed && port.places.append(more),
            Some(Known::Nothing) | None => false,
        }
    }

    /// What moves all the time on a connection whose segments come as predicted:
    /// what they may acknowledge, the latest timestamp, the edge of the window.
    #[inline]
    pub fn refresh(&mut self, slot: u32, sent: (u32, u32), recent: Option<u32>, edge: u32) {
        if let Some(Known::Stream(stream)) = self.known_mut(slot) {
            let next = &mut stream.next;
            (next.acknowledged, next.sent) = sent;
            (next.recent, next.edge) = (recent, edge);
        }
    }

    /// From now on nothing is predicted.
    #[inline]
    pub fn disarm(&mut self, slot: u32) {
        match self.known_mut(slot) {
            Some(Known::Stream(stream)) => stream.is_armed = false,
            Some(Known::Port(port)) => port.is_armed = false,
            Some(Known::Nothing) | None => {}
        }
    }

    /// The same for every entry: stations or addresses have changed.
    pub fn disarm_all(&mut self) {
        for slot in 0..self.entries.len() as u32 {
            self.disarm(slot);
        }
    }

    #[inline]
    pub(super) fn known_mut(&mut self, slot: u32) -> Option<&mut Known> {
        self.entries.get_mut(slot as usize).map(|entry| &mut entry.0)
    }

    // ---- What an adapter does ------------------------------------------------

    /// Takes a unit that comes as predicted: says whose it is, and fills in where
    /// its payload belongs. `into` comes empty.
    ///
    /// # Errors
    /// Why it goes to the engine. Nothing has changed then.
    #[inline]
    pub fn receive(&mut self, unit: &Incoming<'_>, into: &mut Spans) -> Result<Hit, Miss> {
        self.receive_if(unit, into, |_| true).map_err(|missed| missed.why)
    }

    /// The same for an adapter that has all of the unit at hand, and tables of its
    /// own: last of all it is asked whether the checksum is right, and it learns
    /// whom a unit may concern that it does not take.
    ///
    /// # Errors
    /// As those of [`receive`](Self::receive), and [`Miss::Sum`].
    #[inline]
    pub fn receive_if(
        &mut self,
        unit: &Incoming<'_>,
        into: &mut Spans,
        is_intact: impl FnOnce(Check) -> bool,
    ) -> Result<Hit, Missed> {
        let nobody = |why| Missed { why, whose: Whose::Nobody };
        let packet = read(unit).map_err(|why| Missed { why, whose: unread(unit, why) })?;
        match packet.protocol {
            protocol::TCP => {
                let slot = self.find(&packet.ends, unit.likely);
                let slot = slot.ok_or(nobody(Miss::Unknown))?;
                let taken = self.take_segment(slot, unit, &packet, into, is_intact);
                taken.map(Hit::Segment).map_err(|why| {
                    let is_bare = Self::is_bare(unit, &packet);
                    let whose = if is_bare { Whose::Nobody } else { Whose::Slot(slot) };
                    Missed { why, whose }
                })
            }
            protocol::UDP => {
                let bound = packet.ends.without_remote();
                let slot = self.find(&bound, None).or_else(|| self.find(&bound.on_any(), None));
                let slot = slot.ok_or(nobody(Miss::Unknown))?;
                let (local, from) = packet.ends.addresses();
                let checked = self.check_address(unit, local, from);
                let taken =
                    checked.and_then(|()| self.take_datagram(slot, unit, &packet, into, is_intact));
                let whose = Whose::Slot(slot);
                taken.map(Hit::Datagram).map_err(|why| Missed { why, whose })
            }
            other => {
                // What follows an extension of version 6 may be anything.
                let is_known = packet.is_v4() || other == protocol::ICMP6;
                let whose = if is_known { Whose::Nobody } else { Whose::Anybody };
                Err(Missed { why: Miss::Protocol, whose })
            }
        }
    }

    /// The slot that these ends were entered with.
    #[inline]
    fn find(&self, ends: &Ends, likely: Option<u32>) -> Option<u32> {
        let is_it = |slot: u32| self.entry(slot).and_then(Entry::ends) == Some(ends);
        let likely = likely.filter(|slot| is_it(*slot));
        likely.or_else(|| self.index.find(ends.hash(self.secret), is_it))
    }
}
