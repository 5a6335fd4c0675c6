//! Queue pairs and the sockets of the kernel, over every way that needs
//! privileges: TAP, and an interface that the two share.

use std::io::{self, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};

use super::{End, PATIENCE, noise};
use landfall::nic::Pace;
use landfall::qpip::{
    Access, Adapter, Link, Mapping, Memory, OpenError, Operation, QueuePair, QueuePairOptions,
    Status, TapConfig,
};
use landfall_testbed::{
    Namespace, Offload, VethConfig, VethEnd, VethPair, require_namespaces, skip_unless,
};
use landfall_transport::uring::Unavailable;
use landfall_transport::{self as transport, Privilege};

const PORT: u16 = 7_000;
const TOTAL: usize = 400_000;
/// More than the adapter's window: it has to be opened on the way.
const WINDOW: u64 = 64 << 10;

/// An adapter beside a kernel, and where both can be reached.
struct Neighbours {
    adapter: Adapter,
    kernel: Namespace,
    /// Of the adapter and of the kernel, in both versions of IP.
    addresses: [(IpAddr, IpAddr); 2],
    /// Keeps the cable.
    _cable: Option<VethPair>,
}

/// Addresses of the adapter on the cable of an end, which no kernel has.
pub(super) fn ours(end: &VethEnd) -> (Ipv4Addr, Ipv6Addr) {
    let [a, b, c, _] = end.ipv4.octets();
    let mut octets = end.ipv6.octets();
    octets[15] = 100;
    (Ipv4Addr::new(a, b, c, 100), octets.into())
}

/// The adapter shares an interface with one kernel, and another is at the other
/// end of the cable.
fn over_cable(link: impl FnOnce(&str) -> Link + Send) -> Result<Neighbours, String> {
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let (v4, v6) = ours(&cable.a);
    let builder = Adapter::builder().link(link(&cable.a.name));
    let builder = builder.address(format!("{v4}/24")).address(format!("{v6}/64"));
    let adapter = match cable.a.namespace.enter(|| builder.open()).unwrap() {
        Ok(adapter) => adapter,
        Err(error) => match why_not_here(&error) {
            Some(why) => return Err(why),
            None => panic!("{error}"),
        },
    };
    let addresses = [(v4.into(), cable.b.ipv4.into()), (v6.into(), cable.b.ipv6.into())];
    let kernel = cable.b.namespace.clone();
    Ok(Neighbours { adapter, kernel, addresses, _cable: Some(cable) })
}

/// What this machine lacks, if it is that.
pub(super) fn why_not_here(error: &OpenError) -> Option<String> {
    let OpenError::Link { source, .. } = error else { return None };
    let source = source.get_ref()?;
    let no_ring = source.downcast_ref::<Unavailable>().map(ToString::to_string);
    let no_xdp = source.downcast_ref::<transport::OpenError>().and_then(|error| {
        let is_lacking = matches!(
            error,
            transport::OpenError::NoXdpSockets | transport::OpenError::NoPrivilege(Privilege::Xdp)
        );
        is_lacking.then(|| error.to_string())
    });
    no_ring.or(no_xdp)
}

fn over_tap(behind: fn(Link) -> Link) -> Neighbours {
    let kernel = Namespace::new().unwrap();
    let their: IpAddr = [10, 9, 0, 1].into();
    let config = TapConfig { kernel_address: Some((their, 24)), ..TapConfig::new("tap0") };
    let builder = Adapter::builder().link(behind(Link::tap_with(config))).address("10.9.0.2/24");
    let adapter = kernel.enter(|| builder.open()).unwrap().unwrap();
    let addresses = [([10, 9, 0, 2].into(), their); 2];
    Neighbours { adapter, kernel, addresses, _cable: None }
}

