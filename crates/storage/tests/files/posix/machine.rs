//! [`Machine`]: carries out the steps of a scenario.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat,
    Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};

use super::User;

/// More than the kernel's coarse clock moves at a time.
const TICK: Duration = Duration::from_millis(15);

type Marks = HashMap<String, Stat>;

pub(super) struct Machine {
    base: PathBuf,
    open: HashMap<String, OwnedFd>,
    marks: Marks,
}

impl Machine {
    pub(super) fn new(base: PathBuf) -> Self {
        Self { base, open: HashMap::new(), marks: HashMap::new() }
    }

    /// What a step gives: `ok`, the name of an error, or what it tells.
    pub(super) fn run(&mut self, user: Option<&User>, words: &[String]) -> String {
        let result = match user {
            None => self.step(words),
            // Of a thread of its own, which ends as that user.
            Some(user) => std::thread::scope(|scope| {
                let acting = scope.spawn(|| {
                    become_user(user);
                    self.step(words)
                });
                acting.join().unwrap()
            }),
        };
        match result {
            Ok(told) if told.is_empty() => "ok".into(),
            Ok(told) => told,
            Err(error) => name_of(error),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        if name == "." { self.base.clone() } else { self.base.join(name) }
    }

    fn step(&mut self, words: &[String]) -> Result<String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[0] {
            "open" | "close" | "write" | "pwrite" | "fread" | "fchmod" | "fchown" | "ftruncate"
            | "fstat" | "allocate" | "seek_data" | "seek_hole" => self.by_handle(&words),
            "stat" | "lstat" | "times" | "mark" | "touched" | "ls" | "read" | "readlink"
            | "access" | "getxattr" | "listxattr" => self.tell(&words),
            _ => self.change(&words).map(|()| String::new()),
        }
    }

    fn by_handle(&mut self, words: &[&str]) -> Result<String> {
        let name = words[1];
        if words[0] == "open" {
            let mode = words.get(4).map_or(0o644, |mode| octal(mode));
            let path = self.path(words[2]);
            let file = rustix::fs::open(path, flags(words[3]), Mode::from_raw_mode(mode))?;
            self.open.insert(name.into(), file);
            return Ok(String::new());
        }
        if words[0] == "close" {
            self.open.remove(name);
            return Ok(String::new());
        }
        let file = &self.open[name];
        match words[0] {
            "write" => {
                let written = rustix::io::write(file, words[2].as_bytes())?;
                assert_eq!(written, words[2].len());
            }
            "pwrite" => {
                let written = rustix::io::pwrite(file, words[3].as_bytes(), number(words[2]))?;
                assert_eq!(written, words[3].len());
            }
            "fread" => {
                let mut buffer = vec![0; number(words[3]) as usize];
                let read = rustix::io::pread(file, &mut *buffer, number(words[2]))?;
                return Ok(shown(&buffer[..read]));
            }
            "fchmod" => rustix::fs::fchmod(file, Mode::from_raw_mode(octal(words[2])))?,
            "fchown" => rustix::fs::fchown(file, user(words[2]), group(words[3]))?,
            "ftruncate" => rustix::fs::ftruncate(file, number(words[2]))?,
            "fstat" => return Ok(described(&rustix::fs::fstat(file)?)),
            "allocate" => {
                let mode = FallocateFlags::from_bits_retain(number(words[2]) as u32);
                rustix::fs::fallocate(file, mode, number(words[3]), number(words[4]))?;
            }
            "seek_data" => {
                return Ok(rustix::fs::seek(file, SeekFrom::Data(number(words[2])))?.to_string());
            }
            _ => {
                return Ok(rustix::fs::seek(file, SeekFrom::Hole(number(words[2])))?.to_string());
            }
        }
        Ok(String::new())
    }

