//! Random sequences of what can be done with sockets for messages, against a queue of them.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::Shutdown;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
#[cfg(feature = "clan")]
use sockets_compat::{ClanHost, ClanNetwork, ClanOptions, ClanSeqPacket, Name};
use sockets_compat::{Messages, SeqPacket};
#[cfg(feature = "stp")]
use sockets_compat::{StpListener, StpSeqPacket};

use crate::support::{TOO_LONG, until, within};

/// The limit at the beginning.
const LIMIT: usize = 2000;

/// Sets the longest message that a socket takes, and says whether that can be done later than
/// when the two meet.
type Limits<F> = fn(&SeqPacket<F>, usize) -> bool;

/// What is done, by the side that it is done at.
#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Receive,
    Peek,
    ReceiveIntoTooLittle,
    Limit(usize),
    Finish,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let len = || prop_oneof![1 => Just(0), 4 => 1_usize..100, 3 => 1_usize..4000];
    let step = prop_oneof![
        8 => len().prop_map(Step::Send),
        6 => Just(Step::Receive),
        2 => Just(Step::Peek),
        2 => Just(Step::ReceiveIntoTooLittle),
        2 => (1_usize..4000).prop_map(Step::Limit),
        1 => Just(Step::Finish),
    ];
    (0_usize..2, step)
}

/// One direction, as it must be.
struct Direction {
    messages: VecDeque<Vec<u8>>,
    limit: usize,
    has_ended: bool,
    sent: u8,
}

impl Direction {
    fn new() -> Self {
        Self { messages: VecDeque::new(), limit: LIMIT, has_ended: false, sent: 0 }
    }

    fn send(&mut self, from: &SeqPacket<impl Messages>, len: usize) {
        self.sent = self.sent.wrapping_add(1);
        let message: Vec<u8> = (0..len).map(|at| self.sent.wrapping_add(at as u8)).collect();
        match from.send(&message) {
            Ok(sent) => {
                assert!(!self.has_ended && len <= self.limit, "{len} of {}", self.limit);
                assert_eq!(sent, len);
                self.messages.push_back(message);
            }
            Err(error) if self.has_ended => assert_eq!(error.kind(), ErrorKind::BrokenPipe),
            Err(error) => {
                assert_eq!(error.raw_os_error(), TOO_LONG, "{error}");
                assert!(len > self.limit, "{len} of {}", self.limit);
            }
        }
    }

    fn receive(&mut self, at: &SeqPacket<impl Messages>) {
        let Some(message) = self.messages.pop_front() else { return self.find_nothing(at) };
        assert_eq!(at.recv_message().unwrap().unwrap(), message);
    }

    fn peek(&self, at: &SeqPacket<impl Messages>) {
        let Some(message) = self.messages.front() else { return };
        let mut bytes = vec![0; message.len() + 5];
        assert_eq!(at.peek(&mut bytes).unwrap(), message.len());
        assert_eq!(bytes[..message.len()], message[..]);
    }

    fn receive_into_too_little(&self, at: &SeqPacket<impl Messages>) {
        let Some(message) = self.messages.front().filter(|message| !message.is_empty()) else {
            return;
        };
        let error = at.recv(&mut vec![0; message.len() - 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), TOO_LONG, "{error}");
    }

    /// Nothing is there: no message, or the end.
    fn find_nothing(&self, at: &SeqPacket<impl Messages>) {
        at.set_nonblocking(true).unwrap();
        until("the end comes, or nothing", || match at.recv_message() {
            Ok(message) => {
                assert!(message.is_none() && self.has_ended, "{message:?}");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                !self.has_ended
            }
        });
        at.set_nonblocking(false).unwrap();
    }
}

fn play<F: Messages>(sockets: &[SeqPacket<F>; 2], limit: Limits<F>, steps: &[(usize, Step)]) {
    // Way 0 goes from socket 0 to socket 1.
    let mut ways = [Direction::new(), Direction::new()];
    sockets.iter().for_each(|socket| _ = limit(socket, LIMIT));
    for (at, step) in steps {
        let (socket, comes) = (&sockets[*at], 1 - *at);
        match step {
            Step::Send(len) => ways[*at].send(socket, *len),
            Step::Receive => ways[comes].receive(socket),
            Step::Peek => ways[comes].peek(socket),
            Step::ReceiveIntoTooLittle => ways[comes].receive_into_too_little(socket),
            Step::Limit(most) => {
                if limit(socket, *most) {
                    ways[comes].limit = *most;
                }
            }
            Step::Finish => {
                socket.shutdown(Shutdown::Write).unwrap();
                ways[*at].has_ended = true;
            }
        }
    }
    for at in [0, 1] {
        sockets[at].shutdown(Shutdown::Write).unwrap();
        ways[at].has_ended = true;
        while !ways[at].messages.is_empty() {
            ways[at].receive(&sockets[1 - at]);
        }
        ways[at].find_nothing(&sockets[1 - at]);
    }
}

/// Whatever is done, messages stay whole and in order.
fn stay_whole_and_in_order<F: Messages>(
    cases: u32,
    limit: Limits<F>,
    pair: impl Fn() -> [SeqPacket<F>; 2],
) {
    let steps = proptest::collection::vec(step(), 1..60);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&steps, |steps| {
        play(&pair(), limit, &steps);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

#[cfg(feature = "stp")]
#[test]
fn messages_of_stp_stay_whole_and_in_order() {
    within(|| {
        let listener = StpListener::bind("stp://127.0.0.1:7/udp/0").unwrap();
        let there = listener.local_addr().unwrap();
        let set_limit = |socket: &StpSeqPacket, most| {
            socket.set_message_limit(most);
            true
        };
        stay_whole_and_in_order(40, set_limit, || {
            let client = StpSeqPacket::connect(&there).unwrap();
            [client, listener.accept().unwrap().0]
        });
    });
}

/// How long messages may be is said when the two meet.
#[cfg(feature = "clan")]
fn limit_stays(_: &ClanSeqPacket, _: usize) -> bool {
    false
}

#[cfg(feature = "clan")]
fn limited() -> ClanOptions {
    let mut options = ClanOptions::default();
    options.message = LIMIT;
    // Nobody reads while one writes: there is room for all that a run may send.
    options.ring = 256 << 10;
    options
}

#[cfg(feature = "clan")]
#[test]
fn messages_within_a_host_stay_whole_and_in_order() {
    within(|| {
        let folder = crate::support::Folder::new("messages");
        let host = ClanHost::open(folder.path(), limited()).unwrap();
        let name = Name::new("model").unwrap();
        let listener = host.listen_messages(&name).unwrap();
        stay_whole_and_in_order(60, limit_stays, || {
            let client = host.connect_messages(&name).unwrap();
            [client, listener.accept().unwrap().0]
        });
    });
}

#[cfg(feature = "clan")]
#[test]
fn messages_between_hosts_stay_whole_and_in_order() {
    within(|| {
        let network = || ClanNetwork::bind_udp("127.0.0.1:0".parse().unwrap(), limited()).unwrap();
        let (client, server) = (network(), network());
        let listener = server.listen_messages(0).unwrap();
        let there = listener.local_addr().unwrap();
        stay_whole_and_in_order(40, limit_stays, || {
            let client = client.connect_messages(&there).unwrap();
            [client, listener.accept().unwrap().0]
        });
    });
}
