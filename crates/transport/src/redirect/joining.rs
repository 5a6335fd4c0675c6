//! Whether the kernel joins what arrives at an interface (GRO): `ethtool -K … gro on`.

use std::io;
use std::os::fd::AsRawFd;

use socket2::Socket;

use crate::packet::named_interface;

/// Numbers of `linux/sockios.h` and `linux/ethtool.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// It does as long as this lives; then it does not, as before.
#[derive(Debug)]
pub(super) struct Joining {
    /// In the network namespace of the interface.
    socket: Socket,
    name: String,
}

impl Joining {
    /// `None` where it does so anyway, or cannot.
    pub(super) fn switch_on(socket: Socket, name: &str) -> Option<Self> {
        let is_off = ask(&socket, name, ETHTOOL_GGRO, 0).is_ok_and(|on| on == 0);
        (is_off && ask(&socket, name, ETHTOOL_SGRO, 1).is_ok())
            .then(|| Self { socket, name: name.to_owned() })
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        // With an interface that is gone it goes too.
        let _ = ask(&self.socket, &self.name, ETHTOOL_SGRO, 0);
    }
}

/// One request about an interface, which takes a number and gives one.
fn ask(socket: &Socket, name: &str, command: u32, data: u32) -> io::Result<u32> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command, data };
    let mut request = named_interface(name).ok_or(io::ErrorKind::InvalidInput)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request is for an `ifreq` that names a `struct ethtool_value`, for these
    // commands. Both live through the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done == 0 { Ok(value.data) } else { Err(io::Error::last_os_error()) }
}
