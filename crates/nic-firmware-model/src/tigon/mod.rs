//! The Tigon-II: the receive path of STP on a Gigabit Ethernet adapter.
//!
//! The firmware detects STP Data, checks its header against the table of granted
//! Blocks that the host keeps up to date, and places the payload; the host is
//! interrupted once per Block. Everything else is the host's. The checks are those
//! of [`stp_core::offload`]: there is no second implementation of the protocol.
//!
//! | file | what is there |
//! | --- | --- |
//! | `figures` | two hosts with such adapters, measured in virtual time (feature `std`) |
//! | `model` | the comparison with a host without an adapter (feature `model`) |
//!
//! What does not live here: the protocol's control operations, Puts and Gets'
//! answers to others; connections; recovery: the engine's.

#[cfg(feature = "std")]
pub mod figures;
#[cfg(feature = "model")]
pub mod model;

use landfall_placement::{Duration, InternetSum, Spans};
use stp_core::offload::{
    Arrival as Came, Block, Blocks, Command, Incoming, Landed as Units, Loss, Report, StuId,
    words_per_block,
};
use stp_core::wire::{Flags, HEADER_LEN, Header, Op};

use crate::firmware::{Arrival, Firmware, Landed, Meter, OutgoingFrame, Stage, Verdict};
use crate::machine::{
    BridgeCosts, BusCosts, Coalescing, Costs, DmaCosts, Engines, Exhausted, Route, Sram, Store,
};

/// When the host hears of STUs that landed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reports {
    /// Once all that is granted of a Block has landed, or when some of it came
    /// behind what did not: one report per Block, where nothing is lost.
    #[default]
    Gathered,
    /// Of each; it is interrupted for those that the other habit tells of.
    Each,
}

/// The habits of the firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Data without a checksum is the host's, which refuses it.
    pub checksum: bool,
    /// When the host hears of STUs that landed.
    pub reports: Reports,
    /// What its stages cost.
    pub cycles: Cycles,
}

/// What the firmware remembers of an STU on its way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Which it is.
    pub stu_id: StuId,
    /// How long it waited at its sender.
    pub hold: u16,
    /// Its checksum is wrong: nothing of it goes anywhere.
    pub is_corrupt: bool,
}

/// The firmware of a Tigon-II that takes STP Data off its host.
#[derive(Debug)]
pub struct Tigon<'s> {
    tables: Tables<'s>,
    config: Config,
}

impl<'s> Tigon<'s> {
    /// The firmware with these tables, all empty.
    #[must_use]
    pub fn new(tables: Tables<'s>, config: Config) -> Self {
        let mut tigon = Self { tables, config };
        tigon.restart();
        tigon
    }

    /// The table of Blocks.
    pub fn blocks(&mut self) -> Blocks<'_> {
        self.tables.blocks()
    }

    /// Is the Block at a place the one of which there is talk?
    fn has(&mut self, index: u16, generation: u16) -> bool {
        let blocks = self.tables.blocks();
        blocks.block(index).is_some_and(|block| block.generation() == generation)
    }

    /// All that was not said of a Block, as far as one report says it.
    fn tell(&mut self, index: u16, hold: u16) -> Option<Report> {
        let block = *self.tables.blocks().block(index)?;
        let (generation, highest) = (block.generation(), block.highest());
        // Nothing is missing, and nothing is under way, before the highest.
        if block.landed() == highest {
            if !self.tables.forget_untold(index) {
                return None;
            }
            let marked = self.tables.blocks().take_marked(index);
            return Some(Report::Through { index, generation, end: highest, marked, hold });
        }
        let (first, bits) = self.tables.take_untold(index)?;
        let marked = self.tables.blocks().take_marked(index);
        Some(Report::Landed(Units { index, generation, first, bits, marked, hold }))
    }

    /// An STU is in its place.
    fn note_landed(&mut self, token: Token, is_complete: bool) -> Landed<Report> {
        let StuId { block: index, generation, stu } = token.stu_id;
        let mut blocks = self.tables.blocks();
        let Some(block) = blocks.block(index).copied() else { return Landed::Silent };
        // What came last of what is granted, or shows that something is lost.
        let is_news = is_complete || block.landed() == block.granted() || block.holes() > 0;
        if self.config.reports == Reports::Each {
            let marked = blocks.take_marked(index);
            let hold = token.hold;
            let units = Units { index, generation, first: stu, bits: 1, marked, hold };
            let report = Report::Landed(units);
            return if is_news { Landed::EventQueue(report) } else { Landed::Noted(report) };
        }
        self.tables.note_untold(index, stu);
        if !is_news {
            return Landed::Silent;
        }
        self.tell(index, token.hold).map_or(Landed::Silent, Landed::EventQueue)
    }
}

