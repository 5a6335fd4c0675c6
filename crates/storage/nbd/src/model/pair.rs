//! Both ends, and a network that cuts anywhere. A server that answers in any order and in any
//! pieces, from a naive device; what the client hears has to be what the server did.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::Choices;
use crate::client::{self, Event, Wanted};
use crate::server::{self, Config, Ticket};
use crate::{BlockSizes, Command, Errno, Export, Extent, Features, Replies};

const SIZE: u64 = 4096;

/// What the client shall hear of a request.
#[derive(Debug, Default)]
struct Expected {
    data: Vec<u8>,
    extents: Vec<Extent>,
    errno: Option<Errno>,
}

/// A request of the client's.
#[derive(Debug)]
struct ModelRequest {
    command: Command,
    /// What has come of it.
    data: Vec<u8>,
    extents: Vec<Extent>,
    expected: Option<Expected>,
}

struct Pair<'a> {
    choices: Choices<'a>,
    failures: Vec<String>,
    to_client: VecDeque<u8>,
    to_server: VecDeque<u8>,
    device: Vec<u8>,
    asked: BTreeMap<u64, ModelRequest>,
    /// What the server has understood and not answered.
    waiting: Vec<(Ticket, Command, Vec<u8>)>,
}

/// Runs both ends by these decisions, and tells where they disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut pair = Pair {
        choices: Choices(bytes),
        failures: Vec::new(),
        to_client: VecDeque::new(),
        to_server: VecDeque::new(),
        device: (0..SIZE).map(|at| (at / 7) as u8).collect(),
        asked: BTreeMap::new(),
        waiting: Vec::new(),
    };
    if let Some((client, server)) = pair.negotiate() {
        pair.transmit(client, &server);
    }
    pair.failures
}

