//! The byte-stream test engine at work: a message is as much of the stream as
//! fills one slot.

use std::collections::VecDeque;

use anyhow::{Result, bail, ensure};
use landfall_placement::{Duration, Engine, Instant, PathState, Seed};
use landfall_test_engines::stream::{Config, Error, Event, Framing};
use landfall_test_engines::{Area, Stream};
use landfall_transport::memory::{Memory, Regions};

use super::pattern::Pattern;
use super::transport::{PATH, Role};
use super::work::{Ground, Party, Protocol, Sink, Source, Table, Talker, Way};

/// Makes the two ends of a stream, with work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamWork {
    pub(crate) send: Config,
    pub(crate) receive: Config,
    pub(crate) seed: Seed,
}

impl StreamWork {
    /// A stream with these headers, those of the sender, and the patience of
    /// kernel TCP.
    pub(crate) fn new(send: Framing, receive: Framing) -> Self {
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

    fn engine(&self, way: Way, role: Role) -> Stream {
        let mut engine = match role {
            Role::Send => Stream::connect(self.send, self.seed),
            Role::Receive => Stream::listen(self.receive, self.seed),
        };
        engine.handle_path(Instant::ZERO, way.path, PathState::Up(way.limits));
        engine
    }
}

/// The slots, shortened so that no unit is ever split by the end of one.
fn in_whole_units(engine: &Stream, ground: Ground) -> impl Fn(u64) -> Area + use<> {
    let unit = u64::from(engine.unit_payload().max(1));
    let len = (ground.message / unit * unit).max(unit.min(ground.message));
    move |nth| Area { len, ..ground.area(nth) }
}

impl Protocol for StreamWork {
    type Source = StreamSource;
    type Sink = StreamSink;
    type Talker = StreamTalker;

    fn source(&self, way: Way, ground: Ground) -> Result<StreamSource> {
        let engine = self.engine(way, Role::Send);
        let area = Box::new(in_whole_units(&engine, ground));
        Ok(StreamSource { engine, slots: ground.slots, area, offered: 0, done: 0 })
    }

    fn sink(&self, way: Way, ground: Ground) -> Result<StreamSink> {
        let mut engine = self.engine(way, Role::Receive);
        let area = in_whole_units(&engine, ground);
        for slot in 0..ground.slots {
            engine.receive_into(area(slot))?;
        }
        let holds = vec![None; ground.slots as usize];
        Ok(StreamSink { engine, ground, received: 0, holds })
    }

    fn talker(&self, way: Way, regions: &Regions, table: Table) -> Result<StreamTalker> {
        let mut engine = self.for_talk().engine(way, table.role);
        for nth in 0..Table::SLOTS {
            engine.receive_into(table.inward(nth))?;
        }
        let regions = regions.clone();
        Ok(StreamTalker { engine, regions, table, said: 0, done: 0, heard: VecDeque::new() })
    }
}

/// Sends slot after slot.
pub(crate) struct StreamSource {
    engine: Stream,
    slots: u64,
    area: Box<dyn Fn(u64) -> Area + Send>,
    offered: u64,
    /// The other side has so many of them.
    done: u64,
}

impl Party for StreamSource {
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
pub(crate) struct StreamSink {
    engine: Stream,
    ground: Ground,
    received: u64,
    /// The message that each slot holds and its length, unless it was posted again.
    holds: Vec<Option<(u64, usize)>>,
}

impl Party for StreamSink {
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
                let slot = (posted.offset / self.ground.message) as usize;
                self.holds[slot] = Some((message, len as usize));
            }
        }
        Ok(bytes)
    }

    fn delivered(&self) -> u64 {
        self.received
    }

    fn check(&self, memory: &Memory, sent: Ground) -> Result<u64> {
        let mut compared = 0;
        for (slot, bytes) in memory.chunks(self.ground.message as usize).enumerate() {
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
pub(crate) struct StreamTalker {
    engine: Stream,
    regions: Regions,
    table: Table,
    said: u64,
    done: u64,
    /// What arrived and was not heard yet.
    heard: VecDeque<Area>,
}

impl Party for StreamTalker {
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
    fn say(&mut self, _now: Instant, message: &[u8]) -> Result<bool> {
        self.sort_events()?;
        if self.said - self.done >= Table::SLOTS {
            return Ok(false);
        }
        let area = self.table.out(self.said);
        self.regions.write(&area.span(0, message.len() as u32), message)?;
        match self.engine.send(area) {
            Ok(()) => self.said += 1,
            Err(Error::Busy) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn hear(&mut self, message: &mut [u8]) -> Result<bool> {
        self.sort_events()?;
        let Some(area) = self.heard.pop_front() else { return Ok(false) };
        self.regions.read(&area.span(0, area.len as u32), message)?;
        self.engine.receive_into(area)?;
        Ok(true)
    }
}
