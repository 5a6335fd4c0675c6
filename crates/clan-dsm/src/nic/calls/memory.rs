//! Memory: what others may touch here, and what may be touched there.

use alloc::vec::Vec;

use landfall_placement::Area;

use crate::access::Rights;
use crate::address::HostId;
use crate::cookie::Cookie;
use crate::error::Error;
use crate::ids::{ApertureId, LinkId, WindowId};
use crate::nic::Nic;
use crate::tripwire::Place;

impl Nic {
    /// Makes an aperture of memory. Nobody can touch it before a cookie was given
    /// out.
    ///
    /// # Errors
    /// [`Error::BadMemory`], [`Error::Unaligned`], [`Error::NoRoom`].
    pub fn expose(&mut self, memory: Area) -> Result<ApertureId, Error> {
        self.memory.expose(memory)
    }

    /// A cookie for an aperture: whoever has it may do what the rights say.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn cookie(&mut self, aperture: ApertureId, rights: Rights) -> Result<Cookie, Error> {
        self.memory.cookie(aperture, rights)
    }

    /// Ends an aperture. Its cookies, and headers that are under way, are keys to
    /// nothing from now on, and its tripwires are gone. What a driver was told
    /// to write before it may still do: the memory is this side's alone again
    /// when the driver gives it back.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn revoke(&mut self, aperture: ApertureId) -> Result<Area, Error> {
        let memory = self.memory.revoke(aperture)?;
        self.tripwires.forget(Place::Local(aperture.index as u16));
        Ok(memory)
    }

    /// The memory of an aperture.
    #[must_use]
    pub fn area(&self, aperture: ApertureId) -> Option<Area> {
        self.memory.area(aperture)
    }

    /// Founds a group, and makes the cookie for those who receive and those who
    /// send. The group has the number of a host that nobody has, and may have
    /// several pieces of memory, told apart by the slot.
    ///
    /// # Errors
    /// [`Error::BadMemory`].
    pub fn found_group(&mut self, group: HostId, slot: u16, len: u64) -> Result<Cookie, Error> {
        self.memory.group_cookie(group, slot, len)
    }

    /// What is sent to the group comes to lie in this aperture from now on.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Forbidden`] where that is no group's cookie,
    /// [`Error::OutOfBounds`] where the aperture is too short, [`Error::Taken`],
    /// [`Error::NoRoom`].
    pub fn join_group(&mut self, group: &Cookie, aperture: ApertureId) -> Result<(), Error> {
        self.memory.join(group, aperture)
    }

    /// Nothing more is accepted for the group.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn leave_group(&mut self, group: &Cookie) -> Result<(), Error> {
        self.memory.leave(group)
    }

    /// Opens a window onto an aperture of another host. Links are looked for when
    /// something is written: no connection is needed, and none is made.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn map(&mut self, cookie: &Cookie) -> Result<WindowId, Error> {
        self.windows.open(*cookie, None)
    }

    /// Opens a window onto the memory of a group. What the program writes goes to
    /// each of these members; nothing can be read, and DMA cannot be used.
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

    /// Closes a window. What was written through it goes on its way; chains of
    /// DMA requests that need it end.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn unmap(&mut self, window: WindowId) -> Result<(), Error> {
        self.windows.close(window)
    }

    /// What a window opens on.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn window(&self, window: WindowId) -> Result<&Cookie, Error> {
        Ok(self.windows.get(window)?.cookie())
    }

    /// The link that a window is written over now.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoLink`], [`Error::Forbidden`] for a group.
    pub fn link_of(&self, window: WindowId) -> Result<LinkId, Error> {
        let host = self.windows.get(window)?.host()?;
        self.links.to_host(host).ok_or(Error::NoLink)
    }

    /// So many bytes [`write`](Self::write) takes now.
    #[must_use]
    pub fn room(&self, window: WindowId) -> usize {
        let Ok(window) = self.windows.get(window) else { return 0 };
        let rooms = window.hosts().iter().map(|host| {
            let line = self.links.to_host(*host).and_then(|link| self.lines.get(link));
            line.map_or(0, |line| line.writes.room())
        });
        rooms.min().unwrap_or(0)
    }
}
