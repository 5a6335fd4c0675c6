//! What is taken away however the program ends: temporary folders, when their work is
//! over, and when somebody ends the program in the middle of it; and connections that no kernel
//! ends.
//!
//! Namespaces, virtual cables and TAP interfaces need nothing of this: they have no names
//! or no life of their own, and the kernel takes them back. Commands that run until they
//! are told to end wait for that themselves.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall_transport::signals::Endings;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Folders that are there now.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// What is done for others first: connections are ended, say.
static CLOSING: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());

/// Who waits for a signal waits again after so long.
const LONG: Duration = Duration::from_secs(3600);

/// A signal has come, and the program ends by it.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Does not return once a signal ends the program: what failed because of that is no failure.
pub fn leave_the_end_to_signals() {
    while IS_ENDING.load(Ordering::Acquire) {
        thread::park();
    }
}

/// When a signal ends the program, this is done before. It has to return soon.
pub fn before_signals_end_it(action: impl Fn() + Send + 'static) {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(action));
}

fn folders() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of our own, which goes with the program at the latest.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// An empty one, where such things are on this machine (`TMPDIR`).
    pub fn new() -> Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// Everybody may make folders there, and guess the names of ours: what is there already
    /// is somebody's, and ours is for nobody else.
    fn within(parent: &Path) -> Result<Self> {
        /// Others have made this many of our names before us that there is no point in more.
        const NAMES: u32 = 10_000;
        let mut folders = folders();
        for nth in 0..NAMES {
            let path = parent.join(format!("landfall-{}-{nth}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    folders.insert(path.clone());
                    return Ok(Self(path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        let path = path.display();
                        format!("cannot make {path}: is TMPDIR a folder that may be written?")
                    });
                }
            }
        }
        bail!("{NAMES} names for a folder in {} are taken: clean it up", parent.display())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        folders().remove(&self.0);
        // What cannot be removed is left to anyone who cleans up temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// From here on a signal that ends the program takes its temporary folders with it. Comes
/// before any thread is started.
pub fn clean_up_at_signals() -> Result<()> {
    let endings = Endings::catch().context("cannot wait for signals")?;
    let watch = move || loop {
        match endings.wait(LONG) {
            Ok(false) => {}
            Ok(true) => {
                IS_ENDING.store(true, Ordering::Release);
                let closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
                // What was opened last may need what was opened before.
                for action in closing.iter().rev() {
                    action();
                }
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

/// A signal has come, and the program lets what is under way end. From here on one more signal
/// ends it at once, without waiting for that.
///
/// The first signal is taken out of `came`.
pub fn end_at_next_signal(came: &Endings) -> Result<()> {
    let heard = came.take().context("cannot read which signal came")?;
    debug_assert!(heard.is_some(), "it is called when a signal has come");
    let endings = Endings::catch().context("cannot wait for signals")?;
    let watch = move || loop {
        match endings.wait(LONG) {
            Ok(false) => {}
            Ok(true) => {
                eprintln!("landfall: a second signal: what was under way is cut off");
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
pub fn code_of_ending(endings: &Endings) -> u8 {
    let signal = endings.take().ok().flatten().unwrap_or(libc::SIGTERM);
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// A process that was started as a part of another ends with it, and does not hear what is
/// meant for both.
pub fn end_with_parent() -> Result<()> {
    // Anyone who was quicker closed the pipes, and that is noticed as well.
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

    /// Somebody who guesses the names has put a folder, a link and a file in their places.
    #[test]
    fn a_folder_is_new_and_for_its_user_only() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        // With a name of its own: those of the other test are used again when it is over.
        let parent = std::env::temp_dir().join(format!("landfall-guessed-{}", process::id()));
        fs::create_dir(&parent).unwrap();
        let guessed = |nth| parent.join(format!("landfall-{}-{nth}", process::id()));
        let others = parent.join("others");
        fs::create_dir(&others).unwrap();
        fs::create_dir(guessed(0)).unwrap();
        symlink(&others, guessed(1)).unwrap();
        fs::write(guessed(2), b"").unwrap();
        let folder = TemporaryFolder::within(&parent).unwrap();
        assert_eq!(folder.path(), guessed(3));
        let mode = fs::symlink_metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        drop(folder);
        assert!(guessed(0).is_dir() && guessed(1).is_symlink() && guessed(2).is_file());
        fs::remove_dir_all(&parent).unwrap();
    }
}
