//! Whether an address is another's: address conflict detection of IPv4 (RFC 5227) and duplicate
//! address detection of IPv6 (RFC 4862, section 5.4).
//!
//! An address is asked for before it is used. One that is in use is defended once, and given up
//! when another station says again, soon after, that it is its own.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use landfall_placement::{Duration, Instant, Random};

use crate::wire::Mac;

/// The times of RFC 5227, section 1.1: before the first probe, between two (and as much more
/// again at most), and after the last.
const PROBE_WAIT: u64 = 1_000;
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_SPREAD: u64 = 1_000;
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
const PROBES_V4: u8 = 3;
const ANNOUNCEMENTS_V4: u8 = 2;
/// RFC 4862, section 5.1, and RFC 4861, section 10.
const PROBES_V6: u8 = 1;
const RETRANSMIT_V6: Duration = Duration::from_secs(1);

/// What is to be done about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    /// Ask whether somebody has it.
    Probe(IpAddr),
    /// Nobody has: it is ours from now on.
    Claimed(IpAddr),
    /// Tell all that it is ours.
    Announce(IpAddr),
    /// Another station says that it is its own. It stays ours.
    Contested(IpAddr, Mac),
    /// The same, and it is not ours, or no longer.
    Lost(IpAddr, Mac),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Probing { left: u8 },
    Announcing { left: u8 },
    Held,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    address: IpAddr,
    state: State,
    due: Option<Instant>,
    /// It is given up where another insists.
    yields: bool,
    contested: Option<Instant>,
}

/// The addresses of an interface, and how sure they are.
#[derive(Debug, Default)]
pub struct Claims {
    claims: Vec<Claim>,
    steps: VecDeque<ClaimStep>,
}

impl Claims {
    /// No addresses.
    #[must_use]
    pub const fn new() -> Self {
        Self { claims: Vec::new(), steps: VecDeque::new() }
    }

    /// An address that is ours without a question, and is never given up.
    pub fn hold(&mut self, address: IpAddr) {
        self.forget(address);
        let (state, due) = (State::Held, None);
        self.claims.push(Claim { address, state, due, yields: false, contested: None });
    }

    /// All are told that an address is ours.
    pub fn announce(&mut self, address: IpAddr) {
        self.steps.push_back(ClaimStep::Announce(address));
    }

    /// An address that is to be ours, if nobody has it.
    pub fn claim(&mut self, now: Instant, random: &mut Random, address: IpAddr) {
        self.forget(address);
        let left = if address.is_ipv4() { PROBES_V4 } else { PROBES_V6 };
        let due = Some(now + Duration::from_millis(random.below(PROBE_WAIT)));
        let state = State::Probing { left };
        self.claims.push(Claim { address, state, due, yields: true, contested: None });
    }

    /// An address is wanted no longer.
    pub fn forget(&mut self, address: IpAddr) {
        self.claims.retain(|claim| claim.address != address);
    }

    /// Is it being asked whether somebody has this address?
    #[must_use]
    pub fn is_tentative(&self, address: IpAddr) -> bool {
        let is_it = |claim: &Claim| {
            claim.address == address && matches!(claim.state, State::Probing { .. })
        };
        self.claims.iter().any(is_it)
    }

    /// All that are being asked for.
    pub fn tentative(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let all = self.claims.iter();
        let asked = all.filter(|claim| matches!(claim.state, State::Probing { .. }));
        asked.map(|claim| claim.address)
    }

    /// Another station says that it has an address, or asks whether somebody has it before it
    /// takes it: that matters only while we ask, too.
    pub fn handle_claim(&mut self, now: Instant, address: IpAddr, station: Mac, is_probe: bool) {
        let at = self.claims.iter().position(|claim| claim.address == address);
        // That is nothing of ours.
        let Some(at) = at else { return };
        let claim = &mut self.claims[at];
        let is_recent = claim.contested.is_some_and(|then| now.since(then) < DEFEND_INTERVAL);
        match claim.state {
            State::Probing { .. } => {
                self.claims.remove(at);
                self.steps.push_back(ClaimStep::Lost(address, station));
            }
            // Its question is answered like any.
            _ if is_probe => {}
            _ if is_recent && claim.yields => {
                self.claims.remove(at);
                self.steps.push_back(ClaimStep::Lost(address, station));
            }
            // Said already, and neither side shall talk without an end.
            _ if is_recent => {}
            _ => {
                claim.contested = Some(now);
                self.steps.push_back(ClaimStep::Contested(address, station));
                if claim.yields {
                    self.steps.push_back(ClaimStep::Announce(address));
                }
            }
        }
    }

