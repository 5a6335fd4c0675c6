//! The Scheduled Transfer Protocol, and what its tests share: endpoints and connections.

mod blocking;
mod cancellation;
mod carriers;
mod certificates;
mod connections;
mod deadlines;
mod exchange;
mod memory_back;
mod minimal_peer;
mod progress;
mod same_host;
mod sealed;
mod shards;
mod strangers;
mod striping;
mod transfers;

use landfall::stp::{ChannelConfig, Connection, Endpoint, Memory, Peer, Transport};

pub(crate) use crate::support::{PATIENCE, noise, run, within};

/// The port that servers listen at.
pub(crate) const PORT: u16 = 7;

pub(crate) fn memory_with(bytes: &[u8]) -> Memory {
    Memory::from_bytes(bytes)
}

pub(crate) fn loopback() -> Transport {
    Transport::udp("127.0.0.1:0".parse().expect("an address"))
}

/// Two endpoints over UDP on loopback.
pub(crate) fn udp_pair() -> (Endpoint, Endpoint, Peer) {
    let bind = || Endpoint::bind(loopback()).expect("loopback");
    let (a, b) = (bind(), bind());
    let to_b = b.local().expect("UDP has an address");
    (a, b, to_b)
}

/// Two endpoints within this process.
pub(crate) fn channel_pair() -> (Endpoint, Endpoint, Peer) {
    let (here, there) = (Endpoint::builder(), Endpoint::builder());
    let (a, b) = here.bind_pair(there, ChannelConfig::default()).expect("a channel");
    (a, b, Peer::Node(1))
}

/// Each way that needs no privileges.
pub(crate) fn pairs() -> [(&'static str, (Endpoint, Endpoint, Peer)); 2] {
    [("UDP", udp_pair()), ("channel", channel_pair())]
}

/// A connection, seen from both sides.
pub(crate) async fn joined((a, b, to_b): &(Endpoint, Endpoint, Peer)) -> (Connection, Connection) {
    let listener = b.listen(PORT).expect("a free port");
    let (here, there) =
        within(async { tokio::join!(a.connect(*to_b, PORT), listener.accept()) }).await;
    (here.expect("connected"), there.expect("accepted"))
}
