//! Which groups an interface listens to, and what is to be said of that: the host's side of
//! IGMP (RFC 2236, 3376) and MLD (RFC 2710, 3810).
//!
//! Members listen to all senders. A question about some senders is answered by saying so of
//! the group. Where a router asks that knows no lists, what it understands is said until it has
//! not asked for long.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_placement::{Duration, Instant, Random};

use crate::wire::group::{Generation, Query, Record, RecordKind};

/// How often a change is said.
const ROBUSTNESS: u8 = 2;
/// Within this time it is said again (RFC 3376, 8.11; RFC 3810, 9.11).
const AGAIN_WITHIN: Duration = Duration::from_secs(1);
/// For how long a router of before is remembered (RFC 3376, 8.12).
const OLDER_FOR: Duration = Duration::from_secs(260);
/// How many groups one report tells of.
const RECORDS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Member {
    group: IpAddr,
    users: u32,
    /// What is said next, how often still, and when.
    kind: RecordKind,
    left: u8,
    due: Option<Instant>,
}

/// Who asks, of one version of IP.
#[derive(Clone, Copy, Debug)]
struct Querier {
    generation: Generation,
    older_until: Instant,
}

impl Querier {
    const NOBODY: Self = Self { generation: Generation::Third, older_until: Instant::ZERO };

    const fn now_is(&mut self, now: Instant) -> Generation {
        if now.as_nanos() >= self.older_until.as_nanos() {
            self.generation = Generation::Third;
        }
        self.generation
    }
}

/// What is to be said of some groups of one version of IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// One group where routers know no lists.
    pub records: Vec<Record>,
    /// What routers understand.
    pub generation: Generation,
}

/// The groups of an interface.
#[derive(Debug)]
pub struct Groups {
    members: Vec<Member>,
    most: usize,
    v4: Querier,
    v6: Querier,
}

/// Is a group one that everybody is in, so that nobody says so (RFC 3376, 6; RFC 3810, 6)?
fn is_everybody(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(group) => {
            group == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) || group.octets()[1] & 0xf < 2
        }
    }
}

impl Groups {
    /// An interface in no group, and in this many at most.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { members: Vec::new(), most, v4: Querier::NOBODY, v6: Querier::NOBODY }
    }

    /// Is there no group?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Is the group listened to?
    #[must_use]
    pub fn has(&self, group: IpAddr) -> bool {
        self.members.iter().any(|member| member.group == group && member.users > 0)
    }

    /// One more listens. Returns whether there is room.
    pub fn join(&mut self, now: Instant, group: IpAddr) -> bool {
        let known = self.members.iter().position(|member| member.group == group);
        let at = known.unwrap_or(self.members.len());
        if known.is_none() {
            if self.members.len() >= self.most {
                return false;
            }
            let (kind, left, due) = (RecordKind::Joins, 0, None);
            self.members.push(Member { group, users: 0, kind, left, due });
        }
        let member = &mut self.members[at];
        member.users += 1;
        if member.users == 1 && !is_everybody(group) {
            (member.kind, member.left, member.due) = (RecordKind::Joins, ROBUSTNESS, Some(now));
        }
        true
    }

    /// One of those who listened does so no longer.
    pub fn leave(&mut self, now: Instant, group: IpAddr) {
        // Nobody leaves a group that it is not in.
        let Some(at) = self.members.iter().position(|member| member.group == group) else { return };
        let member = &mut self.members[at];
        member.users = member.users.saturating_sub(1);
        if member.users > 0 {
            return;
        }
        if is_everybody(group) {
            self.members.remove(at);
        } else {
            (member.kind, member.left, member.due) = (RecordKind::Leaves, ROBUSTNESS, Some(now));
        }
    }

    /// The link came up: what was said before, nobody may have heard.
    pub fn restart(&mut self, now: Instant) {
        self.members.retain(|member| member.users > 0);
        (self.v4, self.v6) = (Querier::NOBODY, Querier::NOBODY);
        for member in self.members.iter_mut().filter(|member| !is_everybody(member.group)) {
            (member.kind, member.left, member.due) = (RecordKind::Joins, ROBUSTNESS, Some(now));
        }
    }

    /// A router asks. The answers come at random times within what it allows.
    pub fn handle_query(&mut self, now: Instant, random: &mut Random, is_v4: bool, query: &Query) {
        let querier = if is_v4 { &mut self.v4 } else { &mut self.v6 };
        if query.generation < Generation::Third {
            let known = querier.now_is(now);
            querier.generation = known.min(query.generation);
            querier.older_until = now + OLDER_FOR;
        }
        // One moment for all of a general question: they leave in few reports.
        let due = now + within(random, query.within);
        for member in &mut self.members {
            let is_meant = member.group.is_ipv4() == is_v4
                && query.group.is_none_or(|group| group == member.group)
                && member.users > 0
                && !is_everybody(member.group);
            // A change that is still to be said says it, too.
            if is_meant && member.due.is_none_or(|known| known > due) {
                if member.due.is_none() {
                    (member.kind, member.left) = (RecordKind::Listens, 1);
                }
                member.due = Some(due);
            }
        }
    }

    /// Another host has answered for a group: routers of before need no second answer.
    pub fn handle_report(&mut self, now: Instant, group: IpAddr) {
        let querier = if group.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        if querier.now_is(now) < Generation::Third {
            let answers =
                |member: &&mut Member| member.group == group && member.kind == RecordKind::Listens;
            if let Some(member) = self.members.iter_mut().find(answers) {
                (member.left, member.due) = (0, None);
            }
        }
    }

    /// The next report to send.
    pub fn poll_report(&mut self, now: Instant, random: &mut Random) -> Option<Report> {
        for is_v4 in [true, false] {
            let querier = if is_v4 { &mut self.v4 } else { &mut self.v6 };
            let generation = querier.now_is(now);
            let most = if generation == Generation::Third { RECORDS } else { 1 };
            let mut records = Vec::new();
            for member in &mut self.members {
                let is_due = member.due.is_some_and(|due| due <= now);
                if !is_due || member.group.is_ipv4() != is_v4 || records.len() >= most {
                    continue;
                }
                records.push(Record { group: member.group, kind: member.kind });
                member.left = member.left.saturating_sub(1);
                member.due = (member.left > 0).then(|| now + within(random, AGAIN_WITHIN));
            }
            self.members.retain(|member| member.users > 0 || member.due.is_some());
            if !records.is_empty() {
                return Some(Report { records, generation });
            }
        }
        None
    }

    /// When to call [`Groups::poll_report`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.members.iter().filter_map(|member| member.due).min()
    }
}

