//! A reassembler by itself: frames in, packets out.
//!
//! For gateways, user-plane functions, intrusion detection and tools that read captures: all that
//! see fragments of IP and need the packets that they make. No memory has to be registered and no
//! descriptor posted: a frame is bytes, and a packet that is complete is a list of pieces, which
//! lie where they came.
//!
//! ```
//! use landfall_placement::Instant;
//! use spec_defrag::HashSecret;
//! use spec_defrag::reassembly::{Config, Link, Outcome, Reassembler};
//!
//! // Two random numbers: a stranger who knows them can make packets collide in the table.
//! let secret = HashSecret::new(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
//! let mut reassembler = Reassembler::new(Config { link: Link::Ip, ..Config::new(secret) });
//!
//! // A UDP datagram from 10.0.0.1 to 10.0.0.2 in two fragments, as they come from a TUN interface.
//! let mut first = vec![0x45, 0, 0, 36, 0, 7, 0x20, 0, 64, 17, 0x46, 0xc0, 10, 0, 0, 1, 10, 0, 0, 2];
//! first.extend([0, 9, 0, 9, 0, 20, 0, 0, b'f', b'r', b'a', b'g', b'm', b'e', b'n', b't']);
//! let mut last = vec![0x45, 0, 0, 24, 0, 7, 0, 2, 64, 17, 0x66, 0xca, 10, 0, 0, 1, 10, 0, 0, 2];
//! last.extend(b"ed!!");
//!
//! assert!(matches!(reassembler.offer(Instant::ZERO, &last), Outcome::Kept));
//! let Outcome::Packet(packet) = reassembler.offer(Instant::ZERO, &first) else { unreachable!() };
//! assert_eq!(packet.head()[2..8], [0, 40, 0, 7, 0, 0], "40 bytes, and no fragment");
//! assert_eq!(packet.to_vec()[28..], *b"fragmented!!");
//! ```
//!
//! # Rules
//!
//! What is not plainly one packet cut into fragments is no packet, in IPv6 and in IPv4 alike:
//!
//! - Fragments that overlap end their packet silently, and all that still comes of it is dropped
//!   until its time is over (RFC 5722; RFC 8200, section 4.5). Only an exact repetition, in place
//!   and bytes, is passed over.
//! - A first fragment holds all headers up to the transport's (RFC 7112), and no other one starts
//!   within that of TCP (RFC 1858, RFC 3128).
//! - A fragment with a wrong length, or beyond byte 65,535, is dropped alone.
//! - An atomic fragment is a packet by itself and meets no other fragment (RFC 6946).
//! - The time of a packet runs from the fragment that came first (RFC 1122, RFC 8200). It is 30 s
//!   by default, as Linux has it. RFC 1122 (section 3.3.2) and RFC 8200 say 60 s, which at any
//!   modern rate is longer than it takes identifications to come again: RFC 6864 (section 3.2) and
//!   RFC 4963 ask for less. A sender may use an identification again once its packet came out.
//! - RFC 8900 says why fragments are fragile; a reassembler in the network adds one reason: it holds
//!   state, and all fragments of a packet have to pass through it.
//!
//! # Bounds
//!
//! Packets and bytes are bounded in all and for each source (an address of IPv4, a network of 64 bits of
//! IPv6), fragments for each packet.
//! At the bound of a source its own oldest packet goes. At the bound of all, the oldest one of the
//! source that holds most goes, if that is more than half of what one source may hold; else the
//! oldest of all. So a flood from one source costs others nothing, and one from addresses that
//! are made up costs the packets that take longer than the flood needs to fill the memory. The cost
//! of a fragment depends neither on how many packets are kept nor on how they are cut.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `frame` | what a frame carries, behind which tags; the headers of a first fragment |
//! | `kept` | how a fragment waits: copied, or in its own frame |
//! | `datagram` | one packet: its bytes as they came, and which of the packet they are |
//! | `store` | all packets: which are kept, and which go |
//! | `packet`, `outcome`, `ended` | what comes out: packets, what became of frames, what was given up |
//!
//! Which fragments make a packet is [`landfall_inet::reassembly`]'s to say, as for the receiver of
//! this crate and for the IP stack of `qpip`.

