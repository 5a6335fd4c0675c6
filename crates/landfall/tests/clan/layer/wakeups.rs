//! No wake-up of the programming layer is lost: tasks run only when they were woken,
//! words arrive in any order of the two directions, one node may die at any step, and
//! in the end everybody has what it waited for, or knows why not.

use std::cell::Cell;

use super::lab::Lab;
use super::support;
use super::support::{Running, bytes, cases, run, run_until, yield_once};
use landfall::clan::Error;
use landfall::clan::layer::{message, multipart, publish, queue, rpc, stream};
use proptest::prelude::*;

/// The two nodes, and which of them sends; the second one may die.
struct Scene {
    here: Lab,
    there: Lab,
    is_turned: bool,
    death: u64,
}

fn scene() -> impl Strategy<Value = Scene> {
    let death = prop_oneof![Just(u64::MAX), 0_u64..300];
    (1_usize..60, any::<bool>(), death).prop_map(|(way, is_turned, death)| {
        let (here, there) = Lab::pair(way);
        Scene { here, there, is_turned, death }
    })
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "turned: {}, death after {}", self.is_turned, self.death)
    }
}

impl Scene {
    fn sender(&self) -> &Lab {
        if self.is_turned { &self.there } else { &self.here }
    }

    fn receiver(&self) -> &Lab {
        if self.is_turned { &self.here } else { &self.there }
    }

    /// An end that death may bring about, and nothing else does.
    fn is_death(&self, error: &Error) -> bool {
        self.death != u64::MAX && matches!(error, Error::PeerLost | Error::NodeGone)
    }

    fn run(&self, seed: u64, tasks: Vec<Running<'_>>) {
        run_until([&self.here, &self.there], seed, self.death, tasks);
    }
}

/// Ends a task when its node or its peer has died; any other error is a mistake.
macro_rules! unless_dead {
    ($scene:expr, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => {
                assert!($scene.is_death(&error), "{error}");
                return;
            }
        }
    };
}

/// What can be refused because the way is full, again and again.
async fn until_taken(mut call: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    loop {
        match call() {
            Err(Error::Busy) => yield_once().await,
            other => return other,
        }
    }
}

async fn send_elements(scene: &Scene, mut sender: queue::Sender<Lab>, count: u64) {
    for nth in 0..count {
        unless_dead!(scene, sender.put_async(&bytes(nth, 20)).await);
    }
    unless_dead!(scene, until_taken(|| sender.finish()).await);
}

async fn receive_elements(scene: &Scene, mut receiver: queue::Receiver<Lab>, count: u64) {
    let mut into = [0; 20];
    for nth in 0..count {
        unless_dead!(scene, receiver.get_async(&mut into).await);
        assert_eq!(into[..], bytes(nth, 20));
    }
    let after = receiver.get_async(&mut into).await.unwrap_err();
    assert!(matches!(after, Error::Closed) || scene.is_death(&after), "{after}");
}

async fn write_bytes(scene: &Scene, mut writer: stream::Writer<Lab>, all: &[u8]) {
    let mut rest = all;
    while !rest.is_empty() {
        let len = rest.len().min(1 + rest.len() % 97);
        let count = unless_dead!(scene, writer.write_some_async(&rest[..len]).await);
        rest = &rest[count..];
    }
    unless_dead!(scene, writer.finish());
}

async fn read_bytes(scene: &Scene, mut reader: stream::Reader<Lab>, all: &[u8]) {
    let mut got = 0;
    while got < all.len() {
        let mut into = [0; 61];
        let count = unless_dead!(scene, reader.read_some_async(&mut into).await);
        assert_eq!(into[..count], all[got..got + count]);
        got += count;
    }
}

type Parts = (Vec<u8>, Vec<Vec<u8>>);

async fn send_parts(scene: &Scene, mut sender: multipart::Sender<Lab>, messages: &[Parts]) {
    for (meta, parts) in messages {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        unless_dead!(scene, sender.send_async(meta, &parts).await);
    }
    unless_dead!(scene, until_taken(|| sender.finish()).await);
}

/// How much of a message somebody looks at.
#[derive(Clone, Copy, Debug)]
enum Interest {
    Header,
    Start,
    All,
}

async fn receive_parts(
    scene: &Scene,
    mut receiver: multipart::Receiver<Lab>,
    messages: &[Parts],
    interest: Interest,
) {
    for (meta, parts) in messages {
        let mut message = unless_dead!(scene, receiver.next_async().await);
        assert_eq!(message.meta(), meta);
        let lengths: Vec<usize> = message.lengths().iter().map(|len| *len as usize).collect();
        assert_eq!(lengths, parts.iter().map(Vec::len).collect::<Vec<_>>());
        match interest {
            Interest::Header => {}
            Interest::Start => {
                let first = parts.first().map_or(&[][..], Vec::as_slice);
                let mut got = Vec::new();
                while got.len() < first.len() {
                    let mut into = [0; 13];
                    let count = unless_dead!(scene, message.read_async(&mut into).await);
                    got.extend_from_slice(&into[..count]);
                }
                assert_eq!(got, first);
                assert_eq!(unless_dead!(scene, message.read_async(&mut [0]).await), 0);
            }
            Interest::All => {
                assert_eq!(unless_dead!(scene, message.parts_async().await), *parts);
            }
        }
    }
    let after = receiver.next_async().await.map(drop).unwrap_err();
    assert!(matches!(after, Error::Closed) || scene.is_death(&after), "{after}");
}

