//! The control frames: what a sender and a receiver say to each other below IP.
//!
//! The layout is in `docs/spec/spec-defrag.md`; nobody else has defined one.

use core::fmt;
use core::num::NonZeroU64;

use landfall_inet::{ethernet, vlan};
use landfall_placement::{Duration, Refusal};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use landfall_inet::Mac;

/// IEEE 802: local experimental ethertype 1. Others may use it too, so a magic
/// number follows.
pub const ETHERTYPE: u16 = 0x88b5;

/// What control frames begin with, behind the ethertype.
pub const MAGIC: [u8; 4] = *b"LFAC";

/// The version of the format.
pub const VERSION: u8 = 1;

/// A control frame is always as long as the shortest frame of Ethernet, without its
/// check sequence.
pub const FRAME_LEN: usize = 60;

/// The length of a message: a control frame without addresses, tag, ethertype and padding.
pub const MESSAGE_LEN: usize = size_of::<Header>();

/// In place of a position: no place in the queue.
const NOWHERE: u16 = u16::MAX;

/// Is this the address of one station, neither of a group nor of nobody?
#[must_use]
pub(super) fn is_station(mac: Mac) -> bool {
    !ethernet::is_group(mac) && mac != [0; 6]
}

macro_rules! secrets {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub NonZeroU64);

        impl $name {
            /// The number, made into one that is not zero.
            #[must_use]
            pub fn from_number(number: u64) -> Self {
                Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
            }

            /// The number as it lies in a frame.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    )+};
}

secrets! {
    /// Names what a gate granted. Only who got the Fast_Ack knows it.
    Lease
    /// Shows that who comes again got the Fast_NAck, so that the address in its
    /// frames is its own.
    Ticket
    /// Names one series of requests of a sender, up to the end of the lease that
    /// comes of it. An answer that does not repeat it is not an answer.
    Nonce
}

/// The priority (IEEE 802.1Q, 0 to 7) of a frame with a priority tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority(u8);

impl Priority {
    /// A priority; nothing if it is above 7.
    #[must_use]
    pub const fn new(priority: u8) -> Option<Self> {
        if priority <= 7 { Some(Self(priority)) } else { None }
    }

    /// 0 to 7.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What a control frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Fast_Req: may I send fast?
    FastReq {
        /// From an earlier Fast_NAck of the same series.
        ticket: Option<Ticket>,
    },
    /// Fast_Ack: yes, for so long from when you sent that.
    FastAck {
        /// What to name from now on.
        lease: Lease,
        /// For how long.
        time: Duration,
    },
    /// Fast_NAck: no, or no longer; ask again after a while.
    FastNAck {
        /// To be shown when asking again.
        ticket: Option<Ticket>,
        /// How many are to get their turn first; `None` without a place in the queue.
        position: Option<u16>,
        /// When to ask again. No time at all is an invitation.
        wait: Duration,
    },
    /// I am still sending.
    Refresh {
        /// What was granted.
        lease: Lease,
    },
    /// I am done; or I do not want the turn any more that I wait for.
    Release {
        /// The number of the lease, or of the ticket.
        what: NonZeroU64,
    },
}

/// A control frame, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFrame {
    /// For whom.
    pub to: Mac,
    /// From whom.
    pub from: Mac,
    /// The priority, if it has a tag.
    pub priority: Option<Priority>,
    /// Which series of requests.
    pub nonce: Nonce,
    /// Which request of the series; an answer repeats it.
    pub serial: u32,
    /// What it says.
    pub message: Message,
}

/// What follows the ethertype.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    position: U16,
    nonce: U64,
    serial: U32,
    /// Microseconds.
    time: U32,
    lease: U64,
}

const _: () = assert!(
    size_of::<Header>() == 32 && ethernet::LEN + vlan::LEN + size_of::<Header>() <= FRAME_LEN
);

mod kind {
    pub(super) const FAST_REQ: u8 = 1;
    pub(super) const FAST_ACK: u8 = 2;
    pub(super) const FAST_NACK: u8 = 3;
    pub(super) const REFRESH: u8 = 4;
    pub(super) const RELEASE: u8 = 5;
}

/// Is this a control frame, by ethertype and magic number? Whether it is a good one is
/// another question. For drivers that sort what they received.
#[must_use]
pub fn is_control(frame: &[u8]) -> bool {
    sort(frame).is_ok()
}

/// The tag, if any, and what follows the ethertype.
pub(super) fn sort(frame: &[u8]) -> Result<(Option<vlan::Header>, &[u8]), Refusal> {
    let (link, rest) = ethernet::Header::ref_from_prefix(frame).map_err(|_| Refusal::Truncated)?;
    let (tag, ethertype, rest) = if link.ethertype.get() == ethernet::VLAN {
        let (tag, rest) = vlan::Header::read_from_prefix(rest).map_err(|_| Refusal::Truncated)?;
        (Some(tag), tag.ethertype.get(), rest)
    } else {
        (None, link.ethertype.get(), rest)
    };
    if ethertype != ETHERTYPE {
        return Err(Refusal::Unsupported);
    }
    match rest.first_chunk() {
        Some(&MAGIC) => Ok((tag, rest)),
        Some(_) => Err(Refusal::Unsupported),
        None => Err(Refusal::Truncated),
    }
}

