//! The proof that drivers carry an engine: messages in numbered units end as
//! the same bytes at the other side, whichever driver carried them, however
//! the path behaved.

use std::time::Duration;

use landfall_placement::{Engine, Peer, Random, WordFunction, WordWidth};
use landfall_testkit::engines::Area;
use landfall_testkit::engines::numbered::Config;
use landfall_transport::channel::{ChannelConfig, channel};
use landfall_transport::fault::{FaultCounts, Faults, Faulty};
use landfall_transport::memory::Regions;
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::{AsyncWaiter, Clock, Driver, Wait, Waiter};

use crate::support::transfer::{
    DEFAULT, End, PATH, PATIENT, SIZES, messages, run_to_the_end, start,
};
use crate::support::{PATIENCE, assert_same, pattern};

fn udp(regions: &Regions, unit: u32, batch: bool) -> UdpDriver {
    let config = UdpConfig { batch, unit, ..UdpConfig::new("127.0.0.1:0".parse().unwrap(), 1500) };
    UdpDriver::open(PATH, config, regions).unwrap()
}

/// What is carried, and how.
#[derive(Clone, Copy)]
struct Case {
    config: Config,
    batch: bool,
    faults: Faults,
}

/// Carries all messages over UDP through faults, and gives what happened.
fn over_udp(case: Case, seed: u64) -> [FaultCounts; 2] {
    let clock = Clock::start();
    let mut random = Random::from_number(seed);
    let mut end = |memory: &[u8], number| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, case.batch);
        let address = driver.local_address();
        let driver = Faulty::new(driver, case.faults, random.fork(), &regions).unwrap();
        (End::new(driver, regions, memory, case.config, number, &clock), address)
    };
    let (mut from, _) = end(&messages(), 1);
    let (mut to, address) = end(&vec![0; messages().len()], 2);
    start(&mut from, &mut to, address.into(), &clock);
    run_to_the_end(&mut from, &mut to, &clock);
    let counts = [from.driver.counts(), to.driver.counts()];
    assert_same(&to.contents(), &messages());
    assert_same(&from.contents(), &messages());
    counts
}

const CLEAN: Case =
    Case { config: Config { unit: 1024, ..DEFAULT }, batch: true, faults: Faults::loss(0) };

#[test]
fn udp_carries_messages_in_batches_and_singly() {
    for batch in [true, false] {
        for unit in [100, 1024, 8192] {
            over_udp(Case { config: Config { unit, ..PATIENT }, batch, ..CLEAN }, 1);
        }
    }
}

#[test]
fn a_clean_stream_of_messages_is_never_copied() {
    let clock = Clock::start();
    // On a busy machine time passes; it shall make no difference here.
    let config = Config { retransmit_after: Duration::from_secs(10), ..DEFAULT };
    let end = |memory: &[u8], number| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, true);
        let address = driver.local_address();
        (End::new(driver, regions, memory, config, number, &clock), address)
    };
    let bytes = pattern(8 * 100_000, 5);
    let (mut from, _) = end(&bytes, 1);
    let (mut to, address) = end(&vec![0; bytes.len()], 2);
    let area = |region, n: u64| Area::new(region, n % 8 * 100_000, 100_000);
    (0..8).for_each(|n| to.engine.receive_into(area(to.region, n)).unwrap());
    let deadline = clock.now() + PATIENCE;
    let (mut offered, mut warm) = (0, None);
    while from.sent < 40 {
        assert!(clock.now() < deadline, "stuck after {} messages", from.sent);
        if offered < 40 && offered - from.sent < 4 {
            let area = area(from.region, offered as u64);
            from.engine.send(clock.now(), PATH, address.into(), area).unwrap();
            offered += 1;
        }
        from.driver.turn(&mut from.engine, clock.now()).unwrap();
        from.events();
        to.driver.turn(&mut to.engine, clock.now()).unwrap();
        to.events();
        for delivered in std::mem::take(&mut to.received) {
            to.engine.receive_into(delivered).unwrap();
        }
        if from.sent >= 4 {
            warm.get_or_insert(*to.driver.counters());
        }
    }
    let (warm, end) = (warm.unwrap(), *to.driver.counters());
    assert_eq!(end.bytes_copied, warm.bytes_copied, "{end:?}");
    assert_eq!(end.guessed_wrong, warm.guessed_wrong);
    assert!(end.guessed_right > warm.guessed_right);
    assert_same(&to.contents(), &bytes);
}

