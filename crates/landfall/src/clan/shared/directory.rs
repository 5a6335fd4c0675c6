//! [`NameFile`]: who offers a name in a folder. A file for each name holds the number of the
//! node; its lock says that the node lives.
//!
//! The kernel takes the lock away when the process ends, however it does: so a name of a
//! process that was killed is found to be stale by anyone who looks, and the next who wants the
//! name takes it over. Nothing is shared but the file: a process that dies in the middle
//! leaves a file that nobody holds, and no state that has to be mended.
//!
//! A name costs one file, and finding it one look, however many there are.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clan_dsm::HostId;
use landfall_transport::shm::rendezvous::{Admit, Peer};

use crate::clan::Error;
use crate::clan::names::MAX_NAME;

/// What a file begins with.
const MARK: &str = "clan name 1 ";
/// More than any file of ours has.
const LONGEST: usize = 32;

/// Somebody who looks holds the lock for a moment: an offer tries so often, with a pause.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_micros(500);

/// A name that this process offers, until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct NameFile {
    file: File,
    path: PathBuf,
}

/// The file of a name: letters, digits, `-`, `_` and `.` are themselves, every other byte is
/// two digits behind a percent sign. So no name leads out of the folder.
fn path_of(folder: &Path, name: &str) -> Result<PathBuf, Error> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::BadConfig("a name has 1 to 64 bytes"));
    }
    let mut file = String::from("name-");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            file.push(char::from(byte));
        } else {
            file.push_str(&format!("%{byte:02x}"));
        }
    }
    Ok(folder.join(file))
}

fn system(call: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { call, source }
}

/// A link at that place is not followed: it is no name of ours.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    options
}

// As Linux has them (include/uapi/asm-generic/fcntl.h; aarch64 has another O_NOFOLLOW).
const O_NONBLOCK: i32 = 0o4000;
#[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
const O_NOFOLLOW: i32 = 0o100_000;
#[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
const O_NOFOLLOW: i32 = 0o400_000;

impl NameFile {
    /// Takes a name for this node.
    ///
    /// # Errors
    /// Somebody who lives has it, or the folder is not there.
    pub(super) fn create(
        folder: &Path,
        name: &str,
        host: HostId,
        admit: &Admit,
    ) -> Result<Self, Error> {
        let path = path_of(folder, name)?;
        let mode = if *admit == Admit::SameUser { 0o600 } else { 0o644 };
        for _ in 0..TRIES {
            let mut open = options();
            open.write(true).create(true).mode(mode);
            let file = open.open(&path).map_err(system("open"))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(TryLockError::Error(error)) => return Err(system("flock")(error)),
            }
            // Anyone who had it before may have removed it after it was opened here.
            if !is_at(&file, &path) {
                continue;
            }
            // One that another user has left could be changed by that user, and no one would
            // believe it.
            if !Admit::SameUser.admits(&owner_of(&file)?) {
                std::fs::remove_file(&path).map_err(system("unlink"))?;
                continue;
            }
            // From here on it goes again where the folder has no room for what is in it.
            let mut made = Self { file, path };
            made.file.set_len(0).map_err(system("ftruncate"))?;
            made.file.rewind().map_err(system("lseek"))?;
            let text = format!("{MARK}{}\n", host.number());
            made.file.write_all(text.as_bytes()).map_err(system("write"))?;
            return Ok(made);
        }
        Err(Error::BadConfig("another node offers this name here"))
    }
}

impl Drop for NameFile {
    /// While the lock is held the file at that place can be no other's, unless somebody who
    /// keeps to nothing put it there.
    fn drop(&mut self) {
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Is this file the one that has that name?
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), std::fs::symlink_metadata(path)) else {
        return false;
    };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Whose file it is.
fn owner_of(file: &File) -> Result<Peer, Error> {
    let metadata = file.metadata().map_err(system("fstat"))?;
    Ok(Peer { pid: 0, uid: metadata.uid(), gid: metadata.gid() })
}

