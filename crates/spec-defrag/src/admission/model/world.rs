//! The network of a model: one gate, some senders, frames under way.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, Instant, Random};

use super::super::frame::{ControlFrame, FRAME_LEN, Lease, Mac, Message, Nonce, Ticket};
use super::super::{Gate, GateConfig, Mode, Requester, RequesterConfig, TransferId};
use super::{Judge, LONGEST_PACKET};

const GATE: Mac = [2, 0, 0, 0, 1, 0];
const DELAY: Duration = Duration::from_micros(15);

/// Frames that are remembered, to be sent again.
const REMEMBERED: usize = 64;

/// So much at one moment is going round in circles.
const MOST_AT_ONCE: u32 = 20_000;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Lost,
    Twice(Duration),
    Late(Duration),
}

#[derive(Debug)]
struct Sender {
    config: RequesterConfig,
    /// `None`: it is dead.
    requester: Option<Requester>,
    transfers: Vec<TransferId>,
    /// Whether one of them asks.
    asks: bool,
    /// Whether it was fast since that was looked at.
    was_fast: bool,
}

#[derive(Debug)]
pub(super) struct World {
    now: Instant,
    random: Random,
    gate_config: GateConfig,
    gate: Gate,
    /// Up to when there may be leases of a gate that was there before.
    forgotten_until: Instant,
    senders: Vec<Sender>,
    under_way: BTreeMap<(Instant, u64), (Mac, [u8; FRAME_LEN])>,
    count: u64,
    faults: VecDeque<Fault>,
    remembered: VecDeque<(Mac, [u8; FRAME_LEN])>,
    judge: Judge,
}

fn mac(sender: usize) -> Mac {
    [2, 0, 0, 0, 0, sender as u8]
}

impl World {
    pub(super) fn new(senders: usize, streams: u16, variant: u8) -> Self {
        let mut random = Random::from_number(variant.into());
        let mut gate_config = GateConfig::new(GATE);
        gate_config.streams = streams;
        gate_config.waiting = if variant & 1 == 0 { 16 } else { 3 };
        let senders = (0..senders).map(|n| {
            let mut config = RequesterConfig::new(mac(n), GATE);
            config.silent_retry = Duration::from_millis(200);
            config.delay = Duration::from_millis(if variant & 2 == 0 { 0 } else { 30 });
            let requester = Requester::new(config, random.fork()).ok();
            Sender { config, requester, transfers: Vec::new(), asks: false, was_fast: false }
        });
        let senders: Vec<_> = senders.collect();
        let gate = Gate::new(gate_config, random.fork()).expect("its configuration is good");
        Self {
            now: Instant::from_millis(1),
            random,
            gate_config,
            gate,
            forgotten_until: Instant::ZERO,
            senders,
            under_way: BTreeMap::new(),
            count: 0,
            faults: VecDeque::new(),
            remembered: VecDeque::new(),
            // A queue that is full takes in who comes first when there is room.
            judge: Judge::new(variant & 1 == 0),
        }
    }

    pub(super) fn senders(&self) -> usize {
        self.senders.len()
    }

    pub(super) fn is_fine(&self) -> bool {
        self.judge.findings.failures().is_empty()
    }

    pub(super) fn failures(self) -> Vec<String> {
        self.judge.findings.into_story()
    }

    #[cfg(test)]
    pub(super) fn digest(&self) -> (u64, u64, Instant) {
        (self.judge.findings.digest(), self.count, self.now)
    }
}

/// What happens.
impl World {
    fn with(
        &mut self,
        who: usize,
        act: impl FnOnce(Instant, &mut Requester, &mut Vec<TransferId>),
    ) {
        let sender = &mut self.senders[who];
        if let Some(requester) = &mut sender.requester {
            act(self.now, requester, &mut sender.transfers);
        }
        self.drain();
    }

    pub(super) fn ask(&mut self, who: usize) {
        self.senders[who].asks |= self.senders[who].requester.is_some();
        self.with(who, |now, requester, transfers| transfers.extend(requester.ask(now)));
    }

    pub(super) fn begin(&mut self, who: usize, bytes: u64) {
        self.with(who, |now, requester, transfers| transfers.extend(requester.begin(now, bytes)));
    }

