//! Each rank has a vector, and gets the sum of all of them: a reduce-scatter and an allgather by
//! Rabenseifner's recursive halving and doubling, with groups of any size in the place of pairs.
//!
//! A rank's number has digits to the base of the size of a group. On level `l` those whose numbers
//! differ in digit `l` alone are a group: they divide their part of the vector among them, and
//! each adds up what it gets of its share. On the way back each gives its share to all others.

use std::collections::BTreeMap;
use std::rc::Rc;

use landfall_placement::{Area, Instant};
use landfall_simnet::Memory;
use landfall_simnet::memory::Writer;
use stp_core::{Config, ConnectionId, Endpoint};

use super::{Arrived, Network, Outcome, World};

const WORD: u64 = 8;

/// What a rank has to do on a level.
struct Level {
    /// The others of its group, and the part of the vector that each of them adds up.
    others: Vec<(usize, Area)>,
    /// Its own part.
    own: Area,
    /// Where it gets what the others have of its own part.
    scratch: Vec<Area>,
}

/// A rank in the middle of it.
struct Reduction {
    levels: Vec<Level>,
    connections: BTreeMap<usize, ConnectionId>,
    /// How many messages of each step are there, and how many have to be.
    came: Vec<usize>,
    group: usize,
    step: usize,
    /// To which step a message belongs, by its place.
    step_of: Vec<(Area, usize)>,
}

/// `group` to the power of `levels` ranks, with vectors of this many words of 8 bytes each, which
/// is a multiple of the number of ranks.
pub(crate) fn allreduce(
    (group, levels): (usize, u32),
    words: usize,
    network: Network,
    config: &Config,
) -> Outcome {
    let ranks = group.pow(levels);
    assert!(words.is_multiple_of(ranks), "each rank adds up as many words as the others");
    let mut world = World::new(ranks, network, config);
    let scales: Vec<usize> = (0..levels).map(|level| group.pow(level)).collect();
    let digit = |rank: usize, scale: usize| rank / scale % group;
    let mut pairs = Vec::new();
    for rank in 0..ranks {
        for &scale in &scales {
            let later = digit(rank, scale) + 1..group;
            pairs.extend(later.map(|other| (rank, rank + (other - digit(rank, scale)) * scale)));
        }
    }
    world.connect(&pairs);
    let mut vectors = Vec::new();
    for rank in 0..ranks {
        let value = |at: usize| ((rank + 1) * (at + 1)) as u64;
        let bytes = (0..words).flat_map(|at| value(at).to_le_bytes()).collect();
        let vector = world.lend(rank, bytes);
        let reduction = Reduction::new(&mut world, rank, (group, &scales), vector);
        let shared = Rc::new(std::cell::RefCell::new(reduction));
        let reacting = Rc::clone(&shared);
        world.react(rank, move |now, endpoint, memory, arrived| {
            reacting.borrow_mut().react(now, endpoint, memory, arrived)
        });
        vectors.push((vector, shared));
    }
    let all: Vec<usize> = (0..ranks).collect();
    let bytes = 2 * (words / ranks * (ranks - 1)) as u64 * WORD;
    let outcome = world.measure(&all, bytes, |world| {
        for (rank, (_, reduction)) in vectors.iter().enumerate() {
            for (other, part) in reduction.borrow().outgoing() {
                world.send(rank, other, part);
            }
        }
    });
    // 1 + 2 + … of all ranks.
    let sum = ranks * (ranks + 1) / 2;
    for (rank, (vector, _)) in world.ranks.iter().zip(&vectors) {
        let memory = world.sim.node(rank.host).unwrap().memory();
        let words = memory.bytes(vector.region).unwrap().as_chunks::<8>().0;
        let is_right =
            |(at, word): (usize, &[u8; 8])| u64::from_le_bytes(*word) == (sum * (at + 1)) as u64;
        assert!(words.iter().enumerate().all(is_right), "every rank has the sum");
    }
    outcome
}

/// A part of an area.
fn part(area: Area, at: u64, len: u64) -> Area {
    Area { offset: area.offset + at, len, ..area }
}

impl Reduction {
    /// Says where everything goes that others will send to this rank.
    fn new(
        world: &mut World,
        rank: usize,
        (group, scales): (usize, &[usize]),
        vector: Area,
    ) -> Self {
        let (mut levels, mut step_of) = (Vec::new(), Vec::new());
        let (mut whole, last) = (vector, 2 * scales.len() - 1);
        for (step, &scale) in scales.iter().enumerate() {
            let len = whole.len / group as u64;
            let share = |digit: usize| part(whole, digit as u64 * len, len);
            let digit = rank / scale % group;
            let other = |other: usize| (rank + other * scale - digit * scale, share(other));
            // Each begins with the one behind it: nobody is everybody's first.
            let others: Vec<_> = (1..group).map(|behind| other((digit + behind) % group)).collect();
            let memory = world.lend(rank, vec![0; others.len() * len as usize]);
            let scratch: Vec<_> =
                (0..others.len() as u64).map(|nth| part(memory, nth * len, len)).collect();
            for ((other, share), scratch) in others.iter().zip(&scratch) {
                world.post(rank, *other, *scratch);
                world.post(rank, *other, *share);
                step_of.extend([(*scratch, step), (*share, last - step)]);
            }
            let own = share(digit);
            levels.push(Level { others, own, scratch });
            whole = own;
        }
        let connections = world.ranks[rank].state.borrow().connections.clone();
        let came = vec![0; last + 1];
        Self { levels, connections, came, group, step: 0, step_of }
    }

    /// The level of a step: down, and up again.
    fn level(&self) -> &Level {
        let last = 2 * self.levels.len() - 1;
        &self.levels[self.step.min(last - self.step)]
    }

    fn is_reducing(&self) -> bool {
        self.step < self.levels.len()
    }

    /// What is sent in a step.
    fn outgoing(&self) -> Vec<(usize, Area)> {
        let level = self.level();
        let what = |(other, share): &(usize, Area)| {
            (*other, if self.is_reducing() { *share } else { level.own })
        };
        level.others.iter().map(what).collect()
    }

    /// Something has arrived. Was it the last?
    fn react(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut Memory,
        arrived: &Arrived,
    ) -> bool {
        let is_it = |(place, _): &&(Area, usize)| *place == arrived.memory;
        let (_, step) = self.step_of.iter().find(is_it).expect("it was posted");
        self.came[*step] += 1;
        while self.came.get(self.step) == Some(&(self.group - 1)) {
            if self.is_reducing() {
                add_up(now, memory, self.level());
            }
            self.step += 1;
            if self.step == self.came.len() {
                return true;
            }
            for (other, part) in self.outgoing() {
                endpoint.send(now, self.connections[&other], part, 0).unwrap();
            }
        }
        false
    }
}

/// Adds what others have of a rank's own part to what it has itself.
fn add_up(now: Instant, memory: &mut Memory, level: &Level) {
    let span = |area: Area| area.span(0, area.len as u32);
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    let mut sum = words(memory.read(span(level.own)).unwrap());
    for scratch in &level.scratch {
        let added = words(memory.read(span(*scratch)).unwrap());
        sum.iter_mut().zip(added).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
    }
    let bytes: Vec<u8> = sum.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write(now, Writer::User, span(level.own), &bytes).unwrap();
}
