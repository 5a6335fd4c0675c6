//! Registered memory of an adapter: where messages land, and are sent from.

use std::ops::Range;
use std::sync::Arc;

use landfall_placement::RegionId;
use landfall_transport::memory::{LentParts, Memory, PartGuard, Pinned, Rights};
use qpip::{Access, Buffer, DomainId, MemoryKey, PostError};

use super::error::{Error, Refused};
use super::state::{Handle, Submission};

/// Tells protection domains of this process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomainName {
    pub(crate) adapter: u32,
    pub(crate) id: DomainId,
}

/// Memory that is registered with a protection domain: messages are received to
/// it and sent from it, without a copy in between.
///
/// While it is registered no slice of it exists, for the adapter and the kernel
/// may write. Its bytes are reached by [`copy_in`](Self::copy_in) and
/// [`copy_out`](Self::copy_out) at any time, and as a slice, where they landed,
/// when nothing is posted on it: [`with_bytes`](Self::with_bytes), or
/// [`deregister`](Self::deregister), which gives the memory back.
///
/// Dropped, the memory is freed once no work request uses it.
#[derive(Debug)]
pub struct MemoryRegion {
    handle: Arc<Handle>,
    domain: DomainName,
    access: Access,
    /// Nothing once the memory was taken back.
    grant: Option<Grant>,
    len: u64,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    key: MemoryKey,
    region: RegionId,
}

/// Some bytes of a [`MemoryRegion`], as work requests name them. Its name is
/// good for as long as the registration; a request with an older one completes
/// with [`Status::MemoryGone`](super::Status::MemoryGone).
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(super) buffer: Buffer,
    domain: DomainName,
    access: Access,
}

impl Part {
    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.buffer.len
    }

    /// Has it none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.buffer.len == 0
    }

    /// Where it starts in its region.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.buffer.offset
    }

    /// The first bytes of it, at most this many.
    #[must_use]
    pub fn first(&self, len: u32) -> Self {
        let buffer = Buffer { len: self.buffer.len.min(len), ..self.buffer };
        Self { buffer, ..*self }
    }

    /// May a queue pair of this domain use it so?
    #[inline]
    pub(super) fn check(&self, domain: DomainName, wanted: Access) -> Result<(), PostError> {
        if self.domain != domain {
            return Err(PostError::WrongDomain);
        }
        if self.access != wanted && self.access != Access::ReadWrite {
            return Err(PostError::NoRight);
        }
        Ok(())
    }
}

impl MemoryRegion {
    pub(super) fn register(
        handle: &Arc<Handle>,
        domain: DomainName,
        memory: Memory,
        access: Access,
    ) -> Result<Self, Refused<Memory>> {
        let len = memory.len() as u64;
        let grant = lend(handle, domain, memory, access)?;
        Ok(Self { handle: Arc::clone(handle), domain, access, grant: Some(grant), len })
    }

    /// How many bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "what is registered has at least one byte")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// All of it.
    ///
    /// # Errors
    /// [`Error::TooLong`]: one buffer names 4 GiB at most.
    pub fn whole(&self) -> Result<Part, Error> {
        self.part(0..self.len)
    }

    /// Some of it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::TooLong`].
    pub fn part(&self, range: Range<u64>) -> Result<Part, Error> {
        let Range { start, end } = range;
        let Some(Grant { key, .. }) = self.grant.filter(|_| start <= end && end <= self.len) else {
            return Err(Error::OutOfBounds { start, end, len: self.len });
        };
        let len = u32::try_from(end - start).map_err(|_| Error::TooLong(end - start))?;
        let (domain, access) = (self.domain, self.access);
        Ok(Part { buffer: Buffer::new(key, start, len), domain, access })
    }

    /// Copies bytes in. What is being sent from there meanwhile may have some of
    /// them and some of the old ones.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for (at, bytes) in (offset..).step_by(SPAN).zip(bytes.chunks(SPAN)) {
            let region = self.region_at(at, bytes.len())?;
            self.handle.regions.write(&region.span(at, bytes.len() as u32), bytes)?;
        }
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        for (at, bytes) in (offset..).step_by(SPAN).zip(into.chunks_mut(SPAN)) {
            let region = self.region_at(at, bytes.len())?;
            self.handle.regions.read(&region.span(at, bytes.len() as u32), bytes)?;
        }
        Ok(())
    }

    /// Holds the memory for an operation of the kernel that writes there by itself, as reads of
    /// files do. While it is held it stays where it is, also when this is dropped, and
    /// [`deregister`](Self::deregister) gives an error that is [busy](Error::is_busy).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]: it has been taken back.
    pub fn pin(&self) -> Result<Pinned, Error> {
        Ok(self.handle.regions.pin(self.region_at(0, 0)?)?)
    }

    fn region_at(&self, start: u64, len: usize) -> Result<RegionId, Error> {
        let end = start.saturating_add(len as u64);
        let grant = self.grant.filter(|_| end <= self.len);
        grant.map(|grant| grant.region).ok_or(Error::OutOfBounds { start, end, len: self.len })
    }

    /// Reads and writes the bytes where they are, when nothing is posted on them.
    /// They are registered anew behind that: parts that were named before are
    /// good no more.
    ///
    /// # Errors
    /// [`Error::is_busy`] while work requests use it. Others of
    /// [`ProtectionDomain::register`](super::ProtectionDomain::register); then
    /// the memory is gone.
    pub fn with_bytes<T>(&mut self, work: impl FnOnce(&mut [u8]) -> T) -> Result<T, Error> {
        let mut memory = self.take()?;
        let result = work(&mut memory);
        self.grant = Some(lend(&self.handle, self.domain, memory, self.access)?);
        Ok(result)
    }

    /// Ends the registration and gives the memory back, with what landed in it.
    ///
    /// # Errors
    /// The region itself, with [`Error::is_busy`], while work requests use it:
    /// they are done when their completions are there.
    pub fn deregister(mut self) -> Result<Memory, Refused<Self>> {
        self.take().map_err(|error| Refused { error, item: self })
    }

    fn take(&mut self) -> Result<Memory, Error> {
        let Some(Grant { key, region }) = self.grant else {
            return Err(Error::OutOfBounds { start: 0, end: self.len, len: 0 });
        };
        // Of a driver that has it at this moment the turn is over with the lock.
        let memory = self.handle.command(|core, _| core.deregister(key, region))?;
        self.grant = None;
        Ok(memory)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Some(Grant { key, region }) = self.grant {
            self.handle.submit(Submission::DropMemory(key, region));
        }
    }
}

