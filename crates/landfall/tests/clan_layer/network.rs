//! The programming layer over a network, within this process.

use std::time::{Duration, Instant};

use landfall::clan::network::{ChannelConfig, HostId, Node, Peer};

use crate::suite;

fn pair() -> (Node, Node) {
    let builder = |number| Node::builder(HostId::new(number).unwrap());
    let (one, two) = builder(1).open_pair(builder(2), ChannelConfig::default()).unwrap();
    let soon = Some(Instant::now() + Duration::from_secs(60));
    one.link(Peer::Node(1)).unwrap().wait_up(soon).unwrap();
    two.wait_reached(one.host(), soon).unwrap();
    (one, two)
}

suite::over_each_test! {
    let (one, two) = pair();
    suite((&one, &two), {
        let (driving, two) = (two.clone(), two.clone());
        move || driving.wait_for(two.close(), None).map_or((), drop)
    });
}
