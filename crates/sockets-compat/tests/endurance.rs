//! Ten thousand connections leave nothing behind, and a peer that is killed is noticed.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};

#[cfg(feature = "clan")]
use landfall_testkit::trials::{count_kills, kills};
use sockets_compat::{ByteStream, Family};
#[cfg(feature = "clan")]
use sockets_compat::{ClanListener, ClanNetwork, ClanOptions, ClanStream};
#[cfg(feature = "qpip")]
use sockets_compat::{QpHost, QpOptions};
#[cfg(feature = "stp")]
use sockets_compat::{StpHost, StpOptions, StpSeqPacket};
use support::{Folder, descriptors, until, within};

const CONNECTIONS: usize = 10_000;
/// Threads and queues of the process that come with the first connections.
const WARM: usize = 20;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("there is /proc").count()
}

/// Each connection says something, is answered, and goes. Tests beside this one have
/// descriptors too: as many are left behind as connections were made, or it is none.
fn leaves_nothing(name: &str, mut connection: impl FnMut()) {
    (0..WARM).for_each(|_| connection());
    let before = descriptors();
    (0..CONNECTIONS).for_each(|_| connection());
    let bound = before + 100;
    until(&format!("{name} gives its descriptors back"), || descriptors() < bound);
    until(&format!("{name} gives its threads back"), || threads() < 100);
}

/// What each stream is for.
fn there_and_back<F: Family>(mut one: ByteStream<F>, mut two: ByteStream<F>) {
    one.write_all(b"ping").unwrap();
    let mut bytes = [0; 4];
    two.read_exact(&mut bytes).unwrap();
    two.write_all(&bytes).unwrap();
    one.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
}

#[cfg(feature = "clan")]
#[test]
fn shared_memory_leaves_nothing_behind() {
    let folder = Folder::new("endurance");
    let listener = ClanListener::bind(folder.address("many")).unwrap();
    let address = folder.address("many");
    leaves_nothing("shared memory", || {
        let one = ClanStream::connect(&address).unwrap();
        there_and_back(one, listener.accept().unwrap().0);
    });
}

#[cfg(feature = "clan")]
#[test]
fn memory_of_other_hosts_leaves_nothing_behind() {
    let local = || "127.0.0.1:0".parse().unwrap();
    let network = || ClanNetwork::bind_udp(local(), ClanOptions::default()).unwrap();
    let (client, server) = (network(), network());
    let listener = server.listen(1).unwrap();
    let there = listener.local_addr().unwrap();
    leaves_nothing("memory of other hosts", || {
        let one = client.connect(&there).unwrap();
        there_and_back(one, listener.accept().unwrap().0);
    });
    for network in [&client, &server] {
        until("no memory is left", || network.node().stats().regions == 0);
    }
}

#[cfg(feature = "stp")]
#[test]
fn stp_leaves_nothing_behind() {
    let host = || StpHost::bind_udp("127.0.0.1:0".parse().unwrap(), StpOptions::default()).unwrap();
    let (client, server) = (host(), host());
    let listener = server.listen(1).unwrap();
    let there = listener.local_addr().unwrap();
    leaves_nothing("STP", || {
        let one = client.connect(&there).unwrap();
        let (two, _) = listener.accept().unwrap();
        one.send(b"ping").unwrap();
        assert_eq!(two.recv(&mut [0; 4]).unwrap(), 4);
        two.send(b"pong").unwrap();
        assert_eq!(one.recv(&mut [0; 4]).unwrap(), 4);
    });
    for host in [&client, &server] {
        until("no connection is left", || host.endpoint().stats().connections == 0);
        until("no memory is left", || host.endpoint().stats().regions == 0);
    }
}

