//! [`Aperture`]: memory of this node that others map, and [`SharedLocal`], its handle.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Arc, Mutex, Weak};

use clan_dsm::Key;
use landfall_placement::{WordFunction, WordWidth};
use landfall_transport::memory::Piece;
use landfall_transport::shm::rendezvous::Peer;
use landfall_transport::shm::watched::{Hit, Touch, Watched};

use super::node::Node;
use super::remote::{HitInbox, PeerProcess};
use super::tripwire::{self, Wire, Wires};
use super::trouble::{self, locked};
use crate::clan::fabric::{Local, WORD};
use crate::clan::{Access, Cookie, Error};

/// Which processes may map an aperture, by their numbers as the kernel knows them.
#[derive(Default)]
struct AllowedProcesses {
    /// None: all.
    only: Option<Vec<i32>>,
    barred: Vec<i32>,
    /// Cookies for one process alone.
    own: Vec<(i32, Cookie)>,
}

/// Memory of this node, as others know it.
pub(super) struct Aperture {
    pub(super) node: Arc<Node>,
    pub(super) watched: Watched,
    pub(super) cookie: Cookie,
    /// What writers call it in their news.
    pub(super) tag: u32,
    /// Its owner does not want it to be used any more.
    is_withdrawn: AtomicBool,
    pub(super) wires: Mutex<Wires<Weak<Wire>>>,
    /// Which processes may map it.
    audience: Mutex<AllowedProcesses>,
    /// Those who map it: nobody else can have touched it.
    readers: Mutex<Vec<Arc<HitInbox>>>,
}

impl Aperture {
    pub(super) fn new(node: &Arc<Node>, watched: Watched, cookie: Cookie, tag: u32) -> Self {
        Self {
            node: Arc::clone(node),
            watched,
            cookie,
            tag,
            is_withdrawn: AtomicBool::new(false),
            wires: Mutex::default(),
            audience: Mutex::default(),
            readers: Mutex::default(),
        }
    }

    /// May this process map it, with the cookie: that of all, or its own, in every bit?
    pub(super) fn is_for(&self, peer: &Peer, cookie: &Cookie) -> bool {
        let audience = locked(&self.audience);
        if *cookie != self.cookie {
            return audience.own.contains(&(peer.pid, *cookie));
        }
        audience.only.as_ref().is_none_or(|only| only.contains(&peer.pid))
            && !audience.barred.contains(&peer.pid)
    }

    /// Was it taken from this process?
    pub(super) fn is_barred(&self, peer: &Peer, cookie: &Cookie) -> bool {
        let audience = locked(&self.audience);
        match *cookie == self.cookie {
            true => audience.barred.contains(&peer.pid),
            false => !audience.own.contains(&(peer.pid, *cookie)),
        }
    }

    /// The cookie for this process alone.
    fn cookie_for(&self, peer: &Peer) -> Result<Cookie, Error> {
        let mut audience = locked(&self.audience);
        if let Some((_, known)) = audience.own.iter().find(|(pid, _)| *pid == peer.pid) {
            return Ok(*known);
        }
        if self.is_withdrawn() {
            return Err(Error::StaleCookie);
        }
        if audience.own.len() >= self.node.config.most_peers {
            return Err(Error::NoRoom("cookie for one process"));
        }
        let (host, slot, rights) = (self.cookie.host(), self.cookie.slot(), self.cookie.rights());
        let cookie = Cookie::new(host, slot, rights, new_key()?, self.cookie.len());
        audience.own.push((peer.pid, cookie));
        Ok(cookie)
    }

    /// Takes back what this process alone was given. What it maps is taken from it.
    fn revoke_from(&self, peer: &Peer) {
        let mut audience = locked(&self.audience);
        let before = audience.own.len();
        audience.own.retain(|(pid, _)| *pid != peer.pid);
        let was_given = audience.own.len() < before;
        drop(audience);
        if was_given {
            self.take_from(peer);
        }
    }

    /// Takes the memory from this process: it cannot map it any more, and if it has, it is
    /// notified.
    fn bar(&self, peer: &Peer) {
        let mut audience = locked(&self.audience);
        if !audience.barred.contains(&peer.pid) {
            audience.barred.push(peer.pid);
        }
        audience.own.retain(|(pid, _)| *pid != peer.pid);
        drop(audience);
        self.take_from(peer);
    }

    fn take_from(&self, peer: &Peer) {
        let readers = locked(&self.readers).clone();
        for hit_inbox in
            readers.iter().filter(|hit_inbox| hit_inbox.process.channel.peer().pid == peer.pid)
        {
            hit_inbox.process.bar(self.tag);
        }
    }

    /// Somebody maps this memory from now on.
    pub(super) fn add_reader(&self, hit_inbox: Arc<HitInbox>) {
        locked(&self.readers).push(hit_inbox);
    }

    /// Not any more.
    pub(super) fn remove_reader(&self, process: &PeerProcess) {
        locked(&self.readers)
            .retain(|hit_inbox| !std::ptr::eq(&raw const *hit_inbox.process, process));
    }

