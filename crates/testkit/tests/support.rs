//! What several tests share.

// Each test binary uses its part of this.

use landfall_testkit::model::Faults;

/// Bytes that differ from place to place and from salt to salt.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|n| ((n * 31 + salt) ^ (n >> 8)) as u8).collect()
}

/// Everything that can go wrong, often.
pub const BAD: Faults = Faults {
    loss: 30_000,
    duplication: 30_000,
    reordering: 100_000,
    corruption: 10_000,
    cutting: 500_000,
    failing: 10_000,
};

/// Transfers of the numbered engine.
pub mod numbered {
    use landfall_placement::{Engine, PathId, PathLimits, Peer};
    use landfall_testkit::engines::Area;
    use landfall_testkit::engines::numbered::{Config, Event, Numbered};
    use landfall_testkit::model::{Checked, Faults, NaiveWire};

    use super::pattern;

    pub const PATH: PathId = PathId(0);
    pub const LIMITS: PathLimits = PathLimits::plain(1472);

    pub fn wire(config: Config, faults: Faults, seed: u64) -> NaiveWire<Checked<Numbered>> {
        let engines = [1, 2].map(|n| Checked::new(Numbered::new(config, [n; 32])));
        NaiveWire::new(engines, LIMITS, faults, seed)
    }

    /// Sends messages of these lengths from side 0 to side 1, and checks what came.
    pub fn transfer(config: Config, faults: Faults, seed: u64, lens: &[usize]) -> u64 {
        let mut wire = wire(config, faults, seed);
        let to = Peer::Node(1);
        let mut delivered = 0;
        let mut sent = 0;
        let mut next = 0;
        let mut sources = Vec::new();
        let longest = lens.iter().copied().max().unwrap_or(0);
        for (n, len) in lens.iter().enumerate() {
            let bytes = pattern(*len, n as u64);
            sources.push((wire.sides[0].memory.lend(bytes.clone()), bytes));
            // Any message may take any place: which comes first is the network's choice.
            let region = wire.sides[1].memory.lend(vec![0; longest]);
            let area = Area::new(region, 0, longest as u64);
            wire.sides[1].engine.engine.receive_into(area).unwrap();
        }
        for _ in 0..200_000 {
            while next < lens.len() {
                let now = wire.now;
                let area = Area::new(sources[next].0, 0, lens[next] as u64);
                if wire.sides[0].engine.engine.send(now, PATH, to, area).is_err() {
                    break;
                }
                next += 1;
            }
            let moved = wire.turn();
            while let Some(event) = wire.sides[0].engine.poll_event() {
                match event {
                    Event::Sent { .. } => sent += 1,
                    other => panic!("{other:?}"),
                }
            }
            while let Some(event) = wire.sides[1].engine.poll_event() {
                let Event::Delivered { message, posted, len, .. } = event else {
                    panic!("{event:?}")
                };
                let expected = &sources[message as usize].1;
                let came = &wire.sides[1].memory.region(posted.region).unwrap()[..len as usize];
                assert!(came == expected.as_slice(), "message {message} of {len}");
                delivered += 1;
            }
            if sent == lens.len() && delivered == lens.len() {
                assert_eq!(wire.sides.map(|side| side.engine.violations()), [[], []]);
                return wire.digest;
            }
            if !moved && !wire.pass_time() {
                break;
            }
        }
        panic!("delivered {delivered}, sent {sent} of {}", lens.len());
    }
}

/// Transfers of the byte stream.
pub mod stream {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use landfall_placement::{Engine, Offloads, PathLimits, Peer};
    use landfall_testkit::engines::Area;
    use landfall_testkit::engines::stream::{Config, Event, Framing, Station, Stream};
    use landfall_testkit::model::{Checked, Faults, NaiveWire};

    use super::pattern;

