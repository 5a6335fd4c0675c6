//! Words that arrive with messages: who may post them, and that they come.

use landfall_testkit::model::Faults;
use qpip::{Buffer, Config, Mapping, PostError, QueuePairId, SendWork, Service, TcpConfig};

use crate::two::{Two, address, noise, plain};

const MESSAGES: [Mapping; 2] = [Mapping::Segment, Mapping::Message];

fn asking() -> Config {
    let tcp = TcpConfig { immediates: true, ..plain().tcp };
    Config { tcp, ..plain() }
}

/// Posts a message of side 0 with a word.
fn post(two: &mut Two, pair: QueuePairId, len: usize, word: u32) -> Result<(), PostError> {
    let (_, buffer) = two.lend(0, noise(u64::from(word), len));
    post_to(two, pair, buffer, None, word)
}

fn post_to(
    two: &mut Two,
    pair: QueuePairId,
    buffer: Buffer,
    to: Option<std::net::SocketAddr>,
    word: u32,
) -> Result<(), PostError> {
    let immediate = Some(word);
    let work = SendWork { id: u64::from(word), from: &[buffer], to, is_signaled: true, immediate };
    let now = two.wire.now;
    two.adapter(0).post_send(now, pair, &work)
}

#[test]
fn a_word_comes_with_the_end_of_its_message() {
    for mapping in MESSAGES {
        for len in [1_usize, 1_000, 9_000] {
            let mut two = Two::new(&asking(), mapping, Faults::default(), 1);
            let pair = two.pairs[0];
            assert!(two.adapter(0).takes_immediates(pair), "{mapping:?}");
            // Two requests for a message, where it may be in several segments.
            let requests = if mapping == Mapping::Message { 2 } else { 1 };
            for _ in 0..2 * requests {
                two.receive(1, len.div_ceil(requests));
            }
            two.settle();
            post(&mut two, pair, len, 77).unwrap();
            two.send(0, &noise(2, len));
            two.until("both messages", |two| {
                two.done[1].iter().filter(|done| done.ends_message).count() == 2
            });
            let words = two.done[1].iter().map(|done| (done.ends_message, done.immediate));
            let words: Vec<_> = words.collect();
            let is_whole = len.div_ceil(requests) >= len;
            let mut expected = vec![(true, Some(77)), (true, None)];
            if requests == 2 && !is_whole {
                expected.insert(1, (false, None));
                expected.insert(0, (false, None));
            }
            assert_eq!(words, expected, "{mapping:?} {len}");
            assert!(two.done[0].iter().all(|done| done.immediate.is_none()), "sends have none");
            two.check_contract();
        }
    }
}

#[test]
fn a_word_is_refused_at_once_where_nobody_takes_it() {
    // Nobody asked.
    let mut two = Two::new(&plain(), Mapping::Message, Faults::default(), 1);
    let pair = two.pairs[0];
    assert!(!two.adapter(0).takes_immediates(pair));
    assert_eq!(post(&mut two, pair, 10, 1), Err(PostError::NoImmediates));
    // A byte stream has no messages.
    let mut two = Two::new(&asking(), Mapping::Stream, Faults::default(), 1);
    let pair = two.pairs[0];
    assert_eq!(post(&mut two, pair, 10, 1), Err(PostError::NoImmediates));
    // One side alone asked.
    let mut two = Two::new(&plain(), Mapping::Message, Faults::default(), 1);
    let pair = two.queue_pair(0, Service::Tcp(Mapping::Message));
    two.adapter(0).set_tcp(pair, asking().tcp).unwrap();
    assert_eq!(post(&mut two, pair, 10, 1), Err(PostError::NoImmediates), "not connected");
    two.offer(Mapping::Message);
    let now = two.wire.now;
    two.adapter(0).connect(now, pair, None, address(1, crate::two::PORT)).unwrap();
    two.settle();
    assert_eq!(post(&mut two, pair, 10, 1), Err(PostError::NoImmediates), "the other did not");
    // Datagrams have none.
    let pair = two.queue_pair(0, Service::Udp);
    two.adapter(0).bind(pair, address(0, 0)).unwrap();
    let (_, buffer) = two.lend(0, noise(1, 10));
    let refused = post_to(&mut two, pair, buffer, Some(address(1, 9)), 1);
    assert_eq!(refused, Err(PostError::NoImmediates));
}

#[test]
fn a_message_with_a_word_may_be_as_long_as_one_segment_leaves_room_for() {
    let mut two = Two::new(&asking(), Mapping::Segment, Faults::default(), 1);
    let pair = two.pairs[0];
    // The longest packet of IPv4, without the headers of IP and TCP and without the option.
    let longest = 65_535 - 20 - 20 - 8;
    two.receive(1, longest);
    two.settle();
    assert_eq!(post(&mut two, pair, longest + 1, 1), Err(PostError::TooLong));
    post(&mut two, pair, longest, 2).unwrap();
    two.until("the message", |two| !two.done[1].is_empty());
    assert_eq!((two.done[1][0].len as usize, two.done[1][0].immediate), (longest, Some(2)));
}

/// Shared room, a wire that loses, doubles and mixes up, and devices that cut and join.
#[test]
fn words_come_through_an_adapter_on_a_bad_wire() {
    for (seed, cutting) in [(1, 0), (2, 1_000_000), (3, 0), (4, 1_000_000)] {
        let faults = Faults {
            loss: 50_000,
            duplication: 50_000,
            reordering: 100_000,
            cutting,
            ..Faults::default()
        };
        let mut two = Two::new(&asking(), Mapping::Message, faults, seed);
        let pair = two.pairs[0];
        let lens = [10usize, 1_400, 5_000, 30_000];
        for nth in 0..40 {
            two.receive(1, lens[nth % 4]);
        }
        two.settle();
        for nth in 0..40 {
            post(&mut two, pair, lens[nth % 4], nth as u32).unwrap();
        }
        two.until("all messages", |two| two.done[1].len() == 40 && two.done[0].len() == 40);
        let words: Vec<_> = two.done[1].iter().map(|done| done.immediate).collect();
        assert_eq!(words, (0..40).map(Some).collect::<Vec<_>>(), "seed {seed}");
        two.check_contract();
    }
}
