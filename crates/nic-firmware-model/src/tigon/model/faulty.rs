//! A firmware with a fault: what the comparison must notice.

use landfall_placement::Spans;
use stp_core::offload::{Command, Incoming, Report};
use stp_core::wire::{HEADER_LEN, Header};

use super::super::{Tigon, Token};
use crate::firmware::{Arrival, Firmware, Landed, Meter, Verdict};

/// Something that is wrong with the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It takes what is not granted yet.
    BoundWrong,
    /// It does not close what it should, and says that it did.
    EntryStale,
    /// It places each payload one byte behind its place.
    OffsetOffByOne,
    /// It does not tell that a Block is complete.
    BlockCountLost,
    /// It tells of the STU beside the one that landed.
    UnitWrong,
    /// It takes wrong checksums for right ones.
    ChecksumIgnored,
    /// It takes the last byte of the header for the first of the payload.
    PayloadOffByOne,
    /// It does not look at the key.
    KeyUnchecked,
    /// It drops what it refuses, and should give to the host.
    RefusedDropped,
    /// It loses commands that grant more.
    GrantLost,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::BoundWrong,
        Self::EntryStale,
        Self::OffsetOffByOne,
        Self::BlockCountLost,
        Self::UnitWrong,
        Self::ChecksumIgnored,
        Self::PayloadOffByOne,
        Self::KeyUnchecked,
        Self::RefusedDropped,
        Self::GrantLost,
    ];
}

/// The firmware, with a fault or without.
#[derive(Debug)]
pub struct Faulty {
    inner: Tigon<'static>,
    fault: Option<Fault>,
}

impl Faulty {
    /// A firmware with this fault.
    #[must_use]
    pub const fn new(inner: Tigon<'static>, fault: Option<Fault>) -> Self {
        Self { inner, fault }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The frame with the key that its Block expects.
    fn with_right_key(&mut self, frame: &Arrival<'_>) -> Option<Vec<u8>> {
        let header = Header::read(frame.bytes)?;
        let index = header.bufx.get() as u16;
        let key = self.inner.blocks().block(index)?.expected().key;
        let mut bytes = frame.bytes.to_vec();
        bytes.get_mut(8..12)?.copy_from_slice(&key.to_be_bytes());
        Some(bytes)
    }

    /// Where the payload of a frame belongs, whatever its checksum.
    fn place_of(&mut self, frame: &Arrival<'_>) -> Option<landfall_placement::Span> {
        let header = Header::read(frame.bytes)?;
        let data = Incoming {
            header,
            len: frame.bytes.len() as u32,
            path: frame.path,
            from: frame.from,
            ecn: frame.ecn,
        };
        Some(self.inner.blocks().check(&data).ok()?.1)
    }
}

impl Firmware for Faulty {
    type Command = Command;
    type Report = Report;
    type Token = Token;

    fn handle_command(&mut self, command: &Command, meter: &mut impl Meter) -> Option<Report> {
        match *command {
            Command::Close { index, generation } if self.has(Fault::EntryStale) => {
                return Some(Report::Closed { index, generation });
            }
            Command::Grant { .. } if self.has(Fault::GrantLost) => return None,
            _ => {}
        }
        let answer = self.inner.handle_command(command, meter);
        if self.has(Fault::BoundWrong)
            && let Command::Open { index, .. } = *command
        {
            self.inner.blocks().grant(index, u16::MAX);
        }
        answer
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Token> {
        let forged = self.has(Fault::KeyUnchecked).then(|| self.with_right_key(frame)).flatten();
        let frame = Arrival { bytes: forged.as_deref().unwrap_or(frame.bytes), ..*frame };
        let place = self.has(Fault::ChecksumIgnored).then(|| self.place_of(&frame)).flatten();
        let mut verdict = self.inner.receive(&frame, into, meter);
        match &mut verdict {
            Verdict::Place { token, .. } if token.is_corrupt && place.is_some() => {
                token.is_corrupt = false;
                into.clear();
                let _ = place.map(|span| into.push(span));
            }
            Verdict::Place { .. } if self.has(Fault::OffsetOffByOne) => {
                let moved: Vec<_> = into.iter().copied().collect();
                into.clear();
                for mut span in moved {
                    span.offset += 1;
                    let _ = into.push(span);
                }
            }
            Verdict::Place { at, .. } if self.has(Fault::PayloadOffByOne) => *at -= 1,
            Verdict::Host
                if self.has(Fault::RefusedDropped)
                    && frame.bytes.len() >= HEADER_LEN
                    && frame.bytes[0] == stp_core::wire::Op::Data as u8 =>
            {
                verdict = Verdict::Drop;
            }
            _ => {}
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
        let Report::Landed(units) = report else { return landed };
        let is_complete = !self.inner.blocks().block(units.index).is_some_and(|b| b.is_open());
        if self.has(Fault::UnitWrong) {
            units.first ^= 1;
        }
        if self.has(Fault::BlockCountLost) && is_complete {
            return Landed::Silent;
        }
        landed
    }

    fn restart(&mut self) {
        self.inner.restart();
    }
}
