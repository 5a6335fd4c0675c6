//! [`Group`]: memory that many nodes have, each its own, and that one call writes
//! in all of them.
//!
//! Anyone who founds a group writes it; who has its cookie may join with memory of its
//! own. Where the node has a [multicast address](super::Builder::multicast) what is written
//! leaves once, for all members that it reaches; else the adapter sends each member its
//! copy. What is long is copied once, whatever the number of members, and they all
//! are sent it from there. A member that is slow, or gone, holds up nobody: it gets
//! nothing, and the writer is told.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use clan_dsm::{Cookie, GroupKey, GroupWrite, HostId, WindowId};
use landfall_placement::Peer;
use landfall_transport::memory::Memory;

use super::back_pressure::{WindowState, WriteRecord};
use super::builder::refused;
use super::engines::NodeHandle;
use super::memory::{Aperture, Lent};
use super::neighbour::Neighbour;
use super::node::Node;
use super::state::NodeState;
use super::window::{Source, Window};
use crate::clan::{Error, WORD, fabric};

/// Up to here bytes are copied into the write buffers of the members.
const SMALL: usize = 128;
/// A member that is this many bytes of long writes late gets nothing more until it
/// has half of them.
const LATE: u64 = 1 << 20;
/// This many memories of long writes are looked at for one that is free.
const TRIES: usize = 4;

/// Memory that many nodes have, to be written by the one that
/// [founded](Node::found_group) it.
///
/// ```
/// use landfall::clan::network::{HostId, Node, Transport};
/// use landfall::clan::{Fabric, Local, Rights};
///
/// let open = |host| Node::open(HostId::new(host).unwrap(), Transport::udp(([127, 0, 0, 1], 0).into()));
/// let (writer, one, two) = (open(1)?, open(2)?, open(3)?);
/// let soon = || Some(std::time::Instant::now() + std::time::Duration::from_secs(10));
///
/// let mut group = writer.found_group(4096)?;
/// let mut memories = Vec::new();
/// for member in [&one, &two] {
///     writer.link(member.local().unwrap())?.wait_up(soon())?;
///     let (memory, _) = member.expose(4096, Rights::Write)?;
///     // The cookie comes to the members by any means; then the writer adds them.
///     member.join_group(&group.cookie(), &memory)?;
///     group.add(member.host())?;
///     memories.push(memory);
/// }
///
/// let told = group.publish(&[(64, b"to all of you"), (0, &1u64.to_le_bytes())])?;
/// assert!(told.iter().all(|told| told.result.is_ok()));
/// group.wait_delivered(soon())?;
/// for memory in memories {
///     assert_eq!(memory.load(0)?, 1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Group {
    handle: NodeHandle,
    /// The window of each engine, onto the members whose links it has.
    ids: Vec<WindowId>,
    cookie: Cookie,
    /// What is written leaves once for all members that the network reaches.
    is_multicast: bool,
    members: Vec<Member>,
    /// The number of the next member.
    next: u64,
    /// What long writes are sent from, the one that was used last at the end. There
    /// are as many as members that are late need, and a few.
    bodies: VecDeque<Arc<Lent>>,
}

#[derive(Debug)]
struct Member {
    number: u64,
    host: HostId,
    /// The engine of its link.
    nth: usize,
    neighbour: Arc<Neighbour>,
    state: Arc<WindowState>,
    /// Bytes of long writes that it was sent.
    sent: u64,
    /// How often something was written.
    changes: u64,
    /// The engine leaves it out, until it has got what it was sent.
    is_late: bool,
}

/// What became of a publication at one member.
#[derive(Debug)]
pub struct MemberDelivery {
    /// Which.
    pub member: HostId,
    /// It has it, or will have it in a moment; [`Error::Busy`]: it gets nothing of this
    /// one, as the way to it is full; any other error: it is no member any more.
    pub result: Result<(), Error>,
}

impl Node {
    /// Founds a group with this many bytes of memory, without members yet. Only this
    /// node writes it.
    ///
    /// # Errors
    /// The length is none that memory can have, or there is no room for one more.
    pub fn found_group(&self, len: u64) -> Result<Group, Error> {
        self.handle().check()?;
        let (host, handle) = (self.host(), self.handle().clone());
        let no_room = |error| refused(error, "group");
        // Before it has windows it is nothing but a cookie that nobody knows.
        let cookie = handle.first().look(|core| {
            let slot = core.next_group;
            let cookie = core.engine.found_group(host, slot, len).map_err(no_room)?;
            core.next_group = slot.wrapping_add(1);
            Ok::<_, Error>(cookie)
        })?;
        let (ids, members, bodies) = (Vec::new(), Vec::new(), VecDeque::new());
        let mut group =
            Group { handle, ids, cookie, is_multicast: false, members, next: 0, bodies };
        for engine in group.handle.engines() {
            let mapped = engine.ask(|core, now| {
                let id = core.engine.map_group(&cookie, &[])?;
                core.groups.insert(id, Vec::new());
                Ok((id, core.multicast(now, id)))
            });
            let (id, is_multicast) = mapped.map_err(no_room)?;
            group.ids.push(id);
            group.is_multicast = is_multicast;
        }
        Ok(group)
    }

