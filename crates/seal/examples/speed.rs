//! How fast records are sealed and opened: each provider and suite, at the payloads of frames
//! of 1,500 and 9,000 bytes.

#![expect(clippy::disallowed_methods, reason = "what measures reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use landfall_seal::provider::{Provider, RustCrypto};
use landfall_seal::{Aead, Keys, RecordConfig, Role, Secret, Suite};

/// Bytes of each measurement, and how many there are.
const BYTES: usize = 128 << 20;
const ROUNDS: usize = 5;

fn main() {
    println!("GB/s of payload, median of {ROUNDS}: seal, open (with a copy)");
    for suite in Suite::ALL {
        for len in [1_424, 8_192] {
            measure::<RustCrypto>("RustCrypto", suite, len);
            measure::<Provider>("std", suite, len);
        }
    }
}

fn measure<A: Aead>(provider: &str, suite: Suite, len: usize) {
    let keys = |role| Keys::new(Secret::new([7; 32]), role, suite);
    let config = RecordConfig::default();
    let (mut sealer, _) = keys(Role::Initiator).records::<A>(&config);
    let (_, mut opener) = keys(Role::Responder).records::<A>(&config);
    let (head, count) = ([7; 40], BYTES / len);
    let mut payload = vec![1; len];
    let (mut sealing, mut opening) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..count {
            let slot = sealer.slot(0).expect("numbers are left");
            black_box(slot.seal(&head, black_box(&mut payload)).expect("the key is fresh"));
        }
        sealing.push((count * len) as f64 / start.elapsed().as_secs_f64() / 1e9);
        let mut spent = 0.0;
        let mut landed = vec![0; len];
        for _ in 0..count {
            let slot = sealer.slot(0).expect("numbers are left");
            let at = slot.position();
            let tag = slot.seal(&head, &mut payload).expect("the key is fresh");
            let start = Instant::now();
            landed.copy_from_slice(&payload);
            opener.open(at, &head, black_box(&mut landed), &tag).expect("it is genuine");
            spent += start.elapsed().as_secs_f64();
        }
        opening.push((count * len) as f64 / spent / 1e9);
    }
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    };
    println!(
        "{provider:12} {suite:18} {len:6}  {:6.2}  {:6.2}",
        median(sealing),
        median(opening),
        suite = format!("{suite:?}"),
    );
}
