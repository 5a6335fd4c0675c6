//! Sending: many frames a call, each gathered from its header and its payload.

use std::os::fd::{AsRawFd, RawFd};
use std::{fmt, io, ptr};

use landfall_placement::{Instant, Span};
use socket2::Socket as PlainSocket;
use thiserror::Error;

use super::Config;
use super::socket::open_deaf;
use crate::driver::{Counters, Interest};
use crate::exchange::{DONT_WAIT, MessageHeader, set_name, set_pieces};
use crate::memory::{AccessError, Pins, Regions, Rights};
use crate::packet::{ETHERNET_HEADER, Failure, Found, LinkAddress, Room, VNET_HEADER};
use crate::{OpenError, packet};

/// The most frames that leave with one call; more are sent with several.
pub const MOST_OUTGOING: usize = 128;

/// A frame to be sent: header and payload lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The first bytes of the frame, from the Ethernet header on.
    pub head: &'a [u8],
    /// All that follow. May be empty.
    pub payload: Span,
}

/// What the kernel is told of a frame in front of it, where it wants that.
pub(super) type Prefix = [u8; VNET_HEADER];

/// A frame that can be listed for a call.
pub(super) trait Sendable {
    /// What lies where.
    fn outgoing(&self) -> Outgoing<'_>;

    /// What goes in front of it.
    fn prefix(&self) -> Option<Prefix> {
        None
    }
}

impl Sendable for Outgoing<'_> {
    fn outgoing(&self) -> Outgoing<'_> {
        *self
    }
}

/// What became of the next frames.
pub(super) enum Step {
    /// This many left.
    Left(usize),
    /// The first one can never be sent.
    Lost(Unsendable),
    /// The kernel takes none for now.
    NoRoom,
}

/// Why a frame can never be sent.
pub(super) enum Unsendable {
    /// It has no Ethernet header.
    NoHeader,
    /// Its payload cannot be read.
    Payload(AccessError),
    /// The kernel says no.
    Refused(io::Error),
}

/// A prefix, the head, the payload.
const PIECES: usize = 3;

/// The lists of a call, made anew for each.
pub(super) struct Sender {
    pins: Pins,
    prefixes: Box<[Prefix]>,
    pieces: Box<[[libc::iovec; PIECES]]>,
    addresses: Box<[LinkAddress]>,
    headers: Box<[libc::mmsghdr]>,
    room: Room,
}

// SAFETY: the pointers are made anew for each call and read only in it, and
// the call borrows this exclusively.
unsafe impl Send for Sender {}
// SAFETY: shared, the lists can only be read as numbers.
unsafe impl Sync for Sender {}

impl Sender {
    pub(super) fn new(regions: &Regions) -> Self {
        let empty = libc::mmsghdr { msg_hdr: MessageHeader::EMPTY.0, msg_len: 0 };
        Self {
            pins: Pins::new(regions),
            prefixes: vec![Prefix::default(); MOST_OUTGOING].into(),
            pieces: vec![[NOTHING; PIECES]; MOST_OUTGOING].into(),
            addresses: vec![LinkAddress::unspecified(); MOST_OUTGOING].into(),
            headers: vec![empty; MOST_OUTGOING].into(),
            room: Room::Enough,
        }
    }

    /// Does only the socket's buffer stand in the way?
    pub(super) fn waits_for_buffer(&self) -> bool {
        self.room == Room::SocketFull
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.room.until()
    }

    /// Sends frames until all left or there is no room; those that cannot be
    /// sent count as lost on the way. Returns how many are gone.
    pub(super) fn send<T: Sendable>(
        &mut self,
        fd: RawFd,
        interface: u32,
        now: Instant,
        frames: &[T],
        counters: &mut Counters,
    ) -> io::Result<usize> {
        let mut gone = 0;
        while let Some(rest) = frames.get(gone..).filter(|rest| !rest.is_empty()) {
            match self.step(fd, interface, now, rest, counters)? {
                Step::Left(left) => gone += left,
                Step::Lost(_) => gone += 1,
                Step::NoRoom => break,
            }
        }
        Ok(gone)
    }

