//! [`Negotiation`]: what a client asks for, one option after another.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem;

use super::session::Session;
use crate::error::ProtocolError;
use crate::export::{BASE_ALLOCATION, BlockSizes, Export, Features, Replies};
use crate::wire::{
    INIT, OPTION, OPTION_REPLY, OPTION_REPLY_HEAD, Reader, ZEROES, handshake, info, option, reply,
    text,
};

/// A reply to an option with more data is none.
const LONGEST_REPLY: u32 = 64 << 10;
/// More exports than that are not listed.
const MOST_LISTED: usize = 10_000;

/// What a client comes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To use the export.
    Use,
    /// To know what the export is like.
    Look,
    /// To know which exports there are.
    List,
}

/// Does the client want TLS?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// It does without.
    #[default]
    None,
    /// It ends where the server has none.
    Required,
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it comes for.
    pub purpose: Purpose,
    /// The name of the export.
    pub name: String,
    /// TLS.
    pub security: Security,
    /// The most that it asks for.
    pub replies: Replies,
    /// Whether `base:allocation` is asked for.
    pub status: bool,
}

impl Wanted {
    /// An export to use, with all that is offered.
    #[must_use]
    pub fn export(name: impl Into<String>) -> Self {
        Self {
            purpose: Purpose::Use,
            name: name.into(),
            security: Security::None,
            replies: Replies::Extended,
            status: true,
        }
    }
}

/// An export that a server has listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// A few words for people.
    pub description: String,
}

/// Why a negotiation comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server breaks the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// There is no such export.
    #[error("the server has no export `{0}`")]
    NoSuchExport(String),
    /// The server insists on TLS.
    #[error("the server wants TLS")]
    TlsRequired,
    /// The server has no TLS, and the client insists on it.
    #[error("the server has no TLS: {0}")]
    NoTls(String),
    /// The server does not want to, in its own words.
    #[error("the server refuses: {0}")]
    Refused(String),
}

/// What to do after bytes were handled. Output goes first.
#[derive(Debug)]
pub enum Step {
    /// Go on: with what is left of the bytes, or with more of them.
    More,
    /// Send the output, then begin TLS as its client, and say so with
    /// [`Negotiation::secured`].
    StartTls,
    /// The export can be used. What is left of the bytes is replies.
    Transmission(Session),
    /// The export that was looked at. Send the output, and close.
    Looked(Session),
    /// The exports that there are. Send the output, and close.
    Listed(Vec<Listed>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    /// An option was sent, and its last reply has not come.
    Asked(u32),
    /// The old option, which is answered in a way of its own.
    AskedByName,
    Securing,
    Over,
}

/// The client's end of the negotiation. See the [module](super).
#[derive(Debug)]
pub struct Negotiation {
    wanted: Wanted,
    state: State,
    output: Vec<u8>,
    no_zeroes: bool,
    is_secure: bool,
    replies: Replies,
    has_status: bool,
    status_id: Option<u32>,
    export: Export,
    has_export: bool,
    listed: Vec<Listed>,
}

impl Negotiation {
    /// A client with this wish.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        let mut export = Export::new(wanted.name.clone(), 0);
        export.features = Features::default();
        Self {
            wanted,
            state: State::Greeting,
            output: Vec::new(),
            no_zeroes: false,
            is_secure: false,
            replies: Replies::Simple,
            has_status: false,
            status_id: None,
            export,
            has_export: false,
            listed: Vec::new(),
        }
    }

