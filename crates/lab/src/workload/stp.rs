//! The Scheduled Transfer Work at work: a connection, Transfers over it,
//! and Puts into a region of the other side.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use landfall_placement::checksum::sum_of;
use landfall_placement::{Area, Duration, Engine, Instant, PathState, Seed};
use landfall_transport::memory::{Memory, Pins, Regions};
use stp_core::{
    Admission, Config, Connect, ConnectionId, Endpoint, Error, Event, ReceiveId, RemoteRegion,
    Rights, SendId,
};

use super::bulk::Shape;
use super::transport::{Role, receive_buffer};
use super::{HasEngine, Pattern, Route, Sink, SlotLayout, Source, TalkMemory, Talker, Workload};

const PORT: u16 = 1;
/// Transfers of long messages under way at a time: the next are asked for while others are
/// sent.
pub(super) const UNDER_WAY: usize = 16;
/// Up to this length a window of Transfers is no window of bytes that matters: as many are
/// under way as the other side answers at a time. Fewer would make both sides sleep in turn,
/// three times for each window, and on a busy machine each time is a turn of the scheduler.
const SHORT: u64 = 64 << 10;
/// Of the receive buffer what is granted takes so much: a queued datagram takes
/// more kernel memory than it has bytes.
const BUFFER_PER_WINDOW: u32 = 3;

/// Makes STP endpoints with work.
#[derive(Clone, Debug)]
pub struct StpWork {
    /// How both engines are configured.
    pub config: Config,
    /// Their randomness.
    pub seed: Seed,
    /// The connections that Transfers go over, in turn.
    pub connections: u32,
    /// The receiver reads every byte of a Transfer before its place is used again.
    pub touch: Option<Touch>,
}

/// What a receiver needs that reads what came.
#[derive(Clone, Debug)]
pub struct Touch {
    /// Its memory.
    pub regions: Regions,
    /// What the bytes of each of the sender's slots come to.
    pub sums: Arc<[u16]>,
}

impl Touch {
    /// The sums of what a sender with this memory sends.
    pub fn sums(shape: Shape) -> Arc<[u16]> {
        let mut bytes = vec![0; shape.message];
        let mut sum = |slot| {
            Pattern(slot).fill(&mut bytes);
            sum_of(&bytes)
        };
        (0..shape.send_slots as u64).map(&mut sum).collect()
    }
}

impl StpWork {
    /// With STUs of this size, or as long as the path's packets hold if that is less and it
    /// is no power of two; and with the patience of kernel TCP
    /// (`TCP_RTO_MIN`): on a busy machine a thread may have to wait for its core.
    pub fn with_stu(stu: u32) -> Self {
        let patience = Duration::from_millis(200);
        let usual = Config::default();
        let config = Config {
            max_stu: stu.next_power_of_two().ilog2() as u8,
            window: usual.window.min(Self::room()),
            retry_after: patience,
            retry_floor: patience,
            ..usual
        };
        Self { config, seed: [9; 32], connections: 1, touch: None }
    }

    /// The same with less patience, for paths that lose something.
    pub fn impatient(mut self) -> Self {
        let usual = Config::default();
        self.config.retry_after = usual.retry_after;
        self.config.retry_floor = usual.retry_floor;
        self
    }

    /// Transfers of 1 MiB, over as much memory as others use.
    pub const SHAPE: Shape = Shape {
        message: 1 << 20,
        send_slots: Shape::STREAM.send_slots << 2,
        receive_slots: Shape::STREAM.receive_slots << 2,
    };

    /// The same with messages of another length: as many places as there are for 1 MiB,
    /// fewer of longer ones, and twice as many of short ones, of which more are under way.
    pub const fn shape(message: usize) -> Shape {
        if message as u64 <= SHORT {
            let slots = Self::SHAPE.send_slots << 1;
            return Shape { message, send_slots: slots, receive_slots: slots - 1 };
        }
        if message <= Self::SHAPE.message {
            return Shape { message, ..Self::SHAPE };
        }
        let slots = Self::SHAPE.message * Self::SHAPE.send_slots / message;
        Shape { message, send_slots: slots, receive_slots: slots - 1 }
    }

    /// What may be granted where the receive buffer is what bounds it: whole
    /// Transfers if it holds one, since one that is granted in two parts has
    /// others between them, and guesses miss.
    fn room() -> u64 {
        let room = u64::from(receive_buffer() / BUFFER_PER_WINDOW);
        let transfer = Self::SHAPE.message as u64;
        if room < transfer { room } else { room / transfer * transfer }
    }

