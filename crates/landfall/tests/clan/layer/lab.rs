//! [`Lab`]: a fabric on which everything takes its time.
//!
//! What is written lies in flight, word by word, until the test lets it arrive; so a
//! test sees the layer in every state that a network can bring it into: with half a
//! message here, with a counter that is late, with a way that is full, and with a peer
//! that died in between. It is deterministic. Anyone who waits lets words arrive, as time
//! would.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{HostId, Key};
use landfall::clan::{
    Access, Cookie, Dma, Error, Fabric, Local, Remote, Rights, Stage, Tripwire, WORD,
};

#[derive(Debug, Default)]
struct World {
    memories: Vec<Memory>,
    /// From each of the two nodes to the other.
    flights: [VecDeque<Write>; 2],
    is_down: [bool; 2],
    wires: Vec<Wire>,
    room_wakers: [Option<Waker>; 2],
    /// The most words in flight; more is [`Error::Busy`].
    most: usize,
    random: u64,
    at_commit: Option<Interruption>,
    /// This many commits are refused, and why.
    refused_commits: Option<(u32, fn() -> Error)>,
}

/// Something that happens between two steps of a call.
struct Interruption(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Interruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interruption")
    }
}

#[derive(Debug)]
struct Memory {
    owner: usize,
    words: Vec<u64>,
    len: u64,
    rights: Rights,
}

/// Some bytes of a word.
#[derive(Debug)]
struct Write {
    memory: usize,
    word: usize,
    value: u64,
    mask: u64,
}

#[derive(Debug)]
struct Wire {
    owner: usize,
    memory: usize,
    words: Range<usize>,
    has_peer: bool,
    is_armed: bool,
    has_fired: bool,
    waker: Option<Waker>,
}

/// One of two nodes.
#[derive(Clone, Debug)]
pub(crate) struct Lab {
    world: Arc<Mutex<World>>,
    node: usize,
}

