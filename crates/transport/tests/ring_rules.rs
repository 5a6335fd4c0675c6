//! How the kernel treats receive rings, one rule a test, over a cable between
//! two namespaces. As an ordinary user each test skips with one line.

use std::net::UdpSocket;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::packet::{
    EXPERIMENTAL, IPV4, cable, numbered_frame, open, open_sender, send_frames,
};
use crate::support::{PATIENCE, Scripted, become_nobody, lent, turn_until};
use landfall_placement::{Duration as Span, Peer, RegionId};
use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::{IngressLoss, Lose, VethEnd, VethPair, require_namespaces, skip_unless};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::Filter;
use landfall_transport::ring::{Block, Ring, RingConfig};
use landfall_transport::scatter::CapturePoint;
use landfall_transport::wait::until_ready;
use landfall_transport::{OpenError, Privilege};

const FRAME: usize = 60;

/// A ring at one end that hears the experimental ethertype.
fn open_as(
    end: &VethEnd,
    regions: &Regions,
    adjust: impl FnOnce(RingConfig) -> RingConfig + Send,
) -> Result<Ring, OpenError> {
    let config = adjust(RingConfig::new(end.name.as_str(), Filter::ethertypes([EXPERIMENTAL])));
    end.namespace.enter(|| Ring::open(&config, regions)).unwrap()
}

/// A small one, whose blocks take some forty short frames.
fn small(end: &VethEnd, regions: &Regions, blocks: u32) -> Ring {
    open_as(end, regions, |config| RingConfig { block_size: 8192, blocks, ..config }).unwrap()
}

fn send(cable: &VethPair, numbers: impl IntoIterator<Item = u32>) {
    let (mut driver, mut engine) = open_sender(&cable.a);
    let frames = numbers.into_iter().map(|n| numbered_frame(&cable.b, EXPERIMENTAL, n));
    send_frames(&mut driver, &mut engine, frames);
}

/// The next block, which has to come.
fn next(ring: &mut Ring) -> Block {
    let started = Instant::now();
    loop {
        if let Some(block) = ring.next_block() {
            return block;
        }
        assert!(started.elapsed() < PATIENCE, "no block came");
        sleep(Duration::from_micros(200));
    }
}

fn numbers(block: &Block) -> Vec<u32> {
    let number = |frame: &[u8]| u32::from_be_bytes(frame[14..18].try_into().unwrap());
    block.frames().map(|frame| number(frame.bytes)).collect()
}

/// Whether the descriptor is readable, or becomes so within that time.
fn is_readable(ring: &Ring, within: u64) -> bool {
    until_ready(&[ring.interest()], Span::from_millis(within)).unwrap()
}

#[test]
fn frames_lie_in_blocks_in_their_order_and_spans_name_them() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(4);
    let mut ring = small(&cable.b, &regions, 16);
    assert_eq!((ring.station(), regions.held()), (cable.b.mac.0, 1));
    assert!(ring.next_block().is_none());
    send(&cable, 0..300);
    let mut seen = Vec::new();
    while seen.len() < 300 {
        let block = next(&mut ring);
        for frame in block.frames() {
            let mut bytes = vec![0; FRAME];
            regions.read(&frame.span, &mut bytes).unwrap();
            assert_eq!((frame.span.region, &bytes[..]), (ring.region(), frame.bytes));
            assert!(regions.write(&frame.span, &bytes).is_err());
            assert_eq!(block.bytes_of(&frame.span), Some(frame.bytes));
            let (_, end) = frame.span.split_at(FRAME as u32 - 8);
            assert_eq!(block.bytes_of(&end), Some(&frame.bytes[FRAME - 8..]));
        }
        let (first, all) = (block.index() as u64 * 8192, ring.region());
        assert!(block.bytes_of(&all.span(first, 8192)).is_some());
        for outside in [all.span(first + 1, 8192), all.span(first.wrapping_sub(1), 8)] {
            assert_eq!(block.bytes_of(&outside), None);
        }
        assert_eq!(
            block.bytes_of(&RegionId::new(all.index, all.generation + 1).span(first, 8)),
            None
        );
        assert_eq!(block.frame_count() as usize, numbers(&block).len());
        seen.extend(numbers(&block));
    }
    assert_eq!(seen, (0..300).collect::<Vec<_>>());
    let told = ring.statistics().unwrap();
    assert_eq!((told.frames, told.drops, told.cut), (300, 0, 0));
    assert_eq!(ring.statistics().unwrap(), told, "asking changes nothing");
    let region = ring.region();
    drop(ring);
    assert!(regions.pin(region).is_err());
    assert_eq!(regions.held(), 0);
}

