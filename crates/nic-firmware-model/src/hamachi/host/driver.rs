//! The driver: loads lists of guesses, and looks at what landed when it is interrupted.
//!
//! The engine's receiver looks at one burst as a whole, and between two of them nothing
//! may land. So a list is settled when each of its descriptors was used, or when the
//! adapter gave it back.

use std::collections::VecDeque;

use landfall_placement::{Instant, Seed, Span};
use spec_defrag::{BufferId, Config, ConfigError, Lend, Lying, Packet, Receiver};

use super::ram::Ram;
use crate::firmware::HostMemory;
use crate::hamachi::{Command, OpenPage, Report};

/// How the driver uses its adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// An interrupt after so many frames at the latest; there is one at the end of each
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
    /// So many commands of it were given.
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

/// The driver of a Hamachi, with the engine's receiver.
#[derive(Debug)]
pub struct Driver {
    receiver: Receiver,
    config: DriverConfig,
    state: State,
    list: u32,
    /// So many descriptors the adapter has room for.
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

impl Driver {
    /// A driver, and its engine. Frames that come whole are copied, never lent: their
    /// buffers are the adapter's.
    ///
    /// # Errors
    /// What the engine says of its configuration.
    pub fn new(
        receiver: &Config,
        config: DriverConfig,
        ram: &Ram,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let receiver = Config { lend: Lend::Copy, ..receiver.clone() };
        Ok(Self {
            receiver: Receiver::new(receiver, ram.areas(), seed)?,
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
            counters: DriverCounters::default(),
        })
    }

    /// The engine.
    #[must_use]
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &DriverCounters {
        &self.counters
    }

    /// So often an adapter may say that it is not done with another list.
    const PATIENCE: u32 = 3;

    /// What the adapter is told next.
    pub fn poll_command(&mut self, ram: &Ram) -> Option<Command> {
        match self.state {
            State::Idle => self.begin(),
            State::Loading(step) => self.load(step, ram),
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

    fn begin(&mut self) -> Option<Command> {
        let len = self.receiver.post().len().min(self.room);
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
    fn load(&mut self, step: usize, ram: &Ram) -> Option<Command> {
        self.state = State::Loading(step + 1);
        let list = self.list;
        let opens = if self.config.steers { self.receiver.opens() } else { &[] };
        if let Some(open) = opens.get(step) {
            return Some(Command::Open { list, at: step as u16, page: OpenPage::of(open) });
        }
        let index = step - opens.len();
        let guess = self.receiver.guesses().nth(index);
        let descriptor = self.receiver.post().get(index);
        if let (Some(guess), Some(descriptor), true) = (guess, descriptor, index < self.lens.len())
        {
            let buffers = ram.buffers(index as u16, descriptor);
            return Some(Command::Load { list, buffers, guess });
        }
        self.state = State::Given;
        None
    }

    /// The adapter wrote something.
    pub fn handle_report(&mut self, report: &Report) {
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
    pub fn handle_frame(&mut self, buffer: u16, bytes: &[u8], ram: &mut Ram) {
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

    /// A buffer for whole frames that is the adapter's again.
    pub fn poll_free(&mut self) -> Option<u16> {
        self.free.pop_front()
    }

    /// The adapter interrupts: there are reports, or frames.
    pub const fn handle_interrupt(&mut self) {
        self.counters.interrupts += 1;
        self.is_called = true;
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub const fn handle_timeout(&mut self) {
        self.is_due = true;
    }

    /// It waits for an answer, and looks for it without an interrupt.
    #[must_use]
    pub const fn is_watching(&self) -> bool {
        matches!(self.state, State::Stopping(_) | State::Given)
    }

    /// When the engine wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timeout = self.receiver.poll_timeout().filter(|_| !self.is_due);
        timeout.map(|timeout| timeout.at)
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
    pub fn look(&mut self, now: Instant, ram: &mut Ram) -> bool {
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
        if self.state != State::Idle {
            self.settle(now, ram);
        }
        self.take(now, ram);
        if core::mem::take(&mut self.is_due) {
            self.receiver.handle_timeout(now, ram);
        }
        true
    }

    fn settle(&mut self, now: Instant, ram: &mut Ram) {
        // Nothing came behind the last one: a page that is guessed for there is not in use.
        let used = self.lens.iter().rposition(|len| len.is_some()).map_or(0, |last| last + 1);
        let lens: Vec<u32> = self.lens.drain(..).take(used).map(|len| len.unwrap_or(0)).collect();
        let heads = self.receiver.post().iter().map(|descriptor| descriptor.head_len);
        for ((slot, len), head_len) in (0..).zip(&lens).zip(heads) {
            ram.set_head(slot, u16::try_from(*len).unwrap_or(u16::MAX).min(head_len));
        }
        self.receiver.settle(now, &lens, ram);
        self.reported = 0;
        self.state = State::Idle;
    }

    fn take(&mut self, now: Instant, ram: &mut Ram) {
        while let Some((buffer, at)) = self.frames.pop_front() {
            let mut shown = [0; SHOWN];
            let bytes = ram.bytes(at.split_at(SHOWN as u32).0);
            shown[..bytes.len()].copy_from_slice(bytes);
            let head = &shown[..bytes.len()];
            self.receiver.take(now, &[Lying { at, head }], ram);
            self.free.push_back(buffer);
        }
    }

    /// A packet that is whole. Its body is the user's until it is released.
    pub fn poll_packet(&mut self) -> Option<Packet> {
        self.receiver.poll_packet()
    }

    /// A packet that did not become whole in time.
    pub fn poll_expired(&mut self) -> Option<spec_defrag::reassembly::Expired> {
        self.receiver.poll_expired()
    }

    /// A body is needed no longer. False if it was released before.
    pub fn release(&mut self, buffer: BufferId) -> bool {
        self.receiver.release(buffer)
    }
}