    /// So many Transfers of this length are under way at a time.
    fn under_way(&self, message: u64) -> usize {
        let most = if message <= SHORT { usize::from(self.config.slots) } else { UNDER_WAY };
        most.max(self.connections as usize)
    }

    fn endpoint(&self, route: Route, side: u8) -> Endpoint {
        let mut seed = self.seed;
        seed[31] ^= side;
        let mut endpoint = Endpoint::new(self.config.clone(), seed);
        endpoint.handle_path(Instant::ZERO, route.path, PathState::Up(route.limits));
        endpoint
    }
}

impl Workload for StpWork {
    type Source = StpSource;
    type Sink = StpSink;
    type Talker = StpTalker;

    fn source(&self, route: Route, layout: SlotLayout) -> Result<StpSource> {
        let mut engine = self.endpoint(route, 1);
        let connect = Connect { port: PORT, ..Connect::default() };
        let connect = |_| engine.connect(Instant::ZERO, route.path, route.to, connect);
        let connections = (0..self.connections).map(connect).collect::<Result<_, _>>()?;
        let (most, under_way) = (self.under_way(layout.message), VecDeque::new());
        Ok(StpSource { engine, connections, layout, offered: 0, under_way, most })
    }

    fn sink(&self, route: Route, layout: SlotLayout) -> Result<StpSink> {
        let mut engine = self.endpoint(route, 2);
        engine.listen(PORT, Admission::Open)?;
        let holds = vec![None; layout.slots as usize];
        let free = (0..layout.slots).collect();
        let waiting = VecDeque::new();
        let toucher =
            self.touch.as_ref().map(|touch| (Pins::new(&touch.regions), touch.sums.clone()));
        Ok(StpSink { engine, layout, free, waiting, delivered: 0, holds, toucher })
    }

    fn talker(&self, route: Route, regions: &Regions, memory: TalkMemory) -> Result<StpTalker> {
        let mut engine = self.endpoint(route, 1 + memory.role as u8);
        let connection = if memory.role == Role::Send {
            let connect = Connect { port: PORT, ..Connect::default() };
            Some(engine.connect(Instant::ZERO, route.path, route.to, connect)?)
        } else {
            engine.listen(PORT, Admission::Open)?;
            None
        };
        let (regions, region) = (regions.clone(), None);
        Ok(StpTalker { engine, connection, region, regions, memory, put: 0, done: 0, heard: 0 })
    }
}

/// Sends slot after slot.
#[derive(Debug)]
pub struct StpSource {
    engine: Endpoint,
    connections: Vec<ConnectionId>,
    layout: SlotLayout,
    offered: u64,
    /// Transfers that are not acknowledged, and which they are, oldest first.
    under_way: VecDeque<(SendId, u64)>,
    /// No more of them.
    most: usize,
}

impl HasEngine for StpSource {
    type Engine = Endpoint;

    fn engine(&mut self) -> &mut Endpoint {
        &mut self.engine
    }
}

impl StpSource {
    /// The slot of the next message is the engine's while that of a round
    /// before is under way.
    fn next_slot_is_free(&self) -> bool {
        self.under_way.front().is_none_or(|(_, oldest)| self.offered - oldest < self.layout.slots)
    }
}

impl Source for StpSource {
    fn step(&mut self, now: Instant, until: u64) -> Result<()> {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected { .. } => {}
                Event::Sent { send, .. } => self.under_way.retain(|(id, _)| *id != send),
                other => bail!("the sender was told {other:?}"),
            }
        }
        let is_open = self.connections.iter().all(|id| self.engine.is_open(*id));
        while is_open
            && self.offered < until
            && self.under_way.len() < self.most
            && self.next_slot_is_free()
        {
            let area = self.layout.area(self.offered);
            let connection = self.connections[self.offered as usize % self.connections.len()];
            match self.engine.send(now, connection, area, self.offered as u32) {
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
        // What was sent beyond the bytes of the messages, in STUs.
        let stats = self.engine.stats();
        let again = stats.bytes_sent.saturating_sub(self.offered * self.layout.message);
        (again * stats.stus_sent).div_ceil(stats.bytes_sent.max(1))
    }
}

/// Receives into whatever slot is free.
#[derive(Debug)]
pub struct StpSink {
    engine: Endpoint,
    layout: SlotLayout,
    free: VecDeque<u64>,
    /// What was offered while no slot was free.
    waiting: VecDeque<ReceiveId>,
    delivered: u64,
    /// The message that each slot holds, unless it is used again.
    holds: Vec<Option<u32>>,
    /// Reads what came, and knows what it comes to.
    toucher: Option<(Pins, Arc<[u16]>)>,
}

