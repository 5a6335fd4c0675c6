//! Where programs of this host leave notes: a socket beside the memory that they offer.
//!
//! A note is the name of a connection; all else is in its memory. Who may leave one may enter
//! the folder, which is proven to belong to this user alone ([`crate::folder`]); and as
//! whoever may do so can name any connection, the carrier asks the kernel before it takes one.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use landfall_socket_rules::Way;

use crate::folder::Folder;
use crate::registry::{self, Name};

/// The socket; its name is taken away with it.
pub(super) struct Desk {
    socket: UnixDatagram,
    /// By way of the folder, which stays open.
    path: PathBuf,
    _folder: Folder,
}

impl Desk {
    pub(super) fn open(way: Way) -> io::Result<Self> {
        let folder = Folder::open_or_make().map_err(|why| io::Error::other(why.to_string()))?;
        let path = folder.path_of(registry::carrier(way).as_c_str().to_bytes());
        let path = PathBuf::from(OsStr::from_bytes(path.as_c_str().to_bytes()));
        if UnixDatagram::unbound()?.connect(&path).is_ok() {
            let text = format!("another carrier for {} is at work here", way.word());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        // Of one that was killed.
        let _ = std::fs::remove_file(&path);
        Ok(Self { socket: UnixDatagram::bind(&path)?, path, _folder: folder })
    }

    /// When the operator ends the process, the name is taken away. To be called before
    /// there is another thread: all that are started later leave these signals to one.
    pub(super) fn is_cleared_at_the_end(&self) -> io::Result<()> {
        const ENDS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        // SAFETY: a set of ours; a set of zeros is a valid one.
        let ends = unsafe {
            let mut ends: libc::sigset_t = std::mem::zeroed();
            for signal in ENDS {
                libc::sigaddset(&raw mut ends, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ends, std::ptr::null_mut());
            ends
        };
        let path = self.path.clone();
        let wait = move || {
            let mut signal = 0;
            // SAFETY: the set from above, and a place for a number.
            while unsafe { libc::sigwait(&raw const ends, &raw mut signal) } != 0 {}
            let _ = std::fs::remove_file(path);
            std::process::exit(128 + signal)
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }

    /// The next connection that is offered; nothing where the note makes no sense.
    pub(super) fn next(&self) -> io::Result<Option<Name>> {
        let mut note = [0; Name::LEN + 1];
        let len = self.socket.recv(&mut note)?;
        Ok(note[..len].try_into().ok().map(|bytes: &[u8; Name::LEN]| Name::from_bytes(bytes)))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
