//! Which units are in the kernel's hands, and until when.
//!
//! Units are gathered in batches, each with its own heads and pins, and a batch
//! is cut into runs, each of which is one operation. A run is finished when it
//! was sent (or given up) and every notification announced for it has come.
//! Only then does the engine hear of it; and only when all runs of a batch are
//! finished are its heads used again.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::{io, mem};

use landfall_placement::{Engine, Instant, PathId, PathLimits, Transmit};
use socket2::Socket;

use super::ring::{Completion, Operation, QUEUE, Ring};
use super::udp::Policy;
use crate::driver::Counters;
use crate::exchange::{Gathered, Outbox, Prefix, RunLimits};
use crate::inet::SendFault;
use crate::memory::{Pins, Regions};
use crate::udp::UNITS_PER_TURN;

/// This many bytes are gathered in one turn at most: a batch is a single
/// super-packet where the device segments.
const BYTES_PER_TURN: usize = 1 << 20;
/// Batches where every send copies, and is over with its turn.
const COPIED_BATCHES: usize = 8;
/// Batches where sends are under way after their turn: a megabyte of long units.
const UNCOPIED_BATCHES: usize = 16;
/// The kernel copied after all (`IORING_NOTIF_USAGE_ZC_COPIED`).
const COPIED: i32 = i32::MIN;

/// What differs between kinds of sockets when units are sent.
///
/// # Safety
/// The message that [`prepare`](Self::prepare) gives names memory of the `Header` and the
/// pieces, and nothing else: the kernel follows it.
pub(super) unsafe trait Wire {
    /// What one operation needs besides the pieces; stays where it is until
    /// the operation is complete.
    type Header;

    /// An empty header.
    fn header() -> Self::Header;

    /// The socket.
    fn socket(&self) -> &Socket;

    /// How many bytes of its own it puts before each unit.
    fn prefix_len(&self) -> usize {
        0
    }

    /// Writes them.
    fn write_prefix(&self, _unit: &Transmit, _prefix: &mut Prefix) {}

    /// What one operation may send at once.
    fn limits(&self) -> RunLimits;

    /// Fills in the header for these units. None: there is nowhere to send them.
    fn prepare(&mut self, header: &mut Self::Header, units: Gathered<'_>) -> Option<Ready>;

    /// What an error means of units that were to leave by this socket. Where units can no
    /// longer be sent together, the limits are others from now on.
    ///
    /// # Errors
    /// The path is broken for good.
    fn fault(&mut self, error: io::Error, units: usize, by: RawFd) -> io::Result<SendFault>;
}

/// What is ready to leave, and by which socket.
pub(super) struct Ready {
    pub(super) by: RawFd,
    pub(super) message: *const libc::msghdr,
}

/// Units that leave with one operation.
#[derive(Debug)]
struct Run {
    id: u32,
    units: usize,
    state: State,
    /// Notifications that were announced and have not come.
    notifications: u32,
    /// The kernel would not send this without a copy.
    must_copy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Submitted {
        uncopied: bool,
        by: RawFd,
    },
    /// Sent, or given up.
    Over {
        uncopied: bool,
    },
}

/// Units with one set of heads and pins.
#[derive(Debug)]
struct Batch {
    outbox: Outbox,
    runs: VecDeque<Run>,
}

/// The sending half of a driver on a ring.
#[derive(Debug)]
pub(super) struct Sender<W: Wire> {
    pub(super) wire: W,
    pub(super) zero_copy: Policy,
    batches: Vec<Batch>,
    /// Batches without units; the one used last is used first.
    free: Vec<usize>,
    /// Batches with units, in the order in which they were gathered.
    busy: VecDeque<usize>,
    headers: Box<[W::Header]>,
    next_id: u32,
    turn: Turn,
    /// Notifications that were announced and have not come.
    notifications: usize,
}

/// What happened since the turn began.
#[derive(Debug, Default)]
struct Turn {
    /// Gathered.
    units: u32,
    bytes: usize,
    /// Out of our hands.
    sent: u32,
    /// Something was sent with the last entry into the kernel.
    entry_sent: bool,
    /// The kernel had no room for more.
    blocked: bool,
    broken: Option<io::Error>,
}

impl<W: Wire> Sender<W> {
    pub(super) fn new(
        wire: W,
        path: PathId,
        limits: PathLimits,
        regions: &Regions,
        zero_copy: Policy,
    ) -> Self {
        let count = if zero_copy.is_on() { UNCOPIED_BATCHES } else { COPIED_BATCHES };
        let batch = || {
            let outbox = Outbox::new(path, limits, Pins::new(regions), wire.prefix_len());
            Batch { outbox, runs: VecDeque::new() }
        };
        Self {
            batches: (0..count).map(|_| batch()).collect(),
            free: (0..count).rev().collect(),
            busy: VecDeque::with_capacity(count),
            headers: (0..QUEUE).map(|_| W::header()).collect(),
            next_id: 0,
            turn: Turn::default(),
            notifications: 0,
            zero_copy,
            wire,
        }
    }

