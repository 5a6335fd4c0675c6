//! A script played to an adapter: bare IP packets, in virtual time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use landfall_placement::{
    Area, Ecn, Engine, Instant, Landing, PathId, PathLimits, PathState, Peer as Address, Placement,
    RegionId, Spans, Unit,
};
use qpip::wire::Flags;
use qpip::{
    Access, Adapter, Buffer, Completion, CompletionQueueId, Config, CongestionControl, Event,
    Interface, KeepAlive, ListenerId, Mapping, MemoryKey, Operation, OwnAddress, Pacing,
    QueuePairId, QueuePairSetup, ReceiveWork, SendWork, Service, TcpConfig,
};

use super::peer::{Left, MAC, PEER_MAC, Peer, byte_at, same};
use super::text::{Packet, SYN_ACK, Script, ScriptEvent, Step, Subject, number, seconds};

const PATH: PathId = PathId(0);
const MEMORY: usize = 4 << 20;
/// The first half is sent from, the second received to.
const RECEIVES_AT: u64 = MEMORY as u64 / 2;
/// What plays a script.
pub struct Player {
    adapter: Adapter,
    memory: Vec<u8>,
    now: Instant,
    peer: Peer,
    listener: Option<ListenerId>,
    pair: QueuePairId,
    setup: QueuePairSetup,
    key: MemoryKey,
    queue: CompletionQueueId,
    left: VecDeque<Left>,
    events: VecDeque<String>,
    received: u64,
    sent: u64,
    send_at: u64,
    receive_at: u64,
    /// Where each receive lies.
    places: Vec<u64>,
}

struct Set {
    config: Config,
    mtu: u32,
    is_v4: bool,
    mapping: Mapping,
    cuts: bool,
}

/// The configuration of a script: simple, but for what it says.
fn configure(script: &Script) -> Set {
    let tcp = TcpConfig {
        congestion: CongestionControl::NewReno,
        timestamps: false,
        most_window: 65_535,
        // As the kernel's.
        pacing: Pacing::Never,
        ..TcpConfig::default()
    };
    let config = Config { tcp, ..Config::default() };
    let mut set = Set { config, mtu: 1_040, is_v4: true, mapping: Mapping::Stream, cuts: false };
    for (key, value) in &script.config {
        if choose(&mut set.config.tcp, key, value) {
            continue;
        }
        match key.as_str() {
            "mtu" => set.mtu = number(value) as u32,
            "half-open" => set.config.half_open = number(value) as usize,
            "version" => set.is_v4 = value == "4",
            "cuts" => set.cuts = value == "on",
            "mapping" => {
                set.mapping = match value.as_str() {
                    "message" => Mapping::Message,
                    "segment" => Mapping::Segment,
                    _ => Mapping::Stream,
                }
            }
            _ => panic!("{}: no such setting: {key}={value}", script.name),
        }
    }
    set
}

/// What can be chosen of TCP; is there such a thing?
fn choose(tcp: &mut TcpConfig, key: &str, value: &str) -> bool {
    let is_on = value == "on";
    match key {
        "sack" => tcp.sack = is_on,
        "timestamps" => tcp.timestamps = is_on,
        "ecn" => tcp.ecn = is_on,
        "accurate" => tcp.accurate_ecn = is_on,
        "window" => tcp.most_window = number(value) as u32,
        "delay" => tcp.acknowledge_after = seconds(value),
        "congestion" if value == "cubic" => tcp.congestion = CongestionControl::Cubic,
        "congestion" if value == "dctcp" => tcp.congestion = CongestionControl::Dctcp,
        "congestion" if value == "reno" => {}
        "give-up" => tcp.give_up_after = seconds(value),
        "retries" => tcp.opening_retries = number(value) as u8,
        "finish" => tcp.finish_within = seconds(value),
        "time-wait" => tcp.time_wait = seconds(value),
        "least-timeout" => tcp.least_timeout = seconds(value),
        "dscp" => tcp.dscp = number(value) as u8,
        "label" => tcp.flow_label = is_on,
        "corks" => tcp.corks = is_on,
        "pacing" if value == "long" => tcp.pacing = Pacing::OnLongPaths,
        "pacing" => tcp.pacing = if is_on { Pacing::Always } else { Pacing::Never },
        "immediates" => tcp.immediates = is_on,
        "fast-open" => tcp.fast_open = is_on,
        "keep-alive" => {
            let parts: Vec<&str> = value.split('/').collect();
            tcp.keep_alive = Some(KeepAlive {
                idle: seconds(parts[0]),
                interval: seconds(parts[1]),
                probes: number(parts[2]) as u8,
            });
        }
        _ => return false,
    }
    true
}

