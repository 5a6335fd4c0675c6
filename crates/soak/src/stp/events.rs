//! What users of STP are told, and whether it is so.

use landfall_placement::Area;
use stp_core::{ConnectionId, Ended, Event, OperationId, ReceiveId, SendId};

use super::truth::{Operation, Transfer};
use super::{Stp, THINKS};
use crate::ctx::{Ctx, pattern};

impl Stp {
    pub(super) fn pop(&mut self, host: u8) -> Option<Event> {
        self.known(host).log.borrow_mut().pop_front()
    }

    /// Some questions are answered at once, some when the user has thought.
    fn ask(&mut self, ctx: &mut Ctx, host: u8, question: Event) {
        let thinks = ctx.plan.steps.iter().any(|step| step.at > THINKS) && !ctx.is_healed;
        // Who asks for a connection gives up before a user has thought for long.
        let may_wait = !matches!(question, Event::Incoming { .. });
        if thinks && may_wait && ctx.chance(15) {
            self.known_mut(host).later.push(question);
            return;
        }
        // What waited is answered now and then, too.
        if ctx.chance(50)
            && let Some(older) = self.known_mut(host).later.pop()
        {
            self.answer(ctx, host, older, false);
        }
        self.answer(ctx, host, question, false);
    }

    /// May what is on this connection end early?
    fn may_end(&self, ctx: &Ctx, link: usize) -> bool {
        ctx.is_severe || self.links[link].is_ended || self.links[link].is_gone
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each event")]
    pub(super) fn take(&mut self, ctx: &mut Ctx, host: u8, event: Event) {
        ctx.count("stp events");
        match event {
            Event::Connected { connection, .. } => {
                if let Some(name) = self.link_of(ctx, host, connection) {
                    self.take_open(ctx, host, connection, name, true);
                }
            }
            Event::Accepted { connection, hello, .. } => {
                // What the side that asked said.
                self.take_open(ctx, host, connection, hello.wrapping_sub(1) as usize, false);
            }
            Event::Incoming { .. } => self.ask(ctx, host, event),
            Event::Offered { receive, len, opaque, .. } => {
                if self.take_offer(ctx, host, receive, len, opaque) {
                    self.ask(ctx, host, event);
                }
            }
            Event::ReadRequested { len, opaque, .. } => {
                self.take_read(ctx, host, len, opaque, event);
            }
            Event::RegionRequested { .. } => self.answer(ctx, host, event, true),
            Event::RegionAvailable { connection, region, .. } => {
                if let Some(link) = self.link_of(ctx, host, connection) {
                    self.links[link].region.remote = Some(region);
                    self.go_on(ctx, link);
                }
            }
            Event::RegionRefused { connection, .. } => {
                if let Some(link) = self.link_of(ctx, host, connection) {
                    self.links[link].region.is_refused = true;
                    if !self.may_end(ctx, link) {
                        ctx.fail(host, "a region was refused that nobody refused");
                    }
                }
            }
            Event::Sent { send, len, .. } => self.take_sent(ctx, host, send, len),
            Event::SendEnded { send, why, .. } => self.take_send_ended(ctx, host, send, why),
            Event::SendProgress { .. } => {}
            Event::Received { receive, memory, len, opaque, .. } => {
                self.take_received(ctx, host, receive, memory, len, opaque);
            }
            Event::ReceiveEnded { receive, memory, why, .. } => {
                self.take_receive_ended(ctx, host, receive, memory, why);
            }
            Event::ReceiveProgress { receive, len, .. } => {
                self.take_progress(ctx, host, receive, len);
            }
            Event::Unposted { memory, .. } => {
                self.forget_post(ctx, host, memory);
                let node = self.known(host).node;
                ctx.take_back(host, node, memory);
            }
            Event::PutDone { operation, connection } => {
                self.take_done(ctx, host, operation, connection, Ok(None));
            }
            Event::Fetched { operation, connection, old } => {
                self.take_done(ctx, host, operation, connection, Ok(Some(old)));
            }
            Event::OperationEnded { operation, connection, why } => {
                self.take_done(ctx, host, operation, connection, Err(why));
            }
            Event::GetDone { receive, connection, memory } => {
                self.take_got(ctx, host, receive, connection, memory);
            }
            Event::Written { connection, at, len, .. } => {
                self.take_written(ctx, host, connection, at, len);
            }
            Event::Revoked { memory, .. } => {
                let node = self.known(host).node;
                let is_it =
                    |link: &&mut super::Link| link.to == host && link.region.area == Some(memory);
                if let Some(link) = self.links.iter_mut().find(is_it) {
                    link.region.area = None;
                    link.region.is_uncertain = true;
                }
                ctx.take_back(host, node, memory);
            }
            Event::Closed { connection, why } => self.take_closed(ctx, host, connection, why),
            Event::Closing { .. } | Event::LinkUp { .. } | Event::LinkDown { .. } => {}
        }
    }

    fn link_of(&mut self, ctx: &mut Ctx, host: u8, id: ConnectionId) -> Option<usize> {
        let link = self.known(host).connections.get(&id).copied();
        if link.is_none() {
            ctx.fail(host, &format!("{id} is told of, and is nobody's"));
        }
        link
    }

    fn take_open(&mut self, ctx: &mut Ctx, host: u8, id: ConnectionId, name: usize, asked: bool) {
        let Some(link) = self.links.get_mut(name) else {
            return ctx.fail(host, &format!("{id} opened that nobody asked for"));
        };
        let side = link.side(host);
        if !link.joins(host) || asked != (side == 0) {
            return ctx.fail(host, &format!("{id} opened at the wrong host"));
        }
        if !asked && std::mem::replace(&mut link.was_accepted, true) && !link.is_gone {
            return ctx.fail(host, &format!("connection {name} was accepted twice"));
        }
        (link.ids[side], link.is_up[side]) = (Some(id), true);
        link.is_closed[side] = false;
        self.known_mut(host).connections.insert(id, name);
        self.go_on(ctx, name);
    }

    fn take_closed(&mut self, ctx: &mut Ctx, host: u8, id: ConnectionId, why: Option<Ended>) {
        let Some(name) = self.known(host).connections.get(&id).copied() else {
            // It came in, and its opening was never finished.
            return;
        };
        let may_end = self.may_end(ctx, name);
        let link = &mut self.links[name];
        let side = link.side(host);
        (link.is_closed[side], link.is_up[side]) = (true, false);
        if why.is_some() {
            link.is_gone = true;
        }
        if !may_end {
            ctx.fail(host, &format!("{id} closed, and nobody closed it: {why:?}"));
        }
    }

    fn take_offer(
        &mut self,
        ctx: &mut Ctx,
        host: u8,
        receive: ReceiveId,
        len: u64,
        name: u32,
    ) -> bool {
        let Some(transfer) = self.transfers.get_mut(name as usize) else {
            ctx.fail(host, &format!("{receive} is offered, and nobody sends it"));
            return false;
        };
        let is_again = std::mem::replace(&mut transfer.is_offered, true);
        transfer.receive = Some(receive);
        let is_right = transfer.to == host && u64::from(transfer.len) == len;
        if !is_right || is_again {
            ctx.fail(host, &format!("transfer {name} is offered wrongly, or again: {len} bytes"));
            return false;
        }
        true
    }

    fn take_read(&mut self, ctx: &mut Ctx, host: u8, len: u64, name: u32, event: Event) {
        let Some(read) = self.reads.get_mut(name as usize) else {
            return ctx.fail(host, "somebody is asked to send, and nobody asks");
        };
        let is_again = std::mem::replace(&mut read.is_asked, true);
        if is_again || u64::from(read.len) != len || read.by == host {
            return ctx.fail(host, &format!("read {name} is asked for wrongly, or again"));
        }
        self.ask(ctx, host, event);
    }

    /// What a transfer carries is in memory, and nothing around it was touched.
    fn check_delivered(&self, ctx: &mut Ctx, host: u8, name: usize, area: Area) {
        let node = self.known(host).node;
        let wanted = pattern(name as u64, self.transfers[name].len as usize);
        let have = ctx.bytes(node, area);
        let same = have.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        if have.len() < wanted.len() || same < wanted.len() {
            let len = wanted.len();
            ctx.fail(host, &format!("transfer {name} differs from byte {same} of {len} on"));
        }
        if !ctx.is_guarded(node, area) {
            ctx.fail(host, &format!("something was written around {area}"));
        }
    }

    fn forget_post(&mut self, ctx: &mut Ctx, host: u8, memory: Area) -> bool {
        let posts = &mut self.known_mut(host).posts;
        let is_it = |(_, area): &(usize, Area)| area.region == memory.region;
        let known = posts.iter().position(is_it);
        known.map(|at| posts.swap_remove(at)).is_some_and(|(_, area)| {
            if area != memory {
                ctx.fail(host, &format!("{area} was posted, and {memory} came back"));
            }
            true
        })
    }

    fn take_received(
        &mut self,
        ctx: &mut Ctx,
        host: u8,
        receive: ReceiveId,
        memory: Area,
        len: u64,
        name: u32,
    ) {
        let _ = self.forget_post(ctx, host, memory);
        let name = name as usize;
        for read in &mut self.reads {
            read.is_over |= read.by == host && read.id == receive;
        }
        let Some(transfer) = self.transfers.get_mut(name) else {
            return ctx.fail(host, &format!("{receive} was received that nobody sent"));
        };
        let is_again = std::mem::replace(&mut transfer.is_delivered, true);
        transfer.into = Some(memory);
        if is_again || transfer.to != host || u64::from(transfer.len) != len {
            return ctx.fail(host, &format!("transfer {name} came wrongly, or again"));
        }
        ctx.count("stp transfers received");
        self.check_delivered(ctx, host, name, memory);
    }

    fn take_progress(&mut self, ctx: &mut Ctx, host: u8, receive: ReceiveId, len: u64) {
        let is_it = |t: &Transfer| t.to == host && t.receive == Some(receive);
        let Some(name) = self.transfers.iter().position(is_it) else { return };
        let Some(area) = self.transfers[name].into else { return };
        let wanted = pattern(name as u64, self.transfers[name].len as usize);
        let have = ctx.bytes(self.known(host).node, area);
        let len = len as usize;
        if have.get(..len) != wanted.get(..len) {
            ctx.fail(host, &format!("{len} bytes of transfer {name} are said to be there"));
        }
    }

    fn take_receive_ended(
        &mut self,
        ctx: &mut Ctx,
        host: u8,
        receive: ReceiveId,
        memory: Option<Area>,
        why: Ended,
    ) {
        let is_it = |t: &Transfer| t.to == host && t.receive == Some(receive) && !t.is_delivered;
        let transfer = self.transfers.iter().position(is_it);
        let mut link = transfer.map(|name| self.transfers[name].link);
        let mut is_excused = transfer.is_some_and(|name| self.transfers[name].is_excused);
        for read in self.reads.iter_mut().filter(|r| r.by == host && r.id == receive) {
            read.is_over = true;
            is_excused |= read.is_excused;
            link = Some(read.link);
        }
        // A Get ends so, too.
        for (n, known) in self.links.iter_mut().enumerate().filter(|(_, l)| l.from == host) {
            let gets = &mut known.region.gets;
            if let Some(at) = gets.iter().position(|get| get.id == receive) {
                gets.swap_remove(at);
                link = Some(n);
            }
        }
        self.known_mut(host).later.retain(
            |question| !matches!(question, Event::Offered { receive: r, .. } if *r == receive),
        );
        if let Some(memory) = memory {
            let _ = self.forget_post(ctx, host, memory);
            let node = self.known(host).node;
            ctx.take_back(host, node, memory);
        }
        if let Some(name) = transfer {
            self.transfers[name].into = None;
        }
        let may_end = is_excused || link.is_none_or(|link| self.may_end(ctx, link));
        if !may_end {
            ctx.fail(host, &format!("{receive} ended, and nobody ended it: {why}"));
        }
    }

    /// All of a Transfer is in place before its sender hears of it (invariant 2).
    fn take_sent(&mut self, ctx: &mut Ctx, host: u8, send: SendId, len: u64) {
        let Some(name) = self.known_mut(host).sends.remove(&send) else {
            return ctx.fail(host, &format!("{send} was sent that was not begun, or twice"));
        };
        let transfer = &mut self.transfers[name];
        transfer.is_over = true;
        let Transfer { to, area, into, is_delivered, is_excused, has_receiver, link, .. } =
            *transfer;
        if u64::from(transfer.len) != len && !is_excused {
            ctx.fail(host, &format!("transfer {name} was sent, {len} bytes of it"));
        }
        let node = self.known(host).node;
        ctx.take_back(host, node, area);
        let hears = !ctx.frozen[usize::from(to)];
        if !has_receiver || self.links[link].is_gone || is_excused {
            return;
        }
        match into {
            Some(into) => self.check_delivered(ctx, to, name, into),
            None if !is_delivered && hears => {
                ctx.fail(host, &format!("transfer {name} was sent, and not received"));
            }
            None => {}
        }
    }

    fn take_send_ended(&mut self, ctx: &mut Ctx, host: u8, send: SendId, why: Ended) {
        let Some(name) = self.known_mut(host).sends.remove(&send) else {
            return ctx.fail(host, &format!("{send} ended that was not begun, or twice"));
        };
        let transfer = &mut self.transfers[name];
        transfer.is_over = true;
        let Transfer { area, is_excused, link, .. } = *transfer;
        let node = self.known(host).node;
        ctx.take_back(host, node, area);
        if !is_excused && !self.may_end(ctx, link) {
            ctx.fail(host, &format!("transfer {name} ended, and nobody ended it: {why}"));
        }
    }

    /// A Put or FetchOp is over: in the order of the calls, and in place.
    fn take_done(
        &mut self,
        ctx: &mut Ctx,
        host: u8,
        id: OperationId,
        connection: ConnectionId,
        result: Result<Option<u64>, Ended>,
    ) {
        let Some(link) = self.link_of(ctx, host, connection) else { return };
        let may_end = self.may_end(ctx, link);
        let region = &mut self.links[link].region;
        let at = region.operations.iter().position(|known| known.id == id);
        let Some(Operation { old, area, .. }) = at.and_then(|at| region.operations.remove(at))
        else {
            return ctx.fail(host, &format!("{id} ended that was not begun, or twice"));
        };
        let is_certain = !region.is_uncertain;
        let mut wrong = (at != Some(0)).then_some("ended before those begun before it");
        match result {
            Ok(have) if have.is_some() != old.is_some() => wrong = Some("is another one"),
            Ok(have) if is_certain && have != old => {
                wrong = Some("found another value than those before it left");
            }
            Ok(_) => {}
            Err(_) => {
                region.is_uncertain = true;
                if !may_end {
                    wrong = Some("ended, and nobody ended it");
                }
            }
        }
        if let Some(wrong) = wrong {
            ctx.fail(host, &format!("{id} {wrong}: {result:?}, {old:?}"));
        }
        if let Some(area) = area {
            let node = self.known(host).node;
            ctx.take_back(host, node, area);
        }
        self.check_region(ctx, link);
    }

    /// Once nothing is under way, a region holds what all operations left.
    fn check_region(&mut self, ctx: &mut Ctx, link: usize) {
        let to = self.links[link].to;
        let region = &self.links[link].region;
        let (Some(area), true) = (region.area, region.operations.is_empty()) else { return };
        if region.is_uncertain || self.links[link].is_gone {
            return;
        }
        let node = self.known(to).node;
        let have = ctx.bytes(node, area);
        let same = have.iter().zip(&region.expected).take_while(|(a, b)| a == b).count();
        if same < region.expected.len() {
            ctx.fail(to, &format!("the region of connection {link} differs from byte {same} on"));
        }
        if !ctx.is_guarded(node, area) {
            ctx.fail(to, &format!("something was written around {area}"));
        }
    }

    /// A Get brings what all operations before it left, but for what later ones write.
    fn take_got(
        &mut self,
        ctx: &mut Ctx,
        host: u8,
        id: ReceiveId,
        connection: ConnectionId,
        memory: Area,
    ) {
        let Some(link) = self.link_of(ctx, host, connection) else { return };
        let node = self.known(host).node;
        let region = &mut self.links[link].region;
        let Some(at) = region.gets.iter().position(|get| get.id == id) else {
            return ctx.fail(host, &format!("{id} was got that was not begun, or twice"));
        };
        let get = region.gets.swap_remove(at);
        let have = ctx.bytes(node, get.area);
        let is_right = |n: usize| {
            region.writers[get.at + n] > get.after || region.expected[get.at + n] == have[n]
        };
        let is_wrong = memory != get.area || !(0..have.len()).all(is_right);
        if is_wrong && !region.is_uncertain {
            ctx.fail(host, &format!("{id} got what the region of connection {link} did not hold"));
        }
        ctx.take_back(host, node, memory);
    }

    fn take_written(&mut self, ctx: &mut Ctx, host: u8, id: ConnectionId, at: u64, len: u64) {
        let Some(link) = self.link_of(ctx, host, id) else { return };
        let region = &mut self.links[link].region;
        let expected = region.notices.pop_front();
        if expected != Some((at, len)) && !region.is_uncertain {
            ctx.fail(host, &format!("{len} bytes at {at} are told of, not {expected:?}"));
        }
    }
}
