//! `landfall serve` as people use it: the real program, with other programs as clients.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `mod` | the program under test, which ends with the test |
//! | `kernel` | sockets of the kernel and `nc` as clients, over TAP and an interface (root) |
//! | `family` | clients of our own, over tunnels, STP and CLAN, as anybody |
//! | `shared` | clients in other processes of this host, through shared memory |
//!
//! The program under test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use landfall_testbed::Namespace;
use serde_json::Value;

mod family;
mod kernel;
mod shared;

/// Long for whatever a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `landfall serve … --json`, which ends by itself should the test not end it.
pub(crate) struct Serving {
    child: Child,
    /// What it said first: that clients may come, and where.
    pub(crate) ready: String,
    /// What it says afterwards.
    said: Option<JoinHandle<String>>,
}

fn start(words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(words.split(' ')).arg("--json");
    if !words.contains("--seconds") {
        command.args(["--seconds", "240"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

impl Serving {
    pub(crate) fn start(words: &str) -> Self {
        Self::of(start(&format!("serve {words}")))
    }

    pub(crate) fn start_in(namespace: &Namespace, words: &str) -> Self {
        let words = format!("serve {words}");
        Self::of(namespace.enter(|| start(&words)).expect("a namespace"))
    }

    /// Another command that serves.
    pub(crate) fn command(words: &str) -> Self {
        Self::of(start(words))
    }

    pub(crate) fn command_in(namespace: &Namespace, words: &str) -> Self {
        Self::of(namespace.enter(|| start(words)).expect("a namespace"))
    }

    /// Ends it at once, without a word to anybody.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
    }

    fn of(mut child: Child) -> Self {
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut ready = String::new();
        said.read_line(&mut ready).expect("it says something");
        let said = thread::spawn(move || {
            let mut rest = String::new();
            let _ = said.read_to_string(&mut rest);
            rest
        });
        assert!(ready.contains(" on "), "{ready}");
        Self { child, ready, said: Some(said) }
    }

    /// The word behind this one in what it said first.
    pub(crate) fn word_behind(&self, word: &str) -> String {
        let mut words = self.ready.split([' ', ';', ',']).skip_while(|other| *other != word);
        words.nth(1).expect("it says where").trim().to_owned()
    }

    /// Sends it a signal, waits for its end, and gives its summary and what it said.
    pub(crate) fn end_by(self, signal: &str) -> (Value, String) {
        self.signal(signal);
        self.end()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// Sends it one more signal, which it ends by at once; gives its exit code.
    pub(crate) fn end_by_second(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("it ends").code()
    }

    /// Waits until it ends by itself.
    pub(crate) fn end(mut self) -> (Value, String) {
        let mut summary = String::new();
        let mut out = self.child.stdout.take().expect("a pipe");
        out.read_to_string(&mut summary).expect("text");
        let status = self.child.wait().expect("it ends");
        let said = self.said.take().expect("a thread").join().expect("no panic");
        assert_eq!(status.code(), Some(0), "{said}");
        (serde_json::from_str(&summary).unwrap_or_else(|e| panic!("{e}: {summary}")), said)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes without a pattern.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(byte).collect()
}

/// Are these the characters of RFC 864, from wherever on?
pub(crate) fn is_characters(text: &[u8]) -> bool {
    const LINE: usize = 74;
    let Some(end) = text.windows(2).position(|pair| pair == b"\r\n") else { return false };
    let mut lines = text[end + 2..].chunks_exact(LINE);
    let is_line = |line: &[u8]| {
        let follows = |pair: &[u8]| pair[1] == pair[0] + 1 || (pair[0], pair[1]) == (b'~', b' ');
        line.ends_with(b"\r\n") && line[..72].windows(2).all(follows)
    };
    lines.len() > 0 && lines.all(is_line)
}
