//! A connection as far as it shapes traffic: segments, a window, and when an
//! acknowledgement leaves. Nothing is lost here, so nothing is sent again.

use std::collections::VecDeque;

use super::wire::{MSS, Message, PAGE};

/// The window of Linux 2.2, and of most stacks of its time.
const WINDOW: u32 = 65_535;
/// Segments that are acknowledged together (RFC 1122, 4.2.3.2).
const TOGETHER: u32 = 2;

/// One side of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    writes: VecDeque<Write>,
    /// The sequence number that comes next.
    next: u32,
    /// Everything before was acknowledged.
    acknowledged: u32,
    /// Everything before arrived.
    received: u32,
    /// Segments that arrived since the last acknowledgement was decided on.
    owed: u32,
    /// A timer for the acknowledgement runs.
    is_timed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    left: u32,
    message: Message,
}

/// A segment that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u32,
    pub(crate) len: u32,
    /// The last segment of a write says what the write was.
    pub(crate) message: Option<Message>,
}

impl Default for Connection {
    fn default() -> Self {
        let writes = VecDeque::new();
        Self { writes, next: 1, acknowledged: 1, received: 1, owed: 0, is_timed: false }
    }
}

impl Connection {
    /// The application writes so many bytes.
    pub(crate) fn write(&mut self, len: u32, message: Message) {
        self.writes.push_back(Write { left: len, message });
    }

    /// The next segment, if there is one and the window has room for it. The
    /// stack makes a zero-copy packet of every whole page, if that is wanted; what
    /// is less goes in ordinary segments.
    pub(crate) fn next_segment(&mut self, in_pages: bool) -> Option<Segment> {
        let write = self.writes.front_mut()?;
        let len = if in_pages && write.left >= PAGE { PAGE } else { write.left.min(MSS) };
        let under_way = self.next.wrapping_sub(self.acknowledged);
        if under_way + len > WINDOW {
            return None;
        }
        write.left -= len;
        let message = (write.left == 0).then_some(write.message);
        let sequence = self.next;
        self.next = self.next.wrapping_add(len);
        if message.is_some() {
            self.writes.pop_front();
        }
        Some(Segment { sequence, len, message })
    }

    /// An acknowledgement came.
    pub(crate) fn handle_acknowledged(&mut self, acknowledged: u32) {
        let newer = acknowledged.wrapping_sub(self.acknowledged) as i32 > 0;
        self.acknowledged = if newer { acknowledged } else { self.acknowledged };
    }

    /// A segment came.
    pub(crate) fn handle_received(&mut self, len: u32) {
        self.received = self.received.wrapping_add(len);
        self.owed += u32::from(len > 0);
    }

    /// The header of what leaves now: sequence number if there is no data, and
    /// what is acknowledged.
    pub(crate) const fn numbers(&self) -> (u32, u32) {
        (self.next, self.received)
    }

    /// A packet is on its way that will acknowledge all that came.
    pub(crate) const fn settle(&mut self) {
        self.owed = 0;
    }

    /// An acknowledgement leaves at once.
    pub(crate) const fn is_due(&self) -> bool {
        self.owed >= TOGETHER
    }

    /// Whether a timer has to be started, since an acknowledgement is owed.
    pub(crate) const fn start_timer(&mut self) -> bool {
        let start = self.owed > 0 && !self.is_timed;
        self.is_timed |= start;
        start
    }

    /// The timer ran out: whether an acknowledgement is owed still.
    pub(crate) const fn end_timer(&mut self) -> bool {
        self.is_timed = false;
        self.owed > 0
    }
}
