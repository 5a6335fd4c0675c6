//! [`Session`]: requests that are under way, and replies that are checked against them.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Errno, ProtocolError};
use crate::export::{Export, Extent, Features, Replies};
use crate::request::{Command, RequestHead};
use crate::wire::{CHUNK, EXTENDED_CHUNK, Reader, SIMPLE_REPLY, chunk};

/// A chunk that is neither data nor a status is no longer than this.
const LONGEST_CHUNK: u64 = 64 << 10;
/// More extents of one status than that are nonsense. Servers send no more: nbdkit's limit is
/// the same, qemu's an eighth of it.
const MOST_EXTENTS: u64 = 1 << 20;
/// More pieces of one read than that are nonsense.
const MOST_PIECES: usize = 1024;

const NO_STATUS: ProtocolError = ProtocolError::Malformed("a status that is none");

/// What a reply brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data of a read follows on the wire, as much of it as `len` says. It belongs `at` bytes
    /// into what was asked for. Only behind it is the next event.
    Data {
        /// The request.
        cookie: u64,
        /// Where it belongs within the request.
        at: u32,
        /// How many bytes follow.
        len: u32,
    },
    /// Bytes of a read are zeroes, which do not follow.
    Hole {
        /// The request.
        cookie: u64,
        /// Where they belong within the request.
        at: u32,
        /// How many.
        len: u32,
    },
    /// A part of the request has failed, and its reply goes on.
    Failing {
        /// The request.
        cookie: u64,
    },
    /// What [`Command::BlockStatus`] asked for, from its offset on. A long status comes in
    /// several of these, each of which goes on where the one before it ended.
    Status {
        /// The request.
        cookie: u64,
        /// One after another; in the end perhaps less than was asked about.
        extents: Vec<Extent>,
    },
    /// The request is over.
    Done {
        /// The request. The same number may be given to another one from now on.
        cookie: u64,
        /// How it went.
        result: Result<(), Failed>,
    },
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno}{}{why}", if why.is_empty() { "" } else { ": " })]
pub struct Failed {
    /// The error.
    pub errno: Errno,
    /// The server's words, if it had any.
    pub why: String,
    /// Where in the export, if the server has said so.
    pub offset: Option<u64>,
}

/// Why a request is not issued. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The server does not offer this command, or not with these flags.
    #[error("the server does not offer this")]
    NotOffered,
    /// The export is read-only.
    #[error("the export is read-only")]
    ReadOnly,
    /// It reaches beyond the end.
    #[error("beyond the end of the export")]
    BeyondEnd,
    /// Longer than the server takes.
    #[error("longer than the server takes: at most {0} bytes at a time")]
    TooLong(u64),
    /// The server's blocks are larger.
    #[error("offset and length have to be multiples of {0} bytes")]
    Unaligned(u32),
}

/// A request that is under way.
#[derive(Debug)]
struct Flight {
    cookie: u64,
    command: Command,
    /// What has come of a read: stretches of it, in their order, none overlapping.
    pieces: Vec<(u64, u64)>,
    had_status: bool,
    failed: Option<Failed>,
}

/// An export that can be used.
///
/// [`issue`](Self::issue) writes requests, as many as are wanted at a time;
/// [`handle`](Self::handle) reads replies, which come in any order, and finds what the
/// server gets wrong.
#[derive(Debug)]
pub struct Session {
    export: Export,
    replies: Replies,
    status: Option<u32>,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Made part of the cookies, so that a reply to a request that is over is seen.
    turn: u32,
    /// What is over with the data that was told of last.
    over: VecDeque<u64>,
    /// A chunk of which a part has come.
    status_chunk: Option<StatusChunk>,
}

/// A status that is read as it comes: it may be longer than anybody's room for input.
#[derive(Debug)]
struct StatusChunk {
    cookie: u64,
    is_last: bool,
    /// Extents that have not come.
    missing: u64,
    /// What was asked about, and not told yet.
    left: u64,
}

