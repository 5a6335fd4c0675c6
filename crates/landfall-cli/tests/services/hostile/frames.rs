//! Hosts and stations that say what is not so. They are on the link, and see nothing of what
//! others say there: what they forge, they guess.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::Duration;

use landfall_inet::arp::{Arp, Operation};
use landfall_inet::tcp::{Flags, Tcp};
use landfall_inet::{Envelope, Mac, checksum, ethernet, icmp4, ipv4, protocol, tcp};
use landfall_placement::Random;
use landfall_testbed::FrameSender;

use super::{BAD, HONEST, INTERFACE, PORT, SERVER, Scene};

/// A station that is not there.
const STRANGER: Mac = [2, 0, 0x5e, 0x66, 0, 1];
const EVERYBODY: Mac = [0xff; 6];
const IP: usize = ethernet::LEN;
const TCP: usize = IP + ipv4::LEN;

/// The station of the server, when the kernel knows it.
fn server_station(scene: &Scene) -> Option<Mac> {
    let read = || fs::read_to_string("/proc/thread-self/net/arp").expect("the kernel's neighbours");
    let table = scene.host.enter(read).expect("a namespace");
    let line = table.lines().find(|line| line.starts_with("10.9.0.2 "))?;
    let mut mac = [0; 6];
    let bytes = line.split_whitespace().nth(3)?.split(':');
    for (to, byte) in mac.iter_mut().zip(bytes) {
        *to = u8::from_str_radix(byte, 16).ok()?;
    }
    (mac != [0; 6]).then_some(mac)
}

/// All of them, each at its own pace.
pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>, scene: &'scope Scene) {
    scope.spawn(move || {
        let open = || FrameSender::open(INTERFACE).expect("a packet socket");
        let sender = scene.host.enter(open).expect("a namespace");
        let mut random = Random::from_number(8181);
        let mut server = None;
        for round in 0u64.. {
            if scene.is_over() {
                return;
            }
            server = server_station(scene).or(server);
            let Some(station) = server else {
                // Nobody has talked to it yet.
                scene.pause(Duration::from_millis(20));
                continue;
            };
            let mut liar = Liar { random: &mut random, station };
            let kept = scene.kept_port.load(Ordering::Relaxed);
            // The interface may be down: a frame more or less.
            for _ in 0..20 {
                let _ = sender.send(&liar.blind_segment(kept));
                let _ = sender.send(&liar.strange_options());
                let _ = sender.send(&liar.flooding_opening());
                let _ = sender.send(&liar.untrue_report(kept));
            }
            if round % 500 == 250 {
                let _ = sender.send(&another_with_our_address());
            }
            scene.pause(Duration::from_millis(10));
        }
    });
}

/// Who makes things up.
struct Liar<'a> {
    random: &'a mut Random,
    station: Mac,
}

