//! Datagrams that arrive together, for tests of what a driver does with a batch.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use crate::error::Error;
use crate::rivals::UDP_SEGMENT;
use crate::sys;

/// From now on the kernel cuts what is sent on a socket into datagrams of this
/// length. On loopback they arrive in one piece, for a receiver that takes them so.
///
/// # Errors
/// The kernel refused `UDP_SEGMENT`.
pub fn send_in_batches(socket: &UdpSocket, datagram: u16) -> Result<(), Error> {
    sys::set_option(socket.as_fd(), libc::SOL_UDP, UDP_SEGMENT, datagram.into())
        .map_err(|source| Error::system("switch UDP segmentation on", source))
}
