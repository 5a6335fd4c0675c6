//! The paper's ring, written down as plainly as can be: the oracle of the engine's
//! receiver with the paper's predictor.

use std::time::Duration;

use landfall_placement::Instant;

use super::super::trace::{Arrival, Headers, Host};

/// The pieces of a page.
const PIECES: u16 = 3;
/// The bytes of all pieces but the last, as they count in the offset.
const PIECE: u16 = 1480;

/// A ring of descriptors for three pieces, one after the other, of whatever packet.
#[derive(Default)]
struct Ring {
    /// The piece that each host sends next.
    next: [u16; 3],
    /// The host that was heard last: its next piece is guessed.
    last: Host,
    /// The packet whose pieces lie in the page, up to the one that is guessed.
    page: Option<(Host, u16)>,
    /// Since the ring was loaded, something landed where it does not belong.
    is_displaced: bool,
    /// So many frames will be looked at together.
    left: u16,
    successful: u64,
}

impl Ring {
    /// The driver looks, and loads the ring: for the rest of the packet in the page, or
    /// for a new one. The rest of a packet that is not there is waited for one by one.
    fn load(&mut self) {
        let next = self.next[usize::from(self.last)];
        let is_begun = self.page.is_some_and(|(host, _)| host == self.last);
        self.left = if next == 0 || is_begun { PIECES - next } else { 1 };
        self.is_displaced = next > 0 && !is_begun;
    }

    fn land(&mut self, arrival: &Arrival) {
        if self.left == 0 {
            self.load();
        }
        self.left -= 1;
        let Some(headers) = Headers::read(arrival.head()).filter(Headers::is_fragment) else {
            (self.page, self.is_displaced) = (None, true);
            return;
        };
        let guessed = self.next[usize::from(self.last)];
        let Headers { from, id, more, .. } = headers;
        let index = headers.offset / PIECE;
        let belongs = index == guessed && (index == 0 || self.page == Some((from, id)));
        self.page = (belongs && !self.is_displaced).then_some((from, id));
        self.is_displaced |= self.page.is_none();
        self.next[usize::from(from)] = if more { index + 1 } else { 0 };
        self.last = from;
        if !more && self.page.take().is_some() {
            self.successful += 1;
        }
    }
}

/// How many packets land in their page.
pub(super) fn successful(arrivals: &[Arrival], silence: Duration) -> u64 {
    let (mut ring, mut last) = (Ring::default(), Instant::ZERO);
    for arrival in arrivals {
        if arrival.at.since(last) > silence {
            ring.left = 0;
        }
        last = arrival.at;
        ring.land(arrival);
    }
    ring.successful
}
