//! How the kernel treats bursts of frames, one rule a test, over a cable
//! between two namespaces. As an ordinary user each test skips with one line.

use std::net::UdpSocket;

use landfall_placement::{Duration, Instant, Span};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_transport::fault::Faults;
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::packet::Filter;
use landfall_transport::scatter::{Config, Descriptor, FRAME_MAX, Fate, Faulty, Outgoing, Socket};
use landfall_transport::{OpenError, Privilege};

use crate::support::packet::{EXPERIMENTAL, IPV4, cable, numbered_frame, wait_for_link};
use crate::support::scatter::{Receiver, open, pages, socket};
use crate::support::{assert_same, become_nobody, pattern};

/// The frames of one kind, of one end for the other.
fn to_send<'a>(heads: &'a [Vec<u8>], payloads: &[Span]) -> Vec<Outgoing<'a>> {
    heads.iter().zip(payloads).map(|(head, payload)| Outgoing { head, payload: *payload }).collect()
}

#[test]
fn a_burst_goes_where_it_was_posted_in_its_order() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = pages(64 << 10);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    // 14 + 4 bytes of head; payloads of different lengths, one of them empty.
    let lengths = [1000, 0, 1, 1478, 42, 700, 1496];
    let sent = pattern(64 << 10, 7);
    regions.write(&region.span(0, 64 << 10), &sent).unwrap();
    let heads: Vec<_> = (0..300u32)
        .map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number)[..18].to_vec())
        .collect();
    let payloads: Vec<_> = (0..300u64)
        .map(|number| region.span(number * 97, lengths[number as usize % lengths.len()]))
        .collect();
    let frames = to_send(&heads, &payloads);
    assert_eq!(at_a.send(Instant::ZERO, &frames).unwrap(), 300);
    assert_eq!(at_a.counters().units_sent, 300);
    assert!(at_a.counters().send_calls <= 10, "many a call: {:?}", at_a.counters());
    let arrived = at_b.receive(300, |slot| {
        // Guesses of every kind: none, too short, just right, too long.
        let place = [0, 500, 1478, 2000][slot % 4];
        Descriptor { head_len: 18, place: Span { len: place, ..Span::default() } }
    });
    for ((frame, head), payload) in arrived.iter().zip(&heads).zip(&payloads) {
        let from = payload.offset as usize;
        let mut expected = [head, &sent[from..from + payload.len as usize]].concat();
        expected.resize(expected.len().max(frame.len().min(60)), 0);
        assert_same(frame, &expected);
    }
    assert!(at_b.calls() <= 20, "many a call: {}", at_b.calls());
    assert_eq!(at_b.socket.statistics().unwrap().dropped, 0);
    assert_eq!(at_b.socket.statistics().unwrap().frames, 300);
}

#[test]
fn the_longest_frame_fits_whatever_was_guessed() {
    require_namespaces!();
    let config = VethConfig { mtu: 65_535, ..VethConfig::default() };
    let cable = VethPair::new(config).unwrap();
    wait_for_link(&cable);
    let (regions, region) = pages(1 << 17);
    let sent = pattern(65_531, 3);
    regions.write(&region.span(0, 65_531), &sent).unwrap();
    let head = numbered_frame(&cable.b, EXPERIMENTAL, 1)[..18].to_vec();
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    for place in [0, 1, 4096] {
        let frame = Outgoing { head: &head, payload: region.span(0, 65_531) };
        assert_eq!(at_a.send(Instant::ZERO, &[frame]).unwrap(), 1);
        let place = Span { len: place, ..Span::default() };
        let arrived = at_b.receive(1, |_| Descriptor { head_len: 34, place });
        assert_same(&arrived[0], &[&head[..], &sent].concat());
        assert!(arrived[0].len() < FRAME_MAX as usize);
    }
}

#[test]
fn pieces_that_the_kernel_cut_land_one_after_another_in_a_page() {
    require_namespaces!();
    let cable = cable();
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([IPV4]).fragments());
    let sent = pattern(4088, 11);
    let (from, to) = ((cable.a.ipv4, 9000), (cable.b.ipv4, 9001));
    let sender = cable.a.namespace.enter(|| UdpSocket::bind(from).unwrap()).unwrap();
    // Too short for fragments: the filter keeps it away.
    sender.send_to(&sent[..100], to).unwrap();
    sender.send_to(&sent, to).unwrap();
    let (regions, page) = (at_b.regions.clone(), at_b.region);
    let posted = [(42, 0, 1472), (34, 1472, 1480), (34, 2952, 1136)]
        .map(|(head_len, offset, len)| Descriptor { head_len, place: page.span(offset, len) });
    let lens = at_b.receive_into(&posted);
    assert_eq!(lens, [1514, 1514, 34 + 1136]);
    assert_eq!(at_b.posted.memory().bytes_copied(), 0);
    let ports = &at_b.posted.head(0)[34..38];
    assert_eq!(ports, [9000u16.to_be_bytes(), 9001u16.to_be_bytes()].concat());
    let mut arrived = vec![0; 4088];
    regions.read(&page.span(0, 4088), &mut arrived).unwrap();
    assert_same(&arrived, &sent);
}

