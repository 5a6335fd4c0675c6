//! Where what the other side says comes out: in order, and opened.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Error, Message, Operation, Sent};

use super::outlet::Outbox;
use super::{Broken, Frame, Opened, Outlet, Piece, UNDER_WAY, WhenFull};
use crate::transfer::seals::{InletSeals, SEAL};
use crate::transfer::wire::{Ask, FrameKind, Label, MOST_PIECE, State};

/// An honest side has sent this many at most behind one that is missing.
const MOST_EARLY: u64 = 64;
/// The other side hears so often what came.
const CONFIRM_EVERY: u64 = 4;
/// This many in a row that the code did not seal end the session.
const MOST_FORGED: u32 = 16;
/// After so long without anything new, what is missing is asked for.
const TICK: Duration = Duration::from_secs(1);
/// This many words about transfers may be under way; the next says all of it again.
const MOST_STATES: usize = 8;

/// Transfers as they come, in memory that waits for them.
struct Arrivals {
    endpoint: Endpoint,
    connection: Connection,
    longest: usize,
    posted: VecDeque<Operation<Message>>,
}

impl Arrivals {
    fn post(&mut self) -> Result<(), Error> {
        let memory = self.endpoint.memory(self.longest)?;
        self.posted.push_back(self.connection.receive(memory).start());
        Ok(())
    }

    /// Nothing if nothing comes within the limit.
    fn next(&mut self, limit: Option<Duration>) -> Result<Option<Message>, Error> {
        let Some(oldest) = self.posted.pop_front() else { return Err(Error::EndpointClosed) };
        let message = match limit {
            None => oldest.wait()?,
            Some(limit) => match oldest.wait_for(limit) {
                Ok(message) => message?,
                Err(unfinished) => {
                    self.posted.push_front(unfinished);
                    return Ok(None);
                }
            },
        };
        self.post()?;
        Ok(Some(message))
    }
}

/// From where an [`Inlet`] has what comes.
enum Source {
    Own(Arrivals),
    /// Of a thread that takes, while this one opens.
    Handed(Receiver<Message>),
}

/// Takes what comes for an [`Inlet`] of another thread.
pub(crate) struct Taking {
    arrivals: Arrivals,
    to: SyncSender<Message>,
}

impl Taking {
    /// Takes until nobody wants more, or the connection ends.
    pub(crate) fn run(mut self) -> Result<(), Broken> {
        loop {
            let Some(message) = self.arrivals.next(None)? else { continue };
            if self.to.send(message).is_err() {
                return Ok(());
            }
        }
    }
}

/// Where what the other side says comes out.
pub(crate) struct Inlet {
    source: Source,
    connection: Connection,
    seals: InletSeals,
    next: u64,
    early: BTreeMap<u64, Frame>,
    /// What this side sent, of which the other says what came.
    outbox: Option<Arc<Outbox>>,
    states: States,
    /// This many in a row were not sealed with the code.
    forged: u32,
    /// Something came that may have been something else, and since then nothing new.
    is_suspicious: bool,
    /// When to look for what is missing, unless something new comes before.
    looks_at: Instant,
    /// This many times in a row it was asked for, and nothing new came.
    asked: u32,
}

/// The words about transfers, of both sides.
#[derive(Default)]
struct States {
    under_way: VecDeque<Operation<Sent>>,
    /// What the other side was told last.
    told: u64,
    /// The least number that the other side's next has.
    heard: u64,
}

impl Inlet {
    /// Memory waits for transfers of at most this length from now on.
    pub(crate) fn open(
        endpoint: &Endpoint,
        connection: &Connection,
        seals: InletSeals,
        longest: usize,
    ) -> Result<Self, Error> {
        let mut arrivals = Arrivals {
            endpoint: endpoint.clone(),
            connection: connection.clone(),
            longest: (longest + SEAL).min(MOST_PIECE),
            posted: VecDeque::new(),
        };
        for _ in 0..UNDER_WAY {
            arrivals.post()?;
        }
        Ok(Self {
            source: Source::Own(arrivals),
            connection: connection.clone(),
            seals,
            next: 0,
            early: BTreeMap::new(),
            outbox: None,
            states: States::default(),
            forged: 0,
            is_suspicious: false,
            looks_at: Instant::now() + TICK,
            asked: 0,
        })
    }

    /// Hears for this outlet what came of what it sends: it keeps that until then.
    pub(crate) fn confirming(mut self, outlet: &Outlet, when_full: WhenFull) -> Self {
        outlet.outbox().keep(when_full);
        self.outbox = Some(Arc::clone(outlet.outbox()));
        self
    }

    /// Leaves taking to another thread, so that this one has time to hash.
    pub(crate) fn split(mut self) -> (Option<Taking>, Self) {
        /// This many transfers wait to be checked, beside those that are under way.
        const WAITING: usize = 2;
        let (to, handed) = sync_channel(WAITING);
        let taking = match std::mem::replace(&mut self.source, Source::Handed(handed)) {
            Source::Own(arrivals) => Some(Taking { arrivals, to }),
            Source::Handed(_) => None,
        };
        (taking, self)
    }

    /// What comes next; waits for it.
    pub(crate) fn next(&mut self) -> Result<Frame, Broken> {
        loop {
            if let Some(frame) = self.early.remove(&self.next) {
                self.next += 1;
                self.forged = 0;
                if self.next - self.states.told >= CONFIRM_EVERY {
                    self.tell(Ask::Nothing);
                }
                return Ok(frame);
            }
            // By the clock, and not by silence: the other side may ask as often as this one.
            let left = self.looks_at.saturating_duration_since(Instant::now());
            match self.come(left) {
                Ok(Some(message)) => self.sort(message)?,
                Ok(None) => self.look_for_missing(),
                // That it ended follows from what somebody else did.
                Err(_) if self.forged > 0 => return Err(Broken::Forged),
                Err(broken) => return Err(broken),
            }
        }
    }

