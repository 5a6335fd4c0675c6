//! What the user asked for and cannot have.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::ConfigError;

/// What an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// An interface.
    Interface,
    /// A protection domain.
    Domain,
    /// A registration of memory.
    MemoryKey,
    /// A completion queue, or a place in one.
    CompletionQueue,
    /// A shared receive queue.
    SharedReceiveQueue,
    /// A queue pair.
    QueuePair,
    /// A port that is listened on.
    Listener,
    /// An event that nobody has taken yet.
    Event,
    /// A group that is listened to.
    Group,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interface => "interface",
            Self::Domain => "protection domain",
            Self::MemoryKey => "memory key",
            Self::CompletionQueue => "completion queue",
            Self::SharedReceiveQueue => "shared receive queue",
            Self::QueuePair => "queue pair",
            Self::Listener => "listener",
            Self::Event => "event",
            Self::Group => "group",
        })
    }
}

/// Why a command of the management was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // The caller's own mistake.
    /// The name belongs to nothing (any more).
    #[error("this {0} does not exist any more: use the name that its creation gave")]
    Unknown(Object),
    /// It is in use.
    #[error("this {0} is in use: destroy what uses it, or poll its completions, and try again")]
    Busy(Object),
    /// The memory has no bytes, or its end is not a number.
    #[error("registered memory has at least one byte, and ends before offset 2^64")]
    BadMemory,
    /// A value of the configuration of TCP is out of its range.
    #[error("{0}")]
    Config(ConfigError),
    /// A number that cannot be.
    #[error("a queue has a depth of at least one and at most what the configuration allows")]
    BadDepth,
    /// A shared receive queue of another domain, or that completes elsewhere.
    #[error(
        "a shared receive queue is for queue pairs of its own protection domain whose receives \
         complete where its own do"
    )]
    ForeignQueue,
    /// The queue pair does something else.
    #[error("the queue pair was created for the other service: create one for this one")]
    WrongService,
    /// The queue pair is connected, bound, offered, or was so before.
    #[error("the queue pair is not idle: it can be connected, bound or offered only once")]
    NotIdle,
    /// The queue pair has no connection.
    #[error("the queue pair has no connection that could be shut down")]
    NotConnected,
    /// An interface without an address, with a group's address, or with an
    /// address that no host can have.
    #[error("an interface has a station address that is no group's, and addresses of one host")]
    BadInterface,
    /// An interface with a tag, where a card places what comes.
    #[error(
        "a card that places payloads reads frames without a tag: leave the VLAN out, or the card"
    )]
    VlanOnCard,
    /// Nobody can be connected to there.
    #[error("{0} is not the address and port of one host")]
    BadAddress(SocketAddr),
    /// That is no group, or none that the queue pair listens to.
    #[error("{0} is no group that the queue pair can listen to or leave")]
    NoGroup(IpAddr),
    /// No interface has that address.
    #[error("no interface has the address {0}: add it to an interface first")]
    NotOurs(IpAddr),
    /// Another has that address and port.
    #[error("{0} is in use already: choose another port, or port 0 for any that is free")]
    Taken(SocketAddr),
    /// What comes to that port, from there, is another's of several adapters that share a station.
    #[error(
        "{0} is in the share of another adapter: use that one, or port 0 for any in this share"
    )]
    OfOtherShare(SocketAddr),

    // Nobody's: what there is does not suffice.
    /// The bound of the configuration is reached.
    #[error("as many of these exist as the configuration allows ({0}): release one, or raise it")]
    Full(Object),
    /// Every port of the range for short-lived ones is in use.
    #[error("no port is left for another connection to there: close one first")]
    NoPort,

    // The network's.
    /// No interface leads there.
    #[error("no interface leads to {0}: add one, or a gateway to one")]
    NoRoute(IpAddr),
}

/// Why a work request was refused. It is not in the queue, and will not
/// complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    // The caller's own mistake.
    /// The queue pair does not exist (any more).
    #[error("this queue pair does not exist any more")]
    UnknownQueuePair,
    /// It has ended, or no more is sent since it was shut down.
    #[error("the queue pair takes no more requests: it has ended, or was shut down")]
    Ended,
    /// A request without bytes.
    #[error("a request has at least one byte: on TCP a message without bytes cannot be told")]
    Empty,
    /// More bytes than a message may have.
    #[error("the request has more bytes than a message of this service may have")]
    TooLong,
    /// More buffers than the configuration allows.
    #[error("the request has more buffers than the configuration allows: join some")]
    TooManyBuffers,
    /// Its room is that of a shared queue.
    #[error("this queue pair takes its room from a shared receive queue: post it there")]
    SharedReceives,
    /// The shared receive queue does not exist (any more).
    #[error("this shared receive queue does not exist any more")]
    UnknownSharedQueue,
    /// Datagrams are addressed one by one.
    #[error("a datagram needs a destination: one host, and a port that is not 0")]
    NoDestination,
    /// Connected queue pairs have one peer.
    #[error("a connected queue pair sends to its peer: leave the destination out")]
    NotADatagram,
    /// A word for a message of a connection that has not agreed on that.
    #[error(
        "the connection carries no immediate data: both ends have to be open queue pairs of \
         messages whose configuration asks for it"
    )]
    NoImmediates,
    /// A datagram before `bind`.
    #[error("the queue pair is not bound yet: bind it to a port first")]
    NotBound,
    /// The key does not exist (any more).
    #[error("the memory key does not exist any more")]
    UnknownKey,
    /// The key belongs to another protection domain.
    #[error("the memory belongs to another protection domain than the queue pair")]
    WrongDomain,
    /// The registration does not allow it.
    #[error("the memory was not registered for that: sends read, receives write")]
    NoRight,
    /// The buffer leaves the registered memory.
    #[error("the buffer leaves the registered memory")]
    OutOfBounds,

    // Nobody's: what there is does not suffice.
    /// The queue is full.
    #[error("the queue is full: poll completions, and post again")]
    QueueFull,
    /// The completion queue could not take the completion.
    #[error("the completion queue is full: poll it, and post again")]
    CompletionQueueFull,

    // The network's.
    /// No interface leads there.
    #[error("no interface leads to that destination")]
    NoRoute,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn messages_say_what_to_do() {
        let full = Error::Full(Object::QueuePair).to_string();
        assert!(full.contains("queue pair") && full.contains("release one"), "{full}");
        let taken = Error::Taken(([10, 0, 0, 1], 80).into()).to_string();
        assert!(taken.contains("10.0.0.1:80") && taken.contains("another port"), "{taken}");
    }
}
