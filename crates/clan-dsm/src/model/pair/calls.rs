//! What the users of both sides ask for; and what the adapters tell them, and whether it is
//! true.
//!
//! An adapter under any frames: real ones that were changed and made right
//! again, and frames made of any bytes. Nothing may panic, and no memory may
//! change but apertures that the peer has cookies for.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{Area, Engine, InternetSum, WordFunction, WordOp, WordWidth};
use landfall_testkit::model::Choices;

use super::Pair;
use super::ledger::{EffectKind, Expected};
use super::node::{ExposedAperture, NodeState, SHARED, SOURCE, SOURCE_LEN};
use crate::address::{HostId, Key};
use crate::cookie::{Cookie, Rights};
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::nic::DmaRequest;
use crate::offload::Action;
use crate::wire::frame::{Entry, HEADER_LEN, SUM_SLOT};
use landfall_placement::crc32c as crc;

/// A place in an aperture of the other side.
struct ApertureOffset {
    aperture: usize,
    shown: ExposedAperture,
    offset: usize,
    len: usize,
}

impl Pair {
    /// A part of one of the other side's apertures of a lane. One that is gone
    /// may be meant too.
    fn goal(
        &self,
        side: usize,
        lane: usize,
        most: usize,
        choices: &mut Choices<'_>,
    ) -> Option<ApertureOffset> {
        let there = &self.sides[1 - side];
        let of_lane: Vec<usize> =
            (0..there.shown.len()).filter(|n| there.shown[*n].lane == lane).collect();
        // The newest ones, mostly.
        let is_old = choices.byte() > 240;
        let back = choices.below(if is_old { 4 } else { 2 });
        let aperture = *of_lane.iter().rev().nth(back).or(of_lane.first())?;
        let shown = there.shown[aperture].clone();
        if aperture >= self.sides[side].onto.len() {
            return None;
        }
        let all = shown.area.len as usize;
        let offset = choices.below(all);
        let len = 1 + choices.below((all - offset).min(most));
        Some(ApertureOffset { aperture, shown, offset, len })
    }

    /// Notes what must take effect at the other side.
    fn expect(&mut self, side: usize, lane: usize, goal: &ApertureOffset, bytes: &[u8]) -> u64 {
        let here = &mut self.sides[side];
        let serial = here.serial();
        let at = goal.shown.area.offset + goal.offset as u64;
        let what = EffectKind::Bytes(bytes.to_vec());
        let (aperture, may_be_lost) = (goal.aperture, false);
        here.lanes[lane].push(Expected { serial, aperture, at, what, may_be_lost });
        here.onto[goal.aperture].shadow.write(serial, goal.offset, bytes);
        serial
    }

    /// What a call may be refused for at any time.
    fn refused(&mut self, side: usize, what: &str, error: Error) {
        if !matches!(error, Error::Busy | Error::NoLink) {
            self.sides[side].fail(format!("{what}: {error}"));
        }
    }

    pub(super) fn write(&mut self, side: usize, choices: &mut Choices<'_>) {
        let most = choices.pick(&[8, 8, 40, 300, 2_000]);
        let Some(mut goal) = self.goal(side, 0, most, choices) else { return };
        if choices.flag() && goal.offset >= 8 {
            // A word, as it is meant.
            goal.offset -= goal.offset % 8;
            goal.len = 8.min(goal.shown.area.len as usize - goal.offset);
        }
        let bytes = fresh(self.sides[side].serial + 1, goal.len);
        let window = self.sides[side].onto[goal.aperture].window;
        match self.sides[side].nic.write(self.now, window, goal.offset as u64, &bytes) {
            Ok(()) => drop(self.expect(side, 0, &goal, &bytes)),
            Err(error) => self.refused(side, "write", error),
        }
    }

    pub(super) fn write_from(&mut self, side: usize, choices: &mut Choices<'_>) {
        let Some(goal) = self.goal(side, 0, 4_000, choices) else { return };
        let from = source(&goal, choices);
        let window = self.sides[side].onto[goal.aperture].window;
        match self.sides[side].nic.write_from(self.now, window, goal.offset as u64, from) {
            Ok(write) => {
                let bytes = self.sides[side].source(from);
                let serial = self.expect(side, 0, &goal, &bytes);
                self.sides[side].pending.writes.push((write, serial));
            }
            Err(error) => self.refused(side, "write from memory", error),
        }
    }

