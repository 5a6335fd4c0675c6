//! [`QueueWire`]: a connection of QPIP. What is written to the ring of the other side leaves as a
//! stream of bytes over TCP, and what comes is received in the own ring, where it belongs.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use landfall::qpip::{
    Access, CloseReason, Completion, Error, MemoryRegion, Operation, Phase, PostError,
};

use super::open::{CONNECTED_PORT, HELLO, PORT, other_version};
use super::rails::{ADDRESS, decode, encode};
use super::transmit::Bytes;
use super::wire::{Progress, Wire};
use super::{Link, nonsense, poll_once};
use crate::abi::{FI_ECONNREFUSED, FI_ECONNRESET, FI_EOPNOTSUPP};
use crate::completion::Failure;
use crate::core::EndpointState;
use crate::notify::LinkWaker;
use crate::qpip::{Host, PIECE, Queue, cannot_post, failure};
use crate::record::{HEADER, Kind, Record};
use crate::ring::{RING, offset};

type Connecting = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// What each side says first: a version, and for which type of endpoint it is. The one that has
/// connected says behind that where others reach it.
const GREETING: usize = 10;

pub(super) struct QueueWire {
    queue: Queue,
    /// Until it is connected.
    connecting: Option<Connecting>,
    port: u16,
    /// The other side has greeted.
    is_greeted: bool,
    /// What is composed here is sent to the other side.
    staging: MemoryRegion,
    /// Where sends end that are under way, and up to where all is acknowledged.
    puts: VecDeque<u64>,
    acknowledged: u64,
    /// Up to there the stream has come, and room in the ring is posted.
    received: u64,
    posted: u64,
    /// Nothing more comes, and why.
    over: Option<Failure>,
}

impl fmt::Debug for QueueWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueWire").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl QueueWire {
    /// Begins to connect to a peer.
    pub(super) fn connect(host: &Arc<Host>, to: SocketAddr, port: u16) -> Result<Self, Failure> {
        if host.is_own(to.ip()) {
            let text =
                "QPIP carries no messages to its own address, nor to another process with it";
            return Err(Failure::new(FI_EOPNOTSUPP, text));
        }
        let mut wire = Self::new(host.queue()?, port)?;
        if let Some((pair, _)) = wire.queue.parts() {
            wire.connecting = Some(Box::pin(pair.connect(to)));
        }
        Ok(wire)
    }

    /// A peer has connected.
    pub(super) fn accept(queue: Queue, port: u16) -> Result<Self, Failure> {
        Self::new(queue, port)
    }

    fn new(queue: Queue, port: u16) -> Result<Self, Failure> {
        let staging = queue.host().ring(Access::Read)?;
        Ok(Self {
            queue,
            connecting: None,
            port,
            is_greeted: false,
            staging,
            puts: VecDeque::new(),
            acknowledged: 0,
            received: 0,
            posted: RING,
            over: None,
        })
    }

    /// Goes on with the opening.
    pub(super) fn open(&mut self, waker: &LinkWaker) -> Result<Progress, Failure> {
        let Some(connecting) = &mut self.connecting else { return Ok(Progress::Open) };
        let mut context = Context::from_waker(&waker.operations);
        let Poll::Ready(connected) = connecting.as_mut().poll(&mut context) else {
            return Ok(Progress::Connecting);
        };
        self.connecting = None;
        connected.map_err(|error| failure(&error))?;
        Ok(Progress::Begun)
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.connecting.is_none()
    }

    /// What the side says first that has connected, and is reached there.
    pub(super) fn greeting(&self, name: SocketAddr) -> Vec<u8> {
        // Nobody connects to an endpoint of `FI_EP_MSG` by what it is known by.
        greeting(self.port, (self.port == PORT).then_some(name))
    }

    pub(super) fn puts(&self) -> usize {
        self.puts.len()
    }

    #[inline(never)]
    pub(super) fn put(&mut self, range: Range<u64>) -> Result<(), Failure> {
        let (from, end) = (offset(range.start), range.end);
        let part = self.staging.part(from..from + (end - range.start));
        let part = part.map_err(|error| failure(&error))?;
        let Some((pair, _)) = self.queue.parts() else { return Ok(()) };
        match pair.post_send(end, &[part]) {
            Ok(()) => self.puts.push_back(end),
            // That is told behind what has come before.
            Err(PostError::Ended) => {}
            Err(why) => return Err(cannot_post(&why)),
        }
        Ok(())
    }

    /// The end of the next send that was acknowledged.
    #[inline(never)]
    pub(super) fn next_done(&mut self, waker: &Waker) -> Option<u64> {
        loop {
            if self.puts.front().is_some_and(|end| *end <= self.acknowledged) {
                return self.puts.pop_front();
            }
            let known = (self.received, self.over.is_some());
            let moved = self.take_completions(waker);
            if known != (self.received, self.over.is_some()) {
                // Something has come, which is read elsewhere: nobody may have been woken for it.
                waker.wake_by_ref();
            }
            if !moved {
                return None;
            }
        }
    }

    /// How long the next record is, once it has come as a whole: that at which reading is.
    #[inline(never)]
    pub(super) fn next_record(
        &mut self,
        consumed: u64,
        waker: &Waker,
    ) -> Result<Option<u64>, Failure> {
        self.post_room(consumed)?;
        loop {
            if let Some(len) = self.whole_record(consumed)? {
                return Ok(Some(len));
            }
            if !self.take_completions(waker) {
                return self.over.clone().map_or(Ok(None), Err);
            }
        }
    }

    fn whole_record(&mut self, consumed: u64) -> Result<Option<u64>, Failure> {
        let come = self.received - consumed;
        if come < HEADER as u64 {
            return Ok(None);
        }
        let mut header = [0; HEADER];
        self.copy_out(offset(consumed), &mut header)?;
        let record = match Record::decode(&header) {
            Some(record) if (record.kind == Kind::Greeting) != self.is_greeted => record,
            _ if self.is_greeted => return Err(nonsense("a record of no kind")),
            _ => return Err(other_version(None)),
        };
        if record.room() > RING - offset(consumed) {
            return Err(nonsense("a record out of place"));
        }
        let is_whole = record.room() <= come;
        self.is_greeted |= is_whole;
        Ok(is_whole.then(|| record.room()))
    }

    /// Room that was read is posted for what comes in its place later.
    fn post_room(&mut self, consumed: u64) -> Result<(), Failure> {
        while self.posted + PIECE <= consumed + RING {
            let at = offset(self.posted);
            let part = self.queue.own.part(at..at + PIECE).map_err(|error| failure(&error))?;
            let Some((pair, _)) = self.queue.parts() else { return Ok(()) };
            match pair.post_receive(self.posted, &[part]) {
                Ok(()) => self.posted += PIECE,
                // What has come is read before that is told.
                Err(PostError::Ended) => break,
                Err(why) => return Err(cannot_post(&why)),
            }
        }
        Ok(())
    }

    /// Takes note of all that is done. Was there anything? If not, this is woken for it.
    fn take_completions(&mut self, waker: &Waker) -> bool {
        let Self { queue, received, acknowledged, over, .. } = self;
        let Some((_, completions)) = queue.parts() else { return false };
        if over.is_some() {
            return false;
        }
        let mut ended = None;
        // What came before the end is there when the end is.
        while let Some(change) = completions.poll_change() {
            ended = end_of(change.phase).or(ended);
        }
        let mut moved = ended.is_some();
        while let Some(Completion { id, operation, status, len, .. }) = completions.poll() {
            moved = true;
            match operation {
                _ if !status.is_success() => {
                    let gone =
                        || Failure::new(FI_ECONNRESET, format!("the connection is over: {status}"));
                    ended = ended.or_else(|| Some(gone()));
                }
                Operation::Send => *acknowledged = id,
                Operation::Receive => *received += u64::from(len),
            }
        }
        *over = ended;
        if moved {
            return true;
        }
        match poll_once(completions.ready(), waker) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                *over = Some(failure(&error));
                false
            }
        }
    }

    #[inline(never)]
    pub(super) fn stage(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.staging.copy_in(at, bytes).map_err(|error| failure(&error))
    }

    #[inline(never)]
    pub(super) fn copy_out(&self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        self.queue.own.copy_out(at, into).map_err(|error| failure(&error))
    }
}

