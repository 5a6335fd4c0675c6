//! Memory: what others may touch here, and what may be touched there.

use landfall_placement::Area;

use crate::address::{ApertureId, HostId, LinkId, WindowId};
use crate::cookie::{Cookie, Rights};
use crate::error::Error;
use crate::nic::Nic;
use crate::tripwire::Place;

impl Nic {
    /// Makes an aperture of memory. Nobody can touch it before a cookie was given
    /// out.
    ///
    /// # Errors
    /// [`Error::BadMemory`], [`Error::Unaligned`], [`Error::NoRoom`].
    pub fn expose(&mut self, memory: Area) -> Result<ApertureId, Error> {
        let aperture = self.memory.expose(memory)?;
        self.slot_changed(aperture);
        Ok(aperture)
    }

    /// Makes an aperture of memory under the name that another adapter of this host has given
    /// it. Where several adapters of one host have the same memory, the first
    /// [exposes](Self::expose) it and makes its cookies, and the others take them over
    /// ([`admit_cookie`](Self::admit_cookie)); the first revokes it last.
    ///
    /// # Errors
    /// [`Error::BadMemory`], [`Error::Unaligned`], [`Error::NoRoom`]; [`Error::Taken`] where the
    /// name is in use here.
    pub fn expose_as(&mut self, aperture: ApertureId, memory: Area) -> Result<(), Error> {
        self.memory.expose_as(aperture, memory)?;
        self.slot_changed(aperture);
        Ok(())
    }

    /// A cookie that another adapter of this host has made of the same aperture is good here,
    /// too: for anyone who has it, or over the links of this host alone.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoRoom`]; [`Error::Taken`] where that host has another one
    /// with these rights here.
    pub fn admit_cookie(
        &mut self,
        aperture: ApertureId,
        cookie: &Cookie,
        host: Option<HostId>,
    ) -> Result<(), Error> {
        self.memory.admit(aperture, cookie, host)?;
        self.slot_changed(aperture);
        Ok(())
    }

    /// A cookie for an aperture: anyone who has it may do what the rights say.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn cookie(&mut self, aperture: ApertureId, rights: Rights) -> Result<Cookie, Error> {
        let cookie = self.memory.cookie(aperture, rights)?;
        self.slot_changed(aperture);
        Ok(cookie)
    }

    /// A cookie for an aperture that is good over links of this host alone: what comes with its
    /// key over any other is refused as one with a key that was never given out. Each call
    /// with the same rights gives the same one, until
    /// [`revoke_from`](Self::revoke_from).
    ///
    /// It is worth as much as what is known of who is at the other end of a link: over a plain one
    /// a host is who it says, under a layer that encrypts who it has proven to be. No adapter
    /// knows these keys: what comes with one the engine puts into its place. A switch of native
    /// links says of nobody who it is; there such a cookie opens nothing.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoRoom`].
    pub fn cookie_for(
        &mut self,
        aperture: ApertureId,
        rights: Rights,
        host: HostId,
    ) -> Result<Cookie, Error> {
        let cookie = self.memory.cookie_for(aperture, rights, host)?;
        self.slot_changed(aperture);
        Ok(cookie)
    }

    /// Ends the cookies of an aperture that this host alone was given: they are keys to nothing
    /// from now on, also for what is under way. Others keep theirs, and a cookie for anyone who has
    /// it stays one for this host too. What a driver was told to write or to send before it
    /// may still do.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn revoke_from(&mut self, aperture: ApertureId, host: HostId) -> Result<(), Error> {
        self.memory.revoke_from(aperture, host)?;
        self.slot_changed(aperture);
        Ok(())
    }

    /// Ends an aperture. Its cookies, and headers that are under way, are keys to
    /// nothing from now on, and its tripwires are gone. What a driver was told
    /// to write before it may still do: the memory is this side's alone again
    /// when the driver gives it back, and at a native link when
    /// [`Event::Released`](crate::Event::Released) says so.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] at a native link.
    pub fn revoke(&mut self, aperture: ApertureId) -> Result<Area, Error> {
        self.memory.area(aperture).ok_or(Error::Unknown)?;
        if self.native.is_some() && !self.events.promise() {
            return Err(Error::Busy);
        }
        let memory = self.memory.revoke(aperture)?;
        let place = Place::Local(aperture.index as u16);
        let Self { tripwires, native, .. } = self;
        let mut mirror = native.as_mut().and_then(|native| native.mirror.as_mut());
        tripwires.forget_all(place, &mut |tripwire| {
            if let Some(mirror) = &mut mirror {
                mirror.wire_changed(tripwire.index);
            }
        });
        self.release_later(aperture);
        Ok(memory)
    }

    /// The memory of an aperture.
    #[must_use]
    pub fn area(&self, aperture: ApertureId) -> Option<Area> {
        self.memory.area(aperture)
    }

    /// Opens a window onto an aperture of another host. Links are looked for when
    /// something is written: no connection is needed, and none is made.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn map(&mut self, cookie: &Cookie) -> Result<WindowId, Error> {
        self.windows.open(*cookie, None)
    }

    /// Closes a window. What was written through it goes on its way; chains of
    /// DMA requests that need it end.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn unmap(&mut self, window: WindowId) -> Result<(), Error> {
        self.windows.close(window)?;
        self.multicast.close(window);
        Ok(())
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

    /// How many bytes [`write`](Self::write) takes now.
    #[must_use]
    pub fn room(&self, window: WindowId) -> usize {
        // A window that is closed takes nothing.
        let Ok(window) = self.windows.get(window) else { return 0 };
        let rooms = window.hosts().iter().map(|host| {
            let line = self.links.to_host(*host).and_then(|link| self.lines.get(link));
            line.map_or(0, |line| line.writes.room())
        });
        rooms.min().unwrap_or(0)
    }
}
