//! What became of the frames of a way, counted.

use core::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)+) => {
        /// Why a frame did not arrive.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $name,)+ }

        impl DropReason {
            /// Every reason there is.
            pub const ALL: [Self; [$($words),+].len()] = [$(Self::$name),+];

            /// The reason in a few words.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

reasons! {
    /// It is longer than the MTU.
    TooLong = "longer than the MTU",
    /// The queue policy did not want it: the queue is full, for instance.
    Queue = "dropped by the queue",
    /// It was lost on the way.
    Lost = "lost on the way",
    /// The link was down, or went down while the frame was on it.
    Down = "the link is down",
    /// An interceptor of the test took it.
    Intercepted = "taken by an interceptor",
    /// The simulation has no room for more frames.
    NoRoom = "no room in the simulation",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of the frames of one direction of a link.
///
/// Nothing gets lost from the books: what was `sent` or `duplicated` was
/// `delivered`, or dropped for a reason, or is still under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames that the node sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that the node at the far end got.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    dropped: [u64; DropReason::ALL.len()],
    /// Second copies that were made.
    pub duplicated: u64,
    /// Frames that were damaged.
    pub corrupted: u64,
    /// Frames that were delayed so that others may overtake them.
    pub reordered: u64,
    /// Frames that got the mark of congestion.
    pub marked: u64,
    /// Frames in the queue and on the way at this moment.
    pub under_way: u64,
    /// The most frames that ever waited in the queue.
    pub queue_high_frames: u32,
    /// The most bytes that ever waited in the queue.
    pub queue_high_bytes: u64,
}

impl LinkStats {
    /// How many frames were dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// How many frames were dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    pub(crate) fn drop_one(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
        self.under_way -= 1;
    }
}

impl fmt::Display for LinkStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sent, {} delivered", self.sent, self.delivered)?;
        for reason in DropReason::ALL {
            match self.dropped(reason) {
                0 => {}
                n => write!(f, ", {n} {reason}")?,
            }
        }
        let rest = [
            (self.duplicated, "duplicated"),
            (self.corrupted, "corrupted"),
            (self.reordered, "delayed"),
            (self.marked, "marked"),
        ];
        for (n, what) in rest.into_iter().filter(|(n, _)| *n > 0) {
            write!(f, ", {n} {what}")?;
        }
        Ok(())
    }
}