#[test]
fn invariant_4_udp_survives_each_fault_alone() {
    let ppm = 50_000;
    let faults = [
        Faults::loss(ppm),
        Faults { duplication: ppm, ..Faults::default() },
        Faults { reordering: ppm, ..Faults::default() },
        Faults { delay: Duration::from_micros(500), ..Faults::default() },
        Faults { loss_at_place: ppm, ..Faults::default() },
    ];
    for (seed, faults) in faults.into_iter().enumerate() {
        // What is lost at its place is lost at the end where it arrives.
        let [counts, at_place] = over_udp(Case { faults, ..CLEAN }, seed as u64);
        let happened = counts.lost + counts.duplicated + counts.reordered + counts.delayed;
        assert!(happened + at_place.lost_at_place > 0, "{faults:?} did nothing");
    }
}

#[test]
fn invariant_3_corruption_is_found_by_the_checksum() {
    let faults = Faults { corruption: 50_000, ..Faults::default() };
    let config = Config { checksum: true, ..DEFAULT };
    let [counts, _] = over_udp(Case { config, faults, ..CLEAN }, 7);
    assert!(counts.corrupted > 0);
}

#[test]
fn invariant_1_all_faults_at_once_change_no_delivered_byte() {
    let faults = Faults {
        loss: 100_000,
        duplication: 50_000,
        reordering: 100_000,
        corruption: 20_000,
        delay: Duration::ZERO,
        loss_at_place: 20_000,
    };
    for seed in 0..3 {
        for batch in [true, false] {
            let config = Config { checksum: true, ..DEFAULT };
            over_udp(Case { config, batch, faults }, seed);
        }
    }
}

#[test]
fn the_channel_carries_messages_between_threads() {
    let clock = Clock::start();
    let (one, two) = (Regions::new(8), Regions::new(8));
    let config = ChannelConfig { unit: 2048, queue: 16 };
    let (a, b) = channel(config, (PATH, &one), (PATH, &two)).unwrap();
    let mut from = End::new(a, one, &messages(), DEFAULT, 1, &clock);
    let mut to = End::new(b, two, &vec![0; messages().len()], DEFAULT, 2, &clock);
    start(&mut from, &mut to, Peer::Node(1), &clock);
    let receiver = std::thread::spawn(move || {
        let mut waiter = Waiter::new(Wait::Block);
        let deadline = clock.now() + PATIENCE;
        // Lingers until the sender, having heard that all arrived, hangs up.
        loop {
            assert!(clock.now() < deadline, "stuck after {} messages", to.received.len());
            match to.driver.turn(&mut to.engine, clock.now()) {
                Ok(progress) if progress.any() => waiter.busy(),
                Ok(_) => waiter.idle(&mut to.driver, &to.engine, &clock, PATIENCE).unwrap(),
                Err(error) => break assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe),
            }
            to.events();
        }
        assert_eq!(to.received.len(), SIZES.len());
        assert_same(&to.contents(), &messages());
    });
    let mut waiter = Waiter::new(Wait::SpinThenBlock(Duration::from_micros(50)));
    let deadline = clock.now() + PATIENCE;
    while from.sent < SIZES.len() {
        assert!(clock.now() < deadline, "stuck after {} messages sent", from.sent);
        match from.driver.turn(&mut from.engine, clock.now()).unwrap() {
            progress if progress.any() => waiter.busy(),
            _ => waiter.idle(&mut from.driver, &from.engine, &clock, PATIENCE).unwrap(),
        }
        from.events();
    }
    drop(from);
    receiver.join().unwrap();
}

#[test]
fn words_change_exactly_once_though_units_repeat() {
    let clock = Clock::start();
    let faults = Faults { loss: 200_000, duplication: 200_000, ..Faults::default() };
    let end = |number: u8| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, true);
        let address = driver.local_address();
        let driver = Faulty::new(driver, faults, [number; 32], &regions).unwrap();
        (End::new(driver, regions, &[0; 64], DEFAULT, number, &clock), address)
    };
    let ((mut from, _), (mut to, address)) = (end(1), end(2));
    to.engine.serve_words(Some(Area::new(to.region, 0, 64))).unwrap();
    let deadline = clock.now() + PATIENCE;
    let mut asked = 0;
    while from.fetched.len() < 100 {
        assert!(clock.now() < deadline, "stuck after {}", from.fetched.len());
        if asked == from.fetched.len() {
            let word = (8, WordWidth::Eight);
            let function = WordFunction::Add(1);
            from.engine.fetch(clock.now(), PATH, address.into(), word, function).unwrap();
            asked += 1;
        }
        from.driver.turn(&mut from.engine, clock.now()).unwrap();
        to.driver.turn(&mut to.engine, clock.now()).unwrap();
        from.events();
    }
    assert_eq!(from.fetched, (0..100).collect::<Vec<u64>>());
    assert_eq!(to.contents()[8..16], 100u64.to_ne_bytes());
}

