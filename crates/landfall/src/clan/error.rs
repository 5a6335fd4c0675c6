//! What can go wrong, and what to do about it.

use std::io;

use clan_dsm::{Ended, NoCookie, Reason};
use landfall_placement::Peer;
use landfall_seal::HandshakeError;

/// Why something was refused, or did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process at the other end ended, its host does not answer, or it was
    /// restarted.
    #[error("the peer is gone: connect to it again")]
    PeerLost,
    /// The peer wrote something into shared memory that no correct peer writes.
    #[error("the peer does not follow the protocol: {0}")]
    PeerMisbehaved(Misbehaviour),
    /// The peer refused what was written into its memory, or asked of it.
    #[error("the peer refused it: {0}")]
    Refused(Reason),
    /// The peer has finished, and all that it sent was received.
    #[error("the peer has closed it")]
    Closed,
    /// A message ended in the middle: its sender gave it up.
    #[error("a message was given up in the middle: open another connection")]
    Cut,
    /// It took longer than it was allowed to.
    #[error("the deadline is over")]
    TimedOut,
    /// The send buffer to the peer is full: try again later.
    #[error("the way to the peer is full: wait for room, then do it again")]
    Busy,
    /// Bytes outside of the memory were named.
    #[error("{len} bytes at {offset} are not within {size} bytes of memory")]
    OutOfBounds {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
        /// How many there are.
        size: u64,
    },
    /// A word, or a range that has to consist of words, is not where words are.
    #[error("{0} is no multiple of eight, where words begin")]
    Unaligned(u64),
    /// The 32 bytes are no cookie.
    #[error(transparent)]
    NoCookie(#[from] NoCookie),
    /// The memory behind the cookie is not there (any more).
    #[error("the memory behind the cookie is not there any more: ask its owner for a new one")]
    StaleCookie,
    /// The cookie was not given for that.
    #[error("the cookie was not given for that")]
    Forbidden,
    /// No way leads to the host of the cookie.
    #[error("there is no way to the host of the cookie: connect to it first")]
    NoRoute,
    /// There are no keys for a link: the peer is not who it should be, or is not built to encrypt.
    #[error("no encrypted link with {peer}: {advice}")]
    NoKeys {
        /// With whom.
        peer: Peer,
        /// Why.
        why: HandshakeError,
        /// What to do.
        advice: String,
    },
    /// A key was pinned, and nothing is encrypted on the way there.
    #[error(
        "a key is pinned for {peer}, and this node encrypts nothing on the way there: build it \
         without `plaintext()`, with `encrypt_loopback()` for a loopback address"
    )]
    NotEncrypted {
        /// For whom.
        peer: Peer,
    },
    /// Something is to be for one peer alone, and this one has not proven who it is.
    #[error(
        "nothing can be for {peer} alone, which has not proven who it is: encrypt the link with it \
         by key pairs or certificates that both show (with `encrypt_loopback()` for a loopback \
         address), or give it a cookie that is for anyone who has it"
    )]
    NotProven {
        /// Which.
        peer: Peer,
    },
    /// A configured bound is reached.
    #[error("no room for another {0}: drop one, or raise the bound")]
    NoRoom(&'static str),
    /// The message is longer than the other side has room for.
    #[error("{len} bytes are more than the {most} that fit")]
    TooLong {
        /// How long it is.
        len: u64,
        /// How long it may be.
        most: u64,
    },
    /// The memory that was exchanged does not fit the configuration of this side.
    #[error(
        "the peer's memory has {found} bytes where {expected} are needed: configure both alike"
    )]
    Mismatch {
        /// How many bytes this side needs.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// The two sides declare different element types.
    #[error(
        "the peer's elements are of another layout: {theirs:#018x} where this side has \
         {ours:#018x}: compile both with the same declaration"
    )]
    OtherLayout {
        /// The fingerprint of this side's layout.
        ours: u64,
        /// That of the peer's; zero: it has none.
        theirs: u64,
    },
    /// The configuration is invalid.
    #[error("that cannot be configured: {0}")]
    BadConfig(&'static str),
    /// The node was closed, or its thread is gone.
    #[error("the node does not run any more: open another one")]
    NodeGone,
    /// The engine refused, for another reason.
    #[error("refused: {0}")]
    Engine(clan_dsm::Error),
    /// The operating system refused.
    #[error("{call} failed: {source}")]
    System {
        /// Which call.
        call: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Does it pass by itself, so that the call may be repeated later?
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Busy | Self::TimedOut)
    }

    /// Is the peer, or the memory that it lent, gone? To go on, connect
    /// again.
    ///
    /// Ask it of what was connected: there [`NoRoute`](Self::NoRoute) says that the way is gone,
    /// and [`Refused`](Self::Refused) that the memory is. During a connect they may also mean that
    /// there never was one.
    ///
    /// ```
    /// use landfall::clan::{Fabric, Remote, Rights, Threads};
    ///
    /// let (here, there) = Threads::pair()?;
    /// let (memory, cookie) = there.expose(4096, Rights::Write)?;
    /// let mut window = here.map(&cookie)?;
    /// window.store(8, 42)?;
    /// drop((memory, there));
    /// assert!(window.store(8, 43).unwrap_err().is_gone());
    /// # Ok::<(), landfall::clan::Error>(())
    /// ```
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::PeerLost | Self::StaleCookie | Self::Refused(_) | Self::NoRoute)
    }
}

