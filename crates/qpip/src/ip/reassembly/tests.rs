use core::net::IpAddr;
use std::collections::BTreeMap;
use std::vec::Vec;

use landfall_placement::{Duration, Ecn, Instant, Refusal};
use proptest::prelude::*;

use super::{Config, Counters, ReassembledPacket, Reassembly};
use crate::wire::{Content, Envelope, Fragment, Ip, parse, protocol};

const NOW: Instant = Instant::from_millis(1);
const V4: (&str, &str) = ("192.0.2.1", "192.0.2.2");
const V6: (&str, &str) = ("2001:db8::1", "2001:db8::2");

/// A piece as it is read from its frame.
fn piece(hosts: (&str, &str), protocol: u8, fragment: Fragment, bytes: &[u8], ecn: Ecn) -> Ip {
    let (source, destination): (IpAddr, IpAddr) =
        (hosts.0.parse().unwrap(), hosts.1.parse().unwrap());
    let envelope = Envelope {
        fragment: Some(fragment),
        traffic_class: ecn as u8,
        ..Envelope::new(([2; 6], source), ([4; 6], destination), protocol)
    };
    let mut frame = std::vec![0; envelope.header_len()];
    envelope.write(&mut frame, bytes.len() as u32).unwrap();
    frame.extend(bytes);
    let Content::Ip(ip) = parse(&frame, frame.len() as u32).unwrap().content else {
        panic!("no IP")
    };
    ip
}

/// Hands in a piece of a UDP packet.
fn insert(
    reassembly: &mut Reassembly,
    (id, offset, more): (u32, u32, bool),
    bytes: &[u8],
) -> Result<Option<ReassembledPacket>, Refusal> {
    let ip = piece(V6, protocol::UDP, Fragment { id, offset, more }, bytes, Ecn::NotCapable);
    reassembly.insert(NOW, &ip, bytes)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 256) as u8).collect()
}

#[test]
fn pieces_in_any_order_become_the_packet() {
    let sent = bytes(3000);
    for hosts in [V4, V6] {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut reassembly = Reassembly::new(Config::default());
            for (n, at) in order.into_iter().enumerate() {
                let part = &sent[at * 1000..(at + 1) * 1000];
                let fragment = Fragment { id: 7, offset: at as u32 * 1000, more: at < 2 };
                let ip = piece(hosts, protocol::UDP, fragment, part, Ecn::NotCapable);
                let whole = reassembly.insert(NOW, &ip, part).unwrap();
                assert_eq!(whole.is_some(), n == 2);
                let Some(ReassembledPacket { id, ip }) = whole else { continue };
                assert_eq!(reassembly.payload(id), Some(&sent[..]));
                assert_eq!((ip.protocol, ip.payload_at, ip.payload_len), (17, 0, 3000));
                assert_eq!(ip.fragment, None);
                reassembly.release(id);
                assert_eq!(reassembly.payload(id), None, "released");
                reassembly.release(id);
            }
            assert_eq!(*reassembly.counters(), Counters { whole: 1, ..Counters::default() });
        }
    }
}

#[test]
fn packets_that_come_together_are_kept_apart() {
    let (a, b) = (bytes(16), bytes(32));
    let mut reassembly = Reassembly::new(Config::default());
    insert(&mut reassembly, (1, 0, true), &a[..8]).unwrap();
    insert(&mut reassembly, (2, 0, true), &b[..16]).unwrap();
    let second = insert(&mut reassembly, (2, 16, false), &b[16..]).unwrap().unwrap();
    let first = insert(&mut reassembly, (1, 8, false), &a[8..]).unwrap().unwrap();
    assert_eq!(reassembly.payload(first.id), Some(&a[..]));
    assert_eq!(reassembly.payload(second.id), Some(&b[..]));
}

/// RFC 5722: the packet is given up, with all that still comes of it.
#[test]
fn overlapping_pieces_refuse_their_packet() {
    let sent = bytes(64);
    for (from, to, more) in
        [(8, 24, true), (0, 24, true), (0, 8, true), (8, 16, true), (16, 40, true)]
    {
        let mut reassembly = Reassembly::new(Config::default());
        insert(&mut reassembly, (1, 0, true), &sent[..16]).unwrap();
        insert(&mut reassembly, (1, 24, true), &sent[24..40]).unwrap();
        let again = insert(&mut reassembly, (1, from as u32, more), &sent[from..to]);
        assert_eq!(again, Err(Refusal::Forbidden), "{from}..{to}");
        for (from, to, more) in [(0, 16, true), (16, 24, true), (40, 64, false)] {
            let later = insert(&mut reassembly, (1, from as u32, more), &sent[from..to]);
            assert_eq!(later, Err(Refusal::Forbidden), "what still comes: {from}..{to}");
        }
        assert_eq!(reassembly.counters().refused, 1);
        reassembly.expire(NOW + Duration::from_secs(60));
        assert_eq!(reassembly.counters().expired, 0, "it was counted before");
        assert_eq!(insert(&mut reassembly, (1, 0, true), &sent[..16]), Ok(None), "a new one");
    }
}

