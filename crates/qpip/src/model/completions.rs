//! What users are told of their requests, checked against the model: each
//! request completes once, in its order, with the bytes that were sent.

use alloc::format;
use alloc::vec::Vec;
use core::net::SocketAddr;

use landfall_placement::{Duration, Engine, Instant};

use super::ledger::{Pair, Request, Stage};
use super::world::{FRESH, World};
use crate::adapter::{Arm, Event};
use crate::tcp::tcb::CloseReason;
use crate::work::{Completion, Operation, QueuePairId, Status};

impl World {
    pub(super) fn take_completions(&mut self, side: usize) {
        loop {
            let end = &mut self.ends[side];
            let Some(completion) = end.checked.engine.poll(end.queue) else { break };
            self.write_down(|| format!("  side {side}: {completion:?}"));
            self.digest_completion(&completion);
            // What was done in silence before this is told before this.
            self.hear_events();
            if completion.is_solicited() && self.ends[side].armed == Some(Arm::Solicited) {
                self.fail(side, "sleeps though a solicited completion waits");
            }
            self.hear_completion(side, &completion);
            // Polling a part may bring the next one, and so an event.
            self.hear_events();
        }
        for index in 0..self.ledger.pairs.len() {
            if self.ledger.pairs[index].side == side {
                self.settle_silent_sends(index, usize::MAX);
            }
        }
    }

    fn digest_completion(&mut self, completion: &Completion) {
        let Completion { id, operation, status, len, offset, .. } = *completion;
        let Completion { ends_message, ends_request, .. } = *completion;
        let flags = [operation == Operation::Send, ends_message, ends_request].map(u8::from);
        self.findings.add(&completion.immediate.unwrap_or(0).to_le_bytes());
        self.findings.add(&id.to_le_bytes());
        self.findings.add(&[len.to_le_bytes(), offset.to_le_bytes()].concat());
        self.findings.add(&[flags[0], flags[1], flags[2], status as u8]);
    }

    /// Nobody sleeps while what it waits for is there.
    pub(super) fn check_sleep(&mut self, side: usize) {
        let end = &self.ends[side];
        let waiting = end.checked.engine.completions(end.queue);
        if end.armed == Some(Arm::Next) && waiting > 0 {
            self.fail(side, "sleeps though completions wait");
        }
    }

    fn hear_completion(&mut self, side: usize, completion: &Completion) {
        let Completion { queue_pair, operation, id, .. } = *completion;
        let Some(index) = self.ledger.find(side, queue_pair) else {
            return self.fail_badly(side, &format!("{queue_pair} never was, and completes"));
        };
        let place = |pair: &Pair| pair.queue(operation).iter().position(|request| request.id == id);
        if operation == Operation::Send
            && let Some(at) = place(&self.ledger.pairs[index])
        {
            self.settle_silent_sends(index, at);
        }
        let pair = &self.ledger.pairs[index];
        let Some(at) = place(pair) else {
            return self
                .fail_badly(side, &format!("request {id} was not posted, or completes twice"));
        };
        let queue = pair.queue(operation);
        // Of datagrams one may fail its check while the next one is right.
        let may_overtake = !pair.is_tcp() && operation == Operation::Receive;
        let is_good = completion.status.is_success();
        let is_silent = is_good && !queue[at].is_signaled && !pair.is_destroyed;
        if is_silent {
            self.fail(side, &format!("request {id} completes, and was not to"));
        }
        if at > 0 && !may_overtake {
            self.fail(side, &format!("request {id} completes before an earlier one"));
        }
        match operation {
            Operation::Send => self.hear_sent(index, at, completion),
            Operation::Receive if self.ledger.pairs[index].is_tcp() => {
                self.hear_received(index, completion);
            }
            Operation::Receive => self.hear_datagram(index, at, completion),
        }
        if completion.ends_request {
            let queue = self.ledger.pairs[index].queue_mut(operation);
            if let Some(request) = queue.remove(at) {
                self.give_back(side, &request, operation);
            }
        }
    }

