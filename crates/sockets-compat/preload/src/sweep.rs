//! What killed processes left behind: names of connections that are no more.
//!
//! Who closes a connection takes its name away; who is killed cannot. So each program that
//! starts looks at a few names and asks the kernel (`sock_diag`) whether there is such a
//! connection. A name is made after its connection, so one without is nobody's.

use std::os::unix::ffi::OsStrExt;

use crate::kernel::{self, Errno, Known};
use crate::registry::{self, Name};
use crate::segment::Side;

/// A program shall not wait for the sins of many others.
const MOST: usize = 32;

/// Takes some of the names away whose connections are no more.
pub(crate) fn sweep() {
    let Some(folder) = registry::folder() else { return };
    let folder = std::ffi::OsStr::from_bytes(folder.as_c_str().to_bytes());
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let entries = entries.flatten().take(MOST);
    let names: Vec<_> =
        entries.filter_map(|entry| Name::parse(entry.file_name().as_bytes())).collect();
    if names.is_empty() {
        return;
    }
    let Ok(diag) = kernel::open_sock_diag() else { return };
    for name in names {
        if is_gone(diag, &name) == Ok(true) {
            name.forget();
        }
    }
    let _ = kernel::close(diag);
}

/// Whether the kernel knows of no connection between these two, at either end: of one
/// between hosts it has only one.
fn is_gone(diag: i32, name: &Name) -> Result<bool, Errno> {
    let is_known = |end: Option<Known>| end.is_some_and(|end| end.is_connected());
    Ok(!is_known(end_of(diag, name, Side::Connector, ANY)?)
        && !is_known(end_of(diag, name, Side::Acceptor, ANY)?))
}

/// Whatever its cookie.
pub(crate) const ANY: u64 = u64::MAX;

/// What this host's kernel knows of one end of a connection; nothing, if that has another
/// cookie.
pub(crate) fn end_of(
    diag: i32,
    name: &Name,
    side: Side,
    cookie: u64,
) -> Result<Option<Known>, Errno> {
    let seen_from = match side {
        Side::Connector => *name,
        Side::Acceptor => name.turned(),
    };
    match kernel::socket_of(diag, &question(&seen_from, cookie)) {
        Err(Errno(libc::ESTALE)) => Ok(None),
        known => known,
    }
}

/// `SOCK_DIAG_BY_FAMILY` for one connection, seen from its connector.
fn question(name: &Name, cookie: u64) -> [u8; 72] {
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    let mut bytes = [0; 72];
    bytes[..4].copy_from_slice(&72_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let short = name.connector.short_address().zip(name.acceptor.short_address());
    bytes[16] = if short.is_some() { libc::AF_INET } else { libc::AF_INET6 } as u8;
    bytes[17] = libc::IPPROTO_TCP as u8;
    bytes[20..24].fill(0xFF);
    bytes[24..26].copy_from_slice(&name.connector.port().to_be_bytes());
    bytes[26..28].copy_from_slice(&name.acceptor.port().to_be_bytes());
    if let Some((connector, acceptor)) = short {
        bytes[28..32].copy_from_slice(&connector);
        bytes[44..48].copy_from_slice(&acceptor);
    } else {
        bytes[28..44].copy_from_slice(name.connector.address());
        bytes[44..60].copy_from_slice(name.acceptor.address());
    }
    bytes[64..72].copy_from_slice(&cookie.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Place;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connection_is_known_while_it_is_there() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let place = |of_peer| {
                Place::of(&kernel::name(connector.as_raw_fd(), of_peer).unwrap()).unwrap()
            };
            let name = Name::new(place(false), place(true));
            let other = name.turned();
            let diag = kernel::open_sock_diag().unwrap();
            assert_eq!(is_gone(diag, &name), Ok(false));
            let (acceptor, _) = listener.accept().unwrap();
            // Abruptly, so that the kernel remembers nothing.
            let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
            kernel::set_option(connector.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &at_once)
                .unwrap();
            drop(connector);
            drop(acceptor);
            assert_eq!(is_gone(diag, &name), Ok(true));
            assert_eq!(is_gone(diag, &other), Ok(true), "a listener is no connection");
            kernel::close(diag).unwrap();
        }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let text = b"00000000000000000000ffff7f00000187fc00000000000000000000ffff7f0000018f4d";
        let name = Name::parse(text).unwrap();
        assert_eq!(name.connector.short_address(), Some([127, 0, 0, 1]));
        assert_eq!((name.connector.port(), name.acceptor.port()), (0x87fc, 0x8f4d));
        assert_eq!(Name::parse(&[b"to-", &text[..]].concat()), Some(name.for_the_carrier()));
        assert_eq!(Name::parse(&text[1..]), None);
        assert_eq!(Name::parse(b"something else"), None);
    }
}
