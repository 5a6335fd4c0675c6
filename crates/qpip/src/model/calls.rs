//! What users do, and whether the adapter takes it as it must.

use alloc::vec::Vec;
use alloc::{format, vec};
use core::net::SocketAddr;

use landfall_placement::{Area, Duration, Instant};

use super::ledger::{Pair, Request, Stage};
use super::world::{ALL_FRESH, End, FRESH, World};
use crate::adapter::{Access, Arm, Error, PostError, QueuePairSetup, Service};
use crate::work::{Buffer, MemoryKey, Operation, QueuePairId, ReceiveWork, SendWork};

/// A port that nobody is bound to.
const NOBODY: u16 = 999;

impl World {
    /// Which of the queue pairs of a side is meant.
    fn choose(&self, side: usize, which: u8) -> Option<usize> {
        let of_side = |pair: &&Pair| pair.side == side && !pair.is_destroyed;
        let pairs = &self.ledger.pairs;
        let count = pairs.iter().filter(of_side).count();
        let nth = usize::from(which & 63) % count.max(1);
        let mut indices = (0..pairs.len()).filter(|index| of_side(&&pairs[*index]));
        indices.nth(nth)
    }

    fn make(&mut self, side: usize, service: Service) -> Option<usize> {
        let end = &mut self.ends[side];
        let setup = QueuePairSetup {
            domain: end.domain,
            send_completions: end.queue,
            receive_completions: end.queue,
            service,
            send_depth: self.setup.depth(),
            receive_depth: self.setup.depth(),
            shared_receives: None,
        };
        match end.checked.engine.create_queue_pair(&setup) {
            Ok(id) => {
                self.ledger.pairs.push(Pair::new(side, id, service));
                Some(self.ledger.pairs.len() - 1)
            }
            Err(Error::Full(_)) => None,
            Err(error) => {
                self.fail(side, &format!("no queue pair was created: {error}"));
                None
            }
        }
    }

    pub(super) fn connect(&mut self, side: usize) {
        let service = Service::Tcp(self.setup.mapping(side));
        let Some(index) = self.make(side, service) else { return };
        let to = self.setup.listens_at(1 - side);
        let id = self.ledger.pairs[index].id;
        let adapter = &mut self.ends[side].checked.engine;
        if let Err(error) = adapter.connect(self.now, id, None, to) {
            return self.fail(side, &format!("connect: {error}"));
        }
        let local = adapter.local_address(id);
        let pair = &mut self.ledger.pairs[index];
        (pair.stage, pair.local, pair.remote) = (Stage::Opening, local, Some(to));
    }

    pub(super) fn offer(&mut self, side: usize) {
        let service = Service::Tcp(self.setup.mapping(side));
        let Some(index) = self.make(side, service) else { return };
        let id = self.ledger.pairs[index].id;
        let end = &mut self.ends[side];
        if let Err(error) = end.checked.engine.offer(end.listener, id) {
            self.fail(side, &format!("offer: {error}"));
        }
    }

    pub(super) fn bind(&mut self, side: usize) {
        let Some(index) = self.make(side, Service::Udp) else { return };
        let id = self.ledger.pairs[index].id;
        let local = SocketAddr::new(self.setup.address(side), 0);
        match self.ends[side].checked.engine.bind(id, local) {
            Ok(local) => self.ledger.pairs[index].local = Some(local),
            Err(error) => self.fail(side, &format!("bind: {error}")),
        }
    }

    /// Bytes that are nowhere else.
    fn pattern(&mut self, len: u32) -> Vec<u8> {
        let salt = self.name() << 32;
        let mut bytes = vec![0; (len as usize).next_multiple_of(8)];
        for (n, word) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
            let mixed = (salt | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
            word.copy_from_slice(&(mixed ^ mixed >> 32).to_le_bytes());
        }
        bytes.truncate(len as usize);
        bytes
    }

    /// Memory of this many bytes in several places, registered.
    fn lend(
        &mut self,
        side: usize,
        bytes: &[u8],
        pieces: u8,
        access: Access,
    ) -> Vec<(MemoryKey, Area)> {
        let size = bytes.len().div_ceil(usize::from(pieces & 3) + 1).max(1);
        let end = &mut self.ends[side];
        let mut places = Vec::new();
        for part in bytes.chunks(size) {
            let area = end.lend(part);
            match end.checked.engine.register(end.domain, area, access) {
                Ok(key) => places.push((key, area)),
                Err(error) => {
                    self.fail(side, &format!("register: {error}"));
                    break;
                }
            }
        }
        places
    }

