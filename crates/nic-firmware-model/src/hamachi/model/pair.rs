//! Two hosts under the same traffic and the same user, one with an adapter; and the naive
//! reassembler, which says what comes out of the frames.

use std::collections::VecDeque;

use landfall_placement::{Duration, Instant, Refusal, Seed};
use spec_defrag::model::{LONGEST_FRAME, Naive, Reading, Setup, Step, read};
use spec_defrag::{Body, Config, Lend, Packet, ReassemblyPath};

use super::faulty::Fault;
use super::{NaiveSide, OffloadedSide, ReceivingHost};
use crate::hamachi::{DriverConfig, Ram, Room, Tables, WhenOut};

/// How a run is set up.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    setup: Setup,
    adapter: [u8; 2],
}

impl Choices {
    /// What these bytes choose; what is missing is zero.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let at = |n: usize| bytes.get(spec_defrag::model::CHOICES + n).copied().unwrap_or(0);
        Self { setup: Setup::new(bytes), adapter: [at(0), at(1)] }
    }

    /// Descriptors in the memory of the adapter: fewer than a list has, sometimes.
    #[must_use]
    pub fn entries(self) -> usize {
        match self.adapter[0] & 7 {
            0 => 0,
            1 => 1,
            2 => 5,
            _ => 64,
        }
    }

    /// How much the adapter has room for.
    #[must_use]
    pub fn tables(self) -> Tables {
        Tables { entries: self.entries(), opens: if self.steers() { 256 } else { 0 } }
    }

    /// How the driver uses it.
    #[must_use]
    pub fn driver(self) -> DriverConfig {
        DriverConfig { interrupt_after: self.interrupt_after(), steers: self.steers() }
    }

    /// An interrupt after this many frames.
    #[must_use]
    pub fn interrupt_after(self) -> u16 {
        match self.adapter[0] >> 3 & 3 {
            0 => 1,
            1 => 4,
            _ => u16::MAX,
        }
    }

    /// What becomes of frames without a descriptor.
    #[must_use]
    pub fn when_out(self) -> WhenOut {
        if self.adapter[0] & 0x20 == 0 { WhenOut::Whole } else { WhenOut::Lose }
    }

    /// Does the adapter read headers? Then it places frames that the naive driver cannot,
    /// and the packets alone are compared.
    #[must_use]
    pub fn steers(self) -> bool {
        self.adapter[1] & 3 == 3
    }

    /// The engine's configuration, and memory for it.
    #[must_use]
    pub fn ram(self) -> (Config, Ram) {
        let sizes = self.setup.sizes();
        let config = Config { lend: Lend::Copy, ..self.setup.config() };
        // What is steered leaves more frames whole.
        let frames = if self.steers() { 64 } else { 4 };
        let room = Room { pages: sizes.pages, large: sizes.large, frames };
        let ram = Ram::new(&config, &room);
        (config, ram.unwrap_or_else(|error| panic!("a few regions have room: {error}")))
    }

    /// Where the engine draws from.
    #[must_use]
    pub fn seed(self) -> Seed {
        self.setup.seed()
    }
}

/// A packet that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Joined {
    frame: Vec<u8>,
    path: ReassemblyPath,
}

/// A host with what its user holds.
#[derive(Debug)]
struct Host<S> {
    side: S,
    held: VecDeque<Body>,
    out: Vec<Joined>,
}

impl<S: ReceivingHost> Host<S> {
    fn new(side: S) -> Self {
        Self { side, held: VecDeque::new(), out: Vec::new() }
    }

    /// The user reads what came out, and keeps it.
    fn hear(&mut self) {
        while let Some(Packet { head, body, path, .. }) = self.side.poll_packet() {
            let Body::Buffer(_, span) = body else { continue };
            let frame = [&head[..], self.side.ram().bytes(span)].concat();
            self.side.ram_mut().freeze(span);
            self.held.push_back(body);
            self.out.push(Joined { frame, path });
        }
    }

