//! An HTTP/1.1 client on a queue pair, for servers on the kernel's sockets.
//!
//! As a virtual cable to this machine's kernel (root), and a server there:
//!
//! ```sh
//! cargo run --release --example qpip_http -- tap landfall0 10.9.0.1:8000 /README.md &
//! python3 -m http.server --bind 10.9.0.1 8000
//! ```
//!
//! On an interface that this machine uses, for servers on that network or behind
//! its gateway (root):
//!
//! ```sh
//! cargo run --release --example qpip_http -- packet eth0 192.168.1.77/24 192.168.1.1 192.0.2.80:80 /
//! ```

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use landfall::qpip::{
    Access, Adapter, Delimiter, Link, Mapping, Memory, Operation, Phase, QueuePairOptions,
    Reassembler, TapConfig,
};

/// So much of the answer is under way at a time.
const WINDOW: u64 = 1 << 20;
/// In this many requests.
const PIECES: u64 = 4;
/// How long the server may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);

fn open() -> anyhow::Result<(Adapter, SocketAddr, String)> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (builder, server, path) = match arguments[..] {
        ["tap", name, server, path] => {
            let kernel_address = Some(([10, 9, 0, 1].into(), 24));
            let config = TapConfig { kernel_address, ..TapConfig::new(name) };
            let link = Link::tap_with(config);
            (Adapter::builder().link(link).address("10.9.0.2/24"), server, path)
        }
        ["packet", interface, address, gateway, server, path] => {
            let builder = Adapter::builder().link(Link::packet(interface));
            (builder.address(address).gateway(gateway), server, path)
        }
        _ => bail!(
            "use: qpip_http tap NAME SERVER:PORT PATH | \
             qpip_http packet INTERFACE ADDRESS/PREFIX GATEWAY SERVER:PORT PATH"
        ),
    };
    // This thread has nothing else to do: it runs the adapter itself.
    Ok((builder.open_inline()?, server.parse()?, path.to_owned()))
}

fn main() -> anyhow::Result<()> {
    let (adapter, server, path) = open()?;
    let domain = adapter.domain()?;
    let mut done = adapter.completion_queue(64)?;
    let room = domain.register(Memory::zeroed(WINDOW as usize), Access::Write)?;
    let options = QueuePairOptions::tcp(Mapping::Stream);
    let start = Instant::now();
    let mut pair = loop {
        let pair = domain.queue_pair(&options, &done, &done)?;
        match pair.connect(server).wait_for(PATIENCE).context("nobody answers")? {
            Ok(()) => break pair,
            // Not yet, perhaps.
            Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(PATIENCE / 300),
            Err(error) => return Err(error.into()),
        }
    };
    let size = WINDOW / PIECES;
    let piece = |n: u64| room.part(n * size..(n + 1) * size);
    for n in 0..PIECES {
        pair.post_receive(n, &[piece(n)?])?;
    }
    let question = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    let question = domain.register(Memory::from_bytes(question.as_bytes()), Access::Read)?;
    pair.post_send(0, &[question.whole()?])?;

    let mut answer = Answer::new();
    loop {
        let Some(next) = done.wait_for(Duration::from_millis(10))? else {
            if pair.phase() != Phase::Connected {
                break;
            }
            continue;
        };
        if next.operation == Operation::Send {
            ensure!(next.status.is_success(), "the question: {}", next.status);
            continue;
        }
        if !next.status.is_success() {
            // The connection is over: what is left of the room is flushed.
            break;
        }
        let mut bytes = vec![0; next.len as usize];
        room.copy_out(next.id * size + u64::from(next.offset), &mut bytes)?;
        answer.take(&bytes)?;
        if next.ends_request {
            pair.post_receive(next.id, &[piece(next.id)?])?;
        }
    }
    eprintln!("{} ({} bytes in {:?})", answer.status, answer.body, start.elapsed());
    ensure!(answer.is_whole(), "the answer ended early");
    if pair.phase() == Phase::PeerFinished {
        pair.close().wait_for(PATIENCE).context("the server does not close")??;
    }
    Ok(())
}

/// The answer as it comes: lines until an empty one, then the body.
struct Answer {
    lines: Reassembler<Delimiter>,
    in_body: bool,
    status: String,
    length: Option<u64>,
    body: u64,
}

impl Answer {
    fn new() -> Self {
        Self {
            lines: Reassembler::new(Delimiter::new(*b"\r\n"), 16 << 10),
            in_body: false,
            status: String::new(),
            length: None,
            body: 0,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut rest = bytes;
        // Headers are short: byte by byte, so that the body begins where it does.
        while !self.in_body && !rest.is_empty() {
            let (byte, behind) = rest.split_at(1);
            rest = behind;
            let (mut line, mut ended) = (Vec::new(), false);
            self.lines.push(byte, |bytes| {
                line = bytes.to_vec();
                ended = true;
            })?;
            if ended {
                self.hear(&String::from_utf8_lossy(&line));
            }
        }
        self.body += rest.len() as u64;
        Ok(io::stdout().write_all(rest)?)
    }

    fn hear(&mut self, line: &str) {
        if self.status.is_empty() {
            self.status = line.to_owned();
        } else if line.is_empty() {
            self.in_body = true;
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            self.length = value.trim().parse().ok();
        }
    }

    fn is_whole(&self) -> bool {
        self.in_body && self.length.is_none_or(|length| length == self.body)
    }
}
