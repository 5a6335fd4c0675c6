//! Hosts around one switch or two, and whatever may happen between them: the
//! bursts are split, joined and interleaved by the switches, and every host is
//! compared with the naive model, word by word.
//!
//! Two things are checked. Each host's memory and the sequence of its firings
//! are those of the naive model, for the order in which words came. And of each
//! sender the words come in the order in which they were written, all of them,
//! unless a link was damaged.
//!
//! A host at a native link: the seam and the naive model side by side.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Area, Instant, Random, RegionId};
use landfall_testkit::model::Choices;
use net::Net;

use crate::address::{Address, ApertureId, HostId, Kind, TripwireId, WORD};
use crate::config::Config;
use crate::cookie::{Access, Cookie, Rights};
use crate::memory::Memory;
use crate::model::naive::{self, Fired, NaiveHost, NaiveWire};
use crate::native::wire::{Symbol, words_of, write_packet};
use crate::native::{Arrival, Burst, NativeLink, Settings, State, Word, admit};
use crate::tripwire::{Action, Firing, Place, Tripwires, Watch};

mod net;

/// Runs what these bytes stand for, lets everything come to its end, and gives
/// all in which the adapters and the naive model disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut net = Net::new(&mut choices);
    while !choices.is_over() {
        step(&mut net, &mut choices);
    }
    net.finish();
    net.failures()
}

fn step(net: &mut Net, choices: &mut Choices<'_>) {
    let hosts = net.hosts.len();
    match choices.byte() & 31 {
        0..=7 => write(net, choices),
        8..=10 => {
            let (line, most) = (choices.below(16), choices.byte());
            net.push(line, choices.flag(), u32::from(most));
        }
        11..=13 => {
            net.pull(choices.below(16), choices.flag());
        }
        14..=15 => {
            (0..=choices.below(8)).all(|_| net.go_on());
        }
        16..=18 => watch(net, choices),
        19..=20 => {
            let host = choices.below(hosts);
            net.hosts[host].change(choices.below(256), choices.byte());
        }
        21 => {
            let host = choices.below(hosts);
            net.hosts[host].pop();
        }
        22 => net.stop(choices.below(hosts), choices.flag()),
        23 => net.be_lazy(choices.below(hosts), choices.flag()),
        24 => {
            let host = choices.below(hosts);
            net.hosts[host].replace(choices.below(8));
        }
        25 => net.damage(choices.below(16), choices.flag(), choices.byte()),
        26 => {
            let (host, flag, len) = (choices.below(16), choices.flag(), choices.below(64));
            net.inject(host, flag, choices.raw(len));
        }
        27 => net.wait(),
        28 => net.unplug(choices.below(16)),
        29..=30 => burst_of_small_writes(net, choices),
        _ => net.settle(),
    }
}

/// One host writes to memory of another, or of a group; mostly as it may.
fn write(net: &mut Net, choices: &mut Choices<'_>) {
    let from = choices.below(net.hosts.len());
    let Some((mut at, len)) = target(net, choices) else { return };
    let all = len / u64::from(WORD) + 1;
    at.word = choices.below(all as usize) as u32;
    let words = match choices.byte() & 7 {
        0..=2 => 1 + choices.below(4) as u32,
        // Up to the end, and now and then beyond it.
        3..=6 => 1 + choices.below(all as usize) as u32,
        _ => {
            let (first, count) = (choices.below(8) as u32, 1 + choices.below(8) as u32);
            at.mask = Address::mask_of(first, count).unwrap_or(1);
            1
        }
    };
    net.write(from, at, words);
}

/// Neighbouring words, each in a packet of its own: to be joined.
fn burst_of_small_writes(net: &mut Net, choices: &mut Choices<'_>) {
    let from = choices.below(net.hosts.len());
    let Some((at, len)) = target(net, choices) else { return };
    let first = choices.below(len as usize / 8 + 1) as u32;
    let step = 1 + choices.below(3) as u32;
    for n in 0..choices.below(16) as u32 {
        net.write(from, Address { word: first + n * step, ..at }, step);
    }
}

