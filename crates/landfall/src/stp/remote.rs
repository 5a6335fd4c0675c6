//! Persistent memory: regions of the other side, and our own that it may use.

use std::future::poll_fn;
use std::sync::Arc;

use landfall_placement::{WordFunction, WordWidth};
use landfall_transport::memory::Memory;
use stp_core::{ExposedId, PutOptions, RemoteRegion};

use super::connection::{Connection, Inner};
use super::error::Error;
use super::memory::{Message, Part, Payload};
use super::operation::{Operation, Put, Received};
use super::state::{Notice, RegionMade, Request, Submission};
use super::{Reason, RemoteRights};

/// A region of the other side. Clones are the same region.
///
/// Puts and FetchOps of one connection take effect in the order in which they
/// began, each exactly once. A Get sees those that began before it.
#[derive(Clone, Debug)]
pub struct RemoteMemory {
    connection: Connection,
    region: RemoteRegion,
}

impl RemoteMemory {
    pub(crate) fn new(connection: &Arc<Inner>, region: RemoteRegion) -> Self {
        Self { connection: Connection::of(connection), region }
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.region.len
    }

    /// Has it none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.region.len == 0
    }

    /// What may be done with it.
    #[must_use]
    pub const fn rights(&self) -> RemoteRights {
        self.region.rights
    }

    /// Writes bytes to it, from `at` on. It is done when they are in place. For
    /// short ones: a Put is not flow-controlled as a Transfer is.
    pub fn put(&self, at: u64, payload: impl Into<Payload>) -> Operation<Put> {
        let inner = self.connection.inner();
        let region = self.region;
        let held = payload.into().hold(inner.handle.pool());
        Operation::holding(inner, held, |memory| Request::Put {
            region,
            at,
            memory,
            options: PutOptions::default(),
        })
    }

    /// Reads from it, from `at` on, as many bytes as the memory has.
    pub fn get(&self, at: u64, memory: Memory) -> Operation<Message> {
        let (region, held) = (self.region, self.connection.own(memory));
        Operation::holding(self.connection.inner(), held, |memory| Request::Get {
            region,
            at,
            memory,
        })
    }

    /// The same into registered memory.
    pub fn get_into(&self, at: u64, part: &Part) -> Operation<Received> {
        let (region, held) = (self.region, self.connection.hold(part));
        Operation::holding(self.connection.inner(), held, |memory| Request::Get {
            region,
            at,
            memory,
        })
    }

    /// Does something to a word of it in one step, and gives what it held
    /// before. The word lies at a multiple of its width.
    pub fn fetch_op(&self, at: u64, width: WordWidth, function: WordFunction) -> Operation<u64> {
        let region = self.region;
        let request = Request::Fetch { region, at, width, function };
        Operation::new(self.connection.inner(), request, None)
    }

    /// Adds to a word of eight bytes.
    pub fn fetch_add(&self, at: u64, add: u64) -> Operation<u64> {
        self.fetch_op(at, WordWidth::Eight, WordFunction::Add(add))
    }

    /// Replaces a word of eight bytes if it holds `expected`.
    pub fn compare_swap(&self, at: u64, expected: u64, new: u64) -> Operation<u64> {
        let function = WordFunction::CompareSwap { expected, new };
        self.fetch_op(at, WordWidth::Eight, function)
    }
}

/// The other side wants a region. Dropped, it is refused.
#[derive(Debug)]
#[must_use = "it is refused when it is dropped"]
pub struct RegionRequest {
    connection: Connection,
    made: Option<RegionMade>,
}

impl RegionRequest {
    pub(crate) const fn new(connection: Connection, made: RegionMade) -> Self {
        Self { connection, made: Some(made) }
    }

    /// What the other side calls it.
    #[must_use]
    pub fn name(&self) -> u32 {
        self.made.map_or(0, |made| made.name)
    }

    /// How many bytes it wants at least.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.made.map_or(0, |made| made.len)
    }

    /// Does it want none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it wants to do with it.
    #[must_use]
    pub fn rights(&self) -> RemoteRights {
        self.made.map_or(RemoteRights::NONE, |made| made.rights)
    }

    /// Returns it this memory, for what it asked for and is allowed here. The
    /// grant ends with [`Exposed`].
    ///
    /// # Errors
    /// The memory is not of this endpoint, or was taken back; as many regions
    /// are exposed as may be; the connection is over.
    pub fn expose(mut self, part: &Part, rights: RemoteRights) -> Result<Exposed, Error> {
        let held = self.connection.hold(part)?;
        let Some(made) = self.made.take() else {
            return Err(Error::Refused(stp_core::Error::Unknown));
        };
        let inner = self.connection.inner();
        let id = inner.handle.ask(|core, now| core.expose(now, made.request, held, rights))?;
        Ok(Exposed { connection: self.connection.clone(), id })
    }

    /// Returns it none, and says why.
    pub fn refuse(mut self, reason: Reason) {
        self.give_up(reason);
    }

    fn give_up(&mut self, reason: Reason) {
        if let Some(made) = self.made.take() {
            let handle = &self.connection.inner().handle;
            // Over already: nobody waits for the answer.
            handle.submit(Submission::RefuseRegion(made.request, reason));
        }
    }
}

impl Drop for RegionRequest {
    fn drop(&mut self) {
        self.give_up(Reason::Refused);
    }
}

/// Memory of this side that the other side may use. Dropped, the grant ends;
/// the memory stays registered.
#[derive(Debug)]
pub struct Exposed {
    connection: Connection,
    id: ExposedId,
}

impl Exposed {
    /// The next write of the other side that it wanted to be known. Nothing
    /// more once the grant has ended.
    ///
    /// Of those that nobody takes, the last 1024 are kept:
    /// [`missed`](Self::missed) counts the others.
    pub async fn written(&self) -> Option<Notice> {
        let handle = &self.connection.inner().handle;
        let next = |shown: &mut super::state::Shown| shown.notices.pop_front();
        poll_fn(|cx| handle.look(|core| core.poll_shown(self.id, cx, next))).await
    }

    /// This many writes were forgotten, for nobody took them.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let handle = &self.connection.inner().handle;
        handle.look(|core| core.shown.get(&self.id).map_or(0, |shown| shown.missed))
    }

    /// Ends the grant, and waits until no write is under way: what is in the
    /// memory then stays.
    pub async fn revoke(self) {
        let handle = &self.connection.inner().handle;
        handle.submit(Submission::Revoke(self.id, false));
        let never = |_: &mut super::state::Shown| None::<()>;
        poll_fn(|cx| handle.look(|core| core.poll_shown(self.id, cx, never))).await;
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        let handle = &self.connection.inner().handle;
        handle.submit(Submission::Revoke(self.id, true));
    }
}
