//! How the kernel treats XDP sockets, one rule a test, over a cable between two
//! namespaces. As an ordinary user each test skips with one line.

use crate::support;
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::support::packet::xdp::{MODES, open, open_as, require_xdp};
use crate::support::packet::{
    EXPERIMENTAL, cable, cable_of, numbered_frame, open_sender, send_frames,
};
use crate::support::transfer::PATH;
use crate::support::{
    LABEL, PATIENCE, Scripted, assert_same, become_nobody, contents, labelled_head, lent, pattern,
    turn_until,
};
use landfall_placement::{
    Check, Guess, Instant, Landing, Peer, Placement, Random, Ticket, WordFunction, WordOp,
    WordWidth,
};
use landfall_testbed::VethEnd;
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::packet::{Filter, Framing};
use landfall_transport::xdp::{self, Attach, XdpConfig, XdpDriver};
use landfall_transport::{Driver, Feature, OpenError, Privilege};

/// Hears everything.
fn listener() -> Scripted {
    Scripted::new(|_, _| Ok(Placement::Consumed))
}

/// The numbers behind the headers of frames that were seen.
fn numbers_seen(engine: &Scripted) -> Vec<u32> {
    let numbers = engine.seen.iter().map(|(_, head, _)| head[..4].try_into().unwrap());
    numbers.map(u32::from_be_bytes).collect()
}

fn station(end: &VethEnd) -> Peer {
    Peer::Ethernet(end.mac.0)
}

/// Turns until `units` have left.
fn send_all(driver: &mut XdpDriver, engine: &mut Scripted, units: usize) {
    turn_until(driver, engine, |engine, _| engine.sent.len() == units);
}

#[test]
fn many_frames_leave_with_few_calls_and_arrive_without_one() {
    require_xdp!();
    let cable = cable();
    let message = pattern(200 * 1024, 1);
    for attach in MODES {
        let (send_regions, source) = lent(&message, Rights::READ);
        let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
        let mut sender = open(&cable.a, attach, &send_regions);
        let mut receiver = open(&cable.b, attach, &regions);
        let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
        from.send_labelled(station(&cable.b), source.span(0, 200 * 1024), 1024);
        turn_until(&mut sender, &mut from, |from, _| {
            receiver.turn(&mut to, Instant::ZERO).unwrap();
            from.sent.len() == 200
        });
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 200);
        assert!(to.seen.iter().all(|(peer, ..)| *peer == station(&cable.a)));
        assert!(sender.counters().send_calls < 200, "{:?}", sender.counters());
        assert_eq!(sender.counters().bytes_copied, 200 * 1024);
        assert_eq!(receiver.counters().bytes_copied, 200 * 1024);
        assert_same(&contents(&regions, target), &message);
    }
}

#[test]
fn guesses_are_not_asked_for_and_placements_of_all_kinds_work() {
    require_xdp!();
    let cable = cable();
    let bytes = pattern(1400, 13);
    let (send_regions, source) = lent(&bytes, Rights::READ);
    let (regions, target) = lent(&[0; 4096], Rights::ALL);
    let mut sender = open(&cable.a, Attach::Auto, &send_regions);
    let mut receiver = open(&cable.b, Attach::Auto, &regions);
    let expected = bytes.clone();
    let mut nth = 0;
    let mut to = Scripted::new(move |unit, into| {
        let ticket = Ticket::from_raw(nth);
        match nth {
            // A head that is longer than what is at hand.
            0 if unit.head.len() < 700 => Ok(Placement::NeedHead(700)),
            0 => {
                assert_eq!(unit.head[..700], expected[..700]);
                nth += 1;
                into.push(target.span(0, 300)).unwrap();
                into.push(target.span(1000, 400)).unwrap();
                Ok(Placement::Into { at: 700, check: Check::None, ticket })
            }
            // More head than there is.
            1 => {
                nth += 1;
                Ok(Placement::NeedHead(1401))
            }
            _ => {
                nth += 1;
                let (region, width) = (target, WordWidth::Eight);
                let function = WordFunction::Add(5);
                Ok(Placement::Word(WordOp { region, offset: 2048, width, function }, ticket))
            }
        }
    });
    to.guesses = vec![Guess { span: target.span(3000, 1000), head_len: 40, payload_len: 1000 }];
    let mut from = Scripted::sender();
    for _ in 0..4 {
        from.send(station(&cable.b), Vec::new(), &[source.span(0, 1400)]);
    }
    send_all(&mut sender, &mut from, 4);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 3);
    let landings: Vec<_> = to.landings.iter().map(|(_, landing)| *landing).collect();
    assert_eq!(landings, [Landing::Unchecked, Landing::Old(0), Landing::Old(5)]);
    assert_eq!(receiver.counters().malformed, 1);
    let memory = contents(&regions, target);
    assert_same(&memory[..300], &bytes[700..1000]);
    assert_same(&memory[1000..1400], &bytes[1000..]);
    assert_eq!(memory[3000..4000], [0; 1000]);
}

