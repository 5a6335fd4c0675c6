//! What a network does to frames, over every technique and delivery: packets of which
//! all frames come are there, byte for byte, and no others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use landfall::defrag::{CutBy, Datagrams, Delivery, Fate, Memory, PageReceiver, Sender, Technique};
use landfall_placement::Random;
use landfall_testbed::{VethPair, require_namespaces};

/// A page, in three frames.
const LEN: usize = 4096;
const FRAMES: usize = 3;
/// This many packets meet faults together.
const BATCH: usize = 32;

/// What becomes of frames, and of which packets one is lost.
struct FaultPlan {
    is_on: Arc<AtomicBool>,
    lost: Arc<Mutex<BTreeMap<usize, bool>>>,
}

/// A sender whose frames meet faults while they are on.
fn sender_in_weather(cable: &VethPair, seed: u64) -> (Sender, FaultPlan) {
    let weather = FaultPlan { is_on: Arc::default(), lost: Arc::default() };
    let (is_on, lost) = (Arc::clone(&weather.is_on), Arc::clone(&weather.lost));
    let (mut random, mut frame) = (Random::from_number(seed), 0);
    let sender = sender_as(&cable.a, move |builder| {
        builder.cut_by(CutBy::Sender).fate(move |_, _| {
            if !is_on.load(Ordering::Relaxed) {
                return Fate::Sent;
            }
            let packet = frame / FRAMES;
            frame += 1;
            let mut lost = lost.lock().unwrap();
            let is_lost = lost.entry(packet).or_default();
            match random.below(100) {
                0..4 => {
                    *is_lost = true;
                    Fate::Lost
                }
                4..8 => Fate::Twice,
                8..14 => Fate::Later(1 + random.below(7) as u16),
                _ => Fate::Sent,
            }
        })
    });
    (sender, weather)
}

/// Sends these packets in bad weather and one behind them in good, and gives the
/// numbers of those that came.
fn through_weather(
    sender: &mut Sender,
    datagrams: &mut Datagrams,
    weather: &FaultPlan,
    pages: &mut PageReceiver,
    first: usize,
) -> Vec<usize> {
    let payloads: Vec<_> = (0..=BATCH).map(|n| noise((first + n) as u64, LEN)).collect();
    let memory = sender.register(Memory::from_bytes(&payloads.concat())).unwrap();
    let part = |n: usize| memory.part((n * LEN) as u64, LEN as u32).unwrap();
    weather.is_on.store(true, Ordering::Relaxed);
    let parts: Vec<_> = (0..BATCH).map(part).collect();
    sender.send_datagrams(datagrams, &parts).unwrap();
    weather.is_on.store(false, Ordering::Relaxed);
    sender.send_datagrams(datagrams, &[part(BATCH)]).unwrap();
    let mut came = Vec::new();
    let mut is_over = false;
    // Some of one bunch may come behind the last.
    while !is_over || !came.is_empty() {
        let page =
            if is_over { pages.receive(Default::default()).unwrap() } else { Some(next(pages)) };
        let Some(page) = page else { break };
        let bytes = page.bytes();
        let nth = payloads.iter().position(|payload| *payload == *bytes);
        let nth = nth.expect("what came was never sent");
        is_over |= nth == BATCH;
        came.push(nth);
    }
    assert_eq!(came.iter().filter(|nth| **nth == BATCH).count(), 1);
    came.retain(|nth| *nth < BATCH);
    came
}

fn weather_over(cable: &VethPair, technique: Technique, delivery: Delivery, is_ipv4: bool) {
    let what = format!("{technique}, {delivery}, IPv4: {is_ipv4}");
    let mut pages = PageReceiver::new(receiver(&cable.b, technique, delivery), PORT);
    let (mut sender, weather) = sender_in_weather(cable, 5);
    let mut datagrams = datagrams(cable, is_ipv4);
    let (mut whole, mut broken) = (0, 0);
    for batch in 0..8 {
        let came =
            through_weather(&mut sender, &mut datagrams, &weather, &mut pages, batch * (BATCH + 1));
        let lost = weather.lost.lock().unwrap();
        for nth in 0..BATCH {
            let times = came.iter().filter(|other| **other == nth).count();
            let is_lost = lost[&(batch * BATCH + nth)];
            assert_eq!(times, usize::from(!is_lost), "{what}: packet {nth} of batch {batch}");
            if is_lost { broken += 1 } else { whole += 1 }
        }
    }
    assert!(whole > 0 && broken > 0, "{what}: {whole} whole, {broken} broken");
    let stats = pages.receiver().stats().unwrap();
    assert_eq!((stats.lost, stats.kernel_drops, pages.corrupt()), (0, 0, 0), "{what}");
    assert!(stats.gathered.repeated > 0, "{what}: {stats:?}");
}

#[test]
fn packet_survives_any_weather() {
    require_namespaces!();
    let cable = cable();
    for delivery in deliveries(Technique::Packet) {
        for is_ipv4 in [true, false] {
            weather_over(&cable, Technique::Packet, delivery, is_ipv4);
        }
    }
}

#[test]
fn packet_uring_survives_any_weather() {
    require_namespaces!();
    let cable = cable();
    for delivery in deliveries(Technique::PacketUring) {
        weather_over(&cable, Technique::PacketUring, delivery, true);
    }
}

#[test]
fn weather_before_a_simulated_adapter() {
    require_namespaces!();
    let cable = cable();
    for delivery in deliveries(Technique::Nic) {
        weather_over(&cable, Technique::Nic, delivery, true);
    }
}

#[test]
fn packet_ring_survives_any_weather() {
    require_namespaces!();
    let cable = cable();
    for delivery in deliveries(Technique::PacketRing) {
        for is_ipv4 in [true, false] {
            weather_over(&cable, Technique::PacketRing, delivery, is_ipv4);
        }
    }
}

#[test]
fn xdp_survives_any_weather() {
    require_namespaces!();
    let cable = cable();
    for delivery in deliveries(Technique::Xdp) {
        for is_ipv4 in [true, false] {
            weather_over(&cable, Technique::Xdp, delivery, is_ipv4);
        }
    }
}
