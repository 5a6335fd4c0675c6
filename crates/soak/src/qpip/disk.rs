//! Block devices over queue pairs: the protocol of the network block device over a connection
//! that is a stream of bytes.

use std::collections::{BTreeMap, VecDeque};

use landfall_nbd::client::{self, Event, Wanted};
use landfall_nbd::server::{self, Ticket};
use landfall_nbd::{Command, Export, Features, Replies};
use qpip::PostError;

use super::device::{BLOCKS, Blocks, Disk, IssuedRequest, SIZE, bytes_of};
use super::truth::Connection;
use super::{LONGEST, Qpip};
use crate::ctx::Ctx;
use crate::plan::Work;

/// The kind of connections that carry this: one is a stream.
pub(super) const DISK: u8 = 4;
/// What waits for a session.
const MOST_WANTED: usize = 64;
/// The side that asked for the connection is the client.
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// What the two ends of such a connection know.
#[derive(Debug)]
pub(super) struct Conversation {
    /// All that was posted, by the side that sends it.
    pub(super) said: [Vec<u8>; 2],
    /// What is to be posted, by the side that sends it.
    outgoing: [VecDeque<u8>; 2],
    /// What came and was not understood yet, by the side that it came to.
    incoming: [Vec<u8>; 2],
    client: Client,
    server: Server,
    wanted: VecDeque<Work>,
    asked: BTreeMap<u64, IssuedRequest>,
    /// Bytes that come next are of this read: where they belong, and how many they are.
    landing: Option<(u64, usize, usize)>,
    /// Answers that the server thinks about.
    held: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Client {
    Choosing(client::Negotiation),
    Using(client::Session),
}

#[derive(Debug)]
enum Server {
    Choosing(server::Negotiation),
    Serving(server::Session),
}

impl Conversation {
    pub(super) fn new(name: usize) -> Self {
        let replies = [Replies::Simple, Replies::Structured, Replies::Extended][name % 3];
        let config = server::Config { replies, ..server::Config::default() };
        Self {
            said: Default::default(),
            outgoing: Default::default(),
            incoming: Default::default(),
            client: Client::Choosing(client::Negotiation::new(Wanted::export("disk"))),
            server: Server::Choosing(server::Negotiation::new(config)),
            wanted: VecDeque::new(),
            asked: BTreeMap::new(),
            landing: None,
            held: Vec::new(),
        }
    }

    /// What was begun and is not over.
    pub(super) fn left(&self) -> Option<String> {
        let count = self.wanted.len() + self.asked.len();
        let bytes = self.outgoing.iter().map(VecDeque::len).sum::<usize>();
        (count + bytes > 0).then(|| format!("{count} requests to a disk, {bytes} bytes unsent"))
    }
}

/// What a server offers.
fn exports() -> Vec<Export> {
    let mut export = Export::new("disk", SIZE);
    export.features = Features::FLUSH.with(Features::FUA).with(Features::WRITE_ZEROES);
    vec![export]
}

impl Qpip {
    /// Something is wanted of the disk that a host offers.
    pub(super) fn use_disk(&mut self, ctx: &mut Ctx, from: u8, to: u8, work: Work) {
        let is_it = |known: &Connection| {
            let is_theirs = (known.from, known.to, known.kind) == (from, to, DISK);
            is_theirs && known.takes(CLIENT) && known.takes(SERVER)
        };
        let known = self.connections.iter().position(is_it);
        let Some(name) = known.or_else(|| self.connect(ctx, from, to, DISK)) else { return };
        self.disks.entry((from, to)).or_insert_with(|| Disk::new(from, to));
        let Some(talk) = &mut self.connections[name].talk else { return };
        if talk.wanted.len() < MOST_WANTED {
            talk.wanted.push_back(work);
        }
        self.ask_disk(ctx, name);
    }

    /// The host of a side was told that its connection is open.
    pub(super) fn begin_disk(&mut self, ctx: &mut Ctx, name: usize, side: usize) {
        let known = &mut self.connections[name];
        let Some(talk) = &mut known.talk else { return };
        if side == SERVER {
            if let Server::Choosing(server) = &mut talk.server {
                talk.outgoing[SERVER].extend(server.poll_output().unwrap_or_default());
            }
            if let Some(disk) = self.disks.get_mut(&(known.from, known.to)) {
                disk.served = name;
            }
        }
        self.say(ctx, name, side);
    }

    /// The devices of a host lose what was not flushed.
    pub(super) fn forget_disks(&mut self, ctx: &mut Ctx, host: u8) {
        for ((_, to), disk) in &mut self.disks {
            if *to == host {
                disk.device.forget(&mut ctx.random);
                disk.client.forget();
            }
        }
    }

