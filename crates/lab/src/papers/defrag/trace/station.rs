//! A station of the simulated network: a processor that takes its time, a driver
//! that cuts packets, a list of what arrived; and on top a [`Program`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use landfall_placement::{Instant, Random};
use landfall_simnet::{Frame, LinkState, Node, Outbox, PortId};
use spec_defrag::admission::{Mode, is_control};

use super::Arrival;
use super::ttcp::Admission;
use super::wire::{Headers, Host, MSS, Message, PAGE, Packet, Transport, stations};

/// How long the processor takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    /// From the last bit of a packet to when the program hears of it.
    pub(crate) receive: Duration,
    /// To send a packet of any size.
    pub(crate) send: Duration,
    /// For each KiB of it.
    pub(crate) send_kib: Duration,
    /// Up to this many percent more, by chance.
    pub(crate) jitter: u32,
}

impl Costs {
    /// The machines of the paper: 75 MB/s in zero-copy packets.
    pub(crate) const PENTIUM_II: Self = Self {
        receive: Duration::from_micros(20),
        send: Duration::from_micros(10),
        send_kib: Duration::from_micros(11),
        jitter: 10,
    };
}

/// After so long an acknowledgement leaves alone (RFC 1122, 4.2.3.2: within 500 ms).
const DELAYED_ACKNOWLEDGEMENT: Duration = Duration::from_millis(20);

/// What a station does.
pub(crate) trait Program: 'static {
    /// The network is up.
    fn start(&mut self, turn: &mut Turn<'_>);

    /// Somebody said something.
    fn hear(&mut self, from: Host, message: Message, turn: &mut Turn<'_>);

    /// What was asked for by [`Turn::later`].
    fn wake(&mut self, alarm: Message, turn: &mut Turn<'_>);
}

/// What happens at a moment to come.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A packet came in whole.
    Deliver(Packet),
    /// The processor has done what a packet needs before it leaves.
    Emit(Packet),
    AcknowledgeIfOwed(Host),
    /// What was throttled may go on.
    GoOn(Host),
    Wake(Message),
}

/// What a program can do while it is called.
pub(crate) struct Turn<'a> {
    pub(crate) now: Instant,
    body: &'a mut Body,
}

impl Turn<'_> {
    /// Writes to a connection.
    pub(crate) fn write(&mut self, to: Host, len: u32, message: Message) {
        self.body.admission.begin(self.now, to, len);
        self.body.connections.entry(to).or_default().write(len, message);
        self.body.pump(self.now, to);
    }

    /// Sends a datagram.
    pub(crate) fn send(&mut self, to: Host, len: u32, message: Message) {
        let from = self.body.me;
        let transport = Transport::Udp;
        self.body.admission.begin(self.now, to, len);
        self.body.admission.handle_sent(self.now, to, len);
        self.body.emit(self.now, Packet { from, to, transport, len, message: Some(message) });
    }

    /// Is woken after a while.
    pub(crate) fn later(&mut self, delay: Duration, alarm: Message) {
        self.body.plan(self.now + delay, Act::Wake(alarm));
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.body.random
    }
}

/// All of a station but its program.
struct Body {
    me: Host,
    costs: Costs,
    random: Random,
    connections: BTreeMap<Host, Connection>,
    /// In order of time, then of planning.
    agenda: BTreeMap<(Instant, u64), Act>,
    planned: u64,
    /// When the processor has sent all that it was given.
    idle_at: Instant,
    next_id: u16,
    /// The first piece of the packet that each station is sending.
    joining: BTreeMap<Host, Packet>,
    arrivals: Vec<Arrival>,
    admission: Admission,
    /// It is planned to go on with what is throttled.
    goes_on: bool,
}

