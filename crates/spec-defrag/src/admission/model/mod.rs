//! A gate and its senders under any schedule of a bad network, beside a naive judge.
//!
//! Bytes decide everything: how many senders there are, what they do, which frames are
//! lost, repeated, delayed or forged. Property tests and the fuzz target share it.
//!
//! What must hold, judged from outside: from the frames that a gate sent, and from what
//! the senders say of themselves.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, Instant, Random, Refusal};
use landfall_testkit::model::{Choices, Findings};

use self::world::{Fault, World};
use super::frame::{ControlFrame, ETHERTYPE, MAGIC, Mac, Message, Nonce, VERSION, is_control};
use super::{Allowance, Gate, GateConfig, Mode, Requester, RequesterConfig};

mod world;

/// Short times and long ones, up to two seconds.
fn time(choices: &mut Choices<'_>) -> Duration {
    let (value, scale) = (u64::from(choices.byte()) + 1, choices.below(4) as u32);
    Duration::from_micros(value * 20_u64.pow(scale))
}

/// Runs what the bytes say, then lets everything come right, and gives what broke a rule.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let senders = 1 + choices.below(8);
    let streams = 1 + choices.below(3) as u16;
    let mut world = World::new(senders, streams, choices.byte());
    while !choices.is_over() && world.is_fine() {
        step(&mut world, &mut choices);
    }
    world.come_right();
    world.failures()
}

fn step(world: &mut World, choices: &mut Choices<'_>) {
    let who = choices.below(world.senders());
    match choices.below(16) {
        0..=3 => world.run_for(time(choices)),
        4 => world.ask(who),
        5 => world.begin(who, u64::from(choices.byte()) << choices.below(16)),
        6 => world.end(who, choices.below(4)),
        7..=8 => {
            let (packets, len) = (choices.below(32), u64::from(choices.byte()) * 257);
            world.send(who, packets, len);
        }
        9 => world.next_frame(Fault::Lost),
        10 => world.next_frame(Fault::Twice(time(choices))),
        11 => world.next_frame(Fault::Late(time(choices))),
        12 => world.replay(choices.below(256), time(choices)),
        13 => {
            let mut random = Random::from_number(choices.byte().into());
            world.forge(&mut random);
        }
        14 => world.kill(who),
        _ if choices.below(8) == 0 => world.restart_gate(),
        _ => world.revive(who),
    }
}

/// What breaks a rule about one frame: the bytes as they are, and made to begin like a
/// control frame, so that they get deep.
#[must_use]
pub fn misreadings(bytes: &[u8]) -> Vec<String> {
    let mut failures = Vec::new();
    check(bytes, &mut failures);
    let mut plain = bytes.to_vec();
    for (at, part) in [(12, &ETHERTYPE.to_be_bytes()[..]), (14, &MAGIC), (18, &[VERSION])] {
        if let Some(place) = plain.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
    }
    check(&plain, &mut failures);
    if let Some((addresses, rest)) = plain.split_at_checked(12) {
        let tag = [0x81, 0, bytes[0] & 0xe0, 0];
        check(&[addresses, &tag, rest].concat(), &mut failures);
    }
    failures
}

fn check(bytes: &[u8], failures: &mut Vec<String>) {
    let parsed = ControlFrame::parse(bytes);
    match parsed {
        Ok(frame) => {
            let again = ControlFrame::parse(&frame.to_bytes());
            if again != Ok(frame) || !is_control(bytes) {
                failures.push(format!("{frame:?} became {again:?}"));
            }
        }
        Err(Refusal::Truncated | Refusal::Malformed | Refusal::Unsupported) => {}
        Err(other) => failures.push(format!("{other} is not to be seen in a frame")),
    }
    deliver(bytes, parsed, failures);
}

fn deliver(bytes: &[u8], parsed: Result<ControlFrame, Refusal>, failures: &mut Vec<String>) {
    let (sender, receiver) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (to, from) = parsed.map_or((receiver, sender), |frame| (frame.to, frame.from));
    let now = Instant::from_millis(1);
    // Both are whom the frame names, so that no address stops it.
    if let Ok(mut gate) = Gate::new(GateConfig::new(to), [1; 32]) {
        let taken = gate.handle_frame(now, bytes);
        let answers = core::iter::from_fn(|| gate.poll_transmit(now)).count();
        if answers > 1 || (parsed.is_err() && (taken.is_ok() || answers > 0)) {
            failures.push(format!("{parsed:?}: {taken:?} with {answers} answers"));
        }
    }
    if let Ok(mut requester) = Requester::new(RequesterConfig::new(to, from), [2; 32]) {
        let _ = requester.ask(now);
        let _ = requester.poll_transmit(now);
        let taken = requester.handle_frame(now, bytes);
        if taken.is_ok() || requester.mode(now) != Mode::Slow || requester.poll_event().is_some() {
            failures.push(format!("{parsed:?}: nobody could have known the nonce"));
        }
    }
}

/// This many sendings are looked back at.
const LOOK_BACK: usize = 128;

/// The longest packet that a world sends.
const LONGEST_PACKET: u64 = 65_535;

/// A naive account of who was told what.
#[derive(Debug, Default)]
struct Judge {
    findings: Findings,
    /// Up to when each sender was ever granted something.
    granted: BTreeMap<Mac, Instant>,
    /// Who was told a place in the queue, in that order.
    placed: Vec<(Mac, Nonce)>,
    /// What each sender sent in slow mode.
    slow: BTreeMap<Mac, Vec<(Instant, u64)>>,
    /// Whether all frames arrived as they were sent, and nobody died: then the order
    /// of the queue is exact.
    orderly: bool,
}

