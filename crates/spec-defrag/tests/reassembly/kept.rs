//! Frames that are kept, where nothing is copied. The model offers all its traffic to such a
//! reassembler, too.

use std::rc::Rc;

use spec_defrag::reassembly::{Config, DropReason, EndReason, Frame, Outcome, Reassembler};

use super::*;
use crate::support::{Sent, UDP, twin};

/// A buffer of a pool, in which a frame takes as much as any.
#[derive(Debug)]
struct Slot {
    frame: Vec<u8>,
    /// The pool counts those that are out.
    _out: Rc<()>,
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Frame for Slot {
    fn memory(&self) -> usize {
        Pool::SLOT
    }
}

#[derive(Default)]
struct Pool(Rc<()>);

impl Pool {
    const SLOT: usize = 2_048;

    fn slot(&self, frame: &[u8]) -> Option<Slot> {
        Some(Slot { frame: frame.to_vec(), _out: Rc::clone(&self.0) })
    }

    fn out(&self) -> usize {
        Rc::strong_count(&self.0) - 1
    }
}

#[test]
fn a_packet_is_made_of_the_frames_themselves_whatever_their_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let Sent { packet, pieces } = sent(UDP, 1, 4096);
        let places: Vec<_> = pieces.iter().map(|piece| piece.as_ptr_range()).collect();
        let mut frames: Vec<_> = pieces.into_iter().map(Some).collect();
        let mut reassembler = Reassembler::keeping(config());
        for at in &order[..2] {
            assert!(matches!(reassembler.offer_frame(NOW, &mut frames[*at]), Outcome::Kept));
        }
        let whole = reassembler.offer_frame(NOW, &mut frames[order[2]]).packet().unwrap();
        assert_eq!((whole.to_vec(), whole.fragments()), (packet, 3));
        let lie_there = whole.pieces().zip(&places).all(|(piece, place)| {
            let piece = piece.as_ptr_range();
            place.start < piece.start && piece.end <= place.end
        });
        assert!(lie_there && whole.pieces().count() == 3, "{order:?}");
        assert_eq!(frames.iter().flatten().count(), 1, "only the last is the caller's");
    }
}

#[test]
fn a_frame_that_is_not_kept_is_the_callers_again() {
    let pool = Pool::default();
    let mut reassembler = Reassembler::keeping(config());
    let Sent { pieces, .. } = sent(UDP, 1, 4096);
    let mut offer = |frame: &[u8]| {
        let mut slot = pool.slot(frame);
        let dropped = match reassembler.offer_frame(NOW, &mut slot) {
            Outcome::Dropped(reason) => Some(reason),
            _ => None,
        };
        (dropped, slot.is_some())
    };
    assert_eq!(offer(&UDP.small(1)), (None, true));
    assert_eq!(offer(&pieces[0]), (None, false));
    assert_eq!(offer(&pieces[0]), (Some(DropReason::Duplicate), true));
    // The same place with other bytes: the packet is ended, and its frames are released.
    assert_eq!(offer(&twin(&pieces[0])), (Some(DropReason::Overlap), true));
    assert_eq!(pool.out(), 0);
    assert_eq!(offer(&pieces[1]), (Some(DropReason::Ended), true));
}

#[test]
fn frames_are_released_when_the_next_packet_came_out_and_when_theirs_ended() {
    let pool = Pool::default();
    let mut reassembler = Reassembler::keeping(config());
    for id in 0..3 {
        for piece in sent(UDP, id, 4096).pieces {
            let _ = reassembler.offer_frame(NOW, &mut pool.slot(&piece));
        }
        assert_eq!(pool.out(), 2, "those of the packet that came out last");
    }
    let _ = reassembler.offer_frame(NOW, &mut pool.slot(&sent(UDP, 9, 4096).pieces[0]));
    assert_eq!(pool.out(), 3);
    reassembler.handle_timeout(NOW + config().lifetime);
    let ended = reassembler.poll_ended().unwrap();
    assert_eq!((ended.reason, ended.key.id, ended.fragments), (EndReason::Expired, 9, 1));
    assert!(ended.first.is_some_and(|first| !first.payload.is_empty()));
    assert_eq!(pool.out(), 2);
}

/// What counts is the memory that frames hold: small fragments in large buffers are no way round
/// the bound.
#[test]
fn the_memory_that_frames_hold_is_bounded() {
    const PACKETS: usize = 10;
    let pool = Pool::default();
    let each = (Pool::SLOT + 1_024) as u64;
    let bytes = PACKETS as u64 * each;
    let mut reassembler =
        Reassembler::keeping(Config { bytes, bytes_per_source: bytes / 2, ..config() });
    for id in 0..1_000 {
        // 24 bytes of payload.
        let piece = tiny(UDP, id, 4096).swap_remove(0);
        let _ = reassembler.offer_frame(NOW, &mut pool.slot(&piece));
        assert!(reassembler.memory() <= bytes + bytes / 8, "{} bytes", reassembler.memory());
        assert!(pool.out() <= PACKETS, "{} slots are out", pool.out());
    }
    assert!(pool.out() >= PACKETS / 3 && reassembler.counters().evicted > 900);
}
