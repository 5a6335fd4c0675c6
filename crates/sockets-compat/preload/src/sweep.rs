//! What killed processes left behind: names of connections that are no more.
//!
//! Who closes a connection takes its name away; who is killed cannot. So each program that
//! starts looks at a few names and asks the kernel (`sock_diag`) whether there is such a
//! connection. A name is made after its connection, so one without is nobody's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::folder::Folder;
use crate::kernel::Errno;
use crate::registry::Name;
use crate::segment::Side;
use crate::witness::{ANY, Known, Witness};

/// A program shall not wait for the sins of many others.
const MOST: usize = 32;

/// Takes some of the names away whose connections are no more.
pub(crate) fn sweep() {
    let Ok(folder) = Folder::open() else { return };
    let path = folder.path_of(b".");
    let path = OsStr::from_bytes(path.as_c_str().to_bytes());
    let Ok(entries) = std::fs::read_dir(path) else { return };
    let entries = entries.flatten().take(MOST);
    let names: Vec<_> =
        entries.filter_map(|entry| Name::parse(entry.file_name().as_bytes())).collect();
    if names.is_empty() {
        return;
    }
    let Ok(witness) = Witness::open() else { return };
    for name in names {
        if is_gone(&witness, &name) == Ok(true) {
            name.forget_in(&folder);
        }
    }
}

/// Whether the kernel knows of no connection between these two, at either end: of one
/// between hosts it has only one.
fn is_gone(witness: &Witness, name: &Name) -> Result<bool, Errno> {
    let is_known = |side| {
        let end = witness.end_of(name, side, ANY, 0)?;
        Ok::<_, Errno>(end.as_ref().is_some_and(Known::is_connected))
    };
    Ok(!is_known(Side::Connector)? && !is_known(Side::Acceptor)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel;
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
            let witness = Witness::open().unwrap();
            assert_eq!(is_gone(&witness, &name), Ok(false));
            let (acceptor, _) = listener.accept().unwrap();
            // Abruptly, so that the kernel remembers nothing.
            let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
            kernel::set_option(connector.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &at_once)
                .unwrap();
            drop(connector);
            drop(acceptor);
            assert_eq!(is_gone(&witness, &name), Ok(true));
            assert_eq!(is_gone(&witness, &other), Ok(true), "a listener is no connection");
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
