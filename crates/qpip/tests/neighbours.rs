//! A neighbour whose card is exchanged: its address has another station from one moment to the
//! next, and nobody says so.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::world::{Shape, Version, World, mac, pattern};
use landfall_simnet::{Frame, check, sim::Fate};
use qpip::{Mapping, Status};

const NEW: [u8; 6] = [2, 0, 0, 0xff, 0, 2];
const ARP: [u8; 2] = [8, 6];
/// Where ARP over Ethernet says who speaks.
const SPEAKER: usize = 14 + 8;

/// Host 1 is at the station `NEW` from when this is set: what goes to its old one is lost.
fn exchange_card(world: &mut World<'_>) -> Rc<Cell<bool>> {
    let has_new = Rc::new(Cell::new(false));
    let is_so = has_new.clone();
    let to_it = move |_, frame: &mut Frame| {
        let to = &mut frame.bytes[..6];
        if is_so.get() && to == mac(1) {
            return Fate::Drop;
        }
        if to == NEW {
            to.copy_from_slice(&mac(1));
        }
        Fate::Pass
    };
    world.sim.intercept(world.hosts[0].link.there(), to_it).unwrap();
    let is_so = has_new.clone();
    let from_it = move |_, frame: &mut Frame| {
        if is_so.get() {
            frame.bytes[6..12].copy_from_slice(&NEW);
            if frame.bytes[12..14] == ARP {
                frame.bytes[SPEAKER..SPEAKER + 6].copy_from_slice(&NEW);
            }
        }
        Fate::Pass
    };
    world.sim.intercept(world.hosts[1].link.there(), from_it).unwrap();
    has_new
}

/// Its neighbour is believed for 30 seconds, and used for 8 more before everybody is asked: a
/// connection that hears nothing does not wait for that.
#[test]
fn a_connection_finds_a_neighbour_whose_card_was_exchanged() {
    check(1..=4, |sim| {
        let mut world = World::new(sim, &Shape { knows_neighbours: false, ..Shape::default() });
        let has_new = exchange_card(&mut world);
        let (here, there) = world.pair_up((0, 1), Version::V4, 80, Mapping::Message);
        let sent = pattern(3, 10_000);
        let (from, into) = (world.store(0, &sent), world.allocate(1, 10_000));
        let talk = |world: &mut World<'_>| {
            world.post_receive(1, there, 1, (into, 10_000)).unwrap();
            world.post_send(0, here, 1, from, None).unwrap();
            assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
            assert_eq!(world.await_completions(1, 1)[0].len, 10_000);
            assert!(world.read(1, into, 10_000) == sent);
        };
        // Both have answered each other, and believe that for a while.
        talk(&mut world);
        world.run_for(Duration::from_secs(12));
        has_new.set(true);
        let began = world.now();
        talk(&mut world);
        let took = world.now().since(began);
        assert!(took < Duration::from_secs(8), "{took:?}");
    });
}
