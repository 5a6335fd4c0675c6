//! What killed processes leave behind, and folders that nobody needs. Anyone who looks at all
//! connections removes it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Host;
use super::folder::Folder;
use super::tcp::TcpDiag;
use crate::Record;

const TO_THE_CARRIER: &[u8] = b"to-";
/// What the sockets are called at which carriers hear of connections.
const CARRIER: &[u8] = b"carrier-";

/// Removes sockets of carriers that have ended, the names of connections that the kernel does not
/// know, all of a folder whose boot or network is over, and the folder if it is empty. How much that
/// was.
pub(super) fn remove(
    folder: &Folder,
    is_in_use: bool,
    host: &Host,
    networks: &mut Networks,
    tcp: Option<&mut TcpDiag>,
) -> usize {
    let mut removed = 0;
    for entry in folder.entries() {
        if entry.starts_with(CARRIER) && folder.has_nobody_at(&entry) {
            removed += usize::from(folder.remove(&entry));
        }
    }
    let name = &folder.name;
    if name.is_of_another_boot() || (!is_in_use && networks.are_without(name.network(), host)) {
        let all = folder.entries();
        removed += all.iter().filter(|entry| folder.remove(entry)).count();
    } else if folder.is_of_network(host.networks)
        && let Some(tcp) = tcp
    {
        for entry in folder.entries() {
            let is_gone = |name| tcp.is_known(&name).is_ok_and(|is_known| !is_known);
            // A name is made after its connection, so one without is nobody's.
            if connection(&entry).is_some_and(is_gone) {
                removed += usize::from(folder.remove(&entry));
            }
        }
    }
    // Not while its process may be about to make something in it: that makes it again.
    removed + usize::from(folder.remove_itself())
}

/// The connection whose memory is called so.
fn connection(name: &[u8]) -> Option<[u8; Record::NAME]> {
    let digits = name.strip_prefix(TO_THE_CARRIER).unwrap_or(name);
    if digits.len() != 2 * Record::NAME {
        return None;
    }
    let mut bytes = [0; Record::NAME];
    for (byte, digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The network namespaces that threads of this host are in.
#[derive(Debug, Default)]
pub(super) struct Networks {
    known: Option<BTreeSet<u32>>,
    is_known: bool,
}

impl Networks {
    /// Whether nobody is in that namespace. Only root can tell, and only where it sees all processes:
    /// in the first namespace of them.
    fn are_without(&mut self, network: u32, host: &Host) -> bool {
        const FIRST_OF_PROCESSES: u64 = 0xEFFF_FFFC;
        if host.user != 0 || host.processes != FIRST_OF_PROCESSES {
            return false;
        }
        if !self.is_known {
            (self.known, self.is_known) = (in_use(), true);
        }
        self.known.as_ref().is_some_and(|known| !known.contains(&network))
    }
}

/// All of them, by the last 32 bits of their numbers; `None` where one cannot be seen.
fn in_use() -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for process in numbered(Path::new("/proc"))? {
        // A process that has ended meanwhile is in none.
        for thread in numbered(&process.join("task")).unwrap_or_default() {
            match rustix::fs::stat(thread.join("ns/net")) {
                Ok(status) => {
                    found.insert(status.st_ino as u32);
                }
                Err(Errno::NOENT | Errno::SRCH) => {}
                Err(_) => return None,
            }
        }
    }
    Some(found)
}

/// What has a number for a name.
fn numbered(folder: &Path) -> Option<Vec<PathBuf>> {
    let is_number = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let entries = fs::read_dir(folder).ok()?.flatten();
    Some(entries.filter(|entry| is_number(&entry.file_name())).map(|entry| entry.path()).collect())
}
