//! Transfers between two processes, received in place, beside kernel TCP between the same
//! two in the same run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use landfall::stp::blocking::Connection;
use landfall::stp::{Memory, Region};
use serde::Serialize;

use super::other::{self, Ask, OtherProcess, Report, within_limit};
use super::{Scale, Shown, median, speed};
use crate::style::bytes;
use crate::workload::Pattern;

const TCP: &str = "kernel TCP";
const OURS: &str = "STP over UDP";

#[derive(Debug, Serialize)]
struct Facts {
    message_bytes: usize,
    rounds: usize,
    tcp_goodput_bytes_per_s: f64,
    goodput_bytes_per_s: f64,
    ratio_to_tcp: f64,
    user_copied_bytes: u64,
    wakeups: u64,
    tcp_wakeups: u64,
    compared_bytes: u64,
    hash: String,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let len = (scale.messages as usize) << 20;
    let mut message = Memory::try_zeroed(len).context("no memory for a message")?;
    Pattern(7).fill(&mut message);
    let hash = blake3::hash(&message).to_string();
    let copy = message.to_vec();
    let endpoint = other::endpoint()?;
    let message = endpoint.register(message)?;
    let mut other = OtherProcess::start()?;
    let connection = other::connect(&endpoint, &other.doors, 1)?;
    // The first one brings pages and windows into their shape.
    let transfer = |other: &mut OtherProcess| send(&connection, other, &message, len);
    transfer(&mut other)?;
    stream(&mut other, &copy)?;
    let (mut ours, mut tcp, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut wakeups, mut tcp_wakeups, mut copied) = (0, 0, 0);
    for _ in 0..scale.rounds {
        let (by_tcp, told_tcp) = stream(&mut other, &copy)?;
        let (by_ours, told) = transfer(&mut other)?;
        ensure!(told.hash == hash, "the other process has other bytes: {}", told.hash);
        ensure!(told_tcp.hash == hash, "TCP brought other bytes");
        ratios.push(by_ours / by_tcp);
        ours.push(by_ours);
        tcp.push(by_tcp);
        wakeups = wakeups.max(told.wakeups);
        tcp_wakeups = tcp_wakeups.max(told_tcp.wakeups);
        copied = copied.max(told.copied);
    }
    let facts = Facts {
        message_bytes: len,
        rounds: scale.rounds,
        tcp_goodput_bytes_per_s: median(tcp),
        goodput_bytes_per_s: median(ours),
        ratio_to_tcp: median(ratios),
        user_copied_bytes: copied,
        wakeups,
        tcp_wakeups,
        compared_bytes: (len * scale.rounds) as u64,
        hash,
        equal: true,
    };
    Shown::new(lines(&facts), &facts)
}

/// A Transfer to the other process: bytes per second, and what it tells.
fn send(
    connection: &Connection,
    other: &mut OtherProcess,
    message: &Region,
    len: usize,
) -> Result<(f64, Report)> {
    other.ask(Ask::Transfer { len })?;
    let started = Instant::now();
    within_limit!(connection.send(message))?;
    let took = started.elapsed();
    Ok((len as f64 / took.as_secs_f64(), other.told()?))
}

/// The same by TCP: until the other process says that it has all.
fn stream(other: &mut OtherProcess, message: &[u8]) -> Result<(f64, Report)> {
    other.ask(Ask::Stream { len: message.len() })?;
    let mut stream = TcpStream::connect(other.doors.tcp)?;
    stream.read_exact(&mut [0])?;
    let started = Instant::now();
    stream.write_all(message)?;
    stream.read_exact(&mut [0])?;
    let took = started.elapsed();
    Ok((message.len() as f64 / took.as_secs_f64(), other.told()?))
}

fn lines(facts: &Facts) -> [String; 3] {
    [
        format!(
            "{TCP:22} {:>10}   the receiver was woken {} times",
            speed(facts.tcp_goodput_bytes_per_s),
            facts.tcp_wakeups
        ),
        format!(
            "{OURS:22} {:>10}   the receiver was woken {} times, {:.2} x TCP",
            speed(facts.goodput_bytes_per_s),
            facts.wakeups,
            facts.ratio_to_tcp
        ),
        format!(
            "{} messages of {}; of one, {} were copied in user space; BLAKE3 {}… at both ends: \
             equal",
            facts.rounds,
            bytes(facts.message_bytes as u64),
            bytes(facts.user_copied_bytes),
            &facts.hash[..16]
        ),
    ]
}
