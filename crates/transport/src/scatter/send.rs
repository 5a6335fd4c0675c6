//! Sending: many frames a call, each gathered from its header and its payload.

use std::io;
use std::os::fd::RawFd;
use std::{fmt, ptr};

use landfall_placement::{Instant, Span};

use crate::driver::Counters;
use crate::exchange::MessageHeader;
use crate::memory::{AccessError, Pins, Regions, Rights};
use crate::packet::{ETHERNET_HEADER, Failure, LinkAddress, Room, VNET_HEADER};

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
    /// So many left.
    Left(usize),
    /// The first one can never be sent.
    Lost(Why),
    /// The kernel takes none for now.
    NoRoom,
}

/// Why a frame can never be sent.
pub(super) enum Why {
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
    /// sent count as lost on the way. Gives how many are gone.
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
                return Ok(Step::Lost(Why::Refused(error)));
            }
            Failure::Broken => return Err(error),
        }
        counters.send_blocked += 1;
        Ok(Step::NoRoom)
    }

    /// Lists frames up to one that cannot be sent; gives how many those are, or
    /// why it is the first.
    fn list<T: Sendable>(&mut self, interface: u32, frames: &[T]) -> Result<usize, Why> {
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
            (header.msg_name, header.msg_namelen) = ((&raw mut to.0).cast(), LinkAddress::LEN);
            (header.msg_iov, header.msg_iovlen) = (pieces.as_mut_ptr(), PIECES);
        }
        Ok(count)
    }

    /// The pieces of a frame, without a prefix, and where it goes.
    fn pieces_of(
        &mut self,
        interface: u32,
        frame: &Outgoing<'_>,
    ) -> Result<([libc::iovec; PIECES], LinkAddress), Why> {
        let header: &[u8; ETHERNET_HEADER] = frame.head.first_chunk().ok_or(Why::NoHeader)?;
        let ethertype = u16::from_be_bytes([header[12], header[13]]);
        let mut payload = NOTHING;
        if frame.payload.len > 0 {
            let raw = self.pins.resolve(&frame.payload, Rights::READ).map_err(Why::Payload)?;
            payload = libc::iovec { iov_base: raw.ptr.as_ptr().cast(), iov_len: raw.len };
        }
        // The kernel only reads what it sends.
        let start = frame.head.as_ptr().cast_mut().cast();
        let head = libc::iovec { iov_base: start, iov_len: frame.head.len() };
        Ok(([NOTHING, head, payload], LinkAddress::interface(interface, ethertype)))
    }

    /// One call with what was listed. Gives how many frames left; the error of
    /// the first, if none did.
    fn call(&mut self, fd: RawFd, count: usize) -> io::Result<usize> {
        let headers = &mut self.headers[..count];
        let (first, count) = (headers.as_mut_ptr(), count as libc::c_uint);
        // SAFETY: there are `count` headers, listed just now: each names an
        // address, a prefix and pieces of this, a head that the caller of
        // `step` borrows, and a payload that is pinned.
        let left = unsafe { libc::sendmmsg(fd, first, count, libc::MSG_DONTWAIT) };
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
