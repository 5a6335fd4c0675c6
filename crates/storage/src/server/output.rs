//! [`Output`]: replies that are not sent yet.
//!
//! They are collected in a buffer, which the stream copies, or in memory that the stream sends
//! from: blocks that the page cache has are read straight into that.

use std::io;

#[cfg(feature = "family")]
use super::send_ring::SendRing;
use crate::device::BlockDevice;
use crate::stream::Stream;

/// Replies are collected up to this many bytes.
const BUFFER: usize = 1 << 20;
/// A longer read is left to a worker, where it would be copied.
const INLINE: u32 = 512 << 10;

/// What sends: a stream to which several threads write.
pub(super) trait Outlet {
    /// Sends bytes, which are copied.
    fn send(&self, bytes: &[u8]) -> io::Result<()>;

    /// Does something alone among all who write.
    #[cfg(feature = "family")]
    fn alone<T>(&self, work: impl FnOnce() -> T) -> T;
}

/// Replies that are not sent yet.
pub(super) struct Output {
    bytes: Vec<u8>,
    end: usize,
    /// Used instead, once there is one.
    #[cfg(feature = "family")]
    ring: Option<SendRing>,
    has_looked: bool,
}

/// How a read went that must not wait.
pub(super) enum ReadOutcome {
    /// Its answer is among what is sent next.
    Answered {
        /// The block lies where it is sent from.
        in_place: bool,
    },
    /// Somebody has to wait for the medium.
    NotCached,
    Failed(io::Error),
}

impl Output {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; BUFFER],
            end: 0,
            #[cfg(feature = "family")]
            ring: None,
            has_looked: false,
        }
    }

    /// Reads of this device begin: has the stream memory that it sends from? It is registered only
    /// when there is something to read into it.
    pub(super) fn prepare(
        &mut self,
        outlet: &impl Outlet,
        stream: &dyn Stream,
        device: &dyn BlockDevice,
    ) -> io::Result<()> {
        if !self.has_looked && device.file().is_some() {
            self.has_looked = true;
            self.send(outlet)?;
            #[cfg(feature = "family")]
            {
                // Where no more can be registered, replies are copied.
                self.ring = SendRing::open(stream);
                if self.ring.is_some() {
                    self.bytes = Vec::new();
                }
            }
        }
        let _ = stream;
        Ok(())
    }

    /// The longest read that is worth an attempt.
    pub(super) const fn longest_read(&self) -> u32 {
        #[cfg(feature = "family")]
        if self.ring.is_some() {
            return SendRing::LONGEST;
        }
        INLINE
    }

    /// Adds a reply.
    pub(super) fn add(&mut self, outlet: &impl Outlet, reply: &[u8]) -> io::Result<()> {
        #[cfg(feature = "family")]
        if let Some(ring) = &mut self.ring {
            ring.make_room(outlet, reply.len())?;
            return ring.add(reply);
        }
        self.make_room(outlet, reply.len())?;
        let end = self.end + reply.len();
        self.bytes[self.end..end].copy_from_slice(reply);
        self.end = end;
        Ok(())
    }

    /// Reads a block that the page cache may have, and adds it behind its head.
    pub(super) fn read(
        &mut self,
        outlet: &impl Outlet,
        head: &[u8],
        device: &dyn BlockDevice,
        (offset, length): (u64, u32),
    ) -> io::Result<ReadOutcome> {
        let len = length as usize;
        #[cfg(feature = "family")]
        if let (Some(ring), Some(file)) = (&mut self.ring, device.file()) {
            ring.make_room(outlet, head.len() + len)?;
            let found = ring.read(head, file, offset, len);
            if ring.is_much() {
                // It leaves while the next is read.
                ring.send(outlet)?;
            }
            return Ok(ReadOutcome::of(found, true));
        }
        self.make_room(outlet, head.len() + len)?;
        let room = &mut self.bytes[self.end..][..head.len() + len];
        let found = device.read_if_cached(offset, &mut room[head.len()..]);
        if let Ok(true) = found {
            room[..head.len()].copy_from_slice(head);
            self.end += room.len();
        }
        Ok(ReadOutcome::of(found, false))
    }

    fn make_room(&mut self, outlet: &impl Outlet, len: usize) -> io::Result<()> {
        if self.bytes.len() - self.end < len { self.send(outlet) } else { Ok(()) }
    }

    /// Sends what there is.
    pub(super) fn send(&mut self, outlet: &impl Outlet) -> io::Result<()> {
        #[cfg(feature = "family")]
        if let Some(ring) = &mut self.ring {
            return ring.send(outlet);
        }
        if self.end > 0 {
            outlet.send(&self.bytes[..self.end])?;
            self.end = 0;
        }
        Ok(())
    }
}

impl ReadOutcome {
    fn of(found: io::Result<bool>, in_place: bool) -> Self {
        match found {
            Ok(true) => Self::Answered { in_place },
            Ok(false) => Self::NotCached,
            Err(error) => Self::Failed(error),
        }
    }
}
