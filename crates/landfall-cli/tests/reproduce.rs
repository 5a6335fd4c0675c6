//! `landfall reproduce` as people use it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_testbed::{Namespace, require_namespaces, skip_unless};
use landfall_testkit::TemporaryFolder;
use serde_json::Value;

use crate::common::{json, landfall, schema};
use crate::xml;

/// A folder that is not there yet, and is not left.
struct Out {
    path: PathBuf,
    _parent: TemporaryFolder,
}

impl Out {
    fn new(name: &str) -> Self {
        let parent = TemporaryFolder::new(name);
        Self { path: parent.join("out"), _parent: parent }
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Lines of fields, as RFC 4180 has them.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut lines, mut line, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        match (letter, is_quoted) {
            ('"', true) if letters.peek() == Some(&'"') => field.extend(letters.next()),
            ('"', _) => is_quoted = !is_quoted,
            (',', false) => line.push(std::mem::take(&mut field)),
            ('\r', false) => {}
            ('\n', false) => {
                line.push(std::mem::take(&mut field));
                lines.push(std::mem::take(&mut line));
            }
            (letter, _) => field.push(letter),
        }
    }
    assert!(!is_quoted && line.is_empty() && field.is_empty(), "an end is missing in {text}");
    lines
}

/// Text as it stands in HTML.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

fn exhibits(report: &Value) -> Vec<&Value> {
    let chapters = report["chapters"].as_array().unwrap();
    chapters.iter().flat_map(|chapter| chapter["exhibits"].as_array().unwrap()).collect()
}