    /// Posts what a side has to say, as far as there is room.
    pub(super) fn say(&mut self, ctx: &mut Ctx, name: usize, side: usize) {
        loop {
            let known = &mut self.connections[name];
            let may_say = known.takes(side) && known.is_up[side];
            let Some(talk) = known.talk.as_mut().filter(|_| may_say) else { return };
            let len = talk.outgoing[side].len().min(LONGEST as usize);
            if len == 0 {
                return;
            }
            let bytes: Vec<u8> = talk.outgoing[side].iter().take(len).copied().collect();
            match self.post(ctx, name, side, &bytes) {
                Ok(()) => {
                    if let Some(talk) = &mut self.connections[name].talk {
                        talk.outgoing[side].drain(..len);
                        talk.said[side].extend(bytes);
                    }
                }
                Err(Some(PostError::QueueFull | PostError::Ended) | None) => return,
                Err(Some(error)) => {
                    let host = self.connections[name].host(side);
                    return ctx.fail(host, &format!("post_send says: {error}"));
                }
            }
        }
    }

    /// All that servers thought about is answered; what found no room before is posted.
    pub(super) fn settle_disks(&mut self, ctx: &mut Ctx) {
        for name in 0..self.connections.len() {
            let Some(talk) = &mut self.connections[name].talk else { continue };
            let held = std::mem::take(&mut talk.held);
            talk.outgoing[SERVER].extend(held.into_iter().flatten());
            self.say(ctx, name, CLIENT);
            self.say(ctx, name, SERVER);
        }
    }

    /// Bytes came to a side.
    pub(super) fn hear_disk(&mut self, ctx: &mut Ctx, name: usize, side: usize, bytes: &[u8]) {
        let known = &mut self.connections[name];
        let (from, to) = (known.from, known.to);
        let Some(talk) = &mut known.talk else { return };
        let Some(disk) = self.disks.get_mut(&(from, to)) else { return };
        talk.incoming[side].extend_from_slice(bytes);
        let result = match side {
            CLIENT => talk.hear_server(disk, ctx),
            _ if disk.served != name => Ok(()),
            _ => talk.hear_client(disk, ctx),
        };
        if let Err(what) = result {
            return ctx.fail([from, to][side], &format!("the disk of {to} for {from}: {what}"));
        }
        self.ask_disk(ctx, name);
        self.say(ctx, name, side);
    }

    /// Requests that wait are issued, once there is a session.
    fn ask_disk(&mut self, ctx: &mut Ctx, name: usize) {
        let known = &mut self.connections[name];
        let (from, to) = (known.from, known.to);
        let Some(talk) = &mut known.talk else { return };
        let Some(disk) = self.disks.get_mut(&(from, to)) else { return };
        let Client::Using(session) = &mut talk.client else { return };
        for work in std::mem::take(&mut talk.wanted) {
            let Work::Disk { kind, at, count, fua } = work else { continue };
            let start = usize::from(at) % BLOCKS;
            let blocks = start..(start + 1 + usize::from(count)).min(BLOCKS);
            let (asked, command, bytes) = disk.request(kind, &blocks, fua);
            let mut out = Vec::new();
            match session.issue(&command, &mut out) {
                Ok(cookie) => {
                    out.extend(bytes);
                    talk.outgoing[CLIENT].extend(out);
                    if talk.asked.insert(cookie, asked).is_some() {
                        ctx.fail(from, &format!("request {cookie} to a disk was given twice"));
                    }
                }
                Err(error) => ctx.fail(from, &format!("a request to a disk: {error}")),
            }
        }
        self.say(ctx, name, CLIENT);
    }
}

impl Disk {
    /// A request of this kind, and the bytes behind it.
    fn request(
        &mut self,
        kind: u8,
        blocks: &Blocks,
        fua: bool,
    ) -> (IssuedRequest, Command, Vec<u8>) {
        let bytes = bytes_of(blocks);
        let (offset, len) = (bytes.start as u64, bytes.len());
        match kind % 8 {
            0..3 => {
                let (asked, bytes) = self.client.write(blocks, false, fua);
                (asked, Command::Write { offset, length: len as u32, fua }, bytes)
            }
            3 => {
                let (asked, _) = self.client.write(blocks, true, fua);
                let (no_hole, fast_only, length) = (false, false, len as u64);
                let command = Command::WriteZeroes { offset, length, fua, no_hole, fast_only };
                (asked, command, Vec::new())
            }
            4 => (self.client.flush(), Command::Flush, Vec::new()),
            _ => {
                let command = Command::Read { offset, length: len as u32, dont_fragment: false };
                (self.client.read(blocks), command, Vec::new())
            }
        }
    }
}

impl Conversation {
    /// What a server said.
    fn hear_server(&mut self, disk: &mut Disk, ctx: &mut Ctx) -> Result<(), String> {
        loop {
            let incoming = &mut self.incoming[CLIENT];
            match &mut self.client {
                Client::Choosing(client) => {
                    let (used, step) = client.handle(incoming).map_err(|e| e.to_string())?;
                    incoming.drain(..used);
                    self.outgoing[CLIENT].extend(client.poll_output().unwrap_or_default());
                    if let client::Step::Transmission(session) = step {
                        disk.client.begin_session();
                        self.client = Client::Using(session);
                    } else if used == 0 {
                        return Ok(());
                    }
                }
                Client::Using(session) => {
                    if let Some((cookie, at, left)) = self.landing.take() {
                        let len = left.min(incoming.len());
                        let bytes: Vec<u8> = incoming.drain(..len).collect();
                        land(&mut self.asked, cookie, at, &bytes)?;
                        if len < left {
                            self.landing = Some((cookie, at + len, left - len));
                            return Ok(());
                        }
                        continue;
                    }
                    let heard = session.handle(incoming).map_err(|error| error.to_string())?;
                    let Some((used, event)) = heard else { return Ok(()) };
                    incoming.drain(..used);
                    self.take_event(event, disk, ctx)?;
                }
            }
        }
    }

