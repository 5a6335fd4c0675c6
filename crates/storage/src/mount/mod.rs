//! [`Mount`]: a device at the other end as a file of this host, by FUSE.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | mounting and unmounting, and the bound on what a server may take |
//! | `file_system` | what the kernel asks: one file, and perhaps the folder that it is in |
//! | `request` | requests that are under way, and how they are answered |
//!
//! One thread takes the kernel's requests and passes them on; the thread that receives from the
//! server answers them. The kernel keeps no pages of the file: what was written is at the server,
//! and what is read comes from there.

#[cfg(feature = "command")]
pub mod command;
mod file_system;
mod request;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Session, SessionUnmounter};
use landfall_nbd::Features;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::client::Client;
use crate::fuse::{StillMounted, config, unmount};
use file_system::DeviceFile;
use request::Requests;

/// How a [`Mount`] shall be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// A request that the server has not answered for so long ends the connection: everybody
    /// who uses the file sees an error then, instead of waiting for ever.
    pub patience: Duration,
    /// Nobody writes.
    pub read_only: bool,
    /// Other users of this host may use the file, too.
    pub allow_other: bool,
}

impl MountOptions {
    /// With this patience, for the user who mounts it, to read and to write.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience, read_only: false, allow_other: false }
    }

    /// Nobody writes.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Other users of this host may use the file, too.
    #[must_use]
    pub const fn others(mut self, allow_other: bool) -> Self {
        self.allow_other = allow_other;
        self
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        Self::new(Duration::from_secs(60))
    }
}

/// Why a device is no file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is nothing to mount at.
    #[error("there is no {0}: make it first, an empty file or an empty folder")]
    NoPlace(PathBuf),
    /// A mount is there whose program has ended.
    #[error("{0} is a mount whose program has ended: unmount it first (`umount {0}`)")]
    Stale(PathBuf),
    /// It is something else.
    #[error("{0} is neither a file nor a folder: a device is mounted at one of these")]
    WrongKind(PathBuf),
    /// The kernel cannot do it.
    #[error("this kernel has no FUSE: there is no /dev/fuse (`modprobe fuse`, perhaps)")]
    NoFuse,
    /// The kernel does not do it.
    #[error("cannot mount at {place}")]
    Refused {
        /// Where.
        place: PathBuf,
        /// What it says.
        #[source]
        source: io::Error,
    },
}

/// Why it is still mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Somebody uses the file.
    #[error("{0} is in use")]
    Busy(PathBuf),
    /// Something else.
    #[error("cannot unmount {place}")]
    Refused {
        /// Where.
        place: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
}

/// A device as a file of this host, for as long as this lives.
///
/// ```no_run
/// use std::path::Path;
///
/// use landfall_storage::client::{Client, Options};
/// use landfall_storage::mount::{Mount, MountOptions};
///
/// let client = Client::connect_tcp("host:10809", &Options::export("disk"))?;
/// let mount = Mount::new(client, Path::new("disk"), &MountOptions::default())?;
/// let bytes = std::fs::read(mount.file())?;
/// mount.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// At a file, the device has that file's place; at a folder it is a file in it, with the name of
/// the export. Its size is the device's: what is written behind its end does not fit (`ENOSPC`),
/// and it is not truncated. `fsync` is a flush of the device. Holes are punched and zeroed by
/// `fallocate` where the server can do that.
///
/// Dropped, it is unmounted; those who use it still see errors.
pub struct Mount {
    place: PathBuf,
    file: PathBuf,
    unmounter: std::sync::Mutex<SessionUnmounter>,
    session: Option<JoinHandle<io::Result<()>>>,
    requests: Arc<Requests>,
    /// Gone, it ends the thread that looks after the server.
    watch: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Mount {
    /// Mounts a device at a file or a folder that is there.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn new(client: Client, place: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let kind = kind_of(place)?;
        if !Path::new("/dev/fuse").exists() {
            return Err(MountError::NoFuse);
        }
        let refused = |source| MountError::Refused { place: place.into(), source };
        // Whatever the working directory becomes.
        let place = place.canonicalize().map_err(refused)?;
        let refused = |source| MountError::Refused { place: place.clone(), source };
        let export = client.export();
        let name = match (kind.is_dir(), export.name.replace('/', "_")) {
            (false, _) => None,
            (true, name) if matches!(name.as_str(), "" | "." | "..") => Some("disk".to_owned()),
            (true, name) => Some(name),
        };
        let read_only = options.read_only || export.features.has(Features::READ_ONLY);
        let file = name.as_ref().map_or_else(|| place.clone(), |name| place.join(name));
        let requests = Arc::new(Requests::new(client));
        let device = DeviceFile::new(Arc::clone(&requests), name, read_only);
        let named = format!("landfall-nbd:{}", export.name);
        let config = config(&named, read_only, options.allow_other);
        let mut session = Session::new(device, &place, &config).map_err(refused)?;
        let unmounter = std::sync::Mutex::new(session.unmount_callable());
        let watch = watch(&requests, options.patience).map_err(refused)?;
        let named = thread::Builder::new().name("landfall-fuse".into());
        let session = named.spawn(move || session.run()).map_err(refused)?;
        let (session, watch) = (Some(session), Some(watch));
        Ok(Self { place, file, unmounter, session, requests, watch })
    }

