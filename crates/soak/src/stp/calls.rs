//! What users of STP do.

use landfall_placement::{Area, PathId, Peer, WordFunction, WordWidth};
use stp_core::wire::Reason;
use stp_core::{Connect, ConnectionId, Error, Event, PutOptions, Rights};

use super::truth::{Get, Link, Operation, Reading, Transfer};
use super::{LONGEST, PORT, REGION, Stp};
use crate::ctx::{Ctx, pattern};
use crate::plan::Work;

/// What waits on a connection that is not open yet.
const MOST_QUEUED: usize = 32;

/// What memory holds that nothing was received to.
const FRESH: u8 = 0xc5;

impl Stp {
    /// Begins work on a connection between two hosts, and asks for one if there is none.
    pub(super) fn begin(&mut self, ctx: &mut Ctx, from: u8, to: u8, work: Work) {
        let is_it = |link: &Link| link.joins(from) && link.joins(to) && link.is_usable();
        let known = self.links.iter().position(is_it);
        let Some(link) = known.or_else(|| self.connect(ctx, from, to)) else { return };
        match self.links[link].open_at(from) {
            Some(id) => self.do_now(ctx, link, from, id, work),
            None if self.links[link].queue.len() < MOST_QUEUED => {
                self.links[link].queue.push_back((from, work));
            }
            None => {}
        }
    }

    fn connect(&mut self, ctx: &mut Ctx, from: u8, to: u8) -> Option<usize> {
        let (now, name) = (ctx.now(), self.links.len());
        let peer = Peer::Node(self.known(to).node.id().0);
        let path = PathId(ctx.below(ctx.plan.planes.len() as u64) as u16);
        let engine = self.engine(ctx, from);
        let peer = engine.associate(now, path, peer, None)?;
        let connect = Connect { port: PORT, local_port: None, hello: name as u64 + 1 };
        match engine.connect(now, path, peer, connect) {
            Ok(id) => {
                ctx.note(from, || format!("asks {to} for {id}"));
                let mut link = Link::new(from, to);
                link.ids[0] = Some(id);
                self.links.push(link);
                self.known_mut(from).connections.insert(id, name);
                ctx.count("stp connect");
                Some(name)
            }
            Err(Error::Busy | Error::PathDown) => None,
            Err(error) => {
                ctx.fail(from, &format!("connect says: {error}"));
                None
            }
        }
    }

    /// What waited until a connection opened.
    pub(super) fn go_on(&mut self, ctx: &mut Ctx, link: usize) {
        for (by, work) in std::mem::take(&mut self.links[link].queue) {
            match self.links[link].open_at(by) {
                Some(id) => self.do_now(ctx, link, by, id, work),
                None if self.links[link].is_usable() => {
                    self.links[link].queue.push_back((by, work));
                }
                None => {}
            }
        }
    }

    /// What could not be begun is tried again.
    pub(super) fn retry(&mut self, ctx: &mut Ctx) {
        for link in 0..self.links.len() {
            self.go_on(ctx, link);
        }
    }

    fn do_now(&mut self, ctx: &mut Ctx, link: usize, by: u8, id: ConnectionId, work: Work) {
        ctx.note(by, || format!("{work:?} on {id}"));
        let is_asker = self.links[link].from == by;
        match work {
            Work::Send { len } => self.send(ctx, link, by, id, len),
            Work::Post => self.post(ctx, link, by, id),
            Work::Read { len } => self.read(ctx, link, by, id, len),
            Work::Put { .. } | Work::Get { .. } | Work::Fetch { .. } if is_asker => {
                self.operate(ctx, link, id, work);
            }
            Work::Cancel => self.cancel(ctx, link, by),
            Work::AddLink { plane } => self.add_link(ctx, link, by, id, plane),
            Work::Close { at_once } => self.close_link(ctx, link, by, at_once),
            Work::SendWithin { len, millis } => self.send_within(ctx, (link, by, id), len, millis),
            Work::ReadWithin { len, millis } => self.read_within(ctx, (link, by, id), len, millis),
            Work::Withdraw => self.withdraw(ctx, link, by, id),
            Work::Prefer { priority, weight } => {
                self.prefer(ctx, (link, by, id), priority, weight);
            }
            _ => {}
        }
    }

