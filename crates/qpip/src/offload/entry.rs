//! [`Entry`]: what is expected of one queue pair.

use landfall_placement::{PathId, Serial32};

use super::ends::Ends;
use super::places::Places;

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
