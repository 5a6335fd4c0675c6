//! What this program asks for by an `io_uring`, where it has one that libc's `syscall` was not asked
//! for: liburing calls the kernel by an instruction of its own.
//!
//! A program that waits for a socket by a ring would never hear of bytes in memory. One that has a
//! ring for files, as databases do, is like any other. So before a connection becomes memory, what
//! the rings of this process were last asked for is looked at: their entries lie in memory that
//! `/proc/self/maps` names. An entry that is about sockets, or about readiness, is enough.
//!
//! Not seen: a ring in memory of the program's own (`IORING_SETUP_NO_MMAP`), and one that is first
//! used for sockets when a connection is memory already. What a ring sends and receives before that
//! TCP has counted, and such a connection stays TCP anyway.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::{self, call};
use crate::{rules, sandbox};

/// Where the entries of a ring are mapped from (`IORING_OFF_SQES`), and what of.
const ENTRIES_AT: &[u8] = b"10000000";
const FILE: &[u8] = b"anon_inode:[io_uring]";
/// Bytes of an entry. Some rings have longer ones, whose second halves are taken for entries, too:
/// then a program may be left to TCP that need not be.
const ENTRY: usize = 64;
/// A pipe takes as much at once.
const PIECE: usize = 4096;
/// A ring has no more entries, by the kernel's own rule.
const MOST: usize = 32_768 * 2 * ENTRY;
/// A program without a ring is looked at no more often than that.
const AGAIN_MS: u64 = 100;

/// Until when it is taken that there is no ring.
static NONE_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Whether an entry with this opcode is about sockets, or about who is ready.
const fn is_of_sockets(opcode: u8) -> bool {
    const POLL_ADD: u8 = 6;
    const POLL_REMOVE: u8 = 7;
    const SENDMSG: u8 = 9;
    const RECVMSG: u8 = 10;
    const ACCEPT: u8 = 13;
    const CONNECT: u8 = 16;
    const SEND: u8 = 26;
    const RECV: u8 = 27;
    const EPOLL_CTL: u8 = 29;
    const SHUTDOWN: u8 = 34;
    const SOCKET: u8 = 45;
    const SEND_ZC: u8 = 47;
    const SENDMSG_ZC: u8 = 48;
    const RECV_ZC: u8 = 58;
    const EPOLL_WAIT: u8 = 59;
    matches!(
        opcode,
        POLL_ADD
            | POLL_REMOVE
            | SENDMSG
            | RECVMSG
            | ACCEPT
            | CONNECT
            | SEND
            | RECV
            | EPOLL_CTL
            | SHUTDOWN
            | SOCKET
            | SEND_ZC
            | SENDMSG_ZC
            | RECV_ZC
            | EPOLL_WAIT
    )
}

/// Looks whether this program uses a ring for sockets; [`rules::is_past_us`] knows it from then on.
pub(crate) fn looks() {
    if sandbox::is_on() || kernel::milliseconds() < NONE_UNTIL.load(Ordering::Relaxed) {
        return;
    }
    let mut found = 0;
    let uses_it = any_ring(|entries| {
        found += 1;
        any_entry(entries, is_of_sockets)
    });
    if uses_it {
        rules::has_io_uring();
    }
    let until = if found == 0 { kernel::milliseconds() + AGAIN_MS } else { 0 };
    NONE_UNTIL.store(until, Ordering::Relaxed);
}

/// Whether this holds of the entries of any ring that is mapped here.
fn any_ring(mut holds: impl FnMut(Range<usize>) -> bool) -> bool {
    let Ok(maps) = kernel::open(c"/proc/self/maps", libc::O_RDONLY, 0) else { return false };
    let mut buffer = [0_u8; 2 * PIECE];
    let (mut filled, mut is_found) = (0, false);
    while !is_found && let Ok(read @ 1..) = kernel::read_at(maps, &mut buffer[filled..], None) {
        filled += read;
        let mut rest = 0;
        while let Some(len) = buffer[rest..filled].iter().position(|&byte| byte == b'\n') {
            is_found |= entries_in(&buffer[rest..rest + len]).is_some_and(&mut holds);
            rest += len + 1;
        }
        // A line that is longer than all of this is that of a file.
        let is_too_long = rest == 0 && filled == buffer.len();
        buffer.copy_within(rest..filled, 0);
        filled = if is_too_long { 0 } else { filled - rest };
    }
    let _ = kernel::close(maps);
    is_found
}

/// Where the entries of a ring are, if a line of `/proc/self/maps` is that of such.
fn entries_in(line: &[u8]) -> Option<Range<usize>> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let (range, offset) = (words.next()?, words.nth(1)?);
    if offset != ENTRIES_AT || words.nth(2)? != FILE {
        return None;
    }
    let (from, to) = std::str::from_utf8(range).ok()?.split_once('-')?;
    let [from, to] = [from, to].map(|word| usize::from_str_radix(word, 16));
    let (from, to) = (from.ok()?, to.ok()?);
    (from < to && to - from <= MOST).then_some(from..to)
}

/// Whether this holds of the opcode of any entry. They are read by way of a pipe, since the program
/// may unmap them meanwhile: that would end it if they were read here.
fn any_entry(entries: Range<usize>, holds: impl Fn(u8) -> bool) -> bool {
    let mut ends: [c_int; 2] = [0; 2];
    if call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC).is_err() {
        return false;
    }
    let mut piece = [0_u8; PIECE];
    let is_found = entries.clone().step_by(PIECE).any(|at| {
        let len = PIECE.min(entries.end - at);
        call!(libc::SYS_write, ends[1], at, len).is_ok()
            && kernel::read_at(ends[0], &mut piece, None)
                .is_ok_and(|read| piece[..read].chunks_exact(ENTRY).any(|entry| holds(entry[0])))
    });
    for end in ends {
        let _ = kernel::close(end);
    }
    is_found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_rings_are_told_from_other_memory() {
        let line = b"7f1c4e000000-7f1c4e001000 rw-s 10000000 00:0f 2063   anon_inode:[io_uring]";
        assert_eq!(entries_in(line), Some(0x7f1c_4e00_0000..0x7f1c_4e00_1000));
        for other in [
            &b"7f1c4e000000-7f1c4e001000 rw-s 00000000 00:0f 2063   anon_inode:[io_uring]"[..],
            b"7f1c4e000000-7f1c4e001000 rw-s 10000000 00:0f 2063   /var/anon_inode:[io_uring]",
            b"7f1c4e001000-7f1c4e000000 rw-s 10000000 00:0f 2063   anon_inode:[io_uring]",
            b"0-7f1c4e000000 rw-s 10000000 00:0f 2063   anon_inode:[io_uring]",
            b"x-y rw-s 10000000 00:0f 2063   anon_inode:[io_uring]",
            b"7f1c4e000000-7f1c4e001000",
            b"",
        ] {
            assert_eq!(entries_in(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn entries_are_read_wherever_they_lie_and_where_there_are_none_any_more() {
        let mut entries = vec![0_u8; 3 * PIECE];
        let range = entries.as_ptr_range();
        let range = range.start as usize..range.end as usize;
        assert!(!any_entry(range.clone(), is_of_sockets));
        // Within an entry that is no opcode.
        entries[2 * PIECE + ENTRY + 1] = 6;
        assert!(!any_entry(range.clone(), is_of_sockets));
        entries[2 * PIECE + ENTRY] = 6;
        assert!(any_entry(range, is_of_sockets));
        assert!(!any_entry(PIECE..3 * PIECE, is_of_sockets), "nothing is mapped there");
    }
}
