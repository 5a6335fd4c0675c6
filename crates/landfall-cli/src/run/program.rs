//! Which file a name means, and what of it the library cannot do: who calls the kernel
//! without libc is not heard by what stands before libc.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why the library can do nothing, or not all, for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhyNot {
    Static,
    Go,
    IoUring,
    Privileged,
    Foreign,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "is linked statically, so nothing can be preloaded",
            Self::Go => "is written in Go, which calls the kernel without libc",
            Self::IoUring => "uses io_uring, which passes libc by where it is used for sockets",
            Self::Privileged => "changes its user or group, so the loader preloads nothing",
            Self::Foreign => "is for another kind of processor than the library",
        })
    }
}

/// The file, found as `exec` finds it.
pub(super) fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if is_a_path(name) {
        Some(PathBuf::from(name))
    } else {
        places(name).into_iter().find(is_program)
    }
}

/// Is there anything of this name, whatever it is? A path is taken to lead somewhere.
pub(super) fn is_there(name: &OsStr) -> bool {
    is_a_path(name) || places(name).iter().any(|path| path.exists())
}

fn is_a_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

/// Where a name is looked for.
fn places(name: &OsStr) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(name)).collect()
}

/// What stands in the way; `None` where nothing does, or where nothing is known.
pub(super) fn why_not(path: &Path) -> Option<WhyNot> {
    const SCRIPTS_OF_SCRIPTS: usize = 4;
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPTS_OF_SCRIPTS {
        let file = File::open(&path).ok()?;
        match interpreter(&file) {
            Some(next) => path = next,
            None => return of_file(&file),
        }
    }
    None
}

/// Of a script: what runs it.
fn interpreter(mut file: &File) -> Option<PathBuf> {
    let mut first = [0; 256];
    let len = file.read(&mut first).ok()?;
    let line = first[..len].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let program = PathBuf::from(OsStr::from_bytes(words.next()?));
    // `#!/usr/bin/env python3` means what env looks for.
    match program.file_name() {
        Some(name) if name == "env" => find(OsStr::from_bytes(words.next()?)).or(Some(program)),
        _ => Some(program),
    }
}

fn of_file(file: &File) -> Option<WhyNot> {
    const OF_ANOTHER: u32 = 0o6000;
    let elf = Elf::read(file)?;
    if elf.is_foreign {
        return Some(WhyNot::Foreign);
    }
    if elf.notes(file).any(|note| note == b"Go\0\0") {
        return Some(WhyNot::Go);
    }
    if !elf.has_loader() {
        return Some(WhyNot::Static);
    }
    if file.metadata().is_ok_and(|data| data.permissions().mode() & OF_ANOTHER != 0) {
        return Some(WhyNot::Privileged);
    }
    elf.libraries(file)
        .iter()
        .any(|name| name.starts_with(b"liburing.so"))
        .then_some(WhyNot::IoUring)
}

/// What the head of a program says of its parts (64 bits, as this machine has them).
struct Elf {
    is_foreign: bool,
    segments: Vec<Segment>,
}

#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    len: u64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// No part that is read here is longer in a program that means no harm.
const MOST: u64 = 1 << 20;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_ne_bytes)
}

fn read_at(file: &File, offset: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len.min(MOST)).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

impl Elf {
    /// `None` where it is no program of this format.
    fn read(file: &File) -> Option<Self> {
        const HEAD: u64 = 64;
        const OF_64_BITS: u8 = 2;
        let mut kind = [0; 20];
        file.read_exact_at(&mut kind, 0).ok()?;
        kind.strip_prefix(b"\x7fELF")?;
        // This program says what the machine has; the library is built as it is.
        let mut own = [0; 20];
        File::open("/proc/self/exe").ok()?.read_exact_at(&mut own, 0).ok()?;
        let is_foreign = kind[4..6] != own[4..6] || kind[18..20] != own[18..20];
        if is_foreign || kind[4] != OF_64_BITS {
            return Some(Self { is_foreign, segments: Vec::new() });
        }
        let head = read_at(file, 0, HEAD)?;
        let (start, size) = (word(&head, 32)?, u16::from_ne_bytes(number(&head, 54)?));
        let count = u16::from_ne_bytes(number(&head, 56)?);
        let table = read_at(file, start, u64::from(size) * u64::from(count))?;
        let segment = |entry: &[u8]| {
            Some(Segment {
                kind: u32::from_ne_bytes(number(entry, 0)?),
                offset: word(entry, 8)?,
                address: word(entry, 16)?,
                len: word(entry, 32)?,
            })
        };
        let segments = table.chunks_exact(usize::from(size).max(1)).filter_map(segment).collect();
        Some(Self { is_foreign, segments })
    }