mod datagram;
mod ended;
mod frame;
mod kept;
mod outcome;
mod packet;
mod store;

pub use ended::{EndReason, EndedPacket, FirstFragment};
pub use frame::{Link, Vlans};
pub use kept::{Copied, Frame};
pub use outcome::{Counters, DropReason, Outcome};
pub use packet::Packet;

use alloc::boxed::Box;

use landfall_inet::reassembly::{LONGEST, Piece};
use landfall_placement::{Duration, Instant};
use landfall_tables::HashSecret;

use crate::memory::Head;
use crate::wire::{Parsed, Plain, write_whole_head};
use datagram::{Arrived, Datagram, Next};
use frame::Fragment;
use kept::Offered;
use store::{PacketKey, State, Store};

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// What stands before the IP header in each frame.
    pub link: Link,
    /// The most packets that are known: not complete, or ended with fragments still to come.
    pub packets: u32,
    /// The most of them from one source: an address of IPv4, a network of 64 bits of IPv6.
    pub packets_per_source: u32,
    /// The most bytes of memory that they take, with 512 for each packet.
    pub bytes: u64,
    /// The most of them for one source.
    pub bytes_per_source: u64,
    /// The most fragments of one packet: 45 make the longest packet at an MTU of 1500, 119 at one
    /// of 576.
    pub fragments: u16,
    /// For how long the fragments of a packet are kept after the first came.
    pub lifetime: Duration,
    /// The most reports of packets that ended, until they are fetched; the oldest go. Each takes
    /// up to 1.5 KiB.
    pub reports: u32,
    /// Keeps strangers from choosing addresses and identifications that are slow to find.
    pub secret: HashSecret,
}

impl Config {
    /// Ethernet; 16,384 packets and 64 MiB, of which a source has a sixteenth at most; 128
    /// fragments; 30 seconds; 256 reports. The secret is two random numbers.
    #[must_use]
    pub const fn new(secret: HashSecret) -> Self {
        Self {
            link: Link::Ethernet,
            packets: 16_384,
            packets_per_source: 1_024,
            bytes: 64 << 20,
            bytes_per_source: 4 << 20,
            fragments: 128,
            lifetime: Duration::from_secs(30),
            reports: 256,
            secret,
        }
    }
}

/// Joins fragments of IPv4 and IPv6; see the [module](self).
///
/// It copies what it keeps, so that the caller has each frame back at once; or, with memory that
/// is a [`Frame`], it keeps the frames themselves ([`Reassembler::keeping`]).
#[derive(Debug)]
pub struct Reassembler<F = Copied> {
    store: Store<F>,
    /// The packet that came out last, and its headers.
    done: Box<Datagram<F>>,
    head: Head,
    /// Time does not go back.
    latest: Instant,
    next_end: Instant,
}

/// What became of a frame, before a packet borrows anything.
enum Step {
    NotFragment,
    Kept,
    /// With this fragment a packet is complete: what is done.
    Whole(Fragment),
}

impl Reassembler {
    /// One that copies. Nothing is kept yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::keeping(config)
    }

    /// Takes a frame: one that carries a fragment is kept, completes a packet or is dropped, any
    /// other is to be passed on.
    pub fn offer<'a>(&'a mut self, now: Instant, frame: &'a [u8]) -> Outcome<'a> {
        self.handle_frame(now, Offered::Bytes(frame))
    }
}

