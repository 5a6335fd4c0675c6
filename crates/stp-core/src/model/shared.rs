//! Persistent memory: what users do with it, and what they are told of it.
//!
//! Each region is written by one connection only, so what its memory holds is
//! known from the order of the calls: every operation once, in that order.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{Area, WordFunction, WordWidth};

use super::ledger::{Begun, Exposure, Receive, ReceivePurpose, Region, Remote};
use super::world::{FRESH, World};
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::{ConnectionId, OperationId, ReceiveId, RequestId, Rights};
use crate::region::PutOptions;
use crate::wire::Reason;

/// A generation that no region reaches in a test.
const NO_SUCH: u32 = 0x8000_0000;

impl World {
    pub(super) fn ask(&mut self, side: usize, which: u8, len: u32, rights: u8) {
        let Some(connection) = self.pick_open(side, which) else { return };
        let name = self.truth.regions.len();
        // Mostly all of them.
        let asked_rights = if rights & 8 == 0 { Rights::ALL } else { Rights(rights & 7) };
        let (now, end) = (self.now, &mut self.ends[side]);
        let asked = end.checked.engine.request_region(
            now,
            connection.id,
            name as u32,
            u64::from(len),
            asked_rights,
        );
        match asked {
            Ok(id) => {
                end.user.requests.push((id, connection.id, name));
                let connect = connection.connect;
                let owner = self.truth.other(connect, side);
                let (is_asked, is_refused, exposed) = (false, false, None);
                self.truth.regions.push(Region {
                    connect,
                    owner,
                    asked_rights,
                    is_asked,
                    is_refused,
                    exposed,
                });
            }
            Err(error) => self.expect_error(side, "request_region", error, &[Error::Busy]),
        }
    }

    /// Exposes memory to who asked for it, or does not.
    pub(super) fn answer_ask(&mut self, side: usize, at: usize, how: u8) {
        let (id, _, name, len) = self.ends[side].user.asks[at];
        let end = &mut self.ends[side];
        let before = if how & 16 == 0 { 8 } else { usize::from(how >> 5) + 1 };
        let mut exposed = Err(Error::Busy);
        let area = end.lend(before, &vec![FRESH; len as usize]);
        let given = if how & 8 == 0 { Rights::ALL } else { Rights::GET.with(Rights::PUT) };
        if how & 7 != 7 {
            exposed = end.checked.engine.expose(id, area, given);
        }
        end.user.asks.swap_remove(at);
        let region = &mut self.truth.regions[name];
        match exposed {
            Ok(exposed) => {
                end.user.exposed.push((exposed, name));
                end.shared.push(area.region);
                region.exposed = Some(Exposure {
                    area,
                    rights: given.common(region.asked_rights),
                    expected: vec![FRESH; len as usize],
                    is_uncertain: false,
                    is_revoked: false,
                    notices: Vec::new(),
                    written: 0,
                    open: 0,
                    begun: 0,
                    writers: vec![0; len as usize],
                });
            }
            Err(error) => {
                region.is_refused = true;
                let refused = end.checked.engine.refuse_region(id, Reason::Refused);
                self.expect_error(side, "expose", error, &[Error::Busy]);
                if let Err(error) = refused {
                    self.expect_error(side, "refuse_region", error, &[]);
                }
            }
        }
    }

    pub(super) fn revoke(&mut self, side: usize, which: u8) {
        let exposed = &self.ends[side].user.exposed;
        let at = usize::from(which & 63) % exposed.len().max(1);
        let Some((id, name)) = exposed.get(at).copied() else { return };
        if let Some(exposed) = &mut self.truth.regions[name].exposed {
            exposed.is_revoked = true;
            exposed.is_uncertain = true;
        }
        if let Err(error) = self.ends[side].checked.engine.revoke(id) {
            self.expect_error(side, "revoke", error, &[]);
        }
    }

    pub(super) fn is_revoked(&self, region: usize) -> bool {
        self.truth.regions[region].exposed.as_ref().is_none_or(|exposed| exposed.is_revoked)
    }

    /// One of the regions of other sides; sometimes by a name that means
    /// nothing.
    fn pick_remote(&self, side: usize, which: u8) -> Option<(Remote, bool)> {
        let remotes = &self.ends[side].user.remotes;
        let mut remote = *remotes.get(usize::from(which & 15) % remotes.len().max(1))?;
        let is_closing = self.ends[side].user.connection(remote.connection)?.is_closing;
        let is_wrong = which >> 4 & 7 == 7;
        if is_wrong {
            remote.remote.handle ^= NO_SUCH;
        }
        (!is_closing).then_some((remote, is_wrong))
    }

