#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use landfall_testkit::skip::skip;
use serde_json::Value;

/// The work tree that this package was built from.
#[derive(Debug)]
pub struct Repository {
    root: PathBuf,
}

/// A text file of the repository.
#[derive(Debug)]
pub struct File {
    /// Where it is, seen from the root, with `/` between the parts.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// A folder with a `Cargo.toml` that describes a package.
#[derive(Debug)]
pub struct Package {
    /// The folder, seen from the root.
    pub folder: String,
    /// The text of its `Cargo.toml`.
    pub manifest: String,
}

/// Folders that hold no text that somebody wrote, wherever they are.
const BUILT: [&str; 2] = [".git", "target"];

/// What programs found: cargo-fuzz's folders, and the corpora, which `tests/packages.rs`
/// judges.
const FOUND: [&str; 3] = ["fuzz/artifacts", "fuzz/corpus", "fuzz/coverage"];

impl Repository {
    /// The repository that this very package belongs to.
    #[must_use]
    pub fn here() -> Self {
        // Cargo says it when it runs a test, too. That is the better answer: two work
        // trees with one target folder share the compiled test.
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        Self { root: package.join("../..") }
    }

    /// The root folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads one file; `None` if there is no such text file.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// All text files whose name ends with `.` and `extension`, or all text files
    /// for the empty extension, in order of their paths.
    #[must_use]
    pub fn files(&self, extension: &str) -> Vec<File> {
        let mut found = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            // A folder may vanish while it is read: a build beside us cleans up.
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let Ok(kind) = entry.file_type() else { continue };
                // In a second work tree `.git` is a file.
                if BUILT.iter().any(|skip| name == *skip) {
                    continue;
                }
                if kind.is_dir() {
                    if !FOUND.contains(&self.relative(&path).as_str()) {
                        folders.push(path);
                    }
                } else if kind.is_file()
                    && (extension.is_empty() || path.extension().is_some_and(|e| e == extension))
                    && let Ok(text) = fs::read_to_string(&path)
                {
                    found.push(File { path: self.relative(&path), text });
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// All packages, members of the workspace or not.
    #[must_use]
    pub fn packages(&self) -> Vec<Package> {
        self.files("toml")
            .into_iter()
            .filter(|file| file.text.lines().any(|line| line == "[package]"))
            .filter_map(|file| {
                let folder = file.path.strip_suffix("/Cargo.toml")?.to_owned();
                Some(Package { folder, manifest: file.text })
            })
            .collect()
    }

    fn relative(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        path.components()
            .map(|part| part.as_os_str().to_string_lossy())
            .collect::<Vec<_>>()
            .join("/")
    }
}

impl Package {
    /// The lines of one table of the manifest, without comments and blank lines.
    pub fn table<'a>(&'a self, header: &'a str) -> impl Iterator<Item = &'a str> {
        self.manifest
            .lines()
            .map(str::trim)
            .skip_while(move |line| *line != header)
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// The packages it depends on in every build, not only in tests.
    #[must_use]
    pub fn dependencies(&self) -> Vec<&str> {
        self.table("[dependencies]")
            .filter_map(|line| line.split(['=', '.', ' ']).next())
            .map(str::trim)
            .collect()
    }
}

/// A file of nothing but tests.
#[must_use]
pub fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The lines that ship: neither comments nor tests at the end of a file.
pub fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| *line != "mod tests {")
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// Fails the calling test with all `findings`, one on a line, if there are any.
///
/// # Panics
///
/// If `findings` is not empty.
#[track_caller]
pub fn expect_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

// What cargo knows of the packages of this repository.

/// Returns what `cargo metadata` says in the root folder, without asking a network. `None`,
/// with a word on stderr, if cargo cannot say: another user's toolchain or registry may be
/// out of reach.
///
/// # Panics
///
/// If cargo cannot say and `LANDFALL_NO_SKIP=1` is set.
#[must_use]
pub fn cargo_metadata(arguments: &[&str]) -> Option<Value> {
    let answer = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--offline", "--format-version=1"])
        .args(arguments)
        .current_dir(Repository::here().root())
        .output();
    match answer {
        Ok(output) if output.status.success() => {
            Some(serde_json::from_slice(&output.stdout).expect("cargo speaks JSON"))
        }
        Ok(output) => skipped(&String::from_utf8_lossy(&output.stderr)),
        Err(error) => skipped(&error.to_string()),
    }
}

fn skipped(why: &str) -> Option<Value> {
    let why = why.trim().lines().next().unwrap_or("no reason given");
    skip("the list of packages", &format!("is not to be had from cargo: {why}"));
    None
}
