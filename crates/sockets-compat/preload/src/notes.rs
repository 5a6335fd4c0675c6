//! Notes that programs send to the carrier of their host: a message of a Unix socket that lies
//! in the folder, with descriptors by which both wake each other.

use std::ffi::{CStr, c_int};
use std::ptr;

use crate::kernel::{self, Errno, call};
use crate::registry::Name;
use crate::segment::Role;

/// The most descriptors that go with a note.
pub(crate) const DESCRIPTORS: usize = 2;

/// What a program tells its carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) kind: Kind,
    /// Which end of the connection the program has.
    pub(crate) role: Role,
    pub(crate) name: Name,
}

/// What there is to say of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Its memory is offered to the other host.
    Offers = 1,
    /// A process has it that the carrier shall wake from now on.
    Joins = 2,
}

impl Note {
    pub(crate) const LEN: usize = 2 + 8 + Name::LEN;

    /// With the number of the process's descriptors.
    pub(crate) fn to_bytes(self, identity: u64) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        (bytes[0], bytes[1]) = (self.kind as u8, self.role as u8);
        bytes[2..10].copy_from_slice(&identity.to_ne_bytes());
        bytes[10..].copy_from_slice(&self.name.to_bytes());
        bytes
    }

    /// The note, and the number of the process's descriptors.
    pub(crate) fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<(Self, u64)> {
        let kind = match bytes[0] {
            1 => Kind::Offers,
            2 => Kind::Joins,
            _ => return None,
        };
        let role = match bytes[1] {
            0 => Role::Connector,
            1 => Role::Acceptor,
            _ => return None,
        };
        let (mut identity, mut name) = ([0; 8], [0; Name::LEN]);
        identity.copy_from_slice(&bytes[2..10]);
        name.copy_from_slice(&bytes[10..]);
        let note = Self { kind, role, name: Name::from_bytes(&name) };
        Some((note, u64::from_ne_bytes(identity)))
    }
}

/// Control data of a message with descriptors, aligned as its header asks for.
#[repr(C, align(8))]
pub(crate) struct Control([u8; 64]);

const _: () = assert!(CONTROL_LEN <= size_of::<Control>());
const CONTROL_LEN: usize =
    // SAFETY: only arithmetic.
    unsafe { libc::CMSG_SPACE((DESCRIPTORS * size_of::<c_int>()) as u32) as usize };

impl Control {
    pub(crate) const fn new() -> Self {
        Self([0; 64])
    }

    pub(crate) const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

/// Sends a message to anyone who has this socket of the file system. It waits a little if more
/// have done so than fit.
pub(crate) fn send(path: &CStr, note: &[u8], descriptors: &[c_int]) -> Result<(), Errno> {
    // SAFETY: an address of zeros is a valid one.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = path.to_bytes();
    if name.len() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(name) {
        *place = byte.cast_signed();
    }
    let mut part = libc::iovec { iov_base: note.as_ptr().cast_mut().cast(), iov_len: note.len() };
    // SAFETY: a header of zeros is one without address and control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut address).cast();
    header.msg_namelen = size_of::<libc::sockaddr_un>() as u32;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    let mut control = Control::new();
    if !descriptors.is_empty() {
        let len = size_of_val(descriptors);
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: only arithmetic.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(len as u32) } as usize;
        // SAFETY: there is room for one header and as many descriptors, as asserted above.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(len as u32) as usize;
            ptr::copy_nonoverlapping(descriptors.as_ptr().cast(), libc::CMSG_DATA(first), len);
        }
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let socket = call!(libc::SYS_socket, libc::AF_UNIX, kind, 0 as c_int)? as c_int;
    let a_little = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
    let _ = kernel::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &a_little);
    // Who only wakes another does not wait: where there is no room, it is awake.
    let flags = libc::MSG_NOSIGNAL | if note.is_empty() { libc::MSG_DONTWAIT } else { 0 };
    let sent = call!(libc::SYS_sendmsg, socket, &raw const header, flags);
    let _ = kernel::close(socket);
    sent.map(|_| ())
}
