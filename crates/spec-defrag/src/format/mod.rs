//! What a header has to say: the part of speculation that knows a protocol.
//!
//! Everything else (which place comes next, the check of a burst, what to learn
//! from it) works on lengths alone. [`Ip`] is the format of IP fragments;
//! [`Fixed`] is one for headers of your own.

mod fixed;
mod ip;

pub use fixed::{Field, Fixed, FixedBegin};
pub use ip::{Begin, Ip};

use core::fmt::Debug;
use core::hash::Hash;

use crate::shape::Shape;

/// Reads the heads of units. No method may panic, whatever the bytes.
pub trait Format {
    /// Which stream of packets a unit belongs to.
    type Flow: Copy + Eq + Hash + Debug;
    /// What is remembered of the first unit of a packet, to know the others by.
    type Begin: Copy + Debug;

    /// Whether this is the first unit of a packet of this shape, with a payload that
    /// starts exactly where the shape says. `head` is what a descriptor for it kept
    /// apart, `len` the length of the whole unit.
    fn begins(&self, shape: &Shape, head: &[u8], len: u32) -> Option<Self::Begin>;

    /// Whether this is unit `index` of the packet that began so.
    fn continues(
        &self,
        shape: &Shape,
        begin: &Self::Begin,
        index: u16,
        head: &[u8],
        len: u32,
    ) -> bool;

    /// The flow of a packet that began so.
    fn flow(&self, begin: &Self::Begin) -> Self::Flow;
}
