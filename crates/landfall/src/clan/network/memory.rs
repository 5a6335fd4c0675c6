//! Memory of a node that others touch: [`Aperture`].
//!
//! It is lent to the engine's drivers for as long as anybody uses it, and is
//! never a slice: peers write it at any moment. A grant that ends while a driver
//! sends from it is remembered, and the memory goes when the driver is through.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use clan_dsm::{ApertureId, Cookie, HostId, Rights};
use landfall_placement::{Area, RegionId, Span, WordFunction, WordOp, WordWidth};
use landfall_transport::memory::{
    AccessError, Memory, Pinned, Regions, Rights as Grants, TakeBackError,
};

use super::builder::refused;
use super::engines::NodeHandle;
use crate::clan::{Error, Local, WORD};
use crate::runtime::locked;

/// The memory of a node, and what of it waits to be free.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) regions: Regions,
    /// Nobody has a handle to these any more, but a driver held them.
    orphans: Mutex<Vec<RegionId>>,
    has_orphans: AtomicBool,
}

impl Pool {
    pub(crate) fn new(regions: u32) -> Self {
        Self {
            regions: Regions::new(regions),
            orphans: Mutex::default(),
            has_orphans: AtomicBool::new(false),
        }
    }

    pub(crate) fn lend(self: &Arc<Self>, memory: Memory) -> Result<Arc<Lent>, Error> {
        let len = memory.len() as u64;
        let no_room = |_| Error::NoRoom("region of memory");
        let id = self.regions.lend(memory, Grants::ALL).map_err(no_room)?;
        let grant = Grant { pool: Arc::clone(self), id };
        let pinned = self.regions.pin(id).map_err(|_| Error::NoRoom("pin of memory"))?;
        Ok(Arc::new(Lent { pinned, grant, len }))
    }

    /// After a turn: no driver holds more than it must.
    pub(crate) fn after_turn(&self) {
        if self.has_orphans.swap(false, Ordering::AcqRel) {
            let orphans = std::mem::take(&mut *locked(&self.orphans));
            orphans.into_iter().for_each(|region| self.free(region));
        }
    }

    fn free(&self, region: RegionId) {
        if let Err(TakeBackError::StillInUse { .. }) = self.regions.try_take_back(region) {
            locked(&self.orphans).push(region);
            self.has_orphans.store(true, Ordering::Release);
        }
    }
}

/// Memory that is lent until the last of its users is gone.
#[derive(Debug)]
pub(crate) struct Lent {
    // The pin goes before the grant: fields are dropped in their order.
    pinned: Pinned,
    grant: Grant,
    len: u64,
}

#[derive(Debug)]
struct Grant {
    pool: Arc<Pool>,
    id: RegionId,
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.pool.free(self.id);
    }
}

impl Lent {
    pub(crate) fn area(&self, offset: u64, len: u64) -> Area {
        Area::new(self.grant.id, offset, len)
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    fn out_of_bounds(&self, offset: u64, len: u64) -> Error {
        Error::OutOfBounds { offset, len, size: self.len }
    }

    fn word(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        let op = WordOp { region: self.grant.id, offset, width: WordWidth::Eight, function };
        self.pinned.word(&op).map_err(|error| match error {
            AccessError::Misaligned(_) => Error::Unaligned(offset),
            _ if !offset.is_multiple_of(WORD) => Error::Unaligned(offset),
            _ => self.out_of_bounds(offset, WORD),
        })
    }

    /// A span holds 4 GiB; what is longer goes in pieces.
    pub(crate) fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len() as u64)?;
        for (nth, piece) in (0..).zip(into.chunks_mut(PIECE)) {
            let at = offset + nth * PIECE as u64;
            let span = self.grant.id.span(at, piece.len() as u32);
            let copied = self.pinned.copy_out(&span, piece);
            copied.map_err(|_| self.out_of_bounds(at, piece.len() as u64))?;
        }
        Ok(())
    }

    pub(crate) fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len() as u64)?;
        for (nth, piece) in (0..).zip(bytes.chunks(PIECE)) {
            let at = offset + nth * PIECE as u64;
            let span = self.grant.id.span(at, piece.len() as u32);
            let copied = self.pinned.copy_in(&span, piece);
            copied.map_err(|_| self.out_of_bounds(at, piece.len() as u64))?;
        }
        Ok(())
    }

    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(self.out_of_bounds(offset, len)),
        }
    }
}