    /// A part of a region, as the bytes of an operation have it.
    fn part(remote: &Remote, at: u8, len: u64) -> (u64, u64) {
        let at = u64::from(at) * 3 % (remote.remote.len + 1);
        (at, len.min(remote.remote.len - at))
    }

    pub(super) fn put(&mut self, side: usize, which: u8, at: u8, len: u32, options: PutOptions) {
        let Some((remote, is_wrong)) = self.pick_remote(side, which) else { return };
        let (at, len) = Self::part(&remote, at, u64::from(len));
        let bytes = self.pattern(len as u32);
        let (now, end) = (self.now, &mut self.ends[side]);
        let area = end.lend(usize::from(which) % 60, &bytes);
        let (id, region) = (remote.connection, &remote.remote);
        match end.checked.engine.put(now, id, region, at, area, options) {
            Ok(id) => {
                let begun = (id, Some(area), None);
                self.begin(side, &remote, begun, is_wrong, at, &bytes);
                if let Some(exposed) = &mut self.truth.regions[remote.region].exposed
                    && options.notice
                    && !is_wrong
                {
                    exposed.notices.push((at, len));
                }
            }
            Err(error) => {
                let allowed = [Error::Busy, Error::Forbidden, Error::PathDown];
                self.expect_error(side, "put", error, &allowed);
            }
        }
    }

    pub(super) fn fetch(&mut self, side: usize, which: u8, at: u8, function: u8) {
        let Some((remote, is_wrong)) = self.pick_remote(side, which) else { return };
        let width = if function & 1 == 0 { WordWidth::Four } else { WordWidth::Eight };
        let len = u64::from(width.bytes());
        let at = u64::from(at) / 8 * 8;
        let Some(exposed) = &self.truth.regions[remote.region].exposed else { return };
        let Some(word) = exposed.expected.get(at as usize..(at + len) as usize) else { return };
        let old = read_word(word);
        let value = 0x0101_0101_0101_0101u64.wrapping_mul(u64::from(function));
        let function = match function >> 1 & 7 {
            0 => WordFunction::Load,
            1 => WordFunction::Store(value),
            2 => WordFunction::Swap(value),
            3 => WordFunction::And(value),
            4 => WordFunction::Or(value),
            5 => WordFunction::Xor(value),
            6 => WordFunction::CompareSwap { expected: old, new: value },
            _ => WordFunction::Add(u64::from(function) + 1),
        };
        let is_unaligned = !exposed.area.offset.is_multiple_of(len);
        let new = write_word(function.apply(old), width);
        let (now, end) = (self.now, &mut self.ends[side]);
        let (id, region) = (remote.connection, &remote.remote);
        match end.checked.engine.fetch_op(now, id, region, at, width, function) {
            Ok(id) => {
                let begun = (id, None, Some(old));
                self.begin(side, &remote, begun, is_wrong || is_unaligned, at, &new);
            }
            Err(error) => {
                let allowed = [Error::Busy, Error::Forbidden, Error::PathDown];
                self.expect_error(side, "fetch_op", error, &allowed);
            }
        }
    }

    /// An operation was begun that leaves `bytes` at `at`.
    fn begin(
        &mut self,
        side: usize,
        remote: &Remote,
        (id, memory, old): (OperationId, Option<Area>, Option<u64>),
        is_refused: bool,
        at: u64,
        bytes: &[u8],
    ) {
        let (connect, region) = (remote.connect, remote.region);
        let begun = Begun { id, connect, region, memory, old, is_refused };
        self.ends[side].user.operations.push(begun);
        let Some(exposed) = &mut self.truth.regions[region].exposed else { return };
        exposed.open += 1;
        if is_refused {
            return;
        }
        exposed.begun += 1;
        let range = at as usize..at as usize + bytes.len();
        if let Some(place) = exposed.expected.get_mut(range.clone()) {
            place.copy_from_slice(bytes);
        }
        if let Some(writers) = exposed.writers.get_mut(range) {
            writers.fill(exposed.begun);
        }
    }

