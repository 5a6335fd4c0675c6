//! Groups over a network that multicasts: a write leaves once, and what a member has lost is
//! sent to that one again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::net::{Net, PATH, cases, config, ethernet, faulty, host_id, noise, sim};
use clan_dsm::wire::{Frame, FrameHeader, FrameKind};
use clan_dsm::{Config, Error, Event, GroupWrite, HostId, Nic, Rights, WindowId, WriteId};
use landfall_placement::{
    Area, Ecn, Engine, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement, RegionId,
    Spans, Ticket, Unit,
};
use landfall_simnet::LinkConfig;
use proptest::prelude::*;

/// The group's address: a switch floods what is for a station that it has never heard.
const GROUP: Peer = Peer::Ethernet([0x03, 0, 0, 0, 0, 7]);

/// What the hosts of a group have.
struct Group {
    net: Net,
    window: WindowId,
    /// The memory of each member: of host 1, 2, …
    memories: Vec<Area>,
}

impl Group {
    /// Host 0 writes to all others, and they hear its address.
    fn new(seed: u64, members: usize, len: u64, config: &Config, wire: LinkConfig) -> Self {
        let mut group = Self::at(seed, members, len, config, wire, GROUP);
        group.heard(members);
        group
    }

    fn at(
        seed: u64,
        members: usize,
        len: u64,
        config: &Config,
        wire: LinkConfig,
        to: Peer,
    ) -> Self {
        let mut net = Net::new(sim(seed), members + 1, config, wire);
        let cookie = net.nic(0).found_group(host_id(0), 0, len).unwrap();
        let window = net.nic(0).map_group(&cookie, &[]).unwrap();
        let mut memories = Vec::new();
        for member in 1..=members {
            net.link(0, member);
            let exposed = net.expose(member, len as usize, Rights::Write);
            net.nic(member).join_group_of(host_id(0), &cookie, exposed.aperture).unwrap();
            net.nic(0).add_member(window, host_id(member)).unwrap();
            memories.push(exposed.area);
        }
        let now = net.now();
        net.nic(0).multicast(now, window, PATH, to, None).unwrap();
        Self { net, window, memories }
    }

    /// Publishes an empty word until this many get it by the group's address.
    fn heard(&mut self, members: usize) {
        for _ in 0..1000 {
            self.net.run_for(Duration::from_millis(20));
            self.publish(&[GroupWrite::Bytes { offset: 0, bytes: &[0; 8] }]);
            if self.net.node(0).engine().multicast_members(self.window) == members {
                return self.delivered();
            }
        }
        panic!("they do not hear it");
    }

    fn publish(
        &mut self,
        writes: &[GroupWrite<'_>],
    ) -> Vec<(HostId, Result<Option<WriteId>, Error>)> {
        let (now, window) = (self.net.now(), self.window);
        let mut told = Vec::new();
        let nic = self.net.nic(0);
        nic.publish(now, window, writes, &mut |host, result| told.push((host, result))).unwrap();
        told
    }

    /// Until all that was published is in place.
    fn delivered(&mut self) {
        for member in 1..=self.memories.len() {
            if self.net.node(0).engine().link_to(host_id(member)).is_some() {
                self.net.flush(0, member);
            }
        }
    }

    fn bytes(&self, member: usize, at: usize, len: usize) -> Vec<u8> {
        self.net.bytes(member, self.memories[member - 1])[at..at + len].to_vec()
    }

    fn word(&self, member: usize, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(member, at, 8).try_into().unwrap())
    }
}

fn is_ok(told: &[(HostId, Result<Option<WriteId>, Error>)]) -> bool {
    told.iter().all(|(_, result)| result.is_ok())
}

#[test]
fn a_write_to_a_group_leaves_once_and_lands_at_every_member() {
    let mut group = Group::new(1, 5, 4096, &config(), ethernet());
    let before = *group.net.node(0).engine().stats();
    for round in 1..=20u64 {
        let long = noise(round, 1000);
        let flag = round.to_le_bytes();
        let told = group.publish(&[
            GroupWrite::Bytes { offset: 8, bytes: &long[..100] },
            GroupWrite::Bytes { offset: 0, bytes: &flag },
        ]);
        assert!(told.len() == 5 && is_ok(&told), "{told:?}");
        group.delivered();
        for member in 1..=5 {
            assert_eq!(group.word(member, 0), round);
            assert_eq!(group.bytes(member, 8, 100), long[..100]);
        }
    }
    let after = group.net.node(0).engine().stats();
    assert_eq!(after.multicasts - before.multicasts, 20, "one frame for each");
    assert_eq!((after.repairs, after.frames - before.frames), (before.repairs, 20));
}

