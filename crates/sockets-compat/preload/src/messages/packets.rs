//! What goes between a program and the service, through a pair of the kernel's sockets.
//!
//! Each packet is one message, or a word about the socket. A short message is a packet
//! as it stands; a long one lies in a file in memory, and the packet carries the file. So
//! the kernel keeps messages apart and in their order, no matter who writes and reads, in
//! whichever process.
//!
//! ```text
//!   to the program    bytes                 a message
//!                     length, padding       a message in a file        [file]
//!                     names of both ends    a connection came in       [socket, page]
//!   to the service    bytes                 a message (also of one who knows nothing of us)
//!                     1, bytes              a message                  [answer]
//!                     2, padding            a message in a file        [file] or [file, answer]
//!                     3, limit              messages may be so long    [answer]
//!                     4, padding            nothing: it takes up room  [answer]
//! ```
//!
//! The padding weighs a file down, so that the kernel's bound for what waits in a socket
//! bounds long messages, too.
//!
//! Names of ends: as C has them, and as they go through a pair.

use std::ffi::c_int;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use libc::{sockaddr, socklen_t};

use crate::kernel::{self, Errno, Outcome, Part, call};
use crate::transfer::total;

/// The longest message that is a packet as it stands.
pub(super) const SHORT: usize = 32 << 10;
/// Bytes of a packet that carries a file.
const WEIGHT: usize = 48 << 10;
/// A packet after which there is no room for another, as `poll` sees it.
const FULL: usize = 64 << 10;
/// What may wait in one direction of a pair: the kernel's usual bound. It doubles what it
/// is told.
const BOUND: c_int = 212_992 / 2;
/// The longest packet that fits.
pub(super) const LONGEST: usize = 2 * BOUND as usize;

static PADDING: [u8; FULL] = [0; FULL];

/// What a packet with files, for the service, is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Message = 1,
    File = 2,
    Limit = 3,
    Filler = 4,
}

impl Kind {
    pub(super) fn of(byte: u8) -> Option<Self> {
        let all = [Self::Message, Self::File, Self::Limit, Self::Filler];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A descriptor that is closed with its owner, past our own `close`.
#[derive(Debug)]
pub(super) struct File(c_int);

impl File {
    pub(super) const fn fd(&self) -> c_int {
        self.0
    }

    /// It is somebody else's now.
    pub(super) fn into_fd(self) -> c_int {
        let fd = self.0;
        std::mem::forget(self);
        fd
    }

    pub(super) fn in_memory() -> Result<Self, Errno> {
        let name = c"landfall-message";
        call!(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC).map(|fd| Self(fd as c_int))
    }

    /// A counter that can be waited for: zero until something is written.
    pub(super) fn counter() -> Result<Self, Errno> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        call!(libc::SYS_eventfd2, 0_usize, flags).map(|fd| Self(fd as c_int))
    }

    pub(super) fn count(&self, number: u64) {
        let bytes = number.to_ne_bytes();
        let _ = call!(libc::SYS_write, self.0, bytes.as_ptr(), bytes.len());
    }

    /// What was written to a counter, if anything.
    pub(super) fn counted(&self) -> Option<u64> {
        let mut bytes = [0_u8; 8];
        let read = call!(libc::SYS_read, self.0, bytes.as_mut_ptr(), bytes.len());
        (read == Ok(bytes.len())).then(|| u64::from_ne_bytes(bytes))
    }

    /// A file with these bytes.
    ///
    /// # Safety
    ///
    /// `parts` may be read.
    pub(super) unsafe fn with(parts: &[Part]) -> Result<Self, Errno> {
        let file = Self::in_memory()?;
        for part in parts {
            let mut done = 0;
            while done < part.len {
                let from = part.base.wrapping_add(done);
                done += call!(libc::SYS_write, file.0, from, part.len - done)?;
            }
        }
        Ok(file)
    }

    pub(super) fn len(&self) -> Result<usize, Errno> {
        Ok(usize::try_from(kernel::status(self.0)?.st_size).unwrap_or(0))
    }

    /// Reads from its beginning into the parts, as far as there is room.
    ///
    /// # Safety
    ///
    /// `parts` may be written.
    pub(super) unsafe fn read(&self, parts: &[Part]) -> Result<(), Errno> {
        let mut at = 0;
        for part in parts {
            let mut done = 0;
            while done < part.len {
                let (into, room) = (part.base.wrapping_add(done), part.len - done);
                match call!(libc::SYS_pread64, self.0, into, room, at)? {
                    0 => return Ok(()),
                    read => (done, at) = (done + read, at + read),
                }
            }
        }
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = kernel::close(self.0);
    }
}

/// Two sockets of the kernel that are connected to each other: one for the program, one
/// for the service. `flags` are those of `socket`, for the program's.
pub(super) fn pair(flags: c_int) -> Result<(File, File), Errno> {
    let mut fds = [0 as c_int; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    call!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0_usize, fds.as_mut_ptr())?;
    let (near, service_end) = (File(fds[0]), File(fds[1]));
    for end in [&near, &service_end] {
        kernel::set_option(end.0, libc::SOL_SOCKET, libc::SO_SNDBUF, &BOUND)?;
    }
    set_flags(&near, flags)?;
    call!(libc::SYS_fcntl, service_end.0, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK)?;
    Ok((near, service_end))
}

/// Makes of a descriptor what `SOCK_NONBLOCK` and `SOCK_CLOEXEC` ask for.
pub(super) fn set_flags(file: &File, flags: c_int) -> Result<(), Errno> {
    let status = if flags & libc::SOCK_NONBLOCK == 0 { 0 } else { libc::O_NONBLOCK };
    let closes = if flags & libc::SOCK_CLOEXEC == 0 { 0 } else { libc::FD_CLOEXEC };
    call!(libc::SYS_fcntl, file.0, libc::F_SETFL, libc::O_RDWR | status)?;
    call!(libc::SYS_fcntl, file.0, libc::F_SETFD, closes)?;
    Ok(())
}

pub(super) fn shut(fd: c_int, how: c_int) {
    let _ = call!(libc::SYS_shutdown, fd, how);
}

/// Room for control data with as many files as there ever are.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The most files of one packet.
const MOST: usize = 2;

fn header(parts: &[Part]) -> libc::msghdr {
    // SAFETY: a header of zeros is one without address and control data.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = parts.len();
    header
}

/// Sends one packet.
///
/// # Safety
///
/// `parts` may be read.
pub(super) unsafe fn send(fd: c_int, parts: &[Part], files: &[&File], flags: c_int) -> Outcome {
    let mut control = Control([0; 64]);
    let mut header = header(parts);
    if !files.is_empty() {
        let len = size_of_val(&files[0].0) * files.len();
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: there is room for this many; the macros of C find their way in it.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(len as u32) as usize;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(len as u32) as usize;
            let data = libc::CMSG_DATA(first).cast::<c_int>();
            for (at, file) in files.iter().enumerate() {
                data.add(at).write_unaligned(file.0);
            }
        }
    }
    call!(libc::SYS_sendmsg, fd, ptr::from_ref(&header), flags)
}

