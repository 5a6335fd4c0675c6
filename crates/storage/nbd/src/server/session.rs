//! [`Session`]: requests that are checked, and replies that are written.

use alloc::vec::Vec;

use crate::error::{Errno, ProtocolError};
use crate::export::{Export, Extent, Features, Replies};
use crate::request::{Command, RequestHead, head_len};
use crate::wire::{CHUNK, EXTENDED_CHUNK, SIMPLE_REPLY, chunk, command};

/// The longest write that is skipped rather than taken for an attack.
const LONGEST_PAYLOAD: u64 = 64 << 20;

/// What a reply says of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// What the client calls the request.
    pub cookie: u64,
    /// The offset in its head, which extended headers repeat.
    pub offset: u64,
}

/// A request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// What a reply needs.
    pub ticket: Ticket,
    /// This many bytes follow the head, whatever is done with the command. Where it is
    /// refused they are to be skipped.
    pub payload: u64,
    /// What is to be done, or why it is not.
    pub command: Result<Command, Refusal>,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// What the client is told.
    pub errno: Errno,
    /// The same in words, for clients that take them.
    pub why: &'static str,
}

const fn refusal(errno: Errno, why: &'static str) -> Refusal {
    Refusal { errno, why }
}

/// A client that has chosen its export.
///
/// It has no state but what was agreed on: a request is understood by
/// [`request`](Self::request), and anyone who carries it out writes the reply, in any order and
/// from any thread. Data of a write follows its request on the wire, and data of a read
/// follows its reply's head: a session sees neither.
#[derive(Clone, Debug)]
pub struct Session {
    export: Export,
    replies: Replies,
    has_status: bool,
}

impl Session {
    /// What `base:allocation` is called within a session.
    pub(crate) const ALLOCATION: u32 = 1;

    pub(crate) const fn new(export: Export, replies: Replies, has_status: bool) -> Self {
        Self { export, replies, has_status }
    }

    /// What was chosen.
    #[must_use]
    pub const fn export(&self) -> &Export {
        &self.export
    }

    /// How it is answered.
    #[must_use]
    pub const fn replies(&self) -> Replies {
        self.replies
    }

    /// So long is the head of each request.
    #[must_use]
    pub const fn head_len(&self) -> usize {
        head_len(self.replies)
    }

    /// Can a reply to a read have several pieces, and holes?
    #[must_use]
    pub const fn has_chunks(&self) -> bool {
        !matches!(self.replies, Replies::Simple)
    }

    /// Understands the head of a request to a device that is now of this size.
    ///
    /// # Errors
    /// What came is no request, or one with more data than anybody takes: the connection
    /// has to end, for nobody knows where the next one begins.
    ///
    /// # Panics
    /// With fewer than [`head_len`](Self::head_len) bytes.
    pub fn request(&self, head: &[u8], size: u64) -> Result<Incoming, ProtocolError> {
        let head = RequestHead::decode(&head[..self.head_len()], self.replies)
            .map_err(|magic| ProtocolError::Magic(magic.into()))?;
        let has_payload = head.kind == command::WRITE
            || self.replies == Replies::Extended && head.flags & command::PAYLOAD != 0;
        let payload = if has_payload { head.length } else { 0 };
        if payload > LONGEST_PAYLOAD {
            return Err(ProtocolError::TooLong(payload));
        }
        let command = self.command(&head).and_then(|command| self.check(command, size));
        let ticket = Ticket { cookie: head.cookie, offset: head.offset };
        Ok(Incoming { ticket, payload, command })
    }

