//! The own thread of a runtime: it drives whenever nobody else does.

use std::ops::ControlFlow;

use landfall_placement::Instant;

use super::drive::{Drive, LONGEST_SLEEP, Turn, drive};
use super::{Driving, Protocol, Runtime};

impl<P: Protocol> Runtime<P> {
    /// What the own thread does.
    pub(super) fn drive_as_own(&self) {
        self.user_drivers.enter_own();
        // Whatever happens here, nobody waits for it in vain.
        let _end = EndOnDrop(self);
        drive(&mut ThreadDriver { runtime: self, is_ending: false }, self.wait);
    }

    fn sleep_as_own(&self, is_ending: bool) {
        let must_not = || self.has_ended() || !is_ending && self.shutdown.is_asked();
        self.poll_slot.set_own(true);
        let slept = self.sleep(LONGEST_SLEEP, &[], must_not);
        self.poll_slot.set_own(false);
        if slept.is_none() {
            self.stay_aside();
        }
    }

    fn stay_aside(&self) {
        let is_there = || self.user_drivers.is_driven_by_others() || self.poll_slot.is_taken();
        self.user_drivers.stay_aside(is_there);
    }
}

/// The own thread.
struct ThreadDriver<'a, P: Protocol> {
    runtime: &'a Runtime<P>,
    is_ending: bool,
}

impl<P: Protocol> Drive for ThreadDriver<'_, P> {
    type Output = ();

    fn turn(&mut self) -> ControlFlow<(), Turn> {
        let runtime = self.runtime;
        while !runtime.has_ended() {
            self.is_ending = runtime.shutdown.is_asked();
            if self.is_ending || !runtime.user_drivers.is_driven_by_others() {
                return ControlFlow::Continue(self.turn_alone());
            }
            runtime.stay_aside();
        }
        ControlFlow::Break(())
    }

    fn may_spin(&self) -> bool {
        !self.is_ending && !self.runtime.user_drivers.was_driven_lately()
    }

    fn serves_others(&self) -> bool {
        self.runtime.driving == Driving::OwnThread
    }

    fn sleep(&mut self, _: Instant) {
        self.runtime.sleep_as_own(self.is_ending);
    }
}

/// The own thread is over, perhaps by a panic: nothing moves any more.
struct EndOnDrop<'a, P: Protocol>(&'a Runtime<P>);

impl<P: Protocol> Drop for EndOnDrop<'_, P> {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.end_now();
        }
    }
}

impl<P: Protocol> ThreadDriver<'_, P> {
    /// A turn, unless others began to drive before this thread had the lock: they look at what
    /// their own turns brought, and may be about to sleep.
    fn turn_alone(&self) -> Turn {
        let Self { runtime, is_ending } = *self;
        let mut was_late = false;
        let turn = runtime.turn_unless(|| {
            was_late = !is_ending && runtime.user_drivers.has_drivers();
            was_late
        });
        Turn { moved: turn.moved || was_late, ..turn }
    }
}
