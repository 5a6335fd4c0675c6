//! The algorithm of DPDK's `ip_frag` library, written from its description ("IP Fragmentation and
//! Reassembly Library" in its Programmer's Guide), to be compared with: a table of a fixed number
//! of entries in buckets, two buckets for each key, and a fixed number of fragments for each
//! entry, of which the first two places are those of the last and the first fragment. It keeps
//! the buffers of frames where the device put them, and links them.
//!
//! It compares no fragment with another: one that repeats another makes the lengths add up wrongly.

/// The memory of a frame that a device puts it in: what an `mbuf` usually takes.
pub(crate) const MBUF: usize = 2048 + 128 + 128;
/// Entries of a bucket.
const ASSOCIATIVITY: usize = 4;
/// Where the last fragment is kept.
const LAST: usize = 0;
/// Where the first one is.
const FIRST: usize = 1;

/// Addresses and identification.
type Key = (u32, u32, u32);

/// A fragment in its frame, which stays where it is.
#[derive(Clone, Copy, Default)]
struct Fragment<'a> {
    offset: u16,
    len: u16,
    frame: &'a [u8],
}

struct Entry<'a, const N: usize> {
    /// Zero: free.
    key: Key,
    started: u64,
    total: u32,
    filled: u32,
    next: usize,
    fragments: [Fragment<'a>; N],
}

/// The table, for at most `N` fragments of a packet.
pub(crate) struct Table<'a, const N: usize> {
    entries: Vec<Entry<'a, N>>,
    mask: u32,
    lifetime: u64,
    /// How many buffers of frames are kept.
    pub(crate) kept: usize,
}

impl<'a, const N: usize> Table<'a, N> {
    pub(crate) fn new(packets: usize, lifetime: u64) -> Self {
        // Two buckets for each key: twice as many entries as packets.
        let buckets = (2 * packets / ASSOCIATIVITY).next_power_of_two();
        let entry = || Entry {
            key: (0, 0, 0),
            started: 0,
            total: u32::MAX,
            filled: 0,
            next: 2,
            fragments: [Fragment::default(); N],
        };
        let entries = (0..buckets * ASSOCIATIVITY).map(|_| entry()).collect();
        Self { entries, mask: buckets as u32 - 1, lifetime, kept: 0 }
    }

    /// How many bytes it takes, with the buffers that it keeps.
    pub(crate) fn memory(&self) -> usize {
        self.entries.len() * size_of::<Entry<'a, N>>() + self.kept * MBUF
    }

    /// Takes a fragment of IPv4 in an Ethernet frame; gives the chain of frames if it completes
    /// a packet.
    pub(crate) fn offer(&mut self, now: u64, frame: &'a [u8]) -> Option<Chain<'a, N>> {
        let word = |at: usize| {
            u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
        };
        let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (source, destination, id) = (word(26), word(30), half(18));
        let flags = half(20);
        let fragment = Fragment { offset: (flags & 0x1fff) * 8, len: half(16) - 20, frame };
        let at = self.find(now, (source, destination, u32::from(id) | 1 << 16))?;
        let entry = &mut self.entries[at];
        entry.filled += u32::from(fragment.len);
        let place = if fragment.offset == 0 {
            FIRST
        } else if flags & 0x2000 == 0 {
            entry.total = u32::from(fragment.offset) + u32::from(fragment.len);
            LAST
        } else {
            entry.next += 1;
            entry.next - 1
        };
        if place >= N || entry.fragments[place].len != 0 {
            // Too many, or two of a kind: all of it goes.
            self.free(at);
            return None;
        }
        entry.fragments[place] = fragment;
        self.kept += 1;
        if entry.filled < entry.total {
            return None;
        }
        let chain = entry.chain();
        self.free(at);
        chain
    }

    fn free(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        self.kept -= entry.fragments.iter().filter(|fragment| fragment.len != 0).count();
        entry.key = (0, 0, 0);
        entry.fragments[..entry.next.min(N)].fill(Fragment::default());
        (entry.total, entry.filled, entry.next) = (u32::MAX, 0, 2);
    }

    /// The entry of a key: its own, a free one, or one whose time is over.
    fn find(&mut self, now: u64, key: Key) -> Option<usize> {
        let mix = |number: u32, by: u32| (number ^ number >> 15).wrapping_mul(by);
        let first = mix(mix(key.0, 0x85eb_ca6b) ^ key.1, 0xc2b2_ae35) ^ mix(key.2, 0x9e37_79b1);
        let second = mix(first, 0x27d4_eb2f) ^ key.2;
        let (mut free, mut stale) = (None, None);
        for bucket in [first, second] {
            let start = (bucket & self.mask) as usize * ASSOCIATIVITY;
            for at in start..start + ASSOCIATIVITY {
                let entry = &self.entries[at];
                if entry.key == key {
                    return Some(at);
                }
                if entry.key == (0, 0, 0) {
                    free = free.or(Some(at));
                } else if entry.started + self.lifetime < now {
                    stale = stale.or(Some(at));
                }
            }
        }
        if free.is_none()
            && let Some(at) = stale
        {
            self.free(at);
        }
        let at = free.or(stale)?;
        (self.entries[at].key, self.entries[at].started) = (key, now);
        Some(at)
    }
}

impl<'a, const N: usize> Entry<'a, N> {
    /// The frames in their order, from the last to the first as the library goes; `None` where they
    /// do not follow one another.
    fn chain(&self) -> Option<Chain<'a, N>> {
        let mut frames = [&[][..]; N];
        let mut at = N;
        let mut offset = self.fragments[LAST].offset;
        at -= 1;
        frames[at] = self.fragments[LAST].frame;
        while offset != self.fragments[FIRST].len {
            let between = &self.fragments[2..self.next.min(N)];
            let before = between.iter().find(|other| other.offset + other.len == offset)?;
            at = at.checked_sub(1)?;
            frames[at] = before.frame;
            offset = before.offset;
        }
        at = at.checked_sub(1)?;
        frames[at] = self.fragments[FIRST].frame;
        Some(Chain { frames, first: at })
    }
}

/// A packet as a chain of frames.
pub(crate) struct Chain<'a, const N: usize> {
    frames: [&'a [u8]; N],
    first: usize,
}

impl<'a, const N: usize> Chain<'a, N> {
    /// The payloads, in their order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.frames[self.first..].iter().map(|frame| &frame[34..])
    }
}