impl Liar<'_> {
    fn number(&mut self, below: u32) -> u32 {
        self.random.next_u32() % below
    }

    /// A segment from this host, with options as they are, and its checksum.
    fn segment(&self, from: Ipv4Addr, header: &Tcp, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let (source, destination) = (IpAddr::V4(from), IpAddr::V4(SERVER));
        let envelope =
            Envelope::new((STRANGER, source), (self.station, destination), protocol::TCP);
        let len = tcp::LEN + options.len() + payload.len();
        let mut frame = vec![0; TCP + len];
        envelope.write(&mut frame, len as u32).expect("there is room");
        header.write(&mut frame[TCP..], envelope.pseudo(len as u32)).expect("there is room");
        // Options are in words of four bytes.
        frame[TCP + 12] = ((tcp::LEN + options.len()) / 4) as u8 * 16;
        frame[TCP + tcp::LEN..][..options.len()].copy_from_slice(options);
        frame[TCP + tcp::LEN + options.len()..].copy_from_slice(payload);
        let sum = !checksum::sum_of_words(&frame[TCP..]);
        frame[TCP + 16..TCP + 18].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    /// As if it were the honest connection that stays: a reset, an opening, an end, or bytes,
    /// with numbers that are guessed.
    fn blind_segment(&mut self, kept: u16) -> Vec<u8> {
        let all =
            [Flags::RST, Flags::RST | Flags::ACK, Flags::SYN, Flags::FIN | Flags::ACK, Flags::ACK];
        let flags = all[self.number(5) as usize];
        let (seq, ack) = (self.random.next_u32(), self.random.next_u32());
        let window = self.random.next_u32() as u16;
        let header =
            Tcp { source: kept, destination: PORT, seq, ack, flags, window, ..Tcp::default() };
        let payload = [b'x'; 100];
        let carried = if flags == Flags::ACK { &payload[..] } else { &[] };
        self.segment(HONEST, &header, &[], carried)
    }

    /// Options of every length, of which nothing else is right.
    fn strange_options(&mut self) -> Vec<u8> {
        let words = self.number(11) as usize;
        let mut options = vec![0; 4 * words];
        for byte in &mut options {
            *byte = self.random.next_u32() as u8;
        }
        if let [kind, len, ..] = &mut options[..] {
            *kind = [1, 2, 3, 4, 5, 8, 30, 34, 172, 174, 253][self.random.next_u32() as usize % 11];
            *len = self.random.next_u32() as u8 % 44;
        }
        let flags = if self.number(2) == 0 { Flags::SYN } else { Flags::ACK };
        let seq = self.random.next_u32();
        let source = 1024 + self.number(60_000) as u16;
        let header = Tcp { source, destination: PORT, seq, flags, window: 1000, ..Tcp::default() };
        self.segment(BAD[0], &header, &options, &[])
    }

    /// An opening from one of many hosts that are not there.
    fn flooding_opening(&mut self) -> Vec<u8> {
        let from = Ipv4Addr::new(10, 9, 0, 100 + self.number(100) as u8);
        let (seq, source) = (self.random.next_u32(), 1024 + self.number(60_000) as u16);
        let header = Tcp {
            source,
            destination: PORT,
            seq,
            flags: Flags::SYN,
            window: 1000,
            ..Tcp::default()
        };
        self.segment(from, &header, &[], &[])
    }

    /// A router says that what the server sent on the honest connection was too long, or that
    /// there is no way.
    fn untrue_report(&mut self, kept: u16) -> Vec<u8> {
        let (server, honest) = (IpAddr::V4(SERVER), IpAddr::V4(HONEST));
        let quoted = Envelope::new((self.station, server), (STRANGER, honest), protocol::TCP);
        let mut packet = vec![0; TCP + tcp::LEN];
        quoted.write(&mut packet, tcp::LEN as u32).expect("there is room");
        let seq = self.random.next_u32();
        let header =
            Tcp { source: PORT, destination: kept, seq, flags: Flags::ACK, ..Tcp::default() };
        header.write(&mut packet[TCP..], 0).expect("there is room");
        let mut message = [0; 128];
        let len = match self.number(3) {
            0 => icmp4::write_port_unreachable(&packet[IP..], &mut message),
            1 => icmp4::write_protocol_unreachable(&packet[IP..], &mut message),
            _ => icmp4::write_too_big(68, &packet[IP..], &mut message),
        };
        let message = &message[..len.expect("there is room")];
        let router = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 254));
        let envelope = Envelope::new((STRANGER, router), (self.station, server), protocol::ICMP4);
        let mut frame = vec![0; TCP + message.len()];
        envelope.write(&mut frame, message.len() as u32).expect("there is room");
        frame[TCP..].copy_from_slice(message);
        frame
    }
}

/// A station says that it has the server's address (RFC 5227).
fn another_with_our_address() -> Vec<u8> {
    let mut frame = [&EVERYBODY[..], &STRANGER, &[8, 6], &[0; 28]].concat();
    let claim = Arp {
        operation: Operation::Reply,
        sender_mac: STRANGER,
        sender: SERVER,
        target_mac: EVERYBODY,
        target: SERVER,
    };
    claim.write(&mut frame[IP..]).expect("there is room");
    frame
}