impl Session {
    pub(crate) fn new(export: Export, replies: Replies, status: Option<u32>) -> Self {
        let (flights, free) = (Vec::new(), Vec::new());
        let over = VecDeque::new();
        Self { export, replies, status, flights, free, turn: 0, over, status_chunk: None }
    }

    /// What the server has said of the export.
    #[must_use]
    pub const fn export(&self) -> &Export {
        &self.export
    }

    /// How the server answers.
    #[must_use]
    pub const fn replies(&self) -> Replies {
        self.replies
    }

    /// Can it be asked what is allocated?
    #[must_use]
    pub const fn has_status(&self) -> bool {
        self.status.is_some()
    }

    /// How many requests are under way.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// The export's size has changed: the server has agreed to [`Command::Resize`], or
    /// something outside of the protocol has said so.
    pub const fn resized(&mut self, size: u64) {
        self.export.size = size;
    }

    /// Appends a request to `out`, behind which the data of a write has to follow, and gives
    /// its cookie. (The cookie of [`Command::Disconnect`] means nothing: it has no reply.)
    ///
    /// # Errors
    /// What the server would refuse is not sent.
    pub fn issue(&mut self, command: &Command, out: &mut Vec<u8>) -> Result<u64, IssueError> {
        self.check(command)?;
        let cookie = match command {
            Command::Disconnect => 0,
            _ => self.begin(*command),
        };
        RequestHead::of(cookie, command, self.replies).encode(self.replies, out);
        Ok(cookie)
    }

