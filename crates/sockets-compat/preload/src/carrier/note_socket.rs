//! Where programs of this host leave notes for their carrier.
//!
//! A socket beside the memory that they offer. A note is the name of a connection; all else is
//! in its memory. Who may leave one may enter the folder, which is proven to belong to this
//! user alone ([`crate::folder`]); and as anyone who may do so can name any connection, the
//! carrier asks the kernel before it takes one.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use landfall_socket_rules::Transport;

use crate::folder::{Fault, Folder};
use crate::kernel::Errno;
use crate::notes::{Control, DESCRIPTORS, Note};
use crate::registry;

/// The socket; its name is taken away with it.
pub(super) struct NoteSocket {
    socket: UnixDatagram,
    /// By way of the folder, which stays open.
    path: PathBuf,
    _folder: Folder,
}

/// A note that came, and how to wake the program that left it.
pub(super) struct Received {
    pub(super) note: Note,
    /// The same for all notes of a process.
    pub(super) identity: u64,
    /// What the carrier writes to, and what it is woken by; nothing where the program has none.
    pub(super) descriptors: Option<[OwnedFd; DESCRIPTORS]>,
}

impl NoteSocket {
    pub(super) fn open(transport: Transport) -> io::Result<Self> {
        const TRIES: u32 = 16;
        for _ in 1..TRIES {
            match Self::open_once(transport) {
                // Somebody has removed the folder while it was empty.
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
        Self::open_once(transport)
    }

    fn open_once(transport: Transport) -> io::Result<Self> {
        let folder = Folder::open_or_make().map_err(|why| match why {
            Fault::Kernel(Errno(libc::ENOENT)) => io::ErrorKind::NotFound.into(),
            why => io::Error::other(why.to_string()),
        })?;
        let path = folder.path_of(registry::carrier(transport).as_c_str().to_bytes());
        let path = PathBuf::from(OsStr::from_bytes(path.as_c_str().to_bytes()));
        if UnixDatagram::unbound()?.connect(&path).is_ok() {
            let text = format!("another carrier for {} is at work here", transport.word());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        // Of one that was killed.
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path, _folder: folder })
    }

    /// The name that is taken away at the end.
    pub(super) const fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The next note; nothing where none is there. One that makes no sense is left out, and so
    /// is an empty one, which only wakes.
    pub(super) fn next(&self) -> io::Result<Option<Received>> {
        loop {
            let mut bytes = [0; Note::LEN + 1];
            let (len, descriptors) = match self.receive(&mut bytes) {
                Ok(received) => received,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            let note = bytes[..len].try_into().ok().and_then(Note::from_bytes);
            if let Some((note, identity)) = note {
                return Ok(Some(Received { note, identity, descriptors }));
            }
        }
    }

    fn receive(&self, bytes: &mut [u8]) -> io::Result<(usize, Option<[OwnedFd; DESCRIPTORS]>)> {
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = Control::new();
        // SAFETY: a header of zeros is one without address and control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the header names places of ours.
        let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, flags) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        let mut descriptors = Vec::new();
        // SAFETY: the kernel has filled the control data, which lies in our buffer.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&raw const header);
            while let Some(control) = next.as_ref() {
                if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                    let data = libc::CMSG_DATA(next).cast::<i32>();
                    let count = (control.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<i32>();
                    // Each is ours from here on.
                    descriptors.extend(
                        (0..count).map(|at| OwnedFd::from_raw_fd(data.add(at).read_unaligned())),
                    );
                }
                next = libc::CMSG_NXTHDR(&raw const header, next);
            }
        }
        Ok((len, descriptors.try_into().ok()))
    }
}

impl AsFd for NoteSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for NoteSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
