//! Bursts of frames at the ends of a cable.
use std::time::{Duration as StdDuration, Instant as StdInstant};

use landfall_placement::{Duration, RegionId, Span};
use landfall_testbed::VethEnd;
use landfall_transport::OpenError;
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::packet::Filter;
use landfall_transport::scatter::{Config, Descriptor, FRAME_MAX, Posted, Socket};
use landfall_transport::wait::until_ready;

use crate::support::PATIENCE;

/// A table with one region that may be read and written.
pub fn pages(len: usize) -> (Regions, RegionId) {
    let regions = Regions::new(16);
    let region = regions.lend(Memory::zeroed(len), Rights::READ | Rights::WRITE).unwrap();
    (regions, region)
}

pub fn open(end: &VethEnd, config: &Config, regions: &Regions) -> Result<Socket, OpenError> {
    end.namespace.enter(|| Socket::open(config, regions)).unwrap()
}

/// One that hears everything that passes the filter.
pub fn socket(end: &VethEnd, filter: Filter, regions: &Regions) -> Socket {
    open(end, &Config::new(end.name.as_str(), filter), regions).unwrap()
}

/// Slots of a list.
const SLOTS: usize = 128;
/// Each slot has a page of this many bytes.
pub const PAGE: u64 = 4096;

/// A socket with a list and pages.
pub struct Receiver {
    pub socket: Socket,
    pub posted: Posted,
    pub regions: Regions,
    pub region: RegionId,
    /// Frames of the last burst.
    pub last: usize,
    list: Vec<Descriptor>,
    /// Receives through this, if there is one.
    #[cfg(feature = "io-uring")]
    pub ring: Option<landfall_transport::uring::UringBurst>,
}

impl Receiver {
    pub fn open(end: &VethEnd, filter: Filter) -> Self {
        Self::open_as(end, &Config::new(end.name.as_str(), filter)).unwrap()
    }

    pub fn open_as(end: &VethEnd, config: &Config) -> Result<Self, OpenError> {
        let (regions, region) = pages(SLOTS * PAGE as usize);
        let posted = Posted::new(&regions, SLOTS).unwrap();
        let socket = open(end, config, &regions)?;
        Ok(Self {
            socket,
            posted,
            regions,
            region,
            last: 0,
            list: Vec::new(),
            #[cfg(feature = "io-uring")]
            ring: None,
        })
    }

    /// System calls that received something.
    pub fn calls(&self) -> u64 {
        self.socket.counters().receive_calls
    }

    /// Posts a list and receives what waits. Of each place only the length
    /// counts: it begins where the slot's page does.
    pub fn try_receive(&mut self, mut descriptor: impl FnMut(usize) -> Descriptor) -> usize {
        self.list = (0..SLOTS)
            .map(|slot| {
                let Descriptor { head_len, place } = descriptor(slot);
                let place = match place.len {
                    0 => Span::default(),
                    len => self.region.span(slot as u64 * PAGE, len),
                };
                Descriptor { head_len, place }
            })
            .collect();
        self.posted.post(self.list.iter().copied()).unwrap();
        self.last = self.receive_posted();
        self.last
    }

    fn receive_posted(&mut self) -> usize {
        #[cfg(feature = "io-uring")]
        if let Some(ring) = &mut self.ring {
            return ring.receive(&mut self.socket, &mut self.posted).unwrap();
        }
        self.socket.receive(&mut self.posted).unwrap()
    }

    /// The frames of the last burst, each put together again.
    pub fn gathered(&mut self) -> Vec<Vec<u8>> {
        let spill = self.posted.spill();
        let (lens, memory) = self.posted.burst();
        let slots = lens.iter().zip(&self.list).enumerate();
        slots
            .map(|(slot, (len, descriptor))| {
                let mut frame = memory.head(slot as u16).to_vec();
                let in_place = descriptor.place.split_at(len - frame.len() as u32).0;
                let spilled = len - frame.len() as u32 - in_place.len;
                let spilled = spill.span(slot as u64 * u64::from(FRAME_MAX), spilled);
                for span in [in_place, spilled].iter().filter(|span| span.len > 0) {
                    let from = frame.len();
                    frame.resize(from + span.len as usize, 0);
                    memory.read(span, &mut frame[from..]).unwrap();
                }
                frame
            })
            .collect()
    }

    /// Receives until this many frames came, in as many bursts as it takes.
    pub fn receive(
        &mut self,
        count: usize,
        mut descriptor: impl FnMut(usize) -> Descriptor,
    ) -> Vec<Vec<u8>> {
        let deadline = StdInstant::now() + PATIENCE;
        let mut frames = Vec::new();
        while frames.len() < count {
            assert!(StdInstant::now() < deadline, "{} of {count} frames came", frames.len());
            if self.try_receive(&mut descriptor) == 0 {
                self.sleep();
            }
            frames.extend(self.gathered());
        }
        frames
    }

    /// Receives one burst into this very list, once all of it waits.
    pub fn receive_into(&mut self, list: &[Descriptor]) -> Vec<u32> {
        let deadline = StdInstant::now() + PATIENCE;
        let waits = |socket: &mut Socket| socket.statistics().unwrap().frames as usize;
        while waits(&mut self.socket) < list.len() {
            assert!(StdInstant::now() < deadline, "not all frames came");
            std::thread::sleep(StdDuration::from_millis(1));
        }
        self.posted.post(list.iter().copied()).unwrap();
        assert_eq!(self.socket.receive(&mut self.posted).unwrap(), list.len());
        self.posted.lens().to_vec()
    }

    fn sleep(&mut self) {
        self.posted.release();
        until_ready(&[self.socket.interest()], Duration::from_millis(100)).unwrap();
    }
}
