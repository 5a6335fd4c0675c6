//! [`Link`]: a connection to a peer, and what is under way on it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `wire` | what carries the bytes of the rings |
//! | `stp`, `queue` | a connection of STP, and of QPIP |
//! | `open` | connecting |
//! | `transmit` | messages are composed and written into the ring of the other side |
//! | `receive` | the own ring is read, and long messages are read from where they are |
//! | `pieces` | long messages that nobody reads from where they are |
//! | `memory` | remote writes and reads |
//! | `rails` | further links between the two sides |

mod memory;
mod open;
mod pieces;
mod queue;
mod rails;
mod receive;
mod stp;
mod transmit;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use landfall::stp::{Ended, Error, Operation, Reason, Sent};

pub(crate) use memory::{Access, RmaKind, Words};
pub(crate) use open::{CONNECTED_PORT, PORT};
pub(crate) use transmit::{Bytes, Level, Send};

use self::memory::{Key, UnderWay};
use self::receive::{Done, Offered, Reading};
use self::transmit::Outgoing;
use self::wire::Wire;
use crate::abi::{FI_ECONNREFUSED, FI_ECONNRESET, FI_EIO, FI_ENOMEM, FI_ETIMEDOUT};
use crate::completion::Failure;
use crate::core::{EndpointState, Report};
use crate::notify::{LinkUpdates, LinkWaker};
use crate::record::Kind;
use crate::ring::{ReceiveRing, SendRing};
use crate::settings::CARRIER;
use crate::world::World;

/// This many operations wait for a connection; then none begins.
const MOST_WAITING: usize = 1024;

/// A connection to a peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) number: usize,
    pub(crate) peer: usize,
    waker: LinkWaker,
    /// Each of the wakers waits for its news.
    is_attended: bool,
    /// The ring was not read, for too much came that nobody receives.
    is_paused: bool,
    wire: Wire,
    send: SendRing,
    receive: ReceiveRing,
    outgoing: VecDeque<Outgoing>,
    /// Numbers of messages that are in their place, which the other side does not know.
    acknowledges: VecDeque<u32>,
    /// Who waits until the ring is at the other side up to there.
    transmitted: VecDeque<(u64, Report)>,
    next_id: u32,
    /// Messages that the other side will read, or acknowledge.
    offered: HashMap<u32, Send>,
    answers: Vec<(Operation<Sent>, Send)>,
    readings: Vec<Reading>,
    /// Those that wait for others to end.
    waiting: VecDeque<Offered>,
    /// Receives of an `FI_EP_MSG` from the first on that has no message yet: they complete in
    /// the order of their messages, as programs expect there.
    held: VecDeque<(u32, Option<Done>)>,
    keys: HashMap<u32, Key>,
    under_way: Vec<UnderWay>,
    shown: Vec<(u32, landfall::stp::Exposed)>,
    /// What the other side of an `FI_EP_MSG` has said of the connection. Nothing for one of
    /// `FI_EP_RDM`, where nobody may say that.
    heard: Option<VecDeque<(Kind, Vec<u8>)>>,
    /// The other side may say once where it is reached, too: it was connected to.
    may_add_rails: bool,
}

/// What programs say along when they connect has this many bytes at most.
pub(crate) const MOST_CONNECTION_DATA: usize = 256;
/// This much may be said of a connection before it is looked at.
const MOST_HEARD: usize = 4;

impl Link {
    /// Looks at all that may have changed.
    pub(crate) fn serve(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
    ) -> Result<(), Failure> {
        let mut news = self.waker.begin();
        if !self.open(core)? {
            return Ok(());
        }
        if !self.is_attended {
            news = LinkUpdates::ALL;
        }
        if news.has(LinkUpdates::REQUESTS) {
            self.answer_requests(core, world)?;
        }
        self.is_attended = self.wire.is_readable();
        if news.has(LinkUpdates::WRITES) || std::mem::take(&mut self.is_paused) {
            self.read_ring(core, world)?;
        }
        self.finish_answers(core, world);
        self.flush(core, world)?;
        if news.has(LinkUpdates::REQUESTS) { self.wire.check_open(&self.waker) } else { Ok(()) }
    }

    /// What waits is composed, what was composed leaves, and what is under way is looked at: an
    /// operation wakes this connection only when it was looked at since it began.
    pub(crate) fn flush(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
    ) -> Result<(), Failure> {
        loop {
            self.compose_waiting(core, world)?;
            self.put_composed()?;
            self.finish_readings(core, world);
            let has_room = self.finish_accesses(core, world) | self.finish_puts(core, world)?;
            // Nobody looks here again for what could leave now.
            if !has_room {
                return Ok(());
            }
        }
    }

