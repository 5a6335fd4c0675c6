//! [`Files`]: a client as a file system, and how it is asked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr,
};
use landfall_files::{
    Attributes, Caller, Entries, Entry, EntryName, Errno, FileKind, Name, Release, Reply, Request,
    Time,
};

use super::MountOptions;
use super::convert::{attributes, errno, error};
use super::fresh::FreshDirectories;
use crate::files::Client;

/// The number of an inode is used again only when nobody knows it any more.
pub(super) const GENERATION: Generation = Generation(0);

/// `ENOSYS`: the kernel does not ask again.
pub(super) const NEVER: fuser::Errno = fuser::Errno::ENOSYS;

/// What of a file's memory in the kernel stays valid: the kernel compares times and lengths.
pub(super) const OPENED: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);

/// A client as a file system.
pub(super) struct Files {
    pub(super) client: Arc<Client>,
    pub(super) timeout: Duration,
    pub(super) extended: bool,
    pub(super) fresh: FreshDirectories,
    /// Bytes of entries that the kernel has room for at a time, as far as is known.
    directory: AtomicU32,
    /// Memory for data that is read, to be used again.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Files {
    pub(super) fn new(client: Arc<Client>, options: &MountOptions) -> Self {
        let MountOptions { timeout, extended, .. } = *options;
        Self {
            client,
            timeout,
            extended,
            fresh: FreshDirectories::default(),
            directory: AtomicU32::new(ENTRIES),
            buffers: Mutex::default(),
        }
    }

    pub(super) fn ask(
        &self,
        req: &fuser::Request,
        request: Request,
    ) -> Result<Reply, fuser::Errno> {
        self.client.call(caller(req), request).map_err(|failed| error(&failed))
    }

    /// Asks for a node, and tells the kernel of it.
    pub(super) fn found(
        &self,
        req: &fuser::Request,
        request: Result<Request, fuser::Errno>,
        reply: ReplyEntry,
    ) {
        self.tell(&request.and_then(|request| self.ask(req, request)), reply);
    }

    fn tell(&self, answer: &Result<Reply, fuser::Errno>, reply: ReplyEntry) {
        match answer {
            Ok(Reply::Found { attributes: found }) => {
                reply.entry(&self.timeout, &attributes(found), GENERATION);
            }
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(*error),
        }
    }

    /// Looks for a name. The kernel is told, too, that there is none, and asks no more for as long
    /// as it believes all else: compilers look for each header in several directories.
    pub(super) fn look_up(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: Name,
        reply: ReplyEntry,
    ) {
        match self.ask(req, Request::Lookup { parent: parent.0, name }) {
            Err(error) if error == fuser::Errno::ENOENT => {
                let attributes = nothing(FileKind::Regular);
                self.tell(&Ok(Reply::Found { attributes }), reply);
            }
            answer => self.tell(&answer, reply),
        }
    }

