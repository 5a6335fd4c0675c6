//! The table of granted Blocks, and what an adapter does with it.

use landfall_placement::{Ecn, PathId, Peer, Refusal, RegionId, Span, assumed};

use super::block::{Block, Expected};
use super::predict::StuRange;
use crate::wire::header::SHORTEST_FRAME;
use crate::wire::{Flags, HEADER_LEN, Header};

/// Data as it comes in.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its header.
    pub header: &'a Header,
    /// The length of the whole packet.
    pub len: u32,
    /// The path it came over.
    pub path: PathId,
    /// From whom.
    pub from: Peer,
    /// Whether the network signalled congestion.
    pub ecn: Ecn,
}

/// Names one STU of one Block while its payload is being placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuId {
    /// The place of the Block in the table.
    pub block: u16,
    /// How often that place was used before.
    pub generation: u16,
    /// The STU in the Block.
    pub stu: u16,
}

/// Data that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Where its payload belongs.
    pub span: Span,
    /// What to report once it is there.
    pub stu_id: StuId,
    /// It is the first of its Block.
    pub is_first: bool,
}

/// What the landing of an STU means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// This many bytes more.
    Bytes(u32),
    /// This many bytes more, and the Block is complete: the one thing to tell
    /// the host of it.
    Complete(u32),
    /// It did not come to lie there; it may come again.
    Lost,
    /// The Block was taken back, and this was the last payload under way to it.
    Released,
    /// Nothing: the Block is not what it was.
    Stale,
}

/// Units that are likely to come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where their payloads belong, one after another.
    pub span: Span,
    /// How long each is; the last may be shorter.
    pub payload_len: u32,
    /// One past the last STU of the run.
    pub end: u16,
}

/// How many words of 64 bits the table needs beside this many Blocks of at most
/// this many STUs.
#[must_use]
pub const fn bits_needed(blocks: usize, stus: u16) -> usize {
    blocks * words_per_block(stus)
}

/// The table of granted Blocks, in storage that somebody else owns.
#[derive(Debug)]
pub struct Blocks<'a> {
    /// The Blocks.
    blocks: &'a mut [Block],
    /// For each Block, a bit for each STU that has landed or has a place.
    bits: &'a mut [u64],
    /// How many words of `bits` each Block has.
    words: usize,
}

/// How many words of bits each Block has that has at most this many STUs.
#[must_use]
#[inline]
pub const fn words_per_block(stus: u16) -> usize {
    let words = (stus as usize).div_ceil(64);
    if words == 0 { 1 } else { words }
}

impl<'a> Blocks<'a> {
    /// A table in this storage; `stus` is how many STUs a Block has at most.
    /// Storage for bits that is too short makes for fewer Blocks.
    #[must_use]
    #[inline]
    pub fn new(blocks: &'a mut [Block], bits: &'a mut [u64], stus: u16) -> Self {
        let words = words_per_block(stus);
        let most = (bits.len() / words).min(1 << 16).min(blocks.len());
        Self { blocks: &mut blocks[..most], bits, words }
    }

    /// A Block, to be looked at.
    #[must_use]
    #[inline]
    pub fn block(&self, index: u16) -> Option<&Block> {
        self.blocks.get(usize::from(index))
    }

    // ---- What the engine does ------------------------------------------------

