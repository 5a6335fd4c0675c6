//! [`FileRing`]: reads of files into registered memory, many under way at a time.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use io_uring::{IoUring, opcode, types};

use super::ring::{explain, is_passing};
use crate::Bell;
use crate::memory::Memory;

/// The token of the bell; places have smaller ones.
const BELL: u64 = u64::MAX;
/// How long a dropped ring waits until the kernel is done with its memory.
const FAREWELL: Duration = Duration::from_secs(1);

/// Reads files into memory that is registered with the kernel: its pages are looked up once, not
/// for each read. Where the limit of locked memory has no room for it, which all processes of a
/// user share, they are looked up for each read.
///
/// One thread owns the ring: it starts reads and [waits](Self::wait) for their ends. Others wake
/// it by its [bell](Self::bell).
///
/// ```
/// use std::io::Write;
/// use std::sync::Arc;
///
/// use landfall_transport::uring::FileRing;
///
/// let path = std::env::temp_dir().join(format!("landfall-file-ring-{}", std::process::id()));
/// std::fs::File::create(&path)?.write_all(b"every byte has its place")?;
/// let file = Arc::new(std::fs::File::open(&path)?);
/// std::fs::remove_file(&path)?;
///
/// // Not every kernel allows it.
/// let Ok(mut ring) = FileRing::open(&[(8, 4096)]) else { return Ok(()) };
/// assert!(ring.read(&file, 6, 4, 1)?);
/// let mut read = Vec::new();
/// while ring.under_way() > 0 {
///     ring.wait(|| false, |token, bytes| read.push((token, bytes.unwrap().to_vec())))?;
/// }
/// assert_eq!(read, [(1, b"byte".to_vec())]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FileRing {
    uring: IoUring,
    bell: Arc<Bell>,
    /// The ring is to say when the bell rings.
    hears_bell: bool,
    /// What operations name: dropped when none is under way, and else never. The short places
    /// come first.
    places: ManuallyDrop<Vec<Place>>,
    under_way: usize,
    is_registered: bool,
    is_broken: bool,
}

/// A part of the memory.
struct Place {
    /// Nobody touches it while a read is under way.
    memory: Memory,
    read: Option<Read>,
}

/// A read that is under way.
struct Read {
    /// Open until the read is over.
    _file: Arc<File>,
    token: u64,
    len: usize,
}

impl FileRing {
    /// Opens a ring with places, given as pairs of a number and a length, the short ones first.
    ///
    /// # Errors
    /// [`Unavailable`](super::Unavailable) says why there is none and what would help.
    pub fn open(places: &[(usize, usize)]) -> io::Result<Self> {
        let rounded = |len: usize| len.next_multiple_of(Memory::GRANULE);
        let count: usize = places.iter().map(|(count, _)| count).sum();
        let total = places.iter().map(|(count, len)| count * rounded(*len)).sum();
        let entries = u32::try_from(count + 1).unwrap_or(u32::MAX);
        let uring = IoUring::builder()
            .dontfork()
            .setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(entries)
            .map_err(|error| explain(&error))?;
        let mut rest = Memory::zeroed(total);
        let all = libc::iovec { iov_base: rest.base().as_ptr().cast(), iov_len: total };
        // SAFETY: the memory is there during the call. Afterwards the kernel holds its pages by
        // itself, and writes to them for operations alone.
        let registered = unsafe { uring.submitter().register_buffers(&[all]) };
        let is_registered = match registered {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => false,
            outcome => outcome.map(|()| true).map_err(|error| explain(&error))?,
        };
        let mut made = Vec::with_capacity(count);
        for (count, len) in places {
            for _ in 0..*count {
                let (memory, behind) = rest.split_at(rounded(*len)).map_err(io::Error::other)?;
                made.push(Place { memory, read: None });
                rest = behind;
            }
        }
        Ok(Self {
            uring,
            bell: Arc::new(Bell::new()?),
            hears_bell: false,
            places: ManuallyDrop::new(made),
            under_way: 0,
            is_registered,
            is_broken: false,
        })
    }

