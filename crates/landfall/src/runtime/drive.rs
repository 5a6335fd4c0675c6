//! [`drive`]: the one loop. Anyone who makes turns makes them here: threads that wait, the own
//! thread of a runtime, and the threads of [sources](super::Source).

use std::ops::ControlFlow;

use landfall_placement::{Duration, Instant};
use landfall_transport::Wait;

use super::SpinBudget;

/// Nobody sleeps longer, whatever the timers say. In tests a wake that gets lost shows.
pub(super) const LONGEST_SLEEP: Duration =
    if cfg!(test) { Duration::from_secs(3600) } else { Duration::from_secs(1) };

/// What a turn did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Something moved, or is there to be looked at.
    pub(super) moved: bool,
    /// When it was made: a clock costs as much as a look at a socket.
    pub(super) at: Instant,
}

/// What a thread drives until it is over.
pub(super) trait Drive {
    type Output;

    /// One turn, unless it is over.
    fn turn(&mut self) -> ControlFlow<Self::Output, Turn>;

    /// May a thread spin here at all, whatever its budget?
    fn may_spin(&self) -> bool {
        true
    }

    /// Do other threads wait for this one, and may need its core to go on?
    fn serves_others(&self) -> bool {
        false
    }

    /// Sleeps until a turn makes sense. The last one was made at that time.
    fn sleep(&mut self, at: Instant);
}

/// Makes turns until it is over, and spins and sleeps in between.
pub(super) fn drive<D: Drive>(driven: &mut D, wait: Wait) -> D::Output {
    let mut budget = SpinBudget::new(wait);
    loop {
        let turn = match driven.turn() {
            ControlFlow::Continue(turn) => turn,
            ControlFlow::Break(output) => return output,
        };
        if turn.moved {
            budget.renew();
        } else if driven.may_spin() && !budget.is_spent(turn.at) {
            budget.pause(turn.at, driven.serves_others());
        } else {
            driven.sleep(turn.at);
        }
    }
}
