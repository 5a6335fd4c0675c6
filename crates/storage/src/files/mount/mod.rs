//! [`Mount`]: a client as a file system of the kernel, by `/dev/fuse`.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | mounts, and unmounts when it is over, or when the server is gone |
//! | `asking` | a client as a file system, and how it is asked |
//! | `filesystem` | what the kernel asks, asked of the server |
//! | `fresh` | what is not in a directory that was just made |
//! | `convert` | the kernel's words and the protocol's |

mod asking;
mod convert;
mod filesystem;
mod fresh;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, MountOption, Session};
use rustix::mount::UnmountFlags;

use self::asking::Files;
use super::Client;
use crate::fuse::{config, unmount};

/// How long the threads of a file system have to end after it was unmounted. Where a program still
/// has a file of it open they go with the process.
const PARTING: Duration = Duration::from_secs(2);

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// How long the kernel believes what it knows of a node, of a name, and of a name that there
    /// is not. Changes that others make are seen after that time at the latest.
    pub timeout: Duration,
    /// Extended attributes of users. Without them programs are told that there are none.
    pub extended: bool,
    /// Users other than the one that mounts may use it: the kernel checks permissions.
    pub allow_other: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Threads that wait for the kernel's requests.
    pub threads: usize,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            extended: false,
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            threads: 4,
        }
    }
}

/// Why a file system cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is no such place.
    #[error("{} is no directory to mount on: {source}", path.display())]
    Place {
        /// Where it should be.
        path: PathBuf,
        /// Why it cannot.
        #[source]
        source: io::Error,
    },
    /// The kernel refuses.
    #[error(
        "cannot mount on {}: {source}; it needs /dev/fuse, and fusermount3 (of the package fuse3) \
         for anyone but the superuser", path.display()
    )]
    Mount {
        /// Where it should be.
        path: PathBuf,
        /// What it says.
        #[source]
        source: io::Error,
    },
}

/// A mounted file system. It is unmounted when this is dropped.
pub struct Mount {
    client: Arc<Client>,
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mount {
    /// Mounts what a client sees on a directory.
    ///
    /// # Errors
    /// There is no such directory, or the kernel refuses.
    pub fn new(
        client: Client,
        path: impl Into<PathBuf>,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let path = path.into();
        let place = |source| MountError::Place { path: path.clone(), source };
        let path = path.canonicalize().map_err(place)?;
        if !path.is_dir() {
            let source = io::ErrorKind::NotADirectory.into();
            return Err(MountError::Place { path, source });
        }
        let client = Arc::new(client);
        let files = Files::new(Arc::clone(&client), options);
        let refused = |source| MountError::Mount { path: path.clone(), source };
        let read_only = options.read_only || client.is_read_only();
        let mut config = config("landfall", read_only, options.allow_other);
        config.mount_options.push(MountOption::Subtype("landfall".into()));
        config.n_threads = Some(options.threads.max(1));
        let session = Session::new(files, &path, &config).map_err(refused)?;
        let session = Some(session.spawn().map_err(refused)?);
        read_ahead(&path, client.most_data());
        Ok(Self { client, path, session })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The client that it asks.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Is it still mounted, and its server there?
    #[must_use]
    pub fn is_up(&self) -> bool {
        let runs = self.session.as_ref().is_some_and(|session| !session.guard.is_finished());
        runs && self.client.gone().is_none()
    }

    /// Unmounts it; programs that still have files of it open get errors from then on, once their
    /// process ends or this one does.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        let detached = match session.guard.is_finished() {
            true => Ok(()),
            // Also while somebody uses it.
            false => unmount(&self.path, UnmountFlags::DETACH).map_err(io::Error::from),
        };
        let deadline = Instant::now() + PARTING;
        while !session.guard.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if session.guard.is_finished() {
            return session.join().and(detached);
        }
        // A program still uses it: what it does fails when the descriptor of this process is gone.
        std::mem::forget(session);
        detached
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody is there to hear of an error.
        let _ = self.end();
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount")
            .field("path", &self.path)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// The kernel reads as much ahead as one request may have, where this process may say so.
fn read_ahead(path: &Path, bytes: u32) {
    // A stat that the kernel answers with what the handshake told.
    let Ok(stat) = rustix::fs::statx(
        rustix::fs::CWD,
        path,
        rustix::fs::AtFlags::STATX_DONT_SYNC,
        rustix::fs::StatxFlags::BASIC_STATS,
    ) else {
        // It is slower without.
        return;
    };
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
    // Without privileges it stays as it is.
    let _ = std::fs::write(file, (bytes / 1024).to_string());
}
