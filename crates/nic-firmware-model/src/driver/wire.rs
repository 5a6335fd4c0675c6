//! [`Cable`]: what a card is plugged into, no matter who is at its other end; and [`Wire`]: what cards
//! of one process are plugged into.
//!
//! It is a switch that loses nothing: a frame goes to the port with its address, and
//! where that port's queue is full, the sender is made to wait. Frames whose
//! addresses are among their bytes go to the station that they name, and those for
//! groups to every station that has room.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use landfall_placement::{Ecn, Instant, Peer};
use landfall_transport::driver::Interests;
use landfall_transport::{Bell, Interest};

/// How a wire is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireConfig {
    /// How many frames wait at a port at most.
    pub queue: usize,
    /// How many ports there are at most.
    pub ports: usize,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self { queue: 256, ports: 1_024 }
    }
}

/// What is known of a port.
struct Plugged {
    queue: VecDeque<Frame>,
    /// Frames to be used again.
    spare: Vec<Vec<u8>>,
    bell: Arc<Bell>,
    /// Who waits until the queue is shorter.
    waiting: Vec<Arc<Bell>>,
    /// The cable is out: what is sent here is lost.
    is_cut: bool,
}

struct Switch {
    config: WireConfig,
    ports: BTreeMap<Peer, Plugged>,
}

/// A lossless switch that cards of one process are plugged into. Clones are the same wire.
#[derive(Clone)]
pub struct Wire(Arc<Mutex<Switch>>);

impl Wire {
    /// A wire that nothing is plugged into.
    #[must_use]
    pub fn new(config: WireConfig) -> Self {
        Self(Arc::new(Mutex::new(Switch { config, ports: BTreeMap::new() })))
    }

    /// Plugs a card in, under its address. A socket address with port 0 gets one that
    /// nobody has, and so does a station of all zeros.
    ///
    /// # Errors
    /// Somebody has that address, there is no port left, or no descriptor.
    pub fn plug(&self, address: impl Into<Peer>) -> io::Result<Port> {
        let bell = Arc::new(Bell::new()?);
        let mut switch = self.switch();
        let address = switch.free_address(address.into())?;
        if switch.ports.len() >= switch.config.ports {
            let most = switch.config.ports;
            return Err(io::Error::other(format!("a wire has {most} ports, and all are taken")));
        }
        let plugged = Plugged {
            queue: VecDeque::new(),
            spare: Vec::new(),
            bell: Arc::clone(&bell),
            waiting: Vec::new(),
            is_cut: false,
        };
        switch.ports.insert(address, plugged);
        drop(switch);
        Ok(Port { wire: self.clone(), address, bell, is_armed: AtomicBool::new(false) })
    }

    /// Is nothing plugged in, and is this the only handle of it?
    #[must_use]
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn switch(&self) -> MutexGuard<'_, Switch> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Switch {
    fn free_address(&self, wanted: Peer) -> io::Result<Peer> {
        /// The ports that nobody registers (RFC 6335, 6).
        const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=65_535;
        let is_free = |address: &Peer| !self.ports.contains_key(address);
        let found = match wanted {
            Peer::Socket(socket) if socket.port() == 0 => DYNAMIC
                .map(|port| Peer::Socket(SocketAddr::new(socket.ip(), port)))
                .find(|address| is_free(address)),
            // Addresses that are locally administered (RFC 9542, 2.1).
            Peer::Ethernet([0, 0, 0, 0, 0, 0]) => (1..=u16::MAX)
                .map(|n| Peer::Ethernet([2, 0, 0, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]))
                .find(|address| is_free(address)),
            address => Some(address).filter(is_free),
        };
        let taken = || format!("{wanted} is plugged in already");
        found.ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, taken()))
    }

    /// The port that a frame to this address goes to.
    fn find(&self, to: Peer) -> Option<Peer> {
        if self.ports.contains_key(&to) {
            return Some(to);
        }
        // Anyone who is bound to all addresses is found by any of them.
        let Peer::Socket(to) = to else { return None };
        let is_meant = |port: &&Peer| {
            let Peer::Socket(port) = port else { return false };
            port.ip().is_unspecified() && port.port() == to.port()
        };
        self.ports.keys().find(is_meant).copied()
    }
}