#[test]
fn an_exact_repetition_is_passed_over_and_other_bytes_are_not() {
    let sent = bytes(32);
    let mut reassembly = Reassembly::new(Config::default());
    insert(&mut reassembly, (1, 0, true), &sent[..16]).unwrap();
    assert_eq!(insert(&mut reassembly, (1, 0, true), &sent[..16]), Err(Refusal::Duplicate));
    let whole = insert(&mut reassembly, (1, 16, false), &sent[16..]).unwrap().unwrap();
    assert_eq!(reassembly.payload(whole.id), Some(&sent[..]));
    assert_eq!(reassembly.counters().repeated, 1);

    let mut reassembly = Reassembly::new(Config::default());
    insert(&mut reassembly, (1, 0, true), &sent[..16]).unwrap();
    assert_eq!(insert(&mut reassembly, (1, 0, true), &[9; 16]), Err(Refusal::Forbidden));
    let mut reassembly = Reassembly::new(Config::default());
    insert(&mut reassembly, (1, 16, true), &sent[16..]).unwrap();
    let last = insert(&mut reassembly, (1, 16, false), &sent[16..]);
    assert_eq!(last, Err(Refusal::Forbidden), "the same bytes, but the last ones");
}

#[test]
fn pieces_that_disagree_about_the_end_refuse_their_packet() {
    let sent = bytes(64);
    for (from, to, more) in [(40, 48, false), (40, 48, true), (16, 24, false)] {
        let mut reassembly = Reassembly::new(Config::default());
        insert(&mut reassembly, (1, 0, true), &sent[..16]).unwrap();
        insert(&mut reassembly, (1, 32, false), &sent[32..40]).unwrap();
        let late = insert(&mut reassembly, (1, from as u32, more), &sent[from..to]);
        assert_eq!(late, Err(Refusal::Forbidden), "{from}..{to}");
    }
    let mut reassembly = Reassembly::new(Config::default());
    insert(&mut reassembly, (1, 32, true), &sent[32..40]).unwrap();
    let end = insert(&mut reassembly, (1, 16, false), &sent[16..24]);
    assert_eq!(end, Err(Refusal::Forbidden), "an end before what is there");
}

#[test]
fn lengths_and_places_that_no_piece_has_are_refused() {
    let sent = bytes(2000);
    let mut reassembly = Reassembly::new(Config::default());
    let mut refused = |offset, more, len, expected| {
        let result = insert(&mut reassembly, (1, offset, more), &sent[..len]);
        assert_eq!(result, Err(expected), "{len} bytes at {offset}");
        assert_eq!(reassembly.poll_timeout(), None, "nothing is kept of it");
    };
    refused(0, true, 12, Refusal::Malformed);
    refused(8, false, 0, Refusal::Malformed);
    refused(65_528, false, 8, Refusal::OutOfBounds);
    refused(65_528, false, 1400, Refusal::OutOfBounds);
    refused(65_528, true, 8, Refusal::OutOfBounds);
    let longest = insert(&mut reassembly, (1, 65_520, false), &sent[..15]);
    assert_eq!(longest, Ok(None), "65,535 bytes may be");
    let whole = Ip {
        fragment: None,
        ..piece(V6, 17, Fragment { id: 1, offset: 8, more: true }, &sent[..8], Ecn::NotCapable)
    };
    assert_eq!(reassembly.insert(NOW, &whole, &sent[..8]), Err(Refusal::Unexpected));
}

