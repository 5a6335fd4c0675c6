//! Words that arrive with messages, over the front door and its verbs.

use super::{End, PATIENCE, SERVER, at, channel_pair, noise};
use landfall::qpip::{
    Adapter, Builder, ChannelConfig, Config, Mapping, Operation, PostError, QueuePairOptions,
    SendRequest, TcpConfig,
};
use landfall::verbs;

fn asking() -> Builder {
    let tcp = TcpConfig { immediates: true, ..TcpConfig::default() };
    Adapter::builder().config(Config { tcp, ..Config::default() })
}

fn connect(one: &Adapter, two: &Adapter, mapping: Mapping) -> (End, End) {
    let (here, mut there) = (End::tcp(one, mapping), End::tcp(two, mapping));
    there.post_room(0, 0, 1 << 16);
    let listener = two.listen(at(SERVER)).expect("a free port");
    listener.offer(there.pair).expect("it is idle");
    assert!(!here.pair.takes_immediates(), "nobody is connected");
    here.pair.connect(at(SERVER)).wait_for(PATIENCE).expect("in time").expect("connected");
    there.pair = listener.accept().wait_for(PATIENCE).expect("in time").expect("accepted");
    (here, there)
}

/// A program for any carrier of verbs: a message with a word where the carrier takes one.
fn send<Q: verbs::QueuePair>(pair: &mut Q, id: u64, from: Q::Part, word: u32) -> bool {
    let immediate = pair.takes_immediates().then_some(word);
    pair.post_send(&SendRequest { immediate, ..SendRequest::new(id, &[from]) }).expect("room");
    immediate.is_some()
}

#[test]
fn words_arrive_with_messages_over_the_front_door() {
    let channel = ChannelConfig { unit: 1514, queue: 256 };
    let (one, two) = asking().pair(asking(), channel).expect("a channel");
    let one = one.address("10.0.0.1/24").open().expect("an adapter");
    let two = two.address("10.0.0.2/24").open().expect("an adapter");
    let (mut here, mut there) = connect(&one, &two, Mapping::Message);
    assert!(here.pair.takes_immediates() && there.pair.takes_immediates());
    for id in 1..20 {
        there.post_room(id, id << 10, 1 << 10);
    }
    for id in 0..20 {
        let part = here.fill(id << 10, &noise(id, 900));
        if id % 3 == 0 {
            here.pair.post_send(id, &[part]).expect("room in the queue");
        } else {
            assert!(send(&mut here.pair, id, part, id as u32));
        }
    }
    for id in 0..20 {
        let came = there.expect(Operation::Receive, id);
        let word = (id % 3 != 0).then_some(id as u32);
        assert_eq!((came.immediate, came.ends_message), (word, true));
        assert_eq!(here.expect(Operation::Send, id).immediate, None);
    }
}

#[test]
fn a_word_is_refused_when_it_is_posted_where_nobody_asked() {
    let (one, two) = channel_pair();
    let (mut here, mut there) = connect(&one, &two, Mapping::Message);
    assert!(!here.pair.takes_immediates());
    let part = here.fill(0, b"message");
    let from = [part];
    let request = SendRequest { immediate: Some(1), ..SendRequest::new(1, &from) };
    assert_eq!(here.pair.split().0.post_request(request), Err(PostError::NoImmediates));
    assert!(!send(&mut here.pair, 2, part, 1));
    assert_eq!(there.expect(Operation::Receive, 0).immediate, None);
    let datagrams = QueuePairOptions::udp();
    let mut end = End::new(&one, &datagrams);
    end.pair.bind(at("10.0.0.1:7003")).expect("a free port");
    let request = SendRequest { to: Some(at(SERVER)), ..request };
    assert_eq!(end.pair.split().0.post_request(request), Err(PostError::NoImmediates));
}
