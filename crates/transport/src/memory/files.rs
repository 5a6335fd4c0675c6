//! Files and lent memory: bytes go from one to the other without a buffer between them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use landfall_placement::Span;

use super::{Pinned, RawSpan, Rights};

impl Pinned {
    /// Reads bytes of a file that the page cache has into a span; never waits for the medium.
    /// Gives how many there were: fewer than the span has where the cache or the file ends, and
    /// none where that cannot be done without waiting.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// use landfall_transport::memory::{Memory, Regions, Rights};
    ///
    /// let path = std::env::temp_dir().join(format!("landfall-cached-{}", std::process::id()));
    /// std::fs::File::create(&path)?.write_all(b"every byte has its place")?;
    /// let file = std::fs::File::open(&path)?;
    /// std::fs::remove_file(&path)?;
    ///
    /// let regions = Regions::new(1);
    /// let region = regions.lend(Memory::zeroed(16), Rights::READ | Rights::WRITE)?;
    /// let pinned = regions.pin(region)?;
    /// // Not every file system knows what it has in the cache.
    /// if pinned.read_cached(&file, 6, &region.span(4, 4))? == 4 {
    ///     let mut bytes = [0; 8];
    ///     pinned.copy_out(&region.span(2, 8), &mut bytes)?;
    ///     assert_eq!(&bytes, b"\0\0byte\0\0");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The span may not be written, or the medium says so.
    pub fn read_cached(&self, file: &File, offset: u64, into: &Span) -> io::Result<usize> {
        let RawSpan { ptr, len } = self.resolve(into, Rights::WRITE).map_err(io::Error::other)?;
        let place = libc::iovec { iov_base: ptr.as_ptr().cast(), iov_len: len };
        // In halves of a word, of which the second counts where words have 32 bits.
        let at = position(offset)?;
        let (low, high) = (at as libc::c_long, (offset >> 32) as libc::c_long);
        let (fd, places) = (file.as_raw_fd(), &raw const place);
        // SAFETY: `self` holds the pin during the call, and the span is within the region, whose
        // bytes user space reaches through atomic words alone. The list is a local.
        let count =
            unsafe { libc::syscall(libc::SYS_preadv2, fd, places, 1, low, high, libc::RWF_NOWAIT) };
        usize::try_from(count).or_else(|_| {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::EOPNOTSUPP) => Ok(0),
                _ => Err(error),
            }
        })
    }

    /// Writes all bytes of a span to a file.
    ///
    /// # Errors
    /// The span may not be read; or those of the file, which may have some of the bytes then.
    pub fn write_to_file(&self, file: &File, offset: u64, from: &Span) -> io::Result<()> {
        let RawSpan { ptr, len } = self.resolve(from, Rights::READ).map_err(io::Error::other)?;
        let mut done = 0;
        while done < len {
            let at = position(offset + done as u64)?;
            // Within the span.
            let rest = ptr.as_ptr().wrapping_add(done).cast_const().cast();
            // SAFETY: `self` holds the pin during the call, and the kernel reads what is left of
            // the span, which is within the region.
            let count = unsafe { libc::pwrite(file.as_raw_fd(), rest, len - done, at) };
            match usize::try_from(count) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Where in a file, as the kernel takes it.
fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}
