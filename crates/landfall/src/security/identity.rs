//! [`Identity`]: the key pair that an end proves itself with, in a file.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_seal::{Fingerprint, Secret, StaticKey};

/// Where identity and known peers are, unless the environment says otherwise.
const STATE_VARIABLE: &str = "LANDFALL_STATE";

/// A key pair that stands for an endpoint or a node. Others know it by its
/// [fingerprint](Self::fingerprint).
///
/// ```
/// use landfall::stp::Identity;
///
/// let identity = Identity::generate()?;
/// println!("I am {}", identity.fingerprint());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Identity(Arc<[u8; 32]>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

impl Identity {
    /// A new one.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn generate() -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self(Arc::new(secret)))
    }

    /// The one in a file of 32 secret bytes, which is made, for its owner alone, if there is
    /// none.
    ///
    /// # Errors
    /// The file can be neither read nor made, or holds something else.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        Self::load_or_make(path).map_err(|error| about(path, &error))
    }

    fn load_or_make(path: &Path) -> io::Result<Self> {
        match Self::load(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let identity = Self::generate()?;
        // Whole or not at all, and the first of several who make one wins.
        let name = format!("{}.{}", path.display(), identity.fingerprint());
        let made = PathBuf::from(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?;
        let written = file.write_all(&*identity.0).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&made, path));
        fs::remove_file(&made)?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            other => other.map(|()| identity),
        }
    }

    fn load(path: &Path) -> io::Result<Self> {
        let secret = read_secret(path)?;
        Ok(Self(Arc::new(secret)))
    }

    /// The one of this user: in `$LANDFALL_STATE`, or in `landfall` below `$XDG_STATE_HOME` or
    /// `~/.local/state`; made at first use.
    ///
    /// # Errors
    /// As [`load_or_create`](Self::load_or_create), or nothing says where it should be.
    pub fn of_user() -> io::Result<Self> {
        Self::load_or_create(&state_folder()?.join("identity"))
    }

    /// What others know it by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.key().public().fingerprint()
    }

    pub(super) fn key(&self) -> StaticKey {
        StaticKey::new(Secret::new(*self.0))
    }
}

/// Reads a pre-shared key: a file of 32 random bytes that its owner alone may read, as
/// `head -c 32 /dev/urandom > key && chmod 600 key` makes one.
///
/// # Errors
/// The file cannot be read, others may read it, or it holds something else.
pub fn read_preshared_key(path: &Path) -> io::Result<[u8; 32]> {
    let read = || {
        let mode = fs::metadata(path)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let what = format!("others may read it (its mode is {mode:03o}): `chmod 600` it");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        read_secret(path)
    };
    read().map_err(|error| about(path, &error))
}

fn read_secret(path: &Path) -> io::Result<[u8; 32]> {
    let mut secret = Vec::new();
    File::open(path)?.take(33).read_to_end(&mut secret)?;
    let what = "it does not hold 32 bytes: make another one";
    secret.try_into().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, what))
}

/// An error that names its file: another user's, for example, is found by its name.
pub(super) fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(super) fn state_folder() -> io::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable(STATE_VARIABLE) {
        return Ok(folder.into());
    }
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).map(|state| state.join("landfall")).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("none of {STATE_VARIABLE}, XDG_STATE_HOME and HOME is set"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_for_its_owner() {
        let folder = super::super::folder_of_test("identity");
        let path = folder.join("below/identity");
        let made = Identity::load_or_create(&path).unwrap();
        let again = Identity::load_or_create(&path).unwrap();
        assert_eq!(made.fingerprint(), again.fingerprint());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, b"short").unwrap();
        let error = Identity::load_or_create(&path).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("make another one") && said.contains(path.to_str().unwrap()),
            "{said}"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_preshared_key_is_32_bytes_that_nobody_else_reads() {
        let folder = super::super::folder_of_test("key");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("key");
        let write = |len, mode| {
            fs::write(&file, vec![7; len]).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = || read_preshared_key(&file).unwrap_err().to_string();
        assert!(refused().contains("key"), "it is not there");
        write(32, 0o640);
        assert!(refused().contains("chmod 600"));
        for len in [31, 33] {
            write(len, 0o600);
            assert!(refused().contains("32 bytes"));
        }
        write(32, 0o600);
        assert_eq!(read_preshared_key(&file).unwrap(), [7; 32]);
        fs::remove_dir_all(folder).unwrap();
    }
}
