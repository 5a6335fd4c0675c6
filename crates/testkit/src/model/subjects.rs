//! The two engines as the [`World`](super::World) drives them.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use landfall_placement::{
    Duration, Instant, Offloads, PathId, PathLimits, Peer, WordFunction, WordWidth,
};

use super::world::{Operations, Subject, Told, World};
use crate::engines::numbered::{self, Numbered};
use crate::engines::stream::{self, Framing, Station, Stream};
use landfall_placement::Area;

const PATH: PathId = PathId(0);

impl Subject for Numbered {
    const IS_STREAM: bool = false;

    fn pair(config: u8) -> [Self; 2] {
        let config = numbered::Config {
            unit: 64,
            window: 64 * if config & 2 == 0 { 16 } else { 80 },
            ack_every: 4,
            checksum: Self::has_checksum(config),
            eager: config & 4 == 0,
            retransmit_after: Duration::from_millis(1),
            give_up_after: if config & 8 == 0 { 3 } else { 30 },
            connections: 2,
            incoming: 4,
            outgoing: 4,
            posted: 8,
            ..numbered::Config::default()
        };
        [1, 2].map(|seed| Self::new(config, [seed; 32]))
    }

    fn limits() -> PathLimits {
        PathLimits::plain(128)
    }

    fn has_checksum(config: u8) -> bool {
        config & 1 == 0
    }

    fn post(&mut self, area: Area) -> bool {
        self.receive_into(area).is_ok()
    }

    fn make_room(&mut self) {
        while self.take_back_posted().is_some() {}
    }

    fn submit(&mut self, now: Instant, to: Peer, area: Area) -> Option<u64> {
        self.send(now, PATH, to, area).ok().map(|id| id.0)
    }

    fn special(&mut self, now: Instant, to: Peer, value: u8) {
        let word = (u64::from(value & 7) * 8, WordWidth::Eight);
        let function = match value >> 6 {
            0 => WordFunction::Add(1),
            1 => WordFunction::CompareSwap { expected: 3, new: u64::from(value) },
            2 => WordFunction::Swap(u64::from(value)),
            _ => WordFunction::Load,
        };
        // At a bound it is not asked: that is an answer too.
        let _ = self.fetch(now, PATH, to, word, function);
    }

    fn serve(&mut self, area: Area) {
        let served = self.serve_words(Some(area));
        debug_assert!(served.is_ok());
    }

    fn told(event: numbered::Event) -> Told {
        use numbered::Event;
        match event {
            Event::Delivered { posted, len, .. } => Told::Received { posted, len },
            Event::ReceiveFailed { posted, .. } => Told::Returned { posted },
            Event::Sent { message } => Told::Sent { key: Some(message.0) },
            Event::SendFailed { message } => Told::Failed { key: Some(message.0) },
            Event::Fetched { .. } | Event::FetchFailed { .. } => Told::Other,
        }
    }
}

impl Subject for Stream {
    const IS_STREAM: bool = true;

    fn pair(config: u8) -> [Self; 2] {
        let station =
            |n| Station { mac: [2, 0, 0, 0, 0, n], ip: Ipv4Addr::new(10, 0, 0, n), port: 7 };
        let framing = if config & 2 == 0 {
            Framing::Bare { peer: Peer::Node(1), local_port: 1, remote_port: 2 }
        } else {
            Framing::EthernetIpv4Tcp { local: station(1), remote: station(2) }
        };
        let config = stream::Config {
            window: if config & 4 == 0 { 4096 } else { 1 << 20 },
            short_head_every: 3,
            checksum: Self::has_checksum(config),
            retransmit_after: Duration::from_millis(1),
            give_up_after: if config & 8 == 0 { 6 } else { 60 },
            areas: 8,
            under_way: 16,
            islands: if config & 16 == 0 { 4 } else { 16 },
            ..stream::Config::new(framing, PATH)
        };
        let other = stream::Config { framing: framing.reversed(Peer::Node(0)), ..config };
        [Self::connect(config, [1; 32]), Self::listen(other, [2; 32])]
    }

    fn limits() -> PathLimits {
        PathLimits {
            super_unit: 1300,
            segments: 12,
            offloads: Offloads { segment_tcp4: true, ..Offloads::default() },
            ..PathLimits::plain(166)
        }
    }

    fn has_checksum(config: u8) -> bool {
        config & 3 != 1
    }

    fn post(&mut self, area: Area) -> bool {
        self.receive_into(area).is_ok()
    }

    fn submit(&mut self, _now: Instant, _to: Peer, area: Area) -> Option<u64> {
        self.send(area).ok().map(|()| 0)
    }

    fn special(&mut self, _now: Instant, _to: Peer, value: u8) {
        if value == 0 {
            self.close();
        }
    }

    fn serve(&mut self, _area: Area) {}

    fn told(event: stream::Event) -> Told {
        use stream::Event;
        match event {
            Event::Received { posted, len } => Told::Received { posted, len },
            Event::Sent { .. } => Told::Sent { key: None },
            Event::SendFailed { .. } => Told::Failed { key: None },
            Event::Failed => Told::Broken,
            Event::Connected | Event::Finished | Event::Closed => Told::Other,
        }
    }
}

/// Runs the operations that these bytes stand for: the first byte chooses
/// engine and configuration. Gives everything that was found wrong.
#[must_use]
pub fn placement_bookkeeping(bytes: &[u8]) -> Vec<alloc::string::String> {
    let Some((first, rest)) = bytes.split_first() else { return Vec::new() };
    if first & 0x80 == 0 { run::<Numbered>(*first, rest) } else { run::<Stream>(*first, rest) }
}

fn run<E: Subject>(config: u8, bytes: &[u8]) -> Vec<alloc::string::String> {
    let mut world = World::<E>::new(config);
    for operation in Operations::new(bytes) {
        world.apply(operation);
    }
    world.finish()
}