    pub(super) fn start_turn(&mut self) {
        self.turn = Turn::default();
    }

    /// How many units are out of our hands since the turn began.
    pub(super) const fn sent(&self) -> u32 {
        self.turn.sent
    }

    /// The kernel had no room for all that waits.
    pub(super) const fn is_blocked(&self) -> bool {
        self.turn.blocked
    }

    /// The kernel still reads memory of sends that are complete otherwise.
    pub(super) const fn awaits_notifications(&self) -> bool {
        self.notifications > 0
    }

    /// Gathers what the engine has to send, up to what is enough for one turn.
    pub(super) fn fill<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) {
        let wire = &self.wire;
        while self.turn.units < UNITS_PER_TURN
            && self.turn.bytes < BYTES_PER_TURN
            && let Some(index) = self.free.pop()
        {
            let batch = &mut self.batches[index];
            batch.outbox.fill(engine, now, counters, |unit, to| wire.write_prefix(unit, to));
            if batch.outbox.is_empty() {
                self.free.push(index);
                break;
            }
            self.turn.units += batch.outbox.len() as u32;
            self.turn.bytes += batch.outbox.bytes();
            batch.cut(wire.limits(), &mut self.next_id);
            self.busy.push_back(index);
        }
    }

    /// Pushes all runs that wait to the ring, as far as there is room in it.
    /// Returns whether there were any.
    pub(super) fn queue(&mut self, ring: &mut Ring, counters: &mut Counters) -> bool {
        let mut any = false;
        for &index in &self.busy {
            let batch = &mut self.batches[index];
            batch.cut_again(self.wire.limits(), &mut self.next_id);
            let mut at = 0;
            for run in &mut batch.runs {
                let first = at;
                at += run.units;
                if run.state != State::Waiting {
                    continue;
                }
                if ring.room() == 0 {
                    return true;
                }
                any = true;
                let Some(gathered) = batch.outbox.run(first, run.units) else { continue };
                let (bytes, pieces) = (gathered.first.len * run.units, gathered.pieces.len());
                let header = &mut self.headers[QUEUE - ring.room()];
                let Some(Ready { by, message }) = self.wire.prepare(header, gathered) else {
                    // To the engine it is lost on the way.
                    counters.send_failed += run.units as u64;
                    self.turn.sent += run.units as u32;
                    run.state = State::Over { uncopied: false };
                    continue;
                };
                let uncopied = !run.must_copy && self.zero_copy.wants(bytes, pieces);
                let token = (index as u64 + 1) << 32 | u64::from(run.id);
                let operation = if uncopied {
                    Operation::SendUncopied(message)
                } else {
                    Operation::Send(message)
                };
                // SAFETY: the header is used for nothing else until the entry
                // into the kernel is over; heads, list and pinned payload stay
                // until the run is finished, notifications included.
                unsafe { ring.push(by, operation, token) };
                run.state = State::Submitted { uncopied, by };
            }
        }
        any
    }

