//! What users of CLAN do.

use std::collections::VecDeque;

use clan_dsm::{Access, Action, DmaRequest, Error, Rights};
use landfall_placement::{Area, PathId, Peer, WordWidth};

use super::Clan;
use super::truth::{
    APERTURE, Content, DOORBELL, KINDS, Reading, WORD_COUNT, WORDS, Window, Writing,
};
use crate::ctx::{Ctx, pattern};
use crate::plan::Work;
use crate::stp::{changed, function};

/// What waits until links are up.
const MOST_QUEUED: usize = 64;

/// What may be full.
const BUSY: [Error; 4] = [Error::Busy, Error::NoRoom, Error::NoLink, Error::NotOpen];

impl Clan {
    /// Begins work through a window of `from` onto an aperture of `to`.
    pub(super) fn begin(&mut self, ctx: &mut Ctx, from: u8, to: u8, work: Work) {
        if !self.known(from).up.contains_key(&to) {
            if self.queue.len() < MOST_QUEUED {
                self.queue.push_back((from, to, work));
            }
            return self.open_link(ctx, from, to);
        }
        let is_it = |w: &Window| w.from == from && w.to == to && !w.is_dead;
        let known = self.windows.iter().position(is_it);
        let Some(window) = known.or_else(|| self.open_window(ctx, from, to)) else { return };
        ctx.note(from, || format!("{work:?} through window {window}"));
        self.do_now(ctx, window, work);
    }

    fn open_link(&mut self, ctx: &mut Ctx, from: u8, to: u8) {
        let is_asked = |a: u8, b: u8| self.known(a).asked.contains_key(&b);
        if is_asked(from, to) || is_asked(to, from) {
            return;
        }
        let (now, peer) = (ctx.now(), Peer::Node(self.known(to).node.id().0));
        let path = PathId(ctx.below(ctx.plan.planes.len() as u64) as u16);
        match self.engine(ctx, from).open_link(now, path, peer) {
            Ok(link) => {
                ctx.note(from, || format!("asks {to} for a link"));
                ctx.count("clan links");
                self.known_mut(from).asked.insert(to, link);
            }
            Err(Error::PathDown | Error::Taken | Error::NoRoom) => {}
            Err(error) => ctx.fail(from, &format!("open_link says: {error}")),
        }
    }

