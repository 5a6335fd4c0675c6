//! Distributed shared memory, and what its tests share: nodes, links, bounds on time.

mod abuse;
mod actions;
mod carriers;
mod dma;
mod events;
mod faults;
mod grants;
mod groups;
mod layer;
mod messaging;
mod multicast;
mod names;
mod network;
pub(crate) mod other;
mod sealed;
mod server;
mod shared;
mod stopped;
mod threads;

use std::time::Instant;

use landfall::clan::network::{Builder, ChannelConfig, Config, HostId, Node, Peer, Transport};
use landfall::clan::shared::{SharedConfig, SharedNode};

use landfall_testkit::TemporaryFolder;

use crate::support::PATIENCE;
pub(crate) use crate::support::noise;

/// Nothing takes so long.
pub(crate) fn soon() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

pub(crate) fn host(number: u16) -> HostId {
    HostId::new(number).expect("a host")
}

pub(crate) fn loopback() -> Transport {
    Transport::udp("127.0.0.1:0".parse().expect("an address"))
}

pub(crate) fn builder(number: u16) -> Builder {
    Node::builder(host(number))
}

/// Two nodes with a link, over UDP on loopback.
pub(crate) fn udp_pair() -> (Node, Node) {
    let open = |number| builder(number).path(loopback()).open().expect("loopback");
    linked((open(1), open(2)), None)
}

/// The same, each of several engines.
pub(crate) fn threads_pair() -> (Node, Node) {
    let open = |number| builder(number).path(loopback()).threads(3).open().expect("loopback");
    linked((open(1), open(2)), None)
}

/// Two nodes with a link, within this process.
pub(crate) fn channel_pair() -> (Node, Node) {
    channel_pair_with(&Config::default())
}

pub(crate) fn channel_pair_with(config: &Config) -> (Node, Node) {
    let builder = |number| builder(number).config(config.clone());
    let pair = builder(1).open_pair(builder(2), ChannelConfig::default()).expect("a channel");
    linked(pair, Some(Peer::Node(1)))
}

/// Opens the link from the first to the second, and waits until both have it.
pub(crate) fn linked((here, there): (Node, Node), peer: Option<Peer>) -> (Node, Node) {
    let peer = peer.or_else(|| there.local()).expect("an address");
    let link = here.link(peer).expect("a way");
    assert_eq!(link.wait_up(soon()).expect("up"), there.host());
    there.wait_reached(here.host(), soon()).expect("up");
    (here, there)
}

/// Each way that needs no privileges.
pub(crate) fn pairs() -> [(&'static str, (Node, Node)); 3] {
    [("UDP", udp_pair()), ("several threads", threads_pair()), ("channel", channel_pair())]
}

/// Asks until it is so, while the node moves on.
pub(crate) fn until(node: &Node, mut is_so: impl FnMut() -> bool) {
    let deadline = soon();
    while !is_so() {
        node.turn();
        assert!(Some(Instant::now()) < deadline, "it never came to be");
    }
}

/// Two nodes that share memory, in a folder that goes with the first of these.
pub(crate) fn shared_pair() -> (TemporaryFolder, (SharedNode, SharedNode)) {
    let folder = TemporaryFolder::new("shared");
    let open = || SharedNode::open(SharedConfig::new(folder.path())).expect("a node");
    let pair = (open(), open());
    (folder, pair)
}

/// The same program over shared memory, between threads, over UDP (to nodes of one thread and of
/// several) and over a channel.
macro_rules! on_every_carrier {
    ($program:ident) => {{
        let (folder, (here, there)) = $crate::clan::shared_pair();
        $program("shared memory", &here, &there);
        drop((here, there, folder));
        let (here, there) = landfall::clan::Threads::pair().expect("threads");
        $program("threads", &here, &there);
        for (name, (here, there)) in $crate::clan::pairs() {
            $program(name, &here, &there);
        }
    }};
}
pub(crate) use on_every_carrier;
