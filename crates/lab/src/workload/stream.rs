//! The byte-stream test engine at work: a message is as much of the stream as
//! fills one slot.

use std::collections::VecDeque;
use std::fmt;

use anyhow::{Result, bail, ensure};
use landfall_placement::{Duration, Engine, Instant, PathState, Seed};
use landfall_testkit::engines::stream::{Config, Error, Event, Framing};
use landfall_testkit::engines::{Area, Stream};
use landfall_transport::memory::{Memory, Regions};

use super::transport::{PATH, Role};
use super::{HasEngine, Pattern, Route, Sink, SlotLayout, Source, TalkMemory, Talker, Workload};

/// Makes the two ends of a stream, with work.
#[derive(Clone, Copy, Debug)]
pub struct StreamWork {
    /// How the sender is configured.
    pub send: Config,
    /// How the receiver is.
    pub receive: Config,
    /// The randomness of both.
    pub seed: Seed,
}

impl StreamWork {
    /// A stream with these headers, those of the sender, and the patience of
    /// kernel TCP.
    pub fn new(send: Framing, receive: Framing) -> Self {
        let config = |framing| Config {
            retransmit_after: Duration::from_millis(200),
            ..Config::new(framing, PATH).steady()
        };
        Self { send: config(send), receive: config(receive), seed: [7; 32] }
    }

    /// The same for short messages: the window that a header says is not
    /// scaled, so that room for a few bytes does not read as none.
    fn for_talk(self) -> Self {
        let small = |config| Config { window: u16::MAX.into(), ..config };
        Self { send: small(self.send), receive: small(self.receive), ..self }
    }

    fn engine(&self, route: Route, role: Role) -> Stream {
        let mut engine = match role {
            Role::Send => Stream::connect(self.send, self.seed),
            Role::Receive => Stream::listen(self.receive, self.seed),
        };
        engine.handle_path(Instant::ZERO, route.path, PathState::Up(route.limits));
        engine
    }
}

/// The slots, shortened so that no unit is ever split by the end of one.
fn in_whole_units(engine: &Stream, layout: SlotLayout) -> impl Fn(u64) -> Area + use<> {
    let unit = u64::from(engine.unit_payload().max(1));
    let len = (layout.message / unit * unit).max(unit.min(layout.message));
    move |nth| Area { len, ..layout.area(nth) }
}

impl Workload for StreamWork {
    type Source = StreamSource;
    type Sink = StreamSink;
    type Talker = StreamTalker;

    fn source(&self, route: Route, layout: SlotLayout) -> Result<StreamSource> {
        let engine = self.engine(route, Role::Send);
        let area = Box::new(in_whole_units(&engine, layout));
        Ok(StreamSource { engine, slots: layout.slots, area, offered: 0, done: 0 })
    }

    fn sink(&self, route: Route, layout: SlotLayout) -> Result<StreamSink> {
        let mut engine = self.engine(route, Role::Receive);
        let area = in_whole_units(&engine, layout);
        for slot in 0..layout.slots {
            engine.receive_into(area(slot))?;
        }
        let holds = vec![None; layout.slots as usize];
        Ok(StreamSink { engine, layout, received: 0, holds })
    }

    fn talker(&self, route: Route, regions: &Regions, memory: TalkMemory) -> Result<StreamTalker> {
        let mut engine = self.for_talk().engine(route, memory.role);
        for nth in 0..TalkMemory::SLOTS {
            engine.receive_into(memory.inward(nth))?;
        }
        let regions = regions.clone();
        Ok(StreamTalker { engine, regions, memory, said: 0, done: 0, heard: VecDeque::new() })
    }
}

/// Sends slot after slot.
pub struct StreamSource {
    engine: Stream,
    slots: u64,
    area: Box<dyn Fn(u64) -> Area + Send>,
    offered: u64,
    /// The other side has so many of them.
    done: u64,
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource").field("offered", &self.offered).finish_non_exhaustive()
    }
}

