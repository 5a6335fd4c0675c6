//! Who sends pages: frames that were cut here, datagrams that the kernel cuts, or an
//! ordinary socket.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;

use anyhow::{Context, Result};
use landfall::defrag::{
    CutBy, Datagrams, Df, Head, Memory, Outgoing, Part, Registered, Sender, Station,
};
use landfall_placement::{InternetSum, Random, RegionId};
use landfall_testbed::{VethEnd, VethPair};
use spec_defrag::cut::Cutter;

use super::super::Pattern;
use super::{CLOSING, Cut, Foreign, PORT, Work};

/// Memory of the sender: far beyond what lies in caches nearest to a core.
const MEMORY: usize = 16 << 20;
/// As many frames leave with one call.
const FRAMES: u32 = 128;
/// A socket takes pages one by one; this many before the clock is looked at.
const SOCKET_BATCH: u64 = 32;
/// Ethernet, IPv4 and UDP headers.
pub(super) const HEADERS: usize = 14 + 20 + 8;
/// The port that foreign packets and pages come from.
const FROM: u16 = 7001;
/// What foreign packets carry.
const FOREIGN_LEN: u32 = 64;
const SEED: [u8; 32] = [11; 32];

/// Slots that are sent round and round; those of the closing lie behind them, so that a
/// page that comes late is not taken for one of these.
pub(super) fn walk(page: u32) -> u64 {
    (MEMORY as u64 / u64::from(page)).max(1)
}

/// Sends pages, slot after slot of its memory, round and round.
pub(super) struct Source {
    kind: Kind,
    page: u32,
    slots: Range<u64>,
    /// How many pages leave together.
    pub(super) batch: u64,
    next: u64,
}

enum Kind {
    /// Whole datagrams go to a sender of ours.
    Plain { sender: Sender, memory: Registered, datagrams: Datagrams },
    /// They are cut before, so that something can come in between.
    Disturbed { sender: Sender, memory: Registered, disturbed: Box<Disturbed> },
    /// An ordinary socket.
    Socket { socket: UdpSocket, memory: Vec<u8> },
}

impl Source {
    /// In the namespace and on the thread of the sender.
    pub(super) fn open(work: &Work, pair: &VethPair) -> Result<Self> {
        let page = work.page as usize;
        let slots = walk(work.page);
        let mut memory = vec![0; (slots + CLOSING) as usize * page];
        for (slot, bytes) in memory.chunks_mut(page).enumerate() {
            Pattern(slot as u64).fill(bytes);
        }
        let mut batch = SOCKET_BATCH;
        let kind = match work.cut {
            Cut::Socket => {
                let socket = UdpSocket::bind((pair.a.ipv4, FROM))?;
                socket.connect((pair.b.ipv4, PORT))?;
                Kind::Socket { socket, memory }
            }
            cut => {
                let cut_by = if cut == Cut::Kernel { CutBy::Kernel } else { CutBy::Sender };
                let sender = Sender::builder(pair.a.name.as_str()).cut_by(cut_by).open()?;
                let memory = sender.register(Memory::from_bytes(&memory))?;
                let datagrams = datagrams(pair.a.ipv4, pair)?;
                let frames = (work.page + 8).div_ceil(u32::from(sender.mtu() - 20) & !7);
                batch = u64::from((FRAMES / frames).max(1));
                match work.foreign {
                    None => Kind::Plain { sender, memory, datagrams },
                    Some(foreign) => {
                        let mtu = (sender.mtu(), frames);
                        let disturbed = Disturbed::new(foreign, datagrams, pair, mtu)?;
                        Kind::Disturbed { sender, memory, disturbed: disturbed.into() }
                    }
                }
            }
        };
        Ok(Self { kind, page: work.page, slots: 0..slots, batch, next: 0 })
    }

    /// From now on the slots of the closing are sent.
    pub(super) fn close(&mut self) {
        self.slots = self.slots.end..self.slots.end + CLOSING;
        self.next = 0;
    }

