//! Engines whose units are sealed: STP between two ends, over a wire that anybody may change.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use landfall_placement::{Area, Duration, Engine, PathLimits, Peer};
use landfall_seal::{
    BadKeyLine, CaptureOpener, Expected, HandshakeError, KeyLog, NotOpened, OVERHEAD, PeerIdentity,
    Proof, PublicKey, Role, SealConfig, Sealed, Secret, StaticKey, Suite, TrafficKeys, Trust,
    TrustAnybody,
};
use landfall_testkit::model::{Checked, Faults, NaiveWire};
use landfall_testkit::trials::noise;
use proptest::prelude::*;
use stp_core::{
    Admission, Config, Connect, ConnectionId, Endpoint, Event, PutOptions, RemoteRegion, Rights,
};

pub(crate) type Wire = NaiveWire<Checked<Sealed<Endpoint>>>;

const PORT: u16 = 7;
/// No other text on the wire has it.
const TEXT: &[u8] = b"nobody on the way reads this text";

pub(crate) fn psk(byte: u8) -> Proof {
    Proof::PresharedKey(Secret::new([byte; 32]))
}

pub(crate) fn pair(byte: u8) -> Proof {
    Proof::KeyPair(StaticKey::new(Secret::new([byte; 32])))
}

/// Two ends, and what each was told.
pub(crate) struct Two {
    pub(crate) wire: Wire,
    log: [Vec<Event>; 2],
    ids: Option<[ConnectionId; 2]>,
    pub(crate) peer: Peer,
    /// All that was on the wire, as far as it was looked at.
    pub(crate) seen: Vec<Vec<u8>>,
}

impl Two {
    pub(crate) fn new(proofs: [Proof; 2], faults: Faults, seed: u64) -> Self {
        Self::with(proofs.map(SealConfig::new), faults, seed, || Box::new(TrustAnybody))
    }

    pub(crate) fn with(
        configs: [SealConfig; 2],
        faults: Faults,
        seed: u64,
        trust: impl Fn() -> Box<dyn Trust>,
    ) -> Self {
        Self::of(&Config::default(), configs, faults, seed, trust)
    }

    fn of(
        endpoint: &Config,
        configs: [SealConfig; 2],
        faults: Faults,
        seed: u64,
        trust: impl Fn() -> Box<dyn Trust>,
    ) -> Self {
        let mut seeds = [[seed as u8; 32], [seed as u8; 32]];
        seeds[1][0] ^= 1;
        let mut seeds = seeds.into_iter();
        let mut end = |config| {
            let seed = seeds.next().unwrap();
            let engine = Endpoint::new(endpoint.clone(), seed).unwrap();
            Checked::new(Sealed::new(engine, config, trust(), seed))
        };
        let [one, other] = configs;
        let engines = [end(one), end(other)];
        let mut wire = Wire::new(engines, PathLimits::plain(1_400), faults, seed);
        wire.opens_runs = seed % 2 == 1;
        wire.sides[1].engine.engine.listen(PORT, Admission::Open).unwrap();
        let now = wire.now;
        let expected = Expected { name: Some("here.example"), ..Expected::default() };
        let caller = &mut wire.sides[0].engine.engine;
        let peer = caller.associate_with(now, Wire::PATH, Peer::Node(1), expected).unwrap();
        let connect = Connect { port: PORT, local_port: None, hello: 1 };
        wire.sides[0].engine.engine.connect(now, Wire::PATH, peer, connect).unwrap();
        Self { wire, log: Default::default(), ids: None, peer, seen: Vec::new() }
    }

    pub(crate) fn end(&mut self, side: usize) -> &mut Sealed<Endpoint> {
        &mut self.wire.sides[side].engine.engine
    }

