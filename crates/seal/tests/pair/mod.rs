//! Two ends that talk STP under [`Sealed`], and an attacker who owns the network between them.
//!
//! The attacker may do anything but know keys: it drops, repeats, reorders, changes, cuts,
//! extends, splices and makes up packets, replays those of this connection and of an earlier
//! one between the same two ends, to either side, and passes packets on from other addresses.
//! Its decisions are read from any bytes, so that a fuzzer finds them. What must hold:
//!
//! - nothing is delivered that was not sent, and nothing twice: Transfers, Puts, word operations,
//!   connections;
//! - no byte ever lies in memory of a user that its peer has not sent there, and what was
//!   accepted stays as it is;
//! - a connection that has keys ends only where packets were withheld from it;
//! - once the attacker stops, everything that is under way arrives, but for Transfers that STP
//!   gives up after packets were withheld for long; and where a connection has ended, a new one
//!   is made.
//!
//! It is shared by a property test, the replay of the corpus and the fuzz target `seal_pair`.

mod attacker;
mod users;

use std::sync::OnceLock;

use landfall_placement::{PathLimits, Peer};
use landfall_seal::{Proof, SealConfig, Sealed, Secret, StaticKey, TrustAnybody};
use landfall_testkit::model::{Checked, Choices, Faults, NaiveWire, Violation};
use stp_core::{Admission, Config, Connect, Endpoint};

use users::Users;

type Wire = NaiveWire<Checked<Sealed<Endpoint>>>;

const PORT: u16 = 7;
/// Packets that the attacker remembers.
const MOST_RECORDED: usize = 300;
/// Packets under way to one side; more are lost.
const MOST_UNDER_WAY: usize = 400;
/// Steps within which everything comes to its end once the attacker has stopped.
const MOST_STEPS: usize = 4_000;

/// A packet under way.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    /// The address that it seems to come from, if it is not its sender's.
    from: Option<u32>,
}

/// The two ends, the wire between them, and what each side's user knows.
struct World {
    wire: Wire,
    users: Users,
    /// What is under way to each side.
    under_way: [Vec<Packet>; 2],
    /// All that was said, to be replayed.
    recorded: Vec<Vec<u8>>,
    /// What the engine of side 0 calls the peer of its newest connection.
    peer: Peer,
    /// Something was withheld: a silent peer is given up.
    was_withheld: bool,
    /// Somebody else's message of a handshake came: that may end the handshake, and no more.
    is_handshake_forged: bool,
}

/// Runs what these bytes say, and gives what is wrong then.
#[must_use]
pub(crate) fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let setup = choices.byte();
    let mut world = World::new(setup, 1);
    world.recorded.extend_from_slice(earlier(setup & 1 == 1));
    if setup & 2 == 0 {
        world.meet();
    }
    while !choices.is_over() && world.users.wrong.is_empty() {
        world.step(&mut choices);
    }
    world.end();
    world.users.wrong
}

/// What was said on an earlier connection between the same two ends.
fn earlier(has_pairs: bool) -> &'static [Vec<u8>] {
    static EARLIER: [OnceLock<Vec<Vec<u8>>>; 2] = [OnceLock::new(), OnceLock::new()];
    EARLIER[usize::from(has_pairs)].get_or_init(|| {
        let mut world = World::new(u8::from(has_pairs), 9);
        world.meet();
        for side in [0, 1] {
            world.users.transfer(&mut world.wire, side, 900);
        }
        world.users.put(&mut world.wire, 3);
        world.users.fetch(&mut world.wire);
        world.end();
        assert!(world.users.wrong.is_empty(), "{:?}", world.users.wrong);
        world.recorded
    })
}