impl Player {
    /// With header prediction, or without: that makes no difference.
    pub fn new(script: &Script, predicts: bool) -> Self {
        let mut set = configure(script);
        set.config.predicts = predicts;
        let ends: (SocketAddr, SocketAddr) = if set.is_v4 {
            ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:1234".parse().unwrap())
        } else {
            ("[fd00::1]:80".parse().unwrap(), "[fd00::2]:1234".parse().unwrap())
        };
        let stamps = set.config.tcp.timestamps;
        let mut adapter = Adapter::new(set.config, [9; 32]).unwrap();
        let interface = Interface {
            mac: MAC,
            addresses: vec![OwnAddress::new(ends.0.ip(), 24)],
            neighbours: vec![(ends.1.ip(), PEER_MAC)],
            ..Interface::default()
        };
        adapter.add_interface(PATH, interface).unwrap();
        let mut limits = PathLimits::plain(set.mtu + 14);
        if set.cuts {
            (limits.super_unit, limits.segments) = (65_535, 64);
            limits.offloads.segment_tcp4 = true;
            limits.offloads.segment_tcp6 = true;
        }
        let now = Instant::from_millis(1_000);
        adapter.handle_path(now, PATH, PathState::Up(limits));
        let domain = adapter.create_domain().unwrap();
        let queue = adapter.create_completion_queue(4_096).unwrap();
        let area = Area::new(RegionId::new(0, 0), 0, MEMORY as u64);
        let key = adapter.register(domain, area, Access::ReadWrite).unwrap();
        let setup = QueuePairSetup {
            domain,
            send_completions: queue,
            receive_completions: queue,
            service: Service::Tcp(set.mapping),
            send_depth: 1_000,
            receive_depth: 1_000,
            shared_receives: None,
        };
        let pair = adapter.create_queue_pair(&setup).unwrap();
        // What is sent is where its position says: position 1 at offset 1.
        let half = RECEIVES_AT;
        let mut memory: Vec<u8> = (0..half).map(byte_at).collect();
        memory.resize(MEMORY, 0);
        Self {
            adapter,
            memory,
            now,
            peer: Peer::new(ends, stamps),
            listener: None,
            pair,
            setup,
            key,
            queue,
            left: VecDeque::new(),
            events: VecDeque::new(),
            received: 0,
            sent: 0,
            send_at: 1,
            receive_at: RECEIVES_AT,
            places: Vec::new(),
        }
    }