    pub(crate) fn hear(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.wire.sides[side].engine.poll_event() {
                self.log[side].push(event);
            }
        }
    }

    /// Carries everything, and looks at it on its way.
    pub(crate) fn turn(&mut self) -> bool {
        let mut moved = false;
        for side in 0..2 {
            let packets = self.wire.said(side);
            moved |= !packets.is_empty();
            self.wire.hand_in(1 - side, &packets);
            self.seen.extend(packets);
        }
        moved
    }

    fn run_until(&mut self, what: &str, is_over: impl Fn(&[Vec<Event>; 2]) -> bool) {
        for _ in 0..20_000 {
            self.hear();
            if is_over(&self.log) {
                return;
            }
            if !self.turn() && !self.wire.pass_time() {
                break;
            }
        }
        panic!("{what} did not happen by {}: {:?}", self.wire.now, self.log);
    }

    pub(crate) fn connect(&mut self) -> [ConnectionId; 2] {
        self.run_until("the connection", |log| {
            log[0].iter().any(|event| matches!(event, Event::Connected { .. }))
                && log[1].iter().any(|event| matches!(event, Event::Accepted { .. }))
        });
        let id = |log: &[Event]| {
            log.iter().find_map(|event| match event {
                Event::Connected { connection, .. } | Event::Accepted { connection, .. } => {
                    Some(*connection)
                }
                _ => None,
            })
        };
        let ids = [id(&self.log[0]).unwrap(), id(&self.log[1]).unwrap()];
        self.ids = Some(ids);
        ids
    }

    fn lend(&mut self, side: usize, bytes: &[u8]) -> Area {
        let region = self.wire.sides[side].memory.lend(bytes.to_vec());
        Area::new(region, 0, bytes.len() as u64)
    }

    /// A Transfer of side 0 to side 1, begun.
    fn begin(&mut self, bytes: &[u8]) -> Area {
        let ids = self.ids.unwrap();
        let now = self.wire.now;
        let (from, to) = (self.lend(0, bytes), self.lend(1, &vec![0; bytes.len()]));
        self.end(1).post(now, ids[1], to, false).unwrap();
        self.end(0).send(now, ids[0], from, 9).unwrap();
        to
    }

    pub(crate) fn transfer(&mut self, bytes: &[u8]) {
        let count = |log: &[Vec<Event>; 2]| {
            (log[0].iter().filter(is_sent).count(), log[1].iter().filter(is_received).count())
        };
        let before = count(&self.log);
        let to = self.begin(bytes);
        self.run_until("the transfer", |log| {
            let now = count(log);
            now.0 > before.0 && now.1 > before.1
        });
        assert_eq!(self.wire.sides[1].bytes(to), bytes);
    }

    /// A region of side 1 that side 0 may use.
    fn region(&mut self, len: usize) -> (RemoteRegion, Area) {
        let (now, ids) = (self.wire.now, self.ids.unwrap());
        self.end(0).request_region(now, ids[0], 5, len as u64, Rights::ALL).unwrap();
        let asked = |log: &[Event]| {
            log.iter().find_map(|event| match event {
                Event::RegionRequested { request, .. } => Some(*request),
                _ => None,
            })
        };
        self.run_until("the question", |log| asked(&log[1]).is_some());
        let area = self.lend(1, &vec![0; len]);
        let request = asked(&self.log[1]).unwrap();
        self.end(1).expose(request, area, Rights::ALL).unwrap();
        let available = |log: &[Event]| {
            log.iter().find_map(|event| match event {
                Event::RegionAvailable { region, .. } => Some(*region),
                _ => None,
            })
        };
        self.run_until("the answer", |log| available(&log[0]).is_some());
        (available(&self.log[0]).unwrap(), area)
    }
}

fn is_sent(event: &&Event) -> bool {
    matches!(event, Event::Sent { .. })
}

fn is_received(event: &&Event) -> bool {
    matches!(event, Event::Received { .. })
}

pub(crate) fn text(len: usize) -> Vec<u8> {
    TEXT.iter().copied().cycle().take(len).collect()
}

/// Is a part of the text in it?
pub(crate) fn shows_text(packet: &[u8]) -> bool {
    packet.windows(12).any(|part| TEXT.windows(12).any(|text| part == text))
}

#[test]
fn transfers_arrive_and_nothing_of_them_is_seen() {
    for proofs in [[psk(1), psk(1)], [pair(1), pair(2)]] {
        let mut two = Two::new(proofs, Faults::default(), 1);
        two.connect();
        for len in [1, 40, 1_000, 100_000] {
            two.transfer(&text(len));
        }
        assert!(two.seen.iter().all(|packet| !shows_text(packet)));
        // All but messages of the handshake are sealed units.
        let forms: BTreeSet<u8> = two.seen.iter().map(|packet| packet[0]).collect();
        assert!(forms.iter().all(|form| (0xe0..=0xe3).contains(form)), "{forms:?}");
        let sealed = two.seen.iter().filter(|packet| packet[0] == 0xe0);
        assert!(sealed.clone().count() > 70);
        // Heads are covered: no byte behind the association is the same in all.
        for at in (1..4).chain(8..OVERHEAD + 40) {
            let values: BTreeSet<u8> = sealed.clone().map(|packet| packet[at]).collect();
            assert!(values.len() > 30, "byte {at}");
        }
        two.wire.check_contract();
    }
}

/// Anyone who asks for checksums as well has them within what is sealed: a short unit's the
/// engine looks at by itself.
#[test]
fn engines_that_want_checksums_have_them_within_the_seal() {
    let configs = [psk(1), psk(1)].map(SealConfig::new);
    let endpoint = Config::default().with_checksum();
    let mut two = Two::of(&endpoint, configs, Faults::default(), 1, || Box::new(TrustAnybody));
    let ids = two.connect();
    let (region, area) = two.region(4_000);
    for len in [0, 1, 2, 40, 87, 88, 89, 1_000, 3_000] {
        let bytes = noise(len, len as usize);
        let from = two.lend(0, &bytes);
        let now = two.wire.now;
        two.end(0).put(now, ids[0], &region, 8, from, PutOptions::WITH_NOTICE).unwrap();
        two.log[0].clear();
        two.run_until("the put", |log| {
            log[0].iter().any(|event| matches!(event, Event::PutDone { .. }))
        });
        assert_eq!(two.wire.sides[1].bytes(area)[8..8 + bytes.len()], bytes);
    }
    two.transfer(&text(5_000));
}

