//! Making the interface, and setting it up: `/dev/net/tun` and `netdevice(7)`.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use socket2::{Domain, Socket, Type};

use super::TapConfig;
use super::frames::Sums;
use super::steering::{self, Spread};
use crate::packet::{
    Found, Interface, InterfaceRequest as Request, VNET_HEADER, ask_interface as ask,
    find_interface, named_interface,
};
use crate::{OpenError, Privilege};

/// What the kernel may hand over unfinished: checksums, and super-packets of
/// TCP, also with congestion signals.
const WHAT_WE_TAKE: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// How many files an interface may be opened by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queues {
    One,
    Several,
}

/// An interface whose frames are read and written here.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) file: File,
    pub(super) name: String,
    pub(super) found: Found,
}

impl Device {
    pub(super) fn open(config: &TapConfig) -> Result<Self, OpenError> {
        Self::open_queue(config, Queues::One, WHAT_WE_TAKE)
    }

    /// The same with headers in front of frames, taking no super-packets and unfinished checksums
    /// only if they are wanted: one queue, or several that are spread by addresses.
    pub(super) fn open_headed(
        config: &TapConfig,
        sums: Sums,
        count: usize,
    ) -> Result<Vec<Self>, OpenError> {
        let taken = if sums == Sums::Unfinished { libc::TUN_F_CSUM } else { 0 };
        let config = TapConfig { offload: true, ..config.clone() };
        match count {
            0 | 1 => Ok(vec![Self::open_queue(&config, Queues::One, taken)?]),
            _ => Self::open_several(&config, count, taken, Spread::Addresses),
        }
    }

    /// Several queues of one interface, which the kernel spreads flows over as
    /// [`flow`](landfall_inet::flow) says.
    pub(super) fn open_queues(config: &TapConfig, count: usize) -> Result<Vec<Self>, OpenError> {
        Self::open_several(config, count, WHAT_WE_TAKE, Spread::Flow)
    }

    fn open_several(
        config: &TapConfig,
        count: usize,
        taken: libc::c_uint,
        spread: Spread,
    ) -> Result<Vec<Self>, OpenError> {
        let mut queues: Vec<Self> = Vec::with_capacity(count);
        for _ in 0..count {
            // The first may have been given a name.
            let name = queues.first().map_or(&config.name, |first| &first.name).clone();
            // What the first one was set to the others find.
            let (offload, up) = (config.offload, false);
            let further = TapConfig { offload, up, ..TapConfig::new(name) };
            let config = if queues.is_empty() { config } else { &further };
            queues.push(Self::open_queue(config, Queues::Several, taken)?);
        }
        if let Some(first) = queues.first() {
            steering::steer(&first.file, spread)
                .map_err(failed("load the program that spreads flows over queues"))?;
        }
        Ok(queues)
    }

    fn open_queue(
        config: &TapConfig,
        queues: Queues,
        taken: libc::c_uint,
    ) -> Result<Self, OpenError> {
        let bad_name = || OpenError::BadName(config.name.clone());
        let is_bad = |byte: u8| byte == b'/' || byte == b':' || byte.is_ascii_whitespace();
        if config.name.bytes().any(|byte| is_bad(byte) || byte == 0) {
            return Err(bad_name());
        }
        let mut request = named_interface(&config.name).ok_or_else(bad_name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(why_no_device)?;
        let fd = file.as_raw_fd();
        let header = if config.offload { libc::IFF_VNET_HDR } else { 0 };
        let queues = if queues == Queues::Several { libc::IFF_MULTI_QUEUE } else { 0 };
        // The flags are sixteen bits.
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | header | queues) as i16;
        // SAFETY: the request is for an `ifreq`, which lives through the call.
        let made = unsafe { control(fd, libc::TUNSETIFF, (&raw mut request).cast()) };
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EINVAL) if !config.name.is_empty() => {
                OpenError::NameInUse(config.name.clone())
            }
            _ => failed("make the interface (TUNSETIFF)")(error),
        })?;
        if config.offload {
            take_offloads(fd, taken)?;
        }
        let name = name_in(&request);
        let found = set_up(&name, config)?;
        Ok(Self { file, name, found })
    }
}

fn why_no_device(error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOTDIR) => OpenError::NoTapDevices,
        _ => failed("open /dev/net/tun")(error),
    }
}

