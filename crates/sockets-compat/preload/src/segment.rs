//! The memory that both ends of a connection share: what lies where.
//!
//! A page of counters, and behind it two rings of bytes, one for each direction. Counters
//! of a direction lie in two pairs of cache lines, by who moves them. Either end may hold
//! a program that writes whatever it likes: each number is checked where it is used.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::kernel::{self, Errno};

/// Says that this is ours, and how its parts lie: another version has another number.
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"landfal5");
/// What a ring holds. As much as a core's own cache has room for, several times over.
pub(crate) const CAPACITY: u64 = 256 * 1024;
const HEADER: usize = 4096;
const LEN: usize = HEADER + 2 * CAPACITY as usize;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Connector,
    Acceptor,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Connector => Self::Acceptor,
            Self::Acceptor => Self::Connector,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// What each end says of itself.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct End {
    /// The kernel's number of its socket.
    pub(crate) cookie: AtomicU64,
    /// How many processes have it open.
    pub(crate) holders: AtomicU32,
    /// The acceptor has found the memory; the connector has seen that.
    pub(crate) is_here: AtomicU32,
    /// Whether its calls wait, as far as is known; see [`crate::waits`].
    pub(crate) waits: AtomicU32,
}

/// The sender's half of a direction.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Sending {
    /// Bytes that were ever put into the ring.
    pub(crate) head: AtomicU64,
    /// Zero while bytes go by TCP; then one more than the bytes that went so.
    pub(crate) switched: AtomicU64,
    /// Bytes that went by TCP.
    pub(crate) by_tcp: AtomicU64,
    pub(crate) lock: AtomicU32,
    /// Threads that are just now sending by TCP: the way does not change under them.
    pub(crate) in_flight: AtomicU32,
    /// What a sender that waits for room asks for; see [`crate::ring`].
    pub(crate) wants_room: AtomicU32,
    /// No more will come: shut down or closed, and not by a killed process.
    pub(crate) has_ended: AtomicU32,
    /// What the program said of `TCP_NODELAY` and `TCP_CORK`; see [`crate::manner`].
    pub(crate) manner: AtomicU32,
}

/// The receiver's half of a direction.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Receiving {
    /// Bytes that were ever taken out of the ring.
    pub(crate) tail: AtomicU64,
    /// Bytes that were taken out of TCP.
    pub(crate) by_tcp: AtomicU64,
    pub(crate) lock: AtomicU32,
    /// Who sleeps, or will, and wants to be rung; see [`crate::ring`].
    pub(crate) wishes: AtomicU64,
    /// A ring was sent and may still lie in TCP's queue.
    pub(crate) was_rung: AtomicU32,
    /// Nothing will be taken any more.
    pub(crate) has_ended: AtomicU32,
    /// Threads that sleep for bytes; they must find the ring that was meant for them.
    pub(crate) sleepers: AtomicU32,
    /// Who sleeps in `poll`, or may in `epoll`: a ring that another takes away was for
    /// them, too. A killed one stays in it, and costs some needless rings.
    pub(crate) watchers: AtomicU32,
    /// How often rings stayed for those.
    pub(crate) rings_kept: AtomicU32,
    /// TCP has told of the sender's end, and the sender has not; see
    /// [`crate::connection::Shared::has_ended_by_tcp`].
    pub(crate) is_doubtful: AtomicU32,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Direction {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
}

/// What a connection between hosts has beside all that; see [`crate::far`]. One end of
/// its memory is a program, the other the carrier of the same host.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Far {
    /// Zero within one host; else what carries the bytes.
    pub(crate) way: AtomicU32,
    /// The process of the carrier; zero until it has come.
    pub(crate) carrier: AtomicU32,
    /// The process of the program that used it last; zero if that is not known.
    pub(crate) process: AtomicU32,
    /// What has become of the offer.
    pub(crate) verdict: AtomicU32,
    /// The carrier has lost the other host.
    pub(crate) is_broken: AtomicU32,
    /// Changes when the program has done something that the carrier has to know.
    pub(crate) bell: AtomicU32,
    /// The carrier sleeps on that, or is about to.
    pub(crate) carrier_sleeps: AtomicU32,
    /// The other end knows that a byte by TCP is a ring.
    pub(crate) may_ring: AtomicU32,
    /// Bytes went before that: a ring is due once it may be sent.
    pub(crate) owes_ring: AtomicU32,
    /// When a ring was sent, in milliseconds of the kernel's steady clock.
    pub(crate) rung_at: AtomicU64,
    /// When something came, or was seen to be on its way.
    pub(crate) news_at: AtomicU64,
    /// When the program put something in: there may be an answer.
    pub(crate) sent_at: AtomicU64,
    /// When TCP was first seen to have ended before its carrier said so; zero if it was not.
    pub(crate) ended_at: AtomicU64,
}