impl Judge {
    fn new(orderly: bool) -> Self {
        Self { orderly, ..Self::default() }
    }

    fn find(&mut self, what: String) {
        self.findings.fail(what);
    }

    /// The gate sends a frame.
    fn gate_sends(&mut self, now: Instant, bytes: &[u8], streams: u16) {
        let frame = match ControlFrame::parse(bytes) {
            Ok(frame) => frame,
            Err(refusal) => return self.find(format!("the gate sent a bad frame: {refusal}")),
        };
        let name = (frame.to, frame.nonce);
        match frame.message {
            Message::FastAck { time, .. } => {
                let until = self.granted.entry(frame.to).or_default();
                *until = (*until).max(now + time);
                if let Some(at) = self.placed.iter().position(|placed| *placed == name) {
                    if self.orderly && at >= usize::from(streams) {
                        self.find(format!("{now}: {:?} was served before {at} others", frame.to));
                    }
                    self.placed.remove(at);
                }
            }
            Message::FastNAck { position: Some(_), .. } if !self.placed.contains(&name) => {
                self.placed.push(name);
            }
            Message::FastNAck { .. } => {}
            _ => self.find(format!("the gate sent {:?}", frame.message)),
        }
    }

    /// The gate is told that a lease or a place is not wanted any more.
    fn gate_hears(&mut self, bytes: &[u8]) {
        if let Ok(ControlFrame { from, nonce, message: Message::Release { .. }, .. }) =
            ControlFrame::parse(bytes)
        {
            self.placed.retain(|placed| *placed != (from, nonce));
        }
    }

    /// The gate starts again: nobody has a place.
    fn gate_forgets(&mut self) {
        self.placed.clear();
    }

    /// After each thing that happened.
    fn check<'a>(
        &mut self,
        now: Instant,
        gate: &Gate,
        streams: u16,
        gate_knows: bool,
        senders: impl Iterator<Item = (Mac, &'a Requester)>,
    ) {
        let leases = gate.fast(now).count();
        if leases > usize::from(streams) {
            self.find(format!("{now}: {leases} leases on {streams} streams"));
        }
        let mut believers = 0;
        for (mac, requester) in senders {
            let Mode::Fast { until } = requester.mode(now) else { continue };
            believers += 1;
            let granted = self.granted.get(&mac).copied().unwrap_or_default();
            if until > granted {
                self.find(format!("{now}: {mac:?} believes until {until}, had {granted}"));
            }
            let has = gate.fast(now).any(|(fast, known)| fast == mac && known >= until);
            if gate_knows && !has {
                self.find(format!("{now}: {mac:?} believes in a lease that the gate has not"));
            }
        }
        if believers > usize::from(streams) {
            self.find(format!("{now}: {believers} believe in {streams} streams"));
        }
    }

    /// What a sender may send is never nothing for ever.
    fn check_allowance(
        &mut self,
        now: Instant,
        config: &RequesterConfig,
        requester: &Requester,
    ) -> Allowance {
        let allowance = requester.allowance(now);
        match allowance {
            Allowance { bytes: 0, again: Some(again), .. } => {
                let debt = LONGEST_PACKET * 1_000_000_000 / config.slow_rate + 1_000;
                let most = now + config.delay.max(core::time::Duration::from_nanos(debt));
                if again <= now || again > most {
                    self.find(format!("{now}: nothing before {again}"));
                }
                if requester.allowance(again).bytes == 0 {
                    self.find(format!("{now}: nothing at {again} either"));
                }
            }
            Allowance { bytes: 0, again: None, .. } => {
                self.find(format!("{now}: nothing, for ever"));
            }
            _ => {}
        }
        allowance
    }

    /// A sender has sent in slow mode: never more than the rate and one burst.
    fn sent_slowly(&mut self, now: Instant, mac: Mac, bytes: u64, config: &RequesterConfig) {
        let sent = self.slow.entry(mac).or_default();
        if sent.len() == LOOK_BACK {
            sent.remove(0);
        }
        sent.push((now, bytes));
        let (mut sum, mut worst) = (0, 0);
        for (at, bytes) in sent.iter().rev() {
            sum += bytes;
            let nanos = u128::from(config.slow_rate) * now.since(*at).as_nanos();
            let may = (nanos / 1_000_000_000) as u64 + u64::from(config.slow_burst);
            worst = worst.max(sum.saturating_sub(may + LONGEST_PACKET + 1));
        }
        if worst > 0 {
            self.find(format!("{now}: {mac:?} sent {worst} bytes too much in slow mode"));
        }
    }

    /// A sender begins anew: its bucket is full again.
    fn forget(&mut self, mac: Mac) {
        self.slow.remove(&mac);
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::trials::{input, rounds, try_inputs};

    use super::*;

    #[test]
    fn no_sequence_of_calls_and_faults_breaks_a_rule() {
        try_inputs(0..rounds(400, 50_000), 0..2_000, disagreements);
    }

    #[test]
    fn no_bytes_are_misread() {
        try_inputs(0..4_000, 0..80, misreadings);
    }

    #[test]
    fn invariant_6_two_runs_are_the_same() {
        let bytes = input(1, 0..4_000);
        let run = || {
            let mut choices = Choices::new(&bytes);
            let mut world = World::new(5, 2, 9);
            while !choices.is_over() {
                step(&mut world, &mut choices);
            }
            world.digest()
        };
        assert_eq!(run(), run());
    }
}
