//! What the programming layer does on any fabric, between threads that really wait.
//!
//! Each test gets two nodes that reach each other, and a way to end the second one.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use landfall::clan::layer::{Wait, message, multipart, publish, queue, rpc, stream, typed};
use landfall::clan::{Error, Fabric};

use super::support;
use super::support::bytes;

/// Makes a test of each function here.
macro_rules! over_each_test {
    (let ($one:ident, $two:ident) = $pair:expr; suite(($first:expr, $second:expr), $end:expr);) => {
        crate::clan::layer::suite::over_each_test! { @
            let ($one, $two) = $pair; ($first, $second)
            a_queue_keeps_order
            a_punctual_queue_waits_for_nobody
            a_stream_carries_bytes
            calls_are_answered
            a_late_reply_is_dropped
            messages_arrive_one_by_one
            a_header_comes_before_its_body
            a_message_that_is_given_up_is_cut
            publications_reach_all
            a_deadline_ends_every_wait
            loaned_elements_are_read_where_they_lie
            a_loan_that_is_dropped_puts_nothing_in
            gaps_of_a_stream_are_read_as_chunks
            messages_calls_and_publications_are_read_where_they_lie
            values_of_one_layout_pass_and_others_do_not
        }

        #[test]
        fn the_end_of_a_node_is_told() {
            let ($one, $two) = $pair;
            crate::clan::layer::suite::the_end_of_a_node_is_told($first, $second, $end);
        }
    };
    (@ let ($one:ident, $two:ident) = $pair:expr; $nodes:tt $($test:ident)+) => {$(
        #[test]
        fn $test() {
            let ($one, $two) = $pair;
            crate::clan::layer::suite::with($nodes, crate::clan::layer::suite::$test);
        }
    )+};
}
pub(crate) use over_each_test;

/// Runs one of them.
pub(crate) fn with<F: Fabric>((one, two): (&F, &F), test: impl FnOnce(&F, &F)) {
    test(one, two);
}

/// Every way to wait.
pub(crate) const WAITS: [Wait; 3] = [Wait::Block, Wait::BALANCED, Wait::Spin];

/// Long enough to be sure that somebody hangs.
fn patience() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

pub(crate) fn a_queue_keeps_order<F: Fabric>(one: &F, two: &F) {
    for (wait, count) in WAITS.into_iter().zip([500, 3_000, 300]) {
        for config in [queue::Config::new(20, 64), queue::Config::new(32, 7).singly()] {
            let config = config.wait(wait);
            let (mut sender, mut receiver) = support::queue(one, two, config);
            thread::scope(|scope| {
                let element = config.element_len();
                scope.spawn(move || {
                    for nth in 0..count {
                        sender.put(&bytes(nth, element), patience()).unwrap();
                    }
                    sender.drain(patience()).unwrap();
                });
                let mut into = vec![0; element];
                for nth in 0..count {
                    receiver.get(&mut into, patience()).unwrap();
                    assert_eq!(into, bytes(nth, element));
                }
                let after = receiver.get(&mut into, patience());
                assert!(matches!(after, Err(Error::Closed)), "{after:?}");
            });
        }
    }
}

pub(crate) fn loaned_elements_are_read_where_they_lie<F: Fabric>(one: &F, two: &F) {
    for (wait, count) in WAITS.into_iter().zip([300, 2_000, 300]) {
        let config = queue::Config::new(24, 7).batch(3, Duration::ZERO).wait(wait);
        let (mut sender, mut receiver) = support::queue(one, two, config);
        thread::scope(|scope| {
            scope.spawn(move || {
                for nth in 0..count {
                    let mut loan = sender.loan(patience()).unwrap();
                    // A way that is full takes it later.
                    let patience = patience();
                    while let Err(error) = loan.write(0, &bytes(nth, 24)) {
                        assert!(matches!(error, Error::Busy) && Some(Instant::now()) < patience);
                    }
                    if nth % 5 == 0 { loan.enqueue().unwrap() } else { loan.publish().unwrap() }
                }
                sender.drain(patience()).unwrap();
            });
            let mut nth = 0;
            while nth < count {
                let elements = receiver.elements(patience()).unwrap();
                assert!((1..=7).contains(&elements.count()));
                assert!(elements.nth(elements.count()).is_none());
                for (view, nth) in elements.iter().zip(nth..) {
                    assert_eq!(view.to_vec().unwrap(), bytes(nth, 24));
                    assert!(view.read(17, &mut [0; 8]).is_err(), "behind its end");
                }
                // In parts, at times: the others are there the next time.
                let taken = if nth % 3 == 0 { 1 } else { elements.count() };
                elements.take_only(taken);
                nth += taken as u64;
            }
            let after = receiver.elements(patience());
            assert!(matches!(after, Err(Error::Closed)), "{after:?}");
        });
    }
}

