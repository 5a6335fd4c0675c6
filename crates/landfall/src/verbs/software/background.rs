//! [`Background`]: goes on with queue pairs that can go on while no thread of their program is
//! in a call of theirs.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock};

use landfall_placement::Instant;
use landfall_transport::driver::Interest;
use landfall_transport::{Clock, Wait};

use super::queue::Progress;
use crate::runtime::{Signal, Source, Worker, locked};

/// A thread that begins with the first queue pair that needs it, and ends with the completion
/// queue.
#[derive(Default)]
pub(super) struct Background {
    left: Arc<Left>,
    worker: OnceLock<Option<(Worker, Arc<Signal>)>>,
}

/// Queue pairs to go on with.
#[derive(Default)]
struct Left(Mutex<Vec<Arc<dyn Progress>>>);

impl Background {
    /// Leaves a queue pair to the thread. Where the system gives no thread, it goes on with the
    /// next call of its program.
    pub(super) fn leave(&self, pair: Arc<dyn Progress>) {
        let started = self.worker.get_or_init(|| {
            let signal = Signal::new().ok()?;
            let source = GoOn(Arc::clone(&self.left));
            let pace = (Clock::start(), Wait::Block);
            let worker = Worker::start("verbs", &signal, pace, source, |_, _| {}).ok()?;
            Some((worker, signal))
        });
        if let Some((_, signal)) = started {
            locked(&self.left.0).push(pair);
            signal.ring();
        }
    }
}

struct GoOn(Arc<Left>);

impl Source for GoOn {
    type Output = Infallible;

    fn turn(&mut self, _: Instant) -> ControlFlow<Infallible, bool> {
        let pairs = std::mem::take(&mut *locked(&self.0.0));
        pairs.iter().for_each(|pair| pair.advance());
        ControlFlow::Continue(!pairs.is_empty())
    }

    fn interests(&self, _: &mut Vec<Interest>) {}

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn has_work(&self) -> bool {
        !locked(&self.0.0).is_empty()
    }
}
