//! A distributed queue and a stream between two threads, over shared memory with
//! tripwires, and how fast they are.
//!
//!     cargo run --release --example clan_queue
//!     cargo run --release --example clan_queue -- 50000000 1024
//!
//! The arguments are the number of elements and the MiB of the stream. With
//! `LANDFALL_TRANSPORT=nic` the two have no memory in common: they are two nodes, with a
//! simulated adapter each and a cable between them.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall::clan::layer::{queue, rpc, stream};
use landfall::clan::network::{ChannelConfig, HostId, Node, Peer};
use landfall::clan::{Fabric, Threads};
use landfall::nic;

/// Bytes of an element.
const ELEMENT: usize = 32;
/// Elements that are copied at once, where that is possible.
const AT_ONCE: usize = 64;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: u64| match arguments.next() {
        None => Ok(default),
        Some(text) => text.parse().with_context(|| format!("{text:?} is no number")),
    };
    let (elements, mib) = (next(2_000_000)?, next(256)?);
    match nic::chosen()? {
        None => {
            let (here, there) = Threads::pair()?;
            run_all(&here, &there, elements, mib)
        }
        Some(_) => {
            let (here, there) = nodes()?;
            run_all(&here, &there, elements, mib)
        }
    }
}

/// Two nodes of this process, and a cable between them.
fn nodes() -> Result<(Node, Node)> {
    let host = |number| HostId::new(number).context("hosts have fourteen bits");
    let (here, there) = (Node::builder(host(1)?), Node::builder(host(2)?));
    let (here, there) = here.open_pair(there, ChannelConfig::default())?;
    let soon = Instant::now() + Duration::from_secs(10);
    there.link(Peer::Node(0))?.wait_up(Some(soon))?;
    Ok((here, there))
}

fn run_all<F: Fabric>(here: &F, there: &F, elements: u64, mib: u64) -> Result<()> {
    for (name, config, at_once) in [
        ("each published singly", queue::Config::new(ELEMENT as u32, 4096).singly(), 1),
        ("published in batches", queue::Config::new(ELEMENT as u32, 4096), 1),
        ("copied in batches too", queue::Config::new(ELEMENT as u32, 4096), AT_ONCE),
    ] {
        let took = run_queue(here, there, config, elements, at_once)?;
        let rate = elements as f64 / took.as_secs_f64() / 1e6;
        println!("queue of {ELEMENT}-byte elements, {name}: {rate:.1} million/s");
    }
    for len in [64, 256, 750, 4096, 65_536] {
        let total = (mib << 20).min(len as u64 * elements);
        let took = run_stream(here, there, len, total)?;
        let rate = total as f64 / took.as_secs_f64() / 1e9;
        println!("stream of {len}-byte messages: {rate:.2} GB/s");
    }
    let calls = 20_000.min(elements);
    let took = run_calls(here, there, calls)?;
    println!("a call and its reply: {:?}", took / calls as u32);
    Ok(())
}

/// The receiver checks that each element is the next one.
fn run_queue<F: Fabric>(
    here: &F,
    there: &F,
    config: queue::Config,
    elements: u64,
    at_once: usize,
) -> Result<Duration> {
    let sender = queue::Sender::open(here, config)?;
    let receiver = queue::Receiver::open(there, config)?;
    let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
    let (mut sender, mut receiver) = (sender.connect(&to_receiver)?, receiver.connect(&to_sender)?);

    let start = Instant::now();
    let sending = std::thread::spawn(move || -> Result<()> {
        let mut batch = vec![0; ELEMENT * at_once];
        let mut nth = 0;
        while nth < elements {
            let count = (elements - nth).min(at_once as u64) as usize;
            for (element, nth) in batch.chunks_mut(ELEMENT).zip(nth..) {
                element[..8].copy_from_slice(&nth.to_le_bytes());
            }
            let mut rest = &batch[..count * ELEMENT];
            if at_once > 1 {
                rest = &rest[sender.try_put_many(rest)? * ELEMENT..];
            }
            for element in rest.chunks(ELEMENT) {
                sender.put(element, None)?;
            }
            nth += count as u64;
        }
        sender.drain(None)?;
        Ok(())
    });
    let mut batch = vec![0; ELEMENT * at_once];
    let mut nth = 0;
    while nth < elements {
        receiver.ready(None)?;
        let got = receiver.try_get_many(&mut batch)?;
        for element in batch.chunks(ELEMENT).take(got) {
            ensure!(element[..8] == nth.to_le_bytes(), "element {nth} is another one");
            nth += 1;
        }
    }
    let took = start.elapsed();
    // Anyone who looks for no more says so: the sender waits until all was taken.
    drop(receiver);
    sending.join().expect("the sender does not panic")?;
    Ok(took)
}

fn run_stream<F: Fabric>(here: &F, there: &F, len: usize, total: u64) -> Result<Duration> {
    let reader = stream::Reader::open(there, stream::Config::DEFAULT)?;
    let writer = stream::Writer::open(here, stream::Config::DEFAULT)?;
    let (to_reader, to_writer) = (reader.cookie(), writer.cookie());
    let (mut reader, mut writer) = (reader.connect(&to_writer)?, writer.connect(&to_reader)?);

    let start = Instant::now();
    let writing = std::thread::spawn(move || -> Result<()> {
        let message = vec![7; len];
        for _ in 0..total / len as u64 {
            writer.write_all(&message)?;
        }
        writer.finish()?;
        writer.drain(None)?;
        Ok(())
    });
    let mut into = vec![0; 64 << 10];
    let mut got = 0;
    loop {
        match reader.read(&mut into)? {
            0 => break,
            count => got += count as u64,
        }
    }
    ensure!(got == total / len as u64 * len as u64, "only {got} bytes came");
    let took = start.elapsed();
    writing.join().expect("the writer does not panic")?;
    Ok(took)
}

fn run_calls<F: Fabric>(here: &F, there: &F, calls: u64) -> Result<Duration> {
    let config = rpc::Config::new(64, 64);
    let (client, server) = (rpc::Client::open(here, config)?, rpc::Server::open(there, config)?);
    let (to_client, to_server) = (client.cookie(), server.cookie());
    let (mut client, mut server) = (client.connect(&to_server)?, server.connect(&to_client)?);

    let serving = std::thread::spawn(move || -> Result<()> {
        for _ in 0..calls {
            server.serve_one(None, |request, reply| reply.extend_from_slice(request))?;
        }
        Ok(())
    });
    let start = Instant::now();
    for _ in 0..calls {
        ensure!(client.call(b"ping", None)? == b"ping", "the reply is another one");
    }
    let took = start.elapsed();
    serving.join().expect("the server does not panic")?;
    Ok(took)
}
