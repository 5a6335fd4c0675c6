//! What the users of the two ends do and are told, and what must be true of it.

use landfall_placement::{Area, Engine, RegionId, Span, WordFunction, WordWidth};
use stp_core::{ConnectionId, Event, PutOptions, RemoteRegion, Rights, SendId};

use super::Wire;

/// The longest Transfer.
const MOST: usize = 1_500;
/// Transfers, Puts and word operations of one run: more say nothing new.
const MOST_CALLS: usize = 24;
/// The region of side 1: a word, then places for Puts.
const REGION: usize = 64 + PLACES * PUT;
const PLACES: usize = 4;
const PUT: usize = 16;

/// A Transfer that was begun.
#[derive(Debug)]
struct Transfer {
    from: usize,
    bytes: Vec<u8>,
    /// Where it was delivered.
    at: Option<Area>,
    /// Its sender heard that it arrived.
    is_sent: bool,
    /// Its connection has ended, or it was given up.
    is_over: bool,
    send: SendId,
}

/// A Put, by its number: all of its bytes are that number.
#[derive(Clone, Copy, Debug)]
struct Put {
    place: usize,
    is_done: bool,
}

/// Both users.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) region: Option<RemoteRegion>,
    pub(super) wrong: Vec<String>,
    ids: [Option<ConnectionId>; 2],
    /// Connections that side 0 asked for, by their number.
    connects: u64,
    /// The numbers of those that side 1 accepted.
    accepted: Vec<u64>,
    has_connected: bool,
    ended: [bool; 2],
    /// A Transfer has ended before it arrived: its other end was silent for too long.
    pub(super) has_given_up: bool,
    transfers: Vec<Transfer>,
    /// Memory that was posted, and of which side.
    posted: Vec<(usize, Area)>,
    exposed: Option<Area>,
    /// All that side 1 has ever shown.
    shown: Vec<RegionId>,
    puts: Vec<Put>,
    /// What each place for Puts held when it was looked at last.
    held: [usize; PLACES],
    fetches: usize,
    fetched: Vec<u64>,
    word: u64,
}

impl Users {
    pub(super) fn fail(&mut self, what: &str) {
        if self.wrong.len() < 8 {
            self.wrong.push(what.to_owned());
        }
    }

    /// The number of the connection that is asked for next.
    pub(super) fn next_connect(&mut self) -> u64 {
        self.connects += 1;
        self.connects
    }

    pub(super) fn connecting(&mut self, id: ConnectionId) {
        self.ids[0] = Some(id);
    }

    /// Both ends have the newest connection, or had it.
    pub(super) fn is_open(&self) -> bool {
        self.has_connected && self.ids[1].is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended[0] || self.ended[1]
    }

    pub(super) fn have_both_ended(&self) -> bool {
        (self.ended[0] || self.ids[0].is_none()) && (self.ended[1] || self.ids[1].is_none())
    }

    /// Everything that was begun has arrived, and anyone who began it knows.
    pub(super) fn is_done(&self) -> bool {
        self.is_open()
            && self.transfers.iter().all(|one| one.is_over || (one.at.is_some() && one.is_sent))
            && self.puts.iter().all(|put| put.is_done)
            && self.fetched.len() == self.fetches
    }

    /// The connection has ended: what belonged to it never arrives.
    pub(super) fn forget_connection(&mut self) {
        self.transfers.iter_mut().for_each(|one| one.is_over = true);
        self.puts.iter_mut().for_each(|put| put.is_done = true);
        self.fetches = self.fetched.len();
        self.region = None;
        self.exposed = None;
        (self.ids, self.ended, self.has_connected) = ([None; 2], [false; 2], false);
    }

    /// Is this a part of the region that side 1 shows?
    pub(super) fn is_shared(&self, side: usize, span: &Span) -> bool {
        side == 1 && self.shown.contains(&span.region)
    }

    fn has_room(&self) -> bool {
        self.transfers.len() + self.puts.len() + self.fetches < MOST_CALLS
    }