/// The node that offers a name, if one that lives does, of a user who is admitted.
pub(super) fn find(folder: &Path, name: &str, admit: &Admit) -> Result<Option<HostId>, Error> {
    let path = path_of(folder, name)?;
    let file = match options().open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::Forbidden);
        }
        Err(error) => return Err(system("open")(error)),
    };
    let metadata = file.metadata().map_err(system("fstat"))?;
    // What pretends to be a name of ours and is a pipe, say, is none.
    if !metadata.is_file() {
        return Ok(None);
    }
    if !admit.admits(&owner_of(&file)?) {
        return Err(Error::Forbidden);
    }
    match file.try_lock_shared() {
        // Nobody holds it: who offered it has ended.
        Ok(()) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(system("flock")(error)),
    }
    let mut text = [0; LONGEST];
    let len = file.read_at(&mut text, 0).map_err(system("read"))?;
    Ok(std::str::from_utf8(&text[..len]).ok().and_then(parse))
}

/// The number in a file; none while it is being written, and in a file of somebody else's.
fn parse(text: &str) -> Option<HostId> {
    let number = text.strip_prefix(MARK)?.strip_suffix('\n')?;
    number.parse().ok().and_then(HostId::new)
}

/// The names in a folder that somebody offers who lives, in no order.
pub(super) fn list(folder: &Path, admit: &Admit) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(system("opendir"))?.flatten() {
        let file = entry.file_name();
        let Some(name) = file.to_str().and_then(|file| file.strip_prefix("name-")).and_then(decode)
        else {
            continue;
        };
        // One that may not be looked at is none for us.
        if matches!(find(folder, &name, admit), Ok(Some(_))) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The name that a file is for.
fn decode(file: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = file.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use landfall_testkit::TemporaryFolder;

    use super::*;

    fn host(number: u16) -> HostId {
        HostId::new(number).unwrap()
    }

    fn look(folder: &TemporaryFolder, name: &str) -> Option<HostId> {
        find(folder.path(), name, &Admit::SameUser).unwrap()
    }

    #[test]
    fn a_name_is_there_while_it_is_offered() {
        let folder = TemporaryFolder::new("names");
        let offer =
            |name, number| NameFile::create(folder.path(), name, host(number), &Admit::SameUser);
        let longest = "x".repeat(64);
        for name in ["prices", "../../etc/passwd", "a b%c/ä", &longest, "."] {
            assert_eq!(look(&folder, name), None);
            let offered = offer(name, 7).unwrap();
            assert_eq!(look(&folder, name), Some(host(7)));
            assert!(matches!(offer(name, 8), Err(Error::BadConfig(_))), "it is taken");
            assert_eq!(list(folder.path(), &Admit::SameUser).unwrap(), [name]);
            drop(offered);
            assert_eq!(look(&folder, name), None);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        assert!(offer("", 1).is_err() && offer(&"x".repeat(65), 1).is_err());
    }

    /// What a process leaves that was killed: a file that nobody holds.
    #[test]
    fn a_stale_name_is_none_and_is_taken_over() {
        let folder = TemporaryFolder::new("names");
        for text in ["clan name 1 9\n", "clan name 1 99999999999\n", "", "\u{0}", "clan name 1 9"] {
            std::fs::write(folder.path().join("name-prices"), text).unwrap();
            assert_eq!(look(&folder, "prices"), None);
            let _offered =
                NameFile::create(folder.path(), "prices", host(3), &Admit::SameUser).unwrap();
            assert_eq!(look(&folder, "prices"), Some(host(3)));
        }
    }

    /// What stands there and is no file of ours neither hangs us nor leads elsewhere.
    #[test]
    fn links_pipes_and_folders_are_no_names() {
        let folder = TemporaryFolder::new("names");
        let at = |name: &str| folder.path().join(format!("name-{name}"));
        std::fs::write(folder.path().join("target"), "clan name 1 9\n").unwrap();
        std::os::unix::fs::symlink(folder.path().join("target"), at("link")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(fifo.success());
        for name in ["link", "folder", "pipe"] {
            let found = find(folder.path(), name, &Admit::SameUser);
            assert!(!matches!(found, Ok(Some(_))), "{name}: {found:?}");
        }
        let taken = NameFile::create(folder.path(), "link", host(1), &Admit::SameUser);
        assert!(taken.is_err(), "{taken:?}");
        let target = std::fs::read_to_string(folder.path().join("target")).unwrap();
        assert_eq!(target, "clan name 1 9\n", "nothing was written through the link");
    }

    /// A thousand names, of which half are stale.
    #[test]
    fn a_hundred_thousand_stale_names_hide_no_name() {
        let folder = TemporaryFolder::new("names");
        for number in 0..100_000 {
            let path = path_of(folder.path(), &format!("stale{number}")).unwrap();
            std::fs::write(path, format!("{MARK}{}\n", number % 1000)).unwrap();
        }
        let mine = NameFile::create(folder.path(), "prices", host(7), &Admit::SameUser).unwrap();
        assert_eq!(look(&folder, "prices"), Some(host(7)));
        assert_eq!(look(&folder, "stale4711"), None);
        assert_eq!(list(folder.path(), &Admit::SameUser).unwrap(), ["prices"]);
        let over = NameFile::create(folder.path(), "stale5", host(8), &Admit::SameUser).unwrap();
        assert_eq!(look(&folder, "stale5"), Some(host(8)), "it is taken over");
        drop((mine, over));
        assert!(list(folder.path(), &Admit::SameUser).unwrap().is_empty());
    }

    /// A name of another user is believed by nobody who does not admit that user, and what that
    /// user has left is no longer in the way.
    #[test]
    fn names_of_another_user_are_not_believed_and_what_is_left_of_them_is_replaced() {
        // Nobody's here: tests of ordinary users run as 65,534.
        const OTHER: u32 = 65_533;
        let folder = TemporaryFolder::new("names");
        let theirs = NameFile::create(folder.path(), "prices", host(7), &Admit::SameUser).unwrap();
        let path = path_of(folder.path(), "prices").unwrap();
        if let Err(error) = std::os::unix::fs::chown(&path, Some(OTHER), None) {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            eprintln!("not tried: only root can give a file to another user");
            return;
        }
        let admit = Admit::SameUser;
        assert!(matches!(find(folder.path(), "prices", &admit), Err(Error::Forbidden)));
        assert!(list(folder.path(), &admit).unwrap().is_empty());
        let admitted = Admit::Users(vec![OTHER]);
        assert_eq!(find(folder.path(), "prices", &admitted).unwrap(), Some(host(7)));
        let taken = NameFile::create(folder.path(), "prices", host(8), &admit);
        assert!(matches!(taken, Err(Error::BadConfig(_))), "that user is there");
        // Gone, with the file left behind.
        let copy = std::fs::read(&path).unwrap();
        drop(theirs);
        std::fs::write(&path, copy).unwrap();
        std::os::unix::fs::chown(&path, Some(OTHER), None).unwrap();
        let mine = NameFile::create(folder.path(), "prices", host(8), &admit).unwrap();
        assert_eq!(look(&folder, "prices"), Some(host(8)));
        drop(mine);
    }

    #[test]
    fn a_folder_full_of_names_is_searched_by_name() {
        let folder = TemporaryFolder::new("names");
        let mut offered = Vec::new();
        for number in 0..1_000u16 {
            let name = format!("name {number}");
            if number % 2 == 0 {
                let made = NameFile::create(folder.path(), &name, host(number), &Admit::SameUser);
                offered.push(made.unwrap());
            } else {
                let path = path_of(folder.path(), &name).unwrap();
                std::fs::write(path, format!("{MARK}{number}\n")).unwrap();
            }
        }
        for number in 0..1_000 {
            let expected = (number % 2 == 0).then(|| host(number));
            assert_eq!(look(&folder, &format!("name {number}")), expected);
        }
        assert_eq!(list(folder.path(), &Admit::SameUser).unwrap().len(), 500);
    }
}
