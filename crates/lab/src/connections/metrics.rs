//! The connections of this host for Prometheus.

use std::collections::BTreeMap;

use landfall::metrics::Metrics;
use landfall_socket_status::read::View;

use super::Selection;
use super::top::Bytes;

/// What was counted since the exporter began, and what there is now.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// By program, transport and reason.
    connections: BTreeMap<(String, &'static str, &'static str), u64>,
    /// By program and transport: bytes that went while somebody looked.
    bytes: BTreeMap<(String, &'static str), Bytes>,
    processes: BTreeMap<String, u64>,
    unseen: u64,
    faults: u64,
}

impl Totals {
    /// Takes up what was seen, and how much each connection has grown since the look before.
    pub(super) fn update(&mut self, view: &View, selection: &Selection, grown: &[Option<Bytes>]) {
        self.connections.values_mut().for_each(|count| *count = 0);
        for ((process, one), grown) in view.connections().zip(grown) {
            if !selection.has(process, one) {
                continue;
            }
            let (program, by) = (process.program.clone(), one.record.transport.word());
            let reason = one.record.explanation.reason.label();
            *self.connections.entry((program.clone(), by, reason)).or_default() += 1;
            let bytes = self.bytes.entry((program, by)).or_default();
            let grown = grown.unwrap_or_default();
            bytes.sent = bytes.sent.saturating_add(grown.sent);
            bytes.received = bytes.received.saturating_add(grown.received);
        }
        self.processes.values_mut().for_each(|count| *count = 0);
        for process in &view.processes {
            *self.processes.entry(process.program.clone()).or_default() += 1;
        }
        self.unseen = view.processes.iter().map(|process| process.unseen).sum();
        self.faults = view.faults.len() as u64;
    }

    pub(super) fn measure(&self, metrics: &mut Metrics) {
        let help =
            "Ends of connections of programs under the library, by how their bytes go and why";
        for ((program, transport, reason), count) in &self.connections {
            let labels =
                [("program", program.as_str()), ("transport", *transport), ("reason", *reason)];
            metrics.gauge("landfall_sockets_connections", help, &labels, *count);
        }
        let help = "Bytes that programs under the library sent and received, as far as was looked";
        for ((program, transport), bytes) in &self.bytes {
            for (direction, bytes) in [("sent", bytes.sent), ("received", bytes.received)] {
                let labels = [
                    ("program", program.as_str()),
                    ("transport", *transport),
                    ("direction", direction),
                ];
                metrics.counter("landfall_sockets_bytes", help, &labels, bytes);
            }
        }
        let help = "Programs under the library that have had a connection";
        for (program, count) in &self.processes {
            metrics.gauge("landfall_sockets_processes", help, &[("program", program)], *count);
        }
        let help = "Ends of connections that a program's file has no room for";
        metrics.gauge("landfall_sockets_unseen_connections", help, &[], self.unseen);
        let help = "Files and folders that could not be read";
        metrics.gauge("landfall_sockets_unreadable", help, &[], self.faults);
    }
}