    pub(super) fn send(&mut self, side: usize, which: u8, len: u32, pieces: u8) {
        let Some(index) = self.choose(side, which) else { return };
        let bytes = self.pattern(len);
        let places = self.lend(side, &bytes, pieces, Access::Read);
        let from: Vec<Buffer> = places.iter().map(buffer).collect();
        let to = self.destination(index, pieces);
        let (now, id, name) = (self.now, self.ledger.pairs[index].id, self.name());
        // Some are silent.
        let is_signaled = len % 5 != 4;
        // Some have a word, and some of those may not.
        let immediate = (self.setup.has_immediates(side) && len % 3 == 1).then_some(name as u32);
        let work = SendWork { id: name, from: &from, to, is_signaled, immediate };
        let result = self.ends[side].checked.engine.post_send(now, id, &work);
        if let Err(error) = result {
            self.judge_send_refusal(index, bytes.len(), immediate, error);
            return self.release_places(side, &places);
        }
        let pair = &mut self.ledger.pairs[index];
        match to {
            Some(to) => pair.datagrams.push((to, bytes)),
            None => {
                pair.stream.extend_from_slice(&bytes);
                pair.ends.insert(pair.stream.len());
            }
        }
        let has_peer = pair.stage != Stage::Waiting;
        if let Some(word) = immediate {
            pair.words.insert(pair.stream.len(), word);
            if !has_peer || !pair.is_tcp() || !self.may_have_words(index) {
                self.fail(side, &format!("{id} took a word that nobody asked for"));
            }
        }
        let pair = &mut self.ledger.pairs[index];
        let (end, len) = (pair.stream.len(), len as usize);
        let request = Request { id: name, places, len, end, reported: 0, is_signaled };
        pair.sends.push_back(request);
        if pair.is_tcp() && (len == 0 || pair.is_shut || pair.is_closed()) {
            self.fail(side, &format!("{id} took a send of {len} bytes that it cannot send"));
        }
    }

    /// Where a datagram goes: mostly to somebody.
    fn destination(&self, index: usize, pieces: u8) -> Option<SocketAddr> {
        let pair = &self.ledger.pairs[index];
        if pair.is_tcp() {
            return None;
        }
        let listens =
            |other: &&Pair| other.side != pair.side && !other.is_tcp() && !other.is_destroyed;
        let found = self.ledger.pairs.iter().filter(listens).nth(usize::from(pieces >> 1 & 1));
        let nobody = SocketAddr::new(self.setup.address(1 - pair.side), NOBODY);
        Some(found.and_then(|other| other.local).unwrap_or(nobody))
    }

    pub(super) fn receive(&mut self, side: usize, which: u8, len: u32, pieces: u8) {
        if let Some(index) = self.choose(side, which) {
            self.post_receive(index, len, pieces);
        }
    }

    pub(super) fn post_receive(&mut self, index: usize, len: u32, pieces: u8) {
        let side = self.ledger.pairs[index].side;
        let places = self.lend(side, &ALL_FRESH[..len as usize], pieces, Access::Write);
        let into: Vec<Buffer> = places.iter().map(buffer).collect();
        let (now, id, name) = (self.now, self.ledger.pairs[index].id, self.name());
        let work = ReceiveWork { id: name, into: &into };
        let result = self.ends[side].checked.engine.post_receive(now, id, &work);
        if let Err(error) = result {
            self.judge_refusal(index, Operation::Receive, len as usize, error);
            return self.release_places(side, &places);
        }
        let pair = &mut self.ledger.pairs[index];
        let len = len as usize;
        let request = Request { id: name, places, len, end: 0, reported: 0, is_signaled: true };
        pair.receives.push_back(request);
        let posted: usize = pair.receives.iter().map(|request| request.len).sum();
        pair.memory_end = pair.memory_end.max(pair.front + posted);
        if len == 0 || pair.is_closed() || pair.has_peer_finished {
            self.fail(side, &format!("{id} took a receive of {len} bytes that nothing fills"));
        }
    }

    /// Does what both sides chose allow words with the messages of this queue pair?
    fn may_have_words(&self, index: usize) -> bool {
        match self.ledger.pairs[index].service {
            Service::Tcp(mapping) => self.setup.agrees_on_immediates(mapping),
            Service::Udp => false,
        }
    }