#[test]
fn blocks_that_are_held_stay_and_others_come_round_them() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(4);
    let mut ring = small(&cable.b, &regions, 3);
    // Three blocks at most have these, whenever the kernel hands them over.
    let mut held = Vec::new();
    for number in [7, 8, 9] {
        send(&cable, [number]);
        held.push(next(&mut ring));
    }
    assert_eq!((ring.held(), ring.next_block().is_none()), (3, true));
    // There is room for none of these.
    send(&cable, 100..110);
    assert!(ring.next_block().is_none());
    let told = ring.statistics().unwrap();
    assert_eq!((told.frames, told.drops), (13, 10));
    assert!(told.freezes > 0, "{told:?}");
    // What is held is as it was. The middle one goes back first, but the kernel
    // goes on with the one after the last.
    for (block, number) in held.iter().zip([7, 8, 9]) {
        assert_eq!(numbers(block), [number]);
    }
    drop(held.remove(1));
    drop(held.remove(0));
    send(&cable, [200]);
    assert_eq!(numbers(&next(&mut ring)), [200]);
    send(&cable, [201]);
    assert_eq!(numbers(&next(&mut ring)), [201]);
    assert_eq!((numbers(&held[0]), ring.held()), (vec![9], 1));
    drop(held);
    send(&cable, [202]);
    assert_eq!(numbers(&next(&mut ring)), [202]);
}

#[test]
fn the_descriptor_tells_of_blocks_unless_the_newest_is_held() {
    require_namespaces!();
    let cable = cable();
    let mut ring = small(&cable.b, &Regions::new(4), 4);
    assert!(ring.is_readiness_telling() && !is_readable(&ring, 0));
    send(&cable, [1]);
    assert!(is_readable(&ring, PATIENCE.as_millis() as u64));
    let block = next(&mut ring);
    assert!(!ring.is_readiness_telling() && is_readable(&ring, 0), "for nothing");
    drop(block);
    assert!(ring.is_readiness_telling() && !is_readable(&ring, 0));
}

#[test]
fn a_block_outlives_its_ring() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(4);
    let mut ring = small(&cable.b, &regions, 4);
    send(&cable, [5]);
    let block = next(&mut ring);
    drop(ring);
    assert_eq!((numbers(&block), regions.held()), (vec![5], 1));
    drop(block);
    assert_eq!(regions.held(), 0);
}

#[test]
fn frames_of_a_vlan_and_those_that_leave_are_not_heard() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(4);
    let everything = |config| RingConfig { filter: Filter::any(), ..config };
    let mut ring = open_as(&cable.b, &regions, everything).unwrap();
    let tagged = |tag: u16| {
        let mut frame = numbered_frame(&cable.b, 0x8100, 0);
        frame[14..16].copy_from_slice(&tag.to_be_bytes());
        frame[16..18].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
        frame
    };
    let mut to_others = numbered_frame(&cable.b, EXPERIMENTAL, 3);
    to_others[5] ^= 0x40;
    let (mut there, mut back) = (open_sender(&cable.a), open_sender(&cable.b));
    send_frames(&mut back.0, &mut back.1, [numbered_frame(&cable.a, EXPERIMENTAL, 1)]);
    send_frames(&mut there.0, &mut there.1, [tagged(5), to_others]);
    send_frames(&mut there.0, &mut there.1, [numbered_frame(&cable.b, EXPERIMENTAL, 9)]);
    let mut seen = Vec::new();
    while seen.is_empty() {
        let block = next(&mut ring);
        // The kernel says something of itself over IPv6 now and then.
        let ours = block.frames().filter(|frame| frame.bytes[12..14] == EXPERIMENTAL.to_be_bytes());
        seen.extend(ours.map(|frame| frame.bytes[14..18].to_vec()));
    }
    assert_eq!(seen, [vec![0, 0, 0, 9]]);
}

#[test]
fn a_frame_longer_than_a_block_is_counted() {
    require_namespaces!();
    let cable = cable();
    cable.set_mtu(9000).unwrap();
    let page = |config| RingConfig { block_size: 4096, blocks: 8, ..config };
    let mut ring = open_as(&cable.b, &Regions::new(4), page).unwrap();
    let (send_regions, source) = lent(&[7; 6000], Rights::READ);
    let mut driver = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
    let mut engine = Scripted::sender();
    for (number, len) in [(1, 6000), (2, 3500)] {
        let head = numbered_frame(&cable.b, EXPERIMENTAL, number);
        engine.send(Peer::Unaddressed, head, &[source.span(0, len)]);
    }
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 2);
    let mut seen = Vec::new();
    while seen.is_empty() {
        let block = next(&mut ring);
        seen.extend(block.frames().map(|frame| frame.bytes.len()));
    }
    assert_eq!(seen, [3560]);
    assert_eq!(ring.statistics().unwrap().cut, 1);
}

#[test]
fn a_station_of_its_own_gets_its_frames() {
    require_namespaces!();
    let cable = cable();
    let station = [2, 0, 0, 0, 0x55, 1];
    let own = |config| RingConfig { filter: Filter::any().station(station), ..config };
    let mut ring = open_as(&cable.b, &Regions::new(4), own).unwrap();
    let mut frame = numbered_frame(&cable.b, EXPERIMENTAL, 4);
    frame[..6].copy_from_slice(&station);
    let (mut driver, mut engine) = open_sender(&cable.a);
    send_frames(&mut driver, &mut engine, [numbered_frame(&cable.b, EXPERIMENTAL, 3), frame]);
    assert_eq!(numbers(&next(&mut ring)), [4]);
}

