//! Endpoints, connections and messages of 40 bytes: one program over shared memory and over
//! networks.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use landfall::clan::messaging::{Endpoint, MessageEvents, Messaging};
use landfall::clan::network::{EndpointState, Notice, Port, PortAddress, Reason};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::clan::{Error, Event, EventQueue};
use landfall_testkit::TemporaryFolder;

use super::{pairs, shared_pair, soon};

fn next<E: Endpoint>(endpoint: &E) -> Notice {
    endpoint.wait_next(soon()).unwrap().expect("a notice")
}

fn at<N: Messaging>(node: &N, endpoint: &N::Endpoint) -> PortAddress {
    PortAddress { host: node.host_id(), port: endpoint.port() }
}

#[test]
fn one_program_has_connections_between_processes_and_over_networks() {
    let (_folder, (here, there)) = shared_pair();
    connections("processes", &here, &there);
    // And the other way, over the same sockets.
    connections("processes", &there, &here);
    for (name, (here, there)) in pairs() {
        connections(name, &here, &there);
    }
}

/// Set-up with 40 bytes each way, messages in order, half and complete tear-down, refusal, abort.
fn connections<N: Messaging>(name: &str, here: &N, there: &N) {
    let listener = here.endpoint(Some(Port(77))).unwrap();
    assert!(here.endpoint(Some(Port(77))).is_err(), "{name}: the port is taken");
    listener.listen().unwrap();
    let asker = there.endpoint(None).unwrap();
    asker.connect(at(here, &listener), [1; 40]).unwrap();
    let Notice::Request(request) = next(&listener) else { panic!("{name}") };
    assert_eq!((request.from, request.body), (at(there, &asker), [1; 40]), "{name}");
    let taker = here.endpoint(None).unwrap();
    taker.accept(&request, [2; 40]).unwrap();
    assert_eq!(next(&asker), Notice::Accepted { by: at(here, &taker), body: [2; 40] }, "{name}");
    assert_eq!(asker.state().unwrap(), EndpointState::Connected, "{name}");

    for nth in 0..200u8 {
        asker.send([nth; 40]).unwrap();
        let from = at(there, &asker);
        assert_eq!(next(&taker), Notice::Message { from, body: [nth; 40] }, "{name}");
        taker.send([!nth; 40]).unwrap();
        let Notice::Message { body, .. } = next(&asker) else { panic!("{name}") };
        assert_eq!(body, [!nth; 40], "{name}");
    }
    // Half of it is torn down: the other half goes on.
    asker.disconnect([3; 40]).unwrap();
    assert_eq!(next(&taker), Notice::Disconnected { body: [3; 40] }, "{name}");
    assert!(matches!(asker.send([0; 40]), Err(Error::Closed)), "{name}");
    taker.send([4; 40]).unwrap();
    assert!(matches!(next(&asker), Notice::Message { body: [4, ..], .. }), "{name}");
    taker.disconnect([5; 40]).unwrap();
    assert_eq!(next(&asker), Notice::Disconnected { body: [5; 40] }, "{name}");
    assert_eq!((next(&asker), next(&taker)), (Notice::Closed, Notice::Closed), "{name}");

    // Refused, for two reasons.
    asker.connect(at(here, &listener), [6; 40]).unwrap();
    let Notice::Request(request) = next(&listener) else { panic!("{name}") };
    listener.refuse(&request, Reason::NoRoom, [7; 40]).unwrap();
    assert!(matches!(next(&asker), Notice::Ended { body: [7, ..], .. }), "{name}");
    let nobody = PortAddress { host: here.host_id(), port: Port(78) };
    asker.connect(nobody, [0; 40]).unwrap();
    assert!(next(&asker).is_last(), "{name}");
    asker.send_to(nobody, [0; 40]).unwrap();
    let Notice::Undelivered { to, reason, .. } = next(&asker) else { panic!("{name}") };
    assert_eq!((to, reason), (nobody, Reason::NoEndpoint), "{name}");

    // An endpoint that goes ends its connection.
    asker.connect(at(here, &listener), [8; 40]).unwrap();
    let Notice::Request(request) = next(&listener) else { panic!("{name}") };
    taker.accept(&request, [0; 40]).unwrap();
    assert!(matches!(next(&asker), Notice::Accepted { .. }), "{name}");
    drop(taker);
    assert!(next(&asker).is_last(), "{name}");
    assert!(asker.wait_next(Some(Instant::now())).unwrap().is_none(), "{name}");
}

#[test]
fn a_flood_of_messages_comes_or_comes_back_on_every_carrier() {
    let (_folder, (here, there)) = shared_pair();
    flood("processes", &here, &there);
    for (name, (here, there)) in pairs() {
        flood(name, &here, &there);
    }
}