impl HasEngine for StreamSource {
    type Engine = Stream;

    fn engine(&mut self) -> &mut Stream {
        &mut self.engine
    }
}

impl Source for StreamSource {
    fn step(&mut self, _now: Instant, until: u64) -> Result<()> {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected => {}
                Event::Sent { .. } => self.done += 1,
                other => bail!("the sender was told {other:?}"),
            }
        }
        while self.offered < until && self.offered - self.done < self.slots {
            match self.engine.send((self.area)(self.offered)) {
                Ok(()) => self.offered += 1,
                Err(Error::Busy) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn offered(&self) -> u64 {
        self.offered
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn retransmitted(&self) -> u64 {
        self.engine.retransmitted()
    }
}

/// Receives into slot after slot.
#[derive(Debug)]
pub struct StreamSink {
    engine: Stream,
    layout: SlotLayout,
    received: u64,
    /// The message that each slot holds and its length, unless it was posted again.
    holds: Vec<Option<(u64, usize)>>,
}

impl HasEngine for StreamSink {
    type Engine = Stream;

    fn engine(&mut self) -> &mut Stream {
        &mut self.engine
    }
}

impl Sink for StreamSink {
    fn step(&mut self, repost: bool) -> Result<u64> {
        let mut bytes = 0;
        while let Some(event) = self.engine.poll_event() {
            let (posted, len) = match event {
                Event::Connected => continue,
                Event::Received { posted, len } => (posted, len),
                other => bail!("the receiver was told {other:?}"),
            };
            let message = self.received;
            self.received += 1;
            bytes += len;
            if repost {
                self.engine.receive_into(posted)?;
            } else {
                let slot = (posted.offset / self.layout.message) as usize;
                self.holds[slot] = Some((message, len as usize));
            }
        }
        Ok(bytes)
    }

    fn delivered(&self) -> u64 {
        self.received
    }

    fn check(&self, memory: &Memory, sent: SlotLayout) -> Result<u64> {
        let mut compared = 0;
        for (slot, bytes) in memory.chunks(self.layout.message as usize).enumerate() {
            let Some((message, len)) = self.holds[slot] else { continue };
            let wrong = Pattern(message % sent.slots).first_difference(&bytes[..len]);
            if let Some(at) = wrong {
                bail!("message {message} is wrong from its byte {at} on");
            }
            compared += len as u64;
        }
        ensure!(compared > 0, "no message was there to be compared");
        Ok(compared)
    }
}

/// Talks in messages that each fill one posted place.
#[derive(Debug)]
pub struct StreamTalker {
    engine: Stream,
    regions: Regions,
    memory: TalkMemory,
    said: u64,
    done: u64,
    /// What arrived and was not heard yet.
    heard: VecDeque<Area>,
}

impl HasEngine for StreamTalker {
    type Engine = Stream;

    fn engine(&mut self) -> &mut Stream {
        &mut self.engine
    }
}

impl StreamTalker {
    fn sort_events(&mut self) -> Result<()> {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected => {}
                Event::Sent { .. } => self.done += 1,
                Event::Received { posted, len } if len == posted.len => {
                    self.heard.push_back(posted);
                }
                other => bail!("a talker was told {other:?}"),
            }
        }
        Ok(())
    }
}

impl Talker for StreamTalker {
    fn send(&mut self, _now: Instant, message: &[u8]) -> Result<bool> {
        self.sort_events()?;
        if self.said - self.done >= TalkMemory::SLOTS {
            return Ok(false);
        }
        let area = self.memory.out(self.said);
        self.regions.write(&area.span(0, message.len() as u32), message)?;
        match self.engine.send(area) {
            Ok(()) => self.said += 1,
            Err(Error::Busy) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<bool> {
        self.sort_events()?;
        let Some(area) = self.heard.pop_front() else { return Ok(false) };
        self.regions.read(&area.span(0, area.len as u32), message)?;
        self.engine.receive_into(area)?;
        Ok(true)
    }
}
