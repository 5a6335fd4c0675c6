//! Three hosts and what goes wrong between them: cookies that are passed on,
//! endpoints that are used again, hosts that die, links that take next to nothing.

use std::time::Duration;

use crate::net::{
    Net, PATH, address, body, config, cookie_in, ethernet, faulty, host_id, noise, sim,
};
use clan_dsm::{
    Access, Action, Config, DmaRequest, Ended, EndpointState, Error, Event, Notice, Port, Reason,
    Rights, Source,
};
use landfall_placement::PathId;
use landfall_simnet::{LinkConfig, Loss, Probability};

/// A gives B a cookie, B passes it on to C, and C writes into A's memory: there
/// never was a connection between A and C, and none is needed.
#[test]
fn a_cookie_is_passed_on_and_mapped_by_a_third_host() {
    for seed in 0..5 {
        let mut net = Net::linked(sim(seed), 3, &config(), faulty());
        let memory = net.expose(0, 1000, Rights::ReadWrite);
        let bytes = body(&memory.cookie.to_bytes());
        let (_, [heard, _]) = net.connect(0, 1, [bytes, [0; 40]]);
        assert_eq!(cookie_in(&heard), memory.cookie);
        let (_, [heard, _]) = net.connect(1, 2, [heard, [0; 40]]);
        let window = net.nic(2).map(&cookie_in(&heard)).unwrap();
        let tripwire = net
            .nic(0)
            .watch(memory.aperture, 992..1000, Access::Write, Action::Event, true)
            .unwrap();
        let text = noise(seed, 900);
        let now = net.now();
        net.nic(2).write(now, window, 7, &text).unwrap();
        net.nic(2).write_word(now, window, 992, 1).unwrap();
        net.wait_for(0, "the tripwire", |event| {
            (*event == Event::Tripwire { tripwire }).then_some(())
        });
        assert_eq!(net.bytes(0, memory.area)[7..907], text);
        // Anyone who gave it out takes it back, and everybody's copy is worth nothing.
        net.nic(0).revoke(memory.aperture).unwrap();
        let now = net.now();
        net.nic(2).write(now, window, 7, &[0; 900]).unwrap();
        net.wait_for(2, "the exception", |event| match event {
            Event::Exception { window: Some(w), reason: Reason::BadKey, .. } if *w == window => {
                Some(())
            }
            _ => None,
        });
        assert_eq!(net.bytes(0, memory.area)[7..907], text);
    }
}

/// Both sides of a connection exchange cookies while it is made, and messages
/// after; the endpoints serve one connection after the other.
#[test]
fn endpoints_are_used_for_one_connection_after_the_other() {
    let mut net = Net::linked(sim(3), 2, &config(), faulty());
    let listener = net.nic(1).open_endpoint(Some(Port(9))).unwrap();
    net.nic(1).listen(listener).unwrap();
    let caller = net.nic(0).open_endpoint(None).unwrap();
    let callee = net.nic(1).open_endpoint(None).unwrap();
    let ids = [(0, caller), (1, callee)];
    for session in 0..20 {
        net.nic(0).connect(caller, address(1, Port(9)), body(&[session])).unwrap();
        let Notice::Request(request) = net.notice(1, listener) else { panic!() };
        assert_eq!(request.body[0], session);
        if session % 5 == 4 {
            net.nic(1).refuse(&request, Reason::Refused, body(&[9])).unwrap();
            let why = Ended::There(Reason::Refused);
            assert_eq!(net.notice(0, caller), Notice::Ended { why, body: body(&[9]) });
            continue;
        }
        net.nic(1).accept(callee, &request, body(&[session, 1])).unwrap();
        let Notice::Accepted { body: answer, .. } = net.notice(0, caller) else { panic!() };
        assert_eq!(answer[..2], [session, 1]);
        for n in 0..10 {
            net.nic(0).send(caller, body(&[n])).unwrap();
            let Notice::Message { body: said, .. } = net.notice(1, callee) else { panic!() };
            assert_eq!(said[0], n);
        }
        // Each ends it in turn, in the one way or in the other.
        let (first, second) = (ids[usize::from(session % 2)], ids[usize::from(session % 2 == 0)]);
        if session % 3 == 0 {
            let now = net.now();
            net.nic(first.0).abort(now, first.1).unwrap();
            assert!(matches!(net.notice(first.0, first.1), Notice::Ended { .. }));
            assert!(matches!(net.notice(second.0, second.1), Notice::Ended { .. }));
        } else {
            net.nic(first.0).disconnect(first.1, [0; 40]).unwrap();
            assert!(matches!(net.notice(second.0, second.1), Notice::Disconnected { .. }));
            net.nic(second.0).disconnect(second.1, [0; 40]).unwrap();
            assert_eq!(net.notice(second.0, second.1), Notice::Closed);
            assert!(matches!(net.notice(first.0, first.1), Notice::Disconnected { .. }));
            assert_eq!(net.notice(first.0, first.1), Notice::Closed);
        }
        for (host, id) in ids {
            assert_eq!(net.nic(host).endpoint_state(id), Ok(EndpointState::Idle));
        }
    }
}

