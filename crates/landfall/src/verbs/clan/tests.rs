//! A peer that says what no queue pair says.

use std::time::Duration;

use landfall_placement::Random;

use super::element::{Element, LEN};
use super::receives::{MOST_PARTS, MOST_PARTS_OUT, MOST_WANTED, NAMES};
use super::{
    Address, CompletionQueue, Half, QueuePair, QueuePairOptions, Region, SharedReceiveQueue, queue,
    queue_config,
};
use crate::clan::{Cookie, Error, Fabric, Local, Rights, Threads};
use crate::verbs::{
    CloseReason, CompletionQueue as _, Operation, Phase, QueuePair as _, ReceiveRequest, Status,
};

/// A queue pair, and who is at its other end with nothing but the queues.
struct Scene {
    done: CompletionQueue,
    pair: QueuePair<Threads>,
    room: Region<Threads>,
    /// Memory of the peer that may be written.
    theirs: (<Threads as Fabric>::Local, Cookie),
    says: queue::Sender<Threads>,
    hears: queue::Receiver<Threads>,
    there: Threads,
}

impl Scene {
    fn new() -> Self {
        Self::with(|here, done| QueuePair::open(here, done, done, &QueuePairOptions::default()))
    }

    fn with(open: impl FnOnce(&Threads, &CompletionQueue) -> Result<Half<Threads>, Error>) -> Self {
        let (here, there) = Threads::pair().unwrap();
        let done = CompletionQueue::new(64).unwrap();
        let half = open(&here, &done).unwrap();
        let says = queue::Sender::open(&there, queue_config()).unwrap();
        let hears = queue::Receiver::open(&there, queue_config()).unwrap();
        let address = Address { outlet: says.cookie(), inlet: hears.cookie() };
        let to_half = half.address();
        let (says, hears) =
            (says.connect(&to_half.inlet).unwrap(), hears.connect(&to_half.outlet).unwrap());
        let pair = half.connect(&address).unwrap();
        let room = Region::new(&here, 4096, Rights::Write).unwrap();
        let theirs = there.expose(4096, Rights::Write).unwrap();
        Self { done, pair, room, theirs, says, hears, there }
    }

    fn say(&mut self, element: Element) {
        self.say_bytes(&element.encode());
    }

    fn say_bytes(&mut self, bytes: &[u8; LEN]) {
        // The queue is longer than what is said here.
        assert!(self.says.try_put(bytes).unwrap());
        self.says.publish().unwrap();
    }

    /// Names its memory, and posts a part of it as room.
    fn offer(&mut self, at: u64, len: u64) {
        let cookie = self.theirs.1;
        self.say(Element::Region { number: 0, cookie });
        self.say(Element::Room { region: 0, at, len, is_last: true });
    }

    fn post_room(&mut self, id: u64, at: u64, len: u64) {
        let into = [self.room.part(at..at + len).unwrap()];
        self.pair.post_receive(&ReceiveRequest { id, into: &into }).unwrap();
    }

    /// All that was posted is flushed, and nothing else is told.
    fn is_over(&mut self, flushed: &[(Operation, u64)]) {
        for (operation, id) in flushed {
            let done = self.done.poll().expect("it is told at once");
            let expected = (*operation, *id, Status::Flushed);
            assert_eq!((done.operation, done.id, done.status), expected);
        }
        assert_eq!(self.done.poll(), None);
        assert_eq!(self.pair.phase(), Phase::Closed(CloseReason::Reset));
        let change = self.done.poll_change().expect("it is told");
        assert_eq!(change.phase, self.pair.phase());
    }
}

