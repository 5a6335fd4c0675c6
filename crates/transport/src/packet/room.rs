//! Whether the kernel takes more frames, and what it means that it took none.

use std::io;

use landfall_placement::{Duration, Instant};

/// How long a full queue is left alone, at first and at most. A frame of 1500
/// bytes takes 12 µs at 1 Gbit/s.
const SHORTEST_WAIT: Duration = Duration::from_micros(20);
const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// Whether the kernel takes more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It does.
    Enough,
    /// The socket buffer is full: the socket becomes writable when it is not.
    SocketFull,
    /// The device's queue was full, which nobody is told the end of.
    QueueFull { until: Instant, waited: Duration },
}

impl Room {
    /// Is it still too early to try again?
    pub(crate) fn is_early(&self, now: Instant) -> bool {
        matches!(self, Self::QueueFull { until, .. } if now < *until)
    }

    /// When to try again, if nothing else will tell.
    pub(crate) const fn until(&self) -> Option<Instant> {
        match self {
            Self::QueueFull { until, .. } => Some(*until),
            Self::Enough | Self::SocketFull => None,
        }
    }

    /// Waits for twice as long each time that the queue is still full.
    pub(crate) fn after_full_queue(self, now: Instant) -> Self {
        let waited = match self {
            Self::QueueFull { waited, .. } => waited.saturating_mul(2).min(LONGEST_WAIT),
            Self::Enough | Self::SocketFull => SHORTEST_WAIT,
        };
        Self::QueueFull { until: now + waited, waited }
    }
}

/// What it means that a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The socket buffer has no room.
    SocketFull,
    /// The queue of the interface has none.
    QueueFull,
    /// To the engine the unit is lost on the way.
    Lost,
    /// The interface was removed, or whatever else: the path is broken.
    Broken,
}

impl Failure {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Self::SocketFull,
            Some(libc::ENOBUFS) => Self::QueueFull,
            // Longer than the MTU, or it cannot be segmented: ENOMEM says that too.
            Some(libc::EMSGSIZE | libc::EINVAL | libc::ENOMEM | libc::EIO) => Self::Lost,
            // An interface that is down may come up again.
            Some(libc::ENETDOWN) => Self::Lost,
            _ => Self::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_left_alone_ever_longer_up_to_a_bound() {
        let mut room = Room::Enough;
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            room = room.after_full_queue(Instant::ZERO);
            let Room::QueueFull { until, waited } = room else { panic!("{room:?}") };
            assert_eq!(until.since(Instant::ZERO), waited);
            assert!(waited > last || waited == LONGEST_WAIT);
            assert!(room.is_early(Instant::ZERO) && !room.is_early(until));
            last = waited;
        }
        assert_eq!(last, LONGEST_WAIT);
    }

    #[test]
    fn only_a_vanished_interface_breaks_the_path() {
        let of = |number| Failure::of(&io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::EAGAIN), Failure::SocketFull);
        assert_eq!(of(libc::ENOBUFS), Failure::QueueFull);
        assert_eq!(of(libc::EMSGSIZE), Failure::Lost);
        assert_eq!(of(libc::ENETDOWN), Failure::Lost);
        assert_eq!(of(libc::ENXIO), Failure::Broken);
    }
}
