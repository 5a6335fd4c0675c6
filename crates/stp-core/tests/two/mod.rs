//! Two endpoints on a naive wire, watched by the contract checker: for tests
//! that look at single packets, change them, or make their own.
use landfall_placement::{
    Area, Engine, PathLimits, Peer, Placement, Refusal, Refusals, Spans, Ticket,
};
use landfall_testkit::model::{Checked, Faults, NaiveWire, Packet};
pub use landfall_testkit::trials::noise;
use stp_core::wire::message::Offer;
use stp_core::wire::proof::Secret;
use stp_core::wire::{Envelope, Header, LONGEST_HEAD, Message, Op, header};
use stp_core::{
    Admission, Config, Connect, ConnectionId, Endpoint, Event, ExposedId, RemoteRegion, Rights,
};

pub type Wire = NaiveWire<Checked<Endpoint>>;

/// The port that side 1 listens at.
pub const PORT: u16 = 7;

/// Small tables, so that their text can be compared, and small STUs.
pub fn small() -> Config {
    Config {
        max_stu: 7,
        block_stus: 2,
        buffer: 9,
        blocks_ahead: 2,
        window: 4096,
        connections: 4,
        half_open: 2,
        links: 4,
        sends: 4,
        receives: 4,
        blocks: 8,
        slots: 4,
        posted: 4,
        exposed: 2,
        operations: 4,
        queue: 64,
        ..Config::default()
    }
}

/// What somebody without an engine asks for a connection with.
pub fn offer(s_key: u32) -> Offer {
    let (version, max_stu, tail, buffer, slots) = (3, 7, 0, 9, 4);
    let (s_id, hello, secret) = (s_key as u16, 3, Secret(5));
    Offer { version, max_stu, tail, buffer, slots, s_key, s_id, hello, secret }
}

/// Two endpoints with a connection between them. Side 0 opened it.
pub struct Two {
    pub wire: Wire,
    /// What each side calls the connection.
    pub ids: [ConnectionId; 2],
    pub log: [Vec<Event>; 2],
}

impl Two {
    pub fn new(config: Config) -> Self {
        Self::with(config, Faults::default(), 1)
    }

    pub fn with(config: Config, faults: Faults, seed: u64) -> Self {
        Self::between([config.clone(), config], faults, seed)
    }

    /// Two that are not configured alike.
    pub fn of(configs: [Config; 2]) -> Self {
        Self::between(configs, Faults::default(), 1)
    }

    fn between([first, second]: [Config; 2], faults: Faults, seed: u64) -> Self {
        let engines =
            [Endpoint::new(first, [1; 32]).unwrap(), Endpoint::new(second, [2; 32]).unwrap()];
        let engines = engines.map(Checked::new);
        let mut wire = Wire::new(engines, PathLimits::plain(1_500), faults, seed);
        wire.sides[1].engine.engine.listen(PORT, Admission::Open).unwrap();
        let mut two = Self { wire, ids: [nobody(), nobody()], log: Default::default() };
        two.ids = two.connect();
        two
    }

    /// One more connection.
    pub fn connect(&mut self) -> [ConnectionId; 2] {
        let now = self.wire.now;
        let connect = Connect { port: PORT, local_port: None, hello: 1 };
        let id = self.endpoint(0).connect(now, Wire::PATH, Peer::Node(1), connect).unwrap();
        let seen = self.log[1].len();
        let accepted = |event: &Event| match event {
            Event::Accepted { connection, .. } => Some(*connection),
            _ => None,
        };
        self.run_until("the connection", |log| {
            log[1][seen..].iter().any(|e| accepted(e).is_some())
        });
        [id, self.log[1][seen..].iter().find_map(accepted).unwrap()]
    }

    pub fn endpoint(&mut self, side: usize) -> &mut Endpoint {
        &mut self.wire.sides[side].engine.engine
    }

    pub fn refusals(&self, side: usize) -> Refusals {
        *self.wire.sides[side].engine.refusals()
    }