impl Firmware for Tigon<'_> {
    type Command = Command;
    type Report = Report;
    type Token = Token;

    fn handle_command(&mut self, command: &Command, meter: &mut impl Meter) -> Option<Report> {
        meter.spend(Stage::Doorbell, self.config.cycles.command);
        match *command {
            Command::Open { index, block } => {
                let generation = block.generation();
                if self.tables.blocks().adopt(index, &block) {
                    self.tables.forget_untold(index);
                    return None;
                }
                Some(Report::Refused { index, generation })
            }
            Command::Grant { index, generation, end } => {
                if self.has(index, generation) {
                    self.tables.blocks().grant(index, end);
                }
                None
            }
            Command::Redirect { index, generation, path, peer } => {
                if self.has(index, generation) {
                    self.tables.blocks().redirect(index, path, peer);
                }
                None
            }
            Command::Tell { index, generation } => {
                if self.has(index, generation) {
                    self.tell(index, 0)
                } else {
                    None
                }
            }
            Command::Close { index, generation } => {
                if self.has(index, generation) {
                    self.tables.blocks().close(index);
                }
                // Its answer comes behind all that is under way.
                Some(Report::Closed { index, generation })
            }
        }
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Token> {
        let cycles = self.config.cycles;
        meter.spend(Stage::Header, cycles.header);
        let Some(header) = Header::read(frame.bytes) else { return Verdict::Host };
        if header.op != Op::Data as u8 {
            return Verdict::Host;
        }
        let has_sum = header.flags().has(Flags::SUM);
        if self.config.checksum && !has_sum {
            return Verdict::Host;
        }
        meter.spend(Stage::Lookup, cycles.lookup);
        let Ok(len) = u32::try_from(frame.bytes.len()) else { return Verdict::Host };
        let (path, from, ecn) = (frame.path, frame.from, frame.ecn);
        let data = Incoming { header, len, path, from, ecn };
        let Ok(hit) = self.tables.blocks().place(&data) else { return Verdict::Host };
        let whole = HEADER_LEN + hit.span.len as usize;
        let is_corrupt = has_sum && {
            meter.spend(Stage::Checksum, cycles.sum(whole));
            !is_sum_right(frame.bytes.get(..whole).unwrap_or(&[]))
        };
        if !is_corrupt {
            meter.spend(Stage::Dma, cycles.dma);
            // One span always fits: the list comes empty.
            let _ = into.push(hit.span);
        }
        let token = Token { stu_id: hit.stu_id, hold: header.param.get(), is_corrupt };
        Verdict::Place { at: HEADER_LEN as u16, token }
    }

    fn landed(
        &mut self,
        token: Token,
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<Report> {
        meter.spend(Stage::Update, self.config.cycles.update);
        let is_there = is_in_place && !token.is_corrupt;
        match self.tables.blocks().landed(token.stu_id, is_there) {
            Came::Bytes(_) => self.note_landed(token, false),
            Came::Complete(_) => self.note_landed(token, true),
            Came::Lost => {
                let why = if token.is_corrupt { Loss::Corrupt } else { Loss::MemoryGone };
                let Token { stu_id, hold, .. } = token;
                let marked = self.tables.blocks().take_marked(stu_id.block);
                Landed::EventQueue(Report::Lost { stu_id, why, marked, hold })
            }
            // Of a Block that was taken back nobody wants to hear.
            Came::Released | Came::Stale => Landed::Silent,
        }
    }

    fn send(&mut self, _frame: &OutgoingFrame<'_>, meter: &mut impl Meter) -> Option<Route> {
        meter.spend(Stage::Send, self.config.cycles.send);
        Some(Route::DIRECT)
    }

    fn restart(&mut self) {
        self.tables.clear();
    }
}

/// The Internet checksum over a whole packet with its checksum in it.
fn is_sum_right(packet: &[u8]) -> bool {
    let mut sum = InternetSum::new();
    sum.add(packet);
    sum.sum() == 0xffff
}

/// Cycles of the firmware, handler by handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// A command of the host.
    pub command: u32,
    /// Taking a frame up, and reading its header.
    pub header: u32,
    /// Checking it against the tables.
    pub lookup: u32,
    /// Setting the DMA engine up.
    pub dma: u32,
    /// Counting what has landed.
    pub update: u32,
    /// Sending a frame.
    pub send: u32,
    /// Summing 16 bytes of payload.
    pub sum_16: u32,
}

