//! What may happen to two adapters, decoded from any bytes: the same for
//! property tests and fuzzing.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use landfall_placement::{Duration, PathLimits};
use landfall_testkit::model::Choices;

use crate::adapter::{Config, Interface};
use crate::offload::OwnAddress;
use crate::tcp::Mapping;
use crate::tcp::config::{KeepAlive, Pacing, TcpConfig};
use crate::tcp::congestion::CongestionControl;
use crate::wire::Mac;

/// One thing that happens. `side` is the one that it happens to; `which` picks
/// one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// The user makes a queue pair and asks for a connection.
    Connect { side: usize },
    /// The user makes a queue pair and offers it to the listener.
    Offer { side: usize },
    /// The user makes a queue pair for datagrams.
    Bind { side: usize },
    /// The user sends this many bytes, from several places where `pieces` says so.
    Send { side: usize, which: u8, len: u32, pieces: u8 },
    /// The user posts memory for this many bytes.
    Receive { side: usize, which: u8, len: u32, pieces: u8 },
    /// The user says that a queue pair sends no more.
    Shutdown { side: usize, which: u8 },
    /// The user resets a connection.
    Abort { side: usize, which: u8 },
    /// The user destroys a queue pair.
    Destroy { side: usize, which: u8 },
    /// The user polls, where it does not always.
    Poll { side: usize },
    /// The user arms the completion queue.
    Arm { side: usize, solicited: bool },
    /// The user does what it must not.
    Blunder { side: usize, which: u8, how: u8 },
    /// The driver sends up to this many units; it may hold them for a while.
    Transmit { side: usize, count: u8, holds: bool },
    /// The driver is done with what it held, the oldest or the newest first.
    Release { side: usize, newest_first: bool },
    /// A turn: the driver receives this many of the units under way; the placing
    /// of one of them may fail.
    Turn { side: usize, count: u8, stride: u8, fails: bool },
    /// A unit under way is lost.
    Lose { side: usize, which: u8 },
    /// A unit under way is doubled.
    Double { side: usize, which: u8 },
    /// A unit that came long ago comes again.
    Replay { side: usize, which: u8 },
    /// A bit of a unit under way is flipped.
    Flip { side: usize, which: u8, bit: u16 },
    /// A unit under way meets congestion.
    Mark { side: usize, which: u8 },
    /// These bytes arrive, behind an Ethernet header.
    Inject { side: usize, bytes: &'a [u8] },
    /// Junk falls wherever the engine guesses.
    Scatter { side: usize },
    /// Time passes, up to the next timeout or by this many units of 64 µs.
    Wait { some: Option<u8> },
    /// The path goes down, or comes up again.
    Path { side: usize, is_up: bool },
    /// An old ticket comes back.
    Stale { side: usize },
    /// Everything that is under way arrives.
    Settle,
}

/// Decodes operations until the bytes end.
#[derive(Clone, Debug)]
pub(super) struct Operations<'a> {
    choices: Choices<'a>,
}

