//! [`Channel`]: the messages of admission control on their way, sealed or in clear.
//!
//! | file | what it is |
//! | --- | --- |
//! | `mailbox` | messages as the units of an engine, which the layer of `landfall-seal` encrypts |
//!
//! A sender begins an association with the receiver that it asks. To the gate each association is
//! a source of its own, under an address that is made of its number: whatever address the frames
//! of others carry, nobody speaks for it.
//!
//! What does not live here: sockets, and who is admitted (`spec_defrag::admission`).

mod mailbox;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use landfall_placement::{
    Duration, Ecn, Engine, Instant, PathId, Peer, Refusal, Refusals, Spans, Unit, assumed,
};
use landfall_seal::{Expected, Fingerprint, HandshakeError, PeerIdentity, SealStats, Sealed};
use spec_defrag::admission::envelope::UNIT_MAX;
use spec_defrag::admission::frame::{FRAME_LEN, MAGIC, MESSAGE_LEN};
use spec_defrag::admission::{ControlFrame, Envelope, Mac, Message, Priority};

use super::error::NoKeys;
use crate::runtime::Reach;
use crate::security::{self, Carried, Security, SecurityError};
use mailbox::Mailbox;

/// The only path of a channel.
const PATH: PathId = PathId(0);
/// The first bytes of the address of a source: it is locally administered.
const SOURCE: [u8; 2] = [2, 0];
/// So long a request waits for a handshake. Then it leaves all the same, is lost, and the receiver
/// counts as one without a gate until there are keys.
const HANDSHAKE_WAIT: Duration = Duration::from_millis(150);
/// A receiver that has not answered for so long may have been started again: it has other keys.
const RENEWAL: Duration = Duration::from_millis(500);

/// Carries messages between a requester or a gate and the frames of an interface.
#[derive(Debug)]
pub(super) struct Channel {
    station: Mac,
    protection: Protection,
}

#[derive(Debug)]
enum Protection {
    /// In clear: frames that wait to leave.
    Plain(VecDeque<[u8; FRAME_LEN]>),
    Sealed(Box<SealedLayer>),
}

#[derive(Debug)]
struct SealedLayer {
    layer: Sealed<Mailbox>,
    security: Security,
    priority: Option<Priority>,
    /// For a sender: the receiver that it asks.
    callee: Option<Callee>,
    /// What was refused before and behind the layer.
    refusals: Refusals,
}

/// The receiver that a sender is to ask.
#[derive(Clone, Debug)]
pub(super) struct ReceiverAddress {
    pub(super) station: Mac,
    /// The name that its certificate has to have, if it shows one.
    pub(super) name: Option<Box<str>>,
}

/// The receiver that a sender asks.
#[derive(Debug)]
struct Callee {
    station: Mac,
    /// The name that its certificate has to have.
    name: Option<Box<str>>,
    /// The association with it, and since when there is one.
    peer: Option<(Peer, Instant)>,
    /// The first message that it has not answered.
    unanswered: Option<Instant>,
    failure: Option<HandshakeError>,
}

impl Channel {
    /// The channel of a sender that asks this receiver.
    pub(super) fn of_sender(
        security: Security,
        station: Mac,
        receiver: ReceiverAddress,
        priority: Option<Priority>,
    ) -> Result<Self, SecurityError> {
        let ReceiverAddress { station: callee, name } = receiver;
        let callee = Callee { station: callee, name, peer: None, unanswered: None, failure: None };
        // A few, for late copies of what a former one has said. Nobody calls a sender.
        let carried = Carried::calling(b"admission", 4);
        Self::new(security, (station, priority), Some(callee), carried)
    }

    /// The channel of a gate that has this many senders at most.
    pub(super) fn of_gate(
        security: Security,
        station: Mac,
        senders: usize,
        priority: Option<Priority>,
    ) -> Result<Self, SecurityError> {
        Self::new(security, (station, priority), None, Carried::new(b"admission", senders))
    }

    fn new(
        security: Security,
        (station, priority): (Mac, Option<Priority>),
        callee: Option<Callee>,
        carried: Carried,
    ) -> Result<Self, SecurityError> {
        let carried = carried.in_short_frames();
        let (layer, security) = security.around(Mailbox::default(), carried, &[Reach::Network])?;
        let protection = if layer.is_sealed() {
            let refusals = Refusals::new();
            Protection::Sealed(Box::new(SealedLayer {
                layer,
                security,
                priority,
                callee,
                refusals,
            }))
        } else {
            Protection::Plain(VecDeque::new())
        };
        Ok(Self { station, protection })
    }

