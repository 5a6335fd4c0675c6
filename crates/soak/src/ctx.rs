//! [`Ctx`]: what all parts of a run share.

use std::collections::BTreeMap;

use landfall_placement::{Area, Engine, Instant, Random};
use landfall_simnet::{EngineNode, Handle, Sim};

use crate::net::{Net, at};
use crate::plan::{Act, Plan, Work};
use crate::story::Story;

/// Findings of one run; more would say nothing new.
const MOST_WRONG: usize = 8;
/// What lies around memory that is given to engines.
pub(crate) const AROUND: u8 = 0xa7;
/// How much of it, before and behind.
pub(crate) const BEFORE: usize = 24;
const BEHIND: usize = 24;

/// What all parts of a run share.
pub(crate) struct Ctx {
    pub(crate) sim: Sim,
    pub(crate) net: Net,
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) story: Story,
    /// Something happened after which connections may end that nobody ended.
    pub(crate) is_severe: bool,
    /// So it was before faults ended.
    pub(crate) was_severe: bool,
    /// Faults are over.
    pub(crate) is_healed: bool,
    /// Users end what they have.
    pub(crate) is_closing: bool,
    /// Whose users take no events.
    pub(crate) frozen: Vec<bool>,
    pub(crate) wrong: Vec<String>,
    pub(crate) tally: BTreeMap<&'static str, u64>,
}

impl Ctx {
    pub(crate) fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Something is not as it must be.
    pub(crate) fn fail(&mut self, host: u8, what: &str) {
        let now = self.now();
        if self.wrong.len() < MOST_WRONG {
            self.wrong.push(format!("host {host} at {}: {what}", at(now)));
        }
        self.story.note(now, Some(host), || format!("WRONG: {what}"));
    }

    /// Something happened that a person may want to read.
    pub(crate) fn note(&self, host: u8, what: impl FnOnce() -> String) {
        self.story.note(self.sim.now(), Some(host), what);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Gives a host memory with these bytes in it, guarded on both sides.
    pub(crate) fn lend<E: Engine + 'static>(
        &mut self,
        node: Handle<EngineNode<E>>,
        bytes: &[u8],
    ) -> Option<Area> {
        let mut all = vec![AROUND; BEFORE + bytes.len() + BEHIND];
        all[BEFORE..BEFORE + bytes.len()].copy_from_slice(bytes);
        let memory = self.sim.node_mut(node).ok()?.memory_mut();
        let region = memory.lend(all).ok()?;
        Some(Area::new(region, BEFORE as u64, bytes.len() as u64))
    }

    /// Takes memory back that no engine may use any more, with what was around it untouched.
    pub(crate) fn take_back<E: Engine + 'static>(
        &mut self,
        host: u8,
        node: Handle<EngineNode<E>>,
        area: Area,
    ) {
        let Ok(node) = self.sim.node_mut(node) else { return };
        match node.memory_mut().take_back(area.region) {
            Ok(all) if is_guarded(&all, area) => {}
            Ok(_) => self.fail(host, &format!("something was written around {area}")),
            Err(error) => self.fail(host, &format!("{area} is given back twice: {error}")),
        }
    }

    /// The bytes of a host's memory; nothing where it is gone.
    pub(crate) fn bytes<E: Engine + 'static>(
        &self,
        node: Handle<EngineNode<E>>,
        area: Area,
    ) -> &[u8] {
        let Ok(node) = self.sim.node(node) else { return &[] };
        node.memory().read(area.span(0, area.len as u32)).unwrap_or(&[])
    }

    /// Is what lies around memory untouched?
    pub(crate) fn is_guarded<E: Engine + 'static>(
        &self,
        node: Handle<EngineNode<E>>,
        area: Area,
    ) -> bool {
        let Ok(node) = self.sim.node(node) else { return true };
        node.memory().bytes(area.region).is_ok_and(|all| is_guarded(all, area))
    }

    /// The driver could use all memory that the engine named.
    pub(crate) fn check_driver<E: Engine + 'static>(
        &mut self,
        host: u8,
        node: Handle<EngineNode<E>>,
    ) {
        let Ok(known) = self.sim.node(node) else { return };
        let counters = *known.counters();
        if counters.failed + counters.unsendable > 0 {
            let what = format!(
                "memory was named that was given back: {} placements, {} transmissions",
                counters.failed, counters.unsendable
            );
            self.fail(host, &what);
        }
    }

    /// May something arrive twice?
    pub(crate) fn may_double(&self) -> bool {
        let never = landfall_simnet::Probability::NEVER;
        self.plan.planes.iter().any(|plane| plane.link.duplication != never)
            || self.plan.steps.iter().any(|step| matches!(step.act, Act::Replay { .. }))
    }

    /// A number below.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.random.chance(percent * 10_000)
    }
}

fn is_guarded(all: &[u8], area: Area) -> bool {
    let end = (area.offset + area.len) as usize;
    let around = all.iter().take(area.offset as usize).chain(all.iter().skip(end));
    around.copied().all(|byte| byte == AROUND)
}

/// Bytes that no other message has.
pub(crate) fn pattern(name: u64, len: usize) -> Vec<u8> {
    let salt = (name + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = vec![0; len.next_multiple_of(8)];
    for (n, word) in (1u64..).zip(bytes.chunks_exact_mut(8)) {
        let mixed = (salt ^ salt >> 29).wrapping_add(n.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The work of one protocol on all hosts, with what its users know.
pub(crate) trait Part {
    /// Work is begun, if it is this part's.
    fn apply(&mut self, ctx: &mut Ctx, from: u8, to: u8, work: Work);
    /// Something happened: what were users told, and is it so?
    fn hear(&mut self, ctx: &mut Ctx);
    /// A host was killed and starts again.
    fn restart(&mut self, ctx: &mut Ctx, host: u8);
    /// Users of a host take no events, or do again.
    fn freeze(&mut self, ctx: &mut Ctx, host: u8, is_frozen: bool);
    /// Faults are over: users answer what they did not yet.
    fn settle(&mut self, ctx: &mut Ctx);
    /// Users end what they have.
    fn close(&mut self, ctx: &mut Ctx);
    /// What was begun and is not over.
    fn left(&self, ctx: &Ctx) -> Vec<String>;
    /// What was opened and is not closed.
    fn open(&self, ctx: &Ctx) -> Vec<String>;
    /// Nothing is beyond its bound, and drivers could use what engines named.
    fn check(&mut self, ctx: &mut Ctx);
}

/// The hosts of a part, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hosts(u32);

impl Hosts {
    pub(crate) fn new(are_there: impl Iterator<Item = bool>) -> Self {
        Self((0..32).zip(are_there).map(|(n, is_there)| u32::from(is_there) << n).sum())
    }
}

impl Iterator for Hosts {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let next = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (next < 32).then_some(next as u8)
    }
}
