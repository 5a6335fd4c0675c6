//! Endpoints that a loop of the user drives, without a thread of ours.

mod support;

use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall::stp::{Endpoint, Memory, Reactor, blocking};
use landfall_transport::Interest;
use landfall_transport::wait::until_ready;
use support::{PORT, loopback, noise};

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs tasks to their end on this thread, which drives these reactors, and waits for all of
/// them at once.
fn run(reactors: &mut [Reactor], mut tasks: Vec<Task<'_>>) {
    let start = Instant::now();
    loop {
        assert!(start.elapsed().as_secs() < 60, "{} tasks wait in vain", tasks.len());
        let moved = reactors.iter_mut().map(Reactor::turn).fold(false, |any, moved| any | moved);
        let waker = reactors[0].waker();
        let mut context = Context::from_waker(&waker);
        tasks.retain_mut(|task| task.as_mut().poll(&mut context) == Poll::Pending);
        if tasks.is_empty() {
            return;
        }
        if moved {
            continue;
        }
        let limits = reactors.iter_mut().map(|reactor| reactor.prepare().unwrap());
        let at_most = limits.flatten().min().unwrap_or(Duration::from_secs(60));
        let readable = |fd| Interest { fd, readable: true, writable: false };
        let descriptors = reactors.iter().map(AsRawFd::as_raw_fd);
        until_ready(&descriptors.map(readable).collect::<Vec<_>>(), at_most).unwrap();
    }
}

fn bind() -> (Endpoint, Reactor) {
    let endpoint = Endpoint::builder().path(loopback()).without_thread().bind().unwrap();
    let reactor = endpoint.reactor().unwrap();
    (endpoint, reactor)
}

/// Threads of ours have names.
fn own_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("landfall-")).count()
}

#[test]
fn one_thread_drives_both_ends_in_a_plain_loop() {
    let ((server, one), (client, other)) = (bind(), bind());
    let address = server.local().unwrap();
    let listener = server.listen(PORT).unwrap();
    let serving = async {
        let connection = listener.accept().await.unwrap();
        for len in [0, 1, 1_000, 100_000] {
            let message = connection.receive(Memory::zeroed(100_000)).await.unwrap();
            assert_eq!(*message, *noise(len, len as usize));
            connection.send(message.into_bytes()).await.unwrap();
        }
        connection.closed().await.unwrap();
    };
    let asking = async {
        let connection = client.connect(address, PORT).await.unwrap();
        for len in [0, 1, 1_000, 100_000] {
            let bytes = noise(len, len as usize);
            let back = connection.receive(Memory::zeroed(100_000)).start();
            connection.send(bytes.clone()).await.unwrap();
            assert_eq!(*back.await.unwrap(), *bytes);
        }
        connection.close().await.unwrap();
    };
    let mut reactors = [one, other];
    run(&mut reactors, vec![Box::pin(serving), Box::pin(asking)]);
    assert_eq!(own_threads(), 0);
    // What is asked for at the end is done by the loop as well.
    run(&mut reactors, vec![Box::pin(client.close())]);
    drop((listener, server));
    let start = Instant::now();
    while !reactors.iter().all(Reactor::has_ended) {
        assert!(start.elapsed().as_secs() < 60, "it does not end");
        for reactor in &mut reactors {
            reactor.turn();
        }
    }
}

#[test]
fn without_a_reactor_threads_that_wait_drive() {
    let bind = || {
        let builder = Endpoint::builder().path(loopback()).without_thread();
        blocking::Endpoint::from(builder.bind().unwrap())
    };
    let (server, client) = (bind(), bind());
    let (address, listener) = (server.local().unwrap(), server.listen(PORT).unwrap());
    let echo = std::thread::spawn(move || {
        let connection = listener.accept().unwrap();
        let message = connection.receive(Memory::zeroed(1_000)).wait().unwrap();
        connection.send(message.into_bytes()).wait().unwrap();
        connection.closed().unwrap();
        server.close();
    });
    let connection = client.connect(address, PORT).unwrap();
    let back = connection.receive(Memory::zeroed(1_000)).start();
    connection.send("here and back").wait().unwrap();
    assert_eq!(&*back.wait().unwrap(), b"here and back");
    connection.close().unwrap();
    client.close();
    echo.join().unwrap();
    assert_eq!(own_threads(), 0);
}
