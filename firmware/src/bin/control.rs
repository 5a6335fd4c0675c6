//! What a firmware must not be: `.ci/run firmware` has to find fault with it.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use core::hint::black_box;

// The rest of the image.
use firmware_image as _;

/// The linker begins here.
#[unsafe(no_mangle)]
extern "C" fn _start(at: usize) {
    let table = black_box([0_u8; 4]);
    black_box(Box::new(table[at]));
}
