//! [`Loader`]: loads lists of guesses, and looks at what landed when it is interrupted. The
//! engine whose guesses they are, and the memory, are lent to it for each call.
//!
//! The engine's receiver looks at one burst as a whole, and between two of them nothing
//! may land. So a list is settled when each of its descriptors was used, or when the
//! adapter gave it back.

use std::collections::VecDeque;

use landfall_placement::{Instant, Span};
use spec_defrag::{Descriptor, MappedFrame, Receiver};

use super::station::Chip;
use crate::firmware::HostMemory;
use crate::hamachi::{Command, OpenPage, Report};
use crate::machine::{Adapter, Full, Upcall};

/// The memory that driver, engine and adapter name.
pub trait HostRam: HostMemory + spec_defrag::Memory {
    /// The buffers of descriptor `n` of a list.
    fn buffers(&self, n: u16, descriptor: &Descriptor) -> [Span; 3];

    /// This many bytes of the head slot are a frame's.
    fn set_head(&mut self, slot: u16, len: u16);

    /// Buffer `nth` for whole frames.
    fn frame_buffer(&self, nth: u16) -> Span;
}

/// How the driver uses its adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// An interrupt after this many frames at the latest; there is one at the end of each
    /// list as well.
    pub interrupt_after: u16,
    /// The adapter reads headers: it is told what is guessed.
    pub steers: bool,
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self { interrupt_after: u16::MAX, steers: false }
    }
}

/// What a driver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCounters {
    /// Interrupts.
    pub interrupts: u64,
    /// Lists that were loaded.
    pub lists: u64,
    /// Lists that were asked back before all of their descriptors were used.
    pub stopped: u64,
    /// Lists, and lots of whole frames, that were looked at.
    pub settled: u64,
    /// Frames that came whole.
    pub whole: u64,
    /// Frames that were lost since no memory was where they were to go.
    pub failed: u64,
    /// The adapter said that it was not done with another list.
    pub busy: u64,
    /// How often the adapter was loaded anew.
    pub restarts: u64,
}

/// Where the driver is with its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The adapter has none.
    Idle,
    /// This many commands of it were given.
    Loading(usize),
    /// All of it was given: does the adapter take it?
    Given,
    /// It has all of it.
    Loaded,
    /// This one is to be asked for.
    Stop(u32),
    /// It was asked for.
    Stopping(u32),
    /// The adapter has nothing more to do with it.
    Over,
}

/// Loads lists of guesses into a card, and settles them when they are used.
#[derive(Debug)]
pub struct Loader {
    config: DriverConfig,
    state: State,
    list: u32,
    /// This many descriptors the adapter has room for.
    room: usize,
    /// What was reported of each descriptor; 0 is a frame that was lost.
    lens: Vec<Option<u32>>,
    reported: usize,
    /// Frames that lie whole: in which buffer, and in which part of it.
    frames: VecDeque<(u16, Span)>,
    /// Buffers that are the adapter's again.
    free: VecDeque<u16>,
    refused_in_a_row: u32,
    is_called: bool,
    is_due: bool,
    counters: DriverCounters,
}

/// Of a frame that lies somewhere, as much is shown to the engine.
const SHOWN: usize = 192;

impl Loader {
    /// The driver's half of an adapter that has no list.
    #[must_use]
    pub const fn new(config: DriverConfig) -> Self {
        Self {
            config,
            state: State::Idle,
            list: 0,
            room: usize::MAX,
            lens: Vec::new(),
            reported: 0,
            frames: VecDeque::new(),
            free: VecDeque::new(),
            refused_in_a_row: 0,
            is_called: false,
            is_due: false,
            counters: DriverCounters {
                interrupts: 0,
                lists: 0,
                stopped: 0,
                settled: 0,
                whole: 0,
                failed: 0,
                busy: 0,
                restarts: 0,
            },
        }
    }

    /// The list at the adapter that takes frames: its number, and its length. How much of it
    /// is used the adapter tells when it interrupts.
    #[must_use]
    pub fn list(&self) -> Option<(u32, usize)> {
        match self.state {
            State::Loading(_) | State::Given | State::Loaded => Some((self.list, self.lens.len())),
            State::Idle | State::Stop(_) | State::Stopping(_) | State::Over => None,
        }
    }

