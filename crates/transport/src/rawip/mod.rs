//! Raw IP: units of any engine directly behind an IPv4 or IPv6 header, for
//! protocols with a number of their own, received straight into guessed spans.
//!
//! The kernel cuts and joins TCP and UDP only. Here each unit is a packet; many
//! of them move with one call (`sendmmsg`, `recvmmsg`), each gathered from and
//! scattered to its own places.
//!
//! How the kernel behaves here was found by probing and by reading
//! `net/ipv4/raw.c`, `net/ipv6/raw.c` and `net/ipv4/ip_output.c`, and each
//! finding has a test in `tests/rawip_rules.rs`:
//!
//! - over IPv4 the header comes with each packet, and options make it longer:
//!   the lists begin with 20 bytes for it, and what options displaced is moved
//!   to its place; over IPv6 it does not come, and control messages say what
//!   it said;
//! - fragments come joined, so a unit may be longer than the path's; what this
//!   side sends is never cut (`IP_PMTUDISC_DO`): too long is an error, and a
//!   path whose MTU has become smaller tells the engine so;
//! - every socket of one protocol hears every packet of it, unless it is bound
//!   to an address or connected to a peer;
//! - a host hears itself: two ends in one namespace need two addresses.
//!
//! ```no_run
//! use landfall_placement::PathId;
//! use landfall_transport::memory::Regions;
//! use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
//!
//! let regions = Regions::new(16);
//! let config = RawIpConfig::new("10.0.0.1".parse()?, 253, 1500);
//! let mut driver = RawIpDriver::open(PathId(0), &config, &regions)?;
//! driver.connect("10.0.0.2".parse()?)?; // or not: then it serves many peers
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What does not live here: the header, which the kernel writes and checks;
//! routes; neighbours.
//!
//! A raw socket with all that the kernel offers switched on, as far as it is there, and
//! `Ways`: what the kernel has learned of the way to a peer, how long a packet may be.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

pub use driver::RawIpDriver;
use socket2::{Domain, Protocol, Socket, Type};

use crate::capability::{Capabilities, Feature};
use crate::inet::{enable_ecn, grow_buffers, set_option};
use crate::packet::Interface;
use crate::{OpenError, Privilege};

mod driver;
mod messages;

/// How a path directly on IP is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawIpConfig {
    /// The local address, which decides between IPv4 and IPv6; unspecified
    /// hears what comes to any address of this host.
    pub bind: IpAddr,
    /// The number of the protocol in the IP header.
    pub protocol: u8,
    /// Send and receive through this interface alone. Link-local addresses
    /// need it.
    pub interface: Option<Interface>,
    /// The largest unit: the MTU less the IP header (20 bytes for IPv4, 40 for
    /// IPv6).
    pub unit: u32,
    /// Move many units with one call; without it, one.
    pub batch: bool,
    /// How large the kernel's socket buffers shall be.
    pub socket_buffer: usize,
}

impl RawIpConfig {
    /// A path of this protocol, for an interface with this MTU.
    #[must_use]
    pub const fn new(bind: IpAddr, protocol: u8, mtu: u32) -> Self {
        let (header, largest) = header_and_largest(bind.is_ipv6());
        let unit = mtu.saturating_sub(header);
        Self {
            bind,
            protocol,
            interface: None,
            unit: if unit < largest { unit } else { largest },
            batch: true,
            socket_buffer: 16 << 20,
        }
    }
}

/// The length of the IP header that the kernel writes, and the most that a
/// packet carries behind it.
const fn header_and_largest(ipv6: bool) -> (u32, u32) {
    if ipv6 { (40, 65_535) } else { (20, 65_515) }
}

/// Numbers that the kernel does not hand to a raw socket, or that it answers
/// itself: its own protocols, the headers within IPv6, and those that mean
/// "any" and "with a header of its own".
const TAKEN: [u8; 13] = [0, 1, 2, 4, 6, 17, 41, 43, 44, 58, 59, 60, 255];

/// What belongs to an open path.
struct Opened {
    socket: Socket,
    ways: Ways,
    capabilities: Capabilities,
}

