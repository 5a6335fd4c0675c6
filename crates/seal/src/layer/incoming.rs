//! Units that come.

use alloc::vec::Vec;

use landfall_placement::{
    Check, Engine, Instant, Landing, Peer, Placement, Refusal, SealedRun, Spans, Ticket, Unit,
    Unsealed,
};

use super::association::{FIRST_LEN, State};
use super::associations::Associations;
use super::session::Covered;
use super::unit::{Authenticated, FIRST, OVERHEAD, RETRY, SEALED, addressee};

/// Payloads that were opened before the engine placed them, and are not in place yet.
const MOST_OPENED: usize = 256;
/// Keys from this one on name those; the others are associations.
const FIRST_OPENED: u64 = 1 << 32;

/// A check that asks for nothing: for a placement that has no bytes, and is verified.
pub(super) const NOTHING: Check = Check::InternetSum { from: 0, len: 0, seed: 0xffff };

/// A payload that was opened before it was placed.
#[derive(Debug)]
pub(super) struct Opened {
    key: u64,
    pub(super) ticket: Ticket,
    bytes: Vec<u8>,
}

impl Associations {
    /// Where does a unit belong? It is genuine, or the driver is asked to find out before the
    /// engine is told that it landed.
    pub(super) fn place<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let len = unit.len as usize;
        let Some(form) = unit.head.first().copied() else {
            return if len == 0 { self.refuse(Refusal::Truncated) } else { need(1) };
        };
        match form {
            SEALED => self.place_sealed(engine, now, unit, into),
            FIRST..=RETRY => {
                let wanted = self.message_len(unit.head).min(len);
                let Some(message) = unit.head.get(..wanted) else { return need(wanted) };
                match self.handle_message((now, unit.path, unit.from), message) {
                    Ok(()) => Ok(Placement::Consumed),
                    Err(refusal) => self.refuse(refusal),
                }
            }
            _ => {
                self.stats.plain += 1;
                self.refuse(Refusal::Unsupported)
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Result<Placement, Refusal> {
        Err(self.refusals.count(refusal))
    }

    /// What the engine has placed has not come after all. (Not its memory has failed: that would
    /// end what the memory is for.) It is counted once, by the engine or here.
    fn undo<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        ticket: Ticket,
    ) -> Result<Placement, Refusal> {
        let before = engine.refusals().of(Refusal::BadChecksum);
        engine.handle_placed(now, ticket, Landing::Corrupt);
        if engine.refusals().of(Refusal::BadChecksum) == before {
            return self.refuse(Refusal::BadChecksum);
        }
        Err(Refusal::BadChecksum)
    }

    fn place_sealed<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let len = unit.len as usize;
        if len < OVERHEAD {
            return self.refuse(Refusal::Truncated);
        }
        if unit.head.len() < OVERHEAD {
            return need(OVERHEAD);
        }
        let id = addressee(unit.head).unwrap_or_default();
        self.expanded.latest = now;
        let Some(known) = self.table.get_mut(&id) else { return self.refuse(Refusal::UnknownId) };
        let State::Open(session) = &mut known.state else {
            return self.refuse(Refusal::Unexpected);
        };
        self.expanded.note(id, session);
        let heads = match session.uncover(unit.head) {
            Ok(heads) => heads,
            Err(Covered::Needs(more)) if more > unit.head.len() && more <= len => {
                return need(more);
            }
            Err(Covered::Needs(_)) => return self.refuse(Refusal::Malformed),
            Err(Covered::Replayed) => {
                self.stats.replayed += 1;
                return self.refuse(Refusal::Duplicate);
            }
        };
        session.note_seen(&heads, unit.path, unit.from);
        known.used = now;
        if engine.places_unverified(heads.inner()) {
            return self.place_unverified(engine, (now, id), unit, &heads, into);
        }
        let Some(whole) = unit.head.get(..len) else { return need(len) };
        self.place_opened(engine, (now, id), (unit, whole), &heads, into)
    }

    /// The engine answers for a head that nobody has verified, and the driver opens the unit.
    fn place_unverified<E: Engine>(
        &mut self,
        engine: &mut E,
        (now, id): (Instant, u32),
        unit: &Unit<'_>,
        heads: &Authenticated,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let inner = heads.inner();
        let from = Peer::Node(id);
        let len = unit.len - OVERHEAD as u32;
        let placed = engine.place(now, &Unit { from, head: inner, len, ..*unit }, into)?;
        let at = OVERHEAD + inner.len();
        match placed {
            Placement::Into { at: inner_at, ticket, .. } => {
                // All behind the head is sealed, and nothing else is: no part of it is left.
                let is_all = into.total_len() == u64::from(len) - inner.len() as u64;
                if usize::from(inner_at) != inner.len() || !is_all {
                    return self.undo(engine, now, ticket);
                }
                let check = Check::Sealed { key: id.into() };
                Ok(Placement::Into { at: at as u16, check, ticket })
            }
            Placement::Word(_, ticket) => self.undo(engine, now, ticket),
            Placement::NeedHead(_) => self.refuse(Refusal::Truncated),
            Placement::Consumed => Ok(Placement::Consumed),
        }
    }

