//! Rules for packages: what each must have, who may depend on whom, the licences of all
//! dependencies (the part of `cargo deny` that needs no installation), and the corpora of the
//! fuzz targets.

use std::collections::BTreeSet;
use std::fs;

use landfall_testkit::corpus::{Corpus, path};
use landfall_tidy::{Package, Repository, cargo_metadata, expect_none};

/// What a crate that runs without an operating system must not lean on.
const OPERATING_SYSTEM: [&str; 10] = [
    "fastrand",
    "getrandom",
    "io-uring",
    "landfall-testbed",
    "landfall-transport",
    "libc",
    "nix",
    "rand",
    "socket2",
    "tokio",
];

/// Only with its feature `std`, and only for its driver: the firmware that is built for a
/// bare machine knows nothing of it, as `.ci/run no-std` shows.
const A_DRIVER_BESIDE: (&str, &str) = ("crates/nic-firmware-model", "landfall-transport");

/// What drivers may know beside the operating system: words, and headers.
const VOCABULARY: [&str; 2] = ["landfall-placement", "landfall-inet"];

#[test]
fn every_package_has_a_readme() {
    let without: Vec<_> = published()
        .into_iter()
        .filter(|package| {
            Repository::here()
                .read(&format!("{}/README.md", package.folder))
                .is_none_or(|text| text.trim().is_empty())
        })
        .map(|package| package.folder)
        .collect();
    expect_none("these packages need a README.md", &without);
}

/// So the examples in it compile, and stay true.
#[test]
fn every_library_includes_its_readme() {
    let without: Vec<_> = published()
        .into_iter()
        .filter_map(|package| {
            let path = format!("{}/src/lib.rs", package.folder);
            let text = Repository::here().read(&path)?;
            (!text.contains("include_str!(\"../README.md\")")).then_some(path)
        })
        .collect();
    expect_none("these libraries need #[doc = include_str!(\"../README.md\")]", &without);
}

#[test]
fn every_member_has_the_lints_of_the_workspace() {
    let without: Vec<_> = members()
        .into_iter()
        .filter(|package| !package.table("[lints]").any(|line| line == "workspace = true"))
        .map(|package| package.folder)
        .collect();
    expect_none("these packages need `[lints] workspace = true`", &without);
}

#[test]
fn every_crate_is_a_member_of_the_workspace() {
    let root = Repository::here().read("Cargo.toml").expect("the root has a Cargo.toml");
    let strangers: Vec<_> = members()
        .into_iter()
        .filter(|package| !root.contains(&format!("\"{}\"", package.folder)))
        .map(|package| package.folder)
        .collect();
    expect_none("these packages are missing in the root's Cargo.toml", &strangers);
}

#[test]
fn engines_do_not_lean_on_the_operating_system() {
    let leaning: Vec<_> = without_operating_system()
        .iter()
        .flat_map(|package| {
            package
                .dependencies()
                .into_iter()
                .filter(|name| OPERATING_SYSTEM.contains(name))
                .filter(|name| (package.folder.as_str(), *name) != A_DRIVER_BESIDE)
                .map(|name| format!("{} depends on {name}", package.folder))
                .collect::<Vec<_>>()
        })
        .collect();
    expect_none("an engine takes time and randomness as arguments", &leaning);
}

#[test]
fn the_transport_knows_no_engine() {
    let repository = Repository::here();
    let transport = repository
        .packages()
        .into_iter()
        .find(|package| package.folder == "crates/transport")
        .expect("there is a transport");
    let ours: Vec<_> = transport
        .dependencies()
        .into_iter()
        .filter(|name| name.starts_with("landfall-") && !VOCABULARY.contains(name))
        .map(str::to_owned)
        .collect();
    expect_none("the transport depends on the vocabulary and the headers alone", &ours);
}

/// Clippy reads one file per package and merges nothing, so the copies must agree.
#[test]
fn engines_share_one_set_of_clippy_rules() {
    let repository = Repository::here();
    let workspace = repository.read("clippy.toml").expect("the root has a clippy.toml");
    let rules =
        repository.read("crates/placement/clippy.toml").expect("placement has a clippy.toml");
    for setting in workspace.lines().filter(|line| line.contains('=') && !line.starts_with('#')) {
        assert!(rules.contains(setting), "crates/placement/clippy.toml lacks `{setting}`");
    }
    let different: Vec<_> = without_operating_system()
        .into_iter()
        .map(|package| format!("{}/clippy.toml", package.folder))
        .filter(|path| repository.read(path).as_ref() != Some(&rules))
        .collect();
    expect_none("these must be copies of crates/placement/clippy.toml", &different);
}

/// A package whose tests are one program says so, and then cargo looks for no others: a
/// file that is forgotten there, or among those that are programs of their own, would never
/// run.
#[test]
fn every_file_of_tests_is_in_its_program() {
    let repository = Repository::here();
    let forgotten: Vec<_> = members()
        .into_iter()
        .filter(|package| package.table("[package]").any(|line| line == "autotests = false"))
        .flat_map(|package| {
            let folder = format!("{}/tests", package.folder);
            let suite = repository.read(&format!("{folder}/suite.rs")).unwrap_or_default();
            let manifest = format!("{}/Cargo.toml", package.folder);
            let manifest = repository.read(&manifest).unwrap_or_default();
            let entries = std::fs::read_dir(repository.root().join(&folder));
            let names = entries.into_iter().flatten().flatten().map(|entry| entry.path());
            let names: Vec<_> = names
                .filter(|path| {
                    path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists()
                })
                .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
                .filter(|name| name != "suite" && !suite.contains(&format!("mod {name};")))
                .filter(|name| {
                    // One that needs a process of its own is a program of its own.
                    let path = format!("path = \"tests/{name}.rs\"");
                    !manifest.lines().any(|line| line == path)
                })
                .collect();
            names.into_iter().map(move |name| format!("{folder}/{name}"))
        })
        .collect();
    expect_none("these are no part of suite.rs beside them", &forgotten);
}

