//! The [`Engine`] trait: the whole contract between a protocol and anyone who does its I/O.
//!
//! # A turn of a driver
//!
//! 1. It asks for [`guess`](Engine::guess)es and receives straight into them
//!    (or does not guess, and receives into memory of its own).
//! 2. It asks for the place of everything that came, in order: of units that came
//!    together by [`place_run`](Engine::place_run), and of each that this does not
//!    answer for by [`place`](Engine::place). What lies in memory of its own it has
//!    opened first ([`open_run`](Engine::open_run)), if the engine seals.
//! 3. It moves payloads that landed in the wrong place aside, then writes each
//!    where it belongs. What was guessed right is there already.
//! 4. It reports each with [`handle_placed`](Engine::handle_placed), in the
//!    order of step 2. Only now may the engine acknowledge or complete.
//! 5. It writes what the engine had to keep and
//!    [deposits](Engine::poll_deposit) now, and reports each.
//! 6. It sends what [`poll_transmit_run`](Engine::poll_transmit_run) and
//!    [`poll_transmit`](Engine::poll_transmit) give, reports
//!    each with [`handle_sent`](Engine::handle_sent), calls
//!    [`handle_timeout`](Engine::handle_timeout) when it is time, and hands on
//!    the events.
//!
//! A guess is good until step 4 ends and no longer: a driver holds the engine
//! borrowed from step 1 to step 4, so that nothing else can change what was
//! guessed. It never sleeps with a guess posted.
//!
//! # What each side may rely on
//!
//! The engine: every ticket that it handed out in a [`Placement`], a
//! [`RunPlacement`], a [`Deposit`], a [`Transmit`] or a [`TransmitRun`] comes back
//! exactly once, in order for
//! placements, and for a deposit before the next one is asked for. Between
//! `place` and `handle_placed` of one unit there may be `place`s of others, on
//! the same path. The memory behind a transmission stays untouched by the
//! driver and is read until `handle_sent`.
//!
//! The driver: `guess` names only memory that holds nothing accepted; no two
//! placements that are under way name the same byte, but for memory that is
//! shared on purpose, where each takes effect in the order of its `place`;
//! calls cost a bounded time and allocate nothing.

use crate::path::{PathId, PathState, Peer};
use crate::refusal::{Refusal, Refusals};
use crate::run::{RunPlacement, RunRoom, SealedRun, TransmitRun, UnitRun, Unsealed};
use crate::span::Spans;
use crate::time::Instant;
use crate::unit::{Deposit, Guess, Landing, Placement, Ticket, Transmit, Unit};

/// When an engine wants [`Engine::handle_timeout`] to be called, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// The earliest moment that makes sense.
    pub at: Instant,
    /// The name of the timer, for people.
    pub timer: &'static str,
}

/// A protocol as a state machine without I/O.
///
/// Verbs: `handle_*` brings things in, `poll_*` takes things out. After each
/// input, drain every `poll_*` until it gives `None`.
pub trait Engine {
    /// What the engine tells its user.
    type Event;