    /// A call was refused: that is as it may be, or not. Who did not hear yet that a
    /// connection is over is told so by the call.
    pub(super) fn refused(
        &self,
        ctx: &mut Ctx,
        by: u8,
        call: &str,
        error: Error,
        allowed: &[Error],
    ) {
        let is_over = matches!(error, Error::Unknown | Error::NotOpen | Error::PathDown);
        let ended = |link: &Link| link.joins(by) && (link.is_ended || link.is_gone);
        let may_end = ctx.was_severe || self.links.iter().any(ended);
        if !(allowed.contains(&error) || is_over && may_end) {
            ctx.fail(by, &format!("{call} says: {error}"));
        }
    }

    pub(super) fn send(&mut self, ctx: &mut Ctx, link: usize, by: u8, id: ConnectionId, len: u32) {
        let bytes = pattern(self.transfers.len() as u64, len as usize);
        let node = self.known(by).node;
        let Some(area) = ctx.lend(node, &bytes) else { return };
        let (now, name) = (ctx.now(), self.transfers.len());
        match self.engine(ctx, by).send(now, id, area, name as u32) {
            Ok(send) => {
                self.known_mut(by).sends.insert(send, name);
                self.note_transfer(link, by, len, area);
            }
            Err(error) => {
                ctx.take_back(by, node, area);
                self.refused(ctx, by, "send", error, &[Error::Busy, Error::NotOpen]);
            }
        }
    }

    fn note_transfer(&mut self, link: usize, from: u8, len: u32, area: Area) {
        let to = self.links[link].other(from);
        self.transfers.push(Transfer {
            link,
            from,
            to,
            len,
            area,
            into: None,
            receive: None,
            is_offered: false,
            is_delivered: false,
            is_excused: false,
            has_receiver: true,
            is_over: false,
        });
    }

    fn post(&mut self, ctx: &mut Ctx, link: usize, by: u8, id: ConnectionId) {
        let node = self.known(by).node;
        let Some(area) = ctx.lend(node, &vec![FRESH; LONGEST as usize]) else { return };
        let (now, takes_part) = (ctx.now(), ctx.chance(30));
        self.known_mut(by).posts.push((link, area));
        if let Err(error) = self.engine(ctx, by).post(now, id, area, takes_part) {
            self.known_mut(by).posts.pop();
            ctx.take_back(by, node, area);
            self.refused(ctx, by, "post", error, &[Error::Busy, Error::NotOpen]);
        }
    }

    pub(super) fn read(&mut self, ctx: &mut Ctx, link: usize, by: u8, id: ConnectionId, len: u32) {
        let node = self.known(by).node;
        let Some(area) = ctx.lend(node, &vec![FRESH; len as usize]) else { return };
        let (now, name) = (ctx.now(), self.reads.len());
        match self.engine(ctx, by).read(now, id, area, name as u32) {
            Ok(id) => {
                let (is_asked, is_excused, is_over) = (false, false, false);
                self.reads.push(Reading { link, by, len, id, area, is_asked, is_excused, is_over });
            }
            Err(error) => {
                ctx.take_back(by, node, area);
                self.refused(ctx, by, "read", error, &[Error::Busy, Error::NotOpen]);
            }
        }
    }

