//! [`Flight`]: the scoreboard of what was sent and is not yet acknowledged.
//!
//! One [`Record`] for each transmitted segment or super-segment, in the order of
//! positions, without gaps. A selective acknowledgement or a new cut that falls
//! inside splits a record. Here is known *what* is lost or delivered; *when*
//! something counts as lost is decided by [`Rack`](super::rack::Rack).
//!
//! No operation walks over all records, with the exception of those that follow
//! a time-out or a mistake. What keeps it so:
//!
//! - [`Ranges`] of what was selectively acknowledged: a block that is repeated
//!   with every acknowledgement touches no record again.
//! - Data sent once lies in the order of positions, which is the order of time.
//!   `first_original` is where the part begins that may still be judged.
//! - Data sent again lies in `again`, in the order of time.

use super::ranges::Ranges;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;
use landfall_placement::{Duration, Instant};
use scoreboard::{Retransmission, Scoreboard};

mod scoreboard;
#[cfg(test)]
mod tests;

/// One transmission that may still be under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    start: u64,
    /// When it was sent for the last time.
    sent_at: Instant,
    len: u32,
    transmissions: u8,
    is_sacked: bool,
    is_lost: bool,
}

impl Record {
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    pub(crate) fn was_retransmitted(&self) -> bool {
        self.transmissions > 1
    }

    /// The receiver says that it has it, but not yet by number.
    pub(crate) fn is_sacked(&self) -> bool {
        self.is_sacked
    }

    /// It has to be sent again.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Sent, and neither selectively acknowledged nor known to be lost.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.is_sacked && !self.is_lost
    }

    fn sent(&self) -> Sent {
        Sent { at: self.sent_at, end: self.end() }
    }
}

/// A transmission, in the order of RFC 8985, section 6.2, step 2: by time, and
/// by position where the time is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// The position after its last byte.
    pub(crate) end: u64,
}

/// What one acknowledgement delivered, collected over its number and its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Bytes that the acknowledged position moved by.
    pub(crate) acknowledged: u64,
    /// Bytes known to be there for the first time, in either way.
    pub(crate) bytes: u64,
    /// The newest transmission among them.
    pub(crate) newest: Option<Sent>,
    /// The newest that was sent only once: its round trip is certain.
    pub(crate) newest_original: Option<Sent>,
    /// When the oldest was sent that was sent only once.
    pub(crate) oldest_original: Option<Instant>,
    /// Where the lowest ends that was sent only once.
    pub(crate) lowest_original: Option<u64>,
    /// The highest position delivered.
    pub(crate) highest: u64,
    /// Some of it had been sent more than once.
    pub(crate) has_retransmitted: bool,
}

impl Delivered {
    fn add(&mut self, record: &Record, bytes: u64) {
        let sent = record.sent();
        self.bytes += bytes;
        self.highest = self.highest.max(sent.end);
        self.newest = self.newest.max(Some(sent));
        if record.was_retransmitted() {
            self.has_retransmitted = true;
            return;
        }
        self.newest_original = self.newest_original.max(Some(sent));
        let oldest = self.oldest_original.map_or(sent.at, |at| at.min(sent.at));
        self.oldest_original = Some(oldest);
        let lowest = self.lowest_original.map_or(sent.end, |end| end.min(sent.end));
        self.lowest_original = Some(lowest);
    }
}

/// The transmissions of one connection that are not acknowledged.
#[derive(Debug)]
pub(crate) struct Flight {
    records: VecDeque<Record>,
    /// Once something arrived out of order, was lost or was judged, until nothing is under way.
    board: Option<Box<Scoreboard>>,
    /// The first position not acknowledged, and the one after the last sent.
    unacknowledged: u64,
    next: u64,
    most_records: u32,
}

