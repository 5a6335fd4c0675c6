//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::ops::Deref;

use landfall_placement::{PathId, Peer};
use landfall_seal::HandshakeError;
use landfall_transport::memory::{AccessError, ArenaError, LendRefusal, Memory, TakeBackError};
use stp_core::{ConfigError, Ended};

use crate::security::SecurityError;

/// Why an operation was not begun, or did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine did not begin it: nothing has happened.
    #[error("not begun: {0}")]
    Refused(#[from] stp_core::Error),
    /// It was begun and ended early.
    #[error("ended early, after {len} bytes: {why}")]
    Ended {
        /// This many bytes, from the start, are in place at the receiver.
        len: u64,
        /// Why.
        why: Ended,
    },
    /// The connection is closed, or being closed: nothing begins on it any more.
    #[error("the connection is closed{}", reason(*.why))]
    Closed {
        /// Why; nothing after a graceful close.
        why: Option<Ended>,
    },
    /// The other side did not accept the connection.
    #[error("no connection: {0}")]
    NotConnected(Ended),
    /// The host's name could not be looked up.
    #[error("the host {name} is not known: {source}")]
    Name {
        /// What was looked up.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was not over in the time that was given for it, and was given up.
    #[error("not done within {limit:?}")]
    TimedOut {
        /// The time.
        limit: landfall_placement::Duration,
    },
    /// There are no keys for a connection: the peer is not who it should be, or is not built to
    /// encrypt.
    #[error("no encrypted connection to {peer}: {advice}")]
    NoKeys {
        /// To whom.
        peer: Peer,
        /// Why.
        why: HandshakeError,
        /// What to do.
        advice: String,
    },
    /// A key was pinned, and nothing is encrypted on the way there.
    #[error(
        "a key is pinned for {peer}, and this endpoint encrypts nothing on the way there: build \
         it without `plaintext()`, with `encrypt_loopback()` for a loopback address"
    )]
    NotEncrypted {
        /// For whom.
        peer: Peer,
    },
    /// No path of this endpoint leads to such a peer.
    #[error(
        "no path of this endpoint leads to {peer}: bind one of its kind (UDP for a socket \
         address, Ethernet for a station, IP for a host)"
    )]
    NoPathTo {
        /// Whom.
        peer: Peer,
    },
    /// The endpoint has no such path.
    #[error("path {} is not of this endpoint: `Endpoint::paths` lists those that are", .0.0)]
    UnknownPath(PathId),
    /// The endpoint was closed, or its driving thread is gone.
    #[error("the endpoint is closed")]
    EndpointClosed,
    /// Bytes outside of a region were named.
    #[error("the range {start}..{end} is not within {len} bytes of registered memory")]
    OutOfBounds {
        /// First byte.
        start: u64,
        /// First byte behind.
        end: u64,
        /// How many there are.
        len: u64,
    },
    /// The memory is registered with another endpoint.
    #[error("the memory is registered with another endpoint: register it with this one")]
    ForeignMemory,
    /// The memory's grant has ended.
    #[error("the memory was taken back: register it again")]
    TakenBack,
    /// The memory could not be registered.
    #[error("the memory cannot be registered: {0}")]
    NotLent(LendRefusal),
    /// Registered memory was refused.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The memory is not given back.
    #[error(transparent)]
    TakeBack(#[from] TakeBackError),
    /// The process has no descriptor left for a completion queue.
    #[error("no descriptor for the completion queue: {0}")]
    NoDescriptor(#[source] io::Error),
    /// There is no room for a copy of the bytes.
    #[error("no memory for a copy of the bytes: {0}")]
    Arena(#[from] ArenaError),
}

fn reason(why: Option<Ended>) -> String {
    why.map_or_else(String::new, |why| format!(": {why}"))
}

impl Error {
    /// Is this the regular end of a connection?
    #[must_use]
    pub const fn is_graceful_close(&self) -> bool {
        matches!(self, Self::Closed { why: None })
    }
}

/// Why an operation failed, and the memory that was lent for it.
///
/// Whatever the reason (the other side refused or is gone, the endpoint was closed, it was
/// [cancelled](super::Operation::cancel)): nobody uses the memory any more. It derefs to the
/// reason, and `?` makes an [`Error`] of it where that is all that counts.
///
/// ```
/// use landfall::stp::{Error, Memory, Transport, blocking::Endpoint};
///
/// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let listener = server.listen(7)?;
/// let connection = client.connect(server.local().unwrap(), 7)?;
/// let sending = connection.send(Memory::from_bytes(b"to nobody")).start();
/// drop(listener.accept()?.offer()?); // The other side does not want it.
///
/// let failed = sending.wait().unwrap_err();
/// assert!(matches!(*failed, Error::Ended { len: 0, .. }), "{failed}");
/// let memory = failed.into_memory().expect("it was lent");
/// assert_eq!(&*memory, b"to nobody");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Failed {
    why: Error,
    memory: Option<Memory>,
}

impl Failed {
    pub(crate) const fn new(why: Error, memory: Option<Memory>) -> Self {
        Self { why, memory }
    }

    /// Why.
    #[must_use]
    pub const fn why(&self) -> &Error {
        &self.why
    }

    /// The memory, with whatever arrived in it. Nothing where none was lent for this operation
    /// alone: registered memory stays registered, and of other bytes there is a copy only.
    #[must_use]
    pub fn into_memory(self) -> Option<Memory> {
        self.memory
    }

    /// Both.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<Memory>) {
        (self.why, self.memory)
    }
}

impl From<Error> for Failed {
    fn from(why: Error) -> Self {
        Self::new(why, None)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.why
    }
}

impl Deref for Failed {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.why
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory.as_ref().map(|memory| memory.len());
        f.debug_struct("Failed").field("why", &self.why).field("memory", &memory).finish()
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.why.source()
    }
}

/// Why an endpoint could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no way for a packet.
    #[error("an endpoint needs at least one path: add one with `Builder::path`")]
    NoPath,
    /// More paths than the configuration allows.
    #[error("{paths} paths are more than the {most} of the configuration: raise `Config::paths`")]
    TooManyPaths {
        /// How many.
        paths: usize,
        /// The bound.
        most: usize,
    },
    /// A value of the configuration is out of its range.
    #[error(
        "the configuration of the endpoint cannot be: {0}. Change that field of what `Builder::config` gets"
    )]
    Config(#[from] ConfigError),
    /// Several threads share one path of UDP or Ethernet, and nothing else.
    #[error(
        "several threads need exactly one path, of `Transport::udp`, `Transport::udp_packet` or \
         `Transport::ethernet`, and `Builder::bind`: leave `Builder::threads` out for anything else"
    )]
    NotShared,
    /// A path could not be opened.
    #[error("cannot open path {path}, {what}: {source}")]
    Path {
        /// Which, in the order in which they were added.
        path: u16,
        /// What it is.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The environment asks for a transport that there is not.
    #[error("{0}")]
    Configuration(#[source] io::Error),
    /// Nothing can be encrypted.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The driving thread could not be started.
    #[error("cannot start the driving thread: {0}")]
    Thread(#[source] io::Error),
    /// The process has no descriptor left.
    #[error("cannot make an event descriptor: {0}")]
    Bell(#[source] io::Error),
    /// The operating system gave no random seed.
    #[error("the operating system gives no random seed: {0}")]
    Seed(String),
}