    /// The unit is opened here, and the engine sees it if it is genuine.
    fn place_opened<E: Engine>(
        &mut self,
        engine: &mut E,
        (now, id): (Instant, u32),
        (unit, whole): (&Unit<'_>, &[u8]),
        heads: &Authenticated,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let inner_len = heads.inner().len();
        let mut opened = core::mem::take(&mut self.scratch);
        opened.clear();
        opened.extend_from_slice(heads.inner());
        opened.extend_from_slice(&whole[OVERHEAD + inner_len..]);
        if !self.open_with(id, whole, heads, &mut opened[inner_len..]) {
            self.scratch = opened;
            return self.refuse(Refusal::BadProof);
        }
        let inner = Unit { from: Peer::Node(id), head: &opened, len: opened.len() as u32, ..*unit };
        if !self.may_be_called(inner.from, engine.name_in(inner.head)) {
            let refusal = engine.handle_false_name(now, &inner);
            self.scratch = opened;
            return self.refuse(refusal);
        }
        let placed = engine.place(now, &inner, into);
        let placed = match placed {
            Ok(Placement::Into { at, ticket, .. }) => {
                self.keep_opened(engine, now, (usize::from(at), ticket), &opened, into)
            }
            Ok(Placement::NeedHead(_)) => self.refuse(Refusal::Truncated),
            other => other,
        };
        self.scratch = opened;
        placed
    }

    /// Keeps a payload until the driver asks for it.
    fn keep_opened<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        (at, ticket): (usize, Ticket),
        opened: &[u8],
        into: &Spans,
    ) -> Result<Placement, Refusal> {
        let end = usize::try_from(into.total_len()).ok().and_then(|len| at.checked_add(len));
        let payload = end.and_then(|end| opened.get(at..end));
        let Some(payload) = payload.filter(|_| self.opened.len() < MOST_OPENED) else {
            return self.undo(engine, now, ticket);
        };
        self.next_opened += 1;
        let key = FIRST_OPENED + self.next_opened;
        self.opened.push_back(Opened { key, ticket, bytes: payload.to_vec() });
        let check = Check::Sealed { key };
        Ok(Placement::Into { at: (OVERHEAD + at) as u16, check, ticket })
    }

    /// Opens the first units of a run where they lie: those of one association, up to the first
    /// that is not genuine. `None` where the first is not for an association with keys.
    pub(super) fn open_run(&mut self, now: Instant, run: &mut SealedRun<'_>) -> Option<Unsealed> {
        let SealedRun { path, from, unit_len, .. } = *run;
        let id = addressee(run.units).filter(|_| run.units[0] == SEALED)?;
        let known = self.table.get_mut(&id)?;
        let State::Open(session) = &mut known.state else { return None };
        known.used = now;
        self.expanded.latest = now;
        self.expanded.note(id, session);
        let (at, peer) = (OVERHEAD as u16, Peer::Node(id));
        let mut unsealed = Unsealed { opened: 0, refused: 0, at, from: peer };
        let (mut refusal, mut latest) = (None, None);
        for unit in run.units.chunks_mut(unit_len.max(1) as usize).take(u16::MAX.into()) {
            if unit[0] != SEALED || addressee(unit) != Some(id) {
                break;
            }
            match session.open_in_place(unit, path, from) {
                Ok(moved) => {
                    unsealed.opened += 1;
                    latest = moved.or(latest);
                }
                Err(why) => {
                    refusal = Some(why);
                    break;
                }
            }
        }
        if unsealed.opened > 0 {
            self.stats.opened += u64::from(unsealed.opened);
            self.note_genuine(id, latest);
        }
        if let Some(why) = refusal {
            unsealed.refused = 1;
            self.stats.forged += u64::from(why == Refusal::BadProof);
            self.stats.replayed += u64::from(why == Refusal::Duplicate);
            self.refusals.count(why);
        }
        (unsealed.opened + unsealed.refused > 0).then_some(unsealed)
    }

    /// Opens a payload in the driver's copy.
    pub(super) fn open(&mut self, key: u64, head: &[u8], payload: &mut [u8]) -> bool {
        if key >= FIRST_OPENED {
            let Some(at) = self.opened.iter().position(|opened| opened.key == key) else {
                return false;
            };
            let Some(opened) = self.opened.remove(at) else { return false };
            // Behind it may be what the engine has no place for.
            let Some(place) = payload.get_mut(..opened.bytes.len()) else { return false };
            place.copy_from_slice(&opened.bytes);
            return true;
        }
        let id = key as u32;
        let Some(known) = self.table.get_mut(&id) else { return false };
        let State::Open(session) = &mut known.state else { return false };
        self.expanded.note(id, session);
        let Ok(heads) = session.uncover(head) else { return false };
        self.open_with(id, head, &heads, payload)
    }

    fn open_with(
        &mut self,
        id: u32,
        unit: &[u8],
        heads: &Authenticated,
        payload: &mut [u8],
    ) -> bool {
        let Some(known) = self.table.get_mut(&id) else { return false };
        let State::Open(session) = &mut known.state else { return false };
        self.expanded.note(id, session);
        match session.open(unit, heads, payload) {
            Ok(moved) => {
                self.stats.opened += 1;
                self.note_genuine(id, moved);
                true
            }
            Err(_) => {
                self.stats.forged += 1;
                false
            }
        }
    }
}

impl Associations {
    /// How long a message of a handshake may be that begins so.
    #[cfg_attr(not(feature = "rustls"), expect(clippy::unused_self, reason = "all are alike"))]
    fn message_len(&self, _head: &[u8]) -> usize {
        #[cfg(feature = "rustls")]
        if _head.get(3) == Some(&super::tls_exchange::KIND) {
            return super::tls_exchange::longest(self.config.handshake_units);
        }
        FIRST_LEN
    }
}

fn need(len: usize) -> Result<Placement, Refusal> {
    Ok(Placement::NeedHead(u16::try_from(len).unwrap_or(u16::MAX)))
}
