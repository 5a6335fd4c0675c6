//! The Tigon-II's.
#![no_std]
#![no_main]

use core::hint::black_box;

use firmware_image::work;
use landfall_placement::Spans;
use nic_firmware_model::firmware::{Arrival, Firmware};
use nic_firmware_model::tigon::Tigon;

/// The linker begins here.
#[unsafe(no_mangle)]
#[allow(improper_ctypes_definitions)]
extern "C" fn _start(
    firmware: &mut Tigon<'_>,
    command: &<Tigon<'_> as Firmware>::Command,
    frame: &Arrival<'_>,
    into: &mut Spans,
    is_in_place: bool,
) {
    black_box(work(firmware, command, frame, into, is_in_place));
}
