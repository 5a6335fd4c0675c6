//! Work requests as the driver writes them and the firmware reads them, and the
//! translation of their virtual addresses.
//!
//! The driver puts the places of a command into the ring: a request for each, with a
//! virtual address and the place of the table that translates it. What no place of
//! the table translates it maps first, by an entry in the same ring, over the mapping
//! that is oldest. Nothing refers to a mapping once its request was read: what is
//! predicted is translated.

use landfall_placement::{RegionId, Span};
use qpip::offload::Places;

use crate::machine::{Batch, Request, Store};

/// The bytes of a page.
pub(super) const PAGE: u64 = 4_096;
/// Of a request: no place of the table translates it.
const NOWHERE: u16 = u16::MAX;

/// Pages of one registered memory, and where they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The memory, as the host names it.
    key: u32,
    /// From here on, as the host counts,
    from: u64,
    /// this many pages; none: nothing is mapped.
    pages: u32,
    /// Where they lie.
    region: (u32, u32),
    at: u64,
}

impl Mapping {
    /// The pages that a span touches.
    fn of(span: Span) -> Self {
        let from = span.offset / PAGE * PAGE;
        let len = (span.offset - from).saturating_add(u64::from(span.len));
        let pages = u32::try_from(len.div_ceil(PAGE)).unwrap_or(u32::MAX);
        let RegionId { index, generation } = span.region;
        Self { key: index, from, pages, region: (index, generation), at: from }
    }

    /// Where this many bytes of a virtual address lie.
    fn translate(&self, key: u32, address: u64, len: u32) -> Option<Span> {
        let inside = address.checked_sub(self.from).filter(|_| key == self.key)?;
        let end = inside.checked_add(u64::from(len))?;
        let is_mapped = end <= u64::from(self.pages) * PAGE;
        let region = RegionId::new(self.region.0, self.region.1);
        is_mapped.then_some(region.span(self.at.checked_add(inside)?, len))
    }

    /// Does it lead a span to itself?
    fn covers(&self, span: Span) -> bool {
        self.translate(span.region.index, span.offset, span.len) == Some(span)
    }
}

/// What a request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostRequest {
    /// Translate like this from now on.
    Map { place: u16, mapping: Mapping },
    /// Bytes that are posted.
    Bytes { place: u16, key: u32, address: u64, len: u32, ends_request: bool },
}

fn word(request: &Request, at: usize) -> u32 {
    let bytes = request.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(request: &Request, at: usize) -> u64 {
    u64::from(word(request, at)) | u64::from(word(request, at + 4)) << 32
}

/// Eight words.
fn request_of(words: [u32; 8]) -> Request {
    let mut request = [0; 32];
    for (bytes, word) in request.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    request
}

impl HostRequest {
    pub(super) fn write(&self) -> Request {
        let low = |long: u64| long as u32;
        let high = |long: u64| (long >> 32) as u32;
        match *self {
            Self::Map { place, mapping: Mapping { key, from, pages, region, at } } => {
                let kind = 1 | u32::from(place) << 16;
                // The key is the number of the memory; how often it was given out is the rest.
                let [from, at] = [[low(from), high(from)], [low(at), high(at)]];
                request_of([kind, key, pages, region.1, from[0], from[1], at[0], at[1]])
            }
            Self::Bytes { place, key, address, len, ends_request } => {
                let kind = 2 | u32::from(ends_request) << 8 | u32::from(place) << 16;
                request_of([kind, key, len, 0, low(address), high(address), 0, 0])
            }
        }
    }

    /// Nothing where it is no request.
    pub(super) fn read(request: &Request) -> Option<Self> {
        let (kind, key) = (word(request, 0), word(request, 4));
        let place = (kind >> 16) as u16;
        match kind & 0xff {
            1 => {
                let (pages, region) = (word(request, 8), (key, word(request, 12)));
                let (from, at) = (long(request, 16), long(request, 24));
                Some(Self::Map { place, mapping: Mapping { key, from, pages, region, at } })
            }
            2 => {
                let ends_request = kind >> 8 & 1 > 0;
                let (len, address) = (word(request, 8), long(request, 16));
                Some(Self::Bytes { place, key, address, len, ends_request })
            }
            _ => None,
        }
    }
}

/// The driver's half: what it had mapped.
#[derive(Debug)]
pub(super) struct Mapped<'s> {
    known: Store<'s, Mapping>,
    /// The oldest.
    next: u16,
}

