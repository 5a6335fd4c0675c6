//! [`TunnelDriver`]: a UDP driver whose units are frames.
//!
//! The UDP driver inside sees the engine through a [`Layer`]: frames find their peers in
//! `poll_transmit`, and stations are learned in `place`.

use std::io;
use std::net::SocketAddr;

use landfall_placement::{
    Engine, Instant, PathId, Peer, Placement, Refusal, Span, Spans, Ticket, Transmit, Unit,
    delegate_engine,
};

use super::peers::{Peers, Stations, TooManyPeers, canonical};
use super::{ETHERNET_HEADER, TunnelConfig, TunnelCounts, is_group};
use crate::capability::Feature;
use crate::driver::{Descriptors, Driver, DriverState, Progress};
use crate::exchange::{Originals, SEND_HEAD_ROOM};
use crate::memory::Regions;
use crate::udp::{UdpConfig, UdpDriver};

/// Runs any engine over whole frames that cross inside of UDP datagrams.
#[derive(Debug)]
pub struct TunnelDriver {
    udp: UdpDriver,
    state: State,
}

impl TunnelDriver {
    /// Opens a socket, and reads and writes the regions of this table.
    ///
    /// # Errors
    /// The address cannot be bound, the process has no descriptor left, there
    /// are more peers than there may be ([`TooManyPeers`] inside), or no frame
    /// is as short as configured.
    pub fn open(path: PathId, config: &TunnelConfig, regions: &Regions) -> io::Result<Self> {
        let largest = UdpConfig::new(config.bind, u32::MAX).unit;
        if !(ETHERNET_HEADER as u32..=largest).contains(&config.frame) {
            let why = format!(
                "frames of {} bytes cannot be tunnelled: between {ETHERNET_HEADER} and {largest}",
                config.frame
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut peers = Peers::new(config.most_peers, config.learn_peers);
        config.peers.iter().try_for_each(|peer| peers.add(*peer))?;
        let udp = UdpConfig {
            unit: config.frame,
            batch: config.batch,
            socket_buffer: config.socket_buffer,
            ..UdpConfig::new(config.bind, config.frame)
        };
        let mut udp = UdpDriver::open_as("tunnel", path, udp, regions)?;
        let found = &mut udp.state_mut().capabilities;
        found.add(Feature::RawFrames);
        for feature in [Feature::TcpSegmentation, Feature::ChecksumOffload] {
            found.lack(feature, "no device looks into tunnelled frames; use tap or packet");
        }
        Ok(Self { udp, state: State::new(peers, Stations::new(config.most_stations)) })
    }

    /// Where peers reach this path.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.udp.local_address()
    }

    /// Exchanges frames with one more peer from now on.
    ///
    /// # Errors
    /// [`TooManyPeers`], if there is no room for one.
    pub fn add_peer(&mut self, peer: SocketAddr) -> Result<(), TooManyPeers> {
        self.state.peers.add(peer)
    }

    /// Exchanges frames with this peer no more. Returns whether it did.
    pub fn remove_peer(&mut self, peer: SocketAddr) -> bool {
        let peer = canonical(peer);
        self.state.stations.keep(|other| other != peer);
        self.state.peers.remove(peer)
    }

    /// Whom frames are exchanged with.
    pub fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.state.peers.all()
    }

    /// What was done besides what [`Driver::counters`] count.
    #[must_use]
    pub fn counts(&self) -> TunnelCounts {
        self.state.counts
    }
}

impl Driver for TunnelDriver {
    fn state(&self) -> &DriverState {
        self.udp.state()
    }

    fn state_mut(&mut self) -> &mut DriverState {
        self.udp.state_mut()
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.udp.turn(&mut Layer { engine, state: &mut self.state }, now)
    }

    fn is_blocked(&self) -> bool {
        self.udp.is_blocked()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.udp.descriptors()
    }
}

/// This many frames that go nowhere are taken in one call at most, then the
/// driver gets a breath.
const NOWHERE_PER_CALL: usize = 1024;

/// What the tunnel remembers from turn to turn.
#[derive(Debug)]
pub(super) struct State {
    pub(super) peers: Peers,
    pub(super) stations: Stations,
    pub(super) counts: TunnelCounts,
    originals: Originals<()>,
    copies: Copies,
}

/// A frame that goes to several peers, and to whom it has not gone yet.
#[derive(Debug)]
struct Copies {
    left: Vec<std::net::SocketAddr>,
    head: [u8; SEND_HEAD_ROOM],
    spans: Vec<Span>,
    transmit: Option<Transmit>,
}