#[cfg(feature = "qpip")]
#[test]
fn queue_pairs_leave_nothing_behind() {
    use landfall::qpip::{Adapter, ChannelConfig};
    let joined = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default());
    let (one, two) = joined.unwrap();
    let host = |adapter| QpHost::new(adapter, QpOptions::default()).unwrap();
    let client = host(one.address("10.0.0.1/24").open().unwrap());
    let server = host(two.address("10.0.0.2/24").open().unwrap());
    let listener = server.listen("qp://10.0.0.2:1").unwrap();
    leaves_nothing("queue pairs", || {
        let one = client.connect("qp://10.0.0.2:1").unwrap();
        there_and_back(one, listener.accept().unwrap().0);
    });
    drop(listener);
    for host in [&client, &server] {
        until("no memory is left", || host.adapter().registered() == 0);
    }
}

// ---- A process that is killed -------------------------------------------------------

/// Who is started anew as a child, and where it connects to.
const CHILD: &str = "SOCKETS_COMPAT_TEST_CHILD";

/// Not a test by itself: what the children of the tests below do.
#[cfg(feature = "clan")]
#[test]
fn child() {
    let Ok(address) = std::env::var(CHILD) else { return };
    let mut stream = ClanStream::connect(address).unwrap();
    stream.write_all(b"I am here").unwrap();
    // Until it is killed; by itself it does not stay for ever.
    let _ = stream.set_read_timeout(Some(support::PATIENCE));
    let _ = stream.read(&mut [0; 1]);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn child_that_is(test: &str, address: &str) -> Killed {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    let command = command.args(["--exact", test]).env(CHILD, address);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Killed(child.expect("it runs once more"))
}

/// Not a test by itself: the child of the test below.
#[cfg(feature = "stp")]
#[test]
fn child_by_stp() {
    let Ok(address) = std::env::var(CHILD) else { return };
    let socket = StpSeqPacket::connect(address).unwrap();
    socket.send(b"I am here").unwrap();
    let _ = socket.set_read_timeout(Some(support::PATIENCE));
    let _ = socket.recv(&mut [0; 1]);
}

/// UDP tells nobody of a process that was killed: it is silence that shows it.
#[cfg(feature = "stp")]
#[test]
fn a_killed_peer_of_stp_is_an_error_in_time_and_leaves_nothing() {
    within(|| {
        let local = "127.0.0.1:0".parse().unwrap();
        let host = StpHost::bind_udp(local, StpOptions::default()).unwrap();
        let listener = host.listen(1).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let child = child_that_is("child_by_stp", &address);
        let (socket, _) = listener.accept().unwrap();
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 9);
        let reader = socket.try_clone().unwrap();
        let reading = std::thread::spawn(move || reader.recv(&mut [0; 1]));
        drop(child);
        let error = reading.join().unwrap().unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionReset),
            "{error}"
        );
        socket.send(b"nobody is there").unwrap_err();
        drop(socket);
        until("no connection is left", || host.endpoint().stats().connections == 0);
        until("no memory is left", || host.endpoint().stats().regions == 0);
    });
}

/// UDP tells nobody of a process that was killed: it is silence that shows it, after a time
/// that the node was opened with.
#[cfg(feature = "clan")]
#[test]
fn a_killed_peer_of_another_host_is_a_reset_and_leaves_nothing() {
    use landfall::clan::network::{Config, Duration, HostId, Node, Transport};
    within(|| {
        let config = Config {
            retry_after: Duration::from_millis(20),
            keep_alive: Some(Duration::from_millis(500)),
            ..Config::shared_network()
        };
        // A child that draws the same number draws another.
        let node = Node::builder(HostId::new(5).unwrap())
            .path(Transport::udp("127.0.0.1:0".parse().unwrap()))
            .config(config)
            .open()
            .unwrap();
        let network = ClanNetwork::new(node, ClanOptions::default());
        let listener = network.listen(1).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let child = child_that_is("child", &address);
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 9];
        stream.read_exact(&mut bytes).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || reader.read(&mut [0; 1]));
        drop(child);
        let error = reading.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        stream.write_all(b"nobody is there").unwrap_err();
        drop(stream);
        until("no memory is left", || network.node().stats().regions == 0);
    });
}

