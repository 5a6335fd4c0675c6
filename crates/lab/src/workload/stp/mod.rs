//! The Scheduled Transfer Protocol as its users have it: Transfers and Puts through the public
//! API of `landfall`. What differs from its defaults is in [`Setup`], and in the name of the
//! row that is measured with it.

mod setup;
mod talk;
mod writing;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall::stp::blocking::{Connection, Endpoint, Listener};
use landfall::stp::{Error, Memory, Message, Operation, Peer, RemoteRights, Sent, Stats};
use landfall_placement::checksum::sum_of;
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::rivals::{Amount, Plan};
use landfall_testbed::{FrameLoss, Sample};

use super::halves::{self, Answered, InitiatorResult, Received, Streamed};
use super::side::Rendezvous;
use super::{JUNK, Pattern, Role, Shape, TwoSided};
use setup::SHORT;
pub use setup::{LowerLayer, Setup};
pub(crate) use talk::transfers;
pub use writing::put_stream;

/// The port of STP.
const PORT: u16 = 7;
/// What both sides call the region that is written to.
const NAME: u32 = 1;
/// Messages that stay where they landed, to be compared when the clock has stopped.
const KEPT: usize = 4;

/// Transfers of 1 MiB, over 64 MiB of memory at each side.
pub const SHAPE: Shape = Shape { message: 1 << 20, send_slots: 64, receive_slots: 63 };

/// The same with messages of another length: as many places as there are for 1 MiB, fewer of
/// longer ones, and twice as many of short ones, of which more are under way.
pub const fn shape(message: usize) -> Shape {
    let slots = if message <= SHORT {
        2 * SHAPE.send_slots
    } else if message <= SHAPE.message {
        SHAPE.send_slots
    } else {
        SHAPE.message * SHAPE.send_slots / message
    };
    Shape { message, send_slots: slots, receive_slots: slots - 1 }
}

/// What the bytes of each of the sender's slots come to.
fn sums(shape: Shape) -> Arc<[u16]> {
    let mut bytes = vec![0; shape.message];
    let mut sum = |slot| {
        Pattern(slot).fill(&mut bytes);
        sum_of(&bytes)
    };
    (0..shape.send_slots as u64).map(&mut sum).collect()
}

/// What a run of Transfers gave.
#[derive(Debug)]
pub struct Outcome {
    /// In the terms that all candidates share.
    pub sample: Sample,
    /// Bytes that were compared with what was sent, after the clock stopped.
    pub compared: u64,
    /// What the sender's endpoint did.
    pub sender: Stats,
    /// What the receiver's did.
    pub receiver: Stats,
}

fn copied(stats: &Stats) -> u64 {
    stats.paths.iter().map(|path| path.counters.bytes_copied).sum()
}

/// Calls the other side, which listens. Frames to a station reach each endpoint there, and one
/// of the run before, which lingers for who missed its last word, may say that nobody listens.
fn connect(endpoint: &Endpoint, to: Peer, limit: Duration) -> Result<Connection> {
    const AGAIN_AFTER: Duration = Duration::from_millis(20);
    let started = Instant::now();
    loop {
        match endpoint.connect(to, PORT) {
            Err(Error::NotConnected { .. }) if started.elapsed() < limit => {
                thread::sleep(AGAIN_AFTER);
            }
            connected => return Ok(connected?),
        }
    }
}

/// A plan and a set-up: what both sides of a run know.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    plan: &'a Plan,
    setup: &'a Setup<'a>,
    /// The endpoint of each side by role, where both have to be made together.
    joined: Mutex<[Option<(Endpoint, Peer)>; 2]>,
    _lossy: Option<FrameLoss>,
}

/// Transfers of one length, one stream of them, out of memory and into memory that is lent
/// for each and comes back.
pub fn stream(plan: &Plan, setup: &Setup<'_>, shape: Shape) -> Result<Outcome> {
    let run = &Run::new(plan, setup)?;
    Stream { run, shape }.run(Rendezvous::between_two(plan.limit))
}

/// Puts of this length and their acknowledgements, one by one.
pub(crate) fn puts(plan: &Plan, setup: &Setup<'_>, len: usize) -> Result<Sample> {
    let run = &Run::new(plan, setup)?;
    Puts { run, len }.run(Rendezvous::between_two(plan.limit))
}

/// One stream of Transfers.
pub(crate) struct Stream<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) shape: Shape,
}

