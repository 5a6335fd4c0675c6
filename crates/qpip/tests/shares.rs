//! Several adapters behind one station: each knows its share of the flows, and leaves the others'
//! alone.

use std::time::Duration;

use crate::world::{BOTH, Shape, World, address, pattern};
use landfall_placement::{Engine, Refusal};
use landfall_simnet::check;
use qpip::{Error, Event, Mapping, Service, Share};

const SERVICE: u16 = 7;

/// A client with all flows of its station, and a server that is the second of three.
fn second_of_three() -> (Shape, Share) {
    let share = Share::new(1, 3).unwrap();
    (Shape { shares: vec![Share::WHOLE, share], ..Shape::default() }, share)
}

#[test]
fn a_connection_of_another_share_is_passed_over_without_a_word() {
    check(1..=1, |sim| {
        let (shape, share) = second_of_three();
        let mut world = World::new(sim, &shape);
        for version in BOTH {
            let to = address(1, version, SERVICE);
            let mut accepted = 0;
            for port in 2_000..2_030 {
                let local = address(0, version, port);
                let (listener, _) = world.serve(1, to, Mapping::Stream);
                let pair = world.queue_pair(0, Service::Tcp(Mapping::Stream));
                let now = world.now();
                world.adapter(0).connect(now, pair, Some(local), to).unwrap();
                world.run_for(Duration::from_millis(10));
                let connected = world.hosts[0].events.drain(..).next();
                let is_ours = share.has_connection(to, local);
                assert_eq!(matches!(connected, Some(Event::Connected { .. })), is_ours, "{port}");
                accepted += u32::from(is_ours);
                world.hosts[1].events.clear();
                world.adapter(1).stop_listening(listener).unwrap();
                world.adapter(0).destroy_queue_pair(now, pair).unwrap();
            }
            assert!((3..27).contains(&accepted), "{accepted} of 30");
        }
        assert_eq!(world.adapter(1).stats().resets_sent, 0, "another adapter may know it");
        assert!(world.node(1).engine().refusals().of(Refusal::WrongAddress) > 0);
    });
}

#[test]
fn datagrams_for_ports_of_another_share_are_passed_over_without_a_word() {
    check(1..=1, |sim| {
        let (shape, share) = second_of_three();
        let mut world = World::new(sim, &shape);
        for version in BOTH {
            let here = world.udp(0, version, 1_000);
            // Short ones, and some that come in fragments, which show no ports.
            for (port, len) in (3_000..3_030).map(|port| (port, 100 + (port % 2) as usize * 5_000))
            {
                let from = world.store(0, &pattern(1, len));
                let to = address(1, version, port);
                let told = world.adapter(1).stats().control_queued;
                world.post_send(0, here, 1, from, Some(to)).unwrap();
                world.await_completions(0, 1);
                world.run_for(Duration::from_millis(1));
                let told = world.adapter(1).stats().control_queued - told;
                // Nobody is bound there: who has that port in its share says so.
                assert_eq!(told, u64::from(share.has_port(port)), "{to}");
                world.hosts[0].events.clear();
            }
        }
    });
}

#[test]
fn ports_are_chosen_from_the_share() {
    check(1..=1, |sim| {
        let share = Share::new(0, 4).unwrap();
        let mut world = World::new(sim, &Shape { shares: vec![share], ..Shape::default() });
        for version in BOTH {
            let (remote, now) = (address(1, version, SERVICE), world.now());
            for port in 0..40 {
                let pair = world.queue_pair(0, Service::Tcp(Mapping::Stream));
                let local = address(0, version, port);
                let result = world.adapter(0).connect(now, pair, Some(local), remote);
                if port > 0 && !share.has_connection(local, remote) {
                    assert_eq!(result, Err(Error::OfOtherShare(local)));
                    continue;
                }
                assert_eq!(result, Ok(()));
                let chosen = world.adapter(0).local_address(pair).unwrap();
                assert!(share.has_connection(chosen, remote), "{chosen}");
            }
            for port in 0..40 {
                let pair = world.queue_pair(0, Service::Udp);
                let local = address(0, version, port);
                match world.adapter(0).bind(pair, local) {
                    Ok(bound) => assert!(share.has_port(bound.port()), "{bound}"),
                    Err(error) => {
                        assert!(port > 0 && !share.has_port(port));
                        assert_eq!(error, Error::OfOtherShare(local));
                    }
                }
            }
        }
    });
}
