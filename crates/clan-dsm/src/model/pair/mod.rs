//! Two adapters over a network that loses, doubles, mixes up and damages frames,
//! and what may happen to them: each write must take effect once, in its order,
//! with the bytes, the firings and the results of the naive model.

mod calls;
mod ledger;
mod node;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, Engine, Instant, PathId, PathLimits, Peer};
use landfall_testkit::model::{Choices, Findings};

use crate::config::Config;
use crate::nic::arrive::is_sum_right;
use crate::wire::frame::Frame;
use node::{ExposedAperture, NodeState};

/// What crosses at once.
const UNIT: u32 = 1_500;

/// How much happens at the end until everything must be done.
const MOST_ROUNDS: usize = 5_000;

/// What each code of a step means, for the story.
const STEPS: [&str; 32] = [
    "write",
    "write",
    "write",
    "write",
    "write",
    "write",
    "write from memory",
    "write from memory",
    "read",
    "word operation",
    "chain",
    "barrier",
    "watch",
    "watch",
    "change a tripwire",
    "pop",
    "transmit",
    "transmit",
    "transmit",
    "receive",
    "receive",
    "receive",
    "lose",
    "double",
    "swap",
    "damage",
    "inject",
    "wait",
    "replace",
    "forge",
    "close or hold",
    "settle",
];

struct Pair {
    now: Instant,
    sides: [NodeState; 2],
    /// What is on its way to each side.
    wires: [VecDeque<Vec<u8>>; 2],
    /// Frames that were delivered: they may come again.
    old: [VecDeque<Vec<u8>>; 2],
    /// How many transmissions a driver holds on to.
    hold: usize,
    has_checksum: bool,
    /// Frames are made up that the adapters must believe: nothing is known of
    /// what was asked for, but memory that is nobody's must stay as it is.
    is_lawless: bool,
    findings: Findings,
}

/// Runs what these bytes stand for, lets everything come to its end, and gives
/// all in which the adapters and the naive model disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    run(bytes, false)
}

/// What happens in such a run, line by line, for people who look for the reason of a
/// disagreement.
#[must_use]
pub fn story(bytes: &[u8]) -> Vec<String> {
    run(bytes, true)
}

/// The story of a run if it is wanted, and what is wrong at its end.
fn run(bytes: &[u8], with_story: bool) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut pair = Pair::new(&mut choices);
    if with_story {
        pair.findings.begin_story();
    }
    while !choices.is_over() {
        pair.step(&mut choices);
        pair.listen();
    }
    pair.tell(|| String::from("---- the end"));
    pair.finish();
    pair.into_story()
}

/// Returns one of the adapters, in the middle of its work, whatever frames these
/// bytes stand for, and gives all that is wrong then.
#[must_use]
pub fn withstand(bytes: &[u8]) -> Vec<String> {
    calls::withstand(bytes)
}

/// Is it a frame, as it was sent?
fn is_whole(unit: &[u8]) -> bool {
    let frame = Frame::parse(unit, unit.len() as u32);
    frame.is_ok_and(|frame| !frame.has_sum() || is_sum_right(&frame, unit))
}

impl Pair {
    fn new(choices: &mut Choices<'_>) -> Self {
        let has_checksum = choices.flag();
        let config = Config {
            checksum: has_checksum,
            frames: choices.pick(&[2, 8, 64]),
            early_bytes: choices.pick(&[2_000, 10_000, 100_000]),
            write_buffer: 4_096,
            dma_turn: choices.pick(&[64, 1_000, 10_000]),
            reads: choices.pick(&[2, 40]),
            operations: 4,
            writes: 16,
            events: choices.pick(&[1, 400]),
            tripwires: 128,
            retry_after: Duration::from_millis(20),
            retry_floor: Duration::from_millis(5),
            keep_alive: None,
            ..Config::default()
        };
        let limits = PathLimits::plain(UNIT);
        // The last two are for the DMA queues.
        let lens = [8 * 50, 1021, 8 * 256, 4_000];
        let sides = [0, 1].map(|number| NodeState::new(number, config.clone(), limits, &lens));
        let mut pair = Self {
            now: Instant::ZERO,
            sides,
            wires: Default::default(),
            old: Default::default(),
            hold: choices.pick(&[0, 3]),
            has_checksum,
            is_lawless: false,
            findings: Findings::new(false),
        };
        pair.map();
        pair.open();
        pair.settle(100);
        pair
    }

    fn into_story(self) -> Vec<String> {
        let mut story = self.findings.into_story();
        story.extend(self.sides.into_iter().flat_map(|side| side.failures));
        story
    }

    /// Adds a line to the story.
    fn tell(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        self.findings.tell(|| format!("{now}  {}", what()));
    }

    /// Each side opens windows onto all that the other shows.
    fn map(&mut self) {
        let [first, second] = &mut self.sides;
        first.map(&second.shown);
        second.map(&first.shown);
    }