#[tokio::test]
async fn a_tokio_task_drives_both_ends() {
    let clock = Clock::start();
    let end = |memory: &[u8], number| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, true);
        let address = driver.local_address();
        (End::new(driver, regions, memory, DEFAULT, number, &clock), address)
    };
    let (mut from, _) = end(&messages(), 1);
    let (mut to, address) = end(&vec![0; messages().len()], 2);
    start(&mut from, &mut to, address.into(), &clock);
    let receiving = async {
        let waiter = AsyncWaiter::new(&to.driver).unwrap();
        // It answers repeated units until the sender knows, or the test ends.
        while to.received.len() < SIZES.len() {
            waiter.turn(&mut to.driver, &mut to.engine, &clock, PATIENCE).await.unwrap();
            to.events();
        }
        loop {
            waiter.turn(&mut to.driver, &mut to.engine, &clock, PATIENCE).await.unwrap();
        }
    };
    let sending = async {
        let waiter = AsyncWaiter::new(&from.driver).unwrap();
        while from.sent < SIZES.len() {
            waiter.turn(&mut from.driver, &mut from.engine, &clock, PATIENCE).await.unwrap();
            from.events();
        }
    };
    let both = async {
        tokio::select! { () = receiving => {}, () = sending => {} }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("neither end got stuck");
    assert_eq!(to.received.len(), SIZES.len());
    assert_same(&to.contents(), &messages());
}

#[test]
fn a_blocked_thread_is_woken_by_what_arrives_and_by_its_timers() {
    let clock = Clock::start();
    let regions = Regions::new(8);
    let mut sleeper = End::new(udp(&regions, 9000, true), regions, &[0; 64], DEFAULT, 1, &clock);
    let mut waiter = Waiter::new(Wait::Block);
    let address = sleeper.driver.local_address();
    let waker = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"wake up", address).unwrap();
    });
    let deadline = clock.now() + PATIENCE;
    while sleeper.driver.counters().units_received == 0 {
        assert!(clock.now() < deadline, "overslept");
        waiter.idle(&mut sleeper.driver, &sleeper.engine, &clock, PATIENCE).unwrap();
        sleeper.driver.turn(&mut sleeper.engine, clock.now()).unwrap();
    }
    waker.join().unwrap();
    // Nobody answers: only the engine's own timer can end this sleep early.
    let nobody = Peer::Socket("127.0.0.1:9".parse().unwrap());
    let area = Area::new(sleeper.region, 0, 64);
    sleeper.engine.send(clock.now(), PATH, nobody, area).unwrap();
    sleeper.driver.turn(&mut sleeper.engine, clock.now()).unwrap();
    let due = sleeper.engine.poll_timeout().expect("it will ask again").at;
    while clock.now() < due {
        assert!(clock.now() < deadline, "overslept");
        waiter.idle(&mut sleeper.driver, &sleeper.engine, &clock, PATIENCE).unwrap();
        sleeper.driver.turn(&mut sleeper.engine, clock.now()).unwrap();
    }
}

/// Raw sockets carry both test engines, over IPv4 and IPv6: the same bytes
/// arrive however the threads wait, and in steady flow none is copied in user
/// space. As an ordinary user each test skips with one line.
mod rawip {
    use crate::support::carriage;
    use crate::support::packet::cable;
    use crate::support::packet::rawip::{VERSIONS, pair};
    use landfall_placement::Duration;
    use landfall_testbed::{cpu, require_namespaces};
    use landfall_transport::Wait;

    #[test]
    fn messages_cross_in_units_of_all_lengths() {
        require_namespaces!();
        let cable = cable();
        for version in VERSIONS {
            // The longest fills a packet: 40 bytes are the engine's.
            for unit in [100, 1024, 1420] {
                carriage::messages_in_units(pair(&cable, version), unit);
            }
        }
    }

    #[test]
    fn a_stream_with_heads_of_all_lengths_crosses() {
        require_namespaces!();
        let cable = cable();
        for version in VERSIONS {
            carriage::stream(pair(&cable, version));
        }
    }

