//! Message headers of calls that move several units, and the IPv4 header that comes in
//! front of each packet.
//!
//! They are made anew for each call, and name memory of their own and of their
//! caller: both stay where they are until the call is over.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use landfall_inet::ipv4;
use landfall_placement::{Ecn, Engine, Instant, PathId, Peer};

use crate::driver::Counters;
use crate::exchange::{
    Arrival, Batch, Inbox, MAX_LISTS, MAX_UNITS, MessageHeader, Prefix, ScatteredUnit, Turn,
    control_len, set_control, set_name, set_pieces,
};
use crate::inet::{Control, RawAddress, nothing_came};
use crate::memory::{Pins, Regions};

/// One header of a call for several, and what it names.
struct Message {
    address: RawAddress,
    control: Control,
}

/// Headers for one call.
pub(super) struct Messages {
    batch: Batch,
    count: usize,
    /// Longer than any call needs, so that it never moves.
    named: Box<[Message]>,
}

/// What the kernel told about one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketInfo {
    /// All that was received of it, with what is in front of the unit.
    pub(super) len: usize,
    /// Some of it found no room.
    pub(super) truncated: bool,
    /// Who sent it, if that was asked for.
    pub(super) from: Peer,
    pub(super) ecn: Ecn,
}

impl Messages {
    pub(super) fn new() -> Self {
        let message = || Message { address: RawAddress::unspecified(), control: Control::empty() };
        let named = (0..MAX_UNITS).map(|_| message()).collect();
        Self { batch: Batch::new(), count: 0, named }
    }

    /// One `recvmmsg`. The lists are the pieces up to each of `ends`. Whether
    /// the kernel shall say beside each packet who sent it and how it was
    /// marked is for the caller to know. Returns the number of packets.
    pub(super) fn receive(
        &mut self,
        fd: RawFd,
        (pieces, ends): (&mut [libc::iovec], &[usize]),
        beside: bool,
    ) -> io::Result<usize> {
        self.batch.clear();
        let mut start = 0;
        for (end, named) in ends.iter().zip(&mut self.named) {
            let mut message = MessageHeader::EMPTY;
            let header = &mut message.0;
            if beside {
                named.address = RawAddress::unspecified();
                set_name(header, (&raw mut named.address).cast(), RawAddress::LEN);
                set_control(header, named.control.as_mut_ptr(), Control::LEN);
            }
            let list = &mut pieces[start..*end];
            set_pieces(header, list.as_mut_ptr(), list.len());
            self.batch.add(&message);
            start = *end;
        }
        // SAFETY: what the headers name lives through the call: addresses and
        // control buffers of `named`, scratch memory of the inbox, and lent
        // memory that is pinned until after the call.
        unsafe { self.batch.receive(fd) }
    }

    /// What the kernel told about a packet of the last receive.
    pub(super) fn told(&self, nth: usize) -> PacketInfo {
        let ((header, len), named) = (self.batch.told(nth), &self.named[nth]);
        let from = named.address.to_socket().map_or(Peer::Unaddressed, |at| Peer::Ip(at.ip()));
        PacketInfo {
            len,
            truncated: header.0.msg_flags & libc::MSG_TRUNC != 0,
            from,
            ecn: named.control.received(control_len(&header.0)).ecn,
        }
    }

    /// Begins the list of what the next call sends.
    pub(super) fn start_sending(&mut self) {
        self.batch.clear();
        self.count = 0;
    }

    /// Adds one unit: to whom (nobody: the peer that the socket is connected
    /// to), and how it is marked. Returns whether there was room for it.
    pub(super) fn add(
        &mut self,
        pieces: &[libc::iovec],
        (to, ecn): (Option<IpAddr>, Ecn),
        ipv6: bool,
    ) -> bool {
        let Some(named) = self.named.get_mut(self.count) else { return false };
        let mut message = MessageHeader::EMPTY;
        let header = &mut message.0;
        if let Some(to) = to {
            let (address, len) = RawAddress::new(SocketAddr::new(to, 0), false);
            named.address = address;
            set_name(header, (&raw mut named.address).cast(), len);
        }
        let control_len = named.control.for_send(None, ecn, ipv6);
        set_control(header, named.control.as_mut_ptr(), control_len);
        // The kernel only reads the list of a send.
        set_pieces(header, pieces.as_ptr().cast_mut(), pieces.len());
        self.batch.add(&message);
        self.count += 1;
        true
    }

    /// Is nothing listed?
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// One `sendmmsg`. Returns how many units left; the error of the first, if none.
    ///
    /// # Safety
    /// The pieces of all units that were added live, and the memory that they
    /// name is pinned, until the call is over.
    pub(super) unsafe fn send(&mut self, fd: RawFd) -> io::Result<usize> {
        // SAFETY: addresses and control buffers are those of `named`, and the
        // caller vouches for the pieces.
        unsafe { self.batch.send(fd) }
    }
}

/// What a receiver wants to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// This many bytes of options follow on the first twenty bytes.
    pub(super) options: usize,
    pub(super) from: Ipv4Addr,
    pub(super) ecn: Ecn,
}