    pub(super) fn get(&mut self, side: usize, which: u8, at: u8, len: u32) {
        let Some((remote, is_wrong)) = self.pick_remote(side, which) else { return };
        let (at, len) = Self::part(&remote, at, u64::from(len));
        let region = remote.region;
        let after = self.truth.regions[region].exposed.as_ref().map_or(0, |known| known.begun);
        let (now, end) = (self.now, &mut self.ends[side]);
        let area = end.lend(usize::from(which) % 140, &vec![FRESH; len as usize]);
        match end.checked.engine.get(now, remote.connection, &remote.remote, at, area) {
            Ok(id) => {
                let what = ReceivePurpose::Get { region, at, after, may_fail: is_wrong };
                let (connect, memory) = (remote.connect, Some(area));
                end.user.receives.push(Receive { id, connect, memory, what });
            }
            Err(error) => {
                self.expect_error(side, "get", error, &[Error::Busy, Error::Forbidden]);
            }
        }
    }

    /// What users are told of persistent memory.
    pub(super) fn take_shared(&mut self, side: usize, event: Event) {
        match event {
            Event::RegionRequested { request, connection, name, len, rights } => {
                if self.known(side, connection, "RegionRequested").is_none() {
                    return;
                }
                let name = name as usize;
                match self.truth.regions.get_mut(name) {
                    Some(region)
                        if region.owner == side
                            && !region.is_asked
                            && region.asked_rights == rights =>
                    {
                        region.is_asked = true;
                        self.ends[side].user.asks.push((request, connection, name, len));
                    }
                    _ => self.fail(side, "a region is asked for by nobody, or twice"),
                }
            }
            Event::RegionAvailable { request, connection, region } => {
                let Some((id, name)) = self.end_of_request(side, request) else { return };
                let known = self.truth.regions[name].exposed.as_ref();
                if known.is_none_or(|e| (e.area.len, e.rights) != (region.len, region.rights)) {
                    return self.fail(side, &format!("{request} got what was not given"));
                }
                if id == connection {
                    let connect = self.truth.regions[name].connect;
                    let remote = Remote { connection, connect, region: name, remote: region };
                    self.ends[side].user.remotes.push(remote);
                }
            }
            Event::RegionRefused { request, why, .. } => {
                let Some((_, name)) = self.end_of_request(side, request) else { return };
                let region = &self.truth.regions[name];
                let is_gone = region.exposed.is_some() && self.is_revoked(name);
                if !region.is_refused && !is_gone && !self.may_end(region.connect) {
                    self.fail(side, &format!("{request} was refused by nobody: {why:?}"));
                }
            }
            Event::Revoked { exposed, memory } => {
                let user = &mut self.ends[side].user;
                let at = user.exposed.iter().position(|(id, _)| *id == exposed);
                let Some((_, name)) = at.map(|at| user.exposed.swap_remove(at)) else {
                    return self.fail(side, &format!("{exposed} comes back a second time"));
                };
                if !self.is_revoked(name) && !self.may_end(self.truth.regions[name].connect) {
                    self.fail(side, &format!("{exposed} comes back, and nobody revoked it"));
                }
                self.give_back(side, &memory);
            }
            Event::Written { exposed, at, len, .. } => self.take_written(side, exposed, at, len),
            Event::GetDone { receive, memory, .. } => self.take_got(side, receive, memory),
            Event::PutDone { operation, connection } => {
                self.take_done(side, (operation, connection), Ok(None));
            }
            Event::Fetched { operation, connection, old } => {
                self.take_done(side, (operation, connection), Ok(Some(old)));
            }
            Event::OperationEnded { operation, connection, why } => {
                self.take_done(side, (operation, connection), Err(why));
            }
            other => self.fail(side, &format!("unexpected: {other:?}")),
        }
    }

    fn end_of_request(&mut self, side: usize, id: RequestId) -> Option<(ConnectionId, usize)> {
        let requests = &mut self.ends[side].user.requests;
        let Some(at) = requests.iter().position(|(known, ..)| *known == id) else {
            self.fail(side, &format!("{id} ended that was not begun, or twice"));
            return None;
        };
        let (_, connection, name) = requests.swap_remove(at);
        Some((connection, name))
    }

    fn take_written(&mut self, side: usize, id: crate::ids::ExposedId, at: u64, len: u64) {
        let found = self.ends[side].user.exposed.iter().find(|(known, _)| *known == id);
        let region = found.and_then(|(_, name)| self.truth.regions[*name].exposed.as_mut());
        // Of the whole Put, and in the order of the calls; of those that were ended none.
        let is_right = region.is_some_and(|exposed| {
            let rest = &exposed.notices[exposed.written..];
            let Some(nth) = rest.iter().position(|notice| *notice == (at, len)) else {
                return false;
            };
            exposed.written += nth + 1;
            nth == 0 || exposed.is_uncertain
        });
        if !is_right {
            self.fail(side, &format!("{id} is told to be written, and is not"));
        }
    }

