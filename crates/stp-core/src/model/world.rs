//! Several endpoints and all that is between them.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{Area, Engine, Instant, PathId, PathState, RegionId};
use landfall_testkit::model::{Checked, Findings, Memory, UnderWay};

use super::driver::BOUNDS;
use super::ledger::{Truth, User};
use super::operations::Operation;
use super::room;
use super::setup::Setup;
use crate::endpoint::Endpoint;

/// The port that everybody listens at.
pub(super) const PORT: u16 = 7;
/// How many paths there are.
pub(super) const PATHS: u16 = 2;
/// What memory holds that nothing was received to, and what lies around it.
pub(super) const FRESH: u8 = 0xc5;
pub(super) const GUARD: u8 = 0xa7;
/// How many bytes of that lie behind it.
const BEHIND: usize = 9;

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) checked: Checked<Endpoint>,
    pub(super) memory: Memory,
    pub(super) under_way: UnderWay,
    pub(super) user: User,
    /// Memory that is shared on purpose: it may be written again and again.
    pub(super) shared: Vec<RegionId>,
    /// The driver could not use memory.
    pub(super) has_failed: bool,
    /// Its table of receives was full: who wants to send there may wait for
    /// who waits for it, until one of them gives up.
    pub(super) was_full: bool,
}

/// Endpoints, their users and drivers, and the network between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) ends: Vec<End>,
    pub(super) truth: Truth,
    pub(super) now: Instant,
    pub(super) findings: Findings,
    /// How often timeouts ran before the end, where everybody answers.
    pub(super) timeouts: u32,
    /// How much the users were told.
    pub(super) heard: u64,
}

impl World {
    /// Fresh endpoints; the bytes choose their configuration.
    pub(super) fn new(config: &[u8]) -> Self {
        let setup = Setup::new(config);
        let ends = (0..setup.sides()).map(|side| End::new(setup, side)).collect();
        let mut world = Self {
            setup,
            ends,
            truth: Truth::default(),
            now: Instant::from_millis(1),
            findings: Findings::new(false),
            timeouts: 0,
            heard: 0,
        };
        if setup.begins_connected() {
            world.apply(Operation::Connect { side: 0, to: 0, meets: false });
            for _ in 0..4 {
                world.settle();
                world.decide(1, 0, 0);
            }
        }
        world
    }

    pub(super) fn sides(&self) -> usize {
        self.ends.len()
    }

    /// Does one thing, and checks all that must be true then.
    pub(super) fn apply(&mut self, operation: Operation<'_>) {
        self.write_down(|| format!("{operation:?}"));
        match operation {
            Operation::Connect { side, to, meets } => self.connect(side, to, meets),
            Operation::Decide { side, which, how } => self.decide(side, which, how),
            Operation::Send { side, which, len } => self.send(side, which, len),
            Operation::Post { side, which, len, takes_part } => {
                self.post(side, which, len, takes_part);
            }
            Operation::Read { side, which, len } => self.read(side, which, len),
            Operation::Ask { side, which, len, rights } => self.ask(side, which, len, rights),
            Operation::Put { side, which, at, len, options } => {
                self.put(side, which, at, len, options);
            }
            Operation::Get { side, which, at, len } => self.get(side, which, at, len),
            Operation::Fetch { side, which, at, function } => {
                self.fetch(side, which, at, function);
            }
            Operation::Cancel { side, which, is_send } => self.cancel(side, which, is_send),
            Operation::Revoke { side, which } => self.revoke(side, which),
            Operation::Close { side, which, at_once } => self.close(side, which, at_once),
            Operation::AddLink { side, which } => self.add_link(side, which),
            Operation::Prefer { side, which } => self.prefer(side, which),
            Operation::Transmit { side, path, count, holds } => {
                self.transmit(side, PathId(path), usize::from(count) + 1, holds);
            }
            Operation::Release { side, newest_first } => self.release(side, newest_first),
            Operation::Place { side, which } => self.place(side, usize::from(which)),
            Operation::Land { side, count, fails } => self.land(side, usize::from(count), fails),
            Operation::Lose { side, which } => {
                self.ends[side].under_way.pick(which.into());
            }
            Operation::Double { side, which } => self.ends[side].under_way.double(which.into()),
            Operation::Replay { side, which } => self.ends[side].under_way.replay(which.into()),
            Operation::Flip { side, which, bit } => self.flip(side, usize::from(which), bit),
            Operation::Inject { side, bytes } => self.inject(side, bytes),
            Operation::Scatter { side, path } => self.scatter(side, PathId(path)),
            Operation::Wait { some } => {
                self.timeouts += 1;
                self.wait(some);
            }
            Operation::Path { side, path, is_up } => self.set_path(side, path, is_up),
            Operation::Stale { side } => self.bring_back_old(side),
            Operation::Settle => self.settle(),
        }
        self.hear();
        self.check_bounds();
    }

