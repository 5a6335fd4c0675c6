//! Who came, what was moved, and what is said about it.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use landfall::metrics::Metrics;
use serde::Serialize;

use crate::style;
use landfall_lab::exporter::Exporter;

/// What a server counts, and hears when it shall end.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// What its metrics begin with, behind `landfall_`.
    prefix: &'static str,
    is_verbose: bool,
    /// stdout is for the summary alone.
    is_json: bool,
    once: bool,
    over: AtomicBool,
    came: AtomicU64,
    gone: AtomicU64,
    most_at_once: AtomicU64,
    turned_away: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    datagrams_received: AtomicU64,
    datagrams_sent: AtomicU64,
    exporter: Option<Exporter>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Counts {
    pub(crate) clients: u64,
    pub(crate) most_at_once: u64,
    pub(crate) turned_away: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) datagrams_received: u64,
    pub(crate) datagrams_sent: u64,
}

impl Ledger {
    pub(crate) fn new(is_verbose: bool, is_json: bool, once: bool) -> Self {
        Self { prefix: "serve", is_verbose, is_json, once, ..Self::default() }
    }

    /// The same, whose metrics begin with this.
    pub(crate) fn named(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    /// The same, which tells others what is counted.
    pub(crate) fn exporting(self, exporter: Option<Exporter>) -> Self {
        Self { exporter, ..self }
    }

    /// The serving loop comes by: anyone who waits for metrics gets them, with those that this
    /// adds.
    pub(crate) fn answer_scrape(&self, gather: impl FnOnce(&mut Metrics)) {
        let Some(exporter) = &self.exporter else { return };
        exporter.answer(|metrics| {
            let counts = self.counts();
            let there = counts.clients - self.gone.load(Ordering::Relaxed).min(counts.clients);
            let prefix = self.prefix;
            let name = format!("landfall_{prefix}_clients");
            metrics.gauge(&name, "Clients that are here", &[], there);
            let counters = [
                ("clients", "Clients that came", counts.clients),
                ("clients_turned_away", "Clients that found no place", counts.turned_away),
                ("received_bytes", "Bytes that came", counts.received_bytes),
                ("sent_bytes", "Bytes that went", counts.sent_bytes),
                ("datagrams_received", "Datagrams that came", counts.datagrams_received),
                ("datagrams_sent", "Datagrams that went", counts.datagrams_sent),
            ];
            for (name, help, value) in counters {
                metrics.counter(&format!("landfall_{prefix}_{name}"), help, &[], value);
            }
            gather(metrics);
        });
    }

    /// The server shall end.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Shall it end: was it told so, or has the only client gone?
    pub(crate) fn is_over(&self) -> bool {
        let first_has_gone = self.once && self.gone.load(Ordering::Relaxed) > 0;
        first_has_gone || self.over.load(Ordering::Relaxed)
    }

    /// Says that clients may come now, and where.
    pub(crate) fn ready(&self, text: impl Display) -> Result<()> {
        let metrics = self.exporter.as_ref().map(|exporter| format!("; {}", exporter.describe()));
        self.say(&format!("{text}{}\n", metrics.unwrap_or_default()))
    }

    pub(crate) fn say(&self, line: &str) -> Result<()> {
        if self.is_json {
            eprint!("{line}");
            return Ok(());
        }
        Ok(style::print(line)?)
    }

    pub(crate) fn client_came(&self, who: impl Display) -> Result<()> {
        let came = self.came.fetch_add(1, Ordering::Relaxed) + 1;
        let there = came - self.gone.load(Ordering::Relaxed);
        self.most_at_once.fetch_max(there, Ordering::Relaxed);
        if self.is_verbose { self.say(&format!("{who}: connected\n")) } else { Ok(()) }
    }

    pub(crate) fn client_gone(&self, who: impl Display, how: impl Display) -> Result<()> {
        self.gone.fetch_add(1, Ordering::Relaxed);
        if self.is_verbose { self.say(&format!("{who}: {how}\n")) } else { Ok(()) }
    }

    pub(crate) fn client_turned_away(&self, who: impl Display) -> Result<()> {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        if self.is_verbose { self.say(&format!("{who}: turned away\n")) } else { Ok(()) }
    }

    /// Where that is counted below.
    pub(crate) fn turned_away_in_all(&self, count: u64) {
        self.turned_away.store(count, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self, received: u64, sent: u64) {
        self.received.fetch_add(received, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
    }

    pub(crate) fn datagram_came(&self, bytes: u64) {
        self.datagrams_received.fetch_add(1, Ordering::Relaxed);
        self.moved(bytes, 0);
    }

    pub(crate) fn datagram_went(&self, bytes: u64) {
        self.datagrams_sent.fetch_add(1, Ordering::Relaxed);
        self.moved(0, bytes);
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Counts {
            clients: count(&self.came),
            most_at_once: count(&self.most_at_once),
            turned_away: count(&self.turned_away),
            received_bytes: count(&self.received),
            sent_bytes: count(&self.sent),
            datagrams_received: count(&self.datagrams_received),
            datagrams_sent: count(&self.datagrams_sent),
        }
    }
}

/// What a client moved, as its last line says.
pub(crate) fn parting(received: u64, sent: u64, why: impl Display) -> String {
    format!("{} came, {} went, {why}", style::bytes(received), style::bytes(sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_and_the_first_may_be_the_last() {
        let ledger = Ledger::new(false, false, true);
        ledger.client_came("one").unwrap();
        ledger.client_came("two").unwrap();
        assert!(!ledger.is_over());
        ledger.moved(3, 4);
        ledger.client_gone("one", "").unwrap();
        assert!(ledger.is_over());
        ledger.client_came("three").unwrap();
        let counts = ledger.counts();
        assert_eq!((counts.clients, counts.most_at_once), (3, 2));
        assert_eq!((counts.received_bytes, counts.sent_bytes), (3, 4));
        let endless = Ledger::new(false, false, false);
        assert!(!endless.is_over());
        endless.end();
        assert!(endless.is_over());
    }
}