#[test]
fn other_traffic_goes_on_to_the_kernel() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        let (regions, _) = lent(&[0], Rights::WRITE);
        let _paths = [open(&cable.a, attach, &regions), open(&cable.b, attach, &regions)];
        // TCP, and the ARP or neighbour discovery that may go before it.
        let address = (cable.b.ipv4, 7000);
        let listening = cable.b.namespace.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let talk = || {
            let mut stream = TcpStream::connect_timeout(&address.into(), PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            std::io::Write::write_all(&mut stream, &pattern(100_000, 2)).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
            assert_eq!(answer, b"thank you");
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listening.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
                assert_same(&bytes, &pattern(100_000, 2));
                std::io::Write::write_all(&mut stream, b"thank you").unwrap();
            });
            cable.a.namespace.enter(talk).unwrap();
        });
    }
}

#[test]
fn only_whole_frames_of_the_ethertype_to_this_station_are_heard() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        let (regions, _) = lent(&[0], Rights::WRITE);
        let mut receiver = open(&cable.b, attach, &regions);
        let (mut sender, mut from) = open_sender(&cable.a);
        let frame = |number| numbered_frame(&cable.b, EXPERIMENTAL, number);
        let mut foreign = frame(3);
        foreign[5] ^= 0x10;
        let mut broadcast = frame(4);
        broadcast[..6].fill(0xff);
        let mut tagged = frame(5);
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
        let header_alone = frame(6)[..14].to_vec();
        let other = numbered_frame(&cable.b, 0x88b6, 1);
        let swapped = numbered_frame(&cable.b, EXPERIMENTAL.swap_bytes(), 2);
        let frames = [other, swapped, foreign, broadcast, tagged, frame(7)];
        send_frames(&mut sender, &mut from, frames);
        send_frames(&mut sender, &mut from, [header_alone, frame(8)]);
        let mut to = listener();
        turn_until(&mut receiver, &mut to, |to, _| {
            to.seen.last().is_some_and(|(_, head, _)| head.starts_with(&[0, 0, 0, 8]))
        });
        let lengths: Vec<_> = to.seen.iter().map(|(_, _, len)| *len).collect();
        assert_eq!(receiver.counters().malformed, 1, "to another station");
        to.seen.retain(|(_, head, _)| head.len() >= 4);
        assert_eq!(numbers_seen(&to), [4, 7, 8], "{attach:?} {lengths:?}");
    }
}

#[test]
fn packet_sockets_at_the_other_end_are_understood() {
    require_xdp!();
    let cable = cable();
    let message = pattern(1000, 3);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&[0; 1000], Rights::WRITE);
    let framing = Framing::Payload { ethertype: EXPERIMENTAL };
    let mut packet =
        support::packet::open_as(&cable.a, framing, &send_regions, |config| config).unwrap();
    let mut xdp = open(&cable.b, Attach::Auto, &regions);
    let (mut at_packet, mut at_xdp) = (listener(), Scripted::labelled(target));
    at_packet.send_labelled(station(&cable.b), source.span(0, 1000), 1000);
    turn_until(&mut packet, &mut at_packet, |engine, _| engine.sent.len() == 1);
    turn_until(&mut xdp, &mut at_xdp, |engine, _| engine.landings.len() == 1);
    assert_eq!(at_xdp.seen[0].0, Peer::Ethernet(packet.station()));
    // And back: anyone who sent can be answered.
    at_xdp.send(at_xdp.seen[0].0, vec![9; 50], &[]);
    send_all(&mut xdp, &mut at_xdp, 1);
    turn_until(&mut packet, &mut at_packet, |engine, _| engine.seen.len() == 1);
    assert_eq!(at_packet.seen[0], (Peer::Ethernet(xdp.station()), vec![9; 50], 50));
    assert_same(&contents(&regions, target), &message);
}

