//! The folder in which the two ends of a connection find each other, and why it is trusted.
//!
//! It lies in memory (`/dev/shm`), one for each user, boot and network namespace. There
//! everybody may make a folder of that name before us: so it is proven to be ours each time
//! it is used. It is opened without following links, its owner and mode are asked of the
//! descriptor, and whatever lies in it is reached from that descriptor. Who makes it first
//! keeps memory from us, and gains nothing else.
//!
//! The descriptor lives as long as one use of it. One that stayed open would be a
//! descriptor of the program, which may close it and give its number to another folder.
//!
//! What lives below: the folder of a group ([`group`]).

pub(crate) mod group;

use std::ffi::CStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, Ordering};

use landfall_socket_status::ProcessName;

use crate::kernel::{self, Errno};

const BEGINNING: &[u8] = b"/dev/shm/landfall-sockets-";
const LONGEST: usize = 192;
/// Which user, or group, the kernel names where it has no number for it in this namespace.
const NOBODY: u32 = 65_534;

/// A path, built without the allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Path {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; LONGEST], len: 0 }
    }

    /// What does not fit is left out; all names here are shorter.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = LONGEST - 1 - self.len;
        let len = bytes.len().min(room);
        self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }

    pub(crate) fn push_hex(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            self.push(&[digit(byte >> 4), digit(byte & 15)]);
        }
    }

    pub(crate) fn push_number(&mut self, number: u32) {
        let (mut digits, mut at, mut rest) = ([0; 10], 10, number);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.push(&digits[at..]);
            }
        }
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// Why there is no folder that could be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The kernel does not let us; `ENOENT` where there is none.
    Kernel(Errno),
    /// It is a link, or a file.
    NoFolder,
    /// It belongs to this user.
    OfUser(u32),
    /// Others may use it, by this mode.
    OpenToOthers(u32),
    /// The kernel gives this user, or group, the number of all that it cannot name.
    Nameless,
    /// The folder of this group is not the group's alone.
    NotOfGroup(u32),
    /// This user may not enter the folder of this group, or make it.
    NotForUs(u32, Errno),
}

impl From<Errno> for Fault {
    fn from(why: Errno) -> Self {
        Self::Kernel(why)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self {
            Self::NotOfGroup(group) | Self::NotForUs(group, _) => group::path(*group),
            _ => path(),
        };
        let name = path.as_ref().map_or(c"", Path::as_c_str).to_str().unwrap_or("");
        match self {
            Self::Kernel(why) => write!(f, "{name} cannot be used (errno {})", why.0),
            Self::NoFolder => write!(f, "{name} is no folder: remove it"),
            Self::OfUser(user) => write!(f, "{name} belongs to user {user}: remove it"),
            Self::OpenToOthers(mode) => {
                write!(f, "{name} is open to others (mode {mode:04o}): remove it")
            }
            Self::Nameless => f.write_str("this user has no number of its own in this namespace"),
            Self::NotOfGroup(group) => {
                write!(f, "{name} is not the folder of group {group} alone: remove it")
            }
            Self::NotForUs(group, why) => {
                write!(f, "{name} (errno {}): is this user in group {group}?", why.0)
            }
        }
    }
}

/// Whose a folder is, and what lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    User(u32),
    Group(u32),
}

impl Owner {
    /// What a file of its may be used for: by it, and by nobody else.
    const fn rights(self) -> u32 {
        match self {
            Self::User(_) => 0o600,
            Self::Group(_) => 0o660,
        }
    }

    /// Whether a file is its own.
    pub(crate) const fn has(self, status: &libc::stat) -> bool {
        match self {
            Self::User(user) => status.st_uid == user,
            Self::Group(group) => status.st_gid == group,
        }
    }

    /// Whether nobody else may use a file, and it is one.
    pub(crate) const fn has_alone(self, status: &libc::stat) -> bool {
        let forbidden = 0o777 & !(0o700 | self.rights());
        status.st_mode & (libc::S_IFMT | forbidden) == libc::S_IFREG
    }
}