/// RFC 1858 and RFC 7112: who looks at the first piece sees the ports and flags.
#[test]
fn the_first_piece_has_all_headers() {
    let mut tcp = [0; 40];
    tcp[12] = 8 << 4;
    let mut reassembly = Reassembly::new(Config::default());
    let mut id = 0;
    let mut first = |hosts, protocol, offset, bytes: &[u8]| {
        id += 1;
        let fragment = Fragment { id, offset, more: true };
        let ip = piece(hosts, protocol, fragment, bytes, Ecn::NotCapable);
        reassembly.insert(NOW, &ip, bytes)
    };
    for hosts in [V4, V6] {
        assert_eq!(first(hosts, protocol::TCP, 0, &tcp[..8]), Err(Refusal::Malformed));
        assert_eq!(first(hosts, protocol::TCP, 0, &tcp[..24]), Err(Refusal::Malformed));
        assert_eq!(first(hosts, protocol::TCP, 8, &tcp), Err(Refusal::Malformed));
        assert_eq!(first(hosts, protocol::TCP, 16, &tcp), Err(Refusal::Malformed));
        assert_eq!(first(hosts, protocol::TCP, 0, &tcp[..32]), Ok(None));
    }
    // Destination options in front, and their end is cut off.
    let options = [17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 1];
    let next = protocol::DESTINATION_OPTIONS;
    assert_eq!(first(V6, next, 0, &options[..8]), Err(Refusal::Truncated));
    assert_eq!(first(V6, next, 0, &options[..16]), Err(Refusal::Malformed), "no UDP header");
    assert_eq!(first(V6, next, 0, &options), Ok(None));
}

#[test]
fn the_protocol_of_an_ipv6_packet_is_that_of_its_first_piece() {
    let sent = bytes(24);
    for (hosts, is_whole) in [(V6, true), (V4, false)] {
        let mut reassembly = Reassembly::new(Config::default());
        let fragment = Fragment { id: 1, offset: 16, more: false };
        let ip = piece(hosts, 99, fragment, &sent[16..], Ecn::NotCapable);
        reassembly.insert(NOW, &ip, &sent[16..]).unwrap();
        let fragment = Fragment { id: 1, offset: 0, more: true };
        let ip = piece(hosts, protocol::UDP, fragment, &sent[..16], Ecn::NotCapable);
        let whole = reassembly.insert(NOW, &ip, &sent[..16]).unwrap();
        assert_eq!(whole.map(|whole| whole.ip.protocol), is_whole.then_some(protocol::UDP));
    }
}

/// RFC 3168, section 5.3: a signal on one piece is one on the packet.
#[test]
fn congestion_on_a_piece_is_congestion_of_the_packet() {
    use Ecn::{Capable0, Capable1, CongestionExperienced, NotCapable};
    let sent = bytes(24);
    for (first, last, expected) in [
        (NotCapable, NotCapable, Ok(NotCapable)),
        (Capable0, Capable0, Ok(Capable0)),
        (Capable0, CongestionExperienced, Ok(CongestionExperienced)),
        (CongestionExperienced, Capable1, Ok(CongestionExperienced)),
        (NotCapable, CongestionExperienced, Err(Refusal::Malformed)),
        (Capable0, NotCapable, Err(Refusal::Malformed)),
    ] {
        let mut reassembly = Reassembly::new(Config::default());
        let fragment = Fragment { id: 1, offset: 0, more: true };
        let ip = piece(V4, protocol::UDP, fragment, &sent[..16], first);
        reassembly.insert(NOW, &ip, &sent[..16]).unwrap();
        let fragment = Fragment { id: 1, offset: 16, more: false };
        let ip = piece(V4, protocol::UDP, fragment, &sent[16..], last);
        let whole = reassembly.insert(NOW, &ip, &sent[16..]);
        assert_eq!(whole.map(|whole| whole.unwrap().ip.ecn), expected, "{first:?}, {last:?}");
    }
}

#[test]
fn what_is_not_whole_in_time_is_forgotten() {
    let mut reassembly = Reassembly::new(Config::default());
    assert_eq!(reassembly.poll_timeout(), None);
    insert(&mut reassembly, (1, 0, true), &bytes(8)).unwrap();
    let end = NOW + Duration::from_secs(60);
    assert_eq!(reassembly.poll_timeout(), Some(end));
    reassembly.expire(end - Duration::from_nanos(1));
    assert_eq!(reassembly.counters().expired, 0);
    reassembly.expire(end);
    assert_eq!((reassembly.counters().expired, reassembly.poll_timeout()), (1, None));
    assert_eq!(insert(&mut reassembly, (1, 8, false), &bytes(8)), Ok(None), "the first is gone");
}

#[test]
fn each_packet_has_its_own_time() {
    let mut reassembly = Reassembly::new(Config::default());
    let (second, life) = (Duration::from_secs(1), Duration::from_secs(60));
    for id in 0..3 {
        let fragment = Fragment { id, offset: 0, more: true };
        let ip = piece(V6, protocol::UDP, fragment, &bytes(8), Ecn::NotCapable);
        reassembly.insert(NOW + second * id, &ip, &bytes(8)).unwrap();
    }
    for id in 0..3 {
        let end = NOW + second * id + life;
        assert_eq!(reassembly.poll_timeout(), Some(end));
        reassembly.expire(end);
        assert_eq!(reassembly.counters().expired, u64::from(id) + 1);
    }
    assert_eq!(reassembly.poll_timeout(), None);
}