#[test]
fn only_what_is_for_this_station_is_heard() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = pages(64);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let tagged = |tag: u16, number| {
        let mut frame = numbered_frame(&cable.b, EXPERIMENTAL, number);
        let [high, low] = tag.to_be_bytes();
        frame.splice(12..12, [0x81, 0x00, high, low]);
        frame
    };
    let mut to_others = numbered_frame(&cable.b, EXPERIMENTAL, 3);
    to_others[..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    let mut to_all = numbered_frame(&cable.b, EXPERIMENTAL, 4);
    to_all[..6].fill(0xff);
    let frames = [
        numbered_frame(&cable.b, 0x88b7, 0),
        tagged(0x0005, 1),
        tagged(0xa005, 2),
        to_others,
        to_all,
        tagged(0xa000, 5),
        numbered_frame(&cable.b, EXPERIMENTAL, 6),
    ];
    for behind_hooks in [false, true] {
        let config = Config::new(cable.b.name.as_str(), Filter::ethertypes([EXPERIMENTAL]));
        let config = if behind_hooks { config.behind_hooks(EXPERIMENTAL) } else { config };
        let mut at_b = Receiver::open_as(&cable.b, &config).unwrap();
        // What it sends itself, it does not hear.
        let own = numbered_frame(&cable.a, EXPERIMENTAL, 9);
        let own = Outgoing { head: &own, payload: Span::default() };
        assert_eq!(at_b.socket.send(Instant::ZERO, &[own]).unwrap(), 1);
        let none = vec![Span::default(); frames.len()];
        assert_eq!(at_a.send(Instant::ZERO, &to_send(&frames, &none)).unwrap(), frames.len());
        let arrived = at_b.receive(3, |_| Descriptor { head_len: 256, place: Span::default() });
        let numbers: Vec<_> = arrived.iter().map(|frame| frame[17]).collect();
        assert_eq!(numbers, [4, 5, 6], "behind hooks: {behind_hooks}");
        assert_eq!(at_b.posted.lens().len(), at_b.last, "nothing else");
    }
}

#[test]
fn a_station_of_ones_own_is_heard() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = pages(64);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let station = [2, 0, 0, 7, 7, 7];
    let mut at_b = Receiver::open(&cable.b, Filter::any().station(station));
    let mut wanted = numbered_frame(&cable.b, EXPERIMENTAL, 2);
    wanted[..6].copy_from_slice(&station);
    let frames = [numbered_frame(&cable.b, EXPERIMENTAL, 1), wanted];
    assert_eq!(at_a.send(Instant::ZERO, &to_send(&frames, &[Span::default(); 2])).unwrap(), 2);
    let arrived = at_b.receive(1, |_| Descriptor { head_len: 60, place: Span::default() });
    assert_eq!(arrived[0][17], 2);
}

#[test]
fn what_cannot_be_sent_is_lost_and_the_rest_leaves() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = pages(4096);
    let gone = regions.lend(Memory::zeroed(100), Rights::READ).unwrap();
    regions.take_back(gone).unwrap();
    let unreadable = regions.lend(Memory::zeroed(100), Rights::WRITE).unwrap();
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    let heads: Vec<_> =
        (0..8).map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number)).collect();
    let nothing = Span::default();
    let frames = [
        Outgoing { head: &heads[0], payload: nothing },
        // Longer than the MTU.
        Outgoing { head: &heads[1], payload: region.span(0, 2000) },
        Outgoing { head: &heads[2], payload: gone.span(0, 100) },
        Outgoing { head: &heads[3], payload: nothing },
        Outgoing { head: &heads[4], payload: unreadable.span(0, 100) },
        Outgoing { head: &heads[5][..13], payload: region.span(0, 100) },
        Outgoing { head: &heads[6], payload: region.span(4000, 100) },
        Outgoing { head: &heads[7], payload: nothing },
    ];
    assert_eq!(at_a.send(Instant::ZERO, &frames).unwrap(), frames.len());
    assert_eq!((at_a.counters().units_sent, at_a.counters().send_failed), (3, 5));
    let arrived = at_b.receive(3, |_| Descriptor { head_len: 60, place: nothing });
    let numbers: Vec<_> = arrived.iter().map(|frame| frame[17]).collect();
    assert_eq!(numbers, [0, 3, 7]);
}