impl Lab {
    /// Two nodes with a way for this many words in flight between them.
    pub(crate) fn pair(most: usize) -> (Self, Self) {
        let world = Arc::new(Mutex::new(World { most, random: 1, ..World::default() }));
        (Self { world: Arc::clone(&world), node: 0 }, Self { world, node: 1 })
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// This many words that this node wrote arrive.
    pub(crate) fn deliver(&self, words: usize) {
        let wakers = self.world().deliver(self.node, words);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// All that both wrote arrives.
    pub(crate) fn deliver_all(&self) {
        for node in 0..2 {
            let wakers = self.world().deliver(node, usize::MAX);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// How many words of this node are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.world().flights[self.node].len()
    }

    /// What happens when either node commits next, before that has come to its end.
    pub(crate) fn at_next_commit(&self, what: impl FnOnce() + Send + 'static) {
        self.world().at_commit = Some(Interruption(Box::new(what)));
    }

    /// The next commits are refused, this many of them.
    pub(crate) fn refuses_commits(&self, commits: u32, why: fn() -> Error) {
        self.world().refused_commits = Some((commits, why));
    }

    /// The node dies: what is in flight from it is lost.
    pub(crate) fn kill(&self) {
        let mut wakers = Vec::new();
        let mut world = self.world();
        world.is_down[self.node] = true;
        world.flights[self.node].clear();
        for wire in world.wires.iter_mut().filter(|wire| wire.has_peer) {
            wire.has_fired |= wire.owner != self.node;
            wakers.extend(wire.waker.take());
        }
        wakers.extend(world.room_wakers.iter_mut().filter_map(Option::take));
        drop(world);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl World {
    fn deliver(&mut self, from: usize, words: usize) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for _ in 0..words {
            let Some(write) = self.flights[from].pop_front() else { break };
            let Write { memory, word, value, mask } = write;
            let place = &mut self.memories[memory].words[word];
            *place = *place & !mask | value & mask;
            for wire in &mut self.wires {
                if wire.is_armed && wire.memory == memory && wire.words.contains(&word) {
                    (wire.is_armed, wire.has_fired) = (false, true);
                    wakers.extend(wire.waker.take());
                }
            }
        }
        // Anyone who waits for room looks for itself whether it is enough.
        wakers.extend(self.room_wakers[from].take());
        wakers
    }

    /// A few words of either side arrive, as if by time.
    fn pass_time(&mut self) -> Vec<Waker> {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let count = (self.random >> 60) as usize;
        let mut wakers = self.deliver((self.random >> 40 & 1) as usize, count);
        // So that everything ends.
        wakers.extend(self.deliver((self.random >> 41 & 1) as usize, 1));
        wakers
    }
}

impl Fabric for Lab {
    type Local = LabLocal;
    type Remote = LabRemote;
    type Tripwire = LabWire;

    fn expose(&self, len: u64, rights: Rights) -> Result<(LabLocal, Cookie), Error> {
        let mut world = self.world();
        let memory = world.memories.len();
        let words = vec![0; len.div_ceil(WORD) as usize];
        world.memories.push(Memory { owner: self.node, words, len, rights });
        let host = HostId::new(self.node as u16).unwrap();
        let cookie = Cookie::new(host, memory as u16, rights, Key::from_bits(7), len);
        Ok((LabLocal { lab: self.clone(), memory }, cookie))
    }

    fn map(&self, cookie: &Cookie) -> Result<LabRemote, Error> {
        let memory = usize::from(cookie.slot());
        if memory >= self.world().memories.len() {
            return Err(Error::StaleCookie);
        }
        Ok(LabRemote { lab: self.clone(), memory, dmas: 0, refused: 0 })
    }

    fn watch(
        &self,
        local: &LabLocal,
        range: Range<u64>,
        _: Access,
        peer: Option<&LabRemote>,
    ) -> Result<LabWire, Error> {
        let mut world = self.world();
        let words = (range.start / WORD) as usize..range.end.div_ceil(WORD) as usize;
        world.wires.push(Wire {
            owner: self.node,
            memory: local.memory,
            words,
            has_peer: peer.is_some(),
            is_armed: false,
            has_fired: false,
            waker: None,
        });
        Ok(LabWire { lab: self.clone(), wire: world.wires.len() - 1 })
    }

    /// Returns early each time, with either answer.
    fn wait(&self, tripwires: &[&LabWire], _: Option<Instant>) -> Result<bool, Error> {
        let wakers = self.world().pass_time();
        wakers.into_iter().for_each(Waker::wake);
        Ok(tripwires.iter().any(|wire| wire.has_fired()))
    }

    fn relax(&self) {
        let wakers = self.world().pass_time();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Memory of a node.
#[derive(Clone, Debug)]
pub(crate) struct LabLocal {
    lab: Lab,
    memory: usize,
}

impl World {
    fn check(&self, memory: usize, offset: u64, len: u64) -> Result<(), Error> {
        let size = self.memories[memory].len;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::OutOfBounds { offset, len, size }),
        }
    }
}

fn aligned(offset: u64) -> Result<(), Error> {
    if offset.is_multiple_of(WORD) { Ok(()) } else { Err(Error::Unaligned(offset)) }
}

impl Local for LabLocal {
    fn len(&self) -> u64 {
        self.lab.world().memories[self.memory].len
    }

    fn load(&self, offset: u64) -> Result<u64, Error> {
        aligned(offset)?;
        let world = self.lab.world();
        world.check(self.memory, offset, WORD)?;
        Ok(world.memories[self.memory].words[(offset / WORD) as usize])
    }

    fn store(&self, offset: u64, word: u64) -> Result<(), Error> {
        aligned(offset)?;
        let mut world = self.lab.world();
        world.check(self.memory, offset, WORD)?;
        world.memories[self.memory].words[(offset / WORD) as usize] = word;
        Ok(())
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let world = self.lab.world();
        world.check(self.memory, offset, into.len() as u64)?;
        let words = &world.memories[self.memory].words;
        for (at, byte) in (offset..).zip(into) {
            *byte = words[(at / WORD) as usize].to_le_bytes()[(at % WORD) as usize];
        }
        Ok(())
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut world = self.lab.world();
        world.check(self.memory, offset, bytes.len() as u64)?;
        let words = &mut world.memories[self.memory].words;
        for (at, byte) in (offset..).zip(bytes) {
            let word = &mut words[(at / WORD) as usize];
            let mut old = word.to_le_bytes();
            old[(at % WORD) as usize] = *byte;
            *word = u64::from_le_bytes(old);
        }
        Ok(())
    }
}

/// Memory of the other node.
#[derive(Debug)]
pub(crate) struct LabRemote {
    lab: Lab,
    memory: usize,
    dmas: u64,
    /// How many words the write had that was refused last.
    refused: usize,
}

impl LabRemote {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check()?;
        let mut world = self.lab.world();
        world.check(self.memory, offset, bytes.len() as u64)?;
        if !world.memories[self.memory].rights.allow(Rights::Write) {
            return Err(Error::Forbidden);
        }
        let mut writes: VecDeque<Write> = VecDeque::new();
        for (at, byte) in (offset..).zip(bytes) {
            let (word, shift) = ((at / WORD) as usize, at % WORD * 8);
            if writes.back().is_none_or(|last| last.word != word) {
                writes.push_back(Write { memory: self.memory, word, value: 0, mask: 0 });
            }
            let last = writes.back_mut().unwrap();
            last.value |= u64::from(*byte) << shift;
            last.mask |= 0xff << shift;
        }
        // One that is longer than the way goes when the way is free.
        let most = world.most;
        let flight = &mut world.flights[self.lab.node];
        if !flight.is_empty() && flight.len() + writes.len() > most {
            let refused = writes.len();
            drop(world);
            self.refused = refused;
            return Err(Error::Busy);
        }
        flight.append(&mut writes);
        Ok(())
    }
}

impl Remote for LabRemote {
    type Local = LabLocal;

    fn len(&self) -> u64 {
        self.lab.world().memories[self.memory].len
    }

    fn store(&mut self, offset: u64, word: u64) -> Result<(), Error> {
        aligned(offset)?;
        self.put(offset, &word.to_le_bytes())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.put(offset, bytes)
    }

    fn write_from(
        &mut self,
        offset: u64,
        from: &LabLocal,
        range: Range<u64>,
    ) -> Result<Dma, Error> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        from.copy_out(range.start, &mut bytes)?;
        self.put(offset, &bytes)?;
        self.dmas += 1;
        Ok(Dma(self.dmas))
    }

    fn commit(&mut self) -> Result<(), Error> {
        let mut world = self.lab.world();
        if let Some((left @ 1.., why)) = &mut world.refused_commits {
            *left -= 1;
            return Err(why());
        }
        drop(world);
        let interruption = self.lab.world().at_commit.take();
        if let Some(Interruption(happens)) = interruption {
            happens();
        }
        self.check()
    }

    fn read(&mut self, _: u64, _: &mut [u8], _: Option<Instant>) -> Result<(), Error> {
        panic!("the programming layer never reads remotely");
    }

    fn check(&self) -> Result<(), Error> {
        let world = self.lab.world();
        if world.is_down[self.lab.node] {
            Err(Error::NodeGone)
        } else if world.is_down[world.memories[self.memory].owner] {
            Err(Error::PeerLost)
        } else {
            Ok(())
        }
    }

    fn is_reached(&self, stage: Stage) -> Result<bool, Error> {
        self.check()?;
        let world = self.lab.world();
        let flight = &world.flights[self.lab.node];
        Ok(match stage {
            Stage::Room => flight.is_empty() || flight.len() + self.refused <= world.most,
            Stage::Sent(_) | Stage::Delivered => flight.is_empty(),
        })
    }

    fn wait_for(&mut self, stage: Stage, _: Option<Instant>) -> Result<(), Error> {
        while !self.is_reached(stage)? {
            self.lab.relax();
        }
        Ok(())
    }

    fn poll_reached(&mut self, stage: Stage, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.lab.world().room_wakers[self.lab.node] = Some(context.waker().clone());
        match self.is_reached(stage) {
            Ok(false) => Poll::Pending,
            other => Poll::Ready(other.map(drop)),
        }
    }
}

/// A tripwire.
#[derive(Debug)]
pub(crate) struct LabWire {
    lab: Lab,
    wire: usize,
}

impl Tripwire for LabWire {
    fn arm(&self) {
        let wire = &mut self.lab.world().wires[self.wire];
        (wire.is_armed, wire.has_fired) = (true, false);
    }

    fn disarm(&self) {
        let wire = &mut self.lab.world().wires[self.wire];
        (wire.is_armed, wire.has_fired) = (false, false);
    }

    fn has_fired(&self) -> bool {
        let world = self.lab.world();
        let wire = &world.wires[self.wire];
        wire.has_fired || wire.has_peer && world.is_down[1 - wire.owner]
    }

    fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()> {
        self.lab.world().wires[self.wire].waker = Some(context.waker().clone());
        if self.has_fired() { Poll::Ready(()) } else { Poll::Pending }
    }
}
