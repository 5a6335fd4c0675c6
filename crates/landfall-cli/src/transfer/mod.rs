//! `landfall send` and `landfall receive`: files and folders over STP.
//!
//! | file | what it is |
//! | --- | --- |
//! | `send`, `receive` | the commands: options, sessions, what is said to people |
//! | `options` | what both are asked alike; no faster than the user wants |
//! | `ask`, `code` | from where the code comes; which are taken |
//! | `accept_thread`, `allowance` | accepts senders side by side, and limits guesses of the code by rate and source |
//! | `greet` | both sides prove that they know the code, and have keys then |
//! | `seals` | what all is encrypted with after that |
//! | `wire` | the messages |
//! | `pipe` | transfers of STP in their order, sealed and opened in place |
//! | `ways` | addresses, interfaces, endpoints on them |
//! | `walk`, `source` | the sender: what there is; announcing, reading, hashing it |
//! | `sink` | the receiver: answering, writing |
//! | `output` | standard output in the place of a folder |
//! | `admission` | how much the receiver lets in, and in what order |
//! | `contents`, `extents` | the hashes of contents; holes in files |
//! | `folder`, `journal`, `path` | the receiver's folder, which no name leaves; partial files |
//! | `meter`, `outcome`, `report` | how far it is, how it went, and what is printed of that |
//!
//! The protocol is described in `docs/send-receive.md`. What does not live here: the
//! transport (`landfall::stp`), and what encryption is made of (`landfall-seal`).

mod accept_thread;
mod admission;
mod allowance;
mod ask;
mod code;
mod contents;
mod extents;
mod folder;
mod greet;
mod journal;
pub(crate) mod meter;
pub(crate) mod options;
mod outcome;
mod path;
mod pipe;
pub(crate) mod receive;
mod report;
mod seals;
pub(crate) mod send;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod walk;
mod ways;
mod wire;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::task::{self, Waker};
use std::time::Duration;

use anyhow::{Context, Result};
use landfall::stp::blocking::Connection;
use landfall_transport::signals::Endings;

use meter::{Meter, Tally};

/// How often the bar moves, and how soon a signal is heard.
const LOOK: Duration = Duration::from_millis(100);

/// How a session, or waiting for one, came to its end.
enum Waited<T> {
    Done(T),
    /// Somebody wants the program to end.
    Interrupted,
}

/// Shows how far it is until the result comes, or a signal.
fn watch<T>(
    result: &Receiver<T>,
    endings: &Endings,
    meter: &mut Meter,
    tally: &Tally,
) -> Result<Waited<T>> {
    loop {
        match result.recv_timeout(LOOK) {
            Ok(result) => return Ok(Waited::Done(result)),
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("a thread of the session ended without a result")
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if endings.wait(Duration::ZERO).context("cannot wait for signals")? {
            return Ok(Waited::Interrupted);
        }
        meter.show(tally);
    }
}

/// Runs a part of a session on a thread of its own; the connection ends when it fails, so
/// that the other parts end too.
fn part<T: Send + 'static, F: Send + 'static>(
    name: &str,
    connection: &Connection,
    work: impl FnOnce() -> Result<T, F> + Send + 'static,
) -> Result<Part<T, F>> {
    let (to, result) = std::sync::mpsc::sync_channel(1);
    let connection = connection.clone();
    let work = move || {
        let result = work();
        if result.is_err() {
            connection.abort();
        }
        // Nobody waits for it any more.
        let _ = to.send(result);
    };
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .with_context(|| format!("cannot start the thread {name}"))?;
    Ok(Part(result))
}

/// A part of a session, until its end.
struct Part<T, F>(Receiver<Result<T, F>>);

impl<T, F> Part<T, F> {
    /// Nothing where the thread went without a word.
    fn join(self) -> Option<Result<T, F>> {
        self.0.recv().ok()
    }
}

/// A tally that threads share.
fn new_tally() -> Arc<Tally> {
    Arc::new(Tally::default())
}

/// Whether the other side is still there. What takes long asks, so that it ends with its
/// session.
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
        closed.poll(&mut task::Context::from_waker(Waker::noop())).is_ready()
    }

    /// An error once the connection is over.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_over() { Err(io::Error::other(GONE)) } else { Ok(()) }
    }
}

/// What an error of [`Presence::check`] says.
const GONE: &str = "the session ended meanwhile";
