//! Reading is total, does not depend on how much is shown at once, and says what
//! others say.

use std::vec::Vec;

use landfall_placement::Ecn;
use proptest::prelude::*;

use super::frames::{Ipv6, any_ipv4, any_ipv6, padding, payload, piece, routing, seal};
use crate::model::{Reading, read};
use crate::packet::Head;
use crate::wire::parse::parse_any;
use crate::wire::{Parsed, Stop, adapt, parse, time_exceeded, transport_len, whole_head};

/// Frames that nearly mean something.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let ipv4 = (any_ipv4(), any::<u16>()).prop_map(|(mut packet, flags_and_offset)| {
        packet.payload.truncate(2000);
        packet.flags_and_offset = flags_and_offset;
        packet.frame()
    });
    let ipv6 = (any_ipv6(), any::<u16>(), any::<bool>(), any::<u32>()).prop_map(
        |(mut packet, offset, more, id)| {
            packet.payload.truncate(2000);
            packet.headers.push(piece(offset, more, id));
            packet.frame()
        },
    );
    let many_headers = prop::collection::vec((0..4_u8, 0..20_u8), 0..30).prop_map(|kinds| {
        let headers = kinds.into_iter().map(|(kind, more)| match kind {
            0 => padding(0, more),
            1 => padding(60, more),
            2 => routing(more / 19),
            _ => piece(u16::from(more) << 3, more % 2 == 0, 1),
        });
        Ipv6 { headers: headers.collect(), payload: payload(64), ..Ipv6::default() }.frame()
    });
    let anything = prop::collection::vec(any::<u8>(), 0..300);
    let of_ethertype = (prop::sample::select(&[[8, 0], [0x86, 0xdd]][..]), anything.clone())
        .prop_map(|(ethertype, rest)| [&[0; 12][..], &ethertype, &rest].concat());
    let whole =
        prop_oneof![3 => ipv4, 3 => ipv6, 2 => many_headers, 1 => of_ethertype, 1 => anything];
    let change = (any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
    (whole, prop::option::of(change), prop::option::of(any::<prop::sample::Index>())).prop_map(
        |(mut frame, change, end)| {
            if let Some((at, value, sealed)) = change.filter(|_| frame.len() >= 74) {
                let at = at.index(74);
                frame[at] = value;
                if sealed && frame[12..14] == [8, 0] {
                    seal(&mut frame);
                }
            }
            if let Some(end) = end {
                frame.truncate(end.index(frame.len() + 1));
            }
            frame
        },
    )
}

/// Reads with more and more at hand, as it is asked for.
fn read_step_by_step(frame: &[u8]) -> Result<Parsed, Stop> {
    let mut shown = 0;
    loop {
        match parse(&frame[..shown], frame.len() as u32) {
            Err(Stop::NeedHead(len)) => {
                assert!(shown < usize::from(len), "it has that already");
                assert!(usize::from(len) <= frame.len(), "there is no more");
                assert!(usize::from(len) <= Head::MOST + 8, "more than a head");
                shown = len.into();
            }
            read => return read,
        }
    }
}

proptest! {
    #[test]
    fn invariant_8_no_panic_on_any_frame(
        bytes in prop_oneof![frame(), prop::collection::vec(any::<u8>(), 0..200)],
        frame_len in prop_oneof![Just(None), any::<u32>().prop_map(Some)],
        payload_len: u32,
    ) {
        let frame_len = frame_len.unwrap_or(bytes.len() as u32);
        for shown in 0..=bytes.len().min(300) {
            let _ = parse(&bytes[..shown], frame_len);
        }
        if let Ok(parsed) = parse(&bytes, frame_len) {
            for shown in [bytes.len(), parsed.payload_at.into(), 40, 0] {
                let head = &bytes[..shown.min(bytes.len())];
                let _ = whole_head(head, &parsed, payload_len, Ecn::Capable1);
                let _ = time_exceeded(head, &parsed, &bytes);
            }
        }
        let _ = adapt(&bytes, payload_len as u16 % 256, frame_len);
        let _ = transport_len(payload_len as u8 % 60, &bytes);
    }

    #[test]
    fn how_much_is_shown_does_not_matter(frame in frame()) {
        let len = frame.len() as u32;
        let read = parse(&frame, len);
        prop_assert_eq!(read_step_by_step(&frame), read);
        prop_assert_eq!(parse_any(&frame, len), read, "the short way and the long one");
        for shown in 0..frame.len().min(300) {
            let partly = parse(&frame[..shown], len);
            prop_assert!(partly == read || matches!(partly, Err(Stop::NeedHead(_))), "{}", shown);
        }
        let behind = [&frame[..], &[0xff; 64]].concat();
        prop_assert_eq!(parse(&behind, len), read, "what is behind the frame does not count");
    }

    #[test]
    fn the_model_reads_the_same(frame in frame()) {
        let ours = parse(&frame, frame.len() as u32);
        match read(&frame) {
            Reading::Whole => prop_assert!(
                matches!(ours, Ok(Parsed { fragment: None, .. }) | Err(Stop::Foreign)),
                "{:?}", ours
            ),
            Reading::Bad => prop_assert!(matches!(ours, Err(Stop::Refused(_))), "{:?}", ours),
            Reading::Piece(theirs) => {
                let parsed = ours.unwrap();
                let piece = parsed.fragment.unwrap();
                prop_assert_eq!(piece.offset as usize, theirs.offset);
                prop_assert_eq!((piece.more, piece.id), (theirs.more, theirs.name.id));
                prop_assert_eq!(parsed.ecn as u8, theirs.ecn);
                let from = usize::from(parsed.payload_at);
                prop_assert_eq!(&frame[from..from + parsed.payload_len as usize], theirs.bytes);
            }
        }
    }
}
