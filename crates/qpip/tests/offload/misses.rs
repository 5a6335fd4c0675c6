//! Each reason why a unit goes to the engine, by a unit that nothing else is
//! wrong with.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use landfall_placement::{Check, Ecn, PathId, RegionId, Spans};
use qpip::offload::{
    Datagram, Ends, Entry, HashSecret, Hit, Miss, Missed, Places, Pointer, Prediction, Segment,
    Tables, UnitOwner,
};

use super::{Frame, PATH, addresses, incoming, seal};

/// What was changed on its way.
enum Change {
    Frame(fn(&mut Frame)),
    Bytes(fn(&mut Vec<u8>)),
    /// Only this many bytes are at hand.
    Head(usize),
    /// The unit ends this many bytes early.
    Cut(u32),
    Prediction(fn(&mut Prediction)),
    Tables(fn(&mut Tables<'_>, Ends)),
}

use Change::{Bytes, Cut, Head, Tables as Table};

const MEMORY: RegionId = RegionId::new(1, 2);
const STREAM: u32 = 1;
const PORT: u32 = 2;

fn ends(is_v6: bool) -> (SocketAddr, SocketAddr) {
    let [local, remote] =
        if is_v6 { ["[fd00::1]:80", "[fd00::2]:1024"] } else { ["10.0.0.1:80", "10.0.0.2:1024"] };
    (local.parse().unwrap(), remote.parse().unwrap())
}

fn places() -> Places {
    let mut places = Places::new();
    assert!(places.push(MEMORY.span(1_000, 100), true));
    assert!(places.push(MEMORY.span(5_000, 300), true));
    places
}

fn prediction() -> Prediction {
    Prediction {
        expected: u32::MAX - 20,
        edge: 250,
        acknowledged: 900,
        sent: 1_000,
        recent: Some(u32::MAX),
        has_messages: true,
        course: 5,
        places: places(),
    }
}

fn good(is_v6: bool, is_tcp: bool) -> Frame {
    let (local, remote) = ends(is_v6);
    let frame = Frame::new(remote, local, is_tcp, 60);
    if !is_tcp {
        return frame;
    }
    Frame { seq: u32::MAX - 20, ack: 950, flags: 0x18, ..frame }.stamped(3, 44)
}

/// Gives the answer to a frame with this change, and the places that are left.
fn answer(is_v6: bool, is_tcp: bool, change: Option<&Change>) -> Result<(Hit, Spans), Miss> {
    let (local, remote) = ends(is_v6);
    let (mut entries, mut pointers) = ([Entry::default(); 4], [Pointer::default(); 8]);
    let mut tables = Tables::new(&mut entries, &mut pointers, HashSecret::new(1, 2));
    assert!(tables.open(STREAM, Ends::new(local, remote), PATH));
    assert!(tables.bind(PORT, Ends::bound(local)));
    let (mut next, mut frame) = (prediction(), good(is_v6, is_tcp));
    match change {
        Some(Change::Frame(change)) => change(&mut frame),
        Some(Change::Prediction(change)) => change(&mut next),
        _ => {}
    }
    tables.arm(STREAM, &next);
    tables.arm_port(PORT, &next.places, 1);
    if let Some(Table(change)) = change {
        change(&mut tables, Ends::new(local, remote));
    }
    let (mut head, mut len) = (frame.head(), frame.unit_len());
    match change {
        Some(Bytes(change)) => change(&mut head),
        Some(Head(len)) => head.truncate(*len),
        Some(Cut(by)) => len -= by,
        _ => {}
    }
    let addresses = addresses();
    let mut into = Spans::new();
    let unit = incoming(&head, len, &addresses, Some(STREAM));
    let answer = tables.receive(&unit, &mut into);
    let (mut again, mut pointers_again) = (entries, pointers);
    let mut tables = Tables::new(&mut again, &mut pointers_again, HashSecret::new(1, 2));
    match answer {
        Ok(hit) => Ok((hit, into)),
        Err(miss) => {
            assert!(into.is_empty());
            let mut untouched = Spans::new();
            let repeated = tables.receive(&unit, &mut untouched);
            assert_eq!(repeated, Err(miss), "a miss changes nothing");
            assert_eq!((entries, pointers), (again, pointers_again));
            Err(miss)
        }
    }
}

#[test]
fn what_comes_as_predicted_is_taken() {
    for is_v6 in [false, true] {
        let (_, remote) = ends(is_v6);
        let ip = if is_v6 { 40 } else { 20 };
        let frame = good(is_v6, true);
        let (hit, into) = answer(is_v6, true, None).unwrap();
        let check = Check::InternetSum { from: 14 + ip, len: 92, seed: frame.pseudo() };
        let segment = Segment {
            slot: STREAM,
            seq: u32::MAX - 20,
            ack: 950,
            window: 77,
            is_pushed: true,
            timestamp: Some((3, 44)),
            ecn: Ecn::NotCapable,
            at: 14 + ip + 32,
            len: 60,
            check,
            course: 5,
            is_spent: false,
        };
        assert_eq!(hit, Hit::Segment(segment));
        assert_eq!(into.as_slice(), [MEMORY.span(1_000, 60)]);

        let frame = good(is_v6, false);
        let (hit, into) = answer(is_v6, false, None).unwrap();
        let check = Check::InternetSum { from: 14 + ip, len: 68, seed: frame.pseudo() };
        let at = 14 + ip + 8;
        let datagram = Datagram { slot: PORT, from: remote, at, len: 60, check, is_spent: false };
        assert_eq!(hit, Hit::Datagram(datagram));
        assert_eq!(into.as_slice(), [MEMORY.span(1_000, 60)]);
    }
}

/// Every reason of a segment, in each version of IP. Bytes count from the start
/// of what IP carries.
const OF_SEGMENTS: [(Miss, Change); 32] = [
    (Miss::Station, Change::Frame(|frame| frame.station[5] ^= 1)),
    (Miss::Station, Change::Frame(|frame| frame.station = [0xff; 6])),
    (Miss::Header, Bytes(|head| head[12..14].copy_from_slice(&[8, 6]))),
    (Miss::Header, Bytes(|head| head[14] ^= 0x10)),
    (Miss::Protocol, Bytes(|head| change_protocol(head, 132))),
    (Miss::Unknown, Change::Frame(|frame| frame.from.set_port(1_025))),
    (Miss::Unknown, Change::Frame(|frame| frame.to.set_port(81))),
    (Miss::Unknown, Table(|tables, _| tables.close(STREAM))),
    (Miss::Unarmed, Table(|tables, _| tables.disarm(STREAM))),
    (Miss::Unarmed, Table(|tables, _| tables.disarm_all())),
    (Miss::Unarmed, Table(move_to_other_path)),
    (Miss::Flags, Change::Frame(|frame| frame.flags = 0x08)),
    (Miss::Flags, Change::Frame(|frame| frame.flags |= 0x01)),
    (Miss::Flags, Change::Frame(|frame| frame.flags |= 0x02)),
    (Miss::Flags, Change::Frame(|frame| frame.flags |= 0x04)),
    (Miss::Flags, Change::Frame(|frame| frame.flags |= 0x20)),
    (Miss::Flags, Change::Frame(|frame| frame.flags |= 0x40)),
    (Miss::Flags, Change::Frame(|frame| frame.flags |= 0x80)),
    (Miss::Options, Change::Frame(|frame| frame.options.clear())),
    (Miss::Options, Change::Frame(|frame| frame.options.extend([1; 4]))),
    (Miss::Options, Change::Frame(|frame| frame.options.rotate_left(1))),
    (Miss::Options, Change::Prediction(|next| next.recent = None)),
    (Miss::Old, Change::Prediction(|next| next.recent = Some(4))),
    (Miss::Sequence, Change::Frame(|frame| frame.seq += 1)),
    (Miss::Sequence, Change::Frame(|frame| frame.seq -= 1)),
    (Miss::Acknowledgement, Change::Frame(|frame| frame.ack = 899)),
    (Miss::Acknowledgement, Change::Frame(|frame| frame.ack = 1_001)),
    (Miss::Empty, Change::Frame(|frame| frame.len = 0)),
    (Miss::Window, Change::Prediction(|next| next.edge = 38)),
    (Miss::Window, Change::Prediction(|next| next.edge = u32::MAX - 30)),
    (Miss::Places, Change::Prediction(|next| next.places = Places::new())),
    (Miss::Places, Change::Prediction(|next| next.places = short())),
];

/// One byte less than comes.
fn short() -> Places {
    let mut places = Places::new();
    places.push(MEMORY.span(0, 59), true);
    places
}

/// Its segments come over another one.
fn move_to_other_path(tables: &mut Tables<'_>, ends: Ends) {
    assert!(tables.open(STREAM, ends, PathId(4)));
    tables.arm(STREAM, &prediction());
}

fn change_protocol(head: &mut [u8], protocol: u8) {
    if head[12] == 8 {
        head[23] = protocol;
        seal(head);
    } else {
        head[20] = protocol;
    }
}

/// What is different in the two versions of IP: length fields, pieces, options.
const OF_V4: [(Miss, Change); 7] = [
    (Miss::Header, Bytes(|head| change(head, 14, 0x46))),
    (Miss::Fragment, Bytes(|head| change(head, 20, 0x20))),
    (Miss::Fragment, Bytes(|head| change(head, 21, 1))),
    (Miss::Damaged, Bytes(|head| head[22] ^= 1)),
    (Miss::Damaged, Bytes(|head| change(head, 17, 19))),
    (Miss::Damaged, Cut(1)),
    (Miss::Short, Bytes(|head| change(head, 17, 20 + 3))),
];

const OF_V6: [(Miss, Change); 4] = [
    (Miss::Header, Bytes(|head| head[14] = 0x45)),
    (Miss::Protocol, Bytes(|head| head[20] = 44)),
    (Miss::Damaged, Cut(1)),
    (Miss::Short, Bytes(|head| (head[18], head[19]) = (0, 3))),
];

const OF_DATAGRAMS: [(Miss, Change); 13] = [
    (Miss::Station, Change::Frame(|frame| frame.station[5] ^= 1)),
    (Miss::Unknown, Change::Frame(|frame| frame.to.set_port(81))),
    (Miss::Unknown, Change::Frame(|frame| frame.from.set_ip(frame.to.ip()))),
    (Miss::Unknown, Change::Frame(from_a_group)),
    (Miss::Unknown, Change::Frame(from_nearby)),
    (Miss::Unknown, Change::Frame(to_somebody_else)),
    (Miss::Unknown, Table(|tables, _| tables.close(PORT))),
    (Miss::Unarmed, Table(|tables, _| tables.disarm(PORT))),
    (Miss::Empty, Change::Frame(|frame| frame.len = 0)),
    (Miss::Damaged, Bytes(|head| change_udp_len(head, 69))),
    (Miss::Damaged, Bytes(|head| change_udp_len(head, 7))),
    (Miss::Places, Change::Frame(|frame| frame.len = 101)),
    (Miss::Places, Change::Prediction(|next| next.places = Places::new())),
];

fn change(head: &mut [u8], at: usize, value: u8) {
    head[at] = value;
    seal(head);
}

fn change_udp_len(head: &mut [u8], len: u8) {
    let at = head.len() - 4;
    head[at..at + 2].copy_from_slice(&[0, len]);
}

fn from_a_group(frame: &mut Frame) {
    let group = if frame.from.is_ipv4() { "224.0.0.1" } else { "ff02::1" };
    frame.from.set_ip(group.parse().unwrap());
}

fn from_nearby(frame: &mut Frame) {
    let loopback = if frame.from.is_ipv4() { "127.0.0.1" } else { "::1" };
    frame.from.set_ip(loopback.parse().unwrap());
}

fn to_somebody_else(frame: &mut Frame) {
    let other = if frame.from.is_ipv4() { "10.0.0.3" } else { "fd00::3" };
    frame.to.set_ip(other.parse().unwrap());
}

#[test]
fn each_miss_says_why() {
    let mut seen = BTreeSet::new();
    let mut expect = |is_v6, is_tcp, cases: &[(Miss, Change)]| {
        for (nth, (miss, change)) in cases.iter().enumerate() {
            let found = answer(is_v6, is_tcp, Some(change)).err();
            assert_eq!(found, Some(*miss), "version 6: {is_v6}, TCP: {is_tcp}, case {nth}");
            seen.insert(*miss);
        }
    };
    for is_v6 in [false, true] {
        expect(is_v6, true, &OF_SEGMENTS);
        expect(is_v6, false, &OF_DATAGRAMS);
    }
    for is_tcp in [false, true] {
        expect(false, is_tcp, &OF_V4);
        expect(true, is_tcp, &OF_V6);
    }
    expect(true, false, &[(Miss::Unchecked, Change::Frame(|frame| frame.has_sum = false))]);
    // See `a_wrong_sum_changes_nothing`.
    seen.insert(Miss::Sum);
    assert_eq!(seen, Miss::ALL.into_iter().collect(), "every reason has a case");
}

/// Who has all of the unit at hand is asked for the sum, last of all; nothing has
/// changed where it is wrong, so that the next one is taken.
#[test]
fn a_wrong_sum_changes_nothing() {
    for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let (local, remote) = ends(is_v6);
        let (mut entries, mut pointers) = ([Entry::default(); 4], [Pointer::default(); 8]);
        let mut tables = Tables::new(&mut entries, &mut pointers, HashSecret::new(1, 2));
        assert!(tables.open(STREAM, Ends::new(local, remote), PATH));
        assert!(tables.bind(PORT, Ends::bound(local)));
        tables.arm(STREAM, &prediction());
        tables.arm_port(PORT, &places(), 1);
        let (frame, addresses) = (good(is_v6, is_tcp), addresses());
        let head = frame.head();
        let unit = incoming(&head, frame.unit_len(), &addresses, None);
        let mut into = Spans::new();
        let slot = if is_tcp { STREAM } else { PORT };
        let missed = Missed { why: Miss::Sum, whose: UnitOwner::Slot(slot) };
        assert_eq!(tables.receive_if(&unit, &mut into, |_| false), Err(missed));
        assert!(into.is_empty());
        let hit = tables.receive_if(&unit, &mut into, |check| check != Check::None).unwrap();
        assert_eq!(into.as_slice(), [MEMORY.span(1_000, 60)]);
        assert!(matches!((hit, is_tcp), (Hit::Segment(_), true) | (Hit::Datagram(_), false)));
    }
}

/// All headers have to be at hand, and not one byte more.
#[test]
fn headers_that_are_not_at_hand_are_the_engines() {
    for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let whole = good(is_v6, is_tcp).head().len();
        assert!(answer(is_v6, is_tcp, Some(&Head(whole))).is_ok());
        for len in 0..whole {
            assert_eq!(answer(is_v6, is_tcp, Some(&Head(len))).err(), Some(Miss::Short), "{len}");
        }
    }
}

