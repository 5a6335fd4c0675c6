//! [`SharedReceiveQueue`]: room for what comes to any of many queue pairs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qpip::{Access, PostError, SharedReceiveQueueId, SharedReceiveQueueSetup};

use super::completion_queue::CompletionQueue;
use super::doorbell::{Posting, Reach, WorkRing};
use super::error::Error;
use super::memory::{DomainName, Part};
use super::state::{Handle, Submission};

/// What a queue of shared room is like.
///
/// ```
/// use landfall::qpip::SharedReceiveOptions;
///
/// let options = SharedReceiveOptions { depth: 4_096, ..SharedReceiveOptions::default() };
/// assert_eq!(options.window, 256 << 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveOptions {
    /// How many requests can wait to be taken.
    pub depth: u32,
    /// How many bytes of them one connection offers its peer at most. All offer the same
    /// memory: where others are sooner, what comes is sent again, so post enough for those
    /// that are busy at a time.
    pub window: u32,
    /// How many buffers one request has at most.
    pub buffers: u16,
}

impl Default for SharedReceiveOptions {
    fn default() -> Self {
        Self { depth: 1_024, window: 256 << 10, buffers: 4 }
    }
}

/// Room for what comes to any of many queue pairs, which take a request when bytes come
/// that need one: ten thousand connections that are idle need no memory, and those that are
/// busy share what is posted here.
///
/// What a queue pair takes completes with that queue pair's name. A request of a byte
/// stream that it has begun to fill stays with it until it is full, or the connection ends.
/// What is found to be wrong only later (its memory is gone) completes with a name that no
/// queue pair has.
///
/// Dropped, what nobody has taken is forgotten once its queue pairs are gone.
pub struct SharedReceiveQueue {
    handle: Arc<Handle>,
    id: SharedReceiveQueueId,
    domain: DomainName,
    buffers: u16,
    ring: WorkRing,
    /// Requests that were taken, ever.
    taken: Arc<AtomicU32>,
    bell: u32,
}

impl SharedReceiveQueue {
    pub(super) fn create(
        handle: &Arc<Handle>,
        domain: DomainName,
        options: &SharedReceiveOptions,
        completions: &CompletionQueue,
    ) -> Result<Self, Error> {
        if !Arc::ptr_eq(completions.handle(), handle) {
            return Err(Error::ForeignHandle);
        }
        handle.check()?;
        let setup = SharedReceiveQueueSetup {
            domain: domain.id,
            completions: completions.id(),
            depth: options.depth,
            window: options.window,
        };
        let (new, buffers) = handle.command(|core, _| {
            let most = core.engine.config().buffers.min(usize::from(options.buffers)).max(1);
            core.create_shared_receives(&setup, most as u16).map(|new| (new, most as u16))
        })?;
        let ring = WorkRing::new(new.ring, options.depth, Arc::clone(completions.state()));
        let (handle, id, taken, bell) = (Arc::clone(handle), new.id, new.taken, new.bell);
        Ok(Self { handle, id, domain, buffers, ring, taken, bell })
    }

    pub(super) const fn id(&self) -> SharedReceiveQueueId {
        self.id
    }

    pub(super) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Posts room for what comes. Takes neither a lock nor a system call.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    pub fn post(&mut self, id: u64, into: &[Part]) -> Result<(), PostError> {
        let Self { domain, buffers, taken, .. } = self;
        let reach = Reach { domain: *domain, wanted: Access::Write, buffers: *buffers };
        let request = Posting { id, parts: into, to: None, is_signaled: true, immediate: None };
        self.ring.put(reach, request, || taken.load(Ordering::Acquire))?;
        self.handle.doorbells.ring(self.bell);
        self.handle.ring();
        Ok(())
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        self.handle.submit(Submission::DropSharedReceives(self.id));
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("id", &self.id)
            .field("depth", &self.ring.depth())
            .finish_non_exhaustive()
    }
}
