//! Work requests: entries of one size in a ring in the host's memory, a doorbell for
//! each batch of them (what an order needs), and the place in SRAM that they are fetched to.

use arrayvec::ArrayVec;
use landfall_placement::Instant;

use super::ring::Ring;
use super::ring::Store;

/// An entry of the ring; what it says is between driver and firmware.
pub type Request = [u8; 32];

/// What belongs to one order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The queue pair; of a frame to be sent, which names it itself, zero.
    pub pair: u32,
    /// Its requests, in order.
    pub requests: ArrayVec<Request, { Self::MOST }>,
}

impl Batch {
    /// The most requests of one order.
    pub const MOST: usize = 8;
}

/// Where in the ring the requests of an order begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    pub(super) first: u64,
    end: u64,
}

/// The host has put this many requests into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell {
    /// The queue pair.
    pub pair: u32,
    /// How many requests.
    pub count: u16,
    /// This many had been put there before.
    pub(super) first: u64,
}

/// How far the requests of the command are that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchState {
    /// Nobody asked for them.
    Waiting,
    /// They are in SRAM at that moment.
    Moving(Instant, Bell),
    /// This many are in SRAM.
    Here(u16),
    /// Their doorbell was lost.
    Lost,
}

/// The ring, its doorbells, and what is fetched of it.
#[derive(Debug)]
pub struct Requests<'s> {
    /// In the host's memory.
    ring: Store<'s, Request>,
    /// In SRAM.
    fetched: ArrayVec<Request, { Batch::MOST }>,
    bells: Doorbells<'s, Bell>,
    /// This many were put into the ring, and are not needed there any more.
    put: u64,
    done: u64,
    stand: FetchState,
}

impl<'s> Requests<'s> {
    /// An empty ring in this memory of the host, and a FIFO in this of the adapter.
    #[must_use]
    pub fn new(
        ring: impl Into<Store<'s, Request>>,
        bells: impl Into<Store<'s, Option<Bell>>>,
    ) -> Self {
        Self {
            ring: ring.into(),
            fetched: ArrayVec::new(),
            bells: Doorbells::new(bells),
            put: 0,
            done: 0,
            stand: FetchState::Waiting,
        }
    }

    /// This many requests and doorbells, in memory of its own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(requests: usize, bells: usize) -> Self {
        let requests = requests.max(Batch::MOST);
        Self::new(Store::filled_with(requests, || [0; 32]), Store::filled_with(bells, || None))
    }

    /// Doorbells that found no room.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.bells.lost()
    }

    /// Is there room for all that one order may need?
    #[must_use]
    pub fn has_room(&self) -> bool {
        let used = (self.put - self.done) as usize;
        self.ring.len().saturating_sub(used) >= Batch::MOST
    }

    /// Would a doorbell find room, too? Commands do not ask: what is lost is posted anew.
    /// A frame whose doorbell is lost would be lost with it.
    #[must_use]
    pub fn has_room_to_ring(&self) -> bool {
        self.has_room() && self.bells.room() > 0
    }

    // ---- The host ------------------------------------------------------------

    /// Puts a batch into the ring, and rings. Says where it lies; nothing where it is
    /// empty.
    pub(super) fn post(&mut self, batch: &Batch) -> Option<Posted> {
        if batch.requests.is_empty() {
            return None;
        }
        let first = self.put;
        for request in &batch.requests {
            if let Some(place) = place_of(self.put, self.ring.len())
                && let Some(place) = self.ring.get_mut(place)
            {
                *place = *request;
            }
            self.put += 1;
        }
        let count = batch.requests.len() as u16;
        // What is lost the firmware misses, and says so.
        self.bells.ring(Bell { pair: batch.pair, count, first });
        Some(Posted { first, end: self.put })
    }

    // ---- The adapter ---------------------------------------------------------

    /// The doorbell of the batch that begins there, where nobody has taken it yet.
    pub(super) fn answer(&mut self, first: u64) -> Option<Bell> {
        while let Some(bell) = self.bells.front().filter(|bell| bell.first <= first) {
            self.bells.take();
            if bell.first == first {
                return Some(bell);
            }
        }
        self.stand = FetchState::Lost;
        None
    }

    /// Did nobody ask for the next ones yet?
    pub(super) fn is_waiting(&self) -> bool {
        self.stand == FetchState::Waiting
    }

    /// Are they here, or will never be?
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.stand, FetchState::Here(_) | FetchState::Lost)
    }

    /// A DMA engine moves these, until then.
    pub(super) fn begin(&mut self, bell: Bell, until: Instant) {
        self.stand = FetchState::Moving(until, bell);
    }

    /// When those that are moved are here.
    pub(super) fn next_to_land(&self) -> Option<Instant> {
        match self.stand {
            FetchState::Moving(until, _) => Some(until),
            _ => None,
        }
    }

    /// They are here.
    pub(super) fn land(&mut self) {
        let FetchState::Moving(_, bell) = self.stand else { return };
        self.fetched.clear();
        for nth in 0..u64::from(bell.count) {
            let place = place_of(bell.first + nth, self.ring.len());
            let Some(request) = place.and_then(|place| self.ring.get(place)) else { break };
            if self.fetched.try_push(*request).is_err() {
                break;
            }
        }
        self.stand = FetchState::Here(bell.count);
    }

    /// What was fetched; nothing where the doorbell was lost.
    pub(super) fn fetched(&self) -> Option<&[Request]> {
        match self.stand {
            FetchState::Here(count) => self.fetched.get(..usize::from(count)),
            _ => None,
        }
    }

    /// The order whose batch this is was obeyed.
    pub(super) fn finish(&mut self, posted: Posted) {
        self.done = self.done.max(posted.end.min(self.put));
        self.stand = FetchState::Waiting;
    }

    /// All is forgotten.
    pub(super) fn clear(&mut self) {
        self.bells.clear();
        self.done = self.put;
        self.stand = FetchState::Waiting;
    }
}

