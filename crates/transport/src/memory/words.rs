//! Lent memory as 64-bit words: copies and word operations without data races.
//!
//! Anyone who reads or writes lent memory in user space does it in whole aligned
//! 64-bit words, atomically, or in several of them at a time (`wide`). Two drivers that race on one region, or a peer in
//! another process, may then see bytes in any mixture, but never undefined
//! behaviour; and since no access has another size, a word operation is
//! indivisible against every copy too. The ends of a copy that are not whole
//! words are merged in by compare-and-swap, so a neighbour's bytes stay.
//!
//! A copy into memory publishes what its writer did before (release), a copy
//! out of memory sees it (acquire): an aligned word that is written alone, or
//! at the end of a longer copy, is a flag that can be relied on.
//!
//! Everything here trusts that bounds were checked; a caller's mistake is a
//! short copy, not undefined behaviour.
//!
//! Long copies of shared words, as fast as the processor can.
//!
//! One word after another is half the speed of `memcpy` from a cache, and
//! `memcpy` is not for memory that others may write meanwhile: a race is then
//! undefined behaviour. On x86-64 the copy is made of assembler instructions
//! instead, of which the language knows no more than of a copy by the kernel.
//! The processor carries out a 16-byte move in parts that are whole aligned
//! words or more (Intel's manual, volume 3, 9.1.1; AMD's, volume 2, 7.3.2), so
//! a word of the shared memory that begins where a word of the other side does,
//! or whose other side is private, is moved at once.
//!
//! Elsewhere, and where Miri watches, nothing is copied here, and all is left
//! to the loops over words.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

use landfall_placement::{InternetSum, WordFunction, WordWidth};

/// Bytes in a word.
pub(super) const WORD: usize = 8;

/// Writes `bytes` into shared memory, from its byte `offset` on: aligned 64-bit words,
/// atomically, so that others may read and write there at the same time. What does not fit
/// is left out.
#[inline]
pub fn copy_in(memory: &[AtomicU64], offset: usize, bytes: &[u8]) {
    fence(Release);
    let mut memory = memory.get(offset / WORD..).unwrap_or_default();
    let mut bytes = bytes;
    let lead = offset % WORD;
    if lead != 0 {
        let (edge, rest) = bytes.split_at(bytes.len().min(WORD - lead));
        merge(memory, lead, edge);
        (memory, bytes) = (memory.get(1..).unwrap_or_default(), rest);
    }
    let done = store(memory, &bytes[..before_last(bytes.len())]);
    (memory, bytes) = (&memory[done / WORD..], &bytes[done..]);
    let (whole, edge) = bytes.as_chunks::<WORD>();
    for (word, bytes) in memory.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Release);
    }
    merge(memory.get(whole.len()..).unwrap_or_default(), 0, edge);
}

/// How many of `len` bytes lie in words before the last one. The last word may be the flag
/// of all before it, and a wide store shows its words in any order: where it crosses a cache
/// line, on every processor.
#[inline]
const fn before_last(len: usize) -> usize {
    len.saturating_sub(1) / WORD * WORD
}

/// Writes the few `bytes` into the first word, from its byte `at` on.
#[inline]
fn merge(memory: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (Some(word), false) = (memory.first(), bytes.is_empty()) else { return };
    let (mut value, mut mask) = ([0; WORD], [0; WORD]);
    for (index, byte) in bytes.iter().enumerate() {
        value[(at + index) % WORD] = *byte;
        mask[(at + index) % WORD] = 0xff;
    }
    let (value, mask) = (u64::from_ne_bytes(value), u64::from_ne_bytes(mask));
    update(word, Release, |old| old & !mask | value);
}

/// Replaces a word in one indivisible step; gives what it held before.
fn update(
    word: &AtomicU64,
    order: core::sync::atomic::Ordering,
    change: impl Fn(u64) -> u64,
) -> u64 {
    let mut old = word.load(Relaxed);
    loop {
        match word.compare_exchange_weak(old, change(old), order, Relaxed) {
            Ok(old) => return old,
            Err(now) => old = now,
        }
    }
}

