//! Which members get a publication by the group's address, and its frames.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use landfall_placement::Instant;

use super::is_by_link;
use crate::address::{Address, HostId, WindowId, WriteId};
use crate::error::Error;
use crate::link::{FramePayload, FrameRoom};
use crate::multicast::{GroupFrame, GroupSender, Mode, Publication};
use crate::nic::Nic;
use crate::nic::calls::{GroupWrite, put};
use crate::transfer::load::Load;
use crate::transfer::pio::WriteBuffer;
use crate::wire::Command;

/// What became of a publication at members that hear the group's address.
pub(in crate::nic) type ByGroup = BTreeMap<HostId, Result<Option<WriteId>, Error>>;

/// A member that gets a publication by the group's address.
#[derive(Clone, Copy)]
struct Taker {
    host: HostId,
    /// The write from memory that it is, as that member's.
    write: Option<WriteId>,
}

/// A publication, before it is known who gets it.
#[derive(Clone, Copy)]
pub(in crate::nic) struct Written<'a> {
    pub(in crate::nic) base: Address,
    pub(in crate::nic) writes: &'a [GroupWrite<'a>],
    /// How many bytes are sent from memory.
    pub(in crate::nic) from_memory: u64,
}

impl Nic {
    /// Writes to those members of a group that hear its address, and says what became of each
    /// of them. All others are to get copies.
    pub(in crate::nic) fn publish_by_group(
        &mut self,
        now: Instant,
        window: WindowId,
        written: Written<'_>,
    ) -> ByGroup {
        let mut told = ByGroup::new();
        if self.multicast.senders.is_empty() {
            return told;
        }
        let at = self.multicast.by_window.get(&window).copied();
        let sender = at.and_then(|at| self.multicast.senders.get(at));
        let members = self.windows.get(window).ok().and_then(|window| window.members());
        let mut hosts = Vec::new();
        for host in members.unwrap_or_default() {
            let mode = sender.and_then(|sender| sender.mode(*host));
            if self.multicast.is_behind(&written.base, *host) {
                told.insert(*host, Err(Error::Busy));
            } else if !is_by_link(mode) {
                hosts.push(*host);
            }
        }
        let (Some(at), Some(sender)) = (at, sender) else { return told };
        if hosts.is_empty() {
            return told;
        }
        let path = sender.path;
        let limits = self.paths.iter().find(|(known, _)| *known == path);
        let frames = limits.and_then(|(_, limits)| {
            let unit = limits.unit.min(u32::from(u16::MAX)) as usize;
            frames_of(written, FrameRoom::of(limits.head.into(), unit, false))
        });
        let Some(frames) = frames else {
            // The path is down. A copy would be in place before what was published by it.
            told.extend(hosts.into_iter().map(|host| (host, Err(Error::Busy))));
            return told;
        };
        let bytes: u64 = frames.iter().map(GroupFrame::len).sum();
        let most = self.config.write_buffer as u64;
        let config = *self.links.sender_config();
        let Some(sender) = self.multicast.senders.get_mut(at) else { return told };
        let is_full = !sender.may_queue(bytes, most) && !sender.detach_slow(&config, now);
        let mut takers = Vec::new();
        for host in hosts {
            match self.admit(now, at, host, frames.len(), bytes, is_full) {
                Ok(()) => match self.begin_write(written.from_memory) {
                    Ok(write) => takers.push(Taker { host, write }),
                    Err(error) => {
                        self.detach(at, host);
                        told.insert(host, Err(error));
                    }
                },
                Err(error) => drop(told.insert(host, Err(error))),
            }
        }
        if !takers.is_empty() {
            self.publish_frames(now, at, frames, &takers, written.from_memory);
        }
        told.extend(takers.into_iter().map(|Taker { host, write }| (host, Ok(write))));
        told
    }

    fn detach(&mut self, at: u32, host: HostId) {
        if let Some(sender) = self.multicast.senders.get_mut(at) {
            sender.detach(host);
        }
    }

    /// May a member get something of this size now?
    fn admit(
        &mut self,
        now: Instant,
        at: u32,
        host: HostId,
        frames: usize,
        bytes: u64,
        is_full: bool,
    ) -> Result<(), Error> {
        let Self { multicast, links, lines, .. } = self;
        let sender = multicast.senders.get_mut(at).ok_or(Error::Unknown)?;
        let link = links.to_host(host).ok_or(Error::NoLink)?;
        let line = lines.get_mut(link).ok_or(Error::NoLink)?;
        if is_full {
            return Err(Error::Busy);
        }
        match sender.mode(host) {
            Some(Mode::Attached) if sender.has_room(host, frames, bytes) => Ok(()),
            Some(Mode::Attached) => {
                sender.detach(host);
                Err(Error::Busy)
            }
            Some(Mode::Reachable) => {
                let start = Command::GroupStart { tag: sender.tag, seq: sender.next().0 };
                put(line, &start, host)?;
                links.wake(link);
                sender.attach(now, host);
                Ok(())
            }
            _ => Err(Error::Busy),
        }
    }

    fn begin_write(&mut self, from_memory: u64) -> Result<Option<WriteId>, Error> {
        if from_memory == 0 {
            return Ok(None);
        }
        let write = self.writes.begin(from_memory).ok_or(Error::Busy)?;
        if !self.events.promise() {
            self.writes.forget(write);
            return Err(Error::Busy);
        }
        Ok(Some(write))
    }

    fn publish_frames(
        &mut self,
        now: Instant,
        at: u32,
        frames: Vec<GroupFrame>,
        takers: &[Taker],
        from_memory: u64,
    ) {
        let Self { multicast, links, lines, .. } = self;
        let config = *links.sender_config();
        // The group was there when its members were asked.
        let Some(sender) = multicast.senders.get_mut(at) else { return };
        let hosts: Vec<HostId> = takers.iter().map(|taker| taker.host).collect();
        detach_others(sender, &hosts);
        self.stats.frames += frames.len() as u64;
        let (first, last) = sender.publish(&config, now, frames, &hosts);
        for Taker { host, write } in takers {
            let Some(link) = links.to_host(*host) else { continue };
            let Some(line) = lines.get_mut(link) else { continue };
            let number = line.barriers.chain_submitted();
            let write = write.map(|write| (write, from_memory));
            sender.promise(*host, Publication { first, last, link, number, write });
        }
    }
}

/// Who does not get this gets nothing of what follows, until it has what came before.
fn detach_others(sender: &mut GroupSender, takers: &[HostId]) {
    let others: Vec<HostId> = sender
        .hosts()
        .filter(|host| sender.mode(*host) == Some(Mode::Attached) && !takers.contains(host))
        .collect();
    others.into_iter().for_each(|host| sender.detach(host));
}

/// Cuts what is written into frames. `None`: it cannot be.
fn frames_of(written: Written<'_>, room: FrameRoom) -> Option<Vec<GroupFrame>> {
    let mut buffer = WriteBuffer::new(usize::MAX);
    // Its frames say of whom it is by their numbers.
    let nobody = WriteId::new(u32::MAX, u32::MAX);
    for write in written.writes {
        match *write {
            GroupWrite::Bytes { offset, bytes } => buffer.write(written.base, offset, bytes),
            GroupWrite::Memory { offset, from } => {
                buffer.write_from(nobody, written.base, offset, from)
            }
        }
        .ok()?;
    }
    let (mut frames, mut payload) = (Vec::new(), FramePayload::default());
    while !buffer.is_empty() {
        payload.clear();
        buffer.load(&mut Load::new(room, &mut payload));
        frames.push(GroupFrame::of(&payload)?);
    }
    Some(frames)
}
