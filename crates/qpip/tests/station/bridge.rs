//! A bridge between the station and the kernel on which things go wrong, both
//! ways: frames of either are lost, doubled, late or damaged.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use landfall_placement::{
    Check, Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Refusal,
    Refusals, RegionId, Spans, Ticket, Timeout, Transmit, Unit,
};
use landfall_testbed::{Error, Namespace, Offload, VethConfig, VethPair};
use landfall_transport::fault::{FaultCounts, Faults, Faulty};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::{Clock, Driver, wait};
use qpip::Config;

use super::Station;
use super::kernel::Kernel;
use super::net::{interface, open, ours, run, shared};

const ETHERNET: usize = 14;
/// Frames that the bridge holds at a time.
const FRAMES: u32 = 1024;
/// Room for each.
const ROOM: u32 = 2048;
const NEAR: PathId = PathId(0);
const FAR: PathId = PathId(1);

/// A frame that came, and is to leave on the other side.
struct Held {
    slot: u32,
    head: [u8; ETHERNET],
    len: u32,
}

/// Passes every frame on to the other of two paths.
struct Relay {
    region: RegionId,
    free: Vec<u32>,
    /// What drivers are putting into its place.
    coming: Vec<Option<(PathId, Held)>>,
    /// What leaves on each path.
    leaving: [VecDeque<Held>; 2],
    refusals: Refusals,
}

impl Relay {
    fn new(region: RegionId) -> Self {
        Self {
            region,
            free: (0..FRAMES).collect(),
            coming: (0..FRAMES).map(|_| None).collect(),
            leaving: Default::default(),
            refusals: Refusals::new(),
        }
    }
}

impl Engine for Relay {
    type Event = ();

    fn handle_path(&mut self, _: Instant, _: PathId, _: PathState) {}

    fn guess(&self, _: PathId, _: usize) -> Option<Guess> {
        None
    }

    fn place(
        &mut self,
        _: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let Some(head) = unit.head.first_chunk() else {
            return Ok(Placement::NeedHead(ETHERNET as u16));
        };
        let len = unit.len - ETHERNET as u32;
        let slot = (len > 0 && len <= ROOM).then(|| self.free.pop()).flatten();
        let Some(slot) = slot else { return Err(self.refusals.count(Refusal::Malformed)) };
        into.push(self.region.span(u64::from(slot) * u64::from(ROOM), len)).unwrap();
        self.coming[slot as usize] = Some((unit.path, Held { slot, head: *head, len }));
        Ok(Placement::Into {
            at: ETHERNET as u16,
            check: Check::None,
            ticket: Ticket::new(slot, 0),
        })
    }

    fn handle_placed(&mut self, _: Instant, ticket: Ticket, landing: Landing) {
        let Some((from, held)) = self.coming[ticket.index() as usize].take() else { return };
        match landing {
            Landing::Verified | Landing::Unchecked => {
                self.leaving[usize::from(from == NEAR)].push_back(held);
            }
            _ => self.free.push(held.slot),
        }
    }

    fn poll_transmit(
        &mut self,
        _: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let held = self.leaving[usize::from(path == FAR)].pop_front()?;
        head[..ETHERNET].copy_from_slice(&held.head);
        let at = u64::from(held.slot) * u64::from(ROOM);
        from.push(self.region.span(at, held.len)).unwrap();
        Some(Transmit {
            to: Peer::Unaddressed,
            head_len: ETHERNET as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: Ticket::new(held.slot, 0),
        })
    }