impl<F: Frame> Reassembler<F> {
    /// One that keeps frames, and copies nothing. None is kept yet.
    ///
    /// ```
    /// # use landfall_placement::Instant;
    /// # use spec_defrag::HashSecret;
    /// # use spec_defrag::reassembly::{Config, Link, Reassembler};
    /// # let secret = HashSecret::new(1, 2);
    /// # let mut first = vec![0x45, 0, 0, 36, 0, 7, 0x20, 0, 64, 17, 0x46, 0xc0, 10, 0, 0, 1, 10, 0, 0, 2];
    /// # first.extend([0, 9, 0, 9, 0, 20, 0, 0, b'f', b'r', b'a', b'g', b'm', b'e', b'n', b't']);
    /// # let mut last = vec![0x45, 0, 0, 24, 0, 7, 0, 2, 64, 17, 0x66, 0xca, 10, 0, 0, 1, 10, 0, 0, 2];
    /// # last.extend(b"ed!!");
    /// let mut reassembler = Reassembler::keeping(Config { link: Link::Ip, ..Config::new(secret) });
    /// let (mut first, mut last) = (Some(first), Some(last)); // two fragments, each in a Vec<u8>
    /// assert!(reassembler.offer_frame(Instant::ZERO, &mut first).packet().is_none());
    /// assert_eq!(first, None, "it is kept");
    /// let packet = reassembler.offer_frame(Instant::ZERO, &mut last).packet();
    /// assert_eq!(packet.map(|packet| packet.pieces().count()), Some(2));
    /// ```
    #[must_use]
    pub fn keeping(config: Config) -> Self {
        Self {
            store: Store::new(config),
            done: Box::default(),
            head: Head::new(),
            latest: Instant::ZERO,
            next_end: Instant::FAR_FUTURE,
        }
    }

    /// The same as [`Reassembler::offer`] for a frame that is taken if it is kept, and that is the
    /// caller's again where it completes a packet, is none of ours or is dropped. Frames are
    /// released when their packet ended, or when the next packet came out.
    ///
    /// What counts is what frames hold ([`Frame::memory`]), and not what is in them. No frame at all is
    /// no fragment.
    pub fn offer_frame<'a>(&'a mut self, now: Instant, frame: &'a mut Option<F>) -> Outcome<'a, F> {
        self.handle_frame(now, Offered::Frame(frame))
    }

    fn handle_frame<'a>(&'a mut self, now: Instant, mut offered: Offered<'a, F>) -> Outcome<'a, F> {
        self.latest = self.latest.max(now);
        if self.latest >= self.next_end {
            self.give_up_overdue();
        }
        let step = self.step(&mut offered);
        let counters = &mut self.store.counters;
        match step {
            Ok(Step::NotFragment) => {
                counters.not_fragments += 1;
                Outcome::NotFragment
            }
            Ok(Step::Kept) => {
                counters.kept += 1;
                Outcome::Kept
            }
            Ok(Step::Whole(Fragment { parsed, vlans })) => {
                counters.packets += 1;
                let last = &offered.into_bytes()[parsed.payload_at.into()..];
                let Datagram { buffer, fragments, .. } = &*self.done;
                Outcome::Packet(Packet {
                    head: &self.head,
                    network_at: parsed.network_at,
                    key: parsed.key,
                    vlans,
                    fragments: *fragments,
                    buffer,
                    last: &last[..parsed.payload_len as usize],
                })
            }
            Err(reason) => {
                counters.dropped[reason as usize] += 1;
                Outcome::Dropped(reason)
            }
        }
    }

