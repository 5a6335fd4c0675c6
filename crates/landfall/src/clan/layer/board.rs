//! A blackboard: the last value of each key, for any number of readers. Neither side waits for
//! the other, and a late reader still finds the value.
//!
//! The values lie in the memory of each reader, where the board writes them: a look costs a
//! few loads, and no read goes over a network. Each key has two places, used in turn: a value
//! is written beside the one that is read, and takes its place by one word. So a board that is
//! killed in the middle leaves the value before.
//!
//! ```text
//!  memory of a reader
//!    0  keys: one more than there are; 0: the board does not know this reader yet
//!    8  end: 1 when nothing will follow
//!   16  changes: how many there were
//!   64  slots: key, turn, and two places of version, length and bytes; turn n is in the
//!       place n % 2
//! ```
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::board::{Board, Config, Reader};
//!
//! let (here, there) = Threads::pair()?;
//! let config = Config::new(16, 32); // 16 keys with values of up to 32 bytes
//! let mut board = Board::open(&here, config)?;
//! board.set(7, b"21.5 degrees")?;
//! let reader = Reader::open(&there, config)?;
//! board.add(&reader.cookie())?;
//! let mut reader = reader.connect(&board.cookie())?;
//!
//! let value = reader.get(7)?.expect("it was set");
//! assert_eq!((value.version, &value.bytes[..]), (1, &b"21.5 degrees"[..]));
//! assert!(reader.get(8)?.is_none());
//! # Ok::<(), landfall::clan::Error>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use landfall_transport::Wait;

use super::any::{Waitable, readiness};
use super::waiting::{Connect, ConnectionEnd, Half, Joint, Waiting};
use crate::clan::{Access, Cookie, Error, Fabric, Local, Misbehaviour, Remote, Rights, WORD};

const KEYS: u64 = 0;
const END: u64 = WORD;
const CHANGES: u64 = 2 * WORD;
const SLOTS: u64 = 64;
/// Within a slot: behind the key the turn, which counts writes to this reader, then two places.
const TURN: u64 = WORD;
const PLACES: u64 = 2 * WORD;
/// Of a place: behind the version.
const LEN: u64 = WORD;
const BYTES: u64 = 2 * WORD;
/// Bytes that the board exposes: a reader that maps them learns when the board is gone.
const BOARD_LEN: u64 = WORD;
/// The most attempts to read a value that is overwritten meanwhile.
const TRIES: u32 = 1_000;

/// What both sides agree on. How a reader waits is its own.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    keys: u32,
    most: u32,
    wait: Wait,
}

impl Config {
    /// This many keys, with values of up to `most` bytes.
    #[must_use]
    pub const fn new(keys: u32, most: u32) -> Self {
        Self { keys, most, wait: Wait::BALANCED }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    const fn place_len(&self) -> u64 {
        BYTES + (self.most as u64).next_multiple_of(WORD)
    }

    const fn slot(&self, index: u32) -> u64 {
        SLOTS + index as u64 * (PLACES + 2 * self.place_len())
    }

    const fn place(&self, index: u32, turn: u64) -> u64 {
        self.slot(index) + PLACES + turn % 2 * self.place_len()
    }

    fn reader_len(&self) -> Result<u64, Error> {
        if self.keys == 0 {
            return Err(Error::BadConfig("a board has at least one key"));
        }
        // Neither factor is longer than 32 bits and a little.
        Ok(self.slot(self.keys))
    }
}

/// Holds the values. One side has it; readers are added.
#[derive(Debug)]
pub struct Board<F: Fabric> {
    fabric: F,
    /// Never written: a reader that maps it learns when the board is gone.
    _presence: F::Local,
    cookie: Cookie,
    config: Config,
    index: BTreeMap<u64, u32>,
    values: Vec<Held>,
    readers: Vec<Replica<F>>,
}

#[derive(Debug)]
struct Held {
    key: u64,
    version: u64,
    bytes: Vec<u8>,
}

/// The values as one reader has them.
#[derive(Debug)]
struct Replica<F: Fabric> {
    remote: F::Remote,
    /// These it does not have yet.
    behind: BTreeSet<u32>,
    /// How often each was written. A version may be passed over, and a turn is not: else a
    /// place would be written that is being read.
    turns: Vec<u64>,
    changes: u64,
    /// It was not told of what was written.
    is_owed: bool,
}

impl<F: Fabric> Board<F> {
    /// Without values and readers yet.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Self, Error> {
        config.reader_len()?;
        let (presence, cookie) = fabric.expose(BOARD_LEN, Rights::Write)?;
        let (index, values, readers) = (BTreeMap::new(), Vec::new(), Vec::new());
        Ok(Self {
            fabric: fabric.clone(),
            _presence: presence,
            cookie,
            config,
            index,
            values,
            readers,
        })
    }

