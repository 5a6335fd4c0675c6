//! What an engine's functions take has a name: no parameter is a tuple.

use landfall_tidy::{File, Repository, expect_none};

use crate::assumptions::ships;

/// The four engines.
const ENGINES: [&str; 4] = ["clan-dsm", "qpip", "spec-defrag", "stp-core"];

#[test]
fn no_function_of_an_engine_takes_a_tuple() {
    let files = Repository::here().files("rs");
    let is_of_an_engine = |file: &&File| {
        ENGINES.iter().any(|engine| file.path.starts_with(&format!("crates/{engine}/src/")))
    };
    let own: Vec<&File> = files.iter().filter(is_of_an_engine).filter(|file| ships(file)).collect();
    assert!(own.len() > 100, "the engines are not where they were looked for");
    let problems: Vec<String> = own.into_iter().flat_map(tuples).collect();
    expect_none("give it a struct whose fields have names, or pass its parts", &problems);
}

#[test]
fn tuples_are_found() {
    let text = "\
fn one((a, b): (u32, u32)) {}
// fn not((a, b): (u32, u32)) {}
fn two<F: Fn((u8, u8))>(
    &self,
    f: F,
    named: Option<(u32, &str)>,
) -> (u32, u32) {
    call((1, 2));
}
fn three(all: &[(u8, u8)], _: ()) {}
fn fine(all: impl Iterator<Item = (u8, u8)>, f: impl Fn(u8, u8) -> (u8, u8), Wrap(a): Wrap) {}
type Pair = (u32, u32);
type Call = fn(u32, u32) -> u32;
mod tests {
    fn may((a, b): (u32, u32)) {}
}
";
    let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
    assert_eq!(tuples(&file), ["a.rs:1", "a.rs:3", "a.rs:10", "a.rs:12"]);
}

/// Where a function takes a tuple, or a type is one by another name.
fn tuples(file: &File) -> Vec<String> {
    let lines = file.text.lines().take_while(|line| *line != "mod tests {");
    let code: Vec<&str> =
        lines.map(|line| if line.trim_start().starts_with("//") { "" } else { line }).collect();
    let found = (0..code.len()).filter(|at| {
        let line = code[*at];
        let is_type = line.split_once("type ").is_some_and(|(_, rest)| is_pair(rest));
        is_type || parameters(&code[*at..]).is_some_and(|text| has_tuple(&text))
    });
    found.map(|at| format!("{}:{}", file.path, at + 1)).collect()
}

/// Is the type that follows a `=` a tuple?
fn is_pair(definition: &str) -> bool {
    definition.split_once("= ").is_some_and(|(_, of)| of.starts_with('(') && of.contains(','))
}

/// What is between the parentheses of a function that begins in the first line.
fn parameters(lines: &[&str]) -> Option<String> {
    let (before, rest) = lines.first()?.split_once("fn ")?;
    let is_function = before.is_empty() || before.ends_with([' ', '(']);
    let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').filter(|at| *at > 0)?;
    if !is_function || before.contains('=') {
        return None;
    }
    let mut text = rest[name..].to_owned();
    lines[1..].iter().take(40).for_each(|line| text.push_str(line));
    let mut angles = 0_u32;
    let start = text.char_indices().find_map(|(at, c)| {
        let is_arrow = text[..at].ends_with('-');
        match c {
            '<' => angles += 1,
            '>' if !is_arrow => angles = angles.saturating_sub(1),
            '(' if angles == 0 => return Some(at),
            _ => {}
        }
        None
    })?;
    Some(inside(&text[start..])?.to_owned())
}

/// The text between a parenthesis and the one that ends it.
fn inside(text: &str) -> Option<&str> {
    let mut depth = 0_u32;
    let end = text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    text.get(1..end)
}

/// Is there a tuple among parameters? What an iterator gives or a closure returns may be one.
fn has_tuple(parameters: &str) -> bool {
    let mut at = 0;
    while let Some(next) = parameters[at..].find('(') {
        at += next;
        let before = parameters[..at].trim_end();
        let Some(inner) = inside(&parameters[at..]) else { return false };
        let is_named = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_given = before.ends_with("Item =") || before.ends_with("->");
        if !is_named && !is_given && inner.contains(',') {
            return true;
        }
        at += inner.len() + 2;
    }
    false
}
