//! What somebody on the way does to handshakes and to memory, packet by packet and bit by bit.

use clan_dsm::{Event, Rights};
use landfall_placement::{Area, Engine as _, PathLimits, Peer, WordFunction, WordWidth};
use landfall_seal::{Proof, SealConfig, TrustAnybody};
use landfall_testkit::model::Faults;

use crate::memory;
use crate::sealed::{Two, Wire, pair, psk, text};
use crate::tls::Ends;

/// Both ends of each kind of handshake.
fn proofs() -> [[Proof; 2]; 3] {
    let [client, server] = Ends::usual().proofs();
    [[pair(1), pair(2)], [psk(1), psk(1)], [client, server]]
}

fn is_handshake(packet: &[u8]) -> bool {
    matches!(packet[0], 0xe1..=0xe3)
}

/// Carries what both ends say, for this many turns. Of each packet of a handshake, and of its sender,
/// `attack` makes others, which come first.
fn carry(
    two: &mut Two,
    turns: usize,
    mut attack: impl FnMut(usize, &[u8]) -> Vec<(usize, Vec<u8>)>,
) {
    for _ in 0..turns {
        let mut moved = false;
        for side in 0..2 {
            for packet in two.wire.said(side) {
                moved = true;
                let made_up =
                    if is_handshake(&packet) { attack(side, &packet) } else { Vec::new() };
                for (to, made_up) in made_up {
                    two.wire.hand_in(to, &[made_up]);
                }
                two.wire.hand_in(1 - side, &[packet]);
            }
        }
        two.hear();
        if !moved {
            two.wire.pass_time();
        }
    }
}

/// Each packet of a handshake comes cut at every length, too, before it comes whole.
#[test]
fn packets_of_handshakes_that_are_cut_anywhere_change_nothing() {
    for proofs in proofs() {
        let mut two = Two::new(proofs, Faults::default(), 1);
        let mut cuts = 0;
        carry(&mut two, 60, |side, packet| {
            cuts += packet.len();
            (0..packet.len()).map(|len| (1 - side, packet[..len].to_vec())).collect()
        });
        assert!(cuts > 150, "{cuts}");
        two.connect();
        two.transfer(&text(5_000));
        let stats = [0, 1].map(|side| two.end(side).seal_stats());
        assert_eq!(stats.map(|stats| stats.established), [1, 1], "one handshake is enough");
    }
}

/// A caller hears of cookies that nobody has made, whether it has to show one or not.
#[test]
fn made_up_retries_neither_end_a_handshake_nor_make_anybody_talk() {
    for is_crowded in [false, true] {
        for proofs in proofs() {
            let configs = proofs.map(|proof| SealConfig { half_open: 4, ..SealConfig::new(proof) });
            let mut two = Two::with(configs, Faults::default(), 1, || Box::new(TrustAnybody));
            if is_crowded {
                // They come from elsewhere, and say nothing more.
                let now = two.wire.now;
                for _ in 0..8 {
                    two.end(0).associate(now, Wire::PATH, Peer::Node(1), None);
                }
                let mut said = two.wire.said(0);
                let first = said.remove(0);
                two.wire.rename(0, 9);
                two.wire.hand_in(1, &said);
                two.wire.rename(0, 0);
                two.wire.said(1);
                two.wire.hand_in(1, &[first]);
                assert!(two.end(1).associations() >= 2, "nobody is asked for a cookie");
            }
            let (mut cookies, mut firsts) = (0u8, 0);
            carry(&mut two, 30, |side, packet| {
                if packet[0] != 0xe1 || side != 0 {
                    return Vec::new();
                }
                firsts += 1;
                let made_up = |_| {
                    cookies = cookies.wrapping_add(1);
                    let [_, version, suite, kind, _, _, _, _, a, b, c, d, ..] = *packet else {
                        panic!("it is too short")
                    };
                    let mut retry = vec![0xe4, version, suite, kind, a, b, c, d, 0, 0, 0, 0];
                    retry.extend_from_slice(&[cookies; 16]);
                    (0, retry)
                };
                (0..20).map(made_up).collect()
            });
            assert!(firsts > 0 && firsts < 200, "{firsts} first messages for {cookies} cookies");
            two.connect();
            two.transfer(&text(5_000));
        }
    }
}

