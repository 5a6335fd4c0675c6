//! `landfall paper defrag --shuffle N`: a database's shuffle on this machine. Several senders give
//! large datagrams to their kernels, which cut them; a Linux bridge brings the fragments of all to
//! one receiver, and there they are recorded, with the kernel's times.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall_testbed::{BridgedNetwork, VethEnd, cpu};
use landfall_transport::memory::Regions;
use landfall_transport::packet::Filter;
use landfall_transport::ring::{Ring, RingConfig};
use landfall_transport::wait::until_ready;

use crate::capture_file::CapturedFrame;

/// Who sends how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shuffle {
    pub(super) senders: u8,
    /// Datagrams of each sender.
    pub(super) datagrams: u32,
    /// Their payload.
    pub(super) len: usize,
}

impl Shuffle {
    /// The most senders that there may be.
    pub(super) const MOST: u8 = 16;

    /// A section of 32 KiB after the other.
    pub(super) const fn of(senders: u8) -> Self {
        Self { senders, datagrams: 1_000, len: 32 << 10 }
    }
}

const PORT: u16 = 7_000;
/// Headers are in the first bytes of a frame.
const SNAP: u32 = 128;
/// Between two looks at the ring.
const TICK: Duration = Duration::from_millis(10);
/// The kernel hands the last frames over within so long, and more.
const LAST_FRAMES: Duration = Duration::from_millis(50);
/// A run that takes longer does not go on.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets them send, and records what arrives.
///
/// # Errors
/// Namespaces cannot be made, or frames come faster than they are recorded.
pub(super) fn record(shuffle: Shuffle) -> Result<Vec<CapturedFrame>> {
    ensure!(
        (1..=Shuffle::MOST).contains(&shuffle.senders),
        "{} senders: give 1 to {}",
        shuffle.senders,
        Shuffle::MOST
    );
    let network = BridgedNetwork::new(shuffle.senders + 1).context("cannot make a bridge")?;
    let [receiver, senders @ ..] = network.ends() else { bail!("a network without ends") };
    let sink = bind(receiver)?;
    let to = SocketAddr::from((receiver.ipv4, PORT));
    let sockets: Vec<UdpSocket> = senders.iter().map(bind).collect::<Result<_>>()?;
    for socket in &sockets {
        socket.connect(to)?;
        reach(socket, &sink)?;
    }
    let regions = Regions::new(1);
    let config = RingConfig::new(receiver.name.as_str(), Filter::any()).overhearing(SNAP);
    let ring = receiver.namespace.enter(|| Ring::open(&config, &regions))?;
    let mut ring = ring.context("cannot record the receiver's interface")?;
    let barrier = Arc::new(Barrier::new(sockets.len()));
    let cores = cpu::allowed_cores()?;
    let mut running = Vec::new();
    for ((end, socket), core) in senders.iter().zip(sockets).zip(cores.into_iter().cycle()) {
        let barrier = Arc::clone(&barrier);
        // Else they may run on one core in turn, and nothing mixes.
        let work = move || cpu::pin_this_thread(core).map(|()| send(&socket, shuffle, &barrier));
        running.push(end.namespace.spawn("sender", work)?);
    }
    let (mut frames, begin) = (Vec::new(), Instant::now());
    while running.iter().any(|sender| !sender.is_finished()) {
        ensure!(begin.elapsed() < PATIENCE, "the senders are not done after {PATIENCE:?}");
        drain(&mut ring, &mut frames);
        until_ready(&[ring.interest()], TICK)?;
    }
    for sender in running {
        let Ok(sent) = sender.join() else { bail!("a sender panicked") };
        sent???;
    }
    let end = Instant::now() + LAST_FRAMES;
    while Instant::now() < end {
        drain(&mut ring, &mut frames);
        until_ready(&[ring.interest()], TICK)?;
    }
    drain(&mut ring, &mut frames);
    let lost = ring.statistics()?.drops;
    ensure!(lost == 0, "{lost} frames came faster than they were recorded: try again");
    Ok(frames)
}

fn bind(end: &VethEnd) -> Result<UdpSocket> {
    let socket = end.namespace.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)))?;
    socket.context("cannot open a socket")
}

/// One small datagram passes: the stations know each other from then on.
fn reach(socket: &UdpSocket, sink: &UdpSocket) -> Result<()> {
    sink.set_read_timeout(Some(Duration::from_millis(50)))?;
    for _ in 0..100 {
        // An interface that was just switched on refuses it.
        let _ = socket.send(&[0]);
        if sink.recv(&mut [0]).is_ok() {
            return Ok(());
        }
    }
    bail!("no datagram comes through the bridge")
}

fn send(socket: &UdpSocket, shuffle: Shuffle, barrier: &Barrier) -> std::io::Result<()> {
    let bytes = vec![0x5a; shuffle.len];
    barrier.wait();
    for _ in 0..shuffle.datagrams {
        socket.send(&bytes)?;
    }
    Ok(())
}

fn drain(ring: &mut Ring, frames: &mut Vec<CapturedFrame>) {
    while let Some(block) = ring.next_block() {
        let came = block.heard().filter(|heard| !heard.is_leaving);
        frames.extend(came.map(|heard| CapturedFrame {
            at: heard.at,
            len: heard.len,
            bytes: heard.bytes.to_vec(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use landfall_testbed::require_namespaces;
    use spec_defrag::wire::parse;

    use super::super::recorded::study_frames;
    use super::*;

    /// Each fragment that was sent arrives and is counted once, by the study and by what is seen
    /// here; both predictors join the same packets. Which of them guesses better is the bridge's to
    /// say, and is not asked for.
    #[test]
    fn each_fragment_of_a_shuffle_is_accounted_for_once() {
        require_namespaces!();
        for senders in [1, 3] {
            let shuffle = Shuffle { senders, datagrams: 40, len: 32 << 10 };
            let frames = record(shuffle).unwrap();
            let mut places = BTreeMap::new();
            for frame in &frames {
                // Neighbours are asked for, too.
                let Ok(parsed) = parse(&frame.bytes, frame.len) else { continue };
                let Some(fragment) = parsed.fragment else { continue };
                let len = parsed.payload_len;
                let seen: &mut BTreeMap<_, _> = places.entry(parsed.key).or_default();
                assert_eq!(seen.insert(fragment.offset, len), None, "it came twice: {parsed:?}");
            }
            let packets = u64::from(senders) * 40;
            let bytes = 8 + (32 << 10);
            assert_eq!(places.len() as u64, packets);
            assert!(places.values().all(|seen| seen.values().sum::<u32>() == bytes));
            let fragments: usize = places.values().map(BTreeMap::len).sum();
            let study = study_frames("a shuffle".into(), &frames).unwrap();
            let [station] = &study.stations[..] else { panic!("{study:?}") };
            assert_eq!((station.packets, station.fragments), (packets, fragments as u64));
            assert_eq!(station.pieces, 23);
            assert_eq!((station.single.packets, station.learned.packets), (packets, packets));
            assert!(station.single.successful <= packets && station.learned.successful <= packets);
        }
    }

    #[test]
    fn a_number_of_senders_that_is_out_of_range_is_refused() {
        for senders in [0, Shuffle::MOST + 1] {
            let error = record(Shuffle::of(senders)).unwrap_err().to_string();
            assert!(error.contains("give 1 to 16"), "{error}");
        }
    }
}