pub(crate) fn a_loan_that_is_dropped_puts_nothing_in<F: Fabric>(one: &F, two: &F) {
    let (mut sender, mut receiver) = support::queue(one, two, queue::Config::new(8, 2).singly());
    for nth in 0..20u64 {
        sender.loan(patience()).unwrap().put(0, &u64::MAX).unwrap();
        let mut loan = sender.loan(patience()).unwrap();
        assert!(loan.write(1, &[0; 8]).is_err(), "longer than an element");
        loan.put(0, &nth).unwrap();
        loan.publish().unwrap();
        let elements = receiver.elements(patience()).unwrap();
        assert_eq!((elements.count(), elements.get::<u64>(0).unwrap()), (1, nth));
        elements.leave();
        assert_eq!(receiver.elements(patience()).unwrap().get::<u64>(0).unwrap(), nth);
        assert!(receiver.try_elements().unwrap().is_none());
    }
}

pub(crate) fn gaps_of_a_stream_are_read_as_chunks<F: Fabric>(one: &F, two: &F) {
    let (mut writer, mut reader) = support::stream(one, two, stream::Config::new(128));
    let all = bytes(3, 5_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = &all[..];
            while !rest.is_empty() {
                let mut gap = writer.gap(patience()).unwrap();
                let len = gap.len().min(rest.len()).min(50);
                match gap.place().write(0, &rest[..len]) {
                    Ok(()) => gap.publish(len).unwrap(),
                    Err(Error::Busy) => continue,
                    Err(error) => panic!("{error}"),
                }
                rest = &rest[len..];
            }
            writer.finish().unwrap();
            writer.drain(patience()).unwrap();
        });
        let mut found = Vec::<u8>::new();
        loop {
            match reader.chunk(patience()) {
                Ok(chunk) => {
                    let bytes = chunk.view().to_vec().unwrap();
                    let len = bytes.len().min(40);
                    found.extend(&bytes[..len]);
                    chunk.take_only(len);
                }
                Err(Error::Closed) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(found == all);
    });
}

pub(crate) fn messages_calls_and_publications_are_read_where_they_lie<F: Fabric>(one: &F, two: &F) {
    let (mut sender, mut receiver) = support::message(one, two, message::Config::new(100));
    for nth in 0..50 {
        let _given_back = sender.loan(patience()).unwrap();
        let mut loan = sender.loan(patience()).unwrap();
        loan.place().write(0, &bytes(nth, nth as usize)).unwrap();
        loan.publish(nth as usize).unwrap();
        let message = receiver.receive(patience()).unwrap();
        assert_eq!(message.view().to_vec().unwrap(), bytes(nth, nth as usize));
    }
    let (mut client, mut server) = support::rpc(one, two, rpc::Config::new(64, 64));
    thread::scope(|scope| {
        scope.spawn(move || {
            for nth in 0..50u64 {
                let request = server.next(patience()).unwrap();
                let reply = request.reply_in_place(|request, reply| {
                    let [a, b] = request.get::<[u64; 2]>(0)?;
                    reply.put(0, &(a + b))?;
                    Ok(if nth == 7 { 65 } else { 8 })
                });
                assert_eq!(reply.is_err(), nth == 7, "too long: the client gets nothing");
            }
        });
        for nth in 0..50u64 {
            let _given_back = client.loan(patience()).unwrap();
            let mut call = client.loan(patience()).unwrap();
            call.place().put(0, &[nth, 100]).unwrap();
            let sum = call.send(16, patience()).unwrap();
            match nth {
                7 => assert!(sum.is_empty()),
                _ => assert_eq!(sum.get::<u64>(0).unwrap(), nth + 100),
            }
        }
        assert!(matches!(
            client.loan(patience()).unwrap().send(65, patience()),
            Err(Error::TooLong { len: 65, most: 64 })
        ));
        drop(client);
    });
    let (mut publisher, mut subscriber) = support::publish(one, two, publish::Config::new(64, 4));
    for nth in 0..20u64 {
        let told = publisher.publish_with(8, |place| place.put(0, &nth)).unwrap();
        assert_eq!(told.sent, 1);
        let sight = subscriber.sight(patience()).unwrap();
        assert_eq!((sight.number(), sight.missed()), (nth, 0));
        assert_eq!(sight.view().get::<u64>(0).unwrap(), nth);
        assert!(sight.is_whole().unwrap());
    }
}

