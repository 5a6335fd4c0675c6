//! [`Reservations`]: which initiators may use a logical unit: registrations and persistent
//! reservations, and the older RESERVE (6).

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::cdb::{Command, ReserveAction};
use crate::sense::{Code, Key, Response, Sense, Status};
use crate::wire::u64_at;

/// This many initiators may be registered.
const MOST_REGISTRATIONS: usize = 256;
/// The parameters of PERSISTENT RESERVE OUT.
pub(crate) const PARAMETERS: u32 = 24;

/// What others may do while a logical unit is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationKind {
    /// One initiator writes.
    WriteExclusive = 1,
    /// One initiator reads and writes.
    ExclusiveAccess = 3,
    /// Those who are registered write.
    WriteExclusiveRegistrants = 5,
    /// Those who are registered read and write.
    ExclusiveAccessRegistrants = 6,
    /// Those who are registered write, and all of them hold it.
    WriteExclusiveAll = 7,
    /// Those who are registered read and write, and all of them hold it.
    ExclusiveAccessAll = 8,
}

impl ReservationKind {
    /// The kind of this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::WriteExclusive,
            3 => Self::ExclusiveAccess,
            5 => Self::WriteExclusiveRegistrants,
            6 => Self::ExclusiveAccessRegistrants,
            7 => Self::WriteExclusiveAll,
            8 => Self::ExclusiveAccessAll,
            _ => return None,
        })
    }

    const fn is_of_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    const fn is_of_one(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    const fn bars_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    initiator: String,
    key: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reservation {
    holder: String,
    kind: ReservationKind,
}

/// What has to be told to others, and whose tasks end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consequences {
    /// Unit attentions, by the names of initiators.
    pub(crate) attentions: Vec<(String, Code)>,
    /// Initiators whose tasks are aborted.
    pub(crate) aborted: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    generation: u32,
    registrations: Vec<Registration>,
    held: Option<Reservation>,
    /// By RESERVE (6).
    simple: Option<String>,
}

/// What a command needs of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Always,
    Free,
    Read,
    Write,
}

const fn access(command: &Command) -> Access {
    match command {
        Command::Inquiry { .. } | Command::RequestSense { .. } | Command::ReportLuns { .. } => {
            Access::Always
        }
        Command::TestUnitReady
        | Command::ReadCapacity { .. }
        | Command::ReserveIn { .. }
        | Command::ReserveOut { .. }
        | Command::Reserve
        | Command::Release
        | Command::ReportOpcodes { .. }
        | Command::ReportTaskManagement { .. } => Access::Free,
        Command::Read { .. }
        | Command::Verify { .. }
        | Command::Prefetch { .. }
        | Command::LbaStatus { .. }
        | Command::ModeSense { .. } => Access::Read,
        _ => Access::Write,
    }
}

const CONFLICT: Response = Response::status(Status::ReservationConflict);

impl Reservations {
    fn key_of(&self, initiator: &str) -> Option<u64> {
        let is_it = |registration: &&Registration| registration.initiator == initiator;
        self.registrations.iter().find(is_it).map(|registration| registration.key)
    }

    /// May the initiator have this done?
    pub(crate) fn allows(&self, initiator: &str, command: &Command) -> bool {
        let access = access(command);
        if access == Access::Always {
            return true;
        }
        let is_barred = self.simple.as_ref().is_some_and(|holder| holder != initiator);
        if is_barred && !matches!(command, Command::Release) {
            return false;
        }
        let Some(held) = &self.held else { return true };
        let is_open = match access {
            Access::Always | Access::Free => true,
            Access::Read => !held.kind.bars_reads(),
            Access::Write => false,
        };
        let is_holder = held.holder == initiator;
        let is_registered = || self.key_of(initiator).is_some();
        is_open || is_holder || !held.kind.is_of_one() && is_registered()
    }

    /// RESERVE (6).
    pub(crate) fn reserve(&mut self, initiator: &str) -> Response {
        if !self.registrations.is_empty() {
            return CONFLICT;
        }
        self.simple = Some(initiator.to_owned());
        Response::good()
    }

    /// RELEASE (6).
    pub(crate) fn release(&mut self, initiator: &str) -> Response {
        if !self.registrations.is_empty() {
            return CONFLICT;
        }
        self.forget(initiator);
        Response::good()
    }

    /// What does not outlive the connection of an initiator.
    pub(crate) fn forget(&mut self, initiator: &str) {
        if self.simple.as_deref() == Some(initiator) {
            self.simple = None;
        }
    }

