//! A folder that holds our files and perhaps others', which are left alone.
//!
//! Which files are ours says a list among them. What is not on it is not written over;
//! what is on it is replaced in one step: a reader sees the old file or the new one.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The list of our files.
const LIST: &str = ".landfall-reproduce";

/// Its first line.
const MARK: &str = "# Files that `landfall reproduce` wrote here, and may replace.";

/// Longer lists are none of ours.
const LIST_LIMIT: u64 = 1 << 20;

/// Where files go.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    ours: BTreeSet<String>,
}

impl Folder {
    /// Makes the folder unless it is there, and sees that it can be written to.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path.exists() && !path.is_dir() {
            bail!("{} is a file, not a folder: give --out another name", path.display());
        }
        fs::create_dir_all(path).with_context(|| {
            format!(
                "cannot make the folder {}: give --out one that you may write to",
                path.display()
            )
        })?;
        let folder = Self { path: path.to_owned(), ours: list(path)? };
        let temporary = folder.temporary();
        let probe = create(&temporary).and_then(|_| fs::remove_file(&temporary));
        probe.with_context(|| {
            format!("cannot write to {}: give --out a folder that you may write to", path.display())
        })?;
        Ok(folder)
    }

    /// An error if one of these would replace what is not ours.
    pub(crate) fn check<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
        for name in names {
            let path = self.path.join(name);
            // The link itself, not what it leads to.
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_file() && self.ours.contains(name) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(_) => bail!(
                    "{} is there and was not written by this command: move it away, or give \
                     --out another folder",
                    path.display()
                ),
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot look at {}", path.display()));
                }
            }
        }
        Ok(())
    }

    /// Writes all of them, or nothing if one would replace what is not ours.
    pub(crate) fn write(&mut self, files: &[(String, String)]) -> Result<()> {
        self.check(files.iter().map(|(name, _)| name.as_str()))?;
        self.ours.extend(files.iter().map(|(name, _)| name.clone()));
        let mut list = format!("{MARK}\n");
        for name in &self.ours {
            list += name;
            list.push('\n');
        }
        // Before the files: whenever this ends, no file of ours is missing on the list.
        self.replace(LIST, &list)?;
        for (name, content) in files {
            self.replace(name, content)?;
        }
        Ok(())
    }

    fn replace(&self, name: &str, content: &str) -> Result<()> {
        let (temporary, path) = (self.temporary(), self.path.join(name));
        let written = create(&temporary)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // What is half written helps nobody; the error below is the one that counts.
            let _ = fs::remove_file(&temporary);
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// A name that no other process uses.
    fn temporary(&self) -> PathBuf {
        self.path.join(format!("{LIST}.{}.tmp", std::process::id()))
    }
}

/// A file that was not there before.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// The names on the list, if there is one.
fn list(folder: &Path) -> Result<BTreeSet<String>> {
    let path = folder.join(LIST);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Ok(found) if found.is_file() && found.len() <= LIST_LIMIT => {}
        Ok(_) => bail!("{} is not a list of this command: move it away", path.display()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot look at {}", path.display()));
        }
    }
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    if lines.next() != Some(MARK) {
        bail!("{} is not a list of this command: move it away", path.display());
    }
    Ok(lines.map(str::to_owned).collect())
}
