//! The file of a process: whether that still runs, and what it says.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::folder::Folder;
use super::{Connection, Host, Process};
use crate::{Header, ProcessName, RECORD_LEN, Record, WORDS, start_in_stat};

/// How often a record is read again that is being written.
const TRIES: u32 = 3;
/// Records that are read at once.
const AT_ONCE: usize = 512;

/// What a file is.
#[derive(Debug)]
pub(super) enum Finding {
    /// Of a process that is no more, or has become another program.
    Ended,
    /// It is being made.
    Begins,
    Runs(Process),
}

/// Reads it; `budget` is how many records of this folder are still read.
pub(super) fn read(
    folder: &Folder,
    user: u32,
    name: &ProcessName,
    host: &Host,
    budget: &mut usize,
) -> io::Result<Finding> {
    let is_in_this_namespace = name.namespace == host.processes;
    if is_in_this_namespace && has_ended(name) {
        return Ok(Finding::Ended);
    }
    let file = match folder.open_file(&name.to_bytes()) {
        Ok(file) => file,
        // It has just ended.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Finding::Begins),
        Err(why) => return Err(why),
    };
    let len = file.metadata()?.len();
    let mut words = [0; WORDS];
    if len < RECORD_LEN as u64 || !read_words(&file, 0, &mut words)? || words[0] == 0 {
        return Ok(Finding::Begins);
    }
    let Some(header) = Header::parse(&words) else {
        return Err(io::Error::other("it is of another version of the library, or no such file"));
    };
    let used = header.used as usize;
    *budget = budget.checked_sub(used).ok_or_else(|| {
        io::Error::other("its user's files have more records than there can be connections")
    })?;
    if is_in_this_namespace && host.has_map_files && !is_mapped(name, header.mapped_at, len) {
        return Ok(Finding::Ended);
    }
    Ok(Finding::Runs(Process {
        user,
        name: *name,
        program: String::from_utf8_lossy(&header.program).into_owned(),
        version: header.version,
        is_in_this_namespace,
        counters: header.counters,
        unseen: header.unseen,
        connections: connections(&file, used, user)?,
    }))
}

/// Whether there is no such process any more, as `/proc` says it.
fn has_ended(name: &ProcessName) -> bool {
    match fs::read(format!("/proc/{}/stat", name.process)) {
        Err(why) => why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(3),
        Ok(line) => {
            let state = line.iter().rposition(|byte| *byte == b')').and_then(|at| line.get(at + 2));
            let is_another =
                name.start != 0 && start_in_stat(&line).is_some_and(|start| start != name.start);
            is_another || matches!(state, Some(b'Z' | b'X'))
        }
    }
}

/// Whether the process has its file mapped where it says: after `exec` it has not, though it has its
/// number and its start still. Where the kernel does not tell, it is believed.
fn is_mapped(name: &ProcessName, at: u64, len: u64) -> bool {
    const PAGE: u64 = 4096;
    let end = at.saturating_add(len.next_multiple_of(PAGE));
    let link = PathBuf::from(format!("/proc/{}/map_files/{at:x}-{end:x}", name.process));
    match fs::read_link(link) {
        Ok(path) => path.file_name().is_some_and(|found| {
            // The kernel adds that it was removed.
            found.as_encoded_bytes().starts_with(&name.to_bytes())
        }),
        Err(why) => why.kind() != io::ErrorKind::NotFound,
    }
}

/// Reads words from a place; whether they are all there.
fn read_words(file: &File, at: u64, words: &mut [u64]) -> io::Result<bool> {
    let mut bytes = vec![0; words.len() * 8];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => {}
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(why) => return Err(why),
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    Ok(true)
}

/// All records that make sense. One that is written while it is read is read again. A user's files
/// tell of that user; root's may tell of others, whom a program has become.
fn connections(file: &File, used: usize, user: u32) -> io::Result<Vec<Connection>> {
    let mut found = Vec::new();
    for first in (1..=used).step_by(AT_ONCE) {
        let count = AT_ONCE.min(used + 1 - first);
        let at = (first * RECORD_LEN) as u64;
        let mut words = vec![0; count * WORDS];
        if !read_words(file, at, &mut words)? {
            break;
        }
        for (nth, record) in words.chunks_exact(WORDS).enumerate() {
            let Ok(record) = record.try_into() else { continue };
            let at = at + (nth * RECORD_LEN) as u64;
            if let Some(mut record) = settled(file, at, record)? {
                record.user = if user == 0 { record.user } else { user };
                found.push(Connection { record, sent: None, received: None });
            }
        }
    }
    Ok(found)
}

/// A record whose number has not changed while it was read.
fn settled(file: &File, at: u64, mut words: [u64; WORDS]) -> io::Result<Option<Record>> {
    for _ in 0..TRIES {
        if words[Record::STATE] == 0 {
            return Ok(None);
        }
        let mut number = [0];
        read_words(file, at, &mut number)?;
        if words[0] & 1 == 0 && number[0] == words[0] {
            return Ok(Record::parse(&words));
        }
        read_words(file, at, &mut words)?;
    }
    Ok(None)
}
