//! A Hamachi whose firmware has a fault: what a comparison has to catch.

use landfall_placement::{Span, Spans};

use crate::firmware::{Arrival, Firmware, Landed, Meter, Verdict};
use crate::hamachi::{Command, Hamachi, Report, Token};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The head takes a byte less than the descriptor says.
    HeadTooShort,
    /// The body begins a byte behind its place.
    BodyOffByOne,
    /// What is longer than head and body is not written.
    NoSpill,
    /// The length of a frame is that of its body.
    WrongLength,
    /// A report names the descriptor before.
    WrongIndex,
    /// A list is taken to be one descriptor longer than it is: its end is not noticed.
    WrongBound,
    /// The buffers of the list before are used for the first descriptor.
    StaleDescriptor,
    /// Every seventh End.Of.Packet is lost.
    LostEnd,
    /// The list is said to be back though frames come that are still given its descriptors.
    DeafToStop,
    /// Two descriptors are mixed up when they are loaded.
    MixedUp,
    /// The last descriptor of a list is never used.
    LastUnused,
    /// Frames of the shortest length are taken for noise.
    ShortFramesLost,
}

impl Fault {
    /// Each of them.
    pub const ALL: [Self; 12] = [
        Self::HeadTooShort,
        Self::BodyOffByOne,
        Self::NoSpill,
        Self::WrongLength,
        Self::WrongIndex,
        Self::WrongBound,
        Self::StaleDescriptor,
        Self::LostEnd,
        Self::DeafToStop,
        Self::MixedUp,
        Self::LastUnused,
        Self::ShortFramesLost,
    ];
}

/// A chip with or without a fault.
#[derive(Debug)]
pub struct Faulty {
    inner: Hamachi<'static>,
    fault: Option<Fault>,
    /// The buffers of the first descriptor, of this list and of the one before.
    first: [[Span; 3]; 2],
    /// The descriptor that was held back, to be loaded behind the next.
    held: Option<Command>,
    loads: u32,
    landings: u32,
}

impl Faulty {
    /// This chip, with this fault.
    #[must_use]
    pub fn new(inner: Hamachi<'static>, fault: Option<Fault>) -> Self {
        let first = [[Span::default(); 3]; 2];
        Self { inner, fault, first, held: None, loads: 0, landings: 0 }
    }

    /// The chip.
    #[must_use]
    pub const fn inner(&self) -> &Hamachi<'static> {
        &self.inner
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// What the chip is told instead.
    fn distort(&mut self, command: &Command) -> Command {
        let mut command = *command;
        match &mut command {
            Command::Begin { len, .. } => {
                self.loads = 0;
                if self.has(Fault::LastUnused) && *len > 1 {
                    *len -= 1;
                }
                if self.has(Fault::WrongBound) {
                    *len += 1;
                }
            }
            Command::Load { buffers, .. } => {
                if self.loads == 0 {
                    self.first = [*buffers, self.first[0]];
                    if self.has(Fault::StaleDescriptor) {
                        *buffers = self.first[1];
                    }
                }
                self.loads += 1;
            }
            Command::Stop { list } if self.has(Fault::DeafToStop) => *list = 0,
            Command::Open { .. } | Command::Stop { .. } => {}
        }
        command
    }

    fn distort_spans(&self, into: &mut Spans) {
        let original: Vec<Span> = into.iter().copied().collect();
        into.clear();
        for (nth, mut span) in original.into_iter().enumerate() {
            match (self.fault, nth) {
                (Some(Fault::HeadTooShort), 0) => span.len = span.len.saturating_sub(1),
                (Some(Fault::BodyOffByOne), 1) => span.offset += 1,
                (Some(Fault::NoSpill), 2) => continue,
                _ => {}
            }
            let _ = into.push(span);
        }
    }

    fn distort_report(&mut self, report: Report) -> Option<Report> {
        self.landings += 1;
        let Report::Filled { list, index, len } = report else { return Some(report) };
        let (index, len) = match self.fault {
            Some(Fault::WrongLength) => (index, len.saturating_sub(14)),
            Some(Fault::WrongIndex) => (index.saturating_sub(1), len),
            Some(Fault::LostEnd) if self.landings.is_multiple_of(7) => return None,
            _ => (index, len),
        };
        Some(Report::Filled { list, index, len })
    }
}

impl Firmware for Faulty {
    type Command = Command;
    type Report = Report;
    type Token = Token;

    fn handle_command(&mut self, command: &Command, meter: &mut impl Meter) -> Option<Report> {
        let said = self.distort(command);
        if self.has(Fault::MixedUp) && matches!(said, Command::Load { .. }) {
            match self.held.take() {
                None if self.loads == 1 => {
                    self.held = Some(said);
                    return None;
                }
                None => {}
                Some(held) => {
                    self.inner.handle_command(&said, meter);
                    return self.inner.handle_command(&held, meter);
                }
            }
        }
        let answer = self.inner.handle_command(&said, meter);
        match (answer, *command) {
            (Some(Report::Stopped { .. }), Command::Stop { list }) => {
                Some(Report::Stopped { list })
            }
            (answer, _) => answer,
        }
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Token> {
        if self.has(Fault::ShortFramesLost) && frame.bytes.len() <= 60 {
            return Verdict::Drop;
        }
        let verdict = self.inner.receive(frame, into, meter);
        if self.fault.is_some() {
            self.distort_spans(into);
        }
        verdict
    }

    fn landed(
        &mut self,
        token: Token,
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<Report> {
        let landed = self.inner.landed(token, is_in_place, meter);
        let or_silent = |report: Option<Report>, as_it_was: fn(Report) -> Landed<Report>| {
            report.map_or(Landed::Silent, as_it_was)
        };
        match landed {
            Landed::Silent => Landed::Silent,
            Landed::Noted(report) => or_silent(self.distort_report(report), Landed::Noted),
            Landed::EventQueue(report) => {
                or_silent(self.distort_report(report), Landed::EventQueue)
            }
            Landed::Urgent(report) => or_silent(self.distort_report(report), Landed::Urgent),
        }
    }

    fn restart(&mut self) {
        self.inner.restart();
    }
}
