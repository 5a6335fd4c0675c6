//! The shape of STP's engine: few files enter it, and its files do not call each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use landfall_tidy::{File, Repository, expect_none};

/// Where it is.
const ENGINE: &str = "crates/stp-core/src/";

/// The reference model beside it is for tests.
const MODEL: &str = "crates/stp-core/src/model/";

/// How many files may have methods of `Endpoint`: the table of contents, what users call, and
/// where packets come in. This number can only fall: parts own their state.
const MOST_ENTRIES: usize = 3;

/// What owns a part of the state, and what it is called where it is handed to others.
const OWNERS: [(&str, &str); 10] = [
    ("Endpoint", "endpoint"),
    ("Context", "cx"),
    ("Network", "net"),
    ("Links", "links"),
    ("Connections", "connections"),
    ("Sends", "sends"),
    ("Receives", "receives"),
    ("Granted", "granted"),
    ("Regions", "regions"),
    ("Streams", "streams"),
];

#[test]
fn few_files_have_methods_of_the_endpoint() {
    let entries: BTreeSet<String> = engine()
        .iter()
        .filter(|file| methods(file).iter().any(|method| method.owner == "Endpoint"))
        .map(|file| file.path.clone())
        .collect();
    assert!(!entries.is_empty(), "the engine is not where it was looked for");
    assert!(
        entries.len() <= MOST_ENTRIES,
        "{} files have methods of Endpoint, and {MOST_ENTRIES} may: give them to who owns the \
         state, and return what the Endpoint has to tell others\n{entries:#?}",
        entries.len(),
    );
}

#[test]
fn no_files_of_the_engine_call_each_other_in_a_circle() {
    let files = engine();
    let mut places: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        for method in methods(file) {
            let found = places.entry((method.owner, method.name)).or_default();
            found.insert(file.path.clone());
        }
    }
    let mut calls: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        for method in methods(file) {
            for (owner, name) in calls_of(&method) {
                let others = places.get(&(owner, name)).into_iter().flatten();
                let others = others.filter(|other| **other != file.path).cloned();
                calls.entry(file.path.clone()).or_default().extend(others);
            }
        }
    }
    assert!(calls.len() > 10, "the calls of the engine were not found: {calls:#?}");
    let circles: Vec<String> = calls
        .keys()
        .filter(|file| reachable(&calls, file).contains(*file))
        .map(|file| format!("{file} calls {:?}", calls[file]))
        .collect();
    expect_none("move what is shared below those that call it, or return what happened", &circles);
}

/// All that a file calls, directly or by others.
fn reachable<'c>(
    calls: &'c BTreeMap<String, BTreeSet<String>>,
    from: &str,
) -> BTreeSet<&'c String> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&String> = calls.get(from).into_iter().flatten().collect();
    while let Some(next) = left.pop() {
        if found.insert(next) {
            left.extend(calls.get(next).into_iter().flatten());
        }
    }
    found
}

fn engine() -> Vec<File> {
    let mut files = Repository::here().files("rs");
    files.retain(|file| file.path.starts_with(ENGINE) && !file.path.starts_with(MODEL));
    files
}

/// A method of an owner.
struct Method {
    owner: &'static str,
    name: String,
    body: String,
}

/// The methods of owners in a file, as `rustfmt` lays them out.
fn methods(file: &File) -> Vec<Method> {
    let mut methods: Vec<Method> = Vec::new();
    let mut owner = None;
    for line in file.text.lines() {
        if let Some(of) = line.strip_prefix("impl").and_then(|rest| rest.strip_suffix(" {")) {
            let of = of.rsplit(' ').next().unwrap_or_default();
            owner = OWNERS.iter().find(|(name, _)| *name == of).map(|(name, _)| *name);
        } else if line == "}" {
            owner = None;
        }
        let Some(owner) = owner else { continue };
        let is_item = line.starts_with("    ") && !line.starts_with("     ");
        if is_item && let Some((_, rest)) = line.split_once("fn ") {
            let name = rest.chars().take_while(|c| is_of_a_name(*c)).collect();
            methods.push(Method { owner, name, body: String::new() });
        } else if let Some(method) = methods.last_mut() {
            // A chain goes on over several lines.
            method.body.push_str(line.trim());
            method.body.push(' ');
        }
    }
    methods
}

/// The methods that one calls: of its own owner by `self`, of others by what they are called.
fn calls_of(method: &Method) -> Vec<(&'static str, String)> {
    let body = method.body.replace(" .", ".");
    let mut calls = Vec::new();
    for (at, _) in body.match_indices('(') {
        let (rest, name) = last_name(&body[..at]);
        let Some(rest) = rest.strip_suffix('.') else { continue };
        let (_, of) = last_name(rest);
        let other = OWNERS.iter().find(|(_, handed)| *handed == of).map(|(owner, _)| *owner);
        let owner = if of == "self" { Some(method.owner) } else { other };
        calls.extend(owner.map(|owner| (owner, name.to_owned())));
    }
    calls
}

/// What comes before the name at the end of a text, and the name.
fn last_name(text: &str) -> (&str, &str) {
    text.split_at(text.trim_end_matches(is_of_a_name).len())
}

const fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[test]
fn calls_are_found_over_several_lines() {
    let text = "impl Sends {\n    fn one(&self) {\n        net\n            .say(self.two(), cx);\n    }\n}\n";
    let file = File { path: String::new(), text: text.to_owned() };
    let methods = methods(&file);
    assert_eq!(methods.len(), 1);
    let calls = calls_of(&methods[0]);
    assert_eq!(calls, [("Network", "say".to_owned()), ("Sends", "two".to_owned())]);
}
