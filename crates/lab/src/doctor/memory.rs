//! Huge pages and locked memory.

use std::fs;

use super::{Feature, Finding};
use crate::machine::{first_line, memory_line};
use crate::style::bytes;

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Enough for the rings and buffers of one driver.
const ENOUGH_LOCKED: u64 = 8 << 20;

pub(super) fn examine() -> Vec<Finding> {
    vec![huge_pages(), locked_memory()]
}

fn huge_pages() -> Finding {
    let (feature, name) = (Feature::HugePages, "huge pages");
    let reserved = memory_line("HugePages_Total").unwrap_or(0);
    let mode = first_line(TRANSPARENT).and_then(|line| chosen(&line));
    let detail = format!(
        "transparent: {}; reserved: {reserved}",
        mode.as_deref().unwrap_or("not in this kernel")
    );
    if reserved > 0 || matches!(mode.as_deref(), Some("always" | "madvise")) {
        return Finding::present(feature, name, detail);
    }
    Finding::missing(feature, name, detail, format!("echo madvise | sudo tee {TRANSPARENT}"))
}

/// The word in brackets of `always [madvise] never`.
fn chosen(line: &str) -> Option<String> {
    let word = line.split_ascii_whitespace().find(|word| word.starts_with('['))?;
    Some(word.trim_matches(['[', ']']).to_owned())
}

fn locked_memory() -> Finding {
    let (feature, name) = (Feature::LockedMemory, "locked memory");
    let limit = fs::read_to_string("/proc/self/limits").ok().and_then(|text| limit_of(&text));
    match limit {
        Some(Limit::Unlimited) => Finding::present(feature, name, "no limit"),
        Some(Limit::Bytes(limit)) if limit >= ENOUGH_LOCKED => {
            Finding::present(feature, name, format!("up to {}", bytes(limit)))
        }
        other => {
            let seen = match other {
                Some(Limit::Bytes(limit)) => format!("only {}", bytes(limit)),
                _ => "the limit is not known".to_owned(),
            };
            let remedy = "raise it: `ulimit -l unlimited`, or `memlock` in limits.conf";
            Finding::missing(feature, name, seen, remedy)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Bytes(u64),
    Unlimited,
}

/// The soft limit in `/proc/self/limits`.
fn limit_of(text: &str) -> Option<Limit> {
    let row = text.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    match row.split_ascii_whitespace().next()? {
        "unlimited" => Some(Limit::Unlimited),
        number => number.parse().ok().map(Limit::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_mode_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("nothing"), None);
    }

    #[test]
    fn limits_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max locked memory         8388608              unlimited            bytes\n";
        assert_eq!(limit_of(text), Some(Limit::Bytes(8 << 20)));
        assert_eq!(limit_of(&text.replace("8388608", "unlimited")), Some(Limit::Unlimited));
        assert_eq!(limit_of(""), None);
    }
}