impl<'s> Mapped<'s> {
    pub(super) const fn new(known: Store<'s, Mapping>) -> Self {
        Self { known, next: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.known.fill(Mapping::default());
        self.next = 0;
    }

    /// Nothing that lies in this memory is mapped any more.
    pub(super) fn forget(&mut self, region: RegionId) {
        forget(&mut self.known, region);
    }

    /// Writes requests for these places.
    pub(super) fn post(&mut self, places: &Places, batch: &mut Batch) {
        // Each maps at most one, and there is room for both of each.
        for (span, ends_request) in places.iter() {
            let place = self.place_of(span, batch);
            let (key, address, len) = (span.region.index, span.offset, span.len);
            let said = HostRequest::Bytes { place, key, address, len, ends_request };
            let _ = batch.requests.try_push(said.write());
        }
    }

    /// Writes requests for the payload of a frame. Nothing where it lies in more pieces
    /// than a batch has room for, or no table translates any: then the card is told with
    /// the frame.
    pub(super) fn post_send(&mut self, from: &[Span], batch: &mut Batch) {
        if self.known.is_empty() || from.len() * 2 > Batch::MOST {
            return;
        }
        let mut places = Places::new();
        let is_all = from.iter().all(|span| places.push(*span, false));
        if is_all {
            self.post(&places, batch);
        }
    }

    /// The place of the table that translates this.
    fn place_of(&mut self, span: Span, batch: &mut Batch) -> u16 {
        let known = self.known.iter().position(|mapping| mapping.covers(span));
        if let Some(place) = known {
            return place as u16;
        }
        let place = self.next;
        let Some(known) = self.known.get_mut(usize::from(place)) else { return NOWHERE };
        let mapping = Mapping::of(span);
        *known = mapping;
        let _ = batch.requests.try_push(HostRequest::Map { place, mapping }.write());
        let is_last = usize::from(place) + 1 >= self.known.len();
        self.next = if is_last { 0 } else { place + 1 };
        place
    }
}

fn forget(all: &mut [Mapping], RegionId { index, generation }: RegionId) {
    for mapping in all.iter_mut().filter(|mapping| mapping.region == (index, generation)) {
        *mapping = Mapping::default();
    }
}

/// Why a request is not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untranslated {
    /// It did not come, or is not mapped now: it may be, when it is posted again.
    Missed,
    /// There is no room for the mapping.
    Nowhere,
}

/// The card's half: reads requests, in their order.
pub(super) fn read(table: &mut [Mapping], requests: &[Request]) -> Result<Places, Untranslated> {
    let mut places = Places::new();
    let mut wrong = None;
    for request in requests {
        match HostRequest::read(request).ok_or(Untranslated::Missed)? {
            // What comes behind a request that is wrong is mapped all the same: the
            // driver counts on it.
            HostRequest::Map { place, mapping } => {
                if let Some(known) = table.get_mut(usize::from(place)) {
                    *known = mapping;
                }
            }
            HostRequest::Bytes { place: NOWHERE, .. } => wrong = Some(Untranslated::Nowhere),
            HostRequest::Bytes { place, key, address, len, ends_request } => {
                let mapping = table.get(usize::from(place));
                match mapping.and_then(|mapping| mapping.translate(key, address, len)) {
                    Some(span) if places.push(span, ends_request) => {}
                    _ => wrong = wrong.or(Some(Untranslated::Missed)),
                }
            }
        }
    }
    wrong.map_or(Ok(places), Err)
}

/// The card's half of [`Mapped::forget`].
pub(super) fn unmap(table: &mut [Mapping], region: RegionId) {
    forget(table, region);
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    fn places(at: u64) -> Places {
        let mut places = Places::new();
        places.push(RegionId::new(3, 7).span(at, 5_000), false);
        places.push(RegionId::new(3, 7).span(at + (1 << 40), 100), true);
        places
    }

    #[test]
    fn what_is_posted_is_read_and_translated() {
        let mut table = [Mapping::default(); 2];
        let mut mapped = Mapped::new(Store::filled_with(2, Mapping::default));
        for (at, expected) in [(1, 4), (3, 2), (90_000, 4), (1, 4)] {
            let mut batch = Batch::default();
            mapped.post(&places(at), &mut batch);
            assert_eq!(batch.requests.len(), expected, "what is mapped is not mapped again");
            assert_eq!(read(&mut table, &batch.requests), Ok(places(at)));
        }
    }

    #[test]
    fn what_is_not_mapped_is_not_translated() {
        let mut table = [Mapping::default(); 2];
        let mut mapped = Mapped::new(Store::filled_with(2, Mapping::default));
        let mut batch = Batch::default();
        mapped.post(&places(1), &mut batch);
        read(&mut table, &batch.requests).unwrap();
        let mut again = Batch::default();
        mapped.post(&places(1), &mut again);
        unmap(&mut table, RegionId::new(3, 8));
        assert_eq!(read(&mut table, &again.requests), Ok(places(1)), "another memory went");
        unmap(&mut table, RegionId::new(3, 7));
        assert_eq!(read(&mut table, &again.requests), Err(Untranslated::Missed));
        assert_eq!(read(&mut table, &[[9; 32]]), Err(Untranslated::Missed), "no request");
        let mut none = Mapped::new(Store::filled_with(0, Mapping::default));
        let mut batch = Batch::default();
        none.post(&places(1), &mut batch);
        assert_eq!(read(&mut table, &batch.requests), Err(Untranslated::Nowhere));
    }
}
