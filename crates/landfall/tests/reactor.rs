//! Endpoints, adapters and nodes without a thread of their own: a reactor of the user's, here
//! `poll(2)`, makes their turns.

use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::clan::host;
use crate::stp::{PORT, loopback, memory_with, noise};
use landfall::clan::Error as NodeError;
use landfall::clan::network::{Node, NodeDriver, Transport as NodeTransport, Window};
use landfall::clan::{Access as Touch, Fabric, Local, Remote, Rights, Stage, Tripwire};
use landfall::qpip::{
    Access, Adapter, AdapterDriver, Link, Mapping, Memory as PairMemory, QueuePairOptions, Status,
};
use landfall::stp::{
    Config, Connection, Ended, Endpoint, EndpointDriver, Error, Memory, Peer, TurnReport,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Nothing here takes so long on the slowest machine; a test that hangs fails.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

trait Turns: AsFd {
    fn turn(&self) -> TurnReport;
}

impl Turns for EndpointDriver {
    fn turn(&self) -> TurnReport {
        Self::turn(self)
    }
}

impl Turns for AdapterDriver {
    fn turn(&self) -> TurnReport {
        Self::turn(self)
    }
}

impl Turns for NodeDriver {
    fn turn(&self) -> TurnReport {
        Self::turn(self)
    }
}

fn is_readable(driver: &impl AsFd) -> bool {
    poll(&mut [PollFd::new(driver, PollFlags::IN)], Some(&AT_ONCE)).unwrap() > 0
}

/// Sleeps until one of them has something to do, and lets those make a turn.
fn poll_once(drivers: &[&dyn Turns]) {
    let mut fds: Vec<_> = drivers
        .iter()
        .map(|driver| PollFd::from_borrowed_fd(driver.as_fd(), PollFlags::IN))
        .collect();
    assert!(poll(&mut fds, Some(&PATIENCE)).unwrap() > 0, "nobody has anything to do");
    for (fd, driver) in fds.iter().zip(drivers) {
        if fd.revents().contains(PollFlags::IN) {
            driver.turn();
        }
    }
}

/// Waits for a future, with nothing but the descriptors to tell when to look.
fn wait_for<F: Future>(drivers: &[&dyn Turns], future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        poll_once(drivers);
    }
}

fn endpoint_with(config: Config) -> (Endpoint, EndpointDriver) {
    let builder = Endpoint::builder().config(config).linger(Duration::from_secs(60));
    builder.path(loopback()).bind_without_thread().expect("loopback")
}

/// Two endpoints with a connection, and who makes their turns.
struct Joined {
    a: Endpoint,
    turns_a: EndpointDriver,
    b: Endpoint,
    turns_b: EndpointDriver,
    here: Connection,
    there: Connection,
}

impl Joined {
    fn new() -> Self {
        Self::with(&Config::shared_network())
    }

    fn with(config: &Config) -> Self {
        let endpoint = || endpoint_with(config.clone());
        let ((a, turns_a), (b, turns_b)) = (endpoint(), endpoint());
        let listener = b.listen(PORT).unwrap();
        let to_b = b.local().unwrap();
        let (here, there) = wait_for(&[&turns_a, &turns_b], async {
            let here = a.connect(to_b, PORT).await.unwrap();
            (here, listener.accept().await.unwrap())
        });
        Self { a, turns_a, b, turns_b, here, there }
    }

    fn wait_for<F: Future>(&self, future: F) -> F::Output {
        wait_for(&[&self.turns_a, &self.turns_b], future)
    }
}

/// Other tests of this program have endpoints with threads, so this one has a process of its
/// own: the same program, with this test alone.
#[test]
fn two_endpoints_move_transfers_with_turns_and_poll_alone() {
    const ALONE: &str = "LANDFALL_REACTOR_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "reactor::two_endpoints_move_transfers_with_turns_and_poll_alone";
        let program = std::env::current_exe().unwrap();
        let mut run = std::process::Command::new(program);
        let output = run.args([name, "--exact"]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let joined = Joined::new();
    for (seed, from, to) in [(1, &joined.here, &joined.there), (2, &joined.there, &joined.here)] {
        let bytes = noise(seed, 3_000_000);
        let message = joined.wait_for(async {
            let sending = from.send(memory_with(&bytes)).start();
            let message = to.receive(Memory::zeroed(bytes.len())).await.unwrap();
            assert_eq!(sending.await.unwrap().len, 3_000_000);
            message
        });
        assert!(*message == *bytes);
    }
    // More at a time than there are slots.
    joined.wait_for(async {
        let sending: Vec<_> =
            (0..500u32).map(|n| joined.here.send(n.to_le_bytes().to_vec()).start()).collect();
        let mut arrived = Vec::new();
        for _ in 0..500 {
            let message = joined.there.receive(Memory::zeroed(4)).await.unwrap();
            arrived.push(u32::from_le_bytes(message[..].try_into().unwrap()));
        }
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..500));
        for sending in sending {
            sending.await.unwrap();
        }
    });
    assert!(thread_names().iter().all(|name| name != "landfall-stp"), "{:?}", thread_names());
}

