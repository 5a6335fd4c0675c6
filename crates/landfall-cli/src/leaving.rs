//! What is taken away however the program ends: temporary folders, when their work is
//! over, and when somebody ends the program in the middle of it.
//!
//! Namespaces, virtual cables and TAP interfaces need nothing of this: they have no names
//! or no life of their own, and the kernel takes them back. Commands that run until they
//! are told to end wait for that themselves.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use landfall_transport::signals::Endings;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Folders that are there now.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn folders() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of our own, which goes with the program at the latest.
#[derive(Debug)]
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// An empty one, where such things are on this machine (`TMPDIR`).
    pub(crate) fn new() -> Result<Self> {
        let mut folders = folders();
        let free = |nth: &u32| {
            let name = format!("landfall-{}-{nth}", process::id());
            let path = std::env::temp_dir().join(name);
            (!folders.contains(&path)).then_some(path)
        };
        let path = (0..).find_map(|nth| free(&nth)).context("a name for a folder")?;
        fs::create_dir(&path).with_context(|| {
            format!("cannot make {}: is TMPDIR a folder that may be written?", path.display())
        })?;
        folders.insert(path.clone());
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        folders().remove(&self.0);
        // What cannot be removed is left to whoever cleans up temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// From here on a signal that ends the program takes its temporary folders with it. Comes
/// before any thread is started.
pub(crate) fn clean_up_at_signals() -> Result<()> {
    /// It waits again after so long.
    const LONG: Duration = Duration::from_secs(3600);
    let endings = Endings::catch().context("cannot wait for signals")?;
    let watch = move || loop {
        match endings.wait(LONG) {
            Ok(false) => {}
            Ok(true) => {
                // Nobody makes another one meanwhile: the lock is never given back.
                let folders = folders();
                for folder in folders.iter() {
                    let _ = fs::remove_dir_all(folder);
                }
                process::exit(i32::from(code_of_ending(&endings)));
            }
            Err(_) => return,
        }
    };
    thread::Builder::new().name("landfall-signals".into()).spawn(watch)?;
    Ok(())
}

/// The exit code of a program that a signal ended, as shells say it: 130 for SIGINT, 143 for
/// SIGTERM, 129 for SIGHUP.
pub(crate) fn code_of_ending(endings: &Endings) -> u8 {
    let signal = endings.take().ok().flatten().unwrap_or(libc::SIGTERM);
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// A process that was started as a part of another ends with it, and does not hear what is
/// meant for both.
pub(crate) fn end_with_parent() -> Result<()> {
    // Whoever was quicker closed the pipes, and that is noticed as well.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the other process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_what_is_in_it() {
        let (one, other) = (TemporaryFolder::new().unwrap(), TemporaryFolder::new().unwrap());
        assert_ne!(one.path(), other.path());
        let path = one.path().to_owned();
        fs::write(path.join("file"), b"anything").unwrap();
        drop(one);
        assert!(!path.exists() && other.path().is_dir());
    }
}