#[test]
fn a_plain_layer_changes_nothing() {
    let ends = |side: u8| {
        let mut engine = Endpoint::new(Config::default(), [side; 32]).unwrap();
        engine.listen(PORT, Admission::Open).unwrap();
        engine
    };
    let run = |mut wire: NaiveWire<Sealed<Endpoint>>| {
        wire.settle(100);
        wire.digest
    };
    let limits = PathLimits::plain(1_400);
    let mut plain = NaiveWire::new([ends(1), ends(2)], limits, Faults::default(), 1);
    let mut sealed = [ends(1), ends(2)].map(Sealed::plain);
    let now = plain.now;
    let peer = Peer::Node(1);
    assert_eq!(sealed[0].associate(now, Wire::PATH, peer, None), Some(peer));
    let mut wire = NaiveWire::new(sealed, limits, Faults::default(), 1);
    let connect = Connect { port: PORT, local_port: None, hello: 1 };
    plain.sides[0].engine.connect(now, Wire::PATH, peer, connect).unwrap();
    wire.sides[0].engine.connect(now, Wire::PATH, peer, connect).unwrap();
    plain.settle(100);
    assert_ne!(plain.digest, 0);
    assert_eq!(run(wire), plain.digest);
}

#[test]
fn both_ends_know_who_the_other_is() {
    let mut two = Two::new([pair(1), pair(2)], Faults::default(), 1);
    two.connect();
    let public = |byte| StaticKey::new(Secret::new([byte; 32])).public();
    let peer = two.peer;
    assert_eq!(two.end(0).identity(peer), Some(PeerIdentity::PublicKey(public(2))));
    let accepted = two.log[1].iter().find_map(|event| match event {
        Event::Accepted { peer, .. } => Some(*peer),
        _ => None,
    });
    let accepted = accepted.unwrap();
    assert_eq!(two.end(1).identity(accepted), Some(PeerIdentity::PublicKey(public(1))));
    assert_eq!(two.end(1).remote(Wire::PATH, accepted), Some(Peer::Node(0)));
}

/// Trusts nobody.
struct Nobody;

impl Trust for Nobody {
    fn check(&mut self, _: Role, _: Peer, key: PublicKey) -> Result<(), HandshakeError> {
        Err(HandshakeError::WrongPeer(key.fingerprint()))
    }
}

fn never_connects(two: &mut Two) {
    for _ in 0..2_000 {
        two.hear();
        if !two.turn() && !two.wire.pass_time() {
            break;
        }
        // It says nothing but handshakes.
        assert!(two.seen.drain(..).all(|packet| packet[0] != 0xe0));
    }
    let opened = |event: &Event| matches!(event, Event::Connected { .. } | Event::Accepted { .. });
    assert!(!two.log.iter().flatten().any(opened));
}

/// Who proves nothing is not answered, and so hears of no reason.
#[test]
fn another_key_or_kind_of_proof_is_refused() {
    for proofs in [[psk(1), psk(2)], [psk(1), pair(1)], [pair(1), psk(1)]] {
        let mut two = Two::new(proofs, Faults::default(), 1);
        never_connects(&mut two);
        let peer = two.peer;
        let failure = two.end(0).failure(peer);
        assert!(matches!(failure, Some(HandshakeError::Unfinished)), "{failure:?}");
    }
}

#[test]
fn another_context_is_refused() {
    let mut configs = [psk(1), psk(1)].map(SealConfig::new);
    configs[1].context = b"another protocol".to_vec();
    let mut two = Two::with(configs, Faults::default(), 1, || Box::new(TrustAnybody));
    never_connects(&mut two);
    let peer = two.peer;
    let failure = two.end(0).failure(peer);
    assert!(matches!(failure, Some(HandshakeError::Unfinished)), "{failure:?}");
}

#[test]
fn who_is_not_trusted_gets_no_keys() {
    let configs = [pair(1), pair(2)].map(SealConfig::new);
    let mut two = Two::with(configs, Faults::default(), 1, || Box::new(Nobody));
    never_connects(&mut two);
    let peer = two.peer;
    assert!(matches!(two.end(0).failure(peer), Some(HandshakeError::WrongPeer(_))));
}

#[test]
fn a_pinned_key_must_be_the_right_one() {
    let public = StaticKey::new(Secret::new([2; 32])).public().fingerprint();
    for (byte, fits) in [(2, true), (3, false)] {
        let mut two = Two::new([pair(1), pair(byte)], Faults::default(), 1);
        let now = two.wire.now;
        let first = two.peer;
        two.end(0).forget(first);
        let peer = two.end(0).associate(now, Wire::PATH, Peer::Node(1), Some(public)).unwrap();
        two.turn();
        two.turn();
        two.turn();
        assert_eq!(two.end(0).identity(peer).is_some(), fits);
        assert_eq!(two.end(0).failure(peer).is_some(), !fits);
    }
}