    /// The file that is the device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Somebody has unmounted it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Why the server is not there any more. All who use the file see errors then.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        self.requests.client().gone().map(|error| error.to_string())
    }

    /// Unmounts it, if nobody uses it, and waits until everything is at the server.
    ///
    /// # Errors
    /// [`UnmountError`]; it stays mounted then. What is behind [`MountStillThere::mount`] may be
    /// unmounted later.
    pub fn unmount(mut self) -> Result<(), MountStillThere> {
        if !self.has_ended()
            && let Err(error) = self.detach(UnmountFlags::empty())
        {
            return Err(MountStillThere { mount: Box::new(self), error });
        }
        self.end();
        Ok(())
    }

    /// Stays until a signal or something else ends it, and says what did. `signal` waits a moment
    /// for one that has not been told of. The first is not obeyed while somebody uses the file:
    /// then `tell` is told so.
    ///
    /// # Errors
    /// The server is lost, or it was cut off from those who use it.
    pub fn stay(
        mut self,
        mut signal: impl FnMut() -> io::Result<bool>,
        tell: impl Fn(&str),
    ) -> io::Result<&'static str> {
        let mut is_told = false;
        loop {
            let has_signal = signal()?;
            if self.has_ended() {
                return Ok("by somebody else");
            }
            if let Some(why) = self.lost() {
                // Dropped, it is unmounted under anyone who uses it.
                let file = self.file.display();
                return Err(io::Error::other(format!("{why}; who used {file} saw errors")));
            }
            if !has_signal {
                continue;
            }
            match self.unmount() {
                Ok(()) => return Ok("a signal"),
                Err(still) if !is_told && matches!(still.error, UnmountError::Busy(_)) => {
                    tell(&format!(
                        "{}, and stays: unmount what uses it, or end this once more to cut it off",
                        still.error
                    ));
                    (self, is_told) = (*still.mount, true);
                }
                Err(still) => {
                    return Err(io::Error::other(format!("{}: it was cut off", still.error)));
                }
            }
        }
    }

    fn detach(&self, flags: UnmountFlags) -> Result<(), UnmountError> {
        let place = || self.place.clone();
        // What `fuser` holds would be unmounted when the session ends: by name, whatever is
        // there then.
        let first = self.unmounter.lock().map(|mut unmounter| unmounter.unmount());
        if let Ok(Ok(())) = first
            && !self.is_still_mounted()
        {
            return Ok(());
        }
        unmount(&self.place, flags).map_err(|why| match why {
            StillMounted::Busy => UnmountError::Busy(place()),
            StillMounted::Refused(source) => UnmountError::Refused { place: place(), source },
        })
    }

    /// Is there still a mount at its place?
    fn is_still_mounted(&self) -> bool {
        let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return true };
        is_mount_point(&mounts, &self.place)
    }

    fn end(&mut self) {
        if let Some(session) = self.session.take() {
            // That the kernel has ended it is what was wanted.
            let _ = session.join();
        }
        if let Some((bell, watch)) = self.watch.take() {
            drop(bell);
            let _ = watch.join();
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let is_mounted = self.session.as_ref().is_some_and(|session| !session.is_finished());
        if is_mounted && self.detach(UnmountFlags::DETACH).is_ok() {
            // Nobody finds it any more. Those who have it open see errors, since nobody answers
            // them: the thread ends with the last of them, or with the program.
            self.requests.client().end("the file was unmounted");
            self.session = None;
        }
        if let Some((bell, watch)) = self.watch.take() {
            drop(bell);
            let _ = watch.join();
        }
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("file", &self.file).finish_non_exhaustive()
    }
}

/// A mount that could not be unmounted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct MountStillThere {
    /// It is as it was.
    pub mount: Box<Mount>,
    /// Why.
    #[source]
    pub error: UnmountError,
}

/// What is at a place, if a device can be mounted there.
fn kind_of(place: &Path) -> Result<fs::FileType, MountError> {
    let kind = match fs::metadata(place) {
        Ok(data) => data.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(MountError::NoPlace(place.into()));
        }
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            return Err(MountError::Stale(place.into()));
        }
        Err(source) => return Err(MountError::Refused { place: place.into(), source }),
    };
    if kind.is_file() || kind.is_dir() {
        Ok(kind)
    } else {
        Err(MountError::WrongKind(place.into()))
    }
}

/// Ends the connection when a request takes too long.
fn watch(requests: &Arc<Requests>, patience: Duration) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (bell, rung) = mpsc::channel();
    let requests = Arc::clone(requests);
    let tick = (patience / 8).clamp(Duration::from_millis(10), Duration::from_secs(1));
    let look = move || {
        while rung.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
            if requests.oldest().is_some_and(|age| age > patience) {
                let seconds = patience.as_secs_f64();
                requests.client().end(&format!("the server has not answered for {seconds} s"));
            }
        }
    };
    let thread = thread::Builder::new().name("landfall-watch".into()).spawn(look)?;
    Ok((bell, thread))
}

/// Whether a path is among the mount points of `/proc/self/mountinfo`, where blanks and the like
/// are octal.
fn is_mount_point(mounts: &str, place: &Path) -> bool {
    let place = place.to_string_lossy();
    let written = place.replace('\\', "\\134").replace(' ', "\\040");
    let written = written.replace('\t', "\\011").replace('\n', "\\012");
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|at| at == written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_by_their_whole_name() {
        let mounts = "36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/sda rw\n\
                      37 35 0:1 / /mnt/c rw - fuse x rw\n";
        assert!(is_mount_point(mounts, Path::new("/mnt/a b")));
        assert!(is_mount_point(mounts, Path::new("/mnt/c")));
        for other in ["/mnt", "/mnt/a", "/mnt/c/d", "/"] {
            assert!(!is_mount_point(mounts, Path::new(other)), "{other}");
        }
    }
}
