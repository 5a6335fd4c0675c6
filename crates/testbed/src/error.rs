//! What can go wrong on a testbed, in words that say what was tried.

use std::io;
use std::time::Duration;

/// Why the testbed could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused a call.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, as the end of "cannot …".
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The machine, the kernel or the device does not have this.
    #[error("not available here: {0}")]
    Unsupported(String),
    /// The caller asked for something that makes no sense.
    #[error("bad request: {0}")]
    BadRequest(String),
    /// Something did not end in its time.
    #[error("{what} did not end within {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// Bytes were lost or changed on the way.
    #[error("wrong data: {0}")]
    WrongData(String),
    /// A thread of a measurement panicked.
    #[error("{0} panicked")]
    Panicked(String),
    /// A measured candidate failed for a reason of its own.
    #[error("{label}: {source}")]
    Candidate {
        /// The candidate's label.
        label: String,
        /// Its own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Wraps what the kernel said; `what` ends the sentence "cannot …".
    pub fn system(what: impl Into<String>, source: io::Error) -> Self {
        Self::System { what: what.into(), source }
    }

    /// Wraps `errno` of the call that just failed.
    pub(crate) fn last(what: impl Into<String>) -> Self {
        Self::system(what, io::Error::last_os_error())
    }

    /// Whether the kernel refused for want of a privilege.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::System { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Adds to a kernel error what was tried.
pub(crate) trait Tried<T> {
    /// `what` ends the sentence "cannot …".
    fn tried(self, what: &str) -> Result<T, Error>;
}

impl<T> Tried<T> for io::Result<T> {
    fn tried(self, what: &str) -> Result<T, Error> {
        self.map_err(|source| Error::system(what, source))
    }
}
