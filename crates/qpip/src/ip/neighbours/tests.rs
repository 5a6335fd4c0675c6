use core::net::{IpAddr, Ipv4Addr};

use landfall_placement::{Duration, Instant};
use proptest::prelude::*;

use super::{Config, Found, NeighbourMessage, Neighbours, Question};
use crate::wire::Mac;

const A: Mac = [2, 0, 0, 0, 0, 0xa];
const B: Mac = [2, 0, 0, 0, 0, 0xb];
const UNASKED: NeighbourMessage =
    NeighbourMessage::Answer { is_solicited: false, is_override: true };
const TIMID: NeighbourMessage = NeighbourMessage::Answer { is_solicited: true, is_override: false };

fn host(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn everybody(n: u8) -> Option<Question> {
    Some(Question { address: host(n), station: None })
}

fn small(capacity: usize) -> Neighbours {
    Neighbours::new(Config { capacity, ..Config::default() })
}

#[test]
fn a_station_is_asked_for_three_times_and_given_up() {
    let mut neighbours = small(4);
    assert_eq!(neighbours.lookup(at(0), host(1)), Found::Waiting);
    for second in 0..3 {
        assert_eq!(neighbours.poll_timeout(), Some(at(second * 1000)));
        assert_eq!(neighbours.poll_solicit(at(second * 1000)), everybody(1));
        assert_eq!(neighbours.poll_solicit(at(second * 1000 + 999)), None, "not too often");
        assert_eq!(neighbours.lookup(at(second * 1000 + 999), host(1)), Found::Waiting);
    }
    let changes = neighbours.changes();
    assert_eq!(neighbours.poll_solicit(at(3000)), None);
    assert!(neighbours.changes() > changes, "who waits is told");
    assert_eq!(neighbours.lookup(at(3000), host(1)), Found::Unreachable);
    assert_eq!(neighbours.lookup(at(5999), host(1)), Found::Unreachable);
    assert_eq!(neighbours.lookup(at(6000), host(1)), Found::Waiting, "asked anew");
    assert_eq!(neighbours.poll_solicit(at(6000)), everybody(1));
}

#[test]
fn an_answer_counts_where_it_was_asked_for() {
    let mut neighbours = small(4);
    assert!(
        !neighbours.learn(at(0), host(1), Some(A), NeighbourMessage::ARP_REPLY),
        "nobody asked"
    );
    assert!(neighbours.is_empty());
    neighbours.lookup(at(0), host(1));
    let changes = neighbours.changes();
    assert!(!neighbours.learn(at(0), host(1), None, TIMID), "says nothing");
    assert!(neighbours.learn(at(1), host(1), Some(A), TIMID));
    assert_eq!(neighbours.changes(), changes + 1);
    assert_eq!(neighbours.lookup(at(1), host(1)), Found::Station(A));
    assert_eq!(neighbours.poll_solicit(at(10_000)), None, "no more questions");
}

#[test]
fn who_asks_for_us_is_known() {
    let mut neighbours = small(4);
    assert!(neighbours.learn(at(0), host(1), Some(A), NeighbourMessage::Question));
    assert_eq!(neighbours.lookup(at(0), host(1)), Found::Station(A));
    assert!(!neighbours.learn(at(1), host(1), Some(A), NeighbourMessage::Question), "nothing new");
    assert!(neighbours.learn(at(2), host(1), Some(B), NeighbourMessage::Question), "it moved");
    assert_eq!(neighbours.lookup(at(2), host(1)), Found::Station(B));
}

#[test]
fn a_stale_entry_is_used_and_asked_after_a_while() {
    let mut neighbours = small(4);
    neighbours.lookup(at(0), host(1));
    neighbours.learn(at(0), host(1), Some(A), NeighbourMessage::ARP_REPLY);
    assert_eq!(neighbours.lookup(at(29_999), host(1)), Found::Station(A));
    assert_eq!(neighbours.poll_solicit(at(30_000)), None);
    assert_eq!(neighbours.poll_timeout(), None, "stale without use costs nothing");
    assert_eq!(neighbours.lookup(at(40_000), host(1)), Found::Station(A));
    assert_eq!(neighbours.poll_timeout(), Some(at(45_000)));
    let unicast = Some(Question { address: host(1), station: Some(A) });
    for second in 45..48 {
        assert_eq!(neighbours.poll_solicit(at(second * 1000)), unicast);
        assert_eq!(neighbours.lookup(at(second * 1000), host(1)), Found::Station(A));
    }
    assert_eq!(neighbours.poll_solicit(at(48_000)), None);
    assert_eq!(neighbours.lookup(at(48_000), host(1)), Found::Waiting, "gone: asks everybody");
    assert_eq!(neighbours.poll_solicit(at(48_000)), everybody(1));
}

#[test]
fn a_station_that_a_transport_doubts_is_asked_at_once() {
    let mut neighbours = small(4);
    neighbours.lookup(at(0), host(1));
    neighbours.learn(at(0), host(1), Some(A), NeighbourMessage::ARP_REPLY);
    neighbours.doubt(at(2000), host(1));
    let unicast = Some(Question { address: host(1), station: Some(A) });
    assert_eq!(neighbours.poll_solicit(at(2000)), unicast);
    neighbours.doubt(at(2500), host(1));
    assert_eq!(neighbours.poll_solicit(at(2500)), None, "it is being asked");
    assert_eq!(neighbours.lookup(at(2500), host(1)), Found::Station(A), "and used meanwhile");
    neighbours.learn(at(2600), host(1), Some(A), NeighbourMessage::ARP_REPLY);
    assert_eq!(neighbours.poll_solicit(at(10_000)), None, "it has answered");
    // It moved: when it has not answered, everybody is asked.
    neighbours.doubt(at(10_000), host(1));
    for second in 10..13 {
        assert_eq!(neighbours.poll_solicit(at(second * 1000)), unicast);
    }
    assert_eq!(neighbours.poll_solicit(at(13_000)), None);
    assert_eq!(neighbours.lookup(at(13_000), host(1)), Found::Waiting);
    assert_eq!(neighbours.poll_solicit(at(13_000)), everybody(1));
    neighbours.doubt(at(13_100), host(9));
    assert_eq!(neighbours.len(), 1, "who is not known is not asked for");
}

#[test]
fn static_entries_are_neither_learnt_nor_evicted() {
    let mut neighbours = small(2);
    assert!(neighbours.add_static(host(1), A));
    assert!(!neighbours.learn(at(0), host(1), Some(B), NeighbourMessage::ARP_REPLY));
    assert!(!neighbours.learn(at(0), host(1), Some(B), NeighbourMessage::Question));
    neighbours.doubt(at(0), host(1));
    assert_eq!(neighbours.lookup(at(1_000_000), host(1)), Found::Station(A));
    assert!(neighbours.add_static(host(2), B));
    assert_eq!(neighbours.lookup(at(0), host(3)), Found::Unreachable, "no room to ask");
    assert!(!neighbours.add_static(host(3), B));
    assert!(!neighbours.learn(at(0), host(3), Some(B), NeighbourMessage::Question));
    assert_eq!(neighbours.len(), 2);
}

#[test]
fn nobody_and_groups_have_no_station() {
    let mut neighbours = small(4);
    for address in ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1"] {
        let address = address.parse().unwrap();
        assert!(
            !neighbours.learn(at(0), address, Some(A), NeighbourMessage::Question),
            "{address}"
        );
        assert_eq!(neighbours.lookup(at(0), address), Found::Unreachable, "{address}");
    }
    assert!(neighbours.is_empty());
}

