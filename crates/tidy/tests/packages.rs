//! Rules for packages: what each must have, and who may depend on whom.

use landfall_tidy::{Package, Repository, expect_none};

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
/// file that is forgotten there would never run.
#[test]
fn every_file_of_tests_is_in_its_program() {
    let repository = Repository::here();
    let forgotten: Vec<_> = members()
        .into_iter()
        .filter(|package| package.table("[package]").any(|line| line == "autotests = false"))
        .flat_map(|package| {
            let folder = format!("{}/tests", package.folder);
            let suite = repository.read(&format!("{folder}/suite.rs")).unwrap_or_default();
            let entries = std::fs::read_dir(repository.root().join(&folder));
            let names = entries.into_iter().flatten().flatten().map(|entry| entry.path());
            let names: Vec<_> = names
                .filter(|path| {
                    path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists()
                })
                .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
                .filter(|name| name != "suite" && !suite.contains(&format!("mod {name};")))
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
