//! Runs that were made already, and several at once.
//!
//! What a run of the simulator gives follows from what it is given: nothing in it is drawn by
//! chance or taken from a clock. Most exhibits share runs, and most assumed constants change a few
//! of them. So a run is made once for each set of inputs, in the whole process.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::thread;

type Outcome = Arc<OnceLock<Box<dyn Any + Send + Sync>>>;

/// By what they are of, and what they were given.
static RUNS: LazyLock<Mutex<BTreeMap<String, Outcome>>> = LazyLock::new(Mutex::default);

/// What came of the run of this name with these inputs, whose [`Debug`] output says all of them:
/// as it is derived. Who asks for a run that is under way waits for it.
pub(crate) fn once<T: Clone + Send + Sync + 'static>(
    name: &str,
    inputs: &impl Debug,
    run: impl Fn() -> T,
) -> T {
    let key = format!("{name}: {inputs:?}");
    let outcome =
        Arc::clone(RUNS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
    let value = outcome.get_or_init(|| Box::new(run())).downcast_ref::<T>().cloned();
    debug_assert!(value.is_some(), "two runs are called {name}");
    value.unwrap_or_else(run)
}

/// Does this with each of them, on as many threads as the machine has processors; what comes of
/// it is in their order.
#[expect(
    clippy::disallowed_methods,
    reason = "each run is a world by itself, and what comes of them is in their order"
)]
pub(crate) fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let results: Vec<_> = all.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let helpers = thread::available_parallelism().map_or(1, NonZero::get).min(all.len());
        for _ in 0..helpers {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(one), Some(result)) = (all.get(nth), results.get(nth)) else {
                        return;
                    };
                    let done = work(one);
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                }
            });
        }
    });
    let done =
        |result: Mutex<Option<R>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_run_is_made_once_and_another_by_itself() {
        let made = AtomicUsize::new(0);
        let run = |input: u32| {
            once("a run of this test", &input, || {
                made.fetch_add(1, Ordering::Relaxed);
                input * 2
            })
        };
        let all = each(&[3, 4, 3, 4, 3, 4], |input| run(*input));
        assert_eq!((all, made.into_inner()), (vec![6, 8, 6, 8, 6, 8], 2));
    }

    #[test]
    fn nothing_takes_no_thread() {
        assert_eq!(each(&[0_u8; 0], |_| 1), []);
    }
}