/// More messages than fit into the queue of an endpoint, over a bad network: each
/// comes, or comes back.
#[test]
fn out_of_band_messages_come_or_come_back() {
    for seed in 0..10 {
        let few = Config { messages: 4, ..config() };
        let mut net = Net::linked(sim(seed), 2, &few, faulty());
        let from = net.nic(0).open_endpoint(None).unwrap();
        let to = net.nic(1).open_endpoint(Some(Port(4))).unwrap();
        let mut sent = 0u64;
        let (mut came, mut back) = (0, 0);
        for n in 0..100 {
            if net.nic(0).send_to(from, address(1, Port(4)), body(&[n])).is_ok() {
                sent += 1;
            }
            if n % 10 == 0 {
                net.run_for(Duration::from_millis(20));
                came += u64::from(net.nic(1).poll_notice(to).is_some());
            }
        }
        net.flush(0, 1);
        net.run_for(Duration::from_secs(5));
        while net.nic(1).poll_notice(to).is_some() {
            came += 1;
        }
        while let Some(notice) = net.nic(0).poll_notice(from) {
            back += match notice {
                Notice::Undelivered { count, reason: Reason::NoRoom, .. } => u64::from(count),
                Notice::MoreUndelivered { count } => count,
                other => panic!("{other:?}"),
            };
        }
        assert_eq!(came + back, sent);
        assert!(came >= 4 && back > 0, "{came} came, {back} came back");
    }
}

/// A host dies in the middle of everything and is started again. The others hear
/// that all that went over the link is over, once each, and begin anew; the third
/// hears nothing of it.
#[test]
fn a_host_that_dies_and_comes_back_ends_what_it_was_part_of_and_nothing_else() {
    for after in [0, 30, 200, 700, 3_000] {
        let mut net = Net::linked(sim(after), 3, &config(), ethernet());
        let ([caller, _], _) = net.connect(0, 1, [[1; 40], [2; 40]]);
        let ([third, _], _) = net.connect(0, 2, [[1; 40], [2; 40]]);
        let (_, window) = net.window(0, 1, 1 << 20);
        let (safe, other) = net.window(0, 2, 1 << 20);
        let bytes = noise(after, 1 << 20);
        let from = net.lend(0, &bytes);
        let now = net.now();
        net.clear();
        let dma =
            net.nic(0).dma(now, caller, &[DmaRequest::Write { from, window, offset: 0 }]).unwrap();
        let into = net.lend(0, &[0; 64]);
        let read = net.nic(0).read(now, window, 0, into).unwrap();
        let write = net.nic(0).write_from(now, other, 0, from).unwrap();
        net.run_for(Duration::from_micros(after));
        net.restart(1);
        let result = net.wait_for(0, "the end of the chain", |event| match event {
            Event::Dma { dma: d, result, .. } if *d == dma => Some(*result),
            _ => None,
        });
        assert!(result.is_err(), "{result:?}");
        net.wait_for(0, "the end of the read", |event| match event {
            Event::Read { read: r, .. } if *r == read => Some(()),
            _ => None,
        });
        let ended = |notice: &Notice| matches!(notice, Notice::Ended { why, .. } if !matches!(why, Ended::Here | Ended::There(_)));
        let notice = net.notice(0, caller);
        assert!(ended(&notice), "{notice:?}");
        let result = net.wait_for(0, "the write to the third host", |event| match event {
            Event::Written { write: w, result } if *w == write => Some(*result),
            _ => None,
        });
        assert_eq!(result, Ok(()));
        assert_eq!(net.bytes(2, safe.area), bytes);
        assert_eq!(net.nic(0).endpoint_state(third), Ok(EndpointState::Connected));
        let downs = |net: &Net, host: usize| {
            net.log(host).iter().filter(|event| matches!(event, Event::LinkDown { .. })).count()
        };
        assert_eq!(downs(&net, 0), 1);
        // They find each other again.
        if net.nic(0).link_to(host_id(1)).is_none() {
            net.link(0, 1);
        }
        net.connect(0, 1, [[3; 40], [4; 40]]);
        let (new, window) = net.window(0, 1, 64);
        let now = net.now();
        net.nic(0).write(now, window, 0, &[5; 64]).unwrap();
        net.flush(0, 1);
        assert_eq!(net.bytes(1, new.area), [5; 64]);
    }
}