    fn begin(&mut self, command: Command) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            (self.flights.len() - 1) as u32
        });
        self.turn = self.turn.wrapping_add(1);
        let cookie = u64::from(self.turn) << 32 | u64::from(index);
        let (pieces, had_status, failed) = (Vec::new(), false, None);
        self.flights[index as usize] = Some(Flight { cookie, command, pieces, had_status, failed });
        cookie
    }

    /// The index of a request under way, in a table of the caller's own: small numbers that
    /// are used again.
    #[must_use]
    pub const fn index_of(cookie: u64) -> usize {
        (cookie & u32::MAX as u64) as usize
    }

    fn check(&self, command: &Command) -> Result<(), IssueError> {
        let has = |features| self.export.features.has(features);
        let offered = |features| if has(features) { Ok(()) } else { Err(IssueError::NotOffered) };
        if command.writes() && has(Features::READ_ONLY) {
            return Err(IssueError::ReadOnly);
        }
        let fua = |fua| if fua { offered(Features::FUA) } else { Ok(()) };
        let (offset, length) = match *command {
            Command::Read { offset, length, dont_fragment } => {
                if dont_fragment {
                    offered(Features::DONT_FRAGMENT)?;
                }
                (offset, u64::from(length))
            }
            Command::Write { offset, length, fua: wanted } => {
                fua(wanted)?;
                (offset, u64::from(length))
            }
            Command::Disconnect => return Ok(()),
            Command::Flush => return offered(Features::FLUSH),
            Command::Resize { .. } => return offered(Features::RESIZE),
            Command::Trim { offset, length, fua: wanted } => {
                offered(Features::TRIM)?;
                fua(wanted)?;
                (offset, length)
            }
            Command::Cache { offset, length } => {
                offered(Features::CACHE)?;
                (offset, length)
            }
            Command::WriteZeroes { offset, length, fua: wanted, fast_only, .. } => {
                offered(Features::WRITE_ZEROES)?;
                fua(wanted)?;
                if fast_only {
                    offered(Features::FAST_ZERO)?;
                }
                (offset, length)
            }
            Command::BlockStatus { offset, length, .. } => {
                if self.status.is_none() || length == 0 {
                    return Err(IssueError::NotOffered);
                }
                (offset, length)
            }
        };
        if offset.checked_add(length).is_none_or(|end| end > self.export.size) {
            return Err(IssueError::BeyondEnd);
        }
        let blocks = self.export.blocks;
        let block = u64::from(blocks.minimum);
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(IssueError::Unaligned(blocks.minimum));
        }
        let longest = match command {
            Command::Read { .. } | Command::Write { .. } => u64::from(blocks.maximum),
            _ if self.replies == Replies::Extended => u64::MAX,
            _ => u64::from(u32::MAX),
        };
        if length > longest { Err(IssueError::TooLong(longest)) } else { Ok(()) }
    }

    /// Bytes came. Gives what they bring, and how many of them that took: the data of
    /// [`Event::Data`] is not among these, and has to be taken off before the next call.
    /// `None` where more are needed.
    ///
    /// # Errors
    /// The server breaks the protocol: nobody knows where its next reply begins.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<(usize, Event)>, ProtocolError> {
        if let Some(cookie) = self.over.pop_front() {
            let result = self.end(cookie);
            return result.map(|result| Some((0, Event::Done { cookie, result })));
        }
        if let Some(status) = self.status_chunk.take() {
            return self.extents(status, bytes);
        }
        let mut reader = Reader(bytes);
        let Some(magic) = reader.u32() else { return Ok(None) };
        match magic {
            SIMPLE_REPLY if self.replies != Replies::Extended => self.simple(reader),
            CHUNK if self.replies == Replies::Structured => self.chunk(bytes, reader),
            EXTENDED_CHUNK if self.replies == Replies::Extended => self.chunk(bytes, reader),
            other => Err(ProtocolError::Magic(other.into())),
        }
    }

    fn flight(&mut self, cookie: u64) -> Result<&mut Flight, ProtocolError> {
        let flight = self.flights.get_mut(Self::index_of(cookie)).and_then(Option::as_mut);
        let same = flight.filter(|flight| flight.cookie == cookie);
        same.ok_or(ProtocolError::UnknownCookie(cookie))
    }

    fn simple(&mut self, mut reader: Reader<'_>) -> Result<Option<(usize, Event)>, ProtocolError> {
        let (Some(error), Some(cookie)) = (reader.u32(), reader.u64()) else { return Ok(None) };
        let structured = self.replies == Replies::Structured;
        let flight = self.flight(cookie)?;
        let event = match flight.command {
            Command::Read { .. } | Command::BlockStatus { .. } if structured => {
                return Err(ProtocolError::Malformed("a simple reply where it agreed to chunks"));
            }
            Command::Read { length, .. } if error == 0 && length > 0 => {
                flight.pieces.push((0, length.into()));
                self.over.push_back(cookie);
                Event::Data { cookie, at: 0, len: length }
            }
            _ => {
                if error != 0 {
                    flight.fail(Errno::from_wire(error), String::new(), None);
                }
                Event::Done { cookie, result: self.end(cookie)? }
            }
        };
        Ok(Some((16, event)))
    }

    fn chunk(
        &mut self,
        bytes: &[u8],
        mut reader: Reader<'_>,
    ) -> Result<Option<(usize, Event)>, ProtocolError> {
        let extended = self.replies == Replies::Extended;
        let mut head = || {
            let (flags, kind, cookie) = (reader.u16()?, reader.u16()?, reader.u64()?);
            let len = if extended {
                // The offset of the request is repeated, and nothing depends on it.
                reader.u64()?;
                reader.u64()?
            } else {
                u64::from(reader.u32()?)
            };
            Some((flags, kind, cookie, len))
        };
        let Some((flags, kind, cookie, len)) = head() else { return Ok(None) };
        let is_last = flags & chunk::DONE != 0;
        if kind == chunk::DATA {
            let Some(offset) = reader.u64() else { return Ok(None) };
            let count = len.checked_sub(8).filter(|count| *count > 0);
            let count = count.ok_or(ProtocolError::Malformed("data without data"))?;
            let at = self.flight(cookie)?.place(offset, count)?;
            if is_last {
                self.over.push_back(cookie);
            }
            let used = bytes.len() - reader.0.len();
            return Ok(Some((used, Event::Data { cookie, at, len: count as u32 })));
        }
        if matches!(kind, chunk::STATUS | chunk::STATUS_EXTENDED) {
            let begun = self.begin_status((kind, cookie, is_last), len, &mut reader)?;
            let Some(status) = begun else { return Ok(None) };
            let head = bytes.len() - reader.0.len();
            let come = self.extents(status, reader.0)?;
            return Ok(come.map(|(used, event)| (head + used, event)));
        }
        if len > LONGEST_CHUNK {
            return Err(ProtocolError::TooLong(len));
        }
        let Some(payload) = reader.bytes(len as usize) else { return Ok(None) };
        let used = bytes.len() - reader.0.len();
        let event = self.small_chunk((kind, cookie, is_last), payload)?;
        Ok(Some((used, event)))
    }

    /// A chunk that is there as a whole.
    fn small_chunk(
        &mut self,
        (kind, cookie, is_last): (u16, u64, bool),
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        let flight = self.flight(cookie)?;
        let mut reader = Reader(payload);
        let event = match kind {
            chunk::NONE if payload.is_empty() && is_last => None,
            chunk::HOLE => {
                let (Some(offset), Some(count), true) =
                    (reader.u64(), reader.u32().filter(|count| *count > 0), reader.is_empty())
                else {
                    return Err(ProtocolError::Malformed("a hole that is none"));
                };
                let at = flight.place(offset, count.into())?;
                Some(Event::Hole { cookie, at, len: count })
            }
            _ if kind & chunk::IS_ERROR != 0 => {
                flight.error(kind, reader)?;
                // The reply goes on behind an error that is not the last.
                if !is_last {
                    return Ok(Event::Failing { cookie });
                }
                None
            }
            _ => return Err(ProtocolError::Malformed("a chunk that this reply has not")),
        };
        match event {
            Some(event) => {
                if is_last {
                    self.over.push_back(cookie);
                }
                Ok(event)
            }
            None => Ok(Event::Done { cookie, result: self.end(cookie)? }),
        }
    }

    /// Reads what a status begins with, once its first extent is there, too.
    fn begin_status(
        &mut self,
        (kind, cookie, is_last): (u16, u64, bool),
        len: u64,
        reader: &mut Reader<'_>,
    ) -> Result<Option<StatusChunk>, ProtocolError> {
        let extended = self.replies == Replies::Extended;
        let (fixed, each) = if extended { (8, 16) } else { (4, 8) };
        let wanted = self.status;
        let flight = self.flight(cookie)?;
        let Command::BlockStatus { length, one, .. } = flight.command else {
            return Err(ProtocolError::Malformed("a status that nobody asked for"));
        };
        let bytes = len.checked_sub(fixed).filter(|bytes| bytes.is_multiple_of(each));
        let missing = bytes.map_or(0, |bytes| bytes / each);
        let is_known = (kind == chunk::STATUS_EXTENDED) == extended;
        if !is_known || flight.had_status || missing == 0 || one && missing > 1 {
            return Err(NO_STATUS);
        }
        if missing > MOST_EXTENTS {
            return Err(ProtocolError::TooLong(len));
        }
        if (reader.0.len() as u64) < fixed + each {
            return Ok(None);
        }
        let id = reader.u32();
        let count = if extended { reader.u32() } else { None };
        if id != wanted || count.is_some_and(|count| u64::from(count) != missing) {
            return Err(NO_STATUS);
        }
        Ok(Some(StatusChunk { cookie, is_last, missing, left: length }))
    }

    /// Reads the extents that are there, and leaves the others for the next call.
    fn extents(
        &mut self,
        mut status: StatusChunk,
        bytes: &[u8],
    ) -> Result<Option<(usize, Event)>, ProtocolError> {
        let extended = self.replies == Replies::Extended;
        let each = if extended { 16 } else { 8 };
        let count = status.missing.min((bytes.len() / each) as u64);
        if count == 0 {
            self.status_chunk = Some(status);
            return Ok(None);
        }
        let (cookie, used) = (status.cookie, count as usize * each);
        let (mut reader, mut extents) = (Reader(&bytes[..used]), Vec::new());
        while !reader.is_empty() {
            let next = if extended {
                reader.u64().zip(reader.u64())
            } else {
                reader.u32().zip(reader.u32()).map(|(len, flags)| (len.into(), flags.into()))
            };
            // The last one may reach beyond what was asked about; the others lie within.
            let (len, flags) =
                next.filter(|(len, _)| *len > 0 && status.left > 0).ok_or(NO_STATUS)?;
            let extent = Extent::from_wire(len.min(status.left), flags);
            status.left -= extent.len;
            extents.push(extent);
        }
        status.missing -= count;
        if status.missing > 0 {
            self.status_chunk = Some(status);
        } else {
            self.flight(cookie)?.had_status = true;
            if status.is_last {
                self.over.push_back(cookie);
            }
        }
        Ok(Some((used, Event::Status { cookie, extents })))
    }

    /// The request is over: was it answered in full?
    fn end(&mut self, cookie: u64) -> Result<Result<(), Failed>, ProtocolError> {
        let index = Self::index_of(cookie);
        let flight = self.flights[index].as_ref().expect("it is under way");
        match flight.command {
            _ if flight.failed.is_some() => {}
            Command::Read { length, .. } => {
                let came: u64 = flight.pieces.iter().map(|(begin, end)| end - begin).sum();
                if came != u64::from(length) {
                    return Err(ProtocolError::Malformed("less than what was to be read"));
                }
            }
            Command::BlockStatus { .. } if !flight.had_status => {
                return Err(ProtocolError::Malformed("no status where one was asked for"));
            }
            Command::Resize { size } => self.export.size = size,
            _ => {}
        }
        let failed = self.flights[index].take().and_then(|flight| flight.failed);
        self.free.push(index as u32);
        Ok(failed.map_or(Ok(()), Err))
    }
}

