//! Keys of encrypted connections in a file, for captures to be opened with.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_seal::{KeyLog, TrafficKeys};

/// Names the file, unless the builder does.
const VARIABLE: &str = "LANDFALL_KEYLOG";

/// A key log, which several engines may share.
#[derive(Clone, Debug)]
pub(crate) struct KeyLogFile(Arc<File>);

impl KeyLogFile {
    /// Opens it to add to it, or makes it, for its owner alone.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let about = file.metadata()?;
        // A pipe or a terminal is anyone who's reads it.
        if about.is_file() && about.permissions().mode() & 0o077 != 0 {
            let what = "others may read or write it: make it yours alone (chmod 600)";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(Self(Arc::new(file)))
    }
}

impl KeyLog for KeyLogFile {
    fn log(&mut self, keys: &TrafficKeys) {
        let mut line = keys.line();
        line.push('\n');
        // In one call, so that lines of several writers do not mix. What cannot be written is
        // missing when a capture is opened; connections do not suffer from it.
        let _ = (&*self.0).write_all(line.as_bytes());
    }
}

/// The file that the environment names. A program that has more rights than anyone who has started it
/// (setuid, capabilities of its file) writes nothing where that one says.
pub(crate) fn of_environment() -> Option<PathBuf> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
    let vector = fs::read("/proc/self/auxv").ok()?;
    (!is_secure(&vector)).then(|| path.into())
}

/// Does this auxiliary vector of a process ask for caution (`AT_SECURE`)? Also where it does not
/// say.
fn is_secure(vector: &[u8]) -> bool {
    const AT_SECURE: usize = 23;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, usize::from_ne_bytes);
    let (words, _) = vector.as_chunks::<{ size_of::<usize>() }>();
    let entry = words.chunks_exact(2).find(|entry| word(&entry[0]) == AT_SECURE);
    entry.is_none_or(|entry| word(&entry[1]) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_log_is_for_its_owner_alone_and_grows() {
        let name = format!("landfall-key-log-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        let line = format!("LANDFALL_TO_RESPONDER_0 010a0b0c0d01020304 {}", "07".repeat(48));
        for _ in 0..2 {
            KeyLogFile::open(&path).unwrap().log(&line.parse().unwrap());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{line}\n{line}\n"));
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for open in [0o640, 0o604, 0o620] {
            mode(open);
            let error = KeyLogFile::open(&path).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(KeyLogFile::open(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn a_program_with_raised_rights_logs_no_keys() {
        let vector = |entries: &[[usize; 2]]| {
            let words = entries.as_flattened().iter().flat_map(|word| word.to_ne_bytes());
            words.collect::<Vec<u8>>()
        };
        assert!(!is_secure(&vector(&[[6, 4096], [23, 0], [0, 0]])));
        assert!(is_secure(&vector(&[[6, 4096], [23, 1], [0, 0]])));
        assert!(is_secure(&vector(&[[6, 23], [0, 0]])) && is_secure(&[]));
        assert!(!is_secure(&fs::read("/proc/self/auxv").unwrap()));
    }
}
