//! Requests of a session, carried out on its export: names and attributes.

use std::os::fd::OwnedFd;

use landfall_files::{
    Attributes, Caller, Errno, FileKind, Name, Reply, Request, SetTime, Space, Target, rename,
};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    Uid,
};

use super::errno;
use super::export::Export;
use super::session::{Node, Session};

/// A request's place: who asks, in which session, of which export.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub(super) export: &'a Export,
    pub(super) session: &'a Session,
    pub(super) caller: Caller,
}

type Answer = Result<Reply, Errno>;

impl RequestContext<'_> {
    /// Carries out what changes or tells names and attributes.
    pub(super) fn answer(self, request: &Request) -> Answer {
        match request {
            Request::Lookup { parent, name } => self.lookup(*parent, name),
            Request::GetAttributes { node } => {
                let node = self.session.node(*node)?;
                Ok(Reply::Known { attributes: self.export.attributes(&*node.file)? })
            }
            Request::SetAttributes { .. } => self.set_attributes(request),
            Request::ReadLink { node } => self.read_link(*node),
            Request::MakeNode { parent, name, mode, device } => {
                self.make_node((*parent, name), *mode, *device)
            }
            Request::MakeDirectory { parent, name, mode } => {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                self.make((*parent, name), |parent| {
                    rustix::fs::mkdirat(parent, name.bytes(), mode).map_err(errno)
                })
            }
            Request::MakeSymlink { parent, name, target } => self.make((*parent, name), |parent| {
                rustix::fs::symlinkat(target.bytes(), parent, name.bytes()).map_err(errno)
            }),
            Request::Link { node, parent, name } => self.link(*node, (*parent, name)),
            Request::Unlink { parent, name } => self.remove((*parent, name), AtFlags::empty()),
            Request::RemoveDirectory { parent, name } => {
                self.remove((*parent, name), AtFlags::REMOVEDIR)
            }
            Request::Rename { parent, name, new_parent, new_name, flags } => {
                self.rename((*parent, name), (*new_parent, new_name), *flags)
            }
            Request::Space {} => self.space(),
            Request::Nothing {} => Ok(Reply::Done {}),
            _ => Err(Errno::INVALID),
        }
    }

    /// A directory that the client knows.
    fn directory(self, number: u64) -> Result<Node, Errno> {
        let node = self.session.node(number)?;
        // `ENOTDIR`
        let is_one = node.kind == FileKind::Directory;
        if is_one { Ok(node) } else { Err(Errno::new(20)) }
    }

    fn lookup(self, parent: u64, name: &Name) -> Answer {
        let parent = self.directory(parent)?;
        let attributes = self.tell(self.export.entry(&parent.file, name)?)?;
        Ok(Reply::Found { attributes })
    }

    /// The client is told of a node.
    pub(super) fn tell(self, file: OwnedFd) -> Result<Attributes, Errno> {
        let attributes = self.export.attributes(&file)?;
        self.session.tell(&attributes, file)?;
        Ok(attributes)
    }

    /// Makes an entry in the name of the caller.
    fn make(
        self,
        (parent, name): (u64, &Name),
        make: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Answer {
        let directory = self.directory(parent)?;
        self.export.actor.act(self.caller, || make(&directory.file))?;
        let attributes = self.tell(self.export.entry(&directory.file, name)?)?;
        Ok(Reply::Found { attributes })
    }

    /// Files, pipes and sockets. Devices would be a way around the export: they are its
    /// administrator's to make.
    fn make_node(self, at: (u64, &Name), mode: u32, device: u32) -> Answer {
        let kind = match FileKind::of_mode(mode) {
            Some(FileKind::Regular) => FileType::RegularFile,
            None if mode & FileKind::MASK == 0 => FileType::RegularFile,
            Some(FileKind::Fifo) => FileType::Fifo,
            Some(FileKind::Socket) => FileType::Socket,
            Some(FileKind::CharacterDevice | FileKind::BlockDevice) => {
                return Err(Errno::NOT_PERMITTED);
            }
            _ => return Err(Errno::INVALID),
        };
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.make(at, |parent| {
            let name = at.1.bytes();
            rustix::fs::mknodat(parent, name, kind, mode, device.into()).map_err(errno)
        })
    }

    fn link(self, node: u64, (parent, name): (u64, &Name)) -> Answer {
        let (node, directory) = (self.session.node(node)?, self.directory(parent)?);
        self.export.link(&node.file, (&directory.file, name))?;
        // The node that was linked, whatever has the name meanwhile.
        let attributes = self.tell(self.export.node_of(&node.file)?)?;
        Ok(Reply::Found { attributes })
    }

    fn remove(self, (parent, name): (u64, &Name), flags: AtFlags) -> Answer {
        let directory = self.directory(parent)?;
        rustix::fs::unlinkat(&*directory.file, name.bytes(), flags).map_err(errno)?;
        Ok(Reply::Done {})
    }

    fn rename(self, from: (u64, &Name), to: (u64, &Name), flags: u32) -> Answer {
        let (old, new) = (self.directory(from.0)?, self.directory(to.0)?);
        let mut how = RenameFlags::empty();
        how.set(RenameFlags::NOREPLACE, flags & rename::NO_REPLACE != 0);
        how.set(RenameFlags::EXCHANGE, flags & rename::EXCHANGE != 0);
        let (name, new_name) = (from.1.bytes(), to.1.bytes());
        rustix::fs::renameat_with(&*old.file, name, &*new.file, new_name, how).map_err(errno)?;
        Ok(Reply::Done {})
    }

    fn read_link(self, node: u64) -> Answer {
        let node = self.session.node(node)?;
        let target = rustix::fs::readlinkat(&*node.file, "", Vec::new()).map_err(errno)?;
        let target = Target::new(target.as_bytes()).map_err(|_| Errno::IO)?;
        Ok(Reply::Leads { target })
    }

    fn space(self) -> Answer {
        let space = rustix::fs::fstatvfs(&self.export.root).map_err(errno)?;
        Ok(Reply::Room {
            space: Space {
                block_size: u32::try_from(space.f_frsize).unwrap_or(u32::MAX),
                blocks: space.f_blocks,
                free_blocks: space.f_bfree,
                available_blocks: space.f_bavail,
                nodes: space.f_files,
                free_nodes: space.f_ffree,
                longest_name: u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
            },
        })
    }

    /// The owner goes first: a new one takes bits of the mode with it.
    fn set_attributes(self, request: &Request) -> Answer {
        let Request::SetAttributes {
            node,
            handle,
            permissions,
            user,
            group,
            size,
            accessed,
            modified,
        } = *request
        else {
            return Err(Errno::INVALID);
        };
        let node = self.session.node(node)?;
        if user.is_some() || group.is_some() {
            // What leaves it as it is does not come here.
            if user == Some(u32::MAX) || group == Some(u32::MAX) {
                return Err(Errno::INVALID);
            }
            let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
            let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&*node.file, "", user, group, flags).map_err(errno)?;
        }
        if let Some(permissions) = permissions {
            self.export.change_mode(&node.file, permissions.into())?;
        }
        if let Some(size) = size {
            self.set_size(&node, handle, size)?;
        }
        if accessed.is_some() || modified.is_some() {
            let times = Timestamps {
                last_access: timespec(accessed),
                last_modification: timespec(modified),
            };
            let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(&*node.file, "", &times, flags).map_err(errno)?;
        }
        Ok(Reply::Known { attributes: self.export.attributes(&*node.file)? })
    }

    fn set_size(self, node: &Node, handle: Option<u64>, size: u64) -> Result<(), Errno> {
        if let Some(handle) = handle {
            let handle = self.session.handle(handle)?;
            return rustix::fs::ftruncate(&handle.file, size).map_err(errno);
        }
        if node.kind != FileKind::Regular {
            return Err(Errno::INVALID);
        }
        let file = self.export.reopen(&node.file, OFlags::WRONLY)?;
        rustix::fs::ftruncate(&file, size).map_err(errno)
    }
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
        }
    }
}
