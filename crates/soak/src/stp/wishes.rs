//! What users of STP wish beside their Transfers: that one is over in time, that one goes first,
//! that memory comes back. And handshakes that nothing follows.

use landfall_placement::{Duration, Instant, PathId, Peer};
use stp_core::{ConnectionId, Error, Priority};

use super::Stp;
use super::truth::Transfer;
use crate::ctx::Ctx;

/// When something has to be over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Instant,
    by: u8,
    what: EarlyEnd,
}

#[derive(Clone, Copy, Debug)]
enum EarlyEnd {
    /// The Transfer with this number.
    Send(usize),
    /// The read with this number.
    Read(usize),
}

/// A link, a host of it, and what that calls the connection.
type At = (usize, u8, ConnectionId);

impl Stp {
    pub(super) fn send_within(&mut self, ctx: &mut Ctx, at: At, len: u32, millis: u16) {
        let (link, by, id) = at;
        let name = self.transfers.len();
        self.send(ctx, link, by, id, len);
        if self.transfers.len() > name {
            self.limit(ctx, by, millis, EarlyEnd::Send(name));
        }
    }

    pub(super) fn read_within(&mut self, ctx: &mut Ctx, at: At, len: u32, millis: u16) {
        let (link, by, id) = at;
        let name = self.reads.len();
        self.read(ctx, link, by, id, len);
        if self.reads.len() > name {
            self.limit(ctx, by, millis, EarlyEnd::Read(name));
        }
    }

    fn limit(&mut self, ctx: &Ctx, by: u8, millis: u16, what: EarlyEnd) {
        let at = ctx.now() + Duration::from_millis(millis.into());
        self.deadlines.push(Deadline { at, by, what });
    }

    /// What is late is ended by its user.
    pub(super) fn end_late(&mut self, ctx: &mut Ctx) {
        let now = ctx.now();
        if self.deadlines.iter().all(|deadline| deadline.at > now) {
            return;
        }
        let all = std::mem::take(&mut self.deadlines);
        let (late, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|known| known.at <= now);
        self.deadlines = rest;
        for Deadline { by, what, .. } in late {
            match what {
                EarlyEnd::Send(name) => self.end_late_send(ctx, by, name),
                EarlyEnd::Read(name) => self.end_late_read(ctx, by, name),
            }
        }
    }

    fn end_late_send(&mut self, ctx: &mut Ctx, by: u8, name: usize) {
        let sends = &self.known(by).sends;
        let Some((send, _)) = sends.iter().find(|(_, known)| **known == name) else { return };
        let (send, now) = (*send, ctx.now());
        self.transfers[name].is_excused = true;
        ctx.count("stp sends ended late");
        if let Err(error) = self.engine(ctx, by).cancel_send(now, send) {
            self.refused(ctx, by, "cancel_send", error, &[Error::Unknown]);
        }
    }

    fn end_late_read(&mut self, ctx: &mut Ctx, by: u8, name: usize) {
        if self.reads[name].is_over {
            return;
        }
        self.reads[name].is_excused = true;
        let (id, area, now) = (self.reads[name].id, self.reads[name].area, ctx.now());
        let answers =
            |t: &&mut Transfer| t.to == by && t.into.is_some_and(|into| into.region == area.region);
        self.transfers.iter_mut().filter(answers).for_each(|answer| answer.is_excused = true);
        ctx.count("stp reads ended late");
        if let Err(error) = self.engine(ctx, by).cancel_receive(now, id) {
            self.refused(ctx, by, "cancel_receive", error, &[Error::Unknown]);
        }
    }

    /// Posted memory is taken back; what is being received there ends.
    pub(super) fn withdraw(&mut self, ctx: &mut Ctx, link: usize, by: u8, id: ConnectionId) {
        let posts = &self.known(by).posts;
        let Some((_, memory)) = posts.iter().rev().find(|(of, _)| *of == link).copied() else {
            return;
        };
        let is_coming =
            |t: &&mut Transfer| t.link == link && t.to == by && !t.is_delivered && t.into.is_none();
        self.transfers.iter_mut().filter(is_coming).for_each(|transfer| transfer.is_excused = true);
        let now = ctx.now();
        if let Err(error) = self.engine(ctx, by).withdraw(now, id, memory) {
            // It may be over, and the user has not heard so.
            self.refused(ctx, by, "withdraw", error, &[Error::Unknown]);
        }
    }

    /// A connection goes first, or last, and so does what is under way on it.
    pub(super) fn prefer(&mut self, ctx: &mut Ctx, at: At, priority: u8, weight: u16) {
        let (link, by, id) = at;
        let priority = [Priority::Low, Priority::Normal, Priority::High][usize::from(priority % 3)];
        let engine = self.engine(ctx, by);
        let result = engine.set_priority(id, priority).and_then(|()| engine.set_weight(id, weight));
        if let Err(error) = result {
            self.refused(ctx, by, "set_priority", error, &[]);
        }
        let is_of_it = |name: &usize| self.transfers[*name].link == link;
        let send = self.known(by).sends.iter().find(|(_, name)| is_of_it(name));
        if let Some(send) = send.map(|(send, _)| *send)
            && let Err(error) = self.engine(ctx, by).set_send_priority(send, priority)
        {
            // It may be over, and the user has not heard so.
            self.refused(ctx, by, "set_send_priority", error, &[Error::Unknown]);
        }
        let is_it = |t: &Transfer| t.link == link && t.to == by && !t.is_delivered;
        let receive = self.transfers.iter().filter(|t| is_it(t)).find_map(|t| t.receive);
        if let Some(receive) = receive
            && let Err(error) = self.engine(ctx, by).set_receive_priority(receive, priority)
        {
            self.refused(ctx, by, "set_receive_priority", error, &[Error::Unknown]);
        }
    }

    /// Handshakes are begun, and nothing follows: so others have to prove their addresses.
    pub(super) fn knock(&mut self, ctx: &mut Ctx, from: u8, to: u8, count: u8) {
        let (now, peer) = (ctx.now(), Peer::Node(self.known(to).node.id().0));
        for _ in 0..count {
            let _ = self.engine(ctx, from).associate(now, PathId(0), peer, None);
        }
    }

    /// What engines counted and nobody was told.
    pub(super) fn tally(&self, ctx: &mut Ctx) {
        for host in self.names() {
            let Ok(node) = ctx.sim.node(self.known(host).node) else { continue };
            let stats = *node.engine().stats();
            let counts = [
                ("stp messages with their request", stats.eager_received),
                ("stp bytes not sent in time", stats.bytes_unused),
            ];
            for (what, count) in counts {
                *ctx.tally.entry(what).or_default() += count;
            }
        }
    }
}