#[derive(Debug)]
#[repr(C)]
struct Header {
    magic: AtomicU64,
    ends: [End; 2],
    directions: [Direction; 2],
    far: Far,
}

const _: () = assert!(size_of::<Header>() <= HEADER);

/// A mapping of such memory. It ends by [`Segment::unmap`] only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    base: *mut u8,
}

/// The file is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It belongs to somebody else, who could cut it off under us.
    Foreign,
    /// Another length or version.
    Unknown,
    Kernel(Errno),
}

impl From<Errno> for Unusable {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

impl Segment {
    /// Makes the memory in a file that was just made.
    pub(crate) fn create(file: i32) -> Result<Self, Unusable> {
        kernel::set_len(file, LEN as u64)?;
        let segment = Self { base: kernel::map(file, LEN)? };
        for side in [Side::Connector, Side::Acceptor] {
            // The first bytes find nobody who looks at the ring, only one at TCP.
            segment.direction_from(side).receiving.wishes.store(1, Ordering::Relaxed);
        }
        segment.header().magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Maps memory that another made.
    pub(crate) fn open(file: i32) -> Result<Self, Unusable> {
        let status = kernel::status(file)?;
        if status.st_uid != kernel::user() {
            return Err(Unusable::Foreign);
        }
        if status.st_size != LEN as i64 {
            return Err(Unusable::Unknown);
        }
        let segment = Self { base: kernel::map(file, LEN)? };
        if segment.header().magic.load(Ordering::Acquire) == MAGIC {
            return Ok(segment);
        }
        // SAFETY: nobody knows of it yet.
        unsafe { segment.unmap() };
        Err(Unusable::Unknown)
    }

    /// Ends the mapping.
    ///
    /// # Safety
    ///
    /// Nobody uses it, or a reference into it, any more.
    pub(crate) unsafe fn unmap(self) {
        // SAFETY: as promised.
        unsafe { kernel::unmap(self.base, LEN) }
    }

    pub(crate) const fn base(self) -> *mut u8 {
        self.base
    }

    /// # Safety
    ///
    /// `base` came out of [`Segment::base`].
    pub(crate) const unsafe fn from_base(base: *mut u8) -> Self {
        Self { base }
    }

    const fn header<'a>(self) -> &'a Header {
        // SAFETY: the mapping is long enough, page aligned, and of atomics alone. Who
        // unmaps it promises that no reference is left.
        unsafe { &*self.base.cast::<Header>() }
    }

    pub(crate) const fn end<'a>(self, side: Side) -> &'a End {
        &self.header().ends[side.index()]
    }

    /// The direction in which this side sends.
    pub(crate) const fn direction_from<'a>(self, side: Side) -> &'a Direction {
        &self.header().directions[side.index()]
    }

    pub(crate) const fn far<'a>(self) -> &'a Far {
        &self.header().far
    }

    /// Where the bytes of that direction lie.
    pub(crate) const fn bytes_from(self, side: Side) -> *mut u8 {
        // SAFETY: inside of the mapping.
        unsafe { self.base.add(HEADER + side.index() * CAPACITY as usize) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Memory without a name, mapped twice: as two processes have it.
    pub(crate) fn two_mappings() -> (Segment, Segment) {
        let file = scratch_file();
        let first = Segment::create(file.as_raw_fd()).unwrap();
        (first, Segment::open(file.as_raw_fd()).unwrap())
    }

    fn scratch_file() -> std::fs::File {
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true).write(true);
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_TMPFILE)
            .open("/dev/shm")
            .unwrap()
    }

    #[test]
    fn both_see_the_same() {
        let (first, second) = two_mappings();
        first.direction_from(Side::Acceptor).sending.head.store(7, Ordering::Relaxed);
        assert_eq!(second.direction_from(Side::Acceptor).sending.head.load(Ordering::Relaxed), 7);
        assert_eq!(
            second.direction_from(Side::Connector).receiving.wishes.load(Ordering::Relaxed),
            1
        );
    }

    #[test]
    fn what_is_something_else_is_not_mapped() {
        let file = scratch_file();
        assert_eq!(Segment::open(file.as_raw_fd()).unwrap_err(), Unusable::Unknown);
        kernel::set_len(file.as_raw_fd(), LEN as u64).unwrap();
        assert_eq!(Segment::open(file.as_raw_fd()).unwrap_err(), Unusable::Unknown);
    }
}