fn place_of(nth: u64, len: usize) -> Option<usize> {
    nth.checked_rem(len as u64).map(|place| place as usize)
}

/// A FIFO of doorbells. What finds it full is lost, and counted: the host must
/// not ring more often than there is room.
#[derive(Debug)]
pub struct Doorbells<'s, T> {
    fifo: Ring<'s, T>,
    lost: u64,
}

impl<'s, T: Copy> Doorbells<'s, T> {
    /// An empty FIFO in this storage.
    #[must_use]
    pub fn new(places: impl Into<Store<'s, Option<T>>>) -> Self {
        Self { fifo: Ring::new(places), lost: 0 }
    }

    /// An empty FIFO for this many, in memory of its own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(capacity: usize) -> Self {
        Self { fifo: Ring::owned(capacity), lost: 0 }
    }

    /// The host rings. False where that is lost.
    pub fn ring(&mut self, bell: T) -> bool {
        let fits = self.fifo.push(bell);
        self.lost += u64::from(!fits);
        fits
    }

    /// The oldest, taken by the firmware.
    pub fn take(&mut self) -> Option<T> {
        self.fifo.pop()
    }

    /// The oldest.
    #[must_use]
    pub fn front(&self) -> Option<T> {
        self.fifo.front().copied()
    }

    /// For how many there is room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.fifo.room()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.fifo.len()
    }

    /// How many were lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Forgets those that wait.
    pub fn clear(&mut self) {
        self.fifo.clear();
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    fn batch(name: u8, count: usize) -> Batch {
        Batch { pair: 1, requests: (0..count).map(|_| [name; 32]).collect() }
    }

    #[test]
    fn requests_are_fetched_batch_by_batch_and_make_room() {
        let mut requests = Requests::owned(10, 2);
        for turn in 0..20 {
            assert!(requests.has_room());
            let posted = requests.post(&batch(turn, 3)).unwrap();
            assert!(!requests.has_room(), "seven places are left");
            let bell = requests.answer(posted.first).unwrap();
            assert_eq!((bell.pair, bell.count), (1, 3));
            requests.begin(bell, Instant::ZERO);
            assert_eq!((requests.fetched(), requests.is_ready()), (None, false));
            requests.land();
            assert_eq!(requests.fetched(), Some(&[[turn; 32]; 3][..]));
            requests.finish(posted);
        }
    }

    #[test]
    fn a_batch_whose_doorbell_was_lost_is_passed_over() {
        let mut requests = Requests::owned(32, 1);
        assert_eq!(requests.post(&batch(1, 0)), None, "nothing is posted");
        let one = requests.post(&batch(1, 2)).unwrap();
        assert!(requests.has_room() && !requests.has_room_to_ring());
        let other = requests.post(&batch(2, 2)).unwrap();
        let bell = requests.answer(one.first).unwrap();
        requests.begin(bell, Instant::ZERO);
        requests.land();
        requests.finish(one);
        assert_eq!(requests.answer(other.first), None);
        assert_eq!((requests.fetched(), requests.is_ready(), requests.lost()), (None, true, 1));
        requests.finish(other);
        let third = requests.post(&batch(3, 1)).unwrap();
        assert!(requests.answer(third.first).is_some(), "the next one is as it should be");
    }

    #[test]
    fn what_finds_it_full_is_lost_and_counted() {
        let mut bells = Doorbells::owned(2);
        assert!(bells.ring(1) && bells.ring(2) && !bells.ring(3));
        assert_eq!((bells.waiting(), bells.lost()), (2, 1));
        assert_eq!((bells.take(), bells.take(), bells.take()), (Some(1), Some(2), None));
    }
}
