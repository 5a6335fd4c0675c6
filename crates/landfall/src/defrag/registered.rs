//! Memory that packets are sent from.

use std::time::Duration;

use landfall_placement::{Area, RegionId, Span};
use landfall_transport::memory::{Memory, Regions, Rights};

use super::error::Error;

/// Memory that is registered with a sender: the kernel reads packets from there, and
/// no copy is made before.
///
/// Dropped, the memory is freed.
#[derive(Debug)]
pub struct Registered {
    regions: Regions,
    region: RegionId,
    table: u32,
    len: u64,
    is_taken: bool,
}

/// Some bytes of [`Registered`] memory: the body of a packet. It is a name; of memory
/// that was taken back it names nothing, and a packet with it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub(super) span: Span,
    pub(super) table: u32,
}

impl Part {
    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.span.len
    }

    /// Has it none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.span.len == 0
    }
}

impl Registered {
    pub(super) fn new(regions: &Regions, table: u32, memory: Memory) -> Result<Self, Error> {
        let len = memory.len() as u64;
        let region =
            regions.lend(memory, Rights::READ | Rights::WRITE).map_err(|error| error.why)?;
        Ok(Self { regions: regions.clone(), region, table, len, is_taken: false })
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Has it none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, offset: u64, len: u32) -> Result<Part, Error> {
        let end = offset.checked_add(len.into()).filter(|end| *end <= self.len);
        if end.is_none() {
            return Err(Error::OutOfBounds { offset, len: len.into(), whole: self.len });
        }
        Ok(Part { span: Area::new(self.region, 0, self.len).span(offset, len), table: self.table })
    }

    /// Copies bytes in. Packets that are being sent from there meanwhile may have some
    /// of them.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        /// The longest piece that is copied at once.
        const SPAN: usize = 1 << 30;
        for (at, bytes) in (offset..).step_by(SPAN).zip(bytes.chunks(SPAN)) {
            let part = self.part(at, bytes.len() as u32)?;
            self.regions.write(&part.span, bytes)?;
        }
        Ok(())
    }

    /// Copies bytes out, as many as the slice has.
    pub(super) fn read(&self, part: &Part, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.regions.read(&part.span, into)?)
    }

    /// Ends the registration and gives the memory back. Parts of it name nothing then.
    ///
    /// # Errors
    /// A sender on another thread holds it all the time.
    pub fn take_back(mut self) -> Result<Memory, Error> {
        let memory = self.regions.take_back_within(self.region, LIMIT)?;
        self.is_taken = true;
        Ok(memory)
    }
}

/// A call that sends is over before that.
const LIMIT: Duration = Duration::from_secs(10);

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.is_taken {
            // Where a call is under way it is freed with the sender.
            let _ = self.regions.try_take_back(self.region);
        }
    }
}