/// The threads of this process.
fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        // It may have ended meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

/// With a window of one Block at a time nobody can be told of all at once, for who sends makes
/// its turn only when the other has made one.
#[test]
fn progress_comes_block_by_block() {
    const LEN: usize = 8 << 20;
    let config = Config { window: 1 << 16, blocks_ahead: 1, ..Config::shared_network() };
    let joined = Joined::with(&config);
    let sending = joined.here.send(memory_with(&noise(1, LEN))).start();
    let mut receiving = joined.there.receive(Memory::zeroed(LEN));
    let mut progress = receiving.progress();
    let seen = joined.wait_for(async {
        let mut seen = Vec::new();
        while let Some(bytes) = progress.next().await {
            seen.push(bytes);
        }
        receiving.await.unwrap();
        sending.await.unwrap();
        seen
    });
    assert!(seen.len() > 2 && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    assert!(seen[0] < LEN as u64 && seen.last() == Some(&(LEN as u64)), "{seen:?}");
}

#[test]
fn forgetting_to_make_turns_loses_nothing() {
    let joined = Joined::new();
    let sending: Vec<_> =
        (0..50u32).map(|n| joined.here.send(noise(n.into(), 20_000)).opaque(n).start()).collect();
    let receiving: Vec<_> =
        (0..50).map(|_| joined.there.receive(Memory::zeroed(20_000)).start()).collect();
    // Only one side makes turns, and makes more of them than anybody asks for.
    for _ in 0..500 {
        joined.turns_a.turn();
    }
    assert!(is_readable(&joined.turns_b), "what came waits there");
    assert!(is_readable(&joined.turns_b), "and goes on to do so");
    joined.wait_for(async {
        for receiving in receiving {
            let message = receiving.await.unwrap();
            assert!(*message == noise(message.opaque().into(), 20_000));
        }
        for sending in sending {
            assert_eq!(sending.await.unwrap().len, 20_000);
        }
    });
}

#[test]
fn who_has_nothing_to_do_is_not_readable_and_tells_when_to_come_again() {
    let joined = Joined::new();
    joined.wait_for(async {
        let sending = joined.here.send("hello").start();
        joined.there.receive(Memory::zeroed(5)).await.unwrap();
        sending.await.unwrap();
    });
    for turns in [&joined.turns_a, &joined.turns_b] {
        // The last acknowledgements may still be on their way.
        let idle = (0..10_000).find_map(|_| {
            let turned = turns.turn();
            (!turned.moved && !is_readable(turns)).then_some(turned)
        });
        let next = idle.expect("it has something to do for ever").next;
        assert!(next.is_some_and(|next| !next.is_zero()), "keep-alive is a timer: {next:?}");
    }
}

#[test]
fn a_timer_makes_the_descriptor_readable() {
    let retry_after = Duration::from_millis(5);
    let config = Config { retry_after, give_up_after: 3, ..Config::shared_network() };
    let (a, turns) = endpoint_with(config);
    // Nobody is there, and nothing comes back.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = Peer::from(silent.local_addr().unwrap());
    let error = wait_for(&[&turns], a.connect(to, PORT)).unwrap_err();
    assert!(matches!(error, Error::NotConnected(Ended::Silent)), "{error}");
}

#[test]
fn what_another_thread_asks_for_makes_the_descriptor_readable() {
    let joined = Joined::new();
    while joined.turns_a.turn().moved || is_readable(&joined.turns_a) {}
    let connection = joined.here.clone();
    let asking = thread::spawn(move || connection.send(noise(7, 1_000_000)).start());
    let message = joined.wait_for(joined.there.receive(Memory::zeroed(1_000_000))).unwrap();
    assert!(*message == noise(7, 1_000_000));
    joined.wait_for(asking.join().unwrap()).unwrap();
}

#[test]
fn a_thread_that_waits_and_a_reactor_get_along() {
    let joined = Joined::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            for round in 0..50 {
                let message = joined.there.receive(Memory::zeroed(100)).wait().unwrap();
                assert_eq!(message[..], [round; 100]);
            }
        });
        for round in 0..50 {
            let sending = joined.here.send(vec![round; 100]).start();
            joined.wait_for(sending).unwrap();
        }
        waiter.join().unwrap();
    });
}