/// Lends memory and registers it.
fn lend(
    adapter: &Handle,
    domain: DomainName,
    memory: Memory,
    access: Access,
) -> Result<Grant, Refused<Memory>> {
    // What work requests may do the adapter checks by the key; its user may copy
    // both ways.
    let rights = Rights::READ | Rights::WRITE;
    let len = memory.len() as u64;
    let region = match adapter.regions.lend(memory, rights) {
        Ok(region) => region,
        Err(error) => return Err(Refused::new(Error::NotLent(error.why), error.into_memory())),
    };
    adapter.command(|core, _| match core.register(domain.id, region, (len, access)) {
        Ok(key) => Ok(Grant { key, region }),
        Err(error) => {
            // Nobody has heard of it, so nobody uses it.
            let memory = adapter.regions.try_take_back(region);
            Err(Refused { error, item: memory.unwrap_or_else(|_| Memory::zeroed(0)) })
        }
    })
}

/// Registered memory in parts of one length, in which messages land and are read where they
/// landed: [`read`](Self::read) borrows one part while the others stay posted.
///
/// Dropped, the memory is freed once no work request uses it and nobody reads it.
///
/// ```no_run
/// use landfall::qpip::{Access, Adapter, CompletionQueue, Memory, QueuePair};
///
/// # fn example(
/// #     adapter: &Adapter,
/// #     mut pair: QueuePair,
/// #     mut done: CompletionQueue,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let domain = adapter.domain()?;
/// let memory = domain.register_parts(Memory::zeroed(64 * 2048), Access::Write, 2048)?;
/// for part in 0..memory.parts() {
///     pair.post_receive(part as u64, &[memory.part(part)?])?;
/// }
/// let came = done.wait()?;
/// let message = memory.read(came.id as usize)?;
/// println!("{}", String::from_utf8_lossy(&message[..came.len as usize]));
/// drop(message);
/// pair.post_receive(came.id, &[memory.part(came.id as usize)?])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryParts {
    handle: Arc<Handle>,
    domain: DomainName,
    access: Access,
    key: MemoryKey,
    /// Nothing once this is dropped.
    lent: Option<LentParts>,
    len: u64,
    part: u32,
}

impl MemoryParts {
    pub(super) fn register(
        handle: &Arc<Handle>,
        domain: DomainName,
        memory: Memory,
        (access, part): (Access, u32),
    ) -> Result<Self, Error> {
        let len = memory.len() as u64;
        let rights = Rights::READ | Rights::WRITE;
        let lent = LentParts::lend(&handle.regions, memory, part as usize, rights);
        let lent = lent.map_err(Error::NotLent)?;
        let region = lent.region();
        let key = handle.command(|core, _| core.register(domain.id, region, (len, access)))?;
        let (handle, lent) = (Arc::clone(handle), Some(lent));
        Ok(Self { handle, domain, access, key, lent, len, part })
    }

    /// How many parts there are.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.len.div_ceil(u64::from(self.part)) as usize
    }

    /// A part, as work requests name it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, part: usize) -> Result<Part, Error> {
        let start = (part as u64).saturating_mul(u64::from(self.part));
        let len = self.len.saturating_sub(start).min(u64::from(self.part)) as u32;
        if len == 0 {
            let end = start.saturating_add(u64::from(self.part));
            return Err(Error::OutOfBounds { start, end, len: self.len });
        }
        let (domain, access) = (self.domain, self.access);
        Ok(Part { buffer: Buffer::new(self.key, start, len), domain, access })
    }

    /// Borrows a part to be read where it lies: when its completion has come, and before it
    /// is posted again. What comes for it while it is borrowed is as if it were lost.
    ///
    /// # Errors
    /// [`Error::TakeBack`]: it is borrowed already, there is no such part, or a driver has
    /// had the memory for long.
    pub fn read(&self, part: usize) -> Result<PartGuard, Error> {
        let lent = self.lent.as_ref().ok_or(Error::AdapterGone)?;
        Ok(lent.read(part)?)
    }
}

impl Drop for MemoryParts {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            let region = lent.region();
            lent.leave();
            self.handle.submit(Submission::DropMemory(self.key, region));
        }
    }
}

/// The longest piece that is copied at once.
const SPAN: usize = 1 << 30;
