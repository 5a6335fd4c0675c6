//! What cannot be otherwise says so.

/// What the engine knows to be there. Where it is not, a debug build stops and says why it
/// should be; a release build goes on without it.
#[inline]
#[track_caller]
pub(crate) fn assumed<T>(found: Option<T>, why: &'static str) -> Option<T> {
    debug_assert!(found.is_some(), "{why}");
    found
}
