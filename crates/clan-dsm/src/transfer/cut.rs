//! Bytes at any place, as packets: words, and what is left at either end.

use arrayvec::ArrayVec;

use crate::address::{Address, WHOLE, WORD};

/// One packet's worth: whole words, or some bytes of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where, and which bytes of the word.
    pub(crate) address: Address,
    /// How many bytes.
    pub(crate) len: u32,
}

impl Part {
    /// How many words it has; the parameters of a command need not fill theirs.
    pub(crate) const fn words(&self) -> u32 {
        if self.address.mask == WHOLE { self.len.div_ceil(WORD) } else { 1 }
    }
}

/// The packets for `len` bytes at `offset` of an aperture whose first word has
/// the address `base`: some bytes of a word, whole words, some bytes of a word.
/// `None` where that lies beyond what addresses reach.
pub(crate) fn cut(base: Address, offset: u64, len: u32) -> Option<ArrayVec<Part, 3>> {
    let word = |offset: u64| {
        let number = u32::try_from(offset / u64::from(WORD)).ok()?;
        base.advanced(number)
    };
    let mut parts = ArrayVec::new();
    let (mut offset, mut left) = (offset, len);
    while left > 0 {
        let from = (offset % u64::from(WORD)) as u32;
        let whole = if from == 0 { left / WORD * WORD } else { 0 };
        let (mask, len) = match whole {
            0 => {
                let len = (WORD - from).min(left);
                (Address::mask_of(from, len)?, len)
            }
            _ => (WHOLE, whole),
        };
        parts.try_push(Part { address: Address { mask, ..word(offset)? }, len }).ok()?;
        offset = offset.checked_add(u64::from(len))?;
        left -= len;
    }
    Some(parts)
}

/// How many of `left` bytes at `offset` go into a piece of at most `room`: all,
/// or up to the end of a word.
pub(crate) fn piece_len(offset: u64, left: u64, room: usize) -> u32 {
    // No piece has more words than its entry can count.
    let most = u32::from(u16::MAX) * WORD;
    let room = u32::try_from(room).unwrap_or(most).min(most);
    if left <= u64::from(room) {
        return left as u32;
    }
    let over = ((offset + u64::from(room)) % u64::from(WORD)) as u32;
    room.saturating_sub(over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{HostId, Key};
    use crate::cookie::Cookie;
    use crate::cookie::Rights;

    fn base() -> Address {
        Cookie::new(HostId::default(), 1, Rights::Write, Key::from_bits(5), 1 << 30).address(0)
    }

    #[test]
    fn each_byte_is_in_one_packet_in_its_order() {
        for offset in 0..17_u64 {
            for len in 0..40_u32 {
                let parts = cut(base(), offset, len).unwrap();
                let mut bytes = std::vec::Vec::new();
                for part in &parts {
                    let (from, enabled) = part.address.enabled();
                    let at = u64::from(part.address.word * WORD + from);
                    assert!(part.address.mask == WHOLE || part.len == enabled, "{part:?}");
                    assert!(part.address.mask != WHOLE || part.len % WORD == 0, "{part:?}");
                    assert!(part.len > 0);
                    bytes.extend(at..at + u64::from(part.len));
                }
                let wanted: std::vec::Vec<u64> = (offset..offset + u64::from(len)).collect();
                assert_eq!(bytes, wanted, "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    fn pieces_end_where_words_do_or_the_bytes() {
        for offset in 0..9 {
            for room in 0..40 {
                for left in 1..50 {
                    let len = piece_len(offset, left, room);
                    assert!(len as usize <= room && u64::from(len) <= left);
                    let is_end = (offset + u64::from(len)).is_multiple_of(8);
                    assert!(len == 0 || is_end || u64::from(len) == left, "{offset} {left} {room}");
                    assert!(len > 0 || room < 8, "{offset} {left} {room}: nothing goes");
                }
            }
        }
    }

    #[test]
    fn beyond_all_addresses_is_nothing() {
        let last = u64::from(u32::MAX) * u64::from(WORD);
        assert!(cut(base(), last, WORD).is_some());
        assert_eq!(cut(base(), last, WORD + 1), None);
        assert_eq!(cut(base(), u64::MAX, 1), None);
        assert_eq!(cut(base(), u64::MAX - 3, 9), None);
    }
}