/// RFC 4861, section 7.2.5: without the override flag a second station does not
/// take over, but the first is asked whether it is still there.
#[test]
fn a_second_station_takes_over_only_if_it_says_so() {
    let mut neighbours = small(4);
    neighbours.lookup(at(0), host(1));
    neighbours.learn(at(0), host(1), Some(A), NeighbourMessage::ARP_REPLY);
    assert!(!neighbours.learn(at(1), host(1), Some(B), TIMID));
    assert_eq!(neighbours.lookup(at(1), host(1)), Found::Station(A));
    let unicast = Some(Question { address: host(1), station: Some(A) });
    assert_eq!(neighbours.poll_solicit(at(5001)), unicast, "it was made stale");
    assert!(neighbours.learn(at(5002), host(1), Some(B), UNASKED));
    assert_eq!(neighbours.lookup(at(5002), host(1)), Found::Station(B));
}

#[test]
fn strangers_push_out_each_other_and_not_who_is_there() {
    let mut neighbours = small(3);
    for n in 1..=2 {
        neighbours.lookup(at(0), host(n));
        neighbours.learn(at(0), host(n), Some(A), NeighbourMessage::ARP_REPLY);
    }
    for n in 10..200 {
        neighbours.learn(at(u64::from(n)), host(n), Some(B), NeighbourMessage::Question);
        neighbours.lookup(at(u64::from(n)), host(201));
    }
    assert_eq!((neighbours.len(), neighbours.lookup(at(300), host(1))), (3, Found::Station(A)));
    assert_eq!(neighbours.lookup(at(300), host(2)), Found::Station(A));
    assert!(neighbours.evicted() > 100);
}