    fn tell(&mut self, words: &[&str]) -> Result<String> {
        let path = self.path(words[1]);
        match words[0] {
            "stat" => Ok(described(&rustix::fs::stat(path)?)),
            "lstat" => Ok(described(&rustix::fs::lstat(path)?)),
            "times" => {
                let stat = rustix::fs::lstat(path)?;
                Ok(format!("{} {}", stat.st_atime, stat.st_mtime))
            }
            "mark" => {
                self.marks.insert(words[1].into(), rustix::fs::lstat(path)?);
                std::thread::sleep(TICK);
                Ok(String::new())
            }
            "touched" => {
                let (before, now) = (self.marks[words[1]], rustix::fs::lstat(path)?);
                let modified = (now.st_mtime, now.st_mtime_nsec);
                let changed = (now.st_ctime, now.st_ctime_nsec);
                let modified = modified > (before.st_mtime, before.st_mtime_nsec);
                let changed = changed > (before.st_ctime, before.st_ctime_nsec);
                Ok(match (modified, changed) {
                    (false, false) => "nothing",
                    (true, false) => "modified",
                    (false, true) => "changed",
                    (true, true) => "modified changed",
                }
                .into())
            }
            "ls" => {
                let entries = std::fs::read_dir(path).map_err(|error| system(&error))?;
                let names: std::io::Result<Vec<_>> =
                    entries.map(|entry| Ok(entry?.file_name().into_string().unwrap())).collect();
                let mut names = names.map_err(|error| system(&error))?;
                names.sort();
                Ok(if names.is_empty() { "nothing".into() } else { names.join(" ") })
            }
            "read" => Ok(shown(&std::fs::read(path).map_err(|error| system(&error))?)),
            "readlink" => {
                let target = rustix::fs::readlink(path, Vec::new())?;
                Ok(target.into_string().unwrap())
            }
            "access" => {
                let mut access = Access::EXISTS;
                access.set(Access::READ_OK, words[2].contains('r'));
                access.set(Access::WRITE_OK, words[2].contains('w'));
                access.set(Access::EXEC_OK, words[2].contains('x'));
                rustix::fs::accessat(CWD, path, access, AtFlags::empty())?;
                Ok(String::new())
            }
            "getxattr" => {
                let most = words.get(3).map_or(100, |len| number(len) as usize);
                if most == 0 {
                    return Ok(rustix::fs::lgetxattr_query(path, words[2])?.to_string());
                }
                let mut buffer = vec![0; most];
                let len = rustix::fs::lgetxattr(path, words[2], &mut *buffer)?;
                Ok(shown(&buffer[..len]))
            }
            _ => {
                let mut buffer = vec![0; 1000];
                let len = rustix::fs::llistxattr(path, &mut *buffer)?;
                let names = String::from_utf8_lossy(&buffer[..len]).replace('\0', " ");
                // SELinux and its like have names of their own.
                let mut names: Vec<&str> =
                    names.split(' ').filter(|name| name.starts_with("user.")).collect();
                names.sort_unstable();
                Ok(if names.is_empty() { "nothing".into() } else { names.join(" ") })
            }
        }
    }

    fn change(&mut self, words: &[&str]) -> Result<()> {
        let at = self.path(words.get(1).unwrap_or(&"."));
        let second = |nth: usize| self.path(words[nth]);
        match words[0] {
            "create" => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                rustix::fs::open(at, flags, Mode::from_raw_mode(octal(words[2]))).map(drop)
            }
            "fill" => {
                let file = rustix::fs::open(at, OFlags::WRONLY | OFlags::TRUNC, Mode::empty())?;
                rustix::io::write(file, words[2].as_bytes()).map(drop)
            }
            "mkdir" => rustix::fs::mkdir(at, Mode::from_raw_mode(octal(words[2]))),
            "mkfifo" => make(at, FileType::Fifo, words[2]),
            "mksocket" => make(at, FileType::Socket, words[2]),
            "mkfile" => make(at, FileType::RegularFile, words[2]),
            "link" => rustix::fs::link(at, second(2)),
            "symlink" => rustix::fs::symlink(words[1], second(2)),
            "unlink" => rustix::fs::unlink(at),
            "rmdir" => rustix::fs::rmdir(at),
            "rename" => rustix::fs::rename(at, second(2)),
            "swap" => rustix::fs::renameat_with(CWD, at, CWD, second(2), RenameFlags::EXCHANGE),
            "rename_new" => {
                rustix::fs::renameat_with(CWD, at, CWD, second(2), RenameFlags::NOREPLACE)
            }
            "chmod" => rustix::fs::chmod(at, Mode::from_raw_mode(octal(words[2]))),
            "chown" => rustix::fs::chown(at, user(words[2]), group(words[3])),
            "lchown" => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(CWD, at, user(words[2]), group(words[3]), flags)
            }
            "truncate" => truncate(&at, words[2]),
            "utimens" => utimens(at, words, AtFlags::empty()),
            "lutimens" => utimens(at, words, AtFlags::SYMLINK_NOFOLLOW),
            "setxattr" => {
                let flags = XattrFlags::from_bits_retain(
                    words.get(4).map_or(0, |flags| number(flags) as u32),
                );
                rustix::fs::lsetxattr(at, words[2], words[3].as_bytes(), flags)
            }
            "removexattr" => rustix::fs::lremovexattr(at, words[2]),
            "turn" => {
                std::thread::sleep(TICK);
                Ok(())
            }
            other => panic!("no command {other}"),
        }
    }
}

