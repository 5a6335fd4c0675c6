//! [`DeviceFile`]: what the kernel asks: one file, and perhaps the folder that it is in.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use landfall_nbd::Features;
use rustix::fs::FallocateFlags;
use rustix::process::{getgid, getuid};

use super::request::{Job, Requests};

/// The kernel asks for so much at a time, whatever it may.
const LARGEST: u32 = 1 << 20;
/// The kernel may have this many requests under way.
const DEPTH: u16 = 64;
/// Zeroes are asked for by pieces of this length.
const ZEROES: u64 = 1 << 30;
/// For how long the kernel does not ask for attributes again: a device may change its size.
const FRESH: Duration = Duration::from_secs(1);

/// Kept for what is asked about the file where it is in a folder.
const BELOW: INodeNo = INodeNo(2);

pub(super) struct DeviceFile {
    requests: Arc<Requests>,
    /// The name of the file in its folder; without one the file itself is the mount.
    name: Option<String>,
    read_only: bool,
    started: SystemTime,
    features: Features,
    block: u32,
}

impl DeviceFile {
    pub(super) fn new(requests: Arc<Requests>, name: Option<String>, read_only: bool) -> Self {
        let export = requests.client().export();
        let (features, block) = (export.features, export.blocks.preferred);
        Self { requests, name, read_only, started: SystemTime::now(), features, block }
    }

    const fn is_file(&self, inode: INodeNo) -> bool {
        inode.0 == if self.name.is_some() { BELOW.0 } else { INodeNo::ROOT.0 }
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = self.is_file(inode);
        let size = if is_file { self.requests.client().size() } else { 0 };
        let perm = match (is_file, self.read_only) {
            (true, false) => 0o600,
            (true, true) => 0o400,
            (false, _) => 0o700,
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: self.started,
            mtime: self.started,
            ctime: self.started,
            crtime: self.started,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm,
            nlink: if is_file { 1 } else { 2 },
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            rdev: 0,
            blksize: self.block,
            flags: 0,
        }
    }

    /// Zeroes, by pieces that a server of any kind takes.
    fn zero(&self, range: Range, no_hole: bool, reply: ReplyEmpty) {
        if !self.features.has(Features::WRITE_ZEROES) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let client = self.requests.client();
        let pieces = (range.begin..range.end).step_by(ZEROES as usize);
        let parts =
            pieces.map(|at| client.write_zeroes(at, ZEROES.min(range.end - at), no_hole)).collect();
        self.requests.follow_all(parts, reply);
    }
}

/// A part of the device.
#[derive(Clone, Copy)]
struct Range {
    begin: u64,
    end: u64,
}

impl Filesystem for DeviceFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let largest = self.requests.client().export().blocks.maximum.clamp(4096, LARGEST);
        // Where the kernel wants less, it has less.
        let _ = config.set_max_write(largest);
        let _ = config.set_max_background(DEPTH);
        let useful = [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP];
        for one in useful {
            // Older kernels do without.
            let _ = config.add_capabilities(one);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.name.as_deref().map(OsStr::new) == Some(name) {
            reply.entry(&FRESH, &self.attributes(BELOW), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FRESH, &self.attributes(inode));
    }

    /// Programs truncate what they write, and set times. A device has its size, and no times.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FRESH, &self.attributes(inode));
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if !self.is_file(inode) {
            return reply.error(Errno::EISDIR);
        }
        if self.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let direct = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), direct);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let client = self.requests.client();
        let here = client.size().saturating_sub(offset).min(size.into());
        if here == 0 {
            return reply.data(&[]);
        }
        let pending = client.read(offset, self.requests.buffer(here as usize));
        self.requests.follow(Job::Read(pending, reply));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let client = self.requests.client();
        let fits = client.size().saturating_sub(offset).min(data.len() as u64) as usize;
        if fits == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let pending = client.write(offset, self.requests.buffer_of(&data[..fits]));
        self.requests.follow(Job::Write(pending, fits as u32, reply));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Without it everything that was answered is on the medium already.
        let flush = self.features.has(Features::FLUSH).then(|| self.requests.client().flush());
        self.requests.follow_all(flush.into_iter().collect(), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let size = self.requests.client().size();
        let range = Range { begin: offset.min(size), end: offset.saturating_add(length).min(size) };
        let flags = FallocateFlags::from_bits_retain(mode as u32) - FallocateFlags::KEEP_SIZE;
        if flags == FallocateFlags::PUNCH_HOLE {
            self.zero(range, false, reply);
        } else if flags == FallocateFlags::ZERO_RANGE {
            self.zero(range, true, reply);
        } else {
            reply.error(Errno::EOPNOTSUPP);
        }
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(name) = &self.name else { return reply.error(Errno::ENOTDIR) };
        let entries = [
            (inode, FileType::Directory, "."),
            (inode, FileType::Directory, ".."),
            (BELOW, FileType::RegularFile, name),
        ];
        for (next, (inode, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
