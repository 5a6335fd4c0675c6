//! Two adapters and all that is between them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Area, Duration, Engine, Instant, PathId, PathState, RegionId};
use landfall_testkit::model::{Checked, Findings, Memory, UnderWay};

use super::driver::BOUNDS;
use super::ledger::Ledger;
use super::operations::{Operation, Setup};
use crate::adapter::{Adapter, Arm};
use crate::work::{CompletionQueueId, DomainId, ListenerId};

/// The only path.
pub(super) const PATH: PathId = PathId(0);
/// What memory holds that nothing was received to, and what lies around it.
pub(super) const FRESH: u8 = 0xc5;
pub(super) const GUARD: u8 = 0xa7;
/// What nothing was received to yet, as much as a request asks for at most.
pub(super) static ALL_FRESH: [u8; 9_000] = [FRESH; 9_000];
/// How many bytes of that lie around it.
const AROUND: usize = 9;
/// What an operation takes: the numbers of TCP go on with the clock.
const STEP: Duration = Duration::from_micros(5);

/// One side.
#[derive(Debug)]
pub(super) struct End {
    pub(super) checked: Checked<Adapter>,
    pub(super) memory: Memory,
    pub(super) domain: DomainId,
    /// Nobody of the side uses it.
    pub(super) other_domain: DomainId,
    pub(super) queue: CompletionQueueId,
    pub(super) listener: ListenerId,
    pub(super) armed: Option<Arm>,
    pub(super) under_way: UnderWay,
    /// What memory held when it was given back.
    pub(super) returned: Vec<(RegionId, Vec<u8>)>,
    pub(super) is_up: bool,
}

/// Two adapters, their users and drivers, and the wire between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) ends: [End; 2],
    pub(super) ledger: Ledger,
    pub(super) now: Instant,
    /// The number of the next request.
    pub(super) next: u64,
    pub(super) findings: Findings,
    /// What comes from the other side may be anybody's: only what must hold then
    /// is judged.
    pub(super) is_attacked: bool,
    /// Packets for each side that travel in pieces, one of which was changed.
    pub(super) flipped: BTreeSet<(usize, u32)>,
    /// A message that tells where a station is was changed, and has no checksum.
    pub(super) is_misled: bool,
}

impl World {
    /// Fresh adapters; the bytes choose their configuration.
    pub(super) fn new(choices: &[u8], with_story: bool) -> Self {
        let setup = Setup::new(choices);
        let mut world = Self {
            setup,
            ends: [0, 1].map(|side| End::new(setup, side)),
            ledger: Ledger::default(),
            now: Instant::from_millis(1),
            next: 1,
            findings: Findings::new(with_story),
            is_attacked: false,
            flipped: BTreeSet::new(),
            is_misled: false,
        };
        if setup.begins_connected() {
            world.apply(Operation::Offer { side: 1 });
            world.apply(Operation::Connect { side: 0 });
            world.apply(Operation::Bind { side: 0 });
            world.apply(Operation::Bind { side: 1 });
            world.apply(Operation::Settle);
        }
        world
    }

    /// Does one thing, and checks all that must be true then.
    pub(super) fn apply(&mut self, operation: Operation<'_>) {
        self.write_down(|| format!("{operation:?}"));
        self.now += STEP;
        match operation {
            Operation::Connect { side } => self.connect(side),
            Operation::Offer { side } => self.offer(side),
            Operation::Bind { side } => self.bind(side),
            Operation::Send { side, which, len, pieces } => self.send(side, which, len, pieces),
            Operation::Receive { side, which, len, pieces } => {
                self.receive(side, which, len, pieces);
            }
            Operation::Shutdown { side, which } => self.shutdown(side, which),
            Operation::Abort { side, which } => self.abort(side, which),
            Operation::Destroy { side, which } => self.destroy(side, which),
            Operation::Poll { side } => self.poll(side),
            Operation::Arm { side, solicited } => self.arm(side, solicited),
            Operation::Blunder { side, which, how } => self.blunder(side, which, how),
            Operation::Transmit { side, count, holds } => {
                self.transmit(side, usize::from(count) + 1, holds);
            }
            Operation::Release { side, newest_first } => self.release(side, newest_first),
            Operation::Turn { side, count, stride, fails } => {
                let fails = fails && self.setup.may_fail();
                self.turn(side, usize::from(count) + 1, usize::from(stride), fails);
            }
            Operation::Lose { side, which } => {
                self.pick(side, usize::from(which));
            }
            Operation::Double { side, which } => self.ends[side].under_way.double(which.into()),
            Operation::Replay { side, which } => self.ends[side].under_way.replay(which.into()),
            Operation::Flip { side, which, bit } => self.flip(side, usize::from(which), bit),
            Operation::Mark { side, which } => self.mark(side, usize::from(which)),
            Operation::Inject { side, bytes } => self.inject(side, bytes),
            Operation::Scatter { side } => self.scatter(side),
            Operation::Wait { some } => self.wait(some),
            Operation::Path { side, is_up } => self.set_path(side, is_up),
            Operation::Stale { side } => self.bring_back_old(side),
            Operation::Settle => self.settle(),
        }
        self.hear();
        self.check_bounds();
    }