#[test]
fn plain_units_are_refused() {
    let mut two = Two::new([psk(1), psk(1)], Faults::default(), 1);
    two.connect();
    let mut plain = Endpoint::new(Config::default(), [9; 32]).unwrap();
    let now = two.wire.now;
    let up = landfall_placement::PathState::Up(PathLimits::plain(1_400));
    plain.handle_path(now, Wire::PATH, up);
    let connect = Connect { port: PORT, local_port: None, hello: 1 };
    plain.connect(now, Wire::PATH, Peer::Node(1), connect).unwrap();
    let mut head = [0; 256];
    let mut from = landfall_placement::Spans::new();
    let unit = plain.poll_transmit(now, Wire::PATH, &mut head, &mut from).unwrap();
    let before = two.end(1).seal_stats().plain;
    two.wire.hand_in(1, &[head[..usize::from(unit.head_len)].to_vec()]);
    assert_eq!(two.end(1).seal_stats().plain, before + 1);
    assert_eq!(two.end(1).connections(), 1);
}

/// Every bit of every packet of a connection, a Transfer, a Put and a FetchOp: what is changed
/// is refused, whatever it is, and what was sent arrives all the same.
#[test]
fn every_bit_of_every_packet_flipped_changes_nothing() {
    let mut two = Two::new([psk(1), psk(1)], Faults::default(), 3);
    two.connect();
    let (region, shown) = two.region(64);
    let ids = two.ids.unwrap();
    let bytes = text(700);
    let to = two.begin(&bytes);
    let from = two.lend(0, &[7; 16]);
    let now = two.wire.now;
    two.end(0).put(now, ids[0], &region, 8, from, PutOptions::WITH_NOTICE).unwrap();
    let mut flipped = 0;
    for _ in 0..40 {
        for side in 0..2 {
            let packets = two.wire.said(side);
            for packet in &packets {
                let memory = [to, shown].map(|area| two.wire.sides[1].bytes(area).to_vec());
                let opened = two.end(1 - side).seal_stats().opened;
                for bit in 0..packet.len() * 8 {
                    let mut changed = packet.clone();
                    changed[bit / 8] ^= 1 << (bit % 8);
                    two.wire.hand_in(1 - side, &[changed]);
                    flipped += 1;
                }
                assert_eq!(two.end(1 - side).seal_stats().opened, opened);
                let after = [to, shown].map(|area| two.wire.sides[1].bytes(area).to_vec());
                assert!(memory == after, "memory changed");
            }
            two.wire.hand_in(1 - side, &packets);
        }
        two.hear();
    }
    assert!(flipped > 5_000, "{flipped}");
    assert_eq!(two.wire.sides[1].bytes(to), bytes);
    assert_eq!(two.wire.sides[1].bytes(shown)[8..24], [7; 16]);
    two.run_until("the end", |log| log[0].iter().any(|event| is_sent(&event)));
    two.wire.check_contract();
}

#[test]
fn what_comes_again_is_refused() {
    let mut two = Two::new([pair(1), pair(2)], Faults::default(), 4);
    two.connect();
    two.transfer(&text(20_000));
    // The whole of it, both ways, and to the wrong side.
    let seen = std::mem::take(&mut two.seen);
    let stats = [0, 1].map(|side| two.end(side).seal_stats());
    for packet in &seen {
        two.wire.hand_in(0, std::slice::from_ref(packet));
        two.wire.hand_in(1, std::slice::from_ref(packet));
    }
    for (side, before) in stats.iter().enumerate() {
        let now = two.end(side).seal_stats();
        assert_eq!(now.opened, before.opened);
        assert!(now.replayed > before.replayed);
    }
    two.transfer(&text(20_000));
}

/// Units of one receive, of which one is a forged copy of the one behind it: all true ones land,
/// and nothing has to be sent again.
#[test]
fn a_forged_unit_in_a_run_spoils_nothing_but_itself() {
    for opens_runs in [true, false] {
        let mut two = Two::new([psk(1), psk(1)], Faults::default(), 3);
        two.connect();
        two.transfer(&text(5_000));
        two.wire.opens_runs = opens_runs;
        two.wire.batch = 64;
        let sent = two.end(0).stats().bytes_sent;
        let bytes = noise(1, 12_000);
        let to = two.begin(&bytes);
        let mut forged = 0;
        for _ in 0..8 {
            for side in 0..2 {
                let mut packets = two.wire.said(side);
                if side == 0 && packets.len() > 4 {
                    let mut copy = packets[2].clone();
                    let last = copy.len() - 1;
                    copy[last] ^= 1;
                    // Behind the true one where it is placed before it is known to be forged.
                    packets.insert(if opens_runs { 2 } else { 3 }, copy);
                    forged += 1;
                }
                two.wire.hand_in(1 - side, &packets);
            }
        }
        let stats = two.end(1).seal_stats();
        assert!(forged > 0 && stats.forged + stats.replayed >= forged, "{stats:?}");
        assert_eq!(two.wire.sides[1].bytes(to), bytes);
        assert_eq!(two.end(0).stats().bytes_sent - sent, 12_000, "nothing was sent again");
        two.hear();
        assert_eq!(two.log[1].iter().filter(is_received).count(), 2);
        two.wire.check_contract();
    }
}

