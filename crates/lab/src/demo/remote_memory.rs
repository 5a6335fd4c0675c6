//! Memory of another process: words put there, fetched and added to, and a page got from
//! there, beside the round trip of kernel TCP between the same two in the same run.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use landfall::stp::blocking::Connection;
use landfall::stp::{Memory, RemoteMemory, RemoteRights};
use serde::Serialize;

use super::other::{self, Ask, EXPOSED, LIMIT, NAME, OtherProcess, read_word, within_limit};
use super::{Scale, Shown, median};
use crate::style::hex;

const TCP: &str = "kernel TCP, 8 bytes there and back, spinning";
const TCP_ASLEEP: &str = "the same, asleep";
const PUT: &str = "STP, Put of 8 bytes and its answer, by default";
const FETCH: &str = "STP, fetch and add of 8 bytes";
const GET: &str = "STP, Get of 4 KiB";

#[derive(Debug, Serialize)]
struct Facts {
    word_bytes: usize,
    tcp_rtt_ns_p50: f64,
    tcp_asleep_rtt_ns_p50: f64,
    put_ns_p50: f64,
    fetch_op_ns_p50: f64,
    get_ns_p50: f64,
    /// Of the Put. Less is better.
    ratio_to_tcp: f64,
    puts: u64,
    fetch_ops: u64,
    gets: u64,
    user_copied_bytes: u64,
    found: String,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let endpoint = other::endpoint()?;
    let mut other = OtherProcess::start()?;
    let connection = other::connect(&endpoint, &other.doors, 1)?;
    let time = scale.time / 2;
    let tcp = round_trips(&mut other, time, true)?;
    let tcp_asleep = round_trips(&mut other, time, false)?;
    other.ask(Ask::Expose)?;
    let worked = Work::with(&connection, time)?;
    let found: String = other.finish_exposing()?;
    // What its owner finds there in the end.
    let wanted = [worked.puts.to_le_bytes(), worked.fetch_ops.to_le_bytes()].concat();
    ensure!(found == hex(&wanted), "the other process finds {found} in its memory");
    let copied = |path: &landfall::stp::PathStats| path.counters.bytes_copied;
    let facts = Facts {
        word_bytes: 8,
        ratio_to_tcp: worked.put_ns / tcp,
        tcp_rtt_ns_p50: tcp,
        tcp_asleep_rtt_ns_p50: tcp_asleep,
        put_ns_p50: worked.put_ns,
        fetch_op_ns_p50: worked.fetch_ns,
        get_ns_p50: worked.get_ns,
        puts: worked.puts,
        fetch_ops: worked.fetch_ops,
        gets: worked.gets,
        user_copied_bytes: endpoint.stats().paths.iter().map(copied).sum(),
        found,
        equal: true,
    };
    Shown::new(lines(&facts), &facts)
}

/// Calls over and over; how often, and the median of how long each took.
fn repeat(time: Duration, mut call: impl FnMut(u64) -> Result<()>) -> Result<(u64, f64)> {
    let (started, mut took) = (Instant::now(), Vec::new());
    while took.is_empty() || started.elapsed() < time {
        let begun = Instant::now();
        call(took.len() as u64)?;
        took.push(begun.elapsed().as_nanos() as f64);
    }
    Ok((took.len() as u64, median(took)))
}

fn round_trips(other: &mut OtherProcess, time: Duration, spins: bool) -> Result<f64> {
    other.ask(Ask::Words { spins })?;
    let mut stream = TcpStream::connect(other.doors.tcp)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_nonblocking(spins)?;
    let (_, each) = repeat(time, |nth| {
        let mut back = [0; 8];
        stream.write_all(&nth.to_le_bytes())?;
        ensure!(read_word(&mut stream, &mut back)?, "the other process is gone");
        ensure!(back == nth.to_le_bytes(), "another word came back");
        Ok(())
    })?;
    Ok(each)
}

struct Work {
    puts: u64,
    put_ns: f64,
    fetch_ops: u64,
    fetch_ns: f64,
    gets: u64,
    get_ns: f64,
}

impl Work {
    fn with(connection: &Connection, time: Duration) -> Result<Self> {
        let asked = connection.request_region(NAME, EXPOSED as u64, RemoteRights::ALL);
        let remote: RemoteMemory = within_limit!(asked)?;
        // The memory of one comes back and is used for the next.
        let mut word = Some(Memory::zeroed(8));
        let (puts, put_ns) = repeat(time, |nth| {
            let mut memory = word.take().unwrap_or_else(|| Memory::zeroed(8));
            memory.copy_from_slice(&(nth + 1).to_le_bytes());
            word = within_limit!(remote.put(0, memory))?.memory;
            Ok(())
        })?;
        let (fetch_ops, fetch_ns) = repeat(time, |nth| {
            let old = within_limit!(remote.fetch_add(8, 1))?;
            ensure!(old == nth, "{old} was there instead of {nth}: each takes effect once");
            Ok(())
        })?;
        let mut page = Some(Memory::zeroed(EXPOSED));
        let (gets, get_ns) = repeat(time, |_| {
            let memory = page.take().unwrap_or_else(|| Memory::zeroed(EXPOSED));
            let message = within_limit!(remote.get(0, memory))?;
            let seen = [puts.to_le_bytes(), fetch_ops.to_le_bytes()].concat();
            ensure!(message[..16] == seen[..], "a Get sees {:x?}", &message[..16]);
            page = Some(message.into_memory());
            Ok(())
        })?;
        Ok(Self { puts, put_ns, fetch_ops, fetch_ns, gets, get_ns })
    }
}

fn lines(facts: &Facts) -> [String; 6] {
    let line = |name: &str, ns: f64| format!("{name:46} {:>6.1} µs", ns / 1e3);
    [
        line(TCP, facts.tcp_rtt_ns_p50),
        line(TCP_ASLEEP, facts.tcp_asleep_rtt_ns_p50),
        format!("{}, {:.2} x TCP", line(PUT, facts.put_ns_p50), facts.ratio_to_tcp),
        line(FETCH, facts.fetch_op_ns_p50),
        line(GET, facts.get_ns_p50),
        format!(
            "{} Puts, {} fetch-ops and {} Gets; the other program called nothing meanwhile (a \
             thread of its endpoint answered), and finds what was written: equal",
            facts.puts, facts.fetch_ops, facts.gets
        ),
    ]
}
