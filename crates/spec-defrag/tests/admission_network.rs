//! Admission control in a network of 1 Gbit/s, in virtual time: what a throttled stream
//! costs a fast one, and that nobody starves.

use std::collections::BTreeMap;

use landfall_placement::{Duration, Instant};
use landfall_simnet::{Frame, Handle, LinkConfig, Node, Outbox, PortId, Sim, Switch};
use spec_defrag::admission::{
    Gate, GateConfig, Mac, Mode, Requester, RequesterConfig, TransferId, is_control,
};

const RECEIVER: Mac = [2, 0, 0, 0, 0, 0xff];
/// The only port of a host.
const WIRE: PortId = PortId(0);
/// A page leaves as three fragments, UDP over IPv4; these are their frames.
const FRAGMENTS: [usize; 3] = [1_514, 1_514, 1_178];
const PAGE: u64 = 4_096;
const PAGE_ON_THE_WIRE: u64 = (FRAGMENTS[0] + FRAGMENTS[1] + FRAGMENTS[2]) as u64;
/// Pages that are not acknowledged yet: what a transport above would call its window.
const WINDOW: u64 = 24;

fn mac(sender: usize) -> Mac {
    [2, 0, 0, 0, 0, sender as u8 + 1]
}

fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// The frame of a test protocol: a fragment of a page, or its acknowledgement.
fn frame(to: Mac, from: Mac, fragment: usize, len: usize) -> Frame {
    let mut bytes = vec![0; len];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..14].copy_from_slice(&0x88b6_u16.to_be_bytes());
    bytes[14] = fragment as u8;
    Frame::raw(bytes)
}

struct Sender {
    requester: Requester,
    address: Mac,
    start: Instant,
    /// Pages to send.
    left: u64,
    under_way: u64,
    transfer: Option<TransferId>,
    /// When the throttle opens again.
    again: Option<Instant>,
    fast_at: Option<Instant>,
    done_at: Option<Instant>,
    /// `false`: it sends what it likes, without asking.
    admitted: bool,
}

impl Sender {
    fn new(n: usize, start: Instant, pages: u64, admitted: bool) -> Self {
        let config = RequesterConfig::new(mac(n), RECEIVER);
        Self {
            requester: Requester::new(config, [n as u8; 32]).unwrap(),
            address: config.address,
            start,
            left: pages,
            under_way: 0,
            transfer: None,
            again: None,
            fast_at: None,
            done_at: None,
            admitted,
        }
    }

    fn go_on(&mut self, now: Instant, out: &mut Outbox<'_>) {
        if now < self.start {
            return;
        }
        if self.admitted && self.transfer.is_none() && self.done_at.is_none() {
            self.transfer = Some(self.requester.begin(now, self.left * PAGE).unwrap());
        }
        self.again = None;
        while self.left > 0 && self.under_way < WINDOW {
            let allowance = self.requester.allowance(now);
            if allowance.bytes == 0 {
                self.again = allowance.again;
                break;
            }
            for (n, len) in FRAGMENTS.into_iter().enumerate() {
                out.send(WIRE, frame(RECEIVER, self.address, n, len));
            }
            if self.admitted {
                self.requester.handle_sent(now, PAGE_ON_THE_WIRE);
            }
            self.left -= 1;
            self.under_way += 1;
        }
        if self.left + self.under_way == 0 && self.done_at.is_none() {
            self.done_at = Some(now);
            if let Some(transfer) = self.transfer.take() {
                self.requester.end(now, transfer);
            }
        }
        while let Some(control) = self.requester.poll_transmit(now) {
            out.send(WIRE, Frame::raw(control));
        }
        if matches!(self.requester.mode(now), Mode::Fast { .. }) {
            self.fast_at.get_or_insert(now);
        }
    }
}

