//! Queue pairs of two adapters, without memory, sockets or copies: each side's
//! work is a call of its own, to be timed alone.
//!
//! A round is: [`post`](QpipPair::post), [`send`](QpipPair::send),
//! [`receive`](QpipPair::receive), [`answer`](QpipPair::answer),
//! [`hear`](QpipPair::hear), [`reap`](QpipPair::reap).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use landfall_placement::{
    Area, Duration, Engine, Instant, Landing, PathLimits, PathState, RegionId, Spans, Ticket,
};
use qpip::{
    Access, Adapter, Buffer, CompletionQueueId, Config, DomainId, Event, Interface, Mapping,
    MemoryKey, OwnAddress, QueuePairId, QueuePairSetup, ReceiveWork, SendWork, Service,
};

use crate::{BATCH, Head, PATH, deliver, place, poll};

/// Bytes of a message that fills one segment at MTU 1500: 20 bytes of IPv4, 20
/// of TCP, and 12 of timestamps are its headers.
pub const SEGMENT: u32 = 1448;

const PORT: u16 = 7000;
const FRAME: u32 = 14 + 1500;
const PREFIX: u8 = 8;
const REGION: RegionId = RegionId::new(0, 1);
/// Connections that are opened at a time.
const OPENED_AT_ONCE: usize = 64;
/// Requests that are posted at a time, over all connections, at least.
const POSTED: usize = 8 * BATCH;
/// And on each.
const LEAST_POSTED: usize = 4;

/// One side.
#[derive(Debug)]
struct AdapterEnd {
    adapter: Adapter,
    domain: DomainId,
    sends: CompletionQueueId,
    receives: CompletionQueueId,
    key: MemoryKey,
    ip: IpAddr,
}

impl AdapterEnd {
    fn new(connections: usize, predicts: bool, ours: u8, theirs: u8) -> Self {
        let config = Config {
            queue_pairs: connections,
            completion_queue_capacity: 1 << 24,
            predicts,
            ..Config::default()
        };
        let ip = |n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        let mac = |n| [2, 0, 0, 0, 0, n];
        let interface = Interface {
            mac: mac(ours),
            addresses: vec![OwnAddress::new(ip(ours), PREFIX)],
            neighbours: vec![(ip(theirs), mac(theirs))],
            ..Interface::default()
        };
        let mut adapter = Adapter::new(config, [ours; 32]).unwrap();
        let limits = PathLimits::plain(FRAME);
        adapter.handle_path(Instant::from_millis(1), PATH, PathState::Up(limits));
        let made = adapter.add_interface(PATH, interface);
        assert_eq!(made, Ok(()), "a station");
        let enough = (connections * LEAST_POSTED.max(POSTED)) as u32;
        let (domain, queues) = (adapter.create_domain(), [(); 2]);
        let domain = domain.expect("the first domain");
        let [sends, receives] =
            queues.map(|()| adapter.create_completion_queue(enough.min(1 << 24)));
        let key = adapter.register(domain, Area::new(REGION, 0, 1 << 20), Access::ReadWrite);
        Self {
            domain,
            sends: sends.expect("the first queue"),
            receives: receives.expect("the second queue"),
            key: key.expect("the first registration"),
            ip: ip(ours),
            adapter,
        }
    }

    fn queue_pair(&mut self, depth: usize) -> QueuePairId {
        let setup = QueuePairSetup {
            domain: self.domain,
            send_completions: self.sends,
            receive_completions: self.receives,
            service: Service::Tcp(Mapping::Message),
            send_depth: depth as u32,
            receive_depth: depth as u32,
            shared_receives: None,
        };
        self.adapter.create_queue_pair(&setup).expect("as many as were asked for")
    }

    fn buffer(&self) -> [Buffer; 1] {
        [Buffer::new(self.key, 0, SEGMENT)]
    }

    fn post_receive(&mut self, now: Instant, pair: QueuePairId) {
        let work = ReceiveWork { id: 0, into: &self.buffer() };
        let posted = self.adapter.post_receive(now, pair, &work);
        assert_eq!(posted, Ok(()), "there is room for it");
    }
}

/// Two adapters with connections between them, over which messages go in turn.
#[derive(Debug)]
pub struct QpipPair {
    sender: AdapterEnd,
    receiver: AdapterEnd,
    now: Instant,
    /// Queue pairs of the sender, and how many of its messages are under way.
    pairs: Vec<(QueuePairId, u32)>,
    /// As many may be, on each.
    depth: usize,
    turn: usize,
    /// Of this many segments with payload one does not arrive.
    loses_one_in: Option<usize>,
    since_loss: usize,
    batch: Vec<Head>,
    answers: Vec<Head>,
    tickets: Vec<Ticket>,
    spans: Spans,
}

