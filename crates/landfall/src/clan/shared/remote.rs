//! [`SharedRemote`]: memory of another process, written by stores; [`PeerProcess`]: a process that
//! maps memory of this node.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use clan_dsm::HostId;
use landfall_placement::{WordFunction, WordWidth};
use landfall_transport::memory::{Piece, SharedMemory, SharedView};
use landfall_transport::shm::rendezvous::Channel;
use landfall_transport::shm::wake::DoorbellId;
use landfall_transport::shm::watched::{Hits, ReadOnly, Writer};

use super::aperture::{Aperture, SharedLocal, words_of};
use super::control::ControlMessage;
use super::endpoints::Carrier;
use super::host::{Host, Mapped, Window};
use super::node::Node;
use super::tripwire::Wire;
use super::trouble;
use super::trouble::locked;
use crate::clan::fabric::{Dma, Remote, Stage, WORD};
use crate::clan::{Access, Cookie, Error, Rights};

/// Memory of another process that [`SharedNode`](super::SharedNode)s map. A write is a
/// store into it; who waits at a tripwire is told with the next commit.
pub struct SharedRemote {
    node: Arc<Node>,
    pub(super) host: Arc<Host>,
    pub(super) window: Arc<Window>,
    cookie: Cookie,
    memory: Memory,
    requests: u64,
    /// What was written since the last commit, while this node watches what it touches there.
    own: ArrayVec<Range<u64>, MOST_OWN>,
}

#[expect(clippy::large_enum_variant, reason = "writing is what it is for, and is not boxed")]
enum Memory {
    Writer(Writer),
    ReadOnly(ReadOnly),
}

impl SharedRemote {
    pub(super) fn new(
        node: &Arc<Node>,
        host: Arc<Host>,
        cookie: Cookie,
        mapped: Mapped,
    ) -> Result<Self, Error> {
        let Mapped { window, data, filter } = mapped;
        let made = Self::map(&host, &cookie, window.tag, data, filter);
        match made {
            Ok(memory) => {
                let node = Arc::clone(node);
                Ok(Self { node, host, window, cookie, memory, requests: 0, own: ArrayVec::new() })
            }
            Err(error) => {
                host.unmap(window.tag);
                Err(error)
            }
        }
    }

    fn map(
        host: &Host,
        cookie: &Cookie,
        tag: u32,
        data: std::os::fd::OwnedFd,
        filter: std::os::fd::OwnedFd,
    ) -> Result<Memory, Error> {
        let filter = SharedView::from_fd(filter).map_err(trouble::memory)?;
        let reporter = Arc::clone(&host.reporter);
        let (len, memory) = if cookie.rights().allow(Rights::Write) {
            let data = SharedMemory::from_fd(data).map_err(trouble::memory)?;
            let writer = Writer::new(&data, &filter, tag, reporter).map_err(trouble::watched)?;
            (data.len(), Memory::Writer(writer))
        } else {
            let data = SharedView::from_fd(data).map_err(trouble::memory)?;
            let reader = ReadOnly::new(&data, &filter, tag, reporter).map_err(trouble::watched)?;
            (data.len(), Memory::ReadOnly(reader))
        };
        if len == cookie.len() {
            Ok(memory)
        } else {
            Err(Error::Mismatch { expected: cookie.len(), found: len })
        }
    }

    /// For writing, if it is allowed and somebody is there.
    #[inline]
    fn writer(&mut self) -> Result<&mut Writer, Error> {
        self.window.check()?;
        match &mut self.memory {
            Memory::Writer(writer) => Ok(writer),
            Memory::ReadOnly(_) => Err(Error::Forbidden),
        }
    }
}

/// Ranges of one batch that are remembered for tripwires of this node.
const MOST_OWN: usize = 8;

impl SharedRemote {
    /// Remembers what was written, if this node watches it.
    #[inline]
    fn note(&mut self, offset: u64, len: u64) {
        if self.window.own.are_watched() && len > 0 {
            self.note_watched(offset..offset + len);
        }
    }

    #[cold]
    fn note_watched(&mut self, range: Range<u64>) {
        if let Some(last) = self.own.last_mut().filter(|last| last.end == range.start) {
            last.end = range.end;
            return;
        }
        if self.own.is_full() {
            self.fire_own();
        }
        self.own.push(range);
    }

    #[cold]
    fn fire_own(&mut self) {
        for range in std::mem::take(&mut self.own) {
            self.touch_own(&range, Access::Write);
        }
    }

    /// For a DMA queue, which writes between what this handle writes.
    pub(super) fn another_writer(&self) -> Result<Writer, Error> {
        self.window.check()?;
        match &self.memory {
            Memory::Writer(writer) => Ok(writer.another()),
            Memory::ReadOnly(_) => Err(Error::Forbidden),
        }
    }