async fn call(scene: &Scene, mut client: rpc::Client<Lab>, lens: &[usize]) {
    for (nth, len) in (0..).zip(lens) {
        let mut expected = bytes(nth, *len);
        let reply = unless_dead!(scene, client.call_async(&expected).await);
        expected.push(1);
        assert_eq!(reply, expected);
    }
    // Anyone who serves waits for more until its peer is gone.
    scene.sender().kill();
}

async fn serve(mut server: rpc::Server<Lab>) {
    loop {
        match server.next_async().await {
            Ok(request) => {
                let mut reply = request.to_vec().unwrap();
                reply.push(1);
                request.reply(&reply).unwrap();
            }
            Err(Error::PeerLost | Error::NodeGone) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn of_a_queue(scene in scene(), seed: u64, capacity in 1_u32..9, batch in 1_u32..5) {
        let config = queue::Config::new(20, capacity).batch(batch, std::time::Duration::MAX);
        let (sender, receiver) = support::queue(scene.sender(), scene.receiver(), config);
        scene.run(seed, vec![
            Box::pin(send_elements(&scene, sender, 40)),
            Box::pin(receive_elements(&scene, receiver, 40)),
        ]);
    }

    #[test]
    fn of_a_stream(scene in scene(), seed: u64, words in 1_u64..20) {
        let config = stream::Config::new(words * 8);
        let (writer, reader) = support::stream(scene.sender(), scene.receiver(), config);
        let all = bytes(3, 3000);
        scene.run(seed, vec![
            Box::pin(write_bytes(&scene, writer, &all)),
            Box::pin(read_bytes(&scene, reader, &all)),
        ]);
    }

    #[test]
    fn of_multi_part_messages(
        scene in scene(),
        seed: u64,
        words in 8_u64..60,
        interest in prop_oneof![Just(Interest::Header), Just(Interest::Start), Just(Interest::All)],
        shapes in proptest::collection::vec(
            (0_usize..20, proptest::collection::vec(0_usize..200, 0..4)), 1..8),
    ) {
        let config = multipart::Config::DEFAULT.ring(words * 8).limits(4, 20, 1000);
        let (sender, receiver) = support::multipart(scene.sender(), scene.receiver(), config);
        let shapes = (1..).zip(shapes);
        let messages: Vec<Parts> = shapes.map(|(nth, (meta, parts))| {
            (bytes(nth, meta), parts.iter().map(|len| bytes(nth * 7, *len)).collect())
        }).collect();
        scene.run(seed, vec![
            Box::pin(send_parts(&scene, sender, &messages)),
            Box::pin(receive_parts(&scene, receiver, &messages, interest)),
        ]);
    }

    #[test]
    fn of_messages(scene in scene(), seed: u64, lens in proptest::collection::vec(0_usize..100, 1..12)) {
        let config = message::Config::new(100);
        let (mut sender, mut receiver) = support::message(scene.sender(), scene.receiver(), config);
        scene.run(seed, vec![
            Box::pin(async {
                for (nth, len) in (0..).zip(&lens) {
                    unless_dead!(scene, sender.send_async(&bytes(nth, *len)).await);
                }
            }),
            Box::pin(async {
                for (nth, len) in (0..).zip(&lens) {
                    let message = unless_dead!(scene, receiver.receive_async().await);
                    assert_eq!(message.to_vec().unwrap(), bytes(nth, *len));
                }
            }),
        ]);
    }

    #[test]
    fn of_calls(mut scene in scene(), seed: u64, lens in proptest::collection::vec(0_usize..100, 1..12)) {
        let config = rpc::Config::new(100, 101);
        let (client, server) = support::rpc(scene.sender(), scene.receiver(), config);
        scene.death = scene.death.min(1 << 40);
        run_until([&scene.here, &scene.there], seed, scene.death, vec![
            Box::pin(call(&scene, client, &lens)),
            Box::pin(serve(server)),
        ]);
    }

    #[test]
    fn of_publications(seed: u64, way in 12_usize..60, slots in 1_u32..6, count in 1_u64..60) {
        let (here, there) = Lab::pair(way);
        let config = publish::Config::new(40, slots);
        let (mut publisher, mut subscriber) = support::publish(&here, &there, config);
        // What the way is too full for is not sent: so there is always another one.
        let is_enough = Cell::new(false);
        run([&here, &there], seed, vec![
            Box::pin(async {
                for nth in 0.. {
                    if is_enough.get() {
                        return;
                    }
                    publisher.publish(&bytes(nth, nth as usize % 41)).unwrap();
                    yield_once().await;
                }
            }),
            Box::pin(async {
                let mut next = 0;
                while next < count {
                    let publication = subscriber.next_async().await.unwrap();
                    let number = publication.number;
                    assert_eq!(number, next + publication.missed);
                    assert_eq!(publication.bytes, bytes(number, number as usize % 41));
                    next = number + 1;
                }
                is_enough.set(true);
            }),
        ]);
    }
}
