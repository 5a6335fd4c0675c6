//! What a link carries, and what it has room for: the length of STUs, and how much may be
//! granted.

use alloc::vec::Vec;

use landfall_congestion::Config as Congestion;
use landfall_congestion::Window;
use landfall_placement::{ConfigError, Duration, Peer};

use super::Network;
use crate::config::Policy;
use crate::context::Context;
use crate::error::Error;
use crate::ids::ConnectionId;
use crate::link::Link;
use crate::preference::{MOST_WEIGHT, Priority};
use crate::usage::{Claim, Rank, Usage};

/// A window is granted in at least this many parts, so that it flows.
pub(crate) const PARTS: u64 = 8;

/// And this many where others share the network: bursts are what queues drop.
const PARTS_ON_SHARED: u64 = 64;
/// But what a host sends in a few calls, and its link carries in a moment, is no burst: to
/// grant less costs a tenth of the speed within a machine, in small batches and many grants.
const FEW_CALLS: u64 = 256 << 10;
const MOMENT: Duration = Duration::from_millis(1);
/// Of a window that losses keep small an eighth is granted at once, up to this many packets (RFC
/// 6928: a path of which nothing is known takes them), where the link carries that in a moment:
/// packet by packet, each would cost both hosts a call. Larger parts leave as much of the window
/// empty while one packet is missing: with halves a link of 100 µs kept 0.6 of it.
const SMALL_BURST: u64 = 10;

/// The smallest STU of any path that can be used.
const SMALLEST_STU: u16 = 16;

impl Network {
    pub(crate) fn join_link(&mut self, cx: &mut Context, path: u8, peer: Peer) -> Option<u32> {
        let is_up = self.paths[usize::from(path)].limits.is_some();
        let window = Window::new(&cx.config.usual_congestion());
        self.links.join(path, peer, is_up, window)
    }

    pub(crate) fn leave_link(&mut self, link: u32) {
        if self.links.leave(link) {
            self.links.timers.remove(link);
            self.links.size_timers.remove(link);
            for path in &mut self.paths {
                path.last_link = path.last_link.filter(|last| *last != link);
            }
        }
        if self.links.get(link).is_some_and(|left| left.weight > 1) {
            self.weigh_link(link);
        }
    }

    /// Sets the priority of a connection: of Transfers in both directions, and reads, that begin
    /// from now on.
    pub(crate) fn set_priority(
        &mut self,
        id: ConnectionId,
        priority: Priority,
    ) -> Result<(), Error> {
        self.connection(id)?;
        if let Some(known) = self.connections.get_mut(id.index) {
            known.priority = priority;
        }
        Ok(())
    }

    /// Sets how much a connection may have of the receiver's window beside others of the same
    /// priority, and how many Blocks its Transfers are granted in their turn: 1, as all others
    /// have, to 1,000.
    pub(crate) fn set_weight(&mut self, id: ConnectionId, weight: u16) -> Result<(), Error> {
        self.connection(id)?;
        ConfigError::check("weight", weight, 1..=MOST_WEIGHT)?;
        if let Some(known) = self.connections.get_mut(id.index) {
            known.weight = weight;
        }
        let links: Vec<u32> = self.connection(id)?.links().collect();
        for link in links {
            self.weigh_link(link);
        }
        Ok(())
    }

    /// A link has the largest weight of the connections that use it.
    pub(crate) fn weigh_link(&mut self, link: u32) {
        let users = self.connections.table.indices();
        let weight_there = |other| {
            let other = self.connections.get(other)?;
            other.links().any(|its| its == link).then_some(other.weight)
        };
        let weight = users.filter_map(weight_there).max().unwrap_or(1);
        self.links.set_weight(link, weight);
    }

    /// What fills a packet on a link counts in its window, also where that is more than the
    /// configuration counts with.
    fn unit_on(&self, cx: &Context, link: u32, usual: u32) -> u32 {
        let stu_on = |link: &Link| {
            let path = &self.paths[usize::from(link.path)];
            path.stu_of(link.size.or_sure(path.limits.as_ref()?.sure), cx.config.tail)
        };
        self.links.get(link).and_then(stu_on).map_or(usual, |stu| usual.max(stu.into()))
    }

