//! [`trace!`](crate::trace!): what engines do, told while they work.
//!
//! Engines name what happened and to what: a grant, a guess that missed, a retransmission, a
//! refusal with its reason. With the feature `tracing` each becomes an event of the `tracing`
//! crate, whose target is the module that tells it. Without the feature the macro expands to
//! nothing: neither its fields are evaluated nor is a branch left.

/// `tracing`, for the expansion of [`trace!`](crate::trace!).
#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;

/// Tells of something that an engine did.
///
/// Takes what `tracing::trace!` takes. Fields must have no effect of their own, since they
/// are evaluated only with the feature `tracing` and a subscriber that listens.
///
/// ```
/// let (block, end) = (3, 17);
/// landfall_placement::trace!(block, end, "granted");
/// # let _ = (block, end);
/// ```
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! trace {
    ($($event:tt)*) => { $crate::trace::tracing::trace!($($event)*) };
}

/// Tells of something that an engine did: nothing, without the feature `tracing`.
///
/// ```
/// let (block, end) = (3, 17);
/// landfall_placement::trace!(block, end, "granted");
/// # let _ = (block, end);
/// ```
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! trace {
    ($($event:tt)*) => {};
}