    /// A control frame came. What it says is handed on as a plain frame, if it is genuine.
    pub(super) fn handle_frame(&mut self, now: Instant, frame: &[u8], heard: impl FnOnce(&[u8])) {
        match &mut self.protection {
            Protection::Plain(_) => heard(frame),
            Protection::Sealed(protection) => {
                // What it refuses it counts.
                if let Ok(Some(frame)) = protection.handle_frame(now, self.station, frame) {
                    heard(&frame.to_bytes());
                }
            }
        }
    }

    /// A frame of the requester or the gate is to leave.
    pub(super) fn send(&mut self, now: Instant, frame: [u8; FRAME_LEN]) {
        match &mut self.protection {
            Protection::Plain(frames) => frames.push_back(frame),
            Protection::Sealed(protection) => protection.send(now, &frame),
        }
    }

    /// The next frame for the interface.
    pub(super) fn poll_frame(&mut self, now: Instant) -> Option<Vec<u8>> {
        match &mut self.protection {
            Protection::Plain(frames) => frames.pop_front().map(Vec::from),
            Protection::Sealed(protection) => protection.poll_frame(now, self.station),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Protection::Sealed(protection) = &mut self.protection {
            protection.layer.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.protection {
            Protection::Plain(_) => None,
            Protection::Sealed(protection) => {
                protection.layer.poll_timeout().map(|timeout| timeout.at)
            }
        }
    }

    /// May the receiver be asked now? Begins a handshake if there are no keys; while that is under
    /// way it is better to wait, for a while.
    pub(super) fn may_ask(&mut self, now: Instant) -> bool {
        match &mut self.protection {
            Protection::Plain(_) => true,
            Protection::Sealed(protection) => {
                protection.associate(now);
                !protection.is_shaking(now)
            }
        }
    }

    /// Does a request wait for a handshake?
    pub(super) fn is_shaking(&self, now: Instant) -> bool {
        matches!(&self.protection, Protection::Sealed(protection) if protection.is_shaking(now))
    }

    /// Why there are no keys with the receiver that is asked.
    pub(super) fn no_keys(&self) -> Option<NoKeys> {
        let Protection::Sealed(protection) = &self.protection else { return None };
        let callee = protection.callee.as_ref()?;
        let why = callee.failure?;
        let place = protection.security.place();
        let pin = "`SenderBuilder::only_peers`";
        let advice = security::advice(why, place.as_deref(), pin);
        Some(NoKeys { receiver: callee.station, why, advice })
    }

    /// What others know this end by. `None` in clear and with a pre-shared key.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        match &self.protection {
            Protection::Plain(_) => None,
            Protection::Sealed(protection) => protection.security.fingerprint(),
        }
    }

    /// Which station a source of the gate is, and who it has proven to be.
    pub(super) fn asker(&self, source: Mac) -> Option<(Mac, Option<PeerIdentity>)> {
        let Protection::Sealed(protection) = &self.protection else { return Some((source, None)) };
        let peer = peer_of(source);
        match protection.layer.remote(PATH, peer)? {
            Peer::Ethernet(station) => Some((station, protection.layer.identity(peer))),
            _ => None,
        }
    }

    /// What was sealed and opened. All zero where nothing is.
    pub(super) fn stats(&self) -> SealStats {
        match &self.protection {
            Protection::Plain(_) => SealStats::default(),
            Protection::Sealed(protection) => protection.layer.seal_stats(),
        }
    }

    /// What was not accepted, by reason.
    #[cfg(test)]
    fn refused(&self, why: Refusal) -> u64 {
        match &self.protection {
            Protection::Plain(_) => 0,
            Protection::Sealed(protection) => {
                protection.refusals.of(why) + protection.layer.refusals().of(why)
            }
        }
    }
}