/// The most that is copied by one span.
const PIECE: usize = 1 << 30;

/// Memory of this node that others touch, within what its cookies allow. Clones
/// are the same memory; when the last is gone the cookies are invalid.
///
/// The methods that read and write it are those of [`Local`].
#[derive(Clone)]
pub struct Aperture(Arc<Exposed>);

struct Exposed {
    handle: NodeHandle,
    id: ApertureId,
    /// What others may do with it that were told nothing else.
    rights: Rights,
    lent: Arc<Lent>,
    /// Held while a cookie for one host is made or revoked.
    granting: Mutex<()>,
}

impl Exposed {
    /// The first engine does it last: until then nothing else has the name.
    fn revoke(&self) {
        for engine in self.handle.engines().iter().rev() {
            // Revoked before: nothing is left to revoke.
            let _ = engine.look(|core| core.engine.revoke(self.id));
        }
    }
}

impl Aperture {
    pub(crate) fn expose(handle: &NodeHandle, len: u64, rights: Rights) -> Result<Self, Error> {
        let len = usize::try_from(len).ok().filter(|len| *len > 0);
        let len = len.ok_or(Error::BadConfig("an aperture has at least one byte"))?;
        let memory = Memory::try_zeroed(len).map_err(|_| Error::NoRoom("byte of memory"))?;
        let lent = handle.pool().lend(memory)?;
        let area = lent.area(0, lent.len());
        let no_room = |error| refused(error, "aperture");
        // The first engine gives it its name, which no other has while it is there.
        let id = handle.first().look(|core| core.engine.expose(area)).map_err(no_room)?;
        let (handle, granting) = (handle.clone(), Mutex::default());
        let aperture = Self(Arc::new(Exposed { handle, id, rights, lent, granting }));
        for engine in aperture.0.handle.others() {
            engine.look(|core| core.engine.expose_as(id, area)).map_err(no_room)?;
        }
        Ok(aperture)
    }

    /// A cookie for it: anyone who has it may use the memory within these rights.
    ///
    /// # Errors
    /// The memory was revoked.
    pub fn cookie(&self, rights: Rights) -> Result<Cookie, Error> {
        let Exposed { handle, id, .. } = &*self.0;
        let made = handle.first().look(|core| core.engine.cookie(*id, rights));
        let cookie = made.map_err(|_| Error::StaleCookie)?;
        for engine in handle.others() {
            let admitted = engine.look(|core| core.engine.admit_cookie(*id, &cookie, None));
            admitted.map_err(|_| Error::StaleCookie)?;
        }
        Ok(cookie)
    }

