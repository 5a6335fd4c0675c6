//! A peer that scribbles over shared memory spoils only its own data: whatever it
//! writes, wherever and whenever, nothing here panics, hangs or grows, each error says
//! that it was the peer, and a connection beside it goes on.

use std::time::{Duration, Instant};

use super::support;
use super::support::{bytes, cases, is_blamed_on_the_peer, scribble};
use landfall::clan::layer::{Half, Wait, message, multipart, publish, queue, rpc, stream};
use landfall::clan::{Cookie, Error, Threads};
use proptest::prelude::*;

/// Where a peer writes what: offsets that matter more often than others.
fn scribbles(len: u64) -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    let words = len / 8;
    let offset = prop_oneof![3 => 0_u64..4, 1 => 16_u64..19, 1 => 0..words];
    let word = prop_oneof![
        4 => 0_u64..20,
        1 => (0_u64..70).prop_map(|near| u64::MAX - near),
        1 => (0_u32..64).prop_map(|bit| 1 << bit),
        1 => (0_u64..9, 0_u64..12).prop_map(|(call, len)| call << 32 | len),
        1 => (0_u64..5, 0_u64..30).prop_map(|(parts, meta)| parts | 0x4d50 << 16 | meta << 32),
        1 => any::<u64>(),
    ];
    let one = (offset, word, 0_u8..8);
    let checked = one.prop_map(move |(offset, word, op)| (offset.min(words - 1) * 8, word, op));
    proptest::collection::vec(checked, 1..60)
}

/// Both nodes, and memory of ours that the peer has the cookie of.
struct Victim {
    here: Threads,
    there: Threads,
}

impl Victim {
    fn new() -> Self {
        let (here, there) = Threads::pair().unwrap();
        Self { here, there }
    }

    /// The cookie of our half, and what it becomes beside an honest half.
    fn expose<A, B>(&self, ours: Half<Threads, A>, theirs: Half<Threads, B>) -> (A, B, Cookie)
    where
        A: landfall::clan::layer::Connect<Threads>,
        B: landfall::clan::layer::Connect<Threads>,
    {
        let cookie = ours.cookie();
        let (ours, theirs) = support::join(ours, theirs);
        (ours, theirs, cookie)
    }

    fn scribble(&self, cookie: &Cookie, offset: u64, word: u64) {
        scribble(&self.there, cookie, offset, word);
    }
}

/// Right, or the peer's fault.
fn judge<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(is_blamed_on_the_peer(&error), "{error}");
            None
        }
    }
}

/// A moment that is over: waiting looks, sleeps not at all, and says so.
fn now() -> Option<Instant> {
    Some(Instant::now())
}

