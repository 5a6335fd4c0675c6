//! Frames as they lie in the memory of AF_XDP rings. As an ordinary user each
//! test skips with one line.

use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use crate::support::packet::xdp::{MODES, require_xdp};
use crate::support::packet::{EXPERIMENTAL, cable, numbered_frame, open_sender, send_frames};
use crate::support::{PATIENCE, lent, pattern};
use landfall_placement::{Duration as Span, Instant};
use landfall_testbed::VethEnd;
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::scatter::Outgoing;
use landfall_transport::wait::until_ready;
use landfall_transport::xdp::{Attach, Burst, XdpConfig, XdpQueue};
use landfall_transport::{Feature, OpenError};

fn try_open(end: &VethEnd, regions: &Regions, config: &XdpConfig) -> Result<XdpQueue, OpenError> {
    end.namespace.enter(|| XdpQueue::open(config, regions)).unwrap()
}

fn open(end: &VethEnd, regions: &Regions, attach: Attach) -> XdpQueue {
    let config = XdpConfig { attach, frames: 64, ..XdpConfig::new(&*end.name, EXPERIMENTAL) };
    try_open(end, regions, &config).unwrap()
}

/// The next burst, which has to come.
fn next(queue: &mut XdpQueue) -> Burst {
    let started = StdInstant::now();
    loop {
        if let Some(burst) = queue.receive().unwrap() {
            return burst;
        }
        assert!(started.elapsed() < PATIENCE, "nothing came: {queue:?}");
        until_ready(&[queue.interest()], Span::from_millis(100)).unwrap();
    }
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// Bursts until this many frames have come.
fn gather(queue: &mut XdpQueue, count: usize) -> Vec<Burst> {
    let mut bursts = Vec::new();
    while bursts.iter().map(|burst: &Burst| burst.frames().len()).sum::<usize>() < count {
        bursts.push(next(queue));
    }
    bursts
}

fn numbers(bursts: &[Burst]) -> Vec<u32> {
    bursts.iter().flat_map(Burst::frames).map(|frame| number(frame.bytes)).collect()
}

#[test]
fn frames_are_named_by_where_they_lie() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        let regions = Regions::new(4);
        let mut queue = open(&cable.b, &regions, attach);
        assert_eq!((queue.station(), queue.mtu()), (cable.b.mac.0, 1500));
        assert!(queue.capabilities().has(Feature::BatchedReceive));
        assert!(queue.receive().unwrap().is_none());
        let (mut driver, mut engine) = open_sender(&cable.a);
        let frames = (0..40).map(|n| numbered_frame(&cable.b, EXPERIMENTAL, n));
        send_frames(&mut driver, &mut engine, frames);
        let bursts = gather(&mut queue, 40);
        assert_eq!(numbers(&bursts), (0..40).collect::<Vec<_>>());
        for frame in bursts.iter().flat_map(Burst::frames) {
            let mut bytes = vec![0; frame.span.len as usize];
            regions.read(&frame.span, &mut bytes).unwrap();
            assert_eq!((frame.span.region, &bytes[..]), (queue.region(), frame.bytes));
            assert!(regions.write(&frame.span, &bytes).is_err());
            let (_, end) = frame.span.split_at(8);
            let held = bursts.iter().find_map(|burst| burst.bytes_of(&end));
            assert_eq!(held, Some(&frame.bytes[8..]));
            let beyond = landfall_placement::Span { len: frame.span.len + 1, ..frame.span };
            assert!(bursts.iter().all(|burst| burst.bytes_of(&beyond).is_none()));
        }
        assert_eq!(queue.counters().units_received, 40);
        drop(queue);
        assert_eq!(regions.held(), 1, "the bursts keep it");
        assert_eq!(numbers(&bursts), (0..40).collect::<Vec<_>>());
        thread::spawn(move || drop(bursts)).join().unwrap();
        assert_eq!(regions.held(), 0);
    }
}

#[test]
fn what_is_held_stays_and_goes_back_in_any_order() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        let regions = Regions::new(4);
        let mut queue = open(&cable.b, &regions, attach);
        let (mut driver, mut engine) = open_sender(&cable.a);
        let mut send = |numbers: std::ops::Range<u32>| {
            let frames = numbers.map(|n| numbered_frame(&cable.b, EXPERIMENTAL, n));
            send_frames(&mut driver, &mut engine, frames);
        };
        let mut held = Vec::new();
        for start in (0..64).step_by(16) {
            send(start..start + 16);
            held.extend(gather(&mut queue, 16));
        }
        // All memory for frames is held: these are lost.
        send(100..110);
        assert!(queue.receive().unwrap().is_none());
        assert_eq!(numbers(&held), (0..64).collect::<Vec<_>>());
        // The second half of what is held comes back first.
        let first: Vec<Burst> = held.drain(..held.len() / 2).collect();
        let kept = numbers(&first);
        held.reverse();
        drop(held);
        assert!(queue.receive().unwrap().is_none());
        send(200..210);
        assert_eq!(numbers(&gather(&mut queue, 10)), (200..210).collect::<Vec<_>>());
        assert_eq!(numbers(&first), kept);
        drop(first);
        for round in 0..20 {
            let start = 1000 + 30 * round;
            send(start..start + 30);
            let came = numbers(&gather(&mut queue, 30));
            assert_eq!(came, (start..start + 30).collect::<Vec<_>>());
        }
    }
}