    /// What the founder of the group writes comes to lie in this memory from now on,
    /// as long as it is there or until this node [leaves](Self::leave_group). Nobody
    /// else who knows the cookie can write it.
    ///
    /// # Errors
    /// The memory is not this node's, revoked, or shorter than the group's; this node
    /// is a member already; or there is no room for one more.
    pub fn join_group(&self, group: &Cookie, memory: &Aperture) -> Result<(), Error> {
        self.handle().check()?;
        if !memory.is_of(self.handle()) {
            return Err(Error::BadConfig("memory of its own is what a node joins a group with"));
        }
        for (nth, engine) in self.handle().engines().iter().enumerate() {
            let joined =
                engine.look(|core| core.engine.join_group_of(group.host(), group, memory.id()));
            if let Err(error) = joined {
                for engine in &self.handle().engines()[..nth] {
                    // It has joined there just now.
                    let _ = engine.look(|core| core.engine.leave_group(group));
                }
                return Err(match error {
                    clan_dsm::Error::Unknown => Error::StaleCookie,
                    clan_dsm::Error::OutOfBounds => {
                        let (expected, found) = (group.len(), memory.lent().len());
                        Error::Mismatch { expected, found }
                    }
                    other => refused(other, "group"),
                });
            }
        }
        Ok(())
    }

    /// Nothing more is accepted for the group. The writer is told when it writes.
    ///
    /// # Errors
    /// This node is no member.
    pub fn leave_group(&self, group: &Cookie) -> Result<(), Error> {
        let mut all = Ok(());
        for engine in self.handle().engines() {
            // At each of them, also where one does not know it.
            all = all.and(engine.look(|core| core.engine.leave_group(group)));
        }
        all.map_err(|error| refused(error, "group"))
    }
}

impl NodeState {
    /// What is written to a group leaves once, where the node has an address for that; with a
    /// key that no group had before, where anything is sealed. Without room for one more such
    /// group there is a copy for each member. Says whether it is so.
    fn multicast(&mut self, now: landfall_placement::Instant, id: WindowId) -> bool {
        let Some((path, to)) = self.multicast else { return false };
        let key = self.engine.open_group(now, path, to);
        let key = key.map(|(number, secret)| GroupKey { number, secret });
        let has_key = key.is_some() || self.engine.is_plain(path, to);
        let to = key.map_or(to, |key| Peer::Node(key.number));
        let is_multicast = has_key && self.engine.multicast(now, id, path, to, key).is_ok();
        if !is_multicast {
            self.engine.end_multicast(now, id);
            key.inspect(|key| self.engine.forget(Peer::Node(key.number)));
        }
        is_multicast
    }
}

