//! One device with its file system: written, synced, unmounted, mounted and read.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall_testbed::VethPair;
use rustix::fs::syncfs;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::accounts::{self, Used};
use super::programs::{self, Program};
use super::{FileSystem, Scale, Transport, station};
use crate::leaving::TemporaryFolder;

/// What is written and read at a time.
const PIECE: usize = 1 << 20;
/// More than a device needs for the file itself: a file system has tables of its own.
const ROOM: u64 = 64 << 20;
/// No server lives longer than that, whatever becomes of this program.
const SERVER_SECONDS: u64 = 1800;
const LIMIT: Duration = Duration::from_secs(30);
const PORT: u16 = 10809;
/// Stations of queue pairs beside the kernels, which are 1 and 2.
const CLIENT: u8 = 3;
const SERVER: u8 = 4;

/// The program that makes such a file system.
pub(super) const fn maker(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Ext2 => "mkfs.ext2",
        FileSystem::Ext4 => "mkfs.ext4",
    }
}

/// How long writing or reading took, and whose processor time it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(super) seconds: f64,
    pub(super) used: Used,
}

impl Phase {
    /// The client's.
    pub(super) fn client_cpu_s(&self) -> f64 {
        self.used.program_s + self.used.user_s + self.used.kernel_s
    }

    /// Everybody's.
    pub(super) fn cpu_s(&self) -> f64 {
        self.client_cpu_s() + self.used.server_s
    }
}

/// A network block device, as a file of this host.
pub(super) struct Device {
    scale: Scale,
    /// Ended first: it tells the server.
    client: Program,
    server: Program,
    folder: TemporaryFolder,
}

impl Device {
    /// Starts a server and a client, on the hosts of a cable.
    pub(super) fn open(pair: &VethPair, transport: Transport, scale: Scale) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let file = folder.path().join("device");
        File::create(&file)?;
        fs::create_dir(folder.path().join("mounted"))?;
        let (near, far) = (&pair.a, &pair.b);
        let export = format!("disk=mem:{}", (scale.bytes + scale.bytes / 8 + ROOM) / 4096 * 4096);
        let seconds = SERVER_SECONDS.to_string();
        let mut serve = vec!["nbd", "serve", "--export", &export, "--seconds", &seconds, "--json"];
        let mut use_it = vec!["nbd", "mount", "--json"];
        let (listen, uri, address);
        match transport {
            Transport::Sockets => {
                listen = format!("{}:{PORT}", far.ipv4);
                uri = format!("nbd://{}:{PORT}/disk", far.ipv4);
            }
            Transport::QueuePairs => {
                let at = station(far.ipv4, SERVER)?;
                listen = format!("qp://{at}:{PORT}");
                uri = format!("nbd+qp://{at}:{PORT}/disk");
                address = format!("{}/24", station(near.ipv4, CLIENT)?);
                serve.extend(["--interface", &far.name]);
                use_it.extend(["--interface", &near.name, "--address", &address]);
            }
        }
        let at = file.to_str().context("a temporary folder has a name that is text")?;
        serve.extend(["--listen", &listen]);
        use_it.extend([uri.as_str(), at]);
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let folder_at = folder.path();
        let server = Program::start(&far.namespace, "server", &owned(&serve), folder_at)?;
        let client = Program::start(&near.namespace, "client", &owned(&use_it), folder_at)?;
        Ok(Self { scale, client, server, folder })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("device")
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Writes and syncs, unmounts, mounts and reads.
    pub(super) fn measure(&self) -> Result<[Phase; 2]> {
        {
            let disk = LoopDevice::attach(&self.file())?;
            programs::run(maker(self.scale.file_system), &["-q", "-F", &disk.path])?;
        }
        let piece = pattern();
        let mounted = self.mounted()?;
        let written = self.phase(|| write(&mounted.file(), &piece, self.scale.bytes))?;
        mounted.unmount()?;
        let mounted = self.mounted()?;
        let mut into = vec![0; PIECE];
        let read = self.phase(|| read(&mounted.file(), &mut into, self.scale.bytes))?;
        // From the kernel's pages now, which is what the device gave.
        check(&mounted.file(), &piece, self.scale.bytes)?;
        mounted.unmount()?;
        Ok([written, read])
    }

