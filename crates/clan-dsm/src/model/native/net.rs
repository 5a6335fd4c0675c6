//! The hosts, the switches, and the lines between them.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Instant, Random};
use landfall_testkit::model::Choices;

use super::{Host, packet};
use crate::address::{Address, HostId, Kind, WORD};
use crate::cookie::Cookie;
use crate::native::switch::{Attachment, Config, Event, Loss, PortId, Switch};
use crate::native::wire::Trailer;
use crate::native::{Fifo, HEADER_WORDS, Word};

/// The group that some hosts are members of.
const GROUP: u16 = 100;

/// One end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Host(usize),
    Port(usize, PortId),
}

/// A unit on its way.
struct Unit {
    bytes: Vec<u8>,
    /// A bit of it was flipped: another flip might hide the first from a parity.
    is_changed: bool,
}

impl Unit {
    const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, is_changed: false }
    }
}

/// A line, and what is on it towards each end.
struct Wire {
    ends: [End; 2],
    towards: [VecDeque<Unit>; 2],
}

/// What somebody wrote.
struct Written {
    from: u16,
    at: Address,
    word: Word,
}

pub(super) struct Net {
    now: Instant,
    pub(super) hosts: Vec<Host>,
    switches: Vec<Switch>,
    wires: Vec<Wire>,
    trailer: Trailer,
    unit: u32,
    group: Option<Cookie>,
    written: Vec<Written>,
    /// Words of units that nobody sent, which may look like anybody's.
    made_up: Vec<Word>,
    /// Nothing is damaged in this run: every word must come.
    is_calm: bool,
    /// Something was damaged, unplugged or made up: words may be missing.
    is_damaged: bool,
    failures: Vec<String>,
}

