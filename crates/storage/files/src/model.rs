//! The oracle of the fuzz target `files_requests`: what bytes of a stranger must not do.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::wire::{Reader, Wire};
use crate::{Entries, Entry, EntryName, Envelope, Layout, MOST_RELEASES, Name, Reply, Request};

/// Reads these bytes as everything that a stranger may send, and tells what is wrong with what was
/// understood: something out of bounds, or that would not be understood the same again.
#[must_use]
pub fn withstand(bytes: &[u8]) -> Vec<String> {
    let mut failures = Vec::new();
    if let Ok(envelope) = Envelope::decode(bytes) {
        let again = envelope.encode();
        if again != bytes {
            failures.push(format!("{envelope:?} has two encodings"));
        }
        if again.len() > Layout::MESSAGE || envelope.releases.len() > MOST_RELEASES {
            failures.push(format!("{envelope:?} is longer than a message"));
        }
        check_names(&envelope.request, &mut failures);
    }
    if let Ok(reply) = Reply::decode(bytes)
        && (reply.encode() != bytes || bytes.len() > Layout::MESSAGE)
    {
        failures.push(format!("{reply:?} has two encodings, or is longer than a message"));
    }
    check_entries(bytes, &mut failures);
    if let Some(flag) = bytes.first_chunk().map(|flag| u64::from_le_bytes(*flag))
        && let Ok(Some(len)) = Layout::read_flag(flag, (flag >> 32) as u32)
        && len > Layout::MESSAGE
    {
        failures.push(format!("a flag announces {len} bytes"));
    }
    failures
}

/// Each entry takes bytes, so that there is an end.
fn check_entries(bytes: &[u8], failures: &mut Vec<String>) {
    let mut again = Vec::new();
    for entry in Entries::new(bytes).map_while(Result::ok) {
        let before = again.len();
        if !entry.append(&mut again, usize::MAX) || again.len() - before > Entry::MOST {
            failures.push(format!("{entry:?} is longer than an entry"));
        }
        if let EntryName::Named(name) = &entry.name {
            check_name(name, failures);
        }
    }
    if bytes.get(..again.len()) != Some(&*again) {
        failures.push(String::from("entries have two encodings"));
    }
}

fn check_names(request: &Request, failures: &mut Vec<String>) {
    match request {
        Request::Lookup { name, .. }
        | Request::MakeNode { name, .. }
        | Request::MakeDirectory { name, .. }
        | Request::MakeSymlink { name, .. }
        | Request::Link { name, .. }
        | Request::Unlink { name, .. }
        | Request::RemoveDirectory { name, .. }
        | Request::Create { name, .. } => check_name(name, failures),
        Request::Rename { name, new_name, .. } => {
            check_name(name, failures);
            check_name(new_name, failures);
        }
        _ => {}
    }
}

/// A name that leads out of its directory.
fn check_name(name: &Name, failures: &mut Vec<String>) {
    let bytes = name.bytes();
    let leads_away = bytes.is_empty() || bytes == b"." || bytes == b"..";
    if leads_away || bytes.len() > 255 || bytes.iter().any(|byte| [0, b'/'].contains(byte)) {
        failures.push(format!("{name:?} is no entry's name"));
    }
    let mut encoded = Vec::new();
    name.put(&mut encoded);
    if Name::get(&mut Reader::new(&encoded)).as_ref() != Ok(name) {
        failures.push(format!("{name:?} is not read as it was written"));
    }
}