/// What one program and the next take an element for.
mod layouts {
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub(crate) struct Quote {
        pub(crate) price: f64,
        pub(crate) size: u32,
        pub(crate) venue: [u8; 4],
    }
    landfall::layout!(Quote { price: f64, size: u32, venue: [u8; 4] });

    /// As long, and something else.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub(crate) struct Later {
        pub(crate) price: f64,
        pub(crate) venue: [u8; 4],
        pub(crate) size: u32,
    }
    landfall::layout!(Later { price: f64, venue: [u8; 4], size: u32 });
}

pub(crate) fn values_of_one_layout_pass_and_others_do_not<F: Fabric>(one: &F, two: &F) {
    use layouts::{Later, Quote};
    let config = typed::Config::new(4);
    let quote = Quote { price: 99.5, size: 100, venue: *b"XETR" };
    let sender = || typed::Sender::<F, Quote>::open(one, config).unwrap();
    let (mut puts, mut gets) =
        support::join(sender(), typed::Receiver::<F, Quote>::open(two, config).unwrap());
    for size in 0..10 {
        puts.put(&Quote { size, ..quote }, patience()).unwrap();
        assert_eq!(gets.get(patience()).unwrap(), Quote { size, ..quote });
    }
    // Each side notices, whichever comes first.
    let (mut puts, mut gets) =
        support::join(sender(), typed::Receiver::<F, Later>::open(two, config).unwrap());
    let put = puts.put(&quote, patience()).and_then(|()| puts.publish());
    if put.is_ok() {
        assert!(matches!(gets.get(patience()), Err(Error::OtherLayout { .. })));
    }
    let deadline = patience();
    let mut put = put;
    while put.is_ok() && Some(Instant::now()) < deadline {
        put = puts.try_put(&quote).map(drop).and_then(|()| puts.publish());
    }
    assert!(matches!(put, Err(Error::OtherLayout { .. })), "{put:?}");
    // Who says nothing is none of this layout.
    let raw = queue::Config::new(16, 4).singly();
    let (mut puts, mut gets) = support::join(
        queue::Sender::open(one, raw).unwrap(),
        typed::Receiver::<F, Quote>::open(two, config).unwrap(),
    );
    puts.put(&[0; 16], patience()).unwrap();
    let got = gets.get(patience());
    assert!(matches!(got, Err(Error::OtherLayout { theirs: 0, .. })), "{got:?}");
}

pub(crate) fn a_punctual_queue_waits_for_nobody<F: Fabric>(one: &F, two: &F) {
    let config = queue::Config::new(8, 1024).batch(1000, Duration::from_micros(50));
    let (sender, mut receiver) = support::queue(one, two, config);
    let sender = sender.into_punctual().unwrap();
    for nth in 0..20_u64 {
        // Nobody publishes, and the batch is never full.
        sender.put(&nth.to_le_bytes(), patience()).unwrap();
        let mut into = [0; 8];
        receiver.get(&mut into, patience()).unwrap();
        assert_eq!(into, nth.to_le_bytes());
    }
}

pub(crate) fn a_stream_carries_bytes<F: Fabric>(one: &F, two: &F) {
    for (wait, ring) in WAITS.into_iter().zip([4096, 65_536, 512]) {
        let (mut here, there) = support::both(one, two, stream::Config::new(ring).wait(wait));
        let all = bytes(9, 100_000);
        thread::scope(|scope| {
            // The other side echoes.
            scope.spawn(move || {
                let (mut reader, mut writer) = there.into_split();
                std::io::copy(&mut reader, &mut writer).unwrap();
                writer.finish().unwrap();
                writer.drain(patience()).unwrap();
            });
            for message in all.chunks(300).take(300) {
                here.write_all(message).unwrap();
                let mut back = vec![0; message.len()];
                here.read_exact(&mut back).unwrap();
                assert_eq!(back, message);
            }
            let (mut reader, mut writer) = here.into_split();
            let sent = &all;
            scope.spawn(move || {
                writer.write_all(sent).unwrap();
                writer.finish().unwrap();
                writer.drain(patience()).unwrap();
            });
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            assert!(got == all);
        });
    }
}

