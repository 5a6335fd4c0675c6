//! `landfall files`: a directory for other hosts, and for other processes of this one.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use landfall_storage::files::command::Files;
use landfall_storage::program::{CommandError, Program};
use landfall_transport::signals::Endings;

use crate::style;

/// Signals end it, and it speaks to the terminal.
pub(crate) struct Terminal(Endings);

impl Terminal {
    /// Before any thread is started.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Endings::catch().context("cannot wait for signals")?))
    }
}

impl Program for Terminal {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        Ok(self.0.wait(at_most)? && self.0.take()?.is_some())
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        style::print(text)
    }

    fn warn(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

pub(crate) fn run(command: &Files) -> Result<ExitCode> {
    run_by(|program| command.run(program))
}

/// Runs a command of the library's.
pub(crate) fn run_by(
    run: impl FnOnce(&mut dyn Program) -> Result<(), CommandError>,
) -> Result<ExitCode> {
    run(&mut Terminal::new()?).map_err(|error| anyhow!(error)).map(|()| ExitCode::SUCCESS)
}
