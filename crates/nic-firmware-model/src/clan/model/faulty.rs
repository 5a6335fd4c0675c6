//! A firmware with a fault: what the comparison must notice.

use clan_dsm::native::wire::{Symbol, Unit};
use clan_dsm::offload::{Command, Report};
use clan_dsm::{Address, Kind, Rights, WHOLE, WORD};
use landfall_placement::{Area, Spans};

use super::super::{Clan, Token};
use crate::firmware::{Arrival, Firmware, Landed, Meter, OutgoingFrame, Verdict, Word};
use crate::machine::Route;

/// Something that is wrong with the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It takes apertures for longer than they are.
    BoundWrong,
    /// It keeps apertures that were revoked.
    EntryStale,
    /// It places the words one byte behind their place.
    OffsetOffByOne,
    /// It takes the last byte of the header for the first of the words.
    PayloadOffByOne,
    /// It does not look at the key.
    KeyUnchecked,
    /// It writes the whole word where some bytes of it are meant.
    MaskIgnored,
    /// It does not say that a tripwire was touched.
    HitLost,
    /// It says that it watches, and does not.
    WatchLost,
    /// It says of a packet that it was a word shorter.
    WordsMiscounted,
    /// It does not tell of what it placed.
    ReportLost,
    /// It drops what it refuses, and should give to the host.
    RefusedDropped,
    /// It does not give the host the link's credit.
    CreditLost,
    /// It gives the other end credit for a word that there is no room for.
    CreditTooFar,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::BoundWrong,
        Self::EntryStale,
        Self::OffsetOffByOne,
        Self::PayloadOffByOne,
        Self::KeyUnchecked,
        Self::MaskIgnored,
        Self::HitLost,
        Self::WatchLost,
        Self::WordsMiscounted,
        Self::ReportLost,
        Self::RefusedDropped,
        Self::CreditLost,
        Self::CreditTooFar,
    ];
}

/// The firmware, with a fault or without.
#[derive(Debug)]
pub struct Faulty {
    inner: Clan<'static>,
    fault: Option<Fault>,
}

impl Faulty {
    /// A firmware with this fault.
    #[must_use]
    pub const fn new(inner: Clan<'static>, fault: Option<Fault>) -> Self {
        Self { inner, fault }
    }

    /// The firmware itself.
    #[must_use]
    pub const fn inner(&self) -> &Clan<'static> {
        &self.inner
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The unit with the key that its aperture expects.
    fn with_right_key(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let address = Address::from_bytes(*bytes.first_chunk()?)?;
        let aperture = self.inner.tables().aperture(address.slot)?;
        let key = [Rights::ReadWrite, Rights::Write]
            .into_iter()
            .find_map(|rights| aperture.key(rights))?;
        let mut bytes = bytes.to_vec();
        bytes.get_mut(..Address::LEN)?.copy_from_slice(&Address { key, ..address }.to_bytes());
        Some(bytes)
    }
}

/// What a unit is, if it is one.
fn unit(bytes: &[u8]) -> Option<Unit> {
    Unit::parse(bytes, bytes.len() as u32).ok()
}

impl Firmware for Faulty {
    type Command = Command;
    type Report = Report;
    type Token = Token;

    fn handle_command(&mut self, command: &Command, meter: &mut impl Meter) -> Option<Report> {
        let mut command = *command;
        match &mut command {
            Command::Expose { aperture, .. } => {
                let memory = aperture.memory();
                if self.has(Fault::EntryStale) && memory.len == 0 {
                    return None;
                }
                if self.has(Fault::BoundWrong) && memory.len > 0 {
                    *aperture = aperture.with_memory(Area { len: memory.len + 8, ..memory });
                }
            }
            Command::Watch { .. } if self.has(Fault::WatchLost) => return None,
            _ => {}
        }
        self.inner.handle_command(&command, meter)
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Token> {
        let forged =
            self.has(Fault::KeyUnchecked).then(|| self.with_right_key(frame.bytes)).flatten();
        let frame = Arrival { bytes: forged.as_deref().unwrap_or(frame.bytes), ..*frame };
        let mut verdict = self.inner.receive(&frame, into, meter);
        match &mut verdict {
            Verdict::Place { at, token } => {
                let mask = token.burst.address().mask;
                let mut moved = into.to_vec();
                if self.has(Fault::OffsetOffByOne) {
                    moved.iter_mut().for_each(|span| span.offset += 1);
                }
                if self.has(Fault::PayloadOffByOne) {
                    *at -= 1;
                }
                if self.has(Fault::MaskIgnored) && mask != WHOLE {
                    let lead = u64::from(mask.trailing_zeros());
                    moved.iter_mut().for_each(|span| {
                        span.offset = span.offset.saturating_sub(lead);
                        span.len = WORD;
                    });
                    *at = Address::LEN as u16;
                }
                into.clear();
                moved.into_iter().for_each(|span| {
                    let _ = into.push(span);
                });
            }
            Verdict::Host => {
                let is_credit = matches!(unit(frame.bytes), Some(Unit::Symbol(Symbol::Credit(_))));
                let is_burst = matches!(unit(frame.bytes), Some(Unit::Packet(burst))
                    if burst.address().kind == Kind::Burst);
                let drops = is_credit && self.has(Fault::CreditLost)
                    || is_burst && self.has(Fault::RefusedDropped);
                if drops {
                    verdict = Verdict::Drop;
                }
            }
            Verdict::Drop => {}
        }
        verdict
    }

    fn landed(
        &mut self,
        token: Token,
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<Report> {
        let mut landed = self.inner.landed(token, is_in_place, meter);
        let (Landed::Noted(report) | Landed::EventQueue(report)) = &mut landed else {
            return landed;
        };
        let Report::Landed(there) = report else { return landed };
        if self.has(Fault::HitLost) {
            there.is_hit = false;
        }
        if self.has(Fault::WordsMiscounted)
            && let Some((shorter, _)) = there.burst.split_at(there.burst.words() - 1)
        {
            there.burst = shorter;
        }
        if self.has(Fault::ReportLost) {
            return Landed::Silent;
        }
        landed
    }

    fn fill(&mut self, taken: u32, slots: u32) {
        self.inner.fill(taken, slots);
    }

    fn poll_word(&mut self) -> Option<Word> {
        let mut word = self.inner.poll_word()?;
        if let Some(Symbol::Credit(edge)) = Symbol::from_bytes(word.bytes)
            && self.has(Fault::CreditTooFar)
        {
            word.bytes = Symbol::Credit(edge.plus(1)).to_bytes();
        }
        Some(word)
    }

    fn send(&mut self, frame: &OutgoingFrame<'_>, meter: &mut impl Meter) -> Option<Route> {
        self.inner.send(frame, meter)
    }

    fn restart(&mut self) {
        self.inner.restart();
    }
}