#[test]
fn what_is_missing_is_said() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(1);
    let error = open_as(&cable.b, &regions, |config| RingConfig { blocks: 1, ..config });
    assert!(error.unwrap_err().to_string().contains("power of two"));
    let nowhere = |config| RingConfig { interface: "nowhere".into(), ..config };
    let error = open_as(&cable.b, &regions, nowhere).unwrap_err();
    assert!(matches!(error, OpenError::NoInterface(_)), "{error}");
    let number = |config| RingConfig { hearing: CapturePoint::Protocol(1500), ..config };
    let error = open_as(&cable.b, &regions, number).unwrap_err();
    assert!(matches!(error, OpenError::NotAnEthertype(1500)), "{error}");
    let _ring = small(&cable.b, &regions, 4);
    let error = open_as(&cable.b, &regions, |config| config).unwrap_err();
    assert!(matches!(error, OpenError::NotLent(_)), "{error}");
    let refused = cable.b.namespace.enter(|| {
        become_nobody();
        Ring::open(&RingConfig::new("lo", Filter::any()), &regions)
    });
    let error = refused.unwrap().unwrap_err();
    assert!(matches!(error, OpenError::NoPrivilege(Privilege::PacketSockets)), "{error}");
}

#[test]
fn what_is_lost_at_the_ingress_is_heard_before_it_and_not_behind() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let cable = cable();
    let regions = Regions::new(4);
    let hearing = |hearing| {
        let filter = Filter::ethertypes([IPV4]).fragments();
        open_as(&cable.b, &regions, |config| RingConfig { filter, hearing, ..config }).unwrap()
    };
    let mut before = hearing(CapturePoint::Everything);
    let mut behind = hearing(CapturePoint::Protocol(IPV4));
    let bind = |end: &VethEnd| end.namespace.enter(|| UdpSocket::bind((end.ipv4, 0)));
    let (from, to) = (bind(&cable.a).unwrap().unwrap(), bind(&cable.b).unwrap().unwrap());
    let fragments = |ring: &mut Ring, count: usize| {
        let mut offsets = Vec::new();
        while offsets.len() < count {
            let block = next(ring);
            offsets.extend(block.frames().map(|frame| {
                let (bytes, _) = frame.bytes[20..].split_first_chunk().unwrap();
                (u16::from_be_bytes(*bytes) & 0x1fff) * 8
            }));
        }
        offsets
    };
    let second = Lose::At { offset: 1480, identification: None };
    let loss = IngressLoss::new(&cable.b, second).unwrap();
    from.send_to(&[7; 4000], to.local_addr().unwrap()).unwrap();
    assert_eq!(fragments(&mut before, 3), [0, 1480, 2960]);
    assert_eq!(fragments(&mut behind, 2), [0, 2960]);
    assert_eq!(loss.lost().unwrap(), 1);
}

/// One block of a ring is kept: before the kernel comes there, the ring is closed, and it goes on
/// with the other.
#[test]
fn of_two_rings_one_is_filled_while_the_other_is_closed() {
    require_namespaces!();
    let cable = cable();
    let regions = Regions::new(4);
    let config = RingConfig {
        block_size: 8192,
        blocks: 16,
        ..RingConfig::new(cable.b.name.as_str(), Filter::ethertypes([EXPERIMENTAL]))
    };
    let opened = cable.b.namespace.enter(|| Ring::open_two(&config, &regions));
    let [mut first, mut second] = opened.unwrap().unwrap();
    send(&cable, 0..1);
    let kept = next(&mut first);
    assert_eq!(numbers(&kept), [0]);
    let (mut seen, mut of_second) = (vec![0], 0);
    let mut round = |seen: &mut Vec<u32>, first: &mut Ring, second: &mut Ring, burst: u32| {
        send(&cable, burst * 10..burst * 10 + 10);
        let started = Instant::now();
        while *seen.last().unwrap() < burst * 10 + 9 {
            assert!(started.elapsed() < PATIENCE, "{:?}", seen.last());
            while let Some(block) = first.next_block() {
                seen.extend(numbers(&block));
                if first.comes_to_held() {
                    first.close_to_kernel();
                }
            }
            while let Some(block) = second.next_block() {
                of_second += 1;
                seen.extend(numbers(&block));
            }
        }
        of_second
    };
    let mut count = 0;
    for burst in 1..200 {
        count = round(&mut seen, &mut first, &mut second, burst);
    }
    assert!(first.is_closed() && count > 100, "{count} blocks of the second");
    assert_eq!((numbers(&kept), first.held()), (vec![0], 1));
    // It has room again, and is filled when the other one is closed.
    drop(kept);
    first.open_to_kernel().unwrap();
    second.close_to_kernel();
    for burst in 200..230 {
        let now = round(&mut seen, &mut first, &mut second, burst);
        assert!(now <= count + 1, "what the kernel had begun, and no more");
    }
    let wanted: Vec<u32> = (0..1).chain(10..2300).collect();
    assert!(seen == wanted, "each came once, in order");
    let drops = |ring: &mut Ring| ring.statistics().unwrap().drops;
    assert_eq!((drops(&mut first), drops(&mut second)), (0, 0));
}
