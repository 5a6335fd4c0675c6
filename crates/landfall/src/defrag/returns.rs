//! What comes back from users, on whatever thread they drop it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_transport::Bell;
use spec_defrag::ListId;

use crate::runtime::locked;

/// Where dropped packets go, for the receiver to fetch.
#[derive(Debug)]
pub(super) struct Returns {
    /// Something is there: looked at without the lock.
    is_there: AtomicBool,
    back: Mutex<Back>,
    pub(super) bell: Bell,
}

/// What came back.
#[derive(Debug, Default)]
pub(super) struct Back {
    pub(super) lists: Vec<ListId>,
    /// Memory of copies, to be used again: a few.
    pub(super) copies: Vec<Vec<u8>>,
}

/// More spare memory than this is freed.
const MOST_COPIES: usize = 256;

impl Returns {
    pub(super) const fn new(bell: Bell) -> Self {
        Self {
            is_there: AtomicBool::new(false),
            back: Mutex::new(Back { lists: Vec::new(), copies: Vec::new() }),
            bell,
        }
    }

    /// A list is read no more.
    pub(super) fn list(&self, list: ListId) {
        locked(&self.back).lists.push(list);
        self.tell();
    }

    /// The memory of a copy is free.
    pub(super) fn copy(&self, memory: Vec<u8>) {
        let mut back = locked(&self.back);
        if back.copies.len() < MOST_COPIES {
            back.copies.push(memory);
        }
    }

    /// Something has changed that a receiver may wait for.
    pub(super) fn tell(&self) {
        self.is_there.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Has something come back since the last [`fetch`](Self::fetch)?
    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::SeqCst)
    }

    /// Lists that came back.
    pub(super) fn fetch(&self, into: &mut Vec<ListId>) {
        if self.is_there.swap(false, Ordering::SeqCst) {
            into.append(&mut locked(&self.back).lists);
        }
    }

    /// Memory for a copy, as long as there is some that was used before.
    pub(super) fn spare(&self) -> Vec<u8> {
        locked(&self.back).copies.pop().unwrap_or_default()
    }
}
