//! From the kernel: a packet goes into a buffer of the other side, and a message
//! says so.
//!
//! In front of a packet stand the offload header, with what the kernel left undone, and the
//! Ethernet header, whose station address names a host. The kernel hands over super-packets
//! of TCP in one piece, whatever the MTU, and sums that were not computed. Both go on as
//! they are: nothing on the way to the other side's memory needs them smaller, and CLAN checks
//! every byte.

use clan_dsm::{Cookie, HostId};
use landfall_placement::{Duration, Instant};
use landfall_transport::tap::OFFLOAD_HEADER;

use super::builder::Counts;
use super::terms::{BUFFER, Completion, Offer};
use crate::clan::layer::queue::{Receiver, Sender};
use crate::clan::network::{Aperture, Node, Window};
use crate::clan::{Dma, Error, Fabric, Misbehaviour, Remote, Stage, WORD};

/// How long a packet waits for a cookie, or for room in the send buffer. Then it is
/// dropped, as IP allows.
const PATIENCE: Duration = Duration::from_millis(20);
/// The most apertures that a receiver has its buffers in.
const APERTURES: usize = 8;
/// Gathered packets are published from this many bytes on: a
/// super-packet is worth a turn of the node, a short packet is not.
const PUBLISH_AT: usize = 32 * 1024;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) node: Node,
    cookies: Receiver<Node>,
    completions: Sender<Node>,
    /// The apertures that cookies have named so far.
    windows: Vec<(Cookie, Window)>,
    /// Bytes that may not have left yet.
    gathered: usize,
    /// A cookie whose packet was dropped: the next one takes it.
    spare: Option<(Offer, usize)>,
    /// A completion that found no room on the way: its packet is where it belongs.
    unpublished: Option<Completion>,
    /// Since when a packet waits for room.
    waiting: Option<Instant>,
}

/// What came of an attempt to send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt<T> {
    /// It is on its way.
    Sent(T),
    /// There is no room at this moment: to be tried again.
    Later,
    /// There was none for too long.
    Dropped,
}

impl<T> Attempt<T> {
    pub(super) fn map<U>(self, map: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Sent(sent) => Attempt::Sent(map(sent)),
            Self::Later => Attempt::Later,
            Self::Dropped => Attempt::Dropped,
        }
    }
}

/// A packet on its way: until it has left, its memory must not change.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketInFlight {
    window: usize,
    dma: Dma,
}

impl Outgoing {
    pub(super) const fn new(
        node: Node,
        cookies: Receiver<Node>,
        completions: Sender<Node>,
    ) -> Self {
        Self {
            node,
            cookies,
            completions,
            windows: Vec::new(),
            gathered: 0,
            spare: None,
            unpublished: None,
            waiting: None,
        }
    }

    /// Sends a packet that lies in registered memory.
    pub(super) fn send_from(
        &mut self,
        header: [u8; HEADER],
        (memory, at, len): (&Aperture, u64, usize),
        counts: &Counts,
        now: Instant,
    ) -> Result<Attempt<PacketInFlight>, Error> {
        let range = at..at + (len as u64).next_multiple_of(WORD);
        let write = |to: &mut Window, at| to.write_from(at, memory, range.clone());
        let sent = self.carry(header, len, counts, now, write)?;
        Ok(sent.map(|(window, dma)| PacketInFlight { window, dma }))
    }

    /// Sends a copy of a packet of this length, which bytes without a meaning may follow:
    /// whole words take one entry of a frame.
    pub(super) fn send(
        &mut self,
        header: [u8; HEADER],
        (packet, len): (&[u8], usize),
        counts: &Counts,
        now: Instant,
    ) -> Result<Attempt<()>, Error> {
        let write = |to: &mut Window, at| to.write(at, packet);
        Ok(self.carry(header, len, counts, now, write)?.map(|_| ()))
    }