    /// Packets of one sender overtake each other if its thread moves to another
    /// core: it shall not.
    fn stay_on_one_core() {
        let core = cpu::allowed_cores().unwrap()[0];
        cpu::pin_this_thread(core).unwrap();
    }

    #[test]
    fn a_clean_stream_of_messages_is_copied_only_behind_what_was_not_data() {
        require_namespaces!();
        let cable = cable();
        stay_on_one_core();
        for version in VERSIONS {
            let [warm, end] = carriage::steady_messages(pair(&cable, version));
            let placed = end.guessed_right + end.guessed_wrong;
            let others = end.units_received - placed;
            // Of the 16 units of a call, one that was not guessed displaces the 15
            // behind it, and each of those is moved aside and back.
            assert!(end.guessed_wrong <= 15 * others, "{end:?}");
            assert!(end.bytes_copied <= 2 * 1024 * 15 * others, "{end:?}");
            assert!(end.guessed_right > warm.guessed_right);
            assert!(end.units_per_receive() > 1.0, "{end:?}");
        }
    }

    #[test]
    fn threads_may_wait_in_any_way() {
        require_namespaces!();
        let cable = cable();
        let ways = [Wait::Block, Wait::Spin, Wait::SpinThenBlock(Duration::from_micros(50))];
        for (version, wait) in VERSIONS.into_iter().zip(ways) {
            carriage::messages_between_threads(pair(&cable, version), wait);
        }
        carriage::messages_between_threads(pair(&cable, VERSIONS[0]), ways[2]);
    }

    #[test]
    fn tokio_tasks_drive_both_ends() {
        require_namespaces!();
        let cable = cable();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for version in VERSIONS {
            runtime.block_on(carriage::messages_between_tasks(pair(&cable, version)));
        }
    }
}

/// A TAP interface carries an engine: the same bytes arrive, in super-packets
/// both ways, and in steady flow no byte is copied in user space. At the
/// kernel's side a packet socket is the other end. As an ordinary user each
/// test skips with one line.
mod tap {
    use std::net::Ipv4Addr;

    use crate::support::packet::tap::{ENGINE, IPV4, KERNEL, STATION, open_as, open_packet};
    use crate::support::streams::carry_stream;
    use landfall_testbed::{Namespace, require_namespaces};
    use landfall_testkit::engines::stream::Station;
    use landfall_transport::Driver;
    use landfall_transport::memory::Regions;
    use landfall_transport::packet::PacketDriver;
    use landfall_transport::tap::{TapConfig, TapDriver};

    const LEN: usize = 64 * 57_920;
    const KERNEL_STATION: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const AT_TAP: Station<Ipv4Addr> = Station { mac: STATION, ip: ENGINE, port: 7000 };
    /// Not the kernel's address: nobody shall answer but the packet socket.
    const AT_KERNEL: Station<Ipv4Addr> =
        Station { mac: KERNEL_STATION, ip: Ipv4Addr::new(10, 78, 0, 3), port: 7000 };

    type Ends = ((TapDriver, Regions), (PacketDriver, Regions));

    /// Both sides of an interface.
    fn open(offload: bool) -> Ends {
        let namespace = Namespace::new().unwrap();
        let [one, two] = [(); 2].map(|()| Regions::new(8));
        let adjust = |config| TapConfig {
            offload,
            kernel_station: Some(KERNEL_STATION),
            kernel_address: None,
            ..config
        };
        let tap = open_as(&namespace, &one, adjust).unwrap();
        assert_ne!(AT_KERNEL.ip, KERNEL);
        let packet = open_packet(&namespace, &two, IPV4);
        ((tap, one), (packet, two))
    }

    #[test]
    fn a_stream_into_the_kernel_lands_in_place_without_a_copy() {
        require_namespaces!();
        let (tap, packet) = open(true);
        let (from, to) = carry_stream(tap, packet, [AT_TAP, AT_KERNEL], LEN);
        let (sent, received) = (from.driver.counters(), to.driver.counters());
        assert!(received.units_received < 200, "super-packets: {received:?}");
        assert_eq!((received.bytes_copied, sent.bytes_copied), (0, 0));
        assert_eq!((received.bytes_summed, sent.bytes_summed), (0, 0));
        assert_eq!((received.guessed_wrong, received.corrupt), (0, 0));
    }

