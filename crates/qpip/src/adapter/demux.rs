//! [`Demux`]: which queue pair a packet is for.
//!
//! Strangers choose addresses and ports, so they are hashed with a secret.
//!
//! Connections before and after they have a queue pair: listeners, openings that
//! are not proved yet, and TIME-WAIT. Each table is bounded, and a flood of
//! strangers fills these and nothing else.

use alloc::collections::VecDeque;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use landfall_placement::{Instant, Random};
use landfall_tables::{HashIndex, IndexedHeap, Table};

use super::links::Origin;
use crate::tcp::{HalfOpen, Segment, TimeWait};
use crate::wire::Mac;
use crate::work::{ListenerId, QueuePairId};

/// The two ends of a connection: ours, and theirs.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// Two ends in few words, for the hash.
struct Key(Ends);

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self((local, remote)) = self;
        match (local.ip(), remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
            }
            (local, remote) => {
                for address in [local, remote] {
                    let bits = match address {
                        IpAddr::V4(address) => u128::from(address.to_bits()),
                        IpAddr::V6(address) => address.to_bits(),
                    };
                    state.write_u64((bits >> 64) as u64);
                    state.write_u64(bits as u64);
                }
            }
        }
        state.write_u32(u32::from(local.port()) << 16 | u32::from(remote.port()));
    }
}

/// An index by the two ends of connections.
#[derive(Debug)]
pub(super) struct ByEnds(HashIndex);

impl ByEnds {
    pub(super) fn new(random: &mut Random) -> Self {
        Self(HashIndex::new((random.next_u64(), random.next_u64())))
    }

    /// The entry of these ends; `is_meant` says of one whether it is.
    #[inline]
    pub(super) fn find(&self, ends: Ends, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.0.find(&Key(ends), is_meant)
    }

    /// Enters what is not entered.
    pub(super) fn insert(&mut self, ends: Ends, index: u32) {
        self.0.insert(&Key(ends), index);
    }

    pub(super) fn remove(&mut self, ends: Ends, index: u32) {
        self.0.remove(&Key(ends), index);
    }
}

/// Queue pairs by what they are connected or bound to.
#[derive(Debug)]
pub(super) struct Demux {
    /// Connections of TCP.
    pub(super) connections: ByEnds,
    /// Bound ports of UDP: the other end is nobody.
    pub(super) bound: ByEnds,
}

impl Demux {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { connections: ByEnds::new(random), bound: ByEnds::new(random) }
    }
}

/// A bound port has no other end.
pub(super) const fn bound_ends(local: SocketAddr) -> Ends {
    (local, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
}

/// Any address of the same version.
pub(super) const fn any_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Address and port alone: flow labels and scopes are no part of who somebody is.
pub(super) const fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// A port that is listened on, and the idle queue pairs that wait there.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) local: SocketAddr,
    pub(super) offers: VecDeque<QueuePairId>,
    /// Connections that are proved and found nobody who waited; some may be
    /// gone by now.
    pub(super) proved: VecDeque<u32>,
}

/// A connection that was asked for, and who asked.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) half: HalfOpen,
    pub(super) listener: ListenerId,
    /// The link, by its place among all, and the station that asked: it is
    /// answered without looking for a neighbour, so that strangers do not fill
    /// that table.
    pub(super) link: usize,
    pub(super) station: Mac,
    /// What proved it, while nobody waits to be mated with it.
    pub(super) proof: Option<Segment>,
}

impl Opening {
    fn ends(&self) -> Ends {
        (self.half.local, self.half.remote)
    }

    /// Where its answers go.
    pub(super) fn origin(&self) -> Origin {
        Origin { link: self.link, station: self.station, ends: self.ends() }
    }
}

/// Connections that were asked for and are not proved.
#[derive(Debug)]
pub(super) struct Openings {
    table: Table<Opening>,
    by_ends: ByEnds,
    timers: IndexedHeap<Instant>,
}

impl Openings {
    pub(super) fn new(most: usize, random: &mut Random) -> Self {
        Self { table: Table::new(most), by_ends: ByEnds::new(random), timers: IndexedHeap::new() }
    }

    pub(super) fn find(&self, ends: Ends) -> Option<u32> {
        let is_meant = |index| self.table.get(index).is_some_and(|known| known.ends() == ends);
        self.by_ends.find(ends, is_meant)
    }

