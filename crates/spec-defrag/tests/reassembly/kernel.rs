//! Beside the kernel's own reassembly: the same fragments go to it over a TUN interface, and a raw
//! socket shows which packets come out. As an ordinary user each test skips with one line.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use landfall_placement::Random;
use landfall_testbed::{Namespace, Tun, require_namespaces};
use socket2::{Domain, Protocol, Socket, Type};
use spec_defrag::model::{Flow, Shape, cut, seal};
use spec_defrag::reassembly::{Config, DropReason, Link, Reassembler};

use super::*;
use crate::support::{moved, resized, twin};

/// A protocol for experiments (RFC 3692), whose packets no stack looks into.
const PROTOCOL: i32 = 253;
/// The flows of that protocol: to 10.0.1.1, and to fd00::ff.
const FLOWS: [Flow; 2] = [Flow(14), Flow(15)];
/// In place of the bytes of a packet: all that was sent before has been dealt with.
const MARKER: [u8; 8] = *b"the end.";

/// The kernel's reassembly.
struct Kernel {
    tun: Tun,
    sockets: [Socket; 2],
}

impl Kernel {
    fn new() -> Self {
        let namespace = Namespace::new().unwrap();
        let made = namespace.enter(|| {
            let addresses: [(IpAddr, u8); 2] =
                [("10.0.1.1".parse().unwrap(), 16), ("fd00::ff".parse().unwrap(), 64)];
            let tun = Tun::open("fragments", 1500, &addresses).unwrap();
            let sockets = [Domain::IPV4, Domain::IPV6].map(|domain| {
                let socket =
                    Socket::new(domain, Type::RAW, Some(Protocol::from(PROTOCOL))).unwrap();
                socket.set_recv_buffer_size(4 << 20).unwrap();
                socket
            });
            Self { tun, sockets }
        });
        let kernel = made.unwrap();
        FLOWS.iter().for_each(|flow| kernel.wait_for_address(*flow));
        kernel
    }

    fn socket(&self, flow: Flow) -> &Socket {
        &self.sockets[usize::from(!flow.is_v4())]
    }

    fn send_marker(&self, flow: Flow) {
        let mut marker = flow.packet(&Shape::default());
        marker.truncate(if flow.is_v4() { 34 } else { 54 });
        let len = if flow.is_v4() { 28_u16 } else { 8 };
        let at = if flow.is_v4() { 16 } else { 18 };
        marker[at..at + 2].copy_from_slice(&len.to_be_bytes());
        marker.extend(MARKER);
        seal(&mut marker);
        self.tun.send(&marker[14..]).unwrap();
    }

    /// An address is checked before it is used; until then packets to it are dropped.
    fn wait_for_address(&self, flow: Flow) {
        let mut socket = self.socket(flow);
        let mut bytes = [0; 64];
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        for _ in 0..200 {
            self.send_marker(flow);
            if socket.read(&mut bytes).is_ok() {
                // Those that were late.
                while socket.read(&mut bytes).is_ok() {}
                return socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            }
        }
        panic!("no packet came through the interface");
    }

    /// Gives frames to the kernel; what comes out of it: of IPv4 with its header, of IPv6 what
    /// follows all headers.
    fn packets(&self, flow: Flow, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for frame in frames {
            self.tun.send(&frame[14..]).unwrap();
        }
        self.send_marker(flow);
        let mut came = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let len = self.socket(flow).read(&mut bytes).unwrap();
            let packet = &bytes[..len];
            if packet.ends_with(&MARKER) && len < 64 {
                return came;
            }
            came.push(packet.to_vec());
        }
    }
}

/// Of each frame the headers, which show what differs.
fn headers(frames: &[Vec<u8>]) -> Vec<&[u8]> {
    frames.iter().map(|frame| &frame[14..frame.len().min(62)]).collect()
}

/// What the reassembler makes of the same, as the kernel's socket has it.
fn ours(reassembler: &mut Reassembler, flow: Flow, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let headers = if flow.is_v4() { 0 } else { 40 };
    let bare = frames.iter().map(|frame| &frame[14..]);
    bare.filter_map(|bare| packet(reassembler, bare)).map(|ip| ip[headers..].to_vec()).collect()
}

fn bare_reassembler() -> Reassembler {
    Reassembler::new(Config { link: Link::Ip, ..config() })
}

/// A packet's fragments as an unkind network delivers them, and whether any of them overlap or
/// contradict each other.
struct Delivery {
    frames: Vec<Vec<u8>>,
    is_hostile: bool,
}