/// The folder, proven and open.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: i32,
    owner: Owner,
}

impl Folder {
    /// Opens the one that is there.
    pub(crate) fn open() -> Result<Self, Fault> {
        Self::open_at(path()?.as_c_str())
    }

    /// Makes it, if it is not there yet.
    pub(crate) fn open_or_make() -> Result<Self, Fault> {
        Self::open_or_make_at(path()?.as_c_str())
    }

    /// Makes something in it, which is made if it is not there.
    pub(crate) fn make_in<T>(job: impl Fn(&Self) -> Result<T, Errno>) -> Result<T, Fault> {
        Self::make_in_with(|| Self::open_or_make_at(path()?.as_c_str()), job)
    }

    fn open_or_make_at(path: &CStr) -> Result<Self, Fault> {
        match Self::open_at(path) {
            Err(Fault::Kernel(Errno(libc::ENOENT))) => {
                match kernel::make_folder(path, 0o700) {
                    // One who was faster is looked at as if he had been there before.
                    Ok(_) | Err(Errno(libc::EEXIST)) => Self::open_at(path),
                    Err(why) => Err(why.into()),
                }
            }
            other => other,
        }
    }

    /// Somebody may remove an empty folder before something is in it: then all is done again.
    fn make_in_with<T>(
        open_or_make: impl Fn() -> Result<Self, Fault>,
        job: impl Fn(&Self) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        // Each is in vain at worst as often as not, while others do nothing but remove it.
        const TRIES: u32 = 64;
        let make = || Ok(job(&open_or_make()?)?);
        for _ in 0..TRIES {
            match make() {
                Err(Fault::Kernel(Errno(libc::ENOENT))) => {}
                made => return made,
            }
        }
        Err(Fault::Kernel(Errno(libc::EAGAIN)))
    }

    fn open_at(path: &CStr) -> Result<Self, Fault> {
        let user = kernel::user();
        let folder = match Self::open_unproven(path, Owner::User(user)) {
            Ok(folder) => folder,
            Err(Errno(libc::ENOTDIR | libc::ELOOP)) => return Err(Fault::NoFolder),
            Err(why) => return Err(why.into()),
        };
        let status = kernel::status(folder.fd)?;
        if status.st_uid != user {
            return Err(Fault::OfUser(status.st_uid));
        }
        // Anyone who of others could enter it once may have left something there.
        if status.st_mode & 0o077 != 0 {
            return Err(Fault::OpenToOthers(status.st_mode & 0o7777));
        }
        if user == NOBODY && !knows_all(c"/proc/self/uid_map") {
            return Err(Fault::Nameless);
        }
        Ok(folder)
    }

    fn open_unproven(path: &CStr, owner: Owner) -> Result<Self, Errno> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        kernel::open(path, flags, 0).map(|fd| Self { fd, owner })
    }

    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Makes a file; one of this name was of a connection that is no more.
    pub(crate) fn create(&self, name: &CStr) -> Result<i32, Errno> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let make = || kernel::open_at(self.fd, name, flags, 0o600);
        let made = match make() {
            Err(Errno(libc::EEXIST)) => {
                self.remove(name);
                make()
            }
            other => other,
        }?;
        if self.owner.rights() != 0o600
            && let Err(why) = kernel::set_rights_of(made, self.owner.rights())
        {
            let _ = kernel::close(made);
            self.remove(name);
            return Err(why);
        }
        Ok(made)
    }

    /// Opens what has this name. Whatever it is, this neither waits nor follows it.
    pub(crate) fn open_file(&self, name: &CStr) -> Result<i32, Errno> {
        let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        kernel::open_at(self.fd, name, flags, 0)
    }

    pub(crate) fn remove(&self, name: &CStr) {
        let _ = kernel::remove_at(self.fd, name);
    }

    /// A path by way of the open folder, for calls that want one; good as long as this lives.
    pub(crate) fn path_of(&self, name: &[u8]) -> Path {
        let mut path = Path::new();
        path.push(b"/proc/self/fd/");
        path.push_number(self.fd.unsigned_abs());
        path.push(b"/");
        path.push(name);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = kernel::close(self.fd);
    }
}

