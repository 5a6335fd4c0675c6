//! Registered memory, as the card and the processor reach it.

use core::cell::RefCell;

use landfall_placement::{Span, WordOp};
use landfall_transport::memory::{Pins, Rights};

use crate::firmware::HostMemory;
use crate::node::software::ProcessorMemory;

/// The memory that was lent, during one turn: what is used is pinned until its end.
pub(super) struct Lent<'a> {
    pins: RefCell<&'a mut Pins>,
    /// So much was written.
    pub(super) written: u64,
}

impl<'a> Lent<'a> {
    pub(super) const fn new(pins: &'a mut Pins) -> Self {
        Self { pins: RefCell::new(pins), written: 0 }
    }
}

impl HostMemory for Lent<'_> {
    fn is_writable(&self, span: Span) -> bool {
        self.pins.borrow_mut().resolve(&span, Rights::WRITE).is_ok()
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> bool {
        let is_there = self.pins.get_mut().copy_in(&span, bytes).is_ok();
        self.written += if is_there { bytes.len() as u64 } else { 0 };
        is_there
    }

    fn read(&self, span: Span, into: &mut [u8]) -> bool {
        self.pins.borrow_mut().copy_out(&span, into).is_ok()
    }
}

impl ProcessorMemory for Lent<'_> {
    fn word(&mut self, op: WordOp) -> Option<u64> {
        self.pins.get_mut().word(&op).ok()
    }
}