    pub(super) fn get(&self, index: u32) -> Option<&Opening> {
        self.table.get(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Opening> {
        self.table.get_mut(index)
    }

    /// Is there room for one more, or does a stranger have to be answered without?
    pub(super) fn has_room(&self) -> bool {
        self.table.has_room()
    }

    /// Enters one that is proved; says whether one that is not had to make room. Nobody
    /// who is proved makes room for anybody.
    pub(super) fn insert_proved(&mut self, opening: Opening) -> (Option<u32>, bool) {
        let is_full = !self.table.has_room();
        if is_full {
            let is_unproved =
                |index: &u32| self.table.get(*index).is_some_and(|known| known.proof.is_none());
            let stranger = self.table.indices().find(is_unproved);
            if let Some(stranger) = stranger {
                self.remove(stranger);
            }
        }
        let index = self.insert(opening);
        (index, is_full && index.is_some())
    }

    /// Enters one, where there is room.
    pub(super) fn insert(&mut self, opening: Opening) -> Option<u32> {
        let (ends, deadline) = (opening.ends(), opening.half.deadline());
        let (index, _) = self.table.insert(opening)?;
        self.by_ends.insert(ends, index);
        self.timers.set(index, deadline);
        Some(index)
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Opening> {
        let opening = self.table.remove(index)?;
        self.by_ends.remove(opening.ends(), index);
        self.timers.remove(index);
        Some(opening)
    }

    /// Forgets all of a listener.
    pub(super) fn forget(&mut self, listener: ListenerId) {
        let of_it = |index: &u32| {
            self.table.get(*index).is_some_and(|opening| opening.listener == listener)
        };
        let all: alloc::vec::Vec<u32> = self.table.indices().filter(of_it).collect();
        for index in all {
            self.remove(index);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| at)
    }

    /// The next one whose answer was not answered in time.
    pub(super) fn due(&mut self, now: Instant) -> Option<u32> {
        self.timers.pop_up_to(now).map(|(_, index)| index)
    }

    pub(super) fn set_timer(&mut self, index: u32) {
        if let Some(opening) = self.table.get(index) {
            self.timers.set(index, opening.half.deadline());
        }
    }
}

/// Connections that both sides have closed, for as long as late segments of
/// them may come.
#[derive(Debug)]
pub(super) struct TimeWaits {
    table: Table<TimeWait>,
    by_ends: ByEnds,
    timers: IndexedHeap<Instant>,
}

impl TimeWaits {
    pub(super) fn new(most: usize, random: &mut Random) -> Self {
        Self { table: Table::new(most), by_ends: ByEnds::new(random), timers: IndexedHeap::new() }
    }

    pub(super) fn find(&self, ends: Ends) -> Option<u32> {
        let is_meant =
            |index| self.table.get(index).is_some_and(|known| (known.local, known.remote) == ends);
        self.by_ends.find(ends, is_meant)
    }

    pub(super) fn get(&self, index: u32) -> Option<&TimeWait> {
        self.table.get(index)
    }

    /// Enters one; at the bound the one that has waited longest makes room.
    pub(super) fn insert(&mut self, rest: TimeWait) {
        if !self.table.has_room()
            && let Some((_, oldest)) = self.timers.first()
        {
            self.remove(oldest);
        }
        let (ends, until) = ((rest.local, rest.remote), rest.until);
        if let Some((index, _)) = self.table.insert(rest) {
            self.by_ends.insert(ends, index);
            self.timers.set(index, until);
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Some(rest) = self.table.remove(index) {
            self.by_ends.remove((rest.local, rest.remote), index);
            self.timers.remove(index);
        }
    }

    /// Late segments came: the time starts again.
    pub(super) fn restart(&mut self, index: u32, until: Instant) {
        if let Some(rest) = self.table.get_mut(index) {
            rest.until = until;
            self.timers.set(index, until);
        }
    }

    /// Something that is no end was answered.
    pub(super) fn note_answer(&mut self, index: u32, now: Instant) {
        if let Some(rest) = self.table.get_mut(index) {
            rest.answered_at = Some(now);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| at)
    }

    /// Forgets those whose time is up.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, index)) = self.timers.pop_up_to(now) {
            self.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_in_both_versions() {
        let mut index = ByEnds::new(&mut Random::from_number(3));
        let ends = |n: u16| -> Ends {
            let text = if n.is_multiple_of(2) { "10.0.0.1" } else { "fe80::1" };
            let address: IpAddr = text.parse().unwrap();
            (SocketAddr::new(address, 80), SocketAddr::new(address, n))
        };
        for n in 0..500 {
            index.insert(ends(n), u32::from(n));
        }
        for n in 0..500 {
            let is_meant = |found: u32| ends(found as u16) == ends(n);
            assert_eq!(index.find(ends(n), is_meant), Some(u32::from(n)));
            index.remove(ends(n), u32::from(n));
            assert_eq!(index.find(ends(n), is_meant), None);
        }
    }
}