fn delivery(random: &mut Random, flow: Flow, id: u32) -> Delivery {
    let mut below = |bound: u64| random.below(bound) as usize;
    let ecn = if below(2) == 0 { 0 } else { 2 };
    let shape =
        Shape { len: 1_600 + below(9_000), id, ecn, content: id.into(), ..Shape::default() };
    let mtu = [1500, 1280, 576][below(3)];
    let mut frames = cut(&flow.packet(&shape), mtu, id);
    let mut is_hostile = false;
    if frames.len() > 1 {
        let which = below(frames.len() as u64);
        let frame = frames[which].clone();
        let what = below(10);
        is_hostile = matches!(what, 3..=5);
        match what {
            0 => drop(frames.remove(which)),
            1 | 2 => frames.push(frame),
            3 => frames.push(moved(&frame, below(900) as u16, below(2) == 0)),
            4 => frames.push(resized(&frame, 8 * (1 + below(180)))),
            5 => frames.push(twin(&resized(&frame, 8 * (1 + below(175))))),
            6 => {
                // Congestion on the way.
                frames[which][15] |= if flow.is_v4() { 3 } else { 0x30 };
                seal(&mut frames[which]);
            }
            _ => {}
        }
        for at in (1..frames.len()).rev() {
            if below(3) > 0 {
                frames.swap(at, below(at as u64 + 1));
            }
        }
    }
    Delivery { frames, is_hostile }
}

/// Shuffled, lost, repeated, marked on the way: the same packets come out, byte for byte. Where
/// fragments overlap, whatever comes out here comes out there.
#[test]
fn linux_makes_the_same_packets() {
    require_namespaces!();
    let kernel = Kernel::new();
    let mut reassembler = bare_reassembler();
    let mut random = Random::from_number(28);
    let mut seen = BTreeMap::new();
    for id in 1..=600 {
        let flow = FLOWS[id as usize % 2];
        let Delivery { frames, is_hostile } = delivery(&mut random, flow, id);
        let theirs = kernel.packets(flow, &frames);
        let ours = ours(&mut reassembler, flow, &frames);
        if is_hostile {
            let is_less = ours.iter().all(|packet| theirs.contains(packet));
            assert!(is_less, "packet {id}: {:02x?}", headers(&frames));
        } else {
            assert!(ours == theirs, "packet {id}: {:02x?}", headers(&frames));
        }
        *seen.entry((is_hostile, ours.len(), theirs.len())).or_insert(0) += 1;
    }
    let of = |key| seen.get(&key).copied().unwrap_or(0);
    assert!(of((false, 1, 1)) > 300 && of((false, 0, 0)) > 10, "{seen:?}");
    assert!(of((true, 0, 0)) > 20 && of((true, 1, 1)) > 20, "{seen:?}");
}

/// A fragment that is uneven and not the last: Linux cuts it down in IPv4, and drops it in IPv6;
/// here it is dropped in both, so that the packet goes on.
#[test]
fn linux_cuts_an_uneven_fragment_of_ipv4_down_and_this_drops_it_alone() {
    require_namespaces!();
    let kernel = Kernel::new();
    let mut reassembler = bare_reassembler();
    for (id, flow) in (1..).zip(FLOWS) {
        let shape = Shape { len: 4096, id, ..Shape::default() };
        let mut frames = cut(&flow.packet(&shape), 1500, id);
        frames.insert(0, twin(&resized(&frames[1], 93)));
        assert_eq!(kernel.packets(flow, &frames).len(), usize::from(!flow.is_v4()));
        assert_eq!(ours(&mut reassembler, flow, &frames).len(), 1);
        assert_eq!(reassembler.counters().dropped(DropReason::BadLength), id.into());
    }
}

/// The one place where Linux lets more pass: a fragment that lies within what is here. It looks at
/// neither its place in another fragment nor its bytes; RFC 8200 lets exact repetitions pass only.
#[test]
fn linux_passes_over_what_lies_within_another_and_this_ends_the_packet() {
    require_namespaces!();
    let kernel = Kernel::new();
    let mut reassembler = bare_reassembler();
    for (id, flow) in (1..).zip(FLOWS) {
        let shape = Shape { len: 4096, id, ..Shape::default() };
        let pieces = cut(&flow.packet(&shape), 1500, id);
        let within = twin(&moved(&resized(&pieces[1], 800), 190, true));
        let frames = [&pieces[0], &pieces[1], &within, &pieces[2]].map(Clone::clone);
        assert_eq!(kernel.packets(flow, &frames).len(), 1);
        assert_eq!(ours(&mut reassembler, flow, &frames), [[0; 0]; 0]);
        assert_eq!(reassembler.counters().dropped(DropReason::Overlap), id.into());
    }
}