    /// Ends one of its transfers; a number too high ends the last one twice.
    pub(super) fn end(&mut self, who: usize, which: usize) {
        self.senders[who].asks = false;
        self.with(who, |now, requester, transfers| {
            let Some(last) = transfers.len().checked_sub(1) else { return };
            let transfer = transfers.swap_remove(which.min(last));
            requester.end(now, transfer);
            if which > last {
                requester.end(now, transfer);
            }
        });
    }

    /// Sends as much as it may, up to this many packets.
    pub(super) fn send(&mut self, who: usize, packets: usize, len: u64) {
        let Sender { config, requester: Some(requester), .. } = &mut self.senders[who] else {
            return;
        };
        for _ in 0..packets {
            let allowance = self.judge.check_allowance(self.now, config, requester);
            if allowance.bytes == 0 {
                break;
            }
            let len = len.min(LONGEST_PACKET);
            if allowance.mode == Mode::Slow {
                self.judge.sent_slowly(self.now, config.address, len, config);
            }
            requester.handle_sent(self.now, len);
        }
        self.drain();
    }

    pub(super) fn next_frame(&mut self, fault: Fault) {
        self.judge.orderly = false;
        if self.faults.len() < REMEMBERED {
            self.faults.push_back(fault);
        }
    }

    /// Somebody on the wire sends again what was sent before.
    pub(super) fn replay(&mut self, which: usize, after: Duration) {
        self.judge.orderly = false;
        let count = self.remembered.len().max(1);
        if let Some((to, bytes)) = self.remembered.get(which % count).copied() {
            self.deliver_at(self.now + after, to, bytes);
        }
    }

    /// Somebody who hears nothing sends what looks right.
    pub(super) fn forge(&mut self, random: &mut Random) {
        self.judge.orderly = false;
        let sender = mac(random.below(self.senders.len() as u64) as usize);
        let nonce = Nonce::from_number(random.next_u64());
        let (number, time) = (random.next_u64(), Duration::from_micros(random.below(1 << 32)));
        let lease = Lease::from_number(number);
        let ticket = Some(Ticket::from_number(number));
        let (to_gate, message) = match random.below(7) {
            0 => (true, Message::FastReq { ticket: None }),
            1 => (true, Message::FastReq { ticket }),
            2 => (true, Message::Refresh { lease }),
            3 => (true, Message::Release { what: lease.0 }),
            4 => (false, Message::FastAck { lease, time }),
            5 => (false, Message::FastNAck { ticket, position: Some(0), wait: Duration::ZERO }),
            _ => (false, Message::FastNAck { ticket: None, position: None, wait: time }),
        };
        let (to, from) = if to_gate { (GATE, sender) } else { (sender, GATE) };
        let serial = random.below(16) as u32;
        let frame = ControlFrame { to, from, priority: None, nonce, serial, message };
        self.deliver_at(self.now, to, frame.to_bytes());
    }

    pub(super) fn kill(&mut self, who: usize) {
        self.judge.orderly = false;
        let sender = &mut self.senders[who];
        sender.requester = None;
        sender.asks = false;
        sender.transfers.clear();
    }

    /// Starts a dead one again. It knows nothing of before.
    pub(super) fn revive(&mut self, who: usize) {
        let seed = self.random.fork();
        let sender = &mut self.senders[who];
        if sender.requester.is_none() {
            sender.requester = Requester::new(sender.config, seed).ok();
            self.judge.forget(sender.config.address);
        }
    }

    pub(super) fn restart_gate(&mut self) {
        self.judge.orderly = false;
        self.judge.gate_forgets();
        let opens = self.now + self.gate_config.lease;
        self.forgotten_until = opens;
        let gate = Gate::new(self.gate_config, self.random.fork());
        self.gate = gate.expect("its configuration is good").closed_until(opens);
    }
}