/// A host that was started anew is the first to speak: the connections of its
/// earlier life are over at the other side, though there is a link to it again.
#[test]
fn a_host_that_calls_after_it_was_started_anew_ends_the_connections_of_its_earlier_life() {
    let mut net = Net::linked(sim(2), 2, &config(), ethernet());
    let ([caller, _], _) = net.connect(0, 1, [[1; 40], [2; 40]]);
    let asking = net.nic(0).open_endpoint(None).unwrap();
    net.nic(0).connect(asking, address(1, Port(3)), [0; 40]).unwrap();
    net.restart(1);
    let (now, peer) = (net.now(), net.peer(0));
    net.nic(1).open_link(now, PATH, peer).unwrap();
    net.wait_for(1, "the link", |event| match event {
        Event::LinkUp { .. } => Some(()),
        _ => None,
    });
    let notice = net.notice(0, caller);
    assert_eq!(notice, Notice::Ended { why: Ended::Restarted, body: [0; 40] });
    // The question was lost with the host, or refused by it before.
    assert!(matches!(net.notice(0, asking), Notice::Ended { .. }));
    net.connect(0, 1, [[3; 40], [4; 40]]);
    net.connect(1, 0, [[5; 40], [6; 40]]);
}

/// Of two links between two hosts the one that is used is lost, with a message on
/// it: the message comes, or the connection is over. What was said is not lost in
/// silence because there is another way.
#[test]
fn a_second_link_hides_no_loss_of_the_first() {
    let mut net = Net::linked(sim(4), 2, &config(), ethernet());
    let first = net.nic(0).link_to(host_id(1)).unwrap();
    let (a, b) = (net.hosts[0].id(), net.hosts[1].id());
    let second_wire = net.sim.connect(a, b, ethernet()).unwrap();
    net.run_for(Duration::from_millis(1));
    let (now, peer) = (net.now(), net.peer(1));
    let second = net.nic(0).open_link(now, PathId(1), peer).unwrap();
    net.run_until("both links", |net| net.node(0).engine().links().filter(|l| l.1).count() == 2);
    let ([caller, callee], _) = net.connect(0, 1, [[1; 40], [2; 40]]);
    let used = net.nic(0).link_to(host_id(1)).unwrap();
    assert!(used == first || used == second);
    net.nic(0).send(caller, body(&[7])).unwrap();
    let wire = if used == first { net.wires[0] } else { second_wire };
    net.sim.set_link(wire, false).unwrap();
    net.run_for(Duration::from_secs(60));
    let came = net.nic(1).poll_notice(callee);
    let told = net.nic(0).poll_notice(caller);
    let is_there = matches!(came, Some(Notice::Message { .. }));
    assert!(is_there || matches!(told, Some(Notice::Ended { .. })), "{came:?} {told:?}");
}

