//! `landfall files`: a directory for other hosts, and for other processes of this one.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use landfall_storage::files::command::{Files, Program};
use landfall_transport::signals::Endings;

use crate::style;

/// Signals end it, and it speaks to the terminal.
struct Terminal(Endings);

impl Program for Terminal {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        self.0.wait(at_most)
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        style::print(text)
    }
}

pub(crate) fn run(command: &Files) -> Result<ExitCode> {
    // Before any thread is started.
    let mut terminal = Terminal(Endings::catch().context("cannot wait for signals")?);
    command.run(&mut terminal).map_err(|error| anyhow!(error))?;
    Ok(ExitCode::SUCCESS)
}
