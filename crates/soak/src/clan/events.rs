//! What users of CLAN are told, and whether it is so.

use clan_dsm::{Ended, Event};
use landfall_placement::Area;

use super::Clan;
use super::truth::{DOORBELL, WORD_COUNT, WORDS, Window};
use crate::ctx::Ctx;

impl Clan {
    /// Windows whose host lost its link and has another one are dead, though its user may not
    /// have heard of it yet.
    fn bury(&mut self, ctx: &Ctx, host: u8) {
        for n in 0..self.windows.len() {
            let Window { from, id, link, .. } = self.windows[n];
            if self.windows[n].is_dead || !self.windows[n].joins(host) {
                continue;
            }
            let node = ctx.sim.node(self.known(from).node);
            let now = node.ok().and_then(|node| node.engine().link_of(id).ok());
            self.windows[n].is_dead = now != Some(link) && ctx.was_severe;
        }
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each event")]
    pub(super) fn take(&mut self, ctx: &mut Ctx, host: u8, event: Event) {
        self.bury(ctx, host);
        match event {
            Event::LinkUp { link, host: other } => {
                let other = other.number() as u8 - 1;
                self.known_mut(host).up.insert(other, link);
                self.known_mut(host).all.insert(link, other);
                self.known_mut(host).asked.remove(&other);
                if ctx.is_closing {
                    // Both may have asked for a link: the second is up only now.
                    let now = ctx.now();
                    let _ = self.engine(ctx, host).close_link(now, link);
                }
                self.go_on(ctx, host, other);
            }
            Event::LinkDown { link, why } => self.take_down(ctx, host, link, why),
            Event::Tripwire { tripwire } => {
                let is_it = |w: &Window| w.to == host && w.tripwire == Some(tripwire);
                let _ = self.engine(ctx, host).take_fired(tripwire);
                if let Some(window) = self.windows.iter().position(is_it) {
                    self.check_doorbell(ctx, window);
                }
            }
            Event::Written { write, result } => {
                let Some((window, at)) =
                    self.find(host, |w| w.writing.iter().position(|known| known.id == write))
                else {
                    return ctx
                        .fail(host, &format!("{write:?} ended that was not begun, or twice"));
                };
                let known = self.windows[window].writing.remove(at);
                self.take_written(ctx, window, 1, known.nth, result);
                let node = self.known(host).node;
                ctx.take_back(host, node, known.area);
            }
            Event::Dma { dma, result, .. } => {
                let Some((window, at)) =
                    self.find(host, |w| w.chains.iter().position(|known| known.id == dma))
                else {
                    return ctx.fail(host, &format!("{dma:?} ended that was not begun, or twice"));
                };
                let known = self.windows[window].chains.remove(at);
                self.take_written(ctx, window, 2, known.nth, result);
                let node = self.known(host).node;
                if let Some(back) = known.back {
                    // But for what was written meanwhile.
                    let content = &self.windows[window].contents[2];
                    let writers = &content.writers[known.at..];
                    let pairs = ctx.bytes(node, back).iter().zip(ctx.bytes(node, known.area));
                    let is_same = pairs.zip(writers).all(|((a, b), by)| *by > known.nth || a == b);
                    if result.is_ok() && !is_same {
                        ctx.fail(host, &format!("{dma:?} read back what it did not write"));
                    }
                    ctx.take_back(host, node, back);
                }
                ctx.take_back(host, node, known.area);
            }
            Event::Read { read, result } => self.take_read(ctx, host, read, result),
            Event::Word { operation, result } => {
                let Some((window, at)) =
                    self.find(host, |w| w.changes.iter().position(|(id, ..)| *id == operation))
                else {
                    return ctx.fail(host, &format!("{operation:?} ended that was not begun"));
                };
                let (_, word, old) = self.windows[window].changes.remove(at);
                match result {
                    Ok(have) if have != old && !self.windows[window].is_dead => {
                        ctx.fail(host, &format!("word {word} held {have}, and was left at {old}"));
                    }
                    Ok(_) => {}
                    Err(why) => self.take_failure(ctx, window, why),
                }
            }
            Event::Barrier { barrier, result } => {
                let Some((window, at)) =
                    self.find(host, |w| w.barriers.iter().position(|(id, _)| *id == barrier))
                else {
                    return ctx.fail(host, &format!("{barrier:?} ended that was not begun"));
                };
                let (_, writes) = self.windows[window].barriers.remove(at);
                match result {
                    Ok(()) => self.check_content(ctx, window, 0, writes),
                    Err(why) => self.take_failure(ctx, window, why),
                }
            }
            Event::Exception { reason, .. } if !ctx.was_severe => {
                ctx.fail(host, &format!("writes were refused: {reason}"));
            }
            Event::Overflow { lost } => ctx.fail(host, &format!("{lost} events were lost")),
            _ => {}
        }
    }

    /// The window of a host in which something is, and where.
    fn find(&self, host: u8, at: impl Fn(&Window) -> Option<usize>) -> Option<(usize, usize)> {
        let mut all = self.windows.iter().enumerate().filter(|(_, window)| window.from == host);
        all.find_map(|(n, window)| Some((n, at(window)?)))
    }

    fn take_down(&mut self, ctx: &mut Ctx, host: u8, link: clan_dsm::LinkId, why: Ended) {
        let known = self.known_mut(host);
        let asked = known.asked.iter().find(|(_, id)| **id == link).map(|(other, _)| *other);
        let Some(other) = known.all.remove(&link).or(asked) else {
            return ctx.fail(host, &format!("{link:?} is gone that was never there"));
        };
        known.up.retain(|_, id| *id != link);
        known.asked.retain(|_, id| *id != link);
        if let Some((id, _)) = known.all.iter().find(|(_, there)| **there == other) {
            known.up.insert(other, *id);
        }
        let may_end = ctx.was_severe || ctx.is_closing;
        for window in &mut self.windows {
            let is_between = window.joins(host) && window.joins(other);
            window.is_dead |= is_between;
        }
        if !may_end {
            ctx.fail(host, &format!("the link to {other} is gone, and nobody closed it: {why}"));
        }
    }

    fn take_failure(&mut self, ctx: &mut Ctx, window: usize, why: Ended) {
        self.windows[window].is_dead = true;
        let from = self.windows[window].from;
        if !ctx.is_severe {
            ctx.fail(from, &format!("an operation ended, and nobody ended it: {why}"));
        }
    }

    /// What a part of an aperture must hold, up to a write.
    fn check_content(&mut self, ctx: &mut Ctx, window: usize, kind: usize, upto: u32) {
        let Window { to, area, is_dead, ref contents, .. } = self.windows[window];
        if is_dead {
            return;
        }
        let node = self.known(to).node;
        let have = ctx.bytes(node, Self::part(area, kind));
        let differs = contents[kind].differs(have, upto);
        let is_guarded = ctx.is_guarded(node, area);
        if let Some(at) = differs {
            ctx.fail(to, &format!("window {window}: byte {at} of kind {kind} is not there"));
        }
        if !is_guarded {
            ctx.fail(to, &format!("something was written around {area}"));
        }
    }

    fn take_written(
        &mut self,
        ctx: &mut Ctx,
        window: usize,
        kind: usize,
        nth: u32,
        result: Result<(), Ended>,
    ) {
        if let Err(why) = result {
            return self.take_failure(ctx, window, why);
        }
        let Window { to, area, is_dead, ref contents, .. } = self.windows[window];
        if is_dead {
            return;
        }
        // Bytes that it wrote last.
        let content = &contents[kind];
        let have = ctx.bytes(self.known(to).node, Self::part(area, kind));
        let is_wrong =
            |n: &usize| content.writers[*n] == nth && have.get(*n) != Some(&content.bytes[*n]);
        let wrong = (0..content.bytes.len()).find(is_wrong);
        if let Some(at) = wrong {
            ctx.fail(to, &format!("window {window}: byte {at} of kind {kind} is said to be there"));
        }
    }

    fn take_read(
        &mut self,
        ctx: &mut Ctx,
        host: u8,
        read: clan_dsm::ReadId,
        result: Result<(), Ended>,
    ) {
        let Some((window, at)) =
            self.find(host, |w| w.reads.iter().position(|known| known.id == read))
        else {
            return ctx.fail(host, &format!("{read:?} ended that was not begun, or twice"));
        };
        let known = self.windows[window].reads.remove(at);
        let node = self.known(host).node;
        match result {
            Ok(()) => {
                let content = &self.windows[window].contents[0];
                let have = ctx.bytes(node, known.area);
                let is_wrong = |n: &usize| {
                    let at = known.at + n;
                    content.writers[at] <= known.after && content.bytes[at] != have[*n]
                };
                let wrong = (0..have.len()).find(is_wrong);
                if wrong.is_some() && !self.windows[window].is_dead {
                    ctx.fail(host, &format!("{read:?} brought what window {window} did not hold"));
                }
            }
            Err(why) => self.take_failure(ctx, window, why),
        }
        ctx.take_back(host, node, known.area);
    }

    /// What was written before the doorbell is in place when it rings (invariant 2).
    fn check_doorbell(&mut self, ctx: &mut Ctx, window: usize) {
        let Window { to, area, rung, is_dead, .. } = self.windows[window];
        if is_dead {
            return;
        }
        let bell = Area::new(area.region, area.offset + DOORBELL, 8);
        let have = ctx.bytes(self.known(to).node, bell);
        let Ok(word) = have.try_into() else { return };
        let now = u64::from_le_bytes(word);
        self.windows[window].rung = now;
        if now < rung || now > u64::from(self.windows[window].contents[0].writes) {
            return ctx
                .fail(to, &format!("the doorbell of window {window} rang {now} after {rung}"));
        }
        self.check_content(ctx, window, 0, now as u32);
    }

    /// Nothing is under way: each aperture holds what was written to it.
    pub(super) fn check_all(&mut self, ctx: &mut Ctx) {
        for window in 0..self.windows.len() {
            let known = &self.windows[window];
            if known.is_dead || known.under_way() > 0 {
                continue;
            }
            for kind in 0..3 {
                self.check_content(ctx, window, kind, u32::MAX);
            }
            let Window { to, area, words, .. } = self.windows[window];
            let all = Area::new(area.region, area.offset + WORDS, 8 * WORD_COUNT as u64);
            let wanted: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            if ctx.bytes(self.known(to).node, all) != wanted {
                ctx.fail(to, &format!("the words of window {window} are not what was left"));
            }
        }
    }
}
