//! The scheduled test engine at work.

use std::collections::VecDeque;

use anyhow::{Result, bail, ensure};
use landfall_placement::{Duration, Engine, Instant, PathState, Seed};
use landfall_testkit::engines::numbered::{Config, Error, Event, MessageId};
use landfall_testkit::engines::{Area, Numbered};
use landfall_transport::memory::{Memory, Regions};

use super::bulk::Shape;
use super::transport::receive_buffer;
use super::{HasEngine, Pattern, Route, Sink, SlotLayout, Source, TalkMemory, Talker, Workload};

/// Messages are a multiple of this long.
const GRANULE: usize = 16 << 10;
/// So many messages under way keep a path busy; each has a window of its own.
const UNDER_WAY: u32 = 3;
/// Of the receive buffer a window takes so much: a queued datagram takes more
/// kernel memory than it has bytes.
const BUFFER_PER_WINDOW: u32 = 8;

/// Makes numbered engines with work.
#[derive(Clone, Copy, Debug)]
pub struct NumberedWork {
    /// How both engines are configured.
    pub config: Config,
    /// Their randomness.
    pub seed: Seed,
}

impl NumberedWork {
    /// With so many payload bytes in each unit, and the patience of kernel TCP
    /// (`TCP_RTO_MIN`): on a busy machine a thread may have to wait for its core.
    pub fn with_unit(unit: u32) -> Self {
        let usual = Config::with_unit(unit);
        let config = Config {
            retransmit_after: Duration::from_millis(200),
            window: usual.window.min(receive_buffer() / BUFFER_PER_WINDOW),
            outgoing: UNDER_WAY as usize,
            ..usual
        };
        Self { config, seed: [7; 32] }
    }

    /// Messages as long as the window: a longer one would have to wait for
    /// room, the next would go meanwhile, and guesses would miss.
    pub fn shape(&self) -> Shape {
        let window = (self.config.window as usize / GRANULE * GRANULE).max(GRANULE);
        Shape { message: Shape::STREAM.message.min(window), ..Shape::STREAM }
    }

    fn engine(&self, route: Route, side: u8) -> Numbered {
        let mut seed = self.seed;
        seed[31] ^= side;
        let mut engine = Numbered::new(self.config, seed);
        engine.handle_path(Instant::ZERO, route.path, PathState::Up(route.limits));
        engine
    }
}

impl Workload for NumberedWork {
    type Source = NumberedSource;
    type Sink = NumberedSink;
    type Talker = NumberedTalker;

    fn source(&self, route: Route, layout: SlotLayout) -> Result<NumberedSource> {
        let engine = self.engine(route, 1);
        Ok(NumberedSource { engine, route, layout, offered: 0, under_way: VecDeque::new() })
    }

    fn sink(&self, route: Route, layout: SlotLayout) -> Result<NumberedSink> {
        let mut engine = self.engine(route, 2);
        for slot in 0..layout.slots {
            engine.receive_into(layout.area(slot))?;
        }
        let holds = vec![None; layout.slots as usize];
        Ok(NumberedSink { engine, layout, delivered: 0, holds })
    }

    fn talker(
        &self,
        route: Route,
        regions: &Regions,
        memory: TalkMemory,
    ) -> Result<NumberedTalker> {
        // Short messages are under way until the other side has time to say that it has them.
        let config = Config { outgoing: TalkMemory::SLOTS as usize / 2, ..self.config };
        let mut engine = Self { config, ..*self }.engine(route, 1 + memory.role as u8);
        for nth in 0..TalkMemory::SLOTS {
            engine.receive_into(memory.inward(nth))?;
        }
        let regions = regions.clone();
        Ok(NumberedTalker { engine, route, regions, memory, said: 0, heard: VecDeque::new() })
    }
}

/// Sends slot after slot.
#[derive(Debug)]
pub struct NumberedSource {
    engine: Numbered,
    route: Route,
    layout: SlotLayout,
    offered: u64,
    /// Messages that are not acknowledged, and which they are, oldest first.
    under_way: VecDeque<(MessageId, u64)>,
}

impl HasEngine for NumberedSource {
    type Engine = Numbered;

    fn engine(&mut self) -> &mut Numbered {
        &mut self.engine
    }
}

