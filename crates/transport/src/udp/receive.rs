//! Receiving: one call, into guessed spans where the engine has a guess.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Engine, Instant, Landing, Peer, Placement, Spans, Unit};

use super::address::RawAddress;
use super::control::{Control, Received};
use super::driver::UdpDriver;
use super::would_block;
use crate::exchange::{Arrival, HEAD_ROOM, Peeked, Turn};

/// Decides whether looking first is worth a call of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peeking {
    allowed: bool,
    /// Receives in a row whose first unit was guessed wrong.
    misses: u32,
    /// Receives that will still look first.
    left: u32,
}

/// So many misses in a row are no accident.
const MISSES: u32 = 2;
/// Then look first for so many receives, before guesses get another chance.
const LOOKS: u32 = 64;

impl Peeking {
    pub(super) const fn new(allowed: bool) -> Self {
        Self { allowed, misses: 0, left: 0 }
    }

    fn wanted(&mut self) -> bool {
        let wanted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        wanted
    }

    fn learn(&mut self, missed: bool) {
        self.misses = if missed { self.misses + 1 } else { 0 };
        if self.allowed && self.misses >= MISSES {
            self.left = LOOKS;
            self.misses = 0;
        }
    }
}

/// What one `recvmsg` told.
struct Message {
    len: usize,
    from: Peer,
    truncated: bool,
    control: Received,
}

/// Receives one batch and hands it to the engine. Gives the number of units.
pub(super) fn receive<E: Engine>(
    driver: &mut UdpDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<u32> {
    let fd = driver.socket.as_raw_fd();
    let peeked = if driver.peeking.wanted() { peek(driver, engine, now)? } else { None };
    let promised = peeked.as_ref().and_then(|peeked| match peeked.result {
        Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) => Some(ticket),
        _ => None,
    });
    let iovecs = driver.inbox.post(engine, &mut driver.pins, peeked.as_ref());
    let Some(message) = receive_message(fd, iovecs.as_mut_slice(), 0)? else {
        if let Some(ticket) = promised {
            // The datagram that was looked at is gone: its checksum was wrong.
            engine.handle_placed(now, ticket, Landing::Failed);
        }
        driver.counters.empty_calls += 1;
        driver.pins.release();
        return Ok(0);
    };
    driver.counters.receive_calls += 1;
    driver.counters.malformed += u64::from(message.truncated);
    let arrival = Arrival {
        len: message.len,
        unit_len: message.control.unit_len.unwrap_or(message.len).max(1),
        from: message.from,
        ecn: message.control.ecn,
        coalesced: None,
        // The kernel looked at the UDP checksum; what an engine wants checked
        // is its own, made before the bytes came to a kernel.
        verified: false,
    };
    let wrong_before = driver.counters.guessed_wrong;
    let was_peeked = peeked.is_some();
    let units = driver.inbox.settle(
        &mut Turn { engine, now, pins: &mut driver.pins, counters: &mut driver.counters },
        &arrival,
        peeked,
    );
    driver.pins.release();
    if !was_peeked {
        driver.peeking.learn(driver.counters.guessed_wrong > wrong_before);
    }
    Ok(units)
}

/// Looks at the first head in the socket and asks for its place.
fn peek<E: Engine>(
    driver: &mut UdpDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<Option<Peeked>> {
    let mut head = [0u8; HEAD_ROOM];
    let mut iovec = [libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() }];
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    let fd = driver.socket.as_raw_fd();
    let Some(message) = receive_message(fd, &mut iovec, flags)? else { return Ok(None) };
    driver.counters.peeks += 1;
    let unit_len = message.control.unit_len.unwrap_or(message.len);
    let first_len = unit_len.min(message.len);
    let unit = Unit {
        path: driver.inbox.path(),
        from: message.from,
        head: &head[..first_len.min(HEAD_ROOM)],
        len: first_len as u32,
        segment: None,
        ecn: message.control.ecn,
    };
    let mut spans = Spans::new();
    match engine.place(now, &unit, &mut spans) {
        // A longer head than fits here: let the ordinary way deal with it.
        Ok(Placement::NeedHead(_)) => Ok(None),
        result => Ok(Some(Peeked { result, spans, unit_len })),
    }
}

/// One `recvmsg`. None if there is nothing, or only an error of the network
/// that concerned something sent earlier.
fn receive_message(
    fd: RawFd,
    iovecs: &mut [libc::iovec],
    flags: i32,
) -> io::Result<Option<Message>> {
    let mut address = RawAddress::unspecified();
    let mut control = Control::empty();
    // SAFETY: an all-zero msghdr is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut address).cast();
    header.msg_namelen = RawAddress::LEN;
    header.msg_iov = iovecs.as_mut_ptr();
    header.msg_iovlen = iovecs.len();
    header.msg_control = control.as_mut_ptr();
    header.msg_controllen = Control::LEN;
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the list names scratch memory of the caller and
    // lent memory that is pinned until after the call.
    let len = unsafe { libc::recvmsg(fd, &raw mut header, flags | libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(len) else {
        let error = io::Error::last_os_error();
        return if would_block(&error) || super::send::is_passing(&error) {
            Ok(None)
        } else {
            Err(error)
        };
    };
    Ok(Some(Message {
        len,
        from: address.to_socket().map_or(Peer::Unaddressed, Peer::Socket),
        truncated: header.msg_flags & libc::MSG_TRUNC != 0 && flags & libc::MSG_TRUNC == 0,
        control: control.received(header.msg_controllen),
    }))
}
