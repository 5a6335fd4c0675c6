//! A TAP interface carries an engine: the same bytes arrive, in super-packets
//! both ways, and in steady flow no byte is copied in user space. At the
//! kernel's side a packet socket is the other end. As an ordinary user each
//! test skips with one line.

use std::net::Ipv4Addr;

use crate::support::streams::carry_stream;
use crate::support::tap::{ENGINE, IPV4, KERNEL, STATION, open_as, open_packet};
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
