//! What the kernel knows of an interface: `netdevice(7)`.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};

use socket2::Socket;

use super::Interface;
use crate::OpenError;

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
    let [a, b, c, d, e, f, ..] = hardware.sa_data.map(|byte| byte.cast_unsigned());
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
        *into = byte.cast_signed();
    }
    Some(request)
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
