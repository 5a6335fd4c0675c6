//! The bridge between the adapter and the host's bus: a FIFO, bursts, a stall before each,
//! and the lock that the paper found (section 5.2).
//!
//! The bridge collects words and writes them to the bus in bursts: of at most 16 words
//! where the program of the other host wrote them, of 256 where its DMA engine did. Before
//! each burst it stalls. Where programmed writes find its FIFO full, it *locks*: bursts of
//! one word until the FIFO has drained. The adapter notices, and feeds it nothing for a
//! time, so that it recovers.
//!
//! All is counted in cycles of the bus, word by word, in integers. What the paper does not
//! say is marked so in [`Bridge::PIO`].

/// How many parts of a word come in a cycle at most: the link is measured in these.
const PARTS: u32 = 1_000;

/// What a bridge is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Words of four bytes that its FIFO holds.
    pub fifo: u32,
    /// The most words of a burst.
    pub burst: u32,
    /// Cycles before each burst.
    pub stall: u32,
    /// Thousandths of a word that the other side delivers in a cycle.
    pub feed: u32,
    /// A full FIFO locks it.
    pub locks: bool,
    /// For this many cycles the adapter feeds it nothing once it has locked; 0: the adapter
    /// does not notice.
    pub back_off: u32,
    /// It recovers when it was fed nothing for this many cycles.
    pub recovers: u32,
    /// The adapter joins bursts before it feeds them, as the paper's next one.
    pub joins: bool,
}

impl Bridge {
    /// The most words of a burst that a program wrote.
    pub const PIO_BURST: u32 = 16;
    /// The most words of a burst by DMA.
    pub const DMA_BURST: u32 = 256;

    /// For what DMA of the other side sends. The stall is fitted to 910 Mbit/s. The FIFO
    /// is assumed: 640 bytes, for both directions of the bridge.
    pub const DMA: Self = Self {
        fifo: 80,
        burst: Self::DMA_BURST,
        stall: 41,
        feed: PARTS,
        locks: false,
        back_off: 0,
        recovers: 128,
        joins: false,
    };

    /// For what programs of the other side write: the words come as fast as its bus gives
    /// them. When exactly the bridge locks the paper does not say; here, when a word finds
    /// its FIFO full. How long the adapter backs off, and after what time the bridge has
    /// recovered, is assumed, too.
    pub const PIO: Self = Self { burst: Self::PIO_BURST, locks: true, back_off: 384, ..Self::DMA };

    /// The same with bursts that are joined on the adapter before they come to the bridge.
    #[must_use]
    pub const fn joined(self) -> Self {
        Self { joins: true, ..self }
    }

    /// Passes a message of this many words on.
    #[must_use]
    pub fn pass(&self, words: u32) -> Passage {
        Passing::new(self, words).run()
    }
}

/// How a message passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Cycles from the first word on the bus to the last.
    pub cycles: u64,
    /// How many bursts it took.
    pub bursts: u64,
    /// How many of these had one word, because the bridge was locked.
    pub single: u64,
    /// How often the bridge locked.
    pub locks: u64,
}

impl Passage {
    /// Words in a second of a bus with this many cycles in it.
    #[must_use]
    pub fn rate(&self, words: u32, clock: u64) -> u64 {
        let gaps = u64::from(words.saturating_sub(1));
        (gaps * clock).checked_div(self.cycles).unwrap_or(0)
    }
}

/// A message on its way through.
#[derive(Clone, Copy, Debug)]
struct Passing<'b> {
    bridge: &'b Bridge,
    /// Words that the other side has still to deliver, and parts of the next one.
    coming: u32,
    parts: u32,
    fifo: u32,
    /// What is left of the stall, and of the burst behind it.
    stall: u32,
    burst: u32,
    is_locked: bool,
    back_off: u32,
    passage: Passage,
}

impl<'b> Passing<'b> {
    const fn new(bridge: &'b Bridge, words: u32) -> Self {
        let passage = Passage { cycles: 0, bursts: 0, single: 0, locks: 0 };
        Self {
            bridge,
            coming: words,
            parts: 0,
            fifo: 0,
            stall: 0,
            burst: 0,
            is_locked: false,
            back_off: 0,
            passage,
        }
    }

    fn run(mut self) -> Passage {
        let mut has_begun = false;
        // Each word waits for its stall and a back-off at most: it ends.
        while self.coming > 0 || self.fifo > 0 {
            self.feed();
            let moved = self.drain();
            has_begun |= moved;
            let is_last = self.coming == 0 && self.fifo == 0;
            self.passage.cycles += u64::from(has_begun && !is_last);
        }
        self.passage
    }

