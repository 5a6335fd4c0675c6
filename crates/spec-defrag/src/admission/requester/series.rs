//! One series of requests: its nonce, and which of them may still be answered.

use landfall_placement::{Instant, Random};

use super::super::frame::{Nonce, Ticket};

/// So many requests may be under way; older ones are forgotten.
const UNDER_WAY: usize = 8;

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
struct Probe {
    serial: u32,
    sent: Instant,
    refused: bool,
}

/// What a series of requests remembers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) nonce: Nonce,
    /// What to show when asking again.
    pub(super) ticket: Option<Ticket>,
    /// The last request.
    serial: u32,
    /// The last one that was granted: none up to it matters any more.
    granted: u32,
    probes: [Option<Probe>; UNDER_WAY],
}

/// What a refusal is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is the first one of that request.
    First,
    /// That request was refused before: an invitation, or a repetition.
    Again,
}

impl Series {
    pub(super) fn new(random: &mut Random) -> Self {
        let nonce = Nonce::from_number(random.next_u64());
        Self { nonce, ticket: None, serial: 0, granted: 0, probes: [None; UNDER_WAY] }
    }

    /// The number of a request that is sent now. Nothing after four billion of them.
    pub(super) fn next(&mut self, now: Instant) -> Option<u32> {
        self.serial = self.serial.checked_add(1)?;
        let probe = Probe { serial: self.serial, sent: now, refused: false };
        self.probes[self.serial as usize % UNDER_WAY] = Some(probe);
        Some(self.serial)
    }

    /// The number of the last request.
    pub(super) fn last(&self) -> u32 {
        self.serial
    }

    fn probe(&mut self, serial: u32) -> Option<&mut Probe> {
        let granted = self.granted;
        let probe = self.probes[serial as usize % UNDER_WAY].as_mut()?;
        (probe.serial == serial && serial > granted).then_some(probe)
    }

    /// A request is granted: gives when it was sent. Only once, and none before the
    /// last one that was.
    pub(super) fn grant(&mut self, serial: u32) -> Option<Instant> {
        let sent = self.probe(serial)?.sent;
        self.granted = serial;
        Some(sent)
    }

    /// A request is refused.
    pub(super) fn refuse(&mut self, serial: u32) -> Option<Refused> {
        let probe = self.probe(serial)?;
        let before = core::mem::replace(&mut probe.refused, true);
        Some(if before { Refused::Again } else { Refused::First })
    }
}
