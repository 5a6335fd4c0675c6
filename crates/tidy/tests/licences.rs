//! The licences of all dependencies, against the list in `deny.toml`. This is the
//! part of `cargo deny` that needs no installation.

use landfall_tidy::{Repository, cargo_metadata, expect_none};

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
