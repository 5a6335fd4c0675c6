//! What can go wrong, and what to do about it.

use std::io;
use std::time::Duration;

use landfall_placement::Peer;
use landfall_seal::HandshakeError;
use landfall_transport::memory::{AccessError, LendRefusal, TakeBackError};
use landfall_transport::remap::PagesError;
use spec_defrag::admission;
use spec_defrag::cut::CutError;

use super::{Delivery, Technique};
use crate::security::SecurityError;

/// Why a receiver that is asked has no keys with its sender.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no encrypted way to ask {}: {advice}", Peer::Ethernet(*.receiver))]
#[non_exhaustive]
pub struct NoKeys {
    /// The receiver.
    pub receiver: [u8; 6],
    /// Why.
    pub why: HandshakeError,
    /// What to do.
    pub advice: String,
}

/// Why a receiver or a sender could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The packet socket, the ring or the rings of AF_XDP could not be opened.
    #[error(transparent)]
    Path(#[from] landfall_transport::OpenError),
    /// What AF_XDP takes the kernel does not get.
    #[error(
        "xdp takes fragments alone, for the kernel gets nothing of what it takes: leave `wanted` and `filter` as they are, or take packet-ring"
    )]
    OnlyFragments,
    /// There is no `io_uring`.
    #[error("cannot open an io_uring: {0}")]
    Uring(#[source] io::Error),
    /// The receiver's configuration cannot work.
    #[error(transparent)]
    Config(#[from] spec_defrag::ConfigError),
    /// Admission control cannot be encrypted.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The configuration of admission control cannot work.
    #[error("admission control: {0}")]
    Admission(#[from] admission::ConfigError),
    /// Frames do not lie in shared memory.
    #[error(
        "delivery {delivery} needs a technique that shares memory with the kernel, and {technique} \
         does not: take packet-ring, or another delivery"
    )]
    NothingToLend {
        /// What was asked for.
        delivery: Delivery,
        /// The technique.
        technique: Technique,
    },
    /// Frames of the VLAN cannot be heard so.
    #[error(
        "frames of VLAN {id} cannot be heard here: take one of 1 to 4094, packet-ring, xdp or (for one \
         tag) packet, all protocols (`CapturePoint::Everything`), and no gate; or open the VLAN's own \
         interface"
    )]
    NoVlan {
        /// Which.
        id: u16,
    },
    /// Only one receiver can be opened so.
    #[error("{what} cannot be one of several: take packet-ring, packet or xdp, without a gate")]
    NotShared {
        /// What was asked for.
        what: String,
    },
    /// There are fewer queues than members.
    #[error(
        "the interface has {found} queues, and each of {members} members needs one: open fewer"
    )]
    Members {
        /// Members that were asked for.
        members: usize,
        /// Queues that there are.
        found: usize,
    },
    /// This build has no such technique.
    #[error("{technique} is not in this build: {help}")]
    NotBuilt {
        /// Which.
        technique: Technique,
        /// What helps.
        help: &'static str,
    },
    /// The memory of a receiver or sender could not be lent.
    #[error("no room in the region table: {0}")]
    NotLent(#[from] LendRefusal),
    /// There is no memory for this many pages, or of that length.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// There is no address space for this many pages.
    #[error("no address space for {bytes} bytes of pages: ask for fewer ({source})")]
    NoMemory {
        /// How much was wanted.
        bytes: u64,
        /// What was said.
        source: io::Error,
    },
    /// The environment asks for a transport that there is not.
    #[error("{0}")]
    Configuration(#[source] io::Error),
    /// The process has no descriptor left.
    #[error("cannot make an event descriptor: {0}")]
    Bell(#[source] io::Error),
    /// The driving thread could not be started.
    #[error("cannot start the driving thread: {0}")]
    Thread(#[source] io::Error),
    /// The operating system gave no random seed.
    #[error("the operating system gives no random seed: {0}")]
    Seed(String),
}

/// What went wrong while receiving or sending.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket or ring is broken for good: open anew.
    #[error("the link is broken: {0}")]
    Broken(#[from] io::Error),
    /// The packet cannot be cut: nothing of it was sent.
    #[error("the packet cannot be sent: {0}")]
    Cut(#[from] CutError),
    /// The kernel does not cut the datagram: it was not sent, nor were those behind it.
    #[error(transparent)]
    NotCut(#[from] landfall_transport::scatter::CutError),
    /// A datagram is longer than IP can carry.
    #[error("{len} bytes do not fit in one datagram: {most} do")]
    TooLong {
        /// How many there are.
        len: u64,
        /// How many fit.
        most: u64,
    },
    /// The interface takes nothing: its queue has been full for so long.
    #[error("the interface took nothing for {0:?}: is its other end up?")]
    Stuck(Duration),
    /// Bytes outside of registered memory were named.
    #[error("{len} bytes from {offset} on are not within {whole} bytes of registered memory")]
    OutOfBounds {
        /// Where they start.
        offset: u64,
        /// How many they are.
        len: u64,
        /// How many there are.
        whole: u64,
    },
    /// The memory is registered with another sender.
    #[error("the memory is registered with another sender: register it with this one")]
    ForeignMemory,
    /// Registered memory was refused.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The memory could not be registered.
    #[error("the memory cannot be registered: {0}")]
    NotLent(#[from] LendRefusal),
    /// The memory is not given back.
    #[error(transparent)]
    TakeBack(#[from] TakeBackError),
    /// As many transfers as may have begun and not ended.
    #[error(transparent)]
    TooMany(#[from] admission::TooMany),
    /// The sender was opened without admission control.
    #[error("this sender asks nobody: open it with `SenderBuilder::ask`")]
    NoAdmission,
    /// The receiver's thread is gone, and says no more why.
    #[error("the receiver has ended: open another one")]
    Ended,
}