    pub(super) fn known(&self, req: &fuser::Request, request: Request, reply: ReplyAttr) {
        match self.ask(req, request) {
            Ok(Reply::Known { attributes: found }) => {
                reply.attr(&self.timeout, &attributes(&found));
            }
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    pub(super) fn done(
        &self,
        req: &fuser::Request,
        request: Result<Request, fuser::Errno>,
        reply: ReplyEmpty,
    ) {
        match request.and_then(|request| self.ask(req, request)) {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    /// Asks for data, and hands it to `tell`.
    pub(super) fn with_data<T>(
        &self,
        req: &fuser::Request,
        request: Request,
        tell: impl FnOnce(Result<(u64, &[u8]), fuser::Errno>) -> T,
    ) -> T {
        let pool = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = pool().pop().unwrap_or_default();
        let told = match self.client.call_into(caller(req), request, &mut buffer) {
            Ok(Reply::Bytes { len }) => {
                let there = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
                tell(Ok((len, &buffer[..there])))
            }
            Ok(_) => tell(Err(fuser::Errno::EIO)),
            Err(failed) => tell(Err(error(&failed))),
        };
        pool().push(buffer);
        told
    }

    /// Reads entries of a directory and tells the kernel of them with `add`, until that has no room
    /// for one, which it says by true. With their attributes, where these are wanted.
    pub(super) fn read_entries(
        &self,
        req: &fuser::Request,
        handle: FileHandle,
        cookie: u64,
        attributes: bool,
        mut add: impl FnMut(&Entry) -> bool,
    ) -> Result<(), fuser::Errno> {
        let len = self.directory.load(Ordering::Relaxed);
        let request = Request::ReadDirectory { handle: handle.0, cookie, len, attributes };
        self.with_data(req, request, |read| {
            let (_, bytes) = read?;
            let mut is_full = false;
            for entry in Entries::new(bytes).map_while(Result::ok) {
                is_full = is_full || add(&entry);
                if is_full && known_of(&entry).is_some() {
                    // The server believes that the kernel was told of it.
                    self.forget_one(INodeNo(entry.node), 1);
                }
            }
            if is_full {
                self.directory.store(FEW_ENTRIES, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// A name that is about to be made.
    pub(super) fn new_name(&self, parent: INodeNo, text: &OsStr) -> Result<Name, fuser::Errno> {
        let name = name(text)?;
        self.fresh.name_made(parent.0, &name);
        Ok(name)
    }

    pub(super) fn forget_one(&self, node: INodeNo, count: u64) {
        self.fresh.forget(node.0);
        self.client.release(Release::Node { node: node.0, count });
    }
}

pub(super) fn caller(req: &fuser::Request) -> Caller {
    Caller { user: req.uid(), group: req.gid() }
}

pub(super) fn name(text: &OsStr) -> Result<Name, fuser::Errno> {
    // `ENAMETOOLONG`, as any file system says; other names the kernel does not let through.
    let too_long = || if text.len() > 255 { Errno::new(36) } else { Errno::INVALID };
    Name::new(text.as_bytes()).map_err(|_| errno(too_long()))
}

impl Files {
    /// The name of an attribute that goes to the server.
    pub(super) fn extended_name(&self, text: &OsStr) -> Result<Name, fuser::Errno> {
        if !self.extended {
            return Err(NEVER);
        }
        // The server keeps no others; the kernel asks for some with each write.
        if !text.as_bytes().starts_with(b"user.") {
            return Err(fuser::Errno::EOPNOTSUPP);
        }
        name(text)
    }
}

pub(super) fn extended(read: Result<(u64, &[u8]), fuser::Errno>, len: u32, reply: ReplyXattr) {
    match read {
        Ok((needed, _)) if len == 0 => reply.size(u32::try_from(needed).unwrap_or(u32::MAX)),
        Ok((_, bytes)) => reply.data(bytes),
        Err(error) => reply.error(error),
    }
}

/// What fits into the room for entries that programs usually have, 32 KiB: an entry of the kernel
/// is longer than one of the protocol by a half.
const ENTRIES: u32 = (32 << 10) / 3 * 2;

/// What fits into the least room that the kernel has.
const FEW_ENTRIES: u32 = 4096 / 3 * 2;

/// The attributes of a node of which the server counts that the kernel was told.
pub(super) fn known_of(entry: &Entry) -> Option<Attributes> {
    entry.attributes.filter(|_| matches!(entry.name, EntryName::Named(_)))
}

/// An entry without attributes.
pub(super) fn nothing_of(entry: &Entry) -> Attributes {
    nothing(entry.kind.unwrap_or(FileKind::Regular))
}

/// Node zero: there is none, or nothing is known of it.
fn nothing(kind: FileKind) -> Attributes {
    let time = Time::default();
    Attributes {
        node: 0,
        kind,
        permissions: 0,
        links: 0,
        user: 0,
        group: 0,
        device: 0,
        block_size: 0,
        size: 0,
        blocks: 0,
        accessed: time,
        modified: time,
        changed: time,
    }
}