/// The same from memory of ours.
pub(super) fn send_bytes(fd: c_int, bytes: &[&[u8]], files: &[&File], flags: c_int) -> Outcome {
    let nothing = Part { base: ptr::null_mut(), len: 0 };
    let mut parts = [nothing; 3];
    for (part, bytes) in parts.iter_mut().zip(bytes) {
        *part = Part { base: bytes.as_ptr().cast_mut(), len: bytes.len() };
    }
    // SAFETY: slices.
    unsafe { send(fd, &parts[..bytes.len()], files, flags) }
}

/// Bytes that give a packet its weight, behind this many others.
pub(super) fn padding(before: usize) -> &'static [u8] {
    &PADDING[..WEIGHT - before]
}

/// A packet that leaves no room for another, as `poll` sees it.
pub(super) fn fill(fd: c_int) -> Result<(), Errno> {
    let mark = File::counter()?;
    let kind = [Kind::Filler as u8];
    send_bytes(fd, &[&kind, &PADDING], &[&mark], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)?;
    Ok(())
}

/// A packet that came.
#[derive(Debug)]
pub(super) struct Packet {
    /// How long it was, whatever there was room for.
    pub(super) len: usize,
    pub(super) files: [Option<File>; MOST],
}

/// Takes one packet, or looks at it.
///
/// # Safety
///
/// `parts` may be written.
pub(super) unsafe fn receive(fd: c_int, parts: &[Part], flags: c_int) -> Result<Packet, Errno> {
    let mut control = Control([0; 64]);
    let mut header = header(parts);
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    let flags = flags | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
    let len = call!(libc::SYS_recvmsg, fd, ptr::from_mut(&mut header), flags)?;
    let mut files = [None, None];
    // SAFETY: the kernel has filled it.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        if !first.is_null()
            && ((*first).cmsg_level, (*first).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        {
            let data = libc::CMSG_DATA(first).cast::<c_int>();
            let bytes = (*first).cmsg_len.saturating_sub(data as usize - first as usize);
            for at in 0..bytes / size_of::<c_int>() {
                let file = File(data.add(at).read_unaligned());
                if let Some(place) = files.get_mut(at) {
                    *place = Some(file);
                }
            }
        }
    }
    Ok(Packet { len, files })
}

/// The length of the message that is next for the program, which stays.
pub(super) fn next_length(fd: c_int, flags: c_int) -> Result<usize, Errno> {
    let mut head = [0_u8; 8];
    let parts = [Part { base: head.as_mut_ptr(), len: head.len() }];
    let mut header = header(&parts);
    let flags = flags | libc::MSG_PEEK | libc::MSG_TRUNC;
    let len = call!(libc::SYS_recvmsg, fd, ptr::from_mut(&mut header), flags)?;
    // Without room for files the kernel says that there were some.
    let is_file = header.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(if is_file { u64::from_ne_bytes(head) as usize } else { len })
}

