//! What the kernel asks of a file system, asked of the server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, TimeOrNow, WriteFlags,
};
use landfall_files::{Errno, Release, Reply, Request, Target, rename};

use super::asking::{
    Files, GENERATION, NEVER, OPENED, caller, extended, known_of, name, nothing_of,
};
use super::convert::{appends, attributes, errno, error, file_type, open_flags, set_time};

impl Filesystem for Files {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let most = self.client.most_data();
        // Where the kernel allows less it is less.
        let _ = config.set_max_write(most);
        let _ = config.set_max_readahead(most);
        let _ = config.set_max_background(64);
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            // A kernel without it asks more often.
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, req: &fuser::Request, parent: INodeNo, text: &OsStr, reply: ReplyEntry) {
        let name = match name(text) {
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        if self.fresh.has_not(parent.0, &name, self.timeout) {
            return reply.error(fuser::Errno::ENOENT);
        }
        self.look_up(req, parent, name, reply);
    }

    fn forget(&self, _: &fuser::Request, node: INodeNo, count: u64) {
        self.forget_one(node, count);
    }

    fn getattr(
        &self,
        req: &fuser::Request,
        node: INodeNo,
        _: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.known(req, Request::GetAttributes { node: node.0 }, reply);
    }

    fn setattr(
        &self,
        req: &fuser::Request,
        node: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let request = Request::SetAttributes {
            node: node.0,
            handle: handle.map(|handle| handle.0),
            permissions: mode.map(|mode| (mode & 0o7777) as u16),
            user,
            group,
            size,
            accessed: accessed.map(set_time),
            modified: modified.map(set_time),
        };
        self.known(req, request, reply);
    }

    fn readlink(&self, req: &fuser::Request, node: INodeNo, reply: ReplyData) {
        match self.ask(req, Request::ReadLink { node: node.0 }) {
            Ok(Reply::Leads { target }) => reply.data(target.bytes()),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        text: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let request = |name| Request::MakeNode { parent: parent.0, name, mode, device };
        self.found(req, self.new_name(parent, text).map(request), reply);
    }

    fn mkdir(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        text: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let asked = Instant::now();
        let request = |name| Request::MakeDirectory { parent: parent.0, name, mode };
        let made = self.new_name(parent, text).map(request);
        match made.and_then(|request| self.ask(req, request)) {
            Ok(Reply::Found { attributes: made }) => {
                self.fresh.made(made.node, asked, self.timeout);
                reply.entry(&self.timeout, &attributes(&made), GENERATION);
            }
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, req: &fuser::Request, parent: INodeNo, text: &OsStr, reply: ReplyEmpty) {
        let request = name(text).map(|name| Request::Unlink { parent: parent.0, name });
        self.done(req, request, reply);
    }

    fn rmdir(&self, req: &fuser::Request, parent: INodeNo, text: &OsStr, reply: ReplyEmpty) {
        let request = name(text).map(|name| Request::RemoveDirectory { parent: parent.0, name });
        self.done(req, request, reply);
    }

    fn symlink(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        text: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = Target::new(target.as_os_str().as_bytes());
        let target = target.map_err(|_| errno(Errno::new(36)));
        let request = self
            .new_name(parent, text)
            .and_then(|name| Ok(Request::MakeSymlink { parent: parent.0, name, target: target? }));
        self.found(req, request, reply);
    }

    fn rename(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        text: &OsStr,
        new_parent: INodeNo,
        new_text: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let bits = flags.bits();
        let request = name(text).and_then(|name| {
            if bits & !rename::ALL != 0 {
                return Err(fuser::Errno::EINVAL);
            }
            let new_name = self.new_name(new_parent, new_text)?;
            let (parent, new_parent) = (parent.0, new_parent.0);
            Ok(Request::Rename { parent, name, new_parent, new_name, flags: bits })
        });
        self.done(req, request, reply);
    }

    fn link(
        &self,
        req: &fuser::Request,
        node: INodeNo,
        parent: INodeNo,
        text: &OsStr,
        reply: ReplyEntry,
    ) {
        let request = |name| Request::Link { node: node.0, parent: parent.0, name };
        self.found(req, self.new_name(parent, text).map(request), reply);
    }

    fn open(&self, req: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.ask(req, Request::Open { node: node.0, flags: open_flags(flags.0) }) {
            Ok(Reply::Opened { handle }) => reply.opened(FileHandle(handle), OPENED),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        text: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let flags = open_flags(flags);
        let request = |name| Request::Create { parent: parent.0, name, mode, flags };
        match self.new_name(parent, text).map(request).and_then(|request| self.ask(req, request)) {
            Ok(Reply::Created { attributes: made, handle }) => {
                let made = attributes(&made);
                reply.created(&self.timeout, &made, GENERATION, FileHandle(handle), OPENED);
            }
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let request = Request::Read { handle: handle.0, offset, len };
        self.with_data(req, request, |read| match read {
            Ok((_, bytes)) => reply.data(bytes),
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // What a program wrote into mapped memory has its place, whatever the file was opened for.
        let append = appends(flags.0) && !write.contains(WriteFlags::FUSE_WRITE_CACHE);
        let len = data.len() as u32;
        let request = Request::Write { handle: handle.0, offset, len, append };
        match self.client.call_with(caller(req), request, data) {
            Ok(Reply::Bytes { len }) => reply.written(u32::try_from(len).unwrap_or(u32::MAX)),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(failed) => reply.error(error(&failed)),
        }
    }

    /// Every write has told already whether it failed.
    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(NEVER);
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.client.release(Release::Handle { handle: handle.0 });
        reply.ok();
    }

    fn fsync(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.done(req, Ok(Request::Sync { handle: handle.0, data_only }), reply);
    }

    fn opendir(&self, req: &fuser::Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.ask(req, Request::OpenDirectory { node: node.0 }) {
            Ok(Reply::Opened { handle }) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let read = self.read_entries(req, handle, offset, false, |entry| {
            let kind = entry.kind.map_or(fuser::FileType::RegularFile, file_type);
            let text = OsStr::from_bytes(entry.name.bytes());
            reply.add(INodeNo(entry.node), entry.cookie, kind, text)
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let read = self.read_entries(req, handle, offset, true, |entry| {
            let known = known_of(entry);
            let told = known.unwrap_or_else(|| nothing_of(entry));
            let text = OsStr::from_bytes(entry.name.bytes());
            let timeout = if known.is_some() { self.timeout } else { Duration::ZERO };
            let (node, cookie) = (INodeNo(entry.node), entry.cookie);
            reply.add(node, cookie, text, &timeout, &attributes(&told), GENERATION)
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.client.release(Release::Handle { handle: handle.0 });
        reply.ok();
    }

    fn fsyncdir(
        &self,
        req: &fuser::Request,
        node: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(req, node, handle, data_only, reply);
    }

    fn statfs(&self, req: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        match self.ask(req, Request::Space {}) {
            Ok(Reply::Room { space }) => reply.statfs(
                space.blocks,
                space.free_blocks,
                space.available_blocks,
                space.nodes,
                space.free_nodes,
                space.block_size,
                space.longest_name,
                space.block_size,
            ),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        req: &fuser::Request,
        node: INodeNo,
        text: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let name = match self.extended_name(text) {
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        let (len, flags) = (value.len() as u32, flags as u32);
        let request = Request::SetExtended { node: node.0, name, len, flags };
        match self.client.call_with(caller(req), request, value) {
            Ok(_) => reply.ok(),
            Err(failed) => reply.error(error(&failed)),
        }
    }

    fn getxattr(
        &self,
        req: &fuser::Request,
        node: INodeNo,
        text: &OsStr,
        len: u32,
        reply: ReplyXattr,
    ) {
        let name = match self.extended_name(text) {
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        let request = Request::GetExtended { node: node.0, name, len };
        self.with_data(req, request, |read| extended(read, len, reply));
    }

    fn listxattr(&self, req: &fuser::Request, node: INodeNo, len: u32, reply: ReplyXattr) {
        if !self.extended {
            return reply.error(NEVER);
        }
        let request = Request::ListExtended { node: node.0, len };
        self.with_data(req, request, |read| extended(read, len, reply));
    }

    fn removexattr(&self, req: &fuser::Request, node: INodeNo, text: &OsStr, reply: ReplyEmpty) {
        let request = |name| Request::RemoveExtended { node: node.0, name };
        self.done(req, self.extended_name(text).map(request), reply);
    }

    fn fallocate(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let request = Request::Allocate { handle: handle.0, offset, len, mode: mode as u32 };
        self.done(req, Ok(request), reply);
    }

    fn lseek(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const DATA: i32 = 3;
        let request = match u64::try_from(offset) {
            Ok(offset) => Request::Seek { handle: handle.0, offset, data: whence == DATA },
            // `ENXIO`
            Err(_) => return reply.error(errno(Errno::new(6))),
        };
        match self.ask(req, request) {
            Ok(Reply::Place { offset }) => reply.offset(i64::try_from(offset).unwrap_or(i64::MAX)),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // A reply of the kernel's has 32 bits.
        let len = len.min(1 << 30);
        let request = Request::Copy { from: from.0, from_offset, to: to.0, to_offset, len };
        match self.ask(req, request) {
            Ok(Reply::Bytes { len }) => reply.written(u32::try_from(len).unwrap_or(u32::MAX)),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(error),
        }
    }
}