    /// One call with as many frames as it takes.
    ///
    /// # Errors
    /// The socket is broken for good.
    pub(super) fn step<T: Sendable>(
        &mut self,
        fd: RawFd,
        interface: u32,
        now: Instant,
        frames: &[T],
        counters: &mut Counters,
    ) -> io::Result<Step> {
        if self.room.is_early(now) {
            return Ok(Step::NoRoom);
        }
        let left = match self.list(interface, frames) {
            Ok(count) => match self.call(fd, count) {
                // That the interface went down is told once, even when it is
                // up again: what counts is the second answer.
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => self.call(fd, count),
                other => other,
            },
            Err(why) => {
                counters.send_failed += 1;
                return Ok(Step::Lost(why));
            }
        };
        self.pins.release();
        let error = match left {
            Ok(left) => {
                self.room = Room::Enough;
                counters.send_calls += 1;
                counters.units_sent += left as u64;
                return Ok(Step::Left(left));
            }
            Err(error) => error,
        };
        match Failure::of(&error) {
            Failure::SocketFull => self.room = Room::SocketFull,
            Failure::QueueFull => self.room = self.room.after_full_queue(now),
            Failure::Lost => {
                counters.send_failed += 1;
                return Ok(Step::Lost(Unsendable::Refused(error)));
            }
            Failure::Broken => return Err(error),
        }
        counters.send_blocked += 1;
        Ok(Step::NoRoom)
    }

    /// Lists frames up to one that cannot be sent; gives how many those are, or
    /// why it is the first.
    fn list<T: Sendable>(&mut self, interface: u32, frames: &[T]) -> Result<usize, Unsendable> {
        let mut count = 0;
        for frame in frames.iter().take(MOST_OUTGOING) {
            match self.pieces_of(interface, &frame.outgoing()) {
                Ok((pieces, to)) => (self.pieces[count], self.addresses[count]) = (pieces, to),
                Err(why) if count == 0 => return Err(why),
                Err(_) => break,
            }
            if let Some(prefix) = frame.prefix() {
                self.prefixes[count] = prefix;
                self.pieces[count][0].iov_len = prefix.len();
            }
            count += 1;
        }
        let lists = self.pieces.iter_mut().zip(&mut self.prefixes);
        let lists = lists.zip(&mut self.addresses).zip(&mut self.headers);
        for (((pieces, prefix), to), header) in lists.take(count) {
            pieces[0].iov_base = prefix.as_mut_ptr().cast();
            let header = &mut header.msg_hdr;
            set_name(header, (&raw mut to.0).cast(), LinkAddress::LEN);
            set_pieces(header, pieces.as_mut_ptr(), PIECES);
        }
        Ok(count)
    }

    /// The pieces of a frame, without a prefix, and where it goes.
    fn pieces_of(
        &mut self,
        interface: u32,
        frame: &Outgoing<'_>,
    ) -> Result<([libc::iovec; PIECES], LinkAddress), Unsendable> {
        let header: &[u8; ETHERNET_HEADER] =
            frame.head.first_chunk().ok_or(Unsendable::NoHeader)?;
        let ethertype = u16::from_be_bytes([header[12], header[13]]);
        let mut payload = NOTHING;
        if frame.payload.len > 0 {
            let raw =
                self.pins.resolve(&frame.payload, Rights::READ).map_err(Unsendable::Payload)?;
            payload = libc::iovec { iov_base: raw.ptr.as_ptr().cast(), iov_len: raw.len };
        }
        // The kernel only reads what it sends.
        let start = frame.head.as_ptr().cast_mut().cast();
        let head = libc::iovec { iov_base: start, iov_len: frame.head.len() };
        Ok(([NOTHING, head, payload], LinkAddress::interface(interface, ethertype)))
    }

