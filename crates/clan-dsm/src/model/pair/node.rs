//! One of the two hosts: an adapter, its memory, and the naive model of both; the driver of both
//! sides, and the wire between them.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Display;

use landfall_placement::{
    Area, Check, Engine, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement, Random,
    RegionId, Span, Spans, Ticket, WordFunction, WordOp,
};
use landfall_testkit::model::{Memory, Packet, gather};

use super::ledger::{Ledger, Shadow};
use super::{Pair, UNIT};
use crate::address::{
    ApertureId, BarrierId, DmaId, EndpointId, HostId, LinkId, OperationId, ReadId, TripwireId,
    WindowId, WriteId,
};
use crate::config::Config;
use crate::cookie::{Access, Cookie, Rights};
use crate::model::naive::{self, NaiveHost, NaiveWire};
use crate::nic::Nic;
use crate::offload::Action;
use crate::wire::frame::Frame;

/// Regions of a side: what others write, what is sent from, what is read into.
pub(super) const SHARED: RegionId = RegionId::new(0, 0);
pub(super) const SOURCE: RegionId = RegionId::new(1, 0);
pub(super) const TARGET: RegionId = RegionId::new(2, 0);

/// Sizes of the other two regions.
pub(super) const SOURCE_LEN: usize = 16 << 10;
const TARGET_LEN: usize = 64 << 10;

/// How many tripwires are set in one run at most: the queue of names has room.
const MOST_WIRES: usize = 100;

/// How many orders there are: the program's, and one for each DMA queue.
pub(super) const LANES: usize = 3;

/// An aperture. Each is written in one order only.
#[derive(Clone, Debug)]
pub(super) struct ExposedAperture {
    pub(super) id: ApertureId,
    pub(super) area: Area,
    pub(super) cookie: Cookie,
    pub(super) is_gone: bool,
    /// The cookie is good over links of the other side alone.
    is_for_peer: bool,
    /// It was taken from the other side. The memory is an aperture still.
    is_withdrawn: bool,
    pub(super) lane: usize,
}

impl ExposedAperture {
    /// The other side has no key to it any more.
    pub(super) const fn is_over(&self) -> bool {
        self.is_gone || self.is_withdrawn
    }
}

/// A window onto an aperture of the other side, of the same number.
#[derive(Clone, Debug)]
pub(super) struct WindowOnPeer {
    pub(super) window: WindowId,
    pub(super) shadow: Shadow,
}

/// What this side waits for, and what must be so when it comes.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) reads: Vec<(ReadId, u64, usize, u64, Area)>,
    /// The word's old value, if it is known.
    pub(super) words: Vec<(OperationId, Option<u64>)>,
    pub(super) barriers: Vec<(BarrierId, u64)>,
    pub(super) writes: Vec<(WriteId, u64)>,
    pub(super) chains: Vec<(DmaId, u64, u64)>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
            && self.words.is_empty()
            && self.barriers.is_empty()
            && self.writes.is_empty()
            && self.chains.is_empty()
    }
}

pub(super) struct NodeState {
    pub(super) number: usize,
    pub(super) nic: Nic,
    pub(super) memory: Memory,
    pub(super) shown: Vec<ExposedAperture>,
    pub(super) onto: Vec<WindowOnPeer>,
    pub(super) naive: NaiveHost,
    pub(super) wires: Vec<TripwireId>,
    /// Tripwires that hear of reads: only their counts are compared.
    pub(super) endpoints: Vec<EndpointId>,
    pub(super) link: Option<LinkId>,
    /// What this side wrote to the other, in each order.
    pub(super) lanes: [Ledger; LANES],
    pub(super) pending: Pending,
    pub(super) serial: u64,
    /// What the driver has not let go yet.
    pub(super) held: VecDeque<Ticket>,
    pub(super) exceptions: usize,
    target_used: usize,
    pub(super) failures: Vec<String>,
}

