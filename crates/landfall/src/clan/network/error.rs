//! Why a node could not be opened, and what the engine's answers mean for users.

use std::io;

use clan_dsm::{Ended, Reason};

use crate::clan::Error;

/// Why a node could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no way for a packet.
    #[error("a node needs at least one path: add one with `Builder::path`")]
    NoPath,
    /// More paths than the configuration allows.
    #[error("{paths} paths are more than the {most} of the configuration: raise `Config::paths`")]
    TooManyPaths {
        /// How many.
        paths: usize,
        /// The bound.
        most: usize,
    },
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

/// What an end means for whoever waited for a success.
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