    /// Plays all of it; says what was not as it should have been.
    pub fn play(mut self, script: &Script) -> Result<(), String> {
        for step in script.steps_of(Subject::Engine) {
            self.step(step).map_err(|why| format!("line {}: {why}", step.line))?;
        }
        self.flush();
        let rest: Vec<String> = self.left.iter().map(|left| self.peer.describe(left)).collect();
        if rest.is_empty() { Ok(()) } else { Err(format!("at the end: {}", rest.join("; "))) }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let due = self.now + step.after;
        if let ScriptEvent::Leaves(packet) = &step.what {
            return self.expect(due, step.slack, packet);
        }
        self.pass_until(due);
        if let ScriptEvent::Event(text) = &step.what {
            let event = self.events.pop_front().unwrap_or_else(|| "nothing".into());
            return same("the user hears", text, &event);
        }
        match &step.what {
            ScriptEvent::Received(bytes) => return same("bytes received", bytes, &self.received),
            ScriptEvent::Sent(bytes) => return same("bytes sent", bytes, &self.sent),
            ScriptEvent::State(name) => {
                let state = self.adapter.connection_stats(self.pair).map(|stats| stats.state);
                let state = state.map_or("closed".into(), |state| format!("{state:?}"));
                let is = state.to_lowercase();
                return same("the state", &name.replace('-', ""), &is);
            }
            ScriptEvent::Window(bytes) => {
                let window = self.adapter.connection_stats(self.pair);
                let window = window.map_or(0, |stats| stats.congestion_window);
                return same("the congestion window", bytes, &window);
            }
            _ => {}
        }
        if let Some(left) = self.left.front() {
            return Err(format!("this was not expected: {}", self.peer.describe(left)));
        }
        match &step.what {
            ScriptEvent::Comes(packet) => self.come(packet),
            ScriptEvent::Icmp { kind, about } => {
                let frame = self.peer.icmp(*kind, *about)?;
                self.hand_in(&frame, false);
            }
            ScriptEvent::Opens { is_active, peer, rtt } => self.open(*is_active, peer, *rtt)?,
            ScriptEvent::Listen => {
                self.listener = Some(self.adapter.listen(self.peer.ends.0).unwrap());
            }
            ScriptEvent::Offer => {
                let listener = self.listener.unwrap();
                self.adapter.offer(listener, self.pair).unwrap();
            }
            ScriptEvent::Connect => {
                let (local, remote) = self.peer.ends;
                self.adapter.connect(self.now, self.pair, Some(local), remote).unwrap();
            }
            ScriptEvent::Send(len, immediate) => {
                let from = [Buffer::new(self.key, self.send_at, *len)];
                self.send_at += u64::from(*len);
                let (id, immediate) = (u64::from(*len), *immediate);
                let work = SendWork { id, from: &from, to: None, is_signaled: true, immediate };
                self.adapter.post_send(self.now, self.pair, &work).unwrap();
            }
            ScriptEvent::Receive { len, count } => {
                for _ in 0..*count {
                    self.receive(*len);
                }
            }
            ScriptEvent::Set { key, value } => {
                let mut config = *self.adapter.tcp(self.pair).unwrap();
                assert!(choose(&mut config, key, value), "no such setting: {key}");
                self.adapter.set_tcp(self.pair, config).unwrap();
            }
            ScriptEvent::Shutdown => self.adapter.shutdown(self.now, self.pair).unwrap(),
            ScriptEvent::Again => self.begin_again(),
            ScriptEvent::Abort => self.adapter.abort(self.now, self.pair).unwrap(),
            _ => {}
        }
        self.flush();
        Ok(())
    }

    fn begin_again(&mut self) {
        self.pair = self.adapter.create_queue_pair(&self.setup).unwrap();
        (self.send_at, self.received, self.sent) = (1, 0, 0);
    }

    fn receive(&mut self, len: u32) {
        let into = [Buffer::new(self.key, self.receive_at, len)];
        let id = self.places.len() as u64;
        self.places.push(self.receive_at);
        self.receive_at += u64::from(len);
        let work = ReceiveWork { id, into: &into };
        self.adapter.post_receive(self.now, self.pair, &work).unwrap();
    }

    /// All of a handshake.
    fn open(&mut self, is_active: bool, peer: &Packet, rtt: Duration) -> Result<(), String> {
        let what = if is_active { "connected" } else { "accepted" };
        let peer = peer.opening(is_active);
        if is_active {
            let (local, remote) = self.peer.ends;
            self.adapter.connect(self.now, self.pair, Some(local), remote).unwrap();
            self.flush();
            self.left.pop_front().ok_or("no opening left")?;
            self.pass_until(self.now + rtt);
            self.come(&peer);
            self.flush();
            let answer = self.left.pop_front().ok_or("no acknowledgement left")?;
            same("flags", &Flags::ACK, &answer.tcp.flags)?;
        } else {
            if self.listener.is_none() {
                self.listener = Some(self.adapter.listen(self.peer.ends.0).unwrap());
                self.adapter.offer(self.listener.unwrap(), self.pair).unwrap();
            }
            self.come(&peer);
            self.flush();
            let answer = self.left.pop_front().ok_or("no answer left")?;
            same("flags", &SYN_ACK, &answer.tcp.flags.without(Flags::ECE))?;
            self.pass_until(self.now + rtt);
            self.come(&peer.last_acknowledgement());
            self.flush();
        }
        let event = self.events.pop_front().unwrap_or_else(|| "nothing".into());
        same("the user hears", what, &event)
    }

