//! The CLAN adapter's.
#![no_std]
#![no_main]

use core::hint::black_box;

use firmware_image::work;
use landfall_placement::Spans;
use nic_firmware_model::clan::Clan;
use nic_firmware_model::firmware::{Arrival, Firmware};

/// The linker begins here.
#[unsafe(no_mangle)]
#[allow(improper_ctypes_definitions)]
extern "C" fn _start(
    firmware: &mut Clan<'_>,
    command: &<Clan<'_> as Firmware>::Command,
    frame: &Arrival<'_>,
    into: &mut Spans,
    is_in_place: bool,
) {
    black_box(work(firmware, command, frame, into, is_in_place));
}