    /// Enters a Block into a place that is free. Nothing of it is granted yet.
    /// `start` is where in the receiver's buffer it begins, `memory` where that is.
    ///
    /// Returns whether it fits: not where the place is taken or the Block has
    /// too many STUs.
    pub fn open(
        &mut self,
        index: u16,
        expected: Expected,
        start: u32,
        memory: Span,
        stu: u16,
    ) -> bool {
        let most = self.most_stus();
        // The table has no such place.
        let Some(block) = self.blocks.get_mut(usize::from(index)) else { return false };
        let is_free = !block.is_open && block.under_way == 0;
        let end = u64::from(start) + u64::from(memory.len);
        // Headers name places in the buffer by 32 bits.
        if !is_free || memory.len == 0 || stu == 0 || end > 1 << 32 {
            return false;
        }
        let stus = memory.len.div_ceil(stu.into());
        if stus > most {
            return false;
        }
        *block = Block {
            is_open: true,
            generation: block.generation.wrapping_add(1),
            stu,
            stus: stus as u16,
            expected,
            region: memory.region,
            at: memory.offset,
            start,
            len: memory.len,
            ..Block::default()
        };
        if let Some(bits) = self.bits_mut(index) {
            bits.fill(0);
        }
        true
    }

    /// Grants STUs up to before `end`; what was granted stays so.
    pub fn grant(&mut self, index: u16, end: u16) {
        if let Some(block) = self.blocks.get_mut(usize::from(index)) {
            block.granted = block.granted.max(end.min(block.stus()));
        }
    }

    /// The most STUs that a Block has.
    fn most_stus(&self) -> u32 {
        (self.words * 64).min(usize::from(u16::MAX)) as u32
    }

    /// Lays an open Block out anew, in STUs of this size, which each of the old ones holds
    /// several of: what has landed has landed, and all else is to be asked for with the new
    /// `bufx`. Returns what the number of the STU `from` has become. None, and nothing changed,
    /// where the Block is closed, its STUs are no multiple of that, they would be too many,
    /// or payloads are under way to it.
    pub fn shorten(&mut self, index: u16, stu: u16, from: u16) -> Option<u16> {
        let most = self.most_stus();
        let old = *self.block(index)?;
        let is_part = stu > 0 && stu < old.stu && old.stu.is_multiple_of(stu);
        if !old.is_open || old.under_way > 0 || !is_part {
            return None;
        }
        let (stus, parts) = (old.len.div_ceil(stu.into()), u32::from(old.stu / stu));
        if stus > most {
            return None;
        }
        let place_of = |nth: u16| (u32::from(nth) * parts).min(stus) as u16;
        let mut landed = 0;
        let bits = self.bits_mut(index)?;
        // The last first: each STU becomes one or several, none of them before its own place.
        for nth in (0..old.stus).rev() {
            let has_landed = is_set(bits, nth);
            let (stu, count) = (place_of(nth), place_of(nth + 1) - place_of(nth));
            landed += if has_landed { count } else { 0 };
            let first = StuId { block: index, generation: old.generation, stu };
            change_bits(bits, 0, StuRange { first, count }, has_landed);
        }
        *self.blocks.get_mut(usize::from(index))? = Block {
            stu,
            stus: stus as u16,
            generation: old.generation.wrapping_add(1),
            granted: place_of(old.granted),
            highest: place_of(old.highest),
            landed,
            ..old
        };
        Some(place_of(from))
    }

    /// From now on the Block's Data comes over another path.
    pub fn redirect(&mut self, index: u16, path: PathId, peer: Peer) {
        if let Some(block) = self.blocks.get_mut(usize::from(index)) {
            block.expected.path = path;
            block.expected.peer = peer;
        }
    }

    /// Takes a Block back. True if no payload is under way to it; otherwise
    /// its memory is in use until [`Arrival::Released`].
    pub fn close(&mut self, index: u16) -> bool {
        // The table has no such place: nothing is under way to it.
        let Some(block) = self.blocks.get_mut(usize::from(index)) else { return true };
        block.is_open = false;
        block.under_way == 0
    }

    /// How many STUs came with a mark of congestion since this was asked last.
    pub fn take_marked(&mut self, index: u16) -> u16 {
        let block = self.blocks.get_mut(usize::from(index));
        block.map_or(0, |block| core::mem::take(&mut block.marked))
    }

