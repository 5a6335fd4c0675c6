//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;

use landfall_transport::memory::{AccessError, LendRefusal, TakeBackError};
use qpip::{CloseReason, ConfigError};

/// Why a command was refused, or did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The adapter refused it: nothing has changed.
    #[error(transparent)]
    Refused(#[from] qpip::Error),
    /// The connection that was asked for did not come about.
    #[error("no connection: {}", reason(*.0))]
    NotConnected(CloseReason),
    /// The connection ended otherwise than by both sides having said all.
    #[error("the connection is over: {}", reason(*.0))]
    Ended(CloseReason),
    /// The adapter's thread is gone, or the listener is.
    #[error("the adapter does not run any more: open another one")]
    AdapterGone,
    /// Bytes outside of registered memory were named.
    #[error("the range {start}..{end} is not within {len} bytes of registered memory")]
    OutOfBounds {
        /// First byte.
        start: u64,
        /// First byte behind.
        end: u64,
        /// How many there are.
        len: u64,
    },
    /// A part of registered memory is longer than a work request can name.
    #[error("{0} bytes are more than one buffer names (4 GiB): use several parts")]
    TooLong(u64),
    /// The queue pair belongs to another adapter than the other handle.
    #[error("the two belong to different adapters: create both with the same one")]
    ForeignHandle,
    /// A completion queue has a descriptor, and the system gave none.
    #[error("a completion queue needs a descriptor (raise the limit of open files): {0}")]
    NoDescriptor(#[source] io::Error),
    /// The memory could not be lent to the adapter.
    #[error("the memory cannot be registered: {0}")]
    NotLent(LendRefusal),
    /// Registered memory was refused.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A driver still holds the memory.
    #[error(transparent)]
    TakeBack(#[from] TakeBackError),
}

fn reason(why: CloseReason) -> &'static str {
    match why {
        CloseReason::Finished => "both sides have finished",
        CloseReason::Refused => "nobody listens there",
        CloseReason::Reset => "the other side reset it",
        CloseReason::TimedOut => "the other side does not answer",
        CloseReason::Unreachable => "the network has no way to there",
        CloseReason::Aborted => "this side gave it up",
        CloseReason::OptionsRemoved => {
            "a device on the path removes TCP options that both ends agreed on: leave immediate \
             data out, or the device"
        }
    }
}

impl Error {
    /// Is it something that work requests still use? They are done when their
    /// completions are there: poll them, and try again.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Refused(qpip::Error::Busy(_)) | Self::TakeBack(TakeBackError::StillInUse { .. })
        )
    }
}

/// What was refused, and the thing that was handed in: here it is again.
pub struct Refused<T> {
    /// Why.
    pub error: Error,
    /// What was handed in.
    pub item: T,
}

impl<T> Refused<T> {
    pub(crate) fn new(error: impl Into<Error>, item: T) -> Self {
        Self { error: error.into(), item }
    }

    /// What was handed in.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.item
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> std::error::Error for Refused<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The error alone; what was handed in is dropped.
impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

/// Why an adapter could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A text names no link.
    #[error(
        "'{0}' is no link: tap:NAME, packet:NAME, xdp:NAME, or udp:HOST:PORT with the other ends behind commas"
    )]
    BadLink(String),
    /// There is no way for a packet.
    #[error("an adapter needs at least one link: add one with `Builder::link`")]
    NoLink,
    /// An address, gateway or neighbour was named before there was a link.
    #[error("{0} belongs to a link: call `Builder::link` before it")]
    BeforeLink(String),
    /// That is no address.
    #[error("{0:?} is not an address with the length of its prefix, such as 10.0.0.2/24")]
    BadAddress(String),
    /// A value of the configuration is out of its range.
    #[error(
        "the configuration of the adapter cannot be: {0}. Change that field of what `Builder::config` gets"
    )]
    Config(#[from] ConfigError),
    /// The adapter refused the interface.
    #[error("the interface on {link}: {source}")]
    Interface {
        /// What the link is.
        link: String,
        /// Why.
        #[source]
        source: qpip::Error,
    },
    /// A link that never shows tags was to carry those of a VLAN.
    #[error(
        "{0} shows no tag of a VLAN: the kernel takes it off what comes. Make the VLAN's own interface (`ip link add link IFACE name IFACE.5 type vlan id 5`) and use that without `Builder::vlan`"
    )]
    NoTags(String),
    /// Several adapters were to be one station where only one can.
    #[error(
        "{0} is for one adapter: several share `Link::tap`, `Link::packet` or `Link::xdp`; for anything else use `Builder::open`"
    )]
    NotShared(String),
    /// Several adapters of one station know their addresses.
    #[error(
        "several adapters share {0}, and find out no addresses there: give them with `Builder::address`, and leave out DHCP, routers and the detection of conflicts"
    )]
    NeedsAddresses(String),
    /// A link could not be opened.
    #[error("cannot open {link}: {source}")]
    Link {
        /// What it is.
        link: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The environment asks for a transport that there is not.
    #[error("{0}")]
    Configuration(#[source] io::Error),
    /// The adapter's thread could not be started.
    #[error("cannot start the adapter's thread: {0}")]
    Thread(#[source] io::Error),
    /// The process has no descriptor left.
    #[error("cannot make an event descriptor: {0}")]
    Bell(#[source] io::Error),
    /// The operating system gave no random seed.
    #[error("the operating system gives no random seed: {0}")]
    Seed(String),
}
