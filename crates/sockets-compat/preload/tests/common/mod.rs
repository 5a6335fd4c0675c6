//! What tests share that start programs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// An example of this package, as cargo has built it before all tests, beside them.
///
/// # Panics
/// Where it is missing, or older than its sources: cargo builds no examples for one test by
/// name, and an old library would be tested without a word.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let path = folder.join("examples").join(name);
    if let Some(fault) = fault_of(&path, Path::new(env!("CARGO_MANIFEST_DIR"))) {
        panic!("{} {fault}: run `cargo build -p landfall-preload --examples`", path.display());
    }
    path
}

/// Why what cargo has built there is not what the sources of this package say: it is told by
/// the list of sources that cargo writes beside it.
pub(crate) fn fault_of(built: &Path, package: &Path) -> Option<String> {
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    let Ok(when) = changed(built) else { return Some("is missing".to_owned()) };
    let Ok(list) = fs::read_to_string(built.with_extension("d")) else {
        return Some("has no list of its sources beside it".to_owned());
    };
    let (_, sources) = list.split_once(": ").unwrap_or_default();
    // Spaces in names are escaped.
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split_whitespace().map(|name| PathBuf::from(name.replace('\0', " ")));
    if !sources.clone().any(|source| source.starts_with(package)) {
        return Some(format!("is built from other sources than {}", package.display()));
    }
    sources.find_map(|source| match changed(&source) {
        Ok(then) if then > when => Some(format!("is older than {}", source.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Some(format!("is built from {}, which is gone", source.display()))
        }
        // Who may not look at the sources has not changed them.
        _ => None,
    })
}
