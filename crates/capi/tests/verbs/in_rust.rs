//! The server of `pairs.c`, in Rust.

use std::path::Path;
use std::time::{Duration, Instant};

use landfall::clan::Rights;
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::stp::{Memory, RemoteRights};
use landfall::verbs::{
    CompletionQueue, Operation, QueuePair, ReceiveRequest, SendRequest, Status, clan, stp,
};

use crate::languages::patience;
use crate::stp::{endpoint, tell};

/// How long a message is at most, and how many have room.
const PIECE: u64 = 300_000;
const ROOMS: u64 = 4;
const COUNT: u64 = 100;

/// Memory that messages come into, behind a piece for what is sent.
trait Room {
    type Part: Clone;

    fn piece(&self, nth: u64, len: u64) -> Self::Part;
    fn copy_in(&self, bytes: &[u8]);
    fn copy_out(&self, nth: u64, into: &mut [u8]);
}

macro_rules! room {
    ($region:ty, $part:ty) => {
        impl Room for $region {
            type Part = $part;

            fn piece(&self, nth: u64, len: u64) -> $part {
                self.part(nth * PIECE..nth * PIECE + len).unwrap()
            }

            fn copy_in(&self, bytes: &[u8]) {
                Self::copy_in(self, 0, bytes).unwrap();
            }

            fn copy_out(&self, nth: u64, into: &mut [u8]) {
                Self::copy_out(self, nth * PIECE, into).unwrap();
            }
        }
    };
}
room!(clan::Region<SharedNode>, clan::Part<SharedNode>);
room!(landfall::stp::Region, landfall::stp::Part);

pub(super) fn serve(carrier: &str, folder: &Path) {
    let shared = match carrier {
        "node" => over_node(folder),
        _ => over_stp(folder),
    };
    assert_eq!(shared[..8], (5 * COUNT).to_le_bytes());
    assert_eq!(shared[8..], [1, 2, 3, 4, 5, 6, 7, 8]);
}

fn over_node(folder: &Path) -> [u8; 16] {
    let node = SharedNode::open(SharedConfig::new(folder)).unwrap();
    let done = clan::CompletionQueue::new(64).unwrap();
    let options = clan::QueuePairOptions::default();
    let offer = node.offer("pairs").unwrap();
    let half = clan::QueuePair::open(&node, &done, &done, &options).unwrap();
    let pair = half.accept(offer.accept(patience()).unwrap()).unwrap();
    let room = clan::Region::new(&node, (1 + ROOMS) * PIECE, Rights::Write).unwrap();
    let shared = clan::Region::new(&node, 4096, Rights::ReadWrite).unwrap();
    let key = pair.share(&shared).unwrap().to_bytes();
    answer(pair, done, &room, &key);
    let mut words = [0; 16];
    shared.copy_out(0, &mut words).unwrap();
    words
}

fn over_stp(folder: &Path) -> [u8; 16] {
    let endpoint = endpoint("plain");
    let listener = endpoint.listen(7).unwrap();
    tell(&endpoint, &folder.join("address"));
    let connection = listener.accept_within(Duration::from_secs(60)).unwrap().expect("a client");
    let done = stp::CompletionQueue::new(endpoint.as_async(), 64).unwrap();
    let options = stp::QueuePairOptions::default();
    let mut pair = stp::QueuePair::new(connection.as_async(), &done, &done, &options).unwrap();
    let memory = |len: u64| endpoint.register(Memory::zeroed(len as usize)).unwrap();
    let (room, shared) = (memory((1 + ROOMS) * PIECE), memory(4096));
    let key = pair.share(&shared.whole(), RemoteRights::ALL).to_bytes();
    answer(pair, done, &room, &key);
    let mut words = [0; 16];
    shared.copy_out(0, &mut words).unwrap();
    words
}

/// Tells the key, and answers until the client ends the queue pair.
fn answer<R: Room>(
    mut pair: impl QueuePair<Part = R::Part>,
    mut done: impl CompletionQueue,
    room: &R,
    key: &[u8],
) {
    let post_room = |pair: &mut dyn QueuePair<Part = R::Part>, nth| {
        pair.post_receive(&ReceiveRequest { id: nth, into: &[room.piece(nth, PIECE)] }).unwrap();
    };
    (1..=ROOMS).for_each(|nth| post_room(&mut pair, nth));
    pair.post_inline(100, key, None).unwrap();
    let deadline = patience();
    loop {
        assert!(Some(Instant::now()) < deadline, "it is never over");
        let Some(came) = done.wait_for(Duration::from_secs(1)).unwrap() else { continue };
        match (came.status, came.operation) {
            (Status::Flushed | Status::Reset, _) => return,
            (Status::Success, Operation::Send) => {}
            (Status::Success, Operation::Receive) => {
                let mut bytes = vec![0; came.len as usize];
                room.copy_out(came.id, &mut bytes);
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                room.copy_in(&bytes);
                post_room(&mut pair, came.id);
                let from = [room.piece(0, came.len.into())];
                let immediate = Some(came.immediate.unwrap() + 1);
                pair.post_send(&SendRequest { immediate, ..SendRequest::new(100, &from) }).unwrap();
            }
            (other, _) => panic!("{other}"),
        }
    }
}
