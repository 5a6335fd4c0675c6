//! The programs over STP, and what its networks do.

use std::ops::Range;

use landfall::stp::{Endpoint, Faults, Memory, Part, Peer, Region, RemoteRights};
use landfall::verbs::stp::{
    CompletionQueue, MemoryKey, QueuePair, QueuePairOptions, SharedReceiveQueue,
};
use landfall::verbs::{PostError, ReceiveRequest};

use super::{Carrier, May, Reaching, Wanted, all_programs, memory, messages, model};
use crate::stp::{joined, loopback, pairs};
use crate::support::run;

pub(crate) struct Stp;

/// An endpoint, and where others reach it.
type Host = (Endpoint, Option<Peer>);

fn hosts((here, there, to_there): (Endpoint, Endpoint, Peer)) -> [Host; 2] {
    [(here, None), (there, Some(to_there))]
}

impl Carrier for Stp {
    type Host = Host;
    type Done = CompletionQueue;
    type Pair = QueuePair;
    type Part = Part;
    type Region = Region;
    type SharedRoom = SharedReceiveQueue;

    fn ways() -> Vec<(&'static str, [Host; 2])> {
        pairs().into_iter().map(|(what, all)| (what, hosts(all))).collect()
    }

    fn done(host: &Host, capacity: u32) -> CompletionQueue {
        CompletionQueue::new(&host.0, capacity).unwrap()
    }

    fn region(host: &Host, len: u64) -> Region {
        host.0.register(Memory::zeroed(len as usize)).unwrap()
    }

    fn part(region: &Region, range: Range<u64>) -> Part {
        region.part(range).unwrap()
    }

    fn copy_in(region: &Region, at: u64, bytes: &[u8]) {
        region.copy_in(at, bytes).unwrap();
    }

    fn copy_out(region: &Region, at: u64, into: &mut [u8]) {
        region.copy_out(at, into).unwrap();
    }

    fn shared(_: &Host, done: &CompletionQueue, depth: u32) -> SharedReceiveQueue {
        SharedReceiveQueue::new(done, depth)
    }

    fn post_shared(
        shared: &mut SharedReceiveQueue,
        request: &ReceiveRequest<'_, Part>,
    ) -> Result<(), PostError> {
        shared.post(request)
    }

    fn join(hosts: &[Host; 2], ends: [Wanted<'_, Self>; 2]) -> [QueuePair; 2] {
        let [(here, _), (there, to_there)] = hosts.clone();
        let (here, there) = run(joined(&(here, there, to_there.unwrap())));
        let pair = |connection, wanted: Wanted<'_, Self>| {
            let super::Limits { sends, receives, inline } = wanted.limits;
            let options = QueuePairOptions { sends, receives, inline };
            match wanted.shared {
                None => QueuePair::new(connection, wanted.done, wanted.done, &options),
                Some(room) => QueuePair::sharing(connection, wanted.done, room, &options),
            }
        };
        let [first, second] = ends;
        [pair(&here, first).unwrap(), pair(&there, second).unwrap()]
    }
}

fn rights(may: May) -> RemoteRights {
    match may {
        May::Read => RemoteRights::GET,
        May::Write => RemoteRights::PUT,
        May::All => RemoteRights::ALL,
    }
}

impl Reaching for Stp {
    type Key = MemoryKey;

    const WITHDRAWS_AT_ONCE: bool = true;

    fn region_for(host: &Host, len: u64, _: May) -> Region {
        Self::region(host, len)
    }

    fn share(pair: &mut QueuePair, region: &Region, may: May) -> MemoryKey {
        pair.share(&region.whole(), rights(may))
    }

    fn withdraw(pair: &mut QueuePair, _: &Region, key: &MemoryKey) -> Option<()> {
        pair.withdraw(key);
        Some(())
    }

    fn to_bytes(key: &MemoryKey) -> Vec<u8> {
        key.to_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<MemoryKey> {
        MemoryKey::from_bytes(bytes.try_into().unwrap())
    }

    fn forged(key: &MemoryKey) -> MemoryKey {
        let mut bytes = key.to_bytes();
        bytes[MemoryKey::LEN - 1] = 7;
        MemoryKey::from_bytes(&bytes).unwrap()
    }
}

all_programs!(Stp);

fn faulty(faults: Faults, seed: u8) -> [Host; 2] {
    let bind = |seed| Endpoint::bind(loopback().with_faults(faults, [seed; 32])).unwrap();
    let (here, there) = (bind(seed), bind(seed + 1));
    let to_there = there.local().unwrap();
    hosts((here, there, to_there))
}

#[test]
fn messages_come_in_order_whatever_the_network_does() {
    let faults =
        Faults { loss: 20_000, reordering: 100_000, duplication: 50_000, ..Faults::default() };
    messages::come_in_order::<Stp>(&faulty(faults, 1));
}

#[test]
fn a_write_is_in_place_whatever_the_network_does() {
    let faults = Faults { loss: 30_000, reordering: 200_000, ..Faults::default() };
    memory::finds_it_in_place::<Stp>(&faulty(faults, 3));
}

#[test]
fn any_requests_do_what_they_say_whatever_the_network_does() {
    for seed in 0..3 {
        let faults =
            Faults { loss: 20_000, reordering: 100_000, duplication: 50_000, ..Faults::default() };
        model::do_what_they_say::<Stp>(&faulty(faults, 5), seed, "a bad network");
    }
}
