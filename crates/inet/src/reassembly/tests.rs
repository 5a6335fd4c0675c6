use std::collections::BTreeSet;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// RFC 8200 and RFC 5722 word for word, a byte at a time.
#[derive(Default)]
struct Model {
    bytes: BTreeSet<u32>,
    pieces: Vec<Piece>,
}

impl Model {
    fn check(&self, piece: Piece) -> Result<(), Refusal> {
        if self.pieces.contains(&piece) {
            return Err(Refusal::Duplicate);
        }
        let overlaps = (piece.start..piece.end).any(|at| self.bytes.contains(&at));
        let all = || self.pieces.iter().chain([&piece]);
        let ends: Vec<_> = all().filter(|piece| piece.is_last).map(|piece| piece.end).collect();
        let reached = all().map(|piece| piece.end).max().unwrap();
        if overlaps || ends.len() > 1 || ends.first().is_some_and(|end| *end < reached) {
            return Err(Refusal::Forbidden);
        }
        Ok(())
    }

    fn note(&mut self, piece: Piece) -> bool {
        self.bytes.extend(piece.start..piece.end);
        self.pieces.push(piece);
        let end = self.pieces.iter().find(|piece| piece.is_last).map(|piece| piece.end);
        end == Some(self.bytes.len() as u32)
    }
}

/// Pieces in units of 8 bytes: mostly as a sender cuts, and some that are not.
fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let cut = (1..6u32, 1..12u32, any::<u32>()).prop_map(|(unit, count, order)| {
        let mut pieces: Vec<_> = (0..count)
            .map(|n| Piece {
                start: n * unit * 8,
                end: (n + 1) * unit * 8 - if n + 1 == count { order % 8 } else { 0 },
                is_last: n + 1 == count,
            })
            .collect();
        let (a, b) = (order as usize % pieces.len(), (order >> 8) as usize % pieces.len());
        if order >> 31 == 1 {
            pieces.swap(a, b);
        }
        pieces
    });
    let other = (0..70u32, 1..8u32, any::<bool>()).prop_map(|(start, len, is_last)| {
        std::vec![Piece { start: start * 8, end: (start + len) * 8, is_last }]
    });
    prop::collection::vec(prop_oneof![2 => cut, 1 => other], 1..4)
        .prop_map(|lists| lists.into_iter().flatten().collect())
}

#[test]
fn a_key_says_which_packet() {
    let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let ipv4 = Key::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 7, 17);
    assert_eq!(Key::new(a, b, 7, 17), ipv4);
    assert_eq!(ipv4.addresses(), (a, b));
    assert_ne!(Key::new(a, b, 7, 6), ipv4, "another protocol");
    assert_ne!(Key::new(a, b, 8, 17).flow(), ipv4);
    assert_eq!(Key::new(a, b, 8, 17).flow(), ipv4.flow());
    let (a, b): (IpAddr, IpAddr) = ("::a00:1".parse().unwrap(), "::a00:2".parse().unwrap());
    assert_eq!(Key::new(a, b, 7, 17), Key::new(a, b, 7, 6), "only the first piece says it");
    assert_ne!(Key::new(a, b, 7, 17), ipv4, "the same numbers, another version");
    assert_eq!(Key::new(a, b, 7, 17).addresses(), (a, b));
}

#[test]
fn lengths_and_places_that_no_fragment_has_are_refused() {
    let piece = |offset, len, more| Piece::new(Fragment { id: 1, offset, more }, len, LONGEST);
    assert_eq!(piece(0, 0, true), Err(Refusal::Malformed), "empty");
    assert_eq!(piece(8, 0, false), Err(Refusal::Malformed), "empty at the end");
    assert!(piece(0, 0, false).is_ok(), "a whole packet may be empty");
    assert_eq!(piece(0, 12, true), Err(Refusal::Malformed), "no multiple of 8");
    assert_eq!(piece(4, 8, false), Err(Refusal::Malformed), "at no multiple of 8");
    assert_eq!(piece(65_528, 8, false), Err(Refusal::OutOfBounds));
    assert_eq!(piece(!7, u32::MAX, false), Err(Refusal::OutOfBounds));
    let last = Piece { start: 65_528, end: 65_535, is_last: true };
    assert_eq!(piece(65_528, 7, false), Ok(last), "the last byte that a packet may have");
}

proptest! {
    /// Cuts in order, swapped, overlapping and contradicting: the same verdict as the
    /// model, piece by piece.
    #[test]
    fn verdicts_are_those_of_the_model(pieces in pieces()) {
        let (mut assembly, mut holes, mut model) =
            (Assembly::new(), Holes::default(), Model::default());
        for piece in pieces {
            let expected = model.check(piece);
            prop_assert_eq!(assembly.check(piece, &mut holes), expected, "{:?}", piece);
            match expected {
                Ok(()) => {
                    assembly.note(piece, Congestion::default(), &mut holes);
                    let is_whole = model.note(piece);
                    prop_assert_eq!(assembly.is_whole(), is_whole);
                    prop_assert_eq!(assembly.has_first(), model.bytes.contains(&0));
                    if is_whole {
                        prop_assert_eq!(assembly.total() as usize, model.bytes.len());
                        break;
                    }
                }
                Err(Refusal::Duplicate) => {}
                // Its owner gives the packet up.
                Err(_) => break,
            }
        }
    }

    #[test]
    fn congestion_of_any_piece_is_that_of_all(marks in prop::collection::vec(0..4u8, 1..6)) {
        let marks: Vec<_> = marks.into_iter().map(Ecn::from_bits).collect();
        let mut congestion = Congestion::default();
        for mark in &marks {
            congestion.add(*mark);
        }
        let incapable = marks.iter().filter(|mark| **mark == Ecn::NotCapable).count();
        let expected = if incapable != 0 && incapable != marks.len() {
            Err(Refusal::Malformed)
        } else if marks.contains(&Ecn::CongestionExperienced) {
            Ok(Ecn::CongestionExperienced)
        } else {
            Ok(marks[0])
        };
        prop_assert_eq!(congestion.of_all(marks[0]), expected);
    }
}

/// What is the next in the middle of a packet may be noted without a look at holes.
#[test]
fn the_next_piece_is_noted_as_any_other() {
    let (mut one, mut other, mut holes) = (Assembly::new(), Assembly::new(), Holes::default());
    let mut marked = Congestion::default();
    marked.add(Ecn::CongestionExperienced);
    let piece = |start, end| Piece { start, end, is_last: false };
    for (place, congestion) in [(piece(0, 16), Congestion::default()), (piece(16, 32), marked)] {
        assert!(one.is_next(place) && !one.is_next(piece(32, 48)));
        one.note(place, congestion, &mut holes);
        if place.start == 0 {
            other.note(place, congestion, &mut holes);
        } else {
            other.note_next(place, congestion);
        }
        let state = |it: &Assembly| (it.filled(), it.reached(), it.congestion(), it.is_described());
        assert_eq!(state(&one), state(&other));
    }
    assert_eq!((other.filled(), other.congestion()), (32, one.congestion()));
    assert!(other.is_next(piece(32, 48)) && !other.is_next(piece(32, 56)), "as long as the first");
}
