//! An interface of the kernel whose bare IP packets a test reads and writes: the kernel's TCP
//! has a peer that does exactly what the test says.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::{Error, Tried};
use crate::netlink::Netlink;
use crate::sys;

/// An interface of the namespace in which it was opened. It goes when this is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    index: u32,
}

impl Tun {
    /// Makes an interface of this name in the namespace of the calling thread, gives it the
    /// addresses, each with the length of its network, and switches it on.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, no privilege, or the name is in use.
    pub fn open(name: &str, mtu: u32, addresses: &[(IpAddr, u8)]) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .tried("open /dev/net/tun")?;
        sys::make_tun(file.as_fd(), name).tried("make an interface of bare packets")?;
        let netlink = Netlink::open()?;
        let index = netlink.index_of(name)?;
        netlink.set_mtu(index, mtu)?;
        // What is put together to be cut again waits for more to be put to it.
        netlink.send_single(index)?;
        for (address, prefix) in addresses {
            netlink.add_address(index, *address, *prefix)?;
        }
        netlink.set_up(index)?;
        Ok(Self { file, index })
    }

    /// Sets the largest packet. Call it in the namespace of the interface.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), Error> {
        Netlink::open()?.set_mtu(self.index, mtu)
    }

    /// Hands a packet to the kernel, as if it had come in.
    ///
    /// # Errors
    /// The packet is of no version of IP, or the interface is off.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write_all(packet)
    }

    /// The next packet that the kernel has sent, in `into`, if there is one.
    ///
    /// # Errors
    /// The interface is off.
    pub fn receive<'a>(&self, into: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match (&self.file).read(into) {
            Ok(len) => Ok(Some(&into[..len])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
