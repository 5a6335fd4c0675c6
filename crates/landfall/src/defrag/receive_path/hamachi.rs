//! Frames that a simulated Hamachi puts behind the descriptors of its lists: the card stands
//! between the socket and the engine, whose guesses its driver loads into it.

use std::io;

use landfall_placement::{Area, Duration, Ecn, Instant, PathId, Peer, RegionId, Span};
use landfall_transport::driver::Interest;
use landfall_transport::memory::{LendRefusal, Memory, Pins, Regions, Rights};
use landfall_transport::scatter::{
    Descriptor as Place, FRAME_MAX, HEAD_SLOT, MOST_DESCRIPTORS, Posted, Socket,
};
use nic_firmware_model::driver::{Pace, hamachi};
use nic_firmware_model::firmware::{Arrival, HostMemory};
use nic_firmware_model::hamachi::{DriverConfig, Hamachi, HostRam, Loader};
use nic_firmware_model::machine::Adapter;
use spec_defrag::{Descriptor, Receiver as Engine};

use super::super::packet::Held;
use super::{KernelCounts, Moved, Receive as _, ReceivePath};

/// Offers the engine frames that a simulated Hamachi received.
#[derive(Debug)]
pub(in super::super) struct HamachiPath {
    socket: Socket,
    /// Where frames lie before the card has them: its cable.
    cable: Posted,
    card: Adapter<'static, Hamachi<'static>>,
    loader: Loader,
    ram: Ram,
    /// Of this list this many descriptors were used, told of or not.
    used: (u32, usize),
    /// What time it was.
    now: Instant,
}

impl HamachiPath {
    /// A card between this socket and an engine whose lists have this many descriptors.
    pub(in super::super) fn new(
        socket: Socket,
        regions: &Regions,
        burst: u16,
        pace: Pace,
    ) -> Result<Self, LendRefusal> {
        Ok(Self {
            socket,
            cable: Posted::new(&Regions::new(2), MOST_DESCRIPTORS)?,
            card: hamachi(burst, FRAME_MAX, pace),
            loader: Loader::new(DriverConfig::default()),
            ram: Ram::new(regions, burst)?,
            used: (0, 0),
            now: Instant::ZERO,
        })
    }

    /// Adapter and driver do what they have to do now.
    fn run(&mut self, engine: &mut Engine, now: Instant, may_begin: bool) {
        self.now = now;
        self.loader.run(now, (&mut self.card, may_begin), engine, &mut self.ram);
        self.ram.pins.release();
    }

    /// This many frames find a descriptor, and a slot before that.
    fn room(&mut self) -> usize {
        let Some((list, len)) = self.loader.list() else { return 0 };
        if self.used.0 != list {
            self.used = (list, 0);
        }
        len.saturating_sub(self.used.1).min(self.card.slots_free())
    }

    /// Receives as many frames as there is room for, and puts them on the cable.
    fn receive(&mut self, now: Instant) -> io::Result<usize> {
        let nowhere = Span { region: RegionId::new(0, 0), offset: 0, len: 0 };
        let whole = Place { head_len: 0, place: nowhere };
        let list = std::iter::repeat_n(whole, self.room());
        self.cable.post(list).map_err(io::Error::other)?;
        let came = self.socket.receive(&mut self.cable)?;
        let spill = self.cable.spill();
        let (lens, memory) = self.cable.burst();
        let mut frame = Vec::new();
        for (slot, len) in (0u64..).zip(lens.iter().take(came)) {
            frame.resize(*len as usize, 0);
            let at = spill.region.span(slot * u64::from(FRAME_MAX), *len);
            if *len == 0 || memory.read(&at, &mut frame).is_err() {
                continue;
            }
            let (path, from) = (PathId(0), Peer::Unaddressed);
            let arrival = Arrival { bytes: &frame, path, from, ecn: Ecn::NotCapable };
            // The card counts what it loses.
            let _ = self.card.arrive(now, &arrival);
            self.used.1 += 1;
            self.card.run(now, &mut self.ram);
        }
        Ok(came)
    }
}

impl ReceivePath for HamachiPath {
    fn slots(&self) -> (Area, Area) {
        (self.ram.heads, self.ram.spill)
    }

    fn turn(&mut self, engine: &mut Engine, now: Instant) -> io::Result<Moved> {
        let lists = self.loader.counters().settled;
        self.run(engine, now, true);
        if self.loader.is_idle() {
            return Ok(Moved::NoPages);
        }
        let came = if self.room() > 0 { self.receive(now)? } else { 0 };
        if came > 0 {
            self.run(engine, now, false);
        }
        let is_settled = self.loader.counters().settled != lists;
        Ok(if came > 0 || is_settled { Moved::Frames } else { Moved::Nothing })
    }

