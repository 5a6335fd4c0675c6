//! [`OpenError`]: why a path could not be opened, whichever driver was to serve it.

use std::io;
use std::net::IpAddr;

use crate::memory::LendRefusal;
use crate::packet::Interface;

/// What a path has that not every process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Privilege {
    /// Packet sockets.
    PacketSockets,
    /// Raw sockets of IP.
    RawSockets,
    /// XDP sockets, and the program that feeds them.
    Xdp,
    /// TAP interfaces, to be made or changed.
    Tap,
}

impl Privilege {
    /// What is missing, and what would help.
    const fn remedy(self) -> &'static str {
        match self {
            Self::PacketSockets => {
                "packet sockets need the capability CAP_NET_RAW: run as root, or give it to the \
                 program with `setcap cap_net_raw+ep PROGRAM`"
            }
            Self::RawSockets => {
                "raw IP sockets need the capability CAP_NET_RAW: run as root, or give it to the \
                 program with `setcap cap_net_raw+ep PROGRAM`"
            }
            Self::Xdp => {
                "AF_XDP needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run as \
                 root, or give them to the program with `setcap \
                 cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`"
            }
            Self::Tap => {
                "making or changing a TAP interface needs the capability CAP_NET_ADMIN: run as \
                 root, or have root make one for you (`ip tuntap add NAME mode tap user YOU \
                 vnet_hdr`) and set it up"
            }
        }
    }
}

/// Why a path could not be opened, and what would help.
///
/// ```
/// use landfall_transport::memory::Regions;
/// use landfall_transport::packet::Filter;
/// use landfall_transport::ring::{Ring, RingConfig};
/// use landfall_transport::OpenError;
///
/// let config = RingConfig { blocks: 1, ..RingConfig::new("lo", Filter::any()) };
/// let error = Ring::open(&config, &Regions::new(1)).unwrap_err();
/// assert!(matches!(error, OpenError::BadGeometry { blocks: 1, .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process may not do it.
    #[error("{}", .0.remedy())]
    NoPrivilege(Privilege),
    /// The kernel refused a call for a reason that has no name of its own here.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, as the end of "cannot …".
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },

    /// The kernel has no packet sockets.
    #[error("this kernel has no packet sockets: load the module af_packet, or build it in")]
    NoPacketSockets,
    /// The kernel has no XDP sockets.
    #[error("this kernel has no XDP sockets: use one built with CONFIG_XDP_SOCKETS")]
    NoXdpSockets,
    /// The kernel has no TAP interfaces, or this system hides them.
    #[error(
        "there is no /dev/net/tun here: load the module tun (`modprobe tun`), or let the \
         container have the device"
    )]
    NoTapDevices,
    /// The kernel does not speak this version of IP.
    #[error("this kernel has no {0}: load its module, or enable it at boot")]
    NoFamily(&'static str),

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
    /// The address is not one of this host.
    #[error("this network namespace has no address {0}; `ip address` lists those that it has")]
    NoAddress(IpAddr),

    /// The address is no single interface's, or that of one without a wire.
    #[error(
        "{0} is not the address of one Ethernet interface: name one that `ip address` shows \
         there; plain UDP serves loopback and all interfaces together"
    )]
    NotOfOneWire(IpAddr),
    /// The kernel lacks what the path is made of.
    #[error("this kernel ({release}) cannot {what}: Linux {since} or later can; use plain UDP")]
    OldKernel {
        /// What it says of itself.
        release: String,
        /// What it cannot, as the end of "cannot …".
        what: &'static str,
        /// From which version on it can.
        since: &'static str,
    },

    /// The number names no protocol on Ethernet.
    #[error("{0:#06x} is no ethertype: those begin at 0x0600")]
    NotAnEthertype(u16),
    /// The address is one of a group.
    #[error("{0:02x?} is no station but a group of them: the first byte has to be even")]
    NotAStation([u8; 6]),
    /// The number is taken by the kernel, or means something else to it.
    #[error(
        "protocol {0} is not for raw sockets of this family: the kernel speaks it itself, or \
         it is no protocol; 253 and 254 are for experiments (RFC 3692)"
    )]
    NotForUs(u8),
    /// Two options of a packet socket contradict each other.
    #[error(
        "`bypass_queue` and `offload` exclude each other: the kernel refuses to segment \
         packets that bypass the queue; switch one of them off"
    )]
    BypassWithOffload,

    /// Another process has the TAP interface open, or it is of another kind.
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

    /// An interface has one XDP program.
    #[error(
        "interface {0} has an XDP program already, of another path or program: close that \
         (`ip link` shows it), or use another interface"
    )]
    ProgramInUse(Interface),
    /// A queue has one XDP socket.
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

    /// The number of frames does not fit the rings of AF_XDP.
    #[error("{0} frames each way: a power of two between 64 and 65536 is possible")]
    BadFrameCount(u32),
    /// The lengths do not make a ring.
    #[error(
        "no ring of {blocks} blocks with {block_size} bytes each: a block is a power of two from \
         a page to 4 MiB, there are two or more, and 1 GiB in all at most"
    )]
    BadGeometry {
        /// How long a block should have been.
        block_size: u32,
        /// How many there should have been.
        blocks: u32,
    },
    /// The kernel has no memory for the ring.
    #[error("the kernel has no memory for {blocks} blocks of {block_size} bytes: ask for less")]
    NoMemory {
        /// How long a block should have been.
        block_size: u32,
        /// How many there should have been.
        blocks: u32,
    },
    /// The frames of AF_XDP have to stay in memory.
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
    /// The memory of the ring could not be lent as a region.
    #[error(transparent)]
    NotLent(#[from] LendRefusal),
}

impl OpenError {
    /// Names what was tried: the end of the sentence "cannot …".
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// The same for what a process without this privilege may not do.
    pub(crate) fn needing(
        privilege: Privilege,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPrivilege(privilege),
            _ => Self::System { what, source },
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoPrivilege(_) => io::ErrorKind::PermissionDenied,
            Self::System { source, .. } => source.kind(),
            Self::NoPacketSockets
            | Self::NoXdpSockets
            | Self::NoTapDevices
            | Self::NoFamily(_)
            | Self::OldKernel { .. }
            | Self::NoDriverMode { .. } => io::ErrorKind::Unsupported,
            Self::NoInterface(_) | Self::NoQueue { .. } => io::ErrorKind::NotFound,
            Self::NoAddress(_) => io::ErrorKind::AddrNotAvailable,
            Self::NotEthernet { .. }
            | Self::NotOfOneWire(_)
            | Self::NotAnEthertype(_)
            | Self::NotAStation(_)
            | Self::NotForUs(_)
            | Self::BypassWithOffload
            | Self::BadName(_)
            | Self::Impossible { .. }
            | Self::BadFrameCount(_)
            | Self::BadGeometry { .. } => io::ErrorKind::InvalidInput,
            Self::NameInUse(_) => io::ErrorKind::AddrInUse,
            Self::ProgramInUse(_) | Self::QueueInUse { .. } => io::ErrorKind::ResourceBusy,
            Self::NoMemory { .. } | Self::LockedMemory { .. } | Self::NotLent(_) => {
                io::ErrorKind::OutOfMemory
            }
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        Self::new(error.kind(), error)
    }
}
