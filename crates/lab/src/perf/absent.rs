//! What could not be measured, and why: never left out in silence.

use serde::Serialize;

/// A row that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Absent {
    pub(crate) protocol: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) mtu: u32,
    pub(crate) offload: bool,
    pub(crate) reason: String,
    /// It was tried and went wrong, rather than being impossible here.
    pub(crate) failed: bool,
}

impl Absent {
    /// In words.
    pub(crate) fn line(&self) -> String {
        let Self { protocol, transport, mode, mtu, reason, .. } = self;
        if self.failed {
            format!("failed: {protocol}/{transport} ({mode}, MTU {mtu}): {reason}")
        } else {
            format!("not measured: {protocol}/{transport}: {reason}")
        }
    }
}

/// One line for each transport and reason.
pub(crate) fn lines(absent: &[Absent]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in absent {
        let line = row.line();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