#[test]
fn what_is_sent_stays_as_it_is() {
    let mut two = Two::new([psk(1), psk(1)], Faults { loss: 100_000, ..Faults::default() }, 3);
    two.connect();
    let (now, ids, bytes) = (two.wire.now, two.ids.unwrap(), text(9_000));
    let (from, to) = (two.lend(0, &bytes), two.lend(1, &vec![0; bytes.len()]));
    two.end(1).post(now, ids[1], to, false).unwrap();
    two.end(0).send(now, ids[0], from, 9).unwrap();
    for _ in 0..2_000 {
        two.hear();
        if two.log[0].iter().any(|event| is_sent(&event)) {
            break;
        }
        assert!(two.wire.turn() || two.wire.pass_time());
        assert_eq!(two.wire.sides[0].bytes(from), bytes);
    }
    assert_eq!(two.wire.sides[1].bytes(to), bytes);
}

/// A unit that is sent again is sealed with another packet number, so that its tag is another
/// one though its bytes are the same. (`nonces.rs` has the model of the numbers themselves.)
#[test]
fn no_tag_repeats_whatever_is_sent_again() {
    let faults = Faults::default();
    let mut two = Two::new([psk(1), psk(1)], faults, 5);
    two.connect();
    let ids = two.ids.unwrap();
    let bytes = text(60_000);
    let to = two.begin(&bytes);
    let mut tags = BTreeSet::new();
    // Half of all is lost, so that everything is sent again.
    let mut nth = 0;
    for _ in 0..5_000 {
        two.hear();
        if two.log[1].iter().any(|event| is_received(&event)) {
            break;
        }
        let mut moved = false;
        for side in 0..2 {
            for packet in two.wire.said(side) {
                moved = true;
                if packet[0] == 0xe0 {
                    assert!(tags.insert((side, packet[16..32].to_vec())), "a tag repeats");
                }
                nth += 1;
                if nth % 2 == 0 || nth % 7 == 0 {
                    two.wire.hand_in(1 - side, &[packet]);
                }
            }
        }
        if !moved && !two.wire.pass_time() {
            break;
        }
    }
    assert_eq!(two.wire.sides[1].bytes(to), bytes, "{ids:?}");
    assert!(tags.len() > 90, "{}", tags.len());
}

#[test]
fn one_end_has_many_peers_and_each_has_its_own_keys() {
    let mut two = Two::new([pair(1), pair(2)], Faults::default(), 6);
    two.connect();
    let now = two.wire.now;
    let peers: Vec<Peer> = (0..5)
        .map(|_| two.end(0).associate(now, Wire::PATH, Peer::Node(1), None).unwrap())
        .collect();
    for peer in &peers {
        let connect = Connect { port: PORT, local_port: None, hello: 1 };
        two.end(0).connect(now, Wire::PATH, *peer, connect).unwrap();
    }
    two.run_until("all", |log| {
        log[0].iter().filter(|event| matches!(event, Event::Connected { .. })).count() == 6
    });
    assert_eq!(two.end(0).associations(), 6);
    let forgotten = peers[0];
    two.end(0).forget(forgotten);
    assert_eq!(two.end(0).remote(Wire::PATH, forgotten), None);
    two.transfer(&text(5_000));
}

#[test]
fn handshakes_that_nobody_finishes_are_bounded() {
    let configs =
        [pair(1), pair(2)].map(|proof| SealConfig { half_open: 4, ..SealConfig::new(proof) });
    let mut two = Two::with(configs, Faults::default(), 7, || Box::new(TrustAnybody));
    let ids = two.connect();
    let now = two.wire.now;
    for _ in 0..20 {
        two.end(0).associate(now, Wire::PATH, Peer::Node(1), None).unwrap();
    }
    // Its answers are lost, and each is shorter than the question.
    let asked = two.wire.said(0);
    two.wire.hand_in(1, &asked);
    let answers = two.wire.said(1);
    assert_eq!(answers.len(), 20);
    assert!(answers.iter().zip(&asked).all(|(answer, asked)| answer.len() <= asked.len()));
    assert_eq!(two.end(1).associations(), 3, "two, and the one in use: {ids:?}");
    two.transfer(&text(5_000));
}

/// What came back unasked is not answered. Who calls itself at its own address has said so.
#[test]
fn an_end_answers_its_own_first_message_only_where_it_calls_itself() {
    for (is_own, answers) in [(false, 0), (true, 1)] {
        let mut two = Two::new([pair(1), pair(2)], Faults::default(), 7);
        let now = two.wire.now;
        two.wire.said(0);
        let expected = Expected { is_own, ..Expected::default() };
        two.end(0).associate_with(now, Wire::PATH, Peer::Node(1), expected).unwrap();
        let first = two.wire.said(0);
        two.wire.hand_in(0, &first);
        assert_eq!(two.wire.said(0).len(), answers);
    }
}