#[test]
fn turns_bring_an_endpoint_whose_handles_are_dropped_to_its_end() {
    let Joined { a, turns_a, b, turns_b, here, there } = Joined::new();
    // It is under way when the last handle goes, with the connection that it keeps.
    let sending = here.send(noise(1, 2_000_000)).start();
    let receiving = there.receive(Memory::zeroed(2_000_000)).start();
    drop((a, here));
    let message = wait_for(&[&turns_a, &turns_b], async {
        let message = receiving.await.unwrap();
        sending.await.unwrap();
        message
    });
    assert!(*message == noise(1, 2_000_000));
    wait_for(&[&turns_a, &turns_b], there.closed()).unwrap();
    drop((b, there));
    for (turns, other) in [(&turns_a, &turns_b), (&turns_b, &turns_a)] {
        while !turns.turn().is_over {
            let fds = [turns, other].map(|turns| PollFd::new(turns, PollFlags::IN));
            assert!(poll(&mut { fds }, Some(&PATIENCE)).unwrap() > 0);
            other.turn();
        }
    }
    let turned = turns_a.turn();
    assert_eq!((turned.moved, turned.next, turned.is_over), (false, None, true));
}

#[test]
fn without_its_driver_an_endpoint_ends_with_its_last_handle() {
    let Joined { a, turns_a, b: _b, turns_b, here, there } = Joined::new();
    drop(turns_a);
    // Who waits still drives it.
    assert_eq!(a.stats().connections, 1);
    drop((a, here));
    let error = wait_for(&[&turns_b], there.closed()).unwrap_err();
    assert!(matches!(error, Error::Closed { why: Some(_) }), "{error}");
}

#[test]
fn an_endpoint_ends_with_its_driver_where_no_other_handle_is_left() {
    // Nobody asks who is silent whether it lives: what ends it was said.
    let config = Config { keep_alive: None, ..Config::shared_network() };
    let Joined { a, turns_a, b: _b, turns_b, here, there } = Joined::with(&config);
    drop((a, here));
    drop(turns_a);
    let ended = wait_for(&[&turns_b], there.closed());
    assert!(matches!(ended, Ok(()) | Err(Error::Closed { .. })), "{ended:?}");
}

#[test]
fn two_adapters_move_messages_with_turns_and_poll_alone() {
    let here = "127.0.0.1:0".parse().unwrap();
    let two = Adapter::builder().link(Link::tunnel(here, [])).address("10.0.0.2/24");
    let (two, turns_two) = two.open_without_thread().expect("loopback");
    let there = two.links()[0].tunnel_address.expect("a tunnel has an address");
    let one = Adapter::builder().link(Link::tunnel(here, [there])).address("10.0.0.1/24");
    let (one, turns_one) = one.open_without_thread().expect("loopback");
    let drivers: [&dyn Turns; 2] = [&turns_one, &turns_two];

    let options = QueuePairOptions::tcp(Mapping::Message);
    let (from, to) = (one.domain().unwrap(), two.domain().unwrap());
    let (mut sent, mut done) =
        (one.completion_queue(64).unwrap(), two.completion_queue(64).unwrap());
    let mut sending = from.queue_pair(&options, &sent, &sent).unwrap();
    let mut taking = to.queue_pair(&options, &done, &done).unwrap();
    let room = to.register(PairMemory::zeroed(40_000), Access::Write).unwrap();
    taking.post_receive(1, &[room.whole().unwrap()]).unwrap();
    let server = "10.0.0.2:7000".parse().unwrap();
    let listener = two.listen(server).unwrap();
    listener.offer(taking).unwrap();
    let bytes = noise(3, 40_000);
    let out = from.register(PairMemory::from_bytes(&bytes), Access::Read).unwrap();
    let _taking = wait_for(&drivers, async {
        sending.connect(server).await.unwrap();
        listener.accept().await.unwrap()
    });

    while turns_one.turn().moved || is_readable(&turns_one) {}
    sending.post_send(2, &[out.whole().unwrap()]).unwrap();
    assert!(is_readable(&turns_one), "a doorbell was rung");
    let mut completed = [0; 2];
    while completed != [1; 2] {
        poll_once(&drivers);
        for (queue, count) in [&mut sent, &mut done].into_iter().zip(&mut completed) {
            while let Some(completion) = queue.poll() {
                assert_eq!(completion.status, Status::Success);
                *count += 1;
            }
        }
    }
    let mut came = vec![0; 40_000];
    room.copy_out(0, &mut came).unwrap();
    assert!(came == bytes);
}