    fn come(&mut self, limit: Duration) -> Result<Option<Message>, Broken> {
        match &mut self.source {
            Source::Own(arrivals) => Ok(arrivals.next(Some(limit))?),
            Source::Handed(from) => match from.recv_timeout(limit) {
                Ok(message) => Ok(Some(message)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(Broken::SessionEnd),
            },
        }
    }

    /// Nothing new came for a while.
    fn look_for_missing(&mut self) {
        self.looks_at = Instant::now() + TICK;
        if self.forged > 0 || !self.early.is_empty() || self.is_suspicious {
            // Every other time twice: who changes every third transfer, say, would else meet the
            // same one in each round of questions and answers.
            for _ in 0..=self.asked % 2 {
                self.tell(Ask::Missing);
            }
            self.asked += 1;
        } else if self.outbox.as_ref().is_some_and(|outbox| outbox.is_unconfirmed()) {
            self.tell(Ask::State);
        }
    }

    fn sort(&mut self, message: Message) -> Result<(), Broken> {
        let bits = message.opaque();
        if Label::kind_of(bits) == FrameKind::State {
            return self.hear_state(message);
        }
        let label = Label::from_wire(bits, self.next);
        if self.is_known(label) {
            return Ok(());
        }
        if label.number - self.next >= MOST_EARLY {
            return self.ask_again(None);
        }
        match self.open_frame(label, message) {
            Some(frame) => {
                self.early.insert(label.number, frame);
                (self.is_suspicious, self.asked) = (false, 0);
                self.looks_at = Instant::now() + TICK;
                Ok(())
            }
            None => self.ask_again(Some(label.number)),
        }
    }

    /// It came before: it was asked for once too often.
    fn is_known(&self, label: Label) -> bool {
        let recent = self.next.saturating_sub(MOST_EARLY)..self.next;
        self.early.contains_key(&label.number)
            || recent
                .into_iter()
                .any(|number| Label { number, ..label }.to_wire() == label.to_wire())
    }

    fn open_frame(&mut self, label: Label, message: Message) -> Option<Frame> {
        let open = || Opened::new(&mut self.seals.transfers, label, message);
        match label.kind {
            FrameKind::Messages => open().map(Frame::Messages),
            FrameKind::Piece => {
                let opened = open()?;
                let digest = blake3::hash(&opened);
                Some(Frame::Piece(Piece { opened, digest }))
            }
            FrameKind::State | FrameKind::Unknown => None,
        }
    }

    /// Something came that the code did not seal.
    fn ask_again(&mut self, number: Option<u64>) -> Result<(), Broken> {
        self.forged += 1;
        if self.forged > MOST_FORGED {
            self.tell(Ask::End);
            // So that it is heard: the connection ends right after.
            if let Some(last) = self.states.under_way.pop_back() {
                let _ = last.wait_for(TICK);
            }
            return Err(Broken::Forged);
        }
        self.tell(number.map_or(Ask::Missing, Ask::Again));
        Ok(())
    }

    fn hear_state(&mut self, message: Message) -> Result<(), Broken> {
        let label = Label::from_wire(message.opaque(), self.states.heard);
        let opened = Opened::new(&mut self.seals.states, label, message);
        let Some(Ok(state)) = opened.map(|opened| State::parse(&opened)) else {
            // One that was overtaken says nothing new. Or it is something else under a
            // changed label: then that is missing.
            self.is_suspicious = true;
            return Ok(());
        };
        self.states.heard = label.number + 1;
        if let Some(outbox) = &self.outbox {
            outbox.confirm(state.next);
            match state.ask {
                Ask::Again(number) => outbox.resend(number)?,
                Ask::Missing => outbox.resend_missing(&state)?,
                Ask::Nothing | Ask::State | Ask::End => {}
            }
        }
        match state.ask {
            Ask::End => return Err(Broken::ForgedThere),
            Ask::Missing | Ask::State => self.tell(Ask::Nothing),
            Ask::Nothing | Ask::Again(_) => {}
        }
        Ok(())
    }

    /// Says what came. Best effort: the next word says all of it again.
    fn tell(&mut self, ask: Ask) {
        let states = &mut self.states;
        while let Some(oldest) = states.under_way.pop_front() {
            if let Err(unfinished) = oldest.wait_for(Duration::ZERO) {
                states.under_way.push_front(unfinished);
                break;
            }
        }
        if states.under_way.len() >= MOST_STATES {
            return;
        }
        let ahead = self.early.keys().map(|number| number - self.next);
        let early = ahead.filter(|ahead| (1..=64).contains(ahead));
        let early = early.fold(0, |bits, ahead| bits | 1 << (ahead - 1));
        let mut bytes = State { next: self.next, early, ask }.to_bytes();
        bytes.extend_from_slice(&[0; SEAL]);
        let Ok(label) = self.seals.own_states.seal(FrameKind::State, &mut bytes) else { return };
        let sending = self.connection.send(bytes).opaque(label.to_wire()).start();
        states.under_way.push_back(sending);
        states.told = self.next;
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        if let Some(outbox) = &self.outbox {
            outbox.end();
        }
    }
}
