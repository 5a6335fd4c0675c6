//! Where processes meet: a Unix socket that carries small messages and descriptors.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Listener`] | waits at a path in the file system |
//! | [`Channel`] | the way between two processes that met there |
//! | [`Message`] | a kind, at most [`MAX_BODY`] bytes, at most [`MAX_FDS`] descriptors |
//! | [`Peer`] | who the other process is, as the kernel says |
//! | [`Admit`] | who is let in |
//! | [`Readiness`] | waits for many of them at once |
//!
//! The socket keeps messages apart (`SOCK_SEQPACKET`); nothing here blocks unless it
//! was given a time. A process that ends, in whatever way, hangs up: its channels
//! become readable, and [`Channel::is_gone`] says so, also when a child of it still
//! holds the socket, for the process itself is watched too (pidfd).
//!
//! ```
//! use std::time::Duration;
//!
//! use landfall_transport::memory::SharedMemory;
//! use landfall_transport::shm::rendezvous::{Admit, Channel, Listener};
//!
//! # let folder = std::env::temp_dir().join(format!("landfall-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("meet");
//! let listener = Listener::bind(&path, Admit::SameUser)?;
//! let second = Duration::from_secs(1);
//! let theirs = Channel::connect(&path, &Admit::SameUser)?; // another process
//! let ours = listener.accept(second)?.expect("it has come");
//!
//! let memory = SharedMemory::create("example", 4096)?;
//! ours.send(1, b"here it is", &[memory.fd()])?;
//! let mut message = theirs.receive(second)?.expect("it has come");
//! assert_eq!((message.kind, &message.body[..]), (1, &b"here it is"[..]));
//! let same = SharedMemory::from_fd(message.fds.remove(0))?;
//! drop(ours);
//! assert!(theirs.is_gone());
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What does not live here: what messages mean.

mod channel;
mod listener;
mod message;

use std::io;
use std::path::PathBuf;

pub use channel::{Admit, Channel, Peer};
pub use listener::{Listener, MOST_READY, Readiness};
pub(crate) use message::take_fds;
pub use message::{MAX_BODY, MAX_FDS, Message};
use thiserror::Error;

/// Why processes did not meet, or a message did not get through.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// Somebody else listens there.
    #[error("another process listens at {0}")]
    InUse(PathBuf),
    /// Nobody listens there.
    #[error("nobody listens at {0}")]
    Nobody(PathBuf),
    /// Its last part is longer than a socket's address can be.
    #[error("{0} is too long for a socket: shorten its last part")]
    LongName(PathBuf),
    /// The other process may not come in.
    #[error("process {} of user {} is not admitted", .0.pid, .0.uid)]
    NotAdmitted(Peer),
    /// The other process hung up, or is gone.
    #[error("the other process is gone")]
    Gone,
    /// The other process does not read its messages.
    #[error("the channel is full: the other process does not read")]
    Full,
    /// More than a message carries.
    #[error(
        "{body} bytes with {fds} descriptors are too much for a message: it carries {MAX_BODY} \
         and {MAX_FDS}"
    )]
    TooMuch {
        /// How many bytes.
        body: usize,
        /// How many descriptors.
        fds: usize,
    },
    /// What came was too long or too short for a message, or carried more
    /// descriptors than it may, or others than memory and eventfds.
    #[error("the other process sent something that is no message")]
    NoMessage,
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// Which one.
        call: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

impl RendezvousError {
    fn last(call: &'static str) -> Self {
        Self::System { call, error: io::Error::last_os_error() }
    }
}

/// Names the call that failed.
fn system(call: &'static str) -> impl Fn(io::Error) -> RendezvousError {
    move |error| RendezvousError::System { call, error }
}