#[test]
fn an_interface_that_is_down_loses_frames_and_comes_back() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = pages(64);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    cable.b.set_up(false).unwrap();
    let anything = |_| Descriptor { head_len: 60, place: Span::default() };
    assert_eq!(at_b.try_receive(anything), 0, "that is no error");
    cable.a.set_up(false).unwrap();
    let lost = numbered_frame(&cable.b, EXPERIMENTAL, 1);
    let lost = Outgoing { head: &lost, payload: Span::default() };
    assert_eq!(at_a.send(Instant::ZERO, &[lost]).unwrap(), 1);
    assert_eq!(at_a.counters().send_failed, 1);
    cable.a.set_up(true).unwrap();
    cable.b.set_up(true).unwrap();
    wait_for_link(&cable);
    let frame = numbered_frame(&cable.b, EXPERIMENTAL, 2);
    let frame = Outgoing { head: &frame, payload: Span::default() };
    assert_eq!(at_a.send(Instant::ZERO, &[frame]).unwrap(), 1);
    let arrived = at_b.receive(1, anything);
    assert_eq!(arrived[0][17], 2);
    assert_eq!(at_a.counters().send_failed, 1);
}

#[test]
fn a_removed_interface_is_an_error() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = pages(64);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let frame = numbered_frame(&cable.b, EXPERIMENTAL, 1);
    drop(cable);
    let frame = Outgoing { head: &frame, payload: Span::default() };
    at_a.send(Instant::ZERO, &[frame]).unwrap_err();
}

#[test]
fn a_flood_is_counted_where_it_is_dropped() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = pages(64);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut config = Config::new(cable.b.name.as_str(), Filter::ethertypes([EXPERIMENTAL]));
    config.socket_buffer = 1;
    let mut at_b = Receiver::open_as(&cable.b, &config).unwrap();
    let frame = numbered_frame(&cable.b, EXPERIMENTAL, 1);
    let frames = vec![Outgoing { head: &frame, payload: Span::default() }; 1000];
    assert_eq!(at_a.send(Instant::ZERO, &frames).unwrap(), 1000);
    let anything = |_| Descriptor { head_len: 60, place: Span::default() };
    let mut heard = 0;
    while let more @ 1.. = at_b.try_receive(anything) {
        heard += more;
    }
    let counted = at_b.socket.statistics().unwrap();
    assert_eq!((counted.frames, counted.dropped), (1000, 1000 - heard as u64));
    assert!(counted.dropped > 0);
    assert_eq!(at_b.socket.statistics().unwrap(), counted, "the sum, however often one asks");
}

#[test]
fn super_packets_of_the_kernel_are_frames_like_others() {
    require_namespaces!();
    let cable = cable();
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([IPV4]));
    let server =
        cable.b.namespace.enter(|| std::net::TcpListener::bind((cable.b.ipv4, 9002)).unwrap());
    let server = server.unwrap();
    let address = server.local_addr().unwrap();
    let sent = pattern(500_000, 5);
    let reader = std::thread::spawn(move || {
        let mut stream = server.accept().unwrap().0;
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let connect = || std::net::TcpStream::connect(address).unwrap();
    let mut stream = cable.a.namespace.enter(connect).unwrap();
    std::io::Write::write_all(&mut stream, &sent).unwrap();
    drop(stream);
    assert_eq!(reader.join().unwrap(), 500_000);
    // Whatever was heard of it is whole.
    let anything = |_| Descriptor { head_len: 54, place: Span::default() };
    let mut bytes = 0;
    while at_b.try_receive(anything) > 0 {
        for frame in at_b.gathered() {
            let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            assert!(frame.len() == 14 + total || total == 0 && frame.len() > 65_535);
            bytes += frame.len();
        }
    }
    assert!(bytes > 500_000);
    assert_eq!(at_b.socket.counters().malformed, 0);
}

#[test]
fn what_is_missing_is_said() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(4);
    let filter = Filter::any();
    let none = open(&cable.b, &Config::new("none", filter.clone()), &regions).unwrap_err();
    assert!(matches!(none, OpenError::NoInterface(_)), "{none}");
    let name = cable.b.name.as_str();
    let wrong = Config::new(name, filter.clone()).behind_hooks(5);
    let wrong = open(&cable.b, &wrong, &regions).unwrap_err();
    assert!(matches!(wrong, OpenError::NotAnEthertype(5)), "{wrong}");
    let config = Config::new(name, filter);
    let denied = cable.b.namespace.enter(|| {
        become_nobody();
        Socket::open(&config, &regions).map(drop)
    });
    let denied = denied.unwrap().unwrap_err();
    assert!(matches!(denied, OpenError::NoPrivilege(Privilege::PacketSockets)), "{denied}");
}

