//! Tripwires beside the naive ones: changed alike, compared by what can be asked.

use alloc::format;
use alloc::string::String;

use super::naive::NaiveHost;
use crate::error::Error;
use crate::ids::TripwireId;
use crate::nic::Nic;
use crate::tripwire::Tripwires;

/// What has tripwires that the naive model has, too.
pub(super) trait Wires {
    fn enable(&mut self, id: TripwireId) -> Result<(), Error>;
    fn disable(&mut self, id: TripwireId) -> Result<(), Error>;
    fn remove(&mut self, id: TripwireId) -> Result<(), Error>;
    fn pop_name(&mut self) -> Option<TripwireId>;
    /// Is it armed, and how often has it fired?
    fn look(&mut self, id: TripwireId) -> Option<(bool, u64)>;
}

impl Wires for Tripwires {
    fn enable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.enable(id)
    }

    fn disable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.disable(id)
    }

    fn remove(&mut self, id: TripwireId) -> Result<(), Error> {
        self.remove(id)
    }

    fn pop_name(&mut self) -> Option<TripwireId> {
        self.pop_identifier()
    }

    fn look(&mut self, id: TripwireId) -> Option<(bool, u64)> {
        self.is_armed(id).ok().zip(self.count(id).ok())
    }
}

impl Wires for Nic {
    fn enable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.enable_tripwire(id)
    }

    fn disable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.disable_tripwire(id)
    }

    fn remove(&mut self, id: TripwireId) -> Result<(), Error> {
        self.remove_tripwire(id)
    }

    fn pop_name(&mut self) -> Option<TripwireId> {
        self.pop_identifier()
    }

    fn look(&mut self, id: TripwireId) -> Option<(bool, u64)> {
        self.is_armed(id).ok().zip(self.firings(id).ok())
    }
}

/// Enables, disables or removes one of both. What differs, if anything does.
pub(super) fn change(
    wires: &mut impl Wires,
    naive: &mut NaiveHost,
    id: TripwireId,
    how: u8,
) -> Result<(), String> {
    let exists = naive.look(id.raw()).is_some();
    let done = match how % 3 {
        0 => {
            naive.enable(id.raw());
            wires.enable(id)
        }
        1 => {
            naive.disable(id.raw());
            wires.disable(id)
        }
        _ => {
            naive.remove(id.raw());
            wires.remove(id)
        }
    };
    match done.is_ok() == exists {
        true => Ok(()),
        false => Err(format!("{id} exists: {exists}, but {done:?}")),
    }
}

/// Takes a name out of both queues. Gives whether there was one.
pub(super) fn pop(wires: &mut impl Wires, naive: &mut NaiveHost) -> Result<bool, String> {
    let (got, expected) = (wires.pop_name(), naive.pop());
    match got.map(TripwireId::raw) == expected {
        true => Ok(expected.is_some()),
        false => Err(format!("the queue of names: {got:?} is not {expected:?}")),
    }
}

/// Are they in the same state?
pub(super) fn compare(
    wires: &mut impl Wires,
    naive: &NaiveHost,
    id: TripwireId,
) -> Result<(), String> {
    let (got, expected) = (wires.look(id), naive.look(id.raw()));
    if got == expected { Ok(()) } else { Err(format!("{id}: {got:?}, not {expected:?}")) }
}
