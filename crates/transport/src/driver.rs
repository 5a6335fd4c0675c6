//! The [`Driver`] trait: one turn after another moves units between an engine and a path.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use arrayvec::ArrayVec;
use landfall_placement::{Engine, Instant, PathId, PathLimits};

use crate::capability::Capabilities;
use crate::counters::Counters;

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

/// Moves units between any engine and one path.
///
/// A turn never blocks. It borrows the engine from the first guess to the last
/// `handle_placed`, so that nothing can change what was guessed meanwhile.
pub trait Driver {
    /// The path that this driver serves, as the engine knows it.
    fn path(&self) -> PathId;

    /// What the path carries: for [`Engine::handle_path`].
    fn limits(&self) -> PathLimits;

    /// What could be switched on, and what not.
    fn capabilities(&self) -> &Capabilities;

    /// What was done so far.
    fn counters(&self) -> &Counters;

    /// The same, for those that count on the driver's behalf (wake-ups).
    fn counters_mut(&mut self) -> &mut Counters;

    /// Receives at most one batch, writes what the engine had kept to its
    /// place, lets timers fire, and sends what the engine
    /// has to send, as far as there is room.
    ///
    /// # Errors
    /// The path is broken for good. What the network does to single units is
    /// no error: they are lost, and the engine recovers.
    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress>;

    /// What to wait for once a turn moved nothing.
    fn interests(&self) -> Interests;

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
