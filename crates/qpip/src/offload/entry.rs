//! [`Entry`]: what is expected of one queue pair.

use landfall_placement::{PathId, Serial32, Span, Spans};

use super::tables::Ends;

/// What an engine says of a connection: the next segment will very likely be
/// this one, and its payload belongs there.
///
/// All numbers are as they stand in headers. As long as segments come as
/// predicted nothing has to be said again; whatever else happens to the
/// connection, the engine says how it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// The number of the next byte.
    pub expected: u32,
    /// The right edge of the window that was offered.
    pub edge: u32,
    /// They may acknowledge from here on,
    pub acknowledged: u32,
    /// up to here.
    pub sent: u32,
    /// The latest of their timestamps, where every segment has one; else none
    /// has options at all.
    pub recent: Option<u32>,
    /// PSH ends a message, and what follows it belongs into the next request.
    pub has_messages: bool,
    /// The engine's own mark of this prediction: comes back unchanged.
    pub course: u16,
    /// Where the next bytes belong.
    pub places: Places,
}

/// Which numbers of ours the other end may acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentNumbers {
    /// From here on,
    pub acknowledged: u32,
    /// up to here, the number of the next byte that we send.
    pub next: u32,
}

impl Prediction {
    /// How many bytes from the expected one on are inside the window.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        u32::try_from(Serial32(self.edge).offset_from(Serial32(self.expected))).unwrap_or(0)
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) ends: Ends,
    /// Where its segments come from.
    pub(super) path: PathId,
    pub(super) is_armed: bool,
    pub(super) next: Prediction,
}

/// What is known of a bound port: the requests that the next datagrams take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) ends: Ends,
    pub(super) is_armed: bool,
    pub(super) course: u16,
    pub(super) places: Places,
}

/// An entry of the table: a connection, a bound port, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(pub(super) Known);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    #[default]
    Nothing,
    Stream(Stream),
    Port(Port),
}

impl Entry {
    /// Nothing is entered here.
    #[must_use]
    #[inline]
    pub const fn is_free(&self) -> bool {
        matches!(self.0, Known::Nothing)
    }

    /// Is something predicted?
    #[must_use]
    #[inline]
    pub const fn is_armed(&self) -> bool {
        match &self.0 {
            Known::Nothing => false,
            Known::Stream(stream) => stream.is_armed,
            Known::Port(port) => port.is_armed,
        }
    }

    /// The ends that it is found by.
    #[inline]
    pub(super) const fn ends(&self) -> Option<&Ends> {
        match &self.0 {
            Known::Nothing => None,
            Known::Stream(stream) => Some(&stream.ends),
            Known::Port(port) => Some(&port.ends),
        }
    }

    /// What is expected of a connection, unless it is disarmed.
    #[must_use]
    #[inline]
    pub const fn prediction(&self) -> Option<&Prediction> {
        match &self.0 {
            Known::Stream(stream) if stream.is_armed => Some(&stream.next),
            _ => None,
        }
    }

    /// Where the next datagrams of a bound port belong, and the engine's mark,
    /// unless it is disarmed.
    #[must_use]
    #[inline]
    pub const fn requests(&self) -> Option<(&Places, u16)> {
        match &self.0 {
            Known::Port(port) if port.is_armed => Some((&port.places, port.course)),
            _ => None,
        }
    }
}

// `Places`: where the next bytes belong.

/// A few spans, one after another: the rest of the request that is being
/// filled, and requests that follow it. How many there are is bounded; what
/// lies behind them the engine knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    list: [Span; Self::MOST],
    /// A bit for each span that is the last of its request.
    ends: u8,
    /// Those from here on are left.
    at: u8,
    len: u8,
}

impl Places {
    /// The most spans.
    pub const MOST: usize = 4;

