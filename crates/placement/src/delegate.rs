//! [`delegate_engine!`](crate::delegate_engine): what an engine around another hands on
//! unchanged.

/// In an `impl Engine` of something around another engine: the methods that hand on to that one
/// unchanged, by their names.
///
/// ```
/// use landfall_placement::*;
///
/// /// Counts how often it was asked when to wake.
/// struct Counted<E>(E, u32);
///
/// impl<E: Engine> Engine for Counted<E> {
///     type Event = E::Event;
///
///     fn handle_timeout(&mut self, now: Instant) {
///         self.1 += 1;
///         self.0.handle_timeout(now);
///     }
///
///     delegate_engine! { |this| this.0 =>
///         handle_path, awaits_first_answer, handle_unreachable, guess, place, place_run,
///         handle_placed, poll_deposit, poll_transmit, poll_transmit_run, handle_sent,
///         poll_timeout, poll_event, refusals, seals, seal, seal_run, open_run, place_opened,
///         place_opened_run, open, places_unverified, name_in, handle_false_name,
///     }
/// }
/// ```
///
/// What is neither named nor written has the trait's own body, if it has one. For a run that is
/// "take it unit by unit", so that a layer which looks at each unit leaves the runs out.
#[macro_export]
macro_rules! delegate_engine {
    (|$this:ident| $inner:expr => $($method:ident),+ $(,)?) => {
        $($crate::delegate_engine! { @$method |$this| $inner })+
    };
    (@hand_on |$this:ident| $inner:expr, fn $name:ident(
        &mut $me:ident $(, $argument:ident: $type:ty)*
    ) $(-> $output:ty)?) => {
        fn $name(&mut $me $(, $argument: $type)*) $(-> $output)? {
            let $this = $me;
            $inner.$name($($argument),*)
        }
    };
    (@hand_on |$this:ident| $inner:expr, fn $name:ident(
        &$me:ident $(, $argument:ident: $type:ty)*
    ) $(-> $output:ty)?) => {
        fn $name(&$me $(, $argument: $type)*) $(-> $output)? {
            let $this = $me;
            $inner.$name($($argument),*)
        }
    };
    (@handle_path $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn handle_path(
            &mut self, now: $crate::Instant, path: $crate::PathId, state: $crate::PathState
        ) }
    };
    (@awaits_first_answer $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn awaits_first_answer(
            &self, path: $crate::PathId
        ) -> bool }
    };
    (@handle_unreachable $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn handle_unreachable(
            &mut self, now: $crate::Instant, path: $crate::PathId, peer: $crate::Peer
        ) }
    };
    (@guess $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn guess(
            &self, path: $crate::PathId, nth: usize
        ) -> Option<$crate::Guess> }
    };
    (@place $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn place(
            &mut self, now: $crate::Instant, unit: &$crate::Unit<'_>, into: &mut $crate::Spans
        ) -> Result<$crate::Placement, $crate::Refusal> }
    };
    (@place_run $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn place_run(
            &mut self, now: $crate::Instant, run: &$crate::UnitRun<'_>
        ) -> Option<$crate::RunPlacement> }
    };
    (@handle_placed $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn handle_placed(
            &mut self, now: $crate::Instant, ticket: $crate::Ticket, landing: $crate::Landing
        ) }
    };
    (@poll_deposit $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn poll_deposit(
            &mut self, now: $crate::Instant, into: &mut $crate::Spans
        ) -> Option<$crate::Deposit<'_>> }
    };
    (@poll_transmit $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn poll_transmit(
            &mut self, now: $crate::Instant, path: $crate::PathId, head: &mut [u8],
            from: &mut $crate::Spans
        ) -> Option<$crate::Transmit> }
    };
    (@poll_transmit_run $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn poll_transmit_run(
            &mut self, now: $crate::Instant, path: $crate::PathId,
            room: &mut $crate::RunRoom<'_>
        ) -> Option<$crate::TransmitRun> }
    };
    (@handle_sent $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn handle_sent(
            &mut self, now: $crate::Instant, ticket: $crate::Ticket
        ) }
    };
    (@handle_timeout $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn handle_timeout(
            &mut self, now: $crate::Instant
        ) }
    };
    (@poll_timeout $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn poll_timeout(
            &self
        ) -> Option<$crate::Timeout> }
    };
    (@poll_event $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn poll_event(
            &mut self
        ) -> Option<Self::Event> }
    };
    (@refusals $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn refusals(&self) -> &$crate::Refusals }
    };
    (@seals $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn seals(&self) -> bool }
    };
    (@seal $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn seal(
            &mut self, head: &mut [u8], payload: &mut [u8]
        ) -> bool }
    };
    (@seal_run $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn seal_run(
            &mut self, units: &mut [u8], unit_len: usize, head_len: usize
        ) -> usize }
    };
    (@open_run $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn open_run(
            &mut self, now: $crate::Instant, run: &mut $crate::SealedRun<'_>
        ) -> Option<$crate::Unsealed> }
    };
    (@place_opened $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn place_opened(
            &mut self, now: $crate::Instant, unit: &$crate::Unit<'_>, into: &mut $crate::Spans
        ) -> Result<$crate::Placement, $crate::Refusal> }
    };
    (@place_opened_run $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn place_opened_run(
            &mut self, now: $crate::Instant, run: &$crate::UnitRun<'_>
        ) -> Option<$crate::RunPlacement> }
    };
    (@open $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn open(
            &mut self, key: u64, head: &[u8], payload: &mut [u8]
        ) -> bool }
    };
    (@places_unverified $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn places_unverified(
            &self, head: &[u8]
        ) -> bool }
    };
    (@name_in $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn name_in(
            &self, head: &[u8]
        ) -> Option<u32> }
    };
    (@handle_false_name $($inner:tt)+) => {
        $crate::delegate_engine! { @hand_on $($inner)+, fn handle_false_name(
            &mut self, now: $crate::Instant, unit: &$crate::Unit<'_>
        ) -> $crate::Refusal }
    };
}
