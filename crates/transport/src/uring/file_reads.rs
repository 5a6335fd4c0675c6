//! What rings that read files have in common: the ring, its bell, and which reads are under way.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use io_uring::{IoUring, opcode, types};

use super::ring::{explain, is_passing};
use crate::Bell;
use crate::memory::{Memory, RawSpan};

/// The token of the bell; places have smaller ones.
const BELL: u64 = u64::MAX;
/// How long a dropped ring waits until the kernel is done with its memory.
const FAREWELL: Duration = Duration::from_secs(1);

/// The bytes that a place of this length takes.
pub(super) const fn room(len: usize) -> usize {
    len.next_multiple_of(Memory::GRANULE)
}

/// The bytes that all of these places take, given as pairs of a number and a length.
pub(super) fn room_of(places: &[(usize, usize)]) -> usize {
    places.iter().map(|(count, len)| count * room(*len)).sum()
}

/// Reads of files, each into a place that its owner knows by its number.
pub(super) struct FileReads {
    uring: IoUring,
    bell: Arc<Bell>,
    /// The ring is to say when the bell rings.
    hears_bell: bool,
    /// Of each place, the read that is under way.
    reads: Box<[Option<Read>]>,
    under_way: usize,
    is_registered: bool,
    is_broken: bool,
}

/// A read that is under way.
pub(super) struct Read {
    /// Open until the read is over.
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) token: u64,
}

/// A read that is over.
pub(super) struct Ended {
    pub(super) place: usize,
    pub(super) token: u64,
    /// How many bytes came: no more than were wanted.
    pub(super) outcome: io::Result<usize>,
}

impl FileReads {
    /// Opens a ring for this many places, which lie in `all`.
    ///
    /// # Safety
    /// The memory is there during the call.
    pub(super) unsafe fn open(places: usize, all: RawSpan) -> io::Result<Self> {
        let entries = u32::try_from(places + 1).unwrap_or(u32::MAX);
        let uring = IoUring::builder()
            .dontfork()
            .setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(entries)
            .map_err(|error| explain(&error))?;
        let all = libc::iovec { iov_base: all.ptr.as_ptr().cast(), iov_len: all.len };
        // SAFETY: the memory is there during the call. Afterwards the kernel holds its pages by
        // itself, and writes to them for operations alone.
        let registered = unsafe { uring.submitter().register_buffers(&[all]) };
        let is_registered = match registered {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => false,
            outcome => outcome.map(|()| true).map_err(|error| explain(&error))?,
        };
        Ok(Self {
            uring,
            bell: Arc::new(Bell::new()?),
            hears_bell: false,
            reads: (0..places).map(|_| None).collect(),
            under_way: 0,
            is_registered,
            is_broken: false,
        })
    }

    pub(super) const fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(super) const fn is_registered(&self) -> bool {
        self.is_registered
    }

    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    pub(super) fn is_idle(&self, place: usize) -> bool {
        self.reads.get(place).is_some_and(Option::is_none)
    }

    /// Begins to read into an idle place, with the next [`wait`](Self::wait). False: the ring has
    /// no room for it.
    ///
    /// # Safety
    /// `to` has as many bytes as are read, in the memory that was given to `open`. They stay, and
    /// nobody has a reference to them but as atomic words, until the read is reported or
    /// [`drain`](Self::drain) says that none is under way.
    pub(super) unsafe fn begin(
        &mut self,
        place: usize,
        to: *mut u8,
        read: Read,
    ) -> io::Result<bool> {
        self.check()?;
        debug_assert!(self.is_idle(place), "a place is read into once at a time");
        let (fd, len) = (types::Fd(read.file.as_raw_fd()), read.len as u32);
        let entry = if self.is_registered {
            opcode::ReadFixed::new(fd, to, len, 0).offset(read.offset).build()
        } else {
            opcode::Read::new(fd, to, len).offset(read.offset).build()
        };
        // SAFETY: the caller's promise for the memory; the file stays open until the completion,
        // or for good.
        let pushed =
            unsafe { self.uring.submission().push(&entry.user_data(place as u64)) }.is_ok();
        if pushed {
            self.reads[place] = Some(read);
            self.under_way += 1;
        }
        Ok(pushed)
    }

    /// Sleeps until a read has ended or the bell has rung, and reports what has ended. `has_work`
    /// is asked once the bell is heard; if there is some, nobody sleeps.
    pub(super) fn wait(
        &mut self,
        has_work: impl FnOnce() -> bool,
        mut report: impl FnMut(Ended),
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

    /// Cancels what is under way and waits for its end. False: some of it may go on, and what it
    /// names has to stay for good.
    pub(super) fn drain(&mut self) -> bool {
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
            self.reap(&mut |_| {});
        }
        self.under_way == 0
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

    fn reap(&mut self, report: &mut impl FnMut(Ended)) {
        for entry in self.uring.completion() {
            let place = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let Some(read) = self.reads.get_mut(place) else {
                // The bell, which is to be heard anew.
                self.hears_bell = false;
                continue;
            };
            // A second completion of a read would be the kernel's mistake.
            let Some(Read { token, len, .. }) = read.take() else { continue };
            self.under_way -= 1;
            let outcome = usize::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()))
                .map(|count| count.min(len));
            report(Ended { place, token, outcome });
        }
    }
}

impl fmt::Debug for FileReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReads").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}