impl HasEngine for StpSink {
    type Engine = Endpoint;

    fn engine(&mut self) -> &mut Endpoint {
        &mut self.engine
    }
}

impl StpSink {
    /// Reads every byte of a message where it lies, and sees that it is the right one.
    fn touch(&mut self, memory: Area, message: u32) -> Result<()> {
        let Some((pins, sums)) = &mut self.toucher else { return Ok(()) };
        let sum = pins.sum(&[memory.span(0, u32::try_from(memory.len)?)])?;
        pins.release();
        let expected = sums[message as usize % sums.len()];
        ensure!(sum.sum() == expected, "message {message} has another sum than what was sent");
        Ok(())
    }

    /// Gives what was offered the slots that are free.
    fn accept(&mut self) -> Result<()> {
        while !self.free.is_empty()
            && let Some(offer) = self.waiting.pop_front()
            && let Some(slot) = self.free.pop_front()
        {
            self.holds[slot as usize] = None;
            self.engine.accept(Instant::ZERO, offer, self.layout.area(slot), false)?;
        }
        Ok(())
    }
}

impl Sink for StpSink {
    fn step(&mut self, repost: bool) -> Result<u64> {
        let mut bytes = 0;
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Accepted { .. } => {}
                Event::Received { memory, len, opaque, .. } => {
                    bytes += len;
                    self.delivered += 1;
                    self.touch(memory, opaque)?;
                    let slot = memory.offset / self.layout.message;
                    self.holds[slot as usize] = Some(opaque);
                    if repost {
                        self.free.push_back(slot);
                    }
                }
                Event::Offered { receive, .. } => self.waiting.push_back(receive),
                other => bail!("the receiver was told {other:?}"),
            }
        }
        self.accept()?;
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

/// Puts into a region of the other side, and hears the acknowledgement. The
/// other side has nothing to say: its engine answers.
#[derive(Debug)]
pub struct StpTalker {
    engine: Endpoint,
    connection: Option<ConnectionId>,
    region: Option<RemoteRegion>,
    regions: Regions,
    memory: TalkMemory,
    put: u64,
    done: u64,
    heard: u64,
}

impl HasEngine for StpTalker {
    type Engine = Endpoint;

    fn engine(&mut self) -> &mut Endpoint {
        &mut self.engine
    }
}

impl StpTalker {
    fn sort_events(&mut self, now: Instant) -> Result<()> {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected { connection, .. } => {
                    let len = TalkMemory::ROOM as u64;
                    self.engine.request_region(now, connection, 0, len, Rights::PUT)?;
                }
                Event::Accepted { .. } => {}
                Event::RegionAsked { ask, len, .. } => {
                    let area = Area::new(self.memory.region, 0, len);
                    self.engine.expose(ask, area, Rights::PUT)?;
                }
                Event::RegionAvailable { region, .. } => self.region = Some(region),
                Event::PutDone { .. } => self.done += 1,
                other => bail!("a talker was told {other:?}"),
            }
        }
        Ok(())
    }
}

impl Talker for StpTalker {
    fn send(&mut self, now: Instant, message: &[u8]) -> Result<bool> {
        self.sort_events(now)?;
        let (Some(region), Some(connection)) = (self.region, self.connection) else {
            return Ok(false);
        };
        let area = self.memory.out(self.put);
        self.regions.write(&area.span(0, message.len() as u32), message)?;
        let at = self.memory.inward(self.put).offset;
        self.engine.put(now, connection, &region, at, area, false)?;
        self.put += 1;
        Ok(true)
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<bool> {
        self.sort_events(Instant::ZERO)?;
        if self.heard == self.done {
            return Ok(false);
        }
        // What was acknowledged is what was put.
        let area = self.memory.out(self.heard);
        self.regions.read(&area.span(0, message.len() as u32), message)?;
        self.heard += 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With sixteen at a time both sides slept most of the time, and short messages went at
    /// a third of their rate.
    #[test]
    fn short_messages_fill_the_slots_of_a_connection() {
        let work = StpWork::with_stu(1024);
        let slots = usize::from(work.config.slots);
        for message in [1, 64, 1024, 64 << 10] {
            let shape = StpWork::shape(message);
            assert!(work.under_way(message as u64) >= slots);
            assert!(shape.most_under_way() >= slots as u64, "there are places for them: {shape:?}");
            assert_ne!(shape.send_slots, shape.receive_slots, "each place holds something else");
        }
        // What is granted bounds the others.
        assert_eq!(work.under_way(1 << 20), UNDER_WAY);
    }
}
