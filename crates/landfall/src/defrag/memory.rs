//! The engine's view of memory, over the transport's.

use landfall_placement::Span;
use landfall_transport::scatter::BurstMemory;
use spec_defrag::Memory;

/// The memory of a burst, for an engine.
///
/// What the engine asks for lies in memory that it was given, so nothing is ever
/// refused; if it were, bytes would be missing that a checksum finds.
#[derive(Debug)]
pub(super) struct MemoryView<'a>(pub(super) BurstMemory<'a>);

impl Memory for MemoryView<'_> {
    #[inline]
    fn head(&self, slot: u16) -> &[u8] {
        self.0.head(slot)
    }

    #[inline]
    fn copy(&mut self, from: Span, to: Span) {
        let copied = self.0.copy(&from, &to);
        debug_assert_eq!(copied, Ok(()), "{from} to {to}");
    }

    #[inline]
    fn read(&self, from: Span, into: &mut [u8]) {
        let read = self.0.read(&from, into);
        debug_assert_eq!(read, Ok(()), "{from}");
    }
}