fn node(number: u16) -> (Node, NodeDriver) {
    let path = NodeTransport::udp("127.0.0.1:0".parse().unwrap());
    let builder = Node::builder(host(number)).linger(Duration::from_secs(60));
    builder.path(path).open_without_thread().expect("loopback")
}

/// Two nodes with a link.
fn linked_nodes() -> [(Node, NodeDriver); 2] {
    let [(here, turns_here), (there, turns_there)] = [node(1), node(2)];
    let link = here.link(there.local().unwrap()).unwrap();
    wait_for(&[&turns_here, &turns_there], async {
        assert_eq!(link.up().await.unwrap(), there.host());
        there.reached(here.host()).await.unwrap();
    });
    [(here, turns_here), (there, turns_there)]
}

/// Writes bytes and then a word, waiting for room where there is none.
async fn write(window: &mut Window, bytes: &[u8], word: u64) {
    while let Err(error) = window.write(8, bytes) {
        assert!(matches!(error, NodeError::Busy), "{error}");
        poll_fn(|context| window.poll_reached(Stage::Room, context)).await.unwrap();
    }
    while let Err(error) = window.store(0, word) {
        assert!(matches!(error, NodeError::Busy), "{error}");
        poll_fn(|context| window.poll_reached(Stage::Room, context)).await.unwrap();
    }
    window.commit().unwrap();
}

#[test]
fn two_nodes_write_and_read_memory_with_turns_and_poll_alone() {
    let [(here, turns_here), (there, turns_there)] = linked_nodes();
    let drivers: [&dyn Turns; 2] = [&turns_here, &turns_there];
    let (memory, cookie) = here.expose(1 << 20, Rights::ReadWrite).unwrap();
    let tripwire = here.watch(&memory, 0..8, Touch::Write, None).unwrap();
    let mut window = there.map(&cookie).unwrap();
    for round in 1..=20u64 {
        tripwire.arm();
        let bytes = noise(round, 100_000);
        wait_for(&drivers, async {
            write(&mut window, &bytes, round).await;
            tripwire.fired().await;
        });
        assert_eq!(memory.load(0).unwrap(), round);
        let mut came = vec![0; bytes.len()];
        memory.copy_out(8, &mut came).unwrap();
        assert!(came == bytes, "what was written before the word is there before it");
    }
    let (into, _) = there.expose(100_000, Rights::Read).unwrap();
    wait_for(&drivers, window.read_into(8, &into, 0..100_000)).unwrap();
    let mut read = vec![0; 100_000];
    into.copy_out(0, &mut read).unwrap();
    assert!(read == noise(20, 100_000));
    assert!(thread_names().iter().all(|name| name != "landfall-clan"), "{:?}", thread_names());
}

#[test]
fn turns_deliver_what_a_node_wrote_before_its_last_handle_went() {
    let [(here, turns_here), (there, turns_there)] = linked_nodes();
    let (memory, cookie) = here.expose(1 << 20, Rights::Write).unwrap();
    let tripwire = here.watch(&memory, 0..8, Touch::Write, None).unwrap();
    tripwire.arm();
    let mut window = there.map(&cookie).unwrap();
    let bytes = noise(1, 100_000);
    wait_for(&[&turns_here, &turns_there], write(&mut window, &bytes, 1));
    drop((window, there));
    wait_for(&[&turns_here, &turns_there], tripwire.fired());
    let mut came = vec![0; bytes.len()];
    memory.copy_out(8, &mut came).unwrap();
    assert!(came == bytes);
    while !turns_there.turn().is_over {
        poll_once(&[&turns_here, &turns_there]);
    }
}

#[test]
fn a_thread_that_waits_drives_a_node_whose_reactor_is_gone() {
    let [(here, turns_here), (there, turns_there)] = linked_nodes();
    let (_memory, cookie) = here.expose(4096, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    drop(turns_there);
    window.store(0, 7).unwrap();
    window.commit().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let deadline = Some(std::time::Instant::now() + Duration::from_secs(60));
            window.wait_for(Stage::Delivered, deadline)
        });
        while !waiter.is_finished() {
            turns_here.turn();
        }
        waiter.join().unwrap().unwrap();
    });
}
