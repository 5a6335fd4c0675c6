//! What this process says of its connections, for `landfall ss` and `landfall top`: a file in the
//! folder of its user, one record for each end of a connection.
//!
//! A record is written when a connection begins, when it is decided how its bytes go, and when it
//! closes. Calls that send and receive write nothing: how many bytes went stands in the memory of
//! the connection, and the header says where. The layout is a crate of its own, which the tool has,
//! too (`landfall-socket-status`).
//!
//! The file is made with the first connection, and takes memory page by page. Where it cannot be
//! made, or has no room, connections go as they do, and nobody sees them.
//!
//! What lives below: connections that this library leaves to TCP at once ([`plain`]).

mod places;
pub(crate) mod plain;

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use landfall_socket_status::{
    Explanation, FILE_LEN, Header, ProcessName, RECORD_LEN, RECORDS, Reason, Record, Role,
    Transport, WORDS,
};
pub(crate) use plain::left_to_tcp;

use crate::folder::{self, Folder};
use crate::kernel::{self, Errno};
use crate::lock::Locked;
use crate::log::Verdict;
use crate::registry::Name;
use crate::{process, segment, socket_diag};

const PAGE: usize = 4096;
const _: () = assert!(PAGE.is_multiple_of(RECORD_LEN));

/// Where the file is mapped; null while there is none. Records are of their connections alone, so
/// they are written without the lock.
static BASE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// As whom this process made its file: not asked for with each connection.
static USER: AtomicU32 = AtomicU32::new(0);
static TABLE: Locked<Table> = Locked::new(Table::new());

/// Which records are in use.
#[derive(Debug)]
struct Table {
    /// Records from here on were never used.
    used: u32,
    free: Vec<u32>,
    /// Pages that have memory.
    pages: usize,
    name: ProcessName,
    /// It could not be made, and is not tried again in this process.
    has_failed: bool,
}

impl Table {
    const fn new() -> Self {
        let name = ProcessName { process: 0, start: 0, namespace: 0 };
        Self { used: 0, free: Vec::new(), pages: 0, name, has_failed: false }
    }

    /// Makes the file, where there is none yet.
    fn make(&mut self) -> Result<(), Errno> {
        let name = own_name();
        let made = Folder::make_in(|folder| folder.create(folder::name(&name).as_c_str()));
        let made = made.map_err(|_| Errno(libc::ENOENT))?;
        let mapped = kernel::set_len(made, FILE_LEN as u64)
            .and_then(|_| kernel::map(made, 0, FILE_LEN))
            .and_then(|base| kernel::populate(base, PAGE).map(|()| base));
        let _ = kernel::close(made);
        let base = mapped.inspect_err(|_| forget(&name))?;
        (self.name, self.pages, self.used) = (name, 1, 0);
        USER.store(kernel::user(), Ordering::Relaxed);
        self.free.clear();
        let base = base.cast::<AtomicU64>();
        let header = Header {
            used: 0,
            mapped_at: base.addr() as u64,
            unseen: 0,
            version: version(),
            counters: places::counter_places(),
            program: crate::rules::program().as_bytes().to_vec(),
        };
        for (place, word) in words_at(base, 0).iter().zip(header.to_words()).rev() {
            place.store(word, Ordering::Release);
        }
        BASE.store(base, Ordering::Release);
        Ok(())
    }

    /// The number of a record that is nobody's, from one on.
    fn take(&mut self) -> Option<u32> {
        let is_missing = BASE.load(Ordering::Relaxed).is_null();
        if is_missing && (self.has_failed || self.make().is_err()) {
            self.has_failed = true;
            return None;
        }
        let number = self.free.pop().or_else(|| self.grow());
        if number.is_none() {
            header_word(Header::UNSEEN_AT)?.fetch_add(1, Ordering::Relaxed);
        }
        number
    }

    /// One more record, if there is memory for it.
    fn grow(&mut self) -> Option<u32> {
        let number = self.used + 1;
        if number as usize > RECORDS {
            return None;
        }
        let page = number as usize * RECORD_LEN / PAGE;
        if page >= self.pages {
            let base = BASE.load(Ordering::Relaxed).cast::<u8>();
            // SAFETY: within the file.
            kernel::populate(unsafe { base.add(page * PAGE) }, PAGE).ok()?;
            self.pages = page + 1;
        }
        self.used = number;
        header_word(Header::USED_AT)?.store(number.into(), Ordering::Release);
        Some(number)
    }
}

/// The words of the header, and of record `number`.
fn words_at<'a>(base: *mut AtomicU64, number: u32) -> &'a [AtomicU64] {
    // SAFETY: the file is mapped for as long as this process has this base, and no number is
    // larger than there are records.
    unsafe { std::slice::from_raw_parts(base.add(number as usize * WORDS), WORDS) }
}

fn header_word<'a>(at: usize) -> Option<&'a AtomicU64> {
    let base = BASE.load(Ordering::Acquire);
    (!base.is_null()).then(|| &words_at(base, 0)[at / 8])
}

/// The words of a record, if there is one of this number.
fn record_words<'a>(number: u32) -> Option<&'a [AtomicU64]> {
    let base = BASE.load(Ordering::Acquire);
    (number != 0 && !base.is_null()).then(|| words_at(base, number))
}

/// Changes a record, so that no reader takes half of it for a whole.
fn change(words: &[AtomicU64], change: impl FnOnce(&[AtomicU64])) {
    let before = words[0].load(Ordering::Relaxed) & !1;
    words[0].store(before | 1, Ordering::SeqCst);
    change(words);
    words[0].store(before.wrapping_add(2), Ordering::SeqCst);
}

