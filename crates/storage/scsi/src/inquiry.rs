//! INQUIRY: the standard data and the pages of vital product data.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::sense::Sense;
use crate::unit::{Disk, MOST_COMPARED, MOST_UNMAPS};
use crate::wire::{padded, put};

const VENDOR: &str = "LANDFALL";
const PRODUCT: &str = "DISK";
const REVISION: &str = "0001";

/// The standard data of a logical unit; of none, where a target has none of this number.
pub(crate) fn standard(disk: Option<&Disk>) -> Vec<u8> {
    let mut data = vec![0; 96];
    // No device is or can be here.
    data[0] = if disk.is_some() { 0x00 } else { 0x7f };
    // SPC-4, with hierarchical LUNs.
    put(&mut data, 2, &[0x06, 0x12, 91, 0, 0, 0x02]);
    put(&mut data, 8, &padded(VENDOR, 8));
    put(&mut data, 16, &padded(PRODUCT, 16));
    put(&mut data, 32, &padded(REVISION, 4));
    // SAM-5, SPC-4, SBC-3, iSCSI: no version claimed.
    for (nth, version) in [0x00a0_u16, 0x0460, 0x04c0, 0x0960].into_iter().enumerate() {
        put(&mut data, 58 + 2 * nth, &version.to_be_bytes());
    }
    data
}

/// A page of vital product data.
pub(crate) fn page(number: u8, disk: &Disk, target: &str) -> Result<Vec<u8>, Sense> {
    let body = match number {
        0x00 => vec![0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2],
        0x80 => disk.serial.clone().into_bytes(),
        0x83 => identification(disk, target),
        0x86 => extended(),
        0xb0 => limits(disk),
        0xb1 => characteristics(),
        // Thresholds none; UNMAP, WRITE SAME (16) and (10) unmap; unmapped blocks are zero;
        // thin provisioning.
        0xb2 => vec![0, 0xe4, 2, 0],
        _ => return Err(Sense::invalid_field(2, 7)),
    };
    let mut data = vec![0, number];
    data.extend_from_slice(&(body.len() as u16).to_be_bytes());
    data.extend_from_slice(&body);
    Ok(data)
}

/// How the unit and the port are called everywhere.
fn identification(disk: &Disk, target: &str) -> Vec<u8> {
    let mut data = Vec::new();
    let mut designate = |set: u8, kind: u8, name: &[u8]| {
        data.extend_from_slice(&[0x50 | set, 0x80 | kind, 0, name.len() as u8]);
        data.extend_from_slice(name);
    };
    // Of the unit: by a vendor, and by a number that is unique here.
    let mut vendor = padded(VENDOR, 8);
    vendor.extend_from_slice(disk.serial.as_bytes());
    vendor.truncate(250);
    let name: [u8; 8] =
        (0x3 << 60 | identity(&format!("{target} {}", disk.serial)) >> 4).to_be_bytes();
    designate(2, 0x01, &vendor);
    designate(1, 0x03, &name);
    // Of the port: its number among those of the target, and its name.
    designate(1, 0x14, &[0, 0, 0, 1]);
    designate(3, 0x18, &string(&format!("{target},t,0x0001")));
    // Of the target.
    designate(3, 0x28, &string(target));
    // The protocol is only said of ports and targets.
    let mut at = 0;
    while at + 4 <= data.len() {
        if data[at + 1] & 0x30 == 0 {
            data[at] &= 0x0f;
            data[at + 1] &= 0x7f;
        }
        at += 4 + usize::from(data[at + 3]);
    }
    data
}

/// A name in UTF-8 with its zero, and zeroes up to four bytes.
fn string(name: &str) -> Vec<u8> {
    let mut bytes = String::from(name).into_bytes();
    bytes.truncate(247);
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A number that stands for a name (FNV-1a).
fn identity(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn extended() -> Vec<u8> {
    let mut body = vec![0; 60];
    // Simple tasks only in order of their own; a volatile cache that can be flushed.
    put(&mut body, 1, &[0x01, 0x01]);
    body
}

/// How much may be asked for at a time.
fn limits(disk: &Disk) -> Vec<u8> {
    let mut body = vec![0; 60];
    let most = disk.most_blocks();
    // WRITE SAME of no blocks is refused.
    put(&mut body, 0, &[0x01, MOST_COMPARED]);
    put(&mut body, 2, &8_u16.to_be_bytes());
    put(&mut body, 4, &most.to_be_bytes());
    put(&mut body, 8, &(most / 8).max(1).to_be_bytes());
    put(&mut body, 12, &most.to_be_bytes());
    put(&mut body, 16, &u32::MAX.to_be_bytes());
    put(&mut body, 20, &MOST_UNMAPS.to_be_bytes());
    put(&mut body, 24, &8_u32.to_be_bytes());
    put(&mut body, 32, &u64::from(disk.most_same()).to_be_bytes());
    body
}

fn characteristics() -> Vec<u8> {
    let mut body = vec![0; 60];
    // It does not rotate.
    put(&mut body, 0, &1_u16.to_be_bytes());
    body
}
