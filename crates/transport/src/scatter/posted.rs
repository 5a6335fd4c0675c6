//! [`Posted`]: where the frames of the next burst go.

use std::{fmt, ptr};

use landfall_placement::{Area, Span};

use super::memory::{BurstMemory, SlotMemory};
use crate::exchange::{MessageHeader, set_pieces};
use crate::memory::{AccessError, LendRefusal, Regions};

/// The bytes of a head slot. Slot `n` starts at `n` times this.
pub const HEAD_SLOT: u32 = 256;

/// The bytes of a spill slot: the longest IP packet with an Ethernet header and
/// a tag fits, and slots share no cache line. Slot `n` starts at `n` times this.
pub const FRAME_MAX: u32 = 65_536 + 64;

/// The most descriptors in a list.
pub const MOST_DESCRIPTORS: usize = 128;

/// After a silence this many descriptors are posted: what is posted and not used
/// costs time as well.
const AFTER_SILENCE: usize = 16;

/// A head slot, a place, a spill slot.
const PIECES: usize = 3;

/// Where a frame goes: its first bytes to the head slot with the number of the
/// descriptor, the next ones to a place, all that remain to the spill slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// This many bytes go to the head slot; at most [`HEAD_SLOT`].
    pub head_len: u16,
    /// The bytes behind them go here. Empty if nothing is guessed.
    pub place: Span,
}

/// A descriptor that cannot be posted. Nothing is posted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// More bytes than a head slot has.
    #[error(
        "descriptor {nth} wants {head_len} bytes in a head slot of {HEAD_SLOT}: post a place for \
         the rest"
    )]
    HeadTooLong {
        /// Which.
        nth: usize,
        /// How many it wants.
        head_len: u16,
    },
    /// The place cannot be written.
    #[error("the place of descriptor {nth} cannot be posted: {why}")]
    Place {
        /// Which.
        nth: usize,
        /// What the check found.
        why: AccessError,
    },
}

/// The list of descriptors for the next burst, and what became of the last one.
///
/// A list is posted, a socket receives into it, and what came is settled with
/// the [`BurstMemory`]. The regions of all places are held from the post on to the
/// [`release`](Self::release), so nobody can take them back meanwhile.
pub struct Posted {
    memory: SlotMemory,
    /// Three for each descriptor; those of the slots never change their place.
    pieces: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    /// This many descriptors are posted.
    posted: usize,
    /// This many make sense next time.
    worth: usize,
    /// How long each frame of the last burst is.
    lens: Vec<u32>,
}

// SAFETY: the pointers name slots of `memory` and regions that it holds pinned, and are
// followed only in calls that borrow this exclusively.
unsafe impl Send for Posted {}
// SAFETY: shared, the lists can only be read as numbers.
unsafe impl Sync for Posted {}

impl Posted {
    /// Room for this many descriptors, at most [`MOST_DESCRIPTORS`].
    ///
    /// # Errors
    /// The table has no room for the names of the slots.
    pub fn new(regions: &Regions, slots: usize) -> Result<Self, LendRefusal> {
        let slots = slots.min(MOST_DESCRIPTORS);
        let memory = SlotMemory::new(regions, slots, (HEAD_SLOT, FRAME_MAX))?;
        let pieces = (0..slots).flat_map(|slot| {
            let (head, spill) = (memory.head_slot(slot), memory.spill_slot(slot));
            [piece(head.ptr.as_ptr(), 0), NOTHING, piece(spill.ptr.as_ptr(), spill.len)]
        });
        let pieces = pieces.collect();
        let headers = (0..slots).map(|_| EMPTY).collect();
        Ok(Self {
            memory,
            pieces,
            headers,
            posted: 0,
            worth: AFTER_SILENCE,
            lens: Vec::with_capacity(slots),
        })
    }

    /// The name of the head slots, [`HEAD_SLOT`] bytes each.
    #[must_use]
    pub fn heads(&self) -> Area {
        self.memory.heads()
    }

    /// The name of the spill slots, [`FRAME_MAX`] bytes each.
    #[must_use]
    pub fn spill(&self) -> Area {
        self.memory.spill()
    }

