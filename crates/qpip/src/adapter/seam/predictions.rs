//! [`Predictions`]: the tables of the offload seam, in the memory of a host; and
//! when what they say has to be said anew.

use alloc::vec::Vec;
use core::net::SocketAddr;

use landfall_placement::{PathId, Random, Spans, Unit};

use crate::adapter::links::{Link, Links};
use crate::adapter::queue_pair::{Connection, QueuePair, Role, Stream};
use crate::adapter::udp::Datagrams;
use crate::offload::{Ends, Entry, HashSecret, Hit, Incoming, Miss, Pointer, Prediction, Tables};

/// The tables of the offload seam. They grow with the queue pairs that something
/// has come for.
pub(super) struct Predictions {
    entries: Vec<Entry>,
    pointers: Vec<Pointer>,
    /// Strangers choose what entries are found by.
    secret: HashSecret,
    misses: [u64; Miss::ALL.len()],
}

/// The secret is not printed.
impl core::fmt::Debug for Predictions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Predictions").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Predictions {
    pub(super) fn new(random: &mut Random) -> Self {
        let secret = HashSecret::new(random.next_u64(), random.next_u64());
        Self { entries: Vec::new(), pointers: Vec::new(), secret, misses: [0; Miss::ALL.len()] }
    }

    #[inline]
    fn tables(&mut self) -> Tables<'_> {
        Tables::new(&mut self.entries, &mut self.pointers, self.secret)
    }

    #[inline]
    const fn count(&mut self, miss: Miss) {
        let count = &mut self.misses[miss as usize];
        *count = count.wrapping_add(1);
    }

    #[inline]
    fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    fn is_free(&self, slot: u32) -> bool {
        self.entry(slot).is_none_or(Entry::is_free)
    }

    /// Sees to it that there is room for this slot.
    fn make_room(&mut self, slot: u32) {
        let len = slot as usize + 1;
        if len <= self.entries.len() {
            return;
        }
        // A little more than needed: idle connections are many.
        let len = len + len / 8;
        self.entries.reserve_exact(len - self.entries.len());
        self.entries.resize(len, Entry::default());
        if self.pointers.len() < 2 * len {
            self.pointers = Vec::new();
            self.pointers.resize((2 * len).next_power_of_two(), Pointer::default());
            self.tables().index_anew();
        }
    }

    fn open(&mut self, slot: u32, ends: Ends, path: PathId) {
        self.make_room(slot);
        self.tables().open(slot, ends, path);
    }

    fn bind(&mut self, slot: u32, local: SocketAddr) {
        self.make_room(slot);
        self.tables().bind(slot, Ends::bound(local));
    }

    /// Nothing more comes for this queue pair.
    fn close(&mut self, slot: u32) {
        if !self.is_free(slot) {
            self.tables().close(slot);
        }
    }

    fn arm(&mut self, slot: u32, next: Option<&Prediction>) {
        match next {
            Some(next) => self.tables().arm(slot, next),
            None => self.tables().disarm(slot),
        }
    }

    /// How often a unit was left to the engine for this reason.
    pub(super) const fn misses(&self, reason: Miss) -> u64 {
        self.misses[reason as usize]
    }

    /// Is this what is expected? Nothing, where it is not known what it is: then the
    /// receive state machine looks at it.
    #[inline]
    pub(super) fn receive(
        &mut self,
        link: &Link,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Option<Hit> {
        let own = link.station()?;
        let incoming = Incoming {
            path: unit.path,
            station: own.mac,
            addresses: &own.addresses,
            likely: link.last_pair.map(|pair| pair.index),
            head: unit.head,
            len: unit.len,
        };
        match self.tables().receive(&incoming, into) {
            Ok(hit) => Some(hit),
            Err(miss) => {
                landfall_placement::trace!(?miss, "not predicted");
                self.count(miss);
                into.clear();
                None
            }
        }
    }

    /// Says what comes next for a queue pair, unless that was said already.
    ///
    /// Called whenever something happened to it that the seam did not see: what
    /// it took itself moves its prediction on, and all that is left to say then
    /// is what may be acknowledged, the latest timestamp, and the window.
    #[inline]
    pub(super) fn predict(&mut self, pair: &QueuePair, links: &Links) {
        let slot = pair.id.index;
        match &pair.role {
            Role::Stream(stream) => {
                if let Some(connection) = pair.connection() {
                    predict_segments(self, links, slot, connection, stream);
                }
            }
            Role::Datagrams(datagrams) => predict_datagrams(self, slot, datagrams),
        }
    }

    /// Nothing is expected of a queue pair, until more is said.
    pub(super) fn disarm(&mut self, slot: u32) {
        self.tables().disarm(slot);
    }

    pub(super) fn disarm_all(&mut self) {
        self.tables().disarm_all();
    }
}

#[inline]
fn predict_segments(
    predictions: &mut Predictions,
    links: &Links,
    slot: u32,
    connection: &Connection,
    stream: &Stream,
) {
    let tcb = &connection.tcb;
    let known = predictions.entry(slot).and_then(Entry::prediction);
    let is_right = known.is_some_and(|next| !next.places.is_empty() && tcb.is_on_course(next));
    if is_right {
        let (recent, edge) = (tcb.recent_stamp(), tcb.edge_number());
        return predictions.tables().refresh(slot, tcb.sent_numbers(), recent, edge);
    }
    if tcb.is_closed() {
        return predictions.close(slot);
    }
    // What every packet is asked is asked here once: is it for an address of ours
    // on its link, and from an address that is not?
    let link = links.get(connection.link()).and_then(|link| Some((link.path, link.station()?)));
    let ends = tcb.ends;
    let (local, remote) = ends.addresses();
    let link = link.filter(|(_, own)| own.has(local.ip()) && !own.has(remote.ip()));
    let next = tcb.predict(&stream.queues);
    let (Some((path, _)), Some(next)) = (link, next) else { return predictions.arm(slot, None) };
    if predictions.is_free(slot) {
        predictions.open(slot, ends, path);
    }
    predictions.arm(slot, Some(&next));
}

#[inline]
fn predict_datagrams(predictions: &mut Predictions, slot: u32, datagrams: &Datagrams) {
    let inbound = &datagrams.inbound;
    let known = predictions.entry(slot).and_then(Entry::requests);
    if known.is_some_and(|(places, course)| !places.is_empty() && course == inbound.course()) {
        return;
    }
    let Some(local) = datagrams.local else { return predictions.close(slot) };
    // Also what expects nothing is entered: a port on one address keeps what is
    // for it from one on any.
    if predictions.is_free(slot) {
        predictions.bind(slot, local);
    }
    let Some(places) = inbound.predict() else { return predictions.tables().disarm(slot) };
    predictions.tables().arm_port(slot, &places, inbound.course());
}
