//! What every image needs: a processor whose cycles nobody counts, and an end for
//! what must not happen.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};

use landfall_placement::Spans;
use nic_firmware_model::firmware::{
    Arrival, Firmware, Landed, Meter, OutgoingFrame, Stage, Verdict,
};
use nic_firmware_model::machine::Batch;

/// Nobody counts.
#[derive(Debug)]
pub struct Uncounted;

impl Meter for Uncounted {
    #[inline]
    fn spend(&mut self, _stage: Stage, _cycles: u32) {}
}

/// All that an adapter asks of its firmware: work requests, a frame to be sent, a command,
/// a frame that came, its landing.
#[inline]
pub fn work<F: Firmware>(
    firmware: &mut F,
    command: &F::Command,
    frame: &Arrival<'_>,
    into: &mut Spans,
    is_in_place: bool,
) -> (Option<F::Report>, Option<Landed<F::Report>>) {
    let (mut command, requests) = (*command, core::hint::black_box([[0; 32]; Batch::MOST]));
    firmware.fetched(&mut command, Some(&requests));
    firmware.fetched_send(Some(&requests), into);
    into.clear();
    let leaving = OutgoingFrame { head: frame.bytes, len: frame.bytes.len() as u32 };
    core::hint::black_box(firmware.send(&leaving, &mut Uncounted));
    let answer = firmware.handle_command(&command, &mut Uncounted);
    let landed = match firmware.receive(frame, into, &mut Uncounted) {
        Verdict::Place { token, .. } => Some(firmware.landed(token, is_in_place, &mut Uncounted)),
        Verdict::Host | Verdict::Drop => None,
    };
    (answer, landed)
}

/// The crates of the engines are linked with `alloc`, so that there must be something
/// that allocates. It has nothing to give.
struct Nothing;

// SAFETY: it never hands out memory.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        a_firmware_must_not_allocate()
    }

    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static NOTHING: Nothing = Nothing;

/// No path leads here: `.ci/run firmware` looks for its name in the image.
#[inline(never)]
fn a_firmware_must_not_allocate() -> *mut u8 {
    core::hint::black_box(core::ptr::null_mut())
}

/// No path leads here either.
#[inline(never)]
#[panic_handler]
fn a_firmware_must_not_panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
