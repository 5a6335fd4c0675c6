//! A small client of NFS version 3 over UDP (RFC 1813, RFC 5531), which reads a file from one end to
//! the other, with several reads under way as a kernel's client has them: it makes the traffic
//! whose fragments `landfall paper defrag --pcap` studies.
//!
//! ```sh
//! cargo run --release -p landfall-lab --example nfs_over_udp -- 10.99.0.1 /srv/export file 32768 4
//! ```
//!
//! The words: the server, what it exports, a file there, how many bytes a read asks for, and how
//! many reads are under way. Port 2049 serves files, port 20048 mounts.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// A program of remote procedures, its version and the port that serves it.
#[derive(Clone, Copy)]
struct Program {
    number: u32,
    port: u16,
}

const MOUNT: Program = Program { number: 100_005, port: 20_048 };
const NFS: Program = Program { number: 100_003, port: 2_049 };
const VERSION: u32 = 3;
const MNT: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
/// A call that is not answered is repeated so often.
const ATTEMPTS: u32 = 5;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, export, name, len, under_way] = &words[..] else {
        bail!("give the server, the export, the file, the length of a read and how many at once");
    };
    let server: IpAddr = server.parse().context("the server is an address")?;
    let (len, under_way) = (len.parse::<u32>()?, under_way.parse::<usize>()?);
    let mut client = Client::new(server)?;
    let root = client.mount(export)?;
    let file = client.lookup(&root, name)?;
    let (reads, bytes) = client.read_all(&file, len, under_way.max(1))?;
    println!("{reads} reads, {bytes} bytes, {} calls repeated", client.repeated);
    Ok(())
}

struct Client {
    socket: UdpSocket,
    server: IpAddr,
    next_call: u32,
    repeated: u64,
}

impl Client {
    fn new(server: IpAddr) -> Result<Self> {
        let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(Self { socket, server, next_call: 1, repeated: 0 })
    }

    /// Gives the number of the call.
    fn send(
        &mut self,
        program: Program,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<(u32, Vec<u8>)> {
        let number = self.next_call;
        self.next_call += 1;
        let mut call = Words::default();
        // A call of RPC version 2.
        call.words(&[number, 0, 2, program.number, VERSION, procedure]);
        // By user 0 of group 0, as this machine (AUTH_SYS).
        let mut who = Words::default();
        who.word(0);
        who.opaque(b"landfall");
        who.words(&[0, 0, 0]);
        call.word(1);
        call.opaque(&who.0);
        call.words(&[0, 0]);
        call.0.extend_from_slice(arguments);
        self.socket.send_to(&call.0, SocketAddr::new(self.server, program.port))?;
        Ok((number, call.0))
    }

    /// The next answer: its call's number and its results. Nothing if none came in time.
    fn receive(&self) -> Result<Option<(u32, Vec<u8>)>> {
        let mut bytes = vec![0; 1 << 16];
        let len = match self.socket.recv(&mut bytes) {
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        bytes.truncate(len);
        let mut results = Results(&bytes);
        let number = results.word()?;
        let (kind, is_denied) = (results.word()?, results.word()?);
        ensure!(kind == 1 && is_denied == 0, "the server denies the call");
        results.word()?;
        results.opaque()?;
        let status = results.word()?;
        ensure!(status == 0, "the server does not know the procedure ({status})");
        Ok(Some((number, results.0.to_vec())))
    }

    fn call(&mut self, program: Program, procedure: u32, arguments: &[u8]) -> Result<Vec<u8>> {
        for attempt in 0..ATTEMPTS {
            self.repeated += u64::from(attempt > 0);
            let (number, _) = self.send(program, procedure, arguments)?;
            while let Some((answered, results)) = self.receive()? {
                if answered == number {
                    return Ok(results);
                }
            }
        }
        bail!("{} does not answer at port {}", self.server, program.port)
    }

    fn mount(&mut self, export: &str) -> Result<Vec<u8>> {
        let mut arguments = Words::default();
        arguments.opaque(export.as_bytes());
        let results = self.call(MOUNT, MNT, &arguments.0)?;
        let mut results = Results(&results);
        let status = results.word()?;
        ensure!(status == 0, "{export} cannot be mounted (error {status})");
        results.opaque()
    }

    fn lookup(&mut self, folder: &[u8], name: &str) -> Result<Vec<u8>> {
        let mut arguments = Words::default();
        arguments.opaque(folder);
        arguments.opaque(name.as_bytes());
        let results = self.call(NFS, LOOKUP, &arguments.0)?;
        let mut results = Results(&results);
        let status = results.word()?;
        ensure!(status == 0, "{name} is not there (error {status})");
        results.opaque()
    }

    /// Reads up to the end of the file; gives how many reads and bytes that were.
    fn read_all(&mut self, file: &[u8], len: u32, under_way: usize) -> Result<(u64, u64)> {
        let mut waiting: HashMap<u32, (u64, u32)> = HashMap::new();
        let (mut next, mut end, mut reads, mut bytes) = (0_u64, u64::MAX, 0, 0);
        loop {
            while waiting.len() < under_way && next < end {
                let number = self.send_read(file, next, len)?;
                waiting.insert(number, (next, 0));
                next += u64::from(len);
            }
            if waiting.is_empty() {
                return Ok((reads, bytes));
            }
            let Some((number, results)) = self.receive()? else {
                for (number, (offset, attempts)) in std::mem::take(&mut waiting) {
                    ensure!(attempts < ATTEMPTS, "call {number} is not answered");
                    self.repeated += 1;
                    let again = self.send_read(file, offset, len)?;
                    waiting.insert(again, (offset, attempts + 1));
                }
                continue;
            };
            // What was answered twice is known.
            let Some((offset, _)) = waiting.remove(&number) else { continue };
            let mut results = Results(&results);
            let status = results.word()?;
            ensure!(status == 0, "a read at {offset} fails (error {status})");
            if results.word()? == 1 {
                // The attributes of the file.
                results.take(84)?;
            }
            let (count, is_end) = (results.word()?, results.word()? == 1);
            if is_end {
                end = end.min(offset + u64::from(count));
            }
            (reads, bytes) = (reads + 1, bytes + u64::from(count));
        }
    }

    fn send_read(&mut self, file: &[u8], offset: u64, len: u32) -> Result<u32> {
        let mut arguments = Words::default();
        arguments.opaque(file);
        arguments.words(&[(offset >> 32) as u32, offset as u32, len]);
        Ok(self.send(NFS, READ, &arguments.0)?.0)
    }
}

/// XDR (RFC 4506), to be sent.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn word(&mut self, word: u32) {
        self.0.extend(word.to_be_bytes());
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.word(*word));
    }

    fn opaque(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// XDR that came.
struct Results<'a>(&'a [u8]);

impl Results<'_> {
    fn take(&mut self, len: usize) -> Result<Vec<u8>> {
        let (taken, rest) = self.0.split_at_checked(len).context("the answer is cut short")?;
        self.0 = rest;
        Ok(taken.to_vec())
    }

    fn word(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn opaque(&mut self) -> Result<Vec<u8>> {
        let len = self.word()? as usize;
        let bytes = self.take(len.next_multiple_of(4))?;
        Ok(bytes[..len].to_vec())
    }
}
