//! Programs for verbs, which run over each carrier of them.

mod endings;
mod memory;
mod messages;
mod model;
mod over_clan;
mod over_qpip;
mod over_stp;
mod processes;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use landfall::verbs::{
    Completion, CompletionQueue, Operation, PostError, QueuePair, RdmaQueuePair, ReceiveRequest,
    SendRequest, Status,
};
use landfall_transport::driver::Interest;
use landfall_transport::wait::until_ready;

use crate::support::PATIENCE;
pub(crate) use crate::support::noise;

/// How much memory an end has each way.
pub(crate) const LEN: u64 = 1 << 16;

/// What carries queue pairs: how they, their queues and their memory are made.
pub(crate) trait Carrier: Sized + 'static {
    type Host: Clone;
    type Done: CompletionQueue<Error: Debug>;
    type Pair: QueuePair<Part = Self::Part>;
    type Part: Clone;
    type Region;
    type SharedRoom;

    /// Two hosts that reach each other, each way that needs no privileges.
    fn ways() -> Vec<(&'static str, [Self::Host; 2])>;
    fn done(host: &Self::Host, capacity: u32) -> Self::Done;
    /// Memory of which messages are sent, and into which they come.
    fn region(host: &Self::Host, len: u64) -> Self::Region;
    fn part(region: &Self::Region, range: Range<u64>) -> Self::Part;
    fn copy_in(region: &Self::Region, at: u64, bytes: &[u8]);
    fn copy_out(region: &Self::Region, at: u64, into: &mut [u8]);
    fn shared(host: &Self::Host, done: &Self::Done, depth: u32) -> Self::SharedRoom;
    fn post_shared(
        shared: &mut Self::SharedRoom,
        request: &ReceiveRequest<'_, Self::Part>,
    ) -> Result<(), PostError>;
    /// Both ends of a queue pair.
    fn join(hosts: &[Self::Host; 2], ends: [Wanted<'_, Self>; 2]) -> [Self::Pair; 2];
}

/// What the other side may do with memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum May {
    Read,
    Write,
    All,
}

/// One whose queue pairs reach memory of the other side.
pub(crate) trait Reaching: Carrier<Pair: RdmaQueuePair<Key = Self::Key>> {
    type Key: Copy + Debug + PartialEq;

    /// Is a withdrawal known to the other side when its call returns?
    const WITHDRAWS_AT_ONCE: bool;

    fn region_for(host: &Self::Host, len: u64, may: May) -> Self::Region;
    fn share(pair: &mut Self::Pair, region: &Self::Region, may: May) -> Self::Key;
    /// Nothing: peers are not told apart here.
    fn withdraw(pair: &mut Self::Pair, region: &Self::Region, key: &Self::Key) -> Option<()>;
    fn to_bytes(key: &Self::Key) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Option<Self::Key>;
    /// One that says that all may be done.
    fn forged(key: &Self::Key) -> Self::Key;
}

/// What an end is to be like.
pub(crate) struct Wanted<'a, C: Carrier> {
    pub(crate) done: &'a C::Done,
    pub(crate) shared: Option<&'a C::SharedRoom>,
    pub(crate) limits: Limits,
}

#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) inline: usize,
}

pub(crate) const LIMITS: Limits = Limits { sends: 128, receives: 128, inline: 1024 };

/// One side of a queue pair, with memory to send from and to receive into.
pub(crate) struct End<C: Carrier> {
    pub(crate) host: C::Host,
    pub(crate) done: C::Done,
    pub(crate) pair: C::Pair,
    pub(crate) out: C::Region,
    pub(crate) room: C::Region,
    /// Completions of the other queue that came first: each queue has its order, but the two
    /// have none between them.
    aside: VecDeque<Completion>,
}

impl<C: Carrier> End<C> {
    pub(crate) fn of(host: &C::Host, done: C::Done, pair: C::Pair) -> Self {
        let region = || C::region(host, LEN);
        let (out, room, host, aside) = (region(), region(), host.clone(), VecDeque::new());
        Self { host, done, pair, out, room, aside }
    }

    /// Both ends of a queue pair.
    pub(crate) fn both(hosts: &[C::Host; 2]) -> [Self; 2] {
        Self::both_with(hosts, LIMITS, 1024)
    }

    /// The same, of which the first is like this.
    pub(crate) fn both_with(hosts: &[C::Host; 2], limits: Limits, capacity: u32) -> [Self; 2] {
        let dones = [C::done(&hosts[0], capacity), C::done(&hosts[1], 1024)];
        let wanted = |nth: usize, limits| Wanted { done: &dones[nth], shared: None, limits };
        let [here, there] = C::join(hosts, [wanted(0, limits), wanted(1, LIMITS)]);
        let [of_here, of_there] = dones;
        [Self::of(&hosts[0], of_here, here), Self::of(&hosts[1], of_there, there)]
    }