    /// One call with what was listed. Returns how many frames left; the error of
    /// the first, if none did.
    fn call(&mut self, fd: RawFd, count: usize) -> io::Result<usize> {
        let headers = &mut self.headers[..count];
        let (first, count) = (headers.as_mut_ptr(), count as libc::c_uint);
        // SAFETY: there are `count` headers, listed just now: each names an
        // address, a prefix and pieces of this, a head that the caller of
        // `step` borrows, and a payload that is pinned.
        let left = unsafe { libc::sendmmsg(fd, first, count, DONT_WAIT) };
        usize::try_from(left).map_err(|_| io::Error::last_os_error())
    }
}

/// No memory at all.
const NOTHING: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("room", &self.room).finish_non_exhaustive()
    }
}

// `Cutting`: one long UDP packet handed over, which the kernel cuts into
// fragments.

/// A UDP packet over IPv4 or IPv6, in an Ethernet frame longer than the MTU.
///
/// Its headers are those of the whole packet. Where the UDP checksum goes, the
/// sum of the pseudo-header stands (not inverted); the checksum is filled in on
/// the way. A packet of no more than one piece leaves as it is. Over IPv6 the
/// kernel chooses the identification of the fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long<'a> {
    /// The first bytes of the frame, with the whole UDP header.
    pub head: &'a [u8],
    /// All that follow. May be empty.
    pub payload: Span,
    /// Where the UDP header begins.
    pub udp_at: u16,
    /// How many bytes of the IP payload a fragment carries: a multiple of eight
    /// that fits into the MTU with the headers of IP.
    pub piece: u16,
}

/// Why a packet was not handed over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CutError {
    /// Fragments cannot be of this length.
    #[error("fragments of {0} bytes cannot be made: use a multiple of eight, and not zero")]
    Piece(u16),
    /// Fragments of that length do not fit.
    #[error("fragments of {piece} bytes do not fit into the MTU: use at most {most}")]
    PieceTooLong {
        /// How long they should be.
        piece: u16,
        /// How long they may be.
        most: u32,
    },
    /// The head ends before the UDP header does.
    #[error(
        "a head of {head} bytes has no UDP header at {udp_at}: give all headers, up to and with \
         that of UDP"
    )]
    Head {
        /// How long the head is.
        head: usize,
        /// Where the header should be.
        udp_at: u16,
    },
    /// The payload cannot be read.
    #[error("the payload cannot be sent: {0}")]
    Payload(#[from] AccessError),
    /// The kernel or the device will not do it.
    #[error("the kernel does not cut this packet ({0}): send it as fragments of your own instead")]
    Refused(io::Error),
    /// The socket is broken for good.
    #[error("the socket is broken: {0}")]
    Broken(io::Error),
}

/// A packet socket that leaves the cutting to the kernel, or the device
/// (`VIRTIO_NET_HDR_GSO_UDP`): one packet passes through the layers where its
/// fragments would have.
///
/// It only sends. What waits in front of each frame that such a socket
/// receives is no use where frames are received in pieces.
#[derive(Debug)]
pub struct Cutting {
    socket: PlainSocket,
    interface: Found,
    sender: Sender,
    counters: Counters,
}

impl Cutting {
    /// Opens a socket that sends over this interface, from these regions. What
    /// the configuration says of receiving does not matter.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(config: &Config, regions: &Regions) -> Result<Self, OpenError> {
        if config.bypass_queue {
            return Err(OpenError::BypassWithOffload);
        }
        let (socket, interface) = open_deaf(config)?;
        packet::set_option(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
            .map_err(OpenError::system("leave the cutting to the kernel (PACKET_VNET_HDR)"))?;
        let sender = Sender::new(regions);
        Ok(Self { socket, interface, sender, counters: Counters::default() })
    }