#[test]
fn at_the_bound_the_oldest_goes_and_what_is_whole_stays() {
    let config = Config { packets: 3, ..Config::default() };
    let mut reassembly = Reassembly::new(config);
    let sent = bytes(16);
    insert(&mut reassembly, (1, 0, true), &sent[..8]).unwrap();
    let whole = insert(&mut reassembly, (1, 8, false), &sent[8..]).unwrap().unwrap();
    for id in 2..100 {
        let ip = piece(
            V6,
            protocol::UDP,
            Fragment { id, offset: 0, more: true },
            &sent[..8],
            Ecn::NotCapable,
        );
        let now = NOW + Duration::from_millis(id.into());
        assert_eq!(reassembly.insert(now, &ip, &sent[..8]), Ok(None));
    }
    assert_eq!(reassembly.counters().evicted, 96);
    assert_eq!(reassembly.payload(whole.id), Some(&sent[..]));
    let last = insert(&mut reassembly, (99, 8, false), &sent[8..]).unwrap();
    assert!(last.is_some(), "the newest is there");
    let mut full = Reassembly::new(Config { packets: 1, ..config });
    insert(&mut full, (1, 0, true), &sent[..8]).unwrap();
    let whole = insert(&mut full, (1, 8, false), &sent[8..]).unwrap().unwrap();
    assert_eq!(insert(&mut full, (2, 0, true), &sent[..8]), Err(Refusal::NoRoom));
    full.release(whole.id);
    assert_eq!(insert(&mut full, (2, 0, true), &sent[..8]), Ok(None));
}

#[test]
fn bytes_and_pieces_are_bounded() {
    let config = Config { packets: 8, pieces: 4, bytes: 20_000, ..Config::default() };
    let mut reassembly = Reassembly::new(config);
    for id in 0..50 {
        assert_eq!(insert(&mut reassembly, (id, 8000, true), &bytes(1000)), Ok(None));
        assert!(reassembly.bytes() <= 20_000, "{}", reassembly.bytes());
    }
    assert_eq!(reassembly.counters().evicted, 48, "two such buffers fit");
    let too_far = insert(&mut reassembly, (60, 20_000, true), &bytes(8));
    assert_eq!(too_far, Err(Refusal::NoRoom));
    assert_eq!(reassembly.counters().evicted, 48, "and nobody had to go for that");
    for n in 1..=4 {
        insert(&mut reassembly, (70, n * 16, true), &bytes(8)).unwrap();
    }
    let fifth = insert(&mut reassembly, (70, 5 * 16, true), &bytes(8));
    assert_eq!(fifth, Err(Refusal::NoRoom));
}

/// RFC 8200 and RFC 5722, word for word, for one packet, a byte at a time.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<u32, u8>,
    pieces: Vec<(u32, u32, bool)>,
    is_refused: bool,
    is_whole: bool,
}

impl Model {
    fn insert(&mut self, offset: u32, more: bool, bytes: &[u8]) -> Result<bool, Refusal> {
        if self.is_refused {
            return Err(Refusal::Forbidden);
        }
        let end = offset + bytes.len() as u32;
        let same = (offset..end).zip(bytes).all(|(at, byte)| self.bytes.get(&at) == Some(byte));
        if self.pieces.contains(&(offset, end, more)) && same {
            return Err(Refusal::Duplicate);
        }
        self.pieces.push((offset, end, more));
        let overlaps = (offset..end).any(|at| self.bytes.contains_key(&at));
        let ends = self.pieces.iter().filter(|piece| !piece.2).map(|piece| piece.1);
        let ends: Vec<_> = ends.collect();
        let last = self.pieces.iter().map(|piece| piece.1).max().unwrap();
        if overlaps || ends.len() > 1 || ends.first().is_some_and(|end| *end < last) {
            self.is_refused = true;
            return Err(Refusal::Forbidden);
        }
        self.bytes.extend((offset..end).zip(bytes.iter().copied()));
        self.is_whole = ends.first().is_some_and(|end| self.bytes.len() as u32 == *end);
        Ok(self.is_whole)
    }
}

/// A piece of one of three packets: where it starts and ends in units of 8
/// bytes, whether others follow, and whether its bytes are changed.
type Cut = (u32, u32, u32, bool, bool);