impl Group {
    /// What nodes need to [join](Node::join_group). It opens nothing else.
    #[must_use]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Who gets what is written.
    pub fn members(&self) -> impl Iterator<Item = HostId> + '_ {
        self.members.iter().map(|member| member.host)
    }

    /// How many members get what is published by the node's [multicast
    /// address](super::Builder::multicast), at the moment. A member is one of them once it has
    /// heard that address and something was published since.
    #[must_use]
    pub fn reached(&self) -> usize {
        let engines = self.handle.engines().iter().zip(&self.ids);
        engines.map(|(engine, id)| engine.look(|core| core.engine.multicast_members(*id))).sum()
    }

    /// From now on what is written goes to this host, too, behind all that was written
    /// to it before. It has to have joined, or refuses it.
    ///
    /// # Errors
    /// No link to it is up, it is a member already, or there is no room for one more.
    pub fn add(&mut self, member: HostId) -> Result<(), Error> {
        self.handle.check()?;
        if self.members.iter().any(|known| known.host == member) {
            return Err(refused(clan_dsm::Error::Taken, "member of the group"));
        }
        let nth = self.handle.nth_for_host(member);
        let id = self.ids[nth];
        let (neighbour, state) = self.handle.at(nth).look(|core| {
            let neighbour = core.neighbour(member).ok_or(Error::NoRoute)?;
            let added = core.engine.add_member(id, member);
            added.map_err(|error| refused(error, "member of the group"))?;
            let state = Arc::new(WindowState::new(Arc::clone(&neighbour)));
            if let Some(states) = core.groups.get_mut(id) {
                states.push((member, Arc::clone(&state)));
            }
            Ok::<_, Error>((neighbour, state))
        })?;
        let (number, host, sent, changes) = (self.next, member, 0, 0);
        self.next += 1;
        self.members.push(Member {
            number,
            host,
            nth,
            neighbour,
            state,
            sent,
            changes,
            is_late: false,
        });
        Ok(())
    }

    /// What is written does not go to this host any more. By a multicast address it may hear what
    /// the others are sent until it is told, over its link; where nodes encrypt, what is published
    /// after this has another key, which it does not get.
    pub fn remove(&mut self, member: HostId) {
        if let Some(at) = self.members.iter().position(|known| known.host == member) {
            self.forget(at);
        }
    }

    /// Writes bytes at these places of each member's memory, in this order, and sends
    /// them off. A member gets all of it or nothing, and none waits for another. Tells
    /// what became of each.
    ///
    /// # Errors
    /// What is the same for all, and then nobody got anything: a place is not within the
    /// memory, there is no room for the bytes, or the node does not run any more.
    pub fn publish(&mut self, writes: &[(u64, &[u8])]) -> Result<Vec<MemberDelivery>, Error> {
        let mut told = Vec::with_capacity(self.members.len());
        self.publish_to_each(writes, &mut |member, result| {
            told.push(MemberDelivery { member: member.host, result });
        })?;
        Ok(told)
    }

    fn publish_to_each(
        &mut self,
        writes: &[(u64, &[u8])],
        tell: &mut dyn FnMut(&Member, Result<(), Error>),
    ) -> Result<(), Error> {
        self.handle.check()?;
        for (offset, bytes) in writes {
            self.check_range(*offset, bytes.len() as u64)?;
        }
        let body = self.take_body(writes)?;
        let pieces = pieces(writes, body.as_ref());
        self.remove_lost_members(tell);
        let Self { handle, ids, members, .. } = self;
        for (nth, (engine, id)) in handle.engines().iter().zip(ids).enumerate() {
            engine
                .ask(|core, now| {
                    let NodeState { engine, writes, .. } = core;
                    for member in members.iter_mut().filter(|member| member.nth == nth) {
                        member.keep_up(engine, *id, tell);
                    }
                    // Their order here is almost always the engine's.
                    let mut next = 0;
                    let mut published = |host: HostId, result: Result<_, clan_dsm::Error>| {
                        let places = (next..members.len()).chain(0..next);
                        let Some(at) = { places }.find(|at| members[*at].host == host) else {
                            return;
                        };
                        next = at + 1;
                        let member = &mut members[at];
                        if let (Ok(Some(write)), Some(body)) = (&result, &body) {
                            member.sent += body.staged().unwrap_or(0);
                            writes.insert(*write, WriteRecord::new(body.clone(), &member.state));
                        }
                        member.changes += u64::from(result.is_ok());
                        // Its link has gone this moment: the next call finds it.
                        let result = result.map(drop).map_err(|error| match error {
                            clan_dsm::Error::NoLink => Error::Busy,
                            other => refused(other, "write"),
                        });
                        tell(member, result);
                    };
                    engine.publish(now, *id, &pieces, &mut published)
                })
                .map_err(|error| refused(error, "write"))?;
        }
        Ok(())
    }

    /// Waits until each member has all that was published for it, or is gone.
    ///
    /// # Errors
    /// The node does not run any more, or the deadline is over.
    pub fn wait_delivered(&self, deadline: Option<Instant>) -> Result<(), Error> {
        let handle = self.handle.clone();
        handle.block_on(self.delivered(), deadline)?.ok_or(Error::TimedOut)?
    }

    /// The same for a task.
    ///
    /// # Errors
    /// The node does not run any more.
    pub async fn delivered(&self) -> Result<(), Error> {
        poll_fn(|context| self.poll_delivered(context)).await
    }

    fn poll_delivered(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut is_done = true;
        for member in &self.members {
            member.state.register(context);
            is_done &= member.has_all(&self.handle);
        }
        self.handle.check()?;
        if is_done { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.cookie.len() => Ok(()),
            _ => Err(Error::OutOfBounds { offset, len, size: self.cookie.len() }),
        }
    }

    /// Copies what is long to where all members are sent it from.
    fn take_body(&mut self, writes: &[(u64, &[u8])]) -> Result<Option<Source>, Error> {
        let long = || writes.iter().filter(|write| is_long(write));
        let len: u64 = long().map(|(_, bytes)| (bytes.len() as u64).next_multiple_of(WORD)).sum();
        if len == 0 {
            return Ok(None);
        }
        let mut found = None;
        for _ in 0..TRIES.min(self.bodies.len()) {
            let Some(oldest) = self.bodies.pop_front() else { break };
            // Nobody else holds it: each member has what was sent from it.
            let is_free = Arc::strong_count(&oldest) == 1;
            if is_free && oldest.len() >= len {
                found = Some(oldest);
                break;
            }
            // One that is too short goes.
            if !is_free {
                self.bodies.push_back(oldest);
            }
        }
        let lent = match found {
            Some(lent) => lent,
            None => {
                let room = usize::try_from(len.next_power_of_two()).ok();
                let memory = room.and_then(|room| Memory::try_zeroed(room).ok());
                self.handle.pool().lend(memory.ok_or(Error::NoRoom("byte of memory"))?)?
            }
        };
        let mut at = 0;
        for (_, bytes) in long() {
            lent.copy_in(at, bytes)?;
            at += (bytes.len() as u64).next_multiple_of(WORD);
        }
        self.bodies.push_back(Arc::clone(&lent));
        Ok(Some(Source::shared(lent, len)))
    }

    /// Members that are gone, or refused something, are none any more.
    fn remove_lost_members(&mut self, tell: &mut dyn FnMut(&Member, Result<(), Error>)) {
        let mut at = 0;
        while let Some(member) = self.members.get(at) {
            match member.check() {
                Ok(()) => at += 1,
                Err(error) => {
                    tell(member, Err(error));
                    self.forget(at);
                }
            }
        }
    }

    fn forget(&mut self, at: usize) {
        let Member { host, state, nth, .. } = self.members.remove(at);
        let (id, is_multicast) = (self.ids[nth], self.is_multicast);
        self.handle.engine(nth).enter(|core, now| {
            // The window is there as long as the group is.
            let _ = core.engine.remove_member(id, host);
            if is_multicast && core.engine.is_sealed() {
                // It has the key of what was sent until now, and not of what will be.
                core.multicast(now, id);
            }
            if let Some(states) = core.groups.get_mut(id) {
                states.retain(|(_, known)| !Arc::ptr_eq(known, &state));
            }
        });
    }
}

