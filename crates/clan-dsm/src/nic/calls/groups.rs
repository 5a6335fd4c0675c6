//! Groups: memory that many hosts have, each its own, and that is written at once.
//!
//! Where the network multicasts (the [switch](crate::native::switch) on native links
//! does, and a network behind [`Nic::multicast`]), one packet goes to all. Else each link
//! repeats what it lost by itself, so the adapter sends each member its own copy; but all
//! of them are of one call, and of one memory.

use alloc::vec::Vec;

use landfall_placement::{Area, Instant};

use crate::address::{Address, ApertureId, HostId, WindowId, WriteId};
use crate::cookie::{Cookie, Rights};
use crate::error::Error;
use crate::events::EventQueue;
use crate::nic::Nic;
use crate::nic::link_table::LinkState;
use crate::nic::multicast::Written;
use crate::transfer::load::Writes;
use crate::transfer::pio::WriteBuffer;

/// A part of what [`Nic::publish`] writes.
#[derive(Clone, Copy, Debug)]
pub enum GroupWrite<'a> {
    /// Bytes that are copied: for what is small.
    Bytes {
        /// Where they belong in the group's memory.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Memory that stays as it is until each member's
    /// [`Event::Written`](crate::Event::Written).
    Memory {
        /// Where it belongs in the group's memory.
        offset: u64,
        /// The memory.
        from: Area,
    },
}

impl GroupWrite<'_> {
    const fn place(&self) -> (u64, u64) {
        match self {
            Self::Bytes { offset, bytes } => (*offset, bytes.len() as u64),
            Self::Memory { offset, from } => (*offset, from.len),
        }
    }
}

/// What all parts of a publication need of a link.
#[derive(Clone, Copy, Default)]
struct Needs {
    entries: usize,
    bytes: usize,
    /// How many bytes are sent from memory.
    from_memory: u64,
}

impl Needs {
    fn of(writes: &[GroupWrite<'_>]) -> Option<Self> {
        writes.iter().try_fold(Self::default(), |Self { entries, bytes, from_memory }, write| {
            Some(match write {
                // A first and a last word in part, and whole ones between.
                GroupWrite::Bytes { bytes: more, .. } => Self {
                    entries: entries + 3,
                    bytes: bytes.checked_add(more.len())?,
                    from_memory,
                },
                GroupWrite::Memory { from, .. } => Self {
                    entries: entries + 1,
                    bytes,
                    from_memory: from_memory.checked_add(from.len)?,
                },
            })
        })
    }
}

impl Nic {
    /// Founds a group, and makes the cookie for those who receive and those who
    /// send. The group has a number that no other group here has: that of its
    /// founder, or one that all agree on. It may have several pieces of memory,
    /// told apart by the slot.
    ///
    /// # Errors
    /// [`Error::BadMemory`].
    pub fn found_group(&mut self, group: HostId, slot: u16, len: u64) -> Result<Cookie, Error> {
        self.memory.group_cookie(group, slot, len)
    }

    /// What is sent to the group comes to lie in this aperture from now on,
    /// anyone who has the cookie and sends it.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Forbidden`] where that is no group's cookie,
    /// [`Error::OutOfBounds`] where the aperture is too short, [`Error::Taken`],
    /// [`Error::NoRoom`].
    pub fn join_group(&mut self, group: &Cookie, aperture: ApertureId) -> Result<(), Error> {
        self.memory.join(group, aperture, None)?;
        self.group_changed(group);
        Ok(())
    }

    /// The same where only one host may send: all members know the group's key,
    /// and need not trust each other.
    ///
    /// # Errors
    /// Those of [`join_group`](Self::join_group).
    pub fn join_group_of(
        &mut self,
        sender: HostId,
        group: &Cookie,
        aperture: ApertureId,
    ) -> Result<(), Error> {
        self.memory.join(group, aperture, Some(sender))?;
        self.group_changed(group);
        Ok(())
    }

    /// Nothing more is accepted for the group.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn leave_group(&mut self, group: &Cookie) -> Result<(), Error> {
        self.memory.leave(group)?;
        self.group_changed(group);
        Ok(())
    }

    /// Opens a window onto the memory of a group. What the program writes goes to
    /// each of these members; nothing can be read, and DMA cannot be used. Without
    /// members, a write goes out of a native link once: the switch knows who they are.
    ///
    /// # Errors
    /// [`Error::NoRoom`], [`Error::Forbidden`] where that is no group's cookie.
    pub fn map_group(&mut self, cookie: &Cookie, members: &[HostId]) -> Result<WindowId, Error> {
        if cookie.rights() != Rights::Write {
            return Err(Error::Forbidden);
        }
        if members.len() > self.config.links {
            return Err(Error::NoRoom);
        }
        self.windows.open(*cookie, Some(Vec::from(members)))
    }

