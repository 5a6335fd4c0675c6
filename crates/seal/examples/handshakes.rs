//! How many handshakes a core does a second, and how much memory an encrypted connection of STP
//! takes that nothing is said over.
//!
//! Memory is what the process has more of (`VmRSS`), both ends of each connection in it: what C
//! libraries allocate counts as well.

#![expect(clippy::disallowed_methods, reason = "what measures reads the clock")]

use std::time::{Duration, Instant};

use landfall_placement::{PathLimits, Peer};
use landfall_seal::provider::Provider;
use landfall_seal::{
    Handshake as _, Noise, NoiseConfig, Proof, RecordConfig, Role, SealConfig, Sealed, Secret,
    Seed, StaticKey, Suite, TrustAnybody,
};
use landfall_testkit::model::{Checked, Faults, NaiveWire};
use stp_core::{Admission, Config, Connect, Endpoint, Event};

/// Handshakes of each measurement, and how many there are.
const HANDSHAKES: u32 = 2_000;
const ROUNDS: usize = 5;
const CONNECTIONS: usize = 4_000;
const PORT: u16 = 7;
/// What is idle was not used for so long.
const IDLE: landfall_placement::Duration = landfall_placement::Duration::from_secs(3);

fn main() {
    println!("handshakes a second of one core, median of {ROUNDS}: responder, initiator");
    let [own, other] = [1, 2].map(|byte| StaticKey::new(Secret::new([byte; 32])));
    let shared = Secret::new([3; 32]);
    let pair = |own| NoiseConfig::KeyPair { own, pinned: None };
    measure("key pairs", &pair(&own), &pair(&other));
    let key = || NoiseConfig::PresharedKey(&shared);
    measure("a pre-shared key", &key(), &key());
    println!("bytes of an idle connection at one end, of {CONNECTIONS}: {}", memory());
}

fn seed(number: u64) -> Seed {
    let mut bytes = [9; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Seed::new(bytes)
}

fn measure(name: &str, own: &NoiseConfig<'_>, other: &NoiseConfig<'_>) {
    let mut figures = [const { Vec::new() }; 2];
    for round in 0..ROUNDS as u64 {
        let mut spent = [Duration::ZERO; 2];
        for nth in 0..u64::from(HANDSHAKES) {
            let number = round << 32 | nth << 1;
            let mut ends: [Option<Noise>; 2] = [None, None];
            let roles = [(Role::Responder, own), (Role::Initiator, other)];
            for (at, (role, config)) in roles.into_iter().enumerate() {
                let start = Instant::now();
                let seed = seed(number + at as u64);
                ends[at] = Some(Noise::new(config, role, b"speed", Suite::Aes128Gcm, seed));
                spent[at] += start.elapsed();
            }
            let [Some(responder), Some(initiator)] = ends else { unreachable!("both were made") };
            let mut ends = [responder, initiator];
            // Whose turn it is: the initiator's first.
            let mut at = 1;
            loop {
                let start = Instant::now();
                let message = ends[at].poll_message();
                spent[at] += start.elapsed();
                let Some(message) = message else { break };
                at = 1 - at;
                let start = Instant::now();
                ends[at].handle_message(&message).expect("both have what it takes");
                spent[at] += start.elapsed();
            }
            for (at, end) in ends.into_iter().enumerate() {
                let start = Instant::now();
                let keys = end.finish().expect("it is finished").keys;
                drop(keys.records::<Provider>(&RecordConfig::default()));
                spent[at] += start.elapsed();
            }
        }
        for (figures, spent) in figures.iter_mut().zip(spent) {
            figures.push(f64::from(HANDSHAKES) / spent.as_secs_f64());
        }
    }
    let [responder, initiator] = figures.map(|mut figures| {
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    });
    println!("{name:18} {responder:8.0} {initiator:8.0}");
}

/// What one end of a connection takes, once all are idle.
fn memory() -> u64 {
    type Wire = NaiveWire<Checked<Sealed<Endpoint>>>;
    let most = 2 * CONNECTIONS;
    let end = |byte: u8| {
        let config = Config { connections: most, links: most, ..Config::default() };
        let engine = Endpoint::new(config, [byte; 32]);
        let proof = Proof::KeyPair(StaticKey::new(Secret::new([byte; 32])));
        let seal = SealConfig { most, ..SealConfig::new(proof) };
        Checked::new(Sealed::new(engine, seal, Box::new(TrustAnybody), [byte; 32]))
    };
    let engines = [end(1), end(2)];
    let mut wire = Wire::new(engines, PathLimits::plain(1_400), Faults::default(), 1);
    wire.sides[1].engine.engine.listen(PORT, Admission::Open).expect("the port is free");
    // What is there once, and what only grows for a time.
    for _ in 0..10 {
        connect(&mut wire);
    }
    let before = resident();
    for _ in 0..CONNECTIONS {
        connect(&mut wire);
    }
    // Nothing is said any more, but that both are still there.
    let idle_from = wire.now;
    while wire.now.since(idle_from) < IDLE && wire.pass_time() {
        wire.settle(1_000);
    }
    resident().saturating_sub(before) / (2 * CONNECTIONS as u64)
}

fn connect(wire: &mut NaiveWire<Checked<Sealed<Endpoint>>>) {
    let now = wire.now;
    let client = &mut wire.sides[0].engine.engine;
    let path = NaiveWire::<Checked<Sealed<Endpoint>>>::PATH;
    let peer = client.associate(now, path, Peer::Node(1), None).expect("there is room");
    let connect = Connect { port: PORT, local_port: None, hello: 1 };
    client.connect(now, path, peer, connect).expect("there is room");
    let mut ends = 0;
    for _ in 0..1_000 {
        for side in 0..2 {
            let packets = wire.said(side);
            wire.hand_in(1 - side, &packets);
            while let Some(event) =
                landfall_placement::Engine::poll_event(&mut wire.sides[side].engine)
            {
                ends +=
                    u32::from(matches!(event, Event::Connected { .. } | Event::Accepted { .. }));
            }
        }
        if ends == 2 {
            return;
        }
        wire.pass_time();
    }
    panic!("they do not connect");
}

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is told");
    let kib = line.trim().trim_end_matches(" kB").trim();
    kib.parse::<u64>().expect("a number") * 1024
}
