//! Where the two ends of a connection find each other.
//!
//! The connector makes a file named by the two addresses of the connection, and the
//! acceptor looks for it in the folder of its user ([`crate::folder`]). Who does not know of
//! us never looks there. What is offered to another host is for the carrier, and is called
//! otherwise: an acceptor that is on this host all the same, at another address, must not
//! take it.
//!
//! A name proves nothing: who may write in the folder may exchange two of them. So what is
//! found says of which connection it is ([`crate::segment`]), and the kernel whether that is
//! true ([`crate::socket_diag`]).
//!
//! What does not live here: what killed processes leave there ([`self`]).

use std::cell::UnsafeCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use landfall_socket_rules::Transport;
use landfall_socket_status::{ProcessName, Record};

use crate::folder::{self, Fault, Folder, Owner, Path, group};
use crate::kernel;
use crate::kernel::Errno;
use crate::notes;
pub(crate) use crate::notes::Note;
use crate::segment::Role;
use crate::socket_diag::{ANY, Known, SocketDiag};
use crate::status;

/// Address and port of one end. IPv4 within IPv6 is IPv4: the ends need not agree on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    address: [u8; 16],
    port: u16,
}

impl Place {
    /// `None` where it is not of the Internet.
    pub(crate) fn of(storage: &libc::sockaddr_storage) -> Option<Self> {
        let storage = std::ptr::from_ref(storage);
        // SAFETY: the storage is large enough for each family.
        unsafe {
            match i32::from((*storage).ss_family) {
                libc::AF_INET => {
                    let short = &*storage.cast::<libc::sockaddr_in>();
                    let mut address = [0; 16];
                    address[10..12].fill(0xFF);
                    address[12..].copy_from_slice(&short.sin_addr.s_addr.to_ne_bytes());
                    Some(Self { address, port: u16::from_be(short.sin_port) })
                }
                libc::AF_INET6 => {
                    let long = &*storage.cast::<libc::sockaddr_in6>();
                    let port = u16::from_be(long.sin6_port);
                    Some(Self { address: long.sin6_addr.s6_addr, port })
                }
                _ => None,
            }
        }
    }

    pub(crate) const fn address(&self) -> &[u8; 16] {
        &self.address
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The address as one of IPv4, if it is.
    pub(crate) fn short_address(&self) -> Option<[u8; 4]> {
        std::net::Ipv6Addr::from(self.address).to_ipv4_mapped().map(|short| short.octets())
    }

    /// As the standard library has it.
    pub(crate) fn socket_address(&self) -> std::net::SocketAddr {
        (std::net::Ipv6Addr::from(self.address).to_canonical(), self.port).into()
    }

    fn is_unspecified(&self) -> bool {
        std::net::Ipv6Addr::from(self.address).to_canonical().is_unspecified()
    }

    pub(crate) fn is_loopback(&self) -> bool {
        let address = std::net::Ipv6Addr::from(self.address);
        address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
    }
}

/// A connection by its ends: who called whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) connector: Place,
    pub(crate) acceptor: Place,
    offered_to: OfferedTo,
}

/// Who looks for the memory of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferedTo {
    Acceptor,
    Carrier,
}

/// Bytes of a place.
const OF_PLACE: usize = 18;
const _: () = assert!(Name::LEN == Record::NAME);
/// What the file begins with that is for the carrier.
const TO_THE_CARRIER: &[u8] = b"to-";

impl Name {
    /// Bytes of a name.
    pub(crate) const LEN: usize = 2 * OF_PLACE;

    pub(crate) const fn new(connector: Place, acceptor: Place) -> Self {
        Self { connector, acceptor, offered_to: OfferedTo::Acceptor }
    }

    /// The same connection, whose memory is for the carrier of this host to find.
    pub(crate) const fn for_the_carrier(self) -> Self {
        Self { offered_to: OfferedTo::Carrier, ..self }
    }

    pub(crate) fn is_for_the_carrier(&self) -> bool {
        self.offered_to == OfferedTo::Carrier
    }

    /// The same connection, seen from its other end.
    pub(crate) const fn turned(self) -> Self {
        Self { connector: self.acceptor, acceptor: self.connector, ..self }
    }

    /// The name of the connection that `fd` is one end of; `None` if it is no connection.
    pub(crate) fn of(fd: i32, role: Role) -> Option<Self> {
        let here = Place::of(&kernel::name(fd, false).ok()?)?;
        let there = Place::of(&kernel::name(fd, true).ok()?)?;
        Some(match role {
            Role::Connector => Self::new(here, there),
            Role::Acceptor => Self::new(there, here),
        })
    }