    /// None.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = landfall_placement::RegionId::new(0, 0).span(0, 0);
        Self { list: [nothing; Self::MOST], ends: 0, at: 0, len: 0 }
    }

    /// Adds a span behind the others; `ends_request` says whether it is the last
    /// of its request. Returns whether there was room. A span without bytes holds
    /// nothing and takes none.
    #[inline]
    pub fn push(&mut self, span: Span, ends_request: bool) -> bool {
        // All places are taken.
        let Some(place) = self.list.get_mut(usize::from(self.len)) else { return false };
        if span.len > 0 {
            *place = span;
            self.ends |= u8::from(ends_request) << self.len;
            self.len += 1;
        }
        true
    }

    /// Those behind what `known` has left, where these begin with it; nothing where
    /// they do not.
    #[must_use]
    pub fn behind(&self, known: &Self) -> Option<Self> {
        let mut mine = self.iter();
        if known.iter().any(|place| mine.next() != Some(place)) {
            return None;
        }
        let mut rest = Self::new();
        for (span, ends_request) in mine {
            rest.push(span, ends_request);
        }
        Some(rest)
    }

    /// Adds others behind those that are left. Returns whether all found room; where
    /// not, none was added.
    pub fn append(&mut self, more: &Self) -> bool {
        let mut all = Self::new();
        let fits = self.iter().chain(more.iter()).all(|(span, ends)| all.push(span, ends));
        if fits {
            *self = all;
        }
        fits
    }

    /// Takes the next `len` bytes, as they were taken elsewhere: see
    /// [`Tables::receive`](super::Tables::receive). Returns whether this many were left.
    pub fn pass(&mut self, len: u32, ends_message: bool) -> bool {
        self.take(len, ends_message, &mut Spans::new())
    }

    /// Nothing is left.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.at >= self.len
    }

    /// Is one more than is there too much?
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len as usize >= Self::MOST
    }

    #[inline]
    const fn ends_at(&self, nth: usize) -> bool {
        self.ends >> nth & 1 == 1
    }

    /// Those that are left, and whether each is the last of its request.
    pub fn iter(&self) -> impl Iterator<Item = (Span, bool)> + '_ {
        let all = self.list.iter().enumerate().take(usize::from(self.len));
        all.skip(usize::from(self.at)).map(|(nth, span)| (*span, self.ends_at(nth)))
    }

    /// Are this many bytes left?
    #[inline]
    pub(super) fn have(&self, len: u32) -> bool {
        let mut missing = len;
        for (span, _) in self.iter() {
            missing = missing.saturating_sub(span.len);
            if missing == 0 {
                return true;
            }
        }
        false
    }

    /// How many bytes the first request has room for; `None` where its end is
    /// not among these.
    #[inline]
    pub(super) fn first_request(&self) -> Option<u64> {
        let mut room = 0;
        for (span, ends_request) in self.iter() {
            room += u64::from(span.len);
            if ends_request {
                return Some(room);
            }
        }
        None
    }

    /// Takes the next `len` bytes, which must not be zero, and fills in where
    /// they belong. If a message ends with them, what is left of its request is
    /// given up. Nothing is taken, where this many are not left.
    #[inline]
    pub(super) fn take(&mut self, len: u32, ends_message: bool, into: &mut Spans) -> bool {
        let mut wanted = len;
        let mut nth = usize::from(self.at);
        let end = usize::from(self.len);
        let rest = loop {
            let span = self.list.get(nth).filter(|_| nth < end);
            let parts = span.map(|span| span.split_at(wanted));
            let Some((part, rest)) = parts.filter(|(part, _)| into.push(*part).is_ok()) else {
                into.clear();
                return false;
            };
            wanted -= part.len;
            if wanted == 0 {
                break rest;
            }
            nth += 1;
        };
        if ends_message {
            while nth < end && !self.ends_at(nth) {
                nth += 1;
            }
            nth += 1;
        } else if rest.len == 0 {
            nth += 1;
        } else if let Some(place) = self.list.get_mut(nth) {
            *place = rest;
        }
        self.at = nth.min(end) as u8;
        true
    }
}
