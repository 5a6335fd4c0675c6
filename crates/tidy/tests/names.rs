//! A type is called what it is, in the words of the field, and a sentence says what it means: some words
//! say nothing to a reader.

use landfall_tidy::{File, Repository, expect_none};

/// Words that a type may not be called, since each stood for several things, or for a picture that
/// a reader has to look up; and what such types are called.
const REFUSED: [(&[&str], &str); 9] = [
    (&["Way", "Lane", "Road", "Roads"], "a Path, a Route, a Direction, a Transport, a Method"),
    (&["Side", "Party"], "a Role, an End, a Half, a Host"),
    (&["Line", "Cord", "Over"], "a TableRow, a Curve, a Rig, a Carrier; an end of a CableEnd"),
    (&["Shared", "Core", "Driven", "Own"], "the state of its owner: EndpointState, RingMemory"),
    (&["News", "Told", "Heard", "Said", "Came", "Took", "Asked"], "an Update, an Event, a Request"),
    (&["What", "Why", "Whose", "Into", "From", "Has", "Once"], "a Kind, an Error, an Owner"),
    (&["Leaving", "Going", "Lying", "Standing", "Stand"], "what it is that is in this state"),
    (
        &["Desk", "Door", "Doorway", "Reception", "Parlour", "Hall", "Visitor", "Sight", "Gap"],
        "a Listener, a Handshake, a Request, a View, a Loan",
    ),
    (
        &[
            "Ground", "Nap", "Farewell", "Tenure", "Doubt", "Shelf", "Cargo", "Ear", "Soaker",
            "Hearing",
        ],
        "a folder, a limit, a guard, a history, a buffer, a subscription, a meter",
    ),
];

/// This file spells out what it looks for.
const THIS_FILE: &str = "crates/tidy/tests/names.rs";

/// So many types there are at least, if they are looked for where they are.
const LEAST: usize = 2_000;

#[test]
fn no_type_has_a_name_that_says_nothing() {
    let files = Repository::here().files("rs");
    let types: usize = files.iter().map(|file| types(file).count()).sum();
    assert!(types > LEAST, "only {types} types were found");
    let problems: Vec<String> = files.iter().flat_map(refused).collect();
    expect_none("say what it is in the words of the field", &problems);
}

#[test]
fn names_are_found_wherever_a_type_is_defined() {
    let text = "\
struct Way;
pub(crate) enum Side<'a> { Line(u8) }
    pub trait Said: Sized {}
type News = u8;
struct Wayward(Way);
// struct Way;
let way = \"struct Way\";
impl Way {}
";
    let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
    let found: Vec<String> = refused(&file);
    let places: Vec<&str> = found.iter().filter_map(|it| it.split_once(':')?.1.get(..1)).collect();
    assert_eq!(places, ["1", "2", "3", "4"], "{found:?}");
}

fn refused(file: &File) -> Vec<String> {
    if file.path == THIS_FILE {
        return Vec::new();
    }
    let refused = types(file).filter_map(|(at, name)| {
        let (_, better) = REFUSED.iter().find(|(words, _)| words.contains(&name))?;
        Some(format!("{}:{at}: `{name}`, where others are called {better}", file.path))
    });
    refused.collect()
}

/// The types that a file defines, and the lines where it does.
fn types(file: &File) -> impl Iterator<Item = (usize, &str)> {
    file.text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, defined(line)?)))
}

/// The type that a line defines, if it does.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    if !matches!(words.next()?, "struct" | "enum" | "trait" | "type" | "union") {
        return None;
    }
    let name = words.next()?;
    Some(name.split(|it: char| !it.is_alphanumeric() && it != '_').next().unwrap_or(name))
}

/// Words that make a sentence a riddle, and plain ones.
const RIDDLES: [(&str, &str); 8] = [
    ("whoever", "anyone who, no matter who, or the one that is meant"),
    ("Whoever", "Anyone who, or the one that is meant"),
    ("so many", "this many, that many, or a number by its name"),
    ("So many", "This many, or a number by its name"),
    ("to be had", "available"),
    ("good for nothing", "invalid"),
    ("of which more is chosen", "Returns a builder for"),
    ("See the module", "the rule itself"),
];

#[test]
fn no_comment_and_no_page_is_a_riddle() {
    let repository = Repository::here();
    let code = repository.files("rs");
    let comments = code
        .iter()
        .filter(|file| file.path != THIS_FILE)
        .flat_map(|file| riddles(file, |line| line.trim_start().starts_with("//")));
    let mut pages = repository.files("md");
    // What was written of versions before stays as it was.
    pages.retain(|file| file.path != "CHANGELOG.md");
    let problems: Vec<String> =
        comments.chain(pages.iter().flat_map(|file| riddles(file, |_| true))).collect();
    expect_none("say it in a short sentence, subject first", &problems);
}

#[test]
fn riddles_are_found_in_prose_alone() {
    let text = "/// After so many times.\nlet text = \"so many\";\n// `whoever_waits` and more.\n";
    let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
    let found: Vec<String> = riddles(&file, |line| line.starts_with("//")).collect();
    assert_eq!(found.len(), 1, "{found:?}");
}

/// The lines of prose with such words, where those are no name.
fn riddles(file: &File, is_prose: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    file.text.lines().enumerate().filter(move |(_, line)| is_prose(line)).filter_map(
        |(at, line)| {
            let prose: String = line.split('`').step_by(2).collect();
            let (riddle, plain) = RIDDLES.iter().find(|(riddle, _)| prose.contains(riddle))?;
            Some(format!("{}:{}: \"{riddle}\": {plain}", file.path, at + 1))
        },
    )
}