    /// Reads the news of all that map this memory, and fires what they touch. It costs a
    /// look for each of them, however many peers the node has.
    pub(super) fn drain(&self) {
        let mut fired = Vec::new();
        for hit_inbox in &*locked(&self.readers) {
            hit_inbox.read(&self.node, &mut fired);
        }
        if !fired.is_empty() {
            self.node.fire(fired);
        }
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Acquire)
    }

    /// Makes its cookie invalid, and ignores what writers report of it.
    /// False if that was so before.
    pub(super) fn withdraw(&self) -> bool {
        !self.is_withdrawn.swap(true, SeqCst)
    }

    /// Fires what this touches. What cannot be in this memory touches nothing.
    pub(super) fn touch(&self, hit: &Hit, fired: &mut Vec<Arc<Wire>>) {
        if self.is_withdrawn() || !self.watched.contains(hit) {
            return;
        }
        let words = words_of(hit.offset..hit.offset + hit.len);
        let access = match hit.touch {
            Touch::Read => Access::Read,
            Touch::Write => Access::Write,
        };
        tripwire::touch(&locked(&self.wires), &words, access, fired);
    }

    /// All its tripwires: it is not known what was touched.
    pub(super) fn touch_all(&self, fired: &mut Vec<Arc<Wire>>) {
        tripwire::touch_all(&locked(&self.wires), fired);
    }
}

/// A key that nobody can guess.
pub(super) fn new_key() -> Result<Key, Error> {
    let mut key = [0; 8];
    getrandom::fill(&mut key).map_err(|error| Error::System {
        call: "getrandom",
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(Key::from_bits(u64::from_ne_bytes(key)))
}

/// The words that these bytes lie in.
pub(super) const fn words_of(bytes: Range<u64>) -> Range<u64> {
    bytes.start / WORD..bytes.end.div_ceil(WORD)
}

/// Memory of a [`SharedNode`](super::SharedNode), mapped by other processes. Clones are
/// the same memory; with the last one it is withdrawn.
#[derive(Clone)]
pub struct SharedLocal(pub(super) Arc<WithdrawOnDrop>);

/// The last one withdraws the aperture.
pub(super) struct WithdrawOnDrop(pub(super) Arc<Aperture>);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.node.withdraw(&self.0);
    }
}

impl SharedLocal {
    /// The descriptor of this memory, as [`expose`](crate::clan::Fabric::expose) gave it.
    #[must_use]
    pub fn cookie(&self) -> Cookie {
        self.aperture().cookie
    }

    /// Ends the use of this memory by others: the cookie is invalid from now
    /// on, anyone who maps the memory is told and gets an error at its next use, and no
    /// tripwire fires any more.
    ///
    /// A mapping cannot be taken from a process: one that ignores what it is told can
    /// still read and write these bytes, though nobody reads them again. They are
    /// never used for anything else, and go back to the kernel when the last process
    /// that maps them has unmapped them or ended.
    pub fn revoke(&self) {
        self.aperture().node.withdraw(self.aperture());
    }

    /// From now on the cookie is good for this process only (and for those that this was
    /// called for before): anyone who else got hold of it is refused. Who maps the memory
    /// already keeps it; [`revoke_from`](Self::revoke_from) takes it away.
    ///
    /// A process is known by its number, as the kernel says. The kernel reuses numbers, so take
    /// it from a process that has just come: [`NameRequest::peer`](super::NameRequest::peer).
    pub fn restrict_to(&self, peer: &Peer) {
        locked(&self.aperture().audience).only.get_or_insert_default().push(peer.pid);
    }

    /// Ends the use of this memory by one process: it is refused the cookie from now on, and
    /// where it maps the memory it is told, gets an error at its next use, and fires no
    /// tripwire any more. Everybody else goes on.
    ///
    /// What [`revoke`](Self::revoke) says of a process that ignores it holds here too.
    pub fn revoke_from(&self, peer: &Peer) {
        self.aperture().bar(peer);
    }

    /// A cookie for this process alone.
    pub(super) fn cookie_for(&self, peer: &Peer) -> Result<Cookie, Error> {
        self.aperture().cookie_for(peer)
    }

    /// Takes back what this process alone was given.
    pub(super) fn take_back_from(&self, peer: &Peer) {
        self.aperture().revoke_from(peer);
    }

    pub(super) fn aperture(&self) -> &Arc<Aperture> {
        &self.0.0
    }

    pub(super) fn memory(&self) -> &Piece {
        self.0.0.watched.memory()
    }
}

impl Local for SharedLocal {
    #[inline]
    fn len(&self) -> u64 {
        self.memory().len()
    }

    #[inline]
    fn load(&self, offset: u64) -> Result<u64, Error> {
        self.memory().load(offset).map(u64::from_le).map_err(trouble::memory)
    }

    #[inline]
    fn store(&self, offset: u64, word: u64) -> Result<(), Error> {
        self.memory().store(offset, word.to_le()).map_err(trouble::memory)
    }

    fn change(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        self.memory().word(offset, WordWidth::Eight, function).map_err(trouble::memory)
    }

    #[inline]
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.memory().copy_out(offset, into).map_err(trouble::memory)
    }

    #[inline]
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.memory().copy_in(offset, bytes).map_err(trouble::memory)
    }

    fn piece(&self, part: Range<u64>) -> Result<Option<Piece>, Error> {
        self.memory().part(part).map(Some).map_err(trouble::memory)
    }
}

impl fmt::Debug for SharedLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedLocal({:?})", self.cookie())
    }
}
