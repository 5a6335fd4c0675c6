//! The programs over queue pairs of QPIP, as far as those go: they reach no memory, and have no
//! messages without bytes.

use std::ops::Range;
use std::rc::Rc;

use landfall::qpip::{
    Access, Adapter, CompletionQueue, Mapping, Memory, MemoryRegion, Part, ProtectionDomain,
    QueuePair, QueuePairOptions, SharedReceiveOptions, SharedReceiveQueue,
};
use landfall::verbs::{PostError, ReceiveRequest};

use super::{Carrier, Limits, Wanted, programs};
use crate::qpip::{SERVER, at, pairs};
use crate::support::PATIENCE;

pub(crate) struct Qpip;

impl Carrier for Qpip {
    type Host = Rc<(Adapter, ProtectionDomain)>;
    type Done = CompletionQueue;
    type Pair = QueuePair;
    type Part = Part;
    type Region = MemoryRegion;
    type SharedRoom = SharedReceiveQueue;

    fn ways() -> Vec<(&'static str, [Self::Host; 2])> {
        let host = |adapter: Adapter| {
            let domain = adapter.domain().unwrap();
            Rc::new((adapter, domain))
        };
        pairs().into_iter().map(|(what, (one, two))| (what, [host(one), host(two)])).collect()
    }

    fn done(host: &Self::Host, capacity: u32) -> CompletionQueue {
        host.0.completion_queue(capacity).unwrap()
    }

    fn region(host: &Self::Host, len: u64) -> MemoryRegion {
        host.1.register(Memory::zeroed(len as usize), Access::ReadWrite).unwrap()
    }

    fn part(region: &MemoryRegion, range: Range<u64>) -> Part {
        region.part(range).unwrap()
    }

    fn copy_in(region: &MemoryRegion, at: u64, bytes: &[u8]) {
        region.copy_in(at, bytes).unwrap();
    }

    fn copy_out(region: &MemoryRegion, at: u64, into: &mut [u8]) {
        region.copy_out(at, into).unwrap();
    }

    fn shared(host: &Self::Host, done: &CompletionQueue, depth: u32) -> SharedReceiveQueue {
        let options = SharedReceiveOptions { depth, ..SharedReceiveOptions::default() };
        host.1.shared_receive_queue(&options, done).unwrap()
    }

    fn post_shared(
        shared: &mut SharedReceiveQueue,
        request: &ReceiveRequest<'_, Part>,
    ) -> Result<(), PostError> {
        shared.post(request.id, request.into)
    }

    fn join(hosts: &[Self::Host; 2], ends: [Wanted<'_, Self>; 2]) -> [QueuePair; 2] {
        let pair = |host: &Self::Host, wanted: &Wanted<'_, Self>| {
            let Limits { sends, receives, inline } = wanted.limits;
            let options = QueuePairOptions {
                send_depth: sends,
                receive_depth: receives,
                inline: inline.try_into().unwrap(),
                ..QueuePairOptions::tcp(Mapping::Message)
            };
            let queues = (wanted.done, wanted.done);
            match wanted.shared {
                None => host.1.queue_pair(&options, wanted.done, wanted.done).unwrap(),
                Some(room) => host.1.queue_pair_sharing(&options, queues, room).unwrap(),
            }
        };
        let (here, there) = (pair(&hosts[0], &ends[0]), pair(&hosts[1], &ends[1]));
        let listener = hosts[1].0.listen(at(SERVER)).expect("a free port");
        listener.offer(there).expect("it is idle");
        here.connect(at(SERVER)).wait_for(PATIENCE).expect("in time").expect("connected");
        let there = listener.accept().wait_for(PATIENCE).expect("in time").expect("accepted");
        [here, there]
    }
}

programs! { Qpip:
    messages: a_program_for_verbs_runs a_list_is_posted_whole_or_says_how_far
        silent_sends_take_no_place inline_bytes_are_yours_again_at_once
        a_descriptor_becomes_readable_when_something_completes many_queue_pairs_share_room
        ends_that_sleep_wake_each_other;
    endings: a_full_completion_queue_is_told;
}
