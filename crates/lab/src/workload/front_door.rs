//! What a user gets: Transfers and Puts through the public API of `landfall`, with its
//! defaults. Nothing is chosen here but who waits and how.
//!
//! The other workloads open drivers and engines by themselves, to choose what the front door
//! chooses for its users. These do not.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use anyhow::{Context, Result, bail, ensure};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{
    Error, Memory, Message, Operation, RemoteRights, Sent, Stats, Transport, Wait,
};
use landfall_testbed::cpu::{CpuMeter, CpuUse, TaskUse};
use landfall_testbed::rivals::{Amount, Plan, Polling, Side};
use landfall_testbed::{CpuSplit, RttHistogram, Sample, Soaked};

use super::Pattern;
use super::bulk::{JUNK, Shape};
use super::side::{Rendezvous, both, joined, place_thread};
use super::stp::UNDER_WAY;

/// The port of STP.
const PORT: u16 = 7;
/// What both sides call the region that is written to.
const NAME: u32 = 1;
/// Rounds at the start that are not recorded, as with the kernel's rivals.
const WARM_UP: u64 = 1000;

/// What opens the path of an endpoint.
pub(crate) type OpenPath = fn(SocketAddr) -> Transport;

/// An endpoint over UDP as [`Endpoint::bind`] gives it, but for the way of waiting where the
/// plan asks for one: by itself an endpoint spins for a while before it sleeps.
fn bind(open: OpenPath, plan: &Plan, side: &Side) -> Result<Endpoint> {
    place_thread(side)?;
    let path = open(SocketAddr::new(side.address, 0));
    let mut builder = Endpoint::builder().path(path);
    if plan.polling == Polling::Spin {
        builder = builder.wait(Wait::Spin);
    }
    let endpoint = builder.bind();
    Ok(endpoint.with_context(|| format!("cannot bind UDP at {}", side.address))?.into())
}

/// Runs both sides, each on a thread of its own.
fn two<S: Send, R: Send>(
    open: OpenPath,
    plan: &Plan,
    send: impl FnOnce(&Endpoint, Connection, &Rendezvous) -> Result<S> + Send,
    receive: impl FnOnce(&Endpoint, Connection, &Rendezvous) -> Result<R> + Send,
) -> Result<(S, R)> {
    let (ours, theirs) = Rendezvous::between_two(plan.limit);
    let calls = move || {
        let endpoint = bind(open, plan, &plan.endpoints.send)?;
        let own = endpoint.local().context("UDP has an address")?;
        let to = ours.exchange(own)?;
        let connection = endpoint.connect(to, PORT)?;
        send(&endpoint, connection, &ours)
    };
    let is_called = move || {
        let endpoint = bind(open, plan, &plan.endpoints.receive)?;
        let listener = endpoint.listen(PORT)?;
        theirs.exchange(endpoint.local().context("UDP has an address")?)?;
        let connection = listener.accept_within(plan.limit)?.context("nobody calls")?;
        receive(&endpoint, connection, &theirs)
    };
    thread::scope(|scope| {
        let [send, receive] = ["landfall-send", "landfall-receive"]
            .map(|name| thread::Builder::new().name(name.to_owned()));
        let sent = send.spawn_scoped(scope, calls).context("cannot start a thread");
        let received = receive.spawn_scoped(scope, is_called).context("cannot start a thread");
        both(
            sent.and_then(|sent| joined(sent.join())),
            received.and_then(|came| joined(came.join())),
        )
    })
}

/// What the sender saw.
struct Streamed {
    started: StdInstant,
    cpu: TaskUse,
    machine_s: f64,
    soaked: Option<Soaked>,
    stats: Stats,
}

/// What the receiver saw.
struct Came {
    ended: StdInstant,
    bytes: u64,
    messages: u64,
    cpu: TaskUse,
    stats: Stats,
}

/// Transfers of one length, one stream of them, out of memory and into memory that is lent
/// for each and comes back.
pub(crate) fn stream(open: OpenPath, plan: &Plan, shape: Shape) -> Result<Sample> {
    let Amount::Time(time) = plan.amount else { bail!("a stream is measured for a time") };
    let (sent, came) = two(
        open,
        plan,
        |endpoint, connection, meeting| {
            send_for(plan, (time, shape), endpoint, connection, meeting)
        },
        |endpoint, connection, meeting| receive_all(shape, endpoint, &connection, meeting),
    )?;
    let seconds = came.ended.saturating_duration_since(sent.started);
    let (left, placed) = (sent.stats.engine.stus_sent, came.stats.engine.stus_received);
    Ok(Sample {
        bytes: came.bytes,
        messages: came.messages,
        seconds: seconds.max(Duration::from_nanos(1)).as_secs_f64(),
        cpu: CpuSplit {
            send_s: sent.cpu.busy_s(),
            receive_s: came.cpu.busy_s(),
            machine_s: sent.machine_s,
        },
        soaked: sent.soaked,
        wakeups: sent.cpu.sleeps + came.cpu.sleeps,
        // What left and was not placed: lost, or there already.
        retransmitted: left.saturating_sub(placed),
        user_copied_bytes: copied(&sent.stats) + copied(&came.stats),
        ..Sample::default()
    })
}

fn copied(stats: &Stats) -> u64 {
    stats.paths.iter().map(|path| path.counters.bytes_copied).sum()
}