/// The header for some memory, and how long that is. Sometimes its key or its
/// rights are wrong.
fn target(net: &Net, choices: &mut Choices<'_>) -> Option<(Address, u64)> {
    let which = choices.byte();
    if which >= 0xe0 {
        let cookie = net.group_cookie()?;
        let address = Address { kind: Kind::Multicast, ..cookie.address(0) };
        return Some((address, cookie.len()));
    }
    let host = &net.hosts[usize::from(which) % net.hosts.len()];
    let aperture = &host.apertures[choices.below(host.apertures.len())];
    let how = choices.byte();
    let [read, write, both] = aperture.cookies;
    let cookie = match how & 15 {
        0 => read,
        1..=8 => write,
        _ => both,
    };
    let mut at = cookie.address(0);
    if how >= 0xf0 && how & 15 > 8 {
        at = aperture.friends.address(0);
    }
    if how == 0xff {
        at.key = crate::address::Key::from_bits(at.key.bits() ^ 1);
    }
    debug_assert!(cookie.rights() != Rights::Read || how & 15 == 0);
    Some((at, cookie.len()))
}

fn watch(net: &mut Net, choices: &mut Choices<'_>) {
    let host = choices.below(net.hosts.len());
    let apertures = &net.hosts[host].apertures;
    let aperture = &apertures[choices.below(apertures.len())];
    let (slot, len) = (aperture.id.index as u16, aperture.memory.len);
    let from = choices.below(len as usize) as u64;
    let most = (len - from) as usize;
    let watched = if choices.flag() { choices.below(most) } else { choices.below(most.min(16)) };
    let actions = [Action::State, Action::Identifier, Action::Bit(1), Action::Count(1)];
    net.hosts[host].watch(Watch {
        place: Place::Local(slot),
        from,
        to: from + 1 + watched as u64,
        access: choices.pick(&[Access::Write, Access::Read, Access::Both]),
        action: choices.pick(&actions),
        once: choices.flag(),
    });
}

/// What a packet of these would be, if it is one.
fn packet(at: Address, words: u32) -> Option<Burst> {
    Burst::new(at, words)
}

/// How many tripwires a host sets in one run at most: more names than that
/// would not find room in the queue.
const MOST_WIRES: usize = 200;

/// Who has keys that nobody else has.
const FRIEND: HostId = match HostId::new(1) {
    Some(host) => host,
    None => unreachable!(),
};

/// Who is at the other end of the link. A switch does not say: the packet decides here, so that
/// every check is met with all answers.
fn sender_of(burst: &Burst) -> Option<HostId> {
    [None, Some(FRIEND), HostId::new(2)][burst.address().word as usize % 3]
}

/// An aperture of a host.
#[derive(Clone, Debug)]
struct Exposed {
    id: ApertureId,
    memory: Area,
    /// One for each of [`Rights::ALL`].
    cookies: [Cookie; 3],
    /// One for [`FRIEND`] alone.
    friends: Cookie,
}

/// Something that a host wants to send.
#[derive(Clone, Debug)]
struct Sending {
    burst: Burst,
    words: VecDeque<Word>,
}

struct Host {
    number: u16,
    link: NativeLink,
    session: u32,
    memory: Memory,
    tripwires: Tripwires,
    /// All memory that it has; a region.
    bytes: Vec<u8>,
    apertures: Vec<Exposed>,
    wires: Vec<TripwireId>,
    naive: NaiveHost,
    queue: VecDeque<Sending>,
    untaken: Vec<Burst>,
    is_lazy: bool,
    /// It is in the group.
    is_member: bool,
    /// Each word that came, with its address.
    came: Vec<(Address, Word)>,
    failures: Vec<String>,
}

impl Host {
    fn new(number: u16, room: u32, lens: &[usize]) -> Self {
        let mut random = Random::from_number(u64::from(number));
        let id = HostId::new(number).unwrap_or_default();
        let config = Config { tripwires: MOST_WIRES, ..Config::default() };
        let settings = Settings { host: Some(id), room, ..Settings::default() };
        let mut host = Self {
            number,
            link: NativeLink::new(settings),
            session: u32::from(number) << 16,
            memory: Memory::new(id, &config, &mut random),
            tripwires: Tripwires::new(&config, &mut random),
            bytes: Vec::new(),
            apertures: Vec::new(),
            wires: Vec::new(),
            naive: NaiveHost::default(),
            queue: VecDeque::new(),
            untaken: Vec::new(),
            is_lazy: false,
            is_member: false,
            came: Vec::new(),
            failures: Vec::new(),
        };
        lens.iter().for_each(|len| host.expose(*len));
        host.start(Instant::ZERO);
        host
    }

    fn fail(&mut self, what: impl core::fmt::Display) {
        self.failures.push(format!("host {}: {what}", self.number));
    }

