//! What the receiver remembers of what was announced, and how much it lets in.
//!
//! A sender announces in one order: what lies below one of its paths comes together, each
//! folder before what is in it, names by their bytes. So the receiver knows a name that comes
//! again by the last one alone, and it knows when a folder has all that is in it; what it has
//! to remember does not grow with what is sent.

use std::collections::{HashSet, VecDeque};

use super::folder::Made;
use super::path::RelPath;
use super::wire::FileTime;
use crate::style;

/// What a receiver takes of one sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes, holes included.
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

/// Entries that a sender may announce, unless the user says otherwise.
pub(crate) const USUAL_ENTRIES: u64 = 10_000_000;

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: u64::MAX, entries: USUAL_ENTRIES }
    }
}

impl Limits {
    /// May there be an entry of that number? Or why not.
    pub(crate) fn admit_entry(&self, index: u64) -> Result<(), String> {
        if index < self.entries {
            return Ok(());
        }
        Err(format!(
            "more than {index} files, folders and links: `landfall receive --max-entries` would \
             take more"
        ))
    }

    /// How many bytes are admitted after this many more; or why these are not.
    pub(crate) fn admit(&self, before: u64, more: u64) -> Result<u64, String> {
        let left = self.bytes.saturating_sub(before);
        if more <= left {
            return Ok(before.saturating_add(more));
        }
        Err(format!(
            "the receiver takes {} at a time, of which {} are left: `landfall receive --max-size` \
             would take more",
            style::bytes(self.bytes),
            style::bytes(left)
        ))
    }
}

/// Why an entry is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAdmitted {
    #[error("the name was announced before, or out of its order")]
    Repeated,
    #[error("more than {MOST_ROOTS} names outside of any folder: put them in one")]
    TooManyRoots,
}

/// This many paths a sender may name on its command line.
const MOST_ROOTS: usize = 1 << 18;

/// The names so far.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: Option<RelPath>,
    /// Hashes of the first parts of names: each comes together, and once.
    roots: HashSet<[u8; 16]>,
}

impl Order {
    /// Is it the turn of this name? Then it is the last one from now on.
    pub(crate) fn admit(&mut self, path: &RelPath) -> Result<(), NotAdmitted> {
        let root = path.parts().next();
        let is_below_same = |last: &RelPath| last.parts().next() == root;
        match self.last.as_ref().filter(|last| is_below_same(last)) {
            Some(last) if last.parts().lt(path.parts()) => {}
            Some(_) => return Err(NotAdmitted::Repeated),
            None => {
                if self.roots.len() >= MOST_ROOTS {
                    return Err(NotAdmitted::TooManyRoots);
                }
                let hash = blake3::hash(root.unwrap_or_default());
                let short = *hash.as_bytes().first_chunk().unwrap_or(&[0; 16]);
                if !self.roots.insert(short) {
                    return Err(NotAdmitted::Repeated);
                }
            }
        }
        self.last = Some(path.clone());
        Ok(())
    }
}

/// A folder, until all that is in it is there.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) path: RelPath,
    pub(crate) mode: u16,
    pub(crate) modified: FileTime,
    pub(crate) made: Made,
}

/// Folders that wait for what is in them. As the number of entries is bounded that
/// are announced and not dealt with, so is that of these.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    /// Each lies within the one before.
    open: Vec<Unfinished>,
    /// Nothing more is announced in these, and before what entry that was so; the innermost
    /// first.
    left: VecDeque<(u64, Unfinished)>,
}

impl Folders {
    /// The entry of that number is announced: folders that it does not lie in are complete
    /// once all entries before it are dealt with.
    pub(crate) fn announce(&mut self, index: u64, path: &RelPath) {
        while let Some(left) = self.open.pop_if(|folder| !folder.path.contains(path)) {
            self.left.push_back((index, left));
        }
    }

    pub(crate) fn enter(&mut self, folder: Unfinished) {
        self.open.push(folder);
    }

    /// A folder that is complete, where all entries before that number are dealt with.
    pub(crate) fn complete(&mut self, before: u64) -> Option<Unfinished> {
        self.left.front().filter(|(index, _)| *index <= before)?;
        self.left.pop_front().map(|(_, folder)| folder)
    }

    /// Nothing more is announced.
    pub(crate) fn leave_all(&mut self, next: u64) {
        self.left.extend(self.open.drain(..).rev().map(|folder| (next, folder)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn each_name_is_admitted_once_and_in_its_order() {
        let mut order = Order::default();
        let in_order =
            ["z", "b", "b/a", "b/a/x", "b/a-", "b/b", "b.", "a", "c/deep/without/its/folders"];
        for name in in_order {
            assert_eq!(order.admit(&path(name)), Ok(()), "{name}");
        }
        for name in in_order.into_iter().chain(["z/late", "b/a/y", "c/deep/without", "c"]) {
            assert_eq!(order.admit(&path(name)), Err(NotAdmitted::Repeated), "{name}");
        }
        assert_eq!(order.admit(&path("c/deeper")), Ok(()), "a refused name changes nothing");
    }

    #[test]
    fn names_outside_of_folders_are_bounded() {
        let mut order = Order::default();
        for nth in 0..MOST_ROOTS {
            assert_eq!(order.admit(&path(&nth.to_string())), Ok(()));
        }
        assert_eq!(order.admit(&path("more")), Err(NotAdmitted::TooManyRoots));
    }

    #[test]
    fn a_folder_is_complete_when_what_was_announced_in_it_is_dealt_with() {
        let mut folders = Folders::default();
        let entries = ["a", "a/b", "a/b/c", "a/d", "e"];
        for (index, name) in (0..).zip(entries) {
            folders.announce(index, &path(name));
            if ["a", "a/b"].contains(&name) {
                let (mode, modified) = (0, FileTime::default());
                folders.enter(Unfinished { path: path(name), mode, modified, made: Made::Anew });
            }
        }
        let mut complete = |before| folders.complete(before).map(|folder| folder.path);
        assert_eq!(complete(2), None);
        assert_eq!(complete(3), Some(path("a/b")));
        assert_eq!(complete(3), None);
        assert_eq!(complete(4), Some(path("a")));
        assert_eq!(complete(9), None);
    }
}