#[test]
fn what_lies_in_memory_is_sent_once_and_each_member_tells_when_it_has_it() {
    let mut group = Group::new(2, 3, 64 << 10, &config(), faulty());
    for round in 0..5u64 {
        let bytes = noise(round, 50_000);
        let from = group.net.lend(0, &bytes);
        let told = group.publish(&[GroupWrite::Memory { offset: 64, from }]);
        let writes: Vec<WriteId> =
            told.iter().map(|(_, result)| result.unwrap().expect("a write")).collect();
        assert_eq!(writes.len(), 3);
        for wanted in writes {
            group
                .net
                .wait_for(0, "the end of a write", |event| match event {
                    Event::Written { write, result } if *write == wanted => Some(*result),
                    _ => None,
                })
                .unwrap();
        }
        for member in 1..=3 {
            assert!(group.bytes(member, 64, 50_000) == bytes, "member {member}");
        }
        group.net.clear();
    }
    assert!(group.net.node(0).engine().stats().repairs > 0, "nothing was lost");
}

#[test]
fn who_does_not_hear_the_address_gets_copies() {
    // Only the first member hears what is for it.
    let to = Peer::Node(group_node(1));
    let mut group = Group::at(3, 3, 4096, &config(), ethernet(), to);
    group.heard(1);
    for round in 1..=10u64 {
        let told = group.publish(&[GroupWrite::Bytes { offset: 0, bytes: &round.to_le_bytes() }]);
        assert!(is_ok(&told), "{told:?}");
        group.delivered();
        assert_eq!([1, 2, 3].map(|member| group.word(member, 0)), [round; 3]);
    }
    assert_eq!(group.net.node(0).engine().multicast_members(group.window), 1);
}

/// The number of a host's node in the simulator.
fn group_node(host: usize) -> u32 {
    let net = Net::new(sim(0), host + 1, &config(), ethernet());
    let Peer::Node(node) = net.peer(host) else { panic!("hosts are nodes") };
    node
}

#[test]
fn a_member_that_is_cut_off_holds_up_nobody_and_goes_on_when_it_is_back() {
    let mut group = Group::new(4, 3, 4096, &config(), ethernet());
    let wire = group.net.wires[2];
    group.net.sim.set_link(wire, false).unwrap();
    let mut last = 0;
    for round in 1..=3000u64 {
        let mut bytes = noise(round, 800);
        bytes[..8].copy_from_slice(&round.to_le_bytes());
        let told = group.publish(&[GroupWrite::Bytes { offset: 0, bytes: &bytes }]);
        for member in [1, 3] {
            let (_, result) = told.iter().find(|(host, _)| *host == host_id(member)).unwrap();
            assert!(result.is_ok(), "round {round}: {told:?}");
        }
        last = round;
        group.net.run_for(Duration::from_micros(100));
    }
    group.net.run_for(Duration::from_millis(50));
    assert_eq!([1, 3].map(|member| group.word(member, 0)), [last; 2]);
    assert!(group.word(2, 0) < last, "it cannot have it");
    group.net.sim.set_link(wire, true).unwrap();
    for _ in 0..2000 {
        group.net.run_for(Duration::from_millis(10));
        last += 1;
        group.publish(&[GroupWrite::Bytes { offset: 0, bytes: &last.to_le_bytes() }]);
        if group.net.node(0).engine().multicast_members(group.window) == 3 {
            group.delivered();
            assert_eq!([1, 2, 3].map(|member| group.word(member, 0)), [last; 3]);
            return;
        }
    }
    panic!("it never came back");
}

#[test]
fn a_member_that_dies_ends_its_writes_and_no_others() {
    let quick = Config { retry_after: Duration::from_millis(5), ..config() };
    let mut group = Group::new(5, 3, 4096, &quick, ethernet());
    let from = group.net.lend(0, &noise(1, 2000));
    let wire = group.net.wires[2];
    group.net.sim.set_link(wire, false).unwrap();
    group.net.clear();
    let told = group.publish(&[GroupWrite::Memory { offset: 64, from }]);
    let writes: Vec<WriteId> = told.iter().map(|(_, result)| result.unwrap().unwrap()).collect();
    for (nth, wanted) in writes.into_iter().enumerate() {
        let result = group.net.wait_for(0, "the end of a write", |event| match event {
            Event::Written { write, result } if *write == wanted => Some(*result),
            _ => None,
        });
        assert_eq!(result.is_ok(), nth != 1, "{result:?}");
    }
    let told = group.publish(&[GroupWrite::Bytes { offset: 0, bytes: &[7; 8] }]);
    assert_eq!(told[1], (host_id(2), Err(Error::NoLink)));
    group.delivered();
    assert_eq!([1, 3].map(|member| group.word(member, 0)), [u64::from_le_bytes([7; 8]); 2]);
}