    /// What a reader needs to connect.
    #[must_use]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// From now on the owner of this cookie has all values.
    ///
    /// # Errors
    /// The cookie is invalid, its memory is not what the configuration asks for, or
    /// the reader is gone.
    pub fn add(&mut self, reader: &Cookie) -> Result<(), Error> {
        let remote = self.fabric.map(reader)?;
        let (expected, found) = (self.config.reader_len()?, remote.len());
        if found != expected {
            return Err(Error::Mismatch { expected, found });
        }
        let behind = (0..self.values.len() as u32).collect();
        let mut copy = Replica { remote, behind, turns: Vec::new(), changes: 0, is_owed: false };
        match copy.bring_up(&self.config, &self.values, true) {
            Ok(()) | Err(Error::Busy) => {}
            Err(error) => return Err(error),
        }
        self.readers.push(copy);
        Ok(())
    }

    /// How many readers there are, with those that are gone since the last change.
    #[must_use]
    pub const fn readers(&self) -> usize {
        self.readers.len()
    }

    /// Sets the value of a key, for all readers.
    ///
    /// # Errors
    /// It is too long, there is no room for another key, or this node has ended. A reader to
    /// which the send buffer is full gets it later: with the next value, or a [`flush`](Self::flush).
    pub fn set(&mut self, key: u64, bytes: &[u8]) -> Result<(), Error> {
        let (len, most) = (bytes.len() as u64, u64::from(self.config.most));
        if len > most {
            return Err(Error::TooLong { len, most });
        }
        let index = match self.index.get(&key) {
            Some(index) => *index,
            None if self.values.len() as u64 >= u64::from(self.config.keys) => {
                return Err(Error::NoRoom("key on this board"));
            }
            None => {
                let index = self.values.len() as u32;
                self.values.push(Held { key, version: 0, bytes: Vec::new() });
                self.index.insert(key, index);
                index
            }
        };
        let held = &mut self.values[index as usize];
        held.version += 1;
        held.bytes.clear();
        held.bytes.extend_from_slice(bytes);
        for reader in &mut self.readers {
            reader.behind.insert(index);
        }
        self.flush().map(drop)
    }

    /// The value of a key, as it was set last.
    #[must_use]
    pub fn value(&self, key: u64) -> Option<&[u8]> {
        self.index.get(&key).map(|index| &self.values[*index as usize].bytes[..])
    }

    /// Brings all readers up to date; true if they are.
    ///
    /// # Errors
    /// This node has ended.
    pub fn flush(&mut self) -> Result<bool, Error> {
        let Self { readers, config, values, .. } = self;
        let mut failed = false;
        readers.retain_mut(|reader| match reader.bring_up(config, values, false) {
            Ok(()) | Err(Error::Busy) => true,
            Err(error) => {
                failed |= matches!(error, Error::NodeGone);
                false
            }
        });
        if failed {
            return Err(Error::NodeGone);
        }
        Ok(self.readers.iter().all(|reader| reader.behind.is_empty() && !reader.is_owed))
    }
}

impl<F: Fabric> Replica<F> {
    /// Writes what this reader does not have. On [`Error::Busy`] the rest stays for the next
    /// time; what was begun is begun again.
    fn bring_up(&mut self, config: &Config, values: &[Held], is_new: bool) -> Result<(), Error> {
        self.is_owed |= is_new || !self.behind.is_empty();
        while let Some(index) = self.behind.first().copied() {
            let Some(Held { key, version, bytes }) = values.get(index as usize) else { break };
            // Keys come one behind the other.
            let turn = self.turns.get(index as usize).map_or(1, |turn| turn + 1);
            let (slot, place) = (config.slot(index), config.place(index, turn));
            self.remote.store(place, *version)?;
            self.remote.store(place + LEN, bytes.len() as u64)?;
            self.remote.write(place + BYTES, bytes)?;
            self.remote.store(slot, *key)?;
            self.remote.store(slot + TURN, turn)?;
            match self.turns.get_mut(index as usize) {
                Some(last) => *last = turn,
                None => self.turns.push(turn),
            }
            self.behind.remove(&index);
        }
        if self.is_owed {
            self.remote.store(KEYS, self.turns.len() as u64 + 1)?;
            self.remote.store(CHANGES, self.changes + 1)?;
            self.changes += 1;
            self.is_owed = false;
        }
        self.remote.commit()
    }
}

impl<F: Fabric> Drop for Board<F> {
    fn drop(&mut self) {
        for Replica { remote, .. } in &mut self.readers {
            // A reader that this does not reach finds the board gone.
            let _ = remote.store(END, 1).and_then(|()| remote.commit());
        }
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// How often it was set.
    pub version: u64,
    /// What it was set to last.
    pub bytes: Vec<u8>,
}

/// Reads values. What was set stays to be read when the board is gone.
#[derive(Debug)]
pub struct Reader<F: Fabric> {
    side: Reading<F>,
    waiting: Waiting<F>,
}

#[derive(Debug)]
struct Reading<F: Fabric> {
    local: F::Local,
    remote: F::Remote,
    config: Config,
    index: BTreeMap<u64, u32>,
    /// How many keys are in the index.
    known: u32,
    /// How many changes the waiting reader has seen.
    seen: u64,
}

impl<F: Fabric> ConnectionEnd<F> for Reading<F> {
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}

impl<F: Fabric> Connect<F> for Reader<F> {
    type Config = Config;