    /// The same for one that has been called just now, and may still be being made.
    ///
    /// # Safety
    ///
    /// `address` has this many bytes.
    pub(crate) unsafe fn called(
        fd: i32,
        address: *const libc::sockaddr,
        len: libc::socklen_t,
    ) -> Option<Self> {
        // SAFETY: an address of zeros is one without a family.
        let mut there: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let len = (len as usize).min(size_of::<libc::sockaddr_storage>());
        // SAFETY: as promised; the storage is long enough.
        unsafe {
            std::ptr::copy_nonoverlapping(
                address.cast::<u8>(),
                std::ptr::from_mut(&mut there).cast(),
                len,
            );
        }
        let connector = Place::of(&kernel::name(fd, false).ok()?)?;
        let called = Place::of(&there)?;
        // Who calls no address gets this host; so does the kernel say, once they are connected.
        if called.is_unspecified() {
            let there = kernel::name(fd, true).ok().and_then(|there| Place::of(&there));
            return Some(Self::new(connector, there.unwrap_or(called)));
        }
        Some(Self::new(connector, called))
    }

    /// Whether both ends are here.
    pub(crate) fn is_within_this_host(&self) -> bool {
        self.acceptor.is_loopback() || self.acceptor.address == self.connector.address
    }

    /// As a file is called, and as carriers tell it to each other: address and port of both.
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (half, place) in bytes.chunks_exact_mut(OF_PLACE).zip([self.connector, self.acceptor]) {
            half[..16].copy_from_slice(&place.address);
            half[16..].copy_from_slice(&place.port.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let place = |at: usize| {
            let (mut address, mut port) = ([0; 16], [0; 2]);
            address.copy_from_slice(&bytes[at..at + 16]);
            port.copy_from_slice(&bytes[at + 16..at + OF_PLACE]);
            Place { address, port: u16::from_be_bytes(port) }
        };
        Self::new(place(0), place(OF_PLACE))
    }

    /// What its file is called.
    fn file_name(&self) -> Path {
        let mut name = Path::new();
        if self.offered_to == OfferedTo::Carrier {
            name.push(TO_THE_CARRIER);
        }
        name.push_hex(&self.to_bytes());
        name
    }

    /// The connection that a file stands for.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(TO_THE_CARRIER) {
            return Self::parse_places(rest).map(Self::for_the_carrier);
        }
        Self::parse_places(text)
    }

    fn parse_places(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        if text.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self::from_bytes(&bytes))
    }

    /// Makes the file; one of this name was of a connection that is no more.
    pub(crate) fn create(&self) -> Result<i32, Fault> {
        let create = |folder: &Folder| folder.create(self.file_name().as_c_str());
        match self.group() {
            Some(group) => Folder::make_in_groups(group, create),
            None => Folder::make_in(create),
        }
    }

    /// Opens the file that was made; and whose it has to be.
    pub(crate) fn open(&self) -> Result<(i32, Owner), Fault> {
        let folder = self.folder()?;
        Ok((folder.open_file(self.file_name().as_c_str())?, folder.owner()))
    }

    pub(crate) fn forget(&self) {
        if let Ok(folder) = self.folder() {
            self.forget_in(&folder);
        }
    }

    /// The group whose members find it; else those of one user do. Carriers are of one user.
    pub(crate) fn group(&self) -> Option<u32> {
        let is_between_programs = !self.is_for_the_carrier() && self.is_within_this_host();
        group::known().filter(|_| is_between_programs)
    }

    /// Where its file lies.
    fn folder(&self) -> Result<Folder, Fault> {
        self.group().map_or_else(Folder::open, Folder::open_of_group)
    }

    pub(crate) fn forget_in(&self, folder: &Folder) {
        folder.remove(self.file_name().as_c_str());
    }
}

/// A name that is written while nobody else knows of what it names.
#[derive(Debug)]
pub(crate) struct NameCell(UnsafeCell<Option<Name>>);

// SAFETY: as `set` asks, nobody writes while another reads.
unsafe impl Sync for NameCell {}

impl NameCell {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// # Safety
    ///
    /// Nobody reads it now.
    pub(crate) const unsafe fn set(&self, name: Name) {
        // SAFETY: as promised.
        unsafe { *self.0.get() = Some(name) };
    }

    pub(crate) const fn get(&self) -> Option<Name> {
        // SAFETY: see `set`.
        unsafe { *self.0.get() }
    }
}

