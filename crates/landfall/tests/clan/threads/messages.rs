//! What passes over links at any engine of a node: messages, chains of the DMA engine, names,
//! publications.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use super::{ENGINES, star};
use crate::clan::{noise, soon, until};
use landfall::clan::network::{
    Aperture, Endpoint, HostId, Node, Notice, Port, PortAddress, Request,
};
use landfall::clan::{Error, Event, Fabric, Local, Rights};

/// Answers each client what it says, until this many have had a connection; gives the endpoints.
fn serve(here: &Node, listener: &Endpoint, clients: usize) -> BTreeMap<u64, Endpoint> {
    let mut events = here.events(64).unwrap();
    events.register(listener, 0).unwrap();
    // By the number of its host.
    let mut taken: BTreeMap<u64, Endpoint> = BTreeMap::new();
    let mut over = 0;
    while over < clients {
        let event = events.wait(soon()).unwrap().expect("a client");
        let Event::OutOfBand(token) = event else { panic!("{event:?}") };
        if token == 0 {
            while let Some(notice) = listener.try_next() {
                let Notice::Request(request) = notice else { panic!("{notice:?}") };
                let endpoint = here.endpoint(None).unwrap();
                let token = u64::from(request.from.host.number());
                events.register(&endpoint, token).unwrap();
                endpoint.accept(&request, request.body).unwrap();
                taken.insert(token, endpoint);
            }
            continue;
        }
        let endpoint = &taken[&token];
        while let Some(notice) = endpoint.try_next() {
            match notice {
                Notice::Message { from, body } => {
                    assert_eq!(u64::from(from.host.number()), token);
                    endpoint.send(body).unwrap();
                }
                Notice::Disconnected { body } => endpoint.disconnect(body).unwrap(),
                Notice::Closed => over += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    taken
}

#[test]
fn a_server_of_several_engines_answers_many_clients() {
    const ROUNDS: u8 = 60;
    let (here, peers) = star();
    let listener = here.endpoint(Some(Port(77))).unwrap();
    assert!(here.endpoint(Some(Port(77))).is_err(), "the port is taken at all engines");
    listener.listen().unwrap();
    let to = PortAddress { host: here.host(), port: listener.port() };
    let served = thread::scope(|scope| {
        for peer in &peers {
            scope.spawn(move || {
                let client = peer.endpoint(None).unwrap();
                let next = || client.wait_next(soon()).unwrap().expect("a notice");
                client.connect(to, [1; 40]).unwrap();
                assert!(matches!(next(), Notice::Accepted { body: [1, ..], .. }));
                for nth in 0..ROUNDS {
                    client.send([nth; 40]).unwrap();
                    let Notice::Message { body, .. } = next() else { panic!() };
                    assert_eq!(body, [nth; 40]);
                }
                client.disconnect([2; 40]).unwrap();
                assert!(matches!(next(), Notice::Disconnected { .. }));
                assert_eq!(next(), Notice::Closed);
            });
        }
        serve(&here, &listener, peers.len())
    });
    assert_eq!(served.len(), peers.len());
}

#[test]
fn one_endpoint_has_a_connection_after_another_at_any_engine() {
    let (here, peers) = star();
    let endpoint = here.endpoint(None).unwrap();
    for peer in &peers {
        let other = peer.endpoint(None).unwrap();
        other.listen().unwrap();
        let to = PortAddress { host: peer.host(), port: other.port() };
        endpoint.connect(to, [3; 40]).unwrap();
        let Notice::Request(request) = other.wait_next(soon()).unwrap().unwrap() else { panic!() };
        let busy = endpoint.connect(to, [3; 40]);
        assert!(matches!(busy, Err(Error::Busy)), "it has one: {busy:?}");
        let busy = endpoint.listen();
        assert!(matches!(busy, Err(Error::Busy)), "it has one: {busy:?}");
        let taker = peer.endpoint(None).unwrap();
        taker.accept(&request, [4; 40]).unwrap();
        let accepted = endpoint.wait_next(soon()).unwrap().unwrap();
        assert!(matches!(accepted, Notice::Accepted { body: [4, ..], .. }), "{accepted:?}");
        for other in &peers {
            // Connected or not, anybody has a word for it.
            let from = other.endpoint(None).unwrap();
            let to = PortAddress { host: here.host(), port: endpoint.port() };
            from.send_to(to, [other.host().number() as u8; 40]).unwrap();
            let said = endpoint.wait_next(soon()).unwrap().unwrap();
            let Notice::Message { from: said_by, body } = said else { panic!("{said:?}") };
            assert_eq!(said_by.port, from.port());
            assert_eq!(body, [other.host().number() as u8; 40]);
            endpoint.send_to(said_by, body).unwrap();
            let answer = from.wait_next(soon()).unwrap().unwrap();
            assert!(matches!(answer, Notice::Message { .. }), "{answer:?}");
        }
        drop(taker);
        assert!(endpoint.wait_next(soon()).unwrap().unwrap().is_last());
    }
}

#[test]
fn one_dma_queue_serves_peers_at_all_engines() {
    const ROUNDS: u64 = 60;
    let (here, peers) = star();
    let (source, _) = here.expose(1 << 16, Rights::Read).unwrap();
    let (back, _) = here.expose(1 << 16, Rights::Read).unwrap();
    source.copy_in(0, &noise(5, 1 << 16)).unwrap();
    let theirs: Vec<_> =
        peers.iter().map(|peer| peer.expose(1 << 16, Rights::ReadWrite).unwrap()).collect();
    let windows: Vec<_> = theirs.iter().map(|(_, cookie)| here.map(cookie).unwrap()).collect();
    let mut queue = here.endpoint(None).unwrap().dma_queue(16).unwrap();
    let mixed = [
        Request::Word { to: &windows[0], offset: 0, word: 1 },
        Request::Word { to: &windows[1], offset: 0, word: 1 },
    ];
    assert!(matches!(queue.push(&mixed), Err(Error::BadConfig(_))), "of two hosts");
    let mut events = here.events(4).unwrap();
    events.register(&queue, 3).unwrap();
    let all = ROUNDS * windows.len() as u64;
    let (mut put, mut last, mut done) = (0, vec![0; windows.len()], 0);
    while done < all {
        if put < all {
            let window = &windows[put as usize % windows.len()];
            let round = put / windows.len() as u64 + 1;
            let at = put % windows.len() as u64 * 16;
            let chain = [
                Request::Write { from: &source, range: 0..8192, to: window, offset: 8192 },
                Request::Word { to: window, offset: 0, word: round },
                Request::Read { from: window, offset: 0, into: &back, range: at..at + 8 },
            ];
            match queue.push(&chain) {
                Ok(number) => {
                    assert_eq!(number, put);
                    put += 1;
                    continue;
                }
                Err(Error::Busy) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(events.wait(soon()).unwrap(), Some(Event::Dma(3)));
        while let Some(over) = queue.try_done() {
            over.result.unwrap();
            done += 1;
            let nth = over.chain as usize % windows.len();
            assert!(over.chain >= last[nth], "in their order at one host");
            last[nth] = over.chain;
            let round = over.chain / windows.len() as u64 + 1;
            assert!(theirs[nth].0.load(0).unwrap() >= round);
            assert!(back.load(nth as u64 * 16).unwrap() >= round);
        }
    }
    assert_eq!(queue.under_way(), 0);
    for (memory, _) in &theirs {
        assert_eq!(memory.load(0).unwrap(), ROUNDS);
        let mut found = vec![0; 8192];
        memory.copy_out(8192, &mut found).unwrap();
        assert!(found == noise(5, 1 << 16)[..8192]);
    }
}

#[test]
fn names_are_found_and_withdrawn_at_all_engines() {
    let (here, peers) = star();
    // Some ask before it is offered, some after.
    let (early, late) = peers.split_at(ENGINES);
    let find = |peer: &Node| peer.find("prices", soon()).unwrap();
    let (offer, mut found) = thread::scope(|scope| {
        let early: Vec<_> = early.iter().map(|peer| scope.spawn(move || find(peer))).collect();
        let offer = here.offer("prices").unwrap();
        let found: Vec<_> = early.into_iter().map(|finding| finding.join().unwrap()).collect();
        (offer, found)
    });
    found.extend(late.iter().map(find));
    assert!(here.offer("prices").is_err(), "it is offered");
    thread::scope(|scope| {
        let asking = found
            .iter()
            .zip(0..)
            .map(|(found, nth)| scope.spawn(move || found.ask(&[nth], soon()).unwrap()));
        let asking: Vec<_> = asking.collect();
        for _ in 0..asking.len() {
            let request = offer.accept(soon()).unwrap();
            let said = [request.greeting()[0], request.host().number() as u8];
            request.answer(&said).unwrap();
        }
        for ((asking, peer), nth) in asking.into_iter().zip(&peers).zip(0..) {
            assert_eq!(asking.join().unwrap(), [nth, peer.host().number() as u8]);
        }
    });
    // Those who wait for an answer are refused when the name goes, and so are later ones.
    let ended = |asked: Result<Vec<u8>, Error>| matches!(asked, Err(Error::Refused(_)));
    thread::scope(|scope| {
        let waiting = found.iter().map(|found| scope.spawn(|| found.ask(b"", soon())));
        let waiting: Vec<_> = waiting.collect();
        until(&here, || !offer.is_empty());
        drop(offer);
        assert!(waiting.into_iter().all(|waiting| ended(waiting.join().unwrap())));
    });
    assert!(found.iter().all(|found| ended(found.ask(b"", soon()))));
    here.offer("prices").expect("it is free again");
}

#[test]
fn a_group_has_members_at_all_engines_and_joins_at_all() {
    const LEN: u64 = 4096;
    let (here, peers) = star();
    let mut group = here.found_group(LEN).unwrap();
    let memories: Vec<Aperture> = peers
        .iter()
        .map(|peer| {
            let (memory, _) = peer.expose(LEN, Rights::Write).unwrap();
            peer.join_group(&group.cookie(), &memory).unwrap();
            group.add(peer.host()).unwrap();
            memory
        })
        .collect();
    assert!(group.add(peers[0].host()).is_err(), "a member already");
    for round in 1..=20u64 {
        let long = noise(round, 1000);
        let told = group.publish(&[(8, &long), (0, &round.to_le_bytes())]).unwrap();
        let members: BTreeSet<HostId> = told.iter().map(|told| told.member).collect();
        assert!(told.iter().all(|told| told.result.is_ok()), "{told:?}");
        assert!(members.into_iter().eq(group.members().collect::<BTreeSet<_>>()));
        group.wait_delivered(soon()).unwrap();
        for memory in &memories {
            assert_eq!(memory.load(0).unwrap(), round);
            let mut bytes = vec![0; long.len()];
            memory.copy_out(8, &mut bytes).unwrap();
            assert!(bytes == long);
        }
    }
    group.remove(peers[2].host());
    let told = group.publish(&[(0, &99u64.to_le_bytes())]).unwrap();
    assert_eq!(told.len(), peers.len() - 1);
    group.wait_delivered(soon()).unwrap();
    assert_eq!((memories[1].load(0).unwrap(), memories[2].load(0).unwrap()), (99, 20));

    // The other way: the node is a member of what each of its peers founds.
    for peer in &peers {
        let (memory, _) = here.expose(LEN, Rights::Write).unwrap();
        let mut group = peer.found_group(LEN).unwrap();
        here.join_group(&group.cookie(), &memory).unwrap();
        assert!(here.join_group(&group.cookie(), &memory).is_err(), "a member already");
        group.add(here.host()).unwrap();
        group.publish(&[(0, &7u64.to_le_bytes())]).unwrap();
        group.wait_delivered(soon()).unwrap();
        assert_eq!(memory.load(0).unwrap(), 7);
        here.leave_group(&group.cookie()).unwrap();
        assert!(here.leave_group(&group.cookie()).is_err(), "no member any more");
    }
}