impl State {
    pub(super) fn new(peers: Peers, stations: Stations) -> Self {
        let copies = Copies {
            left: Vec::new(),
            head: [0; SEND_HEAD_ROOM],
            spans: Vec::new(),
            transmit: None,
        };
        let counts = TunnelCounts::default();
        Self { peers, stations, counts, originals: Originals::default(), copies }
    }

    /// The next copy of a frame that goes to several peers.
    fn next_copy(&mut self, head: &mut [u8], from: &mut Spans) -> Option<Transmit> {
        let Copies { left, head: bytes, spans, transmit } = &mut self.copies;
        let to = left.pop()?;
        let transmit = (*transmit)?;
        let head_len = usize::from(transmit.head_len);
        head.get_mut(..head_len)?.copy_from_slice(&bytes[..head_len]);
        for span in spans {
            from.push(*span).ok()?;
        }
        Some(Transmit { to: Peer::Socket(to), ..transmit })
    }

    /// Sends a frame to one peer, now, or to all, of which the first is now.
    /// None: there is nobody, or it is no frame.
    fn route(&mut self, unit: Transmit, head: &[u8], from: &Spans) -> Option<Transmit> {
        let frame = head.get(..usize::from(unit.head_len))?;
        let to = *frame.first_chunk::<6>()?;
        let known = if is_group(to) { None } else { self.stations.find(to) };
        if let Some(peer) = known {
            let ticket = self.originals.insert(unit.ticket, 1, ());
            return Some(Transmit { to: Peer::Socket(peer), ticket, ..unit });
        }
        let left = &mut self.copies.left;
        left.clear();
        left.extend(self.peers.all());
        let copies = left.len() as u32;
        let first = left.pop()?;
        self.counts.to_all += 1;
        let ticket = self.originals.insert(unit.ticket, copies, ());
        let unit = Transmit { ticket, ..unit };
        self.copies.head[..frame.len()].copy_from_slice(frame);
        self.copies.spans.clear();
        self.copies.spans.extend_from_slice(from);
        self.copies.transmit = Some(unit);
        Some(Transmit { to: Peer::Socket(first), ..unit })
    }

    /// Is this for the engine? If so, its station is behind that peer.
    fn admit(&mut self, now: Instant, unit: &Unit<'_>) -> Result<(), Refusal> {
        let Peer::Socket(from) = unit.from else { return Err(Refusal::WrongAddress) };
        let is_peer = self.peers.admit(now, from);
        if self.peers.take_forgot() {
            let peers = &self.peers;
            self.stations.keep(|peer| peers.all().any(|other| other == peer));
        }
        if !is_peer {
            self.counts.strangers += 1;
            return Err(Refusal::WrongAddress);
        }
        if let Some(header) = unit.head.first_chunk::<ETHERNET_HEADER>() {
            let [_, _, _, _, _, _, station @ .., _, _] = *header;
            self.stations.learn(now, station, from);
        }
        Ok(())
    }
}

/// An engine behind a tunnel.
pub(super) struct Layer<'a, E> {
    pub(super) engine: &'a mut E,
    pub(super) state: &'a mut State,
}

impl<E: Engine> Engine for Layer<'_, E> {
    type Event = E::Event;

    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if unit.head.len() < ETHERNET_HEADER && unit.len as usize >= ETHERNET_HEADER {
            return Ok(Placement::NeedHead(ETHERNET_HEADER as u16));
        }
        self.state.admit(now, unit)?;
        if unit.head.len() < ETHERNET_HEADER {
            self.state.counts.no_frames += 1;
            return Err(Refusal::Truncated);
        }
        self.engine.place(now, &Unit { from: Peer::Unaddressed, ..*unit }, into)
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if let Some(copy) = self.state.next_copy(head, from) {
            return Some(copy);
        }
        for _ in 0..NOWHERE_PER_CALL {
            from.clear();
            let unit = self.engine.poll_transmit(now, path, head, from)?;
            if let Some(unit) = self.state.route(unit, head, from) {
                return Some(unit);
            }
            self.state.counts.to_nobody += 1;
            self.engine.handle_sent(now, unit.ticket);
        }
        None
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        if let Some((ticket, ())) = self.state.originals.one_left(ticket) {
            self.engine.handle_sent(now, ticket);
        }
    }

    delegate_engine! { |this| this.engine =>
        handle_path, guess, handle_placed, poll_deposit, handle_timeout, poll_timeout,
        poll_event, refusals, seals, seal, open, places_unverified, name_in, handle_false_name,
    }
}
