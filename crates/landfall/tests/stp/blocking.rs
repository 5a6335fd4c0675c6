//! The handles for threads, which drive the endpoint while they wait.

use std::time::Duration;

use super::{PORT, loopback, noise};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Memory, Operation, Peer, RemoteRights, Transport, Wait};

fn bind(wait: Wait) -> Endpoint {
    Endpoint::from(Endpoint::builder().path(loopback()).wait(wait).bind().unwrap())
}

fn joined(server: &Endpoint, client: &Endpoint) -> (Connection, Connection) {
    let listener = server.listen(PORT).unwrap();
    let connection = client.connect(server.local().unwrap(), PORT).unwrap();
    (connection, listener.accept().unwrap())
}

#[test]
fn threads_talk_however_they_wait() {
    for wait in [Wait::Block, Wait::BALANCED, Wait::Spin] {
        let (server, client) = (bind(wait), bind(wait));
        let (here, there) = joined(&server, &client);
        let echo = std::thread::spawn(move || {
            let mut memory = Memory::zeroed(100_000);
            for _ in 0..20 {
                let message = there.receive(memory).wait().unwrap();
                let sent = there.send(message.to_vec()).wait().unwrap();
                assert_eq!(sent.len, 100_000);
                memory = message.into_memory();
            }
            there.closed().unwrap();
        });
        for n in 0..20 {
            let bytes = noise(n, 100_000);
            let back = here.receive(Memory::zeroed(100_000)).start();
            here.send(bytes.clone()).wait().unwrap();
            assert!(*back.wait().unwrap() == bytes, "{wait:?}");
        }
        here.close().unwrap();
        echo.join().unwrap();
        client.close();
        server.close();
    }
}

#[test]
fn several_threads_wait_at_one_endpoint() {
    let (server, client) = (bind(Wait::BALANCED), bind(Wait::BALANCED));
    let listener = server.listen(PORT).unwrap();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (server, client, listener) = (&server, &client, &listener);
            scope.spawn(move || {
                let here = client.connect(server.local().unwrap(), PORT).unwrap();
                for round in 0..10 {
                    here.send(noise(n + round, 50_000)).opaque(n as u32).wait().unwrap();
                }
                here.close().unwrap();
            });
            scope.spawn(move || {
                let there = listener.accept().unwrap();
                let mut first = None;
                for round in 0..10 {
                    let message = there.receive(Memory::zeroed(50_000)).wait().unwrap();
                    let n = *first.get_or_insert(message.opaque());
                    assert_eq!(message.opaque(), n);
                    assert!(*message == noise(u64::from(n) + round, 50_000));
                }
                there.closed().unwrap();
            });
        }
    });
}

#[test]
fn what_is_not_over_in_time_goes_on() {
    let (server, client) = (bind(Wait::BALANCED), bind(Wait::BALANCED));
    let (here, there) = joined(&server, &client);
    let sending = here.send("late").start();
    let sending: Operation<_> = sending.wait_for(Duration::from_millis(5)).unwrap_err();
    let message = there.receive(Memory::zeroed(10)).wait().unwrap();
    assert_eq!(&*message, b"late");
    assert_eq!(sending.wait().unwrap().len, 4);
    let nobody = server.listen(PORT + 1).unwrap();
    assert!(nobody.accept_within(Duration::from_millis(1)).unwrap().is_none());
}

#[test]
fn threads_use_remote_memory() {
    let (server, client) = (bind(Wait::BALANCED), bind(Wait::BALANCED));
    let (here, there) = joined(&server, &client);
    let region = server.register(Memory::zeroed(64)).unwrap();
    let asking = here.request_region(1, 64, RemoteRights::ALL).start();
    let exposed = there.region_request().unwrap().expose(&region.whole(), RemoteRights::ALL);
    let exposed = exposed.unwrap();
    let remote = asking.wait().unwrap();
    for n in 0..1000u64 {
        remote.put(0, n.to_le_bytes().to_vec()).wait().unwrap();
        assert_eq!(remote.fetch_add(8, 1).wait().unwrap(), n);
    }
    there.wait(exposed.revoke());
    let memory = server.take_back(region).unwrap();
    assert_eq!(memory[..8], 999u64.to_le_bytes());
    assert_eq!(memory[8..16], 1000u64.to_le_bytes());
}

#[test]
fn a_thread_that_waits_learns_that_the_endpoint_is_closed() {
    let (server, client) = (bind(Wait::Block), bind(Wait::Block));
    let (here, there) = joined(&server, &client);
    let waiting = {
        let (server, there) = (server.clone(), there.clone());
        std::thread::spawn(move || {
            let listener = server.listen(PORT + 1).unwrap();
            let ended = there.receive(Memory::zeroed(1)).wait().unwrap_err();
            (ended.to_string(), listener.accept().unwrap_err().to_string())
        })
    };
    while server.stats().operations == 0 {
        std::thread::yield_now();
    }
    server.close();
    let (receive, accept) = waiting.join().unwrap();
    assert_eq!(receive, "the connection is closed");
    assert_eq!(accept, "the endpoint is closed");
    here.closed().unwrap();
    drop(there);
}

#[test]
fn dropped_handles_give_the_paths_back() {
    let server = bind(Wait::Block);
    let Some(Peer::Socket(address)) = server.local() else { panic!("UDP has an address") };
    let client = bind(Wait::Block);
    let (here, there) = joined(&server, &client);
    drop((server, there));
    here.closed().unwrap();
    // Its thread ends in the background; then the port is free.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = Endpoint::bind(Transport::udp(address)) {
        assert!(std::time::Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