    /// Sends the next pages.
    pub(super) fn send(&mut self, pages: u64) -> Result<()> {
        let (first, count) = (self.slots.start, self.slots.end - self.slots.start);
        let slots = (self.next..self.next + pages).map(|nth| first + nth % count);
        self.next += pages;
        let at = |slot: u64| slot * u64::from(self.page);
        match &mut self.kind {
            Kind::Plain { sender, memory, datagrams } => {
                let parts = slots.map(|slot| memory.part(at(slot), self.page));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                sender.send_datagrams(datagrams, &parts)?;
            }
            Kind::Disturbed { sender, memory, disturbed } => {
                disturbed.line.clear();
                for slot in slots {
                    disturbed.cut(memory, at(slot), self.page)?;
                }
                let list = disturbed.line.iter();
                let list = list.map(|(head, body)| Outgoing { head, body: *body });
                sender.send(&list.collect::<Vec<_>>())?;
            }
            Kind::Socket { socket, memory } => {
                for slot in slots {
                    let from = at(slot) as usize;
                    socket.send(&memory[from..from + self.page as usize])?;
                }
            }
        }
        Ok(())
    }
}

/// The heads of datagrams to the receiver. Without checksums: nobody shall save a pass
/// over the bytes that another has to make.
fn datagrams(from: Ipv4Addr, pair: &VethPair) -> Result<Datagrams> {
    let from = Station { mac: pair.a.mac.0, address: SocketAddr::new(from.into(), FROM) };
    let to = Station { mac: pair.b.mac.0, address: address(&pair.b) };
    let datagrams = Datagrams::new(from, to, SEED).context("both are IPv4")?;
    Ok(datagrams.without_checksum())
}

/// Where pages go.
pub(super) fn address(end: &VethEnd) -> SocketAddr {
    SocketAddr::new(end.ipv4.into(), PORT)
}

/// Frames of a transfer with foreign packets in between: small datagrams, each in one
/// frame, to somebody who is not there.
struct Disturbed {
    foreign: Foreign,
    datagrams: Datagrams,
    others: Datagrams,
    cutter: Cutter,
    mtu: u16,
    /// Frames of a page.
    frames: u32,
    random: Random,
    /// Frames since the last run of packets began, and the one that the foreign
    /// packet of this run comes before.
    nth: u32,
    before: u32,
    line: Vec<(Head, Part)>,
}

impl Disturbed {
    fn new(
        foreign: Foreign,
        datagrams: Datagrams,
        pair: &VethPair,
        (mtu, frames): (u16, u32),
    ) -> Result<Self> {
        let [a, b, c, _] = pair.a.ipv4.octets();
        let (from, to) = (Ipv4Addr::new(a, b, c, 77), Ipv4Addr::new(a, b, c, 78));
        let station = |mac, ip: Ipv4Addr| Station { mac, address: SocketAddr::new(ip.into(), 9) };
        let (from, to) = (station(pair.a.mac.0, from), station(pair.b.mac.0, to));
        let others = Datagrams::new(from, to, SEED).context("both are IPv4")?.without_checksum();
        let mut disturbed = Self {
            foreign,
            datagrams,
            others,
            cutter: Cutter::new(Df::Refuse, SEED),
            mtu,
            frames,
            random: Random::new(SEED),
            nth: 0,
            before: 0,
            line: Vec::new(),
        };
        disturbed.draw();
        Ok(disturbed)
    }

    /// Where in the coming run of packets the foreign one is.
    fn draw(&mut self) {
        let Foreign { every } = self.foreign;
        self.nth = 0;
        self.before = match every {
            // In each packet: within it.
            1 => 1 + self.random.next_u32() % (self.frames - 1).max(1),
            _ => self.random.next_u32() % (every * self.frames),
        };
    }

    /// Puts the frames of a page in line, and what comes in between.
    fn cut(&mut self, memory: &Registered, at: u64, page: u32) -> Result<()> {
        const NAME: RegionId = RegionId::new(0, 0);
        let head = self.datagrams.next(page, InternetSum::new())?;
        let pieces: Vec<_> = self.cutter.cut(&head, NAME.span(at, page), self.mtu)?.collect();
        for piece in pieces {
            if self.nth == self.before {
                let head = self.others.next(FOREIGN_LEN, InternetSum::new())?;
                self.line.push((head, memory.part(0, FOREIGN_LEN)?));
            }
            self.nth += 1;
            let part = memory.part(piece.payload.offset, piece.payload.len)?;
            self.line.push((piece.head, part));
        }
        if self.nth >= self.foreign.every * self.frames {
            self.draw();
        }
        Ok(())
    }
}