    fn release(&mut self, now: Instant, count: usize, newest_first: bool) {
        for _ in 0..count {
            let held = if newest_first { self.held.pop_back() } else { self.held.pop_front() };
            let Some(Body::Buffer(buffer, span)) = held else { break };
            self.side.ram_mut().thaw(span);
            self.side.release(now, buffer);
        }
    }

    fn due(&self) -> Option<Instant> {
        self.side.receiver().poll_timeout().map(|timeout| timeout.at)
    }

    /// What went wrong on this side alone.
    fn failures(&self, name: &str, failures: &mut Vec<String>) {
        let ram = self.side.ram();
        failures.extend(ram.violation().map(|violation| format!("{name}: {violation}")));
        failures.extend(ram.wrong().map(|wrong| format!("{name}: {wrong}")));
    }
}

/// When no frame came for so long, somebody looks at those that did.
pub(super) const SILENCE: Duration = Duration::from_micros(20);
/// Between two bursts.
const A_MOMENT: Duration = Duration::from_micros(10);
/// The user keeps at most this many packets.
const KEPT: usize = 40;

/// Both hosts, and what should come out.
#[derive(Debug)]
pub struct Pair {
    choices: Choices,
    adapter: Host<OffloadedSide>,
    naive: Host<NaiveSide>,
    oracle: Naive,
    /// Frames that the naive driver has, and has not looked at yet.
    unseen: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
    now: Instant,
    /// Nothing was lost for want of room: what comes out is what the oracle says.
    is_exact: bool,
    /// No two pieces contradict each other: what comes out does not depend on their order.
    is_honest: bool,
    failures: Vec<String>,
}

impl Pair {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(choices: Choices, fault: Option<Fault>) -> Self {
        Self {
            choices,
            adapter: Host::new(OffloadedSide::new(choices, fault)),
            naive: Host::new(NaiveSide::new(choices)),
            oracle: Naive::new(choices.setup.lifetime()),
            unseen: Vec::new(),
            expected: Vec::new(),
            now: Instant::ZERO,
            is_exact: true,
            is_honest: false,
            failures: Vec::new(),
        }
    }

    /// The traffic will be what honest senders send, whatever becomes of it on its path: so
    /// a steering adapter must give the same packets as the reassembler.
    #[must_use]
    pub const fn with_honest_traffic(mut self) -> Self {
        self.is_honest = true;
        self
    }