/// Two of a crowd are remembered. The others, and all that come after them, hear of a cookie and
/// are forgotten; who comes again with it is let in, one who makes it up is not.
#[test]
fn in_a_crowd_callers_prove_their_addresses() {
    let configs =
        [pair(1), pair(2)].map(|proof| SealConfig { half_open: 4, ..SealConfig::new(proof) });
    let mut two = Two::with(configs, Faults::default(), 7, || Box::new(TrustAnybody));
    two.connect();
    let now = two.wire.now;
    for _ in 0..20 {
        two.end(0).associate(now, Wire::PATH, Peer::Node(1), None).unwrap();
    }
    let crowd = two.wire.said(0);
    two.wire.hand_in(1, &crowd);
    let answers = two.wire.said(1);
    let is_retry = |answer: &&Vec<u8>| answer[0] == 0xe4;
    assert_eq!(answers.iter().filter(is_retry).count(), 18);
    let remembered = two.end(1).associations();

    // One of them hears it, and passes.
    let retry = answers.iter().find(is_retry).unwrap().clone();
    two.wire.hand_in(0, std::slice::from_ref(&retry));
    let [again] = &two.wire.said(0)[..] else { panic!("it is said again, once") };
    assert_eq!(again.len(), 128);
    // From another address, or with another cookie, it is worth nothing.
    two.wire.rename(0, 9);
    two.wire.hand_in(1, std::slice::from_ref(again));
    two.wire.rename(0, 0);
    let mut forged = again.clone();
    forged[70] ^= 1;
    two.wire.hand_in(1, &[forged]);
    assert_eq!(two.end(1).associations(), remembered);
    assert!(two.wire.said(1).iter().all(|answer| answer[0] == 0xe4 && answer.len() < 128));
    two.wire.hand_in(1, std::slice::from_ref(again));
    assert_eq!(two.end(1).associations(), remembered + 1);
    let established = two.end(1).seal_stats().established;
    for _ in 0..3 {
        two.turn();
    }
    assert!(two.end(1).seal_stats().established > established);

    // The same again and again makes nobody talk.
    let mut made_up = retry;
    let mut said = 0;
    for byte in 0..20 {
        made_up[12] = byte;
        two.wire.hand_in(0, std::slice::from_ref(&made_up));
        said += two.wire.said(0).len();
    }
    assert_eq!(said, 0, "it has its answer");
}

/// Who floods an end while a transfer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    Nobody,
    /// First messages, each from another address, at which nobody is.
    ForgedAddresses,
    /// Handshakes that are begun, prove their address when they are asked to, and are finished.
    TrueAddress,
}

/// How many exchanges some transfers take one after another, and how many associations the flooded end has then.
fn exchanges_of_transfers(flood: Flood) -> (u32, usize) {
    let configs = [pair(1), pair(2)].map(|proof| SealConfig {
        half_open: 8,
        most: 600,
        ..SealConfig::new(proof)
    });
    let mut two = Two::with(configs, Faults::default(), 7, || Box::new(TrustAnybody));
    two.connect();
    let bytes = noise(5, 20_000);
    let (mut to, mut begun) = (two.begin(&bytes), 0);
    for exchange in 1..2_000 {
        match flood {
            Flood::Nobody => {}
            Flood::ForgedAddresses => {
                for nth in 0..16 {
                    let number: u32 = 16 * exchange + nth;
                    let mut first = vec![0xe1, 1, Suite::Aes128Gcm.code(), 1, 0, 0, 0, 0];
                    first.extend(number.to_be_bytes());
                    first.extend(noise(number.into(), 32));
                    first.resize(128, 0);
                    two.wire.rename(0, 1_000 + number);
                    two.wire.hand_in(1, &[first]);
                }
                two.wire.rename(0, 0);
            }
            Flood::TrueAddress => {
                // At its own bound it can begin no more.
                for _ in 0..16 {
                    let now = two.wire.now;
                    two.end(0).associate(now, Wire::PATH, Peer::Node(1), None);
                }
            }
        }
        two.turn();
        two.hear();
        let done = two.log[1].iter().filter(is_received).count();
        if done > begun {
            assert!(two.wire.sides[1].bytes(to) == bytes, "{flood:?}");
            begun = done;
            if done == 20 {
                return (exchange, two.end(1).associations());
            }
            to = two.begin(&bytes);
        }
    }
    panic!("{flood:?} keeps a transfer from its end");
}

/// It keeps four fifths of its rate at least, counted in exchanges, for the model has no other time;
/// who forges addresses gets no state beyond the bound.
#[test]
fn a_flood_of_handshakes_slows_transfers_by_a_fifth_at_most() {
    let (quiet, _) = exchanges_of_transfers(Flood::Nobody);
    assert!(quiet >= 20, "it takes a while: {quiet}");
    for flood in [Flood::ForgedAddresses, Flood::TrueAddress] {
        let (flooded, associations) = exchanges_of_transfers(flood);
        assert!(4 * flooded <= 5 * quiet, "{flood:?}: {flooded} exchanges instead of {quiet}");
        if flood == Flood::ForgedAddresses {
            assert!(associations <= 1 + 8, "{associations}");
        }
    }
}

/// Its last message came, and what it sealed behind that was lost. Many others begin meanwhile.
#[test]
fn who_finished_its_handshake_makes_room_for_nobody() {
    let configs =
        [pair(1), pair(2)].map(|proof| SealConfig { half_open: 2, ..SealConfig::new(proof) });
    let mut two = Two::with(configs, Faults::default(), 7, || Box::new(TrustAnybody));
    for side in [0, 1] {
        let messages = two.wire.said(side);
        two.wire.hand_in(1 - side, &messages);
    }
    let last = two.wire.said(0);
    let thirds: Vec<_> = last.into_iter().filter(|message| message[0] == 0xe3).collect();
    assert_eq!(thirds.len(), 1);
    two.wire.hand_in(1, &thirds);
    let now = two.wire.now;
    for _ in 0..20 {
        two.end(0).associate(now, Wire::PATH, Peer::Node(1), None).unwrap();
    }
    // The first is answered and finishes; the others prove their addresses, and hear no more.
    for side in [0, 1, 0] {
        let messages = two.wire.said(side);
        two.wire.hand_in(1 - side, &messages);
    }
    two.wire.said(1);
    assert_eq!(two.end(1).associations(), 4, "two that finished, and two that began");
    two.connect();
    two.transfer(&text(5_000));
}

