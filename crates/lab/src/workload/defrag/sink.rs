//! Who receives pages: a receiver of ours, or a socket, whose kernel joins them.

use std::io;
use std::net::UdpSocket;
use std::ops::Sub;
use std::time::Duration;

use anyhow::Result;
use landfall::defrag::{Packet, Receiver, ReceiverBuilder, Wait};
use landfall_testbed::VethPair;
use landfall_testbed::rivals::set_receive_buffer;
use socket2::Socket;

use super::source::{HEADERS, address};
use super::{Join, Work};

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Page,
    /// Not a page of this transfer.
    Other,
    Nothing,
}

/// What a receiver counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Packets that were joined where they had landed, or lent so.
    pub(super) in_place: u64,
    /// Packets that were joined by copies.
    pub(super) copied: u64,
    /// Bytes that were copied in user space.
    pub(super) bytes_copied: u64,
}

impl Sub for Told {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            in_place: self.in_place - earlier.in_place,
            copied: self.copied - earlier.copied,
            bytes_copied: self.bytes_copied - earlier.bytes_copied,
        }
    }
}

/// Takes pages out.
pub(super) enum Sink {
    Ours(Box<Ours>),
    Socket { socket: UdpSocket, memory: Vec<u8>, page: usize, at: usize },
}

/// A receiver, and the packet that its user reads.
pub(super) struct Ours {
    receiver: Receiver,
    last: Option<Packet>,
    /// How long a packet with a page is.
    len: usize,
}

/// The kernel is given so much memory for datagrams that nobody has taken out yet.
const SOCKET_BUFFER: usize = 8 << 20;
/// Pages that a socket receives into in turn: as many as a receiver of ours has in a
/// burst.
const SOCKET_PAGES: usize = 32;

/// A receiver for this work, as it will be opened.
pub(super) fn builder(work: &Work, join: Join, pair: &VethPair) -> ReceiverBuilder {
    let Join { technique, delivery, prediction, wanted } = join;
    // A page that is longer than the wire is in whole memory pages.
    let page = work.page.next_multiple_of(4096);
    Receiver::builder(pair.b.name.as_str())
        .technique(technique)
        .delivery(delivery)
        .prediction(prediction)
        .wanted(wanted)
        .pages(if page > 8192 { 512 } else { 1024 }, page)
        .wait(Wait::Block)
        .answers(false)
}

impl Sink {
    /// In the namespace and on the thread of the receiver.
    pub(super) fn open(work: &Work, pair: &VethPair, look_every: Duration) -> Result<Self> {
        let page = work.page as usize;
        let Some(join) = work.join else {
            let socket = UdpSocket::bind(address(&pair.b))?;
            let socket = Socket::from(socket);
            set_receive_buffer(&socket, SOCKET_BUFFER)?;
            socket.set_read_timeout(Some(look_every))?;
            let memory = vec![0; SOCKET_PAGES * page];
            return Ok(Self::Socket { socket: socket.into(), memory, page, at: 0 });
        };
        let receiver = builder(work, join, pair).open()?;
        Ok(Self::Ours(Box::new(Ours { receiver, last: None, len: HEADERS + page })))
    }

    /// Waits for the next packet.
    #[inline]
    pub(super) fn next(&mut self, look_every: Duration) -> Result<Came> {
        match self {
            Self::Ours(ours) => {
                let Ours { receiver, last, len } = &mut **ours;
                // Read, and given back.
                *last = None;
                let Some(packet) = receiver.receive(look_every)? else { return Ok(Came::Nothing) };
                if packet.len() != *len {
                    return Ok(Came::Other);
                }
                *last = Some(packet);
                Ok(Came::Page)
            }
            Self::Socket { socket, memory, page, at } => {
                *at = (*at + *page) % memory.len();
                match socket.recv(&mut memory[*at..*at + *page]) {
                    Ok(got) if got == *page => Ok(Came::Page),
                    Ok(_) => Ok(Came::Other),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Came::Nothing),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Came::Nothing),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// A copy of the page that came last.
    pub(super) fn last(&self) -> Vec<u8> {
        match self {
            Self::Ours(ours) => ours
                .last
                .as_ref()
                .map_or_else(Vec::new, |packet| packet.to_vec().split_off(HEADERS)),
            Self::Socket { memory, page, at, .. } => memory[*at..*at + *page].to_vec(),
        }
    }

    pub(super) fn told(&mut self) -> Result<Told> {
        let Self::Ours(ours) = self else { return Ok(Told::default()) };
        let stats = ours.receiver.stats()?;
        Ok(Told {
            in_place: stats.joined.speculated + stats.joined.lent,
            copied: stats.joined.conventional,
            bytes_copied: stats.bytes_copied(),
        })
    }
}
