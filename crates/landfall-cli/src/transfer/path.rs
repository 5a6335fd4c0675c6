//! Names of what is sent: relative to the receiver's folder, and unable to leave it.
//!
//! What a peer calls a file is bytes from a network. [`RelPath`] is such a name after
//! it was checked, and the only kind that the rest of this program opens; symbolic
//! links point to [targets](check_target) that are checked likewise. Names need not
//! be UTF-8: they are bytes, as the kernel has them.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

pub(crate) use crate::printable::printable;
use crate::printable::printable_bytes;

/// The longest name of one file or folder, as the kernel has it.
const MOST_NAME: usize = 255;
/// The longest path, as the kernel has it.
pub(crate) const MOST_PATH: usize = 4096;
/// This many folders lie within each other at most.
const MOST_DEPTH: usize = 128;
/// What this program calls its own files starts so, and ends in one of these ways.
const OWN_PREFIX: &[u8] = b".landfall-";
const OWN_ENDS: [&[u8]; 2] = [b".part", b".journal"];

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadPath {
    #[error("the name is empty, or has an empty part")]
    Empty,
    #[error("the name is absolute: it would leave the receiver's folder")]
    Absolute,
    #[error("the name has a part that is `.` or `..`: it would leave the receiver's folder")]
    Dots,
    #[error("the name has a zero byte")]
    Zero,
    #[error("the name is longer than a file system takes")]
    TooLong,
    #[error("more than {MOST_DEPTH} folders within each other")]
    TooDeep,
    #[error(
        "the names .landfall-….part and .landfall-….journal are those of partial files: rename it"
    )]
    Own,
}

/// Is that what a partial file or its journal is called?
fn is_own(name: &[u8]) -> bool {
    name.starts_with(OWN_PREFIX) && OWN_ENDS.iter().any(|end| name.ends_with(end))
}

/// A name relative to the receiver's folder: parts that are joined by `/`, none of them
/// empty, `.` or `..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RelPath(Vec<u8>);

impl RelPath {
    /// Checks a name.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadPath> {
        match bytes {
            [] => return Err(BadPath::Empty),
            [b'/', ..] => return Err(BadPath::Absolute),
            _ if bytes.len() > MOST_PATH => return Err(BadPath::TooLong),
            _ if bytes.contains(&0) => return Err(BadPath::Zero),
            _ => {}
        }
        let mut depth = 0;
        for part in bytes.split(|byte| *byte == b'/') {
            depth += 1;
            match part {
                [] => return Err(BadPath::Empty),
                b"." | b".." => return Err(BadPath::Dots),
                _ if part.len() > MOST_NAME => return Err(BadPath::TooLong),
                _ if is_own(part) => return Err(BadPath::Own),
                _ => {}
            }
        }
        if depth > MOST_DEPTH { Err(BadPath::TooDeep) } else { Ok(Self(bytes.to_vec())) }
    }

    /// What lies in this folder by that name.
    pub(crate) fn child(&self, name: &OsStr) -> Result<Self, BadPath> {
        Self::parse(&[&self.0, &b"/"[..], name.as_bytes()].concat())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The folder that it lies in, empty for the receiver's own, and its name there.
    pub(crate) fn split(&self) -> (&[u8], &OsStr) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], OsStr::from_bytes(&self.0[at + 1..])),
            None => (&[], OsStr::from_bytes(&self.0)),
        }
    }

    /// Its parts, from the receiver's folder on.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// Does the other lie somewhere in this folder?
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other.0.strip_prefix(self.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
    }

    /// How many folders it lies in, below the receiver's.
    fn depth(&self) -> usize {
        self.0.iter().filter(|byte| **byte == b'/').count()
    }
}

/// Safe to print: control characters, which a terminal might obey, are escaped.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable_bytes(&self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Why the target of a symbolic link is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTarget {
    #[error("a symbolic link to nothing")]
    Empty,
    #[error("a symbolic link that points out of what is sent: it is not taken")]
    Leaves,
    #[error("a symbolic link whose target is longer than a file system takes")]
    TooLong,
}