impl NumberedSource {
    /// The slot of the next message is the engine's while that of a round
    /// before is under way.
    fn next_slot_is_free(&self) -> bool {
        self.under_way.front().is_none_or(|(_, oldest)| self.offered - oldest < self.layout.slots)
    }
}

impl Source for NumberedSource {
    fn step(&mut self, now: Instant, until: u64) -> Result<()> {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Sent { message } => self.under_way.retain(|(id, _)| *id != message),
                other => bail!("the sender was told {other:?}"),
            }
        }
        while self.offered < until && self.next_slot_is_free() {
            let area = self.layout.area(self.offered);
            match self.engine.send(now, self.route.path, self.route.to, area) {
                Ok(id) => self.under_way.push_back((id, self.offered)),
                Err(Error::Busy) => break,
                Err(error) => return Err(error.into()),
            }
            self.offered += 1;
        }
        Ok(())
    }

    fn offered(&self) -> u64 {
        self.offered
    }

    fn done(&self) -> u64 {
        self.offered - self.under_way.len() as u64
    }

    fn retransmitted(&self) -> u64 {
        self.engine.retransmitted()
    }
}

/// Receives into slot after slot.
#[derive(Debug)]
pub struct NumberedSink {
    engine: Numbered,
    layout: SlotLayout,
    delivered: u64,
    /// The message that each slot holds, unless it was posted again.
    holds: Vec<Option<u32>>,
}

impl HasEngine for NumberedSink {
    type Engine = Numbered;

    fn engine(&mut self) -> &mut Numbered {
        &mut self.engine
    }
}

impl Sink for NumberedSink {
    fn step(&mut self, repost: bool) -> Result<u64> {
        let mut bytes = 0;
        while let Some(event) = self.engine.poll_event() {
            let Event::Delivered { message, posted, len, .. } = event else {
                bail!("the receiver was told {event:?}");
            };
            bytes += len;
            self.delivered += 1;
            if repost {
                self.engine.receive_into(posted)?;
            } else {
                self.holds[(posted.offset / self.layout.message) as usize] = Some(message);
            }
        }
        Ok(bytes)
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }

    fn check(&self, memory: &Memory, sent: SlotLayout) -> Result<u64> {
        let mut compared = 0;
        for (slot, bytes) in memory.chunks(self.layout.message as usize).enumerate() {
            let Some(message) = self.holds[slot] else { continue };
            let wrong = Pattern(u64::from(message) % sent.slots).first_difference(bytes);
            if let Some(at) = wrong {
                bail!("message {message} is wrong from its byte {at} on");
            }
            compared += bytes.len() as u64;
        }
        ensure!(compared > 0, "no message was there to be compared");
        Ok(compared)
    }
}

/// Talks in messages that fit one unit.
#[derive(Debug)]
pub struct NumberedTalker {
    engine: Numbered,
    route: Route,
    regions: Regions,
    memory: TalkMemory,
    said: u64,
    /// What arrived and was not heard yet.
    heard: VecDeque<(Area, u64)>,
}

impl HasEngine for NumberedTalker {
    type Engine = Numbered;

    fn engine(&mut self) -> &mut Numbered {
        &mut self.engine
    }
}

impl NumberedTalker {
    fn sort_events(&mut self) -> Result<()> {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Delivered { posted, len, .. } => self.heard.push_back((posted, len)),
                Event::Sent { .. } => {}
                other => bail!("a talker was told {other:?}"),
            }
        }
        Ok(())
    }
}

impl Talker for NumberedTalker {
    fn send(&mut self, now: Instant, message: &[u8]) -> Result<bool> {
        self.sort_events()?;
        // More slots than the engine sends messages at a time, so this one is free.
        let area = self.memory.out(self.said);
        self.regions.write(&area.span(0, message.len() as u32), message)?;
        match self.engine.send(now, self.route.path, self.route.to, area) {
            Ok(_) => self.said += 1,
            Err(Error::Busy) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<bool> {
        self.sort_events()?;
        let Some((area, len)) = self.heard.pop_front() else { return Ok(false) };
        ensure!(len == message.len() as u64, "{len} bytes came instead of {}", message.len());
        self.regions.read(&area.span(0, len as u32), message)?;
        self.engine.receive_into(area)?;
        Ok(true)
    }
}