impl SealedLayer {
    fn handle_frame(
        &mut self,
        now: Instant,
        station: Mac,
        frame: &[u8],
    ) -> Result<Option<ControlFrame>, Refusal> {
        let (from, unit) = match Envelope::parse(frame) {
            Ok(Envelope { to, from, unit, .. }) if to == station && from != station => (from, unit),
            Ok(_) => return Err(self.refusals.count(Refusal::WrongAddress)),
            // In clear: the layer counts that as such.
            Err(_) => ([0; 6], &MAGIC[..]),
        };
        let (from, len) = (Peer::Ethernet(from), unit.len() as u32);
        let (segment, ecn) = (None, Ecn::NotCapable);
        let unit = Unit { path: PATH, from, head: unit, len, segment, ecn, verified: false };
        self.layer.place(now, &unit, &mut Spans::new())?;
        let Some((peer, message)) = self.layer.poll_event() else { return Ok(None) };
        let from = match &mut self.callee {
            None => source_of(peer),
            Some(callee) if callee.peer.is_some_and(|(callee, _)| callee == peer) => {
                (callee.unanswered, callee.failure) = (None, None);
                callee.station
            }
            // Late, from an association that is over.
            Some(_) => return Err(self.refusals.count(Refusal::UnknownId)),
        };
        ControlFrame::of_message(station, from, &message)
            .map(Some)
            .map_err(|why| self.refusals.count(why))
    }

    fn send(&mut self, now: Instant, frame: &[u8; FRAME_LEN]) {
        let Some(frame) = assumed(ControlFrame::parse(frame).ok(), "it was written here") else {
            return;
        };
        self.associate(now);
        let to = match &mut self.callee {
            None => Some(peer_of(frame.to)),
            Some(callee) => {
                // Nobody answers a release.
                if !matches!(frame.message, Message::Release { .. }) {
                    callee.unanswered.get_or_insert(now);
                }
                callee.peer.map(|(peer, _)| peer)
            }
        };
        // At the bound of associations it is lost, as on a wire.
        if let Some(to) = to {
            self.layer.post(to, frame.to_message());
        }
    }

    /// Begins an association with the receiver that is asked, if there is none of use.
    fn associate(&mut self, now: Instant) {
        let Some(callee) = &mut self.callee else { return };
        while let Some(failed) = self.layer.poll_failed() {
            if callee.peer.is_some_and(|(peer, _)| peer == failed) {
                callee.failure = self.layer.failure(failed);
                callee.peer = None;
            }
            self.layer.forget(failed);
        }
        let is_silent = callee.unanswered.is_some_and(|since| now.since(since) >= RENEWAL);
        if let Some((silent, _)) = callee.peer.take_if(|_| is_silent) {
            self.layer.forget(silent);
        }
        if callee.peer.is_none() {
            let expected = Expected { name: callee.name.as_deref(), ..Expected::default() };
            let remote = Peer::Ethernet(callee.station);
            let begun = self.layer.associate_with(now, PATH, remote, expected);
            callee.peer = begun.map(|peer| (peer, now));
            callee.unanswered = None;
        }
    }

    /// Is a handshake under way that has not taken long?
    fn is_shaking(&self, now: Instant) -> bool {
        let peer = self.callee.as_ref().and_then(|callee| callee.peer);
        peer.is_some_and(|(peer, begun)| {
            let is_open = self.layer.identity(peer).is_some();
            !is_open && self.layer.failure(peer).is_none() && now.since(begun) < HANDSHAKE_WAIT
        })
    }

    fn poll_frame(&mut self, now: Instant, from: Mac) -> Option<Vec<u8>> {
        loop {
            let (mut unit, mut spans) = ([0; UNIT_MAX], Spans::new());
            let transmit = self.layer.poll_transmit(now, PATH, &mut unit, &mut spans)?;
            let unit = &mut unit[..transmit.head_len.into()];
            let is_sealed = self.layer.seal(unit, &mut []);
            self.layer.handle_sent(now, transmit.ticket);
            let Peer::Ethernet(to) = transmit.to else { continue };
            let envelope = Envelope { to, from, priority: self.priority, unit };
            if let Some(frame) = envelope.to_bytes().filter(|_| is_sealed) {
                return Some(frame);
            }
        }
    }
}

/// The address of an association at the gate.
const fn source_of(peer: Peer) -> Mac {
    let Peer::Node(id) = peer else { return [0; 6] };
    let [a, b, c, d] = id.to_be_bytes();
    [SOURCE[0], SOURCE[1], a, b, c, d]
}

/// The association with this address.
const fn peer_of(source: Mac) -> Peer {
    let [_, _, a, b, c, d] = source;
    Peer::Node(u32::from_be_bytes([a, b, c, d]))
}

const _: () = assert!(MESSAGE_LEN + landfall_seal::OVERHEAD <= UNIT_MAX);
