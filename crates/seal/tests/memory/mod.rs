//! Two hosts of CLAN under [`Sealed`] that write into each other's memory, and an attacker who owns
//! the network between them.
//!
//! The attacker may do anything but know keys. What must hold, after each step:
//!
//! - no word ever lies in memory that its peer has not written there, not even for a moment;
//! - what was written over one link takes effect in its order, and each operation once;
//! - a link ends only where packets were withheld from it;
//! - once the attacker stops everything that was written arrives, or a new link is made.
//!
//! It is shared by a property test, the replay of the corpus and the fuzz target `seal_memory`.

use clan_dsm::{Config, Event, HostId, LinkId, Nic, Rights, WindowId};
use landfall_placement::{Area, Engine, PathLimits, Peer, WordFunction, WordWidth};
use landfall_seal::{Proof, SealConfig, Sealed, Secret, StaticKey, Trust, TrustAnybody};
use landfall_testkit::model::{Checked, Choices, Faults, NaiveWire};

pub(crate) type Wire = NaiveWire<Checked<Sealed<Nic>>>;

const WORDS: usize = 256;
/// Words below are written one by one, words from here on in long pieces.
const LONG: usize = 128;
/// A word that is counted up.
const COUNTER: usize = WORDS - 1;
const PIECE: usize = 64;
const MOST_RECORDED: usize = 300;
const MOST_UNDER_WAY: usize = 400;
const MOST_STEPS: usize = 6_000;

pub(crate) fn host(side: usize) -> HostId {
    HostId::new(side as u16 + 1).unwrap()
}

pub(crate) fn key(byte: u8) -> Proof {
    Proof::KeyPair(StaticKey::new(Secret::new([byte; 32])))
}

pub(crate) fn end(side: usize, proof: Proof, trust: Box<dyn Trust>) -> Checked<Sealed<Nic>> {
    let config = SealConfig { context: b"clan".to_vec(), ..SealConfig::new(proof) };
    let seed = [side as u8 + 1; 32];
    Checked::new(Sealed::new(
        Nic::new(Config::default(), host(side), seed).unwrap(),
        config,
        trust,
        seed,
    ))
}

/// What the user of one side knows: the memory of this side, and what was done to the other's.
struct User {
    memory: Area,
    /// The last value that was written to each word of the other side, and all before it.
    written: Vec<Vec<u64>>,
    /// What each word of this side's memory held when it was looked at last.
    seen: Vec<u64>,
    window: WindowId,
    link: Option<LinkId>,
    links: u32,
    /// Operations that were asked for on the link that is up.
    asked: u64,
    /// What their answers said that was there before.
    counted: Vec<u64>,
}

struct World {
    wire: Wire,
    users: Vec<User>,
    under_way: [Vec<Vec<u8>>; 2],
    recorded: Vec<Vec<u8>>,
    next: u64,
    was_withheld: bool,
    wrong: Vec<String>,
}

impl World {
    fn new(setup: u8) -> Self {
        let ends = [0, 1].map(|side| {
            let proof = if setup & 1 == 1 {
                key(side as u8 + 1)
            } else {
                Proof::PresharedKey(Secret::new([7; 32]))
            };
            end(side, proof, Box::new(TrustAnybody))
        });
        let limits = PathLimits::plain(if setup & 2 == 0 { 400 } else { 1_400 });
        let mut wire = Wire::new(ends, limits, Faults::default(), 1);
        wire.opens_runs = setup & 4 == 0;
        let mut cookies = Vec::new();
        let mut areas = Vec::new();
        for side in &mut wire.sides {
            let region = side.memory.lend(vec![0; WORDS * 8]);
            let area = Area::new(region, 0, (WORDS * 8) as u64);
            let aperture = side.engine.engine.expose(area).unwrap();
            // Good for everybody, or for the other side alone.
            let cookie = if setup & 8 == 0 {
                side.engine.engine.cookie(aperture, Rights::ReadWrite)
            } else {
                let peer = host(1 - areas.len());
                side.engine.engine.cookie_for(aperture, Rights::ReadWrite, peer)
            };
            cookies.push(cookie.unwrap());
            areas.push(area);
        }
        let user = |side: usize| User {
            memory: areas[side],
            written: vec![vec![0]; WORDS],
            seen: vec![0; WORDS],
            window: wire.sides[side].engine.engine.map(&cookies[1 - side]).unwrap(),
            link: None,
            links: 0,
            asked: 0,
            counted: Vec::new(),
        };
        let users = [0, 1].map(user).into();
        let (under_way, recorded, wrong) = (Default::default(), Vec::new(), Vec::new());
        Self { wire, users, under_way, recorded, next: 1, was_withheld: false, wrong }
    }