/// Nothing crosses any more: anyone who waits hears of it within the bound.
#[test]
fn a_host_that_falls_silent_is_given_up() {
    let mut net = Net::linked(sim(1), 2, &config(), ethernet());
    let ([caller, _], _) = net.connect(0, 1, [[1; 40], [2; 40]]);
    let (_, window) = net.window(0, 1, 4096);
    let deaf = ethernet().loss(Loss::Uniform(Probability::ALWAYS));
    let wire = net.wires[1];
    net.sim.configure(wire.there(), deaf).unwrap();
    net.sim.configure(wire.back(), deaf).unwrap();
    let now = net.now();
    let link = net.nic(0).link_to(host_id(1)).unwrap();
    net.nic(0).write(now, window, 0, &[1; 4096]).unwrap();
    let barrier = net.nic(0).barrier(now, link).unwrap();
    let result = net.wait_for(0, "the barrier", |event| match event {
        Event::Barrier { barrier: b, result } if *b == barrier => Some(*result),
        _ => None,
    });
    assert_eq!(result, Err(Ended::Silent));
    assert_eq!(net.notice(0, caller), Notice::Ended { why: Ended::Silent, body: [0; 40] });
    let now = net.now();
    assert_eq!(net.nic(0).write(now, window, 0, &[1]), Err(Error::NoLink));
    // The other side has said nothing, and notices too: a link that is idle asks.
    net.wait_for(1, "the end of the link", |event| match event {
        Event::LinkDown { why: Ended::Silent, .. } => Some(()),
        _ => None,
    });
}

/// The memory of one host is written by two others while it is taken back and given
/// out again, over and over: what is refused is told, what is in the new aperture
/// came with the new cookie.
#[test]
fn writes_race_with_revocation_and_never_reach_the_next_aperture() {
    for seed in 0..6 {
        let mut net = Net::linked(sim(seed), 3, &config(), faulty());
        for round in 0..8u8 {
            let there = net.expose(2, 4096, Rights::Write);
            for host in [0, 1] {
                let window = net.nic(host).map(&there.cookie).unwrap();
                let now = net.now();
                for n in 0..8 {
                    let bytes = [round + 1; 500];
                    net.nic(host).write(now, window, n * 500, &bytes).unwrap();
                }
                net.nic(host).unmap(window).unwrap();
            }
            net.run_for(Duration::from_micros(u64::from(round) * 17));
            let bytes = net.bytes(2, there.area);
            assert!(bytes.iter().all(|byte| *byte == 0 || *byte == round + 1), "{bytes:?}");
            net.nic(2).revoke(there.aperture).unwrap();
            let area = there.area;
            net.memory(2).freeze(area.span(0, 4096)).unwrap();
        }
        net.flush(0, 2);
        net.flush(1, 2);
    }
}

/// Both sides are full of DMA, reads and messages for each other, with buffers for
/// next to nothing, each side says Xoff now and then, and the network is bad: all
/// of it ends.
#[test]
fn two_hosts_full_of_work_for_each_other_do_not_lock_up() {
    let tiny = Config {
        frames: 2,
        early_bytes: 2048,
        write_buffer: 4096,
        messages: 2,
        reads: 4,
        operations: 2,
        dma_turn: 512,
        ..config()
    };
    for seed in 0..6 {
        let wire = if seed % 2 == 0 { ethernet() } else { faulty() };
        let mut net = Net::linked(sim(seed), 2, &tiny, wire.queue_frames(4));
        let mut begun = 0;
        let mut checks = Vec::new();
        for host in [0, 1] {
            for n in 0..6u64 {
                let (there, window) = net.window(host, 1 - host, 20_000);
                let bytes = noise(seed ^ n, 20_000);
                let from = net.lend(host, &bytes);
                let into = net.lend(host, &[0; 20_000]);
                let endpoint = net.nic(host).open_endpoint(None).unwrap();
                let now = net.now();
                let chain = [
                    DmaRequest::Write { from, window, offset: 0 },
                    DmaRequest::Read { window, offset: 0, into },
                ];
                net.nic(host).dma(now, endpoint, &chain).unwrap();
                begun += 1;
                checks.push((1 - host, there.area, bytes.clone()));
                checks.push((host, into, bytes));
                for _ in 0..20 {
                    let _ = net.nic(host).send_to(endpoint, address(1 - host, Port(1)), [1; 40]);
                    let _ = net.nic(host).write(now, window, 0, &[0; 0]);
                }
            }
        }
        for round in 0..40 {
            net.run_for(Duration::from_micros(500));
            for host in [0, 1] {
                let link = net.nic(host).link_to(host_id(1 - host)).unwrap();
                net.nic(host).hold(link, round % 2 == 0 && round < 39).unwrap();
            }
        }
        let ends = |net: &Net| {
            let is_end = |event: &&Event| matches!(event, Event::Dma { result: Ok(()), .. });
            (0..2).map(|host| net.log(host).iter().filter(is_end).count()).sum::<usize>()
        };
        net.run_until("the end of all chains", |net| ends(net) == begun);
        for (host, area, bytes) in checks {
            assert_eq!(net.bytes(host, area), bytes);
        }
    }
}

