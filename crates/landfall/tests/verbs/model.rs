//! Any requests in any order, beside a naive model: memory is bytes, and a request is done when it
//! is posted.

use std::collections::VecDeque;

use landfall::verbs::{
    AtomicRequest, Operation, QueuePair, RdmaQueuePair, RdmaRequest, ReceiveRequest, SendRequest,
    WordFunction,
};
use landfall_placement::Random;

use super::memory::rdma;
use super::{End, May, Reaching, noise, read};

/// The memory of the other side that requests are for.
const SHARED: u64 = 4096;
/// What a request has for itself of the memory that it is posted with.
const SLOT: u64 = 1024;
const SLOTS: u64 = 32;

/// What is known of a request that was posted.
struct Known {
    id: u64,
    is_signaled: bool,
    /// What is in its slot when it is done, where that shows.
    reads: Option<Vec<u8>>,
}

pub(crate) fn any_requests_do_what_they_say<C: Reaching>() {
    for seed in 0..4 {
        for (what, hosts) in C::ways() {
            do_what_they_say::<C>(&hosts, seed, what);
        }
    }
}

pub(crate) fn do_what_they_say<C: Reaching>(hosts: &[C::Host; 2], seed: u64, what: &str) {
    Model::<C>::new(hosts, seed).run(&format!("{what}, seed {seed}"));
}

struct Model<C: Reaching> {
    here: End<C>,
    there: End<C>,
    shared: C::Region,
    key: C::Key,
    random: Random,
    memory: Vec<u8>,
    posted: VecDeque<Known>,
    /// Messages under way: what comes, with its word.
    messages: VecDeque<(Vec<u8>, Option<u32>)>,
    sent: u64,
    received: u64,
}

impl<C: Reaching> Model<C> {
    fn new(hosts: &[C::Host; 2], seed: u64) -> Self {
        let [mut here, mut there] = End::<C>::both(hosts);
        let shared = C::region_for(&there.host, SHARED, May::All);
        let key = there.share(&shared, May::All, &mut here);
        let (posted, messages, memory) =
            (VecDeque::new(), VecDeque::new(), vec![0; SHARED as usize]);
        let random = Random::from_number(seed);
        let (sent, received) = (0, 0);
        Self { here, there, shared, key, random, memory, posted, messages, sent, received }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn run(mut self, what: &str) {
        for id in 0..400 {
            if self.posted.len() as u64 == SLOTS {
                self.settle(what);
            }
            self.post(id);
            if self.below(8) == 0 {
                self.settle(what);
            }
        }
        self.settle(what);
        assert!(read::<C>(&self.shared, 0, SHARED as usize) == self.memory, "{what}");
    }

    fn post(&mut self, id: u64) {
        let slot = id % SLOTS * SLOT;
        let len = self.below(SLOT);
        let at = self.below(SHARED - len);
        let place = at as usize..(at + len) as usize;
        // The last of a run completes: else nobody would know that the others are done.
        let is_signaled = self.below(3) > 0;
        let bytes = noise(id, len as usize);
        let word = (self.below(2) == 0).then_some(id as u32);
        let cut = slot + self.below(len + 1);
        let parts = |region| [C::part(region, slot..cut), C::part(region, cut..slot + len)];
        let reads = match self.below(4) {
            0 => {
                C::copy_in(&self.here.out, slot, &bytes);
                let from = parts(&self.here.out);
                let request =
                    SendRequest { is_signaled, immediate: word, ..SendRequest::new(id, &from) };
                self.here.pair.post_send(&request).unwrap();
                self.messages.push_back((bytes, word));
                None
            }
            1 => {
                C::copy_in(&self.here.out, slot, &bytes);
                let local = parts(&self.here.out);
                let write = rdma(id, &local, self.key, at);
                let write = RdmaRequest { is_signaled, immediate: word, ..write };
                self.here.pair.post_write(&write).unwrap();
                self.memory[place].copy_from_slice(&bytes);
                self.messages.extend(word.map(|word| (Vec::new(), Some(word))));
                None
            }
            2 => {
                let local = parts(&self.here.room);
                let request = RdmaRequest { is_signaled, ..rdma(id, &local, self.key, at) };
                self.here.pair.post_read(&request).unwrap();
                Some(self.memory[place].to_vec())
            }
            _ => Some(self.post_atomic(id, slot, is_signaled)),
        };
        self.posted.push_back(Known { id, is_signaled, reads });
    }

    fn post_atomic(&mut self, id: u64, slot: u64, is_signaled: bool) -> Vec<u8> {
        let at = self.below(SHARED / 8) * 8;
        let word = &mut self.memory[at as usize..at as usize + 8];
        let held = u64::from_le_bytes((&*word).try_into().unwrap());
        let function = match id % 3 {
            0 => WordFunction::Add(id),
            1 => WordFunction::CompareSwap { expected: held, new: !held },
            _ => WordFunction::Swap(id),
        };
        word.copy_from_slice(&function.apply(held).to_le_bytes());
        let (into, key) = (C::part(&self.here.room, slot..slot + 8), self.key);
        let request = AtomicRequest { id, into, key, at, function, is_signaled };
        self.here.pair.post_atomic(&request).unwrap();
        held.to_le_bytes().to_vec()
    }

    /// Finds room for all messages, and compares all that was posted.
    fn settle(&mut self, what: &str) {
        // One that completes, behind all the others.
        self.here.pair.post_inline(u64::MAX, b"last", None).unwrap();
        self.messages.push_back((b"last".to_vec(), None));
        for nth in 0..self.messages.len() as u64 {
            let (number, at) = (self.sent + nth, (self.sent + nth) % 60 * SLOT);
            let into = [C::part(&self.there.room, at..at + SLOT)];
            self.there.pair.post_receive(&ReceiveRequest { id: number, into: &into }).unwrap();
        }
        self.sent += self.messages.len() as u64;
        for Known { id, is_signaled, reads } in std::mem::take(&mut self.posted) {
            if !is_signaled {
                // Its slot is not used again before the last has completed.
                self.posted.push_back(Known { id, is_signaled, reads });
                continue;
            }
            self.here.expect(Operation::Send, id);
            self.compare(id, reads.as_deref(), what);
        }
        self.here.expect(Operation::Send, u64::MAX);
        for Known { id, reads, .. } in std::mem::take(&mut self.posted) {
            self.compare(id, reads.as_deref(), what);
        }
        for (bytes, word) in std::mem::take(&mut self.messages) {
            let came = self.there.expect(Operation::Receive, self.received);
            assert_eq!((came.len as usize, came.immediate), (bytes.len(), word), "{what}");
            let at = self.received % 60 * SLOT;
            assert!(self.there.received(at, came.len) == bytes, "{what}: {}", self.received);
            self.received += 1;
        }
    }

    fn compare(&self, id: u64, reads: Option<&[u8]>, what: &str) {
        let Some(expected) = reads else { return };
        let found = self.here.received(id % SLOTS * SLOT, expected.len() as u32);
        assert!(found == expected, "{what}: what request {id} read");
    }
}