impl NodeState {
    pub(super) fn new(number: usize, config: Config, limits: PathLimits, lens: &[usize]) -> Self {
        let host = host(number);
        let mut random = Random::from_number(number as u64 + 77);
        let source = (0..SOURCE_LEN).map(|at| source_byte(number, at)).collect();
        let mut memory = Memory::new();
        let lent = [Vec::new(), source, vec![0; TARGET_LEN]].map(|bytes| memory.lend(bytes));
        debug_assert_eq!(lent, [SHARED, SOURCE, TARGET]);
        let mut side = Self {
            number,
            nic: Nic::new(config, host, random.fork()).unwrap(),
            memory,
            shown: Vec::new(),
            onto: Vec::new(),
            naive: NaiveHost::default(),
            wires: Vec::new(),
            endpoints: Vec::new(),
            link: None,
            lanes: Default::default(),
            pending: Pending::default(),
            serial: 0,
            held: VecDeque::new(),
            exceptions: 0,
            target_used: 0,
            failures: Vec::new(),
        };
        side.nic.handle_path(Instant::ZERO, PathId(0), PathState::Up(limits));
        for _ in 1..LANES {
            match side.nic.open_endpoint(None) {
                Ok(endpoint) => side.endpoints.push(endpoint),
                Err(error) => side.fail(format!("no endpoint: {error}")),
            }
        }
        for (n, len) in lens.iter().enumerate() {
            side.show(*len, n.saturating_sub(lens.len() - LANES));
        }
        side
    }