/// A thousand endpoints, a message to each: one event each, no matter who was
/// unregistered is silent, and what came meanwhile is there to be asked for.
#[test]
fn events_of_a_thousand_endpoints_come_once_each() {
    let mut net = Net::linked(sim(1), 2, &config(), ethernet());
    let from = net.nic(0).open_endpoint(None).unwrap();
    let endpoints: Vec<_> =
        (0..1000).map(|n| net.nic(1).open_endpoint(Some(Port(n))).unwrap()).collect();
    for silent in endpoints.iter().step_by(10) {
        net.nic(1).unregister(Source::OutOfBand(*silent));
    }
    net.clear();
    for n in 0..2000 {
        let to = address(1, Port(n % 1000));
        while net.nic(0).send_to(from, to, body(&n.to_be_bytes())) == Err(Error::Busy) {
            net.run_for(Duration::from_micros(50));
        }
    }
    net.flush(0, 1);
    let log = net.log(1);
    for (n, endpoint) in endpoints.iter().enumerate() {
        let told = Event::OutOfBand { endpoint: *endpoint };
        let times = log.iter().filter(|event| **event == told).count();
        if n % 10 == 0 {
            assert_eq!(times, 0);
        } else {
            assert!((1..=2).contains(&times), "{times}");
        }
        for round in 0..2u32 {
            let said = (round * 1000 + n as u32).to_be_bytes();
            let notice = net.nic(1).poll_notice(*endpoint);
            assert!(
                matches!(notice, Some(Notice::Message { body, .. }) if body[..4] == said),
                "{notice:?}"
            );
        }
    }
}

/// Queues of DMA requests that are filled while the engine is busy, of many
/// endpoints: all move at the same pace, and completions come in their order.
#[test]
fn dma_queues_are_filled_while_the_engine_is_busy_and_served_in_turn() {
    let fair = Config { dma_turn: 4096, ..config() };
    let mut net = Net::linked(sim(1), 2, &fair, LinkConfig::ethernet(100_000_000));
    let mut queues = Vec::new();
    for n in 0..5 {
        let endpoint = net.nic(0).open_endpoint(None).unwrap();
        let (there, window) = net.window(0, 1, 200_000);
        let from = net.lend(0, &noise(n, 20_000));
        queues.push((endpoint, there, window, from, Vec::new()));
    }
    for round in 0..10 {
        for (endpoint, _, window, from, chains) in &mut queues {
            let now = net.now();
            let write = DmaRequest::Write { from: *from, window: *window, offset: 20_000 * round };
            chains.push(net.nic(0).dma(now, *endpoint, &[write]).unwrap());
        }
        net.run_for(Duration::from_micros(300));
    }
    let mut done: Vec<Vec<_>> = vec![Vec::new(); 5];
    net.run_until("the last chain", |net| {
        net.log(0).iter().filter(|event| matches!(event, Event::Dma { .. })).count() == 50
    });
    for event in net.log(0) {
        if let Event::Dma { endpoint, dma, result } = event {
            assert_eq!(result, Ok(()));
            let n = queues.iter().position(|(e, ..)| *e == endpoint).unwrap();
            done[n].push(dma);
            let (least, most) =
                done.iter().fold((usize::MAX, 0), |(a, b), d| (a.min(d.len()), b.max(d.len())));
            assert!(most - least <= 2, "{:?}", done.iter().map(Vec::len).collect::<Vec<_>>());
        }
    }
    for (n, (_, there, _, from, chains)) in queues.iter().enumerate() {
        assert_eq!(done[n], *chains);
        assert_eq!(net.bytes(1, there.area), net.bytes(0, *from).repeat(10));
    }
}