/// Is it sent from memory? The others are copied for each member.
fn is_long((offset, bytes): &(u64, &[u8])) -> bool {
    bytes.len() > SMALL && offset.is_multiple_of(WORD)
}

/// What the engine is to write: what is short as it is, what is long from `body`.
fn pieces<'a>(writes: &[(u64, &'a [u8])], body: Option<&Source>) -> Vec<GroupWrite<'a>> {
    let mut at = 0;
    let filled = writes.iter().filter(|(_, bytes)| !bytes.is_empty());
    let piece = |write: &(u64, &'a [u8])| match (body, *write) {
        (Some(body), (offset, bytes)) if is_long(write) => {
            let from = body.area(at, bytes.len() as u64);
            at += (bytes.len() as u64).next_multiple_of(WORD);
            GroupWrite::Memory { offset, from }
        }
        (_, (offset, bytes)) => GroupWrite::Bytes { offset, bytes },
    };
    filled.map(piece).collect()
}

impl Member {
    fn check(&self) -> Result<(), Error> {
        self.state.check()?;
        self.neighbour.check()
    }

    /// Leaves one out that is late, or takes it in again.
    fn keep_up(
        &mut self,
        engine: &mut clan_dsm::Nic,
        id: WindowId,
        tell: &mut dyn FnMut(&Self, Result<(), Error>),
    ) {
        let late = self.sent - self.state.unstaged.load(Ordering::Acquire);
        if self.is_late && late <= LATE / 2 {
            self.is_late = engine.add_member(id, self.host).is_err();
        } else if !self.is_late && late >= LATE {
            self.is_late = engine.remove_member(id, self.host).is_ok();
        }
        if self.is_late {
            tell(self, Err(Error::Busy));
        }
    }

    fn has_all(&self, handle: &NodeHandle) -> bool {
        let has_it = || self.state.delivered() >= self.changes;
        if has_it() || self.check().is_err() {
            return true;
        }
        if self.state.begin_barrier() {
            let (link, changes) = (self.neighbour.link, self.changes);
            handle.at(self.nth).ask(|core, now| core.barrier(now, link, &self.state, changes));
        }
        has_it()
    }
}

impl fabric::Group for Group {
    type Remote = Window;

    fn cookie(&self) -> Cookie {
        self.cookie
    }

    fn add(&mut self, member: &Window) -> Result<u64, Error> {
        let number = self.next;
        Self::add(self, member.host().ok_or(Error::NoRoute)?)?;
        Ok(number)
    }

    fn publish(
        &mut self,
        writes: &[(u64, &[u8])],
        tell: &mut dyn FnMut(u64, Result<(), Error>),
    ) -> Result<(), Error> {
        self.publish_to_each(writes, &mut |member, result| tell(member.number, result))
    }

    fn keeps_order_with_writes(&self) -> bool {
        !self.is_multicast
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (engine, id) in self.handle.engines().iter().zip(&self.ids) {
            engine.look(|core| {
                core.groups.remove(*id);
                let _ = core.engine.unmap(*id);
            });
        }
    }
}