#[cfg(feature = "clan")]
#[test]
fn a_killed_peer_is_a_reset_behind_what_it_wrote() {
    for round in 0..kills(2) {
        within(move || lose_a_peer_in_shared_memory(round % 2 == 0));
        count_kills("an end of a stream in shared memory", 1);
    }
}

#[cfg(feature = "clan")]
fn lose_a_peer_in_shared_memory(is_reading: bool) {
    let folder = Folder::new("killed");
    let listener = ClanListener::bind(folder.address("parent")).unwrap();
    let child = child_that_is("child", &folder.address("parent"));
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = [0; 9];
    stream.read_exact(&mut bytes).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || reader.read(&mut [0; 1]));
    if is_reading {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(child);
    let error = reading.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    let mut error = None;
    until("a write hears of it", || {
        error = stream.write_all(&[0; 1024]).err();
        error.is_some()
    });
    let kind = error.unwrap().kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind}");
}

/// Where queue pairs of the test below listen, at the parent's end of the tunnel.
#[cfg(feature = "qpip")]
const SERVER: &str = "qp://10.0.0.2:1";

/// Not a test by itself: the child of the test below, which is told the tunnel's other end.
#[cfg(feature = "qpip")]
#[test]
fn child_by_qp() {
    use landfall::qpip::{Adapter, Link};
    let Ok(tunnel) = std::env::var(CHILD) else { return };
    let link = Link::tunnel("127.0.0.1:0".parse().unwrap(), [tunnel.parse().unwrap()]);
    let adapter = Adapter::builder().link(link).address("10.0.0.1/24").open().unwrap();
    let host = QpHost::new(adapter, QpOptions::default()).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| host.connect(SERVER).unwrap());
    first.write_all(b"I am here").unwrap();
    second.write_all(b"I am here").unwrap();
    let _ = first.set_read_timeout(Some(support::PATIENCE));
    let _ = first.read(&mut [0; 1]);
}

/// TCP tells nobody of a host that is gone: who waits for bytes asks from time to time, and
/// who sends some hears no answer. How long for the adapter is told.
#[cfg(feature = "qpip")]
#[test]
fn a_killed_peer_of_queue_pairs_is_a_time_out_and_leaves_nothing() {
    use landfall::qpip::{Adapter, Config, KeepAlive, Link, TcpConfig};
    use std::time::Duration;
    within(|| {
        // A child that a busy machine lets wait for seconds is not taken for a dead one.
        let keep_alive = KeepAlive {
            idle: Duration::from_secs(2),
            interval: Duration::from_millis(500),
            probes: 12,
        };
        let tcp = TcpConfig {
            keep_alive: Some(keep_alive),
            give_up_after: Duration::from_secs(4),
            ..TcpConfig::default()
        };
        let link = Link::tunnel("127.0.0.1:0".parse().unwrap(), []);
        let adapter = Adapter::builder().link(link).address("10.0.0.2/24");
        let adapter = adapter.config(Config { tcp, ..Config::default() }).open().unwrap();
        let tunnel = adapter.links()[0].tunnel_address.expect("a tunnel has an address");
        let host = QpHost::new(adapter, QpOptions::default()).unwrap();
        let listener = host.listen(SERVER).unwrap();
        let child = child_that_is("child_by_qp", &tunnel.to_string());
        let [mut reader, mut writer] = [(); 2].map(|()| listener.accept().unwrap().0);
        for stream in [&mut reader, &mut writer] {
            stream.read_exact(&mut [0; 9]).unwrap();
        }
        let reading = std::thread::spawn(move || reader.read(&mut [0; 1]));
        drop(child);
        let error = loop {
            if let Err(error) = writer.write(&[0; 1024]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let error = reading.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        drop((writer, listener));
        until("no memory is left", || host.adapter().registered() == 0);
    });
}