    /// What the head says, with flags that fit.
    fn command(&self, head: &RequestHead) -> Result<Command, Refusal> {
        let RequestHead { flags, kind, offset, length, .. } = *head;
        let is_set = |bit: u16| flags & bit != 0;
        let short = || u32::try_from(length).map_err(|_| TOO_LONG);
        let fua = is_set(command::FUA);
        let (allowed, command) = match kind {
            command::READ => {
                let dont_fragment = is_set(command::DONT_FRAGMENT);
                (command::DONT_FRAGMENT, Command::Read { offset, length: short()?, dont_fragment })
            }
            command::WRITE => {
                // A client with extended headers has to say that data follows; one that
                // forgets it is understood all the same, as by other servers.
                let extended = self.replies == Replies::Extended;
                let allowed = if extended { command::PAYLOAD } else { 0 };
                (allowed, Command::Write { offset, length: short()?, fua })
            }
            command::DISCONNECT => return Ok(Command::Disconnect),
            command::FLUSH => (0, Command::Flush),
            command::TRIM => (0, Command::Trim { offset, length, fua }),
            command::CACHE => (0, Command::Cache { offset, length }),
            command::WRITE_ZEROES => {
                let (no_hole, fast_only) = (is_set(command::NO_HOLE), is_set(command::FAST_ZERO));
                let zeroes = Command::WriteZeroes { offset, length, fua, no_hole, fast_only };
                (command::NO_HOLE | command::FAST_ZERO, zeroes)
            }
            command::BLOCK_STATUS => {
                let one = is_set(command::ONE_EXTENT);
                (command::ONE_EXTENT, Command::BlockStatus { offset, length, one })
            }
            command::RESIZE if length == 0 => (0, Command::Resize { size: offset }),
            command::RESIZE => {
                return Err(refusal(Errno::INVALID, "a new size is the offset, without a length"));
            }
            _ => return Err(refusal(Errno::INVALID, "this command is not known here")),
        };
        // FUA is fine with every command where it was offered, even if it means nothing.
        let fua_allowed = if self.has(Features::FUA) { command::FUA } else { 0 };
        if flags & !(allowed | fua_allowed) != 0 {
            return Err(refusal(Errno::INVALID, "flags that this command does not have here"));
        }
        Ok(command)
    }

    const fn has(&self, features: Features) -> bool {
        self.export.features.has(features)
    }