    /// Is it good that a request ends so, behind those that ended before it?
    fn check_status(&mut self, index: usize, completion: &Completion) -> bool {
        let pair = &mut self.ledger.pairs[index];
        let has_failed = &mut pair.has_failed[usize::from(completion.operation == Operation::Send)];
        let is_good = completion.status.is_success();
        let succeeds_late = is_good && *has_failed;
        *has_failed |= !is_good;
        // A request that fails was given up, or its connection is over.
        let has_heard_all = pair.has_peer_finished && completion.operation == Operation::Receive;
        let may_fail = pair.is_given_up || pair.is_closed() || has_heard_all;
        let fails_early = !is_good && pair.is_tcp() && !may_fail;
        let side = pair.side;
        if succeeds_late || fails_early {
            self.fail(side, &format!("wrong status: {completion:?}"));
        }
        is_good
    }

    fn hear_sent(&mut self, index: usize, at: usize, completion: &Completion) {
        let pair = &self.ledger.pairs[index];
        let side = pair.side;
        if !pair.is_tcp() {
            let is_right = match completion.status {
                Status::Success => completion.len as usize == pair.sends[at].len,
                Status::Flushed => pair.is_destroyed,
                Status::Unreachable => !self.setup.knows_neighbours(),
                _ => false,
            };
            if !is_right {
                self.fail(side, &format!("a datagram that was sent: {completion:?}"));
            }
            return;
        }
        if !self.check_status(index, completion) {
            return;
        }
        let pair = &self.ledger.pairs[index];
        let request = &pair.sends[at];
        // Invariant 2: acknowledged by the other side.
        let told = pair.peer.map_or(0, |peer| self.ledger.pairs[peer].told);
        let is_right = completion.len as usize == request.len && completion.ends_request;
        if told < request.end || !is_right {
            let end = request.end;
            self.fail(side, &format!("{completion:?} ends at {end}, of which {told} are told"));
        }
    }

    /// A receive of a connection is done, or a part of it.
    fn hear_received(&mut self, index: usize, completion: &Completion) {
        let is_good = self.check_status(index, completion);
        let pair = &self.ledger.pairs[index];
        let side = pair.side;
        let (front, request) = (pair.front, &pair.receives[0]);
        let total = completion.offset as usize + completion.len as usize;
        if !is_good {
            if completion.len > 0 || !completion.ends_request {
                self.fail(side, &format!("what failed has bytes: {completion:?}"));
            }
            return;
        }
        let Some(peer) = pair.peer.map(|peer| &self.ledger.pairs[peer]) else {
            return self.fail(side, "received from nobody");
        };
        let is_in_line = completion.offset as usize == request.reported && total <= request.len;
        // Invariant 1: what was reported before is as it was, too.
        let expected = peer.stream.get(front..front + total).unwrap_or(&[]);
        let is_right = self.memory_of(side, request).get(..total) == Some(expected);
        if !is_in_line || !is_right || expected.is_empty() {
            let what = format!("what was received at {front} is not what was sent: {completion:?}");
            self.fail(side, &what);
        }
        self.check_end(index, completion, total);
        self.check_word(index, completion, total);
        let pair = &mut self.ledger.pairs[index];
        if completion.ends_request {
            pair.front += total;
        } else if let Some(request) = pair.receives.front_mut() {
            request.reported = total;
        }
    }

    /// Messages keep their ends, and requests end where they must.
    fn check_end(&mut self, index: usize, completion: &Completion, total: usize) {
        let pair = &self.ledger.pairs[index];
        let Some(peer) = pair.peer.map(|peer| &self.ledger.pairs[peer]) else { return };
        let side = pair.side;
        let (front, len) = (pair.front, pair.receives[0].len);
        let is_last = peer.is_shut && front + total == peer.stream.len();
        let is_right = match (pair.has_messages(), peer.has_messages()) {
            (true, true) => {
                let end = peer.end_behind(front).map_or(len, |end| end - front);
                completion.ends_request
                    && total == len.min(end)
                    && completion.ends_message == (total == end)
            }
            (true, false) => completion.ends_message || total == len || is_last,
            (false, _) if completion.ends_request => total == len || is_last,
            (false, _) => completion.len > 0,
        };
        if !is_right {
            self.fail(
                side,
                &format!("a request of {len} bytes at {front} ends wrongly: {completion:?}"),
            );
        }
    }

