//! The CLAN adapter: bursts of a native link go straight to memory, and a
//! content-addressable memory sees which of them touch a tripwire.
//!
//! The firmware checks the header of each burst against the table of apertures that the
//! host keeps up to date, puts the words into their place, and tells the host; it is
//! interrupted where a tripwire was touched. Everything else is the host's: reads,
//! answers, what is refused, what the link says of itself. The checks are those of
//! [`clan_dsm::offload`]: there is no second implementation of the protocol.
//!
//! # Order
//!
//! What goes to the host may write memory, too, and later than the adapter would. Behind
//! such a unit everything goes to the host, until it has dealt with all that it was given:
//! so writes take effect in their order (see [`clan_dsm::offload::Command::HostProgress`]).
//!
//! | file | what is there |
//! | --- | --- |
//! | `tables` | its tables, and how much memory they take |
//! | `watch` | the tripwires, in the CAM |
//! | `figures` | what the model has beside the paper's section 5 and its TCP/IP, frame by frame (feature `std`) |
//! | `switch` | the worm-hole switch as a node of the simulator (feature `std`) |
//! | `model` | the comparison with a host without an adapter (feature `model`) |
//!
//! What does not live here: how a link begins and ends, reads and answers, recovery: the
//! engine's.

#[cfg(feature = "std")]
pub mod figures;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "std")]
mod switch;
mod tables;
mod watch;

pub use tables::{Entries, Tables};
pub use watch::{Key, Watched, Words};

#[cfg(feature = "std")]
pub use switch::SwitchNode;

use clan_dsm::native::wire::{Symbol, Unit};
use clan_dsm::native::{Admitted, Burst, Fifo, ReceiveWindow, admit, credit_due};
use clan_dsm::offload::{Command, Destination, HostProgress, Landed as There, Report};
use clan_dsm::{Address, HostId, Kind, WORD};
use landfall_placement::{Duration, PathId, Serial32, Spans};

use crate::firmware::{Arrival, Firmware, Landed, Meter, OutgoingFrame, Stage, Verdict, Word};
use crate::machine::{BridgeCosts, BusCosts, Coalescing, Costs, DmaCosts, Engines, Lock, Route};

/// The habits of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whose adapter it is: other hosts' bursts are not for it.
    pub host: HostId,
    /// The path of its link.
    pub path: PathId,
    /// What comes over it are the bursts and words of a native link. Frames of a network
    /// that loses are the host's, all of them, and the adapter says nothing there itself.
    pub native: bool,
    /// The host hears at once after this many words, headers included, even if no
    /// tripwire was touched: what it gives the other end leave to send depends on it.
    pub tell_after: u32,
    /// This many words, headers included, the host has room for before the first of them is
    /// in its place: the credit of the link is told by it.
    pub room: u32,
    /// What its stages cost.
    pub cycles: Cycles,
}

impl Config {
    /// For this host, over path 0, with a link of so much room, and without costs.
    #[must_use]
    pub const fn new(host: HostId, room: u32) -> Self {
        let room = if room > Fifo::LEAST { room } else { Fifo::LEAST };
        let path = PathId(0);
        Self { host, path, native: true, tell_after: room / 4, room, cycles: Cycles::NONE }
    }

    /// The same, on a network that loses: for [`clan_dsm::Nic`].
    #[must_use]
    pub const fn network(host: HostId) -> Self {
        Self { native: false, ..Self::new(host, 0) }
    }
}

/// What the firmware remembers of a burst on its way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its header, and how many words followed.
    pub burst: Burst,
    /// Where it belongs.
    pub spot: Destination,
    /// How often that slot was revoked before.
    pub generation: u32,
    /// The beginning of the link that it came in.
    pub session: u32,
    /// How many words had come with it, headers included.
    pub arrived: Serial32,
}

