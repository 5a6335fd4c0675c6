//! Could this packet have been made of these frames? That is what is asked where
//! the receiver had to give up packets that a reassembler without bounds keeps.

use alloc::vec::Vec;

use super::read::{Name, Piece, head_for};

/// Whether one way to put pieces of one name together gives the packet.
pub(super) fn is_made_of(packet: &[u8], seen: &[Piece]) -> bool {
    let mut names: Vec<&Name> = Vec::new();
    for first in seen.iter().filter(|piece| piece.offset == 0) {
        if !names.contains(&&first.name) {
            names.push(&first.name);
        }
    }
    names.iter().any(|name| {
        let of_name: Vec<&Piece> = seen.iter().filter(|piece| piece.name == **name).collect();
        let firsts = of_name.iter().filter(|piece| piece.offset == 0);
        firsts.into_iter().any(|first| {
            let Some((head, payload)) = packet.split_at_checked(first.head.len()) else {
                return false;
            };
            (0..4).any(|ecn| {
                head_for(&first.head, ecn, payload.len()).is_some_and(|made| made == head)
                    && is_tiled(payload, &of_name)
            })
        })
    })
}

/// Whether pieces lie side by side and give these bytes.
fn is_tiled(payload: &[u8], pieces: &[&Piece]) -> bool {
    let mut reached = alloc::vec![0];
    let mut at = 0;
    while let Some(start) = reached.get(at).copied() {
        at += 1;
        for piece in pieces.iter().filter(|piece| piece.offset == start) {
            let end = piece.end();
            let fits = payload.get(start..end) == Some(&piece.bytes[..]);
            if !fits || piece.more == (end == payload.len()) {
                continue;
            }
            if !piece.more {
                return true;
            }
            if !reached.contains(&end) {
                reached.push(end);
            }
        }
    }
    false
}
