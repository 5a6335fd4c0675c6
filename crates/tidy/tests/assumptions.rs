//! An engine that gives up half-way says why: by `assumed`, by a word, or by its form.

use landfall_tidy::{File, Repository, expect_none, is_test};

/// How many silent returns an engine may have. These numbers can only fall.
const MOST_SILENT: [(&str, usize); 4] =
    [("clan-dsm", 0), ("qpip", 0), ("spec-defrag", 0), ("stp-core", 0)];

/// What looks like an answer, and like any other.
const SAYS_NOTHING: [&str; 7] = ["", "0", "false", "true", "Vec::new()", "Ok(())", "Ok(false)"];

#[test]
fn engines_say_what_they_assume() {
    let files = Repository::here().files("rs");
    let mut problems = Vec::new();
    for (engine, most) in MOST_SILENT {
        let folder = format!("crates/{engine}/src/");
        let own = files.iter().filter(|file| file.path.starts_with(&folder) && ships(file));
        let found: Vec<String> = own.flat_map(silent_returns).collect();
        if found.len() > most {
            problems.push(format!("{engine} may have {most}, and has {}", found.len()));
            problems.extend(found);
        } else if found.len() < most {
            problems.push(format!("{engine} has only {}: lower its number", found.len()));
        }
    }
    expect_none(
        "pass the thing instead of its id, refuse with a counter, say `assumed(…, \"why\")`, or \
         say in a word above the line when it is missing",
        &problems,
    );
}

#[test]
fn silent_returns_are_found() {
    let text = "\
fn f(&mut self) {
    let Some(a) = self.a.get(1) else { return };
    // It is gone.
    let Some(b) = self.b.get(1) else { return };
    let Some(c) = assumed(self.c.get(1), \"it was looked at\") else { return };
    let Some(d) = self.connections.assumed_mut(1) else {
        return;
    };
    let Some(e) = self.a_long_name_of_something.that_is_found(by_a_long_name)
    else {
        return false;
    };
    let Some(f) = self.f.get(1) else {
        // It is gone.
        return;
    };
    let Some(g) = self.g.get(1) else { return Err(Refusal::UnknownId) };
    let Some(h) = self.h.get(1) else {
        debug_assert!(false, \"it was made above\");
        return;
    };
}
mod tests {
    let Some(a) = b else { return };
}
";
    let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
    assert_eq!(silent_returns(&file), ["a.rs:2", "a.rs:9"]);
}

pub(crate) fn ships(file: &File) -> bool {
    !is_test(&file.path) && !file.path.contains("/model/") && !file.path.ends_with("/model.rs")
}

/// Where `let … else` returns and nobody says why.
fn silent_returns(file: &File) -> Vec<String> {
    let lines: Vec<&str> =
        file.text.lines().take_while(|line| *line != "mod tests {").map(str::trim).collect();
    let found = (0..lines.len()).filter_map(|at| {
        let returned = returned(&lines[at..])?;
        let first = (0..=at).rev().find(|nth| starts_statement(lines[*nth]))?;
        let statement = lines[first..=at].concat();
        let is_said = statement.contains("assumed(")
            || statement.contains("assumed_mut(")
            || first > 0 && is_word(lines[first - 1]);
        let is_silent =
            statement.starts_with("let ") && !is_said && SAYS_NOTHING.contains(&returned);
        is_silent.then(|| format!("{}:{}", file.path, first + 1))
    });
    found.collect()
}

/// What is returned where a pattern does not match, if the first line ends with that.
fn returned<'l>(lines: &[&'l str]) -> Option<&'l str> {
    let line = lines.first()?;
    let returned = match line.rsplit_once("else { return") {
        Some((_, rest)) => rest.strip_suffix("};")?,
        None if line.ends_with("else {") => lines.get(1)?.strip_prefix("return")?,
        None => return None,
    };
    Some(returned.trim().trim_end_matches(';'))
}

fn starts_statement(line: &str) -> bool {
    ["let ", "if ", "while ", "} else if "].iter().any(|word| line.starts_with(word))
}

/// A comment, but none that documents an item.
fn is_word(line: &str) -> bool {
    line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
}
