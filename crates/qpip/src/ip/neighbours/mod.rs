//! Which station has an address: one bounded cache for ARP (RFC 826, RFC 1122
//! section 2.3.2) and neighbour discovery (RFC 4861, section 7).
//!
//! It believes little: an answer counts only where it was asked for or where it
//! is about an entry in use, and a stranger gets an entry only by asking for one
//! of our addresses, which is what hosts that want to talk to us do. Strangers
//! push out each other before they push out who is known to be there.

use alloc::vec::Vec;
use core::net::IpAddr;

use landfall_placement::{Duration, Instant};

use crate::wire::{Mac, is_host};

/// How the cache behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most entries, static ones included.
    pub capacity: usize,
    /// The pause between two questions for one address.
    pub retransmit: Duration,
    /// How often is asked before the station counts as not there.
    pub attempts: u8,
    /// For how long an answer is believed without a question.
    pub reachable: Duration,
    /// How long a stale entry is used before it is asked whether it still holds (RFC 4861,
    /// section 7.3.3). That a transport hears from there spares no question (7.3.1): one each
    /// half minute costs less than a look here for each acknowledgement.
    pub delay: Duration,
    /// For how long nobody is asked again after nobody answered.
    pub hold_off: Duration,
}

impl Default for Config {
    /// The times of RFC 4861, section 10.
    fn default() -> Self {
        Self {
            capacity: 1024,
            retransmit: Duration::from_secs(1),
            attempts: 3,
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
            hold_off: Duration::from_secs(3),
        }
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This station has it.
    Station(Mac),
    /// It is being asked for.
    Waiting,
    /// Nobody answered, or there is no room to ask.
    Unreachable,
}

/// How somebody came to tell us of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourMessage {
    /// It asks for an address of ours, and says its own.
    Question,
    /// It says that it has the address.
    Answer {
        /// We asked. An ARP reply that is addressed to us counts as that.
        is_solicited: bool,
        /// What was known before is to be replaced. ARP always means that.
        is_override: bool,
    },
}

impl NeighbourMessage {
    /// An ARP reply to us.
    pub const ARP_REPLY: Self = Self::Answer { is_solicited: true, is_override: true };
    /// An ARP message that is not for us: somebody says where it is now.
    pub const ARP_UNSOLICITED: Self = Self::Answer { is_solicited: false, is_override: true };
}

/// Whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// For this address.
    pub address: IpAddr,
    /// This station, whether it still has it; `None`: everybody.
    pub station: Option<Mac>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Configured: neither learnt nor forgotten.
    Static(Mac),
    /// Asked for; this many questions are left, the next one is due at `due`.
    Incomplete { left: u8 },
    /// Nobody answered. Forgotten at `due`.
    Failed,
    /// Answered; believed up to `due`.
    Reachable(Mac),
    /// Not confirmed for long; used all the same.
    Stale(Mac),
    /// In use since it was stale: asked at `due`, this many questions are left.
    Probing { station: Mac, left: u8 },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: IpAddr,
    state: State,
    /// When something is to be done about it.
    due: Instant,
    /// When it was last wanted or heard of.
    used: Instant,
    /// No question leaves before.
    may_ask_at: Instant,
}

impl Entry {
    const fn station(&self) -> Option<Mac> {
        match self.state {
            State::Static(station)
            | State::Reachable(station)
            | State::Stale(station)
            | State::Probing { station, .. } => Some(station),
            State::Incomplete { .. } | State::Failed => None,
        }
    }

    /// Who has to go first when there is no room: lower ones.
    const fn worth(&self) -> u8 {
        match self.state {
            State::Failed => 0,
            State::Incomplete { .. } => 1,
            State::Stale(_) => 2,
            State::Reachable(_) | State::Probing { .. } => 3,
            State::Static(_) => 4,
        }
    }
}