    /// The link begins (anew).
    fn start(&mut self, now: Instant) {
        self.session += 1;
        self.link.handle_up(now, self.session);
        let kept = self.untaken.iter().map(Burst::cost).sum();
        self.link.handle_occupied(kept);
    }

    fn expose(&mut self, len: usize) {
        let offset = self.bytes.len();
        let region = RegionId::new(0, 0);
        let memory = Area { region, offset: offset as u64, len: len as u64 };
        self.bytes.resize((offset + len).next_multiple_of(WORD as usize), 0);
        let Ok(id) = self.memory.expose(memory) else { return self.fail("no aperture") };
        let slot = id.index as u16;
        self.naive.expose(slot, len);
        let cookies = Rights::ALL.map(|rights| self.memory.cookie(id, rights));
        let [Ok(a), Ok(b), Ok(c)] = cookies else { return self.fail("no cookie") };
        for cookie in [a, b, c] {
            self.naive.give(slot, cookie.key(), cookie.rights());
        }
        let Ok(friends) = self.memory.cookie_for(id, Rights::ReadWrite, FRIEND) else {
            return self.fail("no cookie for one alone");
        };
        self.naive.give_to(FRIEND, slot, friends.key(), friends.rights());
        self.apertures.push(Exposed { id, memory, cookies: [a, b, c], friends });
    }

    /// Ends the rights to an aperture, and makes a new one that is as long.
    fn replace(&mut self, which: usize) {
        if self.bytes.len() > 1 << 20 {
            return;
        }
        let old = self.apertures.remove(which % self.apertures.len());
        if let Err(error) = self.memory.revoke(old.id) {
            return self.fail(format!("cannot revoke: {error}"));
        }
        let slot = old.id.index as u16;
        self.tripwires.forget(Place::Local(slot));
        self.compare(slot, old.memory);
        self.naive.revoke(slot);
        self.expose(old.memory.len as usize);
    }

    /// Founds memory of a group: its cookie is for all members.
    fn found(&mut self, group: HostId, len: usize) -> Option<Cookie> {
        self.memory.group_cookie(group, 7, len as u64).ok()
    }

    fn join(&mut self, cookie: &Cookie, which: usize) {
        // Its switch sends it what the group gets, whatever its memory says.
        self.is_member = true;
        let aperture = &self.apertures[which % self.apertures.len()];
        if self.memory.join(cookie, aperture.id, None).is_ok() {
            let (name, slot) = (cookie.slot(), aperture.id.index as u16);
            self.naive.join(cookie.host(), name, cookie.key(), slot, cookie.len() as usize);
        }
    }

    // ---- Tripwires -----------------------------------------------------------

    fn watch(&mut self, watch: Watch) {
        if self.wires.len() >= MOST_WIRES {
            return;
        }
        let Place::Local(slot) = watch.place else { return };
        match self.tripwires.watch(&watch) {
            Ok(id) => {
                let Watch { from, to, access, action, once, .. } = watch;
                let queues = action == Action::Identifier;
                let mut wire = NaiveWire::new(id.raw(), slot, from, to, access);
                (wire.once, wire.queues) = (once, queues);
                self.naive.watch(wire);
                self.wires.push(id);
            }
            Err(error) => self.fail(format!("{watch:?}: {error}")),
        }
    }

    fn change(&mut self, which: usize, how: u8) {
        if self.wires.is_empty() {
            return;
        }
        let id = self.wires[which % self.wires.len()];
        let changed = naive::change(&mut self.tripwires, &mut self.naive, id, how);
        changed.unwrap_or_else(|what| self.fail(what));
    }

    fn pop(&mut self) {
        let popped = naive::pop(&mut self.tripwires, &mut self.naive);
        popped.map_or_else(|what| self.fail(what), drop);
    }

    // ---- What it sends -------------------------------------------------------

    fn send(&mut self, burst: Burst, words: impl Iterator<Item = Word>) {
        self.queue.push_back(Sending { burst, words: words.collect() });
    }

