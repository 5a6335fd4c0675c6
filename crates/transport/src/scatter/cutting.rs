//! [`Cutting`]: one long UDP packet handed over, which the kernel cuts into
//! fragments.

use std::io;
use std::os::fd::AsRawFd;

use landfall_placement::{Instant, Span};
use socket2::Socket as PlainSocket;
use thiserror::Error;

use super::send::{Prefix, Sendable, Sender, Step, Why};
use super::socket::open_deaf;
use super::{Config, Outgoing};
use crate::OpenError;
use crate::counters::Counters;
use crate::driver::Interest;
use crate::memory::{AccessError, Regions};
use crate::packet::{self, Found};

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

    /// Hands packets over in their order, as many as there is room for. Gives
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
        // Whoever carries fragments that are too long drops them without a word.
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

impl From<Why> for CutError {
    fn from(why: Why) -> Self {
        match why {
            // A head with a UDP header behind that of Ethernet has that one.
            Why::NoHeader => Self::Head { head: 0, udp_at: 0 },
            Why::Payload(why) => Self::Payload(why),
            Why::Refused(error) => Self::Refused(error),
        }
    }
}
