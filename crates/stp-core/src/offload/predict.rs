//! Header prediction: runs of Data whose heads are the ones expected.
//!
//! Data of one Block comes in the order of its STUs, and its headers differ in their offset
//! alone. So the first header of a run is checked against the Block, and the others against
//! the first: five words each. Where one differs in anything else the run ends before it,
//! and it is looked at by itself.

use landfall_placement::{Span, UnitRun};

use super::blocks::{Blocks, Incoming, StuId};
use crate::wire::{Flags, HEADER_LEN, Header};

/// The most STUs that a run has: what one receive brings.
const LONGEST_RUN: u16 = 64;

/// STUs that lie behind one another in one Block, while their payloads are being placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuRange {
    /// The first of them.
    pub first: StuId,
    /// How many there are, up to 64.
    pub count: u16,
}

impl StuRange {
    /// The number behind that of the last STU.
    #[must_use]
    #[inline]
    pub const fn end(&self) -> u16 {
        self.first.stu.saturating_add(self.count)
    }
}

impl From<StuId> for StuRange {
    #[inline]
    fn from(first: StuId) -> Self {
        Self { first, count: 1 }
    }
}

/// A run of Data that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHit {
    /// Where the payloads belong, behind one another.
    pub span: Span,
    /// What to report once all are there.
    pub stus: StuRange,
    /// How long their sender held them, as the headers say.
    pub hold: u16,
}

impl Blocks<'_> {
    /// Where does the leading part of this run belong? `None`, and nothing changed, where
    /// its first unit is not plain Data that would be accepted.
    #[inline]
    pub fn place_run(&mut self, run: &UnitRun<'_>) -> Option<RunHit> {
        let first: &[u8; HEADER_LEN] = run.heads.first().first_chunk()?;
        let header = Header::read(first)?;
        if !header.is_plain_data() {
            return None;
        }
        let units = run.heads.count().min(usize::from(LONGEST_RUN)) as u16;
        let len = if run.heads.count() == 1 { run.last_len } else { run.unit_len };
        let data = Incoming { header, len, path: run.path, from: run.from, ecn: run.ecn };
        let (stu_id, span) = self.check(&data).ok()?;
        if len != span.len + HEADER_LEN as u32 {
            // It is padded.
            return None;
        }
        let most = self.expected_from(stu_id, span.len, units, run);
        let behind = run.heads.iter().take(usize::from(most)).skip(1);
        let count = 1 + in_order(first, span.len, behind);
        let block = self.block(stu_id.block)?;
        let len = block.bytes_of(stu_id.stu, stu_id.stu + count);
        let hit = RunHit {
            span: Span { len, ..span },
            stus: StuRange { first: stu_id, count },
            hold: header.param.get(),
        };
        self.enter_run(hit.stus);
        if run.ecn.is_congested() {
            self.mark(stu_id.block, count);
        }
        Some(hit)
    }

    /// How many of `units` STUs from this one on are granted, have not come and are as long
    /// as the units of the run. At least one: the first, of which `len` bytes are known.
    #[inline]
    fn expected_from(&self, stu_id: StuId, len: u32, units: u16, run: &UnitRun<'_>) -> u16 {
        let Some(block) = self.block(stu_id.block) else { return 1 };
        if len != u32::from(block.stu()) {
            return 1;
        }
        let most = units.min(block.granted() - stu_id.stu).min(self.missing_from(stu_id));
        if most < 2 {
            return 1;
        }
        // All between are whole; the last of a Block may be shorter, and that of a run.
        let (_, last) = block.stu_at(stu_id.stu + most - 1);
        let is_end = usize::from(most) == run.heads.count();
        let unit = if is_end { run.last_len } else { run.unit_len };
        if last + HEADER_LEN as u32 == unit { most } else { most - 1 }
    }
}

/// How many of these heads follow on the first, each `step` bytes of payload behind the one
/// before, and are like it in all else but the mark of a Block's last STU.
#[inline]
fn in_order<'a>(first: &[u8; HEADER_LEN], step: u32, heads: impl Iterator<Item = &'a [u8]>) -> u16 {
    /// What may differ in the first word: the flag of the last STU.
    const LAST: u64 = (Flags::LAST.0 as u64) << 48;
    let first = words(first);
    // The offset is the first half of the fourth word.
    let (mut place, step) = (first[3], u64::from(step) << 32);
    let mut count = 0;
    for head in heads {
        let Some(head) = head.first_chunk() else { break };
        let head = words(head);
        place = place.wrapping_add(step);
        let differs = (head[0] ^ first[0]) & !LAST
            | (head[1] ^ first[1])
            | (head[2] ^ first[2])
            | (head[3] ^ place)
            | (head[4] ^ first[4]);
        if differs != 0 {
            break;
        }
        count += 1;
    }
    count
}

/// A header as five words, the most significant byte first.
#[inline]
fn words(head: &[u8; HEADER_LEN]) -> [u64; 5] {
    let mut words = [0; 5];
    let (chunks, _) = head.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_be_bytes(*chunk);
    }
    words
}