pub(crate) fn calls_are_answered<F: Fabric>(one: &F, two: &F) {
    for wait in WAITS {
        let config = rpc::Config::new(1000, 1000).wait(wait);
        let (mut client, mut server) = support::rpc(one, two, config);
        thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..500 {
                    let reverse = |request: &[u8], reply: &mut Vec<u8>| {
                        reply.extend(request.iter().rev());
                    };
                    server.serve_one(patience(), reverse).unwrap();
                }
            });
            for nth in 0..500 {
                let request = bytes(nth, nth as usize * 2);
                let mut reply = client.call(&request, patience()).unwrap();
                reply.reverse();
                assert_eq!(reply, request);
            }
        });
    }
}

/// A call that was given up does not get into the way of the next one.
pub(crate) fn a_late_reply_is_dropped<F: Fabric>(one: &F, two: &F) {
    let (mut client, mut server) = support::rpc(one, two, rpc::Config::new(8, 8));
    let early = client.call(b"first", Some(Instant::now()));
    assert!(matches!(early, Err(Error::TimedOut)), "{early:?}");
    let again = client.call(b"second", Some(Instant::now()));
    assert!(matches!(again, Err(Error::TimedOut)), "{again:?}");
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..2 {
                let echo = |request: &[u8], reply: &mut Vec<u8>| reply.extend(request);
                server.serve_one(patience(), echo).unwrap();
            }
        });
        assert_eq!(client.call(b"third", patience()).unwrap(), b"third");
    });
}

pub(crate) fn messages_arrive_one_by_one<F: Fabric>(one: &F, two: &F) {
    for wait in WAITS {
        let (mut sender, mut receiver) =
            support::message(one, two, message::Config::new(20_000).wait(wait));
        thread::scope(|scope| {
            scope.spawn(move || {
                for nth in 0..200 {
                    sender.send(&bytes(nth, nth as usize * 100), patience()).unwrap();
                }
                // The last one was taken when another would have room.
                let last = sender.send(&[], patience());
                assert!(last.is_ok(), "{last:?}");
            });
            for nth in 0..200 {
                let message = receiver.receive(patience()).unwrap();
                assert_eq!(message.to_vec().unwrap(), bytes(nth, nth as usize * 100));
            }
            assert!(receiver.receive(patience()).unwrap().is_empty());
        });
    }
}

pub(crate) fn a_header_comes_before_its_body<F: Fabric>(one: &F, two: &F) {
    let config = multipart::Config::DEFAULT.ring(8192);
    let (mut sender, mut receiver) = support::multipart(one, two, config);
    let body = bytes(4, 100_000);
    thread::scope(|scope| {
        let parts = [&body[..], b"end"];
        // Longer than the ring: its end cannot be there before its start is taken out.
        let sending =
            scope.spawn(move || sender.send(b"meta", &parts, patience()).map(|()| sender));
        let mut message = receiver.next(patience()).unwrap();
        assert_eq!((message.meta(), message.lengths()), (&b"meta"[..], &[100_000, 3][..]));
        assert!(!sending.is_finished());
        assert!(message.parts(patience()).unwrap() == parts);
        let mut sender = sending.join().unwrap().unwrap();
        sender.send(b"", &[], patience()).unwrap();
        message = receiver.next(patience()).unwrap();
        assert!(message.meta().is_empty() && message.parts(patience()).unwrap().is_empty());
        drop(sender);
        let after = receiver.next(patience()).map(drop);
        assert!(matches!(after, Err(Error::Closed)), "{after:?}");
    });
}

pub(crate) fn a_message_that_is_given_up_is_cut<F: Fabric>(one: &F, two: &F) {
    let config = multipart::Config::DEFAULT.ring(8192);
    let (mut sender, mut receiver) = support::multipart(one, two, config);
    let soon = Some(Instant::now() + Duration::from_millis(20));
    let sent = sender.send(b"", &[&[1; 10_000]], soon);
    assert!(matches!(sent, Err(Error::TimedOut)), "{sent:?}");
    let again = sender.send(b"", &[], patience());
    assert!(matches!(again, Err(Error::Cut)), "{again:?}");
    drop(sender);
    let message = receiver.next(patience()).unwrap();
    let parts = message.parts(patience());
    assert!(matches!(parts, Err(Error::Cut)), "{parts:?}");
}

