//! What users of queue pairs are told, and whether it is so.

use qpip::{CloseReason, Completion, Event, Operation, QueuePairId, Status};

use super::calls::datagram_bytes;
use super::{Qpip, truth::mapping};
use crate::ctx::Ctx;
use crate::datagram;

impl Qpip {
    /// Takes the completions of a host.
    pub(super) fn collect(&mut self, ctx: &mut Ctx, host: u8) {
        let (node, queue) = (self.known(host).node, self.known(host).queue);
        // Only who has something to poll is woken.
        if ctx.sim.node(node).is_ok_and(|node| node.engine().completions(queue) == 0) {
            return;
        }
        while let Some(done) = self.engine(ctx, host).poll(queue) {
            ctx.note(host, || format!("{done:?}"));
            ctx.count("qpip completions");
            self.complete(ctx, host, &done);
        }
    }

    fn complete(&mut self, ctx: &mut Ctx, host: u8, done: &Completion) {
        if done.queue_pair == self.known(host).datagrams {
            return self.complete_datagram(ctx, host, done);
        }
        let Some(name) = self.known(host).pairs.get(&done.queue_pair).copied() else {
            return ctx.fail(host, &format!("a completion of nobody's {}", done.queue_pair));
        };
        match done.operation {
            Operation::Send => self.complete_send(ctx, host, name, done),
            Operation::Receive if done.status.is_success() => {
                self.complete_receive(ctx, host, name, done);
            }
            Operation::Receive => {
                let is_over = {
                    let known = &self.connections[name];
                    let side = known.side(host);
                    ctx.is_severe || known.is_gone || known.directions[1 - side].is_shut
                };
                self.regain(ctx, host, done.id, false);
                if !is_over {
                    ctx.fail(
                        host,
                        &format!("a receive failed, and nobody ended it: {}", done.status),
                    );
                }
            }
        }
    }

    /// What was sent is acknowledged only when it is in place (invariant 2).
    fn complete_send(&mut self, ctx: &mut Ctx, host: u8, name: usize, done: &Completion) {
        let connection = &mut self.connections[name];
        let side = connection.side(host);
        let other = connection.host(1 - side);
        let hears = !ctx.frozen[usize::from(other)] && connection.pairs[1 - side].is_some();
        let is_gone = connection.is_gone;
        let kind = connection.kind;
        let direction = &mut connection.directions[side];
        if direction.posted.pop_front() != Some(done.id) {
            ctx.fail(host, &format!("send {} completed out of its turn", done.id));
        }
        if done.status == Status::Success {
            direction.acknowledged += 1;
            let (acknowledged, received) = (direction.acknowledged, direction.received);
            let is_early = received < acknowledged && mapping(kind) != qpip::Mapping::Stream;
            if is_early && hears && !is_gone {
                let what = format!("message {acknowledged} is acknowledged, {received} came");
                ctx.fail(host, &what);
            }
        } else if !ctx.is_severe && !is_gone {
            ctx.fail(host, &format!("a send failed, and nobody ended it: {}", done.status));
        }
        self.regain(ctx, host, done.id, false);
        self.say(ctx, name, side);
    }

    fn complete_receive(&mut self, ctx: &mut Ctx, host: u8, name: usize, done: &Completion) {
        let node = self.known(host).node;
        let Some(given) = self.known(host).given.get(&done.id).copied() else {
            return ctx.fail(host, &format!("request {} completed twice", done.id));
        };
        let connection = &mut self.connections[name];
        let side = 1 - connection.side(host);
        let is_stream = mapping(connection.kind) == qpip::Mapping::Stream;
        let direction = &mut connection.directions[side];
        let from = direction.received_bytes;
        direction.received_bytes += u64::from(done.len);
        let (sent, nth) = (direction.sent, direction.received);
        let message = direction.messages.get(nth).copied();
        direction.received += usize::from(!is_stream);
        if !is_stream && (message != Some(done.len) || !done.ends_message || done.offset != 0) {
            ctx.fail(host, &format!("message {nth} of {message:?} bytes came as {done:?}"));
        }
        if from + u64::from(done.len) > sent {
            ctx.fail(host, "more bytes came than were sent");
        }
        let span = given.area.span(done.offset.into(), done.len);
        let wanted = self.connections[name].bytes(name, side, from, done.len as usize);
        let is_right = ctx.sim.node(node).is_ok_and(|node| node.memory().read(span) == Ok(&wanted));
        if !is_right {
            ctx.fail(host, &format!("bytes from {from} on of connection {name} are others"));
        }
        ctx.count("qpip receives");
        if let Ok(node) = ctx.sim.node_mut(node) {
            // Anyone who writes there again ends the run (invariant 1).
            let _ = node.memory_mut().freeze(span);
        }
        if done.ends_request {
            self.regain(ctx, host, done.id, true);
            self.feed(ctx, host, done.queue_pair, 1);
        }
        if is_right {
            self.hear_disk(ctx, name, 1 - side, &wanted);
        }
    }

