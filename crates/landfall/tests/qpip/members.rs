//! Several adapters of one station, beside the sockets of a kernel: each connection and each port
//! is one adapter's, no matter who spreads what comes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use landfall::qpip::{
    Adapter, Link, Listener, Mapping, OpenError, Operation, QueuePair, QueuePairOptions, TapConfig,
    XdpConfig,
};
use landfall_testbed::{Namespace, Offload, VethConfig, VethPair, require_namespaces, skip_unless};

use super::kernel::{ours, why_not_here};
use super::{End, PATIENCE, at, noise};

const MEMBERS: u16 = 3;
/// Enough that it would be a wonder if one member got none.
const CONNECTIONS: usize = 24;

/// The members, a kernel beside them, and the addresses of both.
struct Station {
    adapters: Vec<Adapter>,
    kernel: Namespace,
    ours: IpAddr,
    theirs: IpAddr,
    /// Keeps the cable.
    _cable: Option<VethPair>,
}

fn over_tap() -> Station {
    let kernel = Namespace::new().unwrap();
    let theirs = Ipv4Addr::new(10, 9, 0, 1).into();
    let config = TapConfig { kernel_address: Some((theirs, 24)), ..TapConfig::new("tap0") };
    let builder = Adapter::builder().link(Link::tap_with(config)).address("10.9.0.2/24");
    let adapters = kernel.enter(|| builder.open_members(MEMBERS)).unwrap().unwrap();
    let ours = Ipv4Addr::new(10, 9, 0, 2).into();
    Station { adapters, kernel, ours, theirs, _cable: None }
}

fn over_cable(is_v6: bool, link: impl FnOnce(&str) -> Link + Send) -> Result<Station, OpenError> {
    let config = VethConfig { queues: MEMBERS.into(), ..VethConfig::default() };
    let cable = VethPair::new(config).unwrap();
    let (v4, v6) = ours(&cable.a);
    let builder = Adapter::builder().link(link(&cable.a.name));
    let builder = builder.address(format!("{v4}/24")).address(format!("{v6}/64"));
    let adapters = cable.a.namespace.enter(|| builder.open_members(MEMBERS)).unwrap()?;
    let (ours, theirs) = match is_v6 {
        true => (v6.into(), cable.b.ipv6.into()),
        false => (v4.into(), cable.b.ipv4.into()),
    };
    Ok(Station { adapters, kernel: cable.b.namespace.clone(), ours, theirs, _cable: Some(cable) })
}

fn end(adapter: &Adapter) -> End {
    let mut end = End::new(adapter, &QueuePairOptions::tcp(Mapping::Stream));
    end.post_room(1, 0, 100);
    end
}

/// Some bytes from the kernel to the member, and the same back.
fn talk(mut stream: TcpStream, end: &mut End) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"there and back").unwrap();
    let came = end.expect(Operation::Receive, 1).len as usize;
    let bytes = end.received(0, came);
    end.post(2, 0, &bytes);
    let mut back = vec![0; came];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes && came > 0 && b"there and back".starts_with(&back));
}

impl Station {
    /// Clients of the kernel's come to every member.
    fn serve(&self) {
        let to = SocketAddr::new(self.ours, 7_000);
        let listeners: Vec<Listener> =
            self.adapters.iter().map(|adapter| adapter.listen(to).unwrap()).collect();
        // Each that may get a connection has a queue pair for it.
        let offered = |member: usize| {
            let mut end = end(&self.adapters[member]);
            let pair = std::mem::replace(&mut end.pair, spare(&self.adapters[member]));
            listeners[member].offer(pair).unwrap();
            end
        };
        let mut counts = vec![0; listeners.len()];
        let mut ends: Vec<End> = (0..listeners.len()).map(offered).collect();
        for _ in 0..CONNECTIONS {
            let connect = move || TcpStream::connect_timeout(&to, PATIENCE);
            let stream = self.kernel.enter(connect).unwrap().unwrap();
            let (member, pair) = accepted(&listeners);
            counts[member] += 1;
            let mut end = std::mem::replace(&mut ends[member], offered(member));
            end.pair = pair;
            talk(stream, &mut end);
        }
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }

    /// Each member connects to a server of the kernel's, and hears its answers.
    fn call(&self) {
        let bind = || TcpListener::bind((self.theirs, 0));
        let listener = self.kernel.enter(bind).unwrap().unwrap();
        let to = listener.local_addr().unwrap();
        for adapter in self.adapters.iter().cycle().take(CONNECTIONS) {
            let mut end = end(adapter);
            end.pair.connect(to).wait_for(PATIENCE).expect("in time").unwrap();
            talk(listener.accept().unwrap().0, &mut end);
        }
    }

