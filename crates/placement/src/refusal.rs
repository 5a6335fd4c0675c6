//! Why something that arrived was not accepted, and how often.

use core::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)+) => {
        /// Which check refused a unit. Nothing but its counter changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Refusal { $($(#[$doc])* $name,)+ }

        impl Refusal {
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

refusals! {
    /// It is shorter than its own headers say or need.
    Truncated = "truncated",
    /// A field holds what it may not hold.
    Malformed = "malformed",
    /// It belongs to a protocol or version that is not spoken here.
    Unsupported = "unsupported protocol or version",
    /// It is for another address or port.
    WrongAddress = "for another address or port",
    /// Its key or cookie is not the one that was given out.
    WrongKey = "wrong key",
    /// It does not prove that it comes from the other side of its connection.
    BadProof = "bad proof",
    /// It names a connection, transfer or memory that does not exist (any more).
    UnknownId = "unknown connection, transfer or memory",
    /// It is outside the window, block or region that it names.
    OutOfBounds = "out of bounds",
    /// The grant does not allow it.
    Forbidden = "not allowed by the grant",
    /// Its checksum is wrong.
    BadChecksum = "bad checksum",
    /// What it carries was accepted before.
    Duplicate = "duplicate",
    /// It does not fit the state that its connection is in.
    Unexpected = "unexpected in this state",
    /// A configured bound is reached.
    NoRoom = "no room within the configured bounds",
    /// It was lost on purpose, by a test.
    Injected = "lost on purpose",
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for Refusal {}

/// A counter for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; Refusal::ALL.len()])
    }

    /// Counts one, and gives the reason back, so that `Err(count(r))` reads well.
    #[inline]
    pub fn count(&mut self, reason: Refusal) -> Refusal {
        crate::trace!(reason = reason.as_str(), "refused");
        self.0[reason as usize] = self.0[reason as usize].wrapping_add(1);
        reason
    }

    /// How often this was the reason.
    #[must_use]
    pub const fn of(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// How often anything was refused.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }

    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.into_iter().zip(self.0).filter(|(_, n)| *n > 0)
    }
}

/// Those of several engines, added up.
impl core::ops::AddAssign for Refusals {
    fn add_assign(&mut self, other: Self) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(n);
        }
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (reason, n) in self.iter() {
            write!(f, "{separator}{n} {reason}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let mut refusals = Refusals::new();
        for (n, reason) in Refusal::ALL.into_iter().enumerate() {
            for _ in 0..=n {
                assert_eq!(refusals.count(reason), reason);
            }
        }
        for (n, reason) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusals.of(reason), n as u64 + 1);
        }
        let n = Refusal::ALL.len() as u64;
        assert_eq!(refusals.total(), n * (n + 1) / 2);
        refusals += refusals;
        assert_eq!(refusals.of(Refusal::ALL[2]), 6);
        assert_eq!(refusals.total(), n * (n + 1));
    }
}