    pub(super) fn is_of(&self, node: &Arc<Node>) -> bool {
        Arc::ptr_eq(&self.node, node)
    }

    /// Reads into memory of this node.
    pub(super) fn read_into(
        &self,
        offset: u64,
        into: &Piece,
        range: Range<u64>,
    ) -> Result<(), Error> {
        self.window.check()?;
        if !self.cookie.rights().allow(Rights::Read) {
            return Err(Error::Forbidden);
        }
        let len = range.end.saturating_sub(range.start);
        match &self.memory {
            Memory::Writer(writer) => writer.read_into(offset, into, range),
            Memory::ReadOnly(reader) => reader.read_into(offset, into, range),
        }
        .map_err(trouble::memory)?;
        self.touch_own_now(offset, len, Access::Read);
        Ok(())
    }

    /// Fires what this node has armed there for itself.
    #[inline]
    pub(super) fn touch_own_now(&self, offset: u64, len: u64, access: Access) {
        if self.window.own.are_watched() && len > 0 {
            self.touch_own(&(offset..offset + len), access);
        }
    }

    #[cold]
    fn touch_own(&self, range: &Range<u64>, access: Access) {
        let mut fired = Vec::new();
        self.window.own.touch(&words_of(range.clone()), access, &mut fired);
        if !fired.is_empty() {
            self.node.fire(fired);
        }
    }
}

impl Remote for SharedRemote {
    type Local = SharedLocal;

    #[inline]
    fn len(&self) -> u64 {
        self.cookie.len()
    }

    #[inline]
    fn store(&mut self, offset: u64, word: u64) -> Result<(), Error> {
        self.writer()?.store(offset, word.to_le()).map_err(trouble::memory)?;
        self.note(offset, WORD);
        Ok(())
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.writer()?.write(offset, bytes).map_err(trouble::memory)?;
        self.note(offset, bytes.len() as u64);
        Ok(())
    }

    fn write_from(
        &mut self,
        offset: u64,
        from: &SharedLocal,
        range: Range<u64>,
    ) -> Result<Dma, Error> {
        let unaligned = |offset: &u64| !offset.is_multiple_of(WORD);
        if let Some(offset) = [offset, range.start, range.end].into_iter().find(unaligned) {
            return Err(Error::Unaligned(offset));
        }
        let len = range.end.saturating_sub(range.start);
        self.writer()?.write_from(offset, from.memory(), range).map_err(trouble::memory)?;
        self.note(offset, len);
        self.requests += 1;
        Ok(Dma(self.requests))
    }

    fn piece(&mut self, part: Range<u64>) -> Result<Option<Piece>, Error> {
        let piece = self.writer()?.piece(part.clone()).map_err(trouble::memory)?;
        self.note(part.start, piece.len());
        Ok(Some(piece))
    }

    #[inline]
    fn commit(&mut self) -> Result<(), Error> {
        if let Memory::Writer(writer) = &mut self.memory {
            writer.commit();
        }
        if !self.own.is_empty() {
            self.fire_own();
        }
        self.window.check()
    }

    fn read(&mut self, offset: u64, into: &mut [u8], _: Option<Instant>) -> Result<(), Error> {
        self.commit()?;
        if !self.cookie.rights().allow(Rights::Read) {
            return Err(Error::Forbidden);
        }
        match &self.memory {
            Memory::Writer(writer) => writer.read(offset, into),
            Memory::ReadOnly(reader) => reader.read(offset, into),
        }
        .map_err(trouble::memory)?;
        self.touch_own_now(offset, into.len() as u64, Access::Read);
        Ok(())
    }

    fn change(
        &mut self,
        offset: u64,
        function: WordFunction,
        _: Option<Instant>,
    ) -> Result<u64, Error> {
        if !self.cookie.rights().allow(Rights::ReadWrite) {
            return Err(Error::Forbidden);
        }
        let changed = self.writer()?.word(offset, WordWidth::Eight, function);
        let before = changed.map_err(trouble::memory)?;
        self.note(offset, WORD);
        self.commit()?;
        Ok(before)
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        self.window.check()
    }

    /// Memory is always as far as it can be.
    fn is_reached(&self, _: Stage) -> Result<bool, Error> {
        self.check().map(|()| true)
    }

    fn wait_for(&mut self, _: Stage, _: Option<Instant>) -> Result<(), Error> {
        self.check()
    }

    fn poll_reached(&mut self, _: Stage, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(self.check())
    }
}

impl Drop for SharedRemote {
    /// What was written is told before it is said that no more comes.
    fn drop(&mut self) {
        let _ = self.commit();
        self.host.unmap(self.window.tag);
    }
}

impl fmt::Debug for SharedRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRemote({:?})", self.cookie)
    }
}

