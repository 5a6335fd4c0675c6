//! The Schedule Header: the 40 bytes that begin every packet.

use landfall_placement::{InternetSum, Refusal, SumSlot};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::op::{Flags, Op};

/// The length of the Schedule Header.
pub const HEADER_LEN: usize = 40;

/// The longest head of any packet: a header and the 16 bytes that FetchOp, Get
/// and a Connection_Answer that gives one carry behind it.
pub const LONGEST_HEAD: usize = HEADER_LEN + EXTENSION_LEN;

/// Ethernet fills short frames up to this many bytes of payload; what comes
/// behind a whole packet in such a frame is no part of it.
pub(crate) const SHORTEST_FRAME: u32 = 46;

/// What some operations carry behind the header.
pub(crate) const EXTENSION_LEN: usize = 16;

/// Where in the header the checksum is.
pub(crate) const SUM_OFFSET: u16 = 12;
pub(crate) const SUM_RANGE: core::ops::Range<usize> = 12..14;
/// Where a driver puts a checksum over header and payload.
pub(crate) const SUM_SLOT: SumSlot = SumSlot { start: 0, offset: SUM_OFFSET };

/// The Schedule Header as it lies in a packet. The names are those of the
/// standard; which operation uses which field for what: [`super::message`].
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// The operation.
    pub op: u8,
    /// Flags of the operation.
    pub flags: u8,
    /// A small parameter.
    pub param: U16,
    /// The port of who receives the packet.
    pub d_port: U16,
    /// The port of who sends it.
    pub s_port: U16,
    /// The key that who receives it gave out.
    pub d_key: U32,
    /// The Internet checksum over the whole packet, where the flag says so.
    pub cksum: U16,
    /// The low bits of the serial number that request and answer share.
    pub sync: U16,
    /// The number of a Block, or a serial number.
    pub b_num: U32,
    /// Names a buffer (a granted Block), or a memory region.
    pub bufx: U32,
    /// Where in the buffer.
    pub offset: U32,
    /// A length or a place of 64 bits, or two words of 32.
    pub t_len: U64,
    /// The identifier that who receives the packet gave.
    pub d_id: U16,
    /// The identifier that who sends it gave.
    pub s_id: U16,
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);

impl Header {
    /// The header at the start of `head`.
    #[inline]
    #[must_use]
    pub fn read(head: &[u8]) -> Option<&Self> {
        Some(Self::ref_from_prefix(head).ok()?.0)
    }

    /// The operation.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] where the number belongs to none.
    #[inline]
    pub fn operation(&self) -> Result<Op, Refusal> {
        Op::from_number(self.op).ok_or(Refusal::Unsupported)
    }

    /// The flags.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> Flags {
        Flags(self.flags)
    }

    /// How long the whole packet is where its header says so: in what shows that packets of
    /// a size arrive, and where a Transfer is right behind its request.
    #[must_use]
    pub(crate) fn filled_len(&self) -> Option<u32> {
        if self.op == Op::RequestToSend as u8 && self.flags().has(Flags::LAST) {
            let len = u32::try_from(self.t_len.get()).unwrap_or(u32::MAX);
            return Some(len.saturating_add(HEADER_LEN as u32));
        }
        let is_filled = self.op == Op::RequestStateResponse as u8
            && self.param.get() as u8 == super::codec::SIZE;
        is_filled.then(|| self.b_num.get())
    }

    /// Is it Data without a checksum, of which a run may be?
    #[inline]
    #[must_use]
    pub(crate) const fn is_plain_data(&self) -> bool {
        self.op == Op::Data as u8 && !self.flags().has(Flags::SUM)
    }

    /// The first of the two words in `t_len`.
    #[inline]
    #[must_use]
    pub fn high(&self) -> u32 {
        (self.t_len.get() >> 32) as u32
    }

    /// The second.
    #[inline]
    #[must_use]
    pub fn low(&self) -> u32 {
        self.t_len.get() as u32
    }
}

/// Two words as they lie in `t_len`.
#[inline]
#[must_use]
pub(crate) const fn two_words(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Puts the checksum into a packet: `bytes` is all of it, with zeros where the
/// checksum will be, and the flag set. What is too short stays as it is.
pub fn seal(bytes: &mut [u8]) {
    let mut sum = InternetSum::new();
    sum.add(bytes);
    let slot = usize::from(SUM_OFFSET);
    if let Some(field) = bytes.get_mut(slot..slot + 2) {
        field.copy_from_slice(&sum.checksum().to_be_bytes());
    }
}

/// Is the checksum over a whole packet, without padding behind it, right?
#[must_use]
pub fn is_sealed(bytes: &[u8]) -> bool {
    let mut sum = InternetSum::new();
    sum.add(bytes);
    sum.sum() == 0xffff
}
