//! Why a TAP interface could not be opened, and what would help.

use std::io;

use crate::packet;

/// Why a TAP interface could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel has no TAP interfaces, or this system hides them.
    #[error(
        "there is no /dev/net/tun here: load the module tun (`modprobe tun`), or let the \
         container have the device"
    )]
    NoTapDevices,
    /// The process may not make interfaces.
    #[error(
        "making or changing a TAP interface needs the capability CAP_NET_ADMIN: run as root, or \
         have root make one for you (`ip tuntap add NAME mode tap user YOU vnet_hdr`) and set it up"
    )]
    NoPrivilege,
    /// Another process has it open, or it is of another kind.
    #[error(
        "interface {0} exists, and is in use or no TAP interface: close what uses it, or choose \
         another name"
    )]
    NameInUse(String),
    /// No interface can have this name.
    #[error(
        "{0:?} is no name for an interface: 1 to 15 bytes, without slashes, colons and blanks; \
         an empty name lets the kernel choose"
    )]
    BadName(String),
    /// No interface can have this MTU or this station address.
    #[error("the interface cannot have {what} ({source})")]
    Impossible {
        /// What it cannot have.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface that was made cannot be asked about.
    #[error(transparent)]
    Interface(#[from] packet::OpenError),
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

    /// Names what was to be set.
    pub(super) fn setting(what: String) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPrivilege,
            _ => Self::Impossible { what, source },
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match error {
            OpenError::NoPrivilege => io::ErrorKind::PermissionDenied,
            OpenError::NoTapDevices => io::ErrorKind::Unsupported,
            OpenError::NameInUse(_) => io::ErrorKind::AddrInUse,
            OpenError::BadName(_) | OpenError::Impossible { .. } => io::ErrorKind::InvalidInput,
            OpenError::Interface(error) => return error.into(),
            OpenError::System { ref source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}