    /// Was it right to refuse to send this?
    fn judge_send_refusal(
        &mut self,
        index: usize,
        len: usize,
        immediate: Option<u32>,
        error: PostError,
    ) {
        if error != PostError::NoImmediates {
            return self.judge_refusal(index, Operation::Send, len, error);
        }
        let pair = &self.ledger.pairs[index];
        let side = pair.side;
        // An opening that comes for the third time does not ask, and what is answered without
        // state has no room for it.
        let is_open = matches!(pair.stage, Stage::Open) && pair.peer.is_some();
        let was_hard = self.now > Instant::ZERO + Duration::from_secs(2)
            || self.ends.iter().any(|end| end.checked.engine.stats().cookies_accepted > 0);
        if immediate.is_none() || is_open && self.may_have_words(index) && !was_hard {
            let id = pair.id;
            self.fail(side, &format!("{id} takes no word of {immediate:?}"));
        }
    }

    /// Was it right to refuse a request?
    fn judge_refusal(&mut self, index: usize, operation: Operation, len: usize, error: PostError) {
        let pair = &self.ledger.pairs[index];
        let (side, id) = (pair.side, pair.id);
        let is_right = match error {
            PostError::Empty => len == 0,
            PostError::UnknownQueuePair => pair.is_destroyed,
            PostError::Ended if operation == Operation::Send => pair.is_shut || pair.is_closed(),
            PostError::Ended => pair.has_peer_finished || pair.is_closed(),
            PostError::QueueFull => pair.queue(operation).len() >= self.setup.depth() as usize,
            PostError::CompletionQueueFull => self.places_taken(side) >= self.setup.completions(),
            PostError::TooLong => pair.has_whole_messages() && len > 500,
            _ => false,
        };
        if !is_right {
            self.fail(side, &format!("{operation:?} of {len} bytes on {id} was refused: {error}"));
        }
    }

    /// How many places of the completion queue of a side are taken at most.
    fn places_taken(&self, side: usize) -> u32 {
        let waiting = self.ends[side].checked.engine.completions(self.ends[side].queue);
        let places = |pair: &Pair| {
            let parts = u32::from(pair.is_tcp() && !pair.has_messages());
            pair.sends.len() as u32 + pair.receives.len() as u32 + parts
        };
        let of_side = self.ledger.pairs.iter().filter(|pair| pair.side == side);
        of_side.map(places).sum::<u32>() + waiting as u32
    }

    /// Nothing uses this memory any more: its registration can end.
    pub(super) fn release_places(&mut self, side: usize, places: &[(MemoryKey, Area)]) {
        for (key, area) in places {
            match self.ends[side].checked.engine.deregister(*key) {
                Ok(memory) if memory == *area => {}
                other => self.fail(side, &format!("{key} did not give {area} back: {other:?}")),
            }
        }
    }

    pub(super) fn shutdown(&mut self, side: usize, which: u8) {
        let Some(index) = self.choose(side, which) else { return };
        let now = self.now;
        let pair = &mut self.ledger.pairs[index];
        let result = self.ends[side].checked.engine.shutdown(now, pair.id);
        let had_connection = pair.is_tcp() && pair.stage != Stage::Waiting;
        pair.is_shut |= result.is_ok();
        if result.is_ok() != had_connection {
            self.fail(side, &format!("shutdown: {result:?}"));
        }
    }

    pub(super) fn abort(&mut self, side: usize, which: u8) {
        let Some(index) = self.choose(side, which) else { return };
        let now = self.now;
        let pair = &mut self.ledger.pairs[index];
        let result = self.ends[side].checked.engine.abort(now, pair.id);
        let had_connection = pair.is_tcp() && pair.stage != Stage::Waiting;
        pair.is_given_up |= result.is_ok();
        if result.is_ok() != had_connection {
            self.fail(side, &format!("abort: {result:?}"));
        }
    }

    pub(super) fn destroy(&mut self, side: usize, which: u8) {
        if let Some(index) = self.choose(side, which) {
            self.destroy_pair(index);
        }
    }

    pub(super) fn destroy_pair(&mut self, index: usize) {
        let now = self.now;
        let pair = &mut self.ledger.pairs[index];
        let (side, id) = (pair.side, pair.id);
        (pair.is_destroyed, pair.is_given_up) = (true, true);
        if let Err(error) = self.ends[side].checked.engine.destroy_queue_pair(now, id) {
            self.fail(side, &format!("destroy: {error}"));
        }
    }

    pub(super) fn poll(&mut self, side: usize) {
        self.hear_events();
        self.take_completions(side);
    }

    /// A waiter polls until there is nothing, arms, and sleeps only after `true`.
    pub(super) fn arm(&mut self, side: usize, solicited: bool) {
        let arm = if solicited { Arm::Solicited } else { Arm::Next };
        let End { checked, queue, armed, .. } = &mut self.ends[side];
        let waiting = checked.engine.completions(*queue);
        let may_sleep = checked.engine.arm(*queue, arm);
        *armed = may_sleep.then_some(arm);
        if may_sleep && waiting > 0 && !solicited {
            self.fail(side, "may sleep while completions wait");
        }
        if !may_sleep && waiting == 0 {
            self.fail(side, "may not sleep though nothing waits");
        }
    }