#[test]
fn a_member_that_leaves_gets_the_rest_and_no_more_and_may_come_back() {
    let mut group = Group::new(6, 3, 4096, &config(), faulty());
    for round in 1..=30u64 {
        let window = group.window;
        group.publish(&[GroupWrite::Bytes { offset: 0, bytes: &round.to_le_bytes() }]);
        group.net.nic(0).remove_member(window, host_id(2)).unwrap();
        group.delivered();
        assert_eq!(group.word(2, 0), round, "it was published before it left");
        // It is told that it has left, over its link.
        group.net.flush(0, 2);
        let told = group.publish(&[GroupWrite::Bytes { offset: 8, bytes: &round.to_le_bytes() }]);
        assert!(told.len() == 2 && is_ok(&told));
        group.delivered();
        assert_eq!(group.word(2, 8), 0, "it had left");
        assert_eq!([1, 3].map(|member| group.word(member, 8)), [round; 2]);
        group.net.nic(0).add_member(window, host_id(2)).unwrap();
        group.heard(3);
    }
    let (now, window) = (group.net.now(), group.window);
    assert_eq!(group.net.nic(0).write(now, window, 0, &[1; 8]), Err(Error::Forbidden));
    group.net.nic(0).unmap(window).unwrap();
    assert_eq!(group.net.nic(0).multicast_members(window), 0);
}

#[test]
fn a_group_takes_another_address_without_a_break() {
    let mut group = Group::new(8, 3, 4096, &config(), faulty());
    for round in 1..=40u64 {
        if round % 4 == 0 {
            let (now, window) = (group.net.now(), group.window);
            let to = Peer::Ethernet([0x03, 0, 0, 0, 1, round as u8]);
            group.net.nic(0).multicast(now, window, PATH, to, None).unwrap();
        }
        let bytes = [round.to_le_bytes(), round.to_le_bytes()].concat();
        for _ in 0..10_000 {
            let told = group.publish(&[GroupWrite::Bytes { offset: 0, bytes: &bytes }]);
            if is_ok(&told) {
                break;
            }
            group.net.run_for(Duration::from_millis(1));
        }
        group.delivered();
        for member in 1..=3 {
            assert_eq!((group.word(member, 0), group.word(member, 8)), (round, round));
        }
    }
    assert!(group.net.node(0).engine().stats().multicasts > 20);
}

#[test]
fn what_cannot_multicast_is_refused() {
    let mut group = Group::new(7, 1, 64, &config(), ethernet());
    let (now, window) = (group.net.now(), group.window);
    let other = group.net.peer(1);
    let (_, single) = group.net.window(0, 1, 64);
    let nic = group.net.nic(0);
    assert_eq!(nic.multicast(now, single, PATH, other, None), Err(Error::Forbidden));
    assert_eq!(nic.multicast(now, window, PathId(9), other, None), Err(Error::PathDown));
    nic.unmap(window).unwrap();
    assert_eq!(nic.multicast(now, window, PATH, other, None), Err(Error::Unknown));
}

/// A publication of the property below: how long it is, whether it lies in memory, and how
/// long nothing is published after it.
type Published = (usize, bool, u64);

/// Where publication `n` belongs: each has a place of its own.
const PLACE: usize = 2048;

proptest! {
    #![proptest_config(cases(24))]

    /// Whatever is lost, comes twice or in another order: each member has all of the
    /// publications that the flag says it has, the flag never goes back, and in the end
    /// all have all.
    #[test]
    fn members_have_what_was_published_in_its_order(
        seed: u64,
        members in 1usize..5,
        steps in prop::collection::vec((1usize..PLACE - 8, any::<bool>(), 0u64..3000), 1..40),
        few in any::<bool>(),
        yields in any::<bool>(),
    ) {
        let bounded = Config { frames: 8, early_bytes: 8 << 10, ..config() };
        let config = if few { bounded } else { config() };
        let congestion = Config::shared_network().congestion.filter(|_| yields);
        let config = Config { congestion, ..config };
        let len = (64 + PLACE * steps.len()) as u64;
        let mut group = Group::new(seed, members, len, &config, faulty());
        let mut flags = vec![0; members];
        for (n, step) in steps.iter().enumerate() {
            publish_until_taken(&mut group, seed, n, *step);
            for member in 1..=members {
                let flag = group.word(member, 0);
                prop_assert!(flag >= flags[member - 1], "{flag} behind {flags:?}");
                flags[member - 1] = flag;
                for (before, step) in steps.iter().enumerate().take(flag as usize) {
                    let found = group.bytes(member, 64 + PLACE * before, step.0);
                    prop_assert!(found == noise(seed ^ before as u64, step.0), "{before} of {flag}");
                }
            }
        }
        group.delivered();
        for member in 1..=members {
            prop_assert_eq!(group.word(member, 0), steps.len() as u64);
        }
        let around = (1..=members).all(|m| group.net.is_intact_around(m, group.memories[m - 1]));
        prop_assert!(around);
    }
}

