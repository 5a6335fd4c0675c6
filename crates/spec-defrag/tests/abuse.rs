//! Who sends what no honest sender sends: pieces that overlap, lie, never end, or
//! have the name of somebody else's packet.

use crate::support::{
    Sent, TCP6, UDP, expect_good, frames, hits, moved, page, resized, sent, trained, twin,
};
use landfall_placement::{Duration, Instant, Refusal};
use spec_defrag::model::{Flow, Rig, Setup, Shape, TestMemory, cut, seal};
use spec_defrag::{Areas, Body, Receiver};

const BOTH: [Flow; 2] = [UDP, TCP6];

/// Longer than every lifetime.
const LONG: Duration = Duration::from_secs(3_600);

/// The second piece lies within the first: systems crashed of that in 1997. The
/// packet is refused, with all that comes of it, until its time is over.
#[test]
fn teardrop_is_refused_with_all_that_follows() {
    for flow in BOTH {
        for order in [[0, 1], [1, 0]] {
            let mut rig = trained(Setup::PLAIN, flow);
            let Sent { packet, pieces } = page(flow, 100);
            let drop = [pieces[0].clone(), moved(&resized(&pieces[1], 4), 3, false)];
            for piece in order {
                assert_eq!(rig.receive(&drop[piece..=piece], false), []);
            }
            assert_eq!(rig.receive(&pieces[1..], false), [], "the rest of it");
            assert_eq!(rig.receiver.refusals().of(Refusal::Forbidden), 3);
            let other = page(flow, 101);
            assert_eq!(frames(&rig.receive(&other.pieces, false)), [other.packet]);
            rig.wait(LONG);
            assert_eq!(frames(&rig.receive(&pieces, false)), [packet], "its time is over");
            expect_good(rig);
        }
    }
}

/// Eight bytes each: no piece has a whole transport header. They are joined like
/// others; what is in them is checked by anyone who is above.
#[test]
fn tiny_fragments_are_joined_in_any_order() {
    for flow in BOTH {
        for turn in [0, 1, 5] {
            let mut rig = trained(Setup::PLAIN, flow);
            let shape = Shape { len: 200, id: 7, content: 7, ..Shape::default() };
            let packet = flow.packet(&shape);
            let mtu = if flow.is_v4() { 28 } else { 56 };
            let mut pieces = cut(&packet, mtu, 7);
            assert!(pieces.len() > 25);
            pieces.rotate_left(turn);
            assert_eq!(frames(&rig.receive(&pieces, false)), [packet]);
            expect_good(rig);
        }
    }
}

/// A piece with other bytes over each part of a packet, before and behind what it
/// lies over. What comes out is the packet as it was sent, or nothing: never a
/// mixture. (Only a piece that replaces one exactly, and comes first, is not told
/// from it: that is for the sum of the transport to find.)
#[test]
fn overlapping_fragments_never_mix() {
    for flow in BOTH {
        let mut outcomes = [0, 0];
        let whole = if flow.is_v4() { 1480 } else { 1448 };
        let next = whole as u16 / 8;
        let overlaps =
            [(0, 8), (1, whole), (next - 1, 16), (next, whole), (next + 1, whole), (300, 8)];
        for (at, (units, len)) in (0..4).flat_map(|at| overlaps.map(|overlap| (at, overlap))) {
            let mut rig = trained(Setup::PLAIN, flow);
            let Sent { packet, mut pieces } = page(flow, 100);
            let replaces = at < 2 && units == next && len == whole;
            pieces.insert(at, moved(&resized(&twin(&pieces[1]), len), units, true));
            let came = frames(&rig.receive(&pieces, false));
            let is_good = came.is_empty() || came == [packet];
            assert!(is_good != replaces, "{units} units, {len} bytes at {at}");
            outcomes[came.len()] += 1;
            expect_good(rig);
        }
        // What repeats a piece, or comes when the packet is whole, does no harm.
        assert!(outcomes[0] > 10 && outcomes[1] > 3, "{outcomes:?}");
    }
}