fn cuts() -> impl Strategy<Value = Vec<Cut>> {
    prop::collection::vec(
        (0..3u32, 0..12u32, 1..5u32, prop::bool::weighted(0.8), prop::bool::weighted(0.1)),
        0..40,
    )
}

proptest! {
    #[test]
    fn a_packet_cut_anywhere_and_shuffled_becomes_whole(
        len in 8..20_000usize,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        order in prop::collection::vec(any::<(u32, bool)>(), 31),
        is_v6: bool,
    ) {
        let sent = bytes(len);
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(len).div_ceil(8) * 8).collect();
        ends.retain(|end| (8..len).contains(end));
        ends.push(len);
        ends.sort_unstable();
        ends.dedup();
        if ends.len() == 1 {
            return Ok(());
        }
        let starts = core::iter::once(0).chain(ends.iter().copied());
        let pieces: Vec<_> = starts.zip(ends.iter().copied()).collect();
        let mut queue: Vec<_> = pieces.iter().copied().zip(order).collect();
        queue.sort_by_key(|(_, (key, _))| *key);
        let mut reassembly = Reassembly::new(Config::default());
        let mut whole = None;
        let count = queue.len();
        for (n, ((from, to), (_, twice))) in queue.into_iter().enumerate() {
            let fragment = Fragment { id: 9, offset: from as u32, more: to < len };
            let hosts = if is_v6 { V6 } else { V4 };
            let ip = piece(hosts, protocol::UDP, fragment, &sent[from..to], Ecn::NotCapable);
            prop_assert!(whole.is_none());
            whole = reassembly.insert(NOW, &ip, &sent[from..to]).unwrap();
            if twice && n + 1 < count {
                let again = reassembly.insert(NOW, &ip, &sent[from..to]);
                prop_assert_eq!(again, Err(Refusal::Duplicate));
            }
        }
        let id = whole.unwrap().id;
        prop_assert_eq!(reassembly.payload(id), Some(&sent[..]));
    }

    /// Cuts that overlap, repeat, contradict: the same verdict as the model, piece
    /// by piece, and the same bytes.
    #[test]
    fn the_verdicts_are_those_of_the_rfcs(cuts in cuts()) {
        let sent = bytes(200);
        let mut reassembly = Reassembly::new(Config::default());
        let mut models: [Model; 3] = Default::default();
        for (id, start, len, more, changed) in cuts {
            let model = &mut models[id as usize];
            if model.is_whole {
                continue;
            }
            let (from, to) = (start * 8, (start + len) * 8);
            let mut part = sent[from as usize..to as usize].to_vec();
            part[0] ^= u8::from(changed);
            if from == 0 && !more {
                continue; // whole, not a piece
            }
            let expected = model.insert(from, more, &part);
            let result = insert(&mut reassembly, (id, from, more), &part);
            prop_assert_eq!(result.map(|whole| whole.is_some()), expected);
            if let Ok(Some(ReassembledPacket { id, ip })) = result {
                let all: Vec<_> = model.bytes.values().copied().collect();
                prop_assert_eq!(reassembly.payload(id), Some(&all[..]));
                prop_assert_eq!(ip.payload_len as usize, all.len());
            }
        }
    }

    /// However many packets at once, in however little room.
    #[test]
    fn any_pieces_keep_the_bounds(
        pieces in prop::collection::vec(
            (0..12u32, 0..900u32, 1..80usize, any::<bool>(), any::<u16>(), any::<bool>()), 0..120,
        ),
        (packets, bytes_max, most) in (0..5usize, 0..9000usize, 0..6usize),
    ) {
        let config =
            Config { packets, pieces: most, bytes: bytes_max, lifetime: Duration::from_secs(60) };
        let mut reassembly = Reassembly::new(config);
        let (mut now, mut kept) = (NOW, Vec::new());
        for (id, offset, len, more, millis, release) in pieces {
            now += Duration::from_millis(millis.into());
            let part = bytes(len * 8);
            let fragment = Fragment { id, offset: offset * 8, more };
            if fragment.is_atomic() {
                continue;
            }
            let ip = piece(V6, protocol::UDP, fragment, &part, Ecn::NotCapable);
            if let Ok(Some(whole)) = reassembly.insert(now, &ip, &part) {
                kept.push(whole);
            }
            prop_assert!(reassembly.bytes() <= bytes_max);
            prop_assert!(reassembly.poll_timeout().is_none_or(|end| end > now));
            if release && let Some(whole) = kept.pop() {
                reassembly.release(whole.id);
            }
            for whole in &kept {
                let payload = reassembly.payload(whole.id).unwrap();
                prop_assert_eq!(payload.len(), whole.ip.payload_len as usize);
            }
        }
    }
}
