//! Who goes first, and who gets more: the wishes of this side's user.
//!
//! Nothing of it is on the wire. At a receiver it decides who is granted next and how much of
//! the window each may have; at a sender whose Data leaves first where that of several peers
//! waits. What one peer is sent over one link leaves in the order of its grants, which its
//! receiver chooses.

/// Which of those that wait goes first.
///
/// It is strict: while something of a higher priority can go on, nothing of a lower one
/// begins. What was granted already stays granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// What others leave.
    Low,
    /// As usual.
    #[default]
    Normal,
    /// Before all others.
    High,
}

impl Priority {
    /// All of them, the highest first.
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The largest weight of a connection.
pub(crate) const MOST_WEIGHT: u16 = 1_000;