/// Lengths that only together are longer than the longest packet.
#[test]
fn lengths_that_overflow_are_refused() {
    for options in [0, 1] {
        let mut rig = trained(Setup::PLAIN, UDP);
        let shape = Shape { len: 65_000, id: 100, options, content: 1, ..Shape::default() };
        let mut pieces = cut(&UDP.packet(&shape), 9_000, 100);
        let last = pieces.last_mut().expect("there are several");
        let at = u16::from_be_bytes([last[20], last[21]]) & 0x1fff;
        let header = usize::from(last[14] & 15) * 4;
        // As long as a packet can be whose first piece has no options either.
        let longest = 65_535 - 20 - usize::from(at) * 8;
        last.resize(14 + header + longest, 9);
        last[16..18].copy_from_slice(&((header + longest) as u16).to_be_bytes());
        seal(last);
        let came = rig.receive(&pieces, false);
        assert_eq!(came.len(), if options == 0 { 1 } else { 0 });
        assert_eq!(rig.receiver.refusals().of(Refusal::OutOfBounds), u64::from(options));
        expect_good(rig);
    }
    for flow in BOTH {
        let mut rig = trained(Setup::PLAIN, flow);
        let Sent { packet, mut pieces } = page(flow, 100);
        // Behind the end of all packets, alone: only this piece is refused.
        pieces.insert(1, moved(&pieces[1], 0x1fff, false));
        assert_eq!(frames(&rig.receive(&pieces, false)), [packet]);
        assert_eq!(rig.receiver.refusals().of(Refusal::OutOfBounds), 1);
        expect_good(rig);
    }
}

/// Pieces that say they lie elsewhere: nothing is written outside of what is the
/// packet's, and other packets come.
#[test]
fn a_lying_offset_harms_its_own_packet_only() {
    for flow in BOTH {
        for units in [0, 1, 2, 184, 186, 370, 371, 511, 512, 4_000, 8_000, 8_190, 8_191] {
            for more in [false, true] {
                let mut rig = trained(Setup::PLAIN, flow);
                let (liar, honest) = (page(flow, 100), page(flow, 101));
                let [a, b, c] = &liar.pieces[..] else { panic!("three pieces") };
                let lie = moved(b, units, more);
                let mut came = Vec::new();
                for frames in [&[a.clone(), lie, c.clone()][..], &honest.pieces] {
                    came.extend(rig.receive(frames, false));
                }
                assert!(frames(&came).contains(&honest.packet), "{units} units, {more}");
                expect_good(rig);
            }
        }
    }
}

/// Each from another address, and none ever whole; time stands still, so that
/// nothing expires. The memory is as it was set up, and all packets of a stream in
/// between come.
#[test]
fn a_hundred_thousand_sources_do_not_stop_the_service() {
    const SOURCES: u32 = 100_000;
    let setup = Setup::PLAIN;
    let mut memory = TestMemory::new(&setup.sizes());
    let areas = Areas {
        pages: memory.pages(),
        large: memory.large(),
        heads: memory.heads(),
        spill: memory.spill(),
    };
    let mut receiver = Receiver::new(setup.config(), areas, setup.seed()).unwrap();
    let now = Instant::from_millis(1);
    let (v4, v6) = (page(UDP, 1).pieces.swap_remove(0), page(TCP6, 1).pieces.swap_remove(0));
    let mut expected = 0;
    let mut came = 0;
    for source in 0..SOURCES {
        let mut frame = if source % 2 == 0 { v4.clone() } else { v6.clone() };
        let at = if source % 2 == 0 { 26 } else { 34 };
        frame[at..at + 4].copy_from_slice(&(0x0b00_0000 + source).to_be_bytes());
        seal(&mut frame);
        let mut burst = vec![frame];
        let is_turn = source % 50 == 0;
        if is_turn {
            burst.extend(page(UDP, source).pieces);
            expected += 1;
        }
        let list = receiver.post().to_vec();
        assert!(list.len() >= burst.len(), "{} descriptors at source {source}", list.len());
        memory.post(&list);
        let lens = memory.scatter(&list, &burst);
        receiver.settle(now, &lens, &mut memory);
        while let Some(packet) = receiver.poll_packet() {
            assert_eq!(packet.body_len, 4096);
            let Body::Buffer(buffer, _) = packet.body else { panic!("{packet:?}") };
            receiver.release(buffer);
            came += 1;
        }
    }
    assert_eq!(came, expected);
    let config = setup.config();
    assert!(receiver.gathering().evicted > u64::from(SOURCES - config.reassembly.packets));
    receiver.handle_timeout(now + LONG, &mut memory);
    assert_eq!(receiver.poll_timeout(), None);
    let sizes = setup.sizes();
    assert!(receiver.free_pages() + usize::from(sizes.slots) >= sizes.pages as usize);
    assert_eq!(receiver.free_large(), sizes.large as usize);
    assert_eq!(memory.take_wrong(), [""; 0]);
}

