//! Two adapters on the simplest possible wire, for tests that look at each frame
//! and forge their own. The contract checker watches both.
use landfall_placement::{
    Area, Engine, Instant, PathId, PathLimits, Peer, Placement, Refusal, Spans, Ticket,
};
use landfall_testkit::model::{Checked, Faults, NaiveWire, Packet};
pub use landfall_testkit::trials::noise;
use qpip::model::seal;
use qpip::{
    Access, Adapter, Buffer, Completion, CompletionQueueId, Config, DomainId, Event, Interface,
    Mapping, Operation, OwnAddress, QueuePairId, QueuePairSetup, ReceiveWork, SendWork, Service,
    TcpConfig,
};

pub type Wire = NaiveWire<Checked<Adapter>>;

/// Where everybody listens.
pub const PORT: u16 = 7;

/// Where TCP starts in a frame of IPv4, and its flags.
pub const TCP: usize = 34;
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

pub struct Two {
    pub wire: Wire,
    pub domains: [DomainId; 2],
    pub queues: [CompletionQueueId; 2],
    pub done: [Vec<Completion>; 2],
    pub events: [Vec<Event>; 2],
    pub pairs: [QueuePairId; 2],
    next: u64,
}

/// Without timestamps, so that what is forged has none to guess.
pub fn plain() -> Config {
    let tcp = TcpConfig { timestamps: false, most_window: 0, ..TcpConfig::default() };
    Config { tcp, ..Config::default() }
}

pub fn address(side: usize, port: u16) -> std::net::SocketAddr {
    ([10, 0, 0, side as u8 + 1], port).into()
}

fn station(side: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, side as u8 + 1]
}

fn adapter(config: &Config, side: usize) -> Adapter {
    let mut adapter = Adapter::new(config.clone(), [side as u8 + 1; 32]).unwrap();
    let interface = Interface {
        mac: station(side),
        addresses: vec![OwnAddress::new(address(side, 0).ip(), 24)],
        neighbours: vec![(address(1 - side, 0).ip(), station(1 - side))],
        ..Interface::default()
    };
    adapter.add_interface(PathId(0), interface).unwrap();
    adapter.listen(address(side, PORT)).unwrap();
    adapter
}

impl Two {
    /// An open connection, from side 0 to side 1.
    pub fn new(config: &Config, mapping: Mapping, faults: Faults, seed: u64) -> Self {
        let mut limits = PathLimits::plain(1_514);
        if faults.cutting > 0 {
            (limits.super_unit, limits.segments) = (65_535, 64);
            limits.offloads.segment_tcp4 = true;
        }
        let engines = [0, 1].map(|side| Checked::new(adapter(config, side)));
        let mut wire = Wire::new(engines, limits, faults, seed);
        wire.now = Instant::from_millis(5);
        let domains = [0, 1].map(|side| wire.sides[side].engine.engine.create_domain().unwrap());
        let queues = [0, 1]
            .map(|side| wire.sides[side].engine.engine.create_completion_queue(1_000).unwrap());
        let nobody = QueuePairId::new(0, 0);
        let mut two = Self {
            wire,
            domains,
            queues,
            done: [Vec::new(), Vec::new()],
            events: [Vec::new(), Vec::new()],
            pairs: [nobody; 2],
            next: 0,
        };
        two.pairs = two.open(mapping);
        two
    }

    pub fn adapter(&mut self, side: usize) -> &mut Adapter {
        &mut self.wire.sides[side].engine.engine
    }

    pub fn queue_pair(&mut self, side: usize, service: Service) -> QueuePairId {
        let setup = QueuePairSetup {
            domain: self.domains[side],
            send_completions: self.queues[side],
            receive_completions: self.queues[side],
            service,
            send_depth: 64,
            receive_depth: 64,
            shared_receives: None,
        };
        self.adapter(side).create_queue_pair(&setup).unwrap()
    }

    /// One more connection.
    pub fn open(&mut self, mapping: Mapping) -> [QueuePairId; 2] {
        let there = self.offer(mapping);
        let here = self.connect(mapping);
        self.until("the connection", |two| {
            let is_there = |event: &Event| {
                matches!(event, Event::Accepted { queue_pair, .. } if *queue_pair == there)
            };
            two.events[1].iter().any(is_there)
        });
        [here, there]
    }

    /// Side 1 waits for a connection.
    pub fn offer(&mut self, mapping: Mapping) -> QueuePairId {
        let pair = self.queue_pair(1, Service::Tcp(mapping));
        // The only listener.
        let listener = qpip::ListenerId::new(0, 0);
        self.adapter(1).offer(listener, pair).unwrap();
        pair
    }

    /// Side 0 asks for one.
    pub fn connect(&mut self, mapping: Mapping) -> QueuePairId {
        let pair = self.queue_pair(0, Service::Tcp(mapping));
        let now = self.wire.now;
        self.adapter(0).connect(now, pair, None, address(1, PORT)).unwrap();
        pair
    }

