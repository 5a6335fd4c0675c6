//! Words and colours: plain where nobody looks at a screen.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Whether and how text is coloured.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colours: bool,
}

impl Style {
    /// Colours if stdout is a terminal, unless `NO_COLOR` is set (no-color.org).
    pub fn of_stdout() -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colours: io::stdout().is_terminal() && !refused }
    }

    /// A heading.
    pub fn strong(self, text: impl Display) -> String {
        self.paint("1", text)
    }

    /// Something is as it should be.
    pub fn good(self, text: impl Display) -> String {
        self.paint("32", text)
    }

    /// Something is missing, and can be lived with.
    pub fn warn(self, text: impl Display) -> String {
        self.paint("33", text)
    }

    fn paint(self, code: &str, text: impl Display) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// Writes to stdout. A reader that went away (`landfall … | head`) is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The same with one JSON object, readable by people too.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(print(&format!("{text}\n"))?)
}

/// One line on stderr that is overwritten by the next, if somebody is looking.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Shows lines only if stderr is a terminal.
    pub fn on_stderr() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    /// Shows a line in the place of the last.
    pub fn say(&self, text: &str) {
        if self.shown {
            eprint!("\r\x1b[K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// A number of bytes, as people say it.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(size, _)| count >= *size) {
        Some((size, unit)) if count.is_multiple_of(size) => format!("{} {unit}", count / size),
        Some((size, unit)) => format!("{:.1} {unit}", count as f64 / size as f64),
        None => format!("{count} B"),
    }
}

/// An error with its causes, each said once: some errors say their cause themselves.
pub fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Bytes as two digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(128 << 10), "128 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    #[test]
    fn a_cause_that_an_error_says_itself_is_not_said_again() {
        let error = anyhow::anyhow!("no rights").context("cannot open it: no rights");
        assert_eq!(
            causes(&error.context("while serving")),
            "while serving: cannot open it: no rights"
        );
        let error = anyhow::anyhow!("no rights").context("cannot open it");
        assert_eq!(causes(&error), "cannot open it: no rights");
    }

    #[test]
    fn plain_text_stays_plain() {
        assert_eq!(Style { colours: false }.good("fine"), "fine");
        assert_eq!(Style { colours: true }.good("fine"), "\x1b[32mfine\x1b[0m");
    }
}
