//! Links: a path and a peer at its other end. What is granted over a link, in
//! which order, and how much may be.

use alloc::boxed::Box;
use alloc::vec::Vec;

use landfall_congestion::Config as Congestion;
use landfall_congestion::{Arrived, Window};
use landfall_placement::{Duration, Instant, Peer, Random, assumed};
use landfall_tables::{EntryKey, HashIndex, HashSecret, IndexedHeap, Table};

use crate::context::Context;
use crate::issued::{Issued, IssuedGrants};
use crate::offload::StuRange;
use crate::size::LinkSize;
use crate::usage::{Measure, SenderUsage, Share, Usage};

/// No Block, at the ends of lists.
pub(crate) const NO_BLOCK: u16 = u16::MAX;

/// What arrived over a link and was not yet told to its window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowUpdate {
    pub(crate) bytes: u64,
    pub(crate) marked: u64,
    /// When what came last had been granted, less the time that it waited at
    /// its sender: so the difference to now is what the network took.
    pub(crate) sent: Option<Instant>,
    /// When the oldest grant among them went out.
    pub(crate) granted: Instant,
}

/// What there is of a link that Data comes over. Most links are idle: they are
/// without.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) update: WindowUpdate,
    issued: IssuedGrants,
    /// When one of its connections said something last.
    heard: Instant,
    /// Transfers that wait for room here.
    pub(crate) waiting: Vec<u32>,
    /// When long STUs were lost last, while some were.
    pub(crate) long_lost_at: Instant,
    /// What this side sends unasked.
    outgoing: Option<Outgoing>,
    pub(crate) usage: Usage,
}

/// What this side decides to send over a link: Puts and FetchOps.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) window: Window,
    /// Bytes that were sent, and of which it is not known what became of them.
    pub(crate) under_way: u64,
    /// Connections that wait for room.
    pub(crate) waiting: Vec<u32>,
}

/// What waits for room goes on with this part of a window, or what is sent in one call.
const BURSTS_PER_WINDOW: u64 = 4;
const LONGEST_BURST: u64 = 64 << 10;

impl Outgoing {
    /// Is there room for more than a few packets?
    pub(crate) fn has_room_for_burst(&self, config: &Congestion) -> bool {
        let burst = (self.window.bytes() / BURSTS_PER_WINDOW).min(LONGEST_BURST);
        self.under_way == 0 || self.window.room(config, self.under_way) >= burst
    }
}

/// One link.
#[derive(Debug)]
pub(crate) struct Link {
    /// The index of its path.
    pub(crate) path: u8,
    pub(crate) peer: Peer,
    /// Connections that have it.
    pub(crate) users: u32,
    /// Its path is up, and its peer was not found dead.
    pub(crate) is_up: bool,
    /// How often in a row nothing came in time.
    pub(crate) strikes: u8,
    pub(crate) window: Window,
    /// How long packets from there may be.
    pub(crate) size: LinkSize,
    /// Granted and not arrived, in bytes.
    pub(crate) granted: u64,
    /// The Blocks granted here, in the order of their grants.
    pub(crate) first: u16,
    pub(crate) last: u16,
    /// When something arrived last, or was granted while nothing was.
    pub(crate) active: Instant,
    /// It is among the links with news.
    pub(crate) is_fresh: bool,
    /// How much of the window it has, against others: the largest weight of its connections.
    pub(crate) weight: u16,
    traffic: Option<Box<Traffic>>,
}

impl Link {
    fn new(path: u8, peer: Peer, is_up: bool, window: Window) -> Self {
        Self {
            path,
            peer,
            users: 0,
            is_up,
            strikes: 0,
            window,
            size: LinkSize::default(),
            granted: 0,
            first: NO_BLOCK,
            last: NO_BLOCK,
            active: Instant::ZERO,
            is_fresh: false,
            weight: 1,
            traffic: None,
        }
    }

    /// What this side sends there unasked, from when it does.
    pub(crate) fn outgoing(&mut self, config: &Congestion) -> &mut Outgoing {
        self.traffic().outgoing.get_or_insert_with(|| {
            let window = Window::new(config);
            Outgoing { window, under_way: 0, waiting: Vec::new() }
        })
    }

    fn sends(&self) -> Option<&Outgoing> {
        self.traffic.as_ref()?.outgoing.as_ref()
    }

    /// How many bytes of Puts may leave.
    pub(crate) fn room_for_puts(&self, config: &Congestion) -> u64 {
        self.sends().map_or(config.initial_window, |out| out.window.room(config, out.under_way))
    }

    /// Is this connection to wait for more room than there is? What waits goes on when a part of
    /// the window is free, or nothing is under way: packets that follow each answer one by one
    /// would be answered one by one, too, each a call at both hosts (RFC 9293, 3.8.6.2.1, knows
    /// it as silly windows).
    pub(crate) fn holds_back_puts(&self, config: &Congestion, connection: u32) -> bool {
        self.sends()
            .is_some_and(|out| out.waiting.contains(&connection) && !out.has_room_for_burst(config))
    }

