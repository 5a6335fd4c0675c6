//! What the kernel knows of an interface: `netdevice(7)`.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};

use socket2::Socket;

use super::{Interface, OpenError};

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
    ask(fd, libc::SIOCGIFINDEX, &mut request).map_err(|_| none())?;
    // SAFETY: SIOCGIFINDEX fills in this number.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    ask(fd, libc::SIOCGIFMTU, &mut request).map_err(OpenError::system("ask for the MTU"))?;
    // SAFETY: SIOCGIFMTU fills in this number.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    ask(fd, libc::SIOCGIFHWADDR, &mut request)
        .map_err(OpenError::system("ask for the station address"))?;
    // SAFETY: SIOCGIFHWADDR fills in this address.
    let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
    if !matches!(hardware.sa_family, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
        let (interface, kind) = (interface.clone(), hardware.sa_family);
        return Err(OpenError::NotEthernet { interface, kind });
    }
    let [a, b, c, d, e, f, ..] = hardware.sa_data.map(|byte| byte.cast_unsigned());
    Ok(Found {
        index: index.cast_unsigned(),
        mtu: mtu.cast_unsigned(),
        station: [a, b, c, d, e, f],
    })
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
    ask(fd, libc::SIOCGIFNAME, &mut request)?;
    Ok(request)
}

/// Makes a request of the kernel: one that reads and writes an `ifreq`, and
/// follows no pointer in it, as all of `netdevice(7)` but SIOCGIFCONF are.
pub(crate) fn ask(fd: RawFd, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the request lives through the call, and points to nothing.
    let done = unsafe { libc::ioctl(fd, what as libc::Ioctl, std::ptr::from_mut(request)) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
