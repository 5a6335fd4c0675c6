//! Streams by themselves: members that keep to the rules get all, whatever another one says.

use std::collections::BTreeSet;
use std::vec::Vec;

use landfall_placement::{Duration, Instant, PathId, Peer, Random, Serial32};
use proptest::prelude::*;

use super::{GroupFrame, GroupSender, GroupUpdate, Mode, Patience, Publication, Room, Stream};
use crate::address::{Address, HostId, Key, Kind, LinkId, WHOLE, WindowId, WriteId};
use crate::config::usual_congestion;
use crate::link::{FramePayload, SenderConfig};
use crate::nic::updates::{Bytes, Note};
use crate::wire::Entry;
use crate::wire::frame::{FrameFlags, FrameHeader, FrameKind};

const MEMBERS: u16 = 3;
/// The last one says whatever it likes.
const LAWLESS: u16 = 2;

fn group() -> Address {
    let (host, key) = (HostId::new(9).unwrap(), Key::from_bits(5));
    Address { kind: Kind::Multicast, host, slot: 1, word: 0, mask: WHOLE, key }
}

fn host(member: u16) -> HostId {
    HostId::new(member).unwrap()
}

fn frame() -> GroupFrame {
    let mut payload = FramePayload::default();
    payload.entries.push(Entry { address: group(), words: 1 });
    payload.inline.extend([7; 8]);
    payload.notes.push(Note::Written(group().host, Bytes { slot: 1, offset: 0, len: 8 }));
    GroupFrame::of(&payload).unwrap()
}

/// What a member that keeps to the rules has.
#[derive(Debug, Default)]
struct Good {
    next: u32,
    early: BTreeSet<u32>,
    /// Publications that it was promised, and those that it is said to have.
    promised: Vec<u32>,
    told: Vec<u32>,
}

impl Good {
    fn hear(&mut self, seq: u32) {
        if seq >= self.next {
            self.early.insert(seq);
        }
        while self.early.remove(&self.next) {
            self.next += 1;
        }
    }

    fn start(&mut self, seq: u32) {
        self.next = self.next.max(seq);
        self.early.retain(|early| *early >= self.next);
        self.hear(u32::MAX);
        self.early.remove(&u32::MAX);
    }

    fn header(&self) -> FrameHeader {
        let ahead = self.early.iter().filter_map(|seq| (seq - self.next).checked_sub(1));
        let sack = ahead.filter(|bit| *bit < 64).fold(0, |sack, bit| sack | 1 << bit);
        header(self.next, sack, 64)
    }
}

fn header(ack: u32, sack: u64, credit: u16) -> FrameHeader {
    FrameHeader {
        kind: FrameKind::GroupAck,
        flags: FrameFlags::default(),
        tag: 0,
        seq: 0,
        ack,
        sack,
        credit,
        marks: 0,
        entries: 0,
        payload_len: 0,
    }
}

struct World {
    config: SenderConfig,
    now: Instant,
    random: Random,
    sender: GroupSender,
    members: Vec<Good>,
    published: u32,
    silent: Vec<HostId>,
}

impl World {
    fn new(seed: u64, yields: bool) -> Self {
        let config = SenderConfig {
            congestion: usual_congestion(1_460),
            yields,
            frames: 64,
            retry_after: Duration::from_millis(20),
            retry_floor: Duration::from_millis(5),
        };
        let (window, path, to) = (WindowId::new(0, 0), PathId(0), Peer::Node(99));
        let stream = Stream { window, group: group(), path, to, tag: 7, key: None };
        let mut sender = GroupSender::new(&config, stream);
        let now = Instant::ZERO + Duration::from_secs(1);
        for member in 0..MEMBERS {
            let link = LinkId::new(member.into(), 0);
            sender.add(now, host(member), link, Room { frames: 64, bytes: 1 << 20 });
            assert_eq!(sender.mode(host(member)), Some(Mode::Invited));
            sender.handle_ack(&config, now, host(member), &header(0, 0, 0), &[]).unwrap();
        }
        let members = (0..MEMBERS).map(|_| Good::default()).collect();
        let random = Random::from_number(seed);
        Self { config, now, random, sender, members, published: 0, silent: Vec::new() }
    }

    fn publish(&mut self, frames: usize) {
        let mut takers = Vec::new();
        for member in 0..MEMBERS {
            match self.sender.mode(host(member)) {
                Some(Mode::Reachable) => {
                    self.members[usize::from(member)].start(self.sender.next().0);
                    self.sender.attach(self.now, host(member));
                    takers.push(host(member));
                }
                Some(Mode::Attached) if self.sender.has_room(host(member), frames, 90) => {
                    takers.push(host(member));
                }
                _ => self.sender.detach(host(member)),
            }
        }
        if takers.is_empty() {
            return;
        }
        let frames = (0..frames).map(|_| frame()).collect();
        let (first, last) = self.sender.publish(&self.config, self.now, frames, &takers);
        self.published += 1;
        for taker in takers {
            let link = LinkId::new(taker.number().into(), 0);
            let write = Some((WriteId::new(self.published, 0), 1));
            let number = self.published.into();
            self.sender.promise(taker, Publication { first, last, link, number, write });
            self.members[usize::from(taker.number())].promised.push(self.published);
        }
    }