    /// What users must not do is refused, and changes nothing.
    pub(super) fn blunder(&mut self, side: usize, which: u8, how: u8) {
        let Some(index) = self.choose(side, which) else { return };
        let id = self.ledger.pairs[index].id;
        let taken = match how % 10 {
            0..=5 => self.post_badly(side, id, how % 10),
            6 => self.deregister_in_use(index),
            7 => self.use_stale(side, id),
            8 => self.use_wrongly(index),
            _ => {
                let end = &mut self.ends[side];
                let adapter = &mut end.checked.engine;
                adapter.destroy_domain(end.domain).is_ok()
                    || adapter.destroy_completion_queue(end.queue).is_ok()
            }
        };
        if taken {
            self.fail(side, &format!("blunder {how} on {id} was not refused"));
        }
    }

    /// Names memory that it has no right to.
    fn post_badly(&mut self, side: usize, id: QueuePairId, how: u8) -> bool {
        let now = self.now;
        let end = &mut self.ends[side];
        let domain = if how == 1 { end.other_domain } else { end.domain };
        let area = end.lend(&[FRESH; 16]);
        let adapter = &mut end.checked.engine;
        let Ok(key) = adapter.register(domain, area, Access::Read) else { return false };
        let stale = MemoryKey::new(key.index, key.generation.wrapping_sub(1));
        let mut buffers = vec![match how {
            0 => Buffer::new(stale, 0, 16),
            3 => Buffer::new(key, 10, 7),
            4 => Buffer::new(key, 16, 0),
            _ => Buffer::new(key, 0, 16),
        }];
        if how == 5 {
            buffers.resize(adapter.config().buffers + 1, buffers[0]);
        }
        let to = (how == 2).then(|| SocketAddr::new(self.setup.address(1 - side), 0));
        let sends = adapter.post_send(
            now,
            id,
            &SendWork { id: 0, from: &buffers, to, is_signaled: true, immediate: None },
        );
        let receives = adapter.post_receive(now, id, &ReceiveWork { id: 0, into: &buffers });
        self.release_places(side, &[(key, area)]);
        sends.is_ok() || receives.is_ok()
    }

    fn deregister_in_use(&mut self, index: usize) -> bool {
        let pair = &self.ledger.pairs[index];
        // A lazy user has not heard yet what is over.
        let request = pair.sends.back().or(pair.receives.back());
        let Some((key, _)) = request.and_then(|request| request.places.first()).copied() else {
            return false;
        };
        let is_lazy = self.setup.is_lazy();
        let adapter = &mut self.ends[pair.side].checked.engine;
        !is_lazy && adapter.deregister(key).is_ok()
    }

    fn use_stale(&mut self, side: usize, id: QueuePairId) -> bool {
        let stale = QueuePairId::new(id.index, id.generation.wrapping_sub(1));
        let (now, to) = (self.now, self.setup.listens_at(1 - side));
        let end = &mut self.ends[side];
        let (listener, adapter) = (end.listener, &mut end.checked.engine);
        adapter.connect(now, stale, None, to).is_ok()
            || adapter.offer(listener, stale).is_ok()
            || adapter.bind(stale, to).is_ok()
            || adapter.shutdown(now, stale).is_ok()
            || adapter.abort(now, stale).is_ok()
            || adapter.destroy_queue_pair(now, stale).is_ok()
    }

    /// Uses a queue pair for what it is not, or a second time.
    fn use_wrongly(&mut self, index: usize) -> bool {
        let Pair { side, id, stage, .. } = self.ledger.pairs[index];
        let is_tcp = self.ledger.pairs[index].is_tcp();
        let (now, to) = (self.now, self.setup.listens_at(1 - side));
        let end = &mut self.ends[side];
        let (listener, adapter) = (end.listener, &mut end.checked.engine);
        let own = SocketAddr::new(self.setup.address(side), 0);
        // Who was offered may be idle again, once its listener is gone: not here.
        let connects = adapter.connect(now, id, None, to).is_ok();
        let offers = adapter.offer(listener, id).is_ok();
        let binds = adapter.bind(id, own).is_ok();
        let aborts = !is_tcp && adapter.abort(now, id).is_ok();
        let ends_nothing = stage == Stage::Waiting && adapter.shutdown(now, id).is_ok();
        connects || offers || binds || aborts || ends_nothing
    }
}

const fn buffer(place: &(MemoryKey, Area)) -> Buffer {
    Buffer::new(place.0, 0, place.1.len as u32)
}
