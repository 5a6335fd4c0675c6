//! A packet socket with all that the kernel offers switched on, as far as it is there, and
//! what the kernel knows of its interface (`netdevice(7)`).

use std::os::fd::{AsRawFd, RawFd};
use std::{io, mem};

use landfall_placement::{Duration, Instant};
use socket2::{Domain, Socket, Type};

use super::link::Link;
use super::message::{LinkAddress, membership};
use super::{Framing, Interface, PacketConfig};
use crate::capability::{Capabilities, Feature};
use crate::{OpenError, Privilege};

/// A socket that hears what the configuration asks for, and no more.
pub(crate) struct Opened {
    pub(crate) socket: Socket,
    pub(crate) link: Link,
    pub(crate) capabilities: Capabilities,
}

/// Smaller numbers are lengths of IEEE 802.3 frames, or mean something else to
/// the kernel (`linux/if_ether.h`).
pub(crate) const LEAST_ETHERTYPE: u16 = 0x0600;

/// What a socket is bound to that hears every protocol.
pub(crate) const ALL_PROTOCOLS: u16 = libc::ETH_P_ALL as u16;

/// Opens the socket and finds out what works, in the name of this driver.
///
/// Opened with no protocol it hears nothing; the filter is in place before it
/// is bound, which is when it begins to hear.
pub(crate) fn open(config: &PacketConfig, driver: &'static str) -> Result<Opened, OpenError> {
    if config.bypass_queue && config.wants_offload() {
        return Err(OpenError::BypassWithOffload);
    }
    let (kind, program, ethertype) = match &config.framing {
        Framing::Ethernet { filter } => (Type::RAW, filter.program(), filter.only_ethertype()),
        Framing::Payload { ethertype } => (Type::DGRAM, Vec::new(), Some(*ethertype)),
    };
    if let Some(ethertype) = ethertype.filter(|number| *number < LEAST_ETHERTYPE) {
        return Err(OpenError::NotAnEthertype(ethertype));
    }
    let socket = Socket::new(Domain::PACKET, kind, None).map_err(why_no_socket)?;
    socket.set_nonblocking(true).map_err(OpenError::system("make the socket non-blocking"))?;
    let interface = find(&socket, &config.interface)?;
    let fd = socket.as_raw_fd();
    grow_buffers(fd, config.socket_buffer);
    set_option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)
        .map_err(OpenError::system("ask for VLAN tags (PACKET_AUXDATA)"))?;
    // Without it (before Linux 4.20) own frames are told by their address.
    let _ = set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
    if config.bypass_queue {
        set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .map_err(OpenError::system("bypass the queue (PACKET_QDISC_BYPASS)"))?;
    }
    let mut capabilities = Capabilities::of(driver);
    let offload = enable_offload(fd, config, &mut capabilities);
    attach_filter(fd, &program).map_err(OpenError::system("attach the packet filter"))?;
    let link = Link::new(interface, &config.framing, offload);
    let mut protocol = ethertype.unwrap_or(ALL_PROTOCOLS);
    if let Some(station) = link.own_station() {
        // A frame to it and one of a VLAN look alike to a socket that is bound
        // to a protocol.
        protocol = ALL_PROTOCOLS;
        join(fd, interface.index, Some(station))
            .map_err(OpenError::system("let the interface take frames to another station"))?;
    }
    if link.takes_groups() {
        join(fd, interface.index, None)
            .map_err(OpenError::system("let the interface take frames to all groups"))?;
    }
    if let Some(group) = config.group {
        join(fd, interface.index, Some(group))
            .map_err(OpenError::system("let the interface take frames to a group"))?;
    }
    bind(fd, &LinkAddress::interface(interface.index, protocol))
        .map_err(OpenError::system("bind to the interface"))?;
    Ok(Opened { socket, link, capabilities })
}

pub(crate) fn why_no_socket(error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => OpenError::NoPacketSockets,
        _ => OpenError::needing(Privilege::PacketSockets, "open a packet socket")(error),
    }
}

/// As large as allowed: with CAP_NET_ADMIN as asked, else up to the system's limit.
pub(crate) fn grow_buffers(fd: RawFd, size: usize) {
    let size = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(fd, libc::SOL_SOCKET, force, size).is_err() {
            // Smaller buffers cost speed, not correctness.
            let _ = set_option(fd, libc::SOL_SOCKET, plain, size);
        }
    }
}

/// Switches the virtio-net header on. Returns whether it is there.
fn enable_offload(fd: RawFd, config: &PacketConfig, found: &mut Capabilities) -> bool {
    for feature in [Feature::DirectPlacement, Feature::BatchedSend, Feature::BatchedReceive] {
        found.add(feature);
    }
    let raw = matches!(config.framing, Framing::Ethernet { .. });
    if raw {
        found.add(Feature::RawFrames);
    } else {
        found.lack(Feature::RawFrames, "the path was opened with Framing::Payload");
    }
    let why = if !raw {
        "devices know TCP and UDP only; Framing::Ethernet can carry those".into()
    } else if !config.offload {
        "switched off by the configuration".into()
    } else {
        match set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1) {
            Ok(()) => {
                found.add(Feature::TcpSegmentation);
                found.add(Feature::ChecksumOffload);
                return true;
            }
            Err(error) => format!(
                "the kernel refused PACKET_VNET_HDR ({error}); Linux 2.6.27 or later has it"
            ),
        }
    };
    found.lack(Feature::TcpSegmentation, why.as_str());
    found.lack(Feature::ChecksumOffload, why);
    false
}