impl QpipPair {
    /// This many connections, up to 16,000, with memory posted on each.
    ///
    /// # Panics
    /// A connection does not open.
    #[must_use]
    pub fn new(connections: usize) -> Self {
        Self::open_all(connections, true)
    }

    /// The same with adapters that place everything themselves, and nothing by
    /// the offload seam.
    ///
    /// # Panics
    /// A connection does not open.
    #[must_use]
    pub fn without_seam(connections: usize) -> Self {
        Self::open_all(connections, false)
    }

    fn open_all(connections: usize, predicts: bool) -> Self {
        let depth = POSTED.div_ceil(connections).max(LEAST_POSTED);
        let mut line = Self::made(connections, depth, predicts);
        for _ in 0..connections.div_ceil(OPENED_AT_ONCE) {
            let more = OPENED_AT_ONCE.min(connections - line.connections());
            line.open(more);
        }
        line
    }

    /// No connections yet, but room for this many.
    #[must_use]
    pub fn with_depth(connections: usize, depth: usize) -> Self {
        Self::made(connections, depth, true)
    }

    fn made(connections: usize, depth: usize, predicts: bool) -> Self {
        let sides = [(1, 2), (2, 1)].map(|(a, b)| AdapterEnd::new(connections, predicts, a, b));
        let [sender, receiver] = sides;
        Self {
            sender,
            receiver,
            now: Instant::from_millis(1),
            pairs: Vec::with_capacity(connections),
            depth,
            turn: 0,
            loses_one_in: None,
            since_loss: 0,
            batch: Vec::with_capacity(4 * BATCH),
            answers: Vec::with_capacity(4 * BATCH),
            tickets: Vec::with_capacity(4 * BATCH),
            spans: Spans::new(),
        }
    }

    /// The same on a line that loses one in this many segments with payload.
    #[must_use]
    pub const fn losing_one_in(mut self, segments: usize) -> Self {
        self.loses_one_in = Some(segments);
        self
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pairs.len()
    }

    /// Opens this many connections, with nothing lost on the way.
    ///
    /// # Panics
    /// One of them does not open.
    pub fn open(&mut self, more: usize) {
        let at = SocketAddr::new(self.receiver.ip, PORT + self.pairs.len() as u16 / 64);
        let listener = self.receiver.adapter.listen(at).expect("nobody listens there");
        for _ in 0..more {
            let theirs = self.receiver.queue_pair(self.depth);
            (0..self.depth).for_each(|_| self.receiver.post_receive(self.now, theirs));
            let offered = self.receiver.adapter.offer(listener, theirs);
            assert_eq!(offered, Ok(()), "an idle queue pair");
            let ours = self.sender.queue_pair(self.depth);
            let asked = self.sender.adapter.connect(self.now, ours, None, at);
            assert_eq!(asked, Ok(()), "a way leads there");
            self.pairs.push((ours, 0));
        }
        // SYN, its answer, and the answer to that.
        for _ in 0..3 {
            self.send();
            self.take_batch();
            self.poll_answers();
            self.hear();
        }
        let mut open = 0;
        while let Some(event) = self.sender.adapter.poll_event() {
            open += usize::from(matches!(event, Event::Connected { .. }));
        }
        while self.receiver.adapter.poll_event().is_some() {}
        assert_eq!(open, more, "every connection is open");
        let stopped = self.receiver.adapter.stop_listening(listener);
        assert_eq!(stopped, Ok(()), "it listened");
    }

    /// The sender's user posts as many messages as a batch has.
    ///
    /// # Panics
    /// A message is refused.
    pub fn post(&mut self) {
        for _ in 0..BATCH {
            let at = self.turn;
            let (pair, under_way) = self.pairs[at];
            self.turn = (at + 1) % self.pairs.len();
            if under_way as usize >= self.depth {
                continue;
            }
            let work = SendWork {
                id: at as u64,
                from: &self.sender.buffer(),
                to: None,
                is_signaled: true,
                immediate: None,
            };
            let posted = self.sender.adapter.post_send(self.now, pair, &work);
            assert_eq!(posted, Ok(()), "there is room for it");
            self.pairs[at].1 += 1;
        }
    }