    /// The first granted STU from `from` to before `to` that did not come, and
    /// a bit for each that did not of the 64 that begin with it.
    #[must_use]
    pub fn missing(&self, index: u16, from: u16, to: u16) -> Option<(u16, u64)> {
        let block = self.block(index)?;
        let bits = self.bits_of(index)?;
        let end = block.granted.min(to);
        let first = (from..end).find(|stu| !is_set(bits, *stu))?;
        let mut missing = 0;
        for stu in first..end.min(first.saturating_add(64)) {
            missing |= u64::from(!is_set(bits, stu)) << (stu - first);
        }
        Some((first, missing))
    }

    /// The end of what is lost of a Block: at least `margin` STUs came from there on (RFC 6675,
    /// `IsLost`). Not looked for before `from`.
    #[must_use]
    pub fn overtaken(&self, index: u16, from: u16, margin: u16) -> u16 {
        let (Some(block), Some(bits)) = (self.block(index), self.bits_of(index)) else {
            return from;
        };
        let mut came = 0;
        for stu in (from..block.highest).rev() {
            came += u16::from(is_set(bits, stu));
            if came >= margin {
                return stu;
            }
        }
        from
    }

    /// How many bytes of the granted STUs from `from` to before `to` did not come.
    #[must_use]
    pub fn bytes_missing(&self, index: u16, from: u16, to: u16) -> u32 {
        // What is not in the table has nothing to wait for.
        let (Some(block), Some(bits)) = (self.block(index), self.bits_of(index)) else { return 0 };
        let missing = (from..block.granted.min(to)).filter(|stu| !is_set(bits, *stu));
        missing.map(|stu| block.stu_at(stu).1).sum()
    }

    // ---- What an adapter does ------------------------------------------------

    /// Where does this Data belong? Nothing changes where it is refused.
    ///
    /// # Errors
    /// The check that refused it.
    #[inline]
    pub fn place(&mut self, data: &Incoming<'_>) -> Result<Hit, Refusal> {
        let (stu_id, span) = self.check(data)?;
        let is_first = self.block(stu_id.block).is_some_and(|block| block.highest == 0);
        self.enter_run(stu_id.into());
        self.mark(stu_id.block, u16::from(data.ecn.is_congested()));
        Ok(Hit { span, stu_id, is_first })
    }

    /// Where would this Data belong? Changes nothing.
    ///
    /// # Errors
    /// The check that would refuse it.
    #[inline]
    pub fn check(&self, data: &Incoming<'_>) -> Result<(StuId, Span), Refusal> {
        let header = data.header;
        let bufx = header.bufx.get();
        let (index, generation) = (bufx as u16, (bufx >> 16) as u16);
        let block = self.blocks.get(usize::from(index)).ok_or(Refusal::UnknownId)?;
        if !block.is_open || block.generation != generation {
            return Err(Refusal::UnknownId);
        }
        check_expected(&block.expected, data)?;
        let offset = header.offset.get();
        if offset < block.start || offset - block.start >= block.len {
            return Err(Refusal::OutOfBounds);
        }
        // The size of an STU of an open Block is not zero.
        let stu = (offset - block.start) / u32::from(block.stu.max(1));
        if stu >= u32::from(block.granted) {
            return Err(Refusal::OutOfBounds);
        }
        let stu = stu as u16;
        let (from, len) = block.stu_at(stu);
        if from != offset {
            return Err(Refusal::Malformed);
        }
        let whole = len + HEADER_LEN as u32;
        if data.len < whole {
            return Err(Refusal::Truncated);
        }
        if data.len > whole.max(SHORTEST_FRAME) {
            return Err(Refusal::Malformed);
        }
        let word = self.bits.get(usize::from(index) * self.words + usize::from(stu) / 64);
        let word = word.ok_or(Refusal::OutOfBounds)?;
        if word >> (stu % 64) & 1 == 1 {
            return Err(Refusal::Duplicate);
        }
        Ok((StuId { block: index, generation, stu }, block.span(from, len)))
    }