/// As `every_bit_of_every_packet_flipped_changes_nothing`, for memory that is shared: copied writes,
/// writes from memory, a word that is changed and a read.
#[test]
fn every_bit_of_every_frame_flipped_writes_nothing() {
    for opens_runs in [false, true] {
        let ends = [0, 1]
            .map(|side| memory::end(side, memory::key(side as u8 + 1), Box::new(TrustAnybody)));
        let mut wire = memory::Wire::new(ends, PathLimits::plain(400), Faults::default(), 1);
        wire.opens_runs = opens_runs;
        let areas = [0, 1].map(|side| {
            let region = wire.sides[side].memory.lend(vec![0; 512]);
            Area::new(region, 0, 512)
        });
        let there = &mut wire.sides[1].engine.engine;
        let aperture = there.expose(areas[1]).unwrap();
        let cookie = there.cookie_for(aperture, Rights::ReadWrite, memory::host(0)).unwrap();
        let now = wire.now;
        let here = &mut wire.sides[0].engine.engine;
        let window = here.map(&cookie).unwrap();
        let peer = here.associate(now, memory::Wire::PATH, Peer::Node(1), None).unwrap();
        here.open_link(now, memory::Wire::PATH, peer).unwrap();
        let (mut flips, mut told, mut has_begun) = (0, Vec::new(), false);
        for _ in 0..200 {
            for side in 0..2 {
                for packet in wire.said(side) {
                    let before = wire.sides[1 - side].bytes(areas[1 - side]).to_vec();
                    let opened = wire.sides[1 - side].engine.engine.seal_stats().opened;
                    for bit in (0..packet.len() * 8).filter(|_| packet[0] == 0xe0) {
                        let mut flipped = packet.clone();
                        flipped[bit / 8] ^= 1 << (bit % 8);
                        wire.hand_in(1 - side, &[flipped]);
                        flips += 1;
                    }
                    let after = wire.sides[1 - side].bytes(areas[1 - side]).to_vec();
                    assert!(before == after, "memory changed");
                    assert_eq!(wire.sides[1 - side].engine.engine.seal_stats().opened, opened);
                    wire.hand_in(1 - side, &[packet]);
                }
                told.extend(std::iter::from_fn(|| wire.sides[side].engine.poll_event()));
            }
            let is_up = told.iter().any(|event| matches!(event, Event::LinkUp { .. }));
            if is_up && !std::mem::replace(&mut has_begun, is_up) {
                let now = wire.now;
                let from = wire.sides[0].memory.lend(vec![5; 64]);
                let nic = &mut wire.sides[0].engine.engine;
                nic.write(now, window, 3, &[7; 40]).unwrap();
                nic.write_from(now, window, 128, Area::new(from, 0, 64)).unwrap();
                let add = WordFunction::Add(9);
                nic.change(now, window, 256, WordWidth::Eight, add).unwrap();
                nic.read(now, window, 0, Area::new(areas[0].region, 0, 256)).unwrap();
            }
            if told.iter().any(|event| matches!(event, Event::Read { .. })) {
                break;
            }
            if wire.sides.iter().all(|side| side.engine.poll_timeout().is_some()) {
                wire.pass_time();
            }
        }
        assert!(flips > 5_000, "{flips}");
        assert!(told.iter().any(|event| matches!(event, Event::Read { result: Ok(()), .. })));
        let there = wire.sides[1].bytes(areas[1]).to_vec();
        assert_eq!((&there[3..43], &there[128..192]), (&[7; 40][..], &[5; 64][..]));
        assert_eq!(there[256..264], 9u64.to_ne_bytes());
        assert_eq!(wire.sides[0].bytes(areas[0])[..256], there[..256]);
        let ended = told.iter().any(|event| matches!(event, Event::LinkDown { .. }));
        assert!(!ended && wire.sides[1].engine.engine.seal_stats().forged > 1_000, "{told:?}");
    }
}
