//! What is shown of connections: a table for people, JSON for programs.

use landfall_socket_status::Role;
use landfall_socket_status::read::{Connection, Process, View};
use serde::Serialize;

use super::Selection;
use crate::printable::printable;
use crate::style;
use crate::table::Table;

/// All that is shown.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) connections: Vec<ConnectionRow>,
    /// Connections of which a process says only how many there are.
    unseen: u64,
    /// Processes that have a file, with connections or without.
    processes: usize,
    /// What could not be read.
    faults: Vec<String>,
    /// Files of killed processes, and empty folders, that were removed.
    removed: usize,
    #[serde(skip)]
    others: usize,
    #[serde(skip)]
    has_several_users: bool,
}

/// One end of a connection.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ConnectionRow {
    pub(super) program: String,
    pub(super) pid: u32,
    /// The namespace of processes that the number is of, where it is not this one.
    pid_namespace: Option<u64>,
    user: u32,
    role: &'static str,
    pub(super) transport: &'static str,
    /// One word, as in metrics.
    pub(super) reason: &'static str,
    /// The same for people.
    why: String,
    local: String,
    peer: String,
    pub(super) sent_bytes: Option<u64>,
    pub(super) received_bytes: Option<u64>,
    age_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sent_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) received_per_second: Option<u64>,
}

impl ConnectionRow {
    pub(super) fn of(process: &Process, connection: &Connection, now_ms: u64) -> Self {
        let record = &connection.record;
        Self {
            program: process.program.clone(),
            pid: process.name.process,
            pid_namespace: (!process.is_in_this_namespace).then_some(process.name.namespace),
            user: record.user,
            role: match record.role {
                Role::Connector => "connector",
                Role::Acceptor => "acceptor",
            },
            transport: record.transport.word(),
            reason: record.explanation.reason.label(),
            why: record.explanation.to_string(),
            local: connection.local().to_string(),
            peer: connection.peer().to_string(),
            sent_bytes: connection.sent,
            received_bytes: connection.received,
            age_seconds: now_ms.saturating_sub(record.began_ms) as f64 / 1000.0,
            sent_per_second: None,
            received_per_second: None,
        }
    }

    /// Bytes in a second, both ways.
    pub(super) fn rate(&self) -> u64 {
        self.sent_per_second.unwrap_or(0).saturating_add(self.received_per_second.unwrap_or(0))
    }

    fn pid(&self) -> String {
        match self.pid_namespace {
            None => self.pid.to_string(),
            Some(namespace) => format!("{}@{namespace}", self.pid),
        }
    }

    fn cells(&self, with_user: bool) -> Vec<String> {
        let mut cells = vec![printable(&self.program), self.pid()];
        if with_user {
            cells.push(self.user.to_string());
        }
        let arrow = if self.role == "connector" { "→" } else { "←" };
        cells.push(format!("{} {arrow} {}", self.local, self.peer));
        cells.extend([self.transport.to_owned(), self.why.clone()]);
        cells.extend([self.sent_bytes, self.received_bytes].map(amount));
        cells
    }
}

fn amount(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), style::bytes)
}

/// Milliseconds of the clock that connections are dated by.
pub(super) fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1000 + part(now.tv_nsec) / 1_000_000
}

impl Report {
    pub(super) fn of(view: &View, selection: &Selection) -> Self {
        let now = now_ms();
        let (chosen, others): (Vec<_>, Vec<_>) =
            view.connections().partition(|(process, one)| selection.has(process, one));
        let users: std::collections::BTreeSet<_> =
            chosen.iter().map(|(_, one)| one.record.user).collect();
        let row = |(process, one): &(&Process, &Connection)| ConnectionRow::of(process, one, now);
        Self {
            connections: chosen.iter().map(row).collect(),
            unseen: view.processes.iter().map(|process| process.unseen).sum(),
            processes: view.processes.len(),
            faults: view.faults.clone(),
            removed: view.removed,
            others: others.len(),
            has_several_users: users.len() > 1,
        }
    }

    /// For people.
    pub(super) fn describe(&self, is_selection: bool) -> String {
        if self.connections.is_empty() {
            return self.describe_nothing(is_selection);
        }
        let mut text = format!("{}\n", self.table());
        text += &format!("{}\n", self.summary());
        text
    }

    fn describe_nothing(&self, is_selection: bool) -> String {
        if is_selection && self.others > 0 {
            return format!("None of {} connections is so.\n", self.others);
        }
        if self.processes > 0 {
            return format!("No connection: {} programs under the library.\n", self.processes);
        }
        "No program under the library has a connection. `landfall run -- PROGRAM` starts one under it.\n"
            .to_owned()
    }

    /// How many there are of each kind, in one line.
    pub(super) fn summary(&self) -> String {
        let mut counts = std::collections::BTreeMap::new();
        for row in &self.connections {
            *counts.entry(row.transport).or_insert(0_usize) += 1;
        }
        let counts: Vec<_> = counts.iter().map(|(by, count)| format!("{count} {by}")).collect();
        let mut text = format!("{} ends: {}", self.connections.len(), counts.join(", "));
        if self.unseen > 0 {
            text += &format!("; and {} for which a program's file has no room", self.unseen);
        }
        text
    }

    /// The table, with rates where they are known.
    pub(super) fn table(&self) -> String {
        let with_rates = self.connections.iter().any(|row| row.sent_per_second.is_some());
        let mut header = vec!["program", "pid"];
        if self.has_several_users {
            header.push("user");
        }
        header.extend(["local and peer", "by", "why"]);
        let words = header.len();
        header.extend(["sent", "received"]);
        if with_rates {
            header.extend(["sent/s", "received/s"]);
        }
        let mut table = Table::new(header).with_words(words);
        for row in &self.connections {
            let mut cells = row.cells(self.has_several_users);
            if with_rates {
                cells.extend([row.sent_per_second, row.received_per_second].map(amount));
            }
            table.row(cells);
        }
        table.to_string()
    }
}