    /// What is written through a group's window goes to this host too, which has
    /// joined. It comes behind all that was written to that host before.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Forbidden`] where the window is no group's,
    /// [`Error::Taken`] where it goes there already, [`Error::NoRoom`].
    pub fn add_member(&mut self, window: WindowId, member: HostId) -> Result<(), Error> {
        let most = self.config.links;
        let members = self.windows.members_mut(window)?;
        if members.contains(&member) {
            return Err(Error::Taken);
        }
        if members.len() >= most {
            return Err(Error::NoRoom);
        }
        members.push(member);
        self.multicast.has_invitations = true;
        Ok(())
    }

    /// What is written through a group's window does not go to this host any more.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Forbidden`] where the window is no group's.
    pub fn remove_member(&mut self, window: WindowId, member: HostId) -> Result<(), Error> {
        self.windows.members_mut(window)?.retain(|known| *known != member);
        self.multicast.remove_member(window, member);
        Ok(())
    }

    /// Writes to each member of a group that can be reached and has room for all
    /// of it; the others get nothing of it, and hold nobody up. `tell` hears what
    /// became of each: the write that ends with
    /// [`Event::Written`](crate::Event::Written), where memory is named;
    /// [`Error::Busy`], [`Error::NoLink`].
    ///
    /// # Errors
    /// Those that are the same for all, and then nobody got anything:
    /// [`Error::Unknown`], [`Error::Forbidden`], [`Error::OutOfBounds`],
    /// [`Error::BadMemory`], [`Error::TooLong`] for more than an empty write
    /// buffer takes.
    pub fn publish(
        &mut self,
        now: Instant,
        window: WindowId,
        writes: &[GroupWrite<'_>],
        tell: &mut dyn FnMut(HostId, Result<Option<WriteId>, Error>),
    ) -> Result<(), Error> {
        let group = self.windows.get(window)?;
        group.members().ok_or(Error::Forbidden)?;
        for write in writes {
            let (offset, len) = write.place();
            group.check(offset, len, Rights::Write)?;
            if matches!(write, GroupWrite::Memory { from, .. } if !from.is_valid()) {
                return Err(Error::BadMemory);
            }
        }
        let needs = Needs::of(writes).ok_or(Error::TooLong)?;
        if !WriteBuffer::could_hold(self.config.write_buffer, needs.entries, needs.bytes) {
            return Err(Error::TooLong);
        }
        let base = group.base();
        let written = Written { base, writes, from_memory: needs.from_memory };
        let mut by_group = self.publish_by_group(now, window, written);
        let Self { windows, links, lines, writes: from_memory, events, .. } = self;
        for host in windows.get(window)?.members().ok_or(Error::Forbidden)? {
            if let Some(outcome) = by_group.remove(host) {
                tell(*host, outcome);
                continue;
            }
            let link = links.to_host(*host);
            let outcome = match link.and_then(|link| lines.get_mut(link)) {
                Some(line) => put(line, base, writes, needs, from_memory, events),
                None => Err(Error::NoLink),
            };
            if let (Some(link), Ok(_)) = (link, &outcome) {
                links.wake(link);
            }
            tell(*host, outcome);
        }
        Ok(())
    }
}

/// Puts all of it behind what waits for one member, or nothing.
fn put(
    line: &mut LinkState,
    base: Address,
    writes: &[GroupWrite<'_>],
    needs: Needs,
    from_memory: &mut Writes,
    events: &mut EventQueue,
) -> Result<Option<WriteId>, Error> {
    if !line.writes.has_room(needs.entries, needs.bytes) {
        return Err(Error::Busy);
    }
    let mut begun = None;
    if needs.from_memory > 0 {
        let write = from_memory.begin(needs.from_memory).ok_or(Error::Busy)?;
        if !events.promise() {
            from_memory.forget(write);
            return Err(Error::Busy);
        }
        begun = Some(write);
    }
    for write in writes {
        match (*write, begun) {
            (GroupWrite::Bytes { offset, bytes }, _) => line.writes.write(base, offset, bytes)?,
            (GroupWrite::Memory { offset, from }, Some(write)) => {
                line.writes.write_from(write, base, offset, from)?;
            }
            // Then nothing is sent from memory.
            (GroupWrite::Memory { .. }, None) => {}
        }
    }
    Ok(begun)
}
