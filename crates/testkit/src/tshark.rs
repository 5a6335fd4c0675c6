//! The program tshark reads what our code wrote, where it is installed.

use std::io::{Error, ErrorKind, Write};
use std::process::Command;
use std::sync::Once;

/// What it prints; `None`, and one line that says so, where there is no tshark.
///
/// # Panics
/// It fails, or a script of ours in it does; or there is none, and `LANDFALL_NO_SKIP=1`
/// forbids to go on without.
pub fn run(tshark: &mut Command) -> Option<String> {
    let output = match tshark.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip(&error);
            return None;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "tshark: {errors}");
    Some(String::from_utf8(output.stdout).expect("tshark writes UTF-8"))
}

/// Written directly, as the test harness swallows what `eprintln` prints in a test that
/// passes.
fn skip(error: &Error) {
    static ONCE: Once = Once::new();
    let is_forbidden = std::env::var_os("LANDFALL_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!is_forbidden, "tshark: {error}, and LANDFALL_NO_SKIP=1 forbids to go on without");
    ONCE.call_once(|| {
        let line = format!("SKIPPED: captures are not read by tshark: {error}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "tshark: ")]
    fn what_fails_is_told() {
        run(&mut Command::new("false"));
    }
}