impl<'a> Operations<'a> {
    /// The operations that these bytes stand for.
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { choices: Choices::new(bytes) }
    }

    fn byte(&mut self) -> u8 {
        self.choices.byte()
    }

    /// Short ones often, none at all sometimes, and up to 8 KiB.
    fn len(&mut self) -> u32 {
        let (shape, fine) = (self.byte(), self.byte());
        match shape >> 6 {
            0 => u32::from(fine % 80),
            1 | 2 => u32::from(shape & 3) << 8 | u32::from(fine),
            _ => u32::from(shape & 31) << 8 | u32::from(fine),
        }
    }

    fn of_user(&mut self, code: u8, side: usize) -> Operation<'a> {
        match code {
            0 => Operation::Connect { side },
            1 => Operation::Offer { side },
            2 => Operation::Bind { side },
            3..=11 => {
                let (which, len) = (self.byte(), self.len());
                Operation::Send { side, which, len, pieces: which >> 6 }
            }
            12..=20 => {
                let (which, len) = (self.byte(), self.len());
                Operation::Receive { side, which, len, pieces: which >> 6 }
            }
            21 => Operation::Poll { side },
            22 => Operation::Arm { side, solicited: self.byte() & 1 == 1 },
            23 => Operation::Blunder { side, which: self.byte(), how: self.byte() },
            // Rare: they end much.
            _ => match (self.byte(), self.byte()) {
                (which, 0..=127) => Operation::Shutdown { side, which },
                (which, 128..=143) => Operation::Abort { side, which },
                (which, 144..=159) => Operation::Destroy { side, which },
                _ => Operation::Poll { side },
            },
        }
    }

    fn of_driver(&mut self, code: u8, side: usize) -> Operation<'a> {
        let which = self.byte();
        match code {
            25..=33 => Operation::Transmit { side, count: which & 15, holds: which & 0x80 != 0 },
            34 => Operation::Release { side, newest_first: which & 1 != 0 },
            35..=46 => {
                let (count, stride) = (which & 15, which >> 4 & 3);
                Operation::Turn { side, count, stride, fails: which >> 3 == 31 }
            }
            47 | 48 => Operation::Lose { side, which },
            49 => Operation::Double { side, which },
            50 => Operation::Replay { side, which },
            51 => {
                let bit = self.choices.word();
                Operation::Flip { side, which, bit }
            }
            52 => Operation::Mark { side, which },
            53 => {
                let bytes = self.choices.raw(usize::from(which & 63));
                Operation::Inject { side, bytes }
            }
            54 => Operation::Scatter { side },
            55..=57 => Operation::Wait { some: (which & 3 != 0).then_some(which) },
            58 => Operation::Path { side, is_up: which & 3 != 0 },
            59 => Operation::Stale { side },
            _ => Operation::Settle,
        }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        if self.choices.is_over() {
            return None;
        }
        let code = self.byte();
        let side = usize::from(code >> 7);
        Some(match code & 63 {
            code @ 0..=24 => self.of_user(code, side),
            code => self.of_driver(code, side),
        })
    }
}

// The configurations that are tried.

/// How many bytes choose a setup.
pub(super) const CHOICES: usize = 3;

/// The port that each side listens at.
pub(super) const PORT: u16 = 7;

/// How a run is set up: three bytes of choices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup([u8; CHOICES]);

