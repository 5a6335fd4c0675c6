//! Captures as other programs write them: the formats pcap and pcapng, of either byte order.
//!
//! A capture may come from anybody: what makes no sense is an error, and nothing is as long as
//! it claims to be before it was read.

use std::io::{self, ErrorKind, Read};

/// The longest packet, and the longest block of pcapng with all of its options.
const MOST_PACKET: u32 = 1 << 20;
const MOST_BLOCK: u32 = 16 << 20;
const MOST_INTERFACES: usize = 1 << 16;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Why a capture cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadCapture {
    #[error("it is no capture: it begins neither as pcap nor as pcapng")]
    Unknown,
    #[error("byte {at}: {what}")]
    Malformed { at: u64, what: &'static str },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A packet that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// What its first bytes are, in the registry of link types.
    pub(super) link_type: u16,
    /// When, since the beginning of 1970.
    pub(super) nanos: u64,
    /// How long it was; not all of it need be here.
    pub(super) len: u32,
    pub(super) bytes: Vec<u8>,
}

/// An interface of pcapng.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_len: u32,
    clock: Clock,
}

/// How a clock counts.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Ticks of a second.
    ticks: u128,
    /// Seconds to be added.
    offset: i64,
}

impl Clock {
    const MICROSECONDS: Self = Self { ticks: 1_000_000, offset: 0 };

    fn nanos(&self, ticks: u64) -> u64 {
        let nanos = u128::from(ticks) * 1_000_000_000 / self.ticks;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX);
        let all = nanos.saturating_add(i128::from(self.offset) * 1_000_000_000);
        all.clamp(0, u64::MAX.into()) as u64
    }
}

#[derive(Debug)]
enum Format {
    /// With its one interface.
    Pcap(Interface),
    /// With those of its section so far.
    Pcapng(Vec<Interface>),
}

/// Reads the packets of a capture one after another.
#[derive(Debug)]
pub(super) struct Recording<R> {
    from: R,
    at: u64,
    is_big_endian: bool,
    format: Format,
    /// It ends in the middle of something.
    pub(super) is_cut: bool,
}