    /// The word of a message comes with its end, once, and no other.
    fn check_word(&mut self, index: usize, completion: &Completion, total: usize) {
        let pair = &self.ledger.pairs[index];
        let Some(peer) = pair.peer.map(|peer| &self.ledger.pairs[peer]) else { return };
        let side = pair.side;
        let sent = peer.words.get(&(pair.front + total)).copied();
        let expected = sent.filter(|_| pair.has_messages() && completion.ends_message);
        if completion.immediate != expected {
            self.fail(side, &format!("{expected:?} was sent with what came as {completion:?}"));
        }
    }

    fn hear_datagram(&mut self, index: usize, at: usize, completion: &Completion) {
        let pair = &self.ledger.pairs[index];
        let side = pair.side;
        let request = &pair.receives[at];
        let bytes = self.memory_of(side, request);
        let len = completion.len as usize;
        let sender = |other: &&Pair| completion.from.is_some() && other.local == completion.from;
        let mut senders = self.ledger.pairs.iter().filter(sender);
        let mut was_sent = |is_it: &dyn Fn(&[u8]) -> bool| {
            senders.any(|other| {
                let mut datagrams = other.datagrams.iter();
                datagrams.any(|(to, bytes)| Some(*to) == pair.local && is_it(bytes))
            })
        };
        let is_right = match completion.status {
            Status::Success => {
                let (came, rest) = bytes.split_at(len.min(bytes.len()));
                was_sent(&|sent| sent == came) && rest.iter().all(|byte| *byte == FRESH)
            }
            Status::TooLong => {
                let is_untouched = bytes.iter().all(|byte| *byte == FRESH);
                was_sent(&|sent| sent.len() == len) && len > request.len && is_untouched
            }
            Status::Flushed => pair.is_destroyed,
            _ => false,
        };
        if !is_right || !completion.ends_request {
            self.fail(side, &format!("a datagram that nobody sent so: {completion:?}"));
        }
    }

    /// The bytes of a request.
    pub(super) fn memory_of(&self, side: usize, request: &Request) -> Vec<u8> {
        let places = request.places.iter().map(|(_, area)| self.ends[side].bytes(area));
        places.collect::<Vec<_>>().concat()
    }

    /// A request is done: its memory is the user's again, and nobody's else.
    fn give_back(&mut self, side: usize, request: &Request, operation: Operation) {
        let id = request.id;
        for (_, area) in &request.places {
            let end = &self.ends[side];
            let (is_written, is_read) = (end.checked.is_written(area), end.checked.is_read(area));
            if is_written || is_read {
                self.fail_badly(
                    side,
                    &format!("request {id} is done while a driver has its memory"),
                );
            }
            if !self.ends[side].is_guarded(area) {
                self.fail_badly(side, &format!("something was written around the memory of {id}"));
            }
            // Anyone who still reads it sends what is wrong.
            let end = &mut self.ends[side];
            if operation == Operation::Send
                && let Some(bytes) = end.memory.get_mut(&area.span(0, area.len as u32))
            {
                bytes.fill(0xdd);
            }
            if let Some(bytes) = end.memory.region(area.region) {
                end.returned.push((area.region, bytes.to_vec()));
            }
        }
        self.release_places(side, &request.places);
    }

    /// Memory that was given back holds what it held then (invariant 1).
    pub(super) fn check_returned(&mut self) {
        for side in 0..2 {
            let end = &self.ends[side];
            let mut returned = end.returned.iter();
            let changed =
                returned.find(|(region, bytes)| end.memory.region(*region) != Some(&bytes[..]));
            if let Some((region, _)) = changed {
                let what = format!("{region} was written after it was given back");
                self.fail_badly(side, &what);
            }
        }
    }
}