impl Setup {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut choices = [0; CHOICES];
        for (choice, byte) in choices.iter_mut().zip(bytes) {
            *choice = *byte;
        }
        Self(choices)
    }

    const fn has(self, bit: u8) -> bool {
        self.0[bit as usize / 8] >> (bit % 8) & 1 == 1
    }

    /// How messages of this side lie in segments: mostly the same on both, and
    /// sometimes messages here and a stream of bytes there.
    pub(super) const fn mapping(self, side: usize) -> Mapping {
        match self.0[0] & 3 {
            0 => Mapping::Segment,
            1 => Mapping::Message,
            2 => Mapping::Stream,
            _ if side == 1 && self.has(20) => Mapping::Stream,
            _ => Mapping::Message,
        }
    }

    /// The address of a side.
    pub(super) fn address(self, side: usize) -> IpAddr {
        let n = side as u8 + 1;
        if self.has(2) {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, n).into()
        }
    }

    /// Where a side listens.
    pub(super) fn listens_at(self, side: usize) -> SocketAddr {
        SocketAddr::new(self.address(side), PORT)
    }

    /// Does the device take long segments, and cut them?
    pub(super) const fn is_cut(self) -> bool {
        self.has(3)
    }

    /// Does it hand them over as they are, as between two virtual machines?
    pub(super) const fn is_coalesced(self) -> bool {
        self.has(4)
    }

    /// Do the sides know each other's stations from the start?
    pub(super) const fn knows_neighbours(self) -> bool {
        !self.has(5) || !self.has(22)
    }

    /// Does the user poll only now and then?
    pub(super) const fn is_lazy(self) -> bool {
        self.has(6) && self.has(21)
    }

    /// Is there a connection from the start, and queue pairs for datagrams?
    pub(super) const fn begins_connected(self) -> bool {
        self.has(7) || self.has(23)
    }

    /// Does the last piece of a long segment overtake the others?
    pub(super) const fn is_last_first(self) -> bool {
        self.has(14)
    }

    /// May placing fail?
    pub(super) const fn may_fail(self) -> bool {
        self.has(15)
    }

    /// Is there room for little?
    pub(super) const fn is_small(self) -> bool {
        self.has(13)
    }

    /// How many requests a queue holds.
    pub(super) const fn depth(self) -> u32 {
        if self.is_small() { 2 } else { 8 }
    }

    /// How many completions the queue of a side holds.
    pub(super) const fn completions(self) -> u32 {
        if self.is_small() { 8 } else { 48 }
    }

    /// Does this side ask for words with messages? Mostly both do, or neither.
    pub(super) const fn has_immediates(self, side: usize) -> bool {
        let is_on = self.has(19) && !self.has(10);
        is_on && (side == 0 || !self.has(20))
    }

    /// May words be posted, on a connection whose openings came through?
    pub(super) fn agrees_on_immediates(self, own: Mapping) -> bool {
        self.has_immediates(0) && self.has_immediates(1) && own != Mapping::Stream
    }

    pub(super) fn config(self, side: usize) -> Config {
        let few = |small: usize, usual: usize| if self.is_small() { small } else { usual };
        Config {
            queue_pairs: few(4, 8),
            half_open: few(2, 16),
            time_wait: few(2, 16),
            transmissions: 16,
            placements: 16,
            reassemblies: few(2, 16),
            events: few(16, 64),
            tcp: TcpConfig {
                congestion: match (self.has(11), self.has(19) && self.has(10)) {
                    (_, true) => CongestionControl::Dctcp,
                    (true, false) => CongestionControl::NewReno,
                    (false, false) => CongestionControl::Cubic,
                },
                ecn: self.has(10),
                accurate_ecn: self.has(10) && self.has(22),
                timestamps: !self.has(8),
                sack: !self.has(9),
                most_window: if self.has(12) { 0 } else { 1 << 24 },
                // Who closes waits for the other user: as long as it takes.
                finish_within: Duration::from_secs(100_000),
                keep_alive: self.has(16).then_some(KeepAlive {
                    idle: Duration::from_secs(5),
                    interval: Duration::from_secs(40),
                    probes: 9,
                }),
                pacing: if self.has(18) { Pacing::Always } else { Pacing::OnLongPaths },
                immediates: self.has_immediates(side),
                ..TcpConfig::default()
            },
            ..Config::default()
        }
    }

    pub(super) fn interface(self, side: usize) -> Interface {
        let other = (self.address(1 - side), station(1 - side));
        let prefix = if self.has(2) { 64 } else { 24 };
        Interface {
            mac: station(side),
            addresses: [OwnAddress::new(self.address(side), prefix)].into(),
            neighbours: if self.knows_neighbours() { [other].into() } else { [].into() },
            ..Interface::default()
        }
    }

    pub(super) const fn limits(self) -> PathLimits {
        // What IPv6 needs at least is more than 1,000 bytes.
        let packet = if self.has(17) && !self.has(2) { 600 } else { 1_500 };
        let mut limits = PathLimits::plain(packet + 14);
        if self.is_cut() || self.is_coalesced() {
            limits.super_unit = 65_535;
            limits.segments = 64;
            limits.offloads.segment_tcp4 = true;
            limits.offloads.segment_tcp6 = true;
        }
        limits
    }
}

/// The station of a side.
pub(super) const fn station(side: usize) -> Mac {
    [2, 0, 0, 0, 0, side as u8 + 1]
}