/// After a pause they are let go of; what comes then is opened all the same.
#[test]
fn an_idle_association_keeps_no_expanded_keys() {
    let expanded = |two: &mut Two, side| format!("{:?}", two.end(side)).contains("masks: Some");
    for proofs in [[psk(1), psk(1)], [pair(1), pair(2)]] {
        let mut two = Two::new(proofs, Faults::default(), 1);
        two.connect();
        for _ in 0..3 {
            two.transfer(&text(5_000));
            assert!(expanded(&mut two, 0) && expanded(&mut two, 1));
            let start = two.wire.now;
            while (expanded(&mut two, 0) || expanded(&mut two, 1))
                && (two.turn() || two.wire.pass_time())
            {
                let waited = two.wire.now.since(start);
                assert!(waited < Duration::from_secs(4), "{waited:?}");
            }
        }
        assert_eq!(two.end(1).seal_stats().forged, 0);
    }
}

#[test]
fn a_peer_that_moved_is_heard_and_answered() {
    let mut two = Two::new([pair(1), pair(2)], Faults::default(), 8);
    two.connect();
    two.wire.rename(0, 77);
    two.transfer(&text(5_000));
    let stats = two.end(1).seal_stats();
    assert_eq!(stats.established, 1, "with the same keys");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the wire does: what arrives is what was sent.
    #[test]
    fn transfers_survive_every_mix_of_faults(
        seed in 0..u64::from(u8::MAX),
        len in 1usize..30_000,
        loss in 0u32..200_000,
        duplication in 0u32..200_000,
        reordering in 0u32..200_000,
        corruption in 0u32..100_000,
        has_keys in any::<bool>(),
    ) {
        let proofs = if has_keys { [pair(1), pair(2)] } else { [psk(1), psk(1)] };
        let faults = Faults { loss, duplication, reordering, corruption, failing: 0, cutting: 0 };
        // A message of a handshake that was changed ends it: that comes whole. And STP does not
        // wait for ever to be answered.
        let mut two = Two::new(proofs, Faults { corruption: 0, loss: loss / 4, ..faults }, seed);
        two.connect();
        two.wire.faults = faults;
        let bytes = noise(seed, len);
        let to = two.begin(&bytes);
        for _ in 0..100_000 {
            two.hear();
            if two.log[1].iter().any(|event| is_received(&event)) {
                break;
            }
            prop_assert!(two.wire.turn() || two.wire.pass_time());
        }
        prop_assert!(two.log[1].iter().any(|event| is_received(&event)), "{:?}", two.log);
        prop_assert!(two.wire.sides[1].bytes(to) == bytes);
        two.wire.check_contract();
    }

    /// Anything may come.
    #[test]
    fn no_bytes_make_it_panic(
        packets in prop::collection::vec(
            (prop::sample::select(vec![0xe0u8, 0xe1, 0xe2, 0xe3, 1, 10]), prop::collection::vec(any::<u8>(), 0..200)),
            0..40,
        ),
    ) {
        let mut two = Two::new([psk(1), psk(1)], Faults::default(), 9);
        two.connect();
        for (form, mut packet) in packets {
            packet.insert(0, form);
            two.wire.hand_in(1, &[packet]);
        }
        let suites = Suite::ALL;
        for suite in suites {
            let mut packet = vec![0xe1, 1, suite.code(), 2];
            packet.resize(128, 3);
            two.wire.hand_in(1, &[packet]);
        }
        two.transfer(&text(100));
    }
}

/// Lines of a key log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl KeyLog for Lines {
    fn log(&mut self, keys: &TrafficKeys) {
        self.0.lock().unwrap().push(keys.line());
    }
}

impl Lines {
    fn opener(&self) -> CaptureOpener {
        let mut opener = CaptureOpener::new();
        for line in &*self.0.lock().unwrap() {
            opener.add(line.parse().unwrap());
        }
        opener
    }
}

/// Two ends of which one or both log their keys, and have talked.
fn logged(proofs: [Proof; 2], logging: &[usize]) -> (Two, Lines) {
    let lines = Lines::default();
    let mut two = Two::new(proofs, Faults::default(), 1);
    for side in logging {
        two.end(*side).log_keys(Box::new(lines.clone()));
    }
    two.connect();
    two.transfer(&text(10_000));
    (two, lines)
}