    pub(super) fn read(&mut self, side: usize, choices: &mut Choices<'_>) {
        let Some(goal) = self.goal(side, 0, 2_000, choices) else { return };
        let here = &mut self.sides[side];
        let into = here.target(goal.len);
        let window = here.onto[goal.aperture].window;
        match here.nic.read(self.now, window, goal.offset as u64, into) {
            Ok(read) => {
                let serial = here.serial();
                let waits = (read, serial, goal.aperture, goal.offset as u64, into);
                here.pending.reads.push(waits);
            }
            Err(error) => self.refused(side, "read", error),
        }
    }

    pub(super) fn change(&mut self, side: usize, choices: &mut Choices<'_>) {
        let Some(mut goal) = self.goal(side, 0, 1, choices) else { return };
        let width = choices.pick(&[WordWidth::Four, WordWidth::Eight]);
        goal.len = width.bytes() as usize;
        goal.offset -= goal.offset % goal.len;
        if goal.offset + goal.len > goal.shown.area.len as usize {
            return;
        }
        let here = &mut self.sides[side];
        let value = u64::from(choices.byte()) * 0x0101_0101;
        let old = number(here.onto[goal.aperture].shadow.last(goal.offset, goal.len));
        let function = choices.pick(&[
            WordFunction::Load,
            WordFunction::Store(value),
            WordFunction::Add(value),
            WordFunction::Xor(value),
            WordFunction::CompareSwap { expected: old, new: value },
        ]);
        let window = here.onto[goal.aperture].window;
        let offset = goal.offset as u64;
        match here.nic.change(self.now, window, offset, width, function) {
            Ok(operation) => {
                let serial = here.serial();
                let shadow = &mut here.onto[goal.aperture].shadow;
                let known = (!shadow.is_unknown).then_some(old);
                here.pending.words.push((operation, known));
                let new = function.apply(old).to_ne_bytes();
                let new = if cfg!(target_endian = "big") {
                    &new[8 - goal.len..]
                } else {
                    &new[..goal.len]
                };
                shadow.write(serial, goal.offset, new);
                let at = goal.shown.area.offset + offset;
                let op = WordOp { region: SHARED, offset: at, width, function };
                let (aperture, what) = (goal.aperture, EffectKind::Word(op));
                let may_be_lost = false;
                here.lanes[0].push(Expected { serial, aperture, at, what, may_be_lost });
            }
            Err(error) => self.refused(side, "word operation", error),
        }
    }

    /// A chain of DMA requests: some data, and the word behind it.
    pub(super) fn chain(&mut self, side: usize, choices: &mut Choices<'_>) {
        let lane = 1 + choices.below(2);
        let mut requests = Vec::new();
        let mut goals = Vec::new();
        for _ in 0..=choices.below(3) {
            let Some(goal) = self.goal(side, lane, 4_000, choices) else { return };
            let from = source(&goal, choices);
            let window = self.sides[side].onto[goal.aperture].window;
            requests.push(DmaRequest::Write { from, window, offset: goal.offset as u64 });
            goals.push((goal, self.sides[side].source(from)));
        }
        let value = self.sides[side].serial + 0x0100_0000;
        if let Some(mut goal) = self.goal(side, lane, 8, choices).filter(|_| choices.flag()) {
            goal.offset -= goal.offset % 8;
            goal.len = 8;
            let window = self.sides[side].onto[goal.aperture].window;
            requests.push(DmaRequest::Word { window, offset: goal.offset as u64, value });
            goals.push((goal, value.to_le_bytes().to_vec()));
        }
        let endpoint = self.sides[side].endpoints[lane - 1];
        match self.sides[side].nic.dma(self.now, endpoint, &requests) {
            Ok(dma) => {
                let first = self.sides[side].serial + 1;
                for (goal, bytes) in goals {
                    self.expect(side, lane, &goal, &bytes);
                }
                let last = self.sides[side].serial;
                self.sides[side].pending.chains.push((dma, first, last));
            }
            Err(Error::NoRoom) => {}
            Err(error) => self.refused(side, "DMA", error),
        }
    }

    pub(super) fn barrier(&mut self, side: usize) {
        let here = &mut self.sides[side];
        let Some(link) = here.link else { return };
        match here.nic.barrier(self.now, link) {
            Ok(barrier) => here.pending.barriers.push((barrier, here.serial)),
            Err(error) => self.refused(side, "barrier", error),
        }
    }

