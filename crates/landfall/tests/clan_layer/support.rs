//! What the tests of the programming layer share.

use landfall::clan::layer::{Connect, Half};
use landfall::clan::{Cookie, Error, Fabric, Remote};
use proptest::prelude::ProptestConfig;

/// Connects two halves of one thing.
pub(crate) fn join<F, A, B>(one: Half<F, A>, two: Half<F, B>) -> (A, B)
where
    F: Fabric,
    A: Connect<F>,
    B: Connect<F>,
{
    let (to_one, to_two) = (one.cookie(), two.cookie());
    (one.connect(&to_two).unwrap(), two.connect(&to_one).unwrap())
}

/// A peer that does not keep to anything: whoever has a cookie may write any word.
pub(crate) fn scribble<F: Fabric>(fabric: &F, cookie: &Cookie, offset: u64, word: u64) {
    let mut remote = fabric.map(cookie).unwrap();
    remote.store(offset, word).unwrap();
    remote.commit().unwrap();
}

/// What a peer that scribbles may lead to: nothing else.
pub(crate) fn is_blamed_on_the_peer(error: &Error) -> bool {
    matches!(error, Error::PeerMisbehaved(_) | Error::Closed | Error::Cut | Error::TimedOut)
}

/// Bytes that differ from place to place, and tell which they are.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((seed + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// So many cases, and no file for those that failed: they become tests of their own.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}
