//! Vectors that were worked out by hand, second opinions, and properties.

mod properties;

use std::vec::Vec;

use landfall_placement::{RegionId, Span};

use super::{CutError, Cutter, Df};

const R: RegionId = RegionId::new(0, 0);

fn cutter(df: Df) -> Cutter {
    Cutter::new(df, [7; 32])
}

/// The head of a frame, and the span of the rest: places in the region are places in
/// the frame.
fn split(frame: &[u8], head_len: usize) -> (&[u8], Span) {
    let head_len = head_len.min(frame.len());
    (&frame[..head_len], R.span(head_len as u64, (frame.len() - head_len) as u32))
}

/// The pieces of a frame as frames, and how much of each was in the head.
fn cut(
    cutter: &mut Cutter,
    frame: &[u8],
    head_len: usize,
    mtu: u16,
) -> Result<Vec<(Vec<u8>, usize)>, CutError> {
    let (head, body) = split(frame, head_len);
    let mut cut = cutter.cut(head, body, mtu)?;
    let mut pieces = Vec::new();
    while cut.len() > 0 {
        let announced = cut.len();
        let piece = cut.next().unwrap();
        assert_eq!(cut.len(), announced - 1);
        let (from, to) = (piece.payload.offset as usize, piece.payload.end().unwrap() as usize);
        pieces.push(([&piece.head, &frame[from..to]].concat(), piece.head.len()));
    }
    assert_eq!(cut.next(), None);
    Ok(pieces)
}
