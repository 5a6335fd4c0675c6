//! Requests that move or make data: files, directories' entries, extended attributes.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use landfall_files::{Entry, EntryName, Errno, FileKind, Name, Reply, Request, open};
use rustix::fs::{FallocateFlags, FileType, OFlags, RawDir, SeekFrom, XattrFlags};
use rustix::io::ReadWriteFlags;

use super::errno;
use super::export::Export;
use super::operations::RequestContext;
use super::session::Handle;

type Answer = Result<Reply, Errno>;

/// Data that goes with a reply. Its memory is used again and again, so that it is zeroed once.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    memory: Vec<u8>,
    len: usize,
}

impl Outgoing {
    /// Room for this many bytes, none of which counts before [`filled`](Self::filled).
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        self.len = 0;
        if self.memory.len() < len {
            self.memory.resize(len, 0);
        }
        &mut self.memory[..len]
    }

    fn filled(&mut self, len: usize) {
        self.len = len.min(self.memory.len());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len = bytes.len();
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

/// Bytes of one look at a directory.
const DIRECTORY_BUFFER: usize = 32 << 10;

/// What extended attributes clients may see and set.
const EXTENDED: &[u8] = b"user.";

impl RequestContext<'_> {
    /// Carries out what moves data: `incoming` came with the request, `outgoing` goes with the
    /// reply, at most `most` bytes.
    pub(super) fn answer_with(
        self,
        request: &Request,
        incoming: &[u8],
        outgoing: &mut Outgoing,
        most: u32,
    ) -> Answer {
        match request {
            Request::Open { node, flags } => self.open(*node, *flags),
            Request::Create { parent, name, mode, flags } => {
                self.create((*parent, name), *mode, *flags)
            }
            Request::Read { handle, offset, len } => {
                self.read(*handle, *offset, (*len).min(most), outgoing)
            }
            Request::Write { handle, offset, append, .. } => {
                self.write(*handle, *offset, *append, incoming)
            }
            Request::Sync { handle, data_only } => {
                let handle = self.session.handle(*handle)?;
                match data_only {
                    true => rustix::fs::fdatasync(&handle.file),
                    false => rustix::fs::fsync(&handle.file),
                }
                .map_err(errno)?;
                Ok(Reply::Done {})
            }
            Request::OpenDirectory { node } => {
                let node = self.session.node(*node)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let file = self.export.reopen(&node.file, flags)?;
                self.opened(file, Some(Mutex::default()))
            }
            Request::ReadDirectory { handle, cookie, len, attributes } => {
                self.read_directory(*handle, *cookie, ((*len).min(most), *attributes), outgoing)
            }
            Request::Allocate { handle, offset, len, mode } => {
                let handle = self.session.handle(*handle)?;
                let mode = FallocateFlags::from_bits(*mode).ok_or(Errno::NOT_SUPPORTED)?;
                rustix::fs::fallocate(&handle.file, mode, *offset, *len).map_err(errno)?;
                Ok(Reply::Done {})
            }
            Request::Seek { handle, offset, data } => {
                let handle = self.session.handle(*handle)?;
                let to = if *data { SeekFrom::Data(*offset) } else { SeekFrom::Hole(*offset) };
                let offset = rustix::fs::seek(&handle.file, to).map_err(errno)?;
                Ok(Reply::Place { offset })
            }
            Request::Copy { from, from_offset, to, to_offset, len } => {
                self.copy((*from, *from_offset), (*to, *to_offset), *len)
            }
            Request::GetExtended { .. }
            | Request::SetExtended { .. }
            | Request::ListExtended { .. }
            | Request::RemoveExtended { .. } => self.extended(request, incoming, outgoing, most),
            other => self.answer(other),
        }
    }

    fn opened(self, file: OwnedFd, directory: Option<Mutex<()>>) -> Answer {
        let handle = self.session.add_handle(Handle { file, directory })?;
        Ok(Reply::Opened { handle })
    }

    /// Only what has bytes: to open a pipe or a device could wait, or do something.
    fn open(self, node: u64, flags: u32) -> Answer {
        let node = self.session.node(node)?;
        match node.kind {
            FileKind::Regular => {}
            // `EISDIR`
            FileKind::Directory => return Err(Errno::new(21)),
            _ => return Err(Errno::INVALID),
        }
        let file = self.export.reopen(&node.file, how(flags))?;
        self.opened(file, None)
    }

    fn create(self, at: (u64, &Name), mode: u32, flags: u32) -> Answer {
        let parent = self.session.node(at.0)?;
        let exclusive = if flags & open::EXCLUSIVE != 0 { OFlags::EXCL } else { OFlags::empty() };
        let how = how(flags) | exclusive;
        let file = self.export.create((&parent.file, at.1), mode, how, self.caller)?;
        // Somebody may have made another thing of that name just now.
        let attributes = self.export.attributes(&file)?;
        if attributes.kind != FileKind::Regular {
            return Err(Errno::INVALID);
        }
        let node = self.export.node_of(&file)?;
        let handle = self.session.add_handle(Handle { file, directory: None })?;
        self.session.tell(&attributes, node)?;
        Ok(Reply::Created { attributes, handle })
    }

    fn read(self, handle: u64, offset: u64, len: u32, outgoing: &mut Outgoing) -> Answer {
        let handle = self.session.handle(handle)?;
        let len = len as usize;
        let room = outgoing.room(len);
        let mut filled = 0;
        while filled < len {
            let at = offset + filled as u64;
            match rustix::io::pread(&handle.file, &mut room[filled..], at).map_err(errno)? {
                0 => break,
                read => filled += read,
            }
        }
        outgoing.filled(filled);
        Ok(Reply::Bytes { len: filled as u64 })
    }

    fn write(self, handle: u64, offset: u64, append: bool, bytes: &[u8]) -> Answer {
        let handle = self.session.handle(handle)?;
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let wrote = match append {
                true => {
                    let flags = ReadWriteFlags::APPEND;
                    rustix::io::pwritev2(&handle.file, &[IoSlice::new(rest)], 0, flags)
                }
                false => rustix::io::pwrite(&handle.file, rest, offset + written as u64),
            };
            match wrote {
                Ok(0) => break,
                Ok(more) => written += more,
                // What was written before it stays.
                Err(_) if written > 0 => break,
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(Reply::Bytes { len: written as u64 })
    }

    fn copy(self, from: (u64, u64), to: (u64, u64), len: u64) -> Answer {
        let (source, sink) = (self.session.handle(from.0)?, self.session.handle(to.0)?);
        // Within the patience of a client, which asks for more.
        let len = usize::try_from(len.min(64 << 20)).unwrap_or(0);
        let (mut read_at, mut write_at) = (from.1, to.1);
        let copied = rustix::fs::copy_file_range(
            &source.file,
            Some(&mut read_at),
            &sink.file,
            Some(&mut write_at),
            len,
        );
        Ok(Reply::Bytes { len: copied.map_err(errno)? as u64 })
    }

    fn read_directory(
        self,
        handle: u64,
        cookie: u64,
        (most, attributes): (u32, bool),
        outgoing: &mut Outgoing,
    ) -> Answer {
        let handle = self.session.handle(handle)?;
        // `ENOTDIR`
        let lock = handle.directory.as_ref().ok_or(Errno::new(20))?;
        let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::seek(&handle.file, SeekFrom::Start(cookie)).map_err(errno)?;
        let mut found = Vec::with_capacity(most as usize);
        let mut buffer = [MaybeUninit::uninit(); DIRECTORY_BUFFER];
        let mut entries = RawDir::new(&handle.file, &mut buffer);
        while let Some(read) = entries.next() {
            let read = read.map_err(errno)?;
            let Ok(name) = EntryName::new(read.file_name().to_bytes()) else {
                // No file system has such a name.
                continue;
            };
            let mut entry = Entry {
                node: self.export.node(read.ino()),
                cookie: read.next_entry_cookie(),
                kind: kind_of(read.file_type()),
                attributes: None,
                name,
            };
            if entry.name == EntryName::Above && self.is_root(&handle) {
                // What is above it is nobody's concern.
                entry.node = landfall_files::ROOT;
            }
            if !self.append(entry, &handle, (most as usize, attributes), &mut found)? {
                break;
            }
        }
        outgoing.put(&found);
        Ok(Reply::Bytes { len: found.len() as u64 })
    }

    fn is_root(self, handle: &Handle) -> bool {
        let attributes = self.export.attributes(&handle.file);
        attributes.is_ok_and(|attributes| attributes.node == landfall_files::ROOT)
    }

    /// Appends an entry, if it fits, and tells the client of its node, if it wants to know.
    fn append(
        self,
        mut entry: Entry,
        handle: &Handle,
        (most, attributes): (usize, bool),
        found: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        if !attributes {
            return Ok(entry.append(found, most));
        }
        if found.len() + Entry::MOST > most {
            return Ok(false);
        }
        if let EntryName::Named(name) = &entry.name
            // One that is gone since, or is another file system, has none.
            && let Ok(node) = self.export.entry(&handle.file, name)
        {
            let attributes = self.tell(node)?;
            (entry.node, entry.attributes) = (attributes.node, Some(attributes));
        }
        Ok(entry.append(found, most))
    }

    fn extended(
        self,
        request: &Request,
        incoming: &[u8],
        outgoing: &mut Outgoing,
        most: u32,
    ) -> Answer {
        let (Request::GetExtended { node, .. }
        | Request::SetExtended { node, .. }
        | Request::ListExtended { node, .. }
        | Request::RemoveExtended { node, .. }) = request
        else {
            return Err(Errno::INVALID);
        };
        let path = Export::path_of(&self.session.node(*node)?.file);
        let len = match request {
            Request::GetExtended { name, len: 0, .. } => {
                rustix::fs::getxattr_query(&*path, allowed(name)?).map_err(errno)?
            }
            Request::GetExtended { name, len, .. } => {
                let room = outgoing.room((*len).min(most) as usize);
                let found = rustix::fs::getxattr(&*path, allowed(name)?, room).map_err(errno)?;
                outgoing.filled(found);
                found
            }
            Request::ListExtended { len, .. } => list_extended(&path, *len, outgoing)?,
            Request::SetExtended { name, flags, .. } => {
                let flags = XattrFlags::from_bits(*flags).ok_or(Errno::INVALID)?;
                rustix::fs::setxattr(&*path, allowed(name)?, incoming, flags).map_err(errno)?;
                0
            }
            Request::RemoveExtended { name, .. } => {
                rustix::fs::removexattr(&*path, allowed(name)?).map_err(errno)?;
                0
            }
            _ => 0,
        };
        Ok(Reply::Bytes { len: len as u64 })
    }
}

/// Of all names those that clients may see.
fn list_extended(path: &str, len: u32, outgoing: &mut Outgoing) -> Result<usize, Errno> {
    let mut all = vec![0; 64 << 10];
    let listed = rustix::fs::listxattr(path, &mut *all).map_err(errno)?;
    all.truncate(listed);
    let names = all.split_inclusive(|byte| *byte == 0).filter(|name| name.starts_with(EXTENDED));
    let seen: Vec<u8> = names.flatten().copied().collect();
    match len {
        0 => {}
        len if seen.len() > len as usize => return Err(Errno::RANGE),
        _ => outgoing.put(&seen),
    }
    Ok(seen.len())
}

fn allowed(name: &Name) -> Result<&[u8], Errno> {
    let is_good = name.bytes().starts_with(EXTENDED);
    if is_good { Ok(name.bytes()) } else { Err(Errno::NOT_SUPPORTED) }
}

/// Where bytes are appended is said with each write.
fn how(flags: u32) -> OFlags {
    let access = match (flags & open::READ != 0, flags & open::WRITE != 0) {
        (_, false) => OFlags::RDONLY,
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
    };
    let truncate = if flags & open::TRUNCATE != 0 { OFlags::TRUNC } else { OFlags::empty() };
    access | truncate
}

fn kind_of(found: FileType) -> Option<FileKind> {
    Some(match found {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => return None,
    })
}