impl Plugged {
    fn push(&mut self, from: Peer, ecn: Ecn, bytes: &[u8]) {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(bytes);
        self.queue.push_back(Frame { bytes: frame, from, ecn });
        self.bell.ring();
    }
}

/// Where a card is plugged in; dropped, it is pulled out.
pub struct Port {
    wire: Wire,
    address: Peer,
    bell: Arc<Bell>,
    /// The bell may have been rung: its descriptor has to be read.
    is_armed: AtomicBool,
}

impl Port {
    /// Its address.
    #[must_use]
    pub const fn address(&self) -> Peer {
        self.address
    }

    /// Sends a frame. False: there is no room, and the bell rings when there is.
    /// What is for nobody is lost.
    fn send(&self, to: Peer, ecn: Ecn, bytes: &[u8]) -> bool {
        let mut switch = self.wire.switch();
        let most = switch.config.queue;
        let (to, from) = match (to, station_of(bytes)) {
            (Peer::Unaddressed, Some(Station::Group)) => {
                let others = switch.ports.iter_mut().filter(|(port, _)| **port != self.address);
                let has_room = |plugged: &Plugged| !plugged.is_cut && plugged.queue.len() < most;
                for (_, plugged) in others.filter(|(_, plugged)| has_room(plugged)) {
                    plugged.push(Peer::Unaddressed, ecn, bytes);
                }
                return true;
            }
            (Peer::Unaddressed, Some(Station::One(mac))) => {
                (Peer::Ethernet(mac), Peer::Unaddressed)
            }
            (to, _) => (to, self.address),
        };
        let Some(plugged) = switch.find(to).and_then(|port| switch.ports.get_mut(&port)) else {
            return true;
        };
        if plugged.is_cut {
            return true;
        }
        if plugged.queue.len() < most {
            plugged.push(from, ecn, bytes);
            return true;
        }
        if !plugged.waiting.iter().any(|bell| Arc::ptr_eq(bell, &self.bell)) {
            plugged.waiting.push(Arc::clone(&self.bell));
        }
        false
    }

    /// The next frame that came.
    fn take(&self) -> Option<Frame> {
        let mut switch = self.wire.switch();
        let plugged = switch.ports.get_mut(&self.address)?;
        let frame = plugged.queue.pop_front()?;
        for bell in plugged.waiting.drain(..) {
            bell.ring();
        }
        Some(frame)
    }

    /// The cable is pulled out, or put in again. What waits is lost, and nobody waits for
    /// this port.
    fn set_cut(&self, is_cut: bool) {
        let mut switch = self.wire.switch();
        let Some(plugged) = switch.ports.get_mut(&self.address) else { return };
        plugged.is_cut = is_cut;
        plugged.queue.clear();
        for bell in plugged.waiting.drain(..) {
            bell.ring();
        }
    }

    /// The memory of a frame is used again.
    fn give_back(&self, frame: Frame) {
        let mut switch = self.wire.switch();
        let most = switch.config.queue;
        if let Some(plugged) = switch.ports.get_mut(&self.address)
            && plugged.spare.len() < most
        {
            plugged.spare.push(frame.bytes);
        }
    }

    /// From here on the bell is heard. What happened before was silent, so it is
    /// looked for once more, or it might be overslept.
    fn interest(&self) -> Interest {
        self.bell.arm();
        self.is_armed.store(true, Ordering::Relaxed);
        let switch = self.wire.switch();
        let has_frames = switch.ports.get(&self.address).is_some_and(|port| !port.queue.is_empty());
        drop(switch);
        if has_frames {
            self.bell.ring();
        }
        self.bell.interest()
    }

    /// Awake: nobody has to ring.
    fn silence(&self) {
        if self.is_armed.swap(false, Ordering::Relaxed) {
            self.bell.silence();
        }
    }