    fn wants_to_send(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The next unit, without its trailer; packets of at most `most` words.
    fn poll_unit(&mut self, now: Instant, unit: &mut Vec<u8>, most: u32) -> bool {
        unit.clear();
        if let Some(symbol) = self.link.poll_symbol(now) {
            unit.extend_from_slice(&symbol.to_bytes());
            return true;
        }
        let Some(sending) = self.queue.front_mut() else { return false };
        let room = self.link.room(u32::MAX).min(most.max(sending.burst.least()));
        let (first, rest) = match sending.burst.split_at(room) {
            Some((first, rest)) => (first, Some(rest)),
            None if sending.burst.words() <= room => (sending.burst, None),
            None => {
                self.link.handle_waiting(now, true);
                return false;
            }
        };
        write_packet(unit, &first, sending.words.drain(..first.words() as usize));
        match rest {
            Some(rest) => sending.burst = rest,
            None => drop(self.queue.pop_front()),
        }
        self.link.handle_sent(&first);
        true
    }

    // ---- What it gets --------------------------------------------------------

    /// A unit without its trailer.
    fn handle_unit(&mut self, now: Instant, unit: &[u8]) {
        match self.link.handle_unit(now, unit, unit.len() as u32) {
            Ok(Arrival::Packet(burst)) => self.handle_packet(burst, words_of(unit)),
            Ok(Arrival::Symbol | Arrival::Stale) => {}
            Err(refusal) => self.fail(format!("the switch sent what is {refusal}")),
        }
        if let State::Down(_) = self.link.state() {
            self.start(now);
        }
        if self.link.take_restarted() {
            self.link.handle_occupied(self.untaken.iter().map(Burst::cost).sum());
        }
        if unit.len() == Symbol::LEN || !self.is_lazy {
            self.take();
        }
    }

    /// A unit came whose trailer was wrong.
    fn handle_damage(&mut self, now: Instant) {
        self.link.handle_damage();
        if let State::Down(_) = self.link.state() {
            self.start(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.link.handle_timeout(now);
        if let State::Down(_) = self.link.state() {
            self.start(now);
        }
    }

    /// What came is out of the way.
    fn take(&mut self) {
        if !self.is_lazy {
            self.untaken.drain(..).for_each(|burst| self.link.handle_taken(&burst));
        }
    }

    fn handle_packet(&mut self, burst: Burst, words: &[Word]) {
        self.untaken.push(burst);
        let from = sender_of(&burst);
        let admitted = admit(&self.memory.apertures_for(from), burst);
        let accepted = admitted.taken.map_or(0, |(taken, _)| taken.words() as usize);
        // The naive model sees words, not packets.
        let before = self.naive.fired.len();
        for (n, word) in words.iter().enumerate() {
            let Some(at) = burst.address().advanced(n as u32) else { continue };
            self.came.push((at, *word));
            if self.naive.write(from, &at, *word) != (n < accepted) {
                self.fail(format!("{at:?}: {accepted} of {burst:?} are accepted"));
            }
        }
        let Some((taken, spot)) = admitted.taken else { return };
        let (first, len) = (taken.address().enabled().0 as usize, spot.span.len as usize);
        let at = spot.span.offset as usize;
        let content = &words.as_flattened()[first..first + len];
        self.bytes[at..at + len].copy_from_slice(content);
        let mut runs = Vec::new();
        let touched = spot.at..spot.at + len as u64;
        self.tripwires.touch(Place::Local(spot.slot), touched, Access::Write, &mut |firing| {
            runs.push(firing);
        });
        self.compare_firings(before, &runs);
    }

    /// What the tripwires say of one packet is what the naive model says of its words.
    fn compare_firings(&mut self, before: usize, runs: &[Firing]) {
        let mut got: Vec<(u32, Option<usize>, u64)> = Vec::new();
        for Firing { tripwire, word, words, .. } in runs {
            let name = tripwire.raw();
            let at = (0..*words).map(|n| (word + n as u32, self.naive.rank(name), name));
            got.extend(at);
        }
        got.sort_unstable();
        let expected = &self.naive.fired[before..];
        let got: Vec<Fired> =
            got.iter().map(|(word, _, name)| Fired { name: *name, word: *word }).collect();
        if got != expected {
            let what = format!("fired {got:?}, not {expected:?}");
            self.fail(what);
        }
    }

    // ---- At the end ----------------------------------------------------------

    /// All that can be seen is as in the naive model.
    fn check(&mut self) {
        for aperture in self.apertures.clone() {
            self.compare(aperture.id.index as u16, aperture.memory);
        }
        for id in self.wires.clone() {
            let compared = naive::compare(&mut self.tripwires, &self.naive, id);
            compared.unwrap_or_else(|what| self.fail(what));
        }
        for _ in 0..=MOST_WIRES {
            self.pop();
        }
    }

    fn compare(&mut self, slot: u16, memory: Area) {
        let (from, len) = (memory.offset as usize, memory.len as usize);
        if self.naive.bytes(slot) != Some(&self.bytes[from..from + len]) {
            self.fail(format!("the bytes of aperture {slot} differ"));
        }
    }
}