const fn role_of(role: segment::Role) -> Role {
    match role {
        segment::Role::Connector => Role::Connector,
        segment::Role::Acceptor => Role::Acceptor,
    }
}

/// One end of a connection begins: the number of its record; zero if it has none.
pub(crate) fn begins(
    role: segment::Role,
    name: &Name,
    serial: u64,
    transport: Transport,
    explanation: Explanation,
) -> u32 {
    let Some(number) = TABLE.with(Table::take) else { return 0 };
    let record = Record {
        role: role_of(role),
        transport,
        explanation,
        is_for_carrier: name.is_for_the_carrier(),
        user: USER.load(Ordering::Relaxed),
        serial,
        began_ms: kernel::milliseconds(),
        name: name.to_bytes(),
    };
    if let Some(words) = record_words(number) {
        change(words, |words| {
            for (place, word) in words.iter().zip(record.to_words()).skip(1) {
                place.store(word, Ordering::Relaxed);
            }
        });
    }
    number
}

/// The same for one that both ends still look for.
pub(crate) fn looks_for_the_other(role: segment::Role, name: &Name, serial: u64) -> u32 {
    let undecided = Explanation { reason: Reason::Undecided, detail: 0 };
    begins(role, name, serial, Transport::Tcp, undecided)
}

/// It is decided how its bytes go.
pub(crate) fn decided(number: u32, verdict: Verdict) {
    // Of some there is no record: the file could not be made, or is full.
    let Some(words) = record_words(number) else { return };
    let Some(mut record) =
        Record::parse(&std::array::from_fn(|at| words[at].load(Ordering::Relaxed)))
    else {
        // Another process of this user has written there.
        return;
    };
    (record.transport, record.explanation) = (verdict.transport(), verdict.explanation());
    // In whose folder its memory lies.
    if record.transport != Transport::Tcp {
        record.user = kernel::user();
    }
    change(words, |words| {
        for (place, word) in words.iter().zip(record.to_words()).skip(1).take(2) {
            place.store(word, Ordering::Relaxed);
        }
    });
}

/// It is closed.
pub(crate) fn ends(number: u32) {
    let Some(words) = record_words(number) else { return };
    change(words, |words| words[Record::STATE].store(0, Ordering::Relaxed));
    TABLE.with(|table| table.free.push(number));
}

/// In the child: its connections are those that its parent had, in a file of its own.
pub(crate) fn after_fork() {
    let base = BASE.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if base.is_null() {
        return;
    }
    TABLE.with(|table| {
        let (used, free) = (table.used, std::mem::take(&mut table.free));
        if free.len() < used as usize {
            table.has_failed = table.make().is_err() || !table.takes_over(base, used, free);
        } else {
            // Nothing is open: the file is made when there is a connection.
            (table.used, table.pages) = (0, 0);
        }
    });
    // SAFETY: the child has one thread, and that does not look at it any more.
    unsafe { kernel::unmap(base.cast(), FILE_LEN) };
}

impl Table {
    /// Copies what another process has written, under the same numbers.
    fn takes_over(&mut self, from: *mut AtomicU64, used: u32, free: Vec<u32>) -> bool {
        for number in 1..=used {
            if self.grow() != Some(number) {
                BASE.store(std::ptr::null_mut(), Ordering::Release);
                return false;
            }
            let Some(words) = record_words(number) else { return false };
            // Another thread of the parent may have been in the middle of it.
            change(words, |words| {
                for (to, from) in words.iter().zip(words_at(from, number)).skip(1) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
        }
        self.free = free;
        true
    }
}

/// The program ends: its file goes, and with the last file the folder.
pub(crate) fn end() {
    if BASE.load(Ordering::Acquire).is_null() {
        return;
    }
    let name = TABLE.with(|table| table.name);
    if name.process == process::owner() {
        forget(&name);
    }
}

fn forget(name: &ProcessName) {
    if let Ok(folder) = Folder::open() {
        folder.remove(folder::name(name).as_c_str());
        drop(folder);
        folder::remove_if_empty();
    }
}

/// Before a fork, and after it.
pub(crate) fn stands_still() {
    TABLE.stands_still();
    plain::stands_still();
}

pub(crate) fn goes_on() {
    plain::goes_on();
    TABLE.goes_on();
}

/// What this process's file is called.
fn own_name() -> ProcessName {
    let process = process::owner();
    ProcessName {
        process,
        start: start_of(c"/proc/self/stat").unwrap_or(0),
        namespace: socket_diag::processes(),
    }
}

/// When a process began, as `/proc` says it.
fn start_of(path: &CStr) -> Option<u64> {
    let mut line = [0; 512];
    let len = kernel::read_file(path, &mut line).ok()?;
    landfall_socket_status::start_in_stat(&line[..len])
}

/// Whether the process of a file is known to have ended, or to have become another program.
pub(crate) fn is_left_over(name: &ProcessName) -> bool {
    if name.namespace == 0 || name.namespace != socket_diag::processes() {
        return false;
    }
    if name.process == process::owner() {
        // Until there is a first connection it is from before `exec`, or of an earlier process.
        return BASE.load(Ordering::Acquire).is_null();
    }
    if !kernel::is_alive(name.process) {
        return true;
    }
    let path = folder::stat_of(name.process);
    name.start != 0 && start_of(path.as_c_str()).is_some_and(|start| start != name.start)
}

fn version() -> [u16; 3] {
    let mut parts = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// How many records are in use; for tests.
#[cfg(test)]
fn in_use() -> usize {
    TABLE.with(|table| table.used as usize - table.free.len())
}
