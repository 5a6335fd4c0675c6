//! TCP/IP over CLAN (section 6.1): a packet is moved into a buffer of the other host, whose
//! cookie came through a queue, and a word behind it says so. A tripwire on that word
//! interrupts the receiver, whose TCP/IP takes the packet out, and gives the cookie back.
//! "This implementation was only able to support a single packet in flight at any one time",
//! so there is one buffer each way.

use std::collections::VecDeque;

use clan_dsm::{Event, WORD};
use landfall_placement::{Area, Duration, Instant};

use crate::node::SocketCosts;
use crate::runs;

use super::{Design, Exposed, HostProcessor, Listens, Pair};

/// What TCP/IP costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpCosts {
    /// A host.
    pub host: SocketCosts,
    /// Bytes of headers before each payload.
    pub headers: u32,
}

/// What a host's processor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// A program's call, and TCP/IP, make a packet of it: its payload.
    Make(u32),
    /// The driver sets the DMA engine up.
    SetUp(u32),
    /// TCP/IP takes a packet out of its buffer.
    Take(u32),
    /// A program reads what came.
    Read(u32),
}

/// One host, as TCP/IP sees it.
struct Station {
    processor: HostProcessor<Job>,
    /// Where its packets are made.
    made: Area,
    /// Buffer, and the word that says what is in it, of this host.
    buffer: Exposed,
    came: Exposed,
    /// The word of this host that gives the other's buffer back.
    returned: Exposed,
    /// Packets for the driver.
    queue: VecDeque<u32>,
    /// The one that is under way.
    is_sending: bool,
    /// When all of it has left: this many words of this host.
    leaves_at: Option<u64>,
    /// A program waits for data in a call.
    is_reading: bool,
    number: u64,
    /// Segments that were taken and not acknowledged.
    unacknowledged: u32,
    /// Bytes that its program has read.
    read: u64,
}

/// Two hosts that speak TCP/IP over CLAN.
struct Linked {
    pair: Pair,
    stations: [Station; 2],
    design: Design,
    costs: IpCosts,
    /// Data goes one way only, so that acknowledgements have no data to go with.
    is_one_way: bool,
}

/// The longest packet.
const BUFFER: u32 = 17 << 10;
/// "CLAN IP is using just 32 kilobytes per socket buffer".
pub(crate) const SOCKET_BUFFER: u32 = 32 << 10;
/// A segment in this many is acknowledged.
pub(crate) const ACKNOWLEDGED: u32 = 2;

impl Linked {
    fn new(design: &Design, costs: IpCosts, is_one_way: bool) -> Option<Self> {
        let mut pair = Pair::new(design, [Listens::Interrupted; 2])?;
        let mut station = |side| {
            Some(Station {
                processor: HostProcessor::default(),
                made: pair.world.lend(side, vec![0; BUFFER as usize]),
                buffer: pair.expose(side, BUFFER, false)?,
                came: pair.expose(side, WORD, true)?,
                returned: pair.expose(side, WORD, true)?,
                queue: VecDeque::new(),
                is_sending: false,
                leaves_at: None,
                is_reading: true,
                number: 0,
                unacknowledged: 0,
                read: 0,
            })
        };
        let stations = [station(0)?, station(1)?];
        pair.settle()?;
        Some(Self { pair, stations, design: *design, costs, is_one_way })
    }

    fn ask(&mut self, side: usize, job: Job) {
        let SocketCosts { packet, ack, .. } = self.costs.host;
        let station = &mut self.stations[side];
        let time = match job {
            Job::Make(0) | Job::Take(0) => ack,
            Job::Make(len) => packet + self.costs.host.copy_of(len),
            Job::SetUp(_) => self.design.setup,
            Job::Take(_) => packet,
            // Who slept in a call is woken, and comes back from it.
            Job::Read(len) if station.is_reading => {
                station.is_reading = false;
                self.design.wake + self.design.call + self.costs.host.copy_of(len)
            }
            Job::Read(len) => self.costs.host.copy_of(len),
        };
        station.processor.ask(self.pair.world.now(), time, job);
    }

    /// A job is done: what follows from it.
    fn finish(&mut self, side: usize, job: Job) -> Option<()> {
        let other = 1 - side;
        match job {
            Job::Make(len) => {
                self.stations[side].queue.push_back(len);
                self.send_next(side);
            }
            Job::SetUp(payload) => {
                let len = (payload + self.costs.headers).next_multiple_of(WORD);
                let Station { made, .. } = self.stations[side];
                let from = Area::new(made.region, made.offset, len.into());
                self.stations[side].number += 1;
                let number = self.stations[side].number;
                let (buffer, came) = (self.stations[other].buffer, self.stations[other].came);
                self.pair.send(side, from, &buffer, number)?;
                let words = self.pair.left[side].get() + u64::from(len / WORD);
                self.stations[side].leaves_at = Some(words);
                // The queue of completions: what came, and how long it is.
                self.pair.store(side, &came, number << 32 | u64::from(payload))?;
            }
            Job::Take(len) => {
                let returned = self.stations[other].returned;
                let number = self.pair.last_word(side, &self.stations[side].buffer);
                self.pair.store(side, &returned, number)?;
                if len > 0 {
                    self.ask(side, Job::Read(len));
                    self.stations[side].unacknowledged += 1;
                }
                if self.is_one_way && self.stations[side].unacknowledged >= ACKNOWLEDGED {
                    self.stations[side].unacknowledged = 0;
                    self.ask(side, Job::Make(0));
                }
            }
            Job::Read(len) => {
                let station = &mut self.stations[side];
                station.read += u64::from(len);
                station.is_reading = true;
            }
        }
        Some(())
    }