    pub(super) fn watch(&mut self, side: usize, choices: &mut Choices<'_>) {
        let here = &mut self.sides[side];
        let which = here.shown.len() - 1 - choices.below(here.shown.len().min(5));
        let len = here.shown[which].area.len as usize;
        let from = choices.below(len);
        let most = if choices.flag() { len - from } else { 16.min(len - from) };
        let to = from + 1 + choices.below(most);
        let action = choices.pick(&[Action::Identifier, Action::State, Action::Event]);
        here.watch(which, from as u64, to as u64, choices.flag(), action);
    }

    /// An aperture is revoked, from the other side or from everybody, another takes its place, and the other side hears of it.
    pub(super) fn replace(&mut self, side: usize, choices: &mut Choices<'_>) {
        let here = &mut self.sides[side];
        let which = here.shown.len() - 1 - choices.below(here.shown.len().min(5));
        if !here.shown[which].is_over() {
            here.replace(which);
            self.sides[1 - side].forget(which);
            self.map();
        }
    }

    /// A write with a cookie that was never given out, or that was given to a third host alone:
    /// nothing of it may land.
    pub(super) fn forge(&mut self, side: usize, choices: &mut Choices<'_>) {
        let Some(goal) = self.goal(side, 0, 100, choices) else { return };
        let real = goal.shown.cookie;
        let key = Key::from_bits(real.key().bits() ^ 1 << choices.below(56));
        let (slot, len) = match choices.flag() {
            true => (real.slot(), real.len() + 4_096),
            false => (real.slot() ^ 1, real.len()),
        };
        let third = HostId::new(9).unwrap_or_default();
        let (key, slot) = match choices.byte() {
            0..64 => (real.key(), slot),
            // What is gone has none.
            64..128 => {
                match self.sides[1 - side].nic.cookie_for(goal.shown.id, Rights::ReadWrite, third) {
                    Ok(others) => (others.key(), others.slot()),
                    Err(_) => (key, slot),
                }
            }
            _ => (key, slot),
        };
        let forged = Cookie::new(real.host(), slot, Rights::ReadWrite, key, len);
        let here = &mut self.sides[side];
        let Ok(window) = here.nic.map(&forged) else { return };
        let beyond = len.min(real.len()).saturating_sub(4);
        let offset =
            if slot == real.slot() && key == real.key() { real.len() + 64 } else { beyond };
        let result = here.nic.write(self.now, window, offset, &[0xee; 4]);
        if let Err(error) = result {
            self.refused(side, "forged write", error);
        }
        if let Err(error) = self.sides[side].nic.unmap(window) {
            self.sides[side].fail(format!("unmap: {error}"));
        }
    }

    pub(super) fn close_or_hold(&mut self, side: usize, choices: &mut Choices<'_>) {
        match choices.byte() {
            0..=99 => self.hold_link(side, true),
            100..=219 => self.hold_link(side, false),
            220..=235 => self.open(),
            _ => self.close_link(side),
        }
    }

    pub(super) fn close_link(&mut self, side: usize) {
        let now = self.now;
        let here = &mut self.sides[side];
        if let Some(link) = here.link
            && let Err(error) = here.nic.close_link(now, link)
        {
            here.fail(format!("close: {error}"));
        }
    }

    pub(super) fn hold_link(&mut self, side: usize, is_held: bool) {
        let here = &mut self.sides[side];
        if let Some(link) = here.link
            && let Err(error) = here.nic.hold(link, is_held)
        {
            here.fail(format!("hold: {error}"));
        }
    }
}

impl NodeState {
    fn source(&self, from: Area) -> Vec<u8> {
        self.memory.area(&from).unwrap_or_default().to_vec()
    }

    /// An aperture of the other side is gone: what it holds is not known.
    fn forget(&mut self, aperture: usize) {
        if let Some(onto) = self.onto.get_mut(aperture) {
            onto.shadow.is_unknown = true;
        }
    }
}

/// Memory to send from, as long as the goal.
fn source(goal: &ApertureOffset, choices: &mut Choices<'_>) -> Area {
    let offset = choices.below(SOURCE_LEN - goal.len);
    Area::new(SOURCE, offset as u64, goal.len as u64)
}

/// Bytes that say which request they belong to.
fn fresh(serial: u64, len: usize) -> Vec<u8> {
    let word = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(len).collect()
}

/// A word of four or eight bytes, as the machine has it.
fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

