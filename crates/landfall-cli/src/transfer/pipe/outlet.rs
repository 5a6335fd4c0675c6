//! Where a side puts what it says, and what it keeps of that until it came.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall::stp::blocking::Connection;
use landfall::stp::{Error, Memory, Operation, Sent};

use super::{Broken, UNDER_WAY, Unsealed};
use crate::transfer::Presence;
use crate::transfer::seals::{SEAL, Sealer};
use crate::transfer::wire::{FrameKind, Label, State, TransferMessages};

/// So much may have been sent of which nobody knows yet whether it came.
const MOST_KEPT: u64 = 20;
/// The same for answers: who waits for answers to be taken does not wait for more.
const MOST_ANSWERS_KEPT: u64 = 256;
/// What was asked for again is in place there, and this side hears of it within this time.
const SOON: Duration = Duration::from_millis(200);

/// What a side does that has sent as much as may be unconfirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// It waits.
    Wait,
    /// It ends: the one who is to confirm waits for what this side does.
    End,
}

/// Where a side puts what it says.
pub(crate) struct Outlet {
    connection: Connection,
    sealer: Sealer,
    outbox: Arc<Outbox>,
    idle: Duration,
}

impl Outlet {
    /// The other side may take so long to take something. Nothing is kept, unless an
    /// [`Inlet`](super::Inlet) hears for it what came.
    pub(crate) fn new(connection: &Connection, sealer: Sealer, idle: Duration) -> Self {
        let connection = connection.clone();
        let outbox = Arc::new(Outbox::new(&connection));
        Self { connection, sealer, outbox, idle }
    }

    /// How long the other side may do nothing.
    pub(crate) const fn idle(&self) -> Duration {
        self.idle
    }

    /// Whether the other side is there.
    pub(crate) fn presence(&self) -> Presence {
        Presence::of(&self.connection)
    }

    /// How many ways there are to the other side now.
    pub(crate) fn links(&self) -> usize {
        self.connection.links().len()
    }

    pub(super) const fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Begins to send messages; waits only where too much is under way.
    pub(crate) fn bundle(&mut self, bundle: TransferMessages) -> Result<(), Broken> {
        let mut bytes = bundle.0;
        bytes.extend_from_slice(&[0; SEAL]);
        self.start(Memory::from_bytes(&bytes), FrameKind::Messages)
    }

    /// Begins to send a piece of the file that is open.
    pub(crate) fn piece(&mut self, piece: Unsealed) -> Result<(), Broken> {
        self.start(piece.memory, FrameKind::Piece)
    }

    /// Seals in place what has room for it at its end.
    fn start(&mut self, mut memory: Memory, kind: FrameKind) -> Result<(), Broken> {
        self.outbox.make_room(self.idle)?;
        let label = self.sealer.seal(kind, &mut memory)?;
        self.outbox.begin(label, memory);
        Ok(())
    }

    /// Waits until everything is in place at the other side.
    pub(crate) fn drain(&mut self) -> Result<(), Broken> {
        while self.outbox.finish_oldest(self.idle)? {}
        Ok(())
    }
}

/// What was sent: under way, or kept for the case that it is asked for again.
pub(super) struct Outbox {
    connection: Connection,
    sent: Mutex<Outgoing>,
    changed: Condvar,
}

#[derive(Default)]
struct Outgoing {
    under_way: VecDeque<(Label, Operation<Sent>)>,
    kept: VecDeque<(Label, Memory)>,
    /// They are asked for again, and this side does not know yet that they were in place.
    wanted: BTreeSet<u64>,
    /// All before this number came.
    came: u64,
    next: u64,
    when_full: Option<WhenFull>,
    /// Nobody hears any more what came.
    is_over: bool,
}