    /// The sender's adapter: all that may leave now. Gives the number of
    /// segments with payload. Never inlined, so that its instructions can be
    /// counted.
    #[inline(never)]
    pub fn send(&mut self) -> usize {
        self.batch.clear();
        let mut sent = 0;
        while let Some(head) = poll(&mut self.sender.adapter, self.now, true, &mut self.spans) {
            sent += usize::from(head.has_payload());
            self.since_loss += usize::from(head.has_payload());
            if self.loses_one_in.is_some_and(|few| head.has_payload() && self.since_loss >= few) {
                self.since_loss = 0;
                continue;
            }
            self.batch.push(head);
        }
        sent
    }

    /// What a driver does with the batch: a guess, a place for each, then all
    /// placed. Gives the number of segments that got a place.
    #[inline(never)]
    pub fn receive(&mut self) -> usize {
        self.take_batch()
    }

    #[inline]
    fn take_batch(&mut self) -> usize {
        self.tickets.clear();
        let receiver = &mut self.receiver.adapter;
        std::hint::black_box(receiver.guess(PATH, 0));
        for head in &self.batch {
            self.tickets.extend(place(receiver, self.now, head, &mut self.spans));
        }
        for ticket in &self.tickets {
            receiver.handle_placed(self.now, *ticket, Landing::Verified);
        }
        // A driver looks then; what the batch left is taken out.
        while receiver.poll_event().is_some() {}
        self.tickets.len()
    }

    /// The receiver's user reaps what came and posts the memory anew; its
    /// adapter acknowledges.
    ///
    /// # Panics
    /// Something went wrong with a request.
    #[inline(never)]
    pub fn answer(&mut self) {
        while let Some(done) = self.receiver.adapter.poll(self.receiver.receives) {
            let is_whole = done.status.is_success() && done.ends_message && done.len == SEGMENT;
            assert!(is_whole, "{done:?}");
            self.receiver.post_receive(self.now, done.queue_pair);
        }
        self.poll_answers();
    }

    #[inline]
    fn poll_answers(&mut self) {
        self.answers.clear();
        let receiver = &mut self.receiver.adapter;
        while let Some(head) = poll(receiver, self.now, false, &mut self.spans) {
            self.answers.push(head);
        }
    }

    /// The sender's adapter hears that, and time passes.
    #[inline(never)]
    pub fn hear(&mut self) {
        for head in &self.answers {
            deliver(&mut self.sender.adapter, self.now, head);
        }
        self.now += Duration::from_micros(50);
        for engine in [&mut self.receiver.adapter, &mut self.sender.adapter] {
            if engine.poll_timeout().is_some_and(|timeout| timeout.at <= self.now) {
                engine.handle_timeout(self.now);
            }
        }
    }

    /// The sender's user learns what is done. Gives the number of messages.
    ///
    /// # Panics
    /// Something went wrong with one.
    pub fn reap(&mut self) -> usize {
        let mut reaped = 0;
        while let Some(done) = self.sender.adapter.poll(self.sender.sends) {
            assert!(done.status.is_success(), "{done:?}");
            self.pairs[done.id as usize].1 -= 1;
            reaped += 1;
        }
        reaped
    }

    /// Rounds until batches are full and windows are open, so that what is
    /// measured next is the usual.
    ///
    /// # Panics
    /// No segments come: a bench would measure nothing.
    pub fn warm_up(&mut self) {
        let rounds = 200 + 16 * self.pairs.len() / BATCH;
        let segments: usize = (0..rounds).map(|_| self.round()).sum();
        assert!(segments > rounds * BATCH / 4, "only {segments} segments in {rounds} rounds");
    }

    /// One round. Gives the number of segments with payload that were placed.
    pub fn round(&mut self) -> usize {
        self.post();
        self.send();
        let placed = self.receive();
        self.answer();
        self.hear();
        self.reap();
        placed
    }

    /// Nothing is posted until all that was is acknowledged.
    ///
    /// # Panics
    /// That does not happen.
    pub fn fall_silent(&mut self) {
        for _ in 0..10_000 {
            if self.pairs.iter().all(|(_, under_way)| *under_way == 0) {
                return;
            }
            self.send();
            self.receive();
            self.answer();
            self.hear();
            self.reap();
        }
        panic!("messages are still not acknowledged");
    }

    /// How many segments were sent again, over all connections.
    #[must_use]
    pub fn segments_again(&self) -> u64 {
        let adapter = &self.sender.adapter;
        let stats = self.pairs.iter().filter_map(|(pair, _)| adapter.connection_stats(*pair));
        stats.map(|stats| stats.segments_again).sum()
    }
}