/// What is at the border of a rule, and inside.
#[test]
fn what_is_just_right_is_taken() {
    let cases: [(bool, Change); 9] = [
        (true, Change::Prediction(|next| next.edge = 39)),
        (true, Change::Prediction(|next| next.recent = Some(3))),
        (true, Change::Frame(|frame| frame.ack = 900)),
        (true, Change::Frame(|frame| frame.ack = 1_000)),
        (true, Change::Frame(|frame| frame.flags = 0x10)),
        (true, Change::Frame(|frame| frame.padding = 6)),
        (false, Change::Frame(|frame| frame.padding = 6)),
        (false, Change::Frame(|frame| frame.len = 100)),
        (false, Change::Prediction(|next| next.edge = 0)),
    ];
    for (is_tcp, change) in &cases {
        for is_v6 in [false, true] {
            answer(is_v6, *is_tcp, Some(change)).unwrap();
        }
    }
    // Version 4 alone allows datagrams without a checksum.
    let unchecked = Change::Frame(|frame| frame.has_sum = false);
    let (hit, _) = answer(false, false, Some(&unchecked)).unwrap();
    assert!(matches!(hit, Hit::Datagram(Datagram { check: Check::None, .. })));
    let marked = Change::Frame(|frame| frame.traffic_class = 3);
    let (hit, _) = answer(true, true, Some(&marked)).unwrap();
    assert!(matches!(hit, Hit::Segment(Segment { ecn: Ecn::CongestionExperienced, .. })));
}