/// Whatever an earlier owner of the interface had chosen.
fn take_offloads(fd: RawFd, taken: libc::c_uint) -> Result<(), OpenError> {
    let mut len = VNET_HEADER as libc::c_int;
    // SAFETY: the request is for a number, which lives through the call.
    unsafe { control(fd, libc::TUNSETVNETHDRSZ, (&raw mut len).cast()) }
        .map_err(failed("choose the header of frames (TUNSETVNETHDRSZ)"))?;
    let flags = std::ptr::without_provenance_mut(taken as usize);
    // SAFETY: this request takes a number where others take an address.
    unsafe { control(fd, libc::TUNSETOFFLOAD, flags) }
        .map_err(failed("take super-packets (TUNSETOFFLOAD)"))
}

/// The name that the kernel has written into a request.
fn name_in(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().map(|byte| byte.to_ne_bytes()[0]);
    let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&name).into_owned()
}

/// Sets what is configured and tells what is so.
fn set_up(name: &str, config: &TapConfig) -> Result<Found, OpenError> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)
        .map_err(failed("open a socket to set the interface up"))?;
    let fd = socket.as_raw_fd();
    let bad_name = || OpenError::BadName(name.to_owned());
    let mut request = named_interface(name).ok_or_else(bad_name)?;
    if let Some(station) = config.kernel_station {
        let what = format!("the station address {station:x?}");
        request.ifr_ifru.ifru_hwaddr = hardware(station);
        ask(fd, Request::SetStation, &mut request).map_err(impossible(what))?;
    }
    if let Some(mtu) = config.mtu {
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        ask(fd, Request::SetMtu, &mut request).map_err(impossible(format!("an MTU of {mtu}")))?;
    }
    let found = find_interface(&socket, &Interface::Name(name.to_owned()))?;
    if let Some((address, prefix)) = config.kernel_address {
        give_address(fd, &mut request, found.index, address, prefix)
            .map_err(impossible(format!("the address {address}/{prefix}")))?;
    }
    if config.up {
        bring_up(fd, &mut request).map_err(failed("bring the interface up"))?;
    }
    Ok(found)
}

/// Names what was tried, which a process without privileges may not do.
fn failed(what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    OpenError::needing(Privilege::Tap, what)
}

/// Names what was to be set.
fn impossible(what: String) -> impl FnOnce(io::Error) -> OpenError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::NoPrivilege(Privilege::Tap),
        _ => OpenError::Impossible { what, source },
    }
}

/// Not again if it is up already: that an ordinary user may find, but not do.
fn bring_up(fd: RawFd, request: &mut libc::ifreq) -> io::Result<()> {
    ask(fd, Request::Flags, request)?;
    // SAFETY: SIOCGIFFLAGS filled in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    if i32::from(flags) & libc::IFF_UP != 0 {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
    ask(fd, Request::SetFlags, request)
}

fn give_address(
    fd: RawFd,
    request: &mut libc::ifreq,
    index: u32,
    address: IpAddr,
    prefix: u8,
) -> io::Result<()> {
    match address {
        IpAddr::V4(_) if prefix > 32 => Err(io::ErrorKind::InvalidInput.into()),
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            request.ifr_ifru.ifru_addr = internet(address);
            ask(fd, Request::SetAddress, request)?;
            request.ifr_ifru.ifru_addr = internet(Ipv4Addr::from(mask));
            ask(fd, Request::SetNetmask, request)
        }
        IpAddr::V6(address) => give_ipv6_address(index, address, prefix),
    }
}

fn give_ipv6_address(index: u32, address: Ipv6Addr, prefix: u8) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    let mut request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
        ifr6_prefixlen: u32::from(prefix),
        ifr6_ifindex: index.cast_signed(),
    };
    let what = libc::SIOCSIFADDR as libc::Ioctl;
    // SAFETY: on a socket of IPv6 the request is for an `in6_ifreq`, which lives
    // through the call.
    unsafe { control(socket.as_raw_fd(), what, (&raw mut request).cast()) }
}

/// A station address as requests have it.
fn hardware([a, b, c, d, e, f]: [u8; 6]) -> libc::sockaddr {
    let mut data = [0; 14];
    for (into, byte) in data.iter_mut().zip([a, b, c, d, e, f]) {
        *into = libc::c_char::from_ne_bytes([byte]);
    }
    libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: data }
}

/// An address of IPv4 as requests have it: a port that says nothing, then the
/// address (`struct sockaddr_in`).
fn internet(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (into, byte) in data[2..].iter_mut().zip(address.octets()) {
        *into = libc::c_char::from_ne_bytes([byte]);
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

/// One request about an interface.
///
/// # Safety
/// The argument points to what the request reads and writes, or the request
/// takes a number for it.
unsafe fn control(fd: RawFd, what: libc::Ioctl, argument: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: the caller vouches for the argument.
    let done = unsafe { libc::ioctl(fd, what, argument) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