    fn handle_timeout(&mut self, engine: &mut Engine, now: Instant) {
        self.loader.handle_timeout();
        self.run(engine, now, false);
    }

    fn read(&mut self, span: &Span, into: &mut [u8]) {
        let read = self.ram.pins.peek(span, into);
        debug_assert_eq!(read, Ok(()), "{span}");
    }

    /// Frames are taken apart: none lies anywhere.
    fn hold(&self, _bunches: &[u64]) -> Option<Held> {
        None
    }

    fn release(&mut self, _engine: &Engine) {}

    fn interests(&self, into: &mut Vec<Interest>) {
        into.push(self.socket.interest());
    }

    fn look_again(&self) -> Option<Duration> {
        self.card.poll_timeout().map(|at| at.since(self.now))
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        self.socket.heard()
    }
}

/// The memory that card, driver and engine name: slots of the lane, and pages.
#[derive(Debug)]
struct Ram {
    regions: Regions,
    pins: Pins,
    heads: Area,
    spill: Area,
    /// The heads as the engine looks at them, and how far each is filled.
    shown: Vec<u8>,
    filled: Vec<u16>,
}

impl Ram {
    fn new(regions: &Regions, slots: u16) -> Result<Self, LendRefusal> {
        let rights = Rights::from_bits(Rights::READ.bits() | Rights::WRITE.bits());
        let area = |stride: u32| {
            let len = u64::from(slots) * u64::from(stride);
            let region = regions.lend(Memory::zeroed(len as usize), rights);
            region.map(|region| Area::new(region, 0, len)).map_err(|error| error.why)
        };
        Ok(Self {
            heads: area(HEAD_SLOT)?,
            spill: area(FRAME_MAX)?,
            shown: vec![0; usize::from(slots) * HEAD_SLOT as usize],
            filled: vec![0; slots.into()],
            pins: Pins::new(regions),
            regions: regions.clone(),
        })
    }
}

impl HostMemory for Ram {
    fn is_writable(&self, span: Span) -> bool {
        let is_within = |len| span.end().is_some_and(|end| end <= len);
        let rights = self.regions.rights(span.region);
        rights.is_ok_and(|rights| rights.contains(Rights::WRITE))
            && self.regions.len(span.region).is_ok_and(is_within)
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> bool {
        self.pins.copy_in(&span, bytes).is_ok()
    }

    fn read(&self, span: Span, into: &mut [u8]) -> bool {
        self.pins.peek(&span, into).is_ok()
    }
}

impl HostRam for Ram {
    fn buffers(&self, n: u16, descriptor: &Descriptor) -> [Span; 3] {
        let n = u64::from(n);
        let head = self.heads.region.span(n * u64::from(HEAD_SLOT), descriptor.head_len.into());
        let spill = self.spill.region.span(n * u64::from(FRAME_MAX), FRAME_MAX);
        [head, descriptor.place, spill]
    }

    fn set_head(&mut self, slot: u16, len: u16) {
        let (at, end) = (usize::from(slot) * HEAD_SLOT as usize, usize::from(len));
        let Some(filled) = self.filled.get_mut(usize::from(slot)) else { return };
        let Some(shown) = self.shown.get_mut(at..at + end) else { return };
        let span = self.heads.region.span(at as u64, len.into());
        *filled = if self.pins.peek(&span, shown).is_ok() { len } else { 0 };
    }

    fn frame_buffer(&self, _nth: u16) -> Span {
        // No buffers for whole frames are given to the card.
        self.spill.region.span(0, 0)
    }
}

impl spec_defrag::Memory for Ram {
    fn head(&self, slot: u16) -> &[u8] {
        let at = usize::from(slot) * HEAD_SLOT as usize;
        let filled = self.filled.get(usize::from(slot)).copied().unwrap_or(0);
        self.shown.get(at..at + usize::from(filled)).unwrap_or_default()
    }

    fn copy(&mut self, from: Span, to: Span) {
        let copied = self.pins.copy(&from, &to);
        debug_assert_eq!(copied, Ok(()), "{from} to {to}");
    }

    fn read(&self, from: Span, into: &mut [u8]) {
        let read = self.pins.peek(&from, into);
        debug_assert_eq!(read, Ok(()), "{from}");
    }
}
