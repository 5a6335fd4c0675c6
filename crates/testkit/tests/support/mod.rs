//! What several tests share.

// Each test binary uses its part of this.
pub mod stream;

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