/// Where in the folder the carrier of this host hears of connections.
pub(crate) fn carrier(transport: Transport) -> Path {
    let mut name = Path::new();
    name.push(b"carrier-");
    name.push(transport.word().as_bytes());
    name
}

/// Sends a note to the carrier of this host, with descriptors. An empty one only wakes it.
pub(crate) fn send_to_carrier(
    transport: Transport,
    note: &[u8],
    descriptors: &[i32],
) -> Result<(), Fault> {
    let folder = Folder::open()?;
    let path = folder.path_of(carrier(transport).as_c_str().to_bytes());
    Ok(notes::send(path.as_c_str(), note, descriptors)?)
}

// What killed processes left behind: names of connections that are no more.
//
// Who closes a connection takes its name away; who is killed cannot. So each program that
// starts looks at a few names and asks the kernel (`sock_diag`) whether there is such a
// connection. A name is made after its connection, so one without is nobody's.

/// Bounds the clean-up at start: what is read of the folder, and what the kernel is asked for.
const MOST_READ: usize = 1024;
const MOST: usize = 32;

/// Takes some of the names away whose connections, or processes, are no more; and folders that
/// nobody needs.
pub(crate) fn sweep() {
    let of_group = group::known().map(Folder::open_of_group);
    for folder in std::iter::once(Folder::open()).chain(of_group).flatten() {
        sweep_names(&folder);
    }
    folder::remove_empty_ones();
}

fn sweep_names(folder: &Folder) {
    let path = folder.path_of(b".");
    let path = OsStr::from_bytes(path.as_c_str().to_bytes());
    let Ok(entries) = std::fs::read_dir(path) else { return };
    let entries: Vec<_> =
        entries.flatten().take(MOST_READ).map(|entry| entry.file_name()).collect();
    let processes = entries.iter().filter_map(|entry| ProcessName::parse(entry.as_bytes()));
    for process in processes.take(MOST).filter(status::is_left_over) {
        folder.remove(folder::name(&process).as_c_str());
    }
    let names = entries.iter().filter_map(|entry| Name::parse(entry.as_bytes()));
    let names: Vec<_> = names.take(MOST).collect();
    if names.is_empty() {
        return;
    }
    let Ok(diag) = SocketDiag::open() else { return };
    for name in names {
        if is_gone(&diag, &name) == Ok(true) {
            name.forget_in(folder);
        }
    }
}

/// Whether the kernel knows of no connection between these two, at either end: of one
/// between hosts it has only one.
fn is_gone(diag: &SocketDiag, name: &Name) -> Result<bool, Errno> {
    let is_known = |role| {
        let end = diag.end_of(name, role, ANY, 0)?;
        Ok::<_, Errno>(end.as_ref().is_some_and(Known::is_connected))
    };
    Ok(!is_known(Role::Connector)? && !is_known(Role::Acceptor)?)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::kernel;
    use crate::kernel::Errno;
    use crate::registry::Place;

    fn name_of(connector: &TcpStream) -> Name {
        Name::of(connector.as_raw_fd(), Role::Connector).unwrap()
    }

    #[test]
    fn both_ends_have_one_name() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connector = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (acceptor, _) = listener.accept().unwrap();
        let here = name_of(&connector);
        let there = name_of(&acceptor);
        assert_eq!((here.connector, here.acceptor), (there.acceptor, there.connector));

        assert_eq!(here.open().unwrap_err(), Fault::Kernel(Errno(libc::ENOENT)));
        let made = here.create().unwrap();
        let again = here.create().unwrap();
        let (found, _) = here.open().unwrap();
        assert_eq!(kernel::status(found).unwrap().st_ino, kernel::status(again).unwrap().st_ino);
        assert_ne!(kernel::status(found).unwrap().st_ino, kernel::status(made).unwrap().st_ino);
        here.forget();
        assert!(here.open().is_err());
        let carried = here.for_the_carrier().create().unwrap();
        assert!(here.open().is_err(), "an acceptor of this host takes what is for another");
        here.for_the_carrier().forget();
        for file in [made, again, found, carried] {
            kernel::close(file).unwrap();
        }
    }

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
            let diag = SocketDiag::open().unwrap();
            assert_eq!(is_gone(&diag, &name), Ok(false));
            let (acceptor, _) = listener.accept().unwrap();
            // Abruptly, so that the kernel remembers nothing.
            let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
            kernel::set_option(connector.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &at_once)
                .unwrap();
            drop(connector);
            drop(acceptor);
            assert_eq!(is_gone(&diag, &name), Ok(true));
            assert_eq!(is_gone(&diag, &other), Ok(true), "a listener is no connection");
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