/// Sends back what comes, from where it came to, until the other side has
/// finished; then finishes, too.
fn echo(mut end: End) {
    /// Room that stays behind all that comes: an end is not sent into a window
    /// that is shut.
    const SPARE: u64 = u64::MAX;
    let (mut posted, mut came) = (0u64, 0u64);
    // One region for both, in windows: what has come is sent from there.
    let memory = end.domain.register(Memory::zeroed(TOTAL), Access::ReadWrite).unwrap();
    let spare = end.room.part(0..100).unwrap();
    let mut post = |pair: &mut QueuePair, came: u64| {
        while posted < TOTAL as u64 && posted < came + WINDOW {
            let next = (posted + WINDOW / 4).min(TOTAL as u64);
            pair.post_receive(posted, &[memory.part(posted..next).unwrap()]).unwrap();
            posted = next;
            if posted == TOTAL as u64 {
                pair.post_receive(SPARE, &[spare]).unwrap();
            }
        }
    };
    post(&mut end.pair, 0);
    let (mut sending, mut has_ended) = (0, false);
    while came < TOTAL as u64 || sending > 0 || !has_ended {
        let next = end.done.wait_for(PATIENCE).unwrap().expect("it takes far too long");
        if (next.id, next.status) == (SPARE, Status::Flushed) {
            has_ended = true;
            continue;
        }
        assert_eq!(next.status, Status::Success, "{next:?}");
        if next.operation == Operation::Send {
            sending -= 1;
            continue;
        }
        let start = next.id + u64::from(next.offset);
        assert_eq!(start, came);
        if next.len == 0 {
            // The end of a request of which all was told before.
            continue;
        }
        let part = memory.part(came..came + u64::from(next.len)).unwrap();
        came += u64::from(next.len);
        end.pair.post_send(0, &[part]).unwrap();
        sending += 1;
        post(&mut end.pair, came);
    }
    end.pair.close().wait_for(PATIENCE).expect("in time").unwrap();
}

/// The kernel's side: sends noise, and wants the same back.
fn expect_echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let bytes = noise(11, TOTAL);
    let mut sender = stream.try_clone()?;
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || {
        sender.write_all(&sent)?;
        sender.shutdown(Shutdown::Write)
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got)?;
    sending.join().expect("no panic")?;
    assert!(got == bytes, "{} bytes came back", got.len());
    Ok(())
}

impl Neighbours {
    fn end(&self) -> End {
        End::new(
            &self.adapter,
            &QueuePairOptions { send_depth: 512, ..QueuePairOptions::tcp(Mapping::Stream) },
        )
    }

    /// A client of the kernel's connects to the adapter.
    fn serve(&self, (ours, _): (IpAddr, IpAddr)) {
        let at = SocketAddr::new(ours, PORT);
        let listener = self.adapter.listen(at).unwrap();
        let mut end = self.end();
        listener.offer(end.pair).unwrap();
        let connect = move || expect_echo(TcpStream::connect_timeout(&at, PATIENCE)?);
        let client = self.kernel.spawn("client", connect).unwrap();
        end.pair = listener.accept().wait_for(PATIENCE).expect("in time").unwrap();
        echo(end);
        client.join().expect("no panic").unwrap().unwrap();
    }

