use std::vec::Vec;

use landfall_tables::{HashIndex, HashSecret};

use super::store::PacketKey;
use crate::wire::Key;

/// Keys that a stranger who knows one secret chose so that they fall into one place fall into many
/// under another secret: packets are found by a keyed hash.
#[test]
fn identifications_chosen_to_collide_under_one_secret_do_not_under_another() {
    const PLACES: u32 = 1024;
    let key = |n: u32| PacketKey {
        key: Key::ipv4(n.to_be_bytes(), [10, 0, 0, 2], n as u16, 17),
        vlans: [0; 2],
    };
    let place = |secret, n| HashIndex::new(secret).hash(&key(n)) % PLACES;
    let (known, other) = (HashSecret::new(1, 2), HashSecret::new(3, 4));
    let chosen: Vec<u32> = (0..400_000).filter(|n| place(known, *n) == 7).collect();
    assert!(chosen.len() > 300);
    let mut loads = [0; PLACES as usize];
    chosen.iter().for_each(|n| loads[place(other, *n) as usize] += 1);
    assert!(loads.iter().all(|load| *load < 8), "{loads:?}");
}
