//! Units that leave.

use alloc::collections::VecDeque;

use landfall_placement::{
    Ecn, Engine, Instant, InternetSum, PathId, Peer, RunRoom, Spans, SumSlot, Ticket, Transmit,
    TransmitRun,
};

use super::association::State;
use super::associations::Associations;
use super::session::Session;
use super::unit::{OVERHEAD, SEALED};
use crate::keys::Role;

/// The ticket of what the layer says by itself: nobody waits for it.
pub(super) const OWN: Ticket = Ticket::from_raw(u64::MAX);
/// The longest head of an engine's unit that leaves in a run.
const MOST_RUN_HEAD: usize = 64;
/// This many units that cannot leave are dropped in one call.
const MOST_DROPPED: usize = 64;
/// Until a unit is sealed, where its number goes there is the association.
const NUMBER: core::ops::Range<usize> = 8..12;
/// And here is where the engine's head wants a checksum, if [`WANTS_SUM`] says so.
const SLOT: core::ops::Range<usize> = 12..16;
/// Not zero until a unit is sealed whose engine wants a checksum.
const WANTS_SUM: usize = 3;

/// What becomes of a unit of the engine.
enum Fate {
    Leaves(Peer),
    Waits,
}

impl Associations {
    pub(super) fn poll_transmit<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if let Some(own) = self.poll_own(path, head) {
            return Some(own);
        }
        for _ in 0..MOST_DROPPED {
            from.clear();
            let inner = head.get_mut(OVERHEAD..)?;
            let transmit = engine.poll_transmit(now, path, inner, from)?;
            let inner_len = usize::from(transmit.head_len);
            if self.is_plain(path, transmit.to) {
                head.copy_within(OVERHEAD..OVERHEAD + inner_len, 0);
                return Some(transmit);
            }
            let inner = &mut inner[..inner_len];
            let id = number_of(transmit.to);
            if let Some(slot) = transmit.checksum.filter(|_| from.is_empty()) {
                // It may wait for a handshake as it is.
                sum_up(inner, &[], slot);
            }
            match self.fate_of(now, id, path, from.is_empty().then_some(&*inner)) {
                Fate::Leaves(to) => {
                    prepare(head, id);
                    if let Some(slot) = transmit.checksum.filter(|_| !from.is_empty()) {
                        want_sum(head, slot);
                    }
                    let head_len = transmit.head_len + OVERHEAD as u16;
                    // No device sums or cuts what is sealed. The engine at the other end may
                    // look at a short unit's sum by itself: it is right within what is sealed.
                    let (segment, checksum) = (None, None);
                    return Some(Transmit { to, head_len, segment, checksum, ..transmit });
                }
                Fate::Waits => engine.handle_sent(now, transmit.ticket),
            }
        }
        None
    }

    pub(super) fn poll_transmit_run<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        path: PathId,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        let has_own = self.messages.iter().any(|(on, ..)| *on == path);
        if has_own || !self.ready.is_empty() || room.head_len() < OVERHEAD + MOST_RUN_HEAD {
            return None;
        }
        // So much that each unit may still become longer.
        let longer = (OVERHEAD * room.units()) as u32;
        let most_bytes = room.most_bytes().saturating_sub(longer);
        let run = engine.poll_transmit_run(now, path, &mut room.limited_to(most_bytes))?;
        if self.is_plain(path, run.to) {
            return Some(run);
        }
        let id = number_of(run.to);
        debug_assert!(usize::from(run.head_len) <= MOST_RUN_HEAD, "a run with a long head");
        match self.fate_of(now, id, path, None) {
            Fate::Leaves(to) => {
                let inner_len = usize::from(run.head_len);
                for head in room.heads().take(run.units.into()) {
                    head.copy_within(..inner_len, OVERHEAD);
                    prepare(head, id);
                }
                Some(TransmitRun { to, head_len: run.head_len + OVERHEAD as u16, ..run })
            }
            Fate::Waits => {
                engine.handle_sent(now, run.ticket);
                None
            }
        }
    }

    /// Messages of handshakes, and units that waited for one.
    fn poll_own(&mut self, path: PathId, head: &mut [u8]) -> Option<Transmit> {
        if let Some(at) = self.messages.iter().position(|(on, ..)| *on == path)
            && let Some((_, to, message)) = self.messages.remove(at)
        {
            head.get_mut(..message.len())?.copy_from_slice(&message);
            return Some(own(to, message.len()));
        }
        for nth in 0..self.ready.len() {
            let id = *self.ready.get(nth)?;
            let Some(known) = self.get_mut(id).filter(|known| known.path == path) else { continue };
            let Some(waited) = known.waiting.pop_front() else {
                known.waiting = VecDeque::new();
                self.ready.remove(nth);
                return self.poll_own(path, head);
            };
            let (to, len) = (known.remote, OVERHEAD + waited.len());
            head.get_mut(OVERHEAD..len)?.copy_from_slice(&waited);
            prepare(head, id);
            return Some(own(to, len));
        }
        None
    }

    /// May a unit for this association leave? One without payload waits for a handshake.
    fn fate_of(&mut self, now: Instant, id: u32, path: PathId, short: Option<&[u8]>) -> Fate {
        self.expanded.latest = now;
        if let Some(known) = self.get_mut(id).filter(|known| known.path == path) {
            known.used = now;
            if known.is_group && known.role == Role::Responder {
                // Two that seal with the same keys would use a nonce twice.
                self.stats.dropped += 1;
                return Fate::Waits;
            }
            if matches!(known.state, State::Open(_)) {
                return Fate::Leaves(known.remote);
            }
            if known.state.is_handshaking() && short.is_some_and(|head| known.wait(head)) {
                return Fate::Waits;
            }
        }
        self.stats.dropped += 1;
        Fate::Waits
    }

    /// Completes a unit that leaves now.
    pub(super) fn seal(&mut self, head: &mut [u8], payload: &mut [u8]) -> bool {
        let Some(id) = sealer_of(head) else { return true };
        if let (Some(slot), Some(inner)) = (wanted_sum(head), head.get_mut(OVERHEAD..)) {
            sum_up(inner, payload, slot);
        }
        let Some((to, session)) = self.session(id) else { return false };
        let is_sealed = session.seal(to, head, payload);
        self.stats.sealed += u64::from(is_sealed);
        is_sealed
    }

    /// Completes units of one association that leave now, behind one another.
    pub(super) fn seal_run(&mut self, units: &mut [u8], unit_len: usize, head_len: usize) -> usize {
        let Some(id) = sealer_of(units) else { return units.len().div_ceil(unit_len.max(1)) };
        let Some((to, session)) = self.session(id) else { return 0 };
        let mut sealed = 0;
        for unit in units.chunks_mut(unit_len.max(1)) {
            let Some((head, payload)) = unit.split_at_mut_checked(head_len) else { break };
            if let (Some(slot), Some(inner)) = (wanted_sum(head), head.get_mut(OVERHEAD..)) {
                sum_up(inner, payload, slot);
            }
            if sealer_of(head) != Some(id) || !session.seal(to, head, payload) {
                break;
            }
            sealed += 1;
        }
        self.stats.sealed += sealed as u64;
        sealed
    }

    fn session(&mut self, id: u32) -> Option<(u32, &mut Session)> {
        let known = self.table.get_mut(&id)?;
        let State::Open(session) = &mut known.state else { return None };
        self.expanded.note(id, session);
        Some((known.to, session))
    }
}