#[test]
fn the_unit_fills_a_frame_and_one_byte_more_is_lost() {
    require_xdp!();
    for mtu in [1500, 3800, 4096, 9000] {
        let cable = cable_of(mtu);
        for attach in MODES {
            let (send_regions, source) = lent(&pattern(10_000, 6), Rights::READ);
            let (regions, target) = lent(&[0; 10_000], Rights::WRITE);
            let mut sender = open(&cable.a, attach, &send_regions);
            let mut receiver = open(&cable.b, attach, &regions);
            assert_eq!((sender.mtu(), sender.limits().unit), (mtu, mtu), "in parts if need be");
            let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
            for len in [mtu + 1, mtu] {
                let payload = source.span(0, len - LABEL as u32);
                from.send(station(&cable.b), labelled_head(0), &[payload]);
            }
            send_all(&mut sender, &mut from, 2);
            turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
            assert_eq!((sender.counters().send_failed, sender.counters().units_sent), (1, 1));
            let payload = mtu as usize - LABEL;
            assert_same(&contents(&regions, target)[..payload], &pattern(10_000, 6)[..payload]);
        }
    }
}

#[test]
fn sums_are_checked_across_chunks() {
    require_xdp!();
    let cable = cable_of(9000);
    let payload = pattern(8191, 12);
    for corrupt in [false, true] {
        let (send_regions, source) = lent(&payload, Rights::READ);
        let (regions, target) = lent(&[0; 8192], Rights::WRITE);
        let mut sender = open(&cable.a, Attach::Auto, &send_regions);
        let mut receiver = open(&cable.b, Attach::Auto, &regions);
        let mut sum = landfall_placement::InternetSum::new();
        sum.add(&payload);
        let seed = if corrupt { 0 } else { sum.checksum() };
        let mut to = Scripted::new(move |_, into| {
            into.push(target.span(1, 8191)).unwrap();
            let check = Check::InternetSum { from: LABEL as u16, len: 8191, seed };
            Ok(Placement::Into { at: LABEL as u16, check, ticket: Ticket::from_raw(1) })
        });
        let mut from = Scripted::sender();
        from.send(station(&cable.b), labelled_head(0), &[source.span(0, 8191)]);
        send_all(&mut sender, &mut from, 1);
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
        let arrived = contents(&regions, target);
        if corrupt {
            assert_eq!(to.landings[0].1, Landing::Corrupt);
            assert_eq!(arrived, [0; 8192], "never written");
        } else {
            assert_eq!(to.landings[0].1, Landing::Verified);
            assert_same(&arrived[1..], &payload);
        }
    }
}

#[test]
fn more_frames_than_there_is_room_for_wait() {
    require_xdp!();
    let cable = cable();
    let small = |config: XdpConfig| XdpConfig { frames: 64, ..config };
    let message = pattern(1000 * 1000, 8);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
    let mut sender = open_as(&cable.a, &send_regions, small).unwrap();
    let mut receiver = open_as(&cable.b, &regions, small).unwrap();
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
    from.send_labelled(station(&cable.b), source.span(0, 1_000_000), 1000);
    let clock = landfall_transport::Clock::start();
    turn_until(&mut receiver, &mut to, |_, _| {
        // Frames go round many times; none that a turn could not send is lost here.
        sender.turn(&mut from, clock.now()).unwrap();
        from.sent.len() == 1000
    });
    assert_eq!(sender.counters().units_sent, 1000);
    assert_eq!(sender.counters().send_failed, 0);
}

#[test]
fn units_that_cannot_be_sent_are_lost_not_fatal() {
    require_xdp!();
    let cable = cable();
    let (regions, region) = lent(&[0; 4096], Rights::READ);
    let mut sender = open(&cable.a, Attach::Auto, &regions);
    let mut receiver = open(&cable.b, Attach::Auto, &regions);
    let mut from = Scripted::sender();
    from.send(Peer::Unaddressed, vec![0; 8], &[]);
    from.send(Peer::Node(3), vec![0; 8], &[]);
    from.send(Peer::Ip(cable.b.ipv4.into()), vec![0; 8], &[]);
    from.send(station(&cable.b), vec![0; 8], &[region.span(4000, 1000)]);
    from.send(station(&cable.b), vec![0; 8], &[region.span(0, 4000)]);
    from.send(station(&cable.b), vec![7; 8], &[]);
    send_all(&mut sender, &mut from, 6);
    assert_eq!((sender.counters().send_failed, sender.counters().units_sent), (5, 1));
    let mut to = listener();
    turn_until(&mut receiver, &mut to, |to, _| !to.seen.is_empty());
    assert_eq!(to.seen[0].1, [7; 8]);
}

