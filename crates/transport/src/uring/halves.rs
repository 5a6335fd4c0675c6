//! Both halves of a driver, and the ring between them and the kernel.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use std::{fmt, io};

use arrayvec::ArrayVec;
use landfall_placement::{Engine, Instant};

use super::flight::{Sender, Wire};
use super::ring::{Operation, Ring};
use crate::driver::{Counters, Descriptors, Interest, Interests};
use crate::exchange::MAX_LISTS;
use crate::packet::Outcomes;

/// Receives have smaller tokens, from zero on; sends have larger ones.
const RECEIVES: u64 = MAX_LISTS as u64;
/// How long a dropped driver waits until the kernel is done with its memory.
const FAREWELL: Duration = Duration::from_secs(1);

/// The headers of one entry's receives.
pub(super) type Headers = ArrayVec<*mut libc::msghdr, MAX_LISTS>;

/// A receiving half `R` with a header `H` of its receive, and a sending half.
/// All that operations name is in one place that never moves, and that goes
/// only when the kernel is done with it.
pub(super) struct Halves<R, H, W: Wire> {
    ring: Ring,
    memory: ManuallyDrop<Box<Memory<R, H, W>>>,
}

struct Memory<R, H, W: Wire> {
    receiver: R,
    header: H,
    sender: Sender<W>,
}

impl<R, H, W: Wire> Halves<R, H, W> {
    pub(super) fn new(ring: Ring, receiver: R, header: H, sender: Sender<W>) -> Self {
        let memory = Memory { receiver, header, sender };
        Self { ring, memory: ManuallyDrop::new(Box::new(memory)) }
    }

    pub(super) fn receiver(&mut self) -> &mut R {
        &mut self.memory.receiver
    }

    pub(super) fn sender(&self) -> &Sender<W> {
        &self.memory.sender
    }

    pub(super) fn sender_mut(&mut self) -> &mut Sender<W> {
        &mut self.memory.sender
    }

    /// Receives by the headers that `prepare` gives, in order, and sends what waits with the
    /// same entry into the kernel. Returns the number of bytes or the error of each, the header
    /// as the kernel left it, and the receiving half to settle it.
    ///
    /// # Errors
    /// The ring is broken for good.
    ///
    /// # Safety
    /// The headers are in `H` or in the receiving half, at a place that does not change. What
    /// they name is memory of the receiving half, or pinned by it until it settles.
    pub(super) unsafe fn exchange(
        &mut self,
        counters: &mut Counters,
        prepare: impl FnOnce(&mut R, &mut H) -> Headers,
        send: bool,
    ) -> io::Result<(Outcomes, &H, &mut R)> {
        let Memory { receiver, header, sender } = &mut **self.memory;
        let mut outcomes = Outcomes::new();
        for (token, header) in (0..).zip(prepare(receiver, header)) {
            let receive = Operation::Receive(header);
            // SAFETY: header and scratch memory are in `memory`, which stays until
            // the ring is quiet; the caller vouches for the rest.
            unsafe { self.ring.push(sender.wire.socket().as_raw_fd(), receive, token) };
            outcomes.push(Err(io::ErrorKind::WouldBlock.into()));
        }
        if send {
            sender.queue(&mut self.ring, counters);
        }
        self.ring.run(|completion| {
            let nth = usize::try_from(completion.token).ok();
            match nth.and_then(|nth| outcomes.get_mut(nth)) {
                Some(outcome) => *outcome = completion.outcome(),
                None => sender.complete(&completion, counters),
            }
        })?;
        Ok((outcomes, header, receiver))
    }

    /// Sends what the engine has, until it has nothing, the kernel has no room,
    /// or it was enough for one turn.
    ///
    /// # Errors
    /// The socket or the ring is broken for good.
    pub(super) fn send<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> io::Result<()> {
        let sender = &mut self.memory.sender;
        loop {
            sender.report(engine, now, counters)?;
            if sender.is_blocked() {
                return Ok(());
            }
            sender.fill(engine, now, counters);
            if !sender.queue(&mut self.ring, counters) {
                return Ok(());
            }
            self.ring.run(|completion| sender.complete(&completion, counters))?;
        }
    }

    /// The socket, and the ring, which notifications make readable.
    pub(super) fn interests(&self, writable: bool) -> Interests {
        let sender = &self.memory.sender;
        let socket = Interest { fd: sender.wire.socket().as_raw_fd(), readable: true, writable };
        let ring = Interest {
            fd: self.ring.as_raw_fd(),
            readable: sender.awaits_notifications(),
            writable: false,
        };
        [socket, ring].into_iter().collect()
    }
}

impl<R, H, W: Wire> Halves<R, H, W> {
    /// Is the ring good for another turn?
    ///
    /// # Errors
    /// It broke. Operations may be under way for good, so their memory is left as it is.
    pub(super) fn check(&self) -> io::Result<()> {
        self.ring.check()
    }

    /// What [`interests`](Self::interests) names, in the same order.
    pub(super) fn descriptors(&self) -> Descriptors<'_> {
        [self.memory.sender.wire.socket().as_fd(), self.ring.as_fd()].into_iter().collect()
    }
}

impl<R, H, W: Wire> Drop for Halves<R, H, W> {
    fn drop(&mut self) {
        // Nobody will look at these any more.
        let mut counters = Counters::default();
        let sender = &mut self.memory.sender;
        let quiet = self.ring.settle(FAREWELL, |completion| {
            if let Some(completion) = completion
                && completion.token >= RECEIVES
            {
                sender.complete(&completion, &mut counters);
            }
            !sender.awaits_notifications()
        });
        if quiet {
            // SAFETY: it is dropped here only, and not used afterwards; no
            // operation names any of its memory any more.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl<R, H, W: Wire> fmt::Debug for Halves<R, H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Halves").field("ring", &self.ring).finish_non_exhaustive()
    }
}