    pub fn lend(&mut self, side: usize, bytes: Vec<u8>) -> (Area, Buffer) {
        let len = bytes.len() as u32;
        let region = self.wire.sides[side].memory.lend(bytes);
        let area = Area::new(region, 0, u64::from(len));
        let domain = self.domains[side];
        let key = self.adapter(side).register(domain, area, Access::ReadWrite).unwrap();
        (area, Buffer::new(key, 0, len))
    }

    pub fn send(&mut self, side: usize, bytes: &[u8]) -> u64 {
        let (_, buffer) = self.lend(side, bytes.to_vec());
        self.next += 1;
        let (id, pair, now) = (self.next, self.pairs[side], self.wire.now);
        let work = SendWork { id, from: &[buffer], to: None, is_signaled: true, immediate: None };
        self.adapter(side).post_send(now, pair, &work).unwrap();
        id
    }

    pub fn receive(&mut self, side: usize, len: usize) -> (u64, Area) {
        let (area, buffer) = self.lend(side, vec![0; len]);
        self.next += 1;
        let (id, pair, now) = (self.next, self.pairs[side], self.wire.now);
        let work = ReceiveWork { id, into: &[buffer] };
        self.adapter(side).post_receive(now, pair, &work).unwrap();
        (id, area)
    }

    pub fn bytes(&self, side: usize, area: Area) -> &[u8] {
        self.wire.sides[side].bytes(area)
    }

    /// Takes what both users are told.
    pub fn hear(&mut self) {
        for side in 0..2 {
            let Checked { engine, .. } = &mut self.wire.sides[side].engine;
            while let Some(event) = engine.poll_event() {
                self.events[side].push(event);
            }
            while let Some(completion) = engine.poll(self.queues[side]) {
                self.done[side].push(completion);
            }
        }
    }

    /// Has this request completed well?
    pub fn is_done(&self, side: usize, id: u64) -> bool {
        self.done[side].iter().any(|done| done.id == id && done.status.is_success())
    }

    pub fn received(&self, side: usize) -> usize {
        let came = |done: &&Completion| done.operation == Operation::Receive;
        self.done[side].iter().filter(came).map(|done| done.len as usize).sum()
    }

    /// Turns and lets time pass until it is so.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            self.hear();
            if is_so(self) {
                return;
            }
            if !self.wire.turn() && !self.wire.pass_time() {
                break;
            }
        }
        panic!("{what}: never, until {}", self.wire.now);
    }

    /// Everything arrives, without time passing.
    pub fn settle(&mut self) {
        self.wire.settle(1_000);
        self.hear();
    }

    /// Time passes, for this many timeouts.
    pub fn pass(&mut self, timeouts: usize) {
        for _ in 0..timeouts {
            self.wire.pass_time();
            self.settle();
        }
    }

    /// What a side says now, taken off the wire.
    pub fn said(&mut self, side: usize) -> Vec<Vec<u8>> {
        self.wire.said(side)
    }

    /// Frames arrive at a side, and nothing else does.
    pub fn hand_in(&mut self, side: usize, frames: &[Vec<u8>]) {
        self.wire.hand_in(side, frames);
        self.hear();
    }

    pub fn refusals(&self, side: usize) -> u64 {
        let refusals = self.wire.sides[side].engine.refusals();
        Refusal::ALL.iter().map(|refusal| refusals.of(*refusal)).sum()
    }

    /// Both kept the contract.
    pub fn check_contract(&self) {
        self.wire.check_contract();
    }
}

/// Asks for the place of a frame, as a driver does.
pub fn place<E: Engine>(engine: &mut E, now: Instant, frame: &[u8]) -> Result<Placement, Refusal> {
    let packet = Packet::new(Wire::PATH, Peer::Unaddressed, frame.to_vec());
    packet.place(engine, now, &mut Spans::new())
}

pub fn ticket(placement: Placement) -> Ticket {
    match placement {
        Placement::Into { ticket, .. } => ticket,
        other => panic!("{other:?}"),
    }
}

pub fn seq(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[TCP + 4..TCP + 8].try_into().unwrap())
}

pub fn ack(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[TCP + 8..TCP + 12].try_into().unwrap())
}

pub fn window(frame: &[u8]) -> u16 {
    u16::from_be_bytes(frame[TCP + 14..TCP + 16].try_into().unwrap())
}

pub fn flags(frame: &[u8]) -> u8 {
    frame[TCP + 13]
}

/// Where the payload of a frame starts.
pub fn payload_at(frame: &[u8]) -> usize {
    TCP + usize::from(frame[TCP + 12] >> 4) * 4
}

/// The same frame with something about it changed, and its checksums right.
pub fn forge(frame: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut forged = frame.to_vec();
    change(&mut forged);
    let len = (forged.len() - 14) as u16;
    forged[16..18].copy_from_slice(&len.to_be_bytes());
    seal(&mut forged);
    forged
}

pub fn set_seq(frame: &mut [u8], seq: u32) {
    frame[TCP + 4..TCP + 8].copy_from_slice(&seq.to_be_bytes());
}

pub fn set_ack(frame: &mut [u8], ack: u32) {
    frame[TCP + 8..TCP + 12].copy_from_slice(&ack.to_be_bytes());
}