/// Removes this user's folder if nothing is in it. The kernel sees to it that nothing is; anyone who
/// makes something there makes the folder again ([`Folder::make_in`]).
pub(crate) fn remove_if_empty() {
    if let Ok(path) = path() {
        remove_own_if_empty(&path);
    }
    // That of a group is for who has made it to remove, as the folder of memory says.
    if let Some(Ok(path)) = group::known().map(group::path) {
        let _ = kernel::remove_folder(path.as_c_str());
    }
}

/// What somebody else has put in its place is left alone, for people to see.
fn remove_own_if_empty(path: &Path) {
    const KIND_AND_RIGHTS: u32 = libc::S_IFMT | 0o777;
    let is_own = kernel::status_of_itself(path.as_c_str()).is_ok_and(|status| {
        status.st_uid == kernel::user() && status.st_mode & KIND_AND_RIGHTS == libc::S_IFDIR | 0o700
    });
    if is_own {
        let _ = kernel::remove_folder(path.as_c_str());
    }
}

/// The same for all folders of this user: those of other namespaces of networks, too, which may be
/// gone.
pub(crate) fn remove_empty_ones() {
    let mut own = Path::new();
    own.push(BEGINNING);
    own.push_hex(&kernel::user().to_be_bytes());
    own.push(b"-");
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return };
    for entry in entries.flatten().map(|entry| entry.path()) {
        let name = entry.as_os_str().as_bytes();
        if name.starts_with(own.as_c_str().to_bytes()) && name.len() < LONGEST {
            let mut path = Path::new();
            path.push(name);
            remove_own_if_empty(&path);
        }
    }
}

/// What the file of a process is called there.
pub(crate) fn name(process: &ProcessName) -> Path {
    let mut name = Path::new();
    name.push(&process.to_bytes());
    name
}

/// Where `/proc` tells of a process.
pub(crate) fn stat_of(process: u32) -> Path {
    let mut path = Path::new();
    path.push(b"/proc/");
    path.push_number(process);
    path.push(b"/stat");
    path
}

/// Whether this namespace has a number for each user, or group, by its map of them: else several
/// share [`NOBODY`].
fn knows_all(path: &CStr) -> bool {
    let mut map = [0; 64];
    let Ok(len) = kernel::read_file(path, &mut map) else { return false };
    let words = map[..len].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.eq([&b"0"[..], b"0", b"4294967295"])
}

/// Where the folder of this user, boot and network namespace is. A program may change its
/// user at any time.
fn path() -> Result<Path, Errno> {
    let mut path = Path::new();
    path.push(BEGINNING);
    path.push_hex(&kernel::user().to_be_bytes());
    let end = end_of_path()?;
    path.push(&end.bytes[..end.len]);
    Ok(path)
}