    /// Into a buffer of the other side: the window, and what writing it gave.
    fn carry<T>(
        &mut self,
        header: [u8; HEADER],
        len: usize,
        counts: &Counts,
        now: Instant,
        write: impl FnOnce(&mut Window, u64) -> Result<T, Error>,
    ) -> Result<Attempt<(usize, T)>, Error> {
        if let Some(sent) = self.try_carry(header, len, counts, write)? {
            self.waiting = None;
            return Ok(Attempt::Sent(sent));
        }
        if now.since(*self.waiting.get_or_insert(now)) < PATIENCE {
            return Ok(Attempt::Later);
        }
        self.waiting = None;
        counts.dropped();
        Ok(Attempt::Dropped)
    }

    /// None: there is no room at this moment.
    fn try_carry<T>(
        &mut self,
        header: [u8; HEADER],
        len: usize,
        counts: &Counts,
        write: impl FnOnce(&mut Window, u64) -> Result<T, Error>,
    ) -> Result<Option<(usize, T)>, Error> {
        // It would be overtaken.
        if !self.retry_completion()? {
            return Ok(None);
        }
        let Some((offer, window)) = self.place(counts)? else { return Ok(None) };
        // What is written to one host over a network leaves in the order of the calls,
        // whichever handle they were made on (they fill one write buffer), so that the
        // completion behind it needs no commit between; it is seen when that is published.
        let done = match write(&mut self.windows[window].1, offer.at) {
            Err(Error::Busy) => {
                self.spare = Some((offer, window));
                return Ok(None);
            }
            done => done?,
        };
        counts.sent(len);
        self.gathered += len;
        self.unpublished = Some(Completion { at: offer.at, len: len as u16, header });
        if self.retry_completion()? && self.gathered >= PUBLISH_AT {
            self.publish()?;
        }
        Ok(Some((window, done)))
    }

    /// Publishes all that was sent. False: the send buffer is full; call it again.
    pub(super) fn publish(&mut self) -> Result<bool, Error> {
        if !self.retry_completion()? {
            return Ok(false);
        }
        match self.completions.publish() {
            Err(Error::Busy) => return Ok(false),
            published => published?,
        }
        self.gathered = 0;
        Ok(true)
    }

    /// Puts in the completion that was not, if there is room on the way by now.
    fn retry_completion(&mut self) -> Result<bool, Error> {
        let Some(completion) = self.unpublished else { return Ok(true) };
        // In the queue there is room for a completion of each buffer that was offered.
        match self.completions.try_put(&completion.to_bytes()) {
            Ok(true) => {
                self.unpublished = None;
                Ok(true)
            }
            Err(Error::Busy) => Ok(false),
            other => other,
        }
    }

    /// May the memory of this packet be used again?
    pub(super) fn has_left(&self, leaving: PacketInFlight) -> bool {
        // Where the link is gone nobody sends from it any more.
        let (_, window) = &self.windows[leaving.window];
        window.is_reached(Stage::Sent(leaving.dma)).unwrap_or(true)
    }

    /// A buffer for the next packet, and the window that it is in.
    fn place(&mut self, counts: &Counts) -> Result<Option<(Offer, usize)>, Error> {
        if let Some(spare) = self.spare.take() {
            return Ok(Some(spare));
        }
        let mut element = [0; Offer::LEN];
        if !self.cookies.try_get(&mut element)? {
            if self.waiting.is_none() {
                counts.waited();
            }
            // The other side can only give back what it has been told of.
            if self.gathered > 0 {
                self.publish()?;
            }
            return Ok(None);
        }
        let offer = Offer::from_bytes(&element)?;
        let window = self.window_of(&offer.cookie)?;
        let room = self.windows[window].1.len();
        match offer.at.checked_add(BUFFER) {
            Some(end) if end <= room && offer.at.is_multiple_of(WORD) => Ok(Some((offer, window))),
            _ => Err(misplaced(offer.at, room)),
        }
    }

    fn window_of(&mut self, cookie: &Cookie) -> Result<usize, Error> {
        if let Some(known) = self.windows.iter().position(|(known, _)| known == cookie) {
            return Ok(known);
        }
        if self.windows.len() == APERTURES {
            let (len, most) = (APERTURES as u64 + 1, APERTURES as u64);
            return Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }));
        }
        self.windows.push((*cookie, self.node.map(cookie)?));
        Ok(self.windows.len() - 1)
    }
}