    /// Takes note of what became of a run.
    pub(super) fn complete(&mut self, completion: &Completion, counters: &mut Counters) {
        let index = (completion.token >> 32).wrapping_sub(1) as usize;
        let id = completion.token as u32;
        let run = self.batches.get_mut(index).and_then(|batch| batch.run(id));
        let Some(run) = run else {
            debug_assert!(false, "{completion:?} is of no run");
            return;
        };
        if completion.is_notification {
            run.notifications = run.notifications.saturating_sub(1);
            self.notifications = self.notifications.saturating_sub(1);
            if run.state == (State::Over { uncopied: true }) {
                self.zero_copy.reported(completion.result & COPIED != 0);
            }
            return;
        }
        if completion.notifies_later {
            run.notifications += 1;
            self.notifications += 1;
        }
        let State::Submitted { uncopied, by } = run.state else { return };
        run.state = State::Over { uncopied };
        let Err(error) = completion.outcome() else {
            counters.units_sent += run.units as u64;
            self.turn.sent += run.units as u32;
            self.turn.entry_sent = true;
            return;
        };
        if uncopied && !is_full(&error) {
            // What it means is said by the attempt with a copy.
            run.must_copy = true;
            run.state = State::Waiting;
            self.zero_copy.refused();
            return;
        }
        match self.wire.fault(error, run.units, by) {
            Ok(SendFault::NoRoom) => {
                counters.send_blocked += u64::from(!self.turn.blocked);
                self.turn.blocked = true;
                run.state = State::Waiting;
            }
            Ok(SendFault::CannotSegment) => run.state = State::Waiting,
            Ok(SendFault::Lost) => {
                counters.send_failed += run.units as u64;
                self.turn.sent += run.units as u32;
            }
            Err(error) => self.turn.broken = Some(error),
        }
    }

    /// Tells the engine of all runs that are finished.
    ///
    /// # Errors
    /// The socket is broken for good.
    pub(super) fn report<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> io::Result<()> {
        counters.send_calls += u64::from(mem::take(&mut self.turn.entry_sent));
        let (batches, free) = (&mut self.batches, &mut self.free);
        self.busy.retain(|&index| {
            let batch = &mut batches[index];
            while batch.runs.front().is_some_and(Run::is_finished) {
                if let Some(run) = batch.runs.pop_front() {
                    batch.outbox.done(engine, now, run.units);
                }
            }
            if batch.runs.is_empty() {
                free.push(index);
            }
            !batch.runs.is_empty()
        });
        self.turn.broken.take().map_or(Ok(()), Err)
    }
}

impl Run {
    fn is_finished(&self) -> bool {
        matches!(self.state, State::Over { .. }) && self.notifications == 0
    }
}

impl Batch {
    fn run(&mut self, id: u32) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.id == id)
    }

    /// Cuts all units into runs.
    fn cut(&mut self, limits: RunLimits, next_id: &mut u32) {
        let mut at = 0;
        while at < self.outbox.len() {
            let units = self.outbox.run_from(at, limits).max(1);
            self.runs.push_back(Run::new(units, next_id));
            at += units;
        }
    }

    /// Cuts runs that wait and are longer than allowed by now.
    fn cut_again(&mut self, limits: RunLimits, next_id: &mut u32) {
        let is_long = |run: &Run| run.state == State::Waiting && run.units > limits.units;
        if !self.runs.iter().any(is_long) {
            return;
        }
        for run in mem::take(&mut self.runs) {
            if !is_long(&run) || run.notifications > 0 {
                self.runs.push_back(run);
                continue;
            }
            let mut left = run.units;
            while left > 0 {
                let units = left.min(limits.units).max(1);
                self.runs.push_back(Run { must_copy: run.must_copy, ..Run::new(units, next_id) });
                left -= units;
            }
        }
    }
}

impl Run {
    const fn new(units: usize, next_id: &mut u32) -> Self {
        let id = *next_id;
        *next_id = next_id.wrapping_add(1);
        Self { id, units, state: State::Waiting, notifications: 0, must_copy: false }
    }
}

/// Not that it cannot go without a copy, but that nothing can go now.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS))
}
