//! Transfers in their order: what one side puts in comes out at the other, sealed.
//!
//! Several transfers are under way at a time, each to memory of its own, and may overtake
//! each other; [`Inlet`] puts them in order by their labels. How much waits is bounded at
//! both ends: so many posted receives there are, so many sends are begun.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::time::Duration;

use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Error, Memory, Message, Operation, Payload, Sent};

use super::code::{SEAL, Seals, Side};
use super::wire::{Bundle, Label, MOST_PIECE, Malformed};

/// So many transfers are under way at a time, one way. Together they are more than the
/// window of a connection, so that there is always something to grant.
pub(crate) const UNDER_WAY: usize = 8;

/// Why nothing more comes, or can be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{0}")]
    Lost(#[from] Error),
    #[error(
        "it is there, but does not go on: nothing of it for {} s (--idle gives it longer)",
        .0.as_secs()
    )]
    Stalled(Duration),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the other side does not seal with the key of the code: somebody meddles")]
    Forged,
}

/// Where a side puts what it says.
pub(crate) struct Outlet {
    connection: Connection,
    seals: Seals,
    side: Side,
    next: u64,
    under_way: VecDeque<Operation<Sent>>,
    idle: Duration,
}

impl Outlet {
    /// The other side may take so long to take something.
    pub(crate) fn new(connection: &Connection, seals: &Seals, side: Side, idle: Duration) -> Self {
        let (connection, seals) = (connection.clone(), seals.clone());
        Self { connection, seals, side, next: 0, under_way: VecDeque::new(), idle }
    }

    /// How long the other side may do nothing.
    pub(crate) const fn idle(&self) -> Duration {
        self.idle
    }

    /// How many ways there are to the other side now.
    pub(crate) fn links(&self) -> usize {
        self.connection.links().len()
    }

    /// Begins to send messages; waits only where too much is under way.
    pub(crate) fn bundle(&mut self, bundle: Bundle) -> Result<(), Broken> {
        let mut bytes = bundle.0;
        self.seals.seal(self.side, self.next, &mut bytes);
        self.start(bytes, false)
    }

    /// Begins to send a piece of the file that is open.
    pub(crate) fn piece(&mut self, memory: Memory) -> Result<(), Broken> {
        self.start(memory, true)
    }

    fn start(&mut self, payload: impl Into<Payload>, is_piece: bool) -> Result<(), Broken> {
        if self.under_way.len() >= UNDER_WAY
            && let Some(oldest) = self.under_way.pop_front()
        {
            self.finish(oldest)?;
        }
        let label = Label { number: self.next, is_piece };
        self.next += 1;
        let sending = self.connection.send(payload).opaque(label.to_wire()).start();
        self.under_way.push_back(sending);
        Ok(())
    }

    /// Waits until everything is in place at the other side.
    pub(crate) fn drain(&mut self) -> Result<(), Broken> {
        while let Some(oldest) = self.under_way.pop_front() {
            self.finish(oldest)?;
        }
        Ok(())
    }

    fn finish(&self, sending: Operation<Sent>) -> Result<(), Broken> {
        match sending.wait_for(self.idle) {
            Ok(sent) => Ok(sent.map(drop)?),
            // Dropped, and with it cancelled.
            Err(_unfinished) => Err(Broken::Stalled(self.idle)),
        }
    }
}

/// What came.
pub(crate) enum Frame {
    Piece(Message),
    Bundle(Opened),
}

/// A bundle whose seal was right; it derefs to its messages.
pub(crate) struct Opened(Message);

impl Deref for Opened {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[..self.0.len() - SEAL]
    }
}

/// Where what the other side says comes out.
pub(crate) struct Inlet {
    endpoint: Endpoint,
    connection: Connection,
    seals: Seals,
    /// The other side.
    side: Side,
    longest: usize,
    next: u64,
    posted: VecDeque<Operation<Message>>,
    early: BTreeMap<u64, (Label, Message)>,
}

impl Inlet {
    /// Memory waits for transfers of at most this length from now on.
    pub(crate) fn open(
        endpoint: &Endpoint,
        connection: &Connection,
        seals: &Seals,
        side: Side,
        longest: usize,
    ) -> Result<Self, Error> {
        let mut inlet = Self {
            endpoint: endpoint.clone(),
            connection: connection.clone(),
            seals: seals.clone(),
            side,
            longest: longest.min(MOST_PIECE) + SEAL,
            next: 0,
            posted: VecDeque::new(),
            early: BTreeMap::new(),
        };
        for _ in 0..UNDER_WAY {
            inlet.post()?;
        }
        Ok(inlet)
    }

    fn post(&mut self) -> Result<(), Error> {
        let memory = self.endpoint.memory(self.longest)?;
        self.posted.push_back(self.connection.receive(memory).start());
        Ok(())
    }

    /// What comes next; waits for it.
    pub(crate) fn next(&mut self) -> Result<Frame, Broken> {
        loop {
            if let Some((label, message)) = self.early.remove(&self.next) {
                self.next += 1;
                return self.frame(label, message);
            }
            let Some(oldest) = self.posted.pop_front() else {
                return Err(Malformed("nothing waits for it").into());
            };
            let message = oldest.wait()?;
            self.post()?;
            let label = Label::from_wire(message.opaque(), self.next);
            // An honest side has so many under way, from the next one on.
            let is_near = label.number - self.next < UNDER_WAY as u64;
            if !is_near || self.early.insert(label.number, (label, message)).is_some() {
                return Err(Malformed("transfers are numbered wrongly").into());
            }
        }
    }

    fn frame(&self, label: Label, message: Message) -> Result<Frame, Broken> {
        if label.is_piece {
            return Ok(Frame::Piece(message));
        }
        match self.seals.open(self.side, label.number, &message) {
            Some(_) => Ok(Frame::Bundle(Opened(message))),
            None => Err(Broken::Forged),
        }
    }
}