#[test]
fn fragments_come_and_the_kernel_gets_everything_else() {
    require_xdp!();
    let cable = cable();
    let addresses: [(IpAddr, IpAddr, [usize; 3]); 2] = [
        (cable.a.ipv4.into(), cable.b.ipv4.into(), [1514, 1514, 1082]),
        (cable.a.ipv6.into(), cable.b.ipv6.into(), [1510, 1510, 1174]),
    ];
    for attach in MODES {
        let regions = Regions::new(4);
        let config = XdpConfig { attach, ..XdpConfig::fragments(&*cable.b.name) };
        let mut queue = try_open(&cable.b, &regions, &config).unwrap();
        assert!(queue.capabilities().has(Feature::RawFrames));
        for (from, to, lens) in addresses {
            let bind = |end: &VethEnd, address| {
                end.namespace.enter(|| UdpSocket::bind((address, 0))).unwrap().unwrap()
            };
            let (from, to) = (bind(&cable.a, from), bind(&cable.b, to));
            to.set_read_timeout(Some(PATIENCE)).unwrap();
            from.connect(to.local_addr().unwrap()).unwrap();
            from.send(&[7; 4000]).unwrap();
            from.send(b"short").unwrap();
            let mut bytes = [0; 5000];
            assert_eq!(to.recv(&mut bytes).unwrap(), 5, "the long one was taken away");
            let bursts = gather(&mut queue, 3);
            let came: Vec<_> =
                bursts.iter().flat_map(Burst::frames).map(|frame| frame.bytes.len()).collect();
            assert_eq!(came, lens);
        }
        drop(queue);
    }
}

#[test]
fn frames_leave_with_head_and_payload_put_together() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        let payload = pattern(3000, 5);
        let (regions, source) = lent(&payload, Rights::READ);
        let mut sender = open(&cable.a, &regions, attach);
        let mut receiver = open(&cable.b, &Regions::new(4), attach);
        let heads: Vec<_> =
            (0..300).map(|n| numbered_frame(&cable.b, EXPERIMENTAL, n)[..18].to_vec()).collect();
        let payload_of = |n: usize| source.span(n as u64 * 3, 60 + 4 * n as u32);
        let frame = |n: usize| Outgoing { head: &heads[n], payload: payload_of(n) };
        let outgoing: Vec<_> = (0..300).map(frame).collect();
        let (mut done, mut seen) = (0, 0);
        let started = StdInstant::now();
        while seen < 300 {
            assert!(started.elapsed() < PATIENCE, "{seen} came of {done}");
            let now = Instant::from_micros(started.elapsed().as_micros() as u64);
            // No more than the receiver has memory for.
            let window = (seen + 48).clamp(done, 300);
            done += sender.send(now, &outgoing[done..window]).unwrap();
            let Some(burst) = receiver.receive().unwrap() else {
                thread::sleep(Duration::from_micros(100));
                continue;
            };
            for came in burst.frames() {
                let Outgoing { head, payload: span } = outgoing[seen];
                let start = span.offset as usize;
                assert_eq!(&came.bytes[..18], head);
                assert_eq!(came.bytes[18..], payload[start..start + span.len as usize]);
                seen += 1;
            }
        }
        let told = sender.counters();
        assert_eq!((told.units_sent, told.send_failed), (300, 0));
        assert!(told.send_calls < 300, "{told:?}");
    }
}

#[test]
fn what_cannot_be_sent_is_lost_and_counted() {
    require_xdp!();
    let cable = cable();
    let (regions, source) = lent(&[0; 5000], Rights::READ);
    let mut queue = open(&cable.a, &regions, Attach::Auto);
    let head = numbered_frame(&cable.b, EXPERIMENTAL, 1);
    let gone = landfall_placement::RegionId::new(99, 1);
    let outgoing = [
        Outgoing { head: &head, payload: source.span(0, 4000) },
        Outgoing { head: &head[..10], payload: source.span(0, 0) },
        Outgoing { head: &head, payload: gone.span(0, 100) },
        Outgoing { head: &head, payload: source.span(4999, 2) },
    ];
    // More often than there is memory: it has to come back.
    for nth in 1..=50 {
        assert_eq!(queue.send(Instant::ZERO, &outgoing).unwrap(), 4);
        assert_eq!(queue.counters().send_failed, 4 * nth);
    }
    assert_eq!(queue.counters().units_sent, 0);
    assert!(try_open(&cable.a, &regions, &XdpConfig::fragments("nowhere")).is_err());
}