impl<R: Read> Recording<R> {
    pub(super) fn new(mut from: R) -> Result<Self, BadCapture> {
        let mut magic = [0; 4];
        from.read_exact(&mut magic).map_err(unknown)?;
        let (format, is_big_endian) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (Some(1_000_000), false),
            [0xa1, 0xb2, 0xc3, 0xd4] => (Some(1_000_000), true),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Some(1_000_000_000), false),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Some(1_000_000_000), true),
            [0x0a, 0x0d, 0x0d, 0x0a] => (None, false),
            _ => return Err(BadCapture::Unknown),
        };
        let format = format.map_or(Format::Pcapng(Vec::new()), |ticks| {
            let clock = Clock { ticks, offset: 0 };
            Format::Pcap(Interface { link_type: 0, snap_len: MOST_PACKET, clock })
        });
        let mut recording = Self { from, at: 4, is_big_endian, format, is_cut: false };
        match &recording.format {
            Format::Pcap(_) => recording.read_pcap_head()?,
            Format::Pcapng(_) => recording.read_section().map_err(|error| match error {
                BadCapture::Io(error) => unknown(error),
                other => other,
            })?,
        }
        Ok(recording)
    }

    /// The next packet; `None` at the end, also where that is in the middle of something.
    pub(super) fn next(&mut self) -> Result<Option<Recorded>, BadCapture> {
        let read = match self.format {
            Format::Pcap(interface) => self.next_of_pcap(interface),
            Format::Pcapng(_) => self.next_of_pcapng(),
        };
        match read {
            Err(BadCapture::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                self.is_cut = true;
                Ok(None)
            }
            other => other,
        }
    }

    fn read_pcap_head(&mut self) -> Result<(), BadCapture> {
        let rest: [u8; 20] = self.array()?;
        // The highest bits tell of a checksum behind each frame.
        let link_type = self.word(&rest[16..]) as u16;
        if let Format::Pcap(interface) = &mut self.format {
            interface.link_type = link_type;
        }
        Ok(())
    }

    fn next_of_pcap(&mut self, interface: Interface) -> Result<Option<Recorded>, BadCapture> {
        let Some(head) = self.array_or_end::<16>()? else { return Ok(None) };
        let [seconds, part, here, len] = [0, 4, 8, 12].map(|at| self.word(&head[at..]));
        let Interface { link_type, clock, .. } = interface;
        let ticks = u128::from(seconds) * clock.ticks + u128::from(part);
        let bytes = self.bytes(here, MOST_PACKET, "a packet is too long")?;
        let nanos = clock.nanos(u64::try_from(ticks).unwrap_or(u64::MAX));
        Ok(Some(Recorded { link_type, nanos, len: len.max(here), bytes }))
    }

    fn next_of_pcapng(&mut self) -> Result<Option<Recorded>, BadCapture> {
        loop {
            let Some(kind) = self.array_or_end::<4>()? else { return Ok(None) };
            let kind = self.word(&kind);
            if kind == SECTION {
                self.read_section()?;
                continue;
            }
            let len = self.array::<4>()?;
            let body = self.block_body(self.word(&len))?;
            match kind {
                INTERFACE => self.add_interface(&body)?,
                SIMPLE_PACKET => return self.simple_packet(&body).map(Some),
                ENHANCED_PACKET => return self.enhanced_packet(&body).map(Some),
                // Names, statistics, and what others define.
                _ => {}
            }
        }
    }

    /// What follows the first word of a section: it tells the byte order.
    fn read_section(&mut self) -> Result<(), BadCapture> {
        let [a, b, c, d, magic @ ..]: [u8; 8] = self.array()?;
        self.is_big_endian = match magic {
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            _ => return Err(self.malformed("a section has no byte order")),
        };
        let len = self.word(&[a, b, c, d]);
        // The magic is a part of the body.
        let rest = len.checked_sub(4).ok_or_else(|| self.malformed("a block is too short"))?;
        self.block_body(rest)?;
        self.format = Format::Pcapng(Vec::new());
        Ok(())
    }

    /// What is between the two lengths of a block.
    fn block_body(&mut self, len: u32) -> Result<Vec<u8>, BadCapture> {
        let body = len.checked_sub(12).filter(|body| body.is_multiple_of(4));
        let body = body.ok_or_else(|| self.malformed("a block has no such length"))?;
        let bytes = self.bytes(body, MOST_BLOCK, "a block is too long")?;
        let again = self.array::<4>()?;
        let again = self.word(&again);
        // Of a section a part was read before.
        if again != len && again != len.saturating_add(4) {
            return Err(self.malformed("a block ends with another length than it begins with"));
        }
        Ok(bytes)
    }

    fn add_interface(&mut self, body: &[u8]) -> Result<(), BadCapture> {
        let Some((head, options)) = body.split_first_chunk::<8>() else {
            return Err(self.malformed("an interface is not described"));
        };
        let (link_type, snap_len) = (self.half(head), self.word(&head[4..]));
        let clock = self.clock(options)?;
        let Format::Pcapng(interfaces) = &mut self.format else { return Ok(()) };
        if interfaces.len() >= MOST_INTERFACES {
            return Err(self.malformed("there are too many interfaces"));
        }
        interfaces.push(Interface { link_type, snap_len, clock });
        Ok(())
    }

    fn clock(&self, mut options: &[u8]) -> Result<Clock, BadCapture> {
        const RESOLUTION: u16 = 9;
        const OFFSET: u16 = 14;
        let mut clock = Clock::MICROSECONDS;
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let (code, len) = (self.half(head), usize::from(self.half(&head[2..])));
            let Some(value) = rest.get(..len) else {
                return Err(self.malformed("an option is longer than its block"));
            };
            options = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            match (code, value) {
                (0, _) => break,
                (RESOLUTION, [power @ 0..=0x7f]) if *power <= 20 => {
                    clock.ticks = 10u128.pow((*power).into());
                }
                (RESOLUTION, [power]) if *power >= 0x80 && *power & 0x7f <= 64 => {
                    clock.ticks = 1 << (power & 0x7f);
                }
                (RESOLUTION, _) => return Err(self.malformed("a clock has no such resolution")),
                (OFFSET, [a, b, c, d, e, f, g, h]) => {
                    let bytes = [*a, *b, *c, *d, *e, *f, *g, *h];
                    clock.offset = match self.is_big_endian {
                        true => i64::from_be_bytes(bytes),
                        false => i64::from_le_bytes(bytes),
                    };
                }
                _ => {}
            }
        }
        Ok(clock)
    }

    fn interface(&self, number: u32) -> Result<Interface, BadCapture> {
        let Format::Pcapng(interfaces) = &self.format else {
            return Err(self.malformed("there are no interfaces"));
        };
        let known = interfaces.get(number as usize).copied();
        known.ok_or_else(|| self.malformed("a packet is of an interface that there is not"))
    }

    fn enhanced_packet(&self, body: &[u8]) -> Result<Recorded, BadCapture> {
        let Some((head, rest)) = body.split_first_chunk::<20>() else {
            return Err(self.malformed("a packet is not described"));
        };
        let [number, high, low, here, len] = [0, 4, 8, 12, 16].map(|at| self.word(&head[at..]));
        let Interface { link_type, clock, .. } = self.interface(number)?;
        let bytes = rest.get(..here as usize);
        let bytes = bytes.ok_or_else(|| self.malformed("a packet is longer than its block"))?;
        let nanos = clock.nanos(u64::from(high) << 32 | u64::from(low));
        Ok(Recorded { link_type, nanos, len: len.max(here), bytes: bytes.to_vec() })
    }

    fn simple_packet(&self, body: &[u8]) -> Result<Recorded, BadCapture> {
        let Some((head, rest)) = body.split_first_chunk::<4>() else {
            return Err(self.malformed("a packet is not described"));
        };
        let Interface { link_type, snap_len, .. } = self.interface(0)?;
        let len = self.word(head);
        let most = if snap_len == 0 { u32::MAX } else { snap_len };
        let bytes = rest.get(..len.min(most) as usize);
        let bytes = bytes.ok_or_else(|| self.malformed("a packet is longer than its block"))?;
        Ok(Recorded { link_type, nanos: 0, len, bytes: bytes.to_vec() })
    }

    fn malformed(&self, what: &'static str) -> BadCapture {
        BadCapture::Malformed { at: self.at, what }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadCapture> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// `None` where nothing follows any more.
    fn array_or_end<const N: usize>(&mut self) -> Result<Option<[u8; N]>, BadCapture> {
        let mut first = [0];
        match self.from.read_exact(&mut first) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let mut bytes = [0; N];
        bytes[0] = first[0];
        self.from.read_exact(&mut bytes[1..])?;
        self.at += N as u64;
        Ok(Some(bytes))
    }

    /// Memory grows as bytes come, not as long as somebody says that they are.
    fn bytes(&mut self, len: u32, most: u32, what: &'static str) -> Result<Vec<u8>, BadCapture> {
        if len > most {
            return Err(self.malformed(what));
        }
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(len.into()).read_to_end(&mut bytes)?;
        if read < len as usize {
            return Err(BadCapture::Io(ErrorKind::UnexpectedEof.into()));
        }
        self.at += u64::from(len);
        Ok(bytes)
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let bytes = bytes.first_chunk().copied().unwrap_or_default();
        if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn half(&self, bytes: &[u8]) -> u16 {
        let bytes = bytes.first_chunk().copied().unwrap_or_default();
        if self.is_big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

/// What is too short for a beginning is no capture.
fn unknown(error: io::Error) -> BadCapture {
    match error.kind() {
        ErrorKind::UnexpectedEof => BadCapture::Unknown,
        _ => BadCapture::Io(error),
    }
}