impl World {
    fn new(setup: u8, seed: u8) -> Self {
        let end = |side: u8| {
            let proof = if setup & 1 == 1 {
                Proof::KeyPair(StaticKey::new(Secret::new([side + 1; 32])))
            } else {
                Proof::PresharedKey(Secret::new([7; 32]))
            };
            let config = SealConfig { half_open: 4, ..SealConfig::new(proof) };
            let seed = [seed ^ (side << 4); 32];
            let mut engine = Endpoint::new(Config::default(), seed).unwrap();
            engine.listen(PORT, Admission::Open).expect("nobody else listens");
            Checked::new(Sealed::new(engine, config, Box::new(TrustAnybody), seed))
        };
        let limits = PathLimits::plain(300);
        let mut wire = Wire::new([end(0), end(1)], limits, Faults::default(), 1);
        wire.opens_runs = setup & 4 == 0;
        let mut world = Self {
            wire,
            users: Users::default(),
            under_way: Default::default(),
            recorded: Vec::new(),
            peer: Peer::Unaddressed,
            was_withheld: false,
            is_handshake_forged: false,
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        let now = self.wire.now;
        let end = &mut self.wire.sides[0].engine.engine;
        let peer = end.associate(now, Wire::PATH, Peer::Node(1), None);
        self.peer = peer.expect("there is room for one more");
        let hello = self.users.next_connect();
        let connect = Connect { port: PORT, local_port: None, hello };
        let id = end.connect(now, Wire::PATH, self.peer, connect).expect("the path is there");
        self.users.connecting(id);
    }

    /// The two ends get a connection and a region, and nobody disturbs them.
    fn meet(&mut self) {
        self.run_until(|users| users.is_open());
        self.users.ask_region(&mut self.wire);
        self.run_until(|users| users.region.is_some());
        if self.users.region.is_none() {
            self.users.fail("nobody disturbed them, and there is no connection");
        }
    }

    /// Takes over what both ends say, and hears what their users are told.
    fn pump(&mut self) {
        for side in 0..2 {
            for bytes in self.wire.said(side) {
                if self.recorded.len() < MOST_RECORDED {
                    self.recorded.push(bytes.clone());
                }
                let queue = &mut self.under_way[1 - side];
                if queue.len() < MOST_UNDER_WAY {
                    queue.push(Packet { bytes, from: None });
                } else {
                    self.was_withheld = true;
                }
            }
        }
        self.users.hear(&mut self.wire);
    }

    /// Hands the next packets to a side, in one receive as far as they are of one address.
    fn deliver(&mut self, side: usize, count: usize) {
        let count = count.min(self.under_way[side].len());
        let packets: Vec<Packet> = self.under_way[side].drain(..count).collect();
        let own_name = 1 - side as u32;
        for alike in packets.chunk_by(|one, other| one.from == other.from) {
            let bytes: Vec<Vec<u8>> = alike.iter().map(|packet| packet.bytes.clone()).collect();
            self.wire.rename(1 - side, alike[0].from.unwrap_or(own_name));
            self.wire.hand_in(side, &bytes);
            self.wire.rename(1 - side, own_name);
            self.users.hear(&mut self.wire);
        }
        self.users.check_memory(&self.wire);
    }

    /// Everything arrives as it was said, until `is_over`. False if it never is.
    fn run_until(&mut self, is_over: impl Fn(&Users) -> bool) -> bool {
        for _ in 0..MOST_STEPS {
            self.pump();
            if is_over(&self.users) {
                return true;
            }
            let is_idle = self.under_way.iter().all(Vec::is_empty);
            if is_idle && !self.wire.pass_time() {
                return false;
            }
            for side in 0..2 {
                self.deliver(side, usize::MAX);
            }
        }
        false
    }

    /// The attacker has stopped.
    fn end(&mut self) {
        if !self.users.wrong.is_empty() {
            return;
        }
        let was_open = self.users.is_open() && !self.users.has_ended();
        let is_settled = self.run_until(|users| users.is_done() || users.has_ended());
        if self.users.has_given_up && !self.was_withheld {
            self.users.fail("a Transfer was given up, and nothing was withheld from it");
        }
        if self.users.has_ended() {
            let had_keys = self.users.is_open();
            let has_reason = self.was_withheld || (self.is_handshake_forged && !had_keys);
            if was_open {
                self.users.fail("the attacker has stopped, and a connection ends that was there");
            }
            if !has_reason {
                self.users.fail("the connection has ended, and nothing was withheld from it");
            }
            // The other end hears of it, or gives up.
            self.run_until(|users| users.have_both_ended());
        } else if !is_settled || !self.users.is_done() {
            self.users.fail("the attacker has stopped, and something never arrives");
        }
        if self.users.has_ended() {
            self.users.forget_connection();
            self.connect();
            if !self.run_until(Users::is_open) {
                self.users.fail("the attacker has stopped, and there is no new connection");
            }
        }
        for side in [0, 1] {
            self.users.transfer(&mut self.wire, side, 700);
        }
        if !self.run_until(Users::is_done) {
            self.users.fail("the attacker has stopped, and a new Transfer never arrives");
        }
        for side in 0..2 {
            let mut broken = self.wire.sides[side].engine.violations();
            // What is shared on purpose is written again and again.
            broken.retain(|broken| match broken {
                Violation::PlacedOnAccepted(span) | Violation::PlacedOnPending(span) => {
                    !self.users.is_shared(side, span)
                }
                _ => true,
            });
            if !broken.is_empty() {
                self.users.fail(&format!("the contract is broken: {broken:?}"));
            }
        }
    }
}
