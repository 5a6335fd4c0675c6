//! [`Discovery`]: how nodes that have no link yet find each other. The [`Discoverer`] is the
//! thread that asks a multicast group, and answers there.
//!
//! What is said to the group is a hint ([`clan_dsm::discovery`]): where a host is, and which key
//! it has. The handshake of the link decides whether that is so; an announcement in somebody
//! else's name ends there.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use std::collections::BTreeSet;

use clan_dsm::HostId;
use clan_dsm::discovery::{Announcement, MAX_DATAGRAM, MAX_PEERS, Message, Query};
use landfall_placement::{Duration, Instant, Peer};
use landfall_seal::Fingerprint;
use landfall_transport::driver::Interest;
use landfall_transport::multicast::MulticastSocket;
use landfall_transport::{Clock, Wait};

use crate::clan::names::Name;
use crate::runtime::{Signal, Source, Worker, locked};

/// The group that is asked unless another one is chosen: of those that stay within a site
/// (RFC 2365).
const GROUP: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(239, 255, 76, 78)), 8183);

/// Between two questions for a name, and two tries of what has failed.
const INTERVAL: Duration = Duration::from_millis(250);

/// Datagrams that are heard in one turn.
const AT_ONCE: usize = 64;

/// What was heard for one search and not looked at yet; more is as if it were lost.
const MOST_HEARD: usize = 64;

/// How nodes that have no link yet find each other by [names](super::Node::offer): by a multicast
/// group, a list of those to ask, or both.
///
/// ```
/// use landfall::clan::network::{Discovery, HostId, Node, Transport};
///
/// let open = |host| {
///     let path = Transport::udp("127.0.0.1:0".parse().unwrap());
///     let discovery = Discovery::multicast().interface([127, 0, 0, 1].into());
///     let group = "239.255.76.79:8189".parse().unwrap();
///     Node::builder(HostId::new(host).unwrap()).path(path).discovery(discovery.group(group)).open()
/// };
/// let (here, there) = (open(1)?, open(2)?);
/// let offer = here.offer("prices")?;
/// // There is no link, and no address is known.
/// let found = there.find("prices", None)?;
/// assert_eq!(found.host(), here.host());
/// # drop(offer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Who is believed.** What a host says to the group anyone can say. A node that is found by it
/// has to prove, in the handshake of the encrypted link, that it has the key that was announced;
/// so nobody answers in the name of a host whose key is known. Which keys are good is for you to
/// say: [`Builder::only_peers`](crate::clan::network::Builder::only_peers), a
/// [pre-shared key](crate::clan::network::Builder::preshared_key), or
/// [`Node::find_with_key`](crate::clan::network::Node::find_with_key). Without any of these anyone in the
/// network may offer any name, and the first who is found has it.
///
/// Names are said to the group in clear words. One that is for some only
/// ([`Node::offer_to`](super::Node::offer_to)) is not announced: those find it who have a link,
/// or the address in their list.
#[derive(Clone, Debug)]
#[must_use = "it is for `Builder::discovery`"]
pub struct Discovery {
    group: Option<SocketAddr>,
    interface: Option<Ipv4Addr>,
    list: Vec<(Peer, Option<Fingerprint>)>,
}

impl Discovery {
    /// Asks the group `239.255.76.78`, port 8183, on the interface that the kernel chooses.
    pub const fn multicast() -> Self {
        Self { group: Some(GROUP), interface: None, list: Vec::new() }
    }

    /// Asks nobody but those that are [added](Self::peer).
    pub const fn list() -> Self {
        Self { group: None, interface: None, list: Vec::new() }
    }

    /// Asks this group, of IPv4, or of IPv6 with the scope of its interface.
    pub const fn group(mut self, group: SocketAddr) -> Self {
        self.group = Some(group);
        self
    }

    /// Asks a group of IPv4 on the interface that has this address.
    pub const fn interface(mut self, address: Ipv4Addr) -> Self {
        self.interface = Some(address);
        self
    }

    /// Asks this node, too. It need not be there yet.
    pub fn peer(mut self, peer: impl Into<Peer>) -> Self {
        self.list.push((peer.into(), None));
        self
    }