/// Opens the socket and finds out what works.
fn open(config: &RawIpConfig) -> Result<Opened, OpenError> {
    if TAKEN.contains(&config.protocol) {
        return Err(OpenError::NotForUs(config.protocol));
    }
    let ipv6 = config.bind.is_ipv6();
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let protocol = Protocol::from(i32::from(config.protocol));
    let socket = Socket::new(domain, Type::RAW, Some(protocol))
        .map_err(|error| why_no_socket(error, ipv6))?;
    socket.set_nonblocking(true).map_err(OpenError::system("make the socket non-blocking"))?;
    let fd = socket.as_raw_fd();
    if let Some(interface) = &config.interface {
        bind_to(&socket, interface)?;
    }
    let (level, name, never_cut) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
    };
    set_option(fd, level, name, never_cut)
        .map_err(OpenError::system("forbid fragments (IP_MTU_DISCOVER)"))?;
    socket.bind(&SocketAddr::new(config.bind, 0).into()).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL | libc::EINVAL) => OpenError::NoAddress(config.bind),
            _ => OpenError::system("bind to the local address")(error),
        }
    })?;
    grow_buffers(fd, config.socket_buffer);
    let ways =
        Ways::new(&socket, ipv6).map_err(OpenError::system("open a socket to ask for MTUs"))?;
    let mut found = Capabilities::of("rawip");
    found.add(Feature::DirectPlacement);
    for feature in [Feature::BatchedSend, Feature::BatchedReceive] {
        if config.batch {
            found.add(feature);
        } else {
            found.lack(feature, "switched off by the configuration");
        }
    }
    if ipv6 {
        enable_ecn(fd, (false, true), &mut found);
    } else {
        // The header comes with each packet, and the mark is in it.
        found.add(Feature::Ecn);
    }
    Ok(Opened { socket, ways, capabilities: found })
}

fn why_no_socket(error: io::Error, ipv6: bool) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => OpenError::NoFamily(if ipv6 { "IPv6" } else { "IPv4" }),
        _ => OpenError::needing(Privilege::RawSockets, "open a raw socket")(error),
    }
}

fn bind_to(socket: &Socket, interface: &Interface) -> Result<(), OpenError> {
    let bound = match interface {
        Interface::Name(name) => socket.bind_device(Some(name.as_bytes())),
        Interface::Index(index) => {
            let index = libc::c_int::try_from(*index).unwrap_or(libc::c_int::MAX);
            set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, index)
        }
    };
    bound.map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV | libc::EINVAL) => OpenError::NoInterface(interface.clone()),
        _ => OpenError::needing(Privilege::RawSockets, "bind to the interface")(error),
    })
}

/// The address that the socket has.
fn local_address(socket: &Socket) -> io::Result<IpAddr> {
    let address = socket.local_addr()?.as_socket();
    address
        .map(|address| address.ip())
        .ok_or_else(|| io::Error::other("the raw socket has no internet address"))
}

/// Asks the kernel about ways.
///
/// It tells only sockets that have a peer, and a path may have many. This is
/// another socket, of a kind that anybody may open, which is connected to the
/// peer in question along the same way. It is opened with the path, because it
/// has to be in the same network namespace.
#[derive(Debug)]
struct Ways {
    socket: Socket,
    ipv6: bool,
}

impl Ways {
    /// Takes the ways that this socket takes.
    fn new(like: &Socket, ipv6: bool) -> io::Result<Self> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(device) = like.device()? {
            socket.bind_device(Some(&device))?;
        }
        Ok(Self { socket, ipv6 })
    }

    /// The longest packet that may go to a peer.
    fn mtu(&self, peer: IpAddr) -> io::Result<u32> {
        // The discard port; nothing is sent.
        self.socket.connect(&SocketAddr::new(peer, 9).into())?;
        mtu_of(self.socket.as_raw_fd(), self.ipv6)
    }
}

fn mtu_of(fd: RawFd, ipv6: bool) -> io::Result<u32> {
    let (level, name) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: there is room for an int, which `len` says.
    let done = unsafe { libc::getsockopt(fd, level, name, (&raw mut mtu).cast(), &raw mut len) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(mtu).map_err(io::Error::other)
}
