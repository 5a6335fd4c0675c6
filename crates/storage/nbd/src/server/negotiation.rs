//! [`Negotiation`]: fixed newstyle, from the greeting to the export.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::session::Session;
use crate::error::ProtocolError;
use crate::export::{BASE_ALLOCATION, Export, Features, Replies};
use crate::wire::{
    INIT, LONGEST_STRING, OPTION, OPTION_HEAD, OPTION_REPLY, Reader, ZEROES, handshake, info,
    option, reply, text,
};

/// Longer data of an option is skipped rather than kept.
const LONGEST_OPTION: usize = 4 * LONGEST_STRING;
/// A peer that announces more is given up: skipping it is not worth the time.
const LONGEST_SKIP: u32 = 16 << 20;

/// What there is to choose from.
pub trait Exports {
    /// The names and descriptions of all, for anyone who asks. `secure` is a client with TLS.
    fn list(&self, secure: bool) -> Vec<(String, String)>;

    /// The export of this name.
    fn find(&self, name: &str) -> Option<Export>;
}

impl Exports for Vec<Export> {
    fn list(&self, secure: bool) -> Vec<(String, String)> {
        let visible = self.iter().filter(|export| secure || !export.tls_only);
        visible.map(|export| (export.name.clone(), export.description.clone())).collect()
    }

    fn find(&self, name: &str) -> Option<Export> {
        self.iter().find(|export| export.name == name).cloned()
    }
}

/// Does the server have TLS, and does it insist?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// It has none (NOTLS).
    #[default]
    None,
    /// Anyone who wants it, and anyone who wants an export that is for TLS only (SELECTIVETLS).
    Optional,
    /// Nothing else is possible before (FORCEDTLS).
    Required,
}

/// What a server is willing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// TLS.
    pub tls: Tls,
    /// The most that is agreed to.
    pub replies: Replies,
    /// How many options a client may send before it has chosen: without a bound it could
    /// ask for ever.
    pub options: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { tls: Tls::None, replies: Replies::Extended, options: 1024 }
    }
}

/// What to do after bytes were handled. Output goes first.
#[derive(Debug)]
pub enum Step {
    /// Go on: with what is left of the bytes, or with more of them.
    More,
    /// Send the output, then begin TLS as its server: whatever follows is inside of it. Then
    /// say so with [`Negotiation::secured`]. Bytes that are left over are a breach of the
    /// protocol: nobody may send any before TLS begins.
    StartTls,
    /// An export is chosen. What is left of the bytes is requests.
    Transmission(Session),
    /// The client has said goodbye, or cannot be helped: send the output, and close.
    Ended,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    ClientFlags,
    Options,
    /// This many bytes of an option that is too long are still to come.
    Skipping(u32),
    Securing,
    Over,
}

/// The server's end of the negotiation. See the [module](super).
#[derive(Debug)]
pub struct Negotiation {
    config: Config,
    state: State,
    output: Vec<u8>,
    no_zeroes: bool,
    is_secure: bool,
    replies: Replies,
    /// The export whose `base:allocation` was chosen.
    allocation_of: Option<String>,
    options: u32,
}