    /// Puts, Gets and words: the region is asked for with the first of them.
    #[allow(clippy::too_many_lines, reason = "an arm for each operation")]
    fn operate(&mut self, ctx: &mut Ctx, link: usize, id: ConnectionId, work: Work) {
        let by = self.links[link].from;
        let region = &mut self.links[link].region;
        if region.is_refused {
            return;
        }
        let Some(remote) = region.remote else {
            if self.links[link].queue.len() < MOST_QUEUED {
                self.links[link].queue.push_back((by, work));
            }
            if !self.links[link].region.is_asked {
                let now = ctx.now();
                let engine = self.engine(ctx, by);
                match engine.request_region(now, id, link as u32, REGION, Rights::ALL) {
                    Ok(_) => self.links[link].region.is_asked = true,
                    Err(error) => self.refused(ctx, by, "request_region", error, &[Error::Busy]),
                }
            }
            return;
        };
        let now = ctx.now();
        let node = self.known(by).node;
        let busy = [Error::Busy, Error::NotOpen, Error::Unknown];
        match work {
            Work::Put { at, len, notice } => {
                let region = &self.links[link].region;
                let bytes = pattern(u64::from(region.writes) << 20 | link as u64, len.into());
                let Some(area) = ctx.lend(node, &bytes) else { return };
                let options = PutOptions { notice, answered_later: at % 2 == 1 };
                match self.engine(ctx, by).put(now, id, &remote, at.into(), area, options) {
                    Ok(id) => {
                        let region = &mut self.links[link].region;
                        region.write(at.into(), &bytes);
                        region.operations.push_back(Operation { id, old: None, area: Some(area) });
                        if notice {
                            region.notices.push_back((at.into(), len.into()));
                        }
                    }
                    Err(error) => {
                        ctx.take_back(by, node, area);
                        self.refused(ctx, by, "put", error, &busy);
                    }
                }
            }
            Work::Get { at, len } => {
                let Some(area) = ctx.lend(node, &vec![FRESH; len.into()]) else { return };
                match self.engine(ctx, by).get(now, id, &remote, at.into(), area) {
                    Ok(id) => {
                        let region = &mut self.links[link].region;
                        let (at, after) = (at.into(), region.writes);
                        region.gets.push(Get { id, at, area, after });
                    }
                    Err(error) => {
                        ctx.take_back(by, node, area);
                        self.refused(ctx, by, "get", error, &busy);
                    }
                }
            }
            Work::Fetch { word, kind, value } => {
                let function = function(kind, value);
                let (at, width) = (u64::from(word) * 8, WordWidth::Eight);
                match self.engine(ctx, by).fetch_op(now, id, &remote, at, width, function) {
                    Ok(id) => {
                        let region = &mut self.links[link].region;
                        let at = at as usize;
                        let word = region.expected[at..at + 8].try_into().unwrap_or_default();
                        let old = u64::from_ne_bytes(word);
                        region.write(at, &changed(old, function).to_ne_bytes());
                        region.operations.push_back(Operation { id, old: Some(old), area: None });
                    }
                    Err(error) => self.refused(ctx, by, "fetch_op", error, &busy),
                }
            }
            _ => {}
        }
    }

    fn cancel(&mut self, ctx: &mut Ctx, link: usize, by: u8) {
        let now = ctx.now();
        let is_it = |t: &&Transfer| t.link == link && !t.is_over && (t.from == by || t.to == by);
        let Some(name) = self.transfers.iter().position(|t| is_it(&t)) else { return };
        self.transfers[name].is_excused = true;
        for read in self.reads.iter_mut().filter(|read| read.link == link) {
            read.is_excused = true;
        }
        let engine = self.engine(ctx, by);
        let result = if self.transfers[name].from == by {
            let sends = &self.known(by).sends;
            let send = sends.iter().find(|(_, known)| **known == name).map(|(send, _)| *send);
            send.map_or(Ok(()), |send| engine.cancel_send(now, send))
        } else if self.transfers[name].is_delivered {
            Ok(())
        } else {
            let receive = self.transfers[name].receive;
            receive.map_or(Ok(()), |receive| engine.cancel_receive(now, receive))
        };
        if let Err(error) = result {
            self.refused(ctx, by, "cancel", error, &[Error::Unknown]);
        }
    }

    fn add_link(&mut self, ctx: &mut Ctx, link: usize, by: u8, id: ConnectionId, plane: u8) {
        let (now, path) = (ctx.now(), PathId(plane.into()));
        let other = self.links[link].other(by);
        let peer = Peer::Node(self.known(other).node.id().0);
        let engine = self.engine(ctx, by);
        let Some(peer) = engine.associate(now, path, peer, None) else { return };
        if let Err(error) = engine.add_link(now, id, path, peer) {
            let allowed = [Error::Busy, Error::PathDown, Error::Taken, Error::NotOpen];
            self.refused(ctx, by, "add_link", error, &allowed);
        }
    }

    pub(super) fn close_link(&mut self, ctx: &mut Ctx, link: usize, by: u8, at_once: bool) {
        let known = &mut self.links[link];
        let side = known.side(by);
        let Some(id) = known.ids[side].filter(|_| !known.is_closed[side]) else { return };
        if known.is_closing[side] && !at_once {
            return;
        }
        known.is_closing[side] = true;
        known.is_ended = true;
        let now = ctx.now();
        let engine = self.engine(ctx, by);
        let result = match at_once {
            true => engine.abort(now, id, Reason::Cancelled),
            false => engine.close(now, id),
        };
        ctx.note(by, || format!("closes {id}, at once: {at_once}"));
        if let Err(error) = result {
            self.refused(ctx, by, "close", error, &[Error::Unknown]);
        }
    }