    /// Is some other port still too full for what this one wanted to send?
    fn is_waiting(&self) -> bool {
        let switch = self.wire.switch();
        let mut bells = switch.ports.values().flat_map(|port| &port.waiting);
        bells.any(|bell| Arc::ptr_eq(bell, &self.bell))
    }

    /// Rings as if from outside: there is something to do.
    fn ring(&self) {
        self.bell.ring();
    }
}

impl Cable for Port {
    fn carries_frames(&self) -> bool {
        matches!(self.address, Peer::Unaddressed | Peer::Ethernet(_))
    }

    fn begin_turn(&mut self, _now: Instant) -> io::Result<()> {
        self.silence();
        Ok(())
    }

    fn take(&mut self) -> Option<Frame> {
        Self::take(self)
    }

    fn give_back(&mut self, frame: Frame) {
        Self::give_back(self, frame);
    }

    fn send(&mut self, to: Peer, ecn: Ecn, bytes: &[u8]) -> bool {
        Self::send(self, to, ecn, bytes)
    }

    fn end_turn(&mut self, _now: Instant) -> io::Result<u32> {
        Ok(0)
    }

    fn interests(&self, wants_room: bool) -> Interests {
        let interest = self.interest();
        // Room that came before the bell was armed was not heard of.
        if wants_room && !self.is_waiting() {
            self.ring();
        }
        [interest].into_iter().collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn set_cut(&mut self, is_cut: bool) {
        Self::set_cut(self, is_cut);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut switch = self.wire.switch();
        if let Some(pulled) = switch.ports.remove(&self.address) {
            // What they wanted to send here goes nowhere now.
            pulled.waiting.iter().for_each(|bell| bell.ring());
        }
    }
}

/// Whom an Ethernet frame is for.
enum Station {
    One([u8; 6]),
    Group,
}

fn station_of(frame: &[u8]) -> Option<Station> {
    let mac = *frame.first_chunk::<6>()?;
    // The first bit on the wire says that it is for a group (IEEE 802.3, 3.2.3).
    Some(if mac[0] & 1 == 1 { Station::Group } else { Station::One(mac) })
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = self.switch();
        f.debug_list().entries(switch.ports.keys()).finish()
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A frame on a cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// All of it.
    pub bytes: Vec<u8>,
    /// From whom, where the cable knows.
    pub from: Peer,
    /// Whether the network signalled congestion.
    pub ecn: Ecn,
}

/// What a card is plugged into: a [`Wire`](super::Wire) of this process, or
/// [whatever a driver reaches](super::Far).
pub trait Cable: fmt::Debug + Send {
    /// Are units whole frames, with the addresses among their bytes?
    fn carries_frames(&self) -> bool;

    /// A turn begins.
    ///
    /// # Errors
    /// The cable is broken for good.
    fn begin_turn(&mut self, now: Instant) -> io::Result<()>;

    /// The next frame that came.
    fn take(&mut self) -> Option<Frame>;

    /// The memory of a frame is used again.
    fn give_back(&mut self, frame: Frame);

    /// Sends a frame. False: there is no room, and what is waited for says when there is.
    fn send(&mut self, to: Peer, ecn: Ecn, bytes: &[u8]) -> bool;

    /// A turn ends: what was sent leaves. Returns how many frames are here already for the
    /// next one.
    ///
    /// # Errors
    /// The cable is broken for good.
    fn end_turn(&mut self, now: Instant) -> io::Result<u32>;

    /// What wakes anyone who waits for frames; or for room, if a frame found none.
    fn interests(&self, wants_room: bool) -> Interests;

    /// When it wants a turn, whatever the descriptors say.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The cable is pulled out, or put in again. What is on it is lost.
    fn set_cut(&mut self, is_cut: bool);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];

    fn taken(port: &Port) -> Option<(Peer, Vec<u8>)> {
        port.take().map(|frame| (frame.from, frame.bytes))
    }