#[test]
fn what_gives_way_has_the_priority_of_bulk() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(8);
    let mut socket = socket(&cable.a, Filter::ethertypes([EXPERIMENTAL]), &regions);
    for (gives_way, expected) in [(true, 2), (false, 0)] {
        socket.give_way(gives_way).unwrap();
        let (mut priority, mut len): (libc::c_int, _) = (-1, size_of::<libc::c_int>() as u32);
        // SAFETY: the descriptor is open, and the kernel writes an int into one.
        let done = unsafe {
            let into = (&raw mut priority).cast();
            libc::getsockopt(
                socket.interest().fd,
                libc::SOL_SOCKET,
                libc::SO_PRIORITY,
                into,
                &mut len,
            )
        };
        assert_eq!((done, priority), (0, expected));
    }
}

// Frames that meet their fate on the way out. As an ordinary user each test
// skips with one line.

fn anything(_: usize) -> Descriptor {
    Descriptor { head_len: 60, place: Span::default() }
}

fn heads(to: &VethEnd, count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| numbered_frame(to, EXPERIMENTAL, number)).collect()
}

#[test]
fn each_frame_meets_the_fate_that_was_decided() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = pages(64);
    regions.write(&region.span(0, 8), b"payload.").unwrap();
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    let mut faulty = Faulty::new(&regions, |number, frame| {
        assert_eq!(frame[17], number as u8, "numbered as they are given");
        assert_eq!(&frame[60..], b"payload.");
        match number {
            1 => Fate::Lost,
            2 => Fate::Twice,
            3 => Fate::Late(2),
            // The lowest bit of the number's last byte.
            5 => Fate::Flipped(17 * 8),
            7 => Fate::Late(100),
            _ => Fate::Leaves,
        }
    });
    let heads = heads(&cable.b, 8);
    let payload = region.span(0, 8);
    let frames: Vec<_> = heads.iter().map(|head| Outgoing { head, payload }).collect();
    assert_eq!(faulty.send(&mut at_a, Instant::ZERO, &frames).unwrap(), 8);
    let numbers = |frames: Vec<Vec<u8>>| frames.iter().map(|frame| frame[17]).collect::<Vec<_>>();
    assert_eq!(numbers(at_b.receive(7, anything)), [0, 2, 2, 4, 4, 3, 6]);
    assert_eq!(faulty.held(), 1);
    let due = faulty.poll_timeout().unwrap();
    faulty.send(&mut at_a, Instant::ZERO, &[]).unwrap();
    assert_eq!(faulty.held(), 1, "not yet");
    faulty.send(&mut at_a, due, &[]).unwrap();
    assert_eq!(numbers(at_b.receive(1, anything)), [7]);
    assert_eq!((faulty.held(), faulty.poll_timeout()), (0, None));
    let counts = faulty.counts();
    assert_eq!((counts.units, counts.lost, counts.duplicated), (8, 1, 1));
    assert_eq!((counts.reordered, counts.corrupted), (2, 1));
}

#[test]
fn chance_is_the_same_for_the_same_seed() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = pages(64);
    let heads = heads(&cable.b, 1000);
    let frames: Vec<_> =
        heads.iter().map(|head| Outgoing { head, payload: Span::default() }).collect();
    let faults = Faults {
        loss: 50_000,
        duplication: 50_000,
        reordering: 50_000,
        corruption: 50_000,
        ..Faults::default()
    };
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut run = |seed: u8| {
        let mut at_b = Receiver::open(&cable.b, Filter::any());
        let mut faulty = Faulty::by_chance(&regions, faults, [seed; 32]);
        faulty.send(&mut at_a, Instant::ZERO, &frames).unwrap();
        faulty.send(&mut at_a, Instant::ZERO + Duration::from_secs(1), &[]).unwrap();
        assert_eq!(faulty.held(), 0);
        let counts = faulty.counts();
        // Damaged ones may be for another station by now.
        let least = 1000 - counts.lost + counts.duplicated - counts.corrupted;
        at_b.receive(least as usize, anything);
        counts
    };
    let first = run(1);
    assert_eq!(run(1), first);
    assert_ne!(run(2), first);
    for share in [first.lost, first.duplicated, first.reordered, first.corrupted] {
        assert!((20..90).contains(&share), "{first:?}");
    }
}