/// How the link stands, as the adapter sees it.
#[derive(Clone, Copy, Debug, Default)]
struct LinkProgress {
    /// How many units were given to the host since the last fence, and how many of them
    /// it has dealt with.
    given: u32,
    seen: u32,
    fence: u32,
    session: u32,
    arrived: Serial32,
    edge: Serial32,
    /// Bursts go to memory; else everything goes to the host.
    takes: bool,
    /// Words in memory that the host was not interrupted for.
    unheard: u32,
    /// How often it could not watch.
    unwatched: u32,
    /// The host looks for some tripwire by itself: it hears of all that is written.
    tells_all: bool,
    /// What the other end is to be told.
    owed: Owed,
}

/// The firmware of a CLAN adapter.
#[derive(Debug)]
pub struct Clan<'s> {
    tables: Tables<'s>,
    config: Config,
    standing: LinkProgress,
}

impl<'s> Clan<'s> {
    /// The firmware with these tables, all empty.
    #[must_use]
    pub fn new(tables: Tables<'s>, config: Config) -> Self {
        let mut clan = Self { tables, config, standing: LinkProgress::default() };
        clan.restart();
        clan
    }

    /// What the host has told it.
    #[must_use]
    pub const fn tables(&self) -> &Tables<'s> {
        &self.tables
    }

    /// Does it put bursts into memory, or leave everything to the host for the time being?
    #[must_use]
    pub const fn takes_bursts(&self) -> bool {
        self.standing.takes
    }

    /// The host says how far it is.
    fn line(&mut self, line: &HostProgress) {
        let standing = &mut self.standing;
        if line.unwatched == standing.unwatched {
            standing.tells_all = line.looks;
        }
        if line.fence == standing.fence {
            standing.seen = line.seen;
        }
        let Some(ReceiveWindow { arrived, edge }) = line.window else {
            standing.takes = false;
            return;
        };
        if standing.session != line.session {
            (standing.session, standing.takes) = (line.session, false);
        }
        if standing.takes {
            standing.edge = standing.edge.later(edge);
        } else if line.fence == standing.fence && line.seen == standing.given {
            (standing.arrived, standing.edge) = (arrived, edge);
            standing.takes = true;
        }
    }

    /// A burst is in its place, and its words are free again: up to where the other end
    /// may send now, if that is worth a word. The host's credit is no other: it is in force
    /// where it has dealt with all that it was given, so that nothing else takes room.
    fn credit(&mut self, session: u32, arrived: Serial32) -> Option<Serial32> {
        let Self { standing, config, .. } = self;
        if session != standing.session || !standing.takes || standing.seen != standing.given {
            return None;
        }
        let edge =
            credit_due(config.room, config.room, ReceiveWindow { arrived, edge: standing.edge })?;
        standing.edge = edge;
        standing.owed.credit(edge);
        Some(edge)
    }

    /// A unit is the host's.
    fn give(&mut self) -> Verdict<Token> {
        self.standing.given = self.standing.given.wrapping_add(1);
        Verdict::Host
    }

    /// A unit is the host's, and it may write memory or change the link by it: so is all
    /// that comes behind it.
    fn pass(&mut self) -> Verdict<Token> {
        self.standing.takes = false;
        self.give()
    }

    /// A burst that counts as arrived.
    fn take(&mut self, burst: Burst, into: &mut Spans, meter: &mut impl Meter) -> Verdict<Token> {
        let address = burst.address();
        if address.kind == Kind::Burst && address.host != self.config.host {
            return self.give();
        }
        meter.spend(Stage::Lookup, self.config.cycles.lookup);
        let exposed = self.tables.exposed();
        let Admitted { taken, refused } = admit(&exposed.look(), burst);
        let (spot, is_whole) = match taken {
            Some((_, spot)) => (spot, refused.is_none()),
            // Where it knows all keys it knows as much as the host: nobody will write there.
            None if address.kind == Kind::Burst && exposed.knows_keys_of(address.slot) => {
                return self.give();
            }
            None => return self.pass(),
        };
        if !is_whole || into.push(spot.span).is_err() {
            return self.pass();
        }
        let generation = exposed.generation(spot.slot);
        meter.spend(Stage::Dma, self.config.cycles.dma);
        let at = Address::LEN as u16 + address.enabled().0 as u16;
        let LinkProgress { session, arrived, .. } = self.standing;
        Verdict::Place { at, token: Token { burst, spot, generation, session, arrived } }
    }
}