/// Does a symbolic link stay within the receiver's folder?
///
/// Its target may start with as many `..` as there are folders above the link, and has
/// none behind: what comes after another link is not where the text says.
pub(crate) fn check_target(link: &RelPath, target: &[u8]) -> Result<(), BadTarget> {
    if target.is_empty() || target.contains(&0) {
        return Err(BadTarget::Empty);
    }
    if target.len() >= MOST_PATH {
        return Err(BadTarget::TooLong);
    }
    if target[0] == b'/' {
        return Err(BadTarget::Leaves);
    }
    let mut parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let up = parts.clone().take_while(|part| *part == b"..").count();
    let climbs_later = parts.by_ref().skip(up).any(|part| part == b"..");
    if up > link.depth() || climbs_later { Err(BadTarget::Leaves) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        let refused: [(&[u8], BadPath); 12] = [
            (b"", BadPath::Empty),
            (b"a//b", BadPath::Empty),
            (b"a/", BadPath::Empty),
            (b"/etc/passwd", BadPath::Absolute),
            (b"..", BadPath::Dots),
            (b"../x", BadPath::Dots),
            (b"a/../../x", BadPath::Dots),
            (b"a/./x", BadPath::Dots),
            (b"a\0b", BadPath::Zero),
            (&[b'x'; 256], BadPath::TooLong),
            (&[b'x'; 5000], BadPath::TooLong),
            (b"a/.landfall-0123.part", BadPath::Own),
        ];
        for (name, why) in refused {
            assert_eq!(RelPath::parse(name), Err(why), "{:?}", String::from_utf8_lossy(name));
        }
        assert_eq!(RelPath::parse("d/".repeat(200).as_bytes()), Err(BadPath::Empty));
        assert_eq!(RelPath::parse(&b"d/".repeat(200)[..399]), Err(BadPath::TooDeep));
        for name in [&b"a"[..], b"a/b/c", b"...", b"a b", b"\xff\xfe/\x80", b"-", b"..a/b.."] {
            assert_eq!(RelPath::parse(name).unwrap().as_bytes(), name);
        }
    }

    #[test]
    fn a_link_may_climb_only_where_it_starts() {
        let link = RelPath::parse(b"top/folder/link").unwrap();
        let taken: [&[u8]; 6] = [b"x", b"./x", b"../x", b"../../top/x", b"a/b/./c", b"..//..//x"];
        for target in taken {
            assert_eq!(check_target(&link, target), Ok(()), "{target:?}");
        }
        // `back` may itself be a link that leads upwards: then `back/..` is not here.
        let refused: [&[u8]; 5] = [b"/etc", b"../../../x", b"back/../x", b"../a/../../x", b"//x"];
        for target in refused {
            assert_eq!(check_target(&link, target), Err(BadTarget::Leaves), "{target:?}");
        }
        assert_eq!(check_target(&link, b""), Err(BadTarget::Empty));
    }

    #[test]
    fn what_is_printed_does_not_command_a_terminal() {
        let name = RelPath::parse(b"a\x1b[2Jb\n\xff").unwrap().to_string();
        assert_eq!(name, "a\\u{1b}[2Jb\\n\\xff");
        assert_eq!(RelPath::parse("grün/ß".as_bytes()).unwrap().to_string(), "grün/ß");
    }

    proptest! {
        /// The oracle is the standard library's way to take paths apart.
        #[test]
        fn accepted_names_have_normal_parts_only(bytes in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..40)
        ) {
            let path = Path::new(OsStr::from_bytes(&bytes));
            let parts: Vec<_> = path.components().collect();
            let is_normal = parts.iter().all(|part| matches!(part, Component::Normal(_)));
            if let Ok(accepted) = RelPath::parse(&bytes) {
                prop_assert!(is_normal && !parts.is_empty());
                let (parent, name) = accepted.split();
                prop_assert_eq!(Some(name), path.file_name());
                prop_assert_eq!(Some(Path::new(OsStr::from_bytes(parent))), path.parent());
            }
        }

        /// Wherever a chain of accepted links leads, it is not above the folder: each
        /// climbs from where it lies, and no further than the folder.
        #[test]
        fn accepted_links_never_climb_above(
            depth in 0usize..6,
            parts in prop::collection::vec(
                prop_oneof![Just(".."), Just("."), Just(""), Just("a")], 1..10)
        ) {
            let link = RelPath::parse(&[b"d/".repeat(depth), b"l".to_vec()].concat()).unwrap();
            let target = parts.join("/");
            if check_target(&link, target.as_bytes()).is_ok() {
                let mut level = depth as i64;
                for part in parts {
                    level += match part { ".." => -1, "a" => 1, _ => 0 };
                    prop_assert!(level >= 0, "{target}");
                }
            }
        }
    }
}
