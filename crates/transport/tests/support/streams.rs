//! A stream between two drivers of whole frames, of whatever kind.
//!
//! Datagrams of UDP over IPv4, in frames, for kernels to receive.

use std::net::Ipv4Addr;

use landfall_placement::checksum::checksum;
use landfall_placement::{Ecn, Engine, InternetSum, PathState, Peer, RegionId, Span, SumSlot};
use landfall_testkit::engines::stream::{Config, Framing, Station};
use landfall_testkit::engines::{Area, Stream};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::{Clock, Driver};

use super::{PATIENCE, Sending, assert_same, contents, pattern};

/// TCP tells large windows in steps (RFC 7323, 2.2): what is posted beyond the
/// last whole step is not offered.
const LARGEST_STEP: u64 = 1 << 14;

/// A stream engine with its driver and memory.
pub struct StreamEnd<D> {
    pub engine: Stream,
    pub driver: D,
    pub regions: Regions,
    pub region: RegionId,
}

impl<D: Driver> StreamEnd<D> {
    /// One that connects, or listens.
    pub fn new(
        (driver, regions): (D, Regions),
        [local, remote]: [Station<Ipv4Addr>; 2],
        connects: bool,
        memory: &[u8],
        clock: &Clock,
    ) -> Self {
        let memory = Memory::from_bytes(memory);
        let region = regions.lend(memory, Rights::READ | Rights::WRITE).unwrap();
        let framing = Framing::EthernetIpv4Tcp { local, remote };
        let config = Config::new(framing, driver.path()).steady();
        let mut engine = if connects {
            Stream::connect(config, [1; 32])
        } else {
            Stream::listen(config, [2; 32])
        };
        engine.handle_path(clock.now(), driver.path(), PathState::Up(driver.limits()));
        Self { engine, driver, regions, region }
    }

    pub fn turn(&mut self, clock: &Clock) {
        self.driver.turn(&mut self.engine, clock.now()).unwrap();
    }
}

/// Streams a message of this many bytes between two drivers, each with its
/// regions, and gives both ends.
pub fn carry_stream<A: Driver, B: Driver>(
    from: (A, Regions),
    to: (B, Regions),
    stations: [Station<Ipv4Addr>; 2],
    len: usize,
) -> (StreamEnd<A>, StreamEnd<B>) {
    let clock = Clock::start();
    let message = pattern(len, 11);
    let room = len as u64 + LARGEST_STEP;
    let [a, b] = stations;
    let mut from = StreamEnd::new(from, [a, b], true, &message, &clock);
    let mut to = StreamEnd::new(to, [b, a], false, &vec![0; room as usize], &clock);
    let len = len as u64;
    from.engine.send(Area::new(from.region, 0, len)).unwrap();
    from.engine.close();
    to.engine.receive_into(Area::new(to.region, 0, room)).unwrap();
    let deadline = clock.now() + PATIENCE;
    while to.engine.received() < len || from.engine.acknowledged() < len {
        let counters = [from.driver.counters(), to.driver.counters()];
        assert!(clock.now() < deadline, "{} of {len}: {counters:?}", to.engine.received());
        from.turn(&clock);
        to.turn(&clock);
    }
    assert_same(&contents(&to.regions, to.region)[..len as usize], &message);
    (from, to)
}

/// Ethernet, IPv4 and UDP.
pub const HEAD: usize = ETHERNET + IPV4 + UDP;
pub const TO_PORT: u16 = 6001;
pub const FROM_PORT: u16 = 6000;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Where the sum of a datagram goes.
const SUM: SumSlot = SumSlot { start: (ETHERNET + IPV4) as u16, offset: 6 };
const MORE_FRAGMENTS: u16 = 0x2000;

/// From somebody to the kernel at this station.
#[derive(Clone, Copy)]
pub struct Datagram {
    pub to: ([u8; 6], Ipv4Addr),
    pub from: Ipv4Addr,
}

impl Datagram {
    /// One frame.
    pub fn whole(&self, payload: Span) -> Sending {
        let mut head = self.ip_head(UDP + payload.len as usize, 0);
        head.extend(self.udp_head(payload.len));
        sending(head, vec![payload], 0)
    }

    /// Two fragments; the first is so long that the second begins at a multiple
    /// of eight bytes.
    pub fn in_two(&self, one: Span, two: Span) -> [Sending; 2] {
        let second_at = UDP + one.len as usize;
        assert_eq!(second_at % 8, 0, "IP counts in steps of eight");
        let mut first = self.ip_head(second_at, MORE_FRAGMENTS);
        first.extend(self.udp_head(one.len + two.len));
        let second = self.ip_head(two.len as usize, (second_at / 8) as u16);
        let mut second = sending(second, vec![two], 0);
        second.checksum = None;
        [sending(first, vec![one, two], two.len), second]
    }

    fn ip_head(&self, payload: usize, fragment: u16) -> Vec<u8> {
        let mut head = self.to.0.to_vec();
        head.extend([2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0]);
        head.extend(((IPV4 + payload) as u16).to_be_bytes());
        head.extend([0x4c, 0x46]);
        head.extend(fragment.to_be_bytes());
        head.extend([64, 17, 0, 0]);
        head.extend(self.from.octets());
        head.extend(self.to.1.octets());
        let sum = checksum(&head[ETHERNET..]);
        head[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
        head
    }

    /// With the sum over the pseudo-header in the checksum's slot.
    fn udp_head(&self, payload: u32) -> [u8; UDP] {
        let len = UDP as u16 + payload as u16;
        let mut pseudo = InternetSum::new();
        pseudo.add(&self.from.octets());
        pseudo.add(&self.to.1.octets());
        pseudo.add_word(17);
        pseudo.add_word(len);
        let words = [FROM_PORT, TO_PORT, len, pseudo.sum()];
        let bytes = words.map(u16::to_be_bytes);
        bytes.as_flattened().try_into().unwrap()
    }
}

fn sending(head: Vec<u8>, payload: Vec<Span>, sum_only: u32) -> Sending {
    let (to, checksum, ecn) = (Peer::Unaddressed, Some(SUM), Ecn::NotCapable);
    Sending { to, head, payload, segment: None, checksum, sum_only, ecn }
}
