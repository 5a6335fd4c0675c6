//! What a firing leaves behind: names in a queue, bits, counts.

/// A queue of names, bounded by its storage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queued {
    first: usize,
    len: usize,
    /// Names that found no room since this was last asked.
    lost: u64,
}

/// Where actions leave what they have to say, in storage that somebody else owns.
#[derive(Debug)]
pub struct Actions<'t> {
    /// Index and generation of tripwires, in the order of their firing.
    pub names: &'t mut [(u32, u32)],
    /// What of the storage for names is in use.
    pub queued: &'t mut Queued,
    /// One bit per number.
    pub bits: &'t mut [u64],
    /// The event counters.
    pub counters: &'t mut [u64],
}

impl Actions<'_> {
    /// Puts a name at the end of the queue. Returns whether there was room.
    pub(super) fn push(&mut self, name: (u32, u32)) -> bool {
        let Queued { first, len, lost } = self.queued;
        // Where the storage has no room at all, nothing is divided by its length.
        if *len >= self.names.len() {
            *lost = lost.saturating_add(1);
            return false;
        }
        let at = (*first + *len) % self.names.len();
        self.names[at] = name;
        *len += 1;
        true
    }

    /// Takes the oldest name out.
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        let Queued { first, len, .. } = self.queued;
        if *len == 0 {
            return None;
        }
        let name = *self.names.get(*first)?;
        *first = (*first + 1) % self.names.len();
        *len -= 1;
        Some(name)
    }

    /// How many names found no room since this was last asked.
    pub fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.queued.lost)
    }

    /// Sets a bit; a number beyond the bitmap sets none.
    #[inline]
    pub(super) fn set_bit(&mut self, number: u32) {
        if let Some(bits) = self.bits.get_mut(number as usize / 64) {
            *bits |= 1 << (number % 64);
        }
    }

    /// Counts events; a number beyond the counters counts none.
    #[inline]
    pub(super) fn add(&mut self, counter: u32, events: u64) {
        if let Some(count) = self.counters.get_mut(counter as usize) {
            *count = count.wrapping_add(events);
        }
    }
}