    /// A path was added, changed its limits, or went down.
    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState);

    /// Is a peer on this path being asked for the first time, with no answer yet? Then it is
    /// worth knowing that nobody receives there: a driver that can learn that tells it with
    /// [`handle_unreachable`](Self::handle_unreachable).
    fn awaits_first_answer(&self, path: PathId) -> bool {
        let _ = path;
        false
    }

    /// The network says that nobody receives at this peer's address (for UDP: ICMP port
    /// unreachable). Anybody can forge such a message, so it may end an attempt that nobody has
    /// answered, and nothing else.
    fn handle_unreachable(&mut self, now: Instant, path: PathId, peer: Peer) {
        let _ = (now, path, peer);
    }

    /// Likely next units of this path; changes nothing.
    /// `nth` = 0, 1, … asks for the runs that follow each other.
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess>;

    /// Where does this unit's payload belong? Fills `into`, which comes empty.
    ///
    /// # Errors
    /// The check that refused the unit; it is counted in [`Engine::refusals`].
    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal>;

    /// Where do the payloads of the leading units of this run belong, if they lie
    /// behind one another in one span and need no check? The answer is for as many as
    /// do, at least one; a driver asks again for those behind them.
    ///
    /// `None` changes and counts nothing: the driver asks [`place`](Self::place) for the
    /// first unit, which refuses it or deals with whatever it is. So an engine answers
    /// here for what it expects, and for nothing else.
    fn place_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        let _ = (now, run);
        None
    }

    /// The payload is in place, or failed its check. Of a run: all payloads are, or it
    /// counts as if none had arrived.
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing);

    /// Bytes that the engine had to keep, because their place was not known
    /// when they came, and whose place is known now. Fills `into`, which comes
    /// empty, with as many bytes as there are.
    ///
    /// For a packet that came in fragments: each was read whole, with
    /// [`Placement::NeedHead`], since only the first says where all belong.
    /// What an engine keeps is bounded, like all else.
    ///
    /// A driver asks in every turn, once no placement is under way, and
    /// answers with [`handle_placed`](Self::handle_placed): with
    /// [`Landing::Verified`] once the bytes are in place (checking them was
    /// the engine's), or with [`Landing::Failed`].
    fn poll_deposit(&mut self, now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        let _ = (now, into);
        None
    }

    /// The next unit to send on this path: writes its head into `head`, which
    /// has room for [`PathLimits::head`](crate::PathLimits::head) bytes, and
    /// the spans of its payload into `from`, which comes empty. What is only
    /// summed ([`Transmit::sum_only`]) is at their end.
    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit>;

    /// The next units to send on this path, if they are a run: to one peer, of one
    /// length, out of one span, without a checksum to be filled in. Writes their heads
    /// into `room`.
    ///
    /// `None` where what is to be sent next is no run (or nothing is): the driver asks
    /// [`poll_transmit`](Self::poll_transmit).
    fn poll_transmit_run(
        &mut self,
        now: Instant,
        path: PathId,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        let _ = (now, path, room);
        None
    }

    /// This transmission holds its spans no longer. What may have to be sent
    /// again stays pinned by the engine.
    fn handle_sent(&mut self, now: Instant, ticket: Ticket);

    /// Time passed. Calling it too early or too often is harmless.
    fn handle_timeout(&mut self, now: Instant);

    /// When to call [`Engine::handle_timeout`] next. Who wants to sleep until then asks when nothing
    /// is left to transmit and no event: an engine may let what has landed count no earlier.
    fn poll_timeout(&self) -> Option<Timeout>;

    /// The next thing that the user should know.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// How often which check refused a unit.
    fn refusals(&self) -> &Refusals;

    /// Are units sealed on their way out? Then a driver copies the payload of each into memory
    /// of its own, behind one another, fills in a checksum where one is wanted, and calls
    /// [`seal`](Self::seal) for it before it leaves. No device cuts such a unit.
    fn seals(&self) -> bool {
        false
    }

    /// Encrypts the payload of a unit that is about to leave, where the driver has copied it,
    /// and completes its head. Each call is for one unit that leaves once: a unit that is to
    /// leave twice is copied and sealed twice. False: the unit cannot leave, and counts as lost.
    fn seal(&mut self, head: &mut [u8], payload: &mut [u8]) -> bool {
        let _ = (head, payload);
        true
    }

    /// The same for units of one head that are about to leave together. They lie behind one
    /// another; each but the last is `unit_len` bytes long, and begins with `head_len` bytes of
    /// head. Returns how many of the first may leave; the others count as lost.
    fn seal_run(&mut self, units: &mut [u8], unit_len: usize, head_len: usize) -> usize {
        let mut sealed = 0;
        for unit in units.chunks_mut(unit_len.max(1)) {
            let Some((head, payload)) = unit.split_at_mut_checked(head_len) else { break };
            if !self.seal(head, payload) {
                break;
            }
            sealed += 1;
        }
        sealed
    }

    /// Opens units that came together, where they lie in memory of the driver's own. A driver
    /// that has such memory asks this first, where the engine [`seals`](Self::seals), and
    /// again for the units behind those that the answer is about. What was opened is genuine
    /// before anybody is asked for its place: by [`place_opened_run`](Self::place_opened_run)
    /// and [`place_opened`](Self::place_opened). `None`: the first unit is not sealed, or
    /// cannot be opened; it is placed like any other, and refused there if it must be.
    fn open_run(&mut self, now: Instant, run: &mut SealedRun<'_>) -> Option<Unsealed> {
        let _ = (now, run);
        None
    }

    /// [`place`](Self::place) for a unit that was opened: its head begins with byte
    /// [`at`](Unsealed::at) of what came, and [`from`](Unsealed::from) is who sent it. It lands
    /// as [`Landing::Verified`].
    ///
    /// # Errors
    ///
    /// As [`place`](Self::place).
    fn place_opened(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        self.place(now, unit, into)
    }

    /// [`place_run`](Self::place_run) for units that were opened, likewise.
    fn place_opened_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        self.place_run(now, run)
    }

    /// Opens the payload of a unit that was placed with [`Check::Sealed`](crate::Check::Sealed).
    /// `head` is the unit up to where its payload begins, as it came, `payload` the driver's
    /// copy of all behind it. False: it is not genuine, and the copy holds nothing of use.
    fn open(&mut self, key: u64, head: &[u8], payload: &mut [u8]) -> bool {
        let _ = (key, head, payload);
        false
    }

    /// May a unit with this head be placed before anybody knows that it is genuine? Only if
    /// the answer is [`Placement::Into`] or a refusal, and a landing that fails leaves the
    /// engine as if the unit had not come. What is said here binds a layer that encrypts;
    /// units of all other heads it opens before the engine sees them.
    fn places_unverified(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// The name by which the sender of a unit calls itself in this head, if it says one. A layer
    /// that knows who the sender has proven to be checks that before the engine hears of it.
    /// Such a unit is placed by itself: never in a run, and never unverified.
    #[inline]
    fn name_in(&self, head: &[u8]) -> Option<u32> {
        let _ = head;
        None
    }

    /// A peer that has proven to be somebody calls itself by another's name, in this unit.
    /// The engine believes nothing of it, and may say so to the peer. Gives the refusal, which the
    /// layer counts.
    fn handle_false_name(&mut self, now: Instant, unit: &Unit<'_>) -> Refusal {
        let _ = (now, unit);
        Refusal::BadProof
    }
}

/// A borrowed engine is an engine, so that wrappers need not own what they wrap.
impl<E: Engine + ?Sized> Engine for &mut E {
    type Event = E::Event;

    crate::delegate_engine! { |this| **this =>
        handle_path, awaits_first_answer, handle_unreachable, guess, place, place_run,
        handle_placed, poll_deposit, poll_transmit, poll_transmit_run, handle_sent,
        handle_timeout, poll_timeout, poll_event, refusals, seals, seal, seal_run, open_run,
        place_opened, place_opened_run, open, places_unverified, name_in, handle_false_name,
    }
}