impl Pair {
    /// Takes all events, and checks what each of them says.
    pub(super) fn listen(&mut self) {
        for number in [0, 1] {
            while let Some(event) = self.sides[number].nic.poll_event() {
                self.tell(|| format!("  {number} is told: {event:?}"));
                let [ref mut first, ref mut second] = self.sides;
                let (here, there) = if number == 0 { (first, second) } else { (second, first) };
                let is_lawless = self.is_lawless;
                let known = here.failures.len();
                here.hear(there, event);
                if is_lawless {
                    // Anyone who believes a liar cannot help it.
                    here.failures.truncate(known);
                }
            }
        }
    }
}

impl NodeState {
    fn hear(&mut self, there: &Self, event: Event) {
        match event {
            Event::LinkUp { link, .. } => self.link = Some(link),
            // There is one peer, at one address.
            Event::Contested { link, .. } => self.fail(format!("{link} is contested")),
            Event::LinkDown { link, .. } => {
                if self.link == Some(link) {
                    self.link = None;
                }
                self.lanes.iter_mut().for_each(super::ledger::Ledger::link_gone);
                self.onto.iter_mut().for_each(|onto| onto.shadow.is_unknown = true);
            }
            Event::Written { write, result } => {
                let Some(at) = self.pending.writes.iter().position(|(id, _)| *id == write) else {
                    return self.fail(format!("{write} was not asked for"));
                };
                let (_, serial) = self.pending.writes.remove(at);
                self.arrived(there, "a write", result, serial, serial);
            }
            Event::Dma { dma, result, .. } => {
                let Some(at) = self.pending.chains.iter().position(|(id, ..)| *id == dma) else {
                    return self.fail(format!("{dma} was not asked for"));
                };
                let (_, first, last) = self.pending.chains.remove(at);
                self.arrived(there, "a chain", result, first, last);
            }
            Event::Barrier { barrier, result } => {
                let known = self.pending.barriers.iter().position(|(id, _)| *id == barrier);
                let Some(at) = known else {
                    return self.fail(format!("{barrier} was not asked for"));
                };
                let (_, serial) = self.pending.barriers.remove(at);
                self.arrived(there, "a barrier", result, 0, serial);
            }
            Event::Read { read, result } => {
                let Some(at) = self.pending.reads.iter().position(|(id, ..)| *id == read) else {
                    return self.fail(format!("{read} was not asked for"));
                };
                let (_, serial, aperture, offset, into) = self.pending.reads.remove(at);
                let shadow = &self.onto[aperture].shadow;
                let may_be = |bytes| shadow.may_be(serial, offset as usize, bytes);
                if result.is_ok() && !self.memory.area(&into).is_some_and(may_be) {
                    self.fail(format!("{read} got what was never there, or no more"));
                }
            }
            Event::Word { operation, result } => {
                let known = self.pending.words.iter().position(|(id, _)| *id == operation);
                let Some(at) = known else {
                    return self.fail(format!("{operation} was not asked for"));
                };
                let (_, expected) = self.pending.words.remove(at);
                if let (Ok(old), Some(expected)) = (result, expected)
                    && old != expected
                {
                    self.fail(format!("{operation}: {old:#x}, not {expected:#x}"));
                }
            }
            Event::Exception { .. } => self.exceptions += 1,
            Event::Tripwire { tripwire } => {
                if self.nic.has_fired(tripwire) == Ok(false) {
                    self.fail(format!("{tripwire} is told and has not fired"));
                }
            }
            Event::GroupKey { .. } | Event::GroupKeyOver { .. } => {
                self.fail("nobody here multicasts");
            }
            Event::OutOfBand { .. } | Event::Overflow { .. } => {}
            Event::SwitchUp { .. } | Event::Released { .. } => {
                self.fail(format!("{event:?} at a network"));
            }
        }
    }

    /// These requests are said to be in place at the other side.
    fn arrived(
        &mut self,
        there: &Self,
        what: &str,
        result: Result<(), Ended>,
        first: u64,
        last: u64,
    ) {
        if result.is_err() {
            return;
        }
        let is_gone = |n: usize| there.shown.get(n).is_none_or(ExposedAperture::is_over);
        let mut missing = self.lanes.iter().flat_map(|lane| lane.missing(is_gone));
        let is_missing = missing.any(|one| (first..=last).contains(&one.serial));
        drop(missing);
        if is_missing {
            self.fail(format!("{what} is said to be there, and is not"));
        }
    }
}

/// Where the header has its CRC, the number of entries, and the length of what
/// stands behind them.
const CRC_AT: usize = 34;
const ENTRIES_AT: usize = 31;
const LEN_AT: usize = 32;

