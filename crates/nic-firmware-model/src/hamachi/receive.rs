//! The receive processor: the next frame goes behind the next descriptor. And what driver and
//! adapter say to each other of a list of descriptors.
//!
//! A list has a number, other than that of the list before. It is over when each of its
//! descriptors was used, or when the driver asked for it back and the adapter said so:
//! that answer comes behind all frames under way, and only then is the memory that the
//! list names the driver's again.

use landfall_placement::{Span, Spans};
use spec_defrag::format::Begin;
use spec_defrag::offload::Guess;

use super::steer::{OpenPage, Opens, steer};
use crate::firmware::{Arrival, Firmware, Landed, Meter, Verdict};
use crate::machine::Store;

/// A descriptor in the adapter's memory.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub(super) buffers: [Span; 3],
    pub(super) guess: Guess,
    pub(super) is_used: bool,
}

impl Entry {
    /// What lies in a table at its beginning.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = Span { region: landfall_placement::RegionId::new(0, 0), offset: 0, len: 0 };
        Self { buffers: [nothing; 3], guess: Guess::None, is_used: false }
    }

    fn room(&self) -> u64 {
        self.buffers.iter().map(|buffer| u64::from(buffer.len)).sum()
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self::new()
    }
}

/// What becomes of frames that find no descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenOut {
    /// They are lost, as with the chip of the paper.
    #[default]
    Lose,
    /// They go whole to the buffers that the host has for that.
    Whole,
}

/// What the adapter counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames behind descriptors.
    pub placed: u64,
    /// Frames that found no descriptor, and were lost.
    pub lost: u64,
    /// Frames that found no descriptor, and went whole to the host.
    pub whole: u64,
    /// Frames that were longer than all buffers of a descriptor, or empty.
    pub wrong_len: u64,
    /// Descriptors whose buffers could not be written.
    pub failed: u64,
    /// Commands that did not fit what was there.
    pub refused: u64,
}

/// What the adapter remembers of a frame on its way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The list that its descriptor is of.
    pub list: u32,
    /// Which one.
    pub index: u16,
    /// How long the frame is.
    pub len: u32,
}

/// Where the adapter is in its list.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// 0: there is no list.
    list: u32,
    len: u16,
    loaded: u16,
    /// Descriptors that a frame was given to.
    used: u16,
    /// Of these, such as are on their way to memory.
    under_way: u16,
    /// Frames since the last interrupt.
    untold: u16,
    interrupt_after: u16,
    is_stopped: bool,
}

impl Progress {
    /// Whether no frame will get a descriptor of it any more, and none is on its way.
    const fn is_over(&self) -> bool {
        self.under_way == 0 && (self.is_stopped || self.used >= self.len)
    }
}

/// The adapter: its receive processor, over tables that are handed in.
#[derive(Debug)]
pub struct Hamachi<'t> {
    entries: Store<'t, Entry>,
    /// The pages of the guesses, in an adapter that reads headers.
    opens: Option<Opens<'t>>,
    when_out: WhenOut,
    at: Progress,
    counters: Counters,
}

impl<'t> Hamachi<'t> {
    /// The chip of the paper: it knows nothing but descriptors, as many as there are
    /// entries.
    #[must_use]
    pub fn new(entries: impl Into<Store<'t, Entry>>, when_out: WhenOut) -> Self {
        Self {
            entries: entries.into(),
            opens: None,
            when_out,
            at: Progress::default(),
            counters: Counters::default(),
        }
    }

    /// The chip that the paper hoped for: it compares the headers with the guesses, and
    /// gives a frame the descriptor that was meant for it.
    #[must_use]
    pub fn steering(
        entries: impl Into<Store<'t, Entry>>,
        opens: Opens<'t>,
        when_out: WhenOut,
    ) -> Self {
        Self { opens: Some(opens), ..Self::new(entries, when_out) }
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    fn begin(&mut self, list: u32, len: u16, interrupt_after: u16) -> Option<Report> {
        if !self.at.is_over() {
            self.counters.refused += 1;
            return Some(Report::Busy { list, current: self.at.list });
        }
        let room = u16::try_from(self.entries.len()).unwrap_or(u16::MAX);
        if len > room || list == 0 {
            self.counters.refused += 1;
            return Some(Report::Refused { list, room });
        }
        self.at = Progress { list, len, interrupt_after, ..Progress::default() };
        if let Some(opens) = &mut self.opens {
            opens.clear();
        }
        None
    }

    fn load(&mut self, list: u32, buffers: [Span; 3], guess: Guess) {
        let at = &mut self.at;
        let is_next = list == at.list && at.loaded < at.len && !at.is_stopped;
        match self.entries.get_mut(usize::from(at.loaded)).filter(|_| is_next) {
            Some(entry) => {
                *entry = Entry { buffers, guess, is_used: false };
                at.loaded += 1;
            }
            None => self.counters.refused += 1,
        }
    }

    /// The descriptor for this frame.
    fn choose(&mut self, frame: &[u8], meter: &mut impl Meter) -> Option<u16> {
        if self.at.is_stopped {
            return None;
        }
        let loaded = self.entries.get(..usize::from(self.at.loaded))?;
        match &mut self.opens {
            None => Some(self.at.used).filter(|used| usize::from(*used) < loaded.len()),
            Some(opens) => steer(loaded, opens, frame, meter),
        }
    }

    fn without_descriptor(&mut self) -> Verdict<Token> {
        match self.when_out {
            WhenOut::Lose => {
                self.counters.lost += 1;
                Verdict::Drop
            }
            WhenOut::Whole => {
                self.counters.whole += 1;
                Verdict::Host
            }
        }
    }
}

impl Firmware for Hamachi<'_> {
    type Command = Command;
    type Report = Report;
    type Token = Token;

