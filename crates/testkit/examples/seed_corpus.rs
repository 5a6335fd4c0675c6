//! Writes the seeds of the fuzz target `placement_bookkeeping` again:
//! `cargo run -p landfall-testkit --example seed_corpus`.

use landfall_placement::Random;
use landfall_testkit::corpus::{Corpus, Error};

/// Posts memory for 2 KiB at side 1, and sends as much from side 0.
const BEGIN: [u8; 6] = [10 | 0x80, 0x47, 0xff, 0, 0x47, 0xff];
/// Side 0 sends, side 1 places and lands, side 1 sends, side 0 takes it in.
const STEP: [u8; 12] = [20, 0x10, 50 | 0x80, 0, 75 | 0x80, 0x1f, 20 | 0x80, 0x10, 50, 0, 75, 0x1f];
/// A wrong guess, a repeated and a broken unit, old tickets, time.
const TROUBLE: [u8; 12] = [107 | 0x80, 98 | 0x80, 0, 101, 1, 2, 3, 119, 119 | 0x80, 111, 1, 45];
/// Engines and configurations.
const FIRST: [u8; 10] = [0x00, 0x01, 0x02, 0x04, 0x0b, 0x80, 0x81, 0x82, 0x84, 0x9f];

const TARGET: &str = "placement_bookkeeping";

fn main() -> Result<(), Error> {
    let mut corpus = Corpus::open(TARGET)?;
    for (n, first) in FIRST.iter().enumerate() {
        let mut bytes = vec![*first];
        bytes.extend(BEGIN);
        for _ in 0..20 {
            bytes.extend(STEP);
        }
        bytes.extend(TROUBLE);
        corpus.set(&format!("transfer-{n:02}"), &bytes)?;
    }
    // 11100 found that a repeated placement had the ticket of the first.
    for seed in (0..11).chain([11_100]) {
        let mut random = Random::from_number(seed);
        let len = 1 + random.below(900) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        corpus.set(&format!("random-{seed:05}"), &bytes)?;
    }
    corpus.save(TARGET)
}