impl Pair<'_> {
    fn fail(&mut self, what: String) {
        self.failures.push(what);
    }

    /// What arrives next of a stream: some of it, all of it where the decisions are over.
    fn arrives(choices: &mut Choices<'_>, stream: &VecDeque<u8>) -> Vec<u8> {
        let most = stream.len() as u64;
        let len = if choices.is_over() { most } else { 1 + choices.below(most.max(1)) };
        stream.iter().copied().take(len as usize).collect()
    }

    fn negotiate(&mut self) -> Option<(client::Session, server::Session)> {
        let replies = [Replies::Simple, Replies::Structured, Replies::Extended];
        let mut pick = || replies[self.choices.below(3) as usize];
        let (offered, wanted) = (pick(), pick());
        let mut export = Export::new("disk", SIZE);
        export.features = Features::FLUSH
            .with(Features::FUA)
            .with(Features::TRIM)
            .with(Features::WRITE_ZEROES)
            .with(Features::RESIZE)
            .with(Features::CACHE);
        if self.choices.flag() {
            export.blocks = BlockSizes { minimum: 512, preferred: 512, maximum: 2048 };
        }
        let exports = vec![Export::new("other", 1), export];
        let config = Config { replies: offered, ..Config::default() };
        let mut server = server::Negotiation::new(config);
        let mut client =
            client::Negotiation::new(Wanted { replies: wanted, ..Wanted::export("disk") });
        let (mut done_client, mut done_server) = (None, None);
        // Each turn delivers a byte at least: they cannot be more than the bytes there are.
        for _ in 0..10_000 {
            self.to_client.extend(server.poll_output().unwrap_or_default());
            self.to_server.extend(client.poll_output().unwrap_or_default());
            if done_client.is_none() {
                let bytes = Self::arrives(&mut self.choices, &self.to_client);
                match client.handle(&bytes) {
                    Ok((used, step)) => {
                        self.to_client.drain(..used);
                        if let client::Step::Transmission(session) = step {
                            done_client = Some(session);
                        }
                    }
                    Err(error) => self.fail(format!("the client fails: {error}")),
                }
            }
            if done_server.is_none() {
                let bytes = Self::arrives(&mut self.choices, &self.to_server);
                match server.handle(&bytes, &exports) {
                    Ok((used, step)) => {
                        self.to_server.drain(..used);
                        if let server::Step::Transmission(session) = step {
                            done_server = Some(session);
                        }
                    }
                    Err(error) => self.fail(format!("the server fails: {error}")),
                }
            }
            if !self.failures.is_empty() {
                return None;
            }
            if let (Some(client), Some(server)) = (&done_client, &done_server) {
                let agreed = offered.min(wanted);
                if client.replies() != agreed || server.replies() != agreed {
                    self.fail(format!("{agreed:?} was to be agreed on"));
                }
                if client.export() != server.export() {
                    let (client, server) = (client.export(), server.export());
                    self.fail(format!("{client:?} is not {server:?}"));
                }
                return done_client.zip(done_server);
            }
        }
        self.fail(String::from("the negotiation does not end"));
        None
    }

    fn transmit(&mut self, mut client: client::Session, server: &server::Session) {
        let mut quiet_turns = 0;
        while self.failures.is_empty() {
            let is_over = self.choices.is_over();
            if !is_over {
                self.ask(&mut client);
            }
            self.understand(server);
            self.answer(server);
            self.hear(&mut client);
            let quiet = self.to_client.is_empty() && self.to_server.is_empty();
            quiet_turns =
                if is_over && quiet && self.waiting.is_empty() { quiet_turns + 1 } else { 0 };
            // What is over with the last data is told of when all bytes are gone.
            if quiet_turns > 2 {
                break;
            }
        }
        if self.failures.is_empty() && (client.in_flight() > 0 || !self.asked.is_empty()) {
            self.fail(format!("{} requests were never answered", self.asked.len()));
        }
    }

    fn ask(&mut self, client: &mut client::Session) {
        let block = u64::from(client.export().blocks.minimum);
        let offset = self.choices.below(SIZE / block + 1) * block;
        let len = self.choices.below(2048 / block + 1) * block;
        let (length, kind) = (len as u32, self.choices.below(8));
        let (fua, other) = (self.choices.flag(), self.choices.flag());
        let command = match kind {
            0 => Command::Read { offset, length, dont_fragment: other },
            1 => Command::Write { offset, length, fua },
            2 => Command::Flush,
            3 => Command::Trim { offset, length: len, fua },
            4 => Command::Cache { offset, length: len },
            5 => {
                let (no_hole, fast_only) = (other, false);
                Command::WriteZeroes { offset, length: len, fua, no_hole, fast_only }
            }
            6 => Command::BlockStatus { offset, length: len, one: other },
            _ => Command::Resize { size: SIZE },
        };
        let mut out = Vec::new();
        let Ok(cookie) = client.issue(&command, &mut out) else { return };
        let data = match command {
            Command::Write { length, .. } => vec![self.choices.byte(); length as usize],
            Command::Read { length, .. } => vec![0xee; length as usize],
            _ => Vec::new(),
        };
        self.to_server.extend(out);
        if command.payload() > 0 {
            self.to_server.extend(&data);
        }
        let asked = ModelRequest { command, data, extents: Vec::new(), expected: None };
        if self.asked.insert(cookie, asked).is_some() {
            self.fail(format!("{cookie} was given twice"));
        }
    }

    fn understand(&mut self, server: &server::Session) {
        let there = self.to_server.make_contiguous();
        if there.len() < server.head_len() {
            return;
        }
        let incoming = match server.request(there, SIZE) {
            Ok(incoming) => incoming,
            Err(error) => return self.fail(format!("the server fails: {error}")),
        };
        let payload = incoming.payload as usize;
        if there.len() < server.head_len() + payload {
            return;
        }
        self.to_server.drain(..server.head_len());
        let data: Vec<u8> = self.to_server.drain(..payload).collect();
        let ticket = incoming.ticket;
        let issued = self.asked.get(&ticket.cookie).map(|asked| asked.command);
        match incoming.command {
            Ok(command) if Some(command) == issued => self.waiting.push((ticket, command, data)),
            other => self.fail(format!("{issued:?} was understood as {other:?}")),
        }
    }

    fn answer(&mut self, server: &server::Session) {
        if self.waiting.is_empty() {
            return;
        }
        let nth = self.choices.below(self.waiting.len() as u64) as usize;
        let (ticket, command, data) = self.waiting.swap_remove(nth);
        let (mut out, mut expected) = (Vec::new(), Expected::default());
        if self.choices.below(8) == 7 {
            expected.errno = Some(Errno::IO);
            let at = ticket.offset;
            if server.has_chunks() && self.choices.flag() {
                server.error_at(&mut out, ticket, Errno::IO, at);
            } else {
                server.error(&mut out, ticket, Errno::IO, "it was to fail");
            }
        } else {
            match command {
                Command::Read { offset, length, dont_fragment } => {
                    let begin = offset as usize;
                    expected.data = self.device[begin..begin + length as usize].to_vec();
                    let whole = dont_fragment || !server.has_chunks();
                    self.pieces(server, ticket, (offset, length), whole, &mut out);
                }
                Command::BlockStatus { length, one, .. } => {
                    let mut left = length;
                    // The client may have to take many of them apart.
                    let most = if one { 1 } else { 1 + self.choices.below(40) };
                    for nth in 1..=most {
                        let len = if nth == most { left } else { 1 + self.choices.below(left) };
                        let make = if nth % 2 == 0 { Extent::hole } else { Extent::data };
                        expected.extents.push(make(len));
                        left -= len;
                        if left == 0 {
                            break;
                        }
                    }
                    server.status(&mut out, ticket, &expected.extents);
                }
                _ => {
                    self.change(command, &data);
                    server.done(&mut out, ticket);
                }
            }
        }
        self.to_client.extend(out);
        if let Some(asked) = self.asked.get_mut(&ticket.cookie) {
            asked.expected = Some(expected);
        }
    }

    /// Data of a read, in pieces and in any order where it may be so.
    fn pieces(
        &mut self,
        server: &server::Session,
        ticket: Ticket,
        (offset, length): (u64, u32),
        whole: bool,
        out: &mut Vec<u8>,
    ) {
        if length == 0 {
            return server.done(out, ticket);
        }
        let mut parts = Vec::new();
        let mut at = 0;
        while at < length {
            let left = length - at;
            let len = if whole { left } else { 1 + self.choices.below(left.into()) as u32 };
            parts.push((offset + u64::from(at), len));
            at += len;
            if parts.len() == 8 && at < length {
                parts.push((offset + u64::from(at), length - at));
                break;
            }
        }
        if self.choices.flag() {
            parts.reverse();
        }
        let ends_with_data = whole || self.choices.flag();
        let count = parts.len();
        for (nth, (begin, len)) in parts.into_iter().enumerate() {
            let last = ends_with_data && nth + 1 == count;
            let bytes = &self.device[begin as usize..][..len as usize];
            if server.has_chunks() && bytes.iter().all(|byte| *byte == 0) {
                server.hole(out, ticket, begin, len, last);
            } else {
                server.data(out, ticket, begin, len, last);
                out.extend_from_slice(bytes);
            }
        }
        if !ends_with_data {
            server.done(out, ticket);
        }
    }

    fn change(&mut self, command: Command, data: &[u8]) {
        match command {
            Command::Write { offset, .. } => {
                self.device[offset as usize..][..data.len()].copy_from_slice(data);
            }
            Command::Trim { offset, length, .. } | Command::WriteZeroes { offset, length, .. } => {
                self.device[offset as usize..][..length as usize].fill(0);
            }
            _ => {}
        }
    }

    fn hear(&mut self, client: &mut client::Session) {
        let bytes = Self::arrives(&mut self.choices, &self.to_client);
        let (used, event) = match client.handle(&bytes) {
            Ok(Some(heard)) => heard,
            Ok(None) => return,
            Err(error) => return self.fail(format!("the client fails: {error}")),
        };
        self.to_client.drain(..used);
        match event {
            Event::Data { cookie, at, len } => {
                let data: Vec<u8> = self.to_client.drain(..len as usize).collect();
                self.land(cookie, at, &data);
            }
            Event::Hole { cookie, at, len } => self.land(cookie, at, &vec![0; len as usize]),
            Event::Status { cookie, extents } => {
                if let Some(asked) = self.asked.get_mut(&cookie) {
                    asked.extents.extend(extents);
                }
            }
            Event::Failing { .. } => {}
            Event::Done { cookie, result } => {
                let Some(asked) = self.asked.remove(&cookie) else {
                    return self.fail(format!("{cookie} is over twice"));
                };
                let expected = asked.expected.unwrap_or_default();
                let errno = result.err().map(|failed| failed.errno);
                let is_read = matches!(asked.command, Command::Read { .. });
                let same = errno == expected.errno
                    && (errno.is_some()
                        || (!is_read || asked.data == expected.data)
                            && asked.extents == expected.extents);
                if !same {
                    self.fail(format!("{:?} ended with {errno:?}: {expected:?}", asked.command));
                }
            }
        }
    }

    fn land(&mut self, cookie: u64, at: u32, data: &[u8]) {
        match self.asked.get_mut(&cookie) {
            Some(asked) => asked.data[at as usize..][..data.len()].copy_from_slice(data),
            None => self.fail(format!("data for {cookie}, which is over")),
        }
    }
}