/// Reads shared memory from its byte `offset` on, as many bytes as `into` has: aligned
/// 64-bit words, atomically, so that others may write there at the same time. Where the
/// memory ends, the rest of `into` stays as it was.
#[inline]
pub fn copy_out(memory: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let mut memory = memory.get(offset / WORD..).unwrap_or_default();
    let mut into = into;
    let lead = offset % WORD;
    if lead != 0 {
        let len = into.len().min(WORD - lead);
        let (edge, rest) = into.split_at_mut(len);
        peel(memory, lead, edge);
        (memory, into) = (memory.get(1..).unwrap_or_default(), rest);
    }
    let done = load(memory, into);
    (memory, into) = (&memory[done / WORD..], &mut into[done..]);
    let (whole, edge) = into.as_chunks_mut::<WORD>();
    for (word, bytes) in memory.iter().zip(&mut *whole) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    peel(memory.get(whole.len()..).unwrap_or_default(), 0, edge);
    fence(Acquire);
}

/// Copies bytes of one memory into another, or into a part of the same that
/// has none of them. Where the two do not begin at the same byte of a word,
/// words that change meanwhile may be cut. The last word is written last, as by
/// [`copy_in`]: anyone who sees it sees all before it.
pub(super) fn copy(from: &[AtomicU64], at: usize, to: &[AtomicU64], offset: usize, len: usize) {
    fence(Release);
    // To where a word of the target begins.
    let lead = (offset.next_multiple_of(WORD) - offset).min(len);
    copy_edge(from, at, to, offset, lead);
    let target = to.get((offset + lead) / WORD..).unwrap_or_default();
    let done = lead + transfer(from, at + lead, target, before_last(len - lead));
    copy_edge(from, at + done, to, offset + done, len - done);
    fence(Acquire);
}

/// The same by way of a piece that stays in the first-level cache.
fn copy_edge(from: &[AtomicU64], at: usize, to: &[AtomicU64], offset: usize, len: usize) {
    const PIECE: usize = 512;
    let mut piece = [0; PIECE];
    let mut done = 0;
    while done < len {
        let piece = &mut piece[..PIECE.min(len - done)];
        copy_out(from, at + done, piece);
        copy_in(to, offset + done, piece);
        done += piece.len();
    }
}

/// Reads a few bytes of the first word, from its byte `at` on.
#[inline]
fn peel(memory: &[AtomicU64], at: usize, into: &mut [u8]) {
    let (Some(word), false) = (memory.first(), into.is_empty()) else { return };
    let bytes = word.load(Relaxed).to_ne_bytes();
    for (index, byte) in into.iter_mut().enumerate() {
        *byte = bytes[(at + index) % WORD];
    }
}

/// Adds `len` bytes of the memory from byte `offset` on to an Internet sum.
pub(super) fn add_to_sum(memory: &[AtomicU64], offset: usize, len: usize, sum: &mut InternetSum) {
    /// By way of a piece that stays in the first-level cache, so that the sum
    /// itself can run in vector registers, which atomic loads cannot.
    const PIECE: usize = 1024;
    let mut piece = [0; PIECE];
    let mut at = 0;
    while at < len {
        let piece = &mut piece[..PIECE.min(len - at)];
        copy_out(memory, offset + at, piece);
        sum.add(piece);
        at += piece.len();
    }
}

/// Does a word operation at byte `offset`, which is a multiple of the width;
/// gives what the word held before.
pub(super) fn word(
    memory: &[AtomicU64],
    offset: usize,
    width: WordWidth,
    function: WordFunction,
) -> Option<u64> {
    let word = memory.get(offset / WORD)?;
    Some(match width {
        WordWidth::Eight => eight(word, function),
        WordWidth::Four => four(word, !offset.is_multiple_of(WORD), function),
    })
}

