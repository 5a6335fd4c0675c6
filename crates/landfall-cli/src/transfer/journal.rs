//! The journal of a partial file: of what source the bytes are that came so far.
//!
//! It is written once, before the first byte, and is a text of four lines. How far the
//! partial file is, its own length says: bytes are appended in their order. Whether those
//! bytes are still right, a hash over them says, which both sides compare before the rest
//! is sent; so a journal that lies, or is torn, costs a new start and never a wrong byte.

use super::path::RelPath;
use super::wire::FileTime;

const FIRST_LINE: &str = "landfall partial file 1";
/// No journal is longer.
pub(crate) const MOST: u64 = 16 << 10;

/// The source that the bytes of a partial file come from: four lines of text, written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) path: RelPath,
    pub(crate) size: u64,
    pub(crate) modified: FileTime,
}

impl Journal {
    pub(crate) fn to_text(&self) -> String {
        let FileTime { seconds, nanos } = self.modified;
        let name: String = self.path.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{FIRST_LINE}\nsize {}\nmodified {seconds} {nanos}\nname {name}\n", self.size)
    }

    /// Reads one; nothing if it is none, or torn.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let size = lines.next()?.strip_prefix("size ")?.parse().ok()?;
        let (seconds, nanos) = lines.next()?.strip_prefix("modified ")?.split_once(' ')?;
        let modified = FileTime { seconds: seconds.parse().ok()?, nanos: nanos.parse().ok()? };
        let name = lines.next()?.strip_prefix("name ")?;
        let path = RelPath::parse(&from_hex(name)?).ok()?;
        lines.next().is_none().then_some(Self { path, size, modified })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_and_nothing_torn_is(
            name in prop::collection::vec(1u8.., 1..40),
            size in any::<u64>(),
            seconds in any::<i64>(),
            nanos in 0u32..1_000_000_000,
            cut in any::<prop::sample::Index>(),
        ) {
            prop_assume!(RelPath::parse(&name).is_ok());
            let path = RelPath::parse(&name).unwrap();
            let journal = Journal { path, size, modified: FileTime { seconds, nanos } };
            let text = journal.to_text();
            prop_assert_eq!(Journal::parse(&text), Some(journal));
            prop_assert_eq!(Journal::parse(&text[..cut.index(text.len())]), None);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", rest in ".{0,60}") {
            let _ = Journal::parse(&text);
            let _ = Journal::parse(&format!("{FIRST_LINE}\nsize {rest}\n"));
            let _ = Journal::parse(&format!("{FIRST_LINE}\nsize 1\nmodified 0 0\nname {rest}\n"));
        }
    }
}
