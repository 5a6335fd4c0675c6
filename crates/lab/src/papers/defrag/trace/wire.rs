//! The bytes on the cable: Ethernet, IPv4, TCP and UDP, packets that the driver
//! of the sender cuts into fragments where they are longer than the MTU.
//!
//! The payload is zeros, but for a [`Message`] at its start: so the first bytes
//! of a frame and its length say all of it.

use std::collections::VecDeque;

use landfall_inet::{Envelope, Flags, Fragment, Tcp, ethernet, ipv4, protocol, tcp, udp};
use landfall_placement::{Instant, InternetSum, SumSlot};
use landfall_simnet::{Frame, Node, Outbox, PortId};

/// What a station says to another: a verb of the application, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// What it means is up to the application; zero is no message.
    pub(crate) verb: u8,
    pub(crate) number: u32,
}

/// The bytes of a message, at the start of a payload.
const MESSAGE: usize = 6;
/// Marks a message, so that zeros are none.
const MARK: u8 = 0xa5;

/// A station, as its addresses end: 0 is the master.
pub(crate) type Host = u8;

/// The payload of a zero-copy packet: a page.
pub(crate) const PAGE: u32 = 4096;
/// What an Ethernet frame carries behind its header.
const MTU: usize = 1500;
/// The payload of an ordinary TCP segment.
pub(crate) const MSS: u32 = 1460;
/// Frames are padded to this; their checksum is not counted.
const LEAST_FRAME: usize = 60;
/// This many bytes of a frame are kept; those behind are zeros.
pub(crate) const KEPT: usize = 64;
/// Ethernet and IPv4 headers.
const HEADERS: usize = ethernet::LEN + ipv4::LEN;

/// A packet before it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) transport: Transport,
    /// The bytes behind the transport header.
    pub(crate) len: u32,
    pub(crate) message: Option<Message>,
}

/// The transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp { sequence: u32, acknowledged: u32 },
    Udp,
}

impl Transport {
    const fn protocol(self) -> u8 {
        match self {
            Self::Tcp { .. } => protocol::TCP,
            Self::Udp => protocol::UDP,
        }
    }

    /// The length of its header.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::Tcp { .. } => tcp::LEN,
            Self::Udp => udp::LEN,
        }
    }
}

/// The Ethernet address of a station.
pub(crate) const fn ethernet(host: Host) -> [u8; 6] {
    [2, 0, 0, 0, 0, host]
}

/// Its Internet address.
const fn internet(host: Host) -> [u8; 4] {
    [10, 0, 0, host + 1]
}

impl Packet {
    /// The frames that carry it.
    pub(crate) fn frames(&self, id: u16) -> Vec<Vec<u8>> {
        let payload = self.ip_payload();
        // RFC 791: pieces are cut at multiples of eight bytes.
        let most = (MTU - 20) / 8 * 8;
        let pieces = payload.chunks(most).enumerate();
        let last = payload.len().div_ceil(most) - 1;
        pieces.map(|(n, piece)| self.frame(id, (n * most) as u16, n < last, piece)).collect()
    }

    /// The transport header and what is behind it, with a right checksum.
    fn ip_payload(&self) -> Vec<u8> {
        let header_len = self.transport.header_len();
        let mut bytes = vec![0; header_len + self.len as usize];
        let len = bytes.len() as u32;
        let port = |host: Host| 1521 + u16::from(host);
        let (source, destination) = (port(self.from), port(self.to));
        let pseudo = self.envelope().pseudo(len);
        let (written, sum) = match self.transport {
            Transport::Tcp { sequence: seq, acknowledged: ack } => {
                let push = if self.message.is_some() { Flags::PSH } else { Flags::NONE };
                let flags = Flags::ACK | push;
                let window = u16::MAX;
                let header = Tcp { source, destination, seq, ack, flags, window, ..Tcp::default() };
                (header.write(&mut bytes, pseudo), tcp::SUM_OFFSET)
            }
            Transport::Udp => {
                let (source, destination) = (source.into(), destination.into());
                let len = (len as u16).into();
                let header = udp::Header { source, destination, len, sum: pseudo.into() };
                (header.write(&mut bytes), udp::SUM_OFFSET)
            }
        };
        debug_assert_eq!(written, Some(header_len), "there is room");
        if let Some(message) = self.message {
            let text = &mut bytes[header_len..header_len + MESSAGE];
            text[..2].copy_from_slice(&[MARK, message.verb]);
            text[2..].copy_from_slice(&message.number.to_be_bytes());
        }
        // What is behind are zeros, which change no sum.
        let kept = bytes.len().min(KEPT);
        let filled = SumSlot { start: 0, offset: sum }.fill(&mut bytes[..kept], InternetSum::new());
        debug_assert_eq!(filled, Some(()), "the slot is in the header");
        bytes
    }

    fn envelope(&self) -> Envelope {
        let end = |host| (ethernet(host), internet(host).into());
        Envelope::new(end(self.from), end(self.to), self.transport.protocol())
    }

