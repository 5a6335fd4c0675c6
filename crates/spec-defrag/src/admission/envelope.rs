//! Sealed control frames: a frame of Ethernet around a unit that somebody encrypts.
//!
//! In clear are the addresses of the two stations and the length. Who encrypts, and with which
//! keys, is not decided here.

use alloc::vec::Vec;

use landfall_inet::{ethernet, vlan};
use landfall_placement::Refusal;
use zerocopy::IntoBytes;

use super::frame::{ETHERTYPE, FRAME_LEN, MAGIC, Mac, Priority, VERSION, is_station, sort};

/// The kind of a sealed frame, after those of [`Message`](super::Message).
pub const KIND: u8 = 6;
/// What lies between the ethertype and the unit.
const HEAD: usize = 8;
/// The longest unit: its frame fits in 256 bytes, with a priority tag.
pub const UNIT_MAX: usize = 224;
/// The longest frame.
pub const ENVELOPE_MAX: usize = ethernet::LEN + vlan::LEN + HEAD + UNIT_MAX;

/// A sealed control frame, taken apart.
///
/// ```
/// use spec_defrag::admission::Envelope;
///
/// let (to, from) = ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
/// let envelope = Envelope { to, from, priority: None, unit: b"sealed" };
/// let frame = envelope.to_bytes().unwrap();
/// assert_eq!(Envelope::parse(&frame), Ok(envelope));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// For whom.
    pub to: Mac,
    /// From whom, as the frame says.
    pub from: Mac,
    /// The priority, if it has a tag.
    pub priority: Option<Priority>,
    /// What is sealed.
    pub unit: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Takes a frame apart. What lies behind the unit is padding.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] for any other frame, a plain control frame included;
    /// [`Refusal::Truncated`]; [`Refusal::Malformed`] for an address that is no station's, or a
    /// length that cannot be.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Refusal> {
        let (tag, rest) = sort(frame)?;
        let (head, rest) = rest.split_first_chunk::<HEAD>().ok_or(Refusal::Truncated)?;
        let [_, _, _, _, version, kind, high, low] = *head;
        if (version, kind) != (VERSION, KIND) {
            return Err(Refusal::Unsupported);
        }
        let priority = match tag {
            // A VLAN has its own interface.
            Some(tag) if tag.id() != 0 => return Err(Refusal::Unsupported),
            Some(tag) => Priority::new(tag.priority()),
            None => None,
        };
        let mac = |at: usize| core::array::from_fn(|n| frame[at + n]);
        let (to, from) = (mac(0), mac(6));
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !is_station(to) || !is_station(from) || !(1..=UNIT_MAX).contains(&len) {
            return Err(Refusal::Malformed);
        }
        let unit = rest.get(..len).ok_or(Refusal::Truncated)?;
        Ok(Self { to, from, priority, unit })
    }

    /// The frame, padded. `None` if the unit is empty or too long.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if !(1..=UNIT_MAX).contains(&self.unit.len()) {
            return None;
        }
        let tag = self.priority.map(|priority| vlan::Header::new(priority.get(), 0, ETHERTYPE));
        let ethertype = if tag.is_some() { ethernet::VLAN } else { ETHERTYPE };
        let (destination, source, ethertype) = (self.to, self.from, ethertype.into());
        let link = ethernet::Header { destination, source, ethertype };
        let mut frame = Vec::with_capacity(ENVELOPE_MAX);
        frame.extend_from_slice(link.as_bytes());
        frame.extend_from_slice(tag.as_ref().map_or(&[], IntoBytes::as_bytes));
        frame.extend_from_slice(&MAGIC);
        frame.extend_from_slice(&[VERSION, KIND]);
        frame.extend_from_slice(&(self.unit.len() as u16).to_be_bytes());
        frame.extend_from_slice(self.unit);
        frame.resize(frame.len().max(FRAME_LEN), 0);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{ControlFrame, is_control};

    const TO: Mac = [2, 0, 0, 0, 0, 2];
    const FROM: Mac = [2, 0, 0, 0, 0, 1];

    #[test]
    fn a_sealed_frame_is_read_as_it_was_written() {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        for len in [1, 28, 38, 39, 64, UNIT_MAX] {
            for priority in [None, Priority::new(5)] {
                let envelope = Envelope { to: TO, from: FROM, priority, unit: &bytes[..len] };
                let frame = envelope.to_bytes().unwrap();
                assert!((FRAME_LEN..=ENVELOPE_MAX).contains(&frame.len()));
                assert_eq!(Envelope::parse(&frame), Ok(envelope));
                assert!(is_control(&frame));
                assert_eq!(ControlFrame::parse(&frame), Err(Refusal::Unsupported), "not plain");
                let end = frame.len() - (FRAME_LEN.max(len + 22) - (len + 22));
                for cut in 0..end.min(ethernet::LEN + HEAD + len) {
                    assert_eq!(Envelope::parse(&frame[..cut]), Err(Refusal::Truncated), "{cut}");
                }
            }
        }
        for len in [0, UNIT_MAX + 1] {
            let unit = &bytes[..len];
            assert_eq!(Envelope { to: TO, from: FROM, priority: None, unit }.to_bytes(), None);
        }
    }

    #[test]
    fn a_sealed_frame_that_cannot_be_is_refused() {
        let envelope = Envelope { to: TO, from: FROM, priority: None, unit: &[7; 64] };
        let frame = envelope.to_bytes().unwrap();
        let refused = |at: usize, value: u8| {
            let mut frame = frame.clone();
            frame[at] = value;
            Envelope::parse(&frame).err()
        };
        for at in 12..20 {
            assert_eq!(refused(at, 0x55), Some(Refusal::Unsupported), "{at}");
        }
        for (at, value) in [(0, 1), (6, 1), (20, 1), (21, 0), (21, 225)] {
            assert_eq!(refused(at, value), Some(Refusal::Malformed), "{at}");
        }
        assert_eq!(refused(21, 65), Some(Refusal::Truncated));
    }
}