    fn take_event(&mut self, event: Event, disk: &mut Disk, ctx: &mut Ctx) -> Result<(), String> {
        match event {
            Event::Data { cookie, at, len } => {
                self.landing = Some((cookie, at as usize, len as usize));
                Ok(())
            }
            Event::Hole { cookie, at, len } => {
                land(&mut self.asked, cookie, at as usize, &vec![0; len as usize])
            }
            Event::Done { cookie, result } => {
                let asked = self.asked.remove(&cookie);
                let asked = asked.ok_or_else(|| format!("{cookie} was answered twice"))?;
                result.map_err(|failed| failed.to_string())?;
                ctx.count("disk requests answered");
                disk.client.answered(asked).map_or(Ok(()), Err)
            }
            other => Err(format!("{other:?} was not asked for")),
        }
    }

    /// What a client said.
    fn hear_client(&mut self, disk: &mut Disk, ctx: &mut Ctx) -> Result<(), String> {
        loop {
            let incoming = &mut self.incoming[SERVER];
            match &mut self.server {
                Server::Choosing(server) => {
                    let handled = server.handle(incoming, &exports());
                    let (used, step) = handled.map_err(|error| error.to_string())?;
                    incoming.drain(..used);
                    self.outgoing[SERVER].extend(server.poll_output().unwrap_or_default());
                    if let server::Step::Transmission(session) = step {
                        self.server = Server::Serving(session);
                    } else if used == 0 {
                        return Ok(());
                    }
                }
                Server::Serving(session) => {
                    let head = session.head_len();
                    if incoming.len() < head {
                        return Ok(());
                    }
                    let request = session.request(incoming, SIZE).map_err(|e| e.to_string())?;
                    let end = head + request.payload as usize;
                    if incoming.len() < end {
                        return Ok(());
                    }
                    let bytes: Vec<u8> = incoming.drain(..end).skip(head).collect();
                    let command = request.command.map_err(|refusal| refusal.to_string())?;
                    let answer = disk.carry_out(session, request.ticket, command, &bytes, ctx);
                    self.held.push(answer);
                    // Some answers wait for others, and overtake them.
                    while !self.held.is_empty() && ctx.chance(75) {
                        let nth = ctx.below(self.held.len() as u64) as usize;
                        self.outgoing[SERVER].extend(self.held.swap_remove(nth));
                    }
                }
            }
        }
    }
}

impl Disk {
    /// Does what was asked; gives the answer.
    fn carry_out(
        &mut self,
        session: &server::Session,
        ticket: Ticket,
        command: Command,
        bytes: &[u8],
        ctx: &mut Ctx,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        match command {
            Command::Read { offset, length, .. } => {
                let pieces = if session.has_chunks() { 1 + ctx.below(3) as u32 } else { 1 };
                let most = length.div_ceil(pieces);
                let mut at = 0;
                while at < length {
                    let (begin, len) = (offset + u64::from(at), most.min(length - at));
                    session.data(&mut out, ticket, begin, len, at + len == length);
                    out.extend_from_slice(self.device.read(begin as usize, len as usize));
                    at += len;
                }
                return out;
            }
            Command::Write { offset, fua, .. } => self.device.write(offset as usize, bytes, fua),
            Command::WriteZeroes { offset, length, fua, .. } => {
                self.device.write(offset as usize, &vec![0; length as usize], fua);
            }
            Command::Flush => self.device.flush(),
            _ => {}
        }
        session.done(&mut out, ticket);
        out
    }
}

/// Bytes of a read came.
fn land(
    asked: &mut BTreeMap<u64, IssuedRequest>,
    cookie: u64,
    at: usize,
    bytes: &[u8],
) -> Result<(), String> {
    let asked = asked.get_mut(&cookie).ok_or_else(|| format!("{cookie} was not asked for"))?;
    asked.land(at, bytes);
    Ok(())
}