/// The packages that are built into the products: all but `fuzz` and `benches`.
fn published() -> Vec<Package> {
    members().into_iter().filter(|package| package.folder.starts_with("crates/")).collect()
}

/// Built by tools of their own, outside of the workspace.
const APART: [&str; 2] = ["firmware", "fuzz"];

fn members() -> Vec<Package> {
    let packages = Repository::here().packages().into_iter();
    packages.filter(|package| !APART.contains(&package.folder.as_str())).collect()
}

/// Simulator, engines and their vocabulary: whatever says that it can be `no_std`.
fn without_operating_system() -> Vec<Package> {
    let repository = Repository::here();
    let found: Vec<_> = members()
        .into_iter()
        .filter(|package| {
            repository.read(&format!("{}/src/lib.rs", package.folder)).is_some_and(|text| {
                text.lines().any(|line| line.starts_with("#![") && line.contains("no_std"))
            })
        })
        .collect();
    assert!(
        !found.is_empty(),
        "no crate says that it is no_std: is this test looking at the right place?"
    );
    found
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let deny = Repository::here().read("deny.toml").expect("there is a deny.toml");
    let allowed = list(&deny, "[licenses]");
    assert!(allowed.contains(&"MIT"), "the list in deny.toml was not understood");
    let Some(packages) = dependencies() else { return };
    assert!(packages.len() > 5, "cargo names too few packages: {packages:?}");
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| !is_allowed(&package.licence, &allowed))
        .map(|package| format!("{}: {}", package.name, package.licence))
        .collect();
    expect_none("licences that deny.toml does not allow", &refused);
}

#[derive(Debug)]
struct Dependency {
    name: String,
    licence: String,
}

/// Everything the lock file means on this machine. `None` if cargo cannot say.
fn dependencies() -> Option<Vec<Dependency>> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = cargo_metadata(&["--locked", "--filter-platform", &platform])?;
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("none given").to_owned();
    Some(
        packages
            .iter()
            .map(|package| Dependency {
                name: word(&package["name"]),
                licence: word(&package["license"]),
            })
            .collect(),
    )
}

/// The quoted words of `allow = [ … ]` below `header`.
fn list<'a>(deny: &'a str, header: &str) -> Vec<&'a str> {
    deny.split_once(header)
        .and_then(|(_, rest)| rest.split_once("allow = ["))
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(list, _)| list.split('"').skip(1).step_by(2).collect())
        .unwrap_or_default()
}

/// Whether an SPDX expression can be fulfilled with the allowed licences: each part
/// between ANDs needs one allowed choice between its ORs.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let plain = expression.replace('/', " OR ").replace(" or ", " OR ").replace(['(', ')'], "");
    plain
        .split(" AND ")
        .all(|part| part.split(" OR ").any(|choice| allowed.contains(&choice.trim())))
}

#[test]
fn expressions_are_understood() {
    let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
    for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "none given", ""] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn the_list_is_read() {
    assert_eq!(
        list("[x]\nallow = [\"A\"]\n[licenses]\nallow = [\n  \"B\", \"C\",\n]\n", "[licenses]"),
        ["B", "C"]
    );
}

/// A corpus keeps findings found: `cargo test` replays it where there is no fuzzer.
#[test]
fn every_fuzz_target_has_a_corpus() {
    let without: Vec<_> = targets()
        .into_iter()
        .filter(|target| Corpus::open(target).map_or(true, |corpus| corpus.is_empty()))
        .collect();
    expect_none("these need at least one input in fuzz/corpus/<target>.hex", &without);
}

/// A misspelt name would never be replayed. Folders are what a fuzzer works in; git ignores
/// them.
#[test]
fn every_corpus_is_that_of_a_fuzz_target() {
    let expected: BTreeSet<_> = targets().iter().map(|target| path(target)).collect();
    let strangers: Vec<_> = fs::read_dir(Repository::here().root().join("fuzz/corpus"))
        .expect("there are corpora")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|file| !file.is_dir())
        .filter(|file| !expected.iter().any(|path| path.file_name() == file.file_name()))
        .map(|file| file.display().to_string())
        .collect();
    expect_none("these belong to no fuzz target", &strangers);
}

/// Anyone who adds an input by the program changes no other line.
#[test]
fn every_corpus_is_as_it_is_written() {
    let different: Vec<_> = targets()
        .into_iter()
        .filter(|target| {
            let text = fs::read_to_string(path(target)).unwrap_or_default();
            Corpus::open(target).map_or(true, |corpus| corpus.to_string() != text)
        })
        .collect();
    expect_none("these are not as `corpus` writes them", &different);
}

fn targets() -> Vec<String> {
    let manifest = Repository::here().read("fuzz/Cargo.toml").expect("fuzz has a Cargo.toml");
    let names = manifest.split("[[bin]]").skip(1);
    let targets: Vec<_> = names
        .filter_map(|target| target.split_once("name = \"")?.1.split('"').next())
        .map(str::to_owned)
        .collect();
    assert!(!targets.is_empty(), "fuzz/Cargo.toml names no target");
    targets
}
