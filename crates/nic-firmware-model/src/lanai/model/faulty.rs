//! [`Faulty`]: a card whose firmware has a fault, as programmers make them.

use landfall_placement::{Duration, Span, Spans};
use qpip::offload::{Command, Places, Prediction, Report, Segment};

use crate::firmware::{Arrival, Firmware, Landed, Meter, OutgoingFrame, Verdict};
use crate::machine::{Batch, Request, Route};

/// What is wrong with a firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The payload is put one byte behind its place.
    OffByOne,
    /// The payload is taken from one byte too early in the frame.
    EarlyPayload,
    /// The last byte of a payload is not moved.
    ShortMove,
    /// More places are each taken a byte further on.
    ShiftedExtension,
    /// The first of the predicted places is left out: a request is passed over.
    SkippedPlace,
    /// One byte more is said to have come than has.
    LongReport,
    /// The window of a segment is not told.
    LostWindow,
    /// Every eighth report is lost.
    LostReport,
    /// A payload that failed is said to be in place, and the other way round.
    WrongVerdict,
    /// The end of a message is not told.
    LostPush,
    /// A mapping that is replaced stays in force.
    StaleTranslation,
    /// Work requests are read from one too early on.
    EarlyRequest,
}

impl Fault {
    /// Every one there is.
    pub const ALL: [Self; 12] = [
        Self::OffByOne,
        Self::EarlyPayload,
        Self::ShortMove,
        Self::ShiftedExtension,
        Self::SkippedPlace,
        Self::LongReport,
        Self::LostWindow,
        Self::LostReport,
        Self::WrongVerdict,
        Self::LostPush,
        Self::StaleTranslation,
        Self::EarlyRequest,
    ];
}

/// A firmware, with a fault or without.
#[derive(Debug)]
pub struct Faulty<F> {
    firmware: F,
    fault: Option<Fault>,
    reports: u32,
    /// Where the pages of the latest mapping lie.
    stale: [u8; 8],
    /// The latest request of bytes.
    early: Option<Request>,
}

impl<F> Faulty<F> {
    /// This firmware with this fault.
    #[must_use]
    pub const fn new(firmware: F, fault: Option<Fault>) -> Self {
        Self { firmware, fault, reports: 0, stale: [0; 8], early: None }
    }

    /// These work requests, as a firmware with a fault reads them.
    fn altered(&mut self, requests: &[Request]) -> Vec<Request> {
        let mut all = requests.to_vec();
        for request in &mut all {
            match (self.fault, request[0]) {
                (Some(Fault::StaleTranslation), 1) => {
                    let mut lies = [0; 8];
                    lies.copy_from_slice(&request[24..]);
                    request[24..].copy_from_slice(&self.stale);
                    self.stale = lies;
                }
                (Some(Fault::EarlyRequest), 2) => {
                    let latest = self.early.replace(*request);
                    *request = latest.unwrap_or(*request);
                }
                _ => {}
            }
        }
        all
    }

    /// The firmware, to be used.
    pub const fn inner_mut(&mut self) -> &mut F {
        &mut self.firmware
    }

    /// The firmware.
    #[must_use]
    pub const fn inner(&self) -> &F {
        &self.firmware
    }
}

/// The same places, each a byte further on.
fn shifted(places: &Places) -> Places {
    let mut all = Places::new();
    for (span, ends) in places.iter() {
        let span = Span { offset: span.offset.wrapping_add(1), ..span };
        all.push(span, ends);
    }
    all
}

/// All places but the first.
fn without_first(places: &Places) -> Places {
    let mut rest = Places::new();
    for (span, ends) in places.iter().skip(1) {
        rest.push(span, ends);
    }
    rest
}

/// What a firmware with a fault says of a segment.
const fn altered(hit: Segment, fault: Fault) -> Segment {
    match fault {
        Fault::LongReport => Segment { len: hit.len + 1, ..hit },
        Fault::LostWindow => Segment { window: 0, ..hit },
        Fault::LostPush => Segment { is_pushed: false, ..hit },
        _ => hit,
    }
}

impl<F: Firmware<Command = Command, Report = Report>> Firmware for Faulty<F> {
    type Command = Command;
    type Report = Report;
    type Token = F::Token;

    fn post(&mut self, command: &mut Command, batch: &mut Batch) {
        self.firmware.post(command, batch);
    }

    fn fetched(&mut self, command: &mut Command, requests: Option<&[Request]>) {
        let all = requests.map(|requests| self.altered(requests));
        self.firmware.fetched(command, all.as_deref());
    }

    fn post_send(&mut self, from: &[Span], batch: &mut Batch) {
        self.firmware.post_send(from, batch);
    }

    fn fetched_send(&mut self, requests: Option<&[Request]>, from: &mut Spans) -> bool {
        let all = requests.map(|requests| self.altered(requests));
        self.firmware.fetched_send(all.as_deref(), from)
    }

    fn handle_command(&mut self, command: &Command, meter: &mut impl Meter) -> Option<Report> {
        let command = match (self.fault, *command) {
            (Some(Fault::OffByOne), Command::Arm { slot, mark, heard, next }) => {
                let next = Prediction { places: shifted(&next.places), ..next };
                Command::Arm { slot, mark, heard, next }
            }
            (Some(Fault::SkippedPlace), Command::Arm { slot, mark, heard, next }) => {
                let next = Prediction { places: without_first(&next.places), ..next };
                Command::Arm { slot, mark, heard, next }
            }
            (Some(Fault::ShiftedExtension), Command::Extend { slot, mark, more }) => {
                Command::Extend { slot, mark, more: shifted(&more) }
            }
            (_, command) => command,
        };
        self.firmware.handle_command(&command, meter)
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<F::Token> {
        let verdict = self.firmware.receive(frame, into, meter);
        match (self.fault, verdict) {
            (Some(Fault::EarlyPayload), Verdict::Place { at, token }) => {
                Verdict::Place { at: at.saturating_sub(1), token }
            }
            (Some(Fault::ShortMove), Verdict::Place { .. }) => {
                into.truncate(into.total_len().saturating_sub(1));
                verdict
            }
            _ => verdict,
        }
    }

    fn landed(
        &mut self,
        token: F::Token,
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<Report> {
        let is_wrong = self.fault == Some(Fault::WrongVerdict);
        let landed = self.firmware.landed(token, is_in_place != is_wrong, meter);
        self.reports += 1;
        match (self.fault, landed) {
            (Some(Fault::LostReport), _) if self.reports.is_multiple_of(8) => Landed::Silent,
            (Some(fault), Landed::EventQueue(Report::Segment { hit, mark, is_in_place })) => {
                Landed::EventQueue(Report::Segment { hit: altered(hit, fault), mark, is_in_place })
            }
            (_, landed) => landed,
        }
    }

    fn send(&mut self, frame: &OutgoingFrame<'_>, meter: &mut impl Meter) -> Option<Route> {
        self.firmware.send(frame, meter)
    }

    fn patience(&self) -> Duration {
        self.firmware.patience()
    }

    fn restart(&mut self) {
        self.firmware.restart();
    }
}
