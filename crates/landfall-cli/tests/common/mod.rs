//! Runs the real program.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long for whatever a test asks, on however slow a machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `landfall` with these arguments; it does not hang.
pub(crate) fn landfall(arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let stdout = thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).map(|_| bytes)
    });
    let stderr = thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).map(|_| bytes)
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("`landfall {}` did not end within {LIMIT:?}", arguments.join(" "));
        }
        thread::sleep(Duration::from_millis(10));
    };
    let (stdout, stderr) = (stdout.join().unwrap().unwrap(), stderr.join().unwrap().unwrap());
    Output { status, stdout, stderr }
}

/// What it printed, which must be one JSON value.
pub(crate) fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let problems = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in:\n{text}\nstderr:\n{problems}"))
}