#[test]
fn without_attempts_or_room_nobody_is_reached() {
    let mut none = Neighbours::new(Config { attempts: 0, ..Config::default() });
    assert_eq!(none.lookup(at(0), host(1)), Found::Unreachable);
    assert_eq!(small(0).lookup(at(0), host(1)), Found::Unreachable);
}

#[derive(Clone, Debug)]
enum Step {
    Lookup(u8),
    Learn(u8, Option<u8>, NeighbourMessage),
    Doubt(u8),
    Solicit,
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Step> {
    let word = prop_oneof![
        Just(NeighbourMessage::Question),
        any::<(bool, bool)>().prop_map(|(is_solicited, is_override)| NeighbourMessage::Answer {
            is_solicited,
            is_override
        })
    ];
    prop_oneof![
        (0..12u8).prop_map(Step::Lookup),
        (0..12u8, any::<Option<u8>>(), word).prop_map(|(n, mac, word)| Step::Learn(n, mac, word)),
        (0..12u8).prop_map(Step::Doubt),
        Just(Step::Solicit),
        any::<u16>().prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens: bounded, no question oftener than the pause allows, each
    /// station is one that somebody named, and polling comes to an end.
    #[test]
    fn any_sequence_keeps_the_bounds(
        steps in prop::collection::vec(steps(), 0..200),
        capacity in prop::sample::select(std::vec![2usize, 5, 12]),
    ) {
        let mut neighbours = small(capacity);
        neighbours.add_static(host(0), A);
        let mut now = at(0);
        let mut asked = [None::<Instant>; 12];
        for step in steps {
            match step {
                Step::Lookup(n) => {
                    if let Found::Station(mac) = neighbours.lookup(now, host(n)) {
                        prop_assert!(mac == A && n == 0 || mac[0] == n && n > 0);
                    }
                }
                Step::Learn(n, mac, word) => {
                    let mac = mac.map(|mac| [n, mac, 0, 0, 0, 0]);
                    neighbours.learn(now, host(n), mac, word);
                }
                Step::Doubt(n) => neighbours.doubt(now, host(n)),
                Step::Solicit => {
                    for round in 0.. {
                        let Some(question) = neighbours.poll_solicit(now) else { break };
                        prop_assert!(round < capacity, "each address at most once");
                        let IpAddr::V4(address) = question.address else { panic!() };
                        let before = asked[usize::from(address.octets()[3])].replace(now);
                        // Who was pushed out is forgotten, and when it was asked for.
                        let pause = before.map(|before| now.since(before));
                        prop_assert!(
                            capacity < 12 || pause.is_none_or(|p| p >= Duration::from_secs(1))
                        );
                    }
                    prop_assert!(neighbours.poll_timeout().is_none_or(|due| due > now));
                }
                Step::Wait(millis) => now += Duration::from_millis(millis.into()),
            }
            prop_assert!(neighbours.len() <= capacity);
            prop_assert_eq!(neighbours.lookup(now, host(0)), Found::Station(A));
        }
        prop_assert!(asked[0].is_none(), "a static entry is never asked for");
    }
}