impl Firmware for Clan<'_> {
    type Command = Command;
    type Report = Report;
    type Token = Token;

    fn handle_command(&mut self, command: &Command, meter: &mut impl Meter) -> Option<Report> {
        meter.spend(Stage::Doorbell, self.config.cycles.command);
        match *command {
            Command::Expose { slot, generation, aperture } => {
                self.tables.exposed().expose(slot, generation, aperture);
                None
            }
            Command::Join { name, group } => {
                self.tables.exposed().join(name, group);
                None
            }
            Command::Watch { number, slot, first, last } => {
                if self.tables.watched.watch(number, Words { slot, first, last }) {
                    return None;
                }
                self.standing.unwatched = self.standing.unwatched.wrapping_add(1);
                self.standing.tells_all = true;
                Some(Report::Unwatched { number })
            }
            Command::Forget { number } => {
                self.tables.watched.forget(number);
                None
            }
            Command::HostProgress(line) => {
                self.line(&line);
                None
            }
            Command::Fence { number } => {
                (self.standing.fence, self.standing.given, self.standing.seen) = (number, 0, 0);
                Some(Report::Fence { number })
            }
        }
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Token> {
        meter.spend(Stage::Header, self.config.cycles.header);
        let len = u32::try_from(frame.bytes.len());
        let is_link = self.config.native && frame.path == self.config.path;
        let (true, Ok(len)) = (is_link, len) else { return self.give() };
        match Unit::parse(frame.bytes, len) {
            Ok(Unit::Symbol(Symbol::Xon | Symbol::Xoff | Symbol::Credit(_))) => self.give(),
            Ok(Unit::Packet(burst)) if self.standing.takes => {
                let standing = &mut self.standing;
                if burst.cost() > standing.edge.since(standing.arrived) {
                    return self.pass();
                }
                standing.arrived = standing.arrived.plus(burst.cost());
                match burst.address().kind {
                    Kind::Burst | Kind::Multicast => self.take(burst, into, meter),
                    Kind::Command | Kind::Reply => self.give(),
                }
            }
            Ok(Unit::Packet(_)) => self.give(),
            Ok(Unit::Symbol(_)) | Err(_) => self.pass(),
        }
    }

    fn landed(
        &mut self,
        token: Token,
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<Report> {
        meter.spend(Stage::Update, self.config.cycles.update);
        let Token { burst, spot, generation, session, arrived } = token;
        let told = self.credit(session, arrived);
        if told.is_some() {
            meter.spend(Stage::Send, self.config.cycles.send);
        }
        let (first, words) = ((spot.at / u64::from(WORD)) as u32, burst.words());
        let last = first.saturating_add(words.saturating_sub(1));
        let touched = Words { slot: spot.slot, first, last };
        let is_hit = is_in_place && self.tables.watched.is_touched(touched);
        let report = Report::Landed(There {
            burst,
            session,
            slot: spot.slot,
            generation,
            at: spot.at,
            len: spot.span.len,
            is_there: is_in_place,
            is_hit,
            advertised: told,
        });
        let unheard = self.standing.unheard.saturating_add(burst.cost());
        // With so little left to send, the other end may be waiting for any word more.
        let left = self.standing.edge.since(self.standing.arrived);
        let is_due = unheard >= self.config.tell_after || left < Fifo::LEAST;
        let is_due = is_due || self.standing.tells_all;
        if is_hit || !is_in_place || is_due {
            self.standing.unheard = 0;
            return Landed::EventQueue(report);
        }
        self.standing.unheard = unheard;
        Landed::Noted(report)
    }

    fn fill(&mut self, taken: u32, slots: u32) {
        if self.config.native {
            self.standing.owed.fill(taken, slots);
        }
    }

    fn poll_word(&mut self) -> Option<Word> {
        let bytes = self.standing.owed.poll()?.to_bytes();
        Some(Word { path: self.config.path, bytes })
    }

    fn send(&mut self, frame: &OutgoingFrame<'_>, meter: &mut impl Meter) -> Option<Route> {
        meter.spend(Stage::Send, self.config.cycles.send);
        if self.config.native {
            self.standing.owed.host_says(frame.head);
        }
        Some(Route::DIRECT)
    }

    fn restart(&mut self) {
        self.tables.clear();
        self.standing = LinkProgress::default();
    }
}

/// Cycles of the adapter's logic, step by step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// A command of the host.
    pub command: u32,
    /// Taking a header up.
    pub header: u32,
    /// Checking it against the tables.
    pub lookup: u32,
    /// Starting the way into memory.
    pub dma: u32,
    /// Comparing the words with the CAM, and telling the host.
    pub update: u32,
    /// Serialising a packet.
    pub send: u32,
}

