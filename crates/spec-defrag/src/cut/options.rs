//! Which options of an IPv4 header every piece repeats (RFC 791, section 3.1).

use landfall_placement::Refusal;
use zerocopy::FromBytes;

use super::CutError;
use crate::packet::Head;
use crate::wire::{ethernet, ipv4};

/// Nothing follows.
const END: u8 = 0;
/// One byte of padding.
const NOTHING: u8 = 1;
/// In the kind of an option: every piece repeats it.
const COPIED: u8 = 0x80;

/// The link and IPv4 headers of all pieces but the first, whose are `first`.
pub(super) fn repeated(first: &Head) -> Result<Head, CutError> {
    const OPTIONS_AT: usize = ethernet::LEN + ipv4::LEN;
    if first.len() == OPTIONS_AT {
        return Ok(*first);
    }
    let (fixed, mut options) = first.split_at_checked(OPTIONS_AT).ok_or(CutError::BadHead)?;
    let mut later = Head::from_slice(fixed).ok_or(CutError::BadHead)?;
    while let Some(&kind) = options.first() {
        let len = match kind {
            END => break,
            NOTHING => 1,
            _ => usize::from(*options.get(1).ok_or(Refusal::Malformed)?),
        };
        let minimum = if kind == NOTHING { 1 } else { 2 };
        let (option, rest) = options.split_at_checked(len).ok_or(Refusal::Malformed)?;
        if option.len() < minimum {
            return Err(Refusal::Malformed.into());
        }
        if kind & COPIED != 0 {
            later.push(option);
        }
        options = rest;
    }
    while !(later.len() - ethernet::LEN).is_multiple_of(4) {
        later.push(&[END]);
    }
    let words = ((later.len() - ethernet::LEN) / 4) as u8;
    let (header, _) = ipv4::Header::mut_from_prefix(&mut later.as_mut_slice()[ethernet::LEN..])
        .map_err(|_| CutError::BadHead)?;
    header.version_and_words = 0x40 | words;
    Ok(later)
}
