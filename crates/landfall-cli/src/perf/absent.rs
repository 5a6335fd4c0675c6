//! What could not be measured, and why: never left out in silence.

use serde::Serialize;

/// A row that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Absent {
    pub(super) protocol: &'static str,
    pub(super) transport: &'static str,
    pub(super) mode: &'static str,
    pub(super) mtu: u32,
    pub(super) offload: bool,
    pub(super) reason: String,
    /// It was tried and went wrong, rather than being impossible here.
    pub(super) failed: bool,
}

/// One line for each transport and reason.
pub(super) fn lines(absent: &[Absent]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in absent {
        let word = if row.failed { "failed" } else { "not measured" };
        let line = if row.failed {
            let Absent { protocol, transport, mode, mtu, reason, .. } = row;
            format!("{word}: {protocol}/{transport} ({mode}, MTU {mtu}): {reason}")
        } else {
            format!("{word}: {}/{}: {}", row.protocol, row.transport, row.reason)
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