    /// A side sends, and the other one has room for it.
    pub(super) fn transfer(&mut self, wire: &mut Wire, from: usize, len: usize) {
        let [Some(_), Some(_)] = self.ids else { return };
        if !self.has_room() || !self.has_connected || self.has_ended() {
            return;
        }
        let (name, len) = (self.transfers.len(), len.min(MOST));
        let bytes: Vec<u8> = (0..len).map(|at| ((at * 7 + name * 31) % 255) as u8 + 1).collect();
        let room = wire.sides[1 - from].memory.lend(vec![0; MOST]);
        let room = Area::new(room, 0, MOST as u64);
        let memory = wire.sides[from].memory.lend(bytes.clone());
        let memory = Area::new(memory, 0, len as u64);
        let ids = self.ids.map(|id| id.expect("both are there"));
        let now = wire.now;
        if wire.sides[1 - from].engine.engine.post(now, ids[1 - from], room, false).is_err() {
            return;
        }
        self.posted.push((1 - from, room));
        let send = wire.sides[from].engine.engine.send(now, ids[from], memory, name as u32);
        if let Ok(send) = send {
            let (at, is_sent, is_over) = (None, false, false);
            self.transfers.push(Transfer { from, bytes, at, is_sent, is_over, send });
        }
    }

    pub(super) fn ask_region(&mut self, wire: &mut Wire) {
        let (Some(id), now) = (self.ids[0], wire.now) else { return };
        let end = &mut wire.sides[0].engine.engine;
        let _ = end.request_region(now, id, 5, REGION as u64, Rights::ALL);
    }

    /// Side 0 writes into the region of side 1.
    pub(super) fn put(&mut self, wire: &mut Wire, place: u8) {
        let (Some(id), Some(region)) = (self.ids[0], self.region) else { return };
        if !self.has_room() || self.has_ended() {
            return;
        }
        let place = usize::from(place) % PLACES;
        let bytes = vec![self.puts.len() as u8 + 1; PUT];
        let memory = Area::new(wire.sides[0].memory.lend(bytes), 0, PUT as u64);
        let at = (64 + place * PUT) as u64;
        let (now, end) = (wire.now, &mut wire.sides[0].engine.engine);
        if end.put(now, id, &region, at, memory, PutOptions::default()).is_ok() {
            self.puts.push(Put { place, is_done: false });
        }
    }

    /// Side 0 adds one to the word of side 1.
    pub(super) fn fetch(&mut self, wire: &mut Wire) {
        let (Some(id), Some(region)) = (self.ids[0], self.region) else { return };
        if !self.has_room() || self.has_ended() {
            return;
        }
        let (now, end) = (wire.now, &mut wire.sides[0].engine.engine);
        let (width, add) = (WordWidth::Eight, WordFunction::Add(1));
        if end.fetch_op(now, id, &region, 0, width, add).is_ok() {
            self.fetches += 1;
        }
    }

    /// Both users hear what they are told.
    pub(super) fn hear(&mut self, wire: &mut Wire) {
        for side in 0..2 {
            while let Some(event) = wire.sides[side].engine.poll_event() {
                self.handle(wire, side, &event);
            }
        }
    }

    fn handle(&mut self, wire: &mut Wire, side: usize, event: &Event) {
        match *event {
            Event::Connected { connection, .. } => {
                if side != 0 || self.ids[0] != Some(connection) || self.has_connected {
                    self.fail("a connection that nobody asked for is there");
                }
                self.has_connected = true;
            }
            Event::Accepted { connection, hello, .. } => {
                let is_real = (1..=self.connects).contains(&hello);
                if side != 1 || !is_real || self.accepted.contains(&hello) {
                    self.fail("a connection that nobody asked for was accepted");
                }
                self.accepted.push(hello);
                // One that was given up meanwhile is nothing to anybody.
                if hello == self.connects {
                    self.ids[1] = Some(connection);
                }
            }
            Event::Closed { connection, .. } if self.ids[side] == Some(connection) => {
                self.ended[side] = true;
            }
            Event::Received { memory, len, opaque, .. } => {
                self.received(wire, side, memory, (len, opaque));
            }
            Event::Sent { len, .. } => self.sent(side, len),
            Event::SendEnded { send, .. } => {
                self.has_given_up = true;
                let ended = self.transfers.iter_mut().rev();
                let mut ended = ended.filter(|one| one.from == side && one.send == send);
                if let Some(one) = ended.next() {
                    one.is_over = true;
                }
            }
            Event::RegionRequested { request, len, .. } => {
                let exposed = wire.sides[side].memory.lend(vec![0; len as usize]);
                let area = Area::new(exposed, 0, len);
                if side != 1 || self.exposed.is_some() {
                    self.fail("a region was asked for twice");
                }
                if wire.sides[side].engine.engine.expose(request, area, Rights::ALL).is_ok() {
                    self.exposed = Some(area);
                    self.shown.push(exposed);
                }
            }
            Event::RegionAvailable { region, .. } => self.region = Some(region),
            Event::PutDone { .. } => {
                let open = self.puts.iter_mut().find(|put| !put.is_done);
                match open {
                    Some(put) => put.is_done = true,
                    None => self.fail("a Put was done that nobody asked for"),
                }
            }
            Event::Fetched { old, .. } => {
                if old >= self.fetches as u64 || self.fetched.contains(&old) {
                    self.fail(&format!("a word operation found {old}"));
                }
                self.fetched.push(old);
            }
            _ => {}
        }
    }