/// A process that maps memory of this node.
pub(super) struct PeerProcess {
    pub(super) channel: Channel,
    /// What it maps, and how often: only of this it may report writes.
    granted: Mutex<BTreeMap<u32, Grant>>,
    /// Its reports, once it has sent its hello.
    hit_inbox: OnceLock<Weak<HitInbox>>,
    has_greeted: AtomicBool,
    /// Which host it says to be.
    host: OnceLock<HostId>,
}

struct Grant {
    aperture: Arc<Aperture>,
    count: u32,
    /// It was taken from it, which has yet to unmap it.
    is_taken: bool,
}

/// The reports of one process.
pub(super) struct HitInbox {
    pub(super) process: Arc<PeerProcess>,
    pub(super) news: Mutex<Incoming>,
    doorbell: DoorbellId,
}

/// What one process reports.
pub(super) struct Incoming {
    pub(super) hits: Hits,
    /// It wrote what cannot be, and is ignored from now on.
    pub(super) is_corrupt: bool,
}

/// A process to disconnect: it is gone, or violates the protocol.
pub(super) struct CloseGuard;

impl PeerProcess {
    pub(super) fn new(channel: Channel) -> Self {
        let (granted, hit_inbox) = (Mutex::default(), OnceLock::new());
        Self {
            channel,
            granted,
            hit_inbox,
            has_greeted: AtomicBool::new(false),
            host: OnceLock::new(),
        }
    }

    /// Answers all that it has sent.
    pub(super) fn serve(self: &Arc<Self>, node: &Node) -> Result<(), CloseGuard> {
        /// Others want to be served too.
        const AT_ONCE: usize = 64;
        // In this order: what it said before it ended has come when it is gone.
        let is_gone = self.channel.is_gone();
        for _ in 0..AT_ONCE {
            let message = match self.channel.receive(Duration::ZERO) {
                Ok(Some(message)) => message,
                Ok(None) if !is_gone => return Ok(()),
                _ => return Err(CloseGuard),
            };
            let control = ControlMessage::decode(message.kind, &message.body).ok_or(CloseGuard)?;
            match control {
                ControlMessage::Hello { host } if !self.has_greeted.swap(true, SeqCst) => {
                    // It greets once.
                    let _ = self.host.set(host);
                    self.handle_hello(node)
                }
                ControlMessage::Map { request, cookie } if self.has_greeted.load(Acquire) => {
                    self.map(node, request, &cookie)
                }
                ControlMessage::Ask { request, name, greeting }
                    if self.has_greeted.load(Acquire) =>
                {
                    match node.named(&name) {
                        Some(service) => {
                            service.ask(self, request, greeting);
                            Ok(())
                        }
                        None => self.send_or_close(&ControlMessage::Refused { request }),
                    }
                }
                ControlMessage::OutOfBand { message } => {
                    let host = *self.host.get().ok_or(CloseGuard)?;
                    let carrier = Carrier::Process(Arc::clone(self));
                    // One that says to be a host that another process is.
                    let is_known = node.endpoints.take(node, (host, &carrier), &message);
                    is_known.then_some(()).ok_or(CloseGuard)
                }
                ControlMessage::Unmap { tag } => {
                    // Its last reports are read before they are refused.
                    node.drain();
                    self.unmap(tag);
                    Ok(())
                }
                _ => Err(CloseGuard),
            }?;
        }
        Ok(())
    }

    fn handle_hello(self: &Arc<Self>, node: &Node) -> Result<(), CloseGuard> {
        // Only the thread that calls this adds to them.
        if locked(&node.inbox).len() >= node.config.most_peers {
            return Err(CloseGuard);
        }
        let hits = Hits::create().map_err(|_| CloseGuard)?;
        let doorbell = node.sleeper.add(hits.doorbell()).map_err(|_| CloseGuard)?;
        let (kind, body) = ControlMessage::Welcome { host: node.host }.encode();
        let sent = self.channel.send(kind, &body, &[hits.memory().fd(), hits.doorbell().fd()]);
        if sent.is_err() {
            node.sleeper.remove(doorbell);
            return Err(CloseGuard);
        }
        let news = Mutex::new(Incoming { hits, is_corrupt: false });
        let hit_inbox = Arc::new(HitInbox { process: Arc::clone(self), news, doorbell });
        // It greets once: nothing is there yet.
        let _ = self.hit_inbox.set(Arc::downgrade(&hit_inbox));
        locked(&node.inbox).push(hit_inbox);
        Ok(())
    }

    /// Where its news come, until it is dismissed.
    fn hit_inbox(&self) -> Option<Arc<HitInbox>> {
        self.hit_inbox.get().and_then(Weak::upgrade)
    }