fn eight(word: &AtomicU64, function: WordFunction) -> u64 {
    match function {
        WordFunction::Load => word.load(Acquire),
        // A store answers with what was there, as every operation does.
        WordFunction::Store(new) | WordFunction::Swap(new) => word.swap(new, AcqRel),
        WordFunction::Add(add) => word.fetch_add(add, AcqRel),
        WordFunction::And(and) => word.fetch_and(and, AcqRel),
        WordFunction::Or(or) => word.fetch_or(or, AcqRel),
        WordFunction::Xor(xor) => word.fetch_xor(xor, AcqRel),
        WordFunction::CompareSwap { expected, new } => {
            match word.compare_exchange(expected, new, AcqRel, Acquire) {
                Ok(old) | Err(old) => old,
            }
        }
    }
}

/// Half of a word, by compare-and-swap of the whole: atomics of two sizes on
/// the same memory have no defined meaning.
fn four(word: &AtomicU64, second: bool, function: WordFunction) -> u64 {
    // Which half comes second in memory depends on the byte order.
    let shift = if second == cfg!(target_endian = "little") { 32 } else { 0 };
    let mask = u64::from(u32::MAX) << shift;
    let half = |whole: u64| whole >> shift & u64::from(u32::MAX);
    if function == WordFunction::Load {
        return half(word.load(Acquire));
    }
    let function = match function {
        WordFunction::CompareSwap { expected, new } => {
            WordFunction::CompareSwap { expected: expected & u64::from(u32::MAX), new }
        }
        other => other,
    };
    half(update(word, AcqRel, |old| old & !mask | function.apply(half(old)) << shift & mask))
}

/// Bytes that one round of the loop moves.
const BLOCK: usize = 64;
const _: () = assert!(BLOCK.is_multiple_of(WORD), "what is copied here ends with a word");

/// Copies most of `bytes` to the first words; gives how many, a multiple of
/// [`WORD`].
#[inline]
pub(super) fn store(to: &[AtomicU64], bytes: &[u8]) -> usize {
    let blocks = size_of_val(to).min(bytes.len()) / BLOCK;
    // SAFETY: both sides have this many blocks. `to` may be written and raced
    // on, as atomics may.
    unsafe { copy_blocks(bytes.as_ptr(), to.as_ptr().cast::<u8>().cast_mut(), blocks) }
}

/// Copies the first words to most of `into`; gives how many bytes, a multiple
/// of [`WORD`].
#[inline]
pub(super) fn load(from: &[AtomicU64], into: &mut [u8]) -> usize {
    let blocks = size_of_val(from).min(into.len()) / BLOCK;
    // SAFETY: both sides have this many blocks. `from` may be raced on, as
    // atomics may.
    unsafe { copy_blocks(from.as_ptr().cast(), into.as_mut_ptr(), blocks) }
}

/// Copies most of the `len` bytes from byte `at` on to the first words; gives
/// how many, a multiple of [`WORD`]. Where `at` is no multiple of a word, words
/// that change meanwhile may be cut.
#[inline]
pub(super) fn transfer(from: &[AtomicU64], at: usize, to: &[AtomicU64], len: usize) -> usize {
    let there = size_of_val(from).saturating_sub(at);
    let blocks = there.min(size_of_val(to)).min(len) / BLOCK;
    // SAFETY: within `from`, or right behind it; `min` keeps it so.
    let start = unsafe { from.as_ptr().cast::<u8>().add(at.min(size_of_val(from))) };
    // SAFETY: both sides have this many blocks. Both may be raced on, and `to`
    // written, as atomics may.
    unsafe { copy_blocks(start, to.as_ptr().cast::<u8>().cast_mut(), blocks) }
}

/// Copies blocks; gives how many bytes. The two sides may overlap, and then mix.
///
/// # Safety
/// From both addresses on there are that many blocks, the first to be read, the
/// second to be written. What of it is shared is an array of words.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, blocks: usize) -> usize {
    if blocks == 0 {
        return 0;
    }
    // SAFETY: the caller vouches for the memory; nothing else is touched but
    // the registers that are listed.
    unsafe {
        core::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {left}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            left = inout(reg) blocks => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
    blocks * BLOCK
}

/// Leaves all to the loops over words.
///
/// # Safety
/// None is needed.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
unsafe fn copy_blocks(_: *const u8, _: *mut u8, _: usize) -> usize {
    0
}