/// Nobody takes them out: what has no room in the queue is told to who has sent it.
fn flood<N: Messaging>(name: &str, here: &N, there: &N) {
    const ALL: u32 = 2000;
    let receiver = here.endpoint(None).unwrap();
    let sender = there.endpoint(None).unwrap();
    let (mut returned, until) = (0, soon());
    let mut take = |sender: &N::Endpoint| match sender.try_next() {
        Some(Notice::Undelivered { count, .. }) => returned += count,
        Some(Notice::MoreUndelivered { count }) => returned += count as u32,
        Some(other) => panic!("{name}: {other:?}"),
        None => here.relax(),
    };
    for nth in 0..ALL {
        let mut body = [0; 40];
        body[..4].copy_from_slice(&nth.to_le_bytes());
        while let Err(error) = sender.send_to(at(here, &receiver), body) {
            assert!(matches!(error, Error::Busy), "{name}: {error}");
            there.relax();
            take(&sender);
            assert!(Some(Instant::now()) < until, "{name}: it never had room");
        }
    }
    let mut came = Vec::new();
    // What was sent first is what had room.
    let all = |came: &Vec<u32>, returned: u32| came.len() as u32 + returned >= ALL;
    let mut lost = 0;
    while !all(&came, lost) {
        match receiver.try_next() {
            Some(Notice::Message { body, .. }) => {
                came.push(u32::from_le_bytes([body[0], body[1], body[2], body[3]]));
            }
            Some(other) => panic!("{name}: {other:?}"),
            None => there.relax(),
        }
        match sender.try_next() {
            Some(Notice::Undelivered { count, .. }) => lost += count,
            Some(Notice::MoreUndelivered { count }) => lost += count as u32,
            Some(other) => panic!("{name}: {other:?}"),
            None => here.relax(),
        }
        lost += std::mem::take(&mut returned);
        assert!(Some(Instant::now()) < until, "{name}: {} came, {lost} came back", came.len());
    }
    assert_eq!(came.len() as u32 + lost, ALL, "{name}");
    assert!(came.is_sorted() && came[..10] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "{name}: {came:?}");
}

#[test]
fn one_queue_tells_of_endpoints_and_tripwires_on_every_carrier() {
    let (_folder, (here, there)) = shared_pair();
    told_by_queue("processes", &here, &there);
    for (name, (here, there)) in pairs() {
        told_by_queue(name, &here, &there);
    }
}

fn told_by_queue<N: Messaging>(name: &str, here: &N, there: &N) {
    let mut events = here.events(16).unwrap();
    let receiver = here.endpoint(None).unwrap();
    events.register_endpoint(&receiver, 5).unwrap();
    let sender = there.endpoint(None).unwrap();
    assert!(events.next().is_none(), "{name}");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            sender.send_to(at(here, &receiver), [1; 40]).unwrap();
            sender.send_to(at(here, &receiver), [2; 40]).unwrap();
        });
        // Asleep when it comes.
        events.select(&[], soon()).unwrap();
    });
    let mut bodies = Vec::new();
    while bodies.len() < 2 {
        match events.wait(soon()).unwrap() {
            Some(Event::OutOfBand(5)) => {}
            other => panic!("{name}: {other:?}"),
        }
        while let Some(Notice::Message { body, .. }) = receiver.try_next() {
            bodies.push(body[0]);
        }
    }
    assert_eq!(bodies, [1, 2], "{name}");
    // Nothing is told of one that is not registered; what waited is told of when it is.
    events.unregister_endpoint(&receiver).unwrap();
    while events.next().is_some() {}
    sender.send_to(at(here, &receiver), [3; 40]).unwrap();
    let until = soon();
    while receiver.state().is_ok() && receiver.try_next().is_none() {
        here.relax();
        there.relax();
        assert!(Some(Instant::now()) < until, "{name}");
    }
    assert!(events.next().is_none(), "{name}");
    sender.send_to(at(here, &receiver), [4; 40]).unwrap();
    thread::sleep(Duration::from_millis(20));
    here.relax();
    events.register_endpoint(&receiver, 6).unwrap();
    assert_eq!(events.wait(soon()).unwrap(), Some(Event::OutOfBand(6)), "{name}");
}

const FOLDER: &str = "LANDFALL_MESSAGING_FOLDER";