    pub(super) fn fail(&mut self, what: impl Display) {
        self.failures.push(format!("side {}: {what}", self.number));
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    // ---- Memory --------------------------------------------------------------

    fn shared_len(&self) -> usize {
        self.memory.region(SHARED).map_or(0, <[u8]>::len)
    }

    fn show(&mut self, len: usize, lane: usize) {
        // Nothing lies right behind it.
        let offset = self.shared_len().next_multiple_of(8) + 8;
        self.memory.grow(SHARED, offset + len);
        let area = Area::new(SHARED, offset as u64, len as u64);
        let id = match self.nic.expose(area) {
            Ok(id) => id,
            Err(error) => return self.fail(format!("no aperture: {error}")),
        };
        self.naive.expose(id.index() as u16, len);
        // Every other one is for the other side alone.
        let is_for_peer = self.shown.len() % 2 == 1;
        let cookie = match is_for_peer {
            true => self.nic.cookie_for(id, Rights::ReadWrite, host(1 - self.number)),
            false => self.nic.cookie(id, Rights::ReadWrite),
        };
        match cookie {
            Ok(cookie) => {
                let (is_gone, is_withdrawn) = (false, false);
                let shown =
                    ExposedAperture { id, area, cookie, is_gone, is_for_peer, is_withdrawn, lane };
                self.shown.push(shown);
            }
            Err(error) => self.fail(format!("no cookie: {error}")),
        }
    }

    /// Ends the rights to an aperture, and shows another one that is as long.
    pub(super) fn replace(&mut self, which: usize) {
        if self.shared_len() > 1 << 18 {
            return;
        }
        let old = self.shown[which].clone();
        if old.is_for_peer && self.shown.len().is_multiple_of(2) {
            if let Err(error) = self.nic.revoke_from(old.id, host(1 - self.number)) {
                return self.fail(format!("cannot revoke from the other side: {error}"));
            }
            self.shown[which].is_withdrawn = true;
            return self.show(old.area.len as usize, old.lane);
        }
        if let Err(error) = self.nic.revoke(old.id) {
            return self.fail(format!("cannot revoke: {error}"));
        }
        self.compare(which);
        self.naive.revoke(old.id.index() as u16);
        self.shown[which].is_gone = true;
        self.show(old.area.len as usize, old.lane);
    }

    /// Opens windows onto all that the other side shows and that has none yet.
    pub(super) fn map(&mut self, shown: &[ExposedAperture]) {
        for one in &shown[self.onto.len()..] {
            match self.nic.map(&one.cookie) {
                Ok(window) => {
                    let shadow = Shadow::new(one.area.len as usize);
                    self.onto.push(WindowOnPeer { window, shadow });
                }
                Err(error) => return self.fail(format!("no window: {error}")),
            }
        }
    }

    /// Memory to read into.
    pub(super) fn target(&mut self, len: usize) -> Area {
        if self.target_used + len > TARGET_LEN || self.pending.reads.is_empty() {
            self.target_used = 0;
        }
        let area = Area::new(TARGET, self.target_used as u64, len as u64);
        self.target_used += len;
        area
    }

    // ---- Tripwires -----------------------------------------------------------

    pub(super) fn watch(&mut self, which: usize, from: u64, to: u64, once: bool, action: Action) {
        let id = self.shown[which].id;
        if self.wires.len() >= MOST_WIRES || self.shown[which].is_over() {
            return;
        }
        match self.nic.watch(id, from..to, Access::Write, action, once) {
            Ok(tripwire) => {
                let (name, slot) = (tripwire.raw(), id.index() as u16);
                let mut wire = NaiveWire::new(name, slot, from, to, Access::Write);
                (wire.once, wire.queues) = (once, action == Action::Identifier);
                self.naive.watch(wire);
                self.wires.push(tripwire);
            }
            Err(error) => self.fail(format!("no tripwire: {error}")),
        }
    }

    pub(super) fn change_wire(&mut self, which: usize, how: u8) {
        if self.wires.is_empty() {
            return;
        }
        let id = self.wires[which % self.wires.len()];
        let changed = naive::change(&mut self.nic, &mut self.naive, id, how);
        changed.unwrap_or_else(|what| self.fail(what));
    }

    pub(super) fn pop(&mut self) -> bool {
        let popped = naive::pop(&mut self.nic, &mut self.naive);
        popped.unwrap_or_else(|what| {
            self.fail(what);
            false
        })
    }

    // ---- At the end ----------------------------------------------------------

    /// The memory of an aperture, and what watches it, are as in the naive model.
    pub(super) fn compare(&mut self, which: usize) {
        let ExposedAperture { id, area, is_gone, .. } = self.shown[which];
        if is_gone {
            return;
        }
        let bytes = self.memory.area(&area);
        if bytes.is_none() || self.naive.bytes(id.index() as u16) != bytes {
            self.fail(format!("the bytes of {id} differ"));
        }
    }

    pub(super) fn compare_all(&mut self) {
        (0..self.shown.len()).for_each(|which| self.compare(which));
        for id in self.wires.clone() {
            let compared = naive::compare(&mut self.nic, &self.naive, id);
            compared.unwrap_or_else(|what| self.fail(what));
        }
        while self.pop() {}
    }
}

fn host(number: usize) -> HostId {
    HostId::new(number as u16 + 1).unwrap_or_default()
}

/// What is sent from: neighbours differ, and both sides do.
const fn source_byte(side: usize, at: usize) -> u8 {
    let mixed = (at as u32 + 1).wrapping_add((side as u32) << 20).wrapping_mul(0x9e37_79b1);
    (mixed >> 24) as u8
}

/// How an operation touches its word.
pub(super) const fn touches(function: WordFunction) -> Access {
    match function {
        WordFunction::Load => Access::Read,
        WordFunction::Store(_) => Access::Write,
        _ => Access::Both,
    }
}

impl Pair {
    /// One unit of a side is put on the wire. Returns whether there was one.
    pub(super) fn transmit(&mut self, side: usize) -> bool {
        let now = self.now;
        let limits = PathLimits::plain(UNIT);
        let one = &mut self.sides[side];
        let mut head = [0; 256];
        let head = &mut head[..usize::from(limits.head)];
        let mut spans = Spans::new();
        let Some(transmit) = one.nic.poll_transmit(now, PathId(0), head, &mut spans) else {
            return false;
        };
        let unit = gather(&one.memory, &transmit, head, &spans);
        let unit = unit.unwrap_or_else(|| {
            one.fail("it sends what it does not have");
            Vec::new()
        });
        if unit.len() > limits.unit as usize {
            one.fail(format!("a unit of {} bytes", unit.len()));
        }
        one.held.push_back(transmit.ticket);
        if one.held.len() > self.hold {
            self.let_go(side);
        }
        self.tell(|| format!("  {side} sends {}", spell(&unit)));
        self.wires[1 - side].push_back(unit);
        true
    }

