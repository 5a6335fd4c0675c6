//! A block device whose cache forgets when its host is killed, and what its client may find there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use landfall_placement::Random;

use crate::ctx::pattern;

/// A block, and how many a device has.
pub(super) const BLOCK: usize = 512;
pub(super) const BLOCKS: usize = 64;
pub(super) const SIZE: u64 = (BLOCK * BLOCKS) as u64;

/// Blocks of a device.
pub(super) type Blocks = Range<usize>;

/// The bytes of blocks.
pub(super) const fn bytes_of(blocks: &Blocks) -> Range<usize> {
    blocks.start * BLOCK..blocks.end * BLOCK
}

/// A device: what a reader finds, and what is on its medium.
#[derive(Debug)]
pub(super) struct Device {
    now: Vec<u8>,
    medium: Vec<u8>,
}

impl Device {
    pub(super) fn new() -> Self {
        let empty = vec![0; BLOCK * BLOCKS];
        Self { now: empty.clone(), medium: empty }
    }

    pub(super) fn read(&self, at: usize, len: usize) -> &[u8] {
        &self.now[at..at + len]
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8], is_durable: bool) {
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        if is_durable {
            self.medium[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    pub(super) fn flush(&mut self) {
        self.medium.copy_from_slice(&self.now);
    }

    /// Its host is killed: of what only the cache had, each block is on the medium, or is not.
    pub(super) fn forget(&mut self, random: &mut Random) {
        for block in 0..BLOCKS {
            let bytes = bytes_of(&(block..block + 1));
            if random.chance(500_000) {
                self.now[bytes.clone()].copy_from_slice(&self.medium[bytes]);
            }
        }
        self.flush();
    }
}

/// What a client knows of a block. Writes have numbers in their order; 0 is an empty device.
#[derive(Clone, Debug)]
struct Known {
    /// What it can hold at all: the last that is known to be durable, and all later ones.
    ever: Vec<u32>,
    /// Nothing older comes back unless the device forgets.
    seen: u32,
    /// What a read of this session can find.
    now: Vec<u32>,
}

/// What a client knows of a device.
#[derive(Debug)]
pub(super) struct Knowledge {
    salt: u64,
    blocks: Vec<Known>,
    /// Writes of zeroes.
    zeroes: BTreeSet<u32>,
    writes: u32,
    /// How often the device forgot.
    lives: u32,
}

/// A request that was issued and not answered.
#[derive(Debug)]
pub(super) struct IssuedRequest {
    lives: u32,
    what: DeviceRequest,
}

#[derive(Debug)]
enum DeviceRequest {
    Write {
        blocks: Blocks,
        nth: u32,
        is_durable: bool,
    },
    Read {
        blocks: Blocks,
        can_find: Vec<Vec<u32>>,
        bytes: Vec<u8>,
    },
    /// For each block the oldest that it can hold by then.
    Flush(Vec<u32>),
}

impl Knowledge {
    pub(super) fn new(salt: u64) -> Self {
        let empty = Known { ever: vec![0], seen: 0, now: vec![0] };
        let blocks = vec![empty; BLOCKS];
        Self { salt, blocks, zeroes: BTreeSet::new(), writes: 0, lives: 0 }
    }

    /// A session begins: what is not known to have taken effect may have.
    pub(super) fn begin_session(&mut self) {
        for known in &mut self.blocks {
            known.now = known.ever.iter().copied().filter(|nth| *nth >= known.seen).collect();
        }
    }

    /// The device forgot what was not made durable.
    pub(super) fn forget(&mut self) {
        self.lives += 1;
        for known in &mut self.blocks {
            known.seen = 0;
        }
    }

    fn content(&self, nth: u32, block: usize) -> Vec<u8> {
        if nth == 0 || self.zeroes.contains(&nth) {
            return vec![0; BLOCK];
        }
        pattern(self.salt << 40 | u64::from(nth) << 8 | block as u64, BLOCK)
    }

    /// A write is issued; gives its bytes.
    pub(super) fn write(
        &mut self,
        blocks: &Blocks,
        is_zero: bool,
        fua: bool,
    ) -> (IssuedRequest, Vec<u8>) {
        self.writes += 1;
        let nth = self.writes;
        if is_zero {
            self.zeroes.insert(nth);
        }
        for known in &mut self.blocks[blocks.clone()] {
            known.ever.push(nth);
            known.now = vec![nth];
        }
        let bytes = blocks.clone().flat_map(|block| self.content(nth, block)).collect();
        let what = DeviceRequest::Write { blocks: blocks.clone(), nth, is_durable: fua };
        (IssuedRequest { lives: self.lives, what }, bytes)
    }

    /// A read is issued.
    pub(super) fn read(&self, blocks: &Blocks) -> IssuedRequest {
        let can_find = self.blocks[blocks.clone()].iter().map(|known| known.now.clone()).collect();
        // What no device holds.
        let bytes = vec![0xc5; BLOCK * blocks.len()];
        let what = DeviceRequest::Read { blocks: blocks.clone(), can_find, bytes };
        IssuedRequest { lives: self.lives, what }
    }

    /// A flush is issued.
    pub(super) fn flush(&self) -> IssuedRequest {
        let oldest = |known: &Known| known.now.iter().copied().min().unwrap_or(0);
        let what = DeviceRequest::Flush(self.blocks.iter().map(oldest).collect());
        IssuedRequest { lives: self.lives, what }
    }

    /// A request was answered. What is wrong about that?
    pub(super) fn answered(&mut self, asked: IssuedRequest) -> Option<String> {
        let lives_on = asked.lives == self.lives;
        match asked.what {
            DeviceRequest::Write { blocks, nth, is_durable } => {
                for known in &mut self.blocks[blocks] {
                    if is_durable {
                        known.ever.retain(|known| *known >= nth);
                    }
                    known.seen = if lives_on { known.seen.max(nth) } else { known.seen };
                }
                None
            }
            DeviceRequest::Flush(oldest) => {
                for (known, oldest) in self.blocks.iter_mut().zip(oldest) {
                    known.ever.retain(|known| *known >= oldest);
                }
                None
            }
            DeviceRequest::Read { blocks, can_find, bytes } => {
                let found = blocks.clone().zip(can_find).zip(bytes.chunks(BLOCK));
                let mut wrong = None;
                for ((block, can_find), have) in found {
                    let is_it = |nth: &u32| self.content(*nth, block) == have;
                    let same: Vec<u32> = can_find.iter().copied().filter(is_it).collect();
                    let known = &mut self.blocks[block];
                    match same.iter().min() {
                        None => wrong = Some(format!("block {block} holds none of {can_find:?}")),
                        Some(oldest) if lives_on => {
                            known.seen = known.seen.max(*oldest);
                            if known.now == can_find {
                                known.now = same;
                            }
                        }
                        Some(_) => {}
                    }
                }
                wrong
            }
        }
    }
}

impl IssuedRequest {
    /// Bytes of a read came.
    pub(super) fn land(&mut self, at: usize, came: &[u8]) {
        if let DeviceRequest::Read { bytes, .. } = &mut self.what {
            bytes[at..at + came.len()].copy_from_slice(came);
        }
    }
}

/// The devices of a run: of each host for each other one.
pub(super) type Disks = BTreeMap<(u8, u8), Disk>;

/// A device, and its client's knowledge of it.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) device: Device,
    pub(super) client: Knowledge,
    /// The connection that is served: what comes late over an older one is not.
    pub(super) served: usize,
}

impl Disk {
    pub(super) fn new(from: u8, to: u8) -> Self {
        let client = Knowledge::new(u64::from(from) << 4 | u64::from(to));
        Self { device: Device::new(), client, served: 0 }
    }
}