/// Why nothing more comes.
fn end_of(phase: Phase) -> Option<Failure> {
    let text = match phase {
        Phase::PeerFinished | Phase::Closed(CloseReason::Finished) => {
            "the peer has closed the connection".to_owned()
        }
        Phase::Closed(reason) => Error::Ended(reason).to_string(),
        _ => return None,
    };
    Some(Failure::new(FI_ECONNRESET, text))
}

/// What a side says first.
pub(super) fn greeting(port: u16, name: Option<SocketAddr>) -> Vec<u8> {
    let mut said = HELLO.to_le_bytes().to_vec();
    said.extend(port.to_le_bytes());
    said.extend(name.iter().flat_map(encode));
    said
}

impl Link {
    /// This side has connected: it says so, and by what it is known.
    pub(super) fn introduce(&mut self, core: &EndpointState) -> Result<(), Failure> {
        match &self.wire {
            Wire::Stp(_) => {
                self.tell_name(core);
                Ok(())
            }
            Wire::Qpip(queue) => {
                let said = queue.greeting(core.name);
                self.greet(said)
            }
        }
    }

    /// Greets, before anything else is composed, and before it is read what the other side says:
    /// one of another version is to hear which this is.
    pub(super) fn greet(&mut self, said: Vec<u8>) -> Result<(), Failure> {
        let record = Record { len: said.len() as u32, ..Record::new(Kind::Greeting) };
        self.compose(record, Some((&Bytes::Copy(said), 0)))?;
        self.put_composed()
    }

    /// The other side says which version it has, and where others reach it.
    pub(super) fn greeted(
        &mut self,
        core: &mut EndpointState,
        record: &Record,
    ) -> Result<(), Failure> {
        let Wire::Qpip(queue) = &self.wire else {
            return Err(nonsense("it greets where it may not"));
        };
        let port = queue.port;
        let mut said = [0; GREETING + ADDRESS];
        let said = said.get_mut(..record.len as usize).ok_or_else(|| other_version(None))?;
        self.wire.copy_out(self.receive.consumed + HEADER as u64, said)?;
        let Some((fixed, name)) = said.split_first_chunk::<GREETING>() else {
            return Err(other_version(None));
        };
        let [hello @ .., low, high] = *fixed;
        if hello != HELLO.to_le_bytes() {
            return Err(other_version(Some(u64::from_le_bytes(hello))));
        }
        if [low, high] != port.to_le_bytes() {
            let kind = if port == CONNECTED_PORT { "FI_EP_MSG" } else { "FI_EP_RDM" };
            let text = format!("the peer's endpoint is of another type than {kind}");
            return Err(Failure::new(FI_ECONNREFUSED, text));
        }
        match <&[u8; ADDRESS]>::try_from(name) {
            _ if name.is_empty() => Ok(()),
            // Only one that was connected to may add no rails from the start.
            Ok(name) if port == PORT && !self.may_add_rails => {
                self.is_known_as(core, decode(name, &core.name));
                Ok(())
            }
            _ => Err(nonsense("it says its name where it may not")),
        }
    }
}
