//! [`FrameReader`] and [`FrameWriter`]: the frames of an interface for those who
//! have no engine between, one thread for each direction if they like.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use landfall_placement::{Span, SumSlot};

use super::TapConfig;
use super::device::Device;
use crate::OpenError;
use crate::driver::Interest;
use crate::memory::{Pins, Regions, Rights};
use crate::packet::{Failure, VNET_HEADER, read_sum, write_sum};

/// Bytes in front of each frame of [`open_super_frames`].
pub const OFFLOAD_HEADER: usize = VNET_HEADER;

/// Opens an interface for whole frames without offloads, whatever the configuration
/// says of them: their sums are computed by the kernel, and no frame that it sends is
/// longer than its MTU.
///
/// It belongs to the network namespace that the calling thread is in, and goes when
/// both halves are dropped.
///
/// # Errors
/// [`OpenError`] says what is missing and what would help.
pub fn open_frames(
    config: &TapConfig,
    regions: &Regions,
) -> Result<(FrameReader, FrameWriter), OpenError> {
    open(&config.clone().without_offload(), regions)
}

/// Opens an interface for whole frames as the kernel has them in memory: TCP's are
/// super-packets, whatever the MTU, and sums may not be computed. In front of each frame
/// [`OFFLOAD_HEADER`] bytes say what is left to be done with it (`struct virtio_net_hdr`
/// of `linux/virtio_net.h`, in this machine's byte order). Another kernel that is given
/// both takes it as it is. A header that is invalid loses its frame.
///
/// # Errors
/// Those of [`open_frames`].
pub fn open_super_frames(
    config: &TapConfig,
    regions: &Regions,
) -> Result<(FrameReader, FrameWriter), OpenError> {
    open(&TapConfig { offload: true, ..config.clone() }, regions)
}

/// What the kernel leaves of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// It computes them all.
    Finished,
    /// It leaves them to a device, as [`unfinished_sum`] tells.
    Unfinished,
}

/// Opens an interface for frames that are no longer than its MTU, with as many queues as there are
/// tables of regions, each for a thread of its own. In front of each frame are
/// [`OFFLOAD_HEADER`] bytes, which say whether its checksum is to be finished, and which a frame
/// that is written has, too ([`offload_header`]).
///
/// Of several queues the kernel puts what is between two addresses into one, in its order, and what
/// is no IP into the first.
///
/// # Errors
/// Those of [`open_frames`]; an interface that is there already has several queues only if it was
/// made so (`ip tuntap add … multi_queue`).
pub fn open_headed_queues(
    config: &TapConfig,
    sums: Sums,
    regions: &[&Regions],
) -> Result<Vec<(FrameReader, FrameWriter)>, OpenError> {
    let queues = Device::open_headed(config, sums, regions.len())?;
    Ok(queues.into_iter().zip(regions).map(|(queue, regions)| halves(queue, regions)).collect())
}

/// Where the checksum is to be finished of a frame with this header in front, if it is: the sum of
/// what follows `start` goes to `offset` behind that, where that of the pseudo-header stands.
#[must_use]
pub fn unfinished_sum(header: &[u8; OFFLOAD_HEADER]) -> Option<SumSlot> {
    read_sum(header)
}

/// The header of a frame that is written: its checksum is right, or is to be finished there.
#[must_use]
pub fn offload_header(sum: Option<SumSlot>) -> [u8; OFFLOAD_HEADER] {
    write_sum(sum)
}

fn open(config: &TapConfig, regions: &Regions) -> Result<(FrameReader, FrameWriter), OpenError> {
    Ok(halves(Device::open(config)?, regions))
}

fn halves(device: Device, regions: &Regions) -> (FrameReader, FrameWriter) {
    let device = Arc::new(device);
    let reader = FrameReader { device: Arc::clone(&device), pins: Pins::new(regions) };
    (reader, FrameWriter { device })
}

/// Takes the frames that the kernel sends.
#[derive(Debug)]
pub struct FrameReader {
    device: Arc<Device>,
    pins: Pins,
}

impl FrameReader {
    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Its number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.device.found.index
    }

    /// Its MTU when it was opened.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.device.found.mtu
    }

    /// Reads a frame: its first bytes to `head`, the rest to `place`. Returns its length;
    /// `None` if none is there. What fits in neither is cut off.
    ///
    /// # Errors
    /// The place may not be written, or the interface is gone.
    pub fn read(&mut self, head: &mut [u8], place: &Span) -> io::Result<Option<usize>> {
        let place = self.pins.resolve(place, Rights::WRITE).map_err(io::Error::other)?;
        let pieces = [
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
            libc::iovec { iov_base: place.ptr.as_ptr().cast(), iov_len: place.len },
        ];
        // SAFETY: the list has two pieces: a slice that is borrowed exclusively, and
        // lent memory that is pinned until after the call.
        let len = unsafe { libc::readv(self.fd(), pieces.as_ptr(), 2) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error());
        self.pins.release();
        match len {
            Ok(len) => Ok(Some(len)),
            Err(error) if matches!(Failure::of(&error), Failure::SocketFull) => Ok(None),
            // An interface that is down has nothing to read.
            Err(error) if matches!(Failure::of(&error), Failure::Lost) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What to wait for when no frame was there.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.fd(), readable: true, writable: false }
    }

    fn fd(&self) -> RawFd {
        self.device.file.as_raw_fd()
    }
}

/// Hands frames to the kernel, as if they had arrived at the interface.
#[derive(Debug)]
pub struct FrameWriter {
    device: Arc<Device>,
}

impl FrameWriter {
    /// Writes a frame that lies in these pieces, with one call. False: it is lost, as
    /// when the interface is down.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        let mut file: &File = &self.device.file;
        match file.write_vectored(pieces) {
            Ok(_) => Ok(true),
            Err(error) if matches!(Failure::of(&error), Failure::Broken) => Err(error),
            Err(_) => Ok(false),
        }
    }
}