    /// The model and the adapter disagree, where nobody lies.
    pub(super) fn fail(&mut self, side: usize, what: &str) {
        if !self.is_attacked {
            self.fail_badly(side, what);
        }
    }

    /// What must never be, whoever lies.
    pub(super) fn fail_badly(&mut self, side: usize, what: &str) {
        self.write_down(|| format!("side {side} FAILS: {what}"));
        self.findings.fail(format!("side {side} at {}: {what}", self.now));
    }

    /// Adds a line to the story.
    pub(super) fn write_down(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        self.findings.tell(|| format!("{now}  {}", what()));
    }

    /// A name that nothing had before.
    pub(super) const fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Nothing is beyond its bound (invariant 5).
    pub(super) fn check_bounds(&mut self) {
        for side in 0..2 {
            let end = &self.ends[side];
            let waiting = end.checked.engine.completions(end.queue);
            if waiting > self.setup.completions() as usize {
                self.fail(side, "more completions wait than the queue holds");
            }
        }
    }
}

impl End {
    fn new(setup: Setup, side: usize) -> Self {
        let mut adapter = Adapter::new(setup.config(), [side as u8 + 1; 32]);
        let added = adapter.add_interface(PATH, setup.interface(side));
        debug_assert_eq!(added, Ok(()), "the interface is valid");
        let fits = "a fresh adapter has room";
        let domain = adapter.create_domain().expect(fits);
        let other_domain = adapter.create_domain().expect(fits);
        let queue = adapter.create_completion_queue(setup.completions()).expect(fits);
        let listener = adapter.listen(setup.listens_at(side)).expect(fits);
        let mut checked = Checked::new(adapter);
        checked.handle_path(Instant::ZERO, PATH, PathState::Up(setup.limits()));
        Self {
            checked,
            memory: Memory::new(),
            domain,
            other_domain,
            queue,
            listener,
            armed: None,
            under_way: UnderWay::new(BOUNDS),
            returned: Vec::new(),
            is_up: true,
        }
    }

    /// Memory with these bytes, in the middle of its region, and guarded.
    pub(super) fn lend(&mut self, bytes: &[u8]) -> Area {
        let mut all = Vec::with_capacity(bytes.len() + 2 * AROUND);
        all.extend_from_slice(&[GUARD; AROUND]);
        all.extend_from_slice(bytes);
        all.extend_from_slice(&[GUARD; AROUND]);
        let region = self.memory.lend(all);
        Area::new(region, AROUND as u64, bytes.len() as u64)
    }

    /// The bytes of memory.
    pub(super) fn bytes(&self, area: &Area) -> &[u8] {
        self.memory.get(&area.span(0, area.len as u32)).unwrap_or(&[])
    }

    /// Is what lies around the memory untouched?
    pub(super) fn is_guarded(&self, area: &Area) -> bool {
        let Some(region) = self.memory.region(area.region) else { return false };
        let (before, rest) = region.split_at((area.offset as usize).min(region.len()));
        let behind = rest.get(area.len as usize..).unwrap_or(&[]);
        before.iter().chain(behind).all(|byte| *byte == GUARD)
    }
}
