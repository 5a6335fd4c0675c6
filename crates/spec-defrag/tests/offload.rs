//! The offload seam by itself: arrays that the caller owns, heads as a device keeps
//! them, against a model that knows each packet by heart.

use proptest::prelude::*;
use spec_defrag::format::Ip;
use spec_defrag::offload::{Guess, Open, Verdict, check};
use spec_defrag::{BufferId, HeadLens, PayloadLens, Shape};

type Opened = Open<<Ip as spec_defrag::format::Format>::Begin>;

const OPENS: usize = 3;
const UNITS: u16 = 3;

fn shape() -> Shape {
    Shape::new(
        UNITS,
        HeadLens { first: 42, rest: 34 },
        PayloadLens { first: 1472, middle: 1480, last: 1144 },
    )
    .unwrap()
}

/// The memory of an adapter: all that the seam has.
fn storage() -> [Opened; OPENS] {
    [0, 1, 2].map(|index| Open::new(BufferId { index, generation: 1 }, shape()))
}

/// A frame of the page of 4096 bytes with this identification, as its head slot has it.
fn unit(id: u16, index: u16) -> (Vec<u8>, u32) {
    let shape = shape();
    let payload = shape.payload_len(index) + if index == 0 { 8 } else { 0 };
    let flags = [0x2000, 0x2000 | 185, 370][usize::from(index)];
    let mut head = vec![2; 12];
    head.extend([0x08, 0x00, 0x45, 0]);
    head.extend((20 + payload).to_be_bytes());
    head.extend(id.to_be_bytes());
    head.extend(u16::to_be_bytes(flags));
    head.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = landfall_placement::checksum::checksum(&head[14..34]);
    head[24..26].copy_from_slice(&sum.to_be_bytes());
    if index == 0 {
        head.extend([0; 8]);
    }
    (head, 34 + u32::from(payload))
}

/// A page as its model sees it: which packet, and how many of its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Model {
    packet: Option<u16>,
    units: u16,
    is_closed: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// A true unit lands where a guess was, right or wrong.
    Unit { open: u16, guessed: u16, id: u16, index: u16 },
    /// Anything lands there.
    Junk { open: u16, guessed: u16, head: Vec<u8>, len: u32 },
    /// A page is given up, by the engine.
    Close(u16),
    /// It is used again.
    Again(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let open = 0..OPENS as u16 + 1;
    let unit = (open.clone(), 0..UNITS + 1, 0_u16..3, 0..UNITS);
    let junk =
        (open.clone(), 0..UNITS + 1, prop::collection::vec(any::<u8>(), 0..80), any::<u32>());
    prop_oneof![
        8 => unit.prop_map(|(open, guessed, id, index)| Step::Unit { open, guessed, id, index }),
        4 => (open.clone(), 0_u16..3, 0..UNITS)
            .prop_map(|(open, id, index)| Step::Unit { open, guessed: index, id, index }),
        1 => junk.prop_map(|(open, guessed, head, len)| Step::Junk { open, guessed, head, len }),
        1 => open.clone().prop_map(Step::Close),
        2 => open.prop_map(Step::Again),
    ]
}

/// What the model says to a true unit.
fn expected(model: &mut [Model; OPENS], open: u16, guessed: u16, id: u16, index: u16) -> Verdict {
    let Some(page) = model.get_mut(usize::from(open)) else { return Verdict::Stray };
    let is_next = !page.is_closed && guessed == index && page.units == index;
    if !is_next || index > 0 && page.packet != Some(id) {
        return Verdict::Stray;
    }
    page.packet = Some(id);
    page.units += 1;
    match (page.units == UNITS, index) {
        (true, _) => Verdict::Whole(open),
        (false, 0) => Verdict::Begun(open),
        (false, _) => Verdict::InPlace(open),
    }
}

proptest! {
    /// Whatever lands, and wherever it was guessed: the seam says "in place" of just
    /// the next unit of the packet that was begun there, and never panics.
    #[test]
    fn the_seam_agrees_with_a_model(steps in prop::collection::vec(step(), 0..60)) {
        let mut opens = storage();
        let mut model = [Model::default(); OPENS];
        for step in steps {
            match step {
                Step::Unit { open, guessed, id, index } => {
                    let (head, len) = unit(id, index);
                    let guess = Guess::Unit { open, index: guessed };
                    let verdict = check(&Ip, guess, &mut opens, &head, len);
                    prop_assert_eq!(verdict, expected(&mut model, open, guessed, id, index));
                }
                Step::Junk { open, guessed, head, len } => {
                    let guess = Guess::Unit { open, index: guessed };
                    prop_assert_eq!(check(&Ip, guess, &mut opens, &head, len), Verdict::Stray);
                }
                Step::Close(open) => {
                    if let (Some(page), Some(open)) =
                        (model.get_mut(usize::from(open)), opens.get_mut(usize::from(open)))
                    {
                        prop_assert_eq!(open.close().is_some(), page.packet.is_some());
                        *page = Model { is_closed: true, ..Model::default() };
                        prop_assert!(open.is_closed());
                    }
                }
                Step::Again(open) => {
                    let at = usize::from(open);
                    if let Some(page) = model.get_mut(at) {
                        *page = Model::default();
                        opens[at] = Open::new(opens[at].page, shape());
                    }
                }
            }
            for (open, page) in opens.iter().zip(&model) {
                prop_assert_eq!(open.begin.map(|begin| begin.key().id as u16), page.packet);
            }
        }
    }
}

#[test]
fn a_packet_that_is_whole_has_the_head_of_its_first_unit() {
    let mut opens = storage();
    let guess = |index| Guess::Unit { open: 1, index };
    for index in 0..UNITS {
        let (head, len) = unit(7, index);
        check(&Ip, guess(index), &mut opens, &head, len);
    }
    assert_eq!(opens[1].head.as_slice(), unit(7, 0).0);
    assert_eq!(opens[1].in_place, UNITS);
    let (head, len) = unit(8, 0);
    let again = check(&Ip, guess(0), &mut opens, &head, len);
    assert_eq!(again, Verdict::Stray, "nobody took the first packet yet");
}

#[test]
fn where_nothing_was_guessed_everything_is_misplaced() {
    let (head, len) = unit(7, 0);
    assert_eq!(check(&Ip, Guess::None, &mut storage(), &head, len), Verdict::Stray);
    assert_eq!(check(&Ip, Guess::None, &mut [], &head, len), Verdict::Stray);
}
