//! Every input of a target, run by a test where there is no fuzzer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Corpus;

/// What a check says of an input.
pub trait Outcome {
    /// What it found, if anything.
    fn findings(self) -> Vec<String>;
}

impl Outcome for Vec<String> {
    fn findings(self) -> Vec<String> {
        self
    }
}

/// For checks that panic if they find something.
impl Outcome for () {
    fn findings(self) -> Vec<String> {
        Vec::new()
    }
}

/// Checks every input of a target's corpus, which has at least `least` of them.
///
/// # Panics
///
/// If the corpus cannot be read, if it has too few inputs, or none, or if the check finds
/// something or panics. The message names every input that failed.
#[track_caller]
pub fn replay<O: Outcome>(target: &str, least: usize, check: impl Fn(&[u8]) -> O) {
    let corpus = Corpus::open(target).unwrap_or_else(|error| panic!("{error}"));
    expect_passes(target, &corpus, least, check);
}

#[track_caller]
pub(super) fn expect_passes<O: Outcome>(
    target: &str,
    corpus: &Corpus,
    least: usize,
    check: impl Fn(&[u8]) -> O,
) {
    let count = corpus.len();
    let least = least.max(1);
    assert!(count >= least, "{target} has {count} inputs, and should have at least {least}");
    let failed = failures(corpus, check);
    assert!(
        failed.is_empty(),
        "{} of {count} inputs of {target} fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// A line for each input that the check does not pass: its name and what was found.
pub(super) fn failures<O: Outcome>(corpus: &Corpus, check: impl Fn(&[u8]) -> O) -> Vec<String> {
    let mut failed = Vec::new();
    for (name, bytes) in corpus.inputs() {
        // A check only reads its bytes, and what it made is dropped: nothing that a panic
        // left half done is seen again.
        let findings = catch_unwind(AssertUnwindSafe(|| check(bytes).findings()))
            .unwrap_or_else(|panic| vec![format!("it panicked: {}", message(panic.as_ref()))]);
        if !findings.is_empty() {
            failed.push(format!("  {name}: {}", findings.join("\n    ")));
        }
    }
    failed
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
