//! The [`Driver`] trait: one turn after another moves units between an engine and a path.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Instant as StdInstant;

use arrayvec::ArrayVec;
use landfall_placement::{Duration, Engine, Instant, PathId, PathLimits};

use crate::capability::Capabilities;
use crate::exchange::{SEND_HEAD_ROOM, Settled, TurnScratch};
use crate::fault::FaultCounts;
use crate::memory::Regions;

/// What a turn moved. Nothing moved: it is time to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Units that came in, and payloads that the engine had kept and that were
    /// written to their places.
    pub received: u32,
    /// Units that went out.
    pub sent: u32,
}

impl Progress {
    /// Did anything move?
    #[must_use]
    pub const fn any(&self) -> bool {
        self.received > 0 || self.sent > 0
    }
}

/// A file descriptor that a driver waits for, by its number: to ask whether it is ready,
/// and for nothing else. Who keeps it asks for the [`Descriptors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The descriptor, open as long as the driver.
    pub fd: RawFd,
    /// Wake when it can be read.
    pub readable: bool,
    /// Wake when it can be written.
    pub writable: bool,
}

/// The descriptors that a driver waits for: their number and order never change,
/// only what is waited for.
pub type Interests = ArrayVec<Interest, 2>;

/// The descriptors themselves, in the same order, as long as their driver is borrowed.
pub type Descriptors<'a> = ArrayVec<BorrowedFd<'a>, 2>;

/// What every driver has of its path, whatever it moves units with.
///
/// A driver of one's own has one too:
///
/// ```
/// use landfall_placement::{PathId, PathLimits};
/// use landfall_transport::driver::DriverState;
/// use landfall_transport::memory::Regions;
/// use landfall_transport::Capabilities;
///
/// let limits = PathLimits::plain(1472);
/// let state = DriverState::new(PathId(0), limits, Capabilities::of("mine"), &Regions::new(16));
/// assert_eq!(state.limits.unit, 1472);
/// ```
#[derive(Debug)]
pub struct DriverState {
    /// The path that the driver serves, as the engine knows it.
    pub path: PathId,
    /// What the path carries.
    pub limits: PathLimits,
    /// What could be switched on, and what not.
    pub capabilities: Capabilities,
    /// What was done so far.
    pub counters: Counters,
    between: TurnScratch,
}

impl DriverState {
    /// The state of a driver that has done nothing yet, and writes to these regions.
    #[must_use]
    pub fn new(
        path: PathId,
        limits: PathLimits,
        capabilities: Capabilities,
        regions: &Regions,
    ) -> Self {
        let (counters, between) = (Counters::default(), TurnScratch::new(regions));
        Self { path, limits, capabilities, counters, between }
    }

    /// The part of a turn between receiving and sending: writes what the engine had kept to
    /// its place, as much as one turn may, and lets the engine's timers fire if it is time.
    /// Returns the number of payloads that were written.
    pub fn settle<E: Engine>(&mut self, engine: &mut E, now: Instant) -> u32 {
        self.settle_turn(engine, now).deposits
    }

    fn settle_turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> Settled {
        self.between.run(engine, now, &mut self.counters)
    }
}

/// Moves units between any engine and one path.
///
/// A turn never blocks. It borrows the engine from the first guess to the last
/// `handle_placed`, so that nothing can change what was guessed meanwhile.
pub trait Driver {
    /// What the driver has of its path.
    fn state(&self) -> &DriverState;

    /// The same, to be changed.
    fn state_mut(&mut self) -> &mut DriverState;

    /// The path that this driver serves, as the engine knows it.
    fn path(&self) -> PathId {
        self.state().path
    }

    /// What the path carries: for [`Engine::handle_path`].
    fn limits(&self) -> PathLimits {
        self.state().limits
    }

    /// What went wrong on purpose, where faults were put around the path.
    fn faults(&self) -> Option<FaultCounts> {
        None
    }

    /// What could be switched on, and what not.
    fn capabilities(&self) -> &Capabilities {
        &self.state().capabilities
    }

    /// What was done so far.
    fn counters(&self) -> &Counters {
        &self.state().counters
    }

    /// The same, for those that count on the driver's behalf (wake-ups).
    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.state_mut().counters
    }

    /// Receives at most one batch, writes what the engine had kept to its
    /// place, lets timers fire, and sends what the engine
    /// has to send, as far as there is room.
    ///
    /// # Errors
    /// The path is broken for good. What the network does to single units is
    /// no error: they are lost, and the engine recovers.
    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress>;

    /// Had the kernel no room for more in the last turn? Then it wakes when it has.
    fn is_blocked(&self) -> bool {
        false
    }

    /// What to wait for once a turn moved nothing: that a descriptor can be read, or
    /// written while the driver [is blocked](Self::is_blocked).
    fn interests(&self) -> Interests {
        let writable = self.is_blocked();
        let of = |fd: BorrowedFd<'_>| Interest { fd: fd.as_raw_fd(), readable: true, writable };
        self.descriptors().into_iter().map(of).collect()
    }

    /// The descriptors that [`interests`](Self::interests) names, in the same order: not
    /// numbers, which anybody can say, but what the driver has, as long as it has it.
    ///
    /// ```compile_fail,E0505
    /// use landfall_transport::{Driver, udp::UdpDriver};
    ///
    /// fn watch(driver: UdpDriver) {
    ///     let descriptors = driver.descriptors();
    ///     drop(driver); // From here on the number may be another one's.
    ///     println!("{descriptors:?}");
    /// }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use landfall_transport::driver::Descriptors;
    /// # fn watch(mut descriptors: Descriptors<'_>) {
    /// descriptors.push(17); // A number is no descriptor.
    /// # }
    /// ```
    fn descriptors(&self) -> Descriptors<'_>;

    /// The earliest moment at which the driver itself wants a turn, whatever
    /// the engine's timers say.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// What a path carries whose units have this length, with as much head as drivers have room
