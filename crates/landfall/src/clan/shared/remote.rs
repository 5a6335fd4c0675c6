//! [`SharedRemote`]: memory of another process, written by stores.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use landfall_transport::memory::{SharedMemory, SharedView};
use landfall_transport::shm::watched::{ReadOnly, Writer};

use super::aperture::SharedLocal;
use super::host::{Host, Mapped, Window};
use super::trouble;
use crate::clan::fabric::{Dma, Remote, Stage, WORD};
use crate::clan::{Cookie, Error, Rights};

/// Memory of another process that [`Shared`](super::Shared) nodes map. A write is a
/// store into it; who waits at a tripwire is told with the next commit.
pub struct SharedRemote {
    pub(super) host: Arc<Host>,
    window: Arc<Window>,
    cookie: Cookie,
    memory: Memory,
    requests: u64,
}

#[expect(clippy::large_enum_variant, reason = "writing is what it is for, and is not boxed")]
enum Memory {
    Writer(Writer),
    ReadOnly(ReadOnly),
}

impl SharedRemote {
    pub(super) fn new(host: Arc<Host>, cookie: Cookie, mapped: Mapped) -> Result<Self, Error> {
        let Mapped { window, data, filter } = mapped;
        let made = Self::map(&host, &cookie, window.tag, data, filter);
        match made {
            Ok(memory) => Ok(Self { host, window, cookie, memory, requests: 0 }),
            Err(error) => {
                host.unmap(window.tag);
                Err(error)
            }
        }
    }

    fn map(
        host: &Host,
        cookie: &Cookie,
        tag: u32,
        data: std::os::fd::OwnedFd,
        filter: std::os::fd::OwnedFd,
    ) -> Result<Memory, Error> {
        let filter = SharedView::from_fd(filter).map_err(trouble::memory)?;
        let reporter = Arc::clone(&host.reporter);
        let (len, memory) = if cookie.rights().allow(Rights::Write) {
            let data = SharedMemory::from_fd(data).map_err(trouble::memory)?;
            let writer = Writer::new(&data, &filter, tag, reporter).map_err(trouble::watched)?;
            (data.len(), Memory::Writer(writer))
        } else {
            let data = SharedView::from_fd(data).map_err(trouble::memory)?;
            let reader = ReadOnly::new(&data, &filter, tag, reporter).map_err(trouble::watched)?;
            (data.len(), Memory::ReadOnly(reader))
        };
        if len == cookie.len() {
            Ok(memory)
        } else {
            Err(Error::Mismatch { expected: cookie.len(), found: len })
        }
    }

    /// For writing, if it is allowed and somebody is there.
    #[inline]
    fn writer(&mut self) -> Result<&mut Writer, Error> {
        self.window.check()?;
        match &mut self.memory {
            Memory::Writer(writer) => Ok(writer),
            Memory::ReadOnly(_) => Err(Error::Forbidden),
        }
    }
}

impl Remote for SharedRemote {
    type Local = SharedLocal;

    #[inline]
    fn len(&self) -> u64 {
        self.cookie.len()
    }

    #[inline]
    fn store(&mut self, offset: u64, word: u64) -> Result<(), Error> {
        self.writer()?.store(offset, word.to_le()).map_err(trouble::memory)
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.writer()?.write(offset, bytes).map_err(trouble::memory)
    }

    fn write_from(
        &mut self,
        offset: u64,
        from: &SharedLocal,
        range: Range<u64>,
    ) -> Result<Dma, Error> {
        let unaligned = |offset: &u64| !offset.is_multiple_of(WORD);
        if let Some(offset) = [offset, range.start, range.end].into_iter().find(unaligned) {
            return Err(Error::Unaligned(offset));
        }
        self.writer()?.write_from(offset, from.piece(), range).map_err(trouble::memory)?;
        self.requests += 1;
        Ok(Dma(self.requests))
    }

    #[inline]
    fn commit(&mut self) -> Result<(), Error> {
        if let Memory::Writer(writer) = &mut self.memory {
            writer.commit();
        }
        self.window.check()
    }

    fn read(&mut self, offset: u64, into: &mut [u8], _: Option<Instant>) -> Result<(), Error> {
        self.commit()?;
        if !self.cookie.rights().allow(Rights::Read) {
            return Err(Error::Forbidden);
        }
        match &self.memory {
            Memory::Writer(writer) => writer.read(offset, into),
            Memory::ReadOnly(reader) => reader.read(offset, into),
        }
        .map_err(trouble::memory)
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        self.window.check()
    }

    /// Memory is always as far as it can be.
    fn is_reached(&self, _: Stage) -> Result<bool, Error> {
        self.check().map(|()| true)
    }

    fn wait_for(&mut self, _: Stage, _: Option<Instant>) -> Result<(), Error> {
        self.check()
    }

    fn poll_reached(&mut self, _: Stage, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(self.check())
    }
}

impl Drop for SharedRemote {
    /// What was written is told before it is said that no more comes.
    fn drop(&mut self) {
        let _ = self.commit();
        self.host.unmap(self.window.tag);
    }
}

impl fmt::Debug for SharedRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRemote({:?})", self.cookie)
    }
}