/// A random time of at most this.
fn within(random: &mut Random, most: Duration) -> Duration {
    let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random.below(millis.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    const GROUP: &str = "239.1.2.3";

    struct Host {
        groups: Groups,
        random: Random,
        now: Instant,
    }

    impl Host {
        fn new() -> Self {
            let now = Instant::from_millis(1_000);
            Self { groups: Groups::new(4), random: Random::from_number(5), now }
        }

        fn query(&mut self, group: Option<&str>, millis: u64, generation: Generation) {
            let group = group.map(|group| group.parse().unwrap());
            let query = Query { group, within: Duration::from_millis(millis), generation };
            self.groups.handle_query(self.now, &mut self.random, true, &query);
        }

        /// What is said within this time, with its milliseconds.
        fn said(&mut self, millis: u64) -> Vec<(u64, String)> {
            let (start, end) = (self.now, self.now + Duration::from_millis(millis));
            let mut said = Vec::new();
            loop {
                while let Some(report) = self.groups.poll_report(self.now, &mut self.random) {
                    let at = self.now.since(start).as_millis() as u64;
                    for Record { group, kind } in report.records {
                        said.push((at, std::format!("{kind:?} {group} {:?}", report.generation)));
                    }
                }
                match self.groups.poll_timeout() {
                    Some(at) if at <= end => self.now = at.max(self.now),
                    _ => break,
                }
            }
            self.now = end;
            said
        }
    }

    fn group(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_to_join_and_the_last_to_leave_are_told_twice() {
        let mut host = Host::new();
        assert!(host.groups.join(host.now, group(GROUP)) && host.groups.has(group(GROUP)));
        let said = host.said(5_000);
        let want = "Joins 239.1.2.3 Third";
        assert_eq!(
            (said[0].0, said[0].1.as_str(), said[1].1.as_str(), said.len()),
            (0, want, want, 2)
        );
        assert!(said[1].0 <= 1_000, "{said:?}");
        assert!(host.groups.join(host.now, group(GROUP)));
        host.groups.leave(host.now, group(GROUP));
        assert!(host.said(5_000).is_empty(), "one still listens");
        host.groups.leave(host.now, group(GROUP));
        assert!(!host.groups.has(group(GROUP)));
        let said = host.said(5_000);
        assert!(said.len() == 2 && said.iter().all(|(_, said)| said == "Leaves 239.1.2.3 Third"));
        assert!(host.groups.members.is_empty());
        host.groups.leave(host.now, group(GROUP));
        assert!(host.said(5_000).is_empty());
    }

    #[test]
    fn questions_are_answered_in_time_and_only_for_what_is_listened_to() {
        let mut host = Host::new();
        for text in [GROUP, "239.9.9.9", "224.0.0.1", "ff05::7"] {
            assert!(host.groups.join(host.now, group(text)));
        }
        assert!(!host.groups.join(host.now, group("239.0.0.1")), "no room for more");
        host.said(5_000);
        host.query(None, 2_000, Generation::Third);
        let said = host.said(2_000);
        assert_eq!(said.len(), 2, "of this version, and not what everybody is in: {said:?}");
        assert!(said.iter().all(|(at, said)| *at <= 2_000 && said.starts_with("Listens 239.")));
        host.query(Some("239.9.9.9"), 500, Generation::Third);
        host.query(Some("239.7.7.7"), 500, Generation::Third);
        let said = host.said(500);
        assert!(said.len() == 1 && said[0].1 == "Listens 239.9.9.9 Third", "{said:?}");
    }

    #[test]
    fn an_older_router_is_told_what_it_understands_until_it_is_gone() {
        let mut host = Host::new();
        host.query(None, 1_000, Generation::Second);
        host.groups.join(host.now, group(GROUP));
        assert!(host.said(5_000).iter().all(|(_, said)| said == "Joins 239.1.2.3 Second"));
        host.query(None, 10_000, Generation::Second);
        host.groups.handle_report(host.now, group(GROUP));
        assert!(host.said(20_000).is_empty(), "another host has answered");
        host.query(None, 1_000, Generation::First);
        host.query(None, 1_000, Generation::Second);
        assert_eq!(host.said(1_000)[0].1, "Listens 239.1.2.3 First");
        host.now += OLDER_FOR;
        host.query(None, 1_000, Generation::Third);
        host.groups.handle_report(host.now, group(GROUP));
        assert_eq!(host.said(1_000)[0].1, "Listens 239.1.2.3 Third", "nobody is answered for");
    }

    #[test]
    fn a_link_that_comes_up_is_told_all_again() {
        let mut host = Host::new();
        host.groups.join(host.now, group(GROUP));
        host.groups.join(host.now, group("ff05::7"));
        host.said(5_000);
        host.groups.restart(host.now);
        assert_eq!(host.said(5_000).len(), 4);
    }
}