/// for, and of which the device does nothing.
pub(crate) const fn plain_limits(unit: u32) -> PathLimits {
    PathLimits { head: SEND_HEAD_ROOM as u16, ..PathLimits::plain(unit) }
}

/// A turn of a driver with a system call for each direction. What the user asked for since
/// the last turn leaves before anybody looks what came: in a conversation that would only
/// find nothing. Both functions give the number of units that they moved.
pub(crate) fn take_turn<D: Driver, E: Engine>(
    driver: &mut D,
    engine: &mut E,
    now: Instant,
    send: impl Fn(&mut D, &mut E, Instant) -> io::Result<u32>,
    receive: impl FnOnce(&mut D, &mut E, Instant) -> io::Result<u32>,
) -> io::Result<Progress> {
    let asked = send(driver, engine, now)?;
    let received = receive(driver, engine, now)?;
    let Settled { deposits, fired } = driver.state_mut().settle_turn(engine, now);
    // Who spins makes most turns in vain: nothing happened since the engine was asked.
    let has_news = received > 0 || deposits > 0 || fired;
    let answered = if has_news { send(driver, engine, now)? } else { 0 };
    Ok(Progress { received: received + deposits, sent: asked + answered })
}

// What a driver did: the figures that show whether placement works.

landfall_placement::counters! {
    /// Counters of one driver since it was opened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Counters {
        /// System calls (or submissions) that received something.
        pub receive_calls: u64,
        /// Receive calls that found nothing.
        pub empty_calls: u64,
        /// Units received.
        pub units_received: u64,
        /// Payload bytes that were given a place and arrived there.
        pub payload_bytes: u64,
        /// Units whose payload was received straight into its place.
        pub guessed_right: u64,
        /// Units whose payload was received into a guessed span and belonged elsewhere.
        pub guessed_wrong: u64,
        /// Payloads that the engine had kept and that were written to their place.
        pub deposits: u64,
        /// Bytes of payload that this process copied, each copy counted.
        pub bytes_copied: u64,
        /// Bytes summed to verify or fill in a checksum in software.
        pub bytes_summed: u64,
        /// Receives that looked at the first head before they chose a place.
        pub peeks: u64,
        /// Calls that asked whether something waits before places were posted for it.
        pub looks: u64,
        /// Units that the engine refused.
        pub refused: u64,
        /// Units that the path cut short, or that no engine could read.
        pub malformed: u64,
        /// Payloads whose check failed.
        pub corrupt: u64,
        /// Payloads that could not be put into place, or word operations that the grant forbade.
        pub misplaced: u64,
        /// System calls (or submissions) that sent something.
        pub send_calls: u64,
        /// Units sent.
        pub units_sent: u64,
        /// Units that could not be sent: the network or the kernel refused them,
        /// or their memory was gone. To the engine they are lost on the way.
        pub send_failed: u64,
        /// Times that sending had to wait for room.
        pub send_blocked: u64,
        /// Times that a waiting thread was woken.
        pub wakeups: u64,
        /// Frames that came here and are another [member](crate::member)'s, or all members'.
        pub handed_over: u64,
        /// Frames that came to another member and are this one's, or all members'.
        pub taken_in: u64,
        /// Frames that a member had no room for.
        pub not_handed_over: u64,
    }
}

impl Counters {
    /// Units per receive call; zero if there was none.
    #[must_use]
    pub fn units_per_receive(&self) -> f64 {
        ratio(self.units_received, self.receive_calls)
    }

    /// The share of the payload bytes that reached their place without a copy by this process.
    #[must_use]
    pub fn share_uncopied(&self) -> f64 {
        let touched = self.bytes_copied.min(self.payload_bytes);
        ratio(self.payload_bytes - touched, self.payload_bytes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

// Where `now` comes from: the monotonic clock, as an engine's `Instant`.

/// Counts from the moment it was made. Copies count from the same moment, so
/// that several drivers of one engine agree about the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: StdInstant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: StdInstant::now() }
    }

    /// The time on this clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// How long until `then`; nothing if that has passed.
    #[must_use]
    pub fn until(&self, then: Instant) -> Duration {
        then.since(self.now())
    }
}
