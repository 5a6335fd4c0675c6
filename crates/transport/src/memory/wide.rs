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

use core::sync::atomic::AtomicU64;

use super::words::WORD;

/// Bytes that one round of the loop moves.
const BLOCK: usize = 64;
const _: () = assert!(BLOCK.is_multiple_of(WORD), "what is copied here ends with a word");

/// Copies most of `bytes` to the first words; gives how many, a multiple of
/// [`WORD`].
#[inline]
pub(super) fn store(to: &[AtomicU64], bytes: &[u8]) -> usize {
    let blocks = size_of_val(to).min(bytes.len()) / BLOCK;
    // SAFETY: both sides have so many blocks. `to` may be written and raced
    // on, as atomics may.
    unsafe { copy_blocks(bytes.as_ptr(), to.as_ptr().cast::<u8>().cast_mut(), blocks) }
}

/// Copies the first words to most of `into`; gives how many bytes, a multiple
/// of [`WORD`].
#[inline]
pub(super) fn load(from: &[AtomicU64], into: &mut [u8]) -> usize {
    let blocks = size_of_val(from).min(into.len()) / BLOCK;
    // SAFETY: both sides have so many blocks. `from` may be raced on, as
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
    // SAFETY: both sides have so many blocks. Both may be raced on, and `to`
    // written, as atomics may.
    unsafe { copy_blocks(start, to.as_ptr().cast::<u8>().cast_mut(), blocks) }
}

/// Copies blocks; gives how many bytes. The two sides may overlap, and then mix.
///
/// # Safety
/// From both addresses on there are so many blocks, the first to be read, the
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
