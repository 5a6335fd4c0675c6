//! Why a path could not be opened, and what would help.

use std::io;

use crate::packet::{self, Interface};

/// Why a path over AF_XDP could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process may not open XDP sockets or load the program that feeds them.
    #[error(
        "AF_XDP needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run as root, or \
         give them to the program with `setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`"
    )]
    NoPrivilege,
    /// The kernel has no XDP sockets.
    #[error("this kernel has no XDP sockets: use one built with CONFIG_XDP_SOCKETS")]
    NoXdpSockets,
    /// The interface is not there, or of no use.
    #[error(transparent)]
    Interface(#[from] packet::OpenError),
    /// The number names no protocol on Ethernet.
    #[error("{0:#06x} is no ethertype: those begin at 0x0600")]
    NotAnEthertype(u16),
    /// The address is one of a group.
    #[error("{0:02x?} is no station but a group of them: the first byte has to be even")]
    NotAStation([u8; 6]),
    /// The number of frames does not fit the rings.
    #[error("{0} frames each way: a power of two between 64 and 65536 is possible")]
    BadFrameCount(u32),
    /// An interface has one program.
    #[error(
        "interface {0} has an XDP program already, of another path or program: close that \
         (`ip link` shows it), or use another interface"
    )]
    ProgramInUse(Interface),
    /// A queue has one socket.
    #[error("queue {queue} of interface {interface} has an XDP socket already: use another queue")]
    QueueInUse {
        /// The interface.
        interface: Interface,
        /// Which of its queues.
        queue: u32,
    },
    /// There is no such queue.
    #[error(
        "interface {interface} has no queue {queue}; `ethtool -l` shows how many it has, and \
         queue 0 is always there"
    )]
    NoQueue {
        /// The interface.
        interface: Interface,
        /// Which was asked for.
        queue: u32,
    },
    /// The device's driver has no XDP, and nothing else was allowed.
    #[error(
        "the driver of interface {interface} cannot run the program ({source}): allow \
         Attach::Auto or Attach::Generic"
    )]
    NoDriverMode {
        /// The interface.
        interface: Interface,
        /// What the kernel said.
        source: io::Error,
    },
    /// The frames have to stay in memory.
    #[error(
        "{bytes} bytes cannot be locked in memory ({source}): raise the limit (`ulimit -l`), or \
         configure fewer frames"
    )]
    LockedMemory {
        /// How many.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused a call for another reason.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, as the end of "cannot …".
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// Names what was tried: the end of the sentence "cannot …".
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPrivilege,
            _ => Self::System { what, source },
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match error {
            OpenError::Interface(error) => return error.into(),
            OpenError::NoPrivilege => io::ErrorKind::PermissionDenied,
            OpenError::NoXdpSockets | OpenError::NoDriverMode { .. } => io::ErrorKind::Unsupported,
            OpenError::NoQueue { .. } => io::ErrorKind::NotFound,
            OpenError::ProgramInUse(_) | OpenError::QueueInUse { .. } => {
                io::ErrorKind::ResourceBusy
            }
            OpenError::LockedMemory { .. } => io::ErrorKind::OutOfMemory,
            OpenError::NotAnEthertype(_)
            | OpenError::NotAStation(_)
            | OpenError::BadFrameCount(_) => io::ErrorKind::InvalidInput,
            OpenError::System { ref source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}