    /// Bytes of Puts that are under way.
    pub(crate) fn puts_under_way(&self) -> u64 {
        self.sends().map_or(0, |out| out.under_way)
    }

    /// Those of a connection are not any more. Returns who waited for room.
    pub(crate) fn free_puts(&mut self, bytes: u64) -> Vec<u32> {
        let traffic = self.traffic.as_deref_mut();
        // Nothing was ever put over it.
        let Some(outgoing) = traffic.and_then(|traffic| traffic.outgoing.as_mut()) else {
            return Vec::new();
        };
        outgoing.under_way = outgoing.under_way.saturating_sub(bytes);
        core::mem::take(&mut outgoing.waiting)
    }

    /// How long the answer to a Put takes, once that was measured.
    pub(crate) fn rtt_of_puts(&self) -> Option<Duration> {
        self.sends()?.window.rtt().smoothed()
    }

    /// How long it takes at most, usually.
    pub(crate) fn time_out_of_puts(&self, retry_after: Duration, floor: Duration) -> Duration {
        match self.sends() {
            Some(outgoing) => time_out(&outgoing.window, retry_after, floor),
            None => retry_after,
        }
    }

    /// What goes on here, from when something does.
    #[inline]
    pub(crate) fn traffic(&mut self) -> &mut Traffic {
        self.traffic.get_or_insert_default()
    }

    /// One of its connections said something.
    pub(crate) fn note_heard(&mut self, now: Instant) {
        if let Some(traffic) = &mut self.traffic {
            traffic.heard = now;
        }
    }

    /// When one of its connections said something last, of a link that Data comes over.
    pub(crate) fn heard(&self) -> Instant {
        self.traffic.as_ref().map_or(Instant::ZERO, |traffic| traffic.heard)
    }

    /// Does a Transfer wait for room here?
    pub(crate) fn has_waiting(&self) -> bool {
        self.traffic.as_ref().is_some_and(|traffic| !traffic.waiting.is_empty())
    }

    /// Does this Transfer?
    #[cfg(feature = "model")]
    pub(crate) fn is_awaited_by(&self, receive: u32) -> bool {
        self.traffic.as_ref().is_some_and(|traffic| traffic.waiting.contains(&receive))
    }

    /// The Transfers that waited for room.
    pub(crate) fn take_waiting(&mut self) -> Vec<u32> {
        self.traffic
            .as_mut()
            .map(|traffic| core::mem::take(&mut traffic.waiting))
            .unwrap_or_default()
    }

    /// What is granted here and not used, so that others may have it.
    pub(crate) fn unused(&self) -> u64 {
        self.traffic.as_ref().map_or(0, |traffic| traffic.usage.unused())
    }