pub(crate) fn publications_reach_all<F: Fabric>(one: &F, two: &F) {
    let config = publish::Config::new(64, 256);
    let (mut publisher, first) = support::publish(one, two, config);
    let second = publish::Subscriber::open(two, config).unwrap();
    publisher.add(&second.cookie()).unwrap();
    let second = second.connect(&publisher.cookie()).unwrap();
    assert_eq!(publisher.subscribers(), 2);
    let is_listening = AtomicUsize::new(2);
    thread::scope(|scope| {
        for mut subscriber in [first, second] {
            let is_listening = &is_listening;
            scope.spawn(move || {
                let mut next = 0;
                while next < 1000 {
                    let publication = subscriber.next(patience()).unwrap();
                    assert_eq!(publication.number, next + publication.missed);
                    assert_eq!(publication.bytes, bytes(publication.number, 50));
                    next = publication.number + 1;
                }
                is_listening.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let mut sent = 0;
        for nth in 0..1000 {
            sent += publisher.publish(&bytes(nth, 50)).unwrap().sent;
        }
        assert!(sent > 0);
        // Until the last one has got there, whatever was skipped.
        let listeners = &is_listening;
        for nth in 1000.. {
            if listeners.load(Ordering::SeqCst) == 0 {
                break;
            }
            publisher.publish(&bytes(nth, 50)).unwrap();
            thread::yield_now();
        }
    });
}

pub(crate) fn a_deadline_ends_every_wait<F: Fabric>(one: &F, two: &F) {
    for wait in WAITS {
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        let (mut sender, mut receiver) =
            support::queue(one, two, queue::Config::new(8, 1).wait(wait));
        let (_caller, mut server) = support::rpc(one, two, rpc::Config::new(8, 8).wait(wait));
        let (_writer, mut reader) = support::stream(one, two, stream::Config::new(64).wait(wait));
        let (_publisher, mut subscriber) =
            support::publish(one, two, publish::Config::new(8, 2).wait(wait));
        let ends = [
            receiver.get(&mut [0; 8], soon()),
            server.next(soon()).map(drop),
            reader.read_some(&mut [0; 8], soon()).map(drop),
            subscriber.next(soon()).map(drop),
            sender.put(&[1; 8], soon()).and_then(|()| sender.put(&[1; 8], soon())),
        ];
        for end in ends {
            assert!(matches!(end, Err(Error::TimedOut)), "{end:?}");
        }
    }
}

/// Anyone who sleeps when the other node ends is woken and told.
pub(crate) fn the_end_of_a_node_is_told<F: Fabric>(one: &F, two: &F, end: impl FnOnce() + Send) {
    let (_sender, mut elements) = support::queue(two, one, queue::Config::new(8, 4));
    let (mut full, _receiver) = support::queue(one, two, queue::Config::new(8, 1));
    let (_writer, mut reader) = support::stream(two, one, stream::Config::DEFAULT);
    let (mut client, _server) = support::rpc(one, two, rpc::Config::new(8, 8));
    let (_other, mut server) = support::rpc(two, one, rpc::Config::new(8, 8));
    let (_parts, mut multipart) = support::multipart(two, one, multipart::Config::DEFAULT);
    let (_message, mut message) = support::message(two, one, message::Config::new(8));
    let (publisher, mut subscriber) = support::publish(two, one, publish::Config::new(8, 2));
    thread::scope(|scope| {
        let waiting = [
            scope.spawn(move || elements.get(&mut [0; 8], patience())),
            scope.spawn(move || {
                full.put(&[1; 8], patience())?;
                full.put(&[1; 8], patience())
            }),
            scope.spawn(move || reader.read_some(&mut [0; 8], patience()).map(drop)),
            scope.spawn(move || client.call(b"", patience()).map(drop)),
            scope.spawn(move || server.next(patience()).map(drop)),
            scope.spawn(move || multipart.next(patience()).map(drop)),
            scope.spawn(move || message.receive(patience()).map(drop)),
            scope.spawn(move || subscriber.next(patience()).map(drop)),
        ];
        // Some of them sleep by now, some do not yet: both have to be told.
        thread::sleep(Duration::from_millis(20));
        end();
        for (nth, waiting) in waiting.into_iter().enumerate() {
            let told = waiting.join().unwrap();
            assert!(matches!(&told, Err(why) if why.is_gone()), "{nth}: {told:?}");
        }
    });
    std::mem::forget(publisher);
}
