//! What the tests of every protocol share: bounds on time, and bytes.

use std::future::Future;
use std::time::Duration;

/// Nothing here takes so long on the slowest machine; a test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on a runtime, for a bounded time.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(within(test))
}

/// What must happen soon.
pub(crate) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes far too long")
}

/// Bytes that tell where they belong.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = landfall_placement::Random::from_number(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
