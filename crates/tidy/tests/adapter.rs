//! The parts of `qpip`'s adapter own their state: the object itself is in a few files, and
//! the files of the engine use each other in one direction.

use std::collections::{BTreeMap, BTreeSet};

use landfall_tidy::{File, Repository, expect_none};

const FOLDER: &str = "crates/qpip/src/adapter/";

/// What its user calls, with groups by themselves; what its driver calls, with what becomes of
/// what came by itself; and what the driver of a card calls.
const OF_THE_ADAPTER: [&str; 5] = ["mod", "membership", "engine", "placing", "card"];

/// Each file, by the path of its module, with the modules that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn few_files_implement_the_adapter() {
    let others: Vec<_> = sources()
        .iter()
        .filter(|(module, _)| !OF_THE_ADAPTER.contains(&module.as_str()))
        .filter(|(_, text)| text.contains("impl Adapter") || text.contains("for Adapter"))
        .map(|(module, _)| module.clone())
        .collect();
    expect_none("make these methods of the part whose state they change", &others);
}

#[test]
fn the_files_of_the_adapter_close_no_circle() {
    let sources = sources();
    assert!(sources.len() >= 20, "there is more than {:?}", sources.keys());
    let uses: Uses =
        sources.keys().map(|module| (module.clone(), used(module, &sources))).collect();
    assert!(uses["queue_pairs"].contains("links"), "it is not seen what is used");
    expect_none("these files of qpip's adapter use each other", &circle(uses));
}

/// Taking out again and again what uses nothing that is left leaves the circles, and what
/// uses them.
fn circle(mut left: Uses) -> Vec<String> {
    while let Some(free) = left.iter().find(|(_, to)| to.is_empty()).map(|(from, _)| from.clone()) {
        left.remove(&free);
        for to in left.values_mut() {
            to.remove(&free);
        }
    }
    left.iter().map(|(from, to)| format!("{from} → {to:?}")).collect()
}

/// The files without their tests, by the paths of their modules.
fn sources() -> BTreeMap<String, String> {
    let files = Repository::here().files("rs");
    files.iter().filter_map(module).collect()
}

fn module(file: &File) -> Option<(String, String)> {
    let path = file.path.strip_prefix(FOLDER)?.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let text = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    Some((path.to_owned(), text.to_owned()))
}

/// The modules of the adapter that a file imports from. That a folder's first file names
/// those in it, and that `engine` is a part of the object, is no dependency.
fn used(module: &str, sources: &BTreeMap<String, String>) -> BTreeSet<String> {
    let text = &sources[module];
    let parent = module.rsplit_once('/').map_or("", |(parent, _)| parent);
    // A folder's first file is `super` of those in it.
    let is_folder = sources.keys().any(|other| other.starts_with(&format!("{module}/")));
    let paths = text.split(';').filter_map(|item| {
        let path = item.rsplit_once("use ").filter(|(before, _)| {
            before.lines().last().unwrap_or_default().trim_start_matches("pub(super) ").is_empty()
        });
        path.map(|(_, path)| path.trim().to_owned())
    });
    let resolve = |path: String| {
        let (inside, path) = match path.strip_prefix("crate::adapter::") {
            Some(path) => (String::new(), path.to_owned()),
            None => (parent.to_owned(), path.strip_prefix("super::")?.to_owned()),
        };
        // The longest prefix that is a file.
        let mut found = None;
        let mut module = inside;
        for name in path.split("::") {
            module = if module.is_empty() { name.to_owned() } else { format!("{module}/{name}") };
            if !sources.contains_key(&module) {
                break;
            }
            found = Some(module.clone());
        }
        found
    };
    let mut used: BTreeSet<String> = paths.filter_map(resolve).collect();
    if is_folder {
        let inside = format!("{module}/");
        used.extend(sources.keys().filter(|other| other.starts_with(&inside)).cloned());
    }
    used.remove(module);
    used
}

#[test]
fn a_circle_is_found() {
    let uses = |list: &[(&str, &[&str])]| -> Uses {
        let row = |(from, to): &(&str, &[&str])| {
            ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect())
        };
        list.iter().map(row).collect()
    };
    assert!(circle(uses(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    let found = circle(uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
    assert_eq!(found.len(), 3, "{found:?}");
    let text = "use super::links::{Links, Origin};\nuse crate::adapter::receive::arrival;\n";
    let sources: BTreeMap<String, String> = ["connection", "links", "receive", "receive/arrival"]
        .map(|module| (module.to_owned(), String::new()))
        .into();
    let sources = BTreeMap::from_iter(
        sources.into_iter().chain([("connection".to_owned(), text.to_owned())]),
    );
    let expected = ["links", "receive/arrival"].map(str::to_owned).into();
    assert_eq!(used("connection", &sources), expected);
}