    /// Lets time pass up to this moment.
    fn pass_until(&mut self, due: Instant) {
        self.flush();
        for _ in 0..100_000 {
            match self.adapter.poll_timeout() {
                Some(timer) if timer.at <= due => {
                    self.now = self.now.max(timer.at);
                    self.adapter.handle_timeout(self.now);
                    self.flush();
                }
                _ => {
                    self.now = due;
                    return self.flush();
                }
            }
        }
        panic!("timers fire without end");
    }

    /// Takes out whatever is there.
    fn flush(&mut self) {
        let mut head = [0; 256];
        loop {
            let mut from = Spans::new();
            let Some(unit) = self.adapter.poll_transmit(self.now, PATH, &mut head, &mut from)
            else {
                break;
            };
            let mut frame = head[..usize::from(unit.head_len)].to_vec();
            for span in from.iter() {
                let at = span.offset as usize;
                frame.extend_from_slice(&self.memory[at..at + span.len as usize]);
            }
            self.adapter.handle_sent(self.now, unit.ticket);
            // Where the device cuts it, it is looked at as one.
            self.left.extend(self.peer.note(self.now, frame));
        }
        while let Some(event) = self.adapter.poll_event() {
            let text = match event {
                Event::Connected { .. } => "connected".into(),
                Event::Accepted { .. } => "accepted".into(),
                Event::PeerFinished { .. } => "peer-finished".into(),
                Event::Closed { reason, .. } => format!("closed {reason:?}").to_lowercase(),
                _ => continue,
            };
            self.events.push_back(text);
        }
        while let Some(done) = self.adapter.poll(self.queue) {
            self.complete(&done);
        }
    }

    fn complete(&mut self, done: &Completion) {
        match done.operation {
            Operation::Send if done.status.is_success() => self.sent += u64::from(done.len),
            Operation::Receive if done.status.is_success() => {
                let at = self.places[done.id as usize] + u64::from(done.offset);
                for n in 0..u64::from(done.len) {
                    let (position, is) = (1 + self.received + n, self.memory[(at + n) as usize]);
                    assert!(
                        !self.peer.is_true || is == byte_at(position),
                        "byte {position} is not what was sent"
                    );
                }
                self.received += u64::from(done.len);
                if let Some(word) = done.immediate {
                    self.events.push_back(format!("word {word}"));
                }
            }
            _ => {}
        }
    }

    /// The next segment has to leave then, and be so.
    fn expect(&mut self, due: Instant, slack: Duration, wanted: &Packet) -> Result<(), String> {
        let latest = due + slack;
        self.flush();
        while self.left.is_empty() {
            match self.adapter.poll_timeout() {
                Some(timer) if timer.at <= latest => {
                    self.now = self.now.max(timer.at);
                    self.adapter.handle_timeout(self.now);
                    self.flush();
                }
                _ => return Err(format!("nothing leaves until {latest}")),
            }
        }
        let Some(left) = self.left.pop_front() else { return Ok(()) };
        let text = self.peer.describe(&left);
        if left.at + slack < due {
            return Err(format!("{:?} too early: {text}", due.since(left.at)));
        }
        // What happened when it left may have been earlier than the script says, by the
        // slack: time goes on from when it did.
        self.peer.remember(&left);
        self.peer.compare(&left, wanted, true).map_err(|why| format!("{why}: {text}"))
    }

    /// A segment comes.
    fn come(&mut self, packet: &Packet) {
        let frame = self.peer.segment(self.now, packet);
        self.hand_in(&frame, packet.is_damaged);
    }

    /// A frame arrives: its payload goes where the adapter says.
    fn hand_in(&mut self, frame: &[u8], is_damaged: bool) {
        let unit = Unit {
            path: PATH,
            from: Address::Unaddressed,
            head: frame,
            len: frame.len() as u32,
            segment: None,
            ecn: Ecn::NotCapable,
            verified: false,
        };
        let mut into = Spans::new();
        if let Ok(Placement::Into { at, ticket, .. }) =
            self.adapter.place(self.now, &unit, &mut into)
        {
            let mut from = usize::from(at);
            for span in into.iter() {
                let (to, len) = (span.offset as usize, span.len as usize);
                self.memory[to..to + len].copy_from_slice(&frame[from..from + len]);
                from += len;
            }
            let landing = if is_damaged { Landing::Failed } else { Landing::Verified };
            self.adapter.handle_placed(self.now, ticket, landing);
        }
        self.flush();
    }
}
