//! Cables, sockets and datagrams for the tests of speculative defragmentation.

mod bigmtu;
mod bigmtu_admission;
mod bounds;
mod faults;
mod kernel;
mod lent;
mod several;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use landfall::defrag::{
    Datagrams, Delivery, OpenError, Page, PageReceiver, Receiver, ReceiverBuilder, Sender,
    SenderBuilder, Station, Technique, Wait,
};
use landfall_testbed::{VethConfig, VethEnd, VethPair};

pub(crate) use crate::support::{PATIENCE, noise, run};

/// Where datagrams go.
pub const PORT: u16 = 7000;
/// Where they come from.
pub const FROM: u16 = 7001;
/// Every test is the same each time.
pub const SEED: [u8; 32] = [7; 32];

/// Each technique that there is.
pub const TECHNIQUES: [Technique; 5] = [
    Technique::Packet,
    Technique::PacketUring,
    Technique::PacketRing,
    Technique::Xdp,
    Technique::Nic,
];

/// Each delivery that a technique can do.
pub fn deliveries(technique: Technique) -> Vec<Delivery> {
    let mut all = vec![Delivery::Copy, Delivery::FastBuffers, Delivery::Remap];
    if technique.shares_memory() {
        all.push(Delivery::List);
    }
    all
}

/// A cable between two namespaces, over which frames pass.
pub fn cable() -> VethPair {
    let cable = VethPair::new(VethConfig::default()).unwrap();
    until_it_works(&cable.a, &cable.b);
    cable
}

/// An interface that was switched on drops what it shall send, without a word,
/// until its queue is there.
pub fn until_it_works(from: &VethEnd, to: &VethEnd) {
    for is_ipv4 in [true, false] {
        let at_b = socket(to, is_ipv4, 9);
        let at_a = socket(from, is_ipv4, 9);
        at_b.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let started = Instant::now();
        let mut byte = [0];
        loop {
            // While an address is being checked nothing can be sent from there.
            let _ = at_a.send_to(&[1], SocketAddr::new(ip(to, is_ipv4), 9));
            if at_b.recv_from(&mut byte).is_ok() {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "the cable never works");
        }
    }
}

pub fn ip(end: &VethEnd, is_ipv4: bool) -> IpAddr {
    if is_ipv4 { end.ipv4.into() } else { end.ipv6.into() }
}

pub fn address(end: &VethEnd, is_ipv4: bool, port: u16) -> SocketAddr {
    SocketAddr::new(ip(end, is_ipv4), port)
}

/// An ordinary socket at one end.
pub fn socket(end: &VethEnd, is_ipv4: bool, port: u16) -> UdpSocket {
    let address = address(end, is_ipv4, port);
    let started = Instant::now();
    loop {
        match end.namespace.enter(|| UdpSocket::bind(address)).unwrap() {
            Ok(socket) => return socket,
            // An address of IPv6 is not there at once.
            Err(error) => assert!(started.elapsed() < PATIENCE, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens a receiver at one end.
pub fn receiver_as(
    end: &VethEnd,
    adjust: impl FnOnce(ReceiverBuilder) -> ReceiverBuilder + Send,
) -> Result<Receiver, OpenError> {
    let builder = Receiver::builder(end.name.as_str()).seed(SEED).wait(Wait::Block);
    end.namespace.enter(|| adjust(builder).open()).unwrap()
}

pub fn receiver(end: &VethEnd, technique: Technique, delivery: Delivery) -> Receiver {
    receiver_as(end, |builder| builder.technique(technique).delivery(delivery)).unwrap()
}

pub fn sender_as(
    end: &VethEnd,
    adjust: impl FnOnce(SenderBuilder) -> SenderBuilder + Send,
) -> Sender {
    let builder = Sender::builder(end.name.as_str()).seed(SEED);
    end.namespace.enter(|| adjust(builder).open()).unwrap().unwrap()
}

/// Datagrams from one end to the other.
pub fn datagrams(cable: &VethPair, is_ipv4: bool) -> Datagrams {
    let station =
        |end: &VethEnd, port| Station { mac: end.mac.0, address: address(end, is_ipv4, port) };
    Datagrams::new(station(&cable.a, FROM), station(&cable.b, PORT), SEED).unwrap()
}

/// The next page, which has to come.
pub fn next(pages: &mut PageReceiver) -> Page {
    let page = pages.receive(PATIENCE).unwrap();
    page.unwrap_or_else(|| panic!("no page came: {:?}", pages.receiver().stats()))
}