    fn open(&mut self) {
        if self.sides.iter().any(|side| side.link.is_some())
            || self.sides[0].nic.links().next().is_some()
        {
            return;
        }
        let opened = self.sides[0].nic.open_link(self.now, PathId(0), Peer::Node(1));
        if let Err(error) = opened {
            self.findings.fail(format!("no link: {error}"));
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let code = choices.byte();
        let side = usize::from(code >> 7);
        self.tell(|| format!("{} at {side}", STEPS[usize::from(code & 31)]));
        match code & 31 {
            0..=5 => self.write(side, choices),
            6..=7 => self.write_from(side, choices),
            8 => self.read(side, choices),
            9 => self.change(side, choices),
            10 => self.chain(side, choices),
            11 => self.barrier(side),
            12..=13 => self.watch(side, choices),
            14 => self.sides[side].change_wire(choices.below(256), choices.byte()),
            15 => drop(self.sides[side].pop()),
            16..=18 => {
                (0..=choices.below(4)).all(|_| self.transmit(side));
            }
            19..=21 => {
                self.receive(side, 1 + choices.below(4));
            }
            22 => self.lose(side, choices),
            23 => self.double(side, choices),
            24 => self.swap(side, choices),
            25 => self.damage(side, choices),
            26 => self.inject(side, choices),
            27 => {
                self.wait();
            }
            28 => self.replace(side, choices),
            29 => self.forge(side, choices),
            30 => self.close_or_hold(side, choices),
            _ => self.settle(1 + choices.below(30)),
        }
    }

    // ---- The wire ------------------------------------------------------------

    fn lose(&mut self, side: usize, choices: &mut Choices<'_>) {
        let at = choices.below(8);
        if at < self.wires[side].len() {
            self.wires[side].remove(at);
        }
    }

    fn double(&mut self, side: usize, choices: &mut Choices<'_>) {
        let (at, is_old) = (choices.below(16), choices.flag());
        let from = if is_old { &self.old[side] } else { &self.wires[side] };
        if let Some(unit) = from.get(at).cloned() {
            self.wires[side].push_back(unit);
        }
    }

    fn swap(&mut self, side: usize, choices: &mut Choices<'_>) {
        let wire = &mut self.wires[side];
        if !wire.is_empty() {
            let (a, b) = (choices.below(wire.len()), choices.below(wire.len()));
            wire.swap(a, b);
        }
    }

    /// A bit is flipped: anywhere where a checksum covers everything, else where
    /// the header's does. A unit is damaged once: a second flip may hide the first from a
    /// sum of words.
    fn damage(&mut self, side: usize, choices: &mut Choices<'_>) {
        let (at, bit) = (choices.below(2_000), choices.byte());
        let has_checksum = self.has_checksum;
        if let Some(unit) = self.wires[side].front_mut().filter(|unit| is_whole(unit)) {
            let covered = if has_checksum { unit.len() } else { unit.len().min(40) };
            unit[at % covered] ^= 1 << (bit & 7);
        }
    }

    /// Whatever comes from a stranger.
    fn inject(&mut self, side: usize, choices: &mut Choices<'_>) {
        let len = choices.below(201);
        let bytes = choices.raw(len);
        self.wires[side].push_back(bytes.into());
    }

    // ---- Time ----------------------------------------------------------------

    /// Until the next timeout. Returns whether there was one.
    fn wait(&mut self) -> bool {
        let next = self.sides.iter().filter_map(|side| side.nic.poll_timeout()).map(|t| t.at).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        for side in &mut self.sides {
            side.nic.handle_timeout(self.now);
        }
        true
    }

    /// Without keep-alive nobody tells a side that only waits that the other has given the
    /// link up. Its user ends the link then, and with it everything that waits.
    fn lose_patience(&mut self) {
        let [first, second] = &self.sides;
        match (first.link, second.link) {
            (Some(_), None) => self.close_link(0),
            (None, Some(_)) => self.close_link(1),
            _ => {}
        }
    }

    /// Everything that was sent arrives, this many times.
    fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let mut moved = false;
            for side in [0, 1] {
                while self.transmit(side) {
                    moved = true;
                }
                self.let_go(side);
            }
            for side in [0, 1] {
                for unit in self.wires[side].iter().take(4).cloned().collect::<Vec<_>>() {
                    self.old[side].push_front(unit);
                }
                self.old[side].truncate(16);
                moved |= self.receive(side, usize::MAX);
            }
            self.listen();
            if !moved {
                return;
            }
        }
    }

    /// Everything arrives, and is compared.
    fn finish(&mut self) {
        for side in [0, 1] {
            self.hold_link(side, false);
        }
        for _ in 0..MOST_ROUNDS {
            self.settle(10);
            if self.is_done() {
                break;
            }
            // Answers may still be under way before a timer has to run.
            if !self.wait() {
                self.lose_patience();
            }
        }
        for number in [0, 1] {
            let [ref mut first, ref mut second] = self.sides;
            let (here, there) = if number == 0 { (first, second) } else { (second, first) };
            let is_gone = |n: usize| there.shown.get(n).is_none_or(ExposedAperture::is_over);
            let missing = here.lanes.iter().flat_map(|lane| lane.missing(is_gone)).count();
            if missing > 0 || !here.pending.is_empty() {
                let what = format!("{missing} writes did not arrive; {:?}", here.pending);
                here.fail(what);
            }
            here.compare_all();
        }
    }

    fn is_done(&self) -> bool {
        let [first, second] = &self.sides;
        [(first, second), (second, first)].iter().all(|(here, there)| {
            let is_gone = |n: usize| there.shown.get(n).is_none_or(ExposedAperture::is_over);
            let mut missing = here.lanes.iter().flat_map(|lane| lane.missing(is_gone));
            missing.next().is_none() && here.pending.is_empty()
        })
    }
}
