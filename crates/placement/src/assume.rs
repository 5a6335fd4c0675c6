//! What cannot be otherwise says so.

/// What an engine knows to be there.
///
/// Where it is not, a debug build stops and says why it should be: tests, fuzzing and simulated
/// networks find it. A release build goes on without it, for an engine does not panic.
///
/// ```
/// use landfall_placement::assumed;
///
/// fn first_byte(checked: &[u8]) -> u8 {
///     let Some(first) = assumed(checked.first(), "it was seen to be as long as a header") else {
///         return 0;
///     };
///     *first
/// }
/// assert_eq!(first_byte(b"abc"), b'a');
/// ```
#[inline]
#[track_caller]
pub fn assumed<T>(found: Option<T>, why: &'static str) -> Option<T> {
    debug_assert!(found.is_some(), "{why}");
    found
}