    /// Datagrams come to the member that is bound, those in fragments, too; and for a port that
    /// nobody is bound to there is one answer.
    fn send_datagrams(&self) {
        let bind = || UdpSocket::bind((self.theirs, 0));
        let socket = self.kernel.enter(bind).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut ports = Vec::new();
        for (adapter, len) in self.adapters.iter().cycle().zip([10, 20, 30, 5_000, 6_000, 7_000]) {
            let mut end = End::new(adapter, &QueuePairOptions::udp());
            let bound = end.pair.bind(SocketAddr::new(self.ours, 0)).unwrap();
            end.post_room(1, 0, 10_000);
            let bytes = noise(3, len);
            socket.send_to(&bytes, bound).unwrap();
            let came = end.expect(Operation::Receive, 1);
            assert_eq!(came.from, Some(socket.local_addr().unwrap()));
            assert!(end.received(0, came.len as usize) == bytes, "{len}");
            ports.push(bound.port());
        }
        for port in 9_000..9_010 {
            let socket = self.kernel.enter(bind).unwrap().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect((self.ours, port)).unwrap();
            socket.send(b"is anybody there?").unwrap();
            let error = socket.recv(&mut [0; 10]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        let answers: u64 = self.adapters.iter().map(|adapter| adapter.stats().control_queued).sum();
        // Beside them a few answers to those who ask for the station.
        assert!((10..20).contains(&answers), "{answers} answers to 10 datagrams");
    }

    fn check(&self) {
        self.send_datagrams();
        self.serve();
        self.call();
    }

    /// How many frames members gave each other.
    fn handed_over(&self) -> u64 {
        let of = |adapter: &Adapter| adapter.links()[0].counters.handed_over;
        self.adapters.iter().map(of).sum()
    }

    /// Where a program of ours spreads what comes, segments come to their members at once: there
    /// are some 400, and in between some fragments and answers of neighbours, which all get.
    fn check_spread(&self) {
        self.check();
        assert!(self.handed_over() < 100, "{} frames", self.handed_over());
    }
}

/// A queue pair that stands in for one that is offered.
fn spare(adapter: &Adapter) -> QueuePair {
    End::tcp(adapter, Mapping::Stream).pair
}

/// Which listener got the connection.
fn accepted(listeners: &[Listener]) -> (usize, QueuePair) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for (member, listener) in listeners.iter().enumerate() {
            if let Some(pair) = listener.accept().wait_for(Duration::from_millis(2)) {
                return (member, pair.unwrap());
            }
        }
    }
    panic!("no listener got it");
}

#[test]
fn members_share_a_tap_interface_by_its_queues() {
    require_namespaces!();
    over_tap().check_spread();
}

#[test]
fn members_share_an_interface_by_packet_sockets() {
    require_namespaces!();
    for is_v6 in [false, true] {
        over_cable(is_v6, |name| Link::packet(name)).unwrap().check_spread();
    }
}

/// Here the device chooses queues by a key of its own, and members hand frames to each other.
#[test]
fn members_share_an_interface_by_its_queues_of_af_xdp() {
    require_namespaces!();
    let link = |name: &str| Link::xdp_with(XdpConfig::station_and_groups(name, [0; 6]));
    let station = over_cable(false, link);
    let lacking = station.as_ref().err().and_then(why_not_here);
    skip_unless!(lacking);
    let station = station.unwrap();
    // On a virtual cable the kernel leaves its checksums to a device that is not there.
    let cable = station._cable.as_ref().unwrap();
    cable.b.set_offload(Offload::TransmitChecksum, false).unwrap();
    station.check();
    assert!(station.handed_over() > 0, "the device knows nothing of members");
}

#[test]
fn what_cannot_be_shared_says_why() {
    let tunnel = || Adapter::builder().link(Link::tunnel(at("127.0.0.1:0"), []));
    let alone = tunnel().address("10.0.0.1/24").open_members(2).unwrap_err();
    assert!(matches!(alone, OpenError::NotShared(_)), "{alone}");
    let asking = Adapter::builder().link(Link::packet("lo")).dhcp().open_members(2).unwrap_err();
    assert!(matches!(asking, OpenError::NeedsAddresses(_)), "{asking}");
    assert_eq!(tunnel().address("10.0.0.1/24").open_members(1).unwrap().len(), 1);
}
