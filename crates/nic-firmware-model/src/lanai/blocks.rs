//! A network block device over queue pairs: a client that reads or writes one block
//! after another, and a server that has them all in memory.

use core::time::Duration;

use qpip::{Mapping, Operation, QueuePairId};

use super::figures::Design;
use super::model::{Carded, World, pattern};

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A request goes there, the block comes back.
    Read,
    /// The block goes there, and a word comes back.
    Write,
}

/// The protocol's request and reply, without the block.
const REQUEST: u32 = 28;
const REPLY: u32 = 16;

/// The traffic of a client.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// What it asks for.
    pub access: Access,
    /// Bytes of a block.
    pub block: u32,
    /// So many requests are on their way at a time.
    pub ahead: u64,
    /// So many are made.
    pub count: u64,
}

impl Traffic {
    /// Bytes of the messages to the server, and back.
    const fn lengths(&self) -> [u32; 2] {
        match self.access {
            Access::Read => [REQUEST, REPLY + self.block],
            Access::Write => [REQUEST + self.block, REPLY],
        }
    }
}

/// Millions of bytes of blocks in a second; nothing where they did not all come.
#[must_use]
pub fn throughput(design: &Design, mtu: u32, traffic: &Traffic) -> Option<f64> {
    let [there, back] = traffic.lengths();
    let all = traffic.count as usize * (there + back) as usize + (1 << 20);
    let mut shape = design.shape(mtu, all);
    shape.depth = u32::try_from(traffic.count).ok()?.max(1);
    shape.config.queue_depth = shape.depth;
    let mut world = World::<Carded>::new(1, &shape);
    let pairs = world.pair_up(true, 10_809, Mapping::Message);
    for id in 0..traffic.count {
        world.post_receive(0, pairs[0], id, &[back]);
        world.post_receive(1, pairs[1], id, &[there]);
    }
    world.run_for(Duration::from_millis(5));
    let started = world.now();
    let deadline = started + Duration::from_secs(10);
    let messages = [there, back].map(|len| pattern(1, len as usize));
    let (mut asked, mut answered) = (0, 0);
    loop {
        let done = received(&world, 0, pairs[0]);
        while asked < traffic.count.min(done + traffic.ahead) {
            world.send(0, pairs[0], asked, &messages[0], None).then_some(())?;
            asked += 1;
        }
        while answered < received(&world, 1, pairs[1]) {
            world.send(1, pairs[1], answered, &messages[1], None).then_some(())?;
            answered += 1;
        }
        if done == traffic.count {
            let took = world.now().since(started).as_nanos().max(1);
            return Some(traffic.count as f64 * f64::from(traffic.block) * 1e3 / took as f64);
        }
        world.step(deadline).then_some(())?;
    }
}

/// So many whole messages have come.
fn received(world: &World<Carded>, host: usize, pair: QueuePairId) -> u64 {
    let is_whole = |done: &&qpip::Completion| {
        done.queue_pair == pair && done.operation == Operation::Receive && done.ends_request
    };
    world.done(host).iter().filter(is_whole).count() as u64
}
