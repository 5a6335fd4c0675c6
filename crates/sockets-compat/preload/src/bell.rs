//! How a carrier wakes this process, and this process a carrier: two event descriptors.
//!
//! Within one host anyone who puts bytes into a ring wakes the other by a byte of TCP. A carrier
//! has no part in the TCP connection. So a process whose connections go to other hosts makes
//! two event descriptors and hands both to the carrier, with the note that tells of the first
//! of its connections. One of them the carrier writes to, the other the process.
//!
//! **Sleeping.** Nobody reads an event descriptor here, so each write is an edge for each
//! `epoll` set that watches it, and no thread can take another's. A program's own set gets the
//! descriptor as one more entry; `poll` and `select` get a set of their own for one sleep
//! ([`Doorbell`]).
//!
//! **Losing it.** A program may close descriptors that it does not know. Then it looks by
//! itself, as before it had one ([`crate::between_hosts`]), and its carrier hears of it by notes.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use landfall_socket_rules::Transport;
use libc::epoll_event;

use crate::kernel::{self, Errno, Outcome, call};
use crate::{between_hosts, registry, sandbox};

/// What an `epoll` set says of the descriptor: no entry of the program's has that number.
pub(crate) const DATA: u64 = crate::interest::NO_ENTRY;

/// Both descriptors, the one for this process in the upper half; zero while there are none.
static PAIR: AtomicU64 = AtomicU64::new(0);
/// Which pair it is: one is made anew where the program has closed it.
static SERIAL: AtomicU32 = AtomicU32::new(0);
/// No other process has a pair of this number.
static IDENTITY: AtomicU64 = AtomicU64::new(0);
/// Carriers that have been given the descriptors: a bit for each way.
static KNOWN_TO: AtomicU32 = AtomicU32::new(0);

/// The two descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// The carrier writes to it.
    pub(crate) for_process: c_int,
    /// The process writes to it.
    pub(crate) for_carrier: c_int,
    pub(crate) serial: u32,
    pub(crate) identity: u64,
}

/// The pair that there is.
pub(crate) fn pair() -> Option<Pair> {
    let both = PAIR.load(Ordering::Acquire);
    (both != 0).then(|| Pair {
        for_process: (both >> 32) as c_int,
        for_carrier: both as u32 as c_int,
        serial: SERIAL.load(Ordering::Relaxed),
        identity: IDENTITY.load(Ordering::Relaxed),
    })
}

/// The same; it is made if there is none.
fn pair_or_new() -> Option<Pair> {
    let pair_there_is = pair();
    // Who has locked itself in may not make more.
    if pair_there_is.is_some() || sandbox::is_on() {
        return pair_there_is;
    }
    let (for_process, for_carrier) = (event_descriptor().ok()?, event_descriptor());
    let Ok(for_carrier) = for_carrier else {
        let _ = kernel::close(for_process);
        return None;
    };
    let both =
        u64::from(for_process.cast_unsigned()) << 32 | u64::from(for_carrier.cast_unsigned());
    IDENTITY.store(
        u64::from(kernel::process()) << 32 | kernel::milliseconds() & 0xFFFF_FFFF,
        Ordering::Relaxed,
    );
    KNOWN_TO.store(0, Ordering::Relaxed);
    SERIAL.fetch_add(1, Ordering::Relaxed);
    if PAIR.compare_exchange(0, both, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // Another thread was faster.
        let _ = kernel::close(for_process);
        let _ = kernel::close(for_carrier);
    }
    pair()
}

fn event_descriptor() -> Result<c_int, Errno> {
    let made = call!(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)? as c_int;
    Ok(kernel::out_of_the_way(made))
}

/// The program closes a descriptor, or makes another of it.
pub(crate) fn closed(fd: c_int) {
    let both = PAIR.load(Ordering::Relaxed);
    if both != 0 && [(both >> 32) as c_int, both as u32 as c_int].contains(&fd) {
        // The other of the two stays open, for anyone who sleeps on it now.
        PAIR.store(0, Ordering::Release);
    }
}

/// The same for all descriptors between two.
pub(crate) fn closed_between(first: c_int, last: c_int) {
    if let Some(pair) = pair() {
        for fd in [pair.for_process, pair.for_carrier] {
            if (first..=last).contains(&fd) {
                closed(fd);
            }
        }
    }
}

