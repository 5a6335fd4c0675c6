//! The drivers, each with the test engine that suits it.

use anyhow::Result;
use landfall_testbed::Sample;
use landfall_testbed::rivals::{Plan, Polling};
use landfall_transport::memory::{Arena, ArenaConfig};

use super::group::Group;
use super::row::{Mode, Subject};
use crate::lane::bulk::{self, Shape, Tables};
use crate::lane::numbered::NumberedWork;
use crate::lane::talk;
use crate::lane::transport::{Channel, Transport, Udp};
use crate::lane::work::Protocol;

/// IPv4 and UDP headers, and the head of the numbered engine.
const HEADERS: u32 = 28 + 40;
const SMALL: u32 = 1024;
const LARGE: u32 = 8192;
const NEEDS_CABLE: &str = "needs a cable: run `sudo landfall perf local --veth`";

/// The payloads that are measured over links of this MTU: a small one, and the
/// one that fills it (a multiple of 16; a power of two where that fits).
pub(super) fn payloads(mtu: u32) -> Vec<u32> {
    let room = mtu.saturating_sub(HEADERS);
    let filling = if room >= LARGE { LARGE } else { room / 16 * 16 };
    vec![SMALL.min(filling), filling]
}

fn subject(transport: &'static str, mode: Mode, message_bytes: u64, payload: u64) -> Subject {
    Subject {
        protocol: "test",
        transport,
        peer: false,
        mode,
        polling: mode == Mode::Latency,
        message_bytes,
        payload_bytes: Some(payload),
        variant: None,
    }
}

fn throughput_subject(transport: &'static str, payload: u32) -> Subject {
    subject(transport, Mode::Throughput, Shape::STREAM.message as u64, payload.into())
}

/// Memory is used again from run to run; both sides fit.
fn arena() -> Arena {
    Arena::new(ArenaConfig { chunk: 64 << 20, max_bytes: 256 << 20, ..ArenaConfig::default() })
}

/// One run of endless messages.
fn stream<T: Transport, P: Protocol>(
    plan: &Plan,
    pieces: (&T, &P),
    arena: &Arena,
    tables: &Tables,
) -> Result<Sample>
where
    T::Driver: Send,
{
    Ok(bulk::run(plan, Shape::STREAM, pieces, arena, tables)?.sample)
}

/// Every driver that can carry endless messages here.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    let arena = arena();
    let plan = group.setting.plan;
    for payload in payloads(mtu) {
        let (udp, work) = (Udp { mtu }, NumberedWork::with_unit(payload));
        let arena = arena.clone();
        group.add(throughput_subject("udp", payload), move || {
            stream(plan, (&udp, &work), &arena, &Tables::new())
        });
    }
    if group.setting.pair.is_none() {
        group.lacks("packet", Mode::Throughput, NEEDS_CABLE);
        let work = NumberedWork::with_unit(LARGE);
        group.add(throughput_subject("channel", LARGE), move || {
            let tables = Tables::new();
            let channel = Channel::new(&tables.send, &tables.receive)?;
            stream(plan, (&channel, &work), &arena, &tables)
        });
    }
}

/// One byte there and back, spinning.
pub(super) fn add_latency(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    if group.setting.pair.is_none() {
        group.lacks("packet", Mode::Latency, NEEDS_CABLE);
    }
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let (udp, work) = (Udp { mtu }, NumberedWork::with_unit(SMALL));
    group.add(subject("udp", Mode::Latency, 1, 1), move || {
        talk::run(&plan, 1, (&udp, &work), &Tables::new())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_fit_the_mtu() {
        assert_eq!(payloads(1500), [1024, 1424]);
        assert_eq!(payloads(9000), [1024, 8192]);
        assert_eq!(payloads(65_536), [1024, 8192]);
        assert_eq!(payloads(1280), [1024, 1200]);
    }
}