/// What the name ends with, no matter who the user is.
fn end_of_path() -> Result<&'static Path, Errno> {
    static FOUND: AtomicPtr<Path> = AtomicPtr::new(std::ptr::null_mut());
    let found = FOUND.load(Ordering::Acquire);
    if !found.is_null() {
        // SAFETY: it was leaked below.
        return Ok(unsafe { &*found });
    }
    let mut path = Path::new();
    path.push(b"-");
    let mut boot = [0; 8];
    kernel::read_file(c"/proc/sys/kernel/random/boot_id", &mut boot)?;
    path.push(&boot);
    path.push(b"-");
    let namespace = kernel::status_of(c"/proc/self/ns/net")?.st_ino;
    path.push_hex(&namespace.to_be_bytes()[4..]);
    let made = Box::into_raw(Box::new(path));
    // Who comes second leaves a path behind, once.
    FOUND.store(made, Ordering::Release);
    // SAFETY: just made, and never freed.
    Ok(unsafe { &*made })
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    use super::*;

    /// A folder for this test, which is removed with it.
    pub(super) struct Scratch(pub(super) PathBuf);

    impl Scratch {
        pub(super) fn new(name: &str) -> Self {
            let name = format!("landfall-folder-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        /// A folder within, of this mode.
        fn folder(&self, mode: u32) -> PathBuf {
            let path = self.0.join(format!("{mode:o}"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn opened(path: &std::path::Path) -> Result<Folder, Fault> {
        Folder::open_at(&CString::new(path.as_os_str().as_bytes()).unwrap())
    }

    #[test]
    fn a_folder_is_trusted_only_if_no_other_user_may_enter_it() {
        let scratch = Scratch::new("mode");
        assert!(opened(&scratch.folder(0o700)).is_ok());
        for mode in [0o777, 0o1777, 0o710, 0o701, 0o720, 0o770] {
            let why = opened(&scratch.folder(mode)).unwrap_err();
            assert_eq!(why, Fault::OpenToOthers(mode));
        }
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_no_folder() {
        let scratch = Scratch::new("link");
        let link = scratch.0.join("link");
        symlink(scratch.folder(0o700), &link).unwrap();
        assert_eq!(opened(&link).unwrap_err(), Fault::NoFolder);
        let file = scratch.0.join("file");
        fs::write(&file, b"").unwrap();
        assert_eq!(opened(&file).unwrap_err(), Fault::NoFolder);
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let scratch = Scratch::new("owner");
        let path = scratch.folder(0o700);
        // Root can give one away; for everybody else the root folder is another's.
        let (path, user) = match chown(&path, Some(4711), None) {
            Ok(()) => (path, 4711),
            Err(_) => ("/proc".into(), 0),
        };
        assert_eq!(opened(&path).unwrap_err(), Fault::OfUser(user));
    }

    #[test]
    fn a_link_in_place_of_a_file_is_not_followed() {
        let scratch = Scratch::new("file");
        let path = scratch.folder(0o700);
        let folder = opened(&path).unwrap();
        fs::write(scratch.0.join("victim"), b"precious").unwrap();
        symlink(scratch.0.join("victim"), path.join("name")).unwrap();
        assert_eq!(folder.open_file(c"name"), Err(Errno(libc::ELOOP)));
        let made = folder.create(c"name").unwrap();
        kernel::set_len(made, 3).unwrap();
        kernel::close(made).unwrap();
        assert_eq!(fs::read(scratch.0.join("victim")).unwrap(), b"precious");
        assert_eq!(fs::read(path.join("name")).unwrap().len(), 3);
    }

    #[test]
    fn a_folder_that_others_remove_while_it_is_empty_is_made_again() {
        let scratch = Scratch::new("race");
        let mut path = Path::new();
        path.push(scratch.0.join("folder").as_os_str().as_bytes());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    remove_own_if_empty(&path);
                    // As often as many processes would that end.
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
            });
            let made = (0..2000).try_for_each(|turn| {
                let name = CString::new(format!("race-{turn}")).unwrap();
                let create = |folder: &Folder| folder.create(&name);
                let open_or_make = || Folder::open_or_make_at(path.as_c_str());
                kernel::close(Folder::make_in_with(open_or_make, create)?)?;
                // What is in it keeps it: the other end of a connection finds that.
                let folder = Folder::open_at(path.as_c_str())?;
                kernel::close(folder.open_file(&name)?)?;
                folder.remove(&name);
                Ok::<_, Fault>(())
            });
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(made, Ok(()));
        });
    }

    #[test]
    fn what_is_moved_away_is_still_reached_by_the_open_folder() {
        let scratch = Scratch::new("moved");
        let path = scratch.folder(0o700);
        let folder = opened(&path).unwrap();
        let elsewhere = scratch.0.join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        fs::create_dir(&path).unwrap();
        kernel::close(folder.create(c"name").unwrap()).unwrap();
        assert!(elsewhere.join("name").exists() && !path.join("name").exists());
        let by_number = folder.path_of(b"name");
        let by_number = std::ffi::OsStr::from_bytes(by_number.as_c_str().to_bytes());
        assert!(std::path::Path::new(by_number).exists());
    }
}
