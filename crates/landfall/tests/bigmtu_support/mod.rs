//! Cables, interfaces above them, and what runs through.

#[path = "../bounds/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its part of it")]
mod bounds;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use landfall::defrag::bigmtu::{BigMtu, BigMtuBuilder};
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair};

pub(crate) use bounds::{PATIENCE, noise};

/// Two namespaces with a cable. The kernels find each other's stations by themselves.
pub(crate) fn cable() -> VethPair {
    VethPair::new(VethConfig { static_neighbours: false, ..VethConfig::default() }).unwrap()
}

/// Starts an interface above one end, which loses its addresses to it: that of one
/// version of IP.
pub(crate) fn big(
    end: &VethEnd,
    is_ipv4: bool,
    adjust: impl FnOnce(BigMtuBuilder) -> BigMtuBuilder + Send,
) -> BigMtu {
    run(&end.namespace, &["ip", "address", "flush", "dev", &end.name]);
    let prefix = if is_ipv4 { 24 } else { 64 };
    let builder = BigMtu::builder(end.name.as_str()).name("big0").address(ip(end, is_ipv4), prefix);
    end.namespace.enter(|| adjust(builder).start()).unwrap().unwrap()
}

pub(crate) fn ip(end: &VethEnd, is_ipv4: bool) -> IpAddr {
    if is_ipv4 { end.ipv4.into() } else { end.ipv6.into() }
}

/// Runs a program in a namespace; it has to succeed.
pub(crate) fn run(namespace: &Namespace, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = namespace
        .enter(|| Command::new(words[0]).args(&words[1..]).output())
        .unwrap()
        .unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{words:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Tries until it works: an interface or an address is not there at once.
pub(crate) fn soon<T>(what: &str, mut attempt: impl FnMut() -> io::Result<T>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{what}: {error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A socket of an ordinary program.
pub(crate) fn socket(end: &VethEnd, is_ipv4: bool, port: u16) -> UdpSocket {
    let address = SocketAddr::new(ip(end, is_ipv4), port);
    let bind = || end.namespace.enter(|| UdpSocket::bind(address)).unwrap();
    let socket = soon("bind", bind);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends bytes over one TCP connection, other ones each way at once, and compares what
/// came.
pub(crate) fn exchange(client: &VethEnd, server: &VethEnd, is_ipv4: bool, len: usize) {
    let address = SocketAddr::new(ip(server, is_ipv4), 7000);
    let listener =
        soon("listen", || server.namespace.enter(|| TcpListener::bind(address)).unwrap());
    let connect = || {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
        client.namespace.enter(connect).unwrap()
    };
    let near = soon("connect", connect);
    let far = accept(&listener);
    thread::scope(|scope| {
        for (stream, own, others) in [(&near, 1, 2), (&far, 2, 1)] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            scope.spawn(move || {
                let mut stream = stream;
                stream.write_all(&noise(own, len)).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut stream = stream;
                let mut came = Vec::new();
                stream.read_to_end(&mut came).unwrap();
                assert!(came == noise(others, len), "{} of {len} bytes, or others", came.len());
            });
        }
    });
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let (stream, _) = soon("accept", || listener.accept());
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Sends datagrams one by one, and compares what comes.
pub(crate) fn datagrams(from: &VethEnd, to: &VethEnd, is_ipv4: bool, lens: &[usize]) {
    let (sender, receiver) = (socket(from, is_ipv4, 7001), socket(to, is_ipv4, 7002));
    let address = receiver.local_addr().unwrap();
    find(&sender, &receiver, address);
    let mut came = vec![0; 1 << 16];
    for (seed, len) in (1..).zip(lens) {
        let payload = noise(seed, *len);
        soon("send", || sender.send_to(&payload, address));
        let (len, from) = receiver.recv_from(&mut came).unwrap();
        assert_eq!(from, sender.local_addr().unwrap());
        assert!(came[..len] == payload, "{len} of {} bytes, or others", payload.len());
    }
}

/// Until the kernels know each other's stations the first datagrams may be lost.
fn find(sender: &UdpSocket, receiver: &UdpSocket, address: SocketAddr) {
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    soon("find the other end", || {
        sender.send_to(&[], address)?;
        receiver.recv_from(&mut [])
    });
    // All of them.
    while receiver.recv_from(&mut []).is_ok() {}
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
}