/// Gives the program a message; whether there was room for it.
pub(super) fn deliver(fd: c_int, message: &[u8]) -> Outcome {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    if message.len() <= SHORT {
        return send_bytes(fd, &[message], &[], flags);
    }
    let part = Part { base: message.as_ptr().cast_mut(), len: message.len() };
    // SAFETY: a slice.
    let file = unsafe { File::with(&[part]) }?;
    let len = (message.len() as u64).to_ne_bytes();
    send_bytes(fd, &[&len, padding(len.len())], &[&file], flags)
}

/// Whether the message of a program goes as a packet as it stands, with one byte before it.
pub(super) fn is_short(parts: &[Part]) -> bool {
    (1..=SHORT).contains(&total(parts)) && parts.len() < SHORT_PARTS
}

/// This many parts are sent as they stand; more are rare, and go by a file.
pub(super) const SHORT_PARTS: usize = 16;

/// The name that a program gave.
///
/// # Safety
///
/// `address` is null, or has this many bytes.
pub(crate) unsafe fn given_name(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<SocketAddr, Errno> {
    if address.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let has = |wanted: usize| len as usize >= wanted;
    if !has(size_of::<libc::sa_family_t>()) {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: as promised, and looked at no further than its length.
    unsafe {
        match c_int_of((*address).sa_family) {
            libc::AF_INET if has(size_of::<libc::sockaddr_in>()) => {
                let name = address.cast::<libc::sockaddr_in>().read_unaligned();
                let host = name.sin_addr.s_addr.to_ne_bytes();
                Ok(SocketAddrV4::new(host.into(), u16::from_be(name.sin_port)).into())
            }
            libc::AF_INET6 if has(size_of::<libc::sockaddr_in6>()) => {
                let name = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let (host, port) = (name.sin6_addr.s6_addr, u16::from_be(name.sin6_port));
                let (flow, scope) = (name.sin6_flowinfo, name.sin6_scope_id);
                Ok(SocketAddrV6::new(host.into(), port, flow, scope).into())
            }
            libc::AF_INET | libc::AF_INET6 => Err(Errno(libc::EINVAL)),
            _ => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }
}

const fn c_int_of(family: libc::sa_family_t) -> libc::c_int {
    family as libc::c_int
}

/// Writes a name where a program wants it, as far as there is room; its length is told.
///
/// # Safety
///
/// Both are null, or the program's, with room for what `len` says.
pub(crate) unsafe fn write_name(name: SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    if address.is_null() || len.is_null() {
        return;
    }
    // SAFETY: numbers only.
    let mut all: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let used = match name {
        SocketAddr::V4(name) => {
            // SAFETY: there is room for any name.
            let place = unsafe { &mut *(&raw mut all).cast::<libc::sockaddr_in>() };
            place.sin_family = libc::AF_INET as libc::sa_family_t;
            place.sin_port = name.port().to_be();
            place.sin_addr.s_addr = u32::from_ne_bytes(name.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(name) => {
            // SAFETY: as above.
            let place = unsafe { &mut *(&raw mut all).cast::<libc::sockaddr_in6>() };
            place.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            place.sin6_port = name.port().to_be();
            place.sin6_addr.s6_addr = name.ip().octets();
            place.sin6_scope_id = name.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    // SAFETY: as promised.
    unsafe {
        let room = used.min(*len as usize);
        std::ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), address.cast(), room);
        *len = used as socklen_t;
    }
}

/// One name as it goes through a pair: version, host, port.
const ONE: usize = 1 + 16 + 2;
/// The names of both ends.
pub(super) const BOTH: usize = 2 * ONE;

pub(super) fn write(here: SocketAddr, there: SocketAddr) -> [u8; BOTH] {
    let mut bytes = [0; BOTH];
    for (place, name) in bytes.chunks_exact_mut(ONE).zip([here, there]) {
        place[0] = if name.is_ipv4() { 4 } else { 6 };
        let host = match name.ip() {
            IpAddr::V4(host) => host.to_ipv6_mapped(),
            IpAddr::V6(host) => host,
        };
        place[1..17].copy_from_slice(&host.octets());
        place[17..].copy_from_slice(&name.port().to_be_bytes());
    }
    bytes
}

pub(super) fn read(bytes: &[u8; BOTH]) -> Option<(SocketAddr, SocketAddr)> {
    let mut names = bytes.chunks_exact(ONE).map(|bytes| {
        let host = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[1..17]).ok()?);
        let host = match bytes[0] {
            4 => IpAddr::V4(host.to_ipv4_mapped()?),
            6 => IpAddr::V6(host),
            _ => return None,
        };
        Some(SocketAddr::new(host, u16::from_be_bytes([bytes[17], bytes[18]])))
    });
    Some((names.next()??, names.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_went() {
        let four: SocketAddr = "10.1.2.3:118".parse().unwrap();
        let six: SocketAddr = "[fe80::7]:65535".parse().unwrap();
        assert_eq!(read(&write(four, six)), Some((four, six)));
        assert_eq!(read(&[0; BOTH]), None);
    }
}