    /// Everything that may leave does, and gets lost as often as this, in parts of 100.
    fn send(&mut self, loss: u64) {
        while let Some(to) = self.sender.next_repair() {
            let sent = self.sender.poll_repair(self.now);
            if let Some(sent) = sent.filter(|_| self.random.below(100) >= loss) {
                self.members[usize::from(to.number())].hear(sent.seq.0);
            }
        }
        while let Some(sent) = self.sender.poll_first(&self.config, self.now) {
            for member in &mut self.members {
                if self.random.below(100) >= loss {
                    member.hear(sent.seq.0);
                }
            }
        }
    }

    fn acknowledge(&mut self, member: u16) {
        let said = self.members[usize::from(member)].header();
        let next = self.sender.next();
        assert!(!next.precedes(Serial32(said.ack)), "it has what was never sent");
        self.sender.handle_ack(&self.config, self.now, host(member), &said, &[]).unwrap();
        self.updates();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let patience = Patience { give_up_after: 10, silence: Duration::from_secs(5) };
        self.sender.handle_timeout(&self.config, patience, self.now);
        self.updates();
    }

    fn updates(&mut self) {
        while let Some(update) = self.sender.poll_update() {
            match update {
                GroupUpdate::Over { member, publication, result } => {
                    assert_eq!(result, Ok(()));
                    let member = &mut self.members[usize::from(member.number())];
                    member.told.push(publication.number as u32);
                }
                GroupUpdate::Silent { member } => self.silent.push(member),
                GroupUpdate::Touched(_) => {}
                GroupUpdate::Left { .. } => panic!("nobody leaves"),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish(usize),
    Send(u64),
    Acknowledge(u16),
    /// The lawless one says anything.
    Say {
        ack: u32,
        sack: u64,
        credit: u16,
        marks: u8,
    },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1usize..20).prop_map(Step::Publish),
        3 => (0u64..60).prop_map(Step::Send),
        3 => (0..LAWLESS).prop_map(Step::Acknowledge),
        2 => (prop_oneof![0u32..300, any::<u32>()], any::<u64>(), any::<u16>(), any::<u8>())
            .prop_map(|(ack, sack, credit, marks)| Step::Say { ack, sack, credit, marks }),
        2 => (0u64..40_000).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lawless_member_spoils_its_own_share_only(
        seed: u64,
        yields: bool,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(seed, yields);
        for step in steps {
            match step {
                Step::Publish(frames) => world.publish(frames),
                Step::Send(loss) => world.send(loss),
                Step::Acknowledge(member) => world.acknowledge(member),
                Step::Say { ack, sack, credit, marks } => {
                    let said = FrameHeader { marks, ..header(ack, sack, credit) };
                    // What it cannot have is refused.
                    let _ = world.sender.handle_ack(
                        &world.config, world.now, host(LAWLESS), &said, &sack.to_be_bytes(),
                    );
                    world.updates();
                }
                Step::Pass(micros) => world.pass(Duration::from_micros(micros)),
            }
        }
        // The others get the rest, though it says nothing more.
        for _ in 0..20_000 {
            if world.members[..usize::from(LAWLESS)].iter().all(|good| good.promised == good.told) {
                break;
            }
            world.send(5);
            (0..LAWLESS).for_each(|member| world.acknowledge(member));
            world.pass(Duration::from_millis(20));
        }
        for member in &world.members[..usize::from(LAWLESS)] {
            prop_assert_eq!(&member.promised, &member.told);
        }
        let others = world.silent.iter().filter(|member| member.number() != LAWLESS).count();
        prop_assert_eq!(others, 0);
        let lawless = &world.members[usize::from(LAWLESS)];
        prop_assert!(lawless.told.iter().all(|told| lawless.promised.contains(told)));
    }
}

/// A member has said of some frames that they came, and not yet that they are in their places;
/// what says so gets lost. Nothing is missing then, and still it has to be asked.
#[test]
fn a_member_that_has_all_is_asked_for_what_it_said_last() {
    let mut world = World::new(1, true);
    world.publish(4);
    let first = world.sender.next().minus(4).0;
    world.send(0);
    (1..MEMBERS).for_each(|member| world.acknowledge(member));
    for (ack, sack) in [(first, 0b111), (first + 1, 0)] {
        let said = header(ack, sack, 64);
        world.sender.handle_ack(&world.config, world.now, host(0), &said, &[]).unwrap();
    }
    world.updates();
    let asked = (0..20).find_map(|_| {
        world.pass(Duration::from_millis(50));
        world.sender.poll_repair(world.now)
    });
    assert_eq!(asked.map(|sent| sent.seq.0), Some(first + 1));
    world.acknowledge(0);
    assert_eq!(world.members[0].told, world.members[0].promised);
    for _ in 0..400 {
        world.pass(Duration::from_millis(50));
        assert_eq!(world.sender.next_repair(), None, "it has all");
    }
    assert_eq!(world.silent, []);
}