    /// What waited until a link was up.
    pub(super) fn go_on(&mut self, ctx: &mut Ctx, from: u8, to: u8) {
        let (now, later): (VecDeque<_>, _) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|(f, t, _)| *f == from && *t == to);
        self.queue = later;
        for (from, to, work) in now {
            self.begin(ctx, from, to, work);
        }
    }

    fn open_window(&mut self, ctx: &mut Ctx, from: u8, to: u8) -> Option<usize> {
        let owner = self.known(to).node;
        let area = ctx.lend(owner, &vec![0; APERTURE])?;
        let aperture = self.engine(ctx, to).expose(area).ok()?;
        let cookie = self.engine(ctx, to).cookie(aperture, Rights::ReadWrite).ok()?;
        let bell = DOORBELL..DOORBELL + 8;
        let tripwire =
            self.engine(ctx, to).watch(aperture, bell, Access::Write, Action::Event, false).ok();
        let id = self.engine(ctx, from).map(&cookie).ok()?;
        let link = self.engine(ctx, from).link_of(id).ok()?;
        let endpoint = self.engine(ctx, from).open_endpoint(None).ok();
        let contents = KINDS.iter().map(|(_, len)| Content::new(*len)).collect();
        self.windows.push(Window {
            from,
            to,
            id,
            link,
            area,
            tripwire,
            endpoint,
            contents,
            words: [0; WORD_COUNT],
            writing: Vec::new(),
            chains: Vec::new(),
            reads: Vec::new(),
            changes: Vec::new(),
            barriers: Vec::new(),
            flushed: 0,
            rung: 0,
            is_dead: false,
        });
        Some(self.windows.len() - 1)
    }

    fn refused(ctx: &mut Ctx, by: u8, call: &str, error: Error) {
        if !BUSY.contains(&error) {
            ctx.fail(by, &format!("{call} says: {error}"));
        }
    }

    fn do_now(&mut self, ctx: &mut Ctx, window: usize, work: Work) {
        match work {
            Work::Write { at, len } => self.write(ctx, window, at.into(), len.into()),
            Work::WriteFrom { at, len } => self.write_from(ctx, window, at.into(), len.into()),
            Work::Dma { at, len } => self.dma(ctx, window, at.into(), len.into()),
            Work::ReadOut { at, len } => self.read(ctx, window, at.into(), len.into()),
            Work::Change { word, kind, value } => self.change(ctx, window, word, kind, value),
            Work::Barrier => self.barrier(ctx, window),
            _ => {}
        }
    }

    fn fresh(&self, window: usize, kind: usize, len: usize) -> Vec<u8> {
        let nth = self.windows[window].contents[kind].writes;
        pattern(u64::from(nth) << 16 | (window as u64) << 2 | kind as u64, len)
    }

    /// Bytes, and the doorbell behind them.
    fn write(&mut self, ctx: &mut Ctx, window: usize, at: usize, len: usize) {
        let bytes = self.fresh(window, 0, len);
        let Window { from, id, .. } = self.windows[window];
        let now = ctx.now();
        match self.engine(ctx, from).write(now, id, at as u64, &bytes) {
            Ok(()) => {
                let content = &mut self.windows[window].contents[0];
                content.write(at, &bytes);
                let nth = u64::from(content.writes);
                if let Err(error) = self.engine(ctx, from).write_word(now, id, DOORBELL, nth) {
                    Self::refused(ctx, from, "write_word", error);
                }
            }
            Err(error) => Self::refused(ctx, from, "write", error),
        }
    }

    fn write_from(&mut self, ctx: &mut Ctx, window: usize, at: usize, len: usize) {
        let bytes = self.fresh(window, 1, len);
        let Window { from, id, .. } = self.windows[window];
        let node = self.known(from).node;
        let Some(area) = ctx.lend(node, &bytes) else { return };
        let (now, offset) = (ctx.now(), KINDS[1].0 + at as u64);
        match self.engine(ctx, from).write_from(now, id, offset, area) {
            Ok(id) => {
                let window = &mut self.windows[window];
                window.contents[1].write(at, &bytes);
                let nth = window.contents[1].writes;
                window.writing.push(Writing { id, nth, at, area, back: None });
            }
            Err(error) => {
                ctx.take_back(from, node, area);
                Self::refused(ctx, from, "write_from", error);
            }
        }
    }

    /// A chain: bytes are written, and read back.
    fn dma(&mut self, ctx: &mut Ctx, window: usize, at: usize, len: usize) {
        let bytes = self.fresh(window, 2, len);
        let Window { from, id, endpoint, .. } = self.windows[window];
        let Some(endpoint) = endpoint else { return };
        let node = self.known(from).node;
        let Some(area) = ctx.lend(node, &bytes) else { return };
        let Some(back) = ctx.lend(node, &vec![0xc5; len]) else { return };
        let (now, offset) = (ctx.now(), KINDS[2].0 + at as u64);
        let chain = [
            DmaRequest::Write { from: area, window: id, offset },
            DmaRequest::Read { window: id, offset, into: back },
        ];
        match self.engine(ctx, from).dma(now, endpoint, &chain) {
            Ok(id) => {
                let window = &mut self.windows[window];
                window.contents[2].write(at, &bytes);
                let nth = window.contents[2].writes;
                window.chains.push(Writing { id, nth, at, area, back: Some(back) });
            }
            Err(error) => {
                ctx.take_back(from, node, area);
                ctx.take_back(from, node, back);
                Self::refused(ctx, from, "dma", error);
            }
        }
    }

    fn read(&mut self, ctx: &mut Ctx, window: usize, at: usize, len: usize) {
        let Window { from, id, .. } = self.windows[window];
        let node = self.known(from).node;
        let Some(area) = ctx.lend(node, &vec![0xc5; len]) else { return };
        let now = ctx.now();
        match self.engine(ctx, from).read(now, id, at as u64, area) {
            Ok(id) => {
                let window = &mut self.windows[window];
                let after = window.contents[0].writes;
                window.reads.push(Reading { id, at, area, after });
            }
            Err(error) => {
                ctx.take_back(from, node, area);
                Self::refused(ctx, from, "read", error);
            }
        }
    }

    fn change(&mut self, ctx: &mut Ctx, window: usize, word: u8, kind: u8, value: u32) {
        let Window { from, id, .. } = self.windows[window];
        let (word, function) = (usize::from(word) % WORD_COUNT, function(kind, value));
        let (now, at) = (ctx.now(), WORDS + 8 * word as u64);
        match self.engine(ctx, from).change(now, id, at, WordWidth::Eight, function) {
            Ok(id) => {
                let window = &mut self.windows[window];
                let old = window.words[word];
                window.words[word] = changed(old, function);
                window.changes.push((id, word, old));
            }
            Err(error) => Self::refused(ctx, from, "change", error),
        }
    }

    pub(super) fn barrier(&mut self, ctx: &mut Ctx, window: usize) {
        let Window { from, id, .. } = self.windows[window];
        let now = ctx.now();
        let Ok(link) = self.engine(ctx, from).link_of(id) else { return };
        match self.engine(ctx, from).barrier(now, link) {
            Ok(id) => {
                let window = &mut self.windows[window];
                let writes = window.contents[0].writes;
                window.barriers.push((id, writes));
                window.flushed = writes;
            }
            Err(error) => Self::refused(ctx, from, "barrier", error),
        }
    }

    /// A part of a window's aperture.
    pub(super) fn part(area: Area, kind: usize) -> Area {
        let (at, len) = KINDS[kind];
        Area::new(area.region, area.offset + at, len as u64)
    }
}