impl Body {
    fn plan(&mut self, at: Instant, act: Act) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), act);
    }

    /// Sends what the window and the receiver allow.
    fn pump(&mut self, now: Instant, to: Host) {
        loop {
            let allowance = self.admission.allowance(now, to);
            if let Some(again) = allowance.again {
                if !core::mem::replace(&mut self.goes_on, true) {
                    self.plan(again, Act::GoOn(to));
                }
                return;
            }
            // What is throttled leaves as ever: whole pages are for fast mode.
            let in_pages = allowance.mode != Mode::Slow;
            let connection = self.connections.entry(to).or_default();
            let Some(segment) = connection.next_segment(in_pages) else { return };
            self.admission.handle_sent(now, to, segment.len);
            let transport = Transport::Tcp { sequence: segment.sequence, acknowledged: 0 };
            let (from, len, message) = (self.me, segment.len, segment.message);
            self.emit(now, Packet { from, to, transport, len, message });
        }
    }

    /// The processor sends one packet after the other.
    fn emit(&mut self, now: Instant, packet: Packet) {
        let Costs { send, send_kib, jitter, .. } = self.costs;
        if let Transport::Tcp { .. } = packet.transport {
            self.connections.entry(packet.to).or_default().settle();
        }
        let cost = send + send_kib * packet.len / 1024;
        let more = cost * self.random.below(u64::from(jitter) + 1) as u32 / 100;
        self.idle_at = self.idle_at.max(now) + cost + more;
        self.plan(self.idle_at, Act::Emit(packet));
    }

    fn acknowledge(&mut self, now: Instant, to: Host) {
        let (sequence, acknowledged) = self.connections.entry(to).or_default().numbers();
        let transport = Transport::Tcp { sequence, acknowledged };
        self.emit(now, Packet { from: self.me, to, transport, len: 0, message: None });
    }

    /// The driver cuts the packet and gives it to the adapter.
    fn transmit(&mut self, now: Instant, mut packet: Packet, out: &mut Outbox<'_>) {
        if let Transport::Tcp { acknowledged, .. } = &mut packet.transport {
            (_, *acknowledged) = self.connections.entry(packet.to).or_default().numbers();
        }
        self.next_id = self.next_id.wrapping_add(1);
        for bytes in packet.frames(self.next_id) {
            out.send(PortId(0), Frame::raw(bytes));
        }
        if packet.message.is_some() {
            self.admission.end(now, packet.to);
        }
    }

    /// Control frames of the driver pass by whatever waits for the processor.
    fn flush(&mut self, now: Instant, out: &mut Outbox<'_>) {
        while let Some(bytes) = self.admission.poll_transmit(now) {
            out.send(PortId(0), Frame::raw(bytes));
        }
    }

    /// A frame arrived; a packet whose last piece it is will be delivered.
    fn arrive(&mut self, now: Instant, frame: &[u8]) {
        let Some((_, from)) = stations(frame).filter(|(to, _)| *to == self.me) else { return };
        self.arrivals.push(Arrival::new(now, frame));
        if is_control(frame) {
            self.admission.handle_frame(now, frame);
            self.pump(now, from);
            return;
        }
        let Some(headers) = Headers::read(frame) else { return };
        if headers.offset == 0 {
            let Some((transport, message)) = headers.transport(frame) else { return };
            let Headers { from, to, .. } = headers;
            let len = u32::from(headers.len) - transport.header_len() as u32;
            self.joining.insert(from, Packet { from, to, transport, len, message });
        } else if let Some(packet) = self.joining.get_mut(&headers.from) {
            packet.len += u32::from(headers.len);
        }
        if !headers.more
            && let Some(packet) = self.joining.remove(&headers.from)
        {
            self.plan(now + self.costs.receive, Act::Deliver(packet));
        }
    }

    /// The stack looks at a packet; what the program has to hear of it is given.
    fn deliver(&mut self, now: Instant, packet: &Packet) -> Option<Message> {
        if let Transport::Tcp { acknowledged, .. } = packet.transport {
            let connection = self.connections.entry(packet.from).or_default();
            connection.handle_acknowledged(acknowledged);
            connection.handle_received(packet.len);
            self.pump(now, packet.from);
        }
        packet.message
    }

    /// Acknowledges what the program did not answer.
    fn acknowledge_if_due(&mut self, now: Instant, to: Host) {
        let Some(connection) = self.connections.get_mut(&to) else { return };
        if connection.is_due() {
            self.acknowledge(now, to);
        } else if connection.start_timer() {
            self.plan(now + DELAYED_ACKNOWLEDGEMENT, Act::AcknowledgeIfOwed(to));
        }
    }
}

/// A station: a node of the simulation.
pub(crate) struct Station {
    body: Body,
    program: Box<dyn Program>,
    is_started: bool,
}

impl Station {
    pub(crate) fn new(
        me: Host,
        costs: Costs,
        random: Random,
        admission: Admission,
        program: Box<dyn Program>,
    ) -> Self {
        let body = Body {
            me,
            costs,
            random,
            connections: BTreeMap::new(),
            agenda: BTreeMap::new(),
            planned: 0,
            idle_at: Instant::ZERO,
            next_id: 0,
            joining: BTreeMap::new(),
            arrivals: Vec::new(),
            admission,
            goes_on: false,
        };
        Self { body, program, is_started: false }
    }

    /// All that arrived so far.
    pub(crate) fn take_arrivals(&mut self) -> Vec<Arrival> {
        core::mem::take(&mut self.body.arrivals)
    }

