//! What crosses a link: [`Frame`], and the bounded pool of those under way.

use alloc::vec::Vec;

use landfall_placement::{Ecn, Peer};

/// Bytes on their way, with what the network beneath knows of them.
///
/// Protocols that write their own addresses (Ethernet, IP) leave `from` and
/// `to` at [`Peer::Unaddressed`]; the others are forwarded by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The bytes, from the first header on.
    pub bytes: Vec<u8>,
    /// Who sent it.
    pub from: Peer,
    /// To whom.
    pub to: Peer,
    /// The ECN codepoint, for protocols whose bytes hold none.
    pub ecn: Ecn,
}

impl Frame {
    /// A frame with its addresses, if any, among its bytes.
    #[must_use]
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), ..Self::default() }
    }

    /// A frame from one node to another.
    #[must_use]
    pub fn addressed(from: Peer, to: Peer, bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), from, to, ecn: Ecn::NotCapable }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Names a frame in the [`Pool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameId(u32);

/// Every frame that is under way: bounded, and apart from the event queue so
/// that events stay small.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Vec<Option<Frame>>,
    free: Vec<u32>,
    limit: usize,
}

impl Pool {
    pub(crate) fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), limit: limit.min(u32::MAX as usize) }
    }

    /// Keeps a frame, or gives it back where the pool is full.
    pub(crate) fn insert(&mut self, frame: Frame) -> Result<FrameId, Frame> {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(frame);
            return Ok(FrameId(index));
        }
        if self.slots.len() >= self.limit {
            return Err(frame);
        }
        self.slots.push(Some(frame));
        Ok(FrameId((self.slots.len() - 1) as u32))
    }

    pub(crate) fn get_mut(&mut self, id: FrameId) -> Option<&mut Frame> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, id: FrameId) -> Option<Frame> {
        let frame = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(frame)
    }

    /// How many frames are under way.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_gives_back_what_does_not_fit_and_uses_slots_again() {
        let mut pool = Pool::new(2);
        let a = pool.insert(Frame::raw([1])).unwrap();
        let b = pool.insert(Frame::raw([2])).unwrap();
        assert_eq!(pool.insert(Frame::raw([3])), Err(Frame::raw([3])));
        assert_eq!(pool.remove(a), Some(Frame::raw([1])));
        assert_eq!(pool.remove(a), None, "it is gone");
        let c = pool.insert(Frame::raw([4])).unwrap();
        assert_eq!(
            (pool.len(), pool.get_mut(b).cloned(), pool.get_mut(c).cloned()),
            (2, Some(Frame::raw([2])), Some(Frame::raw([4])))
        );
    }
}