    fn ours(config: &Config) -> Result<u64, Error> {
        config.reader_len()
    }

    fn theirs(_: &Config) -> Result<u64, Error> {
        Ok(BOARD_LEN)
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let wire = fabric.watch(&local, KEYS..CHANGES + WORD, Access::Write, Some(&remote))?;
        let waiting = Waiting::new(fabric, config.wait, wire);
        let side = Reading { local, remote, config, index: BTreeMap::new(), known: 0, seen: 0 };
        Ok(Self { side, waiting })
    }
}

impl<F: Fabric> Reader<F> {
    /// This side's half. Its cookie goes to [`Board::add`].
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// The last value of a key, if it was set.
    ///
    /// # Errors
    /// The board misbehaves, or overwrites the value faster than it can be read
    /// ([`Error::Busy`]).
    pub fn get(&mut self, key: u64) -> Result<Option<Value>, Error> {
        self.side.get(key)
    }

    /// The keys that were set, in their order.
    ///
    /// # Errors
    /// The board misbehaves.
    pub fn keys(&mut self) -> Result<Vec<u64>, Error> {
        self.side.learn()?;
        Ok(self.side.index.keys().copied().collect())
    }

    /// Waits until the key has a value that was set more than `version` times.
    ///
    /// # Errors
    /// The board has ended ([`Error::Closed`]) or is gone, the deadline is over, or those of
    /// [`get`](Self::get).
    pub fn newer(
        &mut self,
        key: u64,
        version: u64,
        deadline: Option<Instant>,
    ) -> Result<Value, Error> {
        let Self { side, waiting } = self;
        waiting.until(side, deadline, |side| side.newer(key, version))
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`newer`](Self::newer).
    pub async fn newer_async(&mut self, key: u64, version: u64) -> Result<Value, Error> {
        let Self { side, waiting } = self;
        waiting.reached(side, |side| side.newer(key, version)).await
    }
}

impl<F: Fabric> Waitable<F> for Reader<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    /// Something was set since this was asked last.
    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.changed())
    }
}

impl<F: Fabric> Reading<F> {
    fn newer(&mut self, key: u64, version: u64) -> Result<Option<Value>, Error> {
        let is_newer = |value: &Value| value.version > version;
        if let Some(value) = self.get(key)?.filter(is_newer) {
            return Ok(Some(value));
        }
        self.alive()?;
        Ok(None)
    }

    fn changed(&mut self) -> Result<Option<()>, Error> {
        let changes = self.local.load(CHANGES)?;
        if std::mem::replace(&mut self.seen, changes) != changes {
            return Ok(Some(()));
        }
        self.alive().map(|()| None)
    }

    /// Will something follow?
    fn alive(&self) -> Result<(), Error> {
        match self.local.load(END)? {
            0 => self.remote.check(),
            1 => Err(Error::Closed),
            other => Err(Error::PeerMisbehaved(Misbehaviour::Flag(other))),
        }
    }

    /// Learns where keys lie that were set for the first time.
    fn learn(&mut self) -> Result<(), Error> {
        let Some(keys) = self.local.load(KEYS)?.checked_sub(1) else { return Ok(()) };
        let (known, room) = (u64::from(self.known), u64::from(self.config.keys));
        if keys < known || keys > room {
            let (from, to, room) = (known, keys, room - known);
            return Err(Error::PeerMisbehaved(Misbehaviour::Counter { from, to, room }));
        }
        while u64::from(self.known) < keys {
            let key = self.local.load(self.config.slot(self.known))?;
            self.index.insert(key, self.known);
            self.known += 1;
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<Option<Value>, Error> {
        if !self.index.contains_key(&key) {
            self.learn()?;
        }
        let Some(index) = self.index.get(&key).copied() else { return Ok(None) };
        let at = self.config.slot(index) + TURN;
        let mut turn = self.local.load(at)?;
        for _ in 0..TRIES {
            if turn == 0 {
                return Ok(None);
            }
            let place = self.config.place(index, turn);
            let version = self.local.load(place)?;
            let (len, most) = (self.local.load(place + LEN)?, u64::from(self.config.most));
            let mut bytes = Vec::new();
            if len <= most {
                bytes.resize(len as usize, 0);
                self.local.copy_out(place + BYTES, &mut bytes)?;
            }
            // While it is the last turn, only the other place is written.
            let now = self.local.load(at)?;
            if now == turn {
                if len > most {
                    return Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }));
                }
                return Ok(Some(Value { version, bytes }));
            }
            turn = now;
        }
        Err(Error::Busy)
    }
}