impl Outbox {
    fn new(connection: &Connection) -> Self {
        let connection = connection.clone();
        Self { connection, sent: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on what is sent is kept until it came.
    pub(super) fn keep(&self, when_full: WhenFull) {
        self.lock().when_full = Some(when_full);
    }

    /// Nobody will hear any more what came.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Is there something of which this side does not know whether it came?
    pub(super) fn is_unconfirmed(&self) -> bool {
        let sent = self.lock();
        sent.when_full.is_some() && sent.came < sent.next
    }

    fn begin(&self, label: Label, memory: Memory) {
        let sending = self.connection.send(memory).opaque(label.to_wire()).start();
        let mut sent = self.lock();
        sent.next = sent.next.max(label.number + 1);
        sent.under_way.push_back((label, sending));
    }

    fn make_room(&self, idle: Duration) -> Result<(), Broken> {
        while self.lock().under_way.len() >= UNDER_WAY {
            self.finish_oldest(idle)?;
        }
        let until = Instant::now() + idle;
        let mut sent = self.lock();
        loop {
            let unconfirmed = sent.next - sent.came;
            match sent.when_full {
                Some(WhenFull::Wait) if unconfirmed >= MOST_KEPT => {}
                Some(WhenFull::End) if unconfirmed >= MOST_ANSWERS_KEPT => {
                    return Err(Broken::Stalled(idle));
                }
                _ => return Ok(()),
            }
            if sent.is_over {
                return Err(Broken::SessionEnd);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Broken::Stalled(idle));
            }
            let waited = self.changed.wait_timeout(sent, left);
            sent = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the transfer that was begun first; gives whether there was one.
    fn finish_oldest(&self, idle: Duration) -> Result<bool, Broken> {
        let Some((label, sending)) = self.lock().under_way.pop_front() else { return Ok(false) };
        match sending.wait_for(idle) {
            Ok(sent) => {
                self.finished(label, sent.map_err(Error::from)?.memory);
                Ok(true)
            }
            // Dropped, and with it cancelled.
            Err(_unfinished) => Err(Broken::Stalled(idle)),
        }
    }

    fn finished(&self, label: Label, memory: Option<Memory>) {
        let mut sent = self.lock();
        let Some(memory) = memory else { return };
        if sent.when_full.is_none() || label.number < sent.came {
            return;
        }
        if sent.wanted.remove(&label.number) {
            drop(sent);
            self.begin(label, memory);
        } else {
            sent.kept.push_back((label, memory));
        }
    }

    /// All before this number came.
    pub(super) fn confirm(&self, came: u64) {
        let mut sent = self.lock();
        let came = came.min(sent.next);
        if came <= sent.came {
            return;
        }
        sent.came = came;
        sent.wanted = sent.wanted.split_off(&came);
        let gone = sent.kept.iter().filter(|(label, _)| label.number < came).count();
        if gone > 0 {
            sent.kept.retain(|(label, _)| label.number >= came);
        }
        drop(sent);
        self.changed.notify_all();
    }

    /// Sends something again that came, and not as it was sealed.
    pub(super) fn resend(&self, number: u64) -> Result<(), Broken> {
        let mut sent = self.lock();
        if sent.when_full.is_none() || number < sent.came || number >= sent.next {
            return Ok(());
        }
        if let Some(at) = sent.kept.iter().position(|(label, _)| label.number == number)
            && let Some((label, memory)) = sent.kept.remove(at)
        {
            drop(sent);
            self.begin(label, memory);
            return Ok(());
        }
        let at = sent.under_way.iter().position(|(label, _)| label.number == number);
        let Some((label, sending)) = at.and_then(|at| sent.under_way.remove(at)) else {
            // Another thread waits for it now.
            sent.wanted.insert(number);
            return Ok(());
        };
        drop(sent);
        match sending.wait_for(SOON) {
            Ok(done) => {
                if let Some(memory) = done.map_err(Error::from)?.memory {
                    self.begin(label, memory);
                }
            }
            // It is under way in truth: what was asked for is still to come.
            Err(unfinished) => self.lock().under_way.push_front((label, unfinished)),
        }
        Ok(())
    }

    /// Sends again whatever is in place there as far as this side knows, and did not come.
    pub(super) fn resend_missing(&self, state: &State) -> Result<(), Broken> {
        let missing: Vec<u64> = {
            let sent = self.lock();
            let kept = sent.kept.iter().map(|(label, _)| label.number);
            let under_way = sent.under_way.iter().map(|(label, _)| label.number);
            kept.chain(under_way).filter(|number| !state.has(*number)).collect()
        };
        missing.into_iter().try_for_each(|number| self.resend(number))
    }
}