    fn frame(&self, id: u16, offset: u16, more: bool, piece: &[u8]) -> Vec<u8> {
        let fragment = Some(Fragment { id: id.into(), offset: offset.into(), more });
        let mut frame = vec![0; HEADERS];
        let written =
            Envelope { fragment, ..self.envelope() }.write(&mut frame, piece.len() as u32);
        debug_assert_eq!(written, Some(HEADERS), "there is room");
        frame.extend(piece);
        frame.resize(frame.len().max(LEAST_FRAME), 0);
        frame
    }
}

/// To whom a frame goes, and from whom it comes.
pub(crate) fn stations(frame: &[u8]) -> Option<(Host, Host)> {
    Some((*frame.get(5)?, *frame.get(11)?))
}

/// What the headers of a frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) id: u16,
    /// Where the piece belongs, in bytes.
    pub(crate) offset: u16,
    /// More pieces follow.
    pub(crate) more: bool,
    /// The bytes of the piece.
    pub(crate) len: u16,
    protocol: u8,
}

impl Headers {
    /// Reads a frame of ours; `None` for others.
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let (to, from) = stations(frame)?;
        let (ethernet, packet) = ethernet::read(frame).ok()?;
        if ethernet.ethertype.get() != ethernet::IPV4 {
            return None;
        }
        let (header, header_len) = ipv4::read(packet).ok()?;
        let len = header.total_len.get() - header_len as u16;
        let piece = header.piece();
        let (id, offset) = (header.id.get(), piece.offset as u16);
        Some(Self { from, to, id, offset, more: piece.more, len, protocol: header.protocol })
    }

    /// A piece of a packet that was cut.
    pub(crate) const fn is_fragment(&self) -> bool {
        self.more || self.offset > 0
    }

    /// What is behind them in the first piece of a packet: the transport header
    /// and the message.
    pub(crate) fn transport(&self, frame: &[u8]) -> Option<(Transport, Option<Message>)> {
        let bytes = frame.get(HEADERS..)?;
        let transport = match self.protocol {
            protocol::TCP => {
                let header = tcp::Header::view(bytes.first_chunk()?);
                let (sequence, acknowledged) = (header.seq.get(), header.ack.get());
                Transport::Tcp { sequence, acknowledged }
            }
            protocol::UDP => Transport::Udp,
            _ => return None,
        };
        let message = bytes.get(transport.header_len()..).and_then(|text| {
            let [MARK, verb, a, b, c, d] = *text.first_chunk()? else { return None };
            Some(Message { verb, number: u32::from_be_bytes([a, b, c, d]) })
        });
        Some((transport, message))
    }
}

// The switch between the stations: it stores frames at the port where they came
// in, and serves its inputs in turn, as crossbars do; or it forwards frames in the
// order in which they came.

/// In which order frames for one station leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// One from each input that has some, in turn.
    InTurn,
    /// First come, first served.
    InOrder,
}

/// A store-and-forward switch. The station with address `n` is at port `n`.
#[derive(Debug)]
pub(crate) struct Switch {
    service: Service,
    outputs: Vec<Output>,
}

/// Frames for one station, by the port where they came in.
#[derive(Debug, Default)]
struct Output {
    inputs: Vec<VecDeque<Frame>>,
    /// The input that is served next.
    turn: usize,
}

impl Switch {
    pub(crate) fn new(service: Service, ports: usize) -> Self {
        let output = || Output { inputs: vec![VecDeque::new(); ports], turn: 0 };
        Self { service, outputs: (0..ports).map(|_| output()).collect() }
    }

    /// Gives the transmitter its next frame, if it is idle.
    fn serve(&mut self, port: PortId, out: &mut Outbox<'_>) {
        let Some(output) = self.outputs.get_mut(usize::from(port.0)) else { return };
        if out.has_room(port)
            && let Some(frame) = output.next()
        {
            out.send(port, frame);
        }
        if output.inputs.iter().any(|input| !input.is_empty()) {
            out.call_when_room(port);
        }
    }
}

impl Output {
    fn next(&mut self) -> Option<Frame> {
        let inputs = self.inputs.len();
        let first =
            (self.turn..self.turn + inputs).find(|n| !self.inputs[n % inputs].is_empty())?;
        self.turn = (first + 1) % inputs;
        self.inputs[first % inputs].pop_front()
    }
}

impl Node for Switch {
    fn handle_frame(&mut self, _: Instant, from: PortId, frame: Frame, out: &mut Outbox<'_>) {
        // The last byte of the destination is the number of the station.
        let to = PortId(frame.bytes.get(5).copied().unwrap_or(u8::MAX).into());
        let Some(output) = self.outputs.get_mut(usize::from(to.0)) else { return };
        let input = match self.service {
            Service::InTurn => usize::from(from.0),
            Service::InOrder => 0,
        };
        output.inputs[input].push_back(frame);
        self.serve(to, out);
    }

    fn handle_room(&mut self, _: Instant, port: PortId, out: &mut Outbox<'_>) {
        self.serve(port, out);
    }
}
