//! The section of `docs/spec/spec-defrag.md`, read out of the document itself.

use std::fs;
use std::path::{Path, PathBuf};

/// A test vector: its name and its bytes.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// What the page says on admission control.
pub(crate) fn section() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec/spec-defrag.md");
    let page = fs::read_to_string(path).expect("the document is in the repository");
    let (_, section) = page.split_once("\n## Admission control\n").expect("it has the section");
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Every vector: what lies between ``` after a line that begins with `vector`. Behind a
/// semicolon are words for people.
pub(crate) fn vectors() -> Vec<Vector> {
    let section = section();
    let blocks = section.split("```").filter_map(|block| block.strip_prefix("text\nvector "));
    blocks
        .map(|block| {
            let (name, lines) = block.split_once('\n').expect("a vector has bytes");
            let hex: String = lines
                .lines()
                .flat_map(|line| line.split(';').next().unwrap_or_default().chars())
                .filter(|digit| !digit.is_whitespace())
                .collect();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            Vector { name: name.to_owned(), bytes: (0..hex.len()).step_by(2).map(byte).collect() }
        })
        .collect()
}

/// The bytes of one vector.
pub(crate) fn vector(name: &str) -> Vec<u8> {
    let found = vectors().into_iter().find(|vector| vector.name == name);
    found.unwrap_or_else(|| panic!("the document has no vector {name:?}")).bytes
}

/// The text of all source files below a folder.
pub(crate) fn sources(folder: &Path, into: &mut String) {
    let entries = fs::read_dir(folder).expect("the folder exists");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