    /// The same, if it has the key with this fingerprint.
    pub fn peer_with_key(mut self, peer: impl Into<Peer>, key: Fingerprint) -> Self {
        self.list.push((peer.into(), Some(key)));
        self
    }

    /// Joins the group.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn open(self) -> io::Result<OpenDiscovery> {
        let Self { group, interface, list } = self;
        let socket = group.map(|group| MulticastSocket::open(group, interface)).transpose()?;
        let mut first = [0; 8];
        getrandom::fill(&mut first).map_err(io::Error::other)?;
        Ok(OpenDiscovery { socket, list, first: u64::from_le_bytes(first) })
    }

    pub(crate) const fn asks(&self) -> Option<SocketAddr> {
        self.group
    }
}

/// A group that was joined.
#[derive(Debug)]
pub(crate) struct OpenDiscovery {
    socket: Option<MulticastSocket>,
    list: Vec<(Peer, Option<Fingerprint>)>,
    /// The number of the first question.
    first: u64,
}

/// Who this node is, as it is announced.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) host: HostId,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Where it is reached.
    pub(crate) peers: Vec<Peer>,
}

/// The thread that asks and answers, with what the node shares with it.
#[derive(Debug)]
pub(crate) struct Discoverer {
    shared: Arc<Mutex<DiscoveryState>>,
    list: Vec<(Peer, Option<Fingerprint>)>,
    signal: Arc<Signal>,
    _worker: Worker,
}

#[derive(Debug, Default)]
struct DiscoveryState {
    offered: BTreeSet<Name>,
    /// Names that are to be said to the group, though nobody asked.
    announced: Vec<Name>,
    inquiries: Vec<Weak<Inquiry>>,
    next_nonce: u64,
}

/// A search for a name.
#[derive(Debug)]
pub(crate) struct Inquiry {
    name: Name,
    nonce: u64,
    heard: Mutex<SearchInbox>,
}

#[derive(Debug, Default)]
struct SearchInbox {
    said: Vec<(Announcement, SocketAddr)>,
    tick: u64,
    waker: Option<Waker>,
}

impl Inquiry {
    /// What was heard since, and how many intervals have passed.
    pub(super) fn take(&self, waker: &Waker) -> (u64, Vec<(Announcement, SocketAddr)>) {
        let mut heard = locked(&self.heard);
        heard.waker = Some(waker.clone());
        (heard.tick, std::mem::take(&mut heard.said))
    }

    fn tell(&self, tell: impl FnOnce(&mut SearchInbox)) {
        let mut heard = locked(&self.heard);
        tell(&mut heard);
        let waker = heard.waker.take();
        drop(heard);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn hear(&self, said: &Announcement, from: SocketAddr) {
        let is_answer = said.nonce == 0 || said.nonce == self.nonce;
        if is_answer && said.name == self.name {
            self.tell(|heard| {
                if heard.said.len() < MOST_HEARD {
                    heard.said.push((said.clone(), from));
                }
            });
        }
    }
}

impl Discoverer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn start(open: OpenDiscovery, me: Introduction) -> io::Result<Self> {
        let OpenDiscovery { socket, list, first } = open;
        let state = DiscoveryState { next_nonce: first | 1, ..DiscoveryState::default() };
        let (shared, signal) = (Arc::new(Mutex::new(state)), Signal::new()?);
        let source = Speaker {
            socket,
            me,
            shared: Arc::clone(&shared),
            asked: Instant::ZERO,
            searches: false,
        };
        let pace = (Clock::start(), Wait::Block);
        let worker = Worker::start("landfall-names", &signal, pace, source, |_, _| {})?;
        Ok(Self { shared, list, signal, _worker: worker })
    }

    pub(super) fn list(&self) -> &[(Peer, Option<Fingerprint>)] {
        &self.list
    }

    /// Says to the group that this node offers a name, and answers those who ask for it.
    pub(super) fn announce(&self, name: &Name) {
        let mut state = locked(&self.shared);
        state.offered.insert(name.clone());
        state.announced.push(name.clone());
        drop(state);
        self.signal.ring();
    }

    pub(super) fn withdraw(&self, name: &Name) {
        locked(&self.shared).offered.remove(name);
    }

