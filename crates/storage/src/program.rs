//! What the commands of this crate need of the program that they are part of.

use std::error::Error;
use std::io;
use std::time::Duration;

/// Why a command failed, in words for its user.
pub type CommandError = Box<dyn Error + Send + Sync>;

/// Signals and a terminal.
pub trait Program {
    /// Waits this long, or until the program shall end, and says whether it shall: true once for
    /// each signal.
    ///
    /// # Errors
    /// Signals cannot be waited for.
    fn wait(&mut self, at_most: Duration) -> io::Result<bool>;

    /// Says something to the user.
    ///
    /// # Errors
    /// Nobody reads it.
    fn print(&mut self, text: &str) -> io::Result<()>;

    /// Says something that is no result: a line beside them.
    fn warn(&mut self, text: &str);
}