impl Cycles {
    /// Nothing takes any time.
    pub const NONE: Self = Self { command: 0, header: 0, lookup: 0, dma: 0, update: 0, send: 0 };

    /// With the time on the wire, 0.5 µs on each of two adapters at 33 MHz, out and in
    /// (5.2: "The latency across the NIC hardware ... is about .5 µs"); how they share it is
    /// assumed.
    pub const CLAN: Self = Self { command: 2, header: 7, lookup: 3, dma: 2, update: 2, send: 13 };
}

/// "The latter serialise the data stream at 1.5 Gbit/s" (2).
pub const LINK: u64 = 1_500_000_000;

/// The machine of the paper: logic at 33 MHz, one DMA engine, a PCI bus of 32 bits and
/// 33 MHz. Nothing is stored on its way ("serialised by the NIC immediately, without
/// buffering", 2.3). What a transaction of the bus takes beside its bytes is fitted to 1.9 µs
/// for a word (5.2): twice that, once in each host, is the 0.9 µs that are "spent traversing
/// buses and bridges". The receiving bridge stalls before each burst ([`STALL`]). It
/// locks ([`LOCK`]) only where programs write more at once than its FIFO holds: for that see
/// [`Lock`].
pub const COSTS: Costs = Costs {
    clock: CLOCK,
    dma: DmaCosts { setup: Duration::ZERO, rate: 0, gap: Duration::ZERO },
    engines: Engines::One,
    bus: BusCosts { rate: 4 * CLOCK, transaction: TRANSACTION },
    cut_through: LINK / 8,
    bridge: BridgeCosts { recovery: recovery(STALL, TRANSACTION), joins: 0, lock: None },
    report: 0,
    interrupts: Coalescing::After { time: Duration::ZERO, reports: 1 },
};

const CLOCK: u64 = 33_000_000;
const TRANSACTION: Duration = Duration::from_nanos(450);

/// Cycles of the bus for which the bridge stalls before each burst: fitted to a peak of
/// 910 Mbit/s. The transaction is among them.
pub const STALL: u32 = 41;
/// Bytes of a burst of what programs write: "16 DWORD bursts on the PCI bus for PIO traffic" (5.2).
pub const PIO_BURST: u32 = 16 * 4;
/// Bytes of a burst of DMA: "256 DWORDS for DMA traffic".
pub const DMA_BURST: u32 = 256 * 4;
/// How the bridge locks (5.2): when exactly, the paper does not say; here, when a burst finds no
/// room in a FIFO of 320 bytes, half of the 640 that are for both directions. How long the
/// adapter backs off, and when the bridge has recovered, is assumed, too.
pub const LOCK: Lock =
    Lock { fifo: 320, word: 4, longest: PIO_BURST, back_off: cycles(384), recovers: cycles(128) };