impl Net {
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        let trailer = choices.pick(&[Trailer::None, Trailer::Parity, Trailer::Crc32c]);
        let input = choices.pick(&[Fifo::LEAST, 40, 128, 512]);
        let output = choices.pick(&[2 * (Fifo::LEAST + HEADER_WORDS), 64, 256]);
        let turn = choices.pick(&[Fifo::LEAST, 20, 64]);
        let config = Config {
            ports: 5,
            input,
            output,
            // The longest turn of a switch that is so small.
            turn: turn.min(output / 2 - HEADER_WORDS),
            events: 8,
            ..Config::default()
        };
        let unit = choices.pick(&[160, 400, 1_500, 9_000]);
        let room = choices.pick(&[Fifo::LEAST, 30, 100, 1_000]);
        let (count, is_tree) = (2 + choices.below(3), choices.flag());
        let switches = if is_tree { 2 } else { 1 };
        let lens = [8 * 37, 1021, 24];
        let mut net = Self {
            now: Instant::ZERO,
            hosts: (0..count).map(|n| Host::new(n as u16, room, &lens)).collect(),
            switches: (0..switches)
                .map(|n| Switch::new(config, Random::from_number(n)).unwrap())
                .collect(),
            wires: Vec::new(),
            trailer,
            unit,
            group: None,
            written: Vec::new(),
            made_up: Vec::new(),
            is_calm: choices.flag(),
            is_damaged: false,
            failures: Vec::new(),
        };
        net.connect();
        net.join(choices.byte());
        net.settle();
        net
    }

    /// Host `n` is at port `n`, of one switch or the other; port 4 is between them.
    fn connect(&mut self) {
        let line = Attachment::Up { unit: self.unit, trailer: self.trailer };
        for n in 0..self.hosts.len() {
            let port = PortId(n as u8);
            let own = n % self.switches.len();
            self.plug([End::Host(n), End::Port(own, port)]);
            for (index, switch) in self.switches.iter_mut().enumerate() {
                let host = HostId::new(n as u16).unwrap_or_default();
                let way = if index == own { port } else { PortId(4) };
                let routed = switch.route(host, way);
                debug_assert!(routed.is_ok());
                if index == own {
                    let up = switch.handle_line(self.now, port, line);
                    debug_assert!(up.is_ok());
                }
            }
        }
        if let [first, second] = &mut self.switches[..] {
            for switch in [first, second] {
                let up = switch.handle_line(self.now, PortId(4), line);
                debug_assert!(up.is_ok());
            }
            self.plug([End::Port(0, PortId(4)), End::Port(1, PortId(4))]);
        }
    }

    fn plug(&mut self, ends: [End; 2]) {
        self.wires.push(Wire { ends, towards: [VecDeque::new(), VecDeque::new()] });
    }

    /// Makes some hosts members of the group.
    fn join(&mut self, members: u8) {
        let group = HostId::new(GROUP).unwrap_or_default();
        self.group = self.hosts[0].found(group, 200);
        let Some(cookie) = self.group else { return };
        for n in (0..self.hosts.len()).filter(|n| members & 1 << n != 0) {
            self.hosts[n].join(&cookie, 1);
            let own = n % self.switches.len();
            let port = PortId(n as u8);
            for (index, switch) in self.switches.iter_mut().enumerate() {
                let way = if index == own { port } else { PortId(4) };
                let joined = switch.join(group, way);
                debug_assert!(joined.is_ok());
            }
        }
    }

    pub(super) const fn group_cookie(&self) -> Option<Cookie> {
        self.group
    }

    /// A host wants to send this; each word says which it is, over all hosts.
    pub(super) fn write(&mut self, from: usize, at: Address, words: u32) {
        let Some(burst) = packet(at, words) else { return };
        if self.written.len() > 100_000 {
            return;
        }
        let first = self.written.len();
        let host = from as u64;
        let word = move |n: usize| (((first + n + 1) as u64) << 8 | host).to_le_bytes();
        for n in 0..words {
            let Some(at) = at.advanced(n) else { return };
            self.written.push(Written { from: from as u16, at, word: word(n as usize) });
        }
        self.hosts[from].send(burst, (0..words as usize).map(word));
    }

    // ---- What moves ----------------------------------------------------------

    /// One end of a line sends a unit. Returns whether it had any.
    pub(super) fn push(&mut self, line: usize, back: bool, most: u32) -> bool {
        let line = line % self.wires.len();
        let from = self.wires[line].ends[usize::from(back)];
        let mut unit = Vec::new();
        let had = match from {
            End::Host(n) => {
                let fits = (self.unit - self.trailer.len() as u32 - Address::LEN as u32) / WORD;
                let had = self.hosts[n].poll_unit(self.now, &mut unit, most.clamp(1, fits));
                if had {
                    self.trailer.seal(&mut unit);
                }
                had
            }
            End::Port(switch, port) => self.switches[switch].poll_unit(self.now, port, &mut unit),
        };
        if had {
            if unit.len() > self.unit as usize {
                self.failures.push(format!("{from:?} sent {} bytes at once", unit.len()));
            }
            self.wires[line].towards[usize::from(!back)].push_back(Unit::new(unit));
        }
        had
    }

    /// A unit reaches one end of a line. Returns whether there was any.
    pub(super) fn pull(&mut self, line: usize, back: bool) -> bool {
        let line = line % self.wires.len();
        let Some(Unit { bytes: unit, .. }) =
            self.wires[line].towards[usize::from(back)].pop_front()
        else {
            return false;
        };
        match self.wires[line].ends[usize::from(back)] {
            End::Host(n) => match self.trailer.open(&unit) {
                Ok(content) => self.hosts[n].handle_unit(self.now, content),
                Err(_) => self.hosts[n].handle_damage(self.now),
            },
            End::Port(switch, port) => {
                let result = self.switches[switch].handle_unit(self.now, port, &unit);
                if let Err(refusal) = result
                    && !self.is_damaged
                {
                    self.failures.push(format!("the switch refused a unit: {refusal}"));
                }
            }
        }
        true
    }

    /// Everything moves by one unit. Returns whether anything did.
    pub(super) fn go_on(&mut self) -> bool {
        let mut moved = false;
        for line in 0..self.wires.len() {
            for back in [false, true] {
                moved |= self.push(line, back, u32::MAX);
                moved |= self.pull(line, !back);
            }
        }
        moved
    }

    /// Until nothing moves any more.
    pub(super) fn settle(&mut self) {
        let mut left = 1_000_000u32;
        while self.go_on() {
            left -= 1;
            if left == 0 {
                return self.failures.push("it goes on for ever".into());
            }
        }
    }

    // ---- What is done to it --------------------------------------------------

    pub(super) fn stop(&mut self, host: usize, stopped: bool) {
        self.hosts[host].link.hold(stopped);
    }

    pub(super) fn be_lazy(&mut self, host: usize, is_lazy: bool) {
        self.hosts[host].is_lazy = is_lazy;
        self.hosts[host].take();
    }

    /// A bit of a unit on a line is flipped; where nothing would notice, nothing is.
    pub(super) fn damage(&mut self, line: usize, back: bool, bit: u8) {
        if self.is_calm || self.trailer == Trailer::None {
            return;
        }
        let line = line % self.wires.len();
        let first = self.wires[line].towards[usize::from(back)].front_mut();
        if let Some(unit) = first.filter(|unit| !unit.bytes.is_empty() && !unit.is_changed) {
            let at = usize::from(bit >> 3) % unit.bytes.len();
            unit.bytes[at] ^= 1 << (bit & 7);
            unit.is_changed = true;
            self.is_damaged = true;
        }
    }

    /// A unit that nobody sent.
    pub(super) fn inject(&mut self, line: usize, back: bool, unit: &[u8]) {
        let line = line % self.wires.len();
        // A host believes what its switch says: only towards switches.
        if let (false, End::Port(..)) = (self.is_calm, self.wires[line].ends[usize::from(back)]) {
            self.is_damaged = true;
            let words = unit.get(Address::LEN..).unwrap_or_default().as_chunks().0;
            self.made_up.extend_from_slice(words);
            self.wires[line].towards[usize::from(back)].push_back(Unit::new(unit.into()));
        }
    }

    /// A line is taken out and plugged in again: what was on it is gone.
    pub(super) fn unplug(&mut self, line: usize) {
        if self.is_calm {
            return;
        }
        let line = line % self.wires.len();
        self.is_damaged = true;
        self.wires[line].towards.iter_mut().for_each(VecDeque::clear);
        let plugged = Attachment::Up { unit: self.unit, trailer: self.trailer };
        for end in self.wires[line].ends {
            match end {
                End::Host(n) => self.hosts[n].start(self.now),
                End::Port(switch, port) => {
                    let up = self.switches[switch].handle_line(self.now, port, plugged);
                    debug_assert!(up.is_ok());
                }
            }
        }
    }

    /// Time passes, up to the next timeout; patience may end.
    pub(super) fn wait(&mut self) {
        if self.is_calm {
            return;
        }
        let switches = self.switches.iter().filter_map(Switch::poll_timeout);
        let hosts = self.hosts.iter().filter_map(|host| host.link.poll_timeout());
        let Some(next) = switches.chain(hosts).map(|timeout| timeout.at).min() else { return };
        self.now = self.now.max(next);
        // Somebody may have waited too long.
        self.is_damaged = true;
        self.switches.iter_mut().for_each(|switch| switch.handle_timeout(self.now));
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
    }

    // ---- At the end ----------------------------------------------------------

    /// Everybody works again, and everything arrives.
    pub(super) fn finish(&mut self) {
        for n in 0..self.hosts.len() {
            self.stop(n, false);
            self.be_lazy(n, false);
        }
        self.settle();
        // Links that are still to begin repeat it; that needs time.
        for _ in 0..64 {
            let is_done = self.hosts.iter().all(|host| !host.wants_to_send());
            if is_done || self.is_calm {
                break;
            }
            self.wait();
            self.settle();
        }
        for host in &mut self.hosts {
            if host.wants_to_send() {
                host.failures.push("a deadlock: it cannot send".into());
            }
            host.check();
        }
        self.check_order();
        while let Some(event) = self.switches.iter_mut().find_map(Switch::poll_event) {
            // A group may have nobody but the sender in it.
            let is_loss = match event {
                Event::Lost { loss: Loss::NoRoute { host, .. }, .. } => host.number() != GROUP,
                Event::Lost { .. } => true,
                _ => false,
            };
            if is_loss && !self.is_damaged {
                self.failures.push(format!("{event:?}"));
            }
        }
    }

    /// Of each sender, words came in the order in which they were written.
    fn check_order(&mut self) {
        for (n, host) in self.hosts.iter().enumerate() {
            for from in 0..self.hosts.len() as u16 {
                let is_for = |written: &&Written| {
                    written.from == from
                        && match written.at.kind {
                            Kind::Multicast => n != usize::from(from) && self.is_member(n),
                            _ => usize::from(written.at.host.number()) == n,
                        }
                };
                let mut expected = self.written.iter().filter(is_for);
                let is_from = |(_, word): &&(Address, Word)| {
                    u16::from(word[0]) == from && !self.made_up.contains(word)
                };
                let came = host.came.iter().filter(is_from);
                for (at, word) in came {
                    let is_it = |written: &Written| written.at == *at && written.word == *word;
                    let found = if self.is_damaged {
                        expected.any(is_it)
                    } else {
                        expected.next().is_some_and(is_it)
                    };
                    if !found {
                        let what =
                            format!("host {n} from {from}: {word:?} at {at:?} is out of order");
                        return self.failures.push(what);
                    }
                }
                if !self.is_damaged && expected.next().is_some() {
                    self.failures.push(format!("host {n}: words of {from} are missing"));
                }
            }
        }
    }

    fn is_member(&self, host: usize) -> bool {
        self.hosts[host].is_member
    }

    pub(super) fn failures(&self) -> Vec<String> {
        let hosts = self.hosts.iter().flat_map(|host| host.failures.iter());
        self.failures.iter().chain(hosts).cloned().collect()
    }
}
