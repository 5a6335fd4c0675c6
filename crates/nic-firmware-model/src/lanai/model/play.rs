//! What bytes stand for: a network, calls of users, forged frames.

use landfall_placement::Duration;
use landfall_simnet::{Loss, Probability};
use landfall_testkit::model::Choices;
use qpip::model::seal;
use qpip::{Mapping, QueuePairId, TcpConfig};

use super::faulty::Fault;
use super::network::{Host, Network};
use super::world::{Shape, World, pattern};
use crate::lanai::switch::SwitchDesign;
use crate::world::Record;
use crate::world::play::Play;

fn shape(choices: &mut Choices<'_>, fault: Option<Fault>) -> Shape {
    let mut shape = Shape { memory: 512 << 10, ..Shape::default() };
    shape.card.fault = fault;
    // On every fourth network nothing goes wrong.
    let worst = choices.pick(&[0, 4, 4, 8]);
    let percent = |choices: &mut Choices<'_>| Probability::percent(choices.scaled(worst + 1));
    let mtu = choices.pick(&[600, 1_500, 9_000]) + 14;
    shape.link = shape
        .link
        .mtu(mtu)
        .loss(Loss::Uniform(percent(choices)))
        .duplication(percent(choices))
        .reordering(percent(choices), Duration::from_micros(300))
        .corruption(percent(choices));
    let switches = choices.byte();
    shape.network = match switches >> 5 {
        0..4 => Network::Link,
        some => Network::Switches(1 + some % 2, SwitchDesign::default()),
    };
    shape.config.tcp = TcpConfig {
        timestamps: switches & 3 > 0,
        sack: switches & 12 > 0,
        ecn: switches & 16 > 0,
        most_window: choices.pick(&[0, 30_000, 8 << 20]),
        ..TcpConfig::default()
    };
    shape
}

/// Two users who post, send and wait as bytes say.
struct Players<N: Host> {
    world: World<N>,
    streams: Vec<[QueuePairId; 2]>,
    ports: [QueuePairId; 2],
    is_v6: bool,
    next: u64,
}

impl<N: Host> Players<N> {
    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn some_end(&self, choices: &mut Choices<'_>) -> (usize, QueuePairId) {
        let (which, host) = (usize::from(choices.byte()), usize::from(choices.byte() & 1));
        (host, self.streams[which % self.streams.len()][host])
    }

    fn post(&mut self, host: usize, pair: QueuePairId, choices: &mut Choices<'_>) {
        let count = 1 + choices.scaled(3);
        let pieces: Vec<u32> = (0..count).map(|_| 1 + choices.scaled(3_000)).collect();
        let id = self.name();
        self.world.post_receive(host, pair, id, &pieces);
    }

    fn send(
        &mut self,
        host: usize,
        pair: QueuePairId,
        to: Option<(bool, u16)>,
        choices: &mut Choices<'_>,
    ) {
        let most = choices.pick(&[100, 2_000, 6_000]);
        let len = 1 + choices.scaled(most) as usize;
        let id = self.name();
        self.world.send(host, pair, id, &pattern(id, len), to);
    }

    fn forge(&mut self, choices: &mut Choices<'_>) {
        let (host, which) = (usize::from(choices.byte() & 1), usize::from(choices.byte()));
        let kind = choices.byte();
        let changes: Vec<(u8, u8)> =
            (0..kind & 3).map(|_| (choices.byte(), choices.byte())).collect();
        self.world.forge(host, which, |bytes| {
            for (at, value) in changes {
                // Headers more often than payload.
                let at = if at < 192 { 12 + usize::from(at) / 2 } else { usize::from(at) * 7 };
                match bytes.get_mut(at) {
                    Some(byte) => *byte = value,
                    None => bytes.truncate(usize::from(value).max(14)),
                }
            }
            if kind & 0x80 == 0 {
                seal(bytes);
            }
        });
    }
}

impl<N: Host> Play for Players<N> {
    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 40 {
            0..13 => {
                let (host, pair) = self.some_end(choices);
                self.post(host, pair, choices);
            }
            13..22 => {
                let (host, pair) = self.some_end(choices);
                self.send(host, pair, None, choices);
            }
            22..25 => {
                let host = usize::from(choices.byte() & 1);
                self.post(host, self.ports[host], choices);
            }
            25..28 => {
                let host = usize::from(choices.byte() & 1);
                self.send(host, self.ports[host], Some((self.is_v6, 9)), choices);
            }
            28 => {
                let host = usize::from(choices.byte() & 1);
                self.world.change_interface(host);
            }
            29..32 => self.forge(choices),
            _ => {
                let micros = 1 + choices.scaled(2_000);
                self.world.run_for(Duration::from_micros(u64::from(micros)));
            }
        }
    }

    fn is_over(&self) -> bool {
        !self.world.wrong().is_empty()
    }

    /// Some connections end well, one does not; then all else ends.
    fn end(mut self) -> Record {
        self.world.run_for(Duration::from_millis(700));
        for (nth, pairs) in self.streams.clone().into_iter().enumerate() {
            for (host, pair) in pairs.into_iter().enumerate() {
                let now = self.world.now();
                let engine = self.world.engine(host);
                // Who is over already is over in both runs.
                let _ = match (nth, host) {
                    (0, 0) => engine.abort(now, pair),
                    (0, _) => Ok(()),
                    _ => engine.shutdown(now, pair),
                };
            }
            self.world.run_for(Duration::from_micros(50));
        }
        self.world.run_for(Duration::from_secs(3));
        let now = self.world.now();
        for (host, pair) in self.ports.into_iter().enumerate() {
            let _ = self.world.engine(host).destroy_queue_pair(now, pair);
        }
        self.world.run_for(Duration::from_secs(1));
        self.world.record()
    }
}

/// Plays what these bytes stand for, and gives what was seen.
#[must_use]
pub fn play<N: Host>(fault: Option<Fault>, bytes: &[u8]) -> Record {
    let mut choices = Choices::new(bytes);
    let shape = shape(&mut choices, fault);
    let mut world = World::<N>::new(u64::from(choices.byte()), &shape);
    let is_v6 = choices.byte() & 1 > 0;
    let mut port = 80;
    let rare = choices.pick(&[Mapping::Segment, Mapping::Message]);
    let streams = [Mapping::Message, Mapping::Stream, rare].map(|mapping| {
        port += 1;
        world.pair_up(choices.byte() & 1 > 0, port, mapping)
    });
    // One is bound to its address, the other to any.
    let ports = [world.bound(0, is_v6, 9, false), world.bound(1, is_v6, 9, true)];
    world.run_for(Duration::from_millis(5));
    let streams = streams.to_vec();
    Players { world, streams, ports, is_v6, next: 0 }.play(choices)
}