    /// How the window of a link moves.
    pub(crate) fn congestion_on(&self, cx: &Context, link: u32) -> Congestion {
        let usual = cx.config.usual_congestion();
        Congestion { unit: self.unit_on(cx, link, usual.unit), ..usual }
    }

    /// The STU for a connection on one of its links: what fills a packet there.
    pub(crate) fn stu_on(&self, connection: u32, link: u32) -> Option<u16> {
        let known = self.connections.get(connection)?;
        let link = self.links.get(link)?;
        let path = &self.paths[usize::from(link.path)];
        let unit = link.size.or_sure(path.limits.as_ref()?.sure);
        Some(path.stu_of(unit, known.tail)?.min(known.max_stu))
    }

    /// The same, whatever becomes of the link.
    pub(crate) fn sure_stu_on(&self, connection: u32, link: u32) -> Option<u16> {
        let known = self.connections.get(connection)?;
        let path = usize::from(self.links.get(link)?.path);
        Some(self.paths[path].sure_stu(known.tail)?.min(known.max_stu))
    }

    /// The smallest STU over the links of a connection, as far as is sure: by it Blocks are
    /// sized, so that on each link they have no more STUs than may be, whatever becomes of it.
    /// While none is up nothing is known of them, and the smallest STU is sure to fit.
    pub(crate) fn smallest_stu(&self, connection: u32) -> u16 {
        let Some(known) = self.connections.get(connection) else { return SMALLEST_STU };
        let stu_on = |link| self.sure_stu_on(connection, link);
        let on_data_links = known.data_links().filter_map(stu_on).min();
        let on_any = || known.links().filter_map(stu_on).min();
        on_data_links.or_else(on_any).unwrap_or(known.max_stu.min(SMALLEST_STU))
    }

    /// How many bytes may be granted over a link now.
    pub(crate) fn room_on(&self, cx: &Context, link: u32) -> u64 {
        let Some(known) = self.links.assumed(link) else { return 0 };
        if !self.can_send_over(cx, link) || known.unused() > 0 {
            return 0;
        }
        match &cx.config.congestion {
            Some(config) => known.window.room(config, known.granted),
            None => cx.config.window.saturating_sub(known.granted),
        }
    }

    /// How many bytes may be granted now over all links.
    pub(crate) fn room_for_all(&self, cx: &Context) -> u64 {
        cx.config.window.saturating_sub(self.links.held.bytes)
    }

    /// How many bytes a link may have outstanding beside others. Where order rules and not equal
    /// parts, it is what it has shown to use.
    pub(crate) fn limit_of(&self, cx: &Context, link: &Link, stu: u64, priority: Priority) -> u64 {
        let rank = match (priority, cx.config.policy) {
            (Priority::Low, _) => Rank::Last,
            (Priority::Normal, Policy::Fair) => Rank::Equal,
            _ => Rank::First,
        };
        let (all, window) = (&self.links.held, cx.config.window);
        let limit =
            |usage: &Usage| usage.limit(all, &Claim { window, stu, weight: link.weight, rank });
        link.usage().map_or_else(|| limit(&Usage::default()), limit)
    }

    /// What is granted over a link at a time, at least.
    pub(crate) fn least_part(&self, cx: &Context, link: u32) -> u64 {
        let (Some(congestion), Some(known)) = (&cx.config.congestion, self.links.get(link)) else {
            return cx.config.window / PARTS;
        };
        let unit = self.unit_on(cx, link, congestion.unit);
        let window = known.window.bytes();
        let in_a_moment = known.window.rtt().smoothed().map_or(0, |round| {
            window.saturating_mul(MOMENT.as_nanos() as u64) / round.max(MOMENT).as_nanos() as u64
        });
        let call = FEW_CALLS.min(window / PARTS).min(in_a_moment);
        let burst = (window / 8).min(SMALL_BURST * u64::from(unit)).min(in_a_moment);
        call.max(burst).max(window / PARTS_ON_SHARED)
    }
}
