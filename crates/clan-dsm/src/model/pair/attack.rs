//! An adapter under any frames: real ones that were changed and made right
//! again, and frames made of any bytes. Nothing may panic, and no memory may
//! change but apertures that the peer has cookies for.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::InternetSum;
use landfall_testkit::model::Choices;

use super::Pair;
use crate::wire::crc;
use crate::wire::frame::{Entry, HEADER_LEN, SUM_SLOT};

/// Where the header has its CRC, the number of entries, and the length of what
/// stands behind them.
const CRC_AT: usize = 34;
const ENTRIES_AT: usize = 31;
const LEN_AT: usize = 32;

/// The side that is attacked.
const VICTIM: usize = 1;

/// What both sides ask for before the attack begins.
const WORK: [u8; 200] = {
    let mut work = [0; 200];
    let mut n = 0;
    while n < work.len() {
        work[n] = (n as u8).wrapping_mul(167).wrapping_add(13);
        n += 1;
    }
    work
};

pub(super) fn withstand(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut pair = Pair::new(&mut choices);
    let mut work = Choices::new(&WORK);
    for side in [0, 1, 0, 1] {
        pair.watch(side, &mut work);
        pair.write(side, &mut work);
        pair.write_from(side, &mut work);
        pair.read(side, &mut work);
        pair.change(side, &mut work);
        pair.chain(side, &mut work);
        pair.barrier(side);
        while pair.transmit(side) {}
    }
    pair.is_lawless = true;
    while !choices.is_over() {
        one_frame(&mut pair, &mut choices);
        pair.listen();
    }
    pair.settle(200);
    for side in &mut pair.sides {
        side.compare_all();
    }
    pair.into_story()
}

fn one_frame(pair: &mut Pair, choices: &mut Choices<'_>) {
    let how = choices.byte();
    let known: Vec<Vec<u8>> =
        pair.wires[VICTIM].iter().chain(&pair.old[VICTIM]).take(40).cloned().collect();
    let template = match how >> 6 {
        0 => None,
        _ if known.is_empty() => None,
        _ => Some(known[choices.below(known.len())].clone()),
    };
    let mut unit = template.unwrap_or_else(|| {
        let len = choices.below(256);
        choices.raw(len).to_vec()
    });
    for _ in 0..how & 7 {
        change(&mut unit, choices);
    }
    if how & 8 == 0 {
        seal(&mut unit);
    }
    pair.wires[VICTIM].push_front(unit);
    pair.receive(VICTIM, 1 + usize::from(how >> 4 & 3));
    if how & 0x20 != 0 {
        pair.settle(2);
    }
    if how == 0xff {
        pair.wait();
    }
}

/// A byte is another one, or the frame is longer or shorter, or a packet more.
fn change(unit: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let (what, at, value) = (choices.byte(), choices.below(400), choices.byte());
    match what & 15 {
        0 => unit.truncate(at),
        1 => unit.extend(vec![value; at & 63]),
        2 => {
            // One more packet like the first, with bytes behind all others.
            let first = unit.get(HEADER_LEN..HEADER_LEN + Entry::LEN).map(<[u8]>::to_vec);
            if let (Some(first), Some(entries)) = (first, unit.get_mut(ENTRIES_AT)) {
                *entries = entries.wrapping_add(1);
                unit.splice(HEADER_LEN..HEADER_LEN, first);
            }
        }
        3..=7 if unit.len() > HEADER_LEN + Entry::LEN => {
            // Somewhere in the table.
            unit[HEADER_LEN + at % Entry::LEN] = value;
        }
        _ => {
            let len = unit.len().max(1);
            if let Some(byte) = unit.get_mut(at % len) {
                *byte = value;
            }
        }
    }
}

/// Makes the lengths and the checksums right, if there is a header.
fn seal(unit: &mut [u8]) {
    let len = unit.len();
    let Some(header) = unit.first_chunk_mut::<HEADER_LEN>() else { return };
    let is_data = header[2] & 0xf == 0;
    let table = usize::from(header[ENTRIES_AT]) * Entry::LEN;
    let body = len.saturating_sub(HEADER_LEN + table);
    if is_data && body <= usize::from(u16::MAX) {
        header[LEN_AT..CRC_AT].copy_from_slice(&(body as u16).to_be_bytes());
    }
    let payload_len = usize::from(u16::from_be_bytes([header[LEN_AT], header[LEN_AT + 1]]));
    let covered = HEADER_LEN + table + if is_data { 0 } else { payload_len };
    let Some(behind) = unit.get(HEADER_LEN..covered) else { return };
    let sum = crc::extend(crc::crc32c(&unit[..CRC_AT]), behind);
    unit[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_be_bytes());
    let at = usize::from(SUM_SLOT.start + SUM_SLOT.offset);
    unit[at..at + 2].fill(0);
    let mut sum = InternetSum::new();
    sum.add(&unit[at..]);
    unit[at..at + 2].copy_from_slice(&(!sum.sum()).to_be_bytes());
}