    /// Hands packets over in their order, as many as there is room for. Returns
    /// how many; fewer than given means that the rest is to be given again,
    /// once the [interest](Self::interest) is ready or the
    /// [time-out](Self::poll_timeout) has come, or at once, to hear what is
    /// wrong with the next one.
    ///
    /// # Errors
    /// [`CutError`] says what is wrong with the first packet, which was not
    /// sent.
    pub fn send(&mut self, now: Instant, packets: &[Long<'_>]) -> Result<usize, CutError> {
        let mtu = self.interface.mtu;
        let good = packets.iter().take_while(|packet| packet.check(mtu).is_ok()).count();
        if let (0, Some(bad)) = (good, packets.first()) {
            bad.check(mtu)?;
        }
        let fd = self.socket.as_raw_fd();
        let mut gone = 0;
        while gone < good {
            let rest = &packets[gone..good];
            let step = self.sender.step(fd, self.interface.index, now, rest, &mut self.counters);
            match step.map_err(CutError::Broken)? {
                Step::Left(left) => gone += left,
                Step::Lost(why) if gone == 0 => return Err(why.into()),
                Step::Lost(_) | Step::NoRoom => break,
            }
        }
        Ok(gone)
    }

    /// What to wait for when not everything could be handed over.
    #[must_use]
    pub fn interest(&self) -> Interest {
        let writable = self.sender.waits_for_buffer();
        Interest { fd: self.socket.as_raw_fd(), readable: false, writable }
    }

    /// When to try again, where nothing else tells.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }

    /// What was done so far; units are packets.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// The UDP header, and where its checksum is in it.
const UDP_HEADER: usize = 8;
const UDP_SUM: u16 = 6;
/// Its ethertype; the header that its fragments have beside those of the packet.
const IPV6: [u8; 2] = [0x86, 0xdd];
const FRAGMENT_HEADER: u32 = 8;
/// `linux/virtio_net.h`: the checksum is to be filled in; UDP in fragments.
const NEEDS_SUM: u8 = 1;
const FRAGMENTS_OF_UDP: u8 = 3;

impl Long<'_> {
    fn check(&self, mtu: u32) -> Result<(), CutError> {
        let Self { piece, udp_at, .. } = *self;
        if piece == 0 || !piece.is_multiple_of(8) {
            return Err(CutError::Piece(piece));
        }
        let headers = usize::from(udp_at);
        if headers < packet::ETHERNET_HEADER || self.head.len() < headers + UDP_HEADER {
            return Err(CutError::Head { head: self.head.len(), udp_at });
        }
        let added = if self.head[12..14] == IPV6 { FRAGMENT_HEADER } else { 0 };
        let network = (headers - packet::ETHERNET_HEADER) as u32 + added;
        // Anyone who carries fragments that are too long drops them without a word.
        match mtu.saturating_sub(network) {
            most if u32::from(piece) > most => Err(CutError::PieceTooLong { piece, most }),
            _ => Ok(()),
        }
    }
}

impl Sendable for Long<'_> {
    fn outgoing(&self) -> Outgoing<'_> {
        Outgoing { head: self.head, payload: self.payload }
    }

    /// The virtio-net header, in the machine's byte order.
    fn prefix(&self) -> Option<Prefix> {
        let head_len = self.udp_at.saturating_add(UDP_HEADER as u16);
        let words = [head_len, self.piece, self.udp_at, UDP_SUM].map(u16::to_ne_bytes);
        let mut prefix = Prefix::default();
        prefix[..2].copy_from_slice(&[NEEDS_SUM, FRAGMENTS_OF_UDP]);
        prefix[2..].copy_from_slice(words.as_flattened());
        Some(prefix)
    }
}

impl From<Unsendable> for CutError {
    fn from(why: Unsendable) -> Self {
        match why {
            // A head with a UDP header behind that of Ethernet has that one.
            Unsendable::NoHeader => Self::Head { head: 0, udp_at: 0 },
            Unsendable::Payload(why) => Self::Payload(why),
            Unsendable::Refused(error) => Self::Refused(error),
        }
    }
}