/// `truncate` of a path is an open and a change of length: the same permissions count.
fn truncate(at: &std::path::Path, len: &str) -> Result<()> {
    let file = rustix::fs::open(at, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
    rustix::fs::ftruncate(file, number(len))
}

fn utimens(at: PathBuf, words: &[&str], flags: AtFlags) -> Result<()> {
    let time = |word: &str| match word {
        "now" => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        "-" => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        seconds => Timespec { tv_sec: seconds.parse().unwrap(), tv_nsec: 123_456_789 },
    };
    let times = Timestamps { last_access: time(words[2]), last_modification: time(words[3]) };
    rustix::fs::utimensat(CWD, at, &times, flags)
}

fn make(at: PathBuf, kind: FileType, mode: &str) -> Result<()> {
    rustix::fs::mknodat(CWD, at, kind, Mode::from_raw_mode(octal(mode)), 0)
}

fn become_user(user: &User) {
    let groups: Vec<Gid> = user.others.iter().map(|group| Gid::from_raw(*group)).collect();
    rustix::thread::set_thread_groups(&groups).unwrap();
    let (group, user) = (Gid::from_raw(user.group), Uid::from_raw(user.user));
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

fn described(stat: &Stat) -> String {
    let mode = stat.st_mode;
    let kind = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        _ => "other",
    };
    let size = if kind == "dir" { "-".into() } else { stat.st_size.to_string() };
    let (user, group, links) = (stat.st_uid, stat.st_gid, stat.st_nlink);
    format!("{kind} {:04o} {links} {user}:{group} {size}", mode & 0o7777)
}

fn flags(text: &str) -> OFlags {
    let mut flags = OFlags::NONBLOCK;
    for word in text.split('+') {
        flags |= match word {
            "r" => OFlags::RDONLY,
            "w" => OFlags::WRONLY,
            "rw" => OFlags::RDWR,
            "creat" => OFlags::CREATE,
            "excl" => OFlags::EXCL,
            "trunc" => OFlags::TRUNC,
            "append" => OFlags::APPEND,
            "dir" => OFlags::DIRECTORY,
            "nofollow" => OFlags::NOFOLLOW,
            other => panic!("no flag {other}"),
        };
    }
    flags
}

fn octal(text: &str) -> u32 {
    u32::from_str_radix(text, 8).unwrap()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

fn user(text: &str) -> Option<Uid> {
    (text != "-").then(|| Uid::from_raw(text.parse().unwrap()))
}

fn group(text: &str) -> Option<Gid> {
    (text != "-").then(|| Gid::from_raw(text.parse().unwrap()))
}

fn shown(bytes: &[u8]) -> String {
    if bytes.is_empty() { "empty".into() } else { bytes.escape_ascii().to_string() }
}

fn system(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn name_of(error: Errno) -> String {
    const NAMES: [(Errno, &str); 24] = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::NXIO, "ENXIO"),
        (Errno::BADF, "EBADF"),
        (Errno::ACCESS, "EACCES"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::ROFS, "EROFS"),
        (Errno::MLINK, "EMLINK"),
        (Errno::RANGE, "ERANGE"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::NODATA, "ENODATA"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::STALE, "ESTALE"),
        (Errno::TXTBSY, "ETXTBSY"),
    ];
    let found = NAMES.iter().find(|(known, _)| *known == error);
    found.map_or_else(|| error.to_string(), |(_, name)| (*name).into())
}