    /// Has the adapter no list, and is none on its way to or from it?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Does all that adapter and driver have to do now. A new list is begun only where that
    /// is allowed.
    pub fn run<F: Chip>(
        &mut self,
        now: Instant,
        (adapter, may_begin): (&mut Adapter<'_, F>, bool),
        receiver: &mut Receiver,
        ram: &mut impl HostRam,
    ) {
        loop {
            adapter.run(now, ram);
            let is_called = adapter.poll_interrupt(now);
            if is_called {
                self.handle_interrupt();
            }
            let mut is_busy = false;
            if is_called || self.is_watching() {
                is_busy = self.hear(adapter, ram);
            }
            is_busy |= self.look(now, receiver, ram);
            while let Some(buffer) = self.free.pop_front() {
                adapter.give_back(buffer);
            }
            is_busy |= self.tell(adapter, may_begin, receiver, ram);
            if !is_busy {
                return;
            }
        }
    }

    /// The driver reads what was reported.
    fn hear<F: Chip>(&mut self, adapter: &mut Adapter<'_, F>, ram: &mut impl HostRam) -> bool {
        let mut is_busy = false;
        while let Some(upcall) = adapter.poll_upcall() {
            is_busy = true;
            match upcall {
                Upcall::Report(report) => self.handle_report(&report),
                Upcall::Frame(buffer) => {
                    let bytes = adapter.frame(buffer).map_or(&[][..], |frame| frame.bytes);
                    self.handle_frame(buffer, bytes, ram);
                }
            }
        }
        is_busy
    }

    /// The driver writes commands, as long as there is room for them.
    fn tell<F: Chip>(
        &mut self,
        adapter: &mut Adapter<'_, F>,
        may_begin: bool,
        receiver: &mut Receiver,
        ram: &impl HostRam,
    ) -> bool {
        let mut is_busy = false;
        while adapter.has_room_for_orders() {
            if self.state == State::Idle && !may_begin {
                break;
            }
            let Some(command) = self.poll_command(receiver, ram) else { break };
            // There was room.
            let _: Result<(), Full> = adapter.command(command);
            is_busy = true;
        }
        is_busy
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &DriverCounters {
        &self.counters
    }

    /// So often an adapter may say that it is not done with another list.
    const PATIENCE: u32 = 3;

    /// What the adapter is told next.
    fn poll_command(&mut self, receiver: &mut Receiver, ram: &impl HostRam) -> Option<Command> {
        match self.state {
            State::Idle => self.begin(receiver),
            State::Loading(step) => self.load(step, receiver, ram),
            State::Stop(list) => {
                self.state = State::Stopping(list);
                Some(Command::Stop { list })
            }
            State::Given => {
                self.state = State::Loaded;
                None
            }
            State::Loaded | State::Stopping(_) | State::Over => None,
        }
    }

    fn begin(&mut self, receiver: &mut Receiver) -> Option<Command> {
        let len = receiver.post().len().min(self.room);
        if len == 0 {
            return None;
        }
        // 0 is no list's number.
        self.list = self.list.checked_add(1).unwrap_or(1);
        self.lens.clear();
        self.lens.resize(len, None);
        self.reported = 0;
        self.counters.lists += 1;
        self.state = State::Loading(0);
        let interrupt_after = self.config.interrupt_after;
        Some(Command::Begin { list: self.list, len: len as u16, interrupt_after })
    }

    /// First the pages that are meant, then the descriptors.
    fn load(
        &mut self,
        step: usize,
        receiver: &mut Receiver,
        ram: &impl HostRam,
    ) -> Option<Command> {
        self.state = State::Loading(step + 1);
        let list = self.list;
        let opens = if self.config.steers { receiver.opens() } else { &[] };
        if let Some(open) = opens.get(step) {
            return Some(Command::Open { list, at: step as u16, page: OpenPage::of(open) });
        }
        let index = step - opens.len();
        let guess = receiver.guesses().nth(index);
        let descriptor = receiver.post().get(index);
        if let (Some(guess), Some(descriptor), true) = (guess, descriptor, index < self.lens.len())
        {
            let buffers = ram.buffers(index as u16, descriptor);
            return Some(Command::Load { list, buffers, guess });
        }
        self.state = State::Given;
        None
    }

    /// The adapter wrote something.
    fn handle_report(&mut self, report: &Report) {
        match *report {
            Report::Filled { list, index, len } => self.note(list, index, len),
            Report::Failed { list, index } => {
                self.counters.failed += 1;
                self.note(list, index, 0);
            }
            Report::Stopped { list } => {
                if self.state == State::Stopping(list) {
                    // Of another list it says only that this one can be begun now.
                    self.state = if list == self.list { State::Over } else { State::Idle };
                }
            }
            Report::Busy { current, .. } => {
                self.counters.busy += 1;
                self.refused_in_a_row += 1;
                if self.refused_in_a_row > Self::PATIENCE {
                    // It gives no list back: frames come whole, if at all.
                    self.room = 0;
                }
                self.state = State::Stop(current);
            }
            Report::Refused { list, room } => {
                if list == self.list {
                    // Less than what was refused, whatever it says.
                    self.room = usize::from(room).min(self.lens.len().saturating_sub(1));
                    self.state = State::Idle;
                }
            }
        }
    }

    fn note(&mut self, list: u32, index: u16, len: u32) {
        let slot = self.lens.get_mut(usize::from(index)).filter(|_| list == self.list);
        if let Some(slot @ None) = slot {
            *slot = Some(len);
            self.refused_in_a_row = 0;
            self.reported += 1;
        }
    }

    /// A frame lies whole in this buffer.
    fn handle_frame(&mut self, buffer: u16, bytes: &[u8], ram: &mut impl HostRam) {
        let at = ram.frame_buffer(buffer).split_at(bytes.len() as u32).0;
        // The buffer that the adapter wrote to is this memory.
        if ram.write(at, bytes) {
            self.counters.whole += 1;
            self.frames.push_back((buffer, at));
        } else {
            self.counters.failed += 1;
            self.free.push_back(buffer);
        }
    }

    /// The adapter interrupts: there are reports, or frames.
    const fn handle_interrupt(&mut self) {
        self.counters.interrupts += 1;
        self.is_called = true;
    }

    /// The moment at which the engine wanted to be called has come.
    pub const fn handle_timeout(&mut self) {
        self.is_due = true;
    }

    /// It waits for an answer, and looks for it without an interrupt.
    const fn is_watching(&self) -> bool {
        matches!(self.state, State::Stopping(_) | State::Given)
    }

    /// Was it said that the engine's moment has come, and not yet dealt with?
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.is_due
    }

    /// The adapter was loaded anew: what it did not report did not come.
    pub fn handle_restart(&mut self) {
        self.counters.restarts += 1;
        self.refused_in_a_row = 0;
        self.room = usize::MAX;
        if self.state != State::Idle {
            self.state = State::Over;
        }
        self.is_called = true;
    }

    /// After reports, frames, interrupts and time-outs: looks at what there is to look at.
    /// True if it has done so, and a new list can be loaded.
    fn look(&mut self, now: Instant, receiver: &mut Receiver, ram: &mut impl HostRam) -> bool {
        let is_called = core::mem::take(&mut self.is_called);
        let has_work = self.reported > 0 || !self.frames.is_empty();
        if !(self.is_due || is_called && has_work) && self.state != State::Over {
            return false;
        }
        let is_used_up = self.reported == self.lens.len();
        match self.state {
            State::Loading(_) | State::Given | State::Loaded if !is_used_up => {
                self.counters.stopped += 1;
                self.state = State::Stop(self.list);
                return false;
            }
            State::Stop(_) | State::Stopping(_) => return false,
            State::Idle | State::Loading(_) | State::Given | State::Loaded | State::Over => {}
        }
        self.counters.settled += 1;
        if self.state != State::Idle {
            self.settle(now, receiver, ram);
        }
        self.take(now, receiver, ram);
        if core::mem::take(&mut self.is_due) {
            receiver.handle_timeout(now, ram);
        }
        true
    }

    fn settle(&mut self, now: Instant, receiver: &mut Receiver, ram: &mut impl HostRam) {
        // Nothing came behind the last one: a page that is guessed for there is not in use.
        let used = self.lens.iter().rposition(|len| len.is_some()).map_or(0, |last| last + 1);
        let lens: Vec<u32> = self.lens.drain(..).take(used).map(|len| len.unwrap_or(0)).collect();
        let heads = receiver.post().iter().map(|descriptor| descriptor.head_len);
        for ((slot, len), head_len) in (0..).zip(&lens).zip(heads) {
            ram.set_head(slot, u16::try_from(*len).unwrap_or(u16::MAX).min(head_len));
        }
        receiver.settle(now, &lens, ram);
        self.reported = 0;
        self.state = State::Idle;
    }

    fn take(&mut self, now: Instant, receiver: &mut Receiver, ram: &mut impl HostRam) {
        while let Some((buffer, at)) = self.frames.pop_front() {
            let mut shown = [0; SHOWN];
            let first = at.split_at(SHOWN as u32).0;
            let head = &mut shown[..first.len as usize];
            // What cannot be read is no frame.
            if !HostMemory::read(ram, first, head) {
                head.fill(0);
            }
            receiver.take(now, &[MappedFrame { at, head }], ram);
            self.free.push_back(buffer);
        }
    }
}