    /// Takes in what the engines tell.
    pub fn hear(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.wire.sides[side].engine.poll_event() {
                self.log[side].push(event);
            }
        }
    }

    /// Lets packets and time pass until it is so, within bounds.
    pub fn run_until(&mut self, what: &str, is_over: impl Fn(&[Vec<Event>; 2]) -> bool) {
        for _ in 0..200_000 {
            self.hear();
            if is_over(&self.log) {
                return;
            }
            if !self.wire.turn() && !self.wire.pass_time() {
                break;
            }
        }
        panic!("{what} did not happen by {}: {:?}", self.wire.now, self.log);
    }

    pub fn lend(&mut self, side: usize, before: usize, bytes: &[u8]) -> Area {
        let mut all = vec![0xa7; before];
        all.extend_from_slice(bytes);
        all.extend_from_slice(&[0xa7; 32]);
        let region = self.wire.sides[side].memory.lend(all);
        Area::new(region, before as u64, bytes.len() as u64)
    }

    pub fn bytes(&self, side: usize, area: Area) -> &[u8] {
        self.wire.sides[side].bytes(area)
    }

    /// Side 0 sends, side 1 has memory for it.
    pub fn transfer(&mut self, ids: [ConnectionId; 2], bytes: &[u8]) -> Area {
        let now = self.wire.now;
        let (from, to) = (self.lend(0, 3, bytes), self.lend(1, 5, &vec![0; bytes.len()]));
        self.endpoint(1).post(now, ids[1], to, false).unwrap();
        self.endpoint(0).send(now, ids[0], from, 9).unwrap();
        to
    }

    /// A transfer whose Data is under way: its packets, in order.
    pub fn granted(&mut self, len: usize) -> (Area, Vec<Vec<u8>>) {
        let area = self.transfer(self.ids, &noise(len as u64, len));
        self.exchange(0);
        self.exchange(1);
        let mut packets = self.said(0);
        packets.retain(|packet| op(packet) == Op::Data);
        (area, packets)
    }

    /// What one side says, and the other takes in.
    pub fn exchange(&mut self, from: usize) {
        self.wire.send(from);
        while self.wire.receive(1 - from) {}
        self.hear();
    }

    /// A region of side 1 that side 0 may use.
    pub fn region(
        &mut self,
        ids: [ConnectionId; 2],
        len: usize,
    ) -> (RemoteRegion, ExposedId, Area) {
        self.region_of(1, ids, len)
    }

    /// A region of one side that the other may use.
    pub fn region_of(
        &mut self,
        owner: usize,
        ids: [ConnectionId; 2],
        len: usize,
    ) -> (RemoteRegion, ExposedId, Area) {
        let (now, user) = (self.wire.now, 1 - owner);
        self.endpoint(user).request_region(now, ids[user], 5, len as u64, Rights::ALL).unwrap();
        let seen = [self.log[0].len(), self.log[1].len()];
        self.run_until("the question", |log| {
            log[owner][seen[owner]..]
                .iter()
                .any(|event| matches!(event, Event::RegionRequested { .. }))
        });
        let asked = self.log[owner][seen[owner]..].iter().find_map(|event| match event {
            Event::RegionRequested { request, .. } => Some(*request),
            _ => None,
        });
        let area = self.lend(owner, 8, &vec![0; len]);
        let exposed = self.endpoint(owner).expose(asked.unwrap(), area, Rights::ALL).unwrap();
        let available = |event: &Event| match event {
            Event::RegionAvailable { region, .. } => Some(*region),
            _ => None,
        };
        self.run_until("the answer", |log| {
            log[user][seen[user]..].iter().any(|e| available(e).is_some())
        });
        (self.log[user][seen[user]..].iter().find_map(available).unwrap(), exposed, area)
    }

    /// Side 1 or 0 is asked where a packet from the other belongs.
    pub fn place(&mut self, side: usize, bytes: &[u8]) -> Result<Placement, Refusal> {
        place(&mut self.wire.sides[side].engine, self.wire.now, bytes, Peer::Node(1 - side as u32))
    }

    /// Makes the proof of a packet right that a side is to take in.
    pub fn prove(&self, side: usize, packet: &mut [u8]) {
        stp_core::model::prove(&self.wire.sides[side].engine.engine, packet);
    }

    /// What packets of side 0 to side 1 have, as seen in this one.
    pub fn said(&mut self, from: usize) -> Vec<Vec<u8>> {
        self.wire.said(from)
    }

    /// All there is to say about an engine but how often it refused what.
    pub fn state(&mut self, side: usize) -> String {
        let text = format!("{:?}", self.endpoint(side));
        let start = text.find("refusals: Refusals(").unwrap();
        let end = start + text[start..].find(')').unwrap();
        text[..start].to_owned() + &text[end..]
    }

    pub fn check_contract(&self) {
        self.wire.check_contract();
        for side in &self.wire.sides {
            assert_eq!(stp_core::model::wrong_room(&side.engine.engine), None);
        }
    }
}

fn nobody() -> ConnectionId {
    let mut endpoint = Endpoint::new(Config::default(), [9; 32]).unwrap();
    endpoint.handle_path(
        landfall_placement::Instant::ZERO,
        Wire::PATH,
        landfall_placement::PathState::Up(PathLimits::plain(1_500)),
    );
    let connect = Connect { port: 1, local_port: None, hello: 0 };
    let now = landfall_placement::Instant::ZERO;
    endpoint.connect(now, Wire::PATH, Peer::Node(0), connect).unwrap()
}

/// Asks for the place of a packet that is at hand whole.
pub fn place(
    engine: &mut impl Engine,
    now: landfall_placement::Instant,
    bytes: &[u8],
    from: Peer,
) -> Result<Placement, Refusal> {
    Packet::new(Wire::PATH, from, bytes.to_vec()).place(engine, now, &mut Spans::new())
}

pub fn ticket(placed: Result<Placement, Refusal>) -> Ticket {
    match placed {
        Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) => ticket,
        other => panic!("{other:?}"),
    }
}

/// The operation of a packet.
pub fn op(packet: &[u8]) -> Op {
    Header::read(packet).unwrap().operation().unwrap()
}

/// For whom a packet is, and what it says.
pub fn decode(packet: &[u8]) -> (Envelope, Message) {
    Message::decode(packet).unwrap()
}

pub fn encode(envelope: Envelope, message: &Message) -> Vec<u8> {
    let mut head = [0; LONGEST_HEAD];
    let len = message.encode(envelope, &mut head).unwrap();
    head[..len].to_vec()
}

/// Makes the checksum of a packet right again.
pub fn seal(packet: &mut [u8]) {
    packet[12..14].fill(0);
    header::seal(packet);
}

pub fn is_sent(event: &Event) -> bool {
    matches!(event, Event::Sent { .. })
}

pub fn is_received(event: &Event) -> bool {
    matches!(event, Event::Received { .. })
}
