//! Memory of others that this host may touch.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use landfall_tables::Table;

use crate::address::WindowId;
use crate::address::{Address, HostId, Key, Kind, WORD};
use crate::cookie::Cookie;
use crate::cookie::Rights;
use crate::error::Error;

/// What a window opens on.
#[derive(Clone, Debug)]
pub(super) struct Window {
    cookie: Cookie,
    /// Of a group: the members that are written to.
    members: Option<Vec<HostId>>,
}

impl Window {
    /// The address of its first word.
    pub(super) fn base(&self) -> Address {
        let kind = if self.members.is_some() { Kind::Multicast } else { Kind::Burst };
        Address { kind, ..self.cookie.address(0) }
    }

    /// The address of one byte: of its word, from that byte on.
    pub(super) fn byte(&self, offset: u64) -> Option<Address> {
        let word = u32::try_from(offset / u64::from(WORD)).ok()?;
        let from = (offset % u64::from(WORD)) as u32;
        Some(Address { mask: Address::mask_of(from, WORD - from)?, ..self.base().advanced(word)? })
    }

    pub(super) const fn cookie(&self) -> &Cookie {
        &self.cookie
    }

    /// Whom to write to.
    pub(super) fn hosts(&self) -> &[HostId] {
        match &self.members {
            Some(members) => members,
            None => core::slice::from_ref(&self.cookie.host),
        }
    }

    /// The members of a group.
    pub(super) fn members(&self) -> Option<&[HostId]> {
        self.members.as_deref()
    }

    /// The one host there is; a group has none.
    pub(super) fn host(&self) -> Result<HostId, Error> {
        if self.members.is_some() { Err(Error::Forbidden) } else { Ok(self.cookie.host()) }
    }

    /// May these bytes be touched like this?
    pub(super) fn check(&self, offset: u64, len: u64, needed: Rights) -> Result<(), Error> {
        let end = offset.checked_add(len).ok_or(Error::OutOfBounds)?;
        if !self.cookie.rights().allow(needed) {
            Err(Error::Forbidden)
        } else if end > self.cookie.len() {
            Err(Error::OutOfBounds)
        } else {
            Ok(())
        }
    }
}

/// What a cookie grants access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CookieName {
    host: HostId,
    slot: u16,
    key: u64,
}

fn name(host: HostId, slot: u16, key: Key) -> CookieName {
    CookieName { host, slot, key: key.bits() }
}

/// All windows.
#[derive(Debug)]
pub(super) struct Windows {
    table: Table<Window>,
    /// The last one that was opened with each cookie: an exception names only
    /// what was written to.
    by_cookie: BTreeMap<CookieName, WindowId>,
}

impl Windows {
    pub(super) const fn new(most: usize) -> Self {
        Self { table: Table::new(most), by_cookie: BTreeMap::new() }
    }

    pub(super) fn open(
        &mut self,
        cookie: Cookie,
        members: Option<Vec<HostId>>,
    ) -> Result<WindowId, Error> {
        let window = Window { cookie, members };
        let id = self.table.insert(window).map(WindowId::of).ok_or(Error::NoRoom)?;
        self.by_cookie.insert(name(cookie.host(), cookie.slot(), cookie.key()), id);
        Ok(id)
    }

    pub(super) fn close(&mut self, id: WindowId) -> Result<(), Error> {
        let Window { cookie, .. } = self.get(id)?;
        let name = name(cookie.host(), cookie.slot(), cookie.key());
        if self.by_cookie.get(&name) == Some(&id) {
            self.by_cookie.remove(&name);
        }
        self.table.remove(id.index);
        Ok(())
    }

    pub(super) fn get(&self, id: WindowId) -> Result<&Window, Error> {
        self.table.named(id.index, id.generation).ok_or(Error::Unknown)
    }

    /// The members of a group, to be changed.
    pub(super) fn members_mut(&mut self, id: WindowId) -> Result<&mut Vec<HostId>, Error> {
        let window = self.table.named_mut(id.index, id.generation).ok_or(Error::Unknown)?;
        window.members.as_mut().ok_or(Error::Forbidden)
    }

    /// A window through which something was written to this address.
    pub(super) fn of(&self, address: &Address) -> Option<WindowId> {
        self.by_cookie.get(&name(address.host, address.slot, address.key)).copied()
    }
}
