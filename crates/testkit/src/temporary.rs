//! Files that are gone when a test is over.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of one test, which goes with it, also when the test fails.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes an empty folder, for this user alone. The name is for people: each call gives
    /// another folder.
    ///
    /// # Panics
    ///
    /// If none can be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        #[expect(clippy::disallowed_methods, reason = "the name of a folder, nothing of the run")]
        let process = std::process::id();
        loop {
            let nth = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("landfall-{name}-{process}-{nth}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Self(path),
                // An earlier process of this number was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of something in it, whether it is there or not.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it, and returns its path.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // A test may have removed it; what cannot be removed is left to anyone who cleans up.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_new_and_goes_with_what_is_in_it() {
        let (one, other) = (TemporaryFolder::new("twice"), TemporaryFolder::new("twice"));
        assert_ne!(one.path(), other.path());
        let file = one.write("file", b"anything");
        assert_eq!(fs::read(&file).unwrap(), b"anything");
        let gone = one.path().to_owned();
        drop(one);
        assert!(!gone.exists() && other.path().is_dir());
    }
}