    /// Asks the group for a name, again and again, until this is dropped.
    pub(super) fn inquire(&self, name: &Name) -> Arc<Inquiry> {
        let mut state = locked(&self.shared);
        let nonce = state.next_nonce;
        // Odd, and so never zero.
        state.next_nonce = nonce.wrapping_add(2);
        let heard = Mutex::default();
        let inquiry = Arc::new(Inquiry { name: name.clone(), nonce, heard });
        state.inquiries.push(Arc::downgrade(&inquiry));
        drop(state);
        self.signal.ring();
        inquiry
    }
}

/// What the thread has.
struct Speaker {
    socket: Option<MulticastSocket>,
    me: Introduction,
    shared: Arc<Mutex<DiscoveryState>>,
    /// When the group was asked last.
    asked: Instant,
    /// Somebody searches.
    searches: bool,
}

impl Speaker {
    fn say(&self, bytes: &[u8], to: Option<SocketAddr>) {
        if let Some(socket) = &self.socket {
            // What cannot be sent is as if it were lost: it is said again, or asked for.
            let _ = socket.send(bytes, to.unwrap_or(socket.group()));
        }
    }

    fn announce(&self, nonce: u64, name: Name, to: Option<SocketAddr>) {
        let Introduction { host, fingerprint, peers } = &self.me;
        let peers = peers.iter().copied().take(MAX_PEERS).collect();
        let fingerprint = fingerprint.map(|fingerprint| fingerprint.0);
        self.say(&Announcement { nonce, name, host: *host, fingerprint, peers }.encode(), to);
    }

    fn offers(&self, name: &Name) -> bool {
        locked(&self.shared).offered.contains(name)
    }

    /// Hears what has come; returns whether anything has.
    fn hear(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut bytes = [0; MAX_DATAGRAM + 1];
        for nth in 0..AT_ONCE {
            // What the kernel has to say of a datagram that was lost does not matter.
            let Ok(Some((len, from))) = socket.receive(&mut bytes) else { return nth > 0 };
            match Message::decode(&bytes[..len]) {
                Some(Message::Query(Query { nonce, name })) if self.offers(&name) => {
                    self.announce(nonce, name, Some(from));
                }
                Some(Message::Announcement(said)) => {
                    self.inquiries().iter().for_each(|inquiry| inquiry.hear(&said, from));
                }
                // What others offer; others may use that group, too.
                Some(Message::Query(_)) | None => {}
            }
        }
        true
    }

    fn inquiries(&self) -> Vec<Arc<Inquiry>> {
        let mut state = locked(&self.shared);
        state.inquiries.retain(|inquiry| inquiry.strong_count() > 0);
        state.inquiries.iter().filter_map(Weak::upgrade).collect()
    }

    /// Asks for what is searched, if it is time, or if it was not asked for yet.
    fn ask(&mut self, now: Instant) {
        let inquiries = self.inquiries();
        self.searches = !inquiries.is_empty();
        let is_time = now >= self.asked + INTERVAL;
        if is_time {
            self.asked = now;
        }
        for inquiry in &inquiries {
            let is_new = locked(&inquiry.heard).tick == 0;
            if is_time || is_new {
                let query = Query { nonce: inquiry.nonce, name: inquiry.name.clone() };
                self.say(&query.encode(), None);
                inquiry.tell(|heard| heard.tick += 1);
            }
        }
    }
}

impl Source for Speaker {
    type Output = Infallible;

    fn turn(&mut self, now: Instant) -> ControlFlow<Infallible, bool> {
        let announced = std::mem::take(&mut locked(&self.shared).announced);
        announced.into_iter().for_each(|name| self.announce(0, name, None));
        let heard = self.hear();
        self.ask(now);
        ControlFlow::Continue(heard)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.extend(self.socket.iter().flat_map(MulticastSocket::interests));
    }

    fn next_wake(&self) -> Option<Instant> {
        self.searches.then_some(self.asked + INTERVAL)
    }

    /// What threads of this node left between the turn and the bell.
    fn has_work(&self) -> bool {
        let state = locked(&self.shared);
        let is_new = |inquiry: Arc<Inquiry>| locked(&inquiry.heard).tick == 0;
        !state.announced.is_empty() || state.inquiries.iter().filter_map(Weak::upgrade).any(is_new)
    }
}