    /// What is to be sent, if there is something.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.output.is_empty()).then(|| mem::take(&mut self.output))
    }

    /// TLS is there.
    pub fn secured(&mut self) {
        if self.state == State::Securing {
            self.is_secure = true;
            self.ask_for_replies();
        }
    }

    /// Bytes came. Uses at most one message of them, and says how many it used: none where
    /// more are needed.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(usize, Step), Failure> {
        match self.state {
            State::Greeting => Ok((self.greeting(bytes)?, Step::More)),
            State::Asked(asked) => self.reply(asked, bytes),
            State::AskedByName => Ok(self.by_name(bytes)),
            State::Securing => Ok((0, Step::StartTls)),
            State::Over => Ok((0, Step::More)),
        }
    }

    fn greeting(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let mut reader = Reader(bytes);
        let (Some(init), Some(magic), Some(flags)) = (reader.u64(), reader.u64(), reader.u16())
        else {
            return Ok(0);
        };
        if init != INIT || magic != OPTION {
            return Err(ProtocolError::NotNbd.into());
        }
        // Each flag that is known is answered by the same one.
        let known = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        self.output.extend_from_slice(&u32::from(flags & known).to_be_bytes());
        self.no_zeroes = flags & handshake::NO_ZEROES != 0;
        if flags & handshake::FIXED_NEWSTYLE == 0 {
            if self.wanted.security == Security::Required {
                return Err(Failure::NoTls("it knows one option only".to_string()));
            }
            self.ask_by_name();
        } else if self.wanted.security == Security::Required {
            self.ask(option::STARTTLS, &[]);
        } else {
            self.ask_for_replies();
        }
        Ok(18)
    }

    fn ask(&mut self, wanted: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.output.extend_from_slice(&OPTION.to_be_bytes());
        self.output.extend_from_slice(&wanted.to_be_bytes());
        self.output.extend_from_slice(&(len as u32).to_be_bytes());
        for part in parts {
            self.output.extend_from_slice(part);
        }
        self.state = State::Asked(wanted);
    }

    fn ask_for_replies(&mut self) {
        match (self.wanted.purpose, self.wanted.replies) {
            (Purpose::List, _) => self.ask(option::LIST, &[]),
            (_, Replies::Extended) => self.ask(option::EXTENDED_HEADERS, &[]),
            (_, Replies::Structured) => self.ask(option::STRUCTURED_REPLY, &[]),
            (_, Replies::Simple) => self.ask_for_export(),
        }
    }

    fn ask_for_status(&mut self) {
        if self.replies == Replies::Simple || !self.wanted.status {
            self.ask_for_export();
            return;
        }
        let (name, query) = (self.wanted.name.clone(), BASE_ALLOCATION);
        let len = |text: &str| (text.len() as u32).to_be_bytes();
        let parts =
            [&len(&name)[..], name.as_bytes(), &[0, 0, 0, 1], &len(query), query.as_bytes()];
        self.ask(option::SET_META_CONTEXT, &parts);
    }

    fn ask_for_export(&mut self) {
        let name = self.wanted.name.clone();
        let len = (name.len() as u32).to_be_bytes();
        let asked = [info::BLOCK_SIZE, info::DESCRIPTION].map(u16::to_be_bytes);
        let parts = [&len[..], name.as_bytes(), &[0, 2], &asked[0], &asked[1]];
        let wanted = if self.wanted.purpose == Purpose::Look { option::INFO } else { option::GO };
        self.ask(wanted, &parts);
    }

    fn ask_by_name(&mut self) {
        let name = self.wanted.name.clone();
        self.ask(option::EXPORT_NAME, &[name.as_bytes()]);
        self.state = State::AskedByName;
    }

    fn by_name(&mut self, bytes: &[u8]) -> (usize, Step) {
        let mut reader = Reader(bytes);
        let (Some(size), Some(flags)) = (reader.u64(), reader.u16()) else {
            return (0, Step::More);
        };
        if !self.no_zeroes && reader.bytes(ZEROES).is_none() {
            return (0, Step::More);
        }
        self.export.size = size;
        self.export.features = Features::from_wire(flags);
        let used = bytes.len() - reader.0.len();
        self.state = State::Over;
        let session = self.session();
        if self.wanted.purpose == Purpose::Use {
            (used, Step::Transmission(session))
        } else {
            (used, Step::Looked(session))
        }
    }

    fn session(&self) -> Session {
        Session::new(self.export.clone(), self.replies, self.status_id.filter(|_| self.has_status))
    }

    fn reply(&mut self, asked: u32, bytes: &[u8]) -> Result<(usize, Step), Failure> {
        let mut reader = Reader(bytes);
        let head = (reader.u64(), reader.u32(), reader.u32(), reader.u32());
        let (Some(magic), Some(to), Some(kind), Some(len)) = head else {
            return Ok((0, Step::More));
        };
        if magic != OPTION_REPLY {
            return Err(ProtocolError::Magic(magic).into());
        }
        if to != asked {
            return Err(ProtocolError::Malformed("a reply to another option").into());
        }
        if len > LONGEST_REPLY {
            return Err(ProtocolError::TooLong(len.into()).into());
        }
        let Some(data) = reader.bytes(len as usize) else { return Ok((0, Step::More)) };
        let step = if kind & reply::ERROR != 0 {
            self.refused(asked, kind, &String::from_utf8_lossy(data))?
        } else if kind == reply::ACK {
            self.acknowledged(asked)?
        } else {
            self.told(asked, kind, data)?;
            Step::More
        };
        Ok((OPTION_REPLY_HEAD + data.len(), step))
    }

    /// A reply that is not the last.
    fn told(&mut self, asked: u32, kind: u32, data: &[u8]) -> Result<(), ProtocolError> {
        let mut reader = Reader(data);
        match (asked, kind) {
            (option::LIST, reply::SERVER) => {
                let name = reader.string().ok_or(ProtocolError::Malformed("a list of no names"))?;
                let description = String::from_utf8_lossy(reader.0).into_owned();
                if self.listed.len() == MOST_LISTED {
                    return Err(ProtocolError::Malformed("more exports than anybody lists"));
                }
                self.listed.push(Listed { name: name.to_string(), description });
            }
            (option::SET_META_CONTEXT, reply::META_CONTEXT) => {
                let id = reader.u32();
                if text(reader.0) == Some(BASE_ALLOCATION) {
                    self.status_id = id;
                }
            }
            (option::INFO | option::GO, reply::INFO) => self.info(reader)?,
            _ => return Err(ProtocolError::Malformed("a reply that this option has not")),
        }
        Ok(())
    }

    fn info(&mut self, mut reader: Reader<'_>) -> Result<(), ProtocolError> {
        let malformed = ProtocolError::Malformed("what no export is like");
        match reader.u16().ok_or(malformed)? {
            info::EXPORT => {
                self.export.size = reader.u64().ok_or(malformed)?;
                self.export.features = Features::from_wire(reader.u16().ok_or(malformed)?);
                self.has_export = true;
            }
            info::DESCRIPTION => {
                self.export.description = text(reader.0).ok_or(malformed)?.to_string();
            }
            info::BLOCK_SIZE => {
                let mut next = || reader.u32().ok_or(malformed);
                let blocks = BlockSizes { minimum: next()?, preferred: next()?, maximum: next()? };
                if blocks.minimum == 0 || blocks.maximum < blocks.minimum {
                    return Err(malformed);
                }
                self.export.blocks = blocks;
            }
            _ => {}
        }
        Ok(())
    }

    fn acknowledged(&mut self, asked: u32) -> Result<Step, ProtocolError> {
        match asked {
            option::STARTTLS => {
                self.state = State::Securing;
                return Ok(Step::StartTls);
            }
            option::EXTENDED_HEADERS => {
                self.replies = Replies::Extended;
                self.ask_for_status();
            }
            option::STRUCTURED_REPLY => {
                self.replies = Replies::Structured;
                self.ask_for_status();
            }
            option::SET_META_CONTEXT => {
                self.has_status = self.status_id.is_some();
                self.ask_for_export();
            }
            option::LIST => {
                self.ask(option::ABORT, &[]);
                self.state = State::Over;
                return Ok(Step::Listed(mem::take(&mut self.listed)));
            }
            _ if !self.has_export => {
                return Err(ProtocolError::Malformed("an export without a size"));
            }
            option::INFO => {
                self.ask(option::ABORT, &[]);
                self.state = State::Over;
                return Ok(Step::Looked(self.session()));
            }
            _ => {
                self.state = State::Over;
                return Ok(Step::Transmission(self.session()));
            }
        }
        Ok(Step::More)
    }

    fn refused(&mut self, asked: u32, kind: u32, why: &str) -> Result<Step, Failure> {
        let words = || if why.is_empty() { reason(kind).to_string() } else { why.to_string() };
        match (asked, kind) {
            (option::STARTTLS, _) => return Err(Failure::NoTls(words())),
            (_, reply::TLS_REQUIRED) => return Err(Failure::TlsRequired),
            (_, reply::SHUTDOWN) => return Err(Failure::Refused(words())),
            // What is not available is done without.
            (option::EXTENDED_HEADERS, _) => self.ask(option::STRUCTURED_REPLY, &[]),
            (option::STRUCTURED_REPLY, _) => self.ask_for_export(),
            (option::SET_META_CONTEXT, _) => {
                self.status_id = None;
                self.ask_for_export();
            }
            (_, reply::UNKNOWN) => return Err(Failure::NoSuchExport(self.wanted.name.clone())),
            (option::GO | option::INFO, reply::UNSUPPORTED) => self.ask_by_name(),
            _ => return Err(Failure::Refused(words())),
        }
        Ok(Step::More)
    }
}

const fn reason(kind: u32) -> &'static str {
    match kind {
        reply::UNSUPPORTED => "it does not know the option",
        reply::POLICY => "it has a policy against the option",
        reply::INVALID => "it takes the option for invalid",
        reply::SHUTDOWN => "it is shutting down",
        reply::BLOCK_SIZE_REQUIRED => "its blocks have to be kept to",
        reply::TOO_BIG => "it takes the option for too long",
        reply::EXTENDED_REQUIRED => "it wants extended headers",
        _ => "without a reason that is known here",
    }
}
