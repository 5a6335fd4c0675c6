//! What an engine tells of itself while it works, for who asks with the feature `tracing`.

use std::fmt::{self, Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_simnet::{LinkConfig, Loss, Probability, Sim};
use stp_core::Config;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[allow(dead_code, reason = "the suite uses all of it")]
mod world;

use world::{Pair, is_received, is_sent, noise, read};

/// The lines that were told: the target, the message and the fields.
#[derive(Clone, Default)]
struct RecordedLines(Arc<Mutex<Vec<String>>>);

impl RecordedLines {
    fn count(&self, words: &[&str]) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes all");
    }
}

impl Subscriber for RecordedLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine(event.metadata().target().to_owned());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl fmt::Debug for RecordedLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

/// A Transfer over a link that loses and repeats: its connection, its grants, what was lost
/// and asked for again, and what was refused, with the reason.
#[test]
fn a_transfer_is_told_from_its_connection_to_its_end() {
    let told = RecordedLines::default();
    tracing::subscriber::with_default(told.clone(), || {
        let link = LinkConfig::ethernet(1_000_000_000)
            .delay(Duration::from_micros(5))
            .mtu(1_500)
            .loss(Loss::Uniform(Probability::percent(5)))
            .duplication(Probability::percent(5));
        let mut pair = Pair::new(Sim::from_number(3), Config::default(), &[link]);
        let bytes = noise(1, 1 << 20);
        let area = pair.post(0, bytes.len());
        pair.send(0, &bytes);
        pair.run_until("the transfer", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
        assert_eq!(read(&pair.sim, pair.b, area), bytes);
    });
    for (least, words) in [
        (1, ["stp_core::endpoint", "Connected"]),
        (1, ["stp_core::endpoint", "Accepted"]),
        (4, ["stp_core::receive", "granted"]),
        (1, ["stp_core::receive", "asked for again"]),
        (1, ["landfall_placement::refusal", "reason=\"duplicate"]),
        (1, ["stp_core::endpoint", "Received"]),
        (1, ["stp_core::endpoint", "Sent"]),
    ] {
        let count = told.count(&words);
        assert!(count >= least, "{words:?}: {count} of {:#?}", told.0.lock().unwrap());
    }
}