    fn received(&mut self, wire: &Wire, side: usize, memory: Area, (len, name): (u64, u32)) {
        let bytes = wire.sides[side].memory.area(&memory);
        let Some(transfer) = self.transfers.get_mut(name as usize) else {
            return self.fail("a Transfer arrived that nobody sent");
        };
        let is_it = transfer.from == 1 - side
            && len == transfer.bytes.len() as u64
            && bytes.is_some_and(|bytes| bytes.starts_with(&transfer.bytes));
        let is_again = transfer.at.replace(memory).is_some();
        if !is_it {
            self.fail("a Transfer arrived that is not what was sent");
        }
        if is_again {
            self.fail("a Transfer arrived twice");
        }
    }

    fn sent(&mut self, side: usize, len: u64) {
        let sent = self.transfers.iter_mut().find(|one| {
            one.from == side && one.bytes.len() as u64 == len && !one.is_sent && one.at.is_some()
        });
        match sent {
            Some(transfer) => transfer.is_sent = true,
            None => self.fail("a sender heard that something arrived that has not"),
        }
    }

    /// No byte lies anywhere that was not sent there; what was accepted stays.
    pub(super) fn check_memory(&mut self, wire: &Wire) {
        for nth in 0..self.posted.len() {
            let (side, room) = self.posted[nth];
            let Some(bytes) = wire.sides[side].memory.area(&room) else { continue };
            let owner = self.transfers.iter().find(|one| {
                one.from == 1 - side && one.at.is_some_and(|at| at.region == room.region)
            });
            let is_good = match owner {
                Some(one) => {
                    let (own, behind) = bytes.split_at(one.bytes.len());
                    own == one.bytes && behind.iter().all(|byte| *byte == 0)
                }
                // What lands there in the end is one of these.
                None => {
                    let mut sent = self.transfers.iter().filter(|one| one.from == 1 - side);
                    bytes.iter().all(|byte| *byte == 0)
                        || sent.any(|one| is_part_of(bytes, &one.bytes))
                }
            };
            if !is_good {
                self.fail("memory has bytes that were not sent there");
            }
        }
        self.check_region(wire);
    }

    /// Puts and word operations take effect once, and in their order.
    fn check_region(&mut self, wire: &Wire) {
        let Some(bytes) = self.exposed.and_then(|area| wire.sides[1].memory.area(&area)) else {
            return;
        };
        let word = u64::from_ne_bytes(*bytes.first_chunk().expect("it has a word"));
        let mut is_good = self.word <= word && word <= self.fetches as u64;
        self.word = word;
        is_good &= bytes[8..64].iter().all(|byte| *byte == 0);
        for (place, part) in bytes[64..].chunks_exact(PUT).enumerate() {
            let (number, all) = (usize::from(part[0]), part.iter().all(|byte| *byte == part[0]));
            let put = number.checked_sub(1).map(|nth| self.puts.get(nth));
            let was_put = put.is_none_or(|put| put.is_some_and(|put| put.place == place));
            is_good &= all && was_put && number >= self.held[place];
            self.held[place] = number;
        }
        if !is_good {
            self.fail("a region has what was not put there, or had it before");
        }
    }
}

/// Is each byte that of `whole`, or not there yet?
fn is_part_of(bytes: &[u8], whole: &[u8]) -> bool {
    let (own, behind) = bytes.split_at(whole.len());
    let is_own = own.iter().zip(whole).all(|(byte, sent)| *byte == 0 || byte == sent);
    is_own && behind.iter().all(|byte| *byte == 0)
}