impl Negotiation {
    /// A client has connected: the greeting is in the output.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut output = Vec::with_capacity(64);
        output.extend_from_slice(&INIT.to_be_bytes());
        output.extend_from_slice(&OPTION.to_be_bytes());
        let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        output.extend_from_slice(&flags.to_be_bytes());
        Self {
            config,
            state: State::ClientFlags,
            output,
            no_zeroes: false,
            is_secure: false,
            replies: Replies::Simple,
            allocation_of: None,
            options: 0,
        }
    }

    /// What is to be sent, if there is something.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.output.is_empty()).then(|| mem::take(&mut self.output))
    }

    /// TLS is there.
    pub fn secured(&mut self) {
        if self.state == State::Securing {
            self.state = State::Options;
            self.is_secure = true;
            // What was agreed on in the open counts for nothing.
            self.replies = Replies::Simple;
            self.allocation_of = None;
        }
    }

    /// Is TLS there?
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Bytes came. Uses at most one message of them, and says how many it used: none where
    /// more are needed.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn handle(
        &mut self,
        bytes: &[u8],
        exports: &impl Exports,
    ) -> Result<(usize, Step), ProtocolError> {
        match self.state {
            State::ClientFlags => self.client_flags(bytes).map(|used| (used, Step::More)),
            State::Options => self.option(bytes, exports),
            State::Skipping(left) => {
                let used = bytes.len().min(left as usize);
                let left = left - used as u32;
                self.state = if left == 0 { State::Options } else { State::Skipping(left) };
                Ok((used, Step::More))
            }
            State::Securing => Ok((0, Step::StartTls)),
            State::Over => Ok((bytes.len(), Step::Ended)),
        }
    }

    fn client_flags(&mut self, bytes: &[u8]) -> Result<usize, ProtocolError> {
        let Some(flags) = Reader(bytes).u32() else { return Ok(0) };
        let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        if flags & !known != 0 {
            return Err(ProtocolError::Flags(flags));
        }
        self.no_zeroes = flags & u32::from(handshake::NO_ZEROES) != 0;
        if flags & u32::from(handshake::FIXED_NEWSTYLE) == 0 {
            // Such a client takes no replies to options: it may have its export, and no TLS.
            if self.config.tls == Tls::Required {
                return Err(ProtocolError::Malformed("no sign that it knows TLS"));
            }
            self.config.tls = Tls::None;
        }
        self.state = State::Options;
        Ok(4)
    }

    fn option(
        &mut self,
        bytes: &[u8],
        exports: &impl Exports,
    ) -> Result<(usize, Step), ProtocolError> {
        let mut reader = Reader(bytes);
        let (Some(magic), Some(wanted), Some(len)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            return Ok((0, Step::More));
        };
        if magic != OPTION {
            return Err(ProtocolError::Magic(magic));
        }
        if len > LONGEST_SKIP {
            return Err(ProtocolError::TooLong(len.into()));
        }
        if len as usize > LONGEST_OPTION {
            if wanted == option::EXPORT_NAME {
                return Err(ProtocolError::TooLong(len.into()));
            }
            self.count_option()?;
            self.refuse(wanted, reply::TOO_BIG, "longer than any option");
            self.state = State::Skipping(len);
            return Ok((OPTION_HEAD, Step::More));
        }
        let Some(data) = reader.bytes(len as usize) else { return Ok((0, Step::More)) };
        self.count_option()?;
        let step = self.answer(wanted, data, exports)?;
        if matches!(step, Step::Transmission(_) | Step::Ended) {
            self.state = State::Over;
        }
        Ok((OPTION_HEAD + data.len(), step))
    }

    fn count_option(&mut self) -> Result<(), ProtocolError> {
        self.options += 1;
        if self.options > self.config.options {
            return Err(ProtocolError::Malformed("more options than anybody needs"));
        }
        Ok(())
    }

    fn answer(
        &mut self,
        wanted: u32,
        data: &[u8],
        exports: &impl Exports,
    ) -> Result<Step, ProtocolError> {
        let insists = self.config.tls == Tls::Required && !self.is_secure;
        if insists && !matches!(wanted, option::STARTTLS | option::ABORT) {
            if wanted == option::EXPORT_NAME {
                return Err(ProtocolError::Malformed("the name of an export before TLS"));
            }
            self.refuse(wanted, reply::TLS_REQUIRED, "TLS comes first: NBD_OPT_STARTTLS");
            return Ok(Step::More);
        }
        match wanted {
            option::EXPORT_NAME => return self.export_name(data, exports).map(Step::Transmission),
            option::INFO | option::GO => {
                if let Some(session) = self.info(wanted, data, exports) {
                    return Ok(Step::Transmission(session));
                }
            }
            option::ABORT => {
                self.acknowledge(wanted);
                return Ok(Step::Ended);
            }
            option::LIST if data.is_empty() => {
                for (name, description) in exports.list(self.is_secure) {
                    let len = (name.len() as u32).to_be_bytes();
                    let parts = [&len[..], name.as_bytes(), description.as_bytes()];
                    self.reply(wanted, reply::SERVER, &parts);
                }
                self.acknowledge(wanted);
            }
            option::STARTTLS if data.is_empty() => return Ok(self.start_tls(wanted)),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.agree(wanted, Replies::Structured);
            }
            option::EXTENDED_HEADERS if data.is_empty() => self.agree(wanted, Replies::Extended),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(wanted, data, exports);
            }
            option::LIST
            | option::STARTTLS
            | option::STRUCTURED_REPLY
            | option::EXTENDED_HEADERS => {
                self.refuse(wanted, reply::INVALID, "this option has no data");
            }
            _ => self.refuse(wanted, reply::UNSUPPORTED, "this option is not known here"),
        }
        Ok(Step::More)
    }

    /// The old option, which has no way to say what is wrong but to close.
    fn export_name(
        &mut self,
        data: &[u8],
        exports: &impl Exports,
    ) -> Result<Session, ProtocolError> {
        let name = text(data).ok_or(ProtocolError::Malformed("a name that is no text"))?;
        let export = exports
            .find(name)
            .filter(|export| self.is_secure || !export.tls_only)
            .ok_or(ProtocolError::Malformed("the name of an export that is not here"))?;
        let session = self.session(export);
        self.output.extend_from_slice(&session.export().size.to_be_bytes());
        let features = session.export().features.to_wire();
        self.output.extend_from_slice(&features.to_be_bytes());
        if !self.no_zeroes {
            self.output.extend_from_slice(&[0; ZEROES]);
        }
        Ok(session)
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`. Gives the session that the latter begins.
    fn info(&mut self, wanted: u32, data: &[u8], exports: &impl Exports) -> Option<Session> {
        let mut reader = Reader(data);
        let name = reader.string();
        let count = reader.u16();
        let asked: Vec<u16> = core::iter::from_fn(|| reader.u16()).collect();
        let (Some(name), true) = (name, count == Some(asked.len() as u16) && reader.is_empty())
        else {
            self.refuse(wanted, reply::INVALID, "the lengths in this option contradict each other");
            return None;
        };
        let Some(export) = exports.find(name) else {
            self.refuse(wanted, reply::UNKNOWN, "there is no export of this name");
            return None;
        };
        if export.tls_only && !self.is_secure {
            self.refuse(wanted, reply::TLS_REQUIRED, "this export is for clients with TLS");
            return None;
        }
        // Anyone who does not ask for sizes of blocks may send any request.
        if export.blocks.minimum > 1 && !asked.contains(&info::BLOCK_SIZE) {
            let why = "this export has blocks: ask for NBD_INFO_BLOCK_SIZE, and keep to it";
            self.refuse(wanted, reply::BLOCK_SIZE_REQUIRED, why);
            return None;
        }
        let session = self.session(export);
        let export = session.export();
        let (size, features) = (export.size.to_be_bytes(), export.features.to_wire());
        let parts = [&info::EXPORT.to_be_bytes()[..], &size, &features.to_be_bytes()];
        self.reply(wanted, reply::INFO, &parts);
        if asked.contains(&info::NAME) {
            let parts = [&info::NAME.to_be_bytes()[..], export.name.as_bytes()];
            self.reply(wanted, reply::INFO, &parts);
        }
        if asked.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            let parts = [&info::DESCRIPTION.to_be_bytes()[..], export.description.as_bytes()];
            self.reply(wanted, reply::INFO, &parts);
        }
        let blocks = export.blocks;
        let parts = [
            &info::BLOCK_SIZE.to_be_bytes()[..],
            &blocks.minimum.to_be_bytes(),
            &blocks.preferred.to_be_bytes(),
            &blocks.maximum.to_be_bytes(),
        ];
        self.reply(wanted, reply::INFO, &parts);
        self.acknowledge(wanted);
        (wanted == option::GO).then_some(session)
    }

    fn session(&self, mut export: Export) -> Session {
        if self.replies >= Replies::Structured {
            export.features = export.features.with(Features::DONT_FRAGMENT);
        } else {
            export.features = export.features.without(Features::DONT_FRAGMENT);
        }
        let has_status = self.allocation_of.as_deref() == Some(export.name.as_str());
        Session::new(export, self.replies, has_status)
    }

    fn start_tls(&mut self, wanted: u32) -> Step {
        if self.is_secure {
            self.refuse(wanted, reply::INVALID, "TLS is there");
        } else if self.config.tls == Tls::None {
            self.refuse(wanted, reply::POLICY, "this server has no TLS");
        } else {
            self.acknowledge(wanted);
            self.state = State::Securing;
            return Step::StartTls;
        }
        Step::More
    }

    fn agree(&mut self, wanted: u32, replies: Replies) {
        if self.config.replies < replies {
            self.refuse(wanted, reply::UNSUPPORTED, "not by this server");
        } else if self.replies == Replies::Extended && replies == Replies::Structured {
            let why = "extended headers are in force, which have structured replies";
            self.refuse(wanted, reply::EXTENDED_REQUIRED, why);
        } else if self.replies >= replies {
            self.refuse(wanted, reply::INVALID, "this is agreed on");
        } else {
            self.replies = replies;
            self.acknowledge(wanted);
        }
    }

    fn contexts(&mut self, wanted: u32, data: &[u8], exports: &impl Exports) {
        let sets = wanted == option::SET_META_CONTEXT;
        if sets {
            // A request that fails leaves nothing chosen.
            self.allocation_of = None;
        }
        if self.replies == Replies::Simple {
            self.refuse(wanted, reply::INVALID, "structured replies come first");
            return;
        }
        let mut reader = Reader(data);
        let (name, count) = (reader.string(), reader.u32());
        let queries: Vec<&str> = core::iter::from_fn(|| reader.string()).collect();
        let whole = count == Some(queries.len() as u32) && reader.is_empty();
        let (Some(name), true) = (name, whole) else {
            self.refuse(wanted, reply::INVALID, "the lengths in this option contradict each other");
            return;
        };
        let Some(export) = exports.find(name) else {
            self.refuse(wanted, reply::UNKNOWN, "there is no export of this name");
            return;
        };
        if export.tls_only && !self.is_secure {
            self.refuse(wanted, reply::TLS_REQUIRED, "this export is for clients with TLS");
            return;
        }
        let matches = |query: &&str| *query == BASE_ALLOCATION || !sets && *query == "base:";
        // A list without a query is one of everything.
        if queries.iter().any(matches) || !sets && queries.is_empty() {
            let id = if sets { Session::ALLOCATION } else { 0 };
            let parts = [&id.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()];
            self.reply(wanted, reply::META_CONTEXT, &parts);
            if sets {
                self.allocation_of = Some(export.name);
            }
        }
        self.acknowledge(wanted);
    }

    fn reply(&mut self, wanted: u32, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.output.extend_from_slice(&OPTION_REPLY.to_be_bytes());
        for number in [wanted, kind, len as u32] {
            self.output.extend_from_slice(&number.to_be_bytes());
        }
        for part in parts {
            self.output.extend_from_slice(part);
        }
    }

    fn acknowledge(&mut self, wanted: u32) {
        self.reply(wanted, reply::ACK, &[]);
    }

    fn refuse(&mut self, wanted: u32, kind: u32, why: &str) {
        self.reply(wanted, kind, &[why.as_bytes()]);
    }
}