#[test]
fn invariant_3_junk_is_refused_and_changes_nothing() {
    require_xdp!();
    for (attach, mtu) in MODES.into_iter().zip([1500, 9000]) {
        let cable = cable_of(mtu);
        let (regions, target) = lent(&vec![0; 1 << 16], Rights::WRITE);
        let canary = pattern(1 << 12, 14);
        let canary_id = regions.lend(Memory::from_bytes(&canary), Rights::READ).unwrap();
        let mut receiver = open(&cable.b, attach, &regions);
        let mut random = Random::from_number(14);
        let junk: Vec<u8> = (0..20_000).map(|_| random.next_u32() as u8 | 0x80).collect();
        let (junk_regions, junk) = lent(&junk, Rights::READ);
        let mut sender =
            support::packet::open(&cable.a, Filter::ethertypes([0xffff]), &junk_regions);
        let mut from = Scripted::sender();
        let mut to = Scripted::labelled(target);
        for n in 0..200usize {
            let len = [0, 1, 7, 8, 9, 46, 508, 1500, mtu - 1, mtu][n % 10];
            let header = numbered_frame(&cable.b, EXPERIMENTAL, 0)[..14].to_vec();
            let payload = junk.span(random.below(10_000), len);
            from.send(Peer::Unaddressed, header, &[payload]);
            turn_until(&mut sender, &mut from, |from, _| from.sent.len() == n + 1);
            let refused = n as u64 + 1;
            turn_until(&mut receiver, &mut to, |_, driver| driver.counters().refused == refused);
        }
        assert!(to.landings.is_empty());
        assert!(contents(&regions, target).iter().all(|byte| *byte == 0));
        assert_same(&contents(&regions, canary_id), &canary);
    }
}

#[test]
fn a_path_that_is_dropped_leaves_nothing_behind() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        let (regions, _) = lent(&[0], Rights::WRITE);
        for round in 0..5 {
            let mut receiver = open(&cable.b, attach, &regions);
            let (mut sender, mut from) = open_sender(&cable.a);
            let frame = |number| numbered_frame(&cable.b, EXPERIMENTAL, number);
            send_frames(&mut sender, &mut from, [frame(round)]);
            let mut to = listener();
            turn_until(&mut receiver, &mut to, |to, _| !to.seen.is_empty());
            assert_eq!(numbers_seen(&to), [round]);
            drop(receiver);
            // The kernel's own sockets hear the frames again.
            let filter = Filter::ethertypes([EXPERIMENTAL]);
            let mut plain = support::packet::open(&cable.b, filter, &regions);
            send_frames(&mut sender, &mut from, [frame(100 + round)]);
            let mut to = listener();
            turn_until(&mut plain, &mut to, |to, _| !to.seen.is_empty());
            assert_eq!(support::packet::numbers_seen(&to), [100 + round]);
        }
    }
}

#[test]
fn a_second_path_over_an_interface_is_refused_in_clear_words() {
    require_xdp!();
    let cable = cable();
    let regions = Regions::new(1);
    for attach in MODES {
        let _first = open(&cable.b, attach, &regions);
        for other in [Attach::Auto, Attach::Driver, Attach::Generic] {
            let again = |config| XdpConfig { attach: other, ..config };
            let error = open_as(&cable.b, &regions, again).unwrap_err();
            assert!(matches!(&error, OpenError::ProgramInUse(_)), "{error}");
            assert!(error.to_string().contains("has an XDP program already"));
            assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::ResourceBusy);
        }
    }
    drop(open(&cable.b, Attach::Auto, &regions));
}

#[test]
fn an_interface_may_go_down_and_come_up_but_not_away() {
    require_xdp!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let clock = landfall_transport::Clock::start();
    let mut sender = open(&cable.a, Attach::Auto, &regions);
    let mut receiver = open(&cable.b, Attach::Auto, &regions);
    let (mut from, mut to) = (Scripted::sender(), listener());
    cable.a.set_up(false).unwrap();
    from.send(station(&cable.b), vec![1; 8], &[]);
    sender.turn(&mut from, clock.now()).unwrap();
    cable.a.set_up(true).unwrap();
    turn_until(&mut receiver, &mut to, |to, _| {
        from.send(station(&cable.b), vec![2; 8], &[]);
        sender.turn(&mut from, clock.now()).unwrap();
        to.seen.iter().any(|(_, head, _)| head == &[2; 8])
    });
    drop(cable);
    let deadline = clock.now() + PATIENCE;
    let error = loop {
        assert!(clock.now() < deadline, "nobody noticed that the interface is gone");
        from.send(Peer::Ethernet([2; 6]), vec![3; 8], &[]);
        if let Err(error) = sender.turn(&mut from, clock.now()) {
            break error;
        }
    };
    assert!(matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENETDOWN)), "{error}");
}