    /// A cycle of the link's side.
    fn feed(&mut self) {
        if self.back_off > 0 {
            self.back_off -= 1;
            let unfed = self.bridge.back_off - self.back_off;
            self.is_locked &= unfed < self.bridge.recovers;
            return;
        }
        if self.coming == 0 {
            return;
        }
        self.parts += self.bridge.feed.clamp(1, PARTS);
        if self.parts < PARTS {
            return;
        }
        if self.fifo < self.bridge.fifo.max(1) {
            self.parts -= PARTS;
            self.fifo += 1;
            self.coming -= 1;
            return;
        }
        // It is full. The link is told to wait (Xoff), and the word stays where it is.
        self.parts = PARTS;
        if self.bridge.locks && !self.bridge.joins && !self.is_locked {
            self.is_locked = true;
            self.passage.locks += 1;
            self.back_off = self.bridge.back_off;
        }
    }

    /// A cycle of the bus. Returns whether a word was moved.
    fn drain(&mut self) -> bool {
        if self.stall > 0 {
            self.stall -= 1;
            return false;
        }
        if self.burst == 0 {
            if self.fifo == 0 {
                return false;
            }
            let most = if self.bridge.joins { Bridge::DMA_BURST } else { self.bridge.burst };
            self.burst = if self.is_locked { 1 } else { most.max(1) };
            self.passage.single += u64::from(self.is_locked);
            self.passage.bursts += 1;
            // This cycle is the first of it.
            if self.bridge.stall > 0 {
                self.stall = self.bridge.stall - 1;
                return false;
            }
        }
        if self.fifo == 0 {
            // A burst ends where nothing is left to send.
            self.burst = 0;
            self.is_locked = false;
            return false;
        }
        self.fifo -= 1;
        self.burst -= 1;
        if self.fifo == 0 {
            (self.burst, self.is_locked) = (if self.coming > 0 { self.burst } else { 0 }, false);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Megabits per second of a bus of 33 MHz.
    fn megabits(bridge: &Bridge, bytes: u32) -> u64 {
        let words = bytes / 4;
        bridge.pass(words).rate(words, 33_000_000) * 32 / 1_000_000
    }

    #[test]
    fn dma_reaches_the_peak_of_the_paper() {
        let peak = megabits(&Bridge::DMA, 1 << 20);
        assert!((883..=937).contains(&peak), "{peak} instead of 910 Mbit/s");
    }

    #[test]
    fn a_burst_has_so_many_words_and_a_stall_before_it() {
        let slow = Bridge { feed: PARTS, locks: false, fifo: 4_096, ..Bridge::PIO };
        let passage = slow.pass(160);
        assert_eq!((passage.bursts, passage.single, passage.locks), (10, 0, 0));
        assert_eq!(passage.cycles, 9 * 41 + 159);
    }

    #[test]
    fn a_full_fifo_locks_the_bridge_and_the_workaround_frees_it() {
        let never = Bridge { locks: false, ..Bridge::PIO };
        let stuck = Bridge { back_off: 0, ..Bridge::PIO };
        let words = 16_384;
        let [free, freed, stuck] = [never, Bridge::PIO, stuck].map(|bridge| bridge.pass(words));
        assert_eq!((free.locks, free.single), (0, 0));
        assert!(freed.locks > 1 && stuck.single > freed.single, "{freed:?} {stuck:?}");
        assert!(free.cycles < freed.cycles && freed.cycles < stuck.cycles, "{freed:?} {stuck:?}");
        assert!(u64::from(words) - stuck.single < 200, "nearly all in bursts of one: {stuck:?}");
    }

    #[test]
    fn longer_messages_of_a_program_are_slower_and_those_of_dma_are_not() {
        let sizes = [256, 512, 1_024, 2_048, 4_096, 65_536];
        let pio = sizes.map(|bytes| megabits(&Bridge::PIO, bytes));
        let dma = sizes.map(|bytes| megabits(&Bridge::DMA, bytes));
        assert!(pio.windows(2).all(|two| two[0] >= two[1]), "{pio:?}");
        assert!(pio[1] > pio[5] + 20, "no negative slope: {pio:?}");
        assert!(dma[4].abs_diff(dma[5]) * 20 < dma[5], "{dma:?}");
        assert!(pio.iter().zip(dma).all(|(pio, dma)| *pio < dma), "{pio:?} {dma:?}");
    }

    #[test]
    fn joined_bursts_of_a_program_are_as_good_as_those_of_dma() {
        let joined = megabits(&Bridge::PIO.joined(), 65_536);
        assert_eq!(joined, megabits(&Bridge::DMA, 65_536));
    }
}