    /// STUs that were checked get their places.
    #[inline]
    pub(super) fn enter_run(&mut self, stus: StuRange) {
        let index = usize::from(stus.first.block);
        let Some(block) = assumed(
            self.blocks.get_mut(index),
            "STUs that were checked are of a Block that there is",
        ) else {
            return;
        };
        block.highest = block.highest.max(stus.end());
        block.under_way += stus.count;
        change_bits(self.bits, index * self.words, stus, true);
    }

    /// How many STUs from this one on have neither landed nor a place, as far as the word
    /// of its bit and the next one tell.
    #[inline]
    pub(super) fn missing_from(&self, stu_id: StuId) -> u16 {
        let (word, shift) = (usize::from(stu_id.stu) / 64, u32::from(stu_id.stu) % 64);
        // What is not in the table has nothing to wait for.
        let Some(bits) = self.bits_of(stu_id.block) else { return 0 };
        let here = bits.get(word).map_or(u64::MAX, |bits| bits >> shift);
        if here != 0 {
            return here.trailing_zeros() as u16;
        }
        let behind = bits.get(word + 1).map_or(0, |bits| bits.trailing_zeros());
        (64 - shift + behind) as u16
    }

    /// Counts STUs of a Block that came with a congestion mark.
    #[inline]
    pub fn mark(&mut self, index: u16, marked: u16) {
        if let Some(block) = self.blocks.get_mut(usize::from(index)) {
            block.marked = block.marked.saturating_add(marked);
        }
    }

    // ---- What goes from one table to another ---------------------------------

    /// Enters a Block as another table has it, of which nothing has come. False,
    /// and nothing changed, where its place is taken or has not bits enough.
    pub fn adopt(&mut self, index: u16, other: &Block) -> bool {
        let bits = self.words * 64;
        // The table has no such place.
        let Some(block) = self.blocks.get_mut(usize::from(index)) else { return false };
        let is_free = !block.is_open && block.under_way == 0;
        if !is_free || !other.is_open || usize::from(other.stus()) > bits {
            return false;
        }
        *block = Block { highest: 0, under_way: 0, landed: 0, marked: 0, ..*other };
        if let Some(bits) = self.bits_mut(index) {
            bits.fill(0);
        }
        true
    }

    /// Another table has placed this STU. False, and nothing changed, where it
    /// could not have.
    pub fn book(&mut self, stu_id: StuId) -> bool {
        // The table has no such place.
        let Some(block) = self.block(stu_id.block) else { return false };
        let is_known = block.is_open && block.generation == stu_id.generation;
        let has = |bits| is_set(bits, stu_id.stu);
        if !is_known || stu_id.stu >= block.granted || self.bits_of(stu_id.block).is_none_or(has) {
            return false;
        }
        self.enter_run(stu_id.into());
        true
    }

    /// Forgets all Blocks, as a table does whose memory is loaded anew.
    pub fn clear(&mut self) {
        self.blocks.fill(Block::default());
        self.bits.fill(0);
    }

    /// The payloads of accepted STUs are in place, or are not: all of them, or it counts as
    /// if none were.
    #[inline]
    pub fn landed(&mut self, stus: impl Into<StuRange>, is_in_place: bool) -> Arrival {
        let stus = stus.into();
        let (first, words) = (stus.first, self.words);
        let Some(block) = self.blocks.get_mut(usize::from(first.block)) else {
            return Arrival::Stale;
        };
        if block.generation != first.generation || block.under_way < stus.count {
            return Arrival::Stale;
        }
        block.under_way -= stus.count;
        if !block.is_open {
            return if block.under_way == 0 { Arrival::Released } else { Arrival::Stale };
        }
        if !is_in_place {
            change_bits(self.bits, usize::from(first.block) * words, stus, false);
            return Arrival::Lost;
        }
        block.landed += stus.count;
        let len = block.bytes_of(first.stu, stus.end());
        if block.landed == block.stus() {
            block.is_open = false;
            return Arrival::Complete(len);
        }
        Arrival::Bytes(len)
    }

