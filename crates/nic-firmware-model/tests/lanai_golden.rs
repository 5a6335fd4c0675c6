//! What two hosts with LANai 9 cards say to each other, and what is in their memory
//! then, as it is in the repository. One bit that differs fails; `UPDATE_GOLDEN=1`
//! writes anew what is there.

#[path = "support/kept.rs"]
mod kept;

use landfall_placement::Random;
use nic_firmware_model::lanai::model::{Carded, play};

/// Connections, datagrams, losses and forged frames.
fn scenario() -> Vec<u8> {
    let mut random = Random::from_number(5);
    (0..700).map(|_| random.next_u32() as u8).collect()
}

#[test]
fn it_is_as_it_always_was() {
    let record = play::<Carded>(&scenario(), None);
    assert!(record.wrong.is_empty(), "{:?}", record.wrong);
    assert!(record.placed.0 > 0, "the cards placed nothing");
    let memory: String =
        record.memory.iter().map(|bytes| format!("{:016x}\n", kept::digest(bytes))).collect();
    kept::expect("lanai.pcapng", &record.frames, "lanai.memory", &memory);
}