    #[test]
    fn a_stream_out_of_the_kernel_lands_in_place_without_a_copy() {
        require_namespaces!();
        let (tap, packet) = open(true);
        let (from, to) = carry_stream(packet, tap, [AT_KERNEL, AT_TAP], LEN);
        let (sent, received) = (from.driver.counters(), to.driver.counters());
        assert!(received.units_received < 200, "super-packets: {received:?}");
        assert_eq!((received.bytes_copied, sent.bytes_copied), (0, 0));
        assert_eq!((received.bytes_summed, sent.bytes_summed), (0, 0));
        assert_eq!((received.guessed_wrong, received.corrupt), (0, 0));
    }

    #[test]
    fn a_stream_without_offloads_arrives_all_the_same() {
        require_namespaces!();
        let (tap, packet) = open(false);
        let (from, _) = carry_stream(tap, packet, [AT_TAP, AT_KERNEL], LEN / 8);
        assert!(from.driver.counters().bytes_summed > LEN as u64 / 8);
        let (tap, packet) = open(false);
        let (_, to) = carry_stream(packet, tap, [AT_KERNEL, AT_TAP], LEN / 8);
        // The kernel cuts the super-packets, and fills the sums in.
        let received = to.driver.counters();
        assert!(received.units_received > 300 && received.corrupt == 0, "{received:?}");
        assert!(received.bytes_summed > LEN as u64 / 8);
    }
}

/// AF_XDP carries both test engines: the same bytes arrive however the threads
/// wait, wherever the program runs, and whether frames fit a chunk of memory or
/// not; each payload is copied once at each end. As an ordinary user each test
/// skips with one line.
mod xdp {
    use crate::support::carriage::{self, Opened};
    use crate::support::packet::xdp::{MODES, open_as, pair, require_xdp};
    use crate::support::packet::{cable, cable_of};
    use landfall_placement::{Duration, Peer};
    use landfall_transport::Wait;
    use landfall_transport::memory::Regions;
    use landfall_transport::xdp::XdpConfig;

    #[test]
    fn messages_cross_in_units_of_all_lengths() {
        require_xdp!();
        let cable = cable();
        for attach in MODES {
            // The longest fills a frame: 40 bytes are the engine's.
            for unit in [100, 1024, 1460] {
                carriage::messages_in_units(pair(&cable, attach), unit);
            }
        }
    }

    #[test]
    fn messages_cross_in_frames_that_need_several_chunks() {
        require_xdp!();
        let cable = cable_of(9000);
        for attach in MODES {
            for unit in [1024, 4050, 4096, 8192, 8960] {
                carriage::messages_in_units(pair(&cable, attach), unit);
            }
        }
    }

    /// Frames go round and round, and some are lost for want of room.
    #[test]
    fn few_frames_carry_much() {
        require_xdp!();
        for mtu in [1500, 9000] {
            let cable = cable_of(mtu);
            for attach in MODES {
                let ends = [&cable.a, &cable.b].map(|end| {
                    let regions = Regions::new(8);
                    let few = |config| XdpConfig { attach, frames: 256, ..config };
                    let driver = open_as(end, &regions, few).unwrap();
                    Opened { driver, regions, name: Peer::Ethernet(end.mac.0) }
                });
                carriage::messages_in_units(ends, mtu - 100);
            }
        }
    }

    #[test]
    fn a_stream_with_heads_of_all_lengths_crosses() {
        require_xdp!();
        let cable = cable();
        for attach in MODES {
            carriage::stream(pair(&cable, attach));
        }
    }

    #[test]
    fn each_payload_is_copied_once() {
        require_xdp!();
        for mtu in [1500, 9000] {
            let cable = cable_of(mtu);
            for attach in MODES {
                let [warm, end] = carriage::steady_messages(pair(&cable, attach));
                let placed = end.payload_bytes - warm.payload_bytes;
                assert!(placed > 0);
                assert_eq!(end.bytes_copied - warm.bytes_copied, placed, "{end:?}");
                assert_eq!((end.guessed_right, end.guessed_wrong), (0, 0));
            }
        }
    }

    #[test]
    fn threads_may_wait_in_any_way() {
        require_xdp!();
        let cable = cable();
        for attach in MODES {
            for wait in [Wait::Block, Wait::Spin, Wait::SpinThenBlock(Duration::from_micros(50))] {
                carriage::messages_between_threads(pair(&cable, attach), wait);
            }
        }
    }

    #[test]
    fn tokio_tasks_drive_both_ends() {
        require_xdp!();
        let cable = cable();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for attach in MODES {
            runtime.block_on(carriage::messages_between_tasks(pair(&cable, attach)));
        }
    }
}