/// Time and the wire.
impl World {
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        let (mut at_once, mut moment) = (0, self.now);
        self.drain();
        while let Some(next) = self.next_moment().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            at_once = if self.now == moment { at_once + 1 } else { 0 };
            moment = self.now;
            if at_once > MOST_AT_ONCE {
                return self.judge.find(format!("{moment}: it goes round in circles"));
            }
            self.happen();
        }
        self.now = end;
    }

    fn next_moment(&self) -> Option<Instant> {
        let senders = self.senders.iter().filter_map(|sender| sender.requester.as_ref());
        let timers = senders.filter_map(Requester::poll_timeout).chain(self.gate.poll_timeout());
        timers.chain(self.under_way.first_key_value().map(|((at, _), _)| *at)).min()
    }

    fn happen(&mut self) {
        if let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, bytes) = entry.remove();
            self.arrive(to, &bytes);
        } else {
            self.gate.handle_timeout(self.now);
            for sender in &mut self.senders {
                if let Some(requester) = &mut sender.requester {
                    requester.handle_timeout(self.now);
                }
            }
        }
        self.drain();
    }

    fn arrive(&mut self, to: Mac, bytes: &[u8]) {
        if to == GATE {
            self.judge.gate_hears(bytes);
            let _ = self.gate.handle_frame(self.now, bytes);
        } else if let Some(sender) = self.senders.get_mut(usize::from(to[5]))
            && let Some(requester) = &mut sender.requester
        {
            let _ = requester.handle_frame(self.now, bytes);
        }
    }

    /// Takes out all that there is, and looks at all that must hold.
    fn drain(&mut self) {
        let now = self.now;
        while let Some(frame) = self.gate.poll_transmit(now) {
            self.judge.gate_sends(now, &frame, self.gate_config.streams);
            self.launch(frame);
        }
        while self.gate.poll_event().is_some() {}
        for who in 0..self.senders.len() {
            while let Some(frame) =
                self.senders[who].requester.as_mut().and_then(|one| one.poll_transmit(now))
            {
                self.launch(frame);
            }
            let sender = &mut self.senders[who];
            let Some(requester) = &mut sender.requester else { continue };
            while requester.poll_event().is_some() {}
            sender.was_fast |= matches!(requester.mode(now), Mode::Fast { .. });
        }
        let senders = self
            .senders
            .iter()
            .filter_map(|sender| Some((sender.config.address, sender.requester.as_ref()?)));
        let gate_knows = now >= self.forgotten_until;
        self.judge.check(now, &self.gate, self.gate_config.streams, gate_knows, senders);
    }

    fn launch(&mut self, frame: [u8; FRAME_LEN]) {
        let to = core::array::from_fn(|n| frame[n]);
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((to, frame));
        let arrives = self.now + DELAY;
        match self.faults.pop_front() {
            Some(Fault::Lost) => {}
            Some(Fault::Late(time)) => self.deliver_at(arrives + time, to, frame),
            Some(Fault::Twice(time)) => {
                self.deliver_at(arrives, to, frame);
                self.deliver_at(arrives + time, to, frame);
            }
            None => self.deliver_at(arrives, to, frame),
        }
    }

    fn deliver_at(&mut self, at: Instant, to: Mac, frame: [u8; FRAME_LEN]) {
        self.count += 1;
        self.judge.findings.add(&frame);
        self.under_way.insert((at, self.count), (to, frame));
    }
}

/// The end.
impl World {
    /// The network is good from now on: everyone who asks gets a turn within the bound,
    /// and when nobody wants anything any more, nothing is left.
    pub(super) fn come_right(&mut self) {
        self.faults.clear();
        for sender in &mut self.senders {
            sender.was_fast = false;
        }
        let GateConfig { turn, lease, reserve, ask_again, .. } = self.gate_config;
        let one = turn + lease + reserve + ask_again * 4;
        // Who finds no place in a full queue is promised nothing.
        let places = usize::from(self.gate_config.waiting + self.gate_config.streams);
        let all_have_places = self.senders.len() <= places;
        let silent = self.senders[0].config.silent_retry;
        self.run_for(one * (self.senders.len() as u32 + 1) + silent + Duration::from_secs(3));
        for who in 0..self.senders.len() {
            let Sender { asks, was_fast, .. } = self.senders[who];
            if asks && !was_fast && all_have_places {
                self.judge.find(format!("{}: sender {who} got no turn", self.now));
            }
            while !self.senders[who].transfers.is_empty() {
                self.end(who, 0);
            }
        }
        self.run_for(Duration::from_secs(2));
        let (now, left) = (self.now, self.gate.fast(self.now).count() + self.gate.waiting());
        if left > 0 || self.next_moment().is_some() {
            self.judge.find(format!("{now}: {left} leases and places are left"));
        }
        for who in 0..self.senders.len() {
            let mode = self.senders[who].requester.as_ref().map(|one| one.mode(now));
            if !matches!(mode, None | Some(Mode::Plain)) {
                self.judge.find(format!("{now}: sender {who} is left in {mode:?}"));
            }
        }
    }
}