    /// How many descriptors there may be.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.headers.len()
    }

    /// Posts the first descriptors of a list, in place of the one before. Returns
    /// how many: as many as make sense after what came last time, and no more
    /// than there are slots. Places must not overlap, and hold nothing that is
    /// still needed.
    ///
    /// # Errors
    /// [`PostError`] says which descriptor is wrong; then nothing is posted.
    pub fn post(&mut self, list: impl IntoIterator<Item = Descriptor>) -> Result<usize, PostError> {
        self.posted = 0;
        let mut count = 0;
        for descriptor in list.into_iter().take(self.worth.min(self.slots())) {
            self.post_one(count, &descriptor)?;
            count += 1;
        }
        self.posted = count;
        Ok(count)
    }

    #[inline]
    fn post_one(&mut self, nth: usize, descriptor: &Descriptor) -> Result<(), PostError> {
        let Descriptor { head_len, place } = descriptor;
        let Some([head, body, _]) = self.pieces.as_chunks_mut::<PIECES>().0.get_mut(nth) else {
            return Ok(());
        };
        if u32::from(*head_len) > HEAD_SLOT {
            return Err(PostError::HeadTooLong { nth, head_len: *head_len });
        }
        head.iov_len = usize::from(*head_len);
        *body = NOTHING;
        if place.len > 0 {
            let raw = self.memory.place(place).map_err(|why| PostError::Place { nth, why })?;
            *body = piece(raw.ptr.as_ptr(), raw.len);
        }
        Ok(())
    }

    /// How long each frame of the last burst is, whole, in the order of the
    /// descriptors. Zero: no frame of use is there. It was longer than the slot
    /// and cut short; or, with `io_uring`, none had come yet when this
    /// descriptor was tried, and one had at the next.
    #[must_use]
    pub fn lens(&self) -> &[u32] {
        &self.lens
    }

    /// The first bytes of a frame of the last burst.
    #[must_use]
    pub fn head(&self, slot: u16) -> &[u8] {
        self.memory.head(slot)
    }

    /// What came with the last burst, and the memory where it lies.
    pub fn burst(&mut self) -> (&[u32], BurstMemory<'_>) {
        (&self.lens, self.memory.view())
    }

    /// The memory where the burst lies.
    ///
    /// ```compile_fail,E0499
    /// # use landfall_transport::scatter::{Posted, Socket};
    /// # fn read(socket: &mut Socket, posted: &mut Posted) {
    /// let memory = posted.memory();
    /// socket.receive(posted).unwrap(); // The kernel writes there.
    /// println!("{:?}", memory.head(0));
    /// # }
    /// ```
    pub fn memory(&mut self) -> BurstMemory<'_> {
        self.memory.view()
    }

    /// Takes the list back, and gives up what is held of the regions: before a
    /// sleep, or nobody could take anything back.
    pub fn release(&mut self) {
        self.posted = 0;
        self.memory.release();
    }

    /// How many descriptors are posted.
    pub(crate) const fn posted(&self) -> usize {
        self.posted
    }

    /// The headers of the posted descriptors, for a call that receives.
    ///
    /// # Safety
    /// What the headers name is not changed. Until the call is over nothing else is done
    /// with the list, which is [abandoned](Self::abandon) if the call can outlast that.
    pub(crate) unsafe fn headers(&mut self) -> &mut [libc::mmsghdr] {
        let pieces = self.pieces.as_mut_ptr();
        let headers = &mut self.headers[..self.posted];
        for (nth, header) in headers.iter_mut().enumerate() {
            // SAFETY: there are as many pieces for each header.
            let own = unsafe { pieces.add(nth * PIECES) };
            set_pieces(&mut header.msg_hdr, own, PIECES);
        }
        headers
    }

    /// The first descriptors were filled, this many of them. Their headers say
    /// what became of each.
    pub(super) fn came(&mut self, count: usize) -> Burst {
        let mut burst = Burst::default();
        self.lens.clear();
        self.memory.forget();
        for (nth, header) in self.headers.iter().take(count).enumerate() {
            let mut len = header.msg_len;
            burst.frames += u64::from(len > 0);
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                len = 0;
                burst.cut_short += 1;
            }
            let head = self.pieces[nth * PIECES].iov_len.min(len as usize);
            // No head slot is longer than such a number.
            self.memory.fill(nth, head as u16);
            self.lens.push(len);
        }
        // What was posted is used up, unless nothing came. If all of it was,
        // more frames may wait.
        if count > 0 {
            self.worth = (2 * count).clamp(AFTER_SILENCE, MOST_DESCRIPTORS);
            self.posted = 0;
        }
        burst
    }

    /// Returns up all memory that is posted, for good: the kernel may still
    /// write there. No slot is left.
    #[cfg(feature = "io-uring")]
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.pieces));
        std::mem::forget(std::mem::take(&mut self.headers));
        self.memory.abandon();
        self.lens.clear();
        self.posted = 0;
    }
}

/// What was found in the headers of a burst.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    pub(super) frames: u64,
    pub(super) cut_short: u64,
}

/// No memory at all.
const NOTHING: libc::iovec = piece(ptr::null_mut(), 0);

const fn piece(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

/// Neither an address nor control messages; the pieces come later.
const EMPTY: libc::mmsghdr = libc::mmsghdr { msg_hdr: MessageHeader::EMPTY.0, msg_len: 0 };

impl fmt::Debug for Posted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posted")
            .field("slots", &self.slots())
            .field("posted", &self.posted)
            .field("lens", &self.lens)
            .finish_non_exhaustive()
    }
}