/// How long this many cycles of the bus are.
#[must_use]
pub const fn cycles(count: u32) -> Duration {
    Duration::from_nanos(count as u64 * 1_000_000_000 / CLOCK)
}

/// What a stall of this many cycles before each burst is beyond the transaction.
#[must_use]
pub const fn recovery(stall: u32, transaction: Duration) -> Duration {
    cycles(stall).saturating_sub(transaction)
}

// What the adapter tells the other end of its link by itself: how far it may send, and,
// whatever that is, to stop while the FIFO is nearly full.

/// Words that are to be sent.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    credit: Option<Serial32>,
    /// The FIFO is nearly full.
    is_full: bool,
    /// The host lets the other end wait, for reasons of its own.
    host_holds: bool,
    /// The other end was told to wait, by whomever.
    is_held: bool,
}

impl Owed {
    /// The other end may send up to there.
    const fn credit(&mut self, edge: Serial32) {
        self.credit = Some(edge);
    }

    /// Of this many places of the FIFO this many are taken. The other end waits from three
    /// quarters on, and goes on at one: in between what is on its way finds room.
    const fn fill(&mut self, taken: u32, places: u32) {
        if taken.saturating_mul(4) >= places.saturating_mul(3) {
            self.is_full = true;
        } else if taken.saturating_mul(4) <= places {
            self.is_full = false;
        }
    }

    /// A unit of the host leaves; it may tell the other end to wait, or to go on.
    fn host_says(&mut self, head: &[u8]) {
        let Some(symbol) = head.first_chunk().copied().and_then(Symbol::from_bytes) else { return };
        match symbol {
            Symbol::Xoff => (self.host_holds, self.is_held) = (true, true),
            // While the FIFO is full, the other end is told anew.
            Symbol::Xon => (self.host_holds, self.is_held) = (false, false),
            // A link that begins anew has forgotten what it was told.
            Symbol::Begin { .. } => {
                (self.credit, self.host_holds, self.is_held) = (None, false, false);
            }
            Symbol::Ready { .. } | Symbol::Credit(_) | Symbol::Fault(_) => {}
        }
    }

    /// The next word.
    fn poll(&mut self) -> Option<Symbol> {
        let holds = self.is_full || self.host_holds;
        if core::mem::replace(&mut self.is_held, holds) != holds {
            return Some(if holds { Symbol::Xoff } else { Symbol::Xon });
        }
        self.credit.take().map(Symbol::Credit)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    fn words(owed: &mut Owed) -> Vec<Symbol> {
        core::iter::from_fn(|| owed.poll()).collect()
    }

    #[test]
    fn the_other_end_waits_while_the_fifo_is_nearly_full() {
        let mut owed = Owed::default();
        let mut said = Vec::new();
        for taken in [1, 5, 6, 8, 5, 3, 2, 0, 7] {
            owed.fill(taken, 8);
            said.push(words(&mut owed));
        }
        let (on, off) = (vec![Symbol::Xon], vec![Symbol::Xoff]);
        let none = Vec::new;
        assert_eq!(said, [none(), none(), off.clone(), none(), none(), none(), on, none(), off,]);
    }

    #[test]
    fn it_waits_for_host_and_adapter_both() {
        let mut owed = Owed::default();
        owed.host_says(&Symbol::Xoff.to_bytes());
        owed.fill(8, 8);
        assert_eq!(words(&mut owed), [], "it was told already");
        owed.host_says(&Symbol::Xon.to_bytes());
        assert_eq!(words(&mut owed), [Symbol::Xoff], "the host spoke for itself");
        owed.fill(0, 8);
        owed.credit(Serial32(9));
        assert_eq!(words(&mut owed), [Symbol::Xon, Symbol::Credit(Serial32(9))]);
        owed.host_says(b"a unit of another kind");
        owed.host_says(b"short");
        assert_eq!(words(&mut owed), []);
    }
}