    /// The driver takes the next packet up, if there is a buffer for it.
    fn send_next(&mut self, side: usize) {
        let station = &mut self.stations[side];
        if station.is_sending {
            return;
        }
        if let Some(len) = station.queue.pop_front() {
            station.is_sending = true;
            self.ask(side, Job::SetUp(len));
        }
    }

    /// The next thing happens, and both hosts do their part.
    fn step(&mut self) -> Option<()> {
        let jobs = self.stations.iter().filter_map(|it| it.processor.poll_timeout());
        let fetched = [0, 1]
            .into_iter()
            .filter_map(|side| self.pair.is_fetched(side, self.stations[side].leaves_at?));
        let next = jobs.chain(fetched).min();
        self.pair.step(next)?;
        let now = self.pair.world.now();
        for side in [0, 1] {
            // The DMA engine is done: its driver hears, and so does that of a tripwire.
            let leaves_at = self.stations[side].leaves_at;
            let fetched = leaves_at.and_then(|words| self.pair.is_fetched(side, words));
            let is_fetched = fetched.is_some_and(|at| at <= now);
            if is_fetched {
                self.stations[side].leaves_at = None;
            }
            if self.pair.is_interrupted(side) | is_fetched {
                let Design { interrupt, interrupt_busy, .. } = self.design;
                self.stations[side].processor.interrupt(now, interrupt, interrupt_busy);
            }
            self.hear(side);
            while let Some(job) = self.stations[side].processor.poll(now) {
                self.finish(side, job)?;
            }
        }
        Some(())
    }

    /// Tripwires that a host was told of.
    fn hear(&mut self, side: usize) {
        loop {
            let event = self.pair.told[side].borrow_mut().pop_front();
            let Some(event) = event else { return };
            let Event::Tripwire { tripwire } = event else { continue };
            let Station { came, returned, .. } = &self.stations[side];
            if returned.tripwire == Some(tripwire) {
                self.stations[side].is_sending = false;
                self.send_next(side);
            } else if came.tripwire == Some(tripwire) {
                let payload = self.pair.last_word(side, came) as u32;
                self.ask(side, Job::Take(payload));
            }
        }
    }

    fn read(&self, side: usize) -> u64 {
        self.stations[side].read
    }

    fn now(&self) -> Instant {
        self.pair.world.now()
    }
}

/// How long a message of this many bytes takes over TCP from one program to another and back.
#[must_use]
pub fn ip_round_trip(design: &Design, costs: IpCosts, len: u32) -> Option<Duration> {
    runs::once("clan ip_round_trip", &(design, costs, len), || {
        run_ip_round_trip(design, costs, len)
    })
}

fn run_ip_round_trip(design: &Design, costs: IpCosts, len: u32) -> Option<Duration> {
    const ROUNDS: u64 = 20;
    let mut linked = Linked::new(design, costs, false)?;
    let began = linked.now();
    for round in 1..=ROUNDS {
        for side in [0, 1] {
            linked.ask(side, Job::Make(len));
            while linked.read(1 - side) < round * u64::from(len) {
                linked.step()?;
            }
        }
    }
    Some(linked.now().since(began) / ROUNDS as u32)
}

/// Bits in a second of a program that sends messages of this many bytes over TCP, a packet
/// each, and one that reads them.
#[must_use]
pub fn ip_stream(design: &Design, costs: IpCosts, len: u32) -> Option<f64> {
    runs::once("clan ip_stream", &(design, costs, len), || run_ip_stream(design, costs, len))
}

fn run_ip_stream(design: &Design, costs: IpCosts, len: u32) -> Option<f64> {
    const MESSAGES: u64 = 200;
    const WARM: u64 = 20;
    let mut linked = Linked::new(design, costs, true)?;
    let (mut made, mut began) = (0, None);
    let all = (MESSAGES + WARM) * u64::from(len);
    while linked.read(1) < all {
        // The program goes on while its socket's buffer has room.
        let sending = &linked.stations[0];
        let waiting: u32 = sending.queue.iter().sum();
        if made < all && waiting + len <= SOCKET_BUFFER && sending.processor.is_idle() {
            linked.ask(0, Job::Make(len));
            made += u64::from(len);
        }
        linked.step()?;
        if began.is_none() && linked.read(1) >= WARM * u64::from(len) {
            began = Some((linked.now(), linked.read(1)));
        }
    }
    let (began, read) = began?;
    Some((all - read) as f64 * 8.0 / linked.now().since(began).as_secs_f64())
}