    fn phase(&self, work: impl FnOnce() -> Result<()>) -> Result<Phase> {
        let ids = (self.client.id(), self.server.id());
        let (before, started) = (accounts::used(ids.0, ids.1)?, Instant::now());
        work()?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Phase { seconds, used: accounts::used(ids.0, ids.1)? - before })
    }

    fn mounted(&self) -> Result<Mounted> {
        let (disk, place) = (LoopDevice::attach(&self.file())?, self.place());
        let name = self.scale.file_system.name();
        mount(disk.path.as_str(), &place, name, MountFlags::NOATIME, None)
            .with_context(|| format!("cannot mount {} as {name}", disk.path))?;
        Ok(Mounted { disk: Some(disk), place })
    }

    /// Ends the client, then the server.
    pub(super) fn close(self) -> Result<()> {
        let Self { client, server, folder, .. } = self;
        let ended = client.end().and(server.end());
        drop(folder);
        ended
    }
}

/// A block device of the kernel's in a file. Dropped, it is detached.
struct LoopDevice {
    path: String,
}

impl LoopDevice {
    /// Past the kernel's pages of the file: the file system has pages of its own.
    fn attach(file: &Path) -> Result<Self> {
        let file = file.to_str().context("a temporary folder has a name that is text")?;
        let said = programs::run("losetup", &["--find", "--show", "--direct-io=on", file])?;
        Ok(Self { path: said.trim().to_owned() })
    }

    /// Waits until the kernel has let go of the file.
    fn wait_until_detached(&self) -> Result<()> {
        let name = self.path.trim_start_matches("/dev/");
        let backing = format!("/sys/block/{name}/loop/backing_file");
        let is_free = programs::until(LIMIT, || Ok(!Path::new(&backing).exists()))?;
        ensure!(is_free, "{} is not detached: `losetup -d {}`", self.path, self.path);
        Ok(())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Where it is in use, it goes when it is not. There is nobody to tell of a failure, and
        // the client says that its file is in use.
        let _ = programs::run("losetup", &["--detach", &self.path]);
        let _ = self.wait_until_detached();
    }
}

/// A file system that is mounted. Dropped, it is unmounted.
struct Mounted {
    disk: Option<LoopDevice>,
    place: PathBuf,
}

impl Mounted {
    fn file(&self) -> PathBuf {
        self.place.join("file")
    }

    /// Unmounts it: the kernel has no pages of it then.
    fn unmount(mut self) -> Result<()> {
        unmount(&self.place, UnmountFlags::empty()).context("cannot unmount the file system")?;
        drop(self.disk.take());
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.disk.is_some() {
            // It failed before; what is behind it ends with its client.
            let _ = unmount(&self.place, UnmountFlags::DETACH);
        }
    }
}

/// Bytes that no device has by itself, and no two pieces of a page alike.
fn pattern() -> Vec<u8> {
    let mut bytes = vec![0; PIECE];
    blake3::Hasher::new().update(b"Figure 7").finalize_xof().fill(&mut bytes);
    bytes
}

/// The lengths of the pieces of a file.
fn pieces(bytes: u64) -> impl Iterator<Item = usize> {
    let whole = bytes / PIECE as u64;
    let rest = (bytes % PIECE as u64) as usize;
    (0..whole).map(|_| PIECE).chain((rest > 0).then_some(rest))
}

fn write(path: &Path, piece: &[u8], bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    for len in pieces(bytes) {
        file.write_all(&piece[..len]).context("writing")?;
    }
    // As the paper's `sync`, for this file system only.
    syncfs(&file).context("sync")
}

fn read(path: &Path, into: &mut [u8], bytes: u64) -> Result<()> {
    let mut file = File::open(path)?;
    for len in pieces(bytes) {
        file.read_exact(&mut into[..len]).context("reading")?;
    }
    Ok(())
}

/// What is read is what was written.
fn check(path: &Path, piece: &[u8], bytes: u64) -> Result<()> {
    let (mut file, mut into) = (File::open(path)?, vec![0; PIECE]);
    for (nth, len) in pieces(bytes).enumerate() {
        file.read_exact(&mut into[..len]).context("reading")?;
        ensure!(into[..len] == piece[..len], "megabyte {nth} is not what was written");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_file() {
        for bytes in [1, PIECE as u64, 8_000_000, 409_000_000] {
            assert_eq!(pieces(bytes).map(|len| len as u64).sum::<u64>(), bytes);
            assert!(pieces(bytes).all(|len| 0 < len && len <= PIECE));
        }
    }
}