    fn complete_datagram(&mut self, ctx: &mut Ctx, host: u8, done: &Completion) {
        if done.operation == Operation::Send {
            if done.status != Status::Success {
                ctx.fail(host, &format!("a datagram was not sent: {}", done.status));
            }
            return self.regain(ctx, host, done.id, false);
        }
        let node = self.known(host).node;
        let Some(given) = self.known(host).given.get(&done.id).copied() else {
            return ctx.fail(host, &format!("request {} completed twice", done.id));
        };
        if done.status != Status::Success {
            ctx.fail(host, &format!("a datagram was not received: {}", done.status));
        } else {
            let span = given.area.span(0, done.len);
            let bytes = ctx.sim.node(node).ok().and_then(|node| node.memory().read(span).ok());
            let bytes = bytes.unwrap_or(&[]).to_vec();
            self.hear_datagram(ctx, host, false, &bytes);
            if let Ok(node) = ctx.sim.node_mut(node) {
                let _ = node.memory_mut().freeze(span);
            }
        }
        self.regain(ctx, host, done.id, true);
        self.feed(ctx, host, done.queue_pair, 1);
    }

    pub(super) fn hear_joined(&mut self, ctx: &mut Ctx, host: u8) {
        let joined = self.known(host).joined.take();
        for frame in joined {
            ctx.count("defrag packets");
            if let Some(payload) = datagram::payload(&frame, datagram::ip(host, true)) {
                self.hear_datagram(ctx, host, true, payload);
            }
        }
    }

    /// A datagram is one that was sent there, whole.
    fn hear_datagram(&mut self, ctx: &mut Ctx, host: u8, speculates: bool, bytes: &[u8]) {
        let name = bytes.first_chunk().map(|name| u64::from_le_bytes(*name));
        let known = name.and_then(|name| self.datagrams.get_mut(name as usize));
        let Some((name, known)) = name.zip(known) else {
            return ctx.fail(host, "a datagram came that nobody sent");
        };
        known.came += 1;
        let is_there = known.to == host && known.speculates == speculates;
        let is_again = known.came > 1 && !ctx.may_double();
        if !is_there || bytes != datagram_bytes(name, known.len) || is_again {
            let what = format!("{known:?}, its number {name}, came wrongly: {} bytes", bytes.len());
            ctx.fail(host, &what);
        }
    }

    pub(super) fn take(&mut self, ctx: &mut Ctx, host: u8, event: Event) {
        match event {
            Event::Connected { queue_pair, .. } => self.take_up(ctx, host, queue_pair),
            Event::Accepted { queue_pair, listener, .. } => {
                self.take_up(ctx, host, queue_pair);
                // Where the other side gave up meanwhile, nobody listens any more.
                let _ = self.engine(ctx, host).stop_listening(listener);
            }
            Event::PeerFinished { queue_pair } => self.take_finish(ctx, host, queue_pair),
            Event::Closed { queue_pair, reason } => self.take_closed(ctx, host, queue_pair, reason),
            _ => {}
        }
    }

    fn name_of(&self, ctx: &mut Ctx, host: u8, pair: QueuePairId) -> Option<(usize, usize)> {
        let name = self.known(host).pairs.get(&pair).copied();
        if name.is_none() {
            ctx.fail(host, &format!("{pair} is told of, and is nobody's"));
        }
        name.map(|name| (name, self.connections[name].side(host)))
    }

    fn take_up(&mut self, ctx: &mut Ctx, host: u8, pair: QueuePairId) {
        let Some((name, side)) = self.name_of(ctx, host, pair) else { return };
        if std::mem::replace(&mut self.connections[name].is_up[side], true) {
            ctx.fail(host, &format!("connection {name} opened twice"));
        }
        self.begin_disk(ctx, name, side);
    }

    fn take_finish(&mut self, ctx: &mut Ctx, host: u8, pair: QueuePairId) {
        let Some((name, side)) = self.name_of(ctx, host, pair) else { return };
        let connection = &mut self.connections[name];
        let direction = &mut connection.directions[1 - side];
        let is_again = std::mem::replace(&mut direction.is_finished, true);
        let is_whole = direction.received_bytes == direction.sent;
        let is_right = direction.is_shut && is_whole && !is_again;
        if !is_right && !connection.is_gone {
            ctx.fail(host, &format!("connection {name} is said to be at its end, and is not"));
        }
        self.shut_side(ctx, name, side, false);
    }

    fn take_closed(&mut self, ctx: &mut Ctx, host: u8, pair: QueuePairId, reason: CloseReason) {
        let Some((name, side)) = self.name_of(ctx, host, pair) else { return };
        let connection = &mut self.connections[name];
        connection.is_closed[side] = true;
        let are_shut = connection.directions.iter().all(|one| one.is_shut);
        if reason != CloseReason::Finished {
            let may_end = ctx.is_severe || connection.is_gone;
            connection.is_gone = true;
            // Who asked may be gone before the other side heard of it.
            if !(may_end || are_shut && reason == CloseReason::TimedOut) {
                ctx.fail(
                    host,
                    &format!("connection {name} ended, and nobody ended it: {reason:?}"),
                );
            }
        } else if !are_shut && !connection.is_gone {
            ctx.fail(host, &format!("connection {name} is finished, and a side still sends"));
        }
        self.withdraw(ctx, name);
    }

    /// Nobody comes to a queue pair that waits for who has given up.
    pub(super) fn withdraw(&mut self, ctx: &mut Ctx, name: usize) {
        let connection = &mut self.connections[name];
        let Some(other) = connection.pairs[1].filter(|_| !connection.is_up[1]) else { return };
        let (to, listener) = (connection.to, connection.listener.take());
        connection.is_closed[1] = true;
        connection.is_gone = true;
        let now = ctx.now();
        let engine = self.engine(ctx, to);
        if let Some(listener) = listener {
            let _ = engine.stop_listening(listener);
        }
        let _ = engine.destroy_queue_pair(now, other);
    }
}