    fn nic(&mut self, side: usize) -> &mut Sealed<Nic> {
        &mut self.wire.sides[side].engine.engine
    }

    fn link(&mut self) {
        let now = self.wire.now;
        let nic = self.nic(0);
        let peer = nic.associate(now, Wire::PATH, Peer::Node(1), None).expect("there is room");
        nic.open_link(now, Wire::PATH, peer).expect("the path is there");
        if !self.run_until(|users| users.iter().all(|user| user.link.is_some())) {
            self.wrong.push("nobody disturbs them, and there is no link".to_owned());
        }
    }

    fn hear(&mut self) {
        for (side, user) in self.users.iter_mut().enumerate() {
            while let Some(event) = self.wire.sides[side].engine.poll_event() {
                match event {
                    Event::LinkUp { link, host: there } => {
                        assert_eq!(there, host(1 - side));
                        user.link = Some(link);
                        user.links += 1;
                    }
                    Event::LinkDown { link, why } => {
                        if !self.was_withheld {
                            self.wrong
                                .push(format!("{link} has ended, {why}: nothing was withheld"));
                        }
                        user.link = user.link.filter(|known| *known != link);
                    }
                    Event::Word { result: Ok(old), .. } => user.counted.push(old),
                    Event::Exception { reason, .. } => {
                        self.wrong.push(format!("{side} was refused something: {reason}"));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Every word is one that was written there, and none goes back.
    fn check(&mut self) {
        for side in 0..2 {
            let bytes = self.wire.sides[side].bytes(self.users[side].memory);
            let words: Vec<u64> =
                bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            let [one, two] = &mut self.users[..] else { unreachable!("there are two") };
            let (here, there) = if side == 0 { (one, two) } else { (two, one) };
            for (nth, word) in words.iter().enumerate().filter(|(nth, _)| *nth != COUNTER) {
                if !there.written[nth].contains(word) {
                    self.wrong.push(format!("word {nth} of {side} is {word}: nobody wrote that"));
                }
                if *word < here.seen[nth] {
                    self.wrong.push(format!("word {nth} of {side} went back to {word}"));
                }
            }
            if words[COUNTER] > there.asked || words[COUNTER] < there.counted.len() as u64 {
                let (is, most) = (words[COUNTER], there.asked);
                self.wrong.push(format!("{most} were asked for, and {is} were counted"));
            }
            here.seen = words;
        }
        for user in &self.users {
            let in_order = user.counted.windows(2).all(|pair| pair[0] < pair[1]);
            if !in_order {
                self.wrong.push(format!("an operation took effect twice: {:?}", user.counted));
            }
        }
    }

    fn pump(&mut self) {
        for side in 0..2 {
            for bytes in self.wire.said(side) {
                if self.recorded.len() < MOST_RECORDED {
                    self.recorded.push(bytes.clone());
                }
                if self.under_way[1 - side].len() < MOST_UNDER_WAY {
                    self.under_way[1 - side].push(bytes);
                } else {
                    self.was_withheld = true;
                }
            }
        }
        self.hear();
    }

    fn deliver(&mut self, side: usize, count: usize) {
        let count = count.min(self.under_way[side].len());
        let packets: Vec<Vec<u8>> = self.under_way[side].drain(..count).collect();
        self.wire.hand_in(side, &packets);
        self.hear();
        self.check();
    }

    fn run_until(&mut self, is_over: impl Fn(&[User]) -> bool) -> bool {
        self.run(MOST_STEPS, is_over)
    }

    fn run(&mut self, most: usize, is_over: impl Fn(&[User]) -> bool) -> bool {
        for _ in 0..most {
            self.pump();
            if is_over(&self.users) {
                return true;
            }
            if self.under_way.iter().all(Vec::is_empty) && !self.wire.pass_time() {
                return false;
            }
            (0..2).for_each(|side| self.deliver(side, usize::MAX));
        }
        false
    }

    /// A word, or a long piece of words that are all the same.
    fn write(&mut self, side: usize, at: usize, is_long: bool) {
        let (now, value, window) = (self.wire.now, self.next, self.users[side].window);
        let (from, count) =
            if is_long { (LONG + at % (COUNTER - LONG - PIECE), PIECE) } else { (at % LONG, 1) };
        let bytes = value.to_ne_bytes().repeat(count);
        let offset = (from * 8) as u64;
        let written = if is_long {
            let region = self.wire.sides[side].memory.lend(bytes);
            let area = Area::new(region, 0, (PIECE * 8) as u64);
            self.nic(side).write_from(now, window, offset, area).map(drop)
        } else {
            self.nic(side).write(now, window, offset, &bytes)
        };
        if written.is_ok() {
            self.next += 1;
            (from..from + count).for_each(|nth| self.users[side].written[nth].push(value));
        }
    }

    fn count(&mut self, side: usize) {
        let (now, window) = (self.wire.now, self.users[side].window);
        let at = (COUNTER * 8) as u64;
        let (width, function) = (WordWidth::Eight, WordFunction::Add(1));
        let asked = self.nic(side).change(now, window, at, width, function);
        self.users[side].asked += u64::from(asked.is_ok());
    }

    fn insert(&mut self, side: usize, at: usize, bytes: Vec<u8>) {
        let queue = &mut self.under_way[side];
        if queue.len() < MOST_UNDER_WAY {
            queue.insert(at.min(queue.len()), bytes);
        }
    }

    /// One decision of the attacker, or of a user.
    fn step(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        let side = usize::from(what >> 7);
        let len = self.under_way[side].len();
        let (at, other) = (choices.below(len), choices.below(self.recorded.len()));
        match what & 15 {
            0 | 1 => {
                let count = choices.below(12) + 1;
                self.deliver(side, count);
            }
            2 if len > 0 => {
                let other = choices.below(len);
                self.under_way[side].swap(at, other);
            }
            3 if len > 0 => {
                self.under_way[side].remove(at);
                self.was_withheld = true;
            }
            4 if len > 0 => {
                let again = self.under_way[side][at].clone();
                self.insert(side, at + choices.below(4), again);
            }
            5 if len > 0 => {
                let bits = self.under_way[side][at].len() * 8;
                let bit = usize::from(choices.word()) % bits.max(1);
                if let Some(byte) = self.under_way[side][at].get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                // It does not arrive as it was sent.
                self.was_withheld = true;
            }
            6 if len > 0 => {
                let mut bytes = self.under_way[side][at].clone();
                bytes.truncate(choices.below(bytes.len() + 1));
                self.insert(side, at, bytes);
            }
            7 if len > 0 && !self.recorded.is_empty() => {
                let cut = choices.below(self.under_way[side][at].len() + 1);
                let mut bytes = self.under_way[side][at][..cut].to_vec();
                bytes.extend_from_slice(self.recorded[other].get(cut..).unwrap_or_default());
                self.insert(side, at, bytes);
            }
            8 => {
                let count = choices.below(24) + 1;
                let replayed: Vec<_> =
                    self.recorded.iter().skip(other).take(count).cloned().collect();
                replayed.into_iter().for_each(|bytes| self.insert(side, at, bytes));
            }
            9 => {
                let mut bytes = vec![choices.pick(&[0xe0, 0xe1, 0xe2, 0xe3, 0xe4, b'C'])];
                if let Some(known) = self.recorded.get(other) {
                    bytes.extend_from_slice(known.get(1..12).unwrap_or_default());
                }
                bytes.resize(bytes.len() + choices.below(240), 0x5a);
                self.insert(side, at, bytes);
            }
            10 | 11 => {
                let at = usize::from(choices.word());
                self.write(side, at, what & 1 == 1);
            }
            12 => self.count(side),
            13 => {
                self.was_withheld |= self.under_way.iter().any(|queue| !queue.is_empty());
                self.wire.pass_time();
            }
            _ => (0..2).for_each(|side| self.deliver(side, usize::MAX)),
        }
        self.pump();
    }

    /// The attacker has stopped: what was written last arrives.
    fn end(&mut self) {
        // Long enough for who hears nothing more to be given up.
        self.run(600, |_| false);
        if self.users.iter().any(|user| user.link.is_none()) {
            self.users.iter_mut().for_each(|user| user.link = None);
            self.link();
        }
        for side in 0..2 {
            (0..LONG).for_each(|at| self.write(side, at, false));
            self.write(side, 0, true);
        }
        let last: Vec<Vec<u64>> = self.users.iter().map(last_of).collect();
        self.run_until(|users| {
            (0..2).all(|side| {
                (0..LONG + PIECE).all(|nth| users[1 - side].seen[nth] == last[side][nth])
            })
        });
        for (side, last) in last.iter().enumerate() {
            if self.users[1 - side].seen[..LONG + PIECE] != last[..LONG + PIECE] {
                self.wrong
                    .push(format!("the attacker has stopped, and what {side} writes is lost"));
            }
        }
    }
}

fn last_of(user: &User) -> Vec<u64> {
    user.written.iter().map(|all| *all.last().unwrap()).collect()
}

/// Runs what these bytes say, and gives what is wrong then.
#[must_use]
pub(crate) fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut world = World::new(choices.byte());
    world.link();
    while !choices.is_over() && world.wrong.is_empty() {
        world.step(&mut choices);
    }
    if world.wrong.is_empty() {
        world.end();
    }
    world.wrong
}
