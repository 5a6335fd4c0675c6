//! What two engines know of each other: keys, and which numbers were used; what happens when
//! nothing comes: repetition, giving up, telling late.

use landfall_placement::{Instant, Peer, Random, Refusal, Timeout};

use super::{Event, Numbered, incoming, outgoing};
use crate::engines::bits::IdWindow;

/// How many word operations of a connection the receiver remembers. It is part
/// of the protocol: a sender never has operations under way whose numbers lie
/// further apart, so that none is forgotten while it may be repeated.
pub(super) const FETCH_WINDOW: u32 = 32;

/// What became of a word operation that the other side asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing yet, or it failed and may be tried again.
    #[default]
    None,
    /// The driver is at it.
    Pending,
    /// It took effect; the word held this before.
    Old(u64),
}

/// The last word operation whose number falls on this place of the ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replay {
    number: Option<u32>,
    /// Tells apart what is tried again after it failed.
    stamp: u16,
    pub(super) answer: Answer,
    pub(super) reply_due: bool,
}

/// One connection: a pair of path and peer.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) is_open: bool,
    pub(super) generation: u32,
    /// The index of its path.
    pub(super) path: usize,
    pub(super) peer: Peer,
    /// What the other side must say to be believed.
    pub(super) local_key: u32,
    /// What the other side wants to hear, once it told.
    pub(super) remote_key: Option<u32>,
    /// When it was used last, in uses of any connection.
    pub(super) used: u64,
    pub(super) next_message: u32,
    pub(super) next_fetch: u32,
    /// The messages from the other side that are complete.
    pub(super) done: IdWindow,
    /// When the other side is to be told of them.
    pub(super) done_at: Instant,
    /// How many of them it was not told of.
    pub(super) untold: u32,
    /// Word operations wait for the key of the other side.
    pub(super) hello_due: bool,
    /// Ask for it.
    pub(super) is_greeting: bool,
    /// The other side asked for our key.
    pub(super) welcome_due: bool,
    pub(super) replays: [Replay; FETCH_WINDOW as usize],
}

impl Connection {
    pub(super) const fn new() -> Self {
        const NOTHING: Replay =
            Replay { number: None, stamp: 0, answer: Answer::None, reply_due: false };
        Self {
            is_open: false,
            generation: 0,
            path: 0,
            peer: Peer::Unaddressed,
            local_key: 0,
            remote_key: None,
            used: 0,
            next_message: 0,
            next_fetch: 0,
            done: IdWindow::new(),
            done_at: Instant::FAR_FUTURE,
            untold: 0,
            hello_due: false,
            is_greeting: false,
            welcome_due: false,
            replays: [NOTHING; FETCH_WINDOW as usize],
        }
    }

    /// Starts anew: with a new key, nothing that was sent before is believed.
    /// The low byte of the key is the index, so that the key finds the connection.
    pub(super) fn open(&mut self, index: usize, path: usize, peer: Peer, random: &mut Random) {
        let generation = self.generation.wrapping_add(1);
        // Key 0 means "not known yet"; one in 2^24 draws would be that.
        let secret = (random.next_u32() >> 8).max(1);
        let local_key = secret << 8 | index as u32;
        *self = Self { is_open: true, generation, path, peer, local_key, ..Self::new() };
    }

    /// The key that the other side wants to hear; zero before it told.
    pub(super) fn key(&self) -> u32 {
        self.remote_key.unwrap_or(0)
    }

    /// The other side said its key.
    pub(super) fn learn_key(&mut self, key: u32) -> Result<(), Refusal> {
        match self.remote_key {
            Some(known) if known != key => Err(Refusal::WrongKey),
            _ => {
                self.remote_key = Some(key);
                Ok(())
            }
        }
    }

    /// A word operation with this number came. If it is to be done now: the
    /// stamp of its ticket.
    pub(super) fn begin_word(&mut self, number: u32) -> Result<u16, Refusal> {
        let replay = &mut self.replays[(number % FETCH_WINDOW) as usize];
        if let Some(last) = replay.number {
            if last == number {
                return match replay.answer {
                    Answer::None => {
                        replay.answer = Answer::Pending;
                        replay.stamp = replay.stamp.wrapping_add(1);
                        Ok(replay.stamp)
                    }
                    Answer::Pending => Err(Refusal::Duplicate),
                    Answer::Old(_) => {
                        replay.reply_due = true;
                        Err(Refusal::Duplicate)
                    }
                };
            }
            if (number.wrapping_sub(last) as i32) < 0 {
                return Err(Refusal::Duplicate);
            }
            if replay.answer == Answer::Pending {
                return Err(Refusal::Unexpected);
            }
        }
        let stamp = replay.stamp.wrapping_add(1);
        let answer = Answer::Pending;
        *replay = Replay { number: Some(number), stamp, answer, reply_due: false };
        Ok(stamp)
    }