/// The side that is attacked.
const VICTIM: usize = 1;

/// What both sides ask for before the attack begins.
const WORK: [u8; 200] = {
    let mut work = [0; 200];
    let mut n = 0;
    while n < work.len() {
        work[n] = (n as u8).wrapping_mul(167).wrapping_add(13);
        n += 1;
    }
    work
};

pub(super) fn withstand(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut pair = Pair::new(&mut choices);
    let mut work = Choices::new(&WORK);
    for side in [0, 1, 0, 1] {
        pair.watch(side, &mut work);
        pair.write(side, &mut work);
        pair.write_from(side, &mut work);
        pair.read(side, &mut work);
        pair.change(side, &mut work);
        pair.chain(side, &mut work);
        pair.barrier(side);
        while pair.transmit(side) {}
    }
    pair.is_lawless = true;
    while !choices.is_over() {
        one_frame(&mut pair, &mut choices);
        pair.listen();
    }
    pair.settle(200);
    for side in &mut pair.sides {
        side.compare_all();
    }
    pair.into_story()
}

fn one_frame(pair: &mut Pair, choices: &mut Choices<'_>) {
    let how = choices.byte();
    let known: Vec<Vec<u8>> =
        pair.wires[VICTIM].iter().chain(&pair.old[VICTIM]).take(40).cloned().collect();
    let template = match how >> 6 {
        0 => None,
        _ if known.is_empty() => None,
        _ => Some(known[choices.below(known.len())].clone()),
    };
    let mut unit = template.unwrap_or_else(|| {
        let len = choices.below(256);
        choices.raw(len).to_vec()
    });
    for _ in 0..how & 7 {
        change(&mut unit, choices);
    }
    if how & 8 == 0 {
        seal(&mut unit);
    }
    pair.wires[VICTIM].push_front(unit);
    pair.receive(VICTIM, 1 + usize::from(how >> 4 & 3));
    if how & 0x20 != 0 {
        pair.settle(2);
    }
    if how == 0xff {
        pair.wait();
    }
}

/// A byte is another one, or the frame is longer or shorter, or a packet more.
fn change(unit: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let (what, at, value) = (choices.byte(), choices.below(400), choices.byte());
    match what & 15 {
        0 => unit.truncate(at),
        1 => unit.extend(vec![value; at & 63]),
        2 => {
            // One more packet like the first, with bytes behind all others.
            let first = unit.get(HEADER_LEN..HEADER_LEN + Entry::LEN).map(<[u8]>::to_vec);
            if let (Some(first), Some(entries)) = (first, unit.get_mut(ENTRIES_AT)) {
                *entries = entries.wrapping_add(1);
                unit.splice(HEADER_LEN..HEADER_LEN, first);
            }
        }
        3..=7 if unit.len() > HEADER_LEN + Entry::LEN => {
            // Somewhere in the table.
            unit[HEADER_LEN + at % Entry::LEN] = value;
        }
        _ => {
            let len = unit.len().max(1);
            if let Some(byte) = unit.get_mut(at % len) {
                *byte = value;
            }
        }
    }
}

/// Makes the lengths and the checksums right, if there is a header.
fn seal(unit: &mut [u8]) {
    let len = unit.len();
    let Some(header) = unit.first_chunk_mut::<HEADER_LEN>() else { return };
    let is_data = header[2] & 0xf == 0;
    let table = usize::from(header[ENTRIES_AT]) * Entry::LEN;
    let body = len.saturating_sub(HEADER_LEN + table);
    if is_data && body <= usize::from(u16::MAX) {
        header[LEN_AT..CRC_AT].copy_from_slice(&(body as u16).to_be_bytes());
    }
    let payload_len = usize::from(u16::from_be_bytes([header[LEN_AT], header[LEN_AT + 1]]));
    let covered = HEADER_LEN + table + if is_data { 0 } else { payload_len };
    let Some(behind) = unit.get(HEADER_LEN..covered) else { return };
    let sum = crc::extend(crc::crc32c(&unit[..CRC_AT]), behind);
    unit[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_be_bytes());
    let at = usize::from(SUM_SLOT.start + SUM_SLOT.offset);
    unit[at..at + 2].fill(0);
    let mut sum = InternetSum::new();
    sum.add(&unit[at..]);
    unit[at..at + 2].copy_from_slice(&(!sum.sum()).to_be_bytes());
}
