//! [`Sealed`]: any engine, encrypted and authenticated.
//!
//! | file | what it is |
//! | --- | --- |
//! | `session` | the keys of an association in use |
//! | `expanded` | which associations have expanded keys |
//! | `unit` | sealed units on the wire: outer head, mask |
//! | `association` | what two ends have with each other: a handshake, then keys |
//! | `associations` | all of them, by number; messages of handshakes, timers, bounds |
//! | `config` | how units are sealed, and bounds |
//! | `chunks` | messages longer than a packet, cut into chunks |
//! | `tls_exchange` | handshakes by TLS, whose messages are (feature `rustls`) |
//! | `retry` | callers that have to prove their addresses first |
//! | `incoming`, `outgoing` | units that come, units that leave |
//! | `key_log` | keys handed out, for captures to be opened with |
//! | `capture` | sealed units of a capture, opened with such keys |
//!
//! The engine sees peers that are numbers: each [association](Sealed::associate) is a peer of
//! its own. So nothing that is meant for one peer ever leaves for another, no matter who takes over
//! an address. `docs/spec/seal.md` has the bytes and the rules.

mod association;
mod associations;
mod capture;
#[cfg(any(feature = "rustls", feature = "model"))]
#[cfg_attr(not(feature = "rustls"), allow(dead_code, reason = "a model uses less"))]
pub(crate) mod chunks;
mod config;
mod expanded_keys;
mod incoming;
mod key_log;
mod outgoing;
mod retry;
mod session;
#[cfg(feature = "rustls")]
mod tls_exchange;
mod unit;

use alloc::boxed::Box;
use core::fmt;
use core::ops::{Deref, DerefMut};

use landfall_placement::{
    Check, Engine, Guess, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement,
    Refusal, Refusals, RunPlacement, RunRoom, SealedRun, Spans, Ticket, Timeout, Transmit,
    TransmitRun, Unit, UnitRun, Unsealed, delegate_engine,
};

pub use association::Proof;
pub use capture::{CaptureOpener, NotOpened, OpenedUnit};
pub use config::{HandshakeUnits, SealConfig};
pub use key_log::{BadKeyLine, KeyLog, TrafficKeys};
#[cfg(feature = "rustls")]
pub use tls_exchange::Certificates;
pub use unit::{MOST_INNER_HEAD, OVERHEAD};

use crate::handshake::{Fingerprint, HandshakeError, PeerIdentity, PublicKey};
use crate::keys::Role;
use associations::Associations;

/// Says who may be a peer. A peer that was [pinned](Sealed::associate) is asked about too.
pub trait Trust: Send {
    /// Is the peer with this address, which has proven to have this key, who it should be?
    /// `role` is that of this end.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::WrongPeer`], or why else not.
    fn check(&mut self, role: Role, remote: Peer, key: PublicKey) -> Result<(), HandshakeError>;

    /// May a peer with this identity call itself so? One in clear has none. What the names of an
    /// engine are, the engine says ([`Engine::name_in`]).
    ///
    /// # Errors
    ///
    /// Why not.
    fn check_name(
        &mut self,
        _identity: Option<PeerIdentity>,
        _name: u32,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }

    /// May the peer that TLS has accepted be one? It has shown a certificate, or nothing.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check_certificate(
        &mut self,
        _role: Role,
        _remote: Peer,
        _shown: Option<Fingerprint>,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }
}

/// Anybody may be a peer: keys are for others to look at ([`Sealed::identity`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustAnybody;

impl Trust for TrustAnybody {
    fn check(&mut self, _: Role, _: Peer, _: PublicKey) -> Result<(), HandshakeError> {
        Ok(())
    }
}

/// Who a peer has to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected<'a> {
    /// It has the key or the certificate with this fingerprint.
    pub pinned: Option<Fingerprint>,
    /// Its certificate is for this name. Without one it has to be for its address.
    pub name: Option<&'a str>,
    /// It is this end itself: the address is its own. Elsewhere a first message that comes back
    /// was sent back by somebody who has no keys, and is not answered.
    pub is_own: bool,
}

landfall_placement::counters! {
    /// What was sealed and opened, and what was not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SealStats {
        /// Units that were sealed.
        pub sealed: u64,
        /// Units that were genuine.
        pub opened: u64,
        /// Units that were not.
        pub forged: u64,
        /// Units that came before.
        pub replayed: u64,
        /// Units that were not sealed at all.
        pub plain: u64,
        /// Handshakes that were finished.
        pub established: u64,
        /// Of those, the ones that went on with an earlier session of TLS: no certificate was
        /// shown or verified.
        pub resumed: u64,
        /// Handshakes that failed.
        pub failed: u64,
        /// Units that were dropped before they were sealed: no keys yet, or no such peer.
        pub dropped: u64,
    }
}