    /// The driver holds nothing any more.
    pub(super) fn let_go(&mut self, side: usize) {
        let one = &mut self.sides[side];
        while let Some(ticket) = one.held.pop_front() {
            one.nic.handle_sent(self.now, ticket);
        }
    }

    /// A side receives this many of the units on the wire: all are placed before
    /// the first is reported. Returns whether there were any.
    pub(super) fn receive(&mut self, side: usize, most: usize) -> bool {
        let count = most.min(self.wires[side].len());
        let units: Vec<Vec<u8>> = self.wires[side].drain(..count).collect();
        // What ends a link takes its placements with it: no frame but data comes
        // between the placing of a payload and its report.
        let is_data = |unit: &[u8]| unit.get(2).is_some_and(|kind| kind & 0xf == 0);
        for batch in units.chunk_by(|a, b| is_data(a) && is_data(b)) {
            self.receive_batch(side, batch);
        }
        self.deposit(side);
        count > 0
    }

    fn receive_batch(&mut self, side: usize, units: &[Vec<u8>]) {
        let mut under_way = VecDeque::new();
        for unit in units {
            let mut spans = Spans::new();
            let packet = Packet::new(PathId(0), Peer::Node(1 - side as u32), unit.clone());
            let placement = packet.place(&mut self.sides[side].nic, self.now, &mut spans).ok();
            self.tell(|| format!("  {side} gets {}: {placement:?} {spans:?}", spell(unit)));
            match placement {
                Some(Placement::Into { at, check, ticket }) => {
                    if check != Check::None {
                        self.sides[side].fail(format!("it wants {check:?}"));
                    }
                    let payload = unit.get(usize::from(at)..).unwrap_or_default();
                    under_way.push_back((ticket, Ok((spans, payload))));
                }
                Some(Placement::Word(op, ticket)) => under_way.push_back((ticket, Err(op))),
                _ => {}
            }
        }
        for (ticket, what) in under_way {
            let landing = match what {
                Ok((spans, payload)) => self.land(side, &spans, payload),
                Err(op) => self.land_word(side, &op),
            };
            self.sides[side].nic.handle_placed(self.now, ticket, landing);
        }
    }

    /// What the adapter kept goes to its place.
    fn deposit(&mut self, side: usize) {
        for _ in 0..10_000 {
            let mut spans = Spans::new();
            let Some(deposit) = self.sides[side].nic.poll_deposit(self.now, &mut spans) else {
                return;
            };
            let (bytes, ticket) = (deposit.bytes.to_vec(), deposit.ticket);
            self.tell(|| format!("  {side} deposits {} bytes at {spans:?}", bytes.len()));
            let landing = match self.land(side, &spans, &bytes) {
                Landing::Unchecked => Landing::Verified,
                other => other,
            };
            self.sides[side].nic.handle_placed(self.now, ticket, landing);
        }
        self.sides[side].fail("deposits without end");
    }

    /// Puts a payload into its spans: nothing but the next bytes that the other
    /// side wrote may ever come to lie in an aperture.
    fn land(&mut self, side: usize, spans: &Spans, mut payload: &[u8]) -> Landing {
        for span in spans.iter() {
            let Some((now, later)) = payload.split_at_checked(span.len as usize) else {
                self.sides[side].fail(format!("{span} is longer than what came"));
                return Landing::Failed;
            };
            payload = later;
            if span.region == TARGET {
                self.land_read(side, *span, now);
            } else {
                self.land_write(side, *span, now);
            }
        }
        Landing::Unchecked
    }