    /// A user says what becomes of what it is asked.
    #[allow(clippy::too_many_lines, reason = "an arm for each question")]
    pub(super) fn answer(&mut self, ctx: &mut Ctx, host: u8, question: Event, is_kind: bool) {
        let now = ctx.now();
        let node = self.known(host).node;
        let refuses = !is_kind && ctx.chance(8);
        match question {
            Event::Incoming { connection, hello, .. } => {
                let result = self.engine(ctx, host).admit(now, connection, hello);
                if let Err(error) = result {
                    self.refused(ctx, host, "admit", error, &[Error::Unknown]);
                }
            }
            Event::Offered { receive, len, opaque, .. } => {
                let name = opaque as usize;
                if refuses {
                    self.transfers[name].is_excused = true;
                    let _ = self.engine(ctx, host).refuse(receive, Reason::Refused);
                    return;
                }
                let Some(area) = ctx.lend(node, &vec![FRESH; len as usize]) else { return };
                let takes_part = ctx.chance(30);
                match self.engine(ctx, host).accept(now, receive, area, takes_part) {
                    Ok(()) => self.transfers[name].into = Some(area),
                    Err(error) => {
                        ctx.take_back(host, node, area);
                        // What was posted meanwhile took it, or it is over.
                        let allowed = [Error::Unknown, Error::Busy, Error::NotOpen];
                        if error == Error::Busy {
                            self.known_mut(host).later.push(question);
                        }
                        self.refused(ctx, host, "accept", error, &allowed);
                    }
                }
            }
            Event::ReadRequested { read, connection, len, opaque } => {
                let asked = opaque as usize;
                if refuses {
                    self.reads[asked].is_excused = true;
                    let _ = self.engine(ctx, host).refuse_read(now, read, Reason::Refused);
                    return;
                }
                let len = if ctx.chance(50) { len } else { ctx.below(len + 1) } as u32;
                let name = self.transfers.len();
                let Some(area) = ctx.lend(node, &pattern(name as u64, len as usize)) else {
                    return;
                };
                match self.engine(ctx, host).answer_read(now, read, area, name as u32) {
                    Ok(send) => {
                        self.known_mut(host).sends.insert(send, name);
                        let link = self.known(host).connections.get(&connection).copied();
                        let link = link.unwrap_or(self.reads[asked].link);
                        self.note_transfer(link, host, len, area);
                        let transfer = &mut self.transfers[name];
                        transfer.is_excused = self.reads[asked].is_excused;
                        transfer.into =
                            Some(self.reads[asked].area).filter(|_| !self.reads[asked].is_over);
                    }
                    Err(error) => {
                        ctx.take_back(host, node, area);
                        if error == Error::Busy {
                            self.known_mut(host).later.push(question);
                        }
                        let allowed = [Error::Unknown, Error::Busy, Error::NotOpen];
                        self.refused(ctx, host, "answer_read", error, &allowed);
                    }
                }
            }
            Event::RegionRequested { request, name, len, .. } => {
                let link = name as usize;
                let Some(area) = ctx.lend(node, &vec![0; len as usize]) else { return };
                match self.engine(ctx, host).expose(request, area, Rights::ALL) {
                    Ok(_) => {
                        let region = &mut self.links[link].region;
                        region.area = Some(area);
                        region.expected = vec![0; len as usize];
                        region.writers = vec![0; len as usize];
                    }
                    Err(error) => {
                        ctx.take_back(host, node, area);
                        self.refused(ctx, host, "expose", error, &[Error::Unknown, Error::Busy]);
                    }
                }
            }
            _ => {}
        }
    }
}

impl super::truth::Region {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.writes += 1;
        self.expected[at..at + bytes.len()].copy_from_slice(bytes);
        self.writers[at..at + bytes.len()].fill(self.writes);
    }
}

/// How a word is changed.
pub(crate) fn function(kind: u8, value: u32) -> WordFunction {
    let value = u64::from(value);
    match kind & 3 {
        0 => WordFunction::Add(value),
        1 => WordFunction::Swap(value << 20 | value),
        2 => WordFunction::CompareSwap { expected: 0, new: value },
        _ => WordFunction::Load,
    }
}

/// What a word holds then.
pub(crate) fn changed(old: u64, function: WordFunction) -> u64 {
    match function {
        WordFunction::Add(value) => old.wrapping_add(value),
        WordFunction::Swap(value) => value,
        WordFunction::CompareSwap { expected, new } if expected == old => new,
        _ => old,
    }
}
