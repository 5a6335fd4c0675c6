//! The programs over CLAN's memory, between processes and between threads.

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use landfall::clan::shared::SharedNode;
use landfall::clan::{Cookie, Rights, Threads};
use landfall::verbs::clan::{
    Address, CompletionQueue, Half, MemoryKey, Part, QueuePair, QueuePairOptions, Region,
    SharedReceiveQueue,
};
use landfall::verbs::{PostError, ReceiveRequest};
use landfall_testkit::TemporaryFolder;

use super::{Carrier, May, Reaching, Wanted, all_programs};
use crate::clan::shared_pair;

/// Over the memory of nodes of this kind.
pub(crate) struct Clan<F>(PhantomData<F>);

macro_rules! over_clan {
    ($node:ty, $what:literal, $tells_apart:literal, $pair:expr) => {
        impl Carrier for Clan<$node> {
            type Host = ($node, Option<Rc<TemporaryFolder>>);
            type Done = CompletionQueue;
            type Pair = QueuePair<$node>;
            type Part = Part<$node>;
            type Region = Region<$node>;
            type SharedRoom = SharedReceiveQueue<$node>;

            fn ways() -> Vec<(&'static str, [Self::Host; 2])> {
                let (folder, here, there) = $pair;
                vec![($what, [(here, folder.clone()), (there, folder)])]
            }

            fn done(_: &Self::Host, capacity: u32) -> CompletionQueue {
                CompletionQueue::new(capacity).unwrap()
            }

            fn region(host: &Self::Host, len: u64) -> Self::Region {
                Region::new(&host.0, len, Rights::Write).unwrap()
            }

            fn part(region: &Self::Region, range: Range<u64>) -> Self::Part {
                region.part(range).unwrap()
            }

            fn copy_in(region: &Self::Region, at: u64, bytes: &[u8]) {
                region.copy_in(at, bytes).unwrap();
            }

            fn copy_out(region: &Self::Region, at: u64, into: &mut [u8]) {
                region.copy_out(at, into).unwrap();
            }

            fn shared(_: &Self::Host, done: &CompletionQueue, depth: u32) -> Self::SharedRoom {
                SharedReceiveQueue::new(done, depth)
            }

            fn post_shared(
                shared: &mut Self::SharedRoom,
                request: &ReceiveRequest<'_, Self::Part>,
            ) -> Result<(), PostError> {
                shared.post(request)
            }

            fn join(hosts: &[Self::Host; 2], ends: [Wanted<'_, Self>; 2]) -> [Self::Pair; 2] {
                let [first, second] = ends;
                let half = |host: &Self::Host, wanted: Wanted<'_, Self>| -> Half<$node> {
                    let super::Limits { sends, receives, inline } = wanted.limits;
                    let options = QueuePairOptions { sends, receives, inline };
                    let half = match wanted.shared {
                        None => QueuePair::open(&host.0, wanted.done, wanted.done, &options),
                        Some(room) => QueuePair::open_sharing(&host.0, wanted.done, room, &options),
                    };
                    half.unwrap()
                };
                let (here, there) = (half(&hosts[0], first), half(&hosts[1], second));
                let through_bytes =
                    |address: Address| Address::from_bytes(&address.to_bytes()).unwrap();
                let (to_here, to_there) =
                    (through_bytes(here.address()), through_bytes(there.address()));
                [here.connect(&to_there).unwrap(), there.connect(&to_here).unwrap()]
            }
        }

        impl Reaching for Clan<$node> {
            type Key = MemoryKey;

            const WITHDRAWS_AT_ONCE: bool = false;

            fn region_for(host: &Self::Host, len: u64, may: May) -> Self::Region {
                let rights = match may {
                    May::Read => Rights::Read,
                    May::Write => Rights::Write,
                    May::All => Rights::ReadWrite,
                };
                Region::new(&host.0, len, rights).unwrap()
            }

            fn share(pair: &mut Self::Pair, region: &Self::Region, _: May) -> MemoryKey {
                pair.share(region).unwrap()
            }

            fn withdraw(pair: &mut Self::Pair, region: &Self::Region, _: &MemoryKey) -> Option<()> {
                let withdrawn = pair.withdraw(region);
                assert_eq!(withdrawn.is_ok(), $tells_apart, "{withdrawn:?}");
                withdrawn.ok()
            }

            fn to_bytes(key: &MemoryKey) -> Vec<u8> {
                key.to_bytes().to_vec()
            }

            fn from_bytes(bytes: &[u8]) -> Option<MemoryKey> {
                MemoryKey::from_bytes(bytes.try_into().unwrap())
            }

            fn forged(key: &MemoryKey) -> MemoryKey {
                let known = Cookie::from_bytes(&key.to_bytes()).unwrap();
                let (host, slot, key) = (known.host(), known.slot(), known.key());
                let forged = Cookie::new(host, slot, Rights::ReadWrite, key, known.len());
                MemoryKey::from_bytes(&forged.to_bytes()).unwrap()
            }
        }
    };
}

over_clan!(SharedNode, "shared memory", true, {
    let (folder, (here, there)) = shared_pair();
    (Some(Rc::new(folder)), here, there)
});
over_clan!(Threads, "threads", false, {
    let (here, there) = Threads::pair().unwrap();
    (None, here, there)
});

all_programs!(Clan<SharedNode>);

mod between_threads {
    use super::{Clan, Threads, all_programs};

    all_programs!(Clan<Threads>);
}
