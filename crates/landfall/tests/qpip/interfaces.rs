//! What an interface may be: of a VLAN, and with addresses that it finds out itself.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};

use landfall::qpip::{
    Adapter, Builder, Link, Mapping, Notice, Operation, QueuePairOptions, TapConfig,
};
use landfall_testbed::{
    Namespace, VethConfig, VethPair, privileges, require_namespaces, skip_unless,
};
use landfall_testkit::TemporaryFolder;

use super::kernel::ours;
use super::{End, PATIENCE, at, connected, noise};

/// The address of the kernel at the other end of a TAP interface.
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

#[test]
fn two_adapters_of_a_vlan_find_each_other_and_one_of_another_does_not() {
    let here = at("127.0.0.1:0");
    let station = |link: Link, address: &str, vlan: u16| {
        Adapter::builder().link(link).address(address).vlan(vlan).open().expect("loopback")
    };
    let two = station(Link::tunnel(here, []), "10.0.0.2/24", 5);
    let there = two.links()[0].tunnel_address.expect("a tunnel has an address");
    let one = station(Link::tunnel(here, [there]), "10.0.0.1/24", 5);
    let pair = (one, two);
    let (mut sender, mut receiver) = connected(&pair, Mapping::Message);
    let bytes = noise(2, 30_000);
    sender.post(1, 0, &bytes);
    assert_eq!(receiver.expect(Operation::Receive, 0).len, 30_000);
    assert!(receiver.received(0, 30_000) == bytes);
    let (one, two) = pair;

    let stranger = station(Link::tunnel(here, [there]), "10.0.0.3/24", 6);
    let asking = End::tcp(&stranger, Mapping::Message);
    let asked = asking.pair.connect(at("10.0.0.2:7000"));
    asked.wait_for(PATIENCE).expect("in time").expect_err("nobody answers");
    assert!(two.stats().frames_of_other_vlans > 0);
    assert_eq!(one.stats().frames_of_other_vlans, 0, "the tunnel does not pass them on");
}

/// A TAP interface to a kernel of its own, and an adapter on it.
fn over_tap(adjust: impl FnOnce(Builder) -> Builder) -> (Namespace, Adapter) {
    let kernel = Namespace::new().unwrap();
    let config = TapConfig { kernel_address: Some((KERNEL.into(), 24)), ..TapConfig::new("tap0") };
    let builder = adjust(Adapter::builder().link(Link::tap_with(config)).seed([9; 32]));
    let adapter = kernel.enter(|| builder.open()).unwrap().unwrap();
    (kernel, adapter)
}