    fn step(&mut self, offered: &mut Offered<'_, F>) -> Result<Step, DropReason> {
        let link = self.store.config.link;
        let fragment = match frame::plain(link, offered.bytes()) {
            Some(plain) => {
                if let Some(piece) = plain.piece_behind_headers() {
                    let next = Next { piece, ecn: plain.ecn(), payload_at: Plain::PAYLOAD_AT };
                    if self.store.append(plain.key(), &next, offered) {
                        return Ok(Step::Kept);
                    }
                }
                Fragment { parsed: plain.parsed(), vlans: [0; 2] }
            }
            None => match frame::read(link, offered.bytes())? {
                Some(fragment) => fragment,
                None => return Ok(Step::NotFragment),
            },
        };
        let parsed = &fragment.parsed;
        let Some(named) = parsed.fragment else { return Ok(Step::NotFragment) };
        let piece = Piece::new(named, parsed.payload_len, LONGEST).map_err(DropReason::of)?;
        let arrived = Arrived { parsed, piece, frame: offered.bytes() };
        frame::check_headers(parsed, piece.start, arrived.payload())?;
        if named.is_atomic() {
            let (head, headers) = (&mut self.head, arrived.head());
            write_whole_head(head, headers, parsed, piece.end, parsed.ecn)
                .map_err(DropReason::of)?;
            self.done.set_whole(piece);
            self.store.counters.atomic += 1;
            return Ok(Step::Whole(fragment));
        }
        if piece.start == 0 && arrived.head().len() > Head::MOST {
            return Err(DropReason::HeadersTooLong);
        }
        let key = PacketKey { key: parsed.key, vlans: fragment.vlans };
        let at = match self.store.find(&key) {
            Ok(at) => at,
            Err(hash) => {
                let at = self.store.open(self.latest, key, hash, arrived.needs(offered))?;
                self.next_end = self.next_end.min(self.latest + self.store.config.lifetime);
                at
            }
        };
        match self.take(at, parsed, piece, offered) {
            Ok(false) => Ok(Step::Kept),
            Ok(true) => Ok(Step::Whole(fragment)),
            Err(reason) => {
                if reason.ends_packet() {
                    self.store.end(at);
                } else if self.store.datagram(at).is_some_and(|datagram| datagram.fragments == 0) {
                    // Begun for this fragment, which found no room.
                    self.store.close(at);
                }
                Err(reason)
            }
        }
    }

    /// A fragment of the packet at `at`. True: nothing is missing any more, and the packet is done.
    fn take(
        &mut self,
        at: u32,
        parsed: &Parsed,
        piece: Piece,
        offered: &mut Offered<'_, F>,
    ) -> Result<bool, DropReason> {
        let most = self.store.config.fragments;
        let arrived = Arrived { parsed, piece, frame: offered.bytes() };
        let datagram = self.store.datagram(at).ok_or(DropReason::Ended)?;
        datagram.check(&arrived)?;
        if datagram.fragments >= most {
            return Err(DropReason::TooManyFragments);
        }
        if !datagram.is_completed_by(piece) {
            self.store.reserve(at, arrived.needs(offered))?;
            if let Some(datagram) = self.store.datagram(at) {
                datagram.keep(parsed, piece, offered);
            }
            return match self.store.settle(at) {
                Ok(()) => Ok(false),
                // What it takes beside its bytes is more than a source may have.
                Err(_) => Err(DropReason::TooManyFragments),
            };
        }
        datagram.complete(&arrived);
        if let Err(reason) = datagram.whole_head(&arrived, &mut self.head) {
            // Nothing that still comes can mend it.
            self.store.end(at);
            return Err(reason);
        }
        if let Some((_, State::Gathering(datagram))) = self.store.close(at) {
            self.store.complete(&datagram);
            let before = core::mem::replace(&mut self.done, datagram);
            self.store.recycle(before);
        }
        Ok(true)
    }

    /// Gives up what was not complete in time. [`Reassembler::offer`] does it, too, where it is
    /// late.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.latest = self.latest.max(now);
        self.give_up_overdue();
    }

    #[cold]
    fn give_up_overdue(&mut self) {
        while let Some(at) = self.store.over(self.latest) {
            self.store.give_up(at, EndReason::Expired);
        }
        self.next_end = self.store.next_end().unwrap_or(Instant::FAR_FUTURE);
    }

    /// When to call [`Reassembler::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.store.next_end()
    }

    /// The next packet that ended without being complete, because of its time or for want of room.
    pub fn poll_ended(&mut self) -> Option<EndedPacket> {
        self.store.ended.pop_front()
    }

    /// What became of all frames so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.store.counters
    }

    /// How many packets are known that are not complete, or ended with fragments still to come.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.store.len()
    }

    /// How many bytes of memory packets and buffers take: no more than [`Config::bytes`] and an
    /// eighth, and the packet that came out last.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.store.memory() + self.done.buffer.memory() as u64
    }
}

#[cfg(test)]
mod tests;