/// One source cannot take what others need: its own oldest packets go first.
#[test]
fn a_source_that_floods_loses_its_own_packets() {
    let mut rig = Rig::new(Setup::TIGHT, false);
    let patient = page(TCP6, 1);
    assert_eq!(rig.receive(&patient.pieces[..2], false), []);
    // Large ones, so that the bound of bytes for one source comes before all others.
    for n in 0..100 {
        let shape = Shape { len: 20_000, id: n, ..Shape::default() };
        assert_eq!(rig.receive(&sent(UDP, &shape).pieces[..12], false), []);
    }
    assert!(rig.receiver.gathering().evicted >= 97);
    assert_eq!(frames(&rig.receive(&patient.pieces[2..], false)), [patient.packet]);
    expect_good(rig);
}

/// Packets that are refused are remembered, so that their late pieces are: that
/// memory is bounded as well.
#[test]
fn packets_that_are_refused_do_not_pile_up() {
    let mut rig = Rig::new(Setup::TIGHT, false);
    for n in 0..2_000 {
        let Sent { pieces, .. } = page(Flow((n % 8) as u8), n);
        let drop = moved(&resized(&pieces[1], 16), 3, false);
        assert_eq!(rig.receive(&[pieces[0].clone(), drop], false), []);
    }
    assert_eq!(rig.receiver.gathering().refused, 2_000);
    assert!(rig.receiver.gathering().evicted >= 1_990);
    let Sent { packet, pieces } = page(UDP, 5_000);
    assert_eq!(frames(&rig.receive(&pieces, false)), [packet]);
    expect_good(rig);
}

/// Somebody sees the stream and sends pieces with the names of its next packets,
/// before, between and behind their own pieces. Those packets may be lost; what
/// comes out was sent by one of the two, whole; and the packets behind are joined
/// without a copy again.
#[test]
fn spoofed_identifications_in_a_fast_burst_never_mix() {
    for flow in BOTH {
        for at in 0..3 {
            for piece in 0..3 {
                let mut rig = trained(Setup::PLAIN, flow);
                let (mut lost, mut speculated) = (0, 0);
                for n in 100..160 {
                    let Sent { packet, mut pieces } = page(flow, n);
                    let is_attacked = n < 110;
                    if is_attacked {
                        let spoofed = moved(&resized(&twin(&pieces[piece]), 800), 100, true);
                        pieces.insert(at, spoofed);
                    }
                    let came = rig.receive(&pieces, false);
                    let joined = frames(&came);
                    assert!(joined == [packet] || (is_attacked && joined.is_empty()));
                    lost += usize::from(joined.is_empty());
                    speculated += hits(&came);
                }
                assert!(lost <= 10 && speculated >= 45, "{lost} lost, {speculated} in place");
                expect_good(rig);
            }
        }
    }
}

/// The same from another address, with the same identifications: nothing is lost.
#[test]
fn identifications_of_another_source_are_other_packets() {
    for flow in BOTH {
        let mut rig = trained(Setup::PLAIN, flow);
        for n in 100..140 {
            let Sent { packet, pieces } = page(flow, n);
            let mut burst = Vec::new();
            for piece in &pieces {
                let mut other = twin(piece);
                other[if flow.is_v4() { 29 } else { 37 }] ^= 0x80;
                seal(&mut other);
                burst.extend([other, piece.clone()]);
            }
            let came = frames(&rig.receive(&burst, false));
            assert_eq!(came.len(), 2, "theirs and ours");
            assert!(came.contains(&packet));
        }
        expect_good(rig);
    }
}

/// A flood of first pieces is not answered with a flood of messages that they
/// expired.
#[test]
fn a_flood_that_expires_is_answered_seldom() {
    let mut rig = Rig::new(Setup::TIGHT, false);
    let mut answers = 0;
    for n in 0..400 {
        let pieces = page(Flow((n % 8) as u8), n).pieces;
        assert_eq!(rig.receive(&pieces[..1], false), []);
        let now = rig.now() + Setup::TIGHT.lifetime();
        rig.receiver.handle_timeout(now, &mut rig.memory);
        answers += std::iter::from_fn(|| rig.receiver.poll_expired()).count();
    }
    assert!((1..=120).contains(&answers), "{answers}");
}
