//! The section of `docs/spec/spec-defrag.md`, read out of the document itself.

use landfall_testkit::document::{self, Vector};

/// What the page says on admission control.
pub(crate) fn section() -> String {
    let page = document::page("docs/spec/spec-defrag.md");
    let (_, section) = page.split_once("\n## Admission control\n").expect("it has the section");
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Every vector of the section.
pub(crate) fn vectors() -> Vec<Vector> {
    document::vectors(&section())
}

/// The bytes of one vector.
pub(crate) fn vector(name: &str) -> Vec<u8> {
    document::vector(&section(), name)
}