    /// The operation took effect (`Some`) or failed. False if there is none such.
    pub(super) fn end_word(&mut self, low_bits: u16, stamp: u16, old: Option<u64>) -> bool {
        let replay = &mut self.replays[(u32::from(low_bits) % FETCH_WINDOW) as usize];
        let is_it = replay.number.is_some_and(|n| n as u16 == low_bits);
        if !is_it || replay.stamp != stamp || replay.answer != Answer::Pending {
            return false;
        }
        replay.answer = old.map_or(Answer::None, Answer::Old);
        replay.reply_due = old.is_some();
        true
    }

    /// A reply that is due: the number of the operation and the old value.
    pub(super) fn take_reply(&mut self) -> Option<(u32, u64)> {
        let replay = self.replays.iter_mut().find(|replay| replay.reply_due)?;
        replay.reply_due = false;
        match (replay.number, replay.answer) {
            (Some(number), Answer::Old(old)) => Some((number, old)),
            _ => None,
        }
    }
}

impl Numbered {
    pub(super) fn find_next_timer(&self) -> Option<Timeout> {
        let sends = self.outgoing.iter().map(|out| (out.deadline, "retransmit"));
        let asks = self.asked.iter().flatten().map(|asked| (asked.deadline, "word operation"));
        let receives = self.incoming.iter().map(|place| (place.deadline, "silent sender"));
        // Where something is due already only the path keeps it back, not the time.
        let untold = self.connections.iter().filter(|c| !self.paths_due(c.path));
        let dones = untold.map(|known| (known.done_at, "tell what is done"));
        let (at, timer) =
            sends.chain(asks).chain(receives).chain(dones).min_by_key(|(at, _)| *at)?;
        (at != Instant::FAR_FUTURE).then_some(Timeout { at, timer })
    }

    fn paths_due(&self, path: usize) -> bool {
        self.paths.get(path).is_some_and(|path| path.is_control_due)
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        for slot in 0..self.outgoing.len() {
            if self.outgoing[slot].deadline <= now {
                self.repeat_message(now, slot);
            }
        }
        for index in 0..self.asked.len() {
            if self.asked[index].as_ref().is_some_and(|asked| asked.deadline <= now) {
                self.repeat_fetch(now, index);
            }
        }
        for slot in 0..self.incoming.len() {
            let place = &self.incoming[slot];
            if place.deadline <= now && place.state != incoming::State::Free {
                self.fail_connection(place.connection);
            }
        }
        for known in self.connections.iter().filter(|known| known.done_at <= now) {
            self.paths[known.path].is_control_due = true;
        }
    }

    fn repeat_message(&mut self, now: Instant, slot: usize) {
        let out = &mut self.outgoing[slot];
        let connection = out.connection;
        if !out.is_live() {
            out.deadline = Instant::FAR_FUTURE;
            return;
        }
        out.retries += 1;
        if out.retries > self.config.give_up_after {
            return self.fail_connection(connection);
        }
        out.time_out();
        out.arm(now, self.config.retransmit_after);
        self.paths[self.connections[connection].path].is_control_due = true;
    }

    fn repeat_fetch(&mut self, now: Instant, index: usize) {
        let Some(asked) = &mut self.asked[index] else { return };
        let connection = asked.connection;
        asked.retries += 1;
        if asked.retries > self.config.give_up_after {
            return self.fail_connection(connection);
        }
        let known = &mut self.connections[connection];
        if known.remote_key.is_some() {
            asked.is_due = true;
        } else {
            known.is_greeting = true;
        }
        asked.deadline = now + self.config.retransmit_after * (1 << asked.retries.min(4));
        self.paths[known.path].is_control_due = true;
    }

    /// All that is under way with this peer has failed, and the keys with it.
    fn fail_connection(&mut self, connection: usize) {
        for slot in 0..self.outgoing.len() {
            let out = &mut self.outgoing[slot];
            if out.is_live() && out.connection == connection {
                out.state = outgoing::State::Failed;
                out.deadline = Instant::FAR_FUTURE;
                self.end_outgoing(slot);
            }
        }
        for index in 0..self.asked.len() {
            let asked = self.asked[index].take_if(|asked| asked.connection == connection);
            if let Some(asked) = asked {
                self.tell(Event::FetchFailed { fetch: asked.id });
            }
        }
        for slot in 0..self.incoming.len() {
            let place = &mut self.incoming[slot];
            if place.connection != connection {
                continue;
            }
            match place.state {
                incoming::State::Waiting => place.free(),
                incoming::State::Open => {
                    place.state = incoming::State::Closing;
                    place.deadline = Instant::FAR_FUTURE;
                    self.end_closing(slot);
                }
                incoming::State::Free | incoming::State::Closing => {}
            }
        }
        let known = &mut self.connections[connection];
        known.is_open = false;
        known.done_at = Instant::FAR_FUTURE;
    }

    /// Gives the memory of a failed message back once no driver writes to it.
    pub(super) fn end_closing(&mut self, slot: usize) {
        let place = &mut self.incoming[slot];
        if place.is_under_way() {
            return;
        }
        let known = &self.connections[place.connection];
        let event = Event::ReceiveFailed {
            path: self.paths[known.path].id,
            from: known.peer,
            posted: place.posted,
        };
        place.free();
        self.tell(event);
    }
}