    /// Checks key and rights, and only then hands over the memory.
    fn map(&self, node: &Node, request: u32, cookie: &Cookie) -> Result<(), CloseGuard> {
        let Some(aperture) = node.find(cookie, &self.channel.peer()) else {
            return self.send_or_close(&ControlMessage::Refused { request });
        };
        let tag = aperture.tag;
        let mut granted = locked(&self.granted);
        let grant = granted.entry(tag).or_insert_with(|| Grant {
            aperture: Arc::clone(&aperture),
            count: 0,
            is_taken: true,
        });
        grant.count = grant.count.checked_add(1).ok_or(CloseGuard)?;
        let was_taken = std::mem::take(&mut grant.is_taken);
        drop(granted);
        if was_taken {
            // Before it can write there: from now on anyone who arms looks at its news.
            aperture.add_reader(self.hit_inbox().ok_or(CloseGuard)?);
        }
        let (kind, body) = ControlMessage::Mapped { request, tag }.encode();
        let fds = [aperture.watched.data().fd(), aperture.watched.filter_fd()];
        self.channel.send(kind, &body, &fds).map_err(|_| CloseGuard)?;
        // It may have been withdrawn since it was found, when this guest was not known
        // to have it. That it was restricted to others since then takes nothing away.
        if aperture.is_withdrawn() {
            self.announce_withdrawal(tag);
        } else if aperture.is_barred(&self.channel.peer(), cookie) {
            self.bar(tag);
            // Who was told before it had the memory is told again.
            self.tell_withdrawn(tag);
        }
        Ok(())
    }

    fn unmap(&self, tag: u32) {
        let mut granted = locked(&self.granted);
        let Some(grant) = granted.get_mut(&tag) else { return };
        grant.count -= 1;
        let last = if grant.count == 0 { granted.remove(&tag) } else { None };
        drop(granted);
        if let Some(last) = last.filter(|last| !last.is_taken) {
            last.aperture.remove_reader(self);
        }
    }

    /// The memory that it calls so, if it maps it.
    pub(super) fn granted(&self, tag: u32) -> Option<Arc<Aperture>> {
        let granted = locked(&self.granted);
        granted.get(&tag).filter(|grant| !grant.is_taken).map(|grant| Arc::clone(&grant.aperture))
    }

    /// Everything that it may have touched.
    pub(super) fn touch_all(&self, fired: &mut Vec<Arc<Wire>>) {
        for grant in locked(&self.granted).values().filter(|grant| !grant.is_taken) {
            grant.aperture.touch_all(fired);
        }
    }

    /// Does it map memory of this name, withdrawn or not?
    pub(super) fn has_mapped(&self, tag: u32) -> bool {
        locked(&self.granted).contains_key(&tag)
    }

    pub(super) fn announce_withdrawal(&self, tag: u32) {
        if locked(&self.granted).contains_key(&tag) {
            self.tell_withdrawn(tag);
        }
    }

    /// Its channel becomes ready with that, and the thread takes it down.
    pub(super) fn hang_up(&self) {
        self.channel.hang_up();
    }

    fn send_or_close(&self, control: &ControlMessage) -> Result<(), CloseGuard> {
        self.send_control(control).map_err(|_| CloseGuard)
    }

    /// The same for threads of the program.
    pub(super) fn send_control(&self, control: &ControlMessage) -> Result<(), Error> {
        let (kind, body) = control.encode();
        self.channel.send(kind, &body, &[]).map_err(trouble::rendezvous)
    }

    /// This memory is withdrawn from it, and from nobody else.
    pub(super) fn bar(&self, tag: u32) {
        let mut granted = locked(&self.granted);
        let taken = granted.get_mut(&tag).filter(|grant| !grant.is_taken).map(|grant| {
            grant.is_taken = true;
            Arc::clone(&grant.aperture)
        });
        drop(granted);
        if let Some(aperture) = taken {
            aperture.remove_reader(self);
            self.tell_withdrawn(tag);
        }
    }

    /// Who does not read its channel is hung up on instead.
    fn tell_withdrawn(&self, tag: u32) {
        if self.send_or_close(&ControlMessage::Withdrawn { tag }).is_err() {
            self.hang_up();
        }
    }

    /// Disconnects it: its last reports are read, then all that was kept for it
    /// goes.
    pub(super) fn remove_peer(self: &Arc<Self>, node: &Node) {
        node.drain();
        let mut inbox = locked(&node.inbox);
        if let Some(index) =
            inbox.iter().position(|hit_inbox| Arc::ptr_eq(&hit_inbox.process, self))
        {
            let hit_inbox = inbox.swap_remove(index);
            drop(inbox);
            node.sleeper.remove(hit_inbox.doorbell);
        }
        self.hang_up();
        let granted = std::mem::take(&mut *locked(&self.granted));
        granted.into_values().for_each(|grant| grant.aperture.remove_reader(self));
    }
}

impl AsFd for PeerProcess {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
