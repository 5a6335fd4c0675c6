//! How a session went: what is in place, what is not, and why it ended early.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use landfall::stp::{Ended, Error};
use serde::Serialize;

use super::pipe::Broken;
use super::wire::Malformed;
use crate::printable::printable;

/// This many refusals are kept to be shown; all are counted.
const MOST_SHOWN: usize = 1000;

/// What a side did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Files that crossed the network, wholly or the rest of them.
    pub(crate) files: u64,
    pub(crate) bytes_moved: u64,
    /// Files whose start was there from an earlier time.
    pub(crate) resumed: u64,
    /// Files that were there already.
    pub(crate) same: u64,
    pub(crate) bytes_there: u64,
    pub(crate) folders: u64,
    pub(crate) links: u64,
    pub(crate) refusals: u64,
    pub(crate) refused: Vec<Refused>,
    /// Links of the connection before the last word: the other side may close them after it.
    pub(crate) links_used: usize,
}

/// Something that is not in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refused {
    pub(crate) path: String,
    pub(crate) why: String,
}

impl Outcome {
    /// A file crossed the network, this many bytes of it.
    pub(crate) const fn sent(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes_moved += bytes;
    }

    /// Both are safe to print afterwards, no matter who they are from.
    pub(crate) fn refuse(&mut self, path: &str, why: &str) {
        self.refusals += 1;
        if self.refused.len() < MOST_SHOWN {
            self.refused.push(Refused { path: printable(path), why: printable(why) });
        }
    }
}

/// Why a session ended before everything was dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another thread of this side knows why.
    Elsewhere,
    /// The connection is gone.
    Lost(String),
    /// The other side makes no sense, or somebody meddles.
    Nonsense(String),
    /// The other side ended it, and says why.
    Theirs(String),
    /// This side ended it, and has told the other.
    Ours(String),
}

impl Failure {
    pub(crate) fn nonsense(what: &str) -> Self {
        Self::Nonsense(format!("the other side sent a message that makes no sense ({what})"))
    }

    /// What another thread handed on within the limit, or why nothing came of it.
    pub(crate) fn of_waiting<T>(
        came: Result<T, RecvTimeoutError>,
        limit: Duration,
    ) -> Result<T, Self> {
        came.map_err(|error| match error {
            RecvTimeoutError::Disconnected => Self::Elsewhere,
            RecvTimeoutError::Timeout => Broken::Stalled(limit).into(),
        })
    }

    /// Of several reasons that threads have, the one that caused the others.
    pub(crate) fn graver(self, other: Self) -> Self {
        if other.weight() > self.weight() { other } else { self }
    }

    const fn weight(&self) -> u8 {
        match self {
            Self::Elsewhere => 0,
            Self::Lost(_) => 1,
            Self::Nonsense(_) => 2,
            Self::Theirs(_) => 3,
            Self::Ours(_) => 4,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let silent = "it has stopped answering";
        Self::Lost(match error {
            Error::Closed { why: None } => "it closed the connection".into(),
            Error::Closed { why: Some(Ended::Silent) }
            | Error::Ended { why: Ended::Silent, .. } => silent.into(),
            Error::Closed { why: Some(Ended::There(_)) }
            | Error::Ended { why: Ended::There(_), .. } => "it was ended there".into(),
            Error::Closed { why: Some(why) } | Error::Ended { why, .. } => why.to_string(),
            other => other.to_string(),
        })
    }
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Self::Nonsense(error.to_string())
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Lost(error) => error.into(),
            stalled @ Broken::Stalled(_) => Self::Lost(stalled.to_string()),
            Broken::SessionEnd => Self::Elsewhere,
            other => Self::Nonsense(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_their_list_is_bounded() {
        let mut outcome = Outcome::default();
        for nth in 0..MOST_SHOWN + 5 {
            outcome.refuse(&nth.to_string(), "no");
        }
        assert_eq!((outcome.refusals, outcome.refused.len()), (1005, MOST_SHOWN));
    }

    #[test]
    fn the_cause_is_told_and_not_what_followed_from_it() {
        let full = Failure::Ours("the disk is full".into());
        let lost = Failure::Lost("gone".into());
        assert_eq!(lost.clone().graver(full.clone()), full);
        assert_eq!(full.clone().graver(lost.clone()), full);
        assert_eq!(Failure::Elsewhere.graver(lost.clone()), lost);
    }
}