/// Publishes it as often as it takes for all members to have been given it.
fn publish_until_taken(group: &mut Group, seed: u64, n: usize, (len, lies, pause): Published) {
    let bytes = noise(seed ^ n as u64, len);
    let (offset, flag) = ((64 + PLACE * n) as u64, (n as u64 + 1).to_le_bytes());
    let from = lies.then(|| group.net.lend(0, &bytes));
    let body = match from {
        Some(from) => GroupWrite::Memory { offset, from },
        None => GroupWrite::Bytes { offset, bytes: &bytes },
    };
    for _ in 0..10_000 {
        let told = group.publish(&[body, GroupWrite::Bytes { offset: 0, bytes: &flag }]);
        group.net.run_for(Duration::from_micros(pause));
        if is_ok(&told) {
            return;
        }
        assert!(told.iter().all(|(_, result)| matches!(result, Ok(_) | Err(Error::Busy))));
        group.net.run_for(Duration::from_millis(5));
    }
    panic!("publication {n} finds no room");
}

/// What a lawless writer and a lawless driver do to a member: see the property below.
#[derive(Clone, Debug)]
enum Step {
    /// A frame of the stream comes, with this number in the place of its own.
    Come {
        frame: usize,
        seq: Option<u32>,
    },
    /// The oldest placement that is under way ends.
    Land(bool),
    Deposit(bool),
    /// The member says something, and its words reach the writer changed.
    Say {
        ack: Option<u32>,
        sack: u64,
    },
    /// The writer begins another stream, or removes its member and takes it again.
    Begin,
    Leave,
}

fn hostile_step() -> impl Strategy<Value = Step> {
    let near = || prop_oneof![3 => 0u32..12, 1 => any::<u32>()];
    prop_oneof![
        6 => (any::<usize>(), prop::option::of(near()))
            .prop_map(|(frame, seq)| Step::Come { frame, seq }),
        3 => any::<bool>().prop_map(Step::Land),
        3 => any::<bool>().prop_map(Step::Deposit),
        2 => (prop::option::of(near()), any::<u64>()).prop_map(|(ack, sack)| Step::Say { ack, sack }),
        1 => Just(Step::Begin),
        1 => Just(Step::Leave),
    ]
}

/// A writer and its member, with every unit in the test's hands.
struct Hands {
    nics: [Nic; 2],
    window: WindowId,
    /// Frames of streams that the writer has sent.
    stream: Vec<Vec<u8>>,
    placed: VecDeque<Ticket>,
    now: Instant,
    flag: u64,
}

impl Hands {
    const LEN: u64 = 4096;
    const REGION: RegionId = RegionId::new(0, 0);

    fn new() -> Self {
        let now = Instant::from_millis(1);
        let mut nics = [0, 1].map(|host| {
            let config = Config { frames: 8, early_bytes: 4096, ..Config::default() };
            let mut nic = Nic::new(config, host_id(host), [host as u8 + 1; 32]).unwrap();
            nic.handle_path(now, PATH, PathState::Up(PathLimits::plain(1500)));
            nic
        });
        nics[0].open_link(now, PATH, Peer::Node(1)).unwrap();
        let cookie = nics[0].found_group(host_id(0), 0, Self::LEN).unwrap();
        let window = nics[0].map_group(&cookie, &[host_id(1)]).unwrap();
        let aperture = nics[1].expose(Area::new(Self::REGION, 0, Self::LEN)).unwrap();
        nics[1].join_group_of(host_id(0), &cookie, aperture).unwrap();
        let (stream, placed) = (Vec::new(), VecDeque::new());
        let mut hands = Self { nics, window, stream, placed, now, flag: 0 };
        hands.talk();
        hands.begin();
        hands
    }

