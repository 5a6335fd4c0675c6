//! [`OpenError`]: why a node could not be opened.

use std::io;

use clan_dsm::ConfigError;
use landfall_placement::Peer;

use crate::security::SecurityError;

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
    /// A path that several engines cannot share.
    #[error(
        "several threads cannot share path {path}, {what}: take `Transport::udp` or \
         `Transport::ethernet`, as they are, or leave `Builder::threads` out"
    )]
    PathNotShared {
        /// Which, in the order in which they were added.
        path: u16,
        /// What it is.
        what: String,
    },
    /// What several engines cannot do: why, and what to do.
    #[error("a node with several threads {0}")]
    NotShared(&'static str),
    /// A value of the configuration is out of its range.
    #[error(
        "the configuration of the node cannot be: {0}. Change that field of what `Builder::config` gets"
    )]
    Config(#[from] ConfigError),
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
    /// A native link has no frames, and nothing that could be encrypted.
    #[error(
        "path {path} is a native link, which cannot be encrypted, and leaves the host: build the \
         node with `plaintext()` if nobody else is on that link"
    )]
    NativeInClear {
        /// Which, in the order in which they were added.
        path: u16,
    },
    /// Nothing can be encrypted.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The multicast group cannot be joined.
    #[error(
        "cannot join the group {} to find nodes by name: {source}. Choose another one with \
         `Discovery::group`, its interface with `Discovery::interface`, or a list of nodes with \
         `Discovery::list`",
        group.map_or_else(String::new, |group| group.to_string())
    )]
    Discovery {
        /// Which.
        group: Option<std::net::SocketAddr>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No path hears such a group.
    #[error(
        "{0} cannot be multicast to: give a group of IP with a port (239.0.0.0/8 or ff00::/8) and \
         a path by UDP of the same family, or a group of Ethernet stations and a path over Ethernet"
    )]
    NoMulticast(Peer),
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
