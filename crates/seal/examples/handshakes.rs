//! How many handshakes a core does a second, and how much memory an encrypted connection of STP
//! takes that nothing is said over.
//!
//! With `memory` as an argument only the second is said. Memory is what the process has more of (`VmRSS`), both ends of each connection in it: what C
//! libraries allocate counts as well.

#![expect(clippy::disallowed_methods, reason = "what measures reads the clock")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_placement::{PathLimits, Peer};
use landfall_seal::provider::Provider;
use landfall_seal::{
    Handshake, Noise, NoiseConfig, Proof, RecordConfig, Role, SealConfig, Sealed, Secret, Seed,
    StaticKey, Suite, Tls, TrustAnybody, tls_provider,
};
use landfall_testkit::model::{Checked, Faults, NaiveWire};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use stp_core::{Admission, Config, Connect, Endpoint, Event};

/// Handshakes of each measurement, and how many there are.
const HANDSHAKES: u32 = 2_000;
const ROUNDS: usize = 5;
const CONNECTIONS: usize = 4_000;
const PORT: u16 = 7;
/// From one connection to the next, in the time of the model.
const BETWEEN: landfall_placement::Duration = landfall_placement::Duration::from_millis(10);
/// What is idle was not used for so long.
const IDLE: landfall_placement::Duration = landfall_placement::Duration::from_secs(3);

fn main() {
    if std::env::args().any(|argument| argument == "memory") {
        return print_memory();
    }
    println!("handshakes a second of one core, median of {ROUNDS}: responder, initiator");
    let [own, other] = [1, 2].map(|byte| StaticKey::new(Secret::new([byte; 32])));
    let shared = Secret::new([3; 32]);
    let pair = |own| NoiseConfig::KeyPair { own, pinned: None };
    noise("key pairs", &pair(&own), &pair(&other));
    let key = || NoiseConfig::PresharedKey(&shared);
    noise("a pre-shared key", &key(), &key());
    tls("a certificate", false);
    tls("a resumed session", true);
    print_memory();
}

fn print_memory() {
    println!("bytes of an idle connection at one end, of {CONNECTIONS}: {}", memory());
}

fn seed(number: u64) -> Seed {
    let mut bytes = [9; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Seed::new(bytes)
}

/// Two ends that prove themselves by Noise.
fn noise(name: &str, own: &NoiseConfig<'_>, other: &NoiseConfig<'_>) {
    measure(name, |number, role| {
        let config = if role == Role::Responder { own } else { other };
        Noise::new(config, role, b"speed", Suite::Aes128Gcm, seed(number))
    });
}

/// A server with a certificate, ECDSA over P-256, and a client that trusts its issuer. Resumed, the
/// client shows a ticket of the handshake before.
fn tls(name: &str, is_resumed: bool) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let tls13 = &[&rustls::version::TLS13];
    let provider = Arc::new(tls_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(tls13).expect("it has TLS 1.3");
    let builder = builder.with_no_client_auth();
    let mut server =
        builder.with_single_cert(vec![made.cert.der().clone()], key).expect("they fit");
    server.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().expect("random bytes");
    server.send_tls13_tickets = usize::from(is_resumed);
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(tls13).expect("it has TLS 1.3");
    let client = builder.with_root_certificates(roots).with_no_client_auth();
    let (server, client) = (Arc::new(server), Arc::new(client));
    let suite = Suite::Aes128Gcm;
    measure(name, |_, role| {
        let end = if role == Role::Responder {
            Tls::server(Arc::clone(&server), b"speed", suite)
        } else {
            let name = ServerName::try_from("localhost").expect("a name");
            Tls::client(Arc::clone(&client), name, b"speed", suite)
        };
        end.expect("both are configured for TLS 1.3")
    });
}

/// Makes handshakes; `make` gives an end for a number that no other has, in a role.
fn measure<H: Handshake>(name: &str, make: impl Fn(u64, Role) -> H) {
    let mut figures = [const { Vec::new() }; 2];
    for round in 0..ROUNDS as u64 {
        let mut spent = [Duration::ZERO; 2];
        for nth in 0..u64::from(HANDSHAKES) {
            shake_hands(round << 32 | nth << 1, &make, &mut spent);
        }
        for (figures, spent) in figures.iter_mut().zip(spent) {
            figures.push(f64::from(HANDSHAKES) / spent.as_secs_f64());
        }
    }
    let [responder, initiator] = figures.map(|mut figures| {
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    });
    println!("{name:24} {responder:8.0} {initiator:8.0}");
}

/// One handshake; adds up what the responder and the initiator spent.
fn shake_hands<H: Handshake>(
    number: u64,
    make: &impl Fn(u64, Role) -> H,
    spent: &mut [Duration; 2],
) {
    let mut timed = |at: usize, start: Instant| spent[at] += start.elapsed();
    let mut end = |at: u64, role| {
        let start = Instant::now();
        let end = make(number + at, role);
        timed(at as usize, start);
        end
    };
    let mut ends = [end(0, Role::Responder), end(1, Role::Initiator)];
    // Whose turn it is: the initiator's first.
    let mut at = 1;
    loop {
        let start = Instant::now();
        let message = ends[at].poll_message();
        timed(at, start);
        let Some(message) = message else { break };
        at = 1 - at;
        let start = Instant::now();
        ends[at].handle_message(&message).expect("both have what it takes");
        timed(at, start);
    }
    for (at, end) in ends.into_iter().enumerate() {
        let start = Instant::now();
        let keys = end.finish().expect("it is finished").keys;
        // A record each way: the keys are expanded then.
        let (mut sealer, mut opener) = keys.records::<Provider>(&RecordConfig::default());
        let (mut payload, slot) = ([0; 16], sealer.slot(0).expect("a number"));
        let position = slot.position();
        let tag = slot.seal(b"", &mut payload).expect("it is short");
        let _ = opener.open(position, b"", &mut payload, &tag);
        timed(at, start);
    }
}

/// What one end of a connection takes, once all are idle.
fn memory() -> u64 {
    type Wire = NaiveWire<Checked<Sealed<Endpoint>>>;
    let most = 2 * CONNECTIONS;
    let end = |byte: u8| {
        // Nothing is said that nobody asked for.
        let config =
            Config { connections: most, links: most, keep_alive: None, ..Config::default() };
        let engine = Endpoint::new(config, [byte; 32]).unwrap();
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
        // What one lets go of after a pause is there for those that come later.
        wire.now += BETWEEN;
        for side in &mut wire.sides {
            landfall_placement::Engine::handle_timeout(&mut side.engine, wire.now);
        }
        wire.settle(1_000);
    }
    // Nothing is said any more.
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