    fn land_read(&mut self, side: usize, span: Span, bytes: &[u8]) {
        let one = &mut self.sides[side];
        let is_inside = |area: &Area| {
            area.offset <= span.offset
                && span.end().is_some_and(|end| end <= area.offset + area.len)
        };
        if !one.pending.reads.iter().any(|(.., area)| is_inside(area)) {
            return one.fail(format!("{span} is nothing that is read into"));
        }
        one.write(span, bytes);
    }

    fn land_write(&mut self, side: usize, span: Span, bytes: &[u8]) {
        let [ref mut first, ref mut second] = self.sides;
        let (here, there) = if side == 0 { (first, second) } else { (second, first) };
        let is_inside = |area: Area| {
            area.offset <= span.offset
                && span.end().is_some_and(|end| end <= area.offset + area.len)
        };
        let is_live = |shown: &&ExposedAperture| is_inside(shown.area) && !shown.is_over();
        if self.is_lawless {
            // Anyone who has a cookie may write what and when it likes; but nowhere else.
            let Some(ExposedAperture { id, area, .. }) = here.shown.iter().find(is_live).cloned()
            else {
                return here.fail(format!("{span} is no aperture"));
            };
            return here.put(span, id, area, bytes);
        }
        let lane = here.shown.iter().find(|shown| is_inside(shown.area)).map(|shown| shown.lane);
        let Some(lane) = lane.filter(|lane| span.region == SHARED && *lane < LANES) else {
            return here.fail(format!("{span} is no aperture"));
        };
        let is_gone =
            |aperture: usize| here.shown.get(aperture).is_none_or(ExposedAperture::is_over);
        let Some(aperture) = there.lanes[lane].land(span.offset, bytes, is_gone) else {
            return here.fail(format!("{span}: not what was written next: {bytes:?}"));
        };
        let ExposedAperture { id, area, .. } = here.shown[aperture];
        if here.shown[aperture].is_over() {
            return here.fail(format!("it writes to {id}, which is gone"));
        }
        here.put(span, id, area, bytes);
    }

    fn land_word(&mut self, side: usize, op: &WordOp) -> Landing {
        let [ref mut first, ref mut second] = self.sides;
        let (here, there) = if side == 0 { (first, second) } else { (second, first) };
        let is_gone =
            |aperture: usize| here.shown.get(aperture).is_none_or(ExposedAperture::is_over);
        let aperture = if self.is_lawless {
            let is_inside = |shown: &ExposedAperture| {
                let area = shown.area;
                let end = op.offset + u64::from(op.width.bytes());
                !shown.is_over() && area.offset <= op.offset && end <= area.offset + area.len
            };
            here.shown.iter().position(is_inside)
        } else {
            there.lanes[0].land_word(op, is_gone)
        };
        let Some(aperture) = aperture else {
            here.fail(format!("{op:?} was not asked for next"));
            return Landing::Failed;
        };
        let Some(old) = here.memory.word(op) else {
            here.fail(format!("{op:?} is nowhere"));
            return Landing::Failed;
        };
        let shown = &here.shown[aperture];
        let (slot, at) = (shown.id.index() as u16, op.offset - shown.area.offset);
        let new = here.memory.get(&op.region.span(op.offset, op.width.bytes()));
        here.naive.put(slot, at, new.unwrap_or_default(), touches(op.function));
        Landing::Old(old)
    }
}

impl NodeState {
    /// Bytes come to lie where a span says, which has as many.
    fn write(&mut self, span: Span, bytes: &[u8]) {
        match self.memory.get_mut(&span) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.fail(format!("{span} does not exist")),
        }
    }

    /// Bytes come to lie in an aperture.
    fn put(&mut self, span: Span, id: ApertureId, area: Area, bytes: &[u8]) {
        self.write(span, bytes);
        self.naive.put(id.index() as u16, span.offset - area.offset, bytes, Access::Write);
    }
}

/// A unit in words.
fn spell(unit: &[u8]) -> String {
    match Frame::parse(unit, unit.len() as u32) {
        Ok(frame) => format!("{:?}", frame.header()),
        Err(why) => format!("{} bytes: {why:?}", unit.len()),
    }
}