    /// One thing happens to both.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Receive { frames, .. } => self.receive(frames),
            Step::Wait(Some(duration)) => self.wait(*duration),
            Step::Wait(None) => {
                let due = self.naive.due().map_or(Duration::ZERO, |at| at.since(self.now));
                // What came with it may have been looked at later, and is over later.
                self.wait(due + SILENCE);
            }
            Step::Release { count, newest_first } => self.release(*count, *newest_first),
        }
        self.compare();
    }

    fn fail(&mut self, what: &str) {
        // The first says what is wrong; what follows from it is of no interest.
        if self.failures.len() < 8 {
            self.failures.push(format!("{}: {what}", self.now));
        }
    }

    fn receive(&mut self, frames: &[Vec<u8>]) {
        self.wait(A_MOMENT);
        let now = self.now;
        // No wire carries an empty frame.
        for frame in frames.iter().filter(|frame| !frame.is_empty()) {
            debug_assert!(frame.len() <= LONGEST_FRAME as usize);
            let lost = self.naive.side.lost();
            self.naive.side.frame(now, frame);
            self.adapter.side.frame(now, frame);
            if self.naive.side.lost() == lost {
                self.unseen.push(frame.clone());
            } else {
                self.is_exact = false;
            }
            self.look();
            self.hear();
        }
        self.now += SILENCE;
        self.naive.side.silence(self.now);
        self.adapter.side.silence(self.now);
        self.look();
        self.hear();
    }

    /// The reassembler looks at frames when the naive driver does: how long a packet has
    /// been waited for counts from then.
    fn look(&mut self) {
        if self.naive.side.has_unseen() {
            return;
        }
        let is_ignored =
            |frame: &[u8]| !self.choices.setup.delivers_foreign() && read(frame) == Reading::Whole;
        self.oracle.pass(self.now);
        for frame in self.unseen.drain(..) {
            let came = self.oracle.receive(self.now, &frame);
            self.expected.extend(came.filter(|_| !is_ignored(&frame)));
        }
    }

    fn hear(&mut self) {
        self.naive.hear();
        self.adapter.hear();
        if !self.choices.steers() && self.naive.out.len() != self.adapter.out.len() {
            let (naive, adapter) = (self.naive.out.len(), self.adapter.out.len());
            self.fail(&format!("{adapter} packets with the adapter, {naive} without"));
        }
        let most = if self.choices.setup.is_lazy() { KEPT } else { 0 };
        self.release(self.naive.held.len().saturating_sub(most), false);
    }

    fn release(&mut self, count: usize, newest_first: bool) {
        self.naive.release(self.now, count, newest_first);
        self.adapter.release(self.now, count, newest_first);
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
        let now = self.now;
        // An interrupt that nothing is left for comes in between.
        self.adapter.side.silence(now);
        let is_due = |due: Option<Instant>| due.is_some_and(|at| at <= now);
        if !self.choices.steers() && self.naive.due() != self.adapter.due() {
            self.fail("their timers are not the same");
        }
        if is_due(self.naive.due()) {
            self.naive.side.timeout(now);
        }
        if is_due(self.adapter.due()) {
            self.adapter.side.timeout(now);
        }
        self.oracle.pass(now);
        self.hear();
    }

    /// After each step: have the same packets come out?
    fn compare(&mut self) {
        let refused = |host: &Host<NaiveSide>| {
            let receiver = host.side.receiver();
            receiver.refusals().of(Refusal::NoRoom) + receiver.gathering().evicted
        };
        self.is_exact &= refused(&self.naive) == 0;
        let naive = std::mem::take(&mut self.naive.out);
        let mut adapter = std::mem::take(&mut self.adapter.out);
        let mut expected = std::mem::take(&mut self.expected);
        if self.is_exact && !naive.iter().map(|joined| &joined.frame).eq(&expected) {
            self.fail("the naive driver gives other packets than the reassembler");
        }
        if !self.choices.steers() {
            if naive != adapter {
                self.fail("other packets with the adapter than without");
            }
        } else if self.is_exact && self.is_honest && self.adapter.side.lost() == 0 {
            // Frames that were steered are looked at in the order of their descriptors.
            adapter.sort_by(|a, b| a.frame.cmp(&b.frame));
            expected.sort();
            if !adapter.iter().map(|joined| &joined.frame).eq(&expected) {
                self.fail("a steering adapter gives other packets than the reassembler");
            }
        }
    }

    /// Everything comes to its end: all in which the two differ.
    #[must_use]
    pub fn finish(mut self) -> Vec<String> {
        self.release(usize::MAX, false);
        self.wait(self.choices.setup.lifetime());
        self.compare();
        if !self.choices.steers() {
            self.compare_state();
        }
        let mut failures = std::mem::take(&mut self.failures);
        self.naive.failures("without", &mut failures);
        self.adapter.failures("with the adapter", &mut failures);
        failures
    }

    fn compare_state(&mut self) {
        let (with, without) = (&self.adapter.side, &self.naive.side);
        let (a, b) = (with.receiver(), without.receiver());
        let mut differ = Vec::new();
        if a.stats() != b.stats() {
            differ.push(format!("{:?} with the adapter, {:?} without", a.stats(), b.stats()));
        }
        if a.refusals() != b.refusals() {
            differ.push(format!("{:?} with the adapter, {:?} without", a.refusals(), b.refusals()));
        }
        if with.lost() != without.lost() {
            differ.push(format!("{} lost with, {} without", with.lost(), without.lost()));
        }
        if (a.free_pages(), a.free_large()) != (b.free_pages(), b.free_large()) {
            differ.push("other buffers are free".into());
        }
        if !with.ram().contents().eq(without.ram().contents()) {
            differ.push("the memory is not the same".into());
        }
        differ.iter().for_each(|what| self.fail(what));
    }
}