fn misplaced(at: u64, room: u64) -> Error {
    Error::PeerMisbehaved(Misbehaviour::Counter { from: 0, to: at, room })
}

/// Both headers.
pub(super) const HEADER: usize = OFFLOAD_HEADER + ETHERNET;

/// Room for any packet: IP has none that is longer than 65,535 bytes.
pub(super) const ROOM: u32 = 65_536;

/// The Ethernet header of the two.
pub(super) fn ethernet(header: &[u8; HEADER]) -> [u8; ETHERNET] {
    let mut ethernet = [0; ETHERNET];
    ethernet.copy_from_slice(&header[OFFLOAD_HEADER..]);
    ethernet
}

/// From this machine's byte order to that on the wire, which is little-endian, and
/// back: the kernel's header has two bytes, then numbers of 16 bits.
pub(super) fn in_other_order(mut header: [u8; HEADER]) -> [u8; HEADER] {
    for number in header[2..OFFLOAD_HEADER].chunks_exact_mut(2) {
        let swapped = u16::from_ne_bytes([number[0], number[1]]).to_le_bytes();
        number.copy_from_slice(&swapped);
    }
    header
}

/// Bytes of an Ethernet address.
pub(super) const STATION: usize = 6;
/// Destination, source, type.
pub(super) const ETHERNET: usize = 14;

/// Locally administered, and "CLA".
const PREFIX: [u8; 4] = [0x02, 0x43, 0x4c, 0x41];

/// The Ethernet address of a host's interface.
#[must_use]
pub const fn station_of(host: HostId) -> [u8; STATION] {
    let [high, low] = host.number().to_be_bytes();
    let [a, b, c, d] = PREFIX;
    [a, b, c, d, high, low]
}

/// Where a frame has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To this host.
    Host(HostId),
    /// To every host: broadcast and multicast.
    All,
    /// To no host of this network.
    Nobody,
}

impl Destination {
    pub(super) fn of(header: &[u8; ETHERNET]) -> Self {
        let [a, b, c, d, high, low, ..] = *header;
        if a & 1 == 1 {
            return Self::All;
        }
        match HostId::new(u16::from_be_bytes([high, low])) {
            Some(host) if [a, b, c, d] == PREFIX => Self::Host(host),
            _ => Self::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_travel_little_endian_and_bytes_as_they_are() {
        let mut header = [7; HEADER];
        header[2..4].copy_from_slice(&0x1234_u16.to_ne_bytes());
        header[8..10].copy_from_slice(&0x5678_u16.to_ne_bytes());
        let travels = in_other_order(header);
        assert_eq!((travels[2], travels[3], travels[8], travels[9]), (0x34, 0x12, 0x78, 0x56));
        assert_eq!(in_other_order(travels), header);
        assert_eq!(travels[..2], header[..2]);
        assert_eq!(ethernet(&travels), ethernet(&header));
    }

    fn header(to: [u8; STATION]) -> [u8; ETHERNET] {
        let mut header = [0; ETHERNET];
        header[..STATION].copy_from_slice(&to);
        header
    }

    #[test]
    fn a_station_names_its_host() {
        for number in [0, 1, 255, 256, HostId::MAX] {
            let host = HostId::new(number).unwrap();
            assert_eq!(Destination::of(&header(station_of(host))), Destination::Host(host));
        }
    }

    #[test]
    fn groups_are_for_all_and_strangers_for_nobody() {
        assert_eq!(Destination::of(&header([0xff; 6])), Destination::All);
        assert_eq!(Destination::of(&header([0x33, 0x33, 0, 0, 0, 1])), Destination::All);
        assert_eq!(Destination::of(&header([0x02, 0, 0, 0, 0, 1])), Destination::Nobody);
        assert_eq!(Destination::of(&header([2, 0x43, 0x4c, 0x41, 0x40, 0])), Destination::Nobody);
    }
}
