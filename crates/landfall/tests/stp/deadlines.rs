//! How long calls may take, and who goes first.

use std::time::Duration;

use super::{PORT, loopback};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Error, Memory, Priority};

fn pair() -> (Endpoint, Endpoint, Connection, Connection) {
    let server = Endpoint::bind(loopback()).unwrap();
    let client = Endpoint::bind(loopback()).unwrap();
    let listener = server.listen(PORT).unwrap();
    let near = client.connect(server.local().unwrap(), PORT).unwrap();
    let far = listener.accept().unwrap();
    (server, client, near, far)
}

/// A call that is not over in time fails, leaves nothing behind, and the next is as any other.
#[test]
fn what_is_not_over_in_time_is_given_up() {
    let (server, _client, near, far) = pair();
    for _ in 0..3 {
        let receiving = far.receive(Memory::zeroed(100)).within(Duration::from_millis(2));
        let error = Error::from(server.wait(receiving).unwrap_err());
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        let far = far.as_async();
        let offer = server.wait(far.within(Duration::from_millis(2), far.offer()));
        assert!(matches!(offer, Err(Error::TimedOut { .. })));
    }
    assert_eq!(server.stats().operations, 0);
    let sending = near.send(vec![7; 100]).start();
    let message = server.wait(far.receive(Memory::zeroed(100)).within(Duration::from_secs(60)));
    assert_eq!(&*message.unwrap(), &[7; 100]);
    sending.wait().unwrap();
}

/// More Transfers than are open at a time wait for their turn: those that are urgent first.
#[test]
fn urgent_transfers_do_not_wait_for_those_that_are_not() {
    let (_server, _client, near, far) = pair();
    let mut sends: Vec<_> =
        (0..80_u8).map(|nth| near.send(vec![nth]).priority(Priority::Low).start()).collect();
    sends.push(near.send(vec![200]).priority(Priority::High).start());
    let order: Vec<u8> =
        (0..81).map(|_| far.receive(Memory::zeroed(1)).wait().unwrap()[0]).collect();
    for sending in sends {
        sending.wait().unwrap();
    }
    // 64 were open already.
    let urgent = order.iter().position(|nth| *nth == 200).unwrap();
    assert!(urgent < 70, "{urgent}: {order:?}");
}

#[test]
fn connections_are_weighed_and_preferred() {
    let (_server, _client, near, far) = pair();
    far.set_weight(5).unwrap();
    far.set_priority(Priority::High).unwrap();
    near.set_priority(Priority::Low).unwrap();
    let sending = near.send(vec![1; 1 << 20]).start();
    let message = far.receive(Memory::zeroed(1 << 20)).priority(Priority::Normal).wait().unwrap();
    assert!(message.iter().all(|byte| *byte == 1));
    sending.wait().unwrap();
    far.abort();
    let ended = far.closed();
    assert!(matches!(ended, Err(Error::Closed { why: Some(_) })), "{ended:?}");
}

#[test]
fn data_comes_over_the_links_that_are_chosen() {
    let (_server, _client, near, far) = pair();
    let link = far.links()[0];
    far.set_data_link(link.path, link.peer, false).unwrap();
    // Where no other is up it comes over that one nevertheless.
    let sending = near.send(vec![1; 1_000]).start();
    assert_eq!(far.receive(Memory::zeroed(1_000)).wait().unwrap().len(), 1_000);
    sending.wait().unwrap();
    far.set_data_link(link.path, link.peer, true).unwrap();
    let nobody = landfall::stp::Peer::Node(77);
    assert!(matches!(far.set_data_link(link.path, nobody, true), Err(Error::Refused(_))));
}