impl Header {
    /// Reads the header of a packet that is `len` bytes long. The kernel has
    /// checked it; what is invalid all the same is no packet.
    pub(super) fn read(header: &Prefix, len: usize) -> Option<Self> {
        let header = ipv4::Header::view(header.first_chunk()?);
        if header.version() != 4 || header.header_len() > len {
            return None;
        }
        Some(Self {
            options: header.header_len().checked_sub(ipv4::LEN)?,
            from: header.source(),
            ecn: header.ecn(),
        })
    }
}

// Receiving: many packets a call, each into the guessed span where the engine
// has a guess.

/// While packets keep coming, this many calls receive in one turn.
const CALLS_PER_TURN: u32 = 4;

/// What one call brought.
pub(super) struct Received {
    pub(super) units: u32,
    /// As many packets as the call could take: more may wait.
    pub(super) was_full: bool,
    /// Nothing came, but maybe news of something that was sent earlier.
    pub(super) news: Option<io::Error>,
}

/// The receiving half of a path.
pub(super) struct Receiver {
    inbox: Inbox,
    /// The memory that is posted, pinned until it is settled.
    pins: Pins,
    messages: Messages,
    ipv6: bool,
    /// The last receive found something: more may wait.
    streaming: bool,
}

impl Receiver {
    pub(super) fn new(path: PathId, regions: &Regions, batch: bool, ipv6: bool) -> Self {
        // Over IPv6 the header does not come with the packet.
        let prefix_len = if ipv6 { 0 } else { ipv4::LEN };
        Self {
            inbox: Inbox::of_lists(path, if batch { MAX_LISTS } else { 1 }, prefix_len),
            pins: Pins::new(regions),
            messages: Messages::new(),
            ipv6,
            streaming: false,
        }
    }

    /// This many calls are worth making in this turn, each for this many packets.
    /// The first packet after a silence is taken alone, since looking for
    /// another one would only delay the answer to it.
    pub(super) const fn plan(&self) -> (u32, usize) {
        if self.streaming { (CALLS_PER_TURN, MAX_LISTS) } else { (1, 1) }
    }

    /// Receives `most` packets at most and hands them to the engine.
    pub(super) fn receive<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (fd, most): (RawFd, usize),
    ) -> io::Result<Received> {
        let (pieces, ends) = self.inbox.post_each(engine, &mut self.pins, most);
        let lists = ends.len();
        let result = self.messages.receive(fd, (pieces.as_mut_slice(), ends), self.ipv6);
        self.streaming = result.is_ok();
        let received = match result {
            Ok(count) => {
                counters.receive_calls += 1;
                let units = self.hand_over(engine, now, counters, count);
                Ok(Received { units, was_full: count == lists, news: None })
            }
            Err(error) if nothing_came(&error) => {
                counters.empty_calls += 1;
                Ok(Received { units: 0, was_full: false, news: Some(error) })
            }
            Err(error) => Err(error),
        };
        self.pins.release();
        received
    }

    fn hand_over<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        count: usize,
    ) -> u32 {
        let came: ArrayVec<ScatteredUnit, MAX_LISTS> =
            (0..count.min(MAX_LISTS)).filter_map(|nth| self.came(nth)).collect();
        counters.malformed += (count - came.len()) as u64;
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        self.inbox.settle_each(&mut turn, &came)
    }

    /// The packet of this number, if it is one.
    fn came(&self, nth: usize) -> Option<ScatteredUnit> {
        let told = self.messages.told(nth);
        if told.truncated {
            return None;
        }
        let (mut skip, mut len, mut from, mut ecn) = (0, told.len, told.from, told.ecn);
        if !self.ipv6 {
            let header = Header::read(self.inbox.prefix(nth), told.len)?;
            skip = header.options;
            len = told.len - ipv4::LEN - skip;
            (from, ecn) = (Peer::Ip(header.from.into()), header.ecn);
        }
        let unit_len = len.max(1);
        let arrival = Arrival { len, unit_len, from, ecn, coalesced: None, verified: false };
        Some(ScatteredUnit { nth, skip, arrival })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version_and_len: u8) -> Prefix {
        let mut header = [0; 72];
        header[0] = version_and_len;
        header[1] = 0xfd;
        header[12..16].copy_from_slice(&[10, 1, 2, 3]);
        header
    }

    #[test]
    fn options_are_counted() {
        for words in 5..=15 {
            let read = Header::read(&header(0x40 | words), 60).unwrap();
            assert_eq!(read.options, 4 * (usize::from(words) - 5));
            assert_eq!((read.from, read.ecn), (Ipv4Addr::new(10, 1, 2, 3), Ecn::Capable1));
        }
    }

    #[test]
    fn what_cannot_be_is_no_header() {
        for wrong in [0x44, 0x40, 0x65, 0x05, 0] {
            assert_eq!(Header::read(&header(wrong), 60), None, "{wrong:#x}");
        }
        assert_eq!(Header::read(&header(0x46), 23), None, "cut within its options");
        assert_eq!(Header::read(&header(0x45), 19), None);
    }
}