    /// How what is granted here is used; nothing while nothing was.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.traffic.as_ref().map(|traffic| &traffic.usage)
    }

    /// What it has of the receiver's window, as it was counted last.
    #[cfg(feature = "model")]
    pub(crate) fn share(&self) -> Share {
        self.traffic.as_ref().map_or(Share::default(), |traffic| traffic.usage.share)
    }

    /// The same as it is; and makes that what was counted. Returns both.
    fn recount(&mut self) -> (Share, Share) {
        let (granted, weight) = (self.granted, self.weight);
        let Some(traffic) = &mut self.traffic else { return (Share::default(), Share::default()) };
        let share = traffic.usage.share_of(granted, weight);
        (core::mem::replace(&mut traffic.usage.share, share), share)
    }

    /// Bytes are granted.
    fn note_granted(&mut self, now: Instant, bytes: u64, measure: &Measure) {
        let (granted, active) = (self.granted, self.active);
        self.granted += bytes;
        self.traffic().usage.note_granted(now, granted, bytes, active, measure);
    }

    /// Granted bytes have arrived, or are not expected any more: first those that do not
    /// count. Gives how many of them did not.
    #[inline]
    fn note_returned(&mut self, bytes: u64) -> u64 {
        self.granted = self.granted.saturating_sub(bytes);
        self.traffic().usage.note_returned(bytes)
    }

    /// A grant goes out.
    pub(crate) fn note_issued(&mut self, issued: Issued) {
        self.traffic().issued.push(issued);
    }

    /// When the last of the STUs that come was granted, if they come for the first time.
    #[inline]
    pub(crate) fn granted_at(&mut self, stus: StuRange) -> Option<Instant> {
        self.traffic.as_mut()?.issued.granted_at(stus)
    }

    /// What is missing of a Block before an STU is asked for again.
    pub(crate) fn forget_issued(&mut self, block: u16, before: u16) {
        if let Some(traffic) = &mut self.traffic {
            traffic.issued.forget(block, before);
        }
    }

    /// When the latest of the grants went out that Data has answered.
    pub(crate) fn answered(&self) -> Instant {
        self.traffic.as_ref().map_or(Instant::ZERO, |traffic| traffic.issued.answered)
    }

    /// Has Data come of grants that went out so long after this moment that what was asked for
    /// then is lost (RFC 8985, 6.2: a quarter of a round trip is reordering)?
    pub(crate) fn has_answered_since(&self, at: Instant) -> bool {
        let reordering = self.window.rtt().shortest().unwrap_or_default() / 4;
        self.answered() > at + reordering
    }

    /// What was asked for again at this moment was on its way after all: nothing that is asked
    /// for comes within less than a round trip.
    pub(crate) fn note_not_lost(&mut self, config: &Congestion, now: Instant, asked_at: Instant) {
        let least = self.window.rtt().shortest().unwrap_or_default();
        if now < asked_at + least - least / 4 {
            self.window.handle_spurious(config, asked_at);
        }
    }

    /// Tells the window what arrived since the last time.
    pub(crate) fn update_window(&mut self, config: &Congestion, now: Instant) {
        let update = core::mem::take(&mut self.traffic().update);
        if update.bytes == 0 {
            return;
        }
        let under_way = self.granted - self.unused() + update.bytes;
        let clean = update.bytes - update.marked.min(update.bytes);
        for (bytes, marked) in [(clean, false), (update.marked, true)] {
            if bytes > 0 {
                let timed = update.sent.is_some();
                let sent = update.sent.unwrap_or(update.granted);
                let arrived = Arrived { bytes, sent, timed, marked, under_way };
                self.window.handle_arrived(config, now, &arrived);
            }
        }
    }

    /// What its usage is measured by.
    fn measure(&self, cx: &Context) -> Measure {
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        Measure {
            time_out: self.time_out(retry_after, floor),
            floor,
            shortest: self.window.rtt().shortest().unwrap_or_default(),
            arrived: cx.stats.bytes_received,
            window: cx.config.window,
        }
    }

    /// How long to wait for what was granted, before it is asked for again.
    pub(crate) fn patience(&self, retry_after: Duration, floor: Duration) -> Duration {
        self.time_out(retry_after, floor).saturating_mul(1 << self.strikes.min(4))
    }

    /// How long an answer takes at most, usually (RFC 6298, 2.3).
    pub(crate) fn time_out(&self, retry_after: Duration, floor: Duration) -> Duration {
        time_out(&self.window, retry_after, floor)
    }
}

fn time_out(window: &Window, retry_after: Duration, floor: Duration) -> Duration {
    let rtt = window.rtt();
    match (rtt.smoothed(), rtt.variation()) {
        (Some(smoothed), Some(variation)) => (smoothed + variation * 4).max(floor),
        _ => retry_after,
    }
}

/// Every link, found by path and peer.
#[derive(Debug)]
pub(crate) struct Links {
    table: Table<Link>,
    by_peer: HashIndex,
    /// By link: granted Data is expected.
    pub(crate) timers: IndexedHeap<Instant>,
    /// By link: how long packets may be is being found out, or will be again.
    pub(crate) size_timers: IndexedHeap<Instant>,
    /// What all links have of the receiver's window.
    pub(crate) held: Share,
}

impl Links {
    pub(crate) fn new(limit: usize, random: &mut Random) -> Self {
        Self {
            table: Table::new(limit),
            by_peer: HashIndex::new(HashSecret::new(random.next_u64(), random.next_u64())),
            timers: IndexedHeap::new(),
            size_timers: IndexedHeap::new(),
            held: Share::default(),
        }
    }

    pub(crate) fn find(&self, path: u8, peer: Peer) -> Option<u32> {
        let is_meant = |index: u32| {
            self.table.get(index).is_some_and(|link| link.path == path && link.peer == peer)
        };
        self.by_peer.find(&(path, peer), is_meant)
    }

    /// The link, made if it is new, with one user more.
    pub(crate) fn join(
        &mut self,
        path: u8,
        peer: Peer,
        is_up: bool,
        window: Window,
    ) -> Option<u32> {
        let index = match self.find(path, peer) {
            Some(index) => index,
            None => {
                let EntryKey { index, .. } =
                    self.table.insert(Link::new(path, peer, is_up, window))?;
                self.by_peer.insert(&(path, peer), index);
                index
            }
        };
        self.table.get_mut(index)?.users += 1;
        Some(index)
    }

    /// One user less; says whether that was the last, and the link is gone.
    pub(crate) fn leave(&mut self, index: u32) -> bool {
        let Some(link) =
            assumed(self.table.get_mut(index), "a connection leaves links that it has joined")
        else {
            return false;
        };
        link.users = link.users.saturating_sub(1);
        if link.users > 0 {
            return false;
        }
        self.by_peer.remove(&(link.path, link.peer), index);
        self.table.remove(index);
        true
    }