    /// The adapter connects to a server of the kernel's.
    fn call(&self, (_, theirs): (IpAddr, IpAddr)) {
        let listener = self.kernel.enter(|| TcpListener::bind((theirs, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || expect_echo(listener.accept()?.0));
        let end = self.end();
        end.pair.connect(at).wait_for(PATIENCE).expect("in time").unwrap();
        echo(end);
        server.join().expect("no panic").unwrap();
    }

    /// A datagram each way.
    fn send_datagrams(&self, (ours, theirs): (IpAddr, IpAddr)) {
        let socket = self.kernel.enter(|| UdpSocket::bind((theirs, 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut end = End::new(&self.adapter, &QueuePairOptions::udp());
        let at = end.pair.bind(SocketAddr::new(ours, 0)).unwrap();
        end.post_room(1, 0, 10_000);
        let bytes = noise(3, 5_000);
        let part = end.fill(0, &bytes);
        end.pair.post_send_to(2, &[part], socket.local_addr().unwrap()).unwrap();
        let mut buffer = vec![0; 10_000];
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        assert!(from == at && buffer[..len] == bytes);
        socket.send_to(b"thanks", at).unwrap();
        let came = end.expect(Operation::Receive, 1);
        assert_eq!(came.from, Some(socket.local_addr().unwrap()));
        assert_eq!(end.received(0, came.len as usize), b"thanks");
    }
}

/// How many resets the kernel of this thread's namespace has sent.
fn resets_sent() -> u64 {
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let index = names.split(' ').position(|name| name == "OutRsts").unwrap();
    values.split(' ').nth(index).unwrap().parse().unwrap()
}

#[test]
fn sockets_of_the_kernel_over_tap() {
    require_namespaces!();
    let both = over_tap(|link| link);
    both.serve(both.addresses[0]);
    both.call(both.addresses[0]);
    both.send_datagrams(both.addresses[0]);
}

/// The simulated card gets frames as a cable carries them, though the kernel hands over
/// super-packets without checksums, and it puts payloads into the posted memory.
#[test]
fn sockets_of_the_kernel_by_a_simulated_adapter_before_tap() {
    require_namespaces!();
    let both = over_tap(|link| link.behind_nic(Pace::Free));
    both.serve(both.addresses[0]);
    both.call(both.addresses[0]);
    both.send_datagrams(both.addresses[0]);
    let counters = both.adapter.links()[0].counters;
    assert!(counters.guessed_right as usize > TOTAL / 1_448, "the card placed: {counters:?}");
    assert_eq!(counters.corrupt, 0, "{counters:?}");
}

#[test]
fn sockets_of_the_kernel_by_a_simulated_adapter_before_an_interface_that_is_shared() {
    require_namespaces!();
    let both = over_cable(|name| Link::packet(name).behind_nic(Pace::Free)).unwrap();
    for addresses in both.addresses {
        both.serve(addresses);
        both.call(addresses);
        both.send_datagrams(addresses);
    }
    let counters = both.adapter.links()[0].counters;
    assert!(counters.guessed_right as usize > TOTAL / 1_448, "the card placed: {counters:?}");
    assert_eq!(counters.corrupt, 0, "{counters:?}");
}

#[test]
fn sockets_of_the_kernel_over_an_interface_that_is_shared() {
    require_namespaces!();
    let both = over_cable(|name| Link::packet(name)).unwrap();
    for addresses in both.addresses {
        both.serve(addresses);
        both.call(addresses);
        both.send_datagrams(addresses);
    }
    // The kernel on this side of the cable never answered in the adapter's place.
    let cable = both._cable.as_ref().unwrap();
    assert_eq!(cable.a.namespace.enter(resets_sent).unwrap(), 0);
}

#[test]
fn sockets_of_the_kernel_by_io_uring() {
    require_namespaces!();
    let both = over_cable(|name| Link::packet_uring(name));
    skip_unless!(both.as_ref().err().cloned());
    let Ok(both) = both else { return };
    both.serve(both.addresses[0]);
    both.call(both.addresses[1]);
}

#[test]
fn sockets_of_the_kernel_by_af_xdp() {
    require_namespaces!();
    let both = over_cable(|name| Link::xdp(name));
    skip_unless!(both.as_ref().err().cloned());
    let Ok(both) = both else { return };
    let cable = both._cable.as_ref().unwrap();
    // On a virtual cable the kernel leaves its checksums to a device that is not there.
    cable.b.set_offload(Offload::TransmitChecksum, false).unwrap();
    both.call(both.addresses[0]);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let no_link = Adapter::builder().open().unwrap_err();
    assert!(matches!(no_link, OpenError::NoLink));
    let early = Adapter::builder().address("10.0.0.1/24").open().unwrap_err();
    assert!(early.to_string().contains("Builder::link"), "{early}");
    let tunnel = || Adapter::builder().link(Link::tunnel("127.0.0.1:0".parse().unwrap(), []));
    for bad in ["10.0.0.1", "10.0.0/24", "10.0.0.1/x", ""] {
        let error = tunnel().address(bad).open().unwrap_err();
        assert!(matches!(error, OpenError::BadAddress(_)), "{bad}: {error}");
    }
    let none = tunnel().open().unwrap_err();
    assert!(matches!(none, OpenError::Interface { .. }), "{none}");
    let group = tunnel().address("10.0.0.1/24").mac([1; 6]).open_inline().unwrap_err();
    assert!(matches!(group, OpenError::Interface { .. }), "{group}");
    let no_vlan = tunnel().address("10.0.0.1/24").vlan(4_095).open().unwrap_err();
    assert!(matches!(no_vlan, OpenError::Interface { .. }), "{no_vlan}");
    let shared = Adapter::builder().link(Link::packet("lo")).address("10.0.0.1/24").vlan(5);
    let no_tags = shared.open().unwrap_err();
    assert!(matches!(no_tags, OpenError::NoTags(_)), "{no_tags}");
    let nowhere = Adapter::builder().link(Link::packet("no-such-iface")).address("10.0.0.1/24");
    let error = nowhere.open().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no-such-iface") || text.contains("CAP_NET_RAW"), "{text}");
    assert!(tunnel().address("10.0.0.1/24").open().is_ok());
}