    pub fn framings() -> [Framing; 3] {
        let mac = |n| [2, 0, 0, 0, 0, n];
        let four = |n| Station { mac: mac(n), ip: Ipv4Addr::new(10, 0, 0, n), port: 1000 };
        let six = |n| Station {
            mac: mac(n),
            ip: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()),
            port: 1000,
        };
        [
            Framing::EthernetIpv4Tcp { local: four(1), remote: four(2) },
            Framing::EthernetIpv6Tcp { local: six(1), remote: six(2) },
            Framing::Bare { peer: Peer::Node(1), local_port: 1, remote_port: 2 },
        ]
    }

    pub fn limits(cuts: bool) -> PathLimits {
        PathLimits {
            super_unit: if cuts { 65_549 } else { 1514 },
            segments: if cuts { 44 } else { 1 },
            offloads: Offloads { segment_tcp4: cuts, segment_tcp6: cuts, ..Offloads::default() },
            ..PathLimits::plain(1514)
        }
    }

    /// Sends a stream in both directions, in pieces of `piece` bytes, into a ring
    /// of `slots` areas of `slot` bytes each; checks every byte that comes.
    pub struct Transfer {
        pub piece: u64,
        pub slot: u64,
        pub slots: u64,
        pub total: u64,
    }

    impl Transfer {
        pub fn run(&self, config: Config, cuts: bool, faults: Faults, seed: u64) -> u64 {
            let there = Stream::connect(config, [1; 32]);
            let framing = config.framing.reversed(Peer::Node(0));
            let back = Stream::listen(Config { framing, ..config }, [2; 32]);
            let mut wire =
                NaiveWire::new([there, back].map(Checked::new), limits(cuts), faults, seed);
            let streams = [0, 1].map(|side| pattern(self.total as usize, side));
            let sources = [0, 1].map(|side| wire.sides[side].memory.lend(streams[side].clone()));
            let rings = [0, 1].map(|side| {
                let region =
                    wire.sides[side].memory.lend(vec![0; (self.slot * self.slots) as usize]);
                for n in 0..self.slots {
                    let area = Area::new(region, n * self.slot, self.slot);
                    wire.sides[side].engine.engine.receive_into(area).unwrap();
                }
                region
            });
            let mut posted = [0, 0];
            let mut came = [0u64, 0];
            let mut ended = [(false, false); 2];
            for _ in 0..400_000 {
                for side in 0..2 {
                    while posted[side] < self.total {
                        let len = self.piece.min(self.total - posted[side]);
                        let area = Area::new(sources[side], posted[side], len);
                        if wire.sides[side].engine.engine.send(area).is_err() {
                            break;
                        }
                        posted[side] += len;
                    }
                    if posted[side] == self.total {
                        wire.sides[side].engine.engine.close();
                    }
                }
                let moved = wire.turn();
                for side in 0..2 {
                    while let Some(event) = wire.sides[side].engine.poll_event() {
                        match event {
                            Event::Received { posted, len } => {
                                assert_eq!(posted.region, rings[side]);
                                let have = wire.sides[side].memory.region(posted.region).unwrap();
                                let have = &have[posted.offset as usize..][..len as usize];
                                let from = came[side] as usize;
                                let expected = &streams[1 - side][from..from + len as usize];
                                assert!(have == expected, "side {side}, byte {from}, {len} bytes");
                                came[side] += len;
                                // Once the stream has ended nothing more is wanted.
                                wire.sides[side].engine.reuse(&posted);
                                let _ = wire.sides[side].engine.engine.receive_into(posted);
                            }
                            Event::Finished => ended[side].0 = true,
                            Event::Closed => ended[side].1 = true,
                            Event::Sent { .. } | Event::Connected => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
                if ended == [(true, true); 2] && came == [self.total; 2] {
                    assert_eq!(wire.sides.map(|side| side.engine.violations()), [[], []]);
                    return wire.digest;
                }
                if !moved && !wire.pass_time() {
                    break;
                }
            }
            panic!("{came:?} of {} came, {ended:?}", self.total);
        }
    }
}