    /// The next run of STUs of a Block from `from` on that has not come: [`run`].
    #[must_use]
    #[inline]
    pub fn run(&self, index: u16, from: u16) -> Option<Run> {
        run(self.blocks, self.bits, self.words, index, from)
    }

    /// The region that a Block lies in.
    #[must_use]
    pub fn region(&self, index: u16) -> Option<RegionId> {
        Some(self.block(index)?.region)
    }

    fn bits_of(&self, index: u16) -> Option<&[u64]> {
        let start = usize::from(index) * self.words;
        self.bits.get(start..start + self.words)
    }

    fn bits_mut(&mut self, index: u16) -> Option<&mut [u64]> {
        let start = usize::from(index) * self.words;
        self.bits.get_mut(start..start + self.words)
    }
}

/// The next run of STUs of a Block from `from` on that has not come. All of a
/// run are of one length, but for the last. `words` is how many words of `bits`
/// each Block has.
#[must_use]
#[inline]
pub fn run(blocks: &[Block], bits: &[u64], words: usize, index: u16, from: u16) -> Option<Run> {
    let block = blocks.get(usize::from(index))?;
    if !block.is_open || from >= block.granted {
        return None;
    }
    let bits = bits.get(usize::from(index) * words..)?.get(..words)?;
    let first = (from..block.granted).find(|stu| !is_set(bits, *stu))?;
    let (offset, payload_len) = block.stu_at(first);
    // The last STU, where it is short, makes a run of its own.
    let is_short = payload_len < u32::from(block.stu);
    let most = if is_short { first + 1 } else { block.granted };
    // Beyond the highest that came, none has come.
    let mut end = if first >= block.highest { most } else { first + 1 };
    while end < most && !is_set(bits, end) {
        end += 1;
    }
    let span = block.span(offset, block.bytes_of(first, end));
    Some(Run { span, payload_len, end })
}

/// Sets or clears the bits of some STUs; those of their Block begin with word `start`.
#[inline]
fn change_bits(bits: &mut [u64], start: usize, stus: StuRange, is_set: bool) {
    let (mut stu, end) = (usize::from(stus.first.stu), usize::from(stus.end()));
    while stu < end {
        let (word, shift) = (stu / 64, stu % 64);
        let count = (end - stu).min(64 - shift);
        let mask = u64::MAX >> (64 - count) << shift;
        if let Some(word) = bits.get_mut(start + word) {
            *word = if is_set { *word | mask } else { *word & !mask };
        }
        stu += count;
    }
}

#[inline]
fn is_set(bits: &[u64], stu: u16) -> bool {
    bits.get(usize::from(stu) / 64).is_some_and(|word| word >> (stu % 64) & 1 == 1)
}

/// Port, key and identifiers, before anything else is believed.
#[inline]
fn check_expected(expected: &Expected, data: &Incoming<'_>) -> Result<(), Refusal> {
    let header = data.header;
    if header.d_key.get() != expected.key {
        return Err(Refusal::WrongKey);
    }
    let ports = (header.d_port.get(), header.s_port.get());
    if ports != (expected.d_port, expected.s_port)
        || data.path != expected.path
        || data.from != expected.peer
    {
        return Err(Refusal::WrongAddress);
    }
    if header.d_id.get() != expected.d_id
        || header.high() != expected.serial
        || header.b_num.get() != expected.number
    {
        return Err(Refusal::UnknownId);
    }
    // A packet that contradicts itself is not believed.
    if header.sync.get() != expected.serial as u16 {
        return Err(Refusal::Malformed);
    }
    if header.flags().has_besides(Flags::LAST.with(Flags::SUM)) {
        return Err(Refusal::Malformed);
    }
    Ok(())
}