    /// A Put or FetchOp is over: in the order of the calls.
    fn take_done(
        &mut self,
        side: usize,
        (id, connection): (OperationId, ConnectionId),
        result: Result<Option<u64>, Ended>,
    ) {
        let connect = self.ends[side].user.connection(connection).map(|known| known.connect);
        let operations = &mut self.ends[side].user.operations;
        let at = operations.iter().position(|known| known.id == id);
        let Some(begun) = at.map(|at| operations.remove(at)) else {
            return self.fail(side, &format!("{id} ended that was not begun, or twice"));
        };
        let is_first = operations[..at.unwrap_or(0)].iter().all(|o| Some(o.connect) != connect);
        if !is_first {
            self.fail(side, &format!("{id} ended before those begun before it"));
        }
        let may_end = self.may_end(begun.connect) || self.is_revoked(begun.region);
        let Some(exposed) = &mut self.truth.regions[begun.region].exposed else { return };
        exposed.open -= 1;
        let mut wrong = None;
        match result {
            Ok(_) if begun.is_refused => wrong = Some("took effect and was not allowed to"),
            Ok(old) if old.is_some() != begun.old.is_some() => wrong = Some("is another one"),
            Ok(old) if !exposed.is_uncertain && old != begun.old => {
                wrong = Some("found another value than those before it left");
            }
            Ok(_) => {}
            Err(_) if begun.is_refused => {}
            Err(_) => {
                exposed.is_uncertain = true;
                if !may_end {
                    wrong = Some("was ended by nobody");
                }
            }
        }
        if let Some(wrong) = wrong {
            self.fail(side, &format!("{id} {wrong}: {result:?}, {:?}", begun.old));
        }
        if let Some(memory) = begun.memory {
            self.take_back_sent(side, &memory);
        }
    }

    /// A Get has what all operations before it left, at least where none of
    /// those behind it writes.
    fn take_got(&mut self, side: usize, id: ReceiveId, memory: Area) {
        let receives = &mut self.ends[side].user.receives;
        let at = receives.iter().position(|known| known.id == id && known.memory == Some(memory));
        let Some(known) = at.map(|at| receives.swap_remove(at)) else {
            return self.fail(side, &format!("{id} ended that was not begun, or twice"));
        };
        let ReceivePurpose::Get { region, at, after, may_fail: false } = known.what else {
            return self.give_back(side, &memory);
        };
        let have = self.ends[side].bytes(&memory);
        let is_right = self.truth.regions[region].exposed.as_ref().is_some_and(|exposed| {
            let at = at as usize;
            let is_right =
                |n: usize| exposed.writers[at + n] > after || exposed.expected[at + n] == have[n];
            exposed.is_uncertain || (0..have.len()).all(is_right)
        });
        if !is_right {
            self.fail(side, &format!("{id} got what the region did not hold"));
        }
        self.give_back(side, &memory);
    }

    /// Once nothing is under way, each region holds what all operations left.
    pub(super) fn check_regions(&mut self) {
        let mut wrong = Vec::new();
        for (name, region) in self.truth.regions.iter().enumerate() {
            let Some(exposed) = &region.exposed else { continue };
            if exposed.is_uncertain || exposed.open > 0 {
                continue;
            }
            if self.ends[region.owner].bytes(&exposed.area) != exposed.expected {
                wrong.push((region.owner, format!("region {name} does not hold what was written")));
            } else if exposed.written != exposed.notices.len() {
                wrong.push((region.owner, format!("region {name}: a notice is missing")));
            }
        }
        for (side, wrong) in wrong {
            self.fail(side, &wrong);
        }
    }
}

fn read_word(bytes: &[u8]) -> u64 {
    match (bytes.try_into(), bytes.try_into()) {
        (Ok(word), _) => u64::from(u32::from_ne_bytes(word)),
        (_, Ok(word)) => u64::from_ne_bytes(word),
        _ => 0,
    }
}

fn write_word(value: u64, width: WordWidth) -> Vec<u8> {
    match width {
        WordWidth::Four => (value as u32).to_ne_bytes().to_vec(),
        WordWidth::Eight => value.to_ne_bytes().to_vec(),
    }
}
