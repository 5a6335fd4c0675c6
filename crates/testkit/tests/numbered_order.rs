//! A place or a slot that was given to a newer message is not the one that was
//! used last: the older message comes first, on both sides.

use landfall_placement::{
    Ecn, Engine, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement, RegionId, Spans,
    Unit,
};
use landfall_testkit::engines::numbered::{Config, Event};
use landfall_testkit::engines::{Area, Numbered};

const PATH: PathId = PathId(0);
const NOW: Instant = Instant::ZERO;
const UNIT: u64 = 1000;
/// Two units in each message.
const MESSAGE: u64 = 2 * UNIT;

/// A unit on its way: its head, and how much payload follows.
struct Flying {
    head: Vec<u8>,
    from: Spans,
}

impl Flying {
    /// Which message of the sender it carries a part of.
    fn message(&self) -> Option<u64> {
        self.from.first().map(|span| span.offset / MESSAGE)
    }
}

fn engine(seed: u8) -> Numbered {
    let bounds = Config { incoming: 2, outgoing: 2, eager: false, ..Config::with_unit(1000) };
    let mut engine = Numbered::new(bounds, [seed; 32]);
    engine.handle_path(NOW, PATH, PathState::Up(PathLimits::plain(1472)));
    engine
}

fn area(region: u32, nth: u64) -> Area {
    Area::new(RegionId::new(region, 1), nth * MESSAGE, MESSAGE)
}

fn poll(engine: &mut Numbered) -> Option<Flying> {
    let (mut head, mut from) = ([0; 256], Spans::new());
    let transmit = engine.poll_transmit(NOW, PATH, &mut head, &mut from)?;
    engine.handle_sent(NOW, transmit.ticket);
    Some(Flying { head: head[..transmit.head_len.into()].to_vec(), from })
}

fn deliver(engine: &mut Numbered, from: u32, flying: &Flying) {
    let len = flying.head.len() as u32 + flying.from.total_len() as u32;
    let unit = Unit {
        path: PATH,
        from: Peer::Node(from),
        head: &flying.head,
        len,
        segment: None,
        ecn: Ecn::NotCapable,
        verified: false,
    };
    let placed = engine.place(NOW, &unit, &mut Spans::new());
    if let Ok(Placement::Into { ticket, .. }) = placed {
        engine.handle_placed(NOW, ticket, Landing::Unchecked);
    }
}

/// Moves all that carries no payload, both ways; gives the first unit that does.
fn settle(sender: &mut Numbered, receiver: &mut Numbered) -> Option<Flying> {
    loop {
        let mut data = None;
        let mut moved = false;
        while let Some(flying) = poll(sender) {
            if flying.message().is_some() {
                data = Some(flying);
                break;
            }
            moved = true;
            deliver(receiver, 0, &flying);
        }
        while let Some(flying) = poll(receiver) {
            moved = true;
            deliver(sender, 1, &flying);
        }
        if data.is_some() || !moved {
            return data;
        }
    }
}

fn send(sender: &mut Numbered, nth: u64) {
    sender.send(NOW, PATH, Peer::Node(1), area(0, nth)).unwrap();
}

/// Two messages are granted, the first is delivered, and the third is granted
/// in the place of the first.
#[test]
fn the_older_message_comes_first_on_both_sides() {
    let (mut sender, mut receiver) = (engine(1), engine(2));
    for nth in 0..3 {
        receiver.receive_into(area(7, nth)).unwrap();
    }
    send(&mut sender, 0);
    send(&mut sender, 1);
    let first = settle(&mut sender, &mut receiver).unwrap();
    let second = poll(&mut sender).unwrap();
    assert_eq!([first.message(), second.message()], [Some(0), Some(0)]);
    deliver(&mut receiver, 0, &first);
    deliver(&mut receiver, 0, &second);
    assert!(matches!(receiver.poll_event(), Some(Event::Delivered { message: 0, .. })));

    receiver.handle_timeout(Instant::from_millis(1)); // it tells that it has the first
    while let Some(flying) = poll(&mut receiver) {
        deliver(&mut sender, 1, &flying);
    }
    assert!(matches!(sender.poll_event(), Some(Event::Sent { .. })));
    send(&mut sender, 2);
    let request = poll(&mut sender).unwrap();
    assert_eq!(request.message(), None);
    deliver(&mut receiver, 0, &request);
    while let Some(flying) = poll(&mut receiver) {
        deliver(&mut sender, 1, &flying);
    }

    let guess = receiver.guess(PATH, 0).unwrap();
    assert_eq!(guess.span.offset / MESSAGE, 1, "the receiver guesses the older message");
    let next = receiver.guess(PATH, 1).unwrap();
    assert_eq!(next.span.offset / MESSAGE, 2, "and behind it the newer");
    let sent: Vec<_> = std::iter::from_fn(|| poll(&mut sender)?.message()).collect();
    assert_eq!(sent, [1, 1, 2, 2], "the sender sends them so");
}