/// What a peer wrote that no correct peer writes. Only its own data is spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misbehaviour {
    /// A counter went back, or ahead by more than there is room for.
    #[error("a counter moved from {from} to {to}, with room for {room}")]
    Counter {
        /// What it was.
        from: u64,
        /// What it is.
        to: u64,
        /// How far it may move.
        room: u64,
    },
    /// A length that cannot be.
    #[error("a length of {len}, where at most {most} are possible")]
    Length {
        /// What it says.
        len: u64,
        /// What it may be at most.
        most: u64,
    },
    /// A flag has a value that means nothing, or changed at the wrong time.
    #[error("a flag that is {0}")]
    Flag(u64),
    /// A header with unknown contents.
    #[error("a header that is {0:#x}")]
    Header(u64),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::PeerLost | Error::Refused(_) => io::ErrorKind::ConnectionReset,
            Error::PeerMisbehaved(_) => io::ErrorKind::InvalidData,
            Error::Closed | Error::Cut => io::ErrorKind::UnexpectedEof,
            Error::TimedOut | Error::NoKeys { why: HandshakeError::Unfinished, .. } => {
                io::ErrorKind::TimedOut
            }
            Error::Busy => io::ErrorKind::WouldBlock,
            Error::StaleCookie | Error::NoRoute => io::ErrorKind::NotConnected,
            Error::NodeGone => io::ErrorKind::BrokenPipe,
            Error::Forbidden | Error::NoKeys { .. } | Error::NotProven { .. } => {
                io::ErrorKind::PermissionDenied
            }
            Error::System { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// What an end means for those who waited for a success.
pub(crate) const fn ended(why: Ended) -> Error {
    match why {
        Ended::There(reason) => Error::Refused(reason),
        Ended::MemoryFailed => Error::Refused(Reason::MemoryFailed),
        Ended::Here => Error::Closed,
        Ended::Silent | Ended::Restarted | Ended::LinkGone | Ended::Damaged => Error::PeerLost,
    }
}

/// What a refusal of the engine means: `what` there was no room for.
pub(crate) const fn refused(error: clan_dsm::Error, what: &'static str) -> Error {
    use clan_dsm::Error as Engine;
    match error {
        Engine::PathDown | Engine::NoLink => Error::NoRoute,
        Engine::NotOpen => Error::Closed,
        Engine::Forbidden => Error::Forbidden,
        Engine::Busy => Error::Busy,
        Engine::NoRoom => Error::NoRoom(what),
        other => Error::Engine(other),
    }
}
