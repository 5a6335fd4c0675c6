//! A host at a native link: the seam and the naive model side by side.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Area, Instant, Random, RegionId};

use crate::address::{Address, HostId, WORD};
use crate::config::Config;
use crate::cookie::Cookie;
use crate::cookie::{Access, Rights};
use crate::ids::{ApertureId, TripwireId};
use crate::memory::Memory;
use crate::model::naive;
use crate::model::naive::{Fired, NaiveHost, NaiveWire};
use crate::native::wire::{Symbol, words_of, write_packet};
use crate::native::{Arrival, NativeLink, Settings, State};
use crate::native::{Burst, Word, admit};
use crate::tripwire::{Action, Firing, Place, Tripwires, Watch};

/// How many tripwires a host sets in one run at most: more names than that
/// would not find room in the queue.
const MOST_WIRES: usize = 200;

/// An aperture of a host.
#[derive(Clone, Debug)]
pub(super) struct Exposed {
    pub(super) id: ApertureId,
    pub(super) memory: Area,
    /// One for each of [`Rights::ALL`].
    pub(super) cookies: [Cookie; 3],
}

/// Something that a host wants to send.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    burst: Burst,
    words: VecDeque<Word>,
}

pub(super) struct Host {
    pub(super) number: u16,
    pub(super) link: NativeLink,
    session: u32,
    memory: Memory,
    tripwires: Tripwires,
    /// All memory that it has; a region.
    bytes: Vec<u8>,
    pub(super) apertures: Vec<Exposed>,
    pub(super) wires: Vec<TripwireId>,
    naive: NaiveHost,
    queue: VecDeque<Sending>,
    untaken: Vec<Burst>,
    pub(super) is_lazy: bool,
    /// It is in the group.
    pub(super) is_member: bool,
    /// Each word that came, with its address.
    pub(super) came: Vec<(Address, Word)>,
    pub(super) failures: Vec<String>,
}

impl Host {
    pub(super) fn new(number: u16, room: u32, lens: &[usize]) -> Self {
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
    pub(super) fn start(&mut self, now: Instant) {
        self.session += 1;
        self.link.handle_up(now, self.session);
        let kept = self.untaken.iter().map(Burst::cost).sum();
        self.link.handle_occupied(kept);
    }

    pub(super) fn expose(&mut self, len: usize) {
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
        self.apertures.push(Exposed { id, memory, cookies: [a, b, c] });
    }

    /// Ends the rights to an aperture, and makes a new one that is as long.
    pub(super) fn replace(&mut self, which: usize) {
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
    pub(super) fn found(&mut self, group: HostId, len: usize) -> Option<Cookie> {
        self.memory.group_cookie(group, 7, len as u64).ok()
    }

    pub(super) fn join(&mut self, cookie: &Cookie, which: usize) {
        // Its switch sends it what the group gets, whatever its memory says.
        self.is_member = true;
        let aperture = &self.apertures[which % self.apertures.len()];
        if self.memory.join(cookie, aperture.id, None).is_ok() {
            let (name, slot) = (cookie.slot(), aperture.id.index as u16);
            self.naive.join(cookie.host(), name, cookie.key(), slot, cookie.len() as usize);
        }
    }

    // ---- Tripwires -----------------------------------------------------------

    pub(super) fn watch(&mut self, watch: Watch) {
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

    pub(super) fn change(&mut self, which: usize, how: u8) {
        if self.wires.is_empty() {
            return;
        }
        let id = self.wires[which % self.wires.len()];
        let changed = naive::change(&mut self.tripwires, &mut self.naive, id, how);
        changed.unwrap_or_else(|what| self.fail(what));
    }

    pub(super) fn pop(&mut self) {
        let popped = naive::pop(&mut self.tripwires, &mut self.naive);
        popped.map_or_else(|what| self.fail(what), drop);
    }

    // ---- What it sends -------------------------------------------------------

    pub(super) fn send(&mut self, burst: Burst, words: impl Iterator<Item = Word>) {
        self.queue.push_back(Sending { burst, words: words.collect() });
    }

    pub(super) fn wants_to_send(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The next unit, without its trailer; packets of at most `most` words.
    pub(super) fn poll_unit(&mut self, now: Instant, unit: &mut Vec<u8>, most: u32) -> bool {
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
    pub(super) fn handle_unit(&mut self, now: Instant, unit: &[u8]) {
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
    pub(super) fn handle_damage(&mut self, now: Instant) {
        self.link.handle_damage();
        if let State::Down(_) = self.link.state() {
            self.start(now);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.link.handle_timeout(now);
        if let State::Down(_) = self.link.state() {
            self.start(now);
        }
    }

    /// What came is out of the way.
    pub(super) fn take(&mut self) {
        if !self.is_lazy {
            self.untaken.drain(..).for_each(|burst| self.link.handle_taken(&burst));
        }
    }

    fn handle_packet(&mut self, burst: Burst, words: &[Word]) {
        self.untaken.push(burst);
        let admitted = admit(&self.memory.apertures(), burst);
        let accepted = admitted.taken.map_or(0, |(taken, _)| taken.words() as usize);
        // The naive model sees words, not packets.
        let before = self.naive.fired.len();
        for (n, word) in words.iter().enumerate() {
            let Some(at) = burst.address().advanced(n as u32) else { continue };
            self.came.push((at, *word));
            if self.naive.write(&at, *word) != (n < accepted) {
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
    pub(super) fn check(&mut self) {
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