#[test]
fn a_key_log_of_either_end_opens_what_was_recorded() {
    for (kind, proofs) in [[psk(1), psk(1)], [pair(1), pair(2)]].into_iter().enumerate() {
        let logging = if kind == 0 { &[0][..] } else { &[1] };
        let (two, lines) = logged(proofs, logging);
        let mut opener = lines.opener();
        assert_eq!((lines.0.lock().unwrap().len(), opener.len()), (2, 2));
        let (mut handshakes, mut bytes, mut senders) = (0, Vec::new(), BTreeSet::new());
        for unit in &two.seen {
            assert_eq!(opener.unit_len(unit), None);
            match opener.open(unit) {
                Ok(opened) => {
                    assert_eq!(opened.bytes.len(), unit.len() - OVERHEAD);
                    senders.insert(opened.sender == Role::Initiator);
                    bytes.extend(opened.bytes);
                }
                Err(NotOpened::Handshake) => handshakes += 1,
                Err(why) => panic!("{why}"),
            }
        }
        assert_eq!(handshakes, 2 + kind, "all but the handshake is opened");
        assert!(shows_text(&bytes) && senders.len() == 2);
    }
}

/// Both ends log the same, so that it does not matter which of them is asked, or both.
#[test]
fn both_ends_log_the_same_keys() {
    let (two, lines) = logged([pair(1), pair(2)], &[0, 1]);
    let mut sorted = lines.0.lock().unwrap().clone();
    sorted.sort();
    let [a, b, c, d] = &sorted[..] else { panic!("{}", sorted.len()) };
    assert!(a == b && c == d && b != c);
    assert_eq!(lines.opener().len(), 2);
    drop(two);
}

#[test]
fn a_key_log_of_another_connection_opens_nothing() {
    let (two, lines) = logged([pair(1), pair(2)], &[0]);
    let mut none = CaptureOpener::new();
    let sealed = || two.seen.iter().filter(|unit| unit[0] == 0xe0);
    assert!(sealed().all(|unit| none.open(unit) == Err(NotOpened::NoKey)));
    // Who has drawn the same numbers, with other keys.
    let mut wrong = CaptureOpener::new();
    for line in &*lines.0.lock().unwrap() {
        let (head, secret) = line.rsplit_once(' ').unwrap();
        let changed: String = secret.chars().rev().collect();
        wrong.add(format!("{head} {changed}").parse().unwrap());
    }
    assert!(sealed().all(|unit| wrong.open(unit).is_err()));
    // And both together: what fits is taken.
    for line in &*lines.0.lock().unwrap() {
        wrong.add(line.parse().unwrap());
    }
    assert!(sealed().all(|unit| wrong.open(unit).is_ok()));
}

#[test]
fn lines_of_a_key_log_are_read_or_refused() {
    let line = format!("LANDFALL_TO_INITIATOR_0 030a0b0c0d01020304 {}", "5a".repeat(48));
    let keys: TrafficKeys = line.parse().unwrap();
    assert_eq!((keys.sender(), keys.suite()), (Role::Responder, Suite::ChaCha20Poly1305));
    assert_eq!((keys.initiator(), keys.responder()), (0x0a0b_0c0d, 0x0102_0304));
    assert_eq!(keys.line(), line);
    let tls = "CLIENT_RANDOM 00 00";
    for other in ["", "  ", "# a comment", tls, "LANDFALL_TO_RESPONDER_1 00 00"] {
        assert_eq!(other.parse::<TrafficKeys>().unwrap_err(), BadKeyLine::Other, "{other}");
    }
    let unknown_suite = line.replace(" 03", " 04");
    let beside = line.replace("5a", "5g");
    let more = format!("{line} 5a");
    for bad in [&unknown_suite, &beside, &more, &line[..line.len() - 1], &line[..24]] {
        assert_eq!(bad.parse::<TrafficKeys>().unwrap_err(), BadKeyLine::Malformed, "{bad}");
    }
}

proptest! {
    /// Whatever was recorded: nothing panics, what was changed is not opened, and what several
    /// units in one look like is found.
    #[test]
    fn damaged_recordings_are_opened_in_part(
        at in any::<prop::sample::Index>(),
        which in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<prop::sample::Index>(),
        junk in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let (two, lines) = logged([psk(1), psk(1)], &[0]);
        let mut opener = lines.opener();
        let sealed: Vec<_> = two.seen.iter().filter(|unit| unit[0] == 0xe0).collect();
        let unit = which.get(&sealed);
        let mut changed = (*unit).clone();
        let at = at.index(changed.len());
        changed[at] ^= flip;
        prop_assert!(opener.open(&changed).is_err());
        prop_assert!(opener.open(&unit[..cut.index(unit.len())]).is_err());
        let _ = (opener.open(&junk), opener.unit_len(&junk));
        prop_assert!(opener.open(unit).is_ok());
        // As a device shows them that cuts by itself, the last one shorter or not.
        let longest = sealed.iter().map(|unit| unit.len()).max().unwrap();
        let full: Vec<_> = sealed.iter().filter(|unit| unit.len() == longest).collect();
        let run: Vec<u8> = full.iter().flat_map(|unit| unit.iter().copied()).collect();
        prop_assert_eq!(opener.unit_len(&run), Some(longest));
        prop_assert_eq!(run.chunks(longest).filter(|unit| opener.open(unit).is_ok()).count(), full.len());
        let _ = opener.unit_len(&run[..cut.index(run.len())]);
    }
}