    /// May this be done, within these bounds?
    fn check(&self, wanted: Command, size: u64) -> Result<Command, Refusal> {
        let (feature, range) = match wanted {
            Command::Disconnect => return Ok(wanted),
            Command::Read { offset, length, dont_fragment } => {
                if dont_fragment && !self.has(Features::DONT_FRAGMENT) {
                    return Err(refusal(Errno::INVALID, "reads in one piece were not offered"));
                }
                (None, Some((offset, u64::from(length), true)))
            }
            Command::Write { offset, length, .. } => {
                (None, Some((offset, u64::from(length), true)))
            }
            Command::Flush => (Some(Features::FLUSH), None),
            Command::Trim { offset, length, .. } => {
                (Some(Features::TRIM), Some((offset, length, false)))
            }
            Command::Cache { offset, length } => {
                (Some(Features::CACHE), Some((offset, length, false)))
            }
            Command::WriteZeroes { offset, length, fast_only, .. } => {
                if fast_only && !self.has(Features::FAST_ZERO) {
                    return Err(refusal(Errno::INVALID, "fast zeroes were not offered"));
                }
                (Some(Features::WRITE_ZEROES), Some((offset, length, false)))
            }
            Command::BlockStatus { offset, length, .. } => {
                if !self.has_status {
                    return Err(refusal(Errno::INVALID, "no context of metadata was chosen"));
                }
                if length == 0 {
                    return Err(refusal(Errno::INVALID, "a status of nothing"));
                }
                (None, Some((offset, length, false)))
            }
            Command::Resize { .. } => (Some(Features::RESIZE), None),
        };
        if wanted.writes() && self.has(Features::READ_ONLY) {
            return Err(refusal(Errno::NOT_PERMITTED, "the export is read-only"));
        }
        if feature.is_some_and(|feature| !self.has(feature)) {
            return Err(refusal(Errno::INVALID, "the export does not offer this command"));
        }
        let Some((offset, length, has_data)) = range else { return Ok(wanted) };
        let beyond = offset.checked_add(length).is_none_or(|end| end > size);
        if beyond {
            let errno = if wanted.writes() { Errno::NO_SPACE } else { Errno::INVALID };
            return Err(refusal(errno, "beyond the end of the device"));
        }
        let blocks = &self.export.blocks;
        if has_data && length > u64::from(blocks.maximum) {
            return Err(TOO_LONG);
        }
        let block = u64::from(blocks.minimum);
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(refusal(Errno::INVALID, "no multiple of the smallest block"));
        }
        Ok(wanted)
    }

    /// Appends: done, without data (a read of nothing has none either).
    pub fn done(&self, out: &mut Vec<u8>, ticket: Ticket) {
        if self.has_chunks() {
            self.chunk(out, ticket, (chunk::NONE, true), 0);
        } else {
            simple(out, ticket, 0);
        }
    }

    /// Appends: failed. The words are for clients that take chunks.
    pub fn error(&self, out: &mut Vec<u8>, ticket: Ticket, errno: Errno, why: &str) {
        if !self.has_chunks() {
            simple(out, ticket, errno.number());
            return;
        }
        let why = &why.as_bytes()[..why.floor_char_boundary(512)];
        let len = 6 + why.len() as u64;
        self.chunk(out, ticket, (chunk::ERROR, true), len);
        out.extend_from_slice(&errno.number().to_be_bytes());
        out.extend_from_slice(&(why.len() as u16).to_be_bytes());
        out.extend_from_slice(why);
    }

    /// Appends: failed at this offset. Data of the same reply that lies before it is good.
    ///
    /// # Panics
    /// Without chunks there is no such reply.
    pub fn error_at(&self, out: &mut Vec<u8>, ticket: Ticket, errno: Errno, offset: u64) {
        assert!(self.has_chunks(), "a simple reply has no offset");
        self.chunk(out, ticket, (chunk::ERROR_AT, true), 14);
        out.extend_from_slice(&errno.number().to_be_bytes());
        out.extend_from_slice(&0u16.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
    }

    /// Appends the head of data; this many bytes of it have to follow on the wire. With
    /// chunks there may be several, of which the last is `last`; else there is one for the
    /// whole read.
    ///
    /// # Panics
    /// A chunk has a byte at least: a read of nothing is [`done`](Self::done).
    pub fn data(&self, out: &mut Vec<u8>, ticket: Ticket, offset: u64, len: u32, last: bool) {
        if !self.has_chunks() {
            debug_assert!(last, "a simple reply has one piece");
            simple(out, ticket, 0);
            return;
        }
        assert!(len > 0, "a read of nothing has no data");
        self.chunk(out, ticket, (chunk::DATA, last), 8 + u64::from(len));
        out.extend_from_slice(&offset.to_be_bytes());
    }

    /// Appends zeroes that are read, which do not follow.
    ///
    /// # Panics
    /// Without chunks there is no such reply.
    pub fn hole(&self, out: &mut Vec<u8>, ticket: Ticket, offset: u64, len: u32, last: bool) {
        assert!(self.has_chunks(), "a simple reply has no holes");
        self.chunk(out, ticket, (chunk::HOLE, last), 12);
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
    }

    /// Appends the answer to [`Command::BlockStatus`], whose extents begin at its offset.
    ///
    /// # Panics
    /// Without extents.
    pub fn status(&self, out: &mut Vec<u8>, ticket: Ticket, extents: &[Extent]) {
        assert!(!extents.is_empty(), "a status has an extent");
        let count = extents.len() as u64;
        if self.replies == Replies::Extended {
            self.chunk(out, ticket, (chunk::STATUS_EXTENDED, true), 8 + 16 * count);
            out.extend_from_slice(&Self::ALLOCATION.to_be_bytes());
            out.extend_from_slice(&(count as u32).to_be_bytes());
            for extent in extents {
                out.extend_from_slice(&extent.len.to_be_bytes());
                out.extend_from_slice(&u64::from(extent.flags()).to_be_bytes());
            }
            return;
        }
        self.chunk(out, ticket, (chunk::STATUS, true), 4 + 8 * count);
        out.extend_from_slice(&Self::ALLOCATION.to_be_bytes());
        for extent in extents {
            // No request is longer without extended headers.
            let len = u32::try_from(extent.len).unwrap_or(u32::MAX);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&extent.flags().to_be_bytes());
        }
    }

    fn chunk(&self, out: &mut Vec<u8>, ticket: Ticket, (kind, last): (u16, bool), len: u64) {
        let extended = self.replies == Replies::Extended;
        let magic = if extended { EXTENDED_CHUNK } else { CHUNK };
        let flags = if last { chunk::DONE } else { 0 };
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&flags.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&ticket.cookie.to_be_bytes());
        if extended {
            out.extend_from_slice(&ticket.offset.to_be_bytes());
            out.extend_from_slice(&len.to_be_bytes());
        } else {
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

const TOO_LONG: Refusal = refusal(Errno::INVALID, "longer than the longest request");

fn simple(out: &mut Vec<u8>, ticket: Ticket, error: u32) {
    out.extend_from_slice(&SIMPLE_REPLY.to_be_bytes());
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&ticket.cookie.to_be_bytes());
}