    fn handle_sent(&mut self, _: Instant, ticket: Ticket) {
        self.free.push(ticket.index());
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

type Counts = [FaultCounts; 2];

/// The station's cable, the kernel's cable, and the bridge between them, on a
/// thread of its own until this is dropped.
pub struct Bridge {
    pub near: VethPair,
    pub far: VethPair,
    pub kernel: Kernel,
    stop: Arc<AtomicBool>,
    relay: Option<JoinHandle<Result<io::Result<Counts>, Error>>>,
}

impl Bridge {
    /// A bridge with these faults in both directions.
    pub fn new(faults: Faults, seed: u8) -> Self {
        let [host, bridge, other] = [(); 3].map(|()| Namespace::new().unwrap());
        let near = VethPair::between(&host, &bridge, VethConfig::default()).unwrap();
        let config = VethConfig { cable: 1, ..VethConfig::default() };
        let far = VethPair::between(&bridge, &other, config).unwrap();
        // One network, with the addresses of the near cable: the kernel has one
        // on it, and knows the station, as broadcasts do not cross.
        let kernel = Kernel { ipv4: near.b.ipv4, ipv6: near.b.ipv6, ..Kernel::at(&far.b) };
        for (address, ours) in [
            (format!("{}/24", kernel.ipv4), ours(&near.a, true)),
            (format!("{}/64", kernel.ipv6), ours(&near.a, false)),
        ] {
            let (name, station) = (far.b.name.as_str(), near.a.mac.to_string());
            run(&other, &["ip", "address", "add", &address, "dev", name, "nodad"]);
            let (ours, what) = (ours.to_string(), ["ip", "neighbour", "add"]);
            run(&other, &[&what[..], &[&ours, "lladdr", &station, "dev", name]].concat());
        }
        // Whole frames, with their checksums in them.
        for end in [&near.a, &near.b, &far.a, &far.b] {
            end.set_offload(Offload::TransmitChecksum, false).unwrap();
            end.set_offload(Offload::GenericReceive, false).unwrap();
        }
        let regions = Regions::new(16);
        let stations = [far.b.mac.0, near.a.mac.0];
        let paths = [(&near.b, NEAR, stations[0]), (&far.a, FAR, stations[1])];
        let drivers = paths.map(|(end, path, station)| {
            let framing = Framing::Ethernet { filter: Filter::any().station(station) };
            let config = PacketConfig::new(end.name.as_str(), framing).without_offload();
            let driver = bridge.enter(|| PacketDriver::open(path, &config, &regions));
            let seed = [seed.wrapping_mul(2) + path.0 as u8; 32];
            Faulty::new(driver.unwrap().unwrap(), faults, seed, &regions).unwrap()
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let relay = bridge.spawn("bridge", move || relay(drivers, &regions, &stopped)).unwrap();
        Self { near, far, kernel, stop, relay: Some(relay) }
    }

    pub fn station(&self) -> Station<PacketDriver> {
        let (driver, regions) = open(&self.near.a, shared(), PacketConfig::without_offload);
        let mut interface = interface(&self.near.a, self.near.a.mac.0);
        for address in [self.kernel.address(true), self.kernel.address(false)] {
            interface.neighbours.push((address, self.far.b.mac.0));
        }
        Station::new(Config::default(), interface, driver, regions)
    }

    /// Ends the bridge, and tells what went wrong on it: on the way to the
    /// station, and on the way to the kernel.
    pub fn finish(mut self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        self.relay.take().unwrap().join().unwrap().unwrap().unwrap()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
    }
}

fn relay(
    mut drivers: [Faulty<PacketDriver>; 2],
    regions: &Regions,
    stop: &AtomicBool,
) -> io::Result<Counts> {
    let memory = Memory::zeroed((FRAMES * ROOM) as usize);
    let region = regions.lend(memory, Rights::READ | Rights::WRITE).map_err(io::Error::other)?;
    let (mut relay, clock) = (Relay::new(region), Clock::start());
    while !stop.load(Ordering::Relaxed) {
        let mut moved = false;
        for driver in &mut drivers {
            moved |= driver.turn(&mut relay, clock.now())?.any();
        }
        if !moved {
            let interests: Vec<_> = drivers.iter().flat_map(Driver::interests).collect();
            wait::until_ready(&interests, Duration::from_millis(1))?;
        }
    }
    Ok(drivers.map(|driver| driver.counts()))
}