impl Node for Sender {
    fn handle_frame(&mut self, now: Instant, _: PortId, frame: Frame, out: &mut Outbox<'_>) {
        if frame.bytes[..6] != self.address {
            return; // The switch has yet to learn where that station is.
        }
        if is_control(&frame.bytes) {
            self.requester.handle_frame(now, &frame.bytes).unwrap();
        } else {
            self.under_way -= 1;
        }
        self.go_on(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.requester.handle_timeout(now);
        self.go_on(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let begin = (self.transfer.is_none() && self.done_at.is_none() && self.again.is_none())
            .then_some(self.start)
            .filter(|_| self.left > 0 && self.under_way == 0);
        [begin, self.again, self.requester.poll_timeout()].into_iter().flatten().min()
    }
}

struct Receiver {
    gate: Gate,
    /// Pages by sender and 10 milliseconds.
    pages: BTreeMap<(Mac, u64), u64>,
    /// Of those, the ones whose fragments came one after another.
    in_one_piece: BTreeMap<Mac, u64>,
    /// Who sent the last frames, and how many of the page.
    run: (Mac, usize),
    most_fast: usize,
}

impl Receiver {
    fn new() -> Self {
        Self {
            gate: Gate::new(GateConfig::new(RECEIVER), [9; 32]).unwrap(),
            pages: BTreeMap::new(),
            in_one_piece: BTreeMap::new(),
            run: ([0; 6], 0),
            most_fast: 0,
        }
    }

    fn answer(&mut self, now: Instant, out: &mut Outbox<'_>) {
        while let Some(control) = self.gate.poll_transmit(now) {
            out.send(WIRE, Frame::raw(control));
        }
        self.most_fast = self.most_fast.max(self.gate.fast(now).count());
    }

    /// Pages of a sender that came between two moments.
    fn pages(&self, from: Mac, between: std::ops::Range<u64>) -> u64 {
        let slots = self.pages.range((from, between.start / 10)..(from, between.end / 10));
        slots.map(|(_, pages)| pages).sum()
    }
}

impl Node for Receiver {
    fn handle_frame(&mut self, now: Instant, _: PortId, came: Frame, out: &mut Outbox<'_>) {
        if came.bytes[..6] != RECEIVER {
            return;
        }
        if is_control(&came.bytes) {
            self.run.1 = 0;
            self.gate.handle_frame(now, &came.bytes).unwrap();
            return self.answer(now, out);
        }
        let from: Mac = came.bytes[6..12].try_into().unwrap();
        let fragment = usize::from(came.bytes[14]);
        self.run = match self.run {
            _ if fragment == 0 => (from, 1),
            (same, count) if same == from && count == fragment => (from, count + 1),
            _ => (from, 0),
        };
        if fragment + 1 == FRAGMENTS.len() {
            *self.pages.entry((from, now.as_nanos() / 10_000_000)).or_default() += 1;
            if self.run.1 == FRAGMENTS.len() {
                *self.in_one_piece.entry(from).or_default() += 1;
            }
            out.send(WIRE, frame(from, RECEIVER, 0, 60));
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.gate.handle_timeout(now);
        self.answer(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.gate.poll_timeout()
    }
}

struct Network {
    sim: Sim,
    senders: Vec<Handle<Sender>>,
    receiver: Handle<Receiver>,
}

/// Senders and one receiver around a switch.
fn network(senders: Vec<Sender>) -> Network {
    let mut sim = Sim::from_number(1);
    let gigabit = LinkConfig::ethernet(1_000_000_000);
    let switch = sim.add("switch", Switch::ethernet().latency(Duration::from_micros(4))).unwrap();
    let receiver = sim.add("receiver", Receiver::new()).unwrap();
    sim.connect(receiver, switch, gigabit).unwrap();
    let senders: Vec<_> = senders
        .into_iter()
        .map(|sender| {
            let sender = sim.add("sender", sender).unwrap();
            sim.connect(sender, switch, gigabit).unwrap();
            sender
        })
        .collect();
    Network { sim, senders, receiver }
}

impl Network {
    fn run_until(&mut self, deadline: Instant) {
        self.sim.run_until(deadline).unwrap();
    }

    fn receiver(&self) -> &Receiver {
        self.sim.node(self.receiver).unwrap()
    }

    fn sender(&self, n: usize) -> &Sender {
        self.sim.node(self.senders[n]).unwrap()
    }
}

const ENDLESS: u64 = 1 << 40;

/// Pages of a fast stream within a second, beside anyone who comes later.
fn fast_beside(others: Vec<Sender>) -> (u64, Network) {
    let mut senders = vec![Sender::new(0, ms(0), ENDLESS, true)];
    senders.extend(others);
    let mut network = network(senders);
    network.run_until(ms(1_100));
    (network.receiver().pages(mac(0), 100..1_100), network)
}

#[test]
fn a_throttled_stream_costs_a_fast_one_three_hundredths_at_most() {
    let (alone, _) = fast_beside(Vec::new());
    assert!(alone * PAGE > 110_000_000, "a full gigabit: {alone} pages");

    // Its turn is not over: within half a second of waiting nothing changes hands.
    let mut shared = network(vec![
        Sender::new(0, ms(590), ENDLESS, true),
        Sender::new(1, ms(600), ENDLESS, true),
    ]);
    shared.run_until(ms(1_080));
    let receiver = shared.receiver();
    let (fast, slow) = (receiver.pages(mac(0), 630..1_080), receiver.pages(mac(1), 630..1_080));
    let lost = 1.0 - fast as f64 / (alone as f64 * 0.45);
    println!("{fast} pages fast, {slow} slowly: {:.2} % less than alone", lost * 100.0);
    assert!(fast * 100 >= alone * 45 / 100 * 97, "{fast} of {alone} × 0.45");
    // And it is not starved: two megabytes per second, on the wire.
    let bytes = slow * PAGE_ON_THE_WIRE;
    assert!((800_000..=1_000_000).contains(&bytes), "{bytes} in 0.45 s");
    assert!(matches!(shared.sender(1).requester.mode(ms(1_080)), Mode::Slow));
    // Nearly all of the fast stream's pages arrive without anything between.
    let whole = receiver.in_one_piece[&mac(0)];
    let all = receiver.pages(mac(0), 0..1_080);
    assert!(whole * 100 >= all * 90, "{whole} of {all}");
}

#[test]
fn without_admission_control_they_share_and_tear_each_other() {
    let (alone, _) = fast_beside(Vec::new());
    let (beside, network) = fast_beside(vec![Sender::new(1, ms(50), ENDLESS, false)]);
    assert!(beside * 100 < alone * 60, "{beside} of {alone}");
    let whole = network.receiver().in_one_piece[&mac(0)];
    let all = network.receiver().pages(mac(0), 0..1_100);
    assert!(whole * 100 < all * 60, "{whole} of {all}");
}

#[test]
fn a_refused_transfer_switches_to_fast_in_mid_stream() {
    let fast = 25_000; // about 0.9 s
    let mut network =
        network(vec![Sender::new(0, ms(0), fast, true), Sender::new(1, ms(1), 20_000, true)]);
    network.run_until(ms(3_000));
    let (first, second) = (network.sender(0), network.sender(1));
    let fast_at = second.fast_at.expect("it got its turn");
    assert!(fast_at > ms(400) && fast_at < ms(620), "after one turn: {fast_at}");
    assert!(network.receiver().pages(mac(1), 0..400) > 150, "it had begun before");
    assert!(first.done_at.is_some() && second.done_at.is_some());
    assert_eq!(network.receiver().most_fast, 1);
    assert_eq!(network.receiver().gate.fast(ms(3_000)).count(), 0, "all is given back");
}

#[test]
fn none_of_many_starves_and_all_are_done() {
    const SENDERS: usize = 12;
    let senders = (0..SENDERS).map(|n| Sender::new(n, ms(n as u64), 4_000, true)).collect();
    let mut network = network(senders);
    network.run_until(ms(4_000));
    for n in 0..SENDERS {
        let sender = network.sender(n);
        let done = sender.done_at.unwrap_or_else(|| panic!("sender {n} is not done"));
        let (start, end) = (sender.start.as_nanos() / 1_000_000, done.as_nanos() / 1_000_000);
        let mut from = start.next_multiple_of(10);
        while from + 100 <= end {
            let pages = network.receiver().pages(mac(n), from..from + 100);
            assert!(pages >= 25, "sender {n}: {pages} pages in 100 ms from {from} ms");
            from += 100;
        }
    }
    assert_eq!(network.receiver().most_fast, 1);
    // 48,000 pages are 1.7 seconds of a gigabit: taking turns wastes next to nothing.
    let last = (0..SENDERS).filter_map(|n| network.sender(n).done_at).max().unwrap();
    assert!(last < ms(2_000), "{last}");
}
