//! The node that runs an engine keeps the contract of a driver, and notices
//! an engine that does not keep its own.

mod marking;
mod puppet;
mod receiving;
mod sending;

use landfall_simnet::{EngineConfig, EngineNode, Handle, LinkConfig, LinkId, Sim};

use crate::common::Inbox;
use puppet::Puppet;

type Host = EngineNode<Puppet>;

/// A puppet, with 1,000 bytes of memory in its first region, and an inbox.
fn stage(
    puppet: Puppet,
    how: EngineConfig,
    link: LinkConfig,
) -> (Sim, Handle<Host>, Handle<Inbox>, LinkId) {
    let mut sim = Sim::from_number(1);
    let mut host = EngineNode::with_config(puppet, how);
    host.memory_mut().lend((0..1_000).map(|n| n as u8).collect()).unwrap();
    let host = sim.add("puppet", host).unwrap();
    let inbox = sim.add("inbox", Inbox::default()).unwrap();
    let link = sim.connect(host, inbox, link).unwrap();
    (sim, host, inbox, link)
}
