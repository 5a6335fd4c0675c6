//! What POSIX says of files, as scripts with the coverage of pjdfstest. Each runs on a bare directory
//! and on a mount, and has to end as it says on both.
//!
//! A line is a step: `[as USER[:GROUP[,GROUP...]]] COMMAND ARGUMENTS... [=> RESULT]`. The result is
//! `ok` unless it is said: the name of an error, or what the command tells. A line that begins with
//! `==` names a scenario, which has a directory of its own. `{c:N}` is N times that character.

mod machine;

use std::path::{Path, PathBuf};

use landfall_storage::files::MountOptions;
use landfall_testkit::skip_unless;

use self::machine::Machine;
use super::{Carrier, Mounted, why_no_mounts};
use crate::support::Folder;

struct Scenario {
    name: String,
    steps: Vec<Step>,
}

struct Step {
    line: String,
    user: Option<User>,
    words: Vec<String>,
    expected: String,
}

#[derive(Clone, Debug)]
struct User {
    user: u32,
    group: u32,
    others: Vec<u32>,
}

impl User {
    fn parse(text: &str) -> Self {
        let (user, groups) = text.split_once(':').unwrap_or((text, text));
        let mut groups = groups.split(',').map(|group| group.parse().unwrap());
        let group = groups.next().unwrap();
        Self { user: user.parse().unwrap(), group, others: groups.collect() }
    }
}

/// `{c:N}` becomes N times c.
fn expand(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) = behind.split_once('}').unwrap();
        let (text, count) = inside.split_once(':').unwrap();
        out += before;
        out += &text.repeat(count.parse().unwrap());
        rest = after;
    }
    out + rest
}

fn scenarios(text: &str) -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("==") {
            scenarios.push(Scenario { name: name.trim().into(), steps: Vec::new() });
            continue;
        }
        let (step, expected) = line.split_once("=>").unwrap_or((line, "ok"));
        let mut words: Vec<&str> = step.split_whitespace().collect();
        let user = (words[0] == "as").then(|| User::parse(words[1]));
        if user.is_some() {
            words.drain(..2);
        }
        let steps = &mut scenarios.last_mut().expect("a scenario").steps;
        steps.push(Step {
            line: line.into(),
            user,
            words: words.into_iter().map(expand).collect(),
            expected: expected.trim().into(),
        });
    }
    scenarios
}

/// Runs all of them in this directory, and tells each step that did not end as it says.
fn failures(name: &str, scripts: &[(&str, &str)], base: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    for (script, text) in scripts {
        for (nth, scenario) in scenarios(text).iter().enumerate() {
            let at: PathBuf = base.join(format!("{script}-{nth}"));
            std::fs::create_dir(&at).unwrap();
            let mut machine = Machine::new(at);
            for step in &scenario.steps {
                let found = machine.run(step.user.as_ref(), &step.words);
                if found != step.expected {
                    failures.push(format!(
                        "{name}, {script}, {}: `{}` gave `{found}`",
                        scenario.name, step.line
                    ));
                }
            }
        }
    }
    failures
}

const SCRIPTS: [(&str, &str); 12] = [
    ("chmod", include_str!("chmod.txt")),
    ("chown", include_str!("chown.txt")),
    ("link", include_str!("link.txt")),
    ("mkdir", include_str!("mkdir.txt")),
    ("mknod", include_str!("mknod.txt")),
    ("open", include_str!("open.txt")),
    ("rename", include_str!("rename.txt")),
    ("rmdir", include_str!("rmdir.txt")),
    ("symlink", include_str!("symlink.txt")),
    ("truncate", include_str!("truncate.txt")),
    ("unlink", include_str!("unlink.txt")),
    ("utimensat", include_str!("utimensat.txt")),
];

#[test]
fn posix_holds_on_the_bare_directory_and_on_the_mount_alike() {
    skip_unless!(why_no_mounts());
    let bare = Folder::new();
    rustix::process::umask(rustix::fs::Mode::empty());
    let path = bare.file("bare");
    std::fs::create_dir(&path).unwrap();
    let mut found = failures("bare", &SCRIPTS, &path);
    for carrier in [Carrier::Host, Carrier::Udp] {
        let files = Mounted::new(carrier);
        found.extend(failures(&format!("{carrier:?}"), &SCRIPTS, files.mount.path()));
    }
    assert!(found.is_empty(), "{} steps:\n{}", found.len(), found.join("\n"));
}

#[test]
fn extended_attributes_of_users_are_kept() {
    skip_unless!(why_no_mounts());
    let scripts = [("xattr", include_str!("xattr.txt"))];
    let mounting = MountOptions { extended: true, ..MountOptions::default() };
    let files = Mounted::with(Carrier::Host, &mounting, |export| export);
    let mut found = failures("mount", &scripts, files.mount.path());
    let bare = files.beside("bare");
    std::fs::create_dir(&bare).unwrap();
    found.extend(failures("bare", &scripts, &bare));
    assert!(found.is_empty(), "{} steps:\n{}", found.len(), found.join("\n"));
}
