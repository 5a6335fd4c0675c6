//! Bytes of connections that go through memory: each has its counters there, and moves them
//! anyway.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Counted;
use super::folder::{Folder, Owner};
use crate::{CounterPlaces, Record, Role};

/// What the name of memory begins with that is for the carrier.
const TO_THE_CARRIER: &str = "to-";

/// Reads what an end has sent and received. The memory lies in the folder of the user that the
/// process was when the connection began.
pub(super) fn read(
    shared_memory: &Path,
    folder: &Folder,
    record: &Record,
    places: &CounterPlaces,
) -> Option<Counted> {
    if folder.name.owner == Owner::User(record.user) {
        return read_in(folder, record, places);
    }
    // Programs of root's may have become another's. Anybody else's file would send root to look at
    // places of its choice in memory that is not its own.
    if folder.name.owner != Owner::User(0) {
        return None;
    }
    let of_user = folder.name.of_user(record.user);
    let other = Folder::open(&shared_memory.join(of_user.to_string()), &of_user).ok()?;
    read_in(&other, record, places)
}

/// The same of memory that lies in this folder: its owner's, as far as they trust each other.
pub(super) fn read_in(folder: &Folder, record: &Record, places: &CounterPlaces) -> Option<Counted> {
    let file = folder.open_file(file_name(record).as_bytes()).ok()?;
    counted(&file, record.role, places)
}

fn file_name(record: &Record) -> String {
    let digits: String = record.name.iter().map(|byte| format!("{byte:02x}")).collect();
    if record.is_for_carrier { format!("{TO_THE_CARRIER}{digits}") } else { digits }
}

fn counted(file: &File, role: Role, places: &CounterPlaces) -> Option<Counted> {
    let word = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    if word(places.magic_at.into())? != places.magic {
        return None;
    }
    let (out, back) = match role {
        Role::Connector => (0, u64::from(places.stride)),
        Role::Acceptor => (u64::from(places.stride), 0),
    };
    let sum = |first: u32, second: u32, from: u64| {
        Some(word(u64::from(first) + from)?.wrapping_add(word(u64::from(second) + from)?))
    };
    Some(Counted {
        sent: sum(places.sent_by_tcp, places.put, out)?,
        received: sum(places.taken_by_tcp, places.taken, back)?,
    })
}
