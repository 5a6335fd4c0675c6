//! Why a path could not be opened, and what would help.

use std::io;
use std::net::IpAddr;

use crate::packet::Interface;

/// Why a path directly on IP could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process may not open raw sockets.
    #[error(
        "raw IP sockets need the capability CAP_NET_RAW: run as root, or give it to the \
         program with `setcap cap_net_raw+ep PROGRAM`"
    )]
    NoPrivilege,
    /// The number is taken by the kernel, or means something else to it.
    #[error(
        "protocol {0} is not for raw sockets of this family: the kernel speaks it itself, or \
         it is no protocol; 253 and 254 are for experiments (RFC 3692)"
    )]
    NotForUs(u8),
    /// The address is not one of this host.
    #[error("this network namespace has no address {0}; `ip address` lists those that it has")]
    NoAddress(IpAddr),
    /// There is no such interface here.
    #[error(
        "there is no interface {0} in this network namespace; `ip link` lists those that \
         there are"
    )]
    NoInterface(Interface),
    /// The kernel does not speak this version of IP.
    #[error("this kernel has no {0}: load its module, or enable it at boot")]
    NoFamily(&'static str),
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
        move |source| Self::System { what, source }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::NoPrivilege => io::ErrorKind::PermissionDenied,
            OpenError::NoFamily(_) => io::ErrorKind::Unsupported,
            OpenError::NoInterface(_) => io::ErrorKind::NotFound,
            OpenError::NoAddress(_) => io::ErrorKind::AddrNotAvailable,
            OpenError::NotForUs(_) => io::ErrorKind::InvalidInput,
            OpenError::System { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}
