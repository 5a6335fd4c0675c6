//! Files for programs of others to read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A folder that is gone when the test is over, also when it fails.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the name of a folder, nothing of the run")]
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("landfall-{process}-{name}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file with these bytes, opened to be read.
    pub fn file(&self, name: &str, bytes: &[u8]) -> File {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        File::open(path).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
