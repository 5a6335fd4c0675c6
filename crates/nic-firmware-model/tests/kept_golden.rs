//! A run that is kept is compared to the last bit, and what differs is named.

#[path = "support/kept.rs"]
mod kept;

use std::path::PathBuf;

fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read(path).expect("it is in the repository")
}

const KEPT: [&str; 4] = ["tigon.pcapng", "lanai.pcapng", "hamachi.pcapng", "clan.pcapng"];

/// Of all bits at both ends, and of one bit in each part of what is between.
#[test]
fn no_bit_of_a_capture_changes_without_a_difference() {
    for name in KEPT {
        let was = golden(name);
        assert!(kept::differences(name, &was, &was).is_empty(), "{name} differs from itself");
        let mut is = was.clone();
        let ends = (0..32).chain(was.len() - 32..was.len());
        let all = ends.flat_map(|at| (0..8).map(move |bit| (at, bit)));
        let some = (32..was.len() - 32).step_by(331).map(|at| (at, at % 8));
        for (at, bit) in all.chain(some) {
            is[at] ^= 1 << bit;
            assert!(!kept::differences(name, &is, &was).is_empty(), "{name}, byte {at}");
            is[at] ^= 1 << bit;
        }
        for len in [0, 1, was.len() / 2, was.len() - 1] {
            assert!(!kept::differences(name, &was[..len], &was).is_empty(), "{len} of {name}");
        }
    }
}

/// Where a byte of a packet is changed, the packet, the byte and its meaning are said.
#[test]
fn a_difference_says_which_packet_which_byte_and_what_it_is() {
    let was = golden("lanai.pcapng");
    // Behind the frame of the block: a header of Ethernet, then one of IP.
    let third = kept::blocks(&was)
        .into_iter()
        .filter(|block| block.starts_with(&6u32.to_le_bytes()))
        .nth(2)
        .expect("many packets are kept");
    let start = third.as_ptr() as usize - was.as_ptr() as usize + 28;
    let version = was[start + 14] >> 4;
    let says = |at: usize| {
        let mut is = was.clone();
        is[start + at] ^= 0xff;
        let found = kept::differences("run", &is, &was);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap_or_default()
    };
    assert!(says(7).starts_with("run, packet 3, byte 7 (Ethernet, source): "), "{}", says(7));
    let (hops, name) =
        if version == 6 { (21, "IPv6, hop limit") } else { (22, "IPv4, time to live") };
    assert!(says(hops).starts_with(&format!("run, packet 3, byte {hops} ({name}): ")));
}