    /// Some of the memory that is sent from, with these bytes in it.
    pub(crate) fn fill(&self, at: u64, bytes: &[u8]) -> C::Part {
        C::copy_in(&self.out, at, bytes);
        C::part(&self.out, at..at + bytes.len() as u64)
    }

    pub(crate) fn post(&mut self, id: u64, at: u64, bytes: &[u8]) {
        let from = [self.fill(at, bytes)];
        self.pair.post_send(&SendRequest::new(id, &from)).unwrap();
    }

    pub(crate) fn post_room(&mut self, id: u64, range: Range<u64>) {
        let into = [C::part(&self.room, range)];
        self.pair.post_receive(&ReceiveRequest { id, into: &into }).unwrap();
    }

    pub(crate) fn received(&self, at: u64, len: u32) -> Vec<u8> {
        read::<C>(&self.room, at, len as usize)
    }

    /// The next completion, whatever of.
    pub(crate) fn next(&mut self) -> Completion {
        let aside = self.aside.pop_front();
        aside.unwrap_or_else(|| next(&mut self.done))
    }

    pub(crate) fn expect_any(&mut self, operation: Operation) -> Completion {
        let found = self.aside.iter().position(|other| other.operation == operation);
        let mut found = found.and_then(|at| self.aside.remove(at));
        while found.is_none() {
            let next = next(&mut self.done);
            match next.operation == operation {
                true => found = Some(next),
                false => self.aside.push_back(next),
            }
        }
        let found = found.unwrap();
        assert_eq!(found.status, Status::Success, "{found:?}");
        found
    }

    pub(crate) fn expect(&mut self, operation: Operation, id: u64) -> Completion {
        let found = self.expect_any(operation);
        assert_eq!(found.id, id, "{found:?}");
        found
    }
}

impl<C: Reaching> End<C> {
    /// Shares memory, by a message.
    pub(crate) fn share(&mut self, region: &C::Region, may: May, with: &mut Self) -> C::Key {
        let bytes = C::to_bytes(&C::share(&mut self.pair, region, may));
        self.pair.post_inline(u64::MAX, &bytes, None).unwrap();
        with.post_room(u64::MAX, 0..bytes.len() as u64);
        let came = with.expect(Operation::Receive, u64::MAX);
        self.expect(Operation::Send, u64::MAX);
        C::from_bytes(&with.received(0, came.len)).expect("a key")
    }
}

pub(crate) fn read<C: Carrier>(region: &C::Region, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    C::copy_out(region, at, &mut bytes);
    bytes
}

pub(crate) fn next<D: CompletionQueue<Error: Debug>>(done: &mut D) -> Completion {
    done.wait_for(PATIENCE).expect("it runs").expect("it takes far too long")
}

/// Sleeps at the descriptor of a queue, as `epoll` would.
pub(crate) fn sleep_at(done: &impl AsFd, limit: Duration) -> bool {
    let fd = done.as_fd().as_raw_fd();
    until_ready(&[Interest { fd, readable: true, writable: false }], limit).expect("ppoll")
}

/// These programs, as tests over one carrier.
macro_rules! programs {
    ($carrier:ty: $($module:ident: $($program:ident)+;)+) => {
        $($(
            #[test]
            fn $program() {
                crate::verbs::$module::$program::<$carrier>();
            }
        )+)+
    };
}
pub(crate) use programs;

/// All of them.
macro_rules! all_programs {
    ($carrier:ty) => {
        crate::verbs::programs! { $carrier:
            messages: a_program_for_verbs_runs messages_come_in_order
                a_list_is_posted_whole_or_says_how_far silent_sends_take_no_place
                inline_bytes_are_yours_again_at_once
                a_descriptor_becomes_readable_when_something_completes
                many_queue_pairs_share_room
                ends_that_sleep_wake_each_other;
            memory: memory_of_the_other_side_is_written_read_and_counted_in
                a_message_behind_a_write_finds_it_in_place
                memory_is_refused_that_was_not_shared_or_not_for_that
                memory_that_was_withdrawn_is_refused;
            endings: a_message_that_is_too_long_is_told_at_both_ends
                queues_that_are_full_refuse_and_a_peer_that_goes_flushes
                a_full_completion_queue_is_told;
            model: any_requests_do_what_they_say;
        }
    };
}
pub(crate) use all_programs;