/// Kills it also when the test fails.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process is killed, time and again, whatever it does: connections with it end, once each, and
/// those of others go on.
#[test]
fn the_death_of_a_process_ends_its_connections_and_no_others() {
    let (folder, (here, there)) = shared_pair();
    let listener = here.endpoint(Some(Port(7))).unwrap();
    listener.listen().unwrap();
    let friend = there.endpoint(None).unwrap();
    friend.connect(at(&here, &listener), [0; 40]).unwrap();
    let Notice::Request(request) = next(&listener) else { panic!() };
    let to_friend = here.endpoint(None).unwrap();
    to_friend.accept(&request, [0; 40]).unwrap();
    assert!(matches!(next(&friend), Notice::Accepted { .. }));
    for time in 0..10u64 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["clan::messaging::the_connecting_process", "--exact", "--nocapture"]);
        command.env(FOLDER, folder.path()).stdout(Stdio::null());
        command.env("LANDFALL_MESSAGING_HOST", here.host().to_string());
        let mut other = Other(command.spawn().unwrap());
        let mut connections = Vec::new();
        while connections.len() < 8 {
            let Notice::Request(request) = next(&listener) else { panic!() };
            let endpoint = here.endpoint(None).unwrap();
            endpoint.accept(&request, [0; 40]).unwrap();
            connections.push(endpoint);
        }
        thread::sleep(Duration::from_micros(time * 700));
        other.0.kill().unwrap();
        for endpoint in &connections {
            while !next(endpoint).is_last() {}
        }
        // What it had asked for when it died is there, and leads to nobody.
        while let Some(notice) = listener.try_next() {
            assert!(matches!(notice, Notice::Request(_)));
        }
        friend.send([time as u8; 40]).unwrap();
        assert!(matches!(next(&to_friend), Notice::Message { .. }));
    }
    // The end of a node is told to anyone who waits.
    let waiting = thread::spawn({
        let friend = friend.clone();
        move || loop {
            match friend.wait_next(soon()) {
                // The end of its connection.
                Ok(Some(notice)) => assert!(notice.is_last(), "{notice:?}"),
                other => break other,
            }
        }
    });
    there.close();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(Error::NodeGone)), "{ended:?}");
    assert!(next(&to_friend).is_last());
    assert!(matches!(friend.send_to(at(&here, &listener), [0; 40]), Err(Error::NodeGone)));
}

/// Not a test but a process: it connects, and talks for as long as it lives.
#[test]
fn the_connecting_process() {
    let (Some(folder), Ok(host)) =
        (std::env::var_os(FOLDER), std::env::var("LANDFALL_MESSAGING_HOST"))
    else {
        return;
    };
    let node = SharedNode::open(SharedConfig::new(folder.as_ref())).unwrap();
    let host = landfall::clan::network::HostId::new(host.parse().unwrap()).unwrap();
    let connect = |_| {
        let endpoint = node.endpoint(None).unwrap();
        endpoint.connect(PortAddress { host, port: Port(7) }, [0; 40]).unwrap();
        endpoint
    };
    let endpoints: Vec<_> = (0..8).map(connect).collect();
    for endpoint in &endpoints {
        assert!(matches!(next(endpoint), Notice::Accepted { .. }));
    }
    while endpoints.iter().all(|endpoint| !matches!(endpoint.send([9; 40]), Err(Error::Closed))) {
        for endpoint in &endpoints {
            while endpoint.try_next().is_some() {}
        }
    }
}

/// A process that says to be another host is hung up on, and takes no connection of that host.
#[test]
fn a_process_that_says_to_be_another_host_is_refused() {
    let folder = TemporaryFolder::new("shared");
    let open =
        |host| SharedNode::open(SharedConfig { host, ..SharedConfig::new(folder.path()) }).unwrap();
    let (here, there) = (open(Some(1)), open(Some(2)));
    let receiver = here.endpoint(Some(Port(9))).unwrap();
    let sender = there.endpoint(None).unwrap();
    sender.send_to(at(&here, &receiver), [1; 40]).unwrap();
    assert!(matches!(next(&receiver), Notice::Message { body: [1, ..], .. }));
    // Another process, in the same folder by another path of its own, says that it is host 2.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["clan::messaging::the_false_process", "--exact", "--nocapture"]);
    command.env(FOLDER, folder.path()).stdout(Stdio::null());
    let status = Other(command.spawn().unwrap()).0.wait().unwrap();
    assert!(status.success(), "it was hung up on");
    sender.send_to(at(&here, &receiver), [3; 40]).unwrap();
    let Notice::Message { from, body } = next(&receiver) else { panic!() };
    assert_eq!((from.host, body), (there.host_id(), [3; 40]), "and nothing of the other came");
}

/// Not a test but a process: a folder with the socket of host 1 alone, where it is host 2.
#[test]
fn the_false_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let own = TemporaryFolder::new("false");
    let socket = std::path::Path::new(&folder).join("clan-1.socket");
    std::os::unix::fs::symlink(socket, own.path().join("clan-1.socket")).unwrap();
    let config = SharedConfig { host: Some(2), ..SharedConfig::new(own.path()) };
    let node = SharedNode::open(config).unwrap();
    let endpoint = node.endpoint(None).unwrap();
    let to = PortAddress { host: landfall::clan::network::HostId::new(1).unwrap(), port: Port(9) };
    endpoint.connect(to, [2; 40]).unwrap();
    assert!(next(&endpoint).is_last(), "it was heard");
}