/// Waits for what is meant.
fn notice(adapter: &Adapter, is_meant: impl Fn(&Notice) -> bool) -> Notice {
    let start = std::time::Instant::now();
    while start.elapsed() < PATIENCE {
        match adapter.next_notice() {
            Some(notice) if is_meant(&notice) => return notice,
            Some(_) => {}
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    panic!("it takes far too long: {:?} {:?}", adapter.addresses(), adapter.stats());
}

fn ready(adapter: &Adapter, is_meant: impl Fn(IpAddr) -> bool) -> IpAddr {
    let is_it = |notice: &Notice| matches!(notice, Notice::AddressReady { address, .. } if is_meant(*address));
    let Notice::AddressReady { address, .. } = notice(adapter, is_it) else { unreachable!() };
    address
}

/// A program of the kernel's side. Dropped, it ends.
struct Program(Child);

impl Program {
    fn start(kernel: &Namespace, words: &[&str]) -> Self {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(kernel.enter(|| command.spawn()).unwrap().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn why_no(program: &str) -> Option<String> {
    match Command::new(program).arg("--version").stdin(Stdio::null()).output() {
        Err(error) => Some(format!("needs {program}: {error}")),
        Ok(_) => privileges::why_no_namespaces(),
    }
}

/// A datagram to the kernel's socket and back shows that an address is used.
fn talk(kernel: &Namespace, adapter: &Adapter, theirs: IpAddr) {
    let socket = kernel.enter(|| UdpSocket::bind((theirs, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let any = if theirs.is_ipv4() { at("0.0.0.0:0") } else { at("[::]:0") };
    let mut end = End::new(adapter, &QueuePairOptions::udp());
    end.pair.bind(any).unwrap();
    end.post_room(1, 0, 100);
    let part = end.fill(0, b"hello");
    end.pair.post_send_to(2, &[part], socket.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 100];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"hello");
    socket.send_to(b"", from).unwrap();
    assert_eq!(
        end.expect(Operation::Receive, 1).len,
        0,
        "a datagram of the kernel's without bytes"
    );
}

#[test]
fn a_real_server_of_dhcp_gives_an_address() {
    skip_unless!(why_no("dnsmasq"));
    let (kernel, adapter) = over_tap(|builder| builder.dhcp().host_name("landfall"));
    let folder = TemporaryFolder::new("dhcp");
    let leases = format!("--dhcp-leasefile={}", folder.path().join("leases").display());
    let server = [
        "dnsmasq",
        "--no-daemon",
        "--conf-file=/dev/null",
        "--port=0",
        "--interface=tap0",
        "--bind-interfaces",
        "--dhcp-range=10.9.0.50,10.9.0.60,255.255.255.0,2m",
        "--no-ping",
        "--dhcp-option=option:mtu,1400",
        "--dhcp-option=3,10.9.0.1",
        "--user=root",
        &leases,
    ];
    let _server = Program::start(&kernel, &server);
    let address = ready(&adapter, |address| address.is_ipv4());
    let IpAddr::V4(ours) = address else { panic!() };
    assert_eq!(ours.octets()[..3], [10, 9, 0]);
    assert!((50..=60).contains(&ours.octets()[3]));
    talk(&kernel, &adapter, KERNEL.into());
}

#[test]
fn a_real_router_advertises_a_prefix() {
    skip_unless!(why_no("radvd"));
    let (kernel, adapter) = over_tap(Builder::discover_routers);
    let run = |words: &[&str]| {
        let done = kernel.enter(|| Command::new(words[0]).args(&words[1..]).status()).unwrap();
        assert!(done.unwrap().success(), "{words:?}");
    };
    run(&["ip", "address", "add", "fe80::1/64", "dev", "tap0", "nodad"]);
    run(&["ip", "address", "add", "2001:db8:7::1/64", "dev", "tap0", "nodad"]);
    let folder = TemporaryFolder::new("radvd");
    let said = "interface tap0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; \
                AdvLinkMTU 1400; prefix 2001:db8:7::/64 { AdvOnLink on; AdvAutonomous on; }; };";
    let config = folder.write("radvd.conf", said).to_string_lossy().into_owned();
    let pid = folder.path().join("pid").to_string_lossy().into_owned();
    kernel
        .enter(|| std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1"))
        .unwrap()
        .unwrap();
    let router = ["radvd", "-n", "-C", &config, "-p", &pid, "-m", "stderr", "-u", "root"];
    let _router = Program::start(&kernel, &router);
    let local = |address: IpAddr| matches!(address, IpAddr::V6(own) if own.is_unicast_link_local());
    ready(&adapter, local);
    let global = ready(&adapter, |address| address.is_ipv6() && !local(address));
    let IpAddr::V6(global) = global else { panic!() };
    assert_eq!(global.segments()[..4], [0x2001, 0xdb8, 7, 0]);
    talk(&kernel, &adapter, "2001:db8:7::1".parse().unwrap());
}

#[test]
fn who_knew_an_adapter_of_the_same_address_learns_of_the_new_station() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let (v4, v6) = ours(&cable.a);
    let open = || {
        let builder = Adapter::builder().link(Link::packet(cable.a.name.as_str()));
        let builder = builder.address(format!("{v4}/24")).address(format!("{v6}/64"));
        cable.a.namespace.enter(|| builder.open()).unwrap().unwrap()
    };
    let kernel = &cable.b.namespace;
    let known = || {
        let mut ip = Command::new("ip");
        ip.args(["neigh", "show", "dev", &cable.b.name]);
        let output = kernel.enter(|| ip.output()).unwrap().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let is_known = |address: IpAddr, adapter: &Adapter| {
        let station = adapter.links()[0].mac.map(|byte| format!("{byte:02x}")).join(":");
        known().contains(&format!("{address} lladdr {station} "))
    };
    let first = open();
    for (address, theirs) in [(v4.into(), cable.b.ipv4.into()), (v6.into(), cable.b.ipv6.into())] {
        talk(kernel, &first, theirs);
        assert!(is_known(address, &first), "{}", known());
    }
    drop(first);

    // Nothing but what the new one says can tell the kernel.
    let second = open();
    let start = std::time::Instant::now();
    while !(is_known(v4.into(), &second) && is_known(v6.into(), &second)) {
        assert!(start.elapsed() < PATIENCE, "{}", known());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_kernel_that_has_the_address_keeps_us_from_it() {
    require_namespaces!();
    let conflicting = format!("{KERNEL}/24");
    let (_kernel, adapter) =
        over_tap(|builder| builder.detect_conflicts().address(conflicting).address("10.9.0.2/24"));
    let is_conflict = |notice: &Notice| matches!(notice, Notice::AddressConflict { .. });
    let conflict = notice(&adapter, is_conflict);
    let Notice::AddressConflict { address, .. } = conflict else { unreachable!() };
    assert_eq!(address, IpAddr::from(KERNEL));
    ready(&adapter, |address| address == IpAddr::from([10, 9, 0, 2]));
    assert_eq!(adapter.addresses(), [IpAddr::from([10, 9, 0, 2])]);
}

#[test]
fn groups_and_errors_between_a_queue_pair_and_a_kernel() {
    require_namespaces!();
    let (kernel, adapter) = over_tap(|builder| builder.address("10.9.0.2/24"));
    let group = Ipv4Addr::new(239, 129, 1, 1);
    let socket = kernel.enter(|| UdpSocket::bind("0.0.0.0:7007")).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    kernel.enter(|| socket.join_multicast_v4(&group, &KERNEL)).unwrap().unwrap();
    let mut end = End::new(&adapter, &QueuePairOptions::udp());
    end.pair.bind(at("0.0.0.0:7007")).unwrap();
    end.pair.join(group.into()).unwrap();
    end.post_room(1, 0, 100);
    let part = end.fill(0, b"to all");
    end.pair.post_send_to(2, &[part], (group, 7_007).into()).unwrap();
    let mut buffer = [0; 100];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"to all"[..], at("10.9.0.2:7007")));
    let sender = kernel.enter(|| UdpSocket::bind((KERNEL, 0))).unwrap().unwrap();
    sender.send_to(b"back", (group, 7_007)).unwrap();
    assert_eq!(end.expect(Operation::Receive, 1).len, 4);
    assert_eq!(end.received(0, 4), b"back");
    end.pair.leave(group.into()).unwrap();
    // Nobody listens there, and the kernel says so.
    let closed = at("10.9.0.1:9");
    end.pair.post_send_to(3, &[part], closed).unwrap();
    let is_it =
        |notice: &Notice| matches!(notice, Notice::Undelivered { remote, .. } if *remote == closed);
    notice(&adapter, is_it);
}