impl ControlFrame {
    /// Takes a frame apart. What lies behind the header is padding.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] for what is no control frame, or of another version or
    /// kind, or in a VLAN; [`Refusal::Truncated`]; [`Refusal::Malformed`] for an address
    /// that cannot be, or a field that must not hold what it holds.
    pub fn parse(frame: &[u8]) -> Result<Self, Refusal> {
        let (tag, rest) = sort(frame)?;
        let header = Header::read(rest)?;
        // A priority tag names no VLAN (IEEE 802.1Q, 9.6). A VLAN has its own interface.
        let priority = match tag {
            Some(tag) if tag.id() != 0 => return Err(Refusal::Unsupported),
            Some(tag) => Priority::new(tag.priority()),
            None => None,
        };
        let mac = |at: usize| core::array::from_fn(|n| frame[at + n]);
        header.frame(mac(0), mac(6), priority)
    }

    /// Reads a message that came without a frame, from one station to another.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of_message(to: Mac, from: Mac, message: &[u8]) -> Result<Self, Refusal> {
        Header::read(message)?.frame(to, from, None)
    }

    /// The message alone.
    #[must_use]
    pub fn to_message(&self) -> [u8; MESSAGE_LEN] {
        let mut message = [0; MESSAGE_LEN];
        message.copy_from_slice(Header::new(self).as_bytes());
        message
    }

    /// The frame, padded.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; FRAME_LEN] {
        let mut frame = [0; FRAME_LEN];
        let mut at = ethernet::LEN;
        let mut ethertype = ETHERTYPE;
        if let Some(Priority(priority)) = self.priority {
            let tag = vlan::Header::new(priority, 0, ETHERTYPE);
            frame[at..at + vlan::LEN].copy_from_slice(tag.as_bytes());
            (at, ethertype) = (at + vlan::LEN, ethernet::VLAN);
        }
        let link = ethernet::Header {
            destination: self.to,
            source: self.from,
            ethertype: ethertype.into(),
        };
        frame[..ethernet::LEN].copy_from_slice(link.as_bytes());
        let header = Header::new(self);
        frame[at..at + size_of::<Header>()].copy_from_slice(header.as_bytes());
        frame
    }
}

impl Header {
    /// The header that these bytes begin with.
    fn read(bytes: &[u8]) -> Result<&Self, Refusal> {
        let (header, _) = Self::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
        if (header.magic, header.version) != (MAGIC, VERSION) {
            return Err(Refusal::Unsupported);
        }
        Ok(header)
    }

    /// What it says between two stations.
    fn frame(
        &self,
        to: Mac,
        from: Mac,
        priority: Option<Priority>,
    ) -> Result<ControlFrame, Refusal> {
        let message = self.message()?;
        let nonce = NonZeroU64::new(self.nonce.get()).ok_or(Refusal::Malformed)?;
        if !is_station(to) || !is_station(from) {
            return Err(Refusal::Malformed);
        }
        let (nonce, serial) = (Nonce(nonce), self.serial.get());
        Ok(ControlFrame { to, from, priority, nonce, serial, message })
    }

    fn new(frame: &ControlFrame) -> Self {
        let (kind, position, time, lease) = match frame.message {
            Message::FastReq { ticket } => (kind::FAST_REQ, 0, 0, ticket.map_or(0, Ticket::number)),
            Message::FastAck { lease, time } => (kind::FAST_ACK, 0, micros(time), lease.number()),
            Message::FastNAck { ticket, position, wait } => {
                let ticket = ticket.map_or(0, Ticket::number);
                (kind::FAST_NACK, position.unwrap_or(NOWHERE), micros(wait), ticket)
            }
            Message::Refresh { lease } => (kind::REFRESH, 0, 0, lease.number()),
            Message::Release { what } => (kind::RELEASE, 0, 0, what.get()),
        };
        Self {
            magic: MAGIC,
            version: VERSION,
            kind,
            position: position.into(),
            nonce: frame.nonce.number().into(),
            serial: frame.serial.into(),
            time: time.into(),
            lease: lease.into(),
        }
    }

    fn message(&self) -> Result<Message, Refusal> {
        let (position, time) = (self.position.get(), self.time.get());
        let number = NonZeroU64::new(self.lease.get());
        let needed = number.ok_or(Refusal::Malformed);
        let message = match self.kind {
            kind::FAST_REQ => Message::FastReq { ticket: number.map(Ticket) },
            kind::FAST_ACK if time > 0 => {
                Message::FastAck { lease: Lease(needed?), time: duration(time) }
            }
            kind::FAST_ACK => return Err(Refusal::Malformed),
            kind::FAST_NACK => Message::FastNAck {
                ticket: number.map(Ticket),
                position: (position != NOWHERE).then_some(position),
                wait: duration(time),
            },
            kind::REFRESH => Message::Refresh { lease: Lease(needed?) },
            kind::RELEASE => Message::Release { what: needed? },
            _ => return Err(Refusal::Unsupported),
        };
        // What a kind does not use is zero, so that a later version may use it.
        let unused = match self.kind {
            kind::FAST_NACK => position != NOWHERE && number.is_none(),
            kind::FAST_ACK => position != 0,
            _ => position != 0 || time != 0,
        };
        if unused { Err(Refusal::Malformed) } else { Ok(message) }
    }
}