/// The cache.
#[derive(Debug)]
pub struct Neighbours {
    config: Config,
    /// In the order of their addresses.
    entries: Vec<Entry>,
    /// Not later than the earliest `due`.
    next_due: Instant,
    changes: u64,
    evicted: u64,
}

impl Neighbours {
    /// An empty cache. All its memory is allocated here.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            entries: Vec::with_capacity(config.capacity),
            next_due: Instant::FAR_FUTURE,
            changes: 0,
            evicted: 0,
        }
    }

    /// Adds a station that is known for certain. False if there is no room.
    pub fn add_static(&mut self, address: IpAddr, station: Mac) -> bool {
        // All places are taken by others that are known for certain.
        let Some(at) = self.find_or_make(Instant::ZERO, address) else { return false };
        self.set(at, State::Static(station), Instant::FAR_FUTURE);
        true
    }

    /// Who has this address? Starts to ask where that is not known.
    #[inline]
    pub fn lookup(&mut self, now: Instant, address: IpAddr) -> Found {
        if let Ok(at) = self.position(address) {
            let entry = &mut self.entries[at];
            entry.used = now;
            match entry.state {
                State::Static(station) | State::Probing { station, .. } => {
                    return Found::Station(station);
                }
                State::Reachable(station) if now < entry.due => return Found::Station(station),
                State::Reachable(station) | State::Stale(station) => {
                    let left = self.config.attempts;
                    self.set(at, State::Probing { station, left }, now + self.config.delay);
                    return Found::Station(station);
                }
                State::Incomplete { .. } => return Found::Waiting,
                State::Failed if now < entry.due => return Found::Unreachable,
                State::Failed => {}
            }
        }
        self.ask(now, address)
    }

    fn ask(&mut self, now: Instant, address: IpAddr) -> Found {
        if self.config.attempts == 0 || !is_host(address) {
            return Found::Unreachable;
        }
        let Some(at) = self.find_or_make(now, address) else { return Found::Unreachable };
        self.set(at, State::Incomplete { left: self.config.attempts }, now);
        Found::Waiting
    }

    /// Somebody told where an address is; `station` may be missing in an answer
    /// to a question that went to the station itself.
    ///
    /// True if [`Neighbours::lookup`] has another answer than before: anyone who
    /// waits can go on.
    pub fn learn(
        &mut self,
        now: Instant,
        address: IpAddr,
        station: Option<Mac>,
        word: NeighbourMessage,
    ) -> bool {
        let at = match (self.position(address), word, station) {
            (Ok(at), ..) => at,
            // Who has no address yet (RFC 5227, RFC 4861 section 7.2.3) asks, too.
            (Err(_), NeighbourMessage::Question, Some(_)) if is_host(address) => {
                // All places are taken by others that are known for certain.
                let Some(at) = self.find_or_make(now, address) else { return false };
                at
            }
            // RFC 4861, section 7.2.5: nobody wanted to know.
            (Err(_), ..) => return false,
        };
        let before = self.entries[at];
        let known = before.station();
        let believed_until = now + self.config.reachable;
        let (state, due) = match (before.state, word, station.or(known)) {
            (State::Static(_), ..) | (_, _, None) => return false,
            (_, NeighbourMessage::Question, Some(station)) if known == Some(station) => {
                (before.state, before.due)
            }
            (_, NeighbourMessage::Question, Some(station)) => {
                (State::Stale(station), Instant::FAR_FUTURE)
            }
            (_, NeighbourMessage::Answer { is_solicited, is_override }, Some(station)) => {
                if known.is_some_and(|known| known != station) && !is_override {
                    // Two stations say that they have it: the first is asked again.
                    match before.state {
                        State::Reachable(known) => (State::Stale(known), Instant::FAR_FUTURE),
                        state => (state, before.due),
                    }
                } else if is_solicited {
                    (State::Reachable(station), believed_until)
                } else if known == Some(station) {
                    (before.state, before.due)
                } else {
                    (State::Stale(station), Instant::FAR_FUTURE)
                }
            }
        };
        self.entries[at].used = now;
        self.set(at, state, due);
        self.entries[at].station() != known
    }

    /// A transport sends to the host that this leads to, and nothing comes back: the station
    /// is asked at once whether it still has the address (RFC 1122, section 2.3.2.1: advice
    /// from a transport), or when the pause since the last question is over. It is used
    /// meanwhile.
    pub fn doubt(&mut self, now: Instant, address: IpAddr) {
        // Who is not known is being asked for anyway.
        let Ok(at) = self.position(address) else { return };
        if let State::Reachable(station) | State::Stale(station) = self.entries[at].state {
            let due = now.max(self.entries[at].may_ask_at);
            self.set(at, State::Probing { station, left: self.config.attempts }, due);
        }
    }

    /// The next question to send, at most one a pause for each address.
    pub fn poll_solicit(&mut self, now: Instant) -> Option<Question> {
        while self.next_due <= now {
            let Some(at) = self.entries.iter().position(|entry| entry.due <= now) else {
                self.refresh();
                break;
            };
            let Entry { address, state, .. } = self.entries[at];
            let next = now + self.config.retransmit;
            match state {
                State::Incomplete { left: 0 } => {
                    self.set(at, State::Failed, now + self.config.hold_off);
                    self.changes += 1;
                }
                State::Incomplete { left } => {
                    self.set(at, State::Incomplete { left: left - 1 }, next);
                    self.entries[at].may_ask_at = next;
                    return Some(Question { address, station: None });
                }
                // Gone: the next lookup asks everybody.
                State::Probing { left: 0, .. } | State::Failed => {
                    self.entries.remove(at);
                    self.changes += 1;
                }
                State::Probing { station, left } => {
                    self.set(at, State::Probing { station, left: left - 1 }, next);
                    self.entries[at].may_ask_at = next;
                    return Some(Question { address, station: Some(station) });
                }
                State::Reachable(station) | State::Stale(station) => {
                    self.set(at, State::Stale(station), Instant::FAR_FUTURE);
                }
                State::Static(station) => {
                    self.set(at, State::Static(station), Instant::FAR_FUTURE);
                }
            }
        }
        None
    }

    /// When to call [`Neighbours::poll_solicit`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.next_due < Instant::FAR_FUTURE).then_some(self.next_due)
    }

    /// Goes up whenever [`Neighbours::lookup`] may have another answer than
    /// [`Found::Waiting`] for somebody who waits.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// How often an entry had to make room for another.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many addresses are known or asked for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Nothing is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn position(&self, address: IpAddr) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&address, |entry| entry.address)
    }

    fn set(&mut self, at: usize, state: State, due: Instant) {
        let entry = &mut self.entries[at];
        let known = entry.station();
        (entry.state, entry.due) = (state, due);
        if entry.station() != known {
            self.changes += 1;
        }
        self.next_due = self.next_due.min(due);
    }

    fn refresh(&mut self) {
        let due = self.entries.iter().map(|entry| entry.due);
        self.next_due = due.min().unwrap_or(Instant::FAR_FUTURE);
    }

    /// The entry of this address; a new one makes room where it must.
    fn find_or_make(&mut self, now: Instant, address: IpAddr) -> Option<usize> {
        if let Ok(at) = self.position(address) {
            return Some(at);
        }
        if self.entries.len() >= self.config.capacity {
            let entries = self.entries.iter().enumerate();
            let (at, least) = entries.min_by_key(|(_, entry)| (entry.worth(), entry.used))?;
            if matches!(least.state, State::Static(_)) {
                return None;
            }
            self.entries.remove(at);
            self.evicted += 1;
            self.changes += 1;
        }
        let at = self.position(address).unwrap_or_else(|at| at);
        let due = Instant::FAR_FUTURE;
        let may_ask_at = Instant::ZERO;
        self.entries
            .insert(at, Entry { address, state: State::Failed, due, used: now, may_ask_at });
        Some(at)
    }
}

#[cfg(test)]
mod tests;