    fn act(&mut self, now: Instant, act: Act, out: &mut Outbox<'_>) {
        let Self { body, program, .. } = self;
        match act {
            Act::Deliver(packet) => {
                if let Some(message) = body.deliver(now, &packet) {
                    program.hear(packet.from, message, &mut Turn { now, body });
                }
                body.acknowledge_if_due(now, packet.from);
            }
            Act::Emit(packet) => body.transmit(now, packet, out),
            Act::AcknowledgeIfOwed(to) => {
                if body.connections.get_mut(&to).is_some_and(Connection::end_timer) {
                    body.acknowledge(now, to);
                }
            }
            Act::GoOn(to) => {
                body.goes_on = false;
                body.pump(now, to);
            }
            Act::Wake(alarm) => program.wake(alarm, &mut Turn { now, body }),
        }
    }
}

impl Node for Station {
    fn handle_frame(&mut self, now: Instant, _: PortId, frame: Frame, out: &mut Outbox<'_>) {
        self.body.arrive(now, &frame.bytes);
        self.body.flush(now, out);
    }

    fn handle_link(&mut self, now: Instant, _: PortId, _: LinkState, _: &mut Outbox<'_>) {
        if !core::mem::replace(&mut self.is_started, true) {
            self.program.start(&mut Turn { now, body: &mut self.body });
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        while let Some(next) = self.body.agenda.first_entry()
            && next.key().0 <= now
        {
            let act = next.remove();
            self.act(now, act, out);
        }
        self.body.admission.handle_timeout(now);
        self.body.flush(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let agenda = self.body.agenda.first_key_value().map(|((at, _), _)| *at);
        [agenda, self.body.admission.poll_timeout()].into_iter().flatten().min()
    }
}

// A connection as far as it shapes traffic: segments, a window, and when an
// acknowledgement leaves. Nothing is lost here, so nothing is sent again.

/// The window of Linux 2.2, and of most stacks of its time.
const WINDOW: u32 = 65_535;
/// Segments that are acknowledged together (RFC 1122, 4.2.3.2).
const TOGETHER: u32 = 2;

/// One side of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    writes: VecDeque<Write>,
    /// The sequence number that comes next.
    next: u32,
    /// Everything before was acknowledged.
    acknowledged: u32,
    /// Everything before arrived.
    received: u32,
    /// Segments that arrived since the last acknowledgement was decided on.
    owed: u32,
    /// A timer for the acknowledgement runs.
    is_timed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    left: u32,
    message: Message,
}

/// A segment that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u32,
    pub(crate) len: u32,
    /// The last segment of a write says what the write was.
    pub(crate) message: Option<Message>,
}

impl Default for Connection {
    fn default() -> Self {
        let writes = VecDeque::new();
        Self { writes, next: 1, acknowledged: 1, received: 1, owed: 0, is_timed: false }
    }
}

impl Connection {
    /// The application writes this many bytes.
    pub(crate) fn write(&mut self, len: u32, message: Message) {
        self.writes.push_back(Write { left: len, message });
    }

    /// The next segment, if there is one and the window has room for it. The
    /// stack makes a zero-copy packet of every whole page, if that is wanted; what
    /// is less goes in ordinary segments.
    pub(crate) fn next_segment(&mut self, in_pages: bool) -> Option<Segment> {
        let write = self.writes.front_mut()?;
        let len = if in_pages && write.left >= PAGE { PAGE } else { write.left.min(MSS) };
        let under_way = self.next.wrapping_sub(self.acknowledged);
        if under_way + len > WINDOW {
            return None;
        }
        write.left -= len;
        let message = (write.left == 0).then_some(write.message);
        let sequence = self.next;
        self.next = self.next.wrapping_add(len);
        if message.is_some() {
            self.writes.pop_front();
        }
        Some(Segment { sequence, len, message })
    }

    /// An acknowledgement came.
    pub(crate) fn handle_acknowledged(&mut self, acknowledged: u32) {
        let newer = acknowledged.wrapping_sub(self.acknowledged) as i32 > 0;
        self.acknowledged = if newer { acknowledged } else { self.acknowledged };
    }

    /// A segment came.
    pub(crate) fn handle_received(&mut self, len: u32) {
        self.received = self.received.wrapping_add(len);
        self.owed += u32::from(len > 0);
    }

    /// The header of what leaves now: sequence number if there is no data, and
    /// what is acknowledged.
    pub(crate) const fn numbers(&self) -> (u32, u32) {
        (self.next, self.received)
    }

    /// A packet is on its way that will acknowledge all that came.
    pub(crate) const fn settle(&mut self) {
        self.owed = 0;
    }

    /// An acknowledgement leaves at once.
    pub(crate) const fn is_due(&self) -> bool {
        self.owed >= TOGETHER
    }

    /// Whether a timer has to be started, since an acknowledgement is owed.
    pub(crate) const fn start_timer(&mut self) -> bool {
        let start = self.owed > 0 && !self.is_timed;
        self.is_timed |= start;
        start
    }

    /// The timer ran out: whether an acknowledgement is owed still.
    pub(crate) const fn end_timer(&mut self) -> bool {
        self.is_timed = false;
        self.owed > 0
    }
}
