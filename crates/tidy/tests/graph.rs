//! The graph of the crates in `ARCHITECTURE.md`, against what cargo says.

use std::collections::{BTreeMap, BTreeSet};

use landfall_tidy::{Repository, cargo_metadata, expect_none};
use serde_json::Value;

/// The workspaces: the one at the root, and those that are built by tools of their own.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "fuzz/Cargo.toml", "firmware/Cargo.toml"];

/// Each crate with the crates of this repository that it depends on. What depends on a
/// feature is in parentheses, as in the document.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_graph_of_the_crates_is_what_cargo_says() {
    let Some(packages) = packages() else { return };
    let (drawn, real) = (drawn(&document()), graph(&packages));
    assert!(real.len() >= 20, "cargo names too few packages: {:?}", real.keys());
    expect_none("the graph of the crates in ARCHITECTURE.md", &differences(&drawn, &real));
}

/// So the graph is read from the top to the bottom, and crates of one layer are independent.
#[test]
fn a_dependency_is_in_a_lower_layer() {
    let layers = layers(&document());
    let layer_of = |name: &str| {
        let name = name.trim_matches(['(', ')']);
        layers.iter().position(|layer| layer.contains_key(name))
    };
    let mut wrong = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        for (name, dependencies) in layer {
            let not_lower = dependencies.iter().filter(|to| layer_of(to) <= Some(number));
            wrong.extend(not_lower.map(|to| format!("{name} → {to}")));
        }
    }
    expect_none("these lead up, or to a crate of the same layer", &wrong);
}

/// Crates are published one after another: what tests need, too, is published before. A
/// crate's own tests may switch on its features; that is no circle.
#[test]
fn dev_dependencies_close_no_circle() {
    let Some(packages) = packages() else { return };
    let mut left: Graph = packages
        .iter()
        .map(|package| {
            let from = name(package);
            let to = ours(package).map(name).filter(|to| *to != from).collect();
            (from, to)
        })
        .collect();
    while let Some(free) = left.iter().find(|(_, to)| to.is_empty()).map(|(from, _)| from.clone()) {
        left.remove(&free);
        for to in left.values_mut() {
            to.remove(&free);
        }
    }
    assert!(left.is_empty(), "these depend on each other: {left:#?}");
}

#[test]
fn every_crate_has_a_row_in_the_table_below_the_graph() {
    let document = document();
    let without: Vec<_> = Repository::here()
        .packages()
        .into_iter()
        .filter(|package| package.folder.starts_with("crates/"))
        .filter(|package| !document.contains(&format!("`]({}/README.md) |", package.folder)))
        .map(|package| package.folder)
        .collect();
    expect_none("these have no row in ARCHITECTURE.md", &without);
}

// ---- What the document says ----------------------------------------------------

fn document() -> String {
    Repository::here().read("ARCHITECTURE.md").expect("there is an ARCHITECTURE.md")
}

/// The layers of the first block below the heading, the uppermost first. Blank lines part
/// them. A crate is a name, an arrow and names, or `-`, which may go on in the next line;
/// what is left of the first name of a layer is its title.
fn layers(document: &str) -> Vec<Graph> {
    let block = document
        .split_once("## The crates")
        .and_then(|(_, rest)| rest.split_once("```text\n"))
        .and_then(|(_, rest)| rest.split_once("```"))
        .map(|(block, _)| block)
        .expect("there is a block of text below `## The crates`");
    block.split("\n\n").map(layer).collect()
}

fn layer(text: &str) -> Graph {
    let mut layer = Graph::new();
    let mut current = String::new();
    for line in text.lines() {
        let names = if let Some((left, right)) = line.split_once('→') {
            current = left.split_whitespace().last().expect("a name is left of it").to_owned();
            let is_new = layer.insert(current.clone(), BTreeSet::new()).is_none();
            assert!(is_new, "{current} is drawn twice");
            right
        } else {
            line
        };
        let names = names.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "-"));
        let dependencies = layer.get_mut(&current).expect("a layer begins with a crate");
        dependencies.extend(names.map(str::to_owned));
    }
    layer
}

fn drawn(document: &str) -> Graph {
    let mut drawn = Graph::new();
    for (name, dependencies) in layers(document).into_iter().flatten() {
        assert!(drawn.insert(name.clone(), dependencies).is_none(), "{name} is drawn twice");
    }
    drawn
}

// ---- What cargo says -----------------------------------------------------------

fn packages() -> Option<Vec<Value>> {
    let mut packages = Vec::new();
    for manifest in MANIFESTS {
        let mut metadata = cargo_metadata(&["--no-deps", "--manifest-path", manifest])?;
        packages.append(metadata["packages"].as_array_mut().expect("cargo lists packages"));
    }
    Some(packages)
}

fn graph(packages: &[Value]) -> Graph {
    let dependencies = |package| {
        // Of no kind is what every build needs.
        ours(package)
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| match dependency["optional"].as_bool() {
                Some(true) => format!("({})", name(dependency)),
                _ => name(dependency),
            })
            .collect()
    };
    packages.iter().map(|package| (name(package), dependencies(package))).collect()
}

/// The dependencies that are in this repository.
fn ours(package: &Value) -> impl Iterator<Item = &Value> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    all.filter(|dependency| dependency["path"].is_string())
}

/// The name as the document has it: without that of the family.
fn name(package: &Value) -> String {
    let name = package["name"].as_str().expect("a package has a name");
    name.strip_prefix("landfall-").unwrap_or(name).to_owned()
}

fn differences(drawn: &Graph, real: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    let mut one_way = |here: &Graph, there: &Graph, what: &str| {
        for (name, dependencies) in here {
            let Some(others) = there.get(name) else {
                found.push(format!("{name} is {what}"));
                continue;
            };
            let missing = dependencies.difference(others);
            found.extend(missing.map(|to| format!("{name} → {to} is {what}")));
        }
    };
    one_way(real, drawn, "not drawn");
    one_way(drawn, real, "drawn, and is not so");
    found
}

// ---- That these tests can fail -------------------------------------------------

const DRAWING: &str = "\
## The crates

```text
above it    a → b, c,
                (d)

below       b → -
            c → -
            d → -
```
";

fn graph_of(edges: &[(&str, &[&str])]) -> Graph {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    edges.iter().map(|(from, to)| ((*from).to_owned(), owned(to))).collect()
}

#[test]
fn a_drawing_is_read_with_lines_that_go_on() {
    let expected = graph_of(&[("a", &["b", "c", "(d)"]), ("b", &[]), ("c", &[]), ("d", &[])]);
    assert_eq!(drawn(DRAWING), expected);
    assert_eq!(layers(DRAWING).len(), 2);
}

#[test]
fn crates_and_edges_are_missed_and_found_too_many() {
    let real = graph_of(&[("a", &["b", "d", "e"]), ("b", &[]), ("d", &[]), ("e", &[])]);
    assert_eq!(
        differences(&drawn(DRAWING), &real),
        [
            "a → d is not drawn",
            "a → e is not drawn",
            "e is not drawn",
            "a → (d) is drawn, and is not so",
            "a → c is drawn, and is not so",
            "c is drawn, and is not so",
        ]
    );
}