const fn number_of(peer: Peer) -> u32 {
    match peer {
        Peer::Node(id) => id,
        // No association has that number.
        _ => 0,
    }
}

/// The association that is to seal a unit. `None`: a message of a handshake, or one for a peer
/// to which all is plain.
fn sealer_of(head: &[u8]) -> Option<u32> {
    let id = head.get(NUMBER)?.first_chunk().copied()?;
    (head[0] == SEALED).then(|| u32::from_be_bytes(id))
}

/// Says which association is to seal a unit.
fn prepare(head: &mut [u8], id: u32) {
    if let Some(outer) = head.first_chunk_mut::<OVERHEAD>() {
        outer.fill(0);
        outer[0] = SEALED;
        outer[NUMBER].copy_from_slice(&id.to_be_bytes());
    }
}

/// Notes where the engine's head wants a checksum, until its payload is there.
fn want_sum(head: &mut [u8], SumSlot { start, offset }: SumSlot) {
    if let Some(outer) = head.first_chunk_mut::<OVERHEAD>() {
        outer[WANTS_SUM] = 1;
        let [[a, b], [c, d]] = [start.to_be_bytes(), offset.to_be_bytes()];
        outer[SLOT].copy_from_slice(&[a, b, c, d]);
    }
}

/// Where a head wants a checksum.
fn wanted_sum(head: &[u8]) -> Option<SumSlot> {
    let [a, b, c, d] = *head.get(SLOT)?.first_chunk()?;
    let (start, offset) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    (*head.get(WANTS_SUM)? != 0).then_some(SumSlot { start, offset })
}

/// Fills in a checksum as an adapter does.
fn sum_up(inner: &mut [u8], payload: &[u8], slot: SumSlot) {
    let mut behind = InternetSum::new();
    behind.add(payload);
    // An engine that names a slot outside of its head has no checksum, and is refused there.
    let _ = slot.fill(inner, behind);
}

const fn own(to: Peer, len: usize) -> Transmit {
    Transmit {
        to,
        head_len: len as u16,
        segment: None,
        checksum: None,
        sum_only: 0,
        ecn: Ecn::NotCapable,
        ticket: OWN,
    }
}