fn send_for(
    plan: &Plan,
    (time, shape): (Duration, Shape),
    endpoint: &Endpoint,
    connection: Connection,
    meeting: &Rendezvous,
) -> Result<Streamed> {
    let mut ready = VecDeque::new();
    for slot in 0..shape.send_slots as u64 {
        let mut memory = endpoint.memory(shape.message)?;
        Pattern(slot).fill(&mut memory);
        ready.push_back((slot as u32, memory));
    }
    meeting.ready()?;
    let meter = CpuMeter::start()?;
    let soaking = plan.soaker_reading();
    let started = StdInstant::now();
    let mut under_way: VecDeque<(u32, Operation<Sent>)> = VecDeque::new();
    loop {
        let is_full = under_way.len() >= UNDER_WAY;
        let is_over = started.elapsed() >= time;
        let next = if is_full || is_over { None } else { ready.pop_front() };
        match (next, under_way.pop_front()) {
            (Some((slot, memory)), oldest) => {
                under_way.extend(oldest);
                under_way.push_back((slot, connection.send(memory).opaque(slot).start()));
            }
            (None, Some((slot, oldest))) => {
                ready.extend(oldest.wait()?.memory.map(|memory| (slot, memory)));
            }
            (None, None) => break,
        }
    }
    let soaked = plan.soaked_since(soaking.as_ref());
    let used = meter.stop()?;
    let stats = endpoint.stats();
    connection.close()?;
    Ok(Streamed { started, cpu: used.thread, machine_s: used.machine_s, soaked, stats })
}

fn receive_all(
    shape: Shape,
    endpoint: &Endpoint,
    connection: &Connection,
    meeting: &Rendezvous,
) -> Result<Came> {
    // Memory that was used before, as a program's is after a while, with something else in it.
    let place = || -> Result<Memory> {
        let mut memory = endpoint.memory(shape.message)?;
        memory.fill(JUNK);
        Ok(memory)
    };
    let mut posted: VecDeque<Operation<Message>> = VecDeque::new();
    for _ in 1..shape.receive_slots {
        posted.push_back(connection.receive(place()?).start());
    }
    // Transfers may overtake each other: what came last tells itself which slot it was.
    let (mut spare, mut newest) = (Some(place()?), None);
    meeting.ready()?;
    let before = TaskUse::of_this_thread()?;
    let (mut ended, mut bytes, mut messages) = (StdInstant::now(), 0, 0);
    while let Some(oldest) = posted.pop_front() {
        let message = match oldest.wait() {
            Ok(message) => message,
            Err(Error::Closed { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        ended = StdInstant::now();
        bytes += message.len() as u64;
        messages += 1;
        // The newest stays where it landed, to be looked at in the end.
        let before = newest.replace(message).map(Message::into_memory);
        if let Some(free) = before.or_else(|| spare.take()) {
            posted.push_back(connection.receive(free).start());
        }
    }
    let cpu = TaskUse::of_this_thread()? - before;
    if let Some(message) = newest {
        let slot = message.opaque();
        let difference = Pattern(u64::from(slot)).first_difference(&message.into_memory());
        ensure!(difference.is_none(), "slot {slot} is not what was sent at byte {difference:?}");
    }
    Ok(Came { ended, bytes, messages, cpu, stats: endpoint.stats() })
}

/// Puts of this length and their acknowledgements, one by one.
pub(crate) fn puts(open: OpenPath, plan: &Plan, len: usize) -> Result<Sample> {
    let Amount::Time(time) = plan.amount else { bail!("round trips are measured for a time") };
    let ((rounds, seconds, round_trips, used), served) = two(
        open,
        plan,
        |endpoint, connection, _| put_for(time, len, endpoint, connection),
        |endpoint, connection, _| serve(len, endpoint, &connection),
    )?;
    Ok(Sample {
        bytes: rounds * len as u64,
        messages: rounds,
        seconds,
        cpu: CpuSplit {
            send_s: used.thread.busy_s(),
            receive_s: served.busy_s(),
            machine_s: used.machine_s,
        },
        rtt: round_trips.summary(),
        wakeups: used.thread.sleeps + served.sleeps,
        ..Sample::default()
    })
}

fn put_for(
    time: Duration,
    len: usize,
    endpoint: &Endpoint,
    connection: Connection,
) -> Result<(u64, f64, RttHistogram, CpuUse)> {
    let remote = connection.request_region(NAME, len as u64, RemoteRights::ALL).wait()?;
    let word = endpoint.register(Memory::zeroed(len))?;
    let (mut round_trips, meter) = (RttHistogram::new(), CpuMeter::start()?);
    let (mut started, mut round) = (StdInstant::now(), 0);
    loop {
        let asked = StdInstant::now();
        if round == WARM_UP {
            started = asked;
        }
        if round > WARM_UP && asked - started >= time {
            break;
        }
        remote.put(0, &word).wait()?;
        if round >= WARM_UP {
            round_trips.record(asked.elapsed());
        }
        round += 1;
    }
    let (seconds, used) = (started.elapsed().as_secs_f64(), meter.stop()?);
    connection.close()?;
    Ok((round - WARM_UP, seconds, round_trips, used))
}

/// Lets the other side write until it has gone; drives meanwhile.
fn serve(len: usize, endpoint: &Endpoint, connection: &Connection) -> Result<TaskUse> {
    let region = endpoint.register(Memory::zeroed(len))?;
    let request = connection.region_request()?;
    let _exposed = request.expose(&region.whole(), RemoteRights::ALL)?;
    let before = TaskUse::of_this_thread()?;
    connection.closed()?;
    Ok(TaskUse::of_this_thread()? - before)
}
