//! Where a file has contents and where it has holes, as its file system tells; where that
//! cannot tell, all of it is contents.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::Presence;
use super::contents::ContentHasher;
use super::wire::MOST_PIECE;

/// Shorter holes are read as the zeros that they stand for: telling of them costs more.
const LEAST_HOLE: u64 = 64 << 10;
/// How far a file is looked through for its next hole.
const MOST_LOOKED: u64 = 64 << 20;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) is_hole: bool,
}

/// The parts of a file, one behind the other.
pub(crate) struct Extents<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    has_holes: bool,
}

impl<'a> Extents<'a> {
    pub(crate) const fn new(file: &'a File, from: u64, end: u64) -> Self {
        Self { file, at: from, end, has_holes: true }
    }

    /// Where contents begin, at or behind `at`; nothing where there is no more of them.
    fn contents_from(&mut self, at: u64) -> io::Result<Option<u64>> {
        match seek(self.file, SeekFrom::Data(at)) {
            Ok(data) => Ok((data < self.end).then_some(data)),
            // A hole up to the end of the file: if that is where it was.
            Err(Errno::NXIO) if self.file.metadata()?.len() >= self.end => Ok(None),
            Err(Errno::NXIO) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_cannot_tell) => {
                self.has_holes = false;
                Ok(Some(at))
            }
        }
    }

    /// Where the contents at `at` end, before the next hole that is long enough.
    fn contents_end(&mut self, at: u64) -> io::Result<u64> {
        let limit = self.end.min(at.saturating_add(MOST_LOOKED));
        let mut end = at;
        while end < limit {
            let hole = match seek(self.file, SeekFrom::Hole(end)) {
                Ok(hole) if hole > end => hole.min(self.end),
                _ => return Ok(self.end),
            };
            let data = self.contents_from(hole)?.unwrap_or(self.end);
            if data - hole >= LEAST_HOLE {
                return Ok(hole);
            }
            end = data;
        }
        Ok(end)
    }

    fn look(&mut self) -> io::Result<Extent> {
        let at = self.at;
        let data = if self.has_holes { self.contents_from(at)?.unwrap_or(self.end) } else { at };
        let hole = data - at;
        if hole >= LEAST_HOLE {
            return Ok(Extent { at, len: hole, is_hole: true });
        }
        let end = if self.has_holes { self.contents_end(data)? } else { self.end };
        Ok(Extent { at, len: end - at, is_hole: false })
    }
}

impl Iterator for Extents<'_> {
    type Item = io::Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let extent = self.look();
        self.at = extent.as_ref().map_or(self.end, |extent| self.at + extent.len);
        Some(extent)
    }
}

/// Hashes the first bytes of a file; an error if the other side goes away meanwhile.
pub(crate) fn hash_prefix(
    file: &File,
    len: u64,
    hasher: &mut ContentHasher,
    presence: &Presence,
) -> io::Result<()> {
    let mut buffer = vec![0; MOST_PIECE.min(usize::try_from(len).unwrap_or(MOST_PIECE))];
    for extent in Extents::new(file, 0, len) {
        let Extent { at, len, is_hole } = extent?;
        if is_hole {
            presence.check()?;
            hasher.zeros(len);
            continue;
        }
        let end = at + len;
        let mut at = at;
        while at < end {
            presence.check()?;
            let piece = (end - at).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..piece], at)?;
            hasher.update(&buffer[..piece]);
            at += piece as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> (std::path::PathBuf, File) {
        let path =
            std::env::temp_dir().join(format!("landfall-extents-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        (path, file.unwrap())
    }

    /// Whatever the file system tells: the parts cover the file, and holes read as zeros.
    #[test]
    fn parts_cover_the_file_and_holes_are_zeros() {
        let (path, file) = scratch("cover");
        let len = 9_000_001;
        file.set_len(len).unwrap();
        for (at, bytes) in [(0, 10), (100_000, 5), (4_000_000, 1_000_000), (8_999_999, 2)] {
            file.write_all_at(&vec![7; bytes], at).unwrap();
        }
        for from in [0, 1, 99_999, 3_999_999, 4_500_000, len - 1, len] {
            let mut at = from;
            for extent in Extents::new(&file, from, len) {
                let extent = extent.unwrap();
                assert!(extent.at == at && extent.len > 0, "{extent:?} at {at}");
                let mut bytes = vec![1; extent.len as usize];
                file.read_exact_at(&mut bytes, at).unwrap();
                assert!(!extent.is_hole || bytes.iter().all(|byte| *byte == 0), "{extent:?}");
                at += extent.len;
            }
            assert_eq!(at, len);
        }
        let mut hasher = ContentHasher::new();
        hash_prefix(&file, len, &mut hasher, &Presence::of_nobody()).unwrap();
        assert_eq!(hasher.finalize(), ContentHasher::hash(&std::fs::read(&path).unwrap()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_became_shorter_has_no_hole_at_its_end() {
        let (path, file) = scratch("shorter");
        file.set_len(1 << 20).unwrap();
        let error = Extents::new(&file, 0, 2 << 20).find_map(Result::err);
        let mut hasher = ContentHasher::new();
        let hashed = hash_prefix(&file, 2 << 20, &mut hasher, &Presence::of_nobody());
        assert_eq!(hashed.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.is_none_or(|error| error.kind() == io::ErrorKind::UnexpectedEof));
        std::fs::remove_file(path).unwrap();
    }
}