#[test]
fn a_peer_is_heard_and_told() {
    let mut scene = Scene::new();
    scene.post_room(1, 8, 16);
    let mut bytes = [0; LEN];
    let mut heard = Vec::new();
    while scene.hears.try_get(&mut bytes).unwrap() {
        heard.push(Element::decode(&bytes).unwrap());
    }
    let [Element::Region { number: 0, cookie }, room] = heard[..] else { panic!("{heard:?}") };
    assert_eq!(room, Element::Room { region: 0, at: 8, len: 16, is_last: true });
    let mut window = scene.there.map(&cookie).unwrap();
    crate::clan::Remote::write(&mut window, 8, b"here").unwrap();
    scene.say(Element::Arrived { len: 4, word: Some(9) });
    let came = scene.done.poll().unwrap();
    assert_eq!((came.id, came.len, came.immediate), (1, 4, Some(9)));
    scene.offer(100, 8);
    scene.pair.post_inline(2, b"there", None).unwrap();
    assert!(scene.done.poll().unwrap().status.is_success());
    let mut found = [0; 6];
    scene.theirs.0.copy_out(100, &mut found).unwrap();
    assert_eq!(&found, b"there\0");
}

#[test]
fn what_cannot_be_ends_the_queue_pair() {
    let foreign = {
        // The cookie of a host that is not the peer.
        let (stranger, _) = Threads::pair().unwrap();
        stranger.expose(4096, Rights::Write).unwrap().1
    };
    let readable = |scene: &Scene| scene.there.expose(4096, Rights::Read).unwrap().1;
    type Say = fn(&mut Scene);
    let says: [(&str, Say); 12] = [
        ("nothing", |scene| scene.say_bytes(&[0; LEN])),
        ("no such kind", |scene| scene.say_bytes(&[0xff; LEN])),
        ("longer than the room", |scene| {
            scene.say(Element::Arrived { len: 17, word: None });
        }),
        ("more than there is room for", |scene| {
            scene.say(Element::TooLong { len: 1 });
            scene.say(Element::TooLong { len: 1 });
        }),
        ("room in no region", |scene| {
            scene.say(Element::Room { region: 3, at: 0, len: 8, is_last: true });
        }),
        ("room outside of a region", |scene| scene.offer(4090, 8)),
        ("room behind all numbers", |scene| scene.offer(u64::MAX, 8)),
        ("a number too many", |scene| {
            let cookie = scene.theirs.1;
            scene.say(Element::Region { number: NAMES, cookie });
        }),
        ("two names and no room", |scene| {
            let cookie = scene.theirs.1;
            scene.say(Element::Region { number: 0, cookie });
            scene.say(Element::Region { number: 1, cookie });
        }),
        ("what it has said already", |scene| {
            scene.say(Element::Wanted { messages: 1 });
            scene.say(Element::Wanted { messages: 1 });
        }),
        ("more than anybody has", |scene| {
            scene.say(Element::Wanted { messages: MOST_WANTED + 1 });
        }),
        ("it is given up", |scene| scene.say(Element::Aborted)),
    ];
    for (what, say) in says {
        let mut scene = Scene::new();
        scene.post_room(1, 0, 16);
        scene.pair.post_inline(2, b"a message", None).unwrap();
        say(&mut scene);
        match what {
            // What failed is told, and ends it here.
            "more than there is room for" => {
                let came = scene.done.poll().unwrap();
                assert_eq!((came.id, came.status), (1, Status::TooLong));
                assert_eq!(scene.done.poll().unwrap().status, Status::Flushed);
                assert_eq!(scene.pair.phase(), Phase::Closed(CloseReason::Aborted));
            }
            _ => scene.is_over(&[(Operation::Send, 2), (Operation::Receive, 1)]),
        }
    }
    for number in 0..2 {
        let mut scene = Scene::new();
        let cookie = if number == 0 { foreign } else { readable(&scene) };
        scene.say(Element::Region { number, cookie });
        scene.is_over(&[]);
    }
}

#[test]
fn a_peer_posts_no_more_room_than_is_kept() {
    let mut scene = Scene::new();
    for nth in 0..=MOST_PARTS as u64 {
        assert_eq!(scene.pair.phase(), Phase::Connected, "{nth}");
        scene.say(Element::Room { region: 0, at: 0, len: 0, is_last: false });
        assert_eq!(scene.done.poll(), None);
    }
    scene.is_over(&[]);
    let mut scene = Scene::new();
    for nth in 0..=MOST_PARTS_OUT as u64 {
        assert_eq!(scene.pair.phase(), Phase::Connected, "{nth}");
        scene.say(Element::Room { region: 0, at: 0, len: 0, is_last: true });
        assert_eq!(scene.done.poll(), None);
    }
    scene.is_over(&[]);
}

