//! smoltcp's TCP as the peer, in simulated time: its sockets on one host, queue
//! pairs on the other, and a link between them that loses, doubles and reorders.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use landfall_placement::{Area, Instant, PathId, Random};
use landfall_simnet::link::{Loss, Probability};
use landfall_simnet::{EngineNode, Frame, Handle, LinkConfig, Node, Outbox, PortId, Sim};
use qpip::{
    Access, Adapter, Buffer, CloseReason, Completion, CompletionQueueId, Config, Event, Interface,
    Mapping, Operation, OwnAddress, QueuePairId, QueuePairSetup, ReceiveWork, SendWork, Service,
};
use smoltcp::iface::{self, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time;
use smoltcp::wire::{EthernetAddress, IpCidr, IpEndpoint};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT: u16 = 7000;
/// How much each side says.
const BYTES: usize = 1 << 20;
/// In requests of this many.
const REQUEST: usize = 64 << 10;
/// No transfer takes longer in simulated time.
const AT_MOST: Duration = Duration::from_secs(1_200);

fn ours(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { [10, 0, 0, 1].into() } else { "fd00::1".parse().unwrap() }
}

fn theirs(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { [10, 0, 0, 2].into() } else { "fd00::2".parse().unwrap() }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    (0..BYTES).map(|_| random.next_u32() as u8).collect()
}

/// The wire of smoltcp: frames that came, and frames that leave.
#[derive(Default)]
struct Wire {
    came: VecDeque<Vec<u8>>,
    leave: VecDeque<Vec<u8>>,
}

struct ReceivedBytes(Vec<u8>);
struct Leave<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::RxToken for ReceivedBytes {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl phy::TxToken for Leave<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl phy::Device for Wire {
    type RxToken<'a> = ReceivedBytes;
    type TxToken<'a> = Leave<'a>;

    fn receive(&mut self, _: time::Instant) -> Option<(ReceivedBytes, Leave<'_>)> {
        self.came.pop_front().map(|frame| (ReceivedBytes(frame), Leave(&mut self.leave)))
    }

    fn transmit(&mut self, _: time::Instant) -> Option<Leave<'_>> {
        Some(Leave(&mut self.leave))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// A host that runs smoltcp, with one socket: it says all it has, and then that
/// this was all; and it keeps what it hears.
struct Host {
    wire: Wire,
    interface: iface::Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    to_say: Vec<u8>,
    said: usize,
    heard: Vec<u8>,
    wake: Option<Instant>,
    restless: bool,
}

fn theirs_now(now: Instant) -> time::Instant {
    time::Instant::from_micros(now.since(Instant::ZERO).as_micros() as i64)
}

impl Host {
    fn new(to_say: Vec<u8>) -> Self {
        let mut wire = Wire::default();
        let config = iface::Config::new(EthernetAddress(THEIRS).into());
        let mut interface = iface::Interface::new(config, &mut wire, time::Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(theirs(true).into(), 24)).unwrap();
            addresses.push(IpCidr::new(theirs(false).into(), 64)).unwrap();
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        let (heard, wake) = (Vec::new(), None);
        Self { wire, interface, sockets, socket, to_say, said: 0, heard, wake, restless: true }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.restless = true;
        self.sockets.get_mut(self.socket)
    }

    fn connect(&mut self, to: SocketAddr) {
        self.restless = true;
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        let to = IpEndpoint::from(to);
        socket.connect(self.interface.context(), to, 50_000).unwrap();
    }

    fn work(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.restless = false;
        let time = theirs_now(now);
        // The socket works on what came, and what it does may leave at once.
        for _ in 0..2 {
            self.interface.poll(time, &mut self.wire, &mut self.sockets);
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
            while socket.can_recv() {
                let heard = &mut self.heard;
                let take = |bytes: &mut [u8]| (bytes.len(), heard.extend_from_slice(bytes));
                socket.recv(take).unwrap();
            }
            while socket.can_send() && self.said < self.to_say.len() {
                self.said += socket.send_slice(&self.to_say[self.said..]).unwrap();
            }
            if socket.may_send() && self.said == self.to_say.len() {
                socket.close();
            }
        }
        self.interface.poll(time, &mut self.wire, &mut self.sockets);
        for frame in self.wire.leave.drain(..) {
            out.send(PortId(0), Frame::raw(frame));
        }
        let wake = self.interface.poll_at(time, &self.sockets);
        self.wake = wake.map(|at| {
            let micros = at.total_micros().max(time.total_micros() + 1);
            Instant::ZERO + Duration::from_micros(micros as u64)
        });
    }
}

impl Node for Host {
    fn handle_frame(&mut self, now: Instant, _: PortId, frame: Frame, out: &mut Outbox<'_>) {
        self.wire.came.push_back(frame.bytes.to_vec());
        self.work(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.work(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.restless { Some(Instant::ZERO) } else { self.wake }
    }
}

/// Both hosts, and a queue pair of ours with everything posted that it needs.
struct World {
    sim: Sim,
    station: Handle<EngineNode<Adapter>>,
    host: Handle<Host>,
    completions: CompletionQueueId,
    pair: QueuePairId,
    memory: Area,
    sent: usize,
    received: usize,
}

impl World {
    fn new(seed: u64, link: LinkConfig) -> Self {
        let mut sim = Sim::from_number(seed);
        let mut adapter = Adapter::new(Config::default(), [seed as u8; 32]).unwrap();
        let interface = Interface {
            mac: OURS,
            addresses: vec![OwnAddress::new(ours(true), 24), OwnAddress::new(ours(false), 64)],
            ..Interface::default()
        };
        adapter.add_interface(PathId(0), interface).unwrap();
        let completions = adapter.create_completion_queue(1 << 10).unwrap();
        let domain = adapter.create_domain().unwrap();
        let depth = (BYTES / REQUEST) as u32;
        let setup = QueuePairSetup {
            domain,
            send_completions: completions,
            receive_completions: completions,
            service: Service::Tcp(Mapping::Stream),
            send_depth: depth,
            receive_depth: depth,
            shared_receives: None,
        };
        let pair = adapter.create_queue_pair(&setup).unwrap();
        let station = sim.add("station", EngineNode::new(adapter)).unwrap();
        let host = sim.add("smoltcp", Host::new(noise(2))).unwrap();
        sim.connect(station, host, link).unwrap();

        let node = sim.node_mut(station).unwrap();
        let bytes = [noise(1), vec![0; BYTES]].concat();
        let region = node.memory_mut().lend(bytes).unwrap();
        let memory = Area::new(region, 0, 2 * BYTES as u64);
        let adapter = node.engine_mut();
        let key = adapter.register(domain, memory, Access::ReadWrite).unwrap();
        for at in (0..BYTES).step_by(REQUEST) {
            let part = [Buffer::new(key, at as u64, REQUEST as u32)];
            let work = SendWork {
                id: at as u64,
                from: &part,
                to: None,
                is_signaled: true,
                immediate: None,
            };
            adapter.post_send(Instant::ZERO, pair, &work).unwrap();
            let part = [Buffer::new(key, (BYTES + at) as u64, REQUEST as u32)];
            let work = ReceiveWork { id: at as u64, into: &part };
            adapter.post_receive(Instant::ZERO, pair, &work).unwrap();
        }
        Self { sim, station, host, completions, pair, memory, sent: 0, received: 0 }
    }

    fn adapter(&mut self) -> &mut Adapter {
        self.sim.node_mut(self.station).unwrap().engine_mut()
    }

    /// The queue pair listens, and smoltcp connects.
    fn be_connected(&mut self, is_ipv4: bool) {
        let (at, pair) = (SocketAddr::new(ours(is_ipv4), PORT), self.pair);
        let listener = self.adapter().listen(at).unwrap();
        self.adapter().offer(listener, pair).unwrap();
        self.sim.node_mut(self.host).unwrap().connect(at);
    }

    /// smoltcp listens, and the queue pair connects.
    fn connect(&mut self, is_ipv4: bool) {
        let (at, pair) = (SocketAddr::new(theirs(is_ipv4), PORT), self.pair);
        self.sim.node_mut(self.host).unwrap().socket().listen(PORT).unwrap();
        self.adapter().connect(Instant::ZERO, pair, None, at).unwrap();
    }

    fn note(&mut self, completion: Completion) {
        assert!(completion.status.is_success(), "{completion:?}");
        match completion.operation {
            Operation::Send => self.sent += completion.len as usize,
            Operation::Receive => self.received += completion.len as usize,
        }
    }

    /// Runs until both sides have said all, and have closed.
    fn run(mut self) {
        let (completions, pair) = (self.completions, self.pair);
        while self.sent < BYTES || self.received < BYTES {
            let now = self.sim.now();
            assert!(now < Instant::ZERO + AT_MOST, "{} sent, {} came", self.sent, self.received);
            self.sim.run_until(now + Duration::from_millis(20)).unwrap();
            while let Some(completion) = self.adapter().poll(completions) {
                self.note(completion);
            }
        }
        let now = self.sim.now();
        self.adapter().shutdown(now, pair).unwrap();
        self.sim.run_until(now + Duration::from_secs(120)).unwrap();
        let bytes = self.memory.span(BYTES as u64, BYTES as u32);
        let node = self.sim.node_mut(self.station).unwrap();
        assert!(node.memory().read(bytes).unwrap() == noise(2), "other bytes came to us");
        let events: Vec<Event> = std::iter::from_fn(|| node.poll_event()).collect();
        let reason = CloseReason::Finished;
        assert_eq!(events.last(), Some(&Event::Closed { queue_pair: pair, reason }), "{events:?}");
        let host = self.sim.node_mut(self.host).unwrap();
        assert!(host.heard == noise(1), "{} bytes came to smoltcp", host.heard.len());
        assert!(!host.socket().is_open(), "smoltcp's socket is {}", host.socket().state());
    }
}

fn percent(share: u32) -> Probability {
    Probability::percent(share)
}

/// All four ways to begin, over links of this kind.
fn exchange(link: LinkConfig) {
    for seed in 0..2 {
        for is_ipv4 in [true, false] {
            let mut world = World::new(seed, link);
            world.connect(is_ipv4);
            world.run();
            let mut world = World::new(seed, link);
            world.be_connected(is_ipv4);
            world.run();
        }
    }
}

fn link() -> LinkConfig {
    LinkConfig::ethernet(100_000_000).delay(Duration::from_millis(2))
}

#[test]
fn a_clean_link_carries_everything_both_ways() {
    exchange(link());
}

#[test]
fn a_link_that_loses_carries_everything_both_ways() {
    exchange(link().loss(Loss::Uniform(percent(2))));
}

#[test]
fn a_link_with_all_faults_carries_everything_both_ways() {
    let late = Duration::from_millis(3);
    let link = link().loss(Loss::Uniform(percent(1))).duplication(percent(1));
    exchange(link.reordering(percent(2), late));
}