impl Flight {
    /// Nothing is under way; the first transmission starts at `start`. There are
    /// at most `most_records` records, twice that after splits.
    pub(crate) fn new(start: u64, most_records: u32) -> Self {
        Self {
            records: VecDeque::new(),
            board: None,
            unacknowledged: start,
            next: start,
            most_records: most_records.max(4),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The first position that is not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// The position after everything sent.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Bytes sent and not acknowledged (RFC 5681: `FlightSize`).
    pub(crate) fn outstanding(&self) -> u64 {
        self.next - self.unacknowledged
    }

    /// Bytes believed to be in the network (RFC 6675: `pipe`).
    pub(crate) fn pipe(&self) -> u64 {
        let aside = self.board.as_ref().map_or(0, |board| board.sacked_bytes + board.lost_bytes);
        self.outstanding() - aside
    }

    pub(crate) fn sacked_bytes(&self) -> u64 {
        self.board.as_ref().map_or(0, |board| board.sacked_bytes)
    }

    /// Bytes that are lost and have not been sent again since.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.board.as_ref().map_or(0, |board| board.lost_bytes)
    }

    /// The lowest record not acknowledged.
    pub(crate) fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    /// The record that was sent last for the first time.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// The record that this position is in.
    pub(crate) fn at(&self, position: u64) -> Option<&Record> {
        self.records.get(self.index_of(position)).filter(|record| record.start <= position)
    }

    /// The bytes within this range that are lost and have not been sent again since.
    pub(crate) fn lost_within(&self, range: Range<u64>) -> u64 {
        let records = self.records.range(self.index_of(range.start)..);
        let within = records.take_while(|record| record.start < range.end);
        within.filter(|record| record.is_lost).map(|record| u64::from(record.len)).sum()
    }

    /// One more record may begin. Where not, the sender waits for an
    /// acknowledgement.
    pub(crate) fn has_room(&self) -> bool {
        self.records.len() < self.most_records as usize
    }

    /// New data of `len` bytes left now. Returns its range.
    pub(crate) fn push(&mut self, len: u32, now: Instant) -> Range<u64> {
        let start = self.next;
        if len > 0 {
            self.next += u64::from(len);
            let record = Record {
                start,
                sent_at: now,
                len,
                transmissions: 1,
                is_sacked: false,
                is_lost: false,
            };
            self.records.push_back(record);
        }
        start..self.next
    }

    /// Everything below `upto` arrived. An older or an impossible position
    /// changes nothing.
    pub(crate) fn ack(&mut self, upto: u64, delivered: &mut Delivered) {
        let upto = upto.min(self.next);
        if upto <= self.unacknowledged {
            return;
        }
        delivered.acknowledged += upto - self.unacknowledged;
        self.unacknowledged = upto;
        while let Some(record) = self.records.front_mut() {
            let end = record.end().min(upto);
            if end <= record.start {
                break;
            }
            let mut gone = *record;
            let bytes = end - record.start;
            gone.len = len(bytes);
            record.start = end;
            record.len -= gone.len;
            if record.len == 0 {
                self.records.pop_front();
            }
            self.forget(&gone, delivered);
        }
        if self.records.is_empty() {
            // An idle connection owns no memory.
            self.records = VecDeque::new();
            self.board = None;
        } else if let Some(board) = &mut self.board {
            board.sacked.remove(0, upto);
        }
    }

    /// An acknowledged record leaves the sums.
    fn forget(&mut self, gone: &Record, delivered: &mut Delivered) {
        let bytes = u64::from(gone.len);
        if let Some(board) = &mut self.board {
            if gone.is_sacked {
                board.sacked_bytes -= bytes;
                return;
            }
            if gone.is_lost {
                board.lost_bytes -= bytes;
            }
        }
        delivered.add(gone, bytes);
    }

    /// A block of a selective acknowledgement. What lies outside of what is
    /// under way is ignored. When there is no room to split a record, the block
    /// counts only for whole ones.
    pub(crate) fn sack(&mut self, block: Range<u64>, delivered: &mut Delivered) {
        let mut at = block.start.max(self.unacknowledged);
        let end = block.end.min(self.next);
        while at < end {
            let sacked = self.board.as_ref().map(|board| &board.sacked);
            if let Some(known) = sacked.and_then(|sacked| sacked.end_at(at)) {
                at = known;
                continue;
            }
            let next = sacked.and_then(|sacked| sacked.next_start(at));
            let gap = next.unwrap_or(end).min(end);
            self.sack_gap(at, gap, delivered);
            at = gap;
        }
    }

    /// The same for a range of which nothing was selectively acknowledged.
    fn sack_gap(&mut self, start: u64, end: u64, delivered: &mut Delivered) {
        self.split(start);
        self.split(end);
        let first = self.index_from(start);
        let board = Scoreboard::of(&mut self.board, self.unacknowledged);
        let mut covered: Option<Range<u64>> = None;
        for record in self.records.range_mut(first..) {
            if record.end() > end {
                break;
            }
            let bytes = u64::from(record.len);
            if record.is_lost {
                record.is_lost = false;
                board.lost_bytes -= bytes;
            }
            record.is_sacked = true;
            board.sacked_bytes += bytes;
            delivered.add(record, bytes);
            let from = covered.map_or(record.start, |range| range.start);
            covered = Some(from..record.end());
        }
        if let Some(range) = covered {
            board.sacked.insert(range.start, range.end);
        }
    }

    /// What lies in this range and is under way is lost. Returns the bytes.
    pub(crate) fn mark_lost(&mut self, range: Range<u64>) -> u64 {
        self.split(range.start);
        self.split(range.end);
        let before = self.lost_bytes();
        let first = self.index_of(range.start);
        for index in first..self.records.len() {
            if self.records[index].start >= range.end {
                break;
            }
            self.lose(index);
        }
        self.lost_bytes() - before
    }

    /// The record is lost, if it was under way.
    fn lose(&mut self, index: usize) {
        let record = &mut self.records[index];
        if record.is_under_way() {
            record.is_lost = true;
            let board = Scoreboard::of(&mut self.board, self.unacknowledged);
            board.lost_bytes += u64::from(record.len);
            board.first_lost = board.first_lost.min(record.start);
        }
    }

    /// The lowest data that is lost and was not sent again since, at most `most`
    /// bytes of it.
    pub(crate) fn next_lost(&mut self, most: u64) -> Option<Range<u64>> {
        let board = self.board.as_mut().filter(|board| board.lost_bytes > 0 && most > 0)?;
        let from = self.records.partition_point(|record| record.end() <= board.first_lost);
        let mut lost = self.records.range(from..).skip_while(|record| !record.is_lost);
        let first = lost.next()?;
        let mut end = first.end();
        while end - first.start < most
            && let Some(record) = lost.next()
            && record.is_lost
        {
            end = record.end();
        }
        board.first_lost = first.start;
        Some(first.start..end.min(first.start.saturating_add(most)))
    }

    /// Data of this range left once more: it is under way again.
    pub(crate) fn retransmitted(&mut self, range: Range<u64>, now: Instant) {
        self.split(range.start);
        self.split(range.end);
        let first = self.index_of(range.start);
        if first == self.records.len() {
            // Acknowledged meanwhile.
            return;
        }
        let board = Scoreboard::of(&mut self.board, self.unacknowledged);
        for record in self.records.range_mut(first..) {
            if record.start >= range.end {
                break;
            }
            if record.is_sacked {
                continue;
            }
            if record.is_lost {
                record.is_lost = false;
                board.lost_bytes -= u64::from(record.len);
            }
            record.sent_at = now;
            record.transmissions = record.transmissions.saturating_add(1);
            let (start, end) = (record.start, record.end());
            match board.again.back_mut() {
                Some(last) if last.end == start && last.at == now => last.end = end,
                _ => board.again.push_back(Retransmission { start, end, at: now }),
            }
        }
        if board.again.len() > 2 * self.records.len() + 8 {
            self.sort_retransmissions();
        }
    }

    /// Judges what was sent before `newest`, the newest transmission that is
    /// known to have arrived: it is lost if it left more than `patience` ago
    /// (RFC 8985, section 6.2, step 5).
    pub(crate) fn lose_older(&mut self, newest: Sent, patience: Duration, now: Instant) -> Losses {
        let Some(first) = self.records.front() else { return Losses::default() };
        if self.board.as_ref().is_none_or(|board| board.again.is_empty())
            && first.is_under_way()
            && !first.was_retransmitted()
            && first.sent() >= newest
        {
            // Everything comes in order: there is nothing older.
            return Losses::default();
        }
        let before = self.lost_bytes();
        let judge = LossDetector { newest, patience, now };
        let originals = self.lose_originals(&judge);
        let retransmissions = self.lose_retransmissions(&judge);
        let next = match (originals, retransmissions) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Losses { bytes: self.lost_bytes() - before, recheck_at: next }
    }

    /// Data sent once: the order of positions is the order of time, so the first
    /// that is not lost ends the walk, and the next walk begins there.
    fn lose_originals(&mut self, judge: &LossDetector) -> Option<Instant> {
        let from = Scoreboard::of(&mut self.board, self.unacknowledged).first_original;
        for index in self.index_of(from)..self.records.len() {
            let record = self.records[index];
            if record.was_retransmitted() || !record.is_under_way() {
                continue;
            }
            match judge.verdict(&record) {
                LossState::Lost => self.lose(index),
                LossState::LostAt(when) => {
                    self.judge_from(record.start);
                    return Some(when);
                }
                LossState::Newer => {
                    self.judge_from(record.start);
                    return None;
                }
            }
        }
        self.judge_from(self.next);
        None
    }

    /// Nothing below this position is under way and was sent only once.
    fn judge_from(&mut self, position: u64) {
        Scoreboard::of(&mut self.board, self.unacknowledged).first_original = position;
    }

    /// Data sent again, oldest first. Entries that say nothing any more go away.
    fn lose_retransmissions(&mut self, judge: &LossDetector) -> Option<Instant> {
        while let Some(&Retransmission { start, end, at }) = self.board.as_ref()?.again.front() {
            for index in self.index_of(start)..self.records.len() {
                let record = self.records[index];
                if record.start >= end {
                    break;
                }
                if !record.is_under_way() || record.sent_at != at {
                    continue;
                }
                match judge.verdict(&record) {
                    LossState::Lost => self.lose(index),
                    LossState::LostAt(when) => return Some(when),
                    LossState::Newer => return None,
                }
            }
            self.board.as_mut()?.again.pop_front();
        }
        None
    }

    /// The retransmission timer ran out: all that was not selectively
    /// acknowledged is lost. Returns the bytes that are lost now.
    pub(crate) fn mark_all_lost(&mut self) -> u64 {
        if self.records.is_empty() {
            return 0;
        }
        let before = self.lost_bytes();
        for index in 0..self.records.len() {
            self.lose(index);
        }
        let board = Scoreboard::of(&mut self.board, self.unacknowledged);
        board.again = VecDeque::new();
        board.first_original = self.next;
        self.lost_bytes() - before
    }

    /// The receiver may have dropped what it selectively acknowledged (RFC 2018,
    /// section 8): all of that is under way again.
    pub(crate) fn forget_sacks(&mut self) {
        // Nothing was ever acknowledged so.
        let Some(board) = &mut self.board else { return };
        for record in &mut self.records {
            record.is_sacked = false;
        }
        board.sacked_bytes = 0;
        board.sacked = Ranges::None;
        self.judge_again();
    }

    /// What counts as lost was late: it is under way again.
    pub(crate) fn forget_losses(&mut self) {
        // Nothing counts as lost.
        let Some(board) = &mut self.board else { return };
        for record in &mut self.records {
            record.is_lost = false;
        }
        board.lost_bytes = 0;
        self.judge_again();
    }

    fn judge_again(&mut self) {
        self.judge_from(self.unacknowledged);
        self.sort_retransmissions();
    }

    /// Makes the list of retransmissions anew from the records.
    fn sort_retransmissions(&mut self) {
        let again = self
            .records
            .iter()
            .filter(|record| record.was_retransmitted() && record.is_under_way());
        let mut again: VecDeque<_> = again
            .map(|record| Retransmission {
                start: record.start,
                end: record.end(),
                at: record.sent_at,
            })
            .collect();
        // Stable, so that equal times stay in the order of positions.
        again.make_contiguous().sort_by_key(|entry| entry.at);
        Scoreboard::of(&mut self.board, self.unacknowledged).again = again;
    }

    /// The index of the record that this position is in, or of the first behind.
    fn index_of(&self, position: u64) -> usize {
        self.records.partition_point(|record| record.end() <= position)
    }

    /// The index of the first record that starts here or behind.
    fn index_from(&self, position: u64) -> usize {
        self.records.partition_point(|record| record.start < position)
    }

    /// Makes this position a border between records, if there is room.
    fn split(&mut self, position: u64) {
        let index = self.index_of(position);
        let is_full = self.records.len() >= 2 * self.most_records as usize;
        if let Some(record) = self.records.get_mut(index) {
            if position <= record.start || is_full {
                return;
            }
            let mut behind = *record;
            record.len = len(position - record.start);
            behind.start = position;
            behind.len -= record.len;
            self.records.insert(index + 1, behind);
        }
    }
}

/// A part of a record, which is not longer than the whole.
fn len(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What a look at the flight found lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// How many bytes.
    pub(crate) bytes: u64,
    /// Something is late, but not lost before this moment.
    pub(crate) recheck_at: Option<Instant>,
}

/// The rule of RFC 8985 for one record.
struct LossDetector {
    newest: Sent,
    patience: Duration,
    now: Instant,
}

enum LossState {
    Lost,
    LostAt(Instant),
    /// Nothing that was sent after it is known to have arrived.
    Newer,
}

impl LossDetector {
    fn verdict(&self, record: &Record) -> LossState {
        if record.sent() >= self.newest {
            return LossState::Newer;
        }
        let deadline = record.sent_at + self.patience;
        if deadline <= self.now { LossState::Lost } else { LossState::LostAt(deadline) }
    }
}