impl Flight {
    fn fail(&mut self, errno: Errno, why: String, offset: Option<u64>) {
        // The first says what went wrong.
        self.failed.get_or_insert(Failed { errno, why, offset });
    }

    /// Takes note of a piece of a read, and gives where in the request it belongs.
    fn place(&mut self, offset: u64, count: u64) -> Result<u32, ProtocolError> {
        let Command::Read { offset: begin, length, dont_fragment } = self.command else {
            return Err(ProtocolError::Malformed("data that nobody wants to read"));
        };
        let at = offset.checked_sub(begin);
        let end = at.and_then(|at| at.checked_add(count)).filter(|end| *end <= length.into());
        let (Some(at), Some(end)) = (at, end) else {
            return Err(ProtocolError::Malformed("data from outside of what was to be read"));
        };
        let place = self.pieces.partition_point(|piece| piece.1 <= at);
        if self.pieces.get(place).is_some_and(|piece| piece.0 < end) {
            return Err(ProtocolError::Malformed("the same data twice"));
        }
        if dont_fragment && !self.pieces.is_empty() || self.pieces.len() == MOST_PIECES {
            return Err(ProtocolError::Malformed("data in more pieces than it may have"));
        }
        // Pieces that touch become one, so that a reply in order has one.
        if place > 0 && self.pieces[place - 1].1 == at && !dont_fragment {
            self.pieces[place - 1].1 = end;
        } else {
            self.pieces.insert(place, (at, end));
        }
        Ok(at as u32)
    }

    fn error(&mut self, kind: u16, mut reader: Reader<'_>) -> Result<(), ProtocolError> {
        let malformed = ProtocolError::Malformed("an error that is none");
        let errno = reader.u32().ok_or(malformed)?;
        let len = reader.u16().ok_or(malformed)?;
        let why = reader.bytes(len.into()).ok_or(malformed)?;
        let offset = if kind == chunk::ERROR_AT { reader.u64() } else { None };
        let why = String::from_utf8_lossy(why).into_owned();
        self.fail(Errno::from_wire(errno), why, offset);
        Ok(())
    }
}
