//! Frames that meet their fate on the way out. As an ordinary user each test
//! skips with one line.

use crate::support::packet::{EXPERIMENTAL, cable, numbered_frame};
use crate::support::scatter::{Receiver, pages, socket};
use landfall_placement::{Duration, Instant, Span};
use landfall_testbed::{VethEnd, require_namespaces};
use landfall_transport::fault::Faults;
use landfall_transport::packet::Filter;
use landfall_transport::scatter::{Descriptor, Fate, Faulty, Outgoing};

fn anything(_: usize) -> Descriptor {
    Descriptor { head_len: 60, place: Span::default() }
}

fn heads(to: &VethEnd, count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| numbered_frame(to, EXPERIMENTAL, number)).collect()
}

#[test]
fn each_frame_meets_the_fate_that_was_decided() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = pages(64);
    regions.write(&region.span(0, 8), b"payload.").unwrap();
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    let mut faulty = Faulty::new(&regions, |number, frame| {
        assert_eq!(frame[17], number as u8, "numbered as they are given");
        assert_eq!(&frame[60..], b"payload.");
        match number {
            1 => Fate::Lost,
            2 => Fate::Twice,
            3 => Fate::Late(2),
            // The lowest bit of the number's last byte.
            5 => Fate::Flipped(17 * 8),
            7 => Fate::Late(100),
            _ => Fate::Leaves,
        }
    });
    let heads = heads(&cable.b, 8);
    let payload = region.span(0, 8);
    let frames: Vec<_> = heads.iter().map(|head| Outgoing { head, payload }).collect();
    assert_eq!(faulty.send(&mut at_a, Instant::ZERO, &frames).unwrap(), 8);
    let numbers = |frames: Vec<Vec<u8>>| frames.iter().map(|frame| frame[17]).collect::<Vec<_>>();
    assert_eq!(numbers(at_b.receive(7, anything)), [0, 2, 2, 4, 4, 3, 6]);
    assert_eq!(faulty.held(), 1);
    let due = faulty.poll_timeout().unwrap();
    faulty.send(&mut at_a, Instant::ZERO, &[]).unwrap();
    assert_eq!(faulty.held(), 1, "not yet");
    faulty.send(&mut at_a, due, &[]).unwrap();
    assert_eq!(numbers(at_b.receive(1, anything)), [7]);
    assert_eq!((faulty.held(), faulty.poll_timeout()), (0, None));
    let counts = faulty.counts();
    assert_eq!((counts.units, counts.lost, counts.duplicated), (8, 1, 1));
    assert_eq!((counts.reordered, counts.corrupted), (2, 1));
}

#[test]
fn chance_is_the_same_for_the_same_seed() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = pages(64);
    let heads = heads(&cable.b, 1000);
    let frames: Vec<_> =
        heads.iter().map(|head| Outgoing { head, payload: Span::default() }).collect();
    let faults = Faults {
        loss: 50_000,
        duplication: 50_000,
        reordering: 50_000,
        corruption: 50_000,
        ..Faults::default()
    };
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut run = |seed: u8| {
        let mut at_b = Receiver::open(&cable.b, Filter::any());
        let mut faulty = Faulty::by_chance(&regions, faults, [seed; 32]);
        faulty.send(&mut at_a, Instant::ZERO, &frames).unwrap();
        faulty.send(&mut at_a, Instant::ZERO + Duration::from_secs(1), &[]).unwrap();
        assert_eq!(faulty.held(), 0);
        let counts = faulty.counts();
        // Damaged ones may be for another station by now.
        let least = 1000 - counts.lost + counts.duplicated - counts.corrupted;
        at_b.receive(least as usize, anything);
        counts
    };
    let first = run(1);
    assert_eq!(run(1), first);
    assert_ne!(run(2), first);
    for share in [first.lost, first.duplicated, first.reordered, first.corrupted] {
        assert!((20..90).contains(&share), "{first:?}");
    }
}
