//! Sealed units of a capture, opened with a key log.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use super::key_log::TrafficKeys;
use super::unit::{FIRST, Mask, OVERHEAD, RETRY, SEALED, addressee, tag_of};
use crate::aead::Tag;
use crate::keys::Role;
use crate::provider::Provider;
use crate::record::Inspector;

/// Opens what was recorded, with the keys of a key log. It knows no order and no replay: a
/// recording may begin in the middle, and have the same unit several times.
///
/// ```
/// use landfall_seal::{CaptureOpener, NotOpened};
///
/// let mut opener = CaptureOpener::new();
/// let line = format!("LANDFALL_TO_RESPONDER_0 010a0b0c0d01020304 {}", "07".repeat(48));
/// opener.add(line.parse()?);
/// assert_eq!(opener.len(), 1);
/// assert_eq!(opener.open(b"something else").err(), Some(NotOpened::NotSealed));
/// # Ok::<(), landfall_seal::BadKeyLine>(())
/// ```
#[derive(Debug, Default)]
pub struct CaptureOpener {
    /// By what the receiver calls the association. Several may have drawn the same number.
    directions: BTreeMap<u32, Vec<Direction>>,
}

struct Direction {
    keys: TrafficKeys,
    mask: Mask,
    records: Inspector<Provider>,
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direction").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// A unit of a capture, as the engine that it was for saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedUnit {
    /// The engine's head and the payload.
    pub bytes: Vec<u8>,
    /// Who sent it.
    pub sender: Role,
    /// The generation of keys that sealed it.
    pub generation: u32,
    /// Its packet number.
    pub number: u64,
}

/// Why a unit of a capture stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum NotOpened {
    /// It is no sealed unit.
    #[error("not sealed")]
    NotSealed,
    /// It is a message of a handshake, which is not sealed.
    #[error("a message of a handshake")]
    Handshake,
    /// The key log does not have its association.
    #[error("no key in the log")]
    NoKey,
    /// It ends before its head does.
    #[error("cut short")]
    Cut,
    /// The tag does not fit: it was changed, recorded in part, or sealed with another key.
    #[error("the tag does not fit")]
    Forged,
}

impl CaptureOpener {
    /// One that has no keys.
    #[must_use]
    pub const fn new() -> Self {
        Self { directions: BTreeMap::new() }
    }

    /// Adds the keys of a direction. Both ends may have logged them: once is enough.
    pub fn add(&mut self, keys: TrafficKeys) {
        let known = self.directions.entry(keys.to()).or_default();
        if known.iter().any(|known| known.keys.is(&keys)) {
            return;
        }
        let mask = Mask::of_key(&keys.mask_key());
        let records = Inspector::new(keys.records(), keys.sender().direction(), keys.suite());
        known.push(Direction { keys, mask, records });
    }

    /// How many directions it has the keys of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.directions.values().map(Vec::len).sum()
    }

    /// Has it no keys?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.directions.is_empty()
    }

    /// Opens a unit.
    ///
    /// # Errors
    ///
    /// [`NotOpened`] says why it stays as it is.
    pub fn open(&mut self, unit: &[u8]) -> Result<OpenedUnit, NotOpened> {
        let form = *unit.first().ok_or(NotOpened::NotSealed)?;
        match form {
            SEALED => {}
            FIRST..=RETRY => return Err(NotOpened::Handshake),
            _ => return Err(NotOpened::NotSealed),
        }
        let to = addressee(unit).ok_or(NotOpened::Cut)?;
        let known = self.directions.get_mut(&to).ok_or(NotOpened::NoKey)?;
        let tag = Tag(tag_of(unit).ok_or(NotOpened::Cut)?);
        let opened = known.iter_mut().find_map(|direction| direction.open(unit, &tag));
        opened.ok_or(NotOpened::Forged)
    }

    /// How long each of several units is that were recorded as one, as devices that cut datagrams
    /// themselves (`UDP_SEGMENT`) show them: all but the last are of one length. `None` where
    /// nothing looks like the beginning of a second one.
    #[must_use]
    pub fn unit_len(&self, units: &[u8]) -> Option<usize> {
        // The first byte and the association stay as they are.
        let begins =
            |unit: &[u8]| unit.first() == Some(&SEALED) && unit.get(4..8) == units.get(4..8);
        if !begins(units) {
            return None;
        }
        let fits = |len: &usize| units[*len..].chunks(*len).all(begins);
        let longest = units.len().checked_sub(OVERHEAD)?;
        (OVERHEAD..=longest).filter(|len| begins(&units[*len..])).find(fits)
    }
}

impl Direction {
    fn open(&mut self, unit: &[u8], tag: &Tag) -> Option<OpenedUnit> {
        let heads = self.mask.uncover(unit).ok()?;
        let outer = heads.outer();
        let at = outer.position(self.records.newest());
        let inner_len = heads.inner().len();
        let mut bytes = Vec::with_capacity(unit.len() - OVERHEAD);
        bytes.extend_from_slice(heads.inner());
        bytes.extend_from_slice(unit.get(OVERHEAD + inner_len..)?);
        let payload = &mut bytes[inner_len..];
        let generation = self.records.open(at, heads.bytes(), payload, tag)?;
        let sender = self.keys.sender();
        Some(OpenedUnit { bytes, sender, generation, number: at.number })
    }
}
