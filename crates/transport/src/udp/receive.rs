//! Receiving: into guessed spans where the engine has a guess, and looking
//! first where guesses keep missing. The call between is the driver's.

use std::io;
use std::os::fd::RawFd;

use landfall_placement::{Engine, Instant, Landing, PathId, Placement, Spans, Unit};

use super::socket::{Message, ReceiveHeader};
use crate::driver::Counters;
use crate::exchange::{Arrival, Doubt, HEAD_ROOM, Inbox, MAX_UNITS, Peeked, Turn};
use crate::inet::nothing_came;
use crate::memory::{Pins, Regions};

/// The receiving half of a UDP path, without its receiving call.
#[derive(Debug)]
pub(crate) struct Receiver {
    inbox: Inbox,
    /// The memory that is posted, pinned until it is settled.
    pins: Pins,
    /// Looking first is allowed; whether it is worth a call of its own.
    may_peek: bool,
    doubt: Doubt,
    /// The last receive found nothing.
    idle: bool,
}

impl Receiver {
    /// `batches`: several units may come with one call.
    pub(crate) fn new(path: PathId, regions: &Regions, batches: bool, peek: bool) -> Self {
        Self {
            inbox: Inbox::new(path, if batches { MAX_UNITS } else { 1 }, 0),
            pins: Pins::new(regions),
            may_peek: peek && batches,
            doubt: Doubt::default(),
            idle: false,
        }
    }

    /// Did the last receive find nothing?
    pub(super) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Looks at the first head in the socket, if that seems wise, and asks for
    /// its place.
    pub(crate) fn look<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        fd: RawFd,
    ) -> io::Result<Option<Peeked>> {
        if !self.doubt.is_due() {
            return Ok(None);
        }
        let mut head = [0u8; HEAD_ROOM];
        let mut iovec = [libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() }];
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
        // SAFETY: the piece is `head`.
        let came = unsafe { receive_message(fd, &mut iovec, flags)? };
        let Some(message) = came else { return Ok(None) };
        counters.peeks += 1;
        let unit_len = message.control.unit_len.unwrap_or(message.len);
        let first_len = unit_len.min(message.len);
        let unit = Unit {
            path: self.inbox.path(),
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

    /// The pieces for the next receive. [`settle`](Self::settle) follows, with
    /// whatever came.
    pub(crate) fn post<E: Engine>(
        &mut self,
        engine: &E,
        peeked: Option<&Peeked>,
    ) -> &mut [libc::iovec] {
        self.inbox.post(engine, &mut self.pins, peeked).as_mut_slice()
    }

    /// Hands what came to the engine. Gives the number of units.
    pub(crate) fn settle<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (message, peeked): (Option<Message>, Option<Peeked>),
    ) -> u32 {
        self.idle = message.is_none();
        let Some(message) = message else {
            if let Some(ticket) = peeked.as_ref().and_then(promised) {
                // The datagram that was looked at is gone: its checksum was wrong.
                engine.handle_placed(now, ticket, Landing::Failed);
            }
            counters.empty_calls += 1;
            self.pins.release();
            return 0;
        };
        counters.receive_calls += 1;
        counters.malformed += u64::from(message.truncated);
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
        let wrong_before = counters.guessed_wrong;
        let was_peeked = peeked.is_some();
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        let units = self.inbox.settle(&mut turn, &arrival, peeked);
        self.pins.release();
        if !was_peeked && self.may_peek {
            self.doubt.learn(counters.guessed_wrong > wrong_before);
        }
        units
    }
}

/// The ticket that must come back although nothing was received.
fn promised(peeked: &Peeked) -> Option<landfall_placement::Ticket> {
    match peeked.result {
        Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) => Some(ticket),
        _ => None,
    }
}

/// Is there anything to receive? An error of the network that concerned
/// something sent earlier is none.
pub(super) fn something_waits(fd: RawFd) -> io::Result<bool> {
    // SAFETY: room for no byte: nothing is written.
    let len =
        unsafe { libc::recv(fd, std::ptr::null_mut(), 0, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    match io::Error::last_os_error() {
        _ if len >= 0 => Ok(true),
        error if nothing_came(&error) => Ok(false),
        error => Err(error),
    }
}

/// One `recvmsg`. None if there is nothing, or only an error of the network
/// that concerned something sent earlier.
///
/// # Safety
/// The pieces may be written until the call is over: scratch memory to which there is no
/// reference, or lent memory that is pinned.
pub(super) unsafe fn receive_message(
    fd: RawFd,
    pieces: &mut [libc::iovec],
    flags: i32,
) -> io::Result<Option<Message>> {
    let mut header = ReceiveHeader::new();
    let prepared = header.prepare(pieces);
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the caller vouches for what the list names.
    let len = unsafe { libc::recvmsg(fd, prepared, flags | libc::MSG_DONTWAIT) };
    match usize::try_from(len) {
        Ok(len) => Ok(Some(header.message(len))),
        Err(_) => match io::Error::last_os_error() {
            error if nothing_came(&error) => Ok(None),
            error => Err(error),
        },
    }
}