/// A connection between the same nodes that nobody scribbles on.
fn bystander_works(victim: &Victim) {
    let config = queue::Config::new(8, 4).singly();
    let (mut sender, mut receiver) = support::queue(&victim.there, &victim.here, config);
    sender.put(&[7; 8], now()).unwrap();
    let mut into = [0; 8];
    receiver.get(&mut into, now()).unwrap();
    assert_eq!(into, [7; 8]);
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn on_the_receiver_of_a_queue(writes in scribbles(128 + 8 * 16)) {
        let victim = Victim::new();
        let config = queue::Config::new(13, 8).wait(Wait::Block);
        let (mut ours, mut theirs, cookie) = victim.expose(
            queue::Receiver::open(&victim.here, config).unwrap(),
            queue::Sender::open(&victim.there, config).unwrap(),
        );
        let mut got = 0;
        for (offset, word, op) in writes {
            victim.scribble(&cookie, offset, word);
            let mut into = [0; 13 * 40];
            got += match op {
                0 => judge(ours.try_get(&mut into[..13])).map_or(0, usize::from),
                1 => judge(ours.get(&mut into[..13], now())).map_or(0, |()| 1),
                2 => judge(ours.try_get_many(&mut into)).inspect(|got| assert!(*got <= 40)).unwrap_or(0),
                3 => judge(ours.available()).map_or(0, |there| { assert!(there <= 8); 0 }),
                4 => judge(ours.peek(3, &mut into[..10])).map_or(0, |_| 0),
                5 => judge(ours.skip()).map_or(0, usize::from),
                _ => { let _ = theirs.try_put(&[1; 13]); let _ = theirs.publish(); 0 }
            };
        }
        // A ring of eight was filled anew at most once per call.
        prop_assert!(got <= 60 * 48);
        bystander_works(&victim);
    }

    #[test]
    fn on_the_sender_of_a_queue(writes in scribbles(64)) {
        let victim = Victim::new();
        let config = queue::Config::new(16, 4).wait(Wait::Block);
        let (mut ours, theirs, cookie) = victim.expose(
            queue::Sender::open(&victim.here, config).unwrap(),
            queue::Receiver::open(&victim.there, config).unwrap(),
        );
        for (offset, word, op) in writes {
            victim.scribble(&cookie, offset, word);
            match op {
                0 | 1 => _ = judge(ours.try_put(&[3; 16])),
                2 | 3 => _ = judge(ours.put(&[3; 16], now())),
                4 => _ = judge(ours.try_put_many(&[3; 16 * 7])),
                5 => _ = judge(ours.drain(now())),
                _ => _ = judge(ours.publish()),
            }
        }
        drop(theirs);
        bystander_works(&victim);
    }

    #[test]
    fn on_either_end_of_a_stream(
        to_reader in scribbles(128 + 64), to_writer in scribbles(64),
    ) {
        let victim = Victim::new();
        let config = stream::Config::new(64).wait(Wait::Block);
        let (mut reader, _theirs, reader_cookie) = victim.expose(
            stream::Reader::open(&victim.here, config).unwrap(),
            stream::Writer::open(&victim.there, config).unwrap(),
        );
        let (mut writer, _theirs, writer_cookie) = victim.expose(
            stream::Writer::open(&victim.here, config).unwrap(),
            stream::Reader::open(&victim.there, config).unwrap(),
        );
        for (offset, word, op) in to_reader {
            victim.scribble(&reader_cookie, offset, word);
            let mut into = [0; 100];
            let got = match op {
                0..4 => judge(reader.try_read(&mut into)).flatten(),
                4..7 => judge(reader.read_some(&mut into, now())),
                _ => judge(reader.available()).map(|there| there as usize),
            };
            prop_assert!(got.unwrap_or(0) <= 64);
        }
        for (offset, word, op) in to_writer {
            victim.scribble(&writer_cookie, offset, word);
            let put = match op {
                0..4 => judge(writer.try_write(&[1; 100])).flatten(),
                4..7 => judge(writer.write_some(&[1; 100], now())),
                _ => judge(writer.drain(now())).map(|()| 0),
            };
            prop_assert!(put.unwrap_or(0) <= 64);
        }
        bystander_works(&victim);
    }

    #[test]
    fn on_the_receiver_of_multi_part_messages(writes in scribbles(128 + 256)) {
        let victim = Victim::new();
        let config = multipart::Config::DEFAULT.ring(256).limits(4, 64, 400).wait(Wait::Block);
        let (mut ours, mut theirs, cookie) = victim.expose(
            multipart::Receiver::open(&victim.here, config).unwrap(),
            multipart::Sender::open(&victim.there, config).unwrap(),
        );
        for (offset, word, op) in writes {
            victim.scribble(&cookie, offset, word);
            match op {
                0 => _ = theirs.send(&bytes(1, 9), &[&bytes(2, 30), &[]], now()),
                1 => _ = judge(ours.try_next().map(drop)),
                2..5 => {
                    let Some(message) = judge(ours.next(now())) else { continue };
                    prop_assert!(message.meta().len() <= 64 && message.lengths().len() <= 4);
                    let parts = judge(message.parts(now())).unwrap_or_default();
                    prop_assert!(parts.iter().map(Vec::len).sum::<usize>() <= 400);
                }
                _ => {
                    let Some(mut message) = judge(ours.try_next()).flatten() else { continue };
                    _ = judge(message.wait_for_body(now()));
                    _ = judge(message.try_read(&mut [0; 70]));
                    _ = judge(message.next_part(now()));
                }
            }
        }
        bystander_works(&victim);
    }

    #[test]
    fn on_either_end_of_messages_and_calls(writes in scribbles(64 + 16)) {
        let victim = Victim::new();
        let messages = message::Config::new(16).wait(Wait::Block);
        let calls = rpc::Config::new(16, 16).wait(Wait::Block);
        let (mut receiver, _one, to_receiver) = victim.expose(
            message::Receiver::open(&victim.here, messages).unwrap(),
            message::Sender::open(&victim.there, messages).unwrap(),
        );
        let (mut sender, _two, to_sender) = victim.expose(
            message::Sender::open(&victim.here, messages).unwrap(),
            message::Receiver::open(&victim.there, messages).unwrap(),
        );
        let (mut server, _three, to_server) = victim.expose(
            rpc::Server::open(&victim.here, calls).unwrap(),
            rpc::Client::open(&victim.there, calls).unwrap(),
        );
        let (mut client, _four, to_client) = victim.expose(
            rpc::Client::open(&victim.here, calls).unwrap(),
            rpc::Server::open(&victim.there, calls).unwrap(),
        );
        for (offset, word, op) in writes {
            for cookie in [&to_receiver, &to_server, &to_client] {
                victim.scribble(cookie, offset, word);
            }
            victim.scribble(&to_sender, 0, word);
            if op < 4 {
                let message = judge(receiver.try_receive()).flatten();
                prop_assert!(message.is_none_or(|message| message.to_vec().unwrap().len() <= 16));
                let request = judge(server.try_next()).flatten();
                if let Some(request) = request {
                    prop_assert!(request.len() <= 16);
                    request.reply(b"yes").unwrap();
                }
            } else {
                _ = judge(receiver.receive(now()).map(drop));
                _ = judge(server.serve_one(now(), |request, reply| reply.extend(request)));
            }
            _ = judge(sender.send(&[5; 16], now()));
            prop_assert!(judge(client.call(&[5; 16], now())).unwrap_or_default().len() <= 16);
        }
        bystander_works(&victim);
    }

    #[test]
    fn on_a_subscriber(writes in scribbles(128 + 3 * 32)) {
        let victim = Victim::new();
        let config = publish::Config::new(16, 3).wait(Wait::Block);
        let mut publisher = publish::Publisher::open(&victim.there, config).unwrap();
        let subscriber = publish::Subscriber::open(&victim.here, config).unwrap();
        let cookie = subscriber.cookie();
        publisher.add(&cookie).unwrap();
        let mut subscriber = subscriber.connect(&publisher.cookie()).unwrap();
        for (offset, word, op) in writes {
            victim.scribble(&cookie, offset, word);
            match op {
                0 | 1 => _ = publisher.publish(&[9; 16]).unwrap(),
                2 => _ = judge(subscriber.skip_to_latest()),
                3 => _ = judge(subscriber.next(now())),
                _ => {
                    let publication = judge(subscriber.try_next()).flatten();
                    prop_assert!(publication.is_none_or(|publication| publication.bytes.len() <= 16));
                }
            }
        }
        bystander_works(&victim);
    }
}

/// A peer that writes at the very time, from another thread.
#[test]
fn while_it_happens() {
    let victim = Victim::new();
    let config = stream::Config::new(4096).wait(Wait::Block);
    let (mut ours, theirs, cookie) = victim.expose(
        stream::Reader::open(&victim.here, config).unwrap(),
        stream::Writer::open(&victim.there, config).unwrap(),
    );
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (victim, is_over) = (&victim, &is_over);
        scope.spawn(move || {
            for nth in 0_u64.. {
                victim.scribble(&cookie, nth % 3 * 8, nth.wrapping_mul(0x9e37_79b9) % 5000);
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..20_000 {
            let mut into = [0; 5000];
            let got =
                judge(ours.read_some(&mut into, Some(Instant::now() + Duration::from_micros(1))));
            assert!(got.unwrap_or(0) <= 4096);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(theirs);
    bystander_works(&victim);
}
