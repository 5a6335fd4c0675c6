//! Why a path could not be opened, and what would help.

use std::io;

use super::Interface;

/// Why a path over an interface could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process may not open packet sockets.
    #[error(
        "packet sockets need the capability CAP_NET_RAW: run as root, or give it to the \
         program with `setcap cap_net_raw+ep PROGRAM`"
    )]
    NoPrivilege,
    /// The kernel has no packet sockets.
    #[error("this kernel has no packet sockets: load the module af_packet, or build it in")]
    NoPacketSockets,
    /// There is no such interface here.
    #[error(
        "there is no interface {0} in this network namespace; `ip link` lists those that \
         there are"
    )]
    NoInterface(Interface),
    /// The interface has other frames than Ethernet.
    #[error(
        "interface {interface} is of hardware type {kind}, not Ethernet (1): open a path over \
         an Ethernet, veth, bridge or loopback interface"
    )]
    NotEthernet {
        /// Which.
        interface: Interface,
        /// Its type, a number of `linux/if_arp.h`.
        kind: u16,
    },
    /// The number names no protocol on Ethernet.
    #[error("{0:#06x} is no ethertype: those begin at 0x0600")]
    NotAnEthertype(u16),
    /// The configuration contradicts itself.
    #[error(
        "`bypass_queue` and `offload` exclude each other: the kernel refuses to segment \
         packets that bypass the queue; switch one of them off"
    )]
    BypassWithOffload,
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
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::NoPrivilege => io::ErrorKind::PermissionDenied,
            OpenError::NoPacketSockets => io::ErrorKind::Unsupported,
            OpenError::NoInterface(_) => io::ErrorKind::NotFound,
            OpenError::NotEthernet { .. }
            | OpenError::NotAnEthertype(_)
            | OpenError::BypassWithOffload => io::ErrorKind::InvalidInput,
            OpenError::System { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}
