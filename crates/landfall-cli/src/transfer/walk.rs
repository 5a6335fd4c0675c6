//! What the sender's paths name: files, folders and links, each folder before what is in it.
//!
//! A path of the command line is followed where it is a symbolic link, for the user named
//! it; links within folders are sent as links. Pipes, sockets and devices are passed over
//! and told of. At any time the names of one folder for each level are in memory.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::journal::{self, Journal};
use super::path::{RelPath, check_target, printable};
use super::wire::{FileTime, Kind};

/// The path that stands for standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// Something to send.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: RelPath,
    /// Where it is here; nothing for standard input.
    pub(crate) real: Option<PathBuf>,
    /// It was named by the user, and is followed where it is a link.
    pub(crate) is_named: bool,
    pub(crate) kind: Kind,
    pub(crate) mode: u16,
    pub(crate) modified: FileTime,
}

impl Found {
    /// How long a file is.
    pub(crate) const fn size(&self) -> u64 {
        if let Kind::File { size } = self.kind { size } else { 0 }
    }
}

/// Something that cannot be sent, and why.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// The paths of a command line, checked: each is there, and has a name of its own.
#[derive(Clone, Debug)]
pub(crate) struct Roots(Vec<Root>);

#[derive(Clone, Debug)]
struct Root {
    name: RelPath,
    /// Nothing for standard input.
    real: Option<PathBuf>,
}

impl Roots {
    /// `name` is what standard input is called at the other side.
    pub(crate) fn new(paths: &[PathBuf], name: &str) -> Result<Self> {
        let mut names = HashSet::new();
        let mut roots = Vec::new();
        for path in paths {
            let root = if path.as_os_str() == STANDARD_INPUT {
                let name =
                    RelPath::parse(name.as_bytes()).context("the name for standard input")?;
                Root { name, real: None }
            } else {
                fs::metadata(path).with_context(|| format!("cannot send {}", path.display()))?;
                Root { name: name_of(path)?, real: Some(path.clone()) }
            };
            if !names.insert(root.name.clone()) {
                bail!(
                    "two of the paths are called {} at the other side: send one of them in a \
                     folder, or later",
                    root.name
                );
            }
            roots.push(root);
        }
        Ok(Self(roots))
    }

    /// How many files there are and how many bytes they have; nothing is known of standard
    /// input.
    pub(crate) fn count(&self) -> (u64, u64) {
        let (mut files, mut bytes) = (0, 0);
        for found in self.walk().flatten() {
            match found.kind {
                Kind::File { size } => {
                    files += 1;
                    bytes = u64::saturating_add(bytes, size);
                }
                Kind::Stream => files += 1,
                Kind::Folder | Kind::Link { .. } => {}
            }
        }
        (files, bytes)
    }

    pub(crate) fn walk(&self) -> Walk {
        Walk { roots: self.0.clone().into_iter(), levels: Vec::new() }
    }
}

/// What a path is called at the other side: its last part, or that of what `.` means.
fn name_of(path: &Path) -> Result<RelPath> {
    let absolute;
    let name = match path.file_name() {
        Some(name) => name,
        None => {
            absolute = fs::canonicalize(path)?;
            absolute.file_name().with_context(|| {
                format!("{} has no name to be called at the other side", path.display())
            })?
        }
    };
    RelPath::parse(name.as_bytes()).with_context(|| format!("cannot send {}", path.display()))
}

/// Walks the paths that were named, depth first, with one open folder for each level.
#[derive(Debug)]
pub(crate) struct Walk {
    roots: std::vec::IntoIter<Root>,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    path: RelPath,
    real: PathBuf,
    /// Sorted backwards.
    names: Vec<OsString>,
}

impl Iterator for Walk {
    type Item = Result<Found, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                let root = self.roots.next()?;
                return Some(self.look_at_root(root));
            };
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let real = level.real.join(&name);
            match part_of_partial(&level.real, &name) {
                Some(Part::Contents) => {
                    return Some(Err(problem(&real, &"the unfinished file of a receiver")));
                }
                // Told with its contents.
                Some(Part::Journal) => continue,
                None => {}
            }
            return Some(match level.path.child(&name) {
                Ok(path) => self.look_at(path, real, false),
                Err(why) => Err(problem(&real, &why)),
            });
        }
    }
}

/// A part of what a receiver keeps of an unfinished file.
enum Part {
    Contents,
    Journal,
}

/// Only both parts together are such a file, with a journal that is one.
fn part_of_partial(folder: &Path, name: &OsStr) -> Option<Part> {
    let text = name.to_str()?.strip_prefix(".landfall-")?;
    let (stem, part) = match text.strip_suffix(".part") {
        Some(stem) => (stem, Part::Contents),
        None => (text.strip_suffix(".journal")?, Part::Journal),
    };
    let file = |end: &str| {
        let path = folder.join(format!(".landfall-{stem}.{end}"));
        let is_file = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        is_file.then_some(path)
    };
    file("part")?;
    let mut text = String::new();
    let journal = fs::File::open(file("journal")?).ok()?;
    journal.take(journal::MOST).read_to_string(&mut text).ok()?;
    Journal::parse(&text).map(|_| part)
}

fn problem(real: &Path, why: &impl ToString) -> Problem {
    Problem { what: printable(&real.to_string_lossy()), why: why.to_string() }
}

impl Walk {
    fn look_at_root(&mut self, root: Root) -> Result<Found, Problem> {
        match root.real {
            Some(real) => self.look_at(root.name, real, true),
            None => Ok(Found {
                path: root.name,
                real: None,
                is_named: true,
                kind: Kind::Stream,
                mode: 0o644,
                modified: FileTime::default(),
            }),
        }
    }

    fn look_at(&mut self, path: RelPath, real: PathBuf, is_named: bool) -> Result<Found, Problem> {
        let metadata = if is_named { fs::metadata(&real) } else { fs::symlink_metadata(&real) };
        let metadata = metadata.map_err(|error| problem(&real, &error))?;
        let kind = self.kind_of(&path, &real, &metadata).map_err(|why| problem(&real, &why))?;
        let (mode, modified) = ((metadata.mode() & 0o777) as u16, modified(&metadata));
        Ok(Found { path, real: Some(real), is_named, kind, mode, modified })
    }

    fn kind_of(
        &mut self,
        path: &RelPath,
        real: &Path,
        metadata: &Metadata,
    ) -> Result<Kind, String> {
        let kind = metadata.file_type();
        if kind.is_file() {
            return Ok(Kind::File { size: metadata.len() });
        }
        if kind.is_dir() {
            let names = names_in(real).map_err(|error| error.to_string())?;
            self.levels.push(Level { path: path.clone(), real: real.into(), names });
            return Ok(Kind::Folder);
        }
        if kind.is_symlink() {
            let target = fs::read_link(real).map_err(|error| error.to_string())?;
            let target = target.into_os_string().into_vec();
            check_target(path, &target).map_err(|why| why.to_string())?;
            return Ok(Kind::Link { target });
        }
        Err("it is a pipe, a socket or a device: only files, folders and links are sent".into())
    }
}

fn names_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// When a file was modified.
pub(crate) fn modified(metadata: &Metadata) -> FileTime {
    FileTime {
        seconds: metadata.mtime(),
        nanos: metadata.mtime_nsec().clamp(0, 999_999_999) as u32,
    }
}