#[test]
fn what_the_device_can_do_is_told() {
    require_xdp!();
    let cable = cable();
    let regions = Regions::new(1);
    for (attach, words) in MODES.into_iter().zip(["runs the program, but copies", "has no XDP"]) {
        let driver = open(&cable.a, attach, &regions);
        let missing = driver.capabilities().require(Feature::ZeroCopyRings).unwrap_err();
        assert!(missing.to_string().contains(words), "{missing}");
        let missing = driver.capabilities().require(Feature::DirectPlacement).unwrap_err();
        assert!(missing.to_string().contains("copied once"), "{missing}");
        assert_eq!(driver.station(), cable.a.mac.0);
        assert_ne!(driver.interests()[0].fd, -1);
    }
}

#[test]
fn what_is_not_possible_is_told_in_clear_words() {
    require_xdp!();
    let cable = cable();
    let regions = Regions::new(1);
    let fail = |adjust: fn(XdpConfig) -> XdpConfig| {
        open_as(&cable.a, &regions, adjust).map(drop).unwrap_err()
    };
    let error = fail(|config| XdpConfig { interface: "eth77".into(), ..config });
    assert!(error.to_string().contains("no interface eth77 in this network namespace"), "{error}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
    let error = fail(|config| XdpConfig { queue: 77, ..config });
    assert!(matches!(error, OpenError::NoQueue { queue: 77, .. }), "{error}");
    let error = fail(|config| XdpConfig { queue: u32::MAX, ..config });
    assert!(!error.to_string().is_empty());
    let error =
        fail(|config| XdpConfig { framing: xdp::Framing::Payload { ethertype: 3 }, ..config });
    assert!(matches!(error, OpenError::NotAnEthertype(3)), "{error}");
    for frames in [0, 32, 100, 1 << 17, u32::MAX] {
        let many = |config| XdpConfig { frames, ..config };
        let error = open_as(&cable.a, &regions, many).unwrap_err();
        assert!(matches!(error, OpenError::BadFrameCount(count) if count == frames), "{error}");
    }
    let on_loopback =
        |config| XdpConfig { interface: "lo".into(), attach: Attach::Driver, ..config };
    let error = open_as(&cable.a, &regions, on_loopback).unwrap_err();
    assert!(matches!(error, OpenError::NoDriverMode { .. }), "{error}");
    assert!(error.to_string().contains("Attach::Generic"), "{error}");
}

#[test]
fn without_the_privilege_the_error_says_how_to_get_it() {
    require_xdp!();
    let opened = thread::spawn(|| {
        become_nobody();
        let config = XdpConfig::new("lo", EXPERIMENTAL);
        XdpDriver::open(PATH, &config, &Regions::new(1)).map(drop)
    });
    let error = opened.join().unwrap().unwrap_err();
    assert!(matches!(error, OpenError::NoPrivilege(Privilege::Xdp)), "{error}");
    assert!(error.to_string().contains("CAP_NET_ADMIN"));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_grant_that_ended_is_refused_in_both_directions() {
    require_xdp!();
    let cable = cable();
    let (regions, target) = lent(&[0; 4096], Rights::WRITE | Rights::READ);
    let mut receiver = open(&cable.b, Attach::Auto, &regions);
    let mut to = Scripted::labelled(target);
    assert_eq!(contents(&regions, target), [0; 4096]);
    let (send_regions, source) = lent(&[7; 100], Rights::READ);
    let mut sender = open(&cable.a, Attach::Auto, &send_regions);
    let mut from = Scripted::sender();
    from.send(station(&cable.b), labelled_head(0), &[source.span(0, 100)]);
    send_all(&mut sender, &mut from, 1);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
    assert_eq!(to.landings[0].1, Landing::Failed);
    to.send(station(&cable.a), labelled_head(0), &[target.span(0, 100)]);
    send_all(&mut receiver, &mut to, 1);
    assert_eq!(receiver.counters().send_failed, 1);
}
