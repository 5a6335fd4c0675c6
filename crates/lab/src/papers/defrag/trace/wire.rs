//! The bytes on the cable: Ethernet, IPv4, TCP and UDP, packets that the driver
//! of the sender cuts into fragments where they are longer than the MTU.
//!
//! The payload is zeros, but for a [`Message`] at its start: so the first bytes
//! of a frame and its length say all of it.

use std::collections::VecDeque;

use landfall_placement::Instant;
use landfall_placement::checksum::checksum;
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
/// So many bytes of a frame are kept; those behind are zeros.
pub(crate) const KEPT: usize = 64;
/// Ethernet and IPv4 headers.
const HEADERS: usize = 34;

const IPV4: [u8; 2] = [0x08, 0x00];
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

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
            Self::Tcp { .. } => TCP,
            Self::Udp => UDP,
        }
    }

    /// The length of its header.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::Tcp { .. } => 20,
            Self::Udp => 8,
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
        let whole = bytes.len() as u16;
        let port = |host: Host| (1521 + u16::from(host)).to_be_bytes();
        bytes[..2].copy_from_slice(&port(self.from));
        bytes[2..4].copy_from_slice(&port(self.to));
        let sum_at = match self.transport {
            Transport::Tcp { sequence, acknowledged } => {
                bytes[4..8].copy_from_slice(&sequence.to_be_bytes());
                bytes[8..12].copy_from_slice(&acknowledged.to_be_bytes());
                let push = if self.message.is_some() { 0x08 } else { 0 };
                bytes[12..14].copy_from_slice(&[5 << 4, 0x10 | push]);
                bytes[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
                16
            }
            Transport::Udp => {
                bytes[4..6].copy_from_slice(&whole.to_be_bytes());
                6
            }
        };
        if let Some(message) = self.message {
            let text = &mut bytes[header_len..header_len + MESSAGE];
            text[..2].copy_from_slice(&[MARK, message.verb]);
            text[2..].copy_from_slice(&message.number.to_be_bytes());
        }
        let mut pseudo = Vec::with_capacity(12 + KEPT);
        pseudo.extend(internet(self.from).into_iter().chain(internet(self.to)));
        pseudo.extend([0, self.transport.protocol()].into_iter().chain(whole.to_be_bytes()));
        // What is behind are zeros, which change no sum.
        pseudo.extend(&bytes[..bytes.len().min(KEPT)]);
        bytes[sum_at..sum_at + 2].copy_from_slice(&checksum(&pseudo).to_be_bytes());
        bytes
    }

    fn frame(&self, id: u16, offset: u16, more: bool, piece: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity((HEADERS + piece.len()).max(LEAST_FRAME));
        frame.extend(ethernet(self.to).into_iter().chain(ethernet(self.from)).chain(IPV4));
        let total = (20 + piece.len()) as u16;
        let flags = (offset / 8) | (u16::from(more) << 13);
        let mut ip = [0; 20];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[6..8].copy_from_slice(&flags.to_be_bytes());
        ip[8..10].copy_from_slice(&[64, self.transport.protocol()]);
        ip[12..16].copy_from_slice(&internet(self.from));
        ip[16..20].copy_from_slice(&internet(self.to));
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
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
        let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let (to, from) = stations(frame)?;
        if frame.get(12..14)? != IPV4 {
            return None;
        }
        let flags = word(20)?;
        Some(Self {
            from,
            to,
            id: word(18)?,
            offset: (flags & 0x1fff) * 8,
            more: flags & 0x2000 != 0,
            len: word(16)?.checked_sub(20)?,
            protocol: *frame.get(23)?,
        })
    }

    /// A piece of a packet that was cut.
    pub(crate) const fn is_fragment(&self) -> bool {
        self.more || self.offset > 0
    }

    /// What is behind them in the first piece of a packet: the transport header
    /// and the message.
    pub(crate) fn transport(&self, frame: &[u8]) -> Option<(Transport, Option<Message>)> {
        let bytes = frame.get(HEADERS..)?;
        let long = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let transport = match self.protocol {
            TCP => Transport::Tcp { sequence: long(4)?, acknowledged: long(8)? },
            UDP => Transport::Udp,
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