    /// Ends a [`wait`](Self::wait) of the ring's thread.
    #[must_use]
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// The kernel has the memory's pages at hand.
    #[must_use]
    pub const fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Reads that have not ended.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Begins to read, with the next [`wait`](Self::wait). False: no place is free that is long
    /// enough.
    ///
    /// # Errors
    /// The ring is broken for good.
    pub fn read(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        token: u64,
    ) -> io::Result<bool> {
        self.check()?;
        let is_free = |place: &Place| place.read.is_none() && place.memory.len() >= len;
        let Some(at) = self.places.iter().position(is_free) else { return Ok(false) };
        let place = &mut self.places[at];
        let (fd, to) = (types::Fd(file.as_raw_fd()), place.memory.base().as_ptr());
        let entry = if self.is_registered {
            opcode::ReadFixed::new(fd, to, len as u32, 0).offset(offset).build()
        } else {
            opcode::Read::new(fd, to, len as u32).offset(offset).build()
        };
        let entry = entry.user_data(at as u64);
        // SAFETY: the place has `len` bytes, which nobody touches while `read` is there; they
        // and the file stay until the completion, or for good.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        if pushed.is_err() {
            return Ok(false);
        }
        place.read = Some(Read { _file: Arc::clone(file), token, len });
        self.under_way += 1;
        Ok(true)
    }

    /// Sleeps until a read has ended or the bell has rung, and reports what has ended: the bytes,
    /// which are fewer than wanted at the end of a file. `has_work` is asked once the bell is
    /// heard; if there is some, nobody sleeps.
    ///
    /// # Errors
    /// The ring is broken for good. Reads that are under way are not reported any more.
    pub fn wait(
        &mut self,
        has_work: impl FnOnce() -> bool,
        mut report: impl FnMut(u64, io::Result<&[u8]>),
    ) -> io::Result<()> {
        self.check()?;
        self.hear_bell();
        self.bell.arm();
        let wanted = usize::from(!has_work());
        loop {
            match self.uring.submit_and_wait(wanted) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !is_passing(&error) => {
                    self.is_broken = true;
                    return Err(error);
                }
                // What is passing leaves room for completions to be taken.
                _ => break,
            }
        }
        self.bell.silence();
        self.reap(&mut report);
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match self.is_broken {
            true => Err(io::Error::other("the io_uring broke in an earlier turn")),
            false => Ok(()),
        }
    }

    fn hear_bell(&mut self) {
        if self.hears_bell {
            return;
        }
        let fd = types::Fd(self.bell.fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(BELL);
        // SAFETY: it names a descriptor, and no memory.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        self.hears_bell = pushed.is_ok();
    }

    fn reap(&mut self, report: &mut impl FnMut(u64, io::Result<&[u8]>)) {
        for entry in self.uring.completion() {
            let at = usize::try_from(entry.user_data()).ok();
            let place = at.and_then(|at| self.places.get_mut(at));
            let Some(Place { memory, read }) = place else {
                // The bell, which is to be heard anew.
                self.hears_bell = false;
                continue;
            };
            let Some(read) = read.take() else { continue };
            self.under_way -= 1;
            let outcome = usize::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            report(read.token, outcome.map(|count| &memory[..count.min(read.len)]));
        }
    }
}

impl Drop for FileRing {
    fn drop(&mut self) {
        let start = Instant::now();
        if self.under_way > 0 {
            let (time, all) = (types::Timespec::from(FAREWELL), types::CancelBuilder::any());
            // Whatever it says: what counts is whether the completions come.
            let _ = self.uring.submitter().register_sync_cancel(Some(time), all);
        }
        while self.under_way > 0 && start.elapsed() < FAREWELL {
            let time = types::Timespec::from(FAREWELL);
            let args = types::SubmitArgs::new().timespec(&time);
            let _ = self.uring.submitter().submit_with_args(1, &args);
            self.reap(&mut |_, _| {});
        }
        if self.under_way == 0 {
            // SAFETY: it is dropped here only, and not used afterwards; no operation names any
            // of its memory any more.
            unsafe { ManuallyDrop::drop(&mut self.places) };
        }
    }
}

impl fmt::Debug for FileRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRing").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}