impl Cycles {
    /// Assumed, not the paper's: a few dozen instructions each. A frame takes less
    /// than its DMA does, so that the paper's rows do not depend on it.
    pub const TIGON: Self =
        Self { command: 120, header: 60, lookup: 120, dma: 80, update: 60, send: 150, sum_16: 12 };

    /// Summing this many bytes.
    #[must_use]
    pub const fn sum(&self, bytes: usize) -> u32 {
        self.sum_16.saturating_mul((bytes / 16) as u32 + 1)
    }
}

/// The machine of the paper: 88 MHz, "about 50000 packets/s" by DMA (2.3,
/// Benchmarks), a 32-bit PCI bus. The set-up of a transfer is fitted: with it, packets
/// of a header and a page reach the 98 MB/s of Table 1.
pub const COSTS: Costs = Costs {
    clock: 88_000_000,
    dma: DmaCosts { setup: Duration::from_nanos(3_600), rate: 0, gap: Duration::from_micros(20) },
    engines: Engines::Two,
    bus: BusCosts::PCI_32_33,
    cut_through: 0,
    bridge: BridgeCosts::NONE,
    report: 0,
    interrupts: Coalescing::After { time: Duration::from_micros(20), reports: 8 },
};

// The tables of the firmware: granted Blocks, and what was not said of them.

/// Granted Blocks, a bit for each of their STUs that came, and one for each of
/// which the host has not heard.
#[derive(Debug)]
pub struct Tables<'s> {
    blocks: Store<'s, Block>,
    came: Store<'s, u64>,
    untold: Store<'s, u64>,
    stus: u16,
}

/// How many bytes of SRAM a Block of at most this many STUs takes.
const fn bytes_per_block(stus: u16) -> usize {
    size_of::<Block>() + 2 * size_of::<u64>() * words_per_block(stus)
}

impl<'s> Tables<'s> {
    /// Tables in this storage, for Blocks of at most this many STUs; both
    /// lists of bits have [`words_per_block`] words for each Block.
    #[must_use]
    pub fn new(
        blocks: impl Into<Store<'s, Block>>,
        came: impl Into<Store<'s, u64>>,
        untold: impl Into<Store<'s, u64>>,
        stus: u16,
    ) -> Self {
        Self { blocks: blocks.into(), came: came.into(), untold: untold.into(), stus }
    }

    /// How many Blocks fit into what is left of the SRAM.
    #[must_use]
    pub fn most(sram: &Sram, stus: u16) -> usize {
        sram.room_for(bytes_per_block(stus)).min(1 << 16)
    }

    /// Reserves the SRAM for this many Blocks.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn reserve(sram: &mut Sram, blocks: usize, stus: u16) -> Result<(), Exhausted> {
        sram.reserve("blocks", blocks, bytes_per_block(stus))
    }

    /// Tables of this many Blocks in memory of their own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(blocks: usize, stus: u16) -> Self {
        let words = blocks.saturating_mul(words_per_block(stus));
        Self::new(
            Store::filled_with(blocks, Block::default),
            Store::filled_with(words, || 0),
            Store::filled_with(words, || 0),
            stus,
        )
    }

    /// The table of Blocks.
    #[inline]
    fn blocks(&mut self) -> Blocks<'_> {
        Blocks::new(&mut self.blocks, &mut self.came, self.stus)
    }

    /// The bits of what was not said of a Block.
    fn untold(&mut self, index: u16) -> &mut [u64] {
        let words = words_per_block(self.stus);
        let start = usize::from(index) * words;
        self.untold.get_mut(start..start + words).unwrap_or(&mut [])
    }

    /// An STU landed, and the host has not heard of it.
    #[inline]
    fn note_untold(&mut self, index: u16, stu: u16) {
        if let Some(word) = self.untold(index).get_mut(usize::from(stu / 64)) {
            *word |= 1 << (stu % 64);
        }
    }

    /// The host hears of all of a Block. Was there anything?
    fn forget_untold(&mut self, index: u16) -> bool {
        let words = self.untold(index);
        let had = words.iter().any(|word| *word != 0);
        words.fill(0);
        had
    }

    /// The host hears of the first 64 STUs of which it has not heard all: the
    /// first of them, and a bit for each of which it has not.
    fn take_untold(&mut self, index: u16) -> Option<(u16, u64)> {
        let mut words = self.untold(index).iter_mut().enumerate();
        let (nth, word) = words.find(|(_, word)| **word != 0)?;
        let first = u16::try_from(nth * 64).ok()?;
        Some((first, core::mem::take(word)))
    }

    /// Forgets all.
    fn clear(&mut self) {
        self.blocks().clear();
        self.untold.fill(0);
    }
}