/// Tells the carrier of this host of a connection, and how to wake this process. Gives the
/// serial number of what it was given; zero if that is nothing.
pub(crate) fn announce(
    transport: Transport,
    note: &registry::Note,
) -> Result<u32, crate::folder::Fault> {
    let pair = pair_or_new();
    let identity = pair.map_or(0, |pair| pair.identity);
    let descriptors = pair.map(|pair| [pair.for_process, pair.for_carrier]);
    let bytes = note.to_bytes(identity);
    registry::send_to_carrier(transport, &bytes, descriptors.as_ref().map_or(&[], |two| &two[..]))?;
    let Some(pair) = pair else { return Ok(0) };
    KNOWN_TO.fetch_or(1 << between_hosts::number_of(transport), Ordering::Release);
    Ok(pair.serial)
}

/// Whether the carrier wakes this process for a connection that was announced with this serial
/// number, wherever it sleeps.
pub(crate) fn is_rung_for(serial: u32) -> bool {
    serial != 0
        && pair().is_some_and(|pair| pair.serial == serial)
        && !sandbox::forbids(libc::SYS_epoll_create1)
}

/// Wakes the carrier of this host.
pub(crate) fn wake_carrier(transport: Transport) {
    let is_known = KNOWN_TO.load(Ordering::Acquire) & 1 << between_hosts::number_of(transport) != 0;
    match pair() {
        Some(pair) if is_known => write(pair.for_carrier),
        _ => {
            let _ = registry::send_to_carrier(transport, &[], &[]);
        }
    }
}

/// Writes to an event descriptor.
pub(crate) fn write(fd: c_int) {
    let _ = kernel::write(fd, &1_u64.to_ne_bytes());
}

/// What an `epoll` set watches the descriptor for.
const EDGES: epoll_event =
    epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: DATA };

/// Lets an `epoll` set be woken by the carrier, too.
pub(crate) fn join(epoll: c_int, pair: &Pair) -> Outcome {
    wakes_by_edges(epoll, pair.for_process)
}

/// Lets an `epoll` set be woken by each write to a descriptor of the library's own.
pub(crate) fn wakes_by_edges(epoll: c_int, fd: c_int) -> Outcome {
    kernel::epoll_change(epoll, libc::EPOLL_CTL_ADD, fd, &EDGES)
}

/// What one `poll` sleeps on besides the program's own: readable once the carrier has rung
/// after it was made.
#[derive(Debug)]
pub(crate) struct Doorbell {
    epoll: c_int,
}

impl Doorbell {
    /// To be made before memory is looked at for the last time.
    pub(crate) fn new() -> Option<Self> {
        let pair = pair()?;
        let epoll = call!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC).ok()? as c_int;
        let doorbell = Self { epoll };
        join(epoll, &pair).ok()?;
        // Rings from before are told at once.
        let mut events = [EDGES];
        kernel::epoll_wait(epoll, &mut events, 0, std::ptr::null()).ok()?;
        Some(doorbell)
    }

    /// The entry of a list for `poll`.
    pub(crate) const fn entry(&self) -> libc::pollfd {
        libc::pollfd { fd: self.epoll, events: libc::POLLIN, revents: 0 }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        let _ = kernel::close(self.epoll);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_sleeper_hears_each_ring() {
        let pair = pair_or_new().unwrap();
        let doorbells = [Doorbell::new().unwrap(), Doorbell::new().unwrap()];
        let is_rung = |doorbell: &Doorbell| {
            kernel::poll(&mut [doorbell.entry()], Some(Duration::ZERO), std::ptr::null()).unwrap()
                == 1
        };
        assert!(!doorbells.iter().any(is_rung));
        for _ in 0..3 {
            write(pair.for_process);
            assert!(doorbells.iter().all(is_rung));
            let mut events = [EDGES; 2];
            let told = kernel::epoll_wait(doorbells[0].epoll, &mut events, 0, std::ptr::null());
            assert_eq!(told, Ok(1), "one hears of it once");
            assert!(!is_rung(&doorbells[0]));
            assert!(is_rung(&doorbells[1]), "one takes it from another");
            let _ = kernel::epoll_wait(doorbells[1].epoll, &mut events, 0, std::ptr::null());
        }
        assert!(!is_rung(&Doorbell::new().unwrap()), "of what was before nobody hears");
    }
}