    /// What is to be done next.
    pub fn poll_step(&mut self, now: Instant, random: &mut Random) -> Option<ClaimStep> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        let is_due = |claim: &&mut Claim| claim.due.is_some_and(|due| due <= now);
        let claim = self.claims.iter_mut().find(is_due)?;
        let (address, is_v4) = (claim.address, claim.address.is_ipv4());
        match claim.state {
            State::Probing { left: 0 } => {
                let left = if is_v4 { ANNOUNCEMENTS_V4 } else { 0 };
                claim.state = State::Announcing { left };
                claim.due = Some(now);
                Some(ClaimStep::Claimed(address))
            }
            State::Probing { left } => {
                claim.state = State::Probing { left: left - 1 };
                let spread = Duration::from_millis(random.below(PROBE_SPREAD + 1));
                let pause = match (is_v4, left) {
                    (true, 1) => ANNOUNCE_WAIT,
                    (true, _) => PROBE_MIN + spread,
                    (false, _) => RETRANSMIT_V6,
                };
                claim.due = Some(now + pause);
                Some(ClaimStep::Probe(address))
            }
            State::Announcing { left } => {
                let left_then = left.saturating_sub(1);
                claim.due = (left_then > 0).then(|| now + ANNOUNCE_INTERVAL);
                let next = State::Announcing { left: left_then };
                claim.state = if left_then > 0 { next } else { State::Held };
                if left == 0 {
                    return self.poll_step(now, random);
                }
                Some(ClaimStep::Announce(address))
            }
            State::Held => {
                claim.due = None;
                None
            }
        }
    }

    /// When to call [`Claims::poll_step`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.steps.is_empty() {
            return Some(Instant::ZERO);
        }
        self.claims.iter().filter_map(|claim| claim.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: Mac = [2, 0, 0, 0, 0, 9];

    fn address(is_v4: bool) -> IpAddr {
        if is_v4 { [192, 0, 2, 1].into() } else { [0xfe80, 0, 0, 0, 0, 0, 0, 1].into() }
    }

    /// All steps up to this many milliseconds, with their times.
    fn run(claims: &mut Claims, from: u64, to: u64) -> Vec<(u64, ClaimStep)> {
        let mut random = Random::from_number(3);
        let (mut now, end) = (Instant::from_millis(from), Instant::from_millis(to));
        let mut steps = Vec::new();
        loop {
            while let Some(step) = claims.poll_step(now, &mut random) {
                steps.push((now.as_nanos() / 1_000_000, step));
            }
            match claims.poll_timeout() {
                Some(at) if at <= end => now = at.max(now),
                _ => return steps,
            }
        }
    }

    fn claimed(is_v4: bool) -> (Claims, Vec<(u64, ClaimStep)>) {
        let mut claims = Claims::new();
        claims.claim(Instant::ZERO, &mut Random::from_number(1), address(is_v4));
        assert!(claims.is_tentative(address(is_v4)));
        let steps = run(&mut claims, 0, 20_000);
        assert!(!claims.is_tentative(address(is_v4)));
        (claims, steps)
    }

    #[test]
    fn an_address_of_version_4_is_asked_for_three_times_and_told_twice() {
        let (ours, steps) = (address(true), claimed(true).1);
        let kinds: Vec<ClaimStep> = steps.iter().map(|(_, step)| *step).collect();
        let (probe, tell) = (ClaimStep::Probe(ours), ClaimStep::Announce(ours));
        assert_eq!(kinds, [probe, probe, probe, ClaimStep::Claimed(ours), tell, tell]);
        let at: Vec<u64> = steps.iter().map(|(at, _)| *at).collect();
        assert!(at[0] <= 1_000);
        assert!(
            (1_000..=2_000).contains(&(at[1] - at[0]))
                && (1_000..=2_000).contains(&(at[2] - at[1]))
        );
        assert_eq!([at[3] - at[2], at[4] - at[3], at[5] - at[4]], [2_000, 0, 2_000]);
    }

    #[test]
    fn an_address_of_version_6_is_asked_for_once() {
        let (ours, steps) = (address(false), claimed(false).1);
        let kinds: Vec<ClaimStep> = steps.iter().map(|(_, step)| *step).collect();
        assert_eq!(kinds, [ClaimStep::Probe(ours), ClaimStep::Claimed(ours)]);
        assert_eq!(steps[1].0 - steps[0].0, 1_000);
    }

    #[test]
    fn who_has_it_or_asks_for_it_too_keeps_us_from_it() {
        for is_v4 in [true, false] {
            for is_probe in [true, false] {
                let mut claims = Claims::new();
                claims.claim(Instant::ZERO, &mut Random::from_number(1), address(is_v4));
                run(&mut claims, 0, 900);
                let now = Instant::from_millis(900);
                claims.handle_claim(now, [9, 9, 9, 9].into(), OTHER, false);
                claims.handle_claim(now, address(is_v4), OTHER, is_probe);
                let steps = run(&mut claims, 900, 20_000);
                assert_eq!(steps, [(900, ClaimStep::Lost(address(is_v4), OTHER))]);
            }
        }
    }

    #[test]
    fn an_address_is_defended_once_and_then_given_up() {
        let (mut claims, _) = claimed(true);
        let ours = address(true);
        let say = |claims: &mut Claims, at: u64, is_probe| {
            claims.handle_claim(Instant::from_millis(at), ours, OTHER, is_probe);
            let steps = run(claims, at, at + 100);
            steps.into_iter().map(|(_, step)| step).collect::<Vec<_>>()
        };
        let defended = [ClaimStep::Contested(ours, OTHER), ClaimStep::Announce(ours)];
        assert_eq!(say(&mut claims, 30_000, true), [], "a question is answered by ARP");
        assert_eq!(say(&mut claims, 30_000, false), defended);
        assert_eq!(say(&mut claims, 40_000, false), defended, "that was long ago");
        assert_eq!(say(&mut claims, 49_999, false), [ClaimStep::Lost(ours, OTHER)]);
        assert_eq!(say(&mut claims, 50_000, false), []);
    }

    #[test]
    fn what_was_configured_is_never_given_up_and_the_user_is_told() {
        let (mut claims, ours) = (Claims::new(), address(true));
        claims.hold(ours);
        for at in [0, 5_000, 9_999] {
            claims.handle_claim(Instant::from_millis(at), ours, OTHER, false);
        }
        assert_eq!(run(&mut claims, 0, 20_000), [(0, ClaimStep::Contested(ours, OTHER))]);
    }
}