impl TwoSided for Stream<'_> {
    type Meeting = Rendezvous;
    type Begun = (Streamed, Stats);
    type Served = (Received, Stats);
    type Outcome = Outcome;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<Self::Begun> {
        let (run, shape) = (self.run, self.shape);
        run.call(meeting, |endpoint, to| run.send(shape, endpoint, to, meeting))
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Self::Served> {
        let (run, shape) = (self.run, self.shape);
        run.be_called(meeting, |endpoint, listener| run.receive(shape, endpoint, listener, meeting))
    }

    fn outcome(&self, sent: Self::Begun, came: Self::Served) -> Result<Outcome> {
        let ((sent, sender), (came, receiver)) = (sent, came);
        let sample = halves::of_stream(&sent, &came);
        Ok(Outcome { sample, compared: came.compared, sender, receiver })
    }
}

/// Puts, one by one.
pub(crate) struct Puts<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) len: usize,
}

impl TwoSided for Puts<'_> {
    type Meeting = Rendezvous;
    type Begun = InitiatorResult;
    type Served = Answered;
    type Outcome = Sample;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<InitiatorResult> {
        self.run.call(meeting, |endpoint, to| self.run.ask(self.len, endpoint, to))
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Answered> {
        let (run, len) = (self.run, self.len);
        run.be_called(meeting, |endpoint, listener| run.answer(len, endpoint, listener))
    }

    fn outcome(&self, asked: InitiatorResult, answered: Answered) -> Result<Sample> {
        Ok(halves::of_talk(&asked, &answered))
    }
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, setup: &'a Setup<'a>) -> Result<Self> {
        let lossy = |(cable, share)| FrameLoss::new(cable, share);
        let joined = match setup.below {
            LowerLayer::Process => setup.bind_pair(plan)?.map(Some),
            _ => [None, None],
        };
        let _lossy = setup.cable.map(lossy).transpose()?;
        Ok(Self { plan, setup, joined: Mutex::new(joined), _lossy })
    }

    /// The side that calls the other.
    fn call<S>(
        &self,
        meeting: &Rendezvous,
        send: impl FnOnce(&Endpoint, Peer) -> Result<S>,
    ) -> Result<S> {
        let (endpoint, own) = self.bind(Role::Send)?;
        let to = meeting.exchange(own)?;
        let sent = send(&endpoint, to);
        // What comes next may be at the same address, where this one would answer.
        endpoint.close();
        sent
    }

    /// The side that is called. Nobody calls before somebody listens.
    fn be_called<R>(
        &self,
        meeting: &Rendezvous,
        receive: impl FnOnce(&Endpoint, &Listener) -> Result<R>,
    ) -> Result<R> {
        let (endpoint, own) = self.bind(Role::Receive)?;
        let listener = endpoint.listen(PORT)?;
        meeting.exchange(own)?;
        let came = receive(&endpoint, &listener);
        drop(listener);
        endpoint.close();
        came
    }

    /// The endpoint of a side, and by what name the other reaches it.
    fn bind(&self, role: Role) -> Result<(Endpoint, Peer)> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = joined[role as usize].take() {
            return Ok(joined);
        }
        drop(joined);
        let endpoint = self.setup.bind(self.plan, role)?;
        let own = endpoint.local().context("the path has no address of its own")?;
        Ok((endpoint, own))
    }

    /// Sends for as long, or as many messages, as the plan says.
    fn send(
        &self,
        shape: Shape,
        endpoint: &Endpoint,
        to: Peer,
        meeting: &Rendezvous,
    ) -> Result<(Streamed, Stats)> {
        let plan = self.plan;
        let connect = |_| connect(endpoint, to, plan.limit);
        let connections: Vec<Connection> =
            (0..self.setup.connections).map(connect).collect::<Result<_, _>>()?;
        let mut ready = VecDeque::new();
        for slot in 0..shape.send_slots as u64 {
            let mut memory = endpoint.memory(shape.message)?;
            Pattern(slot).fill(&mut memory);
            ready.push_back((slot as u32, memory));
        }
        let most = self.setup.under_way(shape);
        meeting.ready()?;
        let meter = CpuMeter::start()?;
        let reading = plan.idle_reading();
        let started = Instant::now();
        let mut under_way: VecDeque<(u32, Operation<Sent>)> = VecDeque::new();
        let mut turn = connections.iter().cycle();
        let mut begun = 0;
        loop {
            let is_over = plan.amount.is_reached(started, begun, shape.message as u64);
            let is_full = under_way.len() >= most;
            let next = if is_full || is_over { None } else { ready.pop_front() };
            match (next, under_way.pop_front()) {
                (Some((slot, memory)), oldest) => {
                    let connection = turn.next().context("there is a connection")?;
                    under_way.extend(oldest);
                    under_way.push_back((slot, connection.send(memory).opaque(slot).start()));
                    begun += 1;
                }
                (None, Some((slot, oldest))) => {
                    ready.extend(oldest.wait()?.memory.map(|memory| (slot, memory)));
                }
                (None, None) => break,
            }
        }
        let busy = plan.busy_since(reading.as_ref());
        let used = meter.stop()?;
        let stats = endpoint.stats();
        connections.into_iter().try_for_each(Connection::close)?;
        let again = stats.engine.bytes_sent.saturating_sub(begun * shape.message as u64);
        let sent = (stats.engine.stus_sent, stats.engine.bytes_sent.max(1));
        let seen = Streamed {
            started,
            cpu: used.thread,
            machine_s: used.machine_s,
            busy,
            retransmitted: (again * sent.0).div_ceil(sent.1),
            copied: copied(&stats),
        };
        Ok((seen, stats))
    }

    /// Receives until the sender has closed its connections.
    fn receive(
        &self,
        shape: Shape,
        endpoint: &Endpoint,
        listener: &Listener,
        meeting: &Rendezvous,
    ) -> Result<(Received, Stats)> {
        let sums = self.setup.touches.then(|| sums(shape));
        // Memory that was used before, as a program's is after a while, with something else in
        // it.
        let place = || -> Result<Memory> {
            let mut memory = endpoint.memory(shape.message)?;
            memory.fill(JUNK);
            Ok(memory)
        };
        let keep = match self.plan.amount {
            Amount::Messages(most) if most <= shape.receive_slots as u64 => most as usize,
            _ => KEPT.min(shape.receive_slots - 1),
        };
        let places = (0..shape.receive_slots).map(|_| place()).collect::<Result<Vec<_>>>()?;
        let accept = |_| listener.accept_within(self.plan.limit)?.context("nobody calls");
        let connections: Vec<Connection> =
            (0..self.setup.connections).map(accept).collect::<Result<_>>()?;
        // In the order in which the sender goes over them, also where they are more than there
        // are places.
        let mut turn = connections.iter().cycle();
        let mut post = |memory| {
            let connection = turn.next().context("there is a connection")?;
            anyhow::Ok(connection.receive(memory).start())
        };
        let mut posted: VecDeque<Operation<Message>> =
            places.into_iter().map(&mut post).collect::<Result<_>>()?;
        let mut kept: VecDeque<Message> = VecDeque::new();
        meeting.ready()?;
        let (before, started) = (TaskUse::of_this_thread()?, Instant::now());
        let (mut ended, mut bytes, mut messages) = (started, 0, 0);
        while let Some(oldest) = posted.pop_front() {
            let message = match oldest.wait().map_err(Error::from) {
                Ok(message) => message,
                Err(Error::Closed { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            ended = Instant::now();
            bytes += message.len() as u64;
            messages += 1;
            if let Some(sums) = &sums {
                let wanted = sums.get(message.opaque() as usize);
                ensure!(wanted == Some(&sum_of(&message)), "the bytes have another sum");
            }
            // The newest stay where they landed, to be looked at in the end.
            kept.push_back(message);
            if kept.len() > keep
                && let Some(oldest) = kept.pop_front()
            {
                posted.push_back(post(oldest.into_memory())?);
            }
        }
        let cpu = TaskUse::of_this_thread()? - before;
        let mut compared = 0;
        for message in kept {
            let slot = message.opaque();
            let difference = Pattern(u64::from(slot)).first_difference(&message);
            ensure!(
                difference.is_none(),
                "slot {slot} is not what was sent from byte {difference:?} on"
            );
            compared += message.len() as u64;
        }
        let stats = endpoint.stats();
        let copied = copied(&stats);
        Ok((Received { started, ended, bytes, messages, compared, cpu, copied }, stats))
    }

    /// Writes to the other side, a Put at a time.
    fn ask(&self, len: usize, endpoint: &Endpoint, to: Peer) -> Result<InitiatorResult> {
        let time = halves::time_of(self.plan)?;
        let connection = connect(endpoint, to, self.plan.limit)?;
        let remote = connection.request_region(NAME, len as u64, RemoteRights::ALL).wait()?;
        let word = endpoint.register(Memory::zeroed(len))?;
        let rounds = halves::round_trips(time, |_| {
            remote.put(0, &word).wait()?;
            Ok(Instant::now())
        })?;
        let copied = copied(&endpoint.stats());
        connection.close()?;
        Ok(InitiatorResult { len, rounds, copied })
    }

    /// Lets the other side write until it has gone; drives meanwhile.
    fn answer(&self, len: usize, endpoint: &Endpoint, listener: &Listener) -> Result<Answered> {
        let connection = listener.accept_within(self.plan.limit)?.context("nobody calls")?;
        let region = endpoint.register(Memory::zeroed(len))?;
        let request = connection.region_request()?;
        let _exposed = request.expose(&region.whole(), RemoteRights::ALL)?;
        let before = TaskUse::of_this_thread()?;
        connection.closed()?;
        let cpu = TaskUse::of_this_thread()? - before;
        Ok(Answered { cpu, copied: copied(&endpoint.stats()) })
    }
}

#[cfg(test)]
mod tests {
    use super::setup::{SHORT_UNDER_WAY, UNDER_WAY};
    use super::*;
    use landfall::stp::Faults;
    use landfall_testbed::rivals::Endpoints;

    fn plan(messages: u64) -> Plan {
        Plan::new(Endpoints::loopback().unwrap(), Amount::Messages(messages))
    }

    #[test]
    fn transfers_cross_and_are_compared() {
        for below in
            [LowerLayer::Udp, LowerLayer::SameHost, LowerLayer::UdpOf(1500), LowerLayer::Process]
        {
            let setup = Setup { connections: 3, touches: true, ..Setup::over(below) };
            let outcome = stream(&plan(7), &setup, shape(100_000)).unwrap();
            assert_eq!((outcome.sample.bytes, outcome.compared), (700_000, 700_000), "{below:?}");
        }
    }

    #[test]
    fn puts_cross_and_are_compared() {
        let written = Shape { message: 100_000, send_slots: 5, receive_slots: 5 };
        for below in
            [LowerLayer::Udp, LowerLayer::SameHost, LowerLayer::UdpOf(1500), LowerLayer::Process]
        {
            let outcome = put_stream(&plan(13), &Setup::over(below), written).unwrap();
            let seen = (outcome.sample.bytes, outcome.sample.messages, outcome.compared);
            assert_eq!(seen, (1_300_000, 13, 500_000), "{below:?}");
        }
    }

    #[test]
    fn encrypted_transfers_cross_and_nothing_of_them_is_plain() {
        let setup = Setup { encrypts: true, ..Setup::over(LowerLayer::UdpOf(1500)) };
        let outcome = stream(&plan(4), &setup, shape(300_000)).unwrap();
        assert_eq!(outcome.compared, 1_200_000);
        let (sent, came) = (outcome.sender.seal, outcome.receiver.seal);
        assert!(sent.sealed > 800 && came.opened > 800, "{sent:?} {came:?}");
        assert_eq!((sent.plain, came.plain, came.forged), (0, 0, 0));
    }

    #[test]
    fn more_connections_than_places_take_their_turns() {
        let setup = Setup { connections: 9, ..Setup::over(LowerLayer::Process) };
        let shape = Shape { message: 10_000, send_slots: 5, receive_slots: 6 };
        let outcome = stream(&plan(50), &setup, shape).unwrap();
        assert_eq!(outcome.sample.messages, 50);
    }

    #[test]
    fn loss_is_mended_and_counted() {
        let faults = Some((Faults { loss_at_place: 50_000, ..Faults::default() }, [3; 32]));
        let setup = Setup { faults, ..Setup::over(LowerLayer::UdpOf(1500)) };
        let outcome = stream(&plan(4), &setup, shape(200_000)).unwrap();
        assert_eq!(outcome.compared, 800_000);
        let lost: u64 = outcome
            .receiver
            .paths
            .iter()
            .filter_map(|path| path.faults)
            .map(|f| f.lost_at_place)
            .sum();
        assert!(lost > 0 && outcome.sample.retransmitted > 0, "{lost}");
    }

    #[test]
    fn an_stu_that_was_chosen_is_the_longest() {
        let setup = Setup::over(LowerLayer::Udp).with_stu(Some(1024));
        assert_eq!(setup.configured().unwrap().max_stu, 10);
        assert!(setup.configured().unwrap().congestion.is_some());
        let usual = Setup::over(LowerLayer::Udp);
        assert!(usual.configured().is_none());
        assert_eq!(usual.under_way(shape(64)), SHORT_UNDER_WAY);
        assert_eq!(usual.under_way(SHAPE), UNDER_WAY);
    }
}