    pub(super) fn fail(&mut self, side: usize, what: &str) {
        self.findings.fail(format!("end {side} at {}: {what}", self.now));
    }

    /// Adds a line to the story.
    pub(super) fn write_down(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        self.findings.tell(|| format!("{now}  {}", what()));
    }

    /// Nothing is beyond its bound (invariant 5).
    pub(super) fn check_bounds(&mut self) {
        for side in 0..self.sides() {
            let End { checked, was_full, .. } = &mut self.ends[side];
            let endpoint = &checked.engine;
            *was_full |= !endpoint.receives.table.has_room();
            let config = endpoint.config();
            // One STU always may be granted where nothing is.
            let window = config.window.max(1 << config.max_stu);
            if endpoint.granted_bytes() > window {
                let granted = endpoint.granted_bytes();
                self.fail(side, &format!("{granted} bytes are granted, beyond the window"));
            } else if endpoint.connections() > config.connections {
                self.fail(side, "more connections than may be");
            } else if let Some(wrong) = room::wrong_room(endpoint) {
                self.fail(side, &wrong);
            }
        }
    }
}

impl End {
    fn new(setup: Setup, side: usize) -> Self {
        let mut endpoint = Endpoint::new(setup.config(), [side as u8 + 1; 32]).unwrap();
        let listens = endpoint.listen(PORT, setup.admission());
        debug_assert!(listens.is_ok(), "nobody listens yet");
        let mut checked = Checked::new(endpoint);
        for path in 0..PATHS {
            let up = PathState::Up(setup.limits(path));
            checked.handle_path(Instant::ZERO, PathId(path), up);
        }
        Self {
            checked,
            memory: Memory::new(),
            under_way: UnderWay::new(BOUNDS),
            user: User::default(),
            shared: Vec::new(),
            has_failed: false,
            was_full: false,
        }
    }

    /// Memory with these bytes, `before` bytes into its region, and guarded.
    pub(super) fn lend(&mut self, before: usize, bytes: &[u8]) -> Area {
        let mut all = vec![GUARD; before + bytes.len() + BEHIND];
        all[before..before + bytes.len()].copy_from_slice(bytes);
        let region = self.memory.lend(all);
        Area::new(region, before as u64, bytes.len() as u64)
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

impl World {
    /// Memory is the user's again: nobody may use it any more, and nothing
    /// around it was touched.
    pub(super) fn give_back(&mut self, side: usize, area: &Area) {
        let end = &mut self.ends[side];
        let (is_written, is_read) = (end.checked.is_written(area), end.checked.is_read(area));
        let is_guarded = end.is_guarded(area);
        if let Some(region) = end.memory.region(area.region) {
            end.user.returned.push((area.region, region.to_vec()));
        }
        if is_written {
            self.fail(side, &format!("{area} was given back while it is written"));
        }
        if is_read {
            self.fail(side, &format!("{area} was given back while it is read"));
        }
        if !is_guarded {
            self.fail(side, &format!("something was written around {area}"));
        }
    }

    /// The same for memory that was sent from, which is spoiled then: anyone who
    /// reads it still sends what is wrong.
    pub(super) fn take_back_sent(&mut self, side: usize, area: &Area) {
        if let Some(bytes) = self.ends[side].memory.get_mut(&area.span(0, area.len as u32)) {
            bytes.fill(0xdd);
        }
        self.give_back(side, area);
    }

    /// Memory that was given back holds what it held then (invariant 1).
    pub(super) fn check_returned(&mut self) {
        for side in 0..self.sides() {
            let end = &self.ends[side];
            let is_same =
                |(region, bytes): &&(RegionId, Vec<u8>)| end.memory.region(*region) == Some(bytes);
            if let Some((region, _)) = end.user.returned.iter().find(|known| !is_same(known)) {
                let what = format!("{region} was written after it was given back");
                self.fail(side, &what);
            }
        }
    }
}