    /// Both say what they have to say, and all of it arrives but frames of streams.
    fn talk(&mut self) {
        for _ in 0..6 {
            for side in 0..2 {
                let (mut head, mut from) = ([0; 256], Spans::new());
                while let Some(sent) =
                    self.nics[side].poll_transmit(self.now, PATH, &mut head, &mut from)
                {
                    self.nics[side].handle_sent(self.now, sent.ticket);
                    let bytes = head[..sent.head_len.into()].to_vec();
                    if bytes[2] & 0xf == FrameKind::GroupData as u8 {
                        self.stream.push(bytes);
                    } else {
                        self.come(1 - side, &bytes);
                    }
                }
            }
            self.now += Duration::from_millis(30);
            self.nics.iter_mut().for_each(|nic| nic.handle_timeout(self.now));
        }
    }

    fn begin(&mut self) {
        let (now, window) = (self.now, self.window);
        self.nics[0].multicast(now, window, PATH, GROUP, None).unwrap();
        self.talk();
        for _ in 0..3 {
            self.flag += 1;
            let bytes = [self.flag.to_le_bytes(); 10].concat();
            let writes = [GroupWrite::Bytes { offset: 8 * self.flag, bytes: &bytes }];
            self.nics[0].publish(now, window, &writes, &mut |_, _| {}).unwrap();
        }
        self.talk();
    }

    /// A unit comes; whatever is to be written lies in the group's memory.
    fn come(&mut self, side: usize, bytes: &[u8]) {
        let (path, from, ecn) = (PATH, Peer::Node(1 - side as u32), Ecn::NotCapable);
        let (len, segment, verified) = (bytes.len() as u32, None, false);
        let unit = Unit { path, from, head: bytes, len, segment, ecn, verified };
        let mut into = Spans::new();
        let placed = self.nics[side].place(self.now, &unit, &mut into);
        if let Ok(Placement::Into { ticket, .. }) = placed {
            Self::check(&into);
            self.placed.push_back(ticket);
        }
    }

    fn check(into: &Spans) {
        for span in into.as_slice() {
            assert_eq!(span.region, Self::REGION);
            assert!(span.offset + u64::from(span.len) <= Self::LEN, "{span:?}");
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Come { frame, seq } if !self.stream.is_empty() => {
                let mut bytes = self.stream[frame % self.stream.len()].clone();
                if let Some(seq) = seq {
                    let header = *Frame::parse(&bytes, bytes.len() as u32).unwrap().header();
                    FrameHeader { seq, ..header }.write(&mut bytes);
                }
                self.come(1, &bytes);
            }
            Step::Come { .. } => {}
            Step::Land(is_there) => {
                if let Some(ticket) = self.placed.pop_front() {
                    let landing = if is_there { Landing::Verified } else { Landing::Failed };
                    self.nics[1].handle_placed(self.now, ticket, landing);
                }
            }
            Step::Deposit(is_there) => {
                let mut into = Spans::new();
                let deposit = self.nics[1].poll_deposit(self.now, &mut into);
                let Some(ticket) = deposit.map(|deposit| deposit.ticket) else { return };
                Self::check(&into);
                let landing = if is_there { Landing::Verified } else { Landing::Failed };
                self.nics[1].handle_placed(self.now, ticket, landing);
            }
            Step::Say { ack, sack } => {
                let (mut head, mut from) = ([0; 256], Spans::new());
                let said = self.nics[1].poll_transmit(self.now, PATH, &mut head, &mut from);
                let Some(said) = said else { return };
                let mut bytes = head[..said.head_len.into()].to_vec();
                let header = *Frame::parse(&bytes, bytes.len() as u32).unwrap().header();
                if header.kind == FrameKind::GroupAck {
                    let ack = ack.unwrap_or(header.ack);
                    FrameHeader { ack, sack, ..header }.write(&mut bytes);
                }
                self.come(0, &bytes);
            }
            Step::Begin => self.begin(),
            Step::Leave => {
                self.nics[0].remove_member(self.window, host_id(1)).unwrap();
                self.talk();
                self.nics[0].add_member(self.window, host_id(1)).unwrap();
                self.begin();
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn invariant_8_no_frames_of_a_group_panic_or_name_other_memory(
        steps in prop::collection::vec(hostile_step(), 1..150),
    ) {
        let mut hands = Hands::new();
        prop_assert!(!hands.stream.is_empty(), "it multicasts");
        steps.iter().for_each(|step| hands.step(step));
        // Links are as they were.
        hands.talk();
        prop_assert!(hands.nics.iter().all(|nic| nic.links().all(|(_, is_up)| is_up)));
    }
}