/// An engine whose units are sealed, or one that is as it was.
///
/// ```
/// use landfall_seal::{Proof, SealConfig, Sealed, Secret, TrustAnybody};
///
/// # fn engine() -> u8 { 0 }
/// let plain = Sealed::plain(engine());
/// let config = SealConfig::new(Proof::PresharedKey(Secret::new([7; 32])));
/// let sealed = Sealed::new(engine(), config, Box::new(TrustAnybody), [1; 32]);
/// assert!(sealed.is_sealed() && !plain.is_sealed());
/// ```
pub struct Sealed<E> {
    engine: E,
    layer: Option<Box<Associations>>,
}

impl<E: fmt::Debug> fmt::Debug for Sealed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("engine", &self.engine).field("layer", &self.layer).finish()
    }
}

impl<E> Deref for Sealed<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.engine
    }
}

impl<E> DerefMut for Sealed<E> {
    fn deref_mut(&mut self) -> &mut E {
        &mut self.engine
    }
}

impl<E> Sealed<E> {
    /// The engine as it is: nothing is sealed, and peers are who they are.
    pub const fn plain(engine: E) -> Self {
        Self { engine, layer: None }
    }

    /// The engine with all of its units sealed. `seed` must be random.
    #[must_use]
    pub fn new(engine: E, config: SealConfig, trust: Box<dyn Trust>, seed: [u8; 32]) -> Self {
        Self { engine, layer: Some(Box::new(Associations::new(config, trust, seed))) }
    }

    /// From now on the keys of each new association are told to this log. **Who reads it can open
    /// all that is recorded of them**: it is for looking into captures of one's own. Without this
    /// no key leaves the layer.
    pub fn log_keys(&mut self, log: Box<dyn KeyLog>) {
        if let Some(layer) = &mut self.layer {
            layer.key_log = Some(log);
        }
    }