    // ---- What is granted over a link, and what all have of the window --------

    /// Bytes are granted over a link: they are expected within its patience.
    pub(crate) fn note_granted(&mut self, cx: &Context, index: u32, bytes: u64) {
        let Some(link) = assumed(self.table.get_mut(index), "grants go over a link that there is")
        else {
            return;
        };
        let measure = link.measure(cx);
        link.note_granted(cx.now, bytes, &measure);
        if link.granted == bytes {
            link.window.handle_start(&cx.config.usual_congestion(), cx.now);
            link.active = cx.now;
        }
        if self.timers.key_of(index).is_none() {
            let patience = link.patience(cx.config.retry_after, cx.config.retry_floor);
            self.timers.set(index, cx.now + patience);
        }
        let (old, new) = link.recount();
        self.held.replace(old, new);
    }

    /// Granted bytes are not expected over a link any more. Gives how many of them counted
    /// against nobody.
    pub(crate) fn note_returned(&mut self, index: u32, bytes: u64) -> u64 {
        let Some(link) =
            assumed(self.table.get_mut(index), "what is granted is of a link that there is")
        else {
            return 0;
        };
        let uncounted = link.note_returned(bytes);
        let (old, new) = link.recount();
        self.held.replace(old, new);
        uncounted
    }

    /// Of what is granted over a link, so much counts against nobody.
    pub(crate) fn note_uncounted(&mut self, index: u32, bytes: u64) {
        let Some(link) = self.assumed_mut(index) else { return };
        link.traffic().usage.note_uncounted(bytes);
        let (old, new) = link.recount();
        self.held.replace(old, new);
    }

    /// Granted bytes have arrived over a link. Returns whether its window has not heard of any
    /// such for a while.
    #[inline]
    pub(crate) fn note_landed(&mut self, index: u32, bytes: u64, window: u64) -> bool {
        let Some(link) =
            assumed(self.table.get_mut(index), "what lands is of a link that there is")
        else {
            return false;
        };
        let traffic = link.traffic();
        traffic.update.bytes += bytes;
        traffic.usage.note_arrived(bytes, window);
        link.note_returned(bytes);
        let (old, new) = link.recount();
        self.held.replace(old, new);
        !core::mem::replace(&mut link.is_fresh, true)
    }

    /// Takes back from the window what is granted over a link and not used. Returns how much
    /// more that is.
    pub(crate) fn take_unused(&mut self, cx: &Context, index: u32) -> u64 {
        let Some(link) = assumed(self.table.get_mut(index), "only links that are known are judged")
        else {
            return 0;
        };
        let (measure, granted) = (link.measure(cx), link.granted);
        let more = link.traffic().usage.judge(cx.now, granted, &measure);
        let (old, new) = link.recount();
        self.held.replace(old, new);
        more
    }

    /// The same where nothing came in time.
    pub(crate) fn take_unused_of_silent(&mut self, cx: &Context, index: u32) -> u64 {
        let Some(link) = assumed(self.table.get_mut(index), "only links that are known are judged")
        else {
            return 0;
        };
        let (measure, granted, strikes) = (link.measure(cx), link.granted, link.strikes);
        let usage = &mut link.traffic().usage;
        // Of who sent before it may have been this machine that paused: it is asked once.
        if usage.standing != SenderUsage::New && strikes <= 1 {
            return 0;
        }
        let more = usage.handle_silence(cx.now, granted, &measure);
        let (old, new) = link.recount();
        self.held.replace(old, new);
        more
    }

    /// A link has this weight against others from now on.
    pub(crate) fn set_weight(&mut self, index: u32, weight: u16) {
        let Some(link) = assumed(self.table.get_mut(index), "weights are of links that are known")
        else {
            return;
        };
        if link.weight != weight {
            link.weight = weight;
            let (old, new) = link.recount();
            self.held.replace(old, new);
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Link> {
        self.table.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.table.get_mut(index)
    }

    /// One that is known to be there: a link stays while a connection or a grant uses it.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed(&self, index: u32) -> Option<&Link> {
        assumed(self.table.get(index), "a link stays while a connection or a grant uses it")
    }

    /// The same, to change it.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed_mut(&mut self, index: u32) -> Option<&mut Link> {
        assumed(self.table.get_mut(index), "a link stays while a connection or a grant uses it")
    }

    #[cfg(feature = "model")]
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.table.indices()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.table.has_room()
    }

    /// The links of one path.
    pub(crate) fn on_path(&self, path: u8) -> Vec<u32> {
        let on_path = |index: &u32| self.table.get(*index).is_some_and(|link| link.path == path);
        self.table.indices().filter(on_path).collect()
    }
}
