//! Is the other side still there? Asked by what takes long, so that it ends with its session.

use std::io;
use std::pin::pin;
use std::task::{Context, Waker};

use landfall::stp::blocking::Connection;

/// See the module.
#[derive(Clone)]
pub(crate) struct Presence(Option<Connection>);

impl Presence {
    pub(crate) fn of(connection: &Connection) -> Self {
        Self(Some(connection.clone()))
    }

    /// Of nobody who could go away.
    #[cfg(test)]
    pub(crate) const fn of_nobody() -> Self {
        Self(None)
    }

    pub(crate) fn is_over(&self) -> bool {
        let Some(connection) = &self.0 else { return false };
        let closed = pin!(connection.as_async().closed());
        closed.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// An error once the connection is over.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_over() { Err(io::Error::other(GONE)) } else { Ok(()) }
    }
}

/// What an error of [`Presence::check`] says.
const GONE: &str = "the session ended meanwhile";
