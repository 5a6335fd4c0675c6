//! The same Transfer twice: by the host's processor, and by two simulated adapters that
//! run the receive path as firmware. What they leave in memory is the same; what the
//! processor had to do for it is not.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use landfall::nic::{Pace, Wire, WireConfig};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{ChannelConfig, Memory, Peer, Stats, Transport};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpThroughput};
use serde::Serialize;

use super::other::{PORT, within_limit};
use super::{Scale, Shown, speed};
use crate::style::bytes;
use crate::workload::Pattern;

const TCP: &str = "kernel TCP, loopback";
const HOST: &str = "the host's processor";
const CARDS: &str = "two Tigon-II, as fast as this machine";
const PERIOD: &str = "two Tigon-II, as fast as in their time";

#[derive(Debug, Serialize)]
struct Facts {
    message_bytes: usize,
    tcp_goodput_bytes_per_s: f64,
    host: GoodputShown,
    adapters: GoodputShown,
    /// With what the adapters of the paper took for each step.
    adapters_of_the_period: GoodputShown,
    hash: String,
    equal: bool,
}

/// What one way took, at the receiver.
#[derive(Debug, Serialize)]
struct GoodputShown {
    message_bytes: usize,
    goodput_bytes_per_s: f64,
    user_copied_bytes: u64,
    /// Units of Data that arrived, and notifications that the host had for them.
    units: u64,
    notifications: u64,
    wakeups: u64,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    // Adapters are simulated step by step: less than elsewhere.
    let len = (scale.messages as usize) << 18;
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(scale.time / 2));
    let tcp = TcpThroughput::new(plan).run()?;
    let channel = ChannelConfig { unit: 9000, queue: 256 };
    let (sender, receiver) = Endpoint::builder().bind_pair(Endpoint::builder(), channel)?;
    let host = transfer(&sender.into(), &receiver.into(), Peer::Node(1), len)?;
    let adapters = over_adapters(Pace::Free, len)?;
    ensure!(host.1 == adapters.1, "the adapters left other bytes in memory than the host did");
    let of_the_period = over_adapters(Pace::Period, len / 4)?;
    let facts = Facts {
        message_bytes: len,
        tcp_goodput_bytes_per_s: tcp.goodput(),
        host: host.0,
        adapters: adapters.0,
        adapters_of_the_period: of_the_period.0,
        hash: host.1,
        equal: true,
    };
    Shown::new(lines(&facts), &facts)
}

fn over_adapters(pace: Pace, len: usize) -> Result<(GoodputShown, String)> {
    let wire = Wire::new(WireConfig::default());
    let plug = |node| Endpoint::bind(Transport::nic(&wire, Peer::Node(node), pace));
    transfer(&plug(1)?, &plug(2)?, Peer::Node(2), len)
}

/// Sends one Transfer, whose bytes are compared: what it took, and the hash.
fn transfer(
    sender: &Endpoint,
    receiver: &Endpoint,
    to: Peer,
    len: usize,
) -> Result<(GoodputShown, String)> {
    let mut message = Memory::try_zeroed(len).context("no memory for a message")?;
    Pattern(9).fill(&mut message);
    let listener = receiver.listen(PORT)?;
    let connection: Connection = sender.connect(to, PORT)?;
    let accepted = listener.accept_within(super::other::LIMIT)?.context("nobody connects")?;
    let before = receiver.stats();
    let taking = accepted.receive(Memory::try_zeroed(len).context("no memory for it")?).start();
    let started = Instant::now();
    let sending = connection.send(message).start();
    let landed = within_limit!(taking)?;
    within_limit!(sending)?;
    let took = started.elapsed();
    ensure!(Pattern(9).first_difference(&landed).is_none(), "other bytes came");
    let after = receiver.stats();
    let count = |of: fn(&Stats) -> u64| of(&after) - of(&before);
    let sum = |stats: &Stats, of: fn(&landfall_transport::Counters) -> u64| -> u64 {
        stats.paths.iter().map(|path| of(&path.counters)).sum()
    };
    let copied = |counters: &landfall_transport::Counters| counters.bytes_copied;
    let woken = |counters: &landfall_transport::Counters| counters.wakeups;
    let goodput = GoodputShown {
        message_bytes: len,
        goodput_bytes_per_s: len as f64 / took.as_secs_f64(),
        user_copied_bytes: sum(&after, copied) - sum(&before, copied),
        units: count(|stats| stats.engine.stus_received),
        notifications: count(|stats| stats.engine.block_notifications),
        wakeups: sum(&after, woken) - sum(&before, woken),
    };
    Ok((goodput, blake3::hash(&landed).to_string()))
}

fn lines(facts: &Facts) -> [String; 6] {
    let line = |name: &str, goodput: &GoodputShown| {
        format!(
            "{name:40} {:>10}, {} of {} copied by it, {} notifications for {} units, woken {} times",
            speed(goodput.goodput_bytes_per_s),
            bytes(goodput.user_copied_bytes),
            bytes(goodput.message_bytes as u64),
            goodput.notifications,
            goodput.units,
            goodput.wakeups,
        )
    };
    [
        format!("{TCP:40} {:>10}", speed(facts.tcp_goodput_bytes_per_s)),
        line(HOST, &facts.host),
        line(CARDS, &facts.adapters),
        line(PERIOD, &facts.adapters_of_the_period),
        "the adapters are simulated on this machine: how fast they are is no figure of a card"
            .to_owned(),
        format!("BLAKE3 {}… behind the host and behind the adapters: equal", &facts.hash[..16]),
    ]
}