#[test]
fn every_exhibit_has_its_files_and_its_place_on_the_page() {
    let out = Out::new("all");
    let output = landfall(&["reproduce", "all", "--json", "--out", out.text()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    let designs = report["chapters"].as_array().unwrap().iter().map(|it| &it["design"]);
    assert_eq!(designs.collect::<Vec<_>>(), ["stp", "qpip", "defrag", "clan", "beyond"]);
    let page = out.read("index.html");
    xml::check(&page).unwrap();
    for address in ["src=", "@import", "<script", "<link", "href=\"http"] {
        assert!(!page.contains(address), "the page needs nothing else: {address}");
    }
    let markdown = out.read("reproduction.md");
    let exhibits = exhibits(&report);
    assert!(exhibits.len() > 30, "{}", exhibits.len());
    for exhibit in &exhibits {
        let (name, title) = (exhibit["name"].as_str().unwrap(), exhibit["title"].as_str().unwrap());
        assert!(page.contains(&escaped(&format!("{name}: {title}"))), "{name}: {title}");
        assert!(markdown.contains(&format!("### {name}: {title}\n")), "{name}: {title}");
        check_values(exhibit, &out);
        check_plot(exhibit, &out);
        for note in exhibit["notes"].as_array().unwrap() {
            let words = escaped(note["text"].as_str().unwrap());
            let plain = words.split('`').max_by_key(|part| part.len()).unwrap();
            assert!(page.contains(plain), "{name}: {note}");
        }
    }
    // No file that is not spoken of, and nothing half written.
    let mut expected: BTreeSet<String> =
        ["index.html", "reproduction.md", ".landfall-reproduce"].map(str::to_owned).into();
    for exhibit in &exhibits {
        expected.extend(["csv", "svg"].map(|kind| format!("{}.{kind}", id(exhibit))));
    }
    let designs = ["stp", "qpip", "defrag", "clan", "beyond"];
    expected.extend(designs.map(|design| format!("{design}-constants.csv")));
    assert_eq!(out.names(), expected);
}

fn id(exhibit: &Value) -> &str {
    exhibit["id"].as_str().unwrap()
}

/// The CSV file says what the JSON does.
fn check_values(exhibit: &Value, out: &Out) {
    let name = format!("{}.csv", id(exhibit));
    let lines = csv(&out.read(&name));
    let columns = ["row", "column", "paper", "model", "kind", "error", "measure"];
    assert_eq!(lines[0], columns, "{name}");
    let values = exhibit["values"].as_array().unwrap();
    assert_eq!(lines.len() - 1, values.len(), "{name}");
    for (line, value) in lines[1..].iter().zip(values) {
        let words = [&line[0], &line[1], &line[4], &line[6]];
        let keys = ["row", "column", "kind", "measure"];
        assert_eq!(words, keys.map(|key| value[key].as_str().unwrap()), "{name}");
        for (field, key) in [(&line[2], "paper"), (&line[3], "model"), (&line[5], "error")] {
            let (written, expected) = (field.parse::<f64>().ok(), value[key].as_f64());
            assert_eq!(written.is_none(), field.is_empty(), "{name}: {line:?}");
            assert_eq!(written.is_some(), expected.is_some(), "{name}: {line:?}");
            // Our reader of JSON may err in the last digit.
            let off = (written.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs();
            assert!(off <= 1e-12 * expected.unwrap_or(0.0).abs(), "{name}: {line:?}, {value}");
        }
        assert!(!line[3].is_empty(), "{name}: {line:?}");
    }
}

/// It is XML with a mark for each value: as many diamonds as the paper states values,
/// and one for each legend that explains them.
fn check_plot(exhibit: &Value, out: &Out) {
    let name = format!("{}.svg", id(exhibit));
    let text = out.read(&name);
    let elements = xml::check(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    xml::check_numbers(&elements).unwrap_or_else(|error| panic!("{name}: {error}"));
    let values = exhibit["values"].as_array().unwrap();
    let stated = values.iter().filter(|value| !value["paper"].is_null()).count();
    let explained = text.matches(">what the paper states</text>").count();
    let diamonds = elements.iter().filter(|element| element.name == "polygon").count();
    assert_eq!(diamonds, stated + explained, "{name}");
    assert_eq!(explained == 0, stated == 0, "{name}");
}

#[test]
fn one_paper_may_be_chosen_and_markdown_is_the_default() {
    let output = landfall(&["reproduce", "clan"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.starts_with("# The papers, reproduced\n") && text.contains("### Figure 7: "));
    assert!(!text.contains("QPIP on the LANai 9") && !text.contains("cargo test"), "{text}");
}

#[test]
fn a_second_run_replaces_the_first_and_nothing_else() {
    let out = Out::new("twice");
    let run = || landfall(&["reproduce", "clan", "--out", out.text()]);
    let output = run();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("index.html"), "{said}");
    let (names, page) = (out.names(), out.read("index.html"));
    fs::write(out.path.join("index.html"), "old").unwrap();
    fs::write(out.path.join("notes.txt"), "mine").unwrap();
    assert_eq!(run().status.code(), Some(0));
    assert_eq!(out.read("index.html"), page);
    assert_eq!(out.read("notes.txt"), "mine");
    assert_eq!(out.names().len(), names.len() + 1);
}

#[test]
fn what_others_wrote_is_not_replaced() {
    let out = Out::new("foreign");
    fs::create_dir(&out.path).unwrap();
    // One is seen before the model runs, the other when its exhibits are known.
    for name in ["index.html", "clan-figure-7.svg", ".landfall-reproduce"] {
        fs::write(out.path.join(name), "mine").unwrap();
        let output = landfall(&["reproduce", "clan", "--out", out.text()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(name) && said.contains("move it away"), "{said}");
        assert_eq!(out.read(name), "mine");
        assert_eq!(out.names().into_iter().collect::<Vec<_>>(), [name], "nothing was begun");
        fs::remove_file(out.path.join(name)).unwrap();
    }
}

#[test]
fn a_link_at_our_name_is_not_followed() {
    let (out, other) = (Out::new("link"), Out::new("link-target"));
    assert_eq!(landfall(&["reproduce", "clan", "--out", out.text()]).status.code(), Some(0));
    fs::write(&other.path, "mine").unwrap();
    let index = out.path.join("index.html");
    fs::remove_file(&index).unwrap();
    std::os::unix::fs::symlink(&other.path, &index).unwrap();
    let output = landfall(&["reproduce", "clan", "--out", out.text()]);
    let kept = fs::read_to_string(&other.path);
    fs::remove_file(&other.path).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(kept.unwrap(), "mine");
}

#[test]
fn a_place_that_cannot_be_written_to_is_told_before_anything_else() {
    let out = Out::new("file");
    fs::write(&out.path, "mine").unwrap();
    let inside = out.path.join("papers");
    // Where not even root may make files, a file, and within a file.
    let places = [Path::new("/proc/papers"), &out.path, &inside];
    for place in places {
        let output = landfall(&["reproduce", "clan", "--out", place.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(output.stdout.is_empty(), "{place:?}");
        assert!(said.contains(out.text()) || said.contains("/proc/papers"), "{said}");
        assert!(said.contains("give --out"), "{said}");
    }
    assert_eq!(fs::read_to_string(&out.path).unwrap(), "mine");
    fs::remove_file(&out.path).unwrap();
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for arguments in [&["reproduce", "tcp"][..], &["reproduce", "--out"], &["reproduce", "--quick"]]
    {
        let output = landfall(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

/// What was measured stands beside what the paper and the model say, and is marked.
#[test]
fn live_values_are_on_every_page() {
    let out = Out::new("live");
    let command = ["reproduce", "all", "--live", "--quick", "--json", "--out", out.text()];
    let output = landfall(&command);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    schema::check(&report, "What `landfall reproduce --json` prints");
    let live = &report["live"];
    schema::check(live, "Under `live`");
    let page = out.read("index.html");
    xml::check(&page).unwrap();
    let markdown = out.read("reproduction.md");
    let exhibits = live["exhibits"].as_array().unwrap();
    let mut designs = BTreeSet::new();
    for exhibit in exhibits {
        schema::check(exhibit, "An exhibit of `live`");
        let id = id(exhibit);
        designs.insert(id.split('-').next().unwrap().to_owned());
        let lines = csv(&out.read(&format!("{id}-live.csv")));
        assert_eq!(lines[0], ["row", "column", "paper", "model", "live", "by"]);
        let values = exhibit["values"].as_array().unwrap();
        assert!(!values.is_empty() && lines.len() == values.len() + 1, "{id}");
        for (line, value) in lines[1..].iter().zip(values) {
            schema::check(value, "A value of it");
            assert_eq!(line[0], value["row"].as_str().unwrap());
            assert!(value["live"].as_f64() >= Some(0.0), "{value}");
        }
        assert!(page.contains(&format!("{id}-live.csv")) && markdown.contains(&format!("({id})")));
    }
    // Without root one of them is absent, and the page says so.
    let expected: BTreeSet<_> = ["stp", "qpip", "clan"].map(str::to_owned).into();
    assert!(expected.is_subset(&designs), "{designs:?}: {live:#}");
    for absent in live["absent"].as_array().unwrap() {
        assert!(page.contains(&escaped(absent["reason"].as_str().unwrap())), "{absent}");
    }
    let stp = exhibits.iter().find(|exhibit| exhibit["id"] == "stp-table-1").unwrap();
    let of_stp =
        stp["values"].as_array().unwrap().iter().find(|it| it["row"] == "STP write(), 4136");
    assert_eq!(of_stp.unwrap()["paper"], 98.0, "the paper's value stands beside");
}

/// In a namespace without any link, and with every capability taken away.
#[test]
fn neither_a_network_nor_privileges_are_needed() {
    require_namespaces!();
    let setpriv = Command::new("setpriv").arg("--version").output();
    skip_unless!(setpriv.err().map(|error| format!("no setpriv: {error}")));
    let namespace = Namespace::new().unwrap();
    let out = Out::new("alone");
    let run = || {
        Command::new("setpriv")
            .args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"])
            .args([env!("CARGO_BIN_EXE_landfall"), "reproduce", "clan", "--out", out.text()])
            .output()
    };
    let output = namespace.enter(run).unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(out.names().contains("clan-figure-7.svg"));
}