// What users are told beside completions, checked against the model.

/// Nobody gives up who was unanswered for a shorter time.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    /// Takes everything that the users are told.
    pub(super) fn hear(&mut self) {
        self.hear_events();
        for side in 0..2 {
            if !self.setup.is_lazy() {
                self.take_completions(side);
            }
            self.check_sleep(side);
        }
    }

    pub(super) fn hear_events(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.ends[side].checked.poll_event() {
                self.write_down(|| format!("  side {side}: {event:?}"));
                self.findings.add(format!("{event:?}").as_bytes());
                self.hear_event(side, event);
            }
        }
    }

    fn hear_event(&mut self, side: usize, event: Event) {
        match event {
            Event::Connected { queue_pair, local, remote } => {
                let Some(index) = self.known(side, queue_pair) else { return };
                let pair = &mut self.ledger.pairs[index];
                let is_right = pair.stage == Stage::Opening
                    && pair.local == Some(local)
                    && pair.remote == Some(remote);
                pair.stage = Stage::Open;
                if !is_right {
                    self.fail(
                        side,
                        &format!("{queue_pair} is connected, but did not ask for that"),
                    );
                }
            }
            Event::Accepted { listener, queue_pair, local, remote } => {
                if listener != self.ends[side].listener {
                    self.fail(side, "accepts for nobody");
                }
                self.hear_accepted(side, queue_pair, (local, remote));
            }
            Event::PeerFinished { queue_pair } => {
                let Some(index) = self.known(side, queue_pair) else { return };
                let pair = &mut self.ledger.pairs[index];
                let is_second = core::mem::replace(&mut pair.has_peer_finished, true);
                let peer = pair.peer.map(|peer| &self.ledger.pairs[peer]);
                if is_second || peer.is_none_or(|peer| !peer.is_shut) {
                    self.fail(side, &format!("{queue_pair}: the other side has not finished"));
                }
            }
            Event::Closed { queue_pair, reason } => self.hear_closed(side, queue_pair, reason),
            Event::UnsignaledDone { queue_pair, count } => {
                self.hear_unsignaled(side, queue_pair, count);
            }
            // Whose queue pair is gone says so: nothing of the ledger changes.
            Event::Undelivered { .. }
            | Event::AddressReady { .. }
            | Event::AddressLost { .. }
            | Event::AddressConflict { .. } => {}
            Event::CompletionsReady { queue } => {
                let end = &mut self.ends[side];
                if queue != end.queue || end.armed.take().is_none() {
                    self.fail(side, "is woken without having armed");
                }
            }
        }
    }

    /// Silent sends are done. Which ones, is plain on a connection: the first. One of several
    /// datagrams may have failed, and while its completion waits, nobody knows of it.
    fn hear_unsignaled(&mut self, side: usize, id: QueuePairId, count: u32) {
        let Some(index) = self.known(side, id) else { return };
        let pair = &mut self.ledger.pairs[index];
        pair.silently_done += count;
        if pair.is_tcp() {
            self.settle_silent_sends(index, usize::MAX);
        }
    }

    /// The first of the silent sends are done, as if they had completed: all that was told of, or
    /// those of the first `before`.
    fn settle_silent_sends(&mut self, index: usize, before: usize) {
        let (side, id) = (self.ledger.pairs[index].side, self.ledger.pairs[index].id);
        for settled in 0..self.ledger.pairs[index].silently_done {
            let pair = &mut self.ledger.pairs[index];
            let sends = &mut pair.sends;
            let left = before.saturating_sub(settled as usize);
            let Some(at) = sends.iter().take(left).position(|request| !request.is_signaled) else {
                if before == usize::MAX {
                    self.fail_badly(side, &format!("{id} has done more than was posted"));
                }
                return;
            };
            pair.silently_done -= 1;
            let completion = Completion {
                id: sends[at].id,
                queue_pair: id,
                operation: Operation::Send,
                status: Status::Success,
                len: sends[at].len as u32,
                offset: 0,
                ends_message: true,
                ends_request: true,
                from: None,
                immediate: None,
            };
            self.hear_sent(index, at, &completion);
            if let Some(request) = self.ledger.pairs[index].sends.remove(at) {
                self.give_back(side, &request, Operation::Send);
            }
        }
    }

    fn known(&mut self, side: usize, id: QueuePairId) -> Option<usize> {
        let found = self.ledger.find(side, id);
        if found.is_none() {
            self.fail(side, &format!("is told of {id}, which never was"));
        }
        found
    }

    fn hear_accepted(
        &mut self,
        side: usize,
        id: QueuePairId,
        (local, remote): (SocketAddr, SocketAddr),
    ) {
        let Some(index) = self.known(side, id) else { return };
        let other = self.ledger.connection(1 - side, remote, local);
        let pair = &mut self.ledger.pairs[index];
        let was_waiting = core::mem::replace(&mut pair.stage, Stage::Open) == Stage::Waiting;
        (pair.local, pair.remote, pair.peer) = (Some(local), Some(remote), other);
        if let Some(other) = other {
            let former = self.ledger.pairs[other].peer.replace(index);
            self.ledger.pairs[other].former_peer = former;
            if former.is_some() {
                self.ledger.pairs[other].opening.begin_anew();
            }
            // Who listens without state (SYN cookies) does not know what it had: what says
            // once more "you are connected" makes another connection of one that was given
            // up. The reset of the former one is still on its way.
            let is_over = former.is_none_or(|former| self.ledger.pairs[former].is_given_up);
            let has_cookies = self.ends[side].checked.engine.stats().cookies_accepted > 0;
            if !is_over || (former.is_some() && !has_cookies) {
                self.fail(side, &format!("{id} accepts a connection for the second time"));
            }
        }
        if other.is_none() || !was_waiting {
            self.fail(side, &format!("{id} accepts a connection that nobody asked for"));
        }
    }

    fn hear_closed(&mut self, side: usize, id: QueuePairId, reason: CloseReason) {
        let Some(index) = self.known(side, id) else { return };
        let pair = &mut self.ledger.pairs[index];
        let was_closed = pair.is_closed();
        pair.stage = Stage::Closed(reason);
        if was_closed || !self.may_close(index, reason) {
            self.fail(side, &format!("{id} is closed, without reason: {reason}"));
        }
    }

    /// Does what happened give this reason to close?
    fn may_close(&self, index: usize, reason: CloseReason) -> bool {
        let pair = &self.ledger.pairs[index];
        let peer = pair.peer.map(|peer| &self.ledger.pairs[peer]);
        let was_given_up = pair.former_peer.is_some();
        let is_late = self.now > Instant::ZERO + PATIENCE;
        match reason {
            CloseReason::Aborted => pair.is_given_up,
            // Nobody on the way reads options.
            CloseReason::OptionsRemoved => false,
            CloseReason::TimedOut => is_late,
            CloseReason::Unreachable => !self.setup.knows_neighbours() || is_late,
            // Without a queue pair that is offered, an opening is forgotten in time.
            // So is, for others, one that is over: late segments draw a reset then.
            // Who listens without state gives up who came for a queue pair and got none, and
            // takes its next segment for a proof: the reset is on its way then.
            CloseReason::Reset | CloseReason::Refused => {
                let theirs = self.ends[1 - pair.side].checked.engine.stats();
                let may_be_known_again = is_late && theirs.cookies_accepted > 0;
                was_given_up
                    || may_be_known_again
                    || peer.is_none_or(|peer| peer.is_given_up || peer.is_closed())
            }
            CloseReason::Finished => {
                let has_heard_all = peer.is_some_and(|peer| peer.told == pair.stream.len());
                pair.is_shut && pair.has_peer_finished && has_heard_all
            }
        }
    }
}
