//! One range of bytes (RFC 9110, section 14).

use std::ops::Range;

/// What a field `Range` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Everything: the field is not understood or asks for several parts, which a server may
    /// answer with the whole.
    Whole,
    Part(Range<u64>),
    /// Nothing that is there.
    Nothing,
}

/// What of this many bytes a field asks for.
pub(super) fn wanted(field: &str, len: u64) -> Wanted {
    let Some((first, last)) = positions(field) else { return Wanted::Whole };
    match (first, last) {
        // As many as this, from the end.
        (None, Some(suffix)) if suffix > 0 && len > 0 => {
            Wanted::Part(len.saturating_sub(suffix)..len)
        }
        (Some(first), None) if first < len => Wanted::Part(first..len),
        (Some(first), Some(last)) if first > last => Wanted::Whole,
        (Some(first), Some(last)) if first < len => {
            Wanted::Part(first..last.saturating_add(1).min(len))
        }
        _ => Wanted::Nothing,
    }
}

/// The two numbers of a single range.
fn positions(field: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = field.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| match text {
        "" => Some(None),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            // More than any file has.
            Some(Some(text.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    };
    let positions = (number(first)?, number(last)?);
    (positions != (None, None)).then_some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_range_is_cut_to_what_is_there() {
        let part = |field, range| assert_eq!(wanted(field, 10), Wanted::Part(range), "{field}");
        part("bytes=0-0", 0..1);
        part("bytes=3-", 3..10);
        part("bytes=3-99999999999999999999999", 3..10);
        part("bytes=-4", 6..10);
        part("bytes=-40", 0..10);
        part("Bytes = 9-9", 9..10);
    }

    #[test]
    fn what_is_not_there_is_nothing_and_nonsense_is_ignored() {
        for field in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(wanted(field, 10), Wanted::Nothing, "{field}");
        }
        assert_eq!(wanted("bytes=0-", 0), Wanted::Nothing);
        for field in ["", "bytes", "bytes=", "bytes=-", "bytes=4-3", "bytes=a-b", "lines=0-1"] {
            assert_eq!(wanted(field, 10), Wanted::Whole, "{field}");
        }
        for field in ["bytes=0-1,3-4", "bytes=+1-2", "bytes=0--1"] {
            assert_eq!(wanted(field, 10), Wanted::Whole, "{field}");
        }
    }
}