/// Rounded down: a sender must not believe in more than it was granted.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn duration(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const TO: Mac = [2, 0, 0, 0, 0, 2];
    const FROM: Mac = [2, 0, 0, 0, 0, 1];

    fn messages() -> Vec<Message> {
        let (lease, ticket) = (Lease::from_number(0x1122), Ticket::from_number(0x3344));
        let time = Duration::from_micros(100_000);
        let mut messages = Vec::from([
            Message::FastReq { ticket: None },
            Message::FastReq { ticket: Some(ticket) },
            Message::FastAck { lease, time },
            Message::Refresh { lease },
            Message::Release { what: ticket.0 },
        ]);
        for (ticket, position) in [
            (None, None),
            (Some(ticket), None),
            (Some(ticket), Some(0)),
            (Some(ticket), Some(65_534)),
        ] {
            messages.push(Message::FastNAck { ticket, position, wait: time });
        }
        messages
    }

    fn frame(message: Message, priority: Option<u8>) -> ControlFrame {
        let nonce = Nonce::from_number(0x0102_0304_0506_0708);
        let priority = priority.and_then(Priority::new);
        ControlFrame { to: TO, from: FROM, priority, nonce, serial: 9, message }
    }

    #[test]
    fn what_is_written_is_read() {
        for message in messages() {
            for priority in [None, Some(0), Some(7)] {
                let frame = frame(message, priority);
                let bytes = frame.to_bytes();
                assert_eq!(ControlFrame::parse(&bytes), Ok(frame));
                assert!(is_control(&bytes));
                let alone = ControlFrame::of_message(TO, FROM, &frame.to_message());
                assert_eq!(alone, Ok(ControlFrame { priority: None, ..frame }));
                let longer = [&bytes[..], &[0xff; 9]].concat();
                assert_eq!(ControlFrame::parse(&longer), Ok(frame), "padding is padding");
            }
        }
    }

    #[test]
    fn each_frame_that_is_cut_is_refused() {
        for (priority, end) in [(None, 46), (Some(3), 50)] {
            let bytes = frame(messages()[0], priority).to_bytes();
            for len in 0..end {
                assert_eq!(ControlFrame::parse(&bytes[..len]), Err(Refusal::Truncated), "{len}");
            }
            assert!(ControlFrame::parse(&bytes[..end]).is_ok());
        }
    }

    #[test]
    fn each_byte_that_may_not_be_changed_is_watched() {
        let bytes = frame(Message::FastReq { ticket: None }, None).to_bytes();
        let refused = |at: usize, value: u8| {
            let mut bytes = bytes;
            bytes[at] = value;
            ControlFrame::parse(&bytes).err()
        };
        for at in 12..19 {
            assert_eq!(refused(at, 0x55), Some(Refusal::Unsupported), "{at}");
        }
        for kind in [0, 6, 255] {
            assert_eq!(refused(19, kind), Some(Refusal::Unsupported), "{kind}");
        }
        for kind in [2, 4, 5] {
            assert_eq!(refused(19, kind), Some(Refusal::Malformed), "{kind} without lease");
        }
        for at in [0, 6, 20, 21, 34, 37] {
            assert_eq!(refused(at, 1), Some(Refusal::Malformed), "{at}");
        }
        let mut nameless = bytes;
        nameless[22..30].fill(0);
        assert_eq!(ControlFrame::parse(&nameless), Err(Refusal::Malformed), "no nonce");
        let nack = Message::FastNAck { ticket: None, position: Some(3), wait: Duration::ZERO };
        let bytes = frame(nack, None).to_bytes();
        assert_eq!(ControlFrame::parse(&bytes), Err(Refusal::Malformed), "a place without ticket");
        let lease = Lease::from_number(1);
        let nothing = Message::FastAck { lease, time: Duration::from_nanos(999) };
        let bytes = frame(nothing, None).to_bytes();
        assert_eq!(ControlFrame::parse(&bytes), Err(Refusal::Malformed), "no time at all");
    }

    #[test]
    fn what_is_in_a_vlan_is_for_another_interface() {
        let mut bytes = frame(messages()[0], Some(5)).to_bytes();
        bytes[15] = 1;
        assert_eq!(ControlFrame::parse(&bytes), Err(Refusal::Unsupported));
        assert!(is_control(&bytes), "but it is one");
    }

    #[test]
    fn priorities_end_at_seven() {
        assert_eq!(Priority::new(7).map(Priority::get), Some(7));
        assert_eq!(Priority::new(8), None);
    }
}