    /// The unit was reset: what is persistent stays.
    pub(crate) fn reset(&mut self) {
        self.simple = None;
    }

    /// Does this initiator hold the reservation?
    fn holds(&self, initiator: &str) -> bool {
        let Some(held) = &self.held else { return false };
        held.holder == initiator || held.kind.is_of_all() && self.key_of(initiator).is_some()
    }

    fn others(&self, than: &str) -> impl Iterator<Item = String> {
        let others = self.registrations.iter().filter(move |other| other.initiator != than);
        let names: Vec<String> = others.map(|other| other.initiator.clone()).collect();
        names.into_iter()
    }

    /// PERSISTENT RESERVE OUT.
    pub(crate) fn change(
        &mut self,
        initiator: &str,
        (action, scope, kind): (ReserveAction, u8, u8),
        list: &[u8],
    ) -> Result<(Response, Consequences), Sense> {
        if list.len() != PARAMETERS as usize {
            return Err(Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH));
        }
        let (key, other) = (u64_at(list, 0), u64_at(list, 8));
        let registers =
            matches!(action, ReserveAction::Register | ReserveAction::RegisterAndIgnore);
        // Initiators that are named, all ports, survival of a loss of power: not offered.
        if list[20] & if registers { 0x0d } else { 0x08 } != 0 {
            return Err(Sense::invalid_parameter(20));
        }
        if registers {
            let ignore = action == ReserveAction::RegisterAndIgnore;
            return self.register(initiator, key, other, ignore);
        }
        if self.key_of(initiator) != Some(key) {
            return Ok((CONFLICT, Consequences::default()));
        }
        let kind = || {
            if scope != 0 {
                return Err(Sense::invalid_field(2, 7));
            }
            ReservationKind::from_number(kind).ok_or(Sense::invalid_field(2, 3))
        };
        match action {
            ReserveAction::Reserve => Ok((self.hold(initiator, kind()?), Consequences::default())),
            ReserveAction::Release => self.give_back(initiator, kind()?),
            ReserveAction::Clear => {
                let tell = |other| (other, Code::RESERVATIONS_PREEMPTED);
                let attentions = self.others(initiator).map(tell).collect();
                self.registrations.clear();
                self.held = None;
                self.generation = self.generation.wrapping_add(1);
                Ok((Response::good(), Consequences { attentions, aborted: Vec::new() }))
            }
            _ => {
                let aborts = action == ReserveAction::PreemptAndAbort;
                self.preempt(initiator, kind()?, other, aborts)
            }
        }
    }

    fn register(
        &mut self,
        initiator: &str,
        key: u64,
        new: u64,
        ignore: bool,
    ) -> Result<(Response, Consequences), Sense> {
        let current = self.key_of(initiator);
        if !ignore && key != current.unwrap_or(0) {
            return Ok((CONFLICT, Consequences::default()));
        }
        let mut consequences = Consequences::default();
        match (current, new) {
            (None, 0) => {}
            (None, _) => {
                if self.registrations.len() >= MOST_REGISTRATIONS {
                    let code = Code::NO_REGISTRATION_ROOM;
                    return Err(Sense::new(Key::IllegalRequest, code));
                }
                let initiator = initiator.to_owned();
                self.registrations.push(Registration { initiator, key: new });
            }
            (Some(_), 0) => consequences = self.unregister(initiator),
            (Some(_), _) => {
                for registration in &mut self.registrations {
                    if registration.initiator == initiator {
                        registration.key = new;
                    }
                }
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok((Response::good(), consequences))
    }

    fn unregister(&mut self, initiator: &str) -> Consequences {
        self.registrations.retain(|registration| registration.initiator != initiator);
        let Some(held) = &self.held else { return Consequences::default() };
        let ends = match held.kind.is_of_all() {
            true => self.registrations.is_empty(),
            false => held.holder == initiator,
        };
        let mut consequences = Consequences::default();
        if ends {
            if !held.kind.is_of_one() {
                let tell = |other| (other, Code::RESERVATIONS_RELEASED);
                consequences.attentions = self.others(initiator).map(tell).collect();
            }
            self.held = None;
        }
        consequences
    }

    fn hold(&mut self, initiator: &str, kind: ReservationKind) -> Response {
        match &self.held {
            Some(held) if self.holds(initiator) && held.kind == kind => Response::good(),
            Some(_) => CONFLICT,
            None => {
                self.held = Some(Reservation { holder: initiator.to_owned(), kind });
                Response::good()
            }
        }
    }

    fn give_back(
        &mut self,
        initiator: &str,
        kind: ReservationKind,
    ) -> Result<(Response, Consequences), Sense> {
        let mut consequences = Consequences::default();
        let held = self.held.as_ref().filter(|_| self.holds(initiator));
        if let Some(held) = held {
            if held.kind != kind {
                return Err(Sense::new(Key::IllegalRequest, Code::INVALID_RELEASE));
            }
            if !kind.is_of_one() {
                let tell = |other| (other, Code::RESERVATIONS_RELEASED);
                consequences.attentions = self.others(initiator).map(tell).collect();
            }
            self.held = None;
        }
        Ok((Response::good(), consequences))
    }

    fn preempt(
        &mut self,
        initiator: &str,
        kind: ReservationKind,
        victim: u64,
        aborts: bool,
    ) -> Result<(Response, Consequences), Sense> {
        let all = self.held.as_ref().is_some_and(|held| held.kind.is_of_all());
        let holder_key = self.held.as_ref().and_then(|held| self.key_of(&held.holder));
        let everyone = all && victim == 0;
        if victim == 0 && !all {
            return Err(Sense::invalid_parameter(8));
        }
        let is_victim = |registration: &Registration| everyone || registration.key == victim;
        if !everyone && !self.registrations.iter().any(is_victim) {
            return Ok((CONFLICT, Consequences::default()));
        }
        let takes = everyone || !all && self.held.is_some() && holder_key == Some(victim);
        let mut consequences = Consequences::default();
        for registration in self.registrations.iter().filter(|it| is_victim(it)) {
            let name = registration.initiator.clone();
            if aborts {
                consequences.aborted.push(name.clone());
            }
            if name != initiator {
                consequences.attentions.push((name, Code::REGISTRATIONS_PREEMPTED));
            }
        }
        let stays =
            |it: &Registration| !is_victim(it) || (takes || everyone) && it.initiator == initiator;
        self.registrations.retain(stays);
        if takes {
            let changes = self.held.as_ref().is_some_and(|held| held.kind != kind);
            if changes {
                let tell = |other| (other, Code::RESERVATIONS_RELEASED);
                consequences.attentions.extend(self.others(initiator).map(tell));
            }
            self.held = Some(Reservation { holder: initiator.to_owned(), kind });
        } else if all && self.registrations.is_empty() {
            self.held = None;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok((Response::good(), consequences))
    }

    /// PERSISTENT RESERVE IN.
    pub(crate) fn report(&self, action: u8) -> Vec<u8> {
        if action == 2 {
            // All six kinds; nothing outlives a loss of power.
            return vec![0, 8, 0, 0x80, 0xea, 0x01, 0, 0];
        }
        let mut body = Vec::new();
        match action {
            0 => {
                for registration in &self.registrations {
                    body.extend_from_slice(&registration.key.to_be_bytes());
                }
            }
            1 => {
                if let Some(held) = &self.held {
                    let key = if held.kind.is_of_all() { None } else { self.key_of(&held.holder) };
                    body.extend_from_slice(&key.unwrap_or(0).to_be_bytes());
                    body.extend_from_slice(&[0, 0, 0, 0, 0, held.kind as u8, 0, 0]);
                }
            }
            _ => {
                for registration in &self.registrations {
                    self.describe(registration, &mut body);
                }
            }
        }
        let mut data = self.generation.to_be_bytes().to_vec();
        data.extend_from_slice(&(body.len() as u32).to_be_bytes());
        data.extend(body);
        data
    }

    /// One descriptor of READ FULL STATUS.
    fn describe(&self, registration: &Registration, body: &mut Vec<u8>) {
        let holds = self.holds(&registration.initiator);
        let kind = self.held.as_ref().filter(|_| holds).map_or(0, |held| held.kind as u8);
        body.extend_from_slice(&registration.key.to_be_bytes());
        body.extend_from_slice(&[0, 0, 0, 0, u8::from(holds), kind, 0, 0, 0, 0, 0, 1]);
        // The name with the number of its session.
        let mut name = registration.initiator.clone().into_bytes();
        name.push(0);
        name.resize(name.len().next_multiple_of(4).max(20), 0);
        body.extend_from_slice(&(name.len() as u32 + 4).to_be_bytes());
        body.extend_from_slice(&[0x45, 0]);
        body.extend_from_slice(&(name.len() as u16).to_be_bytes());
        body.extend(name);
    }
}