    fn of_kind(&self, kind: u32) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.kind == kind)
    }

    fn has_loader(&self) -> bool {
        self.of_kind(PT_INTERP).next().is_some()
    }

    /// The names of those who left notes.
    fn notes(&self, file: &File) -> impl Iterator<Item = Vec<u8>> {
        let parts = self.of_kind(PT_NOTE).filter_map(|part| read_at(file, part.offset, part.len));
        parts.flat_map(|part| {
            let (mut at, mut names) = (0, Vec::new());
            while let (Some(name), Some(rest)) = (number(&part, at), number(&part, at + 4)) {
                let (name, rest) = (u32::from_ne_bytes(name), u32::from_ne_bytes(rest));
                let end = at + 12 + name as usize;
                names.extend(part.get(at + 12..end).map(<[u8]>::to_vec));
                at = end.next_multiple_of(4).saturating_add(rest as usize).next_multiple_of(4);
            }
            names
        })
    }

    /// The libraries that it asks for.
    fn libraries(&self, file: &File) -> Vec<Vec<u8>> {
        const NEEDED: u64 = 1;
        const STRINGS: u64 = 5;
        const LEN_OF_STRINGS: u64 = 10;
        let Some(part) = self.of_kind(PT_DYNAMIC).next() else { return Vec::new() };
        let Some(table) = read_at(file, part.offset, part.len) else { return Vec::new() };
        let entries: Vec<(u64, u64)> = table
            .chunks_exact(16)
            .filter_map(|entry| Some((word(entry, 0)?, word(entry, 8)?)))
            .collect();
        let value = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
        let strings = value(STRINGS).zip(value(LEN_OF_STRINGS));
        let Some(strings) = strings.and_then(|(address, len)| {
            let held = self.of_kind(PT_LOAD).find(|load| {
                address.checked_sub(load.address).is_some_and(|into| into < load.len)
            })?;
            read_at(file, held.offset + (address - held.address), len)
        }) else {
            return Vec::new();
        };
        let needed = entries.iter().filter(|entry| entry.0 == NEEDED);
        needed
            .filter_map(|entry| strings.get(usize::try_from(entry.1).ok()?..))
            .map(|name| name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head with these segments, and the bytes of them behind it.
    fn program(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let own = fs::read("/proc/self/exe").unwrap();
        let mut bytes = own[..64].to_vec();
        bytes[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&(segments.len() as u16).to_ne_bytes());
        let mut at = 64 + 56 * segments.len();
        for (kind, part) in segments {
            let mut entry = [0; 56];
            entry[..4].copy_from_slice(&kind.to_ne_bytes());
            for (place, value) in [(8, at), (16, at), (32, part.len())] {
                entry[place..place + 8].copy_from_slice(&(value as u64).to_ne_bytes());
            }
            bytes.extend(entry);
            at += part.len();
        }
        segments.iter().for_each(|(_, part)| bytes.extend(*part));
        bytes
    }

    fn why_not_of(name: &str, bytes: &[u8]) -> Option<WhyNot> {
        let path = env::temp_dir().join(format!("landfall-run-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        let found = why_not(&path);
        fs::remove_file(&path).unwrap();
        found
    }

    fn note(name: &[u8; 4]) -> Vec<u8> {
        let mut note = [4_u32.to_ne_bytes(), 8_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat();
        note.extend(name);
        note.extend([7; 8]);
        note
    }

    #[test]
    fn programs_without_libc_are_known() {
        assert_eq!(why_not(Path::new("/proc/self/exe")), None, "this one has libc");
        let (go, gnu) = (note(b"Go\0\0"), note(b"GNU\0"));
        let loader: (u32, &[u8]) = (PT_INTERP, b"/lib/loader\0");
        assert_eq!(why_not_of("static", &program(&[(PT_NOTE, &gnu)])), Some(WhyNot::Static));
        assert_eq!(why_not_of("fine", &program(&[loader, (PT_NOTE, &gnu)])), None);
        let both = [gnu, go].concat();
        assert_eq!(why_not_of("go", &program(&[loader, (PT_NOTE, &both)])), Some(WhyNot::Go));
    }

    #[test]
    fn programs_of_another_machine_are_known() {
        let mut other = program(&[]);
        other[18] ^= 0xFF;
        assert_eq!(why_not_of("foreign", &other), Some(WhyNot::Foreign));
    }

    #[test]
    fn the_libraries_of_a_program_are_read() {
        let own = File::open("/proc/self/exe").unwrap();
        let names = Elf::read(&own).unwrap().libraries(&own);
        assert!(names.iter().any(|name| name.starts_with(b"libc.so")), "{names:?}");
    }

    #[test]
    fn a_script_is_what_runs_it() {
        let script = |line: &str| why_not_of("script", format!("#!{line}\nx\n").as_bytes());
        assert_eq!(script("/proc/self/exe"), None);
        let path = env::temp_dir().join(format!("landfall-static-{}", std::process::id()));
        fs::write(&path, program(&[])).unwrap();
        assert_eq!(script(&format!(" {} -x", path.display())), Some(WhyNot::Static));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_cut_off_or_nonsense_is_not_judged() {
        let whole = program(&[(PT_INTERP, b"/lib"), (PT_NOTE, &note(b"Go\0\0"))]);
        for len in 0..whole.len() {
            let _ = why_not_of("cut", &whole[..len]);
        }
        let mut wild = whole;
        for at in 32..wild.len() {
            let before = std::mem::replace(&mut wild[at], 0xFF);
            let _ = why_not_of("wild", &wild);
            wild[at] = before;
        }
        assert_eq!(why_not_of("text", b"hello"), None);
    }
}
