//! Why an interface could not be made, and what would help.

use std::io;

use super::super::error::{Error, OpenError};
use super::{MTU_MAX, MTU_MIN};

/// Why an interface with a large MTU could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BigMtuError {
    /// The link below could not be opened, to receive or to send.
    #[error("the link below: {0}")]
    Lower(#[from] OpenError),
    /// Memory for packets could not be registered.
    #[error(transparent)]
    Memory(#[from] Error),
    /// The TAP interface could not be made.
    #[error(transparent)]
    Tap(#[from] landfall_transport::OpenError),
    /// The kernel uses the link below itself.
    #[error(
        "{lower} is in use by the kernel, with {what}: all that arrives there will be taken for \
         the interface above, so take its addresses away first (`ip address flush dev {lower}`)"
    )]
    LowerInUse {
        /// The link below.
        lower: String,
        /// What shows it.
        what: String,
    },
    /// No interface can have it.
    #[error("an MTU of {0}: use {MTU_MIN} to {MTU_MAX}")]
    Mtu(u32),
    /// The link below carries so little that IPv6 would not work (1280), or as much as
    /// is asked for above it.
    #[error(
        "{lower} has an MTU of {mtu}, and {above} is asked for above it: that of the lower one has \
         to be 1280 or more, and the smaller of the two"
    )]
    NothingToDo {
        /// The link below.
        lower: String,
        /// Its MTU.
        mtu: u32,
        /// What was asked for.
        above: u32,
    },
    /// The program that sets up packet filters is not there.
    #[error(
        "needs nft, to keep the kernel from taking what arrives at the link below as well: \
         install the package nftables ({0})"
    )]
    NoNft(#[source] io::Error),
    /// It refused.
    #[error("nft keeps nothing from the kernel at {lower}: {said}")]
    Nft {
        /// The link below.
        lower: String,
        /// What it said.
        said: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}