    #[test]
    fn a_frame_goes_to_the_port_with_its_address_and_says_from_whom() {
        let wire = Wire::new(WireConfig::default());
        let ports: Vec<_> = (0..3).map(|node| wire.plug(Peer::Node(node)).unwrap()).collect();
        assert!(ports[0].send(Peer::Node(2), Ecn::NotCapable, b"hello"));
        assert!(ports[0].send(Peer::Node(9), Ecn::NotCapable, b"to nobody"));
        assert_eq!(taken(&ports[1]), None);
        assert_eq!(taken(&ports[2]), Some((Peer::Node(0), b"hello".to_vec())));
        assert_eq!(taken(&ports[2]), None);
    }

    #[test]
    fn who_is_bound_to_all_addresses_is_found_by_each() {
        let wire = Wire::new(WireConfig::default());
        let any: SocketAddr = "0.0.0.0:8181".parse().unwrap();
        let server = wire.plug(any).unwrap();
        let client = wire.plug("127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let to: SocketAddr = "127.0.0.1:8181".parse().unwrap();
        assert!(client.send(to.into(), Ecn::NotCapable, b"x"));
        assert_eq!(taken(&server), Some((client.address(), b"x".to_vec())));
        assert_eq!(wire.plug(any).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(server);
        assert!(wire.plug(any).is_ok(), "what was pulled out is free");
    }

    #[test]
    fn frames_with_addresses_of_their_own_go_to_one_station_or_to_all_others() {
        let wire = Wire::new(WireConfig::default());
        let ports = MAC.map(|mac| wire.plug(Peer::Ethernet(mac)).unwrap());
        assert!(ports[0].send(Peer::Unaddressed, Ecn::NotCapable, &MAC[1]));
        assert!(ports[0].send(Peer::Unaddressed, Ecn::NotCapable, &[0xff; 6]));
        assert_eq!(taken(&ports[0]), None, "nobody hears himself");
        assert_eq!(taken(&ports[1]), Some((Peer::Unaddressed, MAC[1].to_vec())));
        for port in &ports[1..] {
            assert_eq!(taken(port), Some((Peer::Unaddressed, vec![0xff; 6])));
            assert_eq!(taken(port), None);
        }
    }

    #[test]
    fn a_full_queue_makes_the_sender_wait_and_loses_nothing() {
        let wire = Wire::new(WireConfig { queue: 2, ..WireConfig::default() });
        let (one, two) = (wire.plug(Peer::Node(1)).unwrap(), wire.plug(Peer::Node(2)).unwrap());
        let send = |byte| one.send(Peer::Node(2), Ecn::NotCapable, &[byte]);
        assert!(send(0) && send(1));
        assert!(!send(2) && !send(2) && one.is_waiting());
        assert_eq!(taken(&two).map(|(_, bytes)| bytes), Some(vec![0]));
        assert!(!one.is_waiting() && send(2));
        assert!(!send(3));
        two.set_cut(true);
        assert!(!one.is_waiting() && send(3), "it is lost");
        two.set_cut(false);
        assert_eq!(taken(&two), None);
        assert!(send(4) && send(5) && !send(6));
        drop(two);
        assert!(!one.is_waiting() && send(6), "there is nobody to wait for");
    }

    #[test]
    fn who_asks_for_any_address_gets_one_of_his_own() {
        let wire = Wire::new(WireConfig::default());
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        for any in [Peer::Socket(any), Peer::Ethernet([0; 6])] {
            let (one, two) = (wire.plug(any).unwrap(), wire.plug(any).unwrap());
            assert!(one.address() != any && two.address() != any);
            assert_ne!(one.address(), two.address());
        }
    }

    #[test]
    fn a_wire_has_so_many_ports() {
        let wire = Wire::new(WireConfig { ports: 1, ..WireConfig::default() });
        let first = wire.plug(Peer::Node(0)).unwrap();
        assert!(wire.plug(Peer::Node(1)).unwrap_err().to_string().contains("1 ports"));
        drop(first);
        assert!(wire.plug(Peer::Node(1)).is_ok());
    }
}