    fn handle_command(&mut self, command: &Command, _meter: &mut impl Meter) -> Option<Report> {
        match *command {
            Command::Begin { list, len, interrupt_after } => self.begin(list, len, interrupt_after),
            Command::Load { list, buffers, guess } => {
                self.load(list, buffers, guess);
                None
            }
            Command::Open { list, at, page } => {
                let opens = self.opens.as_mut().filter(|_| list == self.at.list);
                let is_taken = opens.is_some_and(|opens| opens.set(at, page));
                self.counters.refused += u64::from(!is_taken);
                None
            }
            // Answered for any list: who lost count gets it back as well.
            Command::Stop { list } => {
                self.at.is_stopped |= list == self.at.list;
                Some(Report::Stopped { list })
            }
        }
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Token> {
        let len = frame.bytes.len() as u64;
        let list = self.at.list;
        let chosen = self.choose(frame.bytes, meter);
        let entry = chosen.and_then(|index| self.entries.get_mut(usize::from(index)));
        let (Some(index), Some(entry)) = (chosen, entry) else {
            return self.without_descriptor();
        };
        if len == 0 || len > entry.room() {
            self.counters.wrong_len += 1;
            return Verdict::Drop;
        }
        entry.is_used = true;
        for buffer in entry.buffers {
            // Three fit in any list of spans.
            let _ = into.push(buffer);
        }
        into.truncate(len);
        self.at.used += 1;
        self.at.under_way += 1;
        // As long as the room of three spans of 32 bits, at most: a frame is shorter.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Verdict::Place { at: 0, token: Token { list, index, len } }
    }

    fn landed(
        &mut self,
        token: Token,
        is_in_place: bool,
        _meter: &mut impl Meter,
    ) -> Landed<Report> {
        let Token { list, index, len } = token;
        let at = &mut self.at;
        if list != at.list || list == 0 {
            return Landed::Silent;
        }
        at.under_way = at.under_way.saturating_sub(1);
        at.untold = at.untold.saturating_add(1);
        let report = if is_in_place {
            self.counters.placed += 1;
            Report::Filled { list, index, len }
        } else {
            self.counters.failed += 1;
            Report::Failed { list, index }
        };
        let is_used_up = at.used >= at.len && at.under_way == 0;
        if is_used_up || at.untold >= at.interrupt_after {
            at.untold = 0;
            return Landed::Urgent(report);
        }
        Landed::EventQueue(report)
    }

    fn restart(&mut self) {
        self.at = Progress::default();
        if let Some(opens) = &mut self.opens {
            opens.clear();
        }
    }
}

/// What the driver writes.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// A list of this many descriptors follows. Refused while the one before is not over.
    Begin {
        /// Its number; 0 is no list's.
        list: u32,
        /// This many descriptors.
        len: u16,
        /// An interrupt after this many frames, and at the end of the list.
        interrupt_after: u16,
    },
    /// The next descriptor of the list.
    Load {
        /// The list.
        list: u32,
        /// Head, body, and what takes the rest of a longer frame. Empty ones are passed
        /// over.
        buffers: [Span; 3],
        /// What is expected behind it: for an adapter that reads headers.
        guess: Guess,
    },
    /// A page that the guesses of the list mean: for an adapter that reads headers.
    Open {
        /// The list.
        list: u32,
        /// The number of the page in them.
        at: u16,
        /// What is in it.
        page: OpenPage<Begin>,
    },
    /// The driver wants the list back. Frames that come from now on find no descriptor.
    Stop {
        /// The list.
        list: u32,
    },
}

/// What the driver finds written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A frame lies behind this descriptor: End.Of.Packet.
    Filled {
        /// The list.
        list: u32,
        /// Which descriptor of it.
        index: u16,
        /// The length of the frame.
        len: u32,
    },
    /// The buffers of this descriptor are no memory that could be written. It was passed
    /// over, and the frame is lost.
    Failed {
        /// The list.
        list: u32,
        /// Which descriptor of it.
        index: u16,
    },
    /// The driver has the list back.
    Stopped {
        /// The list.
        list: u32,
    },
    /// A list was begun, and the one before is not over: ask for that one back first.
    Busy {
        /// The list that was begun.
        list: u32,
        /// The one that is not over.
        current: u32,
    },
    /// The list is longer than the adapter's memory.
    Refused {
        /// The list.
        list: u32,
        /// This many descriptors have room.
        room: u16,
    },
}