/// A peer keeps no more of the shared room than a few, and with its end they come back.
#[test]
fn shared_room_that_a_peer_wants_comes_back_when_it_goes() {
    let mut shared = None;
    let mut scene = Scene::with(|here, done| {
        let room = shared.insert(SharedReceiveQueue::new(done, 40));
        QueuePair::open_sharing(here, done, room, &QueuePairOptions::default())
    });
    let shared = shared.unwrap();
    for id in 0..40 {
        shared.post(&ReceiveRequest { id, into: &[scene.room.whole()] }).unwrap();
    }
    scene.say(Element::Wanted { messages: 1_000 });
    assert_eq!(scene.done.poll(), None);
    let mut bytes = [0; LEN];
    let mut rooms = 0;
    while scene.hears.try_get(&mut bytes).unwrap() {
        rooms += u64::from(matches!(Element::decode(&bytes), Some(Element::Room { .. })));
    }
    assert_eq!(rooms, 16);
    scene.say(Element::Aborted);
    let held: Vec<_> = (0..rooms).map(|id| (Operation::Receive, id)).collect();
    scene.is_over(&held);
    // The others are there for others.
    assert_eq!(shared.post(&ReceiveRequest { id: 40, into: &[] }), Ok(()));
}

/// Elements with flipped bits, in any order: it goes on or is over, nothing completes that was
/// not posted, and only the rooms are written.
#[test]
fn any_elements_do_no_harm() {
    for seed in 0..300 {
        let mut random = Random::from_number(seed);
        let mut scene = Scene::new();
        let mut open: Vec<u64> = (0..4).collect();
        for id in 0..4 {
            scene.post_room(id, id * 64, 32);
        }
        scene.pair.post_inline(4, b"a message", None).unwrap();
        open.push(4);
        for _ in 0..20 {
            let mut number = |bound: u64| random.below(bound);
            let element = match number(6) {
                0 => Element::Region { number: number(3) as u32, cookie: scene.theirs.1 },
                1 => {
                    let (region, is_last) = (number(3) as u32, number(2) == 0);
                    Element::Room { region, at: number(4200), len: number(64), is_last }
                }
                2 => Element::Arrived { len: number(40) as u32, word: None },
                3 => Element::TooLong { len: number(40) as u32 },
                4 => Element::Wanted { messages: number(10) },
                _ => Element::Aborted,
            };
            let mut bytes = element.encode();
            if number(3) == 0 {
                bytes[number(LEN as u64) as usize] ^= 1 << number(8);
            }
            scene.say_bytes(&bytes);
            while let Some(done) = scene.done.poll() {
                let found = open.iter().position(|id| *id == done.id);
                open.remove(found.expect("it was posted, and did not complete before"));
            }
        }
        let is_open = scene.pair.phase() == Phase::Connected;
        assert!(is_open || open.is_empty(), "seed {seed}: {open:?} never completes");
        let mut between = [0; 32];
        for id in 0..4 {
            scene.room.copy_out(id * 64 + 32, &mut between).unwrap();
            assert_eq!(between, [0; 32], "seed {seed}");
        }
    }
}

/// A thread of the completion queue goes on with a message that found no room, while its program
/// makes no call at all.
#[test]
fn a_message_goes_on_by_itself_when_room_comes() {
    let mut scene = Scene::new();
    scene.pair.post_inline(1, b"early", None).unwrap();
    scene.offer(0, 64);
    let mut bytes = [0; LEN];
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        scene.hears.get(&mut bytes, Some(deadline)).expect("in time");
        match Element::decode(&bytes) {
            Some(Element::Wanted { messages: 1 }) => {}
            other => break assert_eq!(other, Some(Element::Arrived { len: 5, word: None })),
        }
    }
    assert!(scene.done.poll().unwrap().status.is_success());
}