    /// Is anything sealed?
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.layer.is_some()
    }

    /// Begins an association with a peer, and says what the engine is to call it. Units for it
    /// leave once the handshake is finished. With nothing sealed it is the peer itself.
    ///
    /// `None` at the bound of associations.
    pub fn associate(
        &mut self,
        now: Instant,
        path: PathId,
        remote: Peer,
        pinned: Option<Fingerprint>,
    ) -> Option<Peer> {
        self.associate_with(now, path, remote, Expected { pinned, ..Expected::default() })
    }

    /// Begins an association as [`associate`](Self::associate) does, with a peer that has to be
    /// who is expected.
    pub fn associate_with(
        &mut self,
        now: Instant,
        path: PathId,
        remote: Peer,
        expected: Expected<'_>,
    ) -> Option<Peer> {
        match &mut self.layer {
            Some(layer) if !layer.is_plain(path, remote) => {
                layer.begin(now, path, remote, expected).map(Peer::Node)
            }
            _ => Some(remote),
        }
    }

    /// Draws keys for units that leave once for several who open them, and says what the engine
    /// is to call those: a number that all of them call the keys, and the secret that each is
    /// given over its own association. The secret is for one sender: two that seal with it
    /// would use nonces twice.
    ///
    /// Who has the secret can seal as its sender: the peers have to trust each other. `None`
    /// at the bound of associations, or where nothing is sealed to that address.
    pub fn open_group(
        &mut self,
        now: Instant,
        path: PathId,
        remote: Peer,
    ) -> Option<(u32, [u8; 32])> {
        let layer = self.layer.as_mut().filter(|layer| !layer.is_plain(path, remote))?;
        let (number, secret) = layer.draw_group();
        layer.add_group(now, (path, remote), Role::Initiator, (number, secret))?;
        Some((number, secret))
    }

    /// Opens what is sealed with keys of a group from now on, and nothing but that: no unit
    /// leaves with them. To the engine its sender is the node with this number. False at the
    /// bound of associations, or where the number is taken.
    pub fn join_group(&mut self, now: Instant, number: u32, secret: [u8; 32]) -> bool {
        let Some(layer) = &mut self.layer else { return false };
        let nowhere = (PathId(0), Peer::Unaddressed);
        layer.add_group(now, nowhere, Role::Responder, (number, secret)).is_some()
    }

    /// Is a peer on this path reached, and heard, in clear?
    #[must_use]
    pub fn is_plain(&self, path: PathId, peer: Peer) -> bool {
        self.layer.as_ref().is_none_or(|layer| layer.is_plain(path, peer))
    }

    /// The association is over: nothing comes or leaves any more.
    pub fn forget(&mut self, peer: Peer) {
        if let (Some(layer), Peer::Node(id)) = (&mut self.layer, peer) {
            layer.remove(id);
        }
    }

    /// The association is over for its user: it makes room once nothing late comes any more.
    pub fn retire(&mut self, peer: Peer) {
        if let (Some(layer), Peer::Node(id)) = (&mut self.layer, peer)
            && let Some(known) = layer.get_mut(id)
        {
            known.is_over = true;
        }
    }

    /// The next association that was begun here and whose handshake has failed:
    /// [`failure`](Self::failure) says why.
    pub fn poll_failed(&mut self) -> Option<Peer> {
        self.layer.as_mut()?.failed.pop_front().map(Peer::Node)
    }

    /// Where a peer of the engine on this path is.
    #[must_use]
    pub fn remote(&self, path: PathId, peer: Peer) -> Option<Peer> {
        match (&self.layer, peer) {
            (Some(layer), peer) if layer.is_plain(path, peer) => Some(peer),
            (Some(layer), Peer::Node(id)) => Some(layer.get(id)?.remote),
            (Some(_), _) => None,
            (None, peer) => Some(peer),
        }
    }

    /// Who a peer of the engine has proven to be.
    #[must_use]
    pub fn identity(&self, peer: Peer) -> Option<PeerIdentity> {
        match (&self.layer, peer) {
            (Some(layer), Peer::Node(id)) => layer.get(id)?.identity,
            _ => None,
        }
    }

    /// The application protocol that was chosen with a peer by TLS.
    #[must_use]
    pub fn application_protocol(&self, peer: Peer) -> Option<&[u8]> {
        match (&self.layer, peer) {
            (Some(layer), Peer::Node(id)) => layer.get(id)?.protocol.as_deref(),
            _ => None,
        }
    }

    /// Why there are no keys with this peer, if the handshake has failed.
    #[must_use]
    pub fn failure(&self, peer: Peer) -> Option<HandshakeError> {
        match (&self.layer, peer) {
            (Some(layer), Peer::Node(id)) => layer.failure(id),
            _ => None,
        }
    }

    /// What was sealed and opened. All zero where nothing is sealed.
    #[must_use]
    pub fn seal_stats(&self) -> SealStats {
        self.layer.as_ref().map_or_else(SealStats::default, |layer| layer.stats)
    }

    /// How many associations there are.
    #[must_use]
    pub fn associations(&self) -> usize {
        self.layer.as_ref().map_or(0, |layer| layer.len())
    }
}

/// What the engine may fill of a path.
const fn inner_limits(limits: PathLimits) -> PathLimits {
    let unit = limits.unit.saturating_sub(OVERHEAD as u32);
    let head = limits.head.saturating_sub(OVERHEAD as u16);
    let most = MOST_INNER_HEAD as u16;
    PathLimits {
        sure: limits.sure.saturating_sub(OVERHEAD as u32),
        head: if head < most { head } else { most },
        ..PathLimits::plain(unit)
    }
}

impl<E: Engine> Sealed<E> {
    #[inline]
    fn seals_on(&self, path: PathId) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.seals_on(path))
    }

    /// A peer has called itself by another's name.
    fn refuse_name(&mut self, now: Instant, unit: &Unit<'_>) -> Result<Placement, Refusal> {
        let refusal = self.engine.handle_false_name(now, unit);
        if let Some(layer) = &mut self.layer {
            layer.refusals.count(refusal);
        }
        Err(refusal)
    }

    /// The refusals of both, for who asks.
    fn count(&mut self) {
        if let Some(layer) = &mut self.layer {
            layer.all_refusals = *self.engine.refusals();
            layer.all_refusals += layer.refusals;
        }
    }
}

