//! Files over CLAN: a server that exports a directory, and clients on other hosts, or in other
//! processes of this one, that mount it.
//!
//! Requests are messages in memory of the other side, and so is file data: a read lands in the
//! memory of the client that asked, a write in that of the server, whatever carries it.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Export`] | a directory, and what of it may be done |
//! | [`Server`] | answers clients: on a port of a node, or by a name on this host |
//! | [`Client`] | asks, from many threads at a time |
//! | `Mount` (feature `mount`) | a client as a file system of the kernel |
//!
//! ```
//! use landfall_storage::files::{Caller, Client, Export, Name, Options, Request, Reply, Server};
//!
//! # let base = std::env::temp_dir().join(format!("landfall-files-{}", std::process::id()));
//! # let (folder, directory) = (base.join("meet"), base.join("exported"));
//! # std::fs::create_dir_all(&folder)?;
//! # std::fs::create_dir_all(&directory)?;
//! std::fs::write(directory.join("hello"), "every byte has its place")?;
//! let server = Server::start(Export::open(&directory)?, &Options::default())?;
//! server.listen_on_host(&folder, "files")?;
//!
//! let client = Client::connect_on_host(&folder, "files", &Options::default())?;
//! let caller = Caller { user: 0, group: 0 };
//! let lookup = Request::Lookup { parent: landfall_files::ROOT, name: Name::new(b"hello")? };
//! let Reply::Found { attributes } = client.call(caller, lookup)? else { panic!() };
//! assert_eq!(attributes.size, 24);
//! # drop((client, server));
//! # std::fs::remove_dir_all(&base)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What does not live here: what requests and replies look like (`landfall-files`), and CLAN.

mod channel;
mod client;
#[cfg(feature = "command")]
pub mod command;
mod connect;
#[cfg(feature = "mount")]
mod mount;
mod place;
mod server;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use client::{CallError, Client};
pub use landfall_files::{
    Attributes, Caller, Entries, Entry, EntryName, Errno, FileKind, LONGEST_NAME, LONGEST_TARGET,
    Name, ProtocolError, ROOT, Release, Reply, Request, SetTime, Space, Target, Time, open, rename,
};
#[cfg(feature = "mount")]
pub use mount::{Mount, MountError, MountOptions};
pub use place::{NAME, NoPlace, Place};
pub use server::{Export, ExportError, Server, ServerStats};

/// The port of a node that a server listens at where nobody chooses another.
pub const PORT: landfall::clan::network::Port = landfall::clan::network::Port(0x4649);

/// What both ends can choose. `data` and `channels` are the client's choice, within what the server
/// allows.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most bytes of one read or write: a multiple of 4096.
    pub data: u32,
    /// Requests that are under way at a time; of a server, of all its clients together.
    pub channels: usize,
    /// How long a thread looks for a message before it sleeps, at most: it looks for less where
    /// that is in vain.
    pub spin: Duration,
    /// How long an answer may take.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: 1 << 20,
            channels: 4,
            spin: Duration::from_micros(100),
            patience: Duration::from_secs(60),
        }
    }
}

/// Why a client or a server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// CLAN says so.
    #[error("no connection for files: {0}")]
    Clan(#[from] landfall::clan::Error),
    /// The other side does not follow the protocol.
    #[error("the other side does not speak this protocol of files: {0}")]
    Protocol(#[from] ProtocolError),
    /// It speaks another version.
    #[error("the server speaks version {theirs} of the protocol, this client {ours}: use the same")]
    Version {
        /// The server's.
        theirs: u32,
        /// This side's.
        ours: u32,
    },
    /// The server refuses.
    #[error("the server refuses the connection: {0}")]
    Refused(Errno),
    /// The operating system does.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl FilesError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// What is under it is whole after each step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