    /// From here on it is another endpoint's, with this number there.
    pub(crate) fn adopt(&mut self, number: usize, peer: usize, waker: LinkWaker) {
        (self.number, self.peer) = (number, peer);
        (self.waker, self.is_attended) = (waker, false);
        // What is under way wakes its old owner; a look takes that over.
        self.waker.operations.wake_by_ref();
    }

    /// What the other side has said of the connection.
    pub(crate) fn heard(&mut self) -> Option<(Kind, Vec<u8>)> {
        self.heard.as_mut()?.pop_front()
    }

    /// Says something of the connection.
    pub(crate) fn say(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        kind: Kind,
        data: Vec<u8>,
    ) -> Result<(), Failure> {
        self.outgoing.push_back(Outgoing::Control(kind, data));
        self.flush(core, world)
    }

    fn waker(&self) -> Waker {
        self.waker.operations.clone()
    }

    /// Is nothing under way that the other side does not have?
    pub(crate) fn is_quiet(&self) -> bool {
        self.outgoing.is_empty()
            && self.acknowledges.is_empty()
            && self.send.is_quiet()
            && self.offered.is_empty()
            && self.answers.is_empty()
            && self.readings.is_empty()
            && self.under_way.is_empty()
    }

    /// Has all left that was to be said?
    pub(crate) fn has_said_all(&self) -> bool {
        self.outgoing.is_empty() && self.send.has_left()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.outgoing.len() >= MOST_WAITING
    }

    /// It is over: so is all that was under way.
    pub(crate) fn fail(mut self, core: &EndpointState, world: &mut World, failure: &Failure) {
        let mut reports: Vec<Report> =
            self.transmitted.drain(..).map(|(_, report)| report).collect();
        reports.extend(self.offered.drain().map(|(_, send)| send.report));
        reports.extend(self.answers.drain(..).map(|(_, send)| send.report));
        reports.extend(self.outgoing.drain(..).filter_map(|outgoing| outgoing.report()));
        reports.extend(self.under_way.drain(..).map(|under_way| under_way.report()));
        for report in reports {
            core.report(world, &report, Some(failure.clone()));
        }
        let readings: Vec<_> = self.readings.drain(..).map(Reading::into_offered).collect();
        for offered in readings.into_iter().chain(std::mem::take(&mut self.waiting)) {
            self.finish(core, world, offered.done(Some(failure.clone())));
        }
        self.wire.abort();
    }

    /// Ends what peers may do with memory of this key.
    pub(crate) fn hide(&mut self, key: u32) -> Vec<landfall::stp::Exposed> {
        let mut hidden = Vec::new();
        while let Some(at) = self.shown.iter().position(|(known, _)| *known == key) {
            hidden.push(self.shown.swap_remove(at).1);
        }
        hidden
    }
}

/// Polls a future once that has nothing to keep between polls.
fn poll_once<F: Future>(future: F, waker: &Waker) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

/// Polls an operation.
fn poll<F: Future + Unpin>(operation: &mut F, waker: &Waker) -> Poll<F::Output> {
    std::pin::Pin::new(operation).poll(&mut Context::from_waker(waker))
}

/// What an error of STP is to programs that use libfabric.
pub(crate) fn failure(error: &Error) -> Failure {
    const OTHER_VERSION: Ended = Ended::There(Reason::Incompatible);
    let number = match error {
        Error::NotConnected(why) | Error::Closed { why: Some(why) } if *why == OTHER_VERSION => {
            return open::other_version(None);
        }
        Error::NotConnected(Ended::Silent) | Error::TimedOut { .. } => FI_ETIMEDOUT,
        Error::NotConnected(_) | Error::NoPathTo { .. } | Error::NoKeys { .. } => FI_ECONNREFUSED,
        Error::Closed { .. } | Error::EndpointClosed => FI_ECONNRESET,
        Error::Ended { why: Ended::ConnectionGone | Ended::Silent, .. } => FI_ECONNRESET,
        Error::NotLent(_) | Error::Arena(_) => FI_ENOMEM,
        _ => FI_EIO,
    };
    let mut text = error.to_string();
    if matches!(error, Error::NotConnected(Ended::Silent | Ended::Unreachable)) {
        text = format!("{text}. Has it chosen another {CARRIER}?");
    }
    Failure::new(number, text)
}

/// The other side says what no provider of this version says.
fn nonsense(what: &str) -> Failure {
    Failure::new(FI_EIO, format!("the peer does not follow the protocol: {what}"))
}