    /// A cookie for it that one host alone can use, within these rights: over a link of any other
    /// host it is refused as one that was never given out. Each call with the same rights gives the
    /// same one, until [`revoke_from`](Self::revoke_from).
    ///
    /// The host has to have proven who it is, by a key or a certificate: from then on its number is
    /// its key's for as long as this node lives. In clear anybody can say to be any host, and so
    /// can anyone who has a pre-shared key.
    ///
    /// ```
    /// use landfall::clan::network::{HostId, Node, Transport};
    /// use landfall::clan::{Error, Fabric, Remote, Rights};
    ///
    /// # let open = |host| {
    /// #     let path = Transport::udp("127.0.0.1:0".parse().unwrap());
    /// #     Node::builder(HostId::new(host).unwrap()).path(path).encrypt_loopback().open()
    /// # };
    /// let (here, friend) = (open(1)?, open(2)?);
    /// let host = here.link(friend.local().unwrap())?.wait_up(None)?;
    /// friend.wait_reached(here.host(), None)?;
    /// let (memory, _) = here.expose(4096, Rights::ReadWrite)?;
    /// let cookie = memory.cookie_for(Rights::Read, host)?;
    /// let mut window = friend.map(&cookie)?;
    /// window.read(0, &mut [0; 8], None)?;
    /// memory.revoke_from(host);
    /// assert!(matches!(window.read(0, &mut [0; 8], None), Err(Error::Refused(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoRoute`]: there is no link to the host. [`Error::NotProven`],
    /// [`Error::NoRoom`]. The memory was revoked.
    pub fn cookie_for(&self, rights: Rights, host: HostId) -> Result<Cookie, Error> {
        let Exposed { handle, id, granting, .. } = &*self.0;
        handle.for_host(host).look(|core| core.check_proven(host))?;
        let refused = |error| match error {
            clan_dsm::Error::Unknown => Error::StaleCookie,
            other => refused(other, "cookie for one host"),
        };
        // Nobody takes it back at some engines while it is on its way to others.
        let _granting = locked(granting);
        let made = handle.first().look(|core| core.engine.cookie_for(*id, rights, host));
        let cookie = made.map_err(refused)?;
        for engine in handle.others() {
            let admitted = engine.look(|core| core.engine.admit_cookie(*id, &cookie, Some(host)));
            admitted.map_err(refused)?;
        }
        Ok(cookie)
    }

    /// Makes the cookies of this memory invalid that this host alone was given, at once. Others
    /// keep theirs, and a cookie for anyone who has it stays valid. An answer that is on its way to
    /// the host already still arrives.
    pub fn revoke_from(&self, host: HostId) {
        let Exposed { handle, id, granting, .. } = &*self.0;
        let _granting = locked(granting);
        for engine in handle.engines() {
            // The memory was revoked before: nothing is left to revoke.
            let _ = engine.look(|core| core.engine.revoke_from(*id, host));
        }
    }

    pub(crate) fn rights(&self) -> Rights {
        self.0.rights
    }

    /// Makes every cookie of this memory invalid, at once. The memory is
    /// still there for this node. Twice is as good as once.
    pub fn revoke(&self) {
        self.0.revoke();
    }

    /// Changes a word in one indivisible step, also against what peers do.
    /// Returns what it held before. Words are little-endian in memory.
    ///
    /// # Errors
    /// There is no word at that offset.
    pub fn change(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        self.0.lent.word(offset, function)
    }

    pub(crate) fn id(&self) -> ApertureId {
        self.0.id
    }

    pub(crate) fn lent(&self) -> &Arc<Lent> {
        &self.0.lent
    }

    /// For drivers that fill it.
    pub(crate) fn span(&self, at: u64, len: u32) -> Span {
        self.0.lent.grant.id.span(at, len)
    }

    pub(crate) fn is_of(&self, handle: &NodeHandle) -> bool {
        self.0.handle.is_same(handle)
    }
}

impl Local for Aperture {
    fn len(&self) -> u64 {
        self.0.lent.len()
    }

    #[inline]
    fn load(&self, offset: u64) -> Result<u64, Error> {
        self.0.lent.word(offset, WordFunction::Load).map(u64::from_le)
    }

    #[inline]
    fn store(&self, offset: u64, word: u64) -> Result<(), Error> {
        if !offset.is_multiple_of(WORD) {
            return Err(Error::Unaligned(offset));
        }
        self.0.lent.copy_in(offset, &word.to_le_bytes())
    }

    fn change(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        Self::change(self, offset, function)
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.0.lent.copy_out(offset, into)
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0.lent.copy_in(offset, bytes)
    }
}

impl fmt::Debug for Aperture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aperture({}, {} bytes)", self.0.id, self.len())
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        self.revoke();
    }
}