/// Lets only those frames in that the program accepts; an empty one changes nothing.
pub(crate) fn attach_filter(fd: RawFd, program: &[libc::sock_filter]) -> io::Result<()> {
    if program.is_empty() {
        return Ok(());
    }
    let len = libc::c_ushort::try_from(program.len()).unwrap_or(libc::c_ushort::MAX);
    // The kernel only reads the program.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program has at least `len` instructions, and lives through the call.
    unsafe { set_option_to(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Lets the program say which socket of a port that several share gets a datagram.
pub(crate) fn attach_spread(fd: RawFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    // The kernel only reads the program.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program has `len` instructions, and lives through the call.
    unsafe { set_option_to(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program) }
}

pub(crate) fn bind(fd: RawFd, address: &LinkAddress) -> io::Result<()> {
    // SAFETY: the address has that length, and lives through the call.
    let done = unsafe { libc::bind(fd, (&raw const address.0).cast(), LinkAddress::LEN) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the interface take frames to one more station or group, or to all groups, as long
/// as the socket is open.
pub(crate) fn join(fd: RawFd, index: u32, station: Option<[u8; 6]>) -> io::Result<()> {
    let membership = membership(index, station);
    // SAFETY: a membership points to nothing.
    unsafe { set_option_to(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership) }
}

pub(crate) fn set_option(fd: RawFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: a number points to nothing.
    unsafe { set_option_to(fd, level, name, &value) }
}

/// # Safety
/// What `value` points to, if the option reads that, lives through the call.
pub(super) unsafe fn set_option_to<T>(
    fd: RawFd,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` lives through the call and `len` is its size; the caller
    // vouches for what is behind it.
    let done = unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An interface that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    /// Its own station address.
    pub(crate) station: [u8; 6],
}

/// Looks an interface up in the namespace that the socket is in.
pub(crate) fn find(socket: &Socket, interface: &Interface) -> Result<Found, OpenError> {
    let fd = socket.as_raw_fd();
    let none = || OpenError::NoInterface(interface.clone());
    let mut request = match interface {
        Interface::Name(name) => named(name).ok_or_else(none)?,
        Interface::Index(index) => name_of(fd, *index).map_err(|_| none())?,
    };
    ask(fd, Request::Index, &mut request).map_err(|_| none())?;
    // SAFETY: SIOCGIFINDEX fills in this number.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    let mtu = mtu(fd, &mut request).map_err(OpenError::system("ask for the MTU"))?;
    ask(fd, Request::Station, &mut request)
        .map_err(OpenError::system("ask for the station address"))?;
    // SAFETY: SIOCGIFHWADDR fills in this address.
    let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
    if !matches!(hardware.sa_family, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
        let (interface, kind) = (interface.clone(), hardware.sa_family);
        return Err(OpenError::NotEthernet { interface, kind });
    }
    let [a, b, c, d, e, f, ..] = hardware.sa_data.map(|byte| byte.to_ne_bytes()[0]);
    Ok(Found { index: index.cast_unsigned(), mtu, station: [a, b, c, d, e, f] })
}

/// The MTU of the interface of that name, in the namespace that the socket is in.
pub(crate) fn mtu_of(fd: RawFd, name: &str) -> io::Result<u32> {
    mtu(fd, &mut named(name).ok_or(io::ErrorKind::NotFound)?)
}

/// The MTU of the interface that a request is about.
fn mtu(fd: RawFd, request: &mut libc::ifreq) -> io::Result<u32> {
    ask(fd, Request::Mtu, request)?;
    // SAFETY: SIOCGIFMTU fills in this number.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
}

/// A request about the interface of that name. None if no name is so long.
pub(crate) fn named(name: &str) -> Option<libc::ifreq> {
    // SAFETY: a request is made of numbers and addresses, for which zero is good.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The name ends with a zero byte.
    let room = request.ifr_name.split_last_mut()?.1;
    let room = room.get_mut(..name.len())?;
    for (into, byte) in room.iter_mut().zip(name.bytes()) {
        *into = libc::c_char::from_ne_bytes([byte]);
    }
    Some(request)
}

/// Is there an interface with that index, in the namespace that the socket is in? The error
/// says not.
pub(crate) fn exists(fd: RawFd, index: u32) -> io::Result<()> {
    name_of(fd, index).map(drop)
}

/// A request about the interface with that index.
fn name_of(fd: RawFd, index: u32) -> io::Result<libc::ifreq> {
    let invalid = |_| io::Error::from(io::ErrorKind::NotFound);
    let mut request = named("").ok_or(io::ErrorKind::InvalidInput)?;
    request.ifr_ifru.ifru_ifindex = i32::try_from(index).map_err(invalid)?;
    ask(fd, Request::Name, &mut request)?;
    Ok(request)
}

/// What can be asked or set of an interface: requests of `netdevice(7)` that read and write
/// an `ifreq`, and follow no pointer in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Index,
    Name,
    Mtu,
    Station,
    Flags,
    SetMtu,
    SetStation,
    SetFlags,
    SetAddress,
    SetNetmask,
}

impl Request {
    const fn number(self) -> libc::Ioctl {
        let number = match self {
            Self::Index => libc::SIOCGIFINDEX,
            Self::Name => libc::SIOCGIFNAME,
            Self::Mtu => libc::SIOCGIFMTU,
            Self::Station => libc::SIOCGIFHWADDR,
            Self::Flags => libc::SIOCGIFFLAGS,
            Self::SetMtu => libc::SIOCSIFMTU,
            Self::SetStation => libc::SIOCSIFHWADDR,
            Self::SetFlags => libc::SIOCSIFFLAGS,
            Self::SetAddress => libc::SIOCSIFADDR,
            Self::SetNetmask => libc::SIOCSIFNETMASK,
        };
        number as libc::Ioctl
    }
}

/// Makes a request of the kernel.
pub(crate) fn ask(fd: RawFd, what: Request, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the kernel reads and writes the `ifreq`, which lives through the call, and
    // none of these requests has it follow a pointer.
    let done = unsafe { libc::ioctl(fd, what.number(), std::ptr::from_mut(request)) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Whether the kernel takes more frames, and what it means that it took none.

/// How long a full queue is left alone, at first and at most. A frame of 1500
/// bytes takes 12 µs at 1 Gbit/s.
const SHORTEST_WAIT: Duration = Duration::from_micros(20);
const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// Whether the kernel takes more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It does.
    Enough,
    /// The socket buffer is full: the socket becomes writable when it is not.
    SocketFull,
    /// The device's queue was full, which nobody is told the end of.
    QueueFull { until: Instant, waited: Duration },
}

impl Room {
    /// Is it still too early to try again?
    pub(crate) fn is_early(&self, now: Instant) -> bool {
        matches!(self, Self::QueueFull { until, .. } if now < *until)
    }

    /// When to try again, if nothing else will tell.
    pub(crate) const fn until(&self) -> Option<Instant> {
        match self {
            Self::QueueFull { until, .. } => Some(*until),
            Self::Enough | Self::SocketFull => None,
        }
    }

    /// Waits for twice as long each time that the queue is still full.
    pub(crate) fn after_full_queue(self, now: Instant) -> Self {
        let waited = match self {
            Self::QueueFull { waited, .. } => waited.saturating_mul(2).min(LONGEST_WAIT),
            Self::Enough | Self::SocketFull => SHORTEST_WAIT,
        };
        Self::QueueFull { until: now + waited, waited }
    }

    /// What a turn found that sent all it had, or did not because something was full.
    #[cfg(feature = "io-uring")]
    pub(crate) fn after_sending(self, is_blocked: bool, queue_full: bool, now: Instant) -> Self {
        match (is_blocked, queue_full) {
            (false, _) => Self::Enough,
            (true, false) => Self::SocketFull,
            (true, true) => self.after_full_queue(now),
        }
    }
}

/// What it means that a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The socket buffer has no room.
    SocketFull,
    /// The queue of the interface has none.
    QueueFull,
    /// To the engine the unit is lost on the way.
    Lost,
    /// The interface was removed, or whatever else: the path is broken.
    Broken,
}

impl Failure {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Self::SocketFull,
            Some(libc::ENOBUFS) => Self::QueueFull,
            // Longer than the MTU, or it cannot be segmented: ENOMEM says that too.
            Some(libc::EMSGSIZE | libc::EINVAL | libc::ENOMEM | libc::EIO) => Self::Lost,
            // An interface that is down may come up again.
            Some(libc::ENETDOWN) => Self::Lost,
            _ => Self::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_left_alone_ever_longer_up_to_a_bound() {
        let mut room = Room::Enough;
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            room = room.after_full_queue(Instant::ZERO);
            let Room::QueueFull { until, waited } = room else { panic!("{room:?}") };
            assert_eq!(until.since(Instant::ZERO), waited);
            assert!(waited > last || waited == LONGEST_WAIT);
            assert!(room.is_early(Instant::ZERO) && !room.is_early(until));
            last = waited;
        }
        assert_eq!(last, LONGEST_WAIT);
    }

    #[test]
    fn only_a_vanished_interface_breaks_the_path() {
        let of = |number| Failure::of(&io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::EAGAIN), Failure::SocketFull);
        assert_eq!(of(libc::ENOBUFS), Failure::QueueFull);
        assert_eq!(of(libc::EMSGSIZE), Failure::Lost);
        assert_eq!(of(libc::ENETDOWN), Failure::Lost);
        assert_eq!(of(libc::ENXIO), Failure::Broken);
    }
}