impl<E: Engine> Engine for Sealed<E> {
    type Event = E::Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        let state = match state {
            PathState::Up(limits) if self.seals_on(path) => PathState::Up(inner_limits(limits)),
            other => other,
        };
        self.engine.handle_path(now, path, state);
    }

    /// Anyone who is at that address: of the engine's peers, each that was.
    fn handle_unreachable(&mut self, now: Instant, path: PathId, peer: Peer) {
        let Some(layer) = self.layer.as_ref().filter(|layer| !layer.is_plain(path, peer)) else {
            return self.engine.handle_unreachable(now, path, peer);
        };
        for id in layer.at(path, peer) {
            self.engine.handle_unreachable(now, path, Peer::Node(id));
        }
    }

    /// Nothing sealed is guessed: it is opened before it comes to its place.
    #[inline]
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        if self.seals() && self.seals_on(path) { None } else { self.engine.guess(path, nth) }
    }

    #[inline]
    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let Some(layer) = &mut self.layer else { return self.engine.place(now, unit, into) };
        let placed = if !layer.is_plain(unit.path, unit.from) {
            layer.place(&mut self.engine, now, unit, into)
        } else if layer.may_be_called_in_clear(self.engine.name_in(unit.head)) {
            self.engine.place(now, unit, into)
        } else {
            self.refuse_name(now, unit)
        };
        if placed.is_err() {
            self.count();
        }
        placed
    }

    #[inline]
    fn place_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        let is_plain = |layer: &Associations| layer.is_plain(run.path, run.from);
        if self.layer.as_deref().is_none_or(is_plain) {
            self.engine.place_run(now, run)
        } else {
            None
        }
    }

    #[inline]
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        if let Some(layer) = &mut self.layer {
            layer.drop_opened(ticket);
        }
        self.engine.handle_placed(now, ticket, landing);
        if landing == Landing::Corrupt {
            self.count();
        }
    }

    #[inline]
    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        match &mut self.layer {
            Some(layer) if layer.seals_on(path) => {
                layer.poll_transmit(&mut self.engine, now, path, head, from)
            }
            _ => self.engine.poll_transmit(now, path, head, from),
        }
    }

    #[inline]
    fn poll_transmit_run(
        &mut self,
        now: Instant,
        path: PathId,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        match &mut self.layer {
            Some(layer) if layer.seals_on(path) => {
                layer.poll_transmit_run(&mut self.engine, now, path, room)
            }
            _ => self.engine.poll_transmit_run(now, path, room),
        }
    }

    #[inline]
    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        if self.layer.is_none() || ticket != outgoing::OWN {
            self.engine.handle_sent(now, ticket);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(layer) = &mut self.layer {
            layer.fire_timers(now);
        }
        self.engine.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        let own = self.layer.as_ref().and_then(|layer| layer.next_timer());
        match (own, self.engine.poll_timeout()) {
            (Some(own), Some(other)) if other.at < own.at => Some(other),
            (Some(own), _) => Some(own),
            (None, other) => other,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<E::Event> {
        let event = self.engine.poll_event();
        if event.is_none() {
            // An engine refuses in other calls than those for units, too.
            self.count();
        }
        event
    }

    fn refusals(&self) -> &Refusals {
        match &self.layer {
            None => self.engine.refusals(),
            Some(layer) => &layer.all_refusals,
        }
    }

    /// Not before there is an association: until then all that leaves is plain.
    #[inline]
    fn seals(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.len() > 0)
    }

    fn seal(&mut self, head: &mut [u8], payload: &mut [u8]) -> bool {
        self.layer.as_mut().is_none_or(|layer| layer.seal(head, payload))
    }

    fn seal_run(&mut self, units: &mut [u8], unit_len: usize, head_len: usize) -> usize {
        match &mut self.layer {
            Some(layer) => layer.seal_run(units, unit_len, head_len),
            None => units.len().div_ceil(unit_len.max(1)),
        }
    }

    fn open_run(&mut self, now: Instant, run: &mut SealedRun<'_>) -> Option<Unsealed> {
        let layer = self.layer.as_mut().filter(|layer| !layer.is_plain(run.path, run.from))?;
        let unsealed = layer.open_run(now, run)?;
        if unsealed.refused > 0 {
            self.count();
        }
        Some(unsealed)
    }

    /// The engine's own check is over what was verified already.
    fn place_opened(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let name = self.engine.name_in(unit.head);
        let is_false = |layer: &mut Associations| !layer.may_be_called(unit.from, name);
        let placed = if self.layer.as_deref_mut().is_some_and(is_false) {
            self.refuse_name(now, unit)
        } else {
            self.engine.place(now, unit, into)
        };
        if placed.is_err() {
            self.count();
        }
        match placed? {
            Placement::Into { at, ticket, .. } => {
                let check = if into.is_empty() { incoming::NOTHING } else { Check::None };
                Ok(Placement::Into { at, check, ticket })
            }
            other => Ok(other),
        }
    }

    fn place_opened_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        self.engine.place_run(now, run)
    }

    fn open(&mut self, key: u64, head: &[u8], payload: &mut [u8]) -> bool {
        self.layer.as_mut().is_some_and(|layer| layer.open(key, head, payload))
    }

    delegate_engine! { |this| this.engine =>
        awaits_first_answer, poll_deposit, places_unverified,
    }
}
