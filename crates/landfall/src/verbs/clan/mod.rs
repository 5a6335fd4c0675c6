//! Queue pairs over CLAN's shared memory, between processes of one host and between threads:
//! the sender of a message writes it where it belongs, and nobody copies it again.
//!
//! ```
//! use std::time::Duration;
//! use landfall::clan::{Rights, Threads};
//! use landfall::verbs::clan::{CompletionQueue, MemoryKey, QueuePair, QueuePairOptions, Region};
//! use landfall::verbs::{
//!     CompletionQueue as _, QueuePair as _, RdmaQueuePair, RdmaRequest, ReceiveRequest,
//! };
//!
//! // Two processes open a `SharedNode` each, in place of this.
//! let (client, server) = Threads::pair()?;
//! let soon = Duration::from_secs(10);
//! let options = QueuePairOptions::default();
//! let (served, mut done) = (CompletionQueue::new(64)?, CompletionQueue::new(64)?);
//! let asks = QueuePair::open(&client, &done, &done, &options)?;
//! let serves = QueuePair::open(&server, &served, &served, &options)?;
//! // The addresses are bytes, which go to the other side by any means.
//! let (to_client, to_server) = (asks.address(), serves.address());
//! let (mut here, mut there) = (asks.connect(&to_server)?, serves.connect(&to_client)?);
//!
//! // The server shares memory, and tells its key by a message.
//! let shared = Region::new(&server, 4096, Rights::ReadWrite)?;
//! there.post_inline(1, &there.share(&shared)?.to_bytes(), None)?;
//!
//! let room = Region::new(&client, 4096, Rights::Write)?;
//! here.post_receive(&ReceiveRequest { id: 2, into: &[room.part(0..64)?] })?;
//! let came = done.wait_for(soon)?.expect("a message in time");
//! let mut key = [0; MemoryKey::LEN];
//! assert_eq!((came.id, came.len as usize), (2, key.len()));
//! room.copy_out(0, &mut key)?;
//! let key = MemoryKey::from_bytes(&key).expect("a key");
//!
//! // What is written there is in place when it completes. The server's program takes no part.
//! room.copy_in(64, b"in its place")?;
//! let local = [room.part(64..76)?];
//! let write = RdmaRequest { id: 3, local: &local, key, at: 100, is_signaled: true, immediate: None };
//! here.post_write(&write)?;
//! let written = done.wait_for(soon)?.expect("it is done in time");
//! assert!(written.id == 3 && written.status.is_success());
//! let mut bytes = [0; 12];
//! shared.copy_out(100, &mut bytes)?;
//! assert_eq!(&bytes, b"in its place");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Processes find each other by names, as for queues: one
//! [offers](crate::clan::shared::SharedNode::offer) a name and [accepts](Half::accept) those who
//! [find](crate::clan::shared::SharedNode::find) it and [join](Half::join).
//!
//! Each end has a queue of CLAN's [`layer`](crate::clan::layer) in its memory, into which the
//! other end puts what it says: *here is room* (a region, where in it, how long) and *a message
//! is in the room whose turn it is*. The bytes themselves are written into the room before that,
//! and reads, writes and atomics are copies and word operations: the processor that posts a
//! request does it, mostly before the post returns.
//!
//! | | |
//! | --- | --- |
//! | a message | one copy, from the parts it is posted with to the parts of the room, wherever they begin |
//! | immediate data | always; it comes with the completion |
//! | order | requests of a queue pair are done in their order |
//! | room | a message that finds none waits for it, and is not refused. Shared room is given to a queue pair when a message wants it: one holds at most 16 at a time |
//! | memory of the other side | is shared with one peer by a key, as a whole [`Region`]: cookies know no parts. The first request to a key maps it, which waits for the node of its owner |
//! | rights | a peer may write the whole region that room was posted in ([`Region`]). Memory that may be read only is sealed, and no peer can write it |
//! | withdrawal | the owner refuses the key at once. A peer that has the memory mapped is told, and its next request fails; what it has written until then, nobody else sees |
//! | failure | what fails ends its queue pair, at both ends, as over [`stp`](super::stp): what was posted behind it is flushed. So does a peer that is killed, or says what no queue pair says |
//! | progress | messages for which there is room need nobody at the receiver. Those that wait for room go on with a thread of the completion queue, unless their program is in a call of it; shared room is given out when the completion queue of the receiver is polled, armed or slept at |
//!
//! A poll looks at each queue pair of the completion queue.
//!
//! Over networks there is [`stp`](super::stp), whose Transfers are what this would need there.

mod carrier;
mod element;
mod receives;
mod region;
mod sends;
#[cfg(test)]
mod tests;

use std::fmt;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall_transport::{Clock, Wait};

pub use carrier::Carrier;
pub use region::{MemoryKey, Part, Region};

use super::Completion;
use super::software::{self, Queue, Queues};
use crate::clan::dma::sealed::DirectMemory;
use crate::clan::layer::{Half as Side, queue};
use crate::clan::names::{Found, NameRequest};
use crate::clan::{Cookie, Error};
use crate::runtime::{Observer, wait_observing};

pub use super::software::QueuePairOptions;

/// Two queues of work requests over the shared memory of a host: of a
/// [`SharedNode`](crate::clan::shared::SharedNode), or [`Threads`](crate::clan::Threads).
pub type QueuePair<F> = software::QueuePair<Carrier<F>>;

/// What became of the requests of as many queue pairs as complete here.
pub type CompletionQueue = software::CompletionQueue<InHost>;

/// Room for messages that come to any of many queue pairs over CLAN.
pub type SharedReceiveQueue<F> = software::SharedReceiveQueue<Carrier<F>>;

/// Elements that are under way between two ends.
const ELEMENTS: u32 = 512;

const fn queue_config() -> queue::Config {
    // They are published when a call has put in all that it has.
    queue::Config::new(element::LEN as u32, ELEMENTS)
        .batch(u32::MAX, Duration::MAX)
        .layout(element::LAYOUT)
}

/// Where one end of a queue pair is: tell it to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    outlet: Cookie,
    inlet: Cookie,
}

impl Address {
    /// How many bytes [`to_bytes`](Self::to_bytes) gives.
    pub const LEN: usize = 2 * Cookie::LEN;

    /// As a message, a file or an environment variable carries it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..Cookie::LEN].copy_from_slice(&self.outlet.to_bytes());
        bytes[Cookie::LEN..].copy_from_slice(&self.inlet.to_bytes());
        bytes
    }

    /// From what carried it. Nothing where no address is written so.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (outlet, inlet) = bytes.split_at(Cookie::LEN);
        let cookie = |bytes: &[u8]| Cookie::from_bytes(bytes.try_into().ok()?).ok();
        Some(Self { outlet: cookie(outlet)?, inlet: cookie(inlet)? })
    }
}

/// One end of a queue pair that waits to know the other.
pub struct Half<F: DirectMemory> {
    node: F,
    outlet: Side<F, queue::Sender<F>>,
    inlet: Side<F, queue::Receiver<F>>,
    queues: Queues<Part<F>>,
    options: QueuePairOptions,
}

impl<F: DirectMemory> QueuePair<F> {
    /// One end of a queue pair. The other side opens one, too; each tells the other its
    /// [address](Half::address), and both [connect](Half::connect).
    ///
    /// # Errors
    /// Those of [`Fabric::expose`](crate::clan::Fabric::expose).
    pub fn open(
        node: &F,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
        options: &QueuePairOptions,
    ) -> Result<Half<F>, Error> {
        Half::open(node, Queues::own(sends, receives), options)
    }

    /// The same, with room that it shares. What it receives completes where that room does.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`](crate::clan::Fabric::expose).
    pub fn open_sharing(
        node: &F,
        sends: &CompletionQueue,
        room: &SharedReceiveQueue<F>,
        options: &QueuePairOptions,
    ) -> Result<Half<F>, Error> {
        Half::open(node, Queues::sharing(sends, room), options)
    }

    /// Lets the other side use this memory, as far as its rights go, until it is
    /// [withdrawn](Self::withdraw) or nobody has a handle of it. Between processes the key is
    /// for that process alone; threads of one process are not told apart.
    ///
    /// # Errors
    /// The other side is gone, or there is no room for one more key.
    pub fn share(&self, region: &Region<F>) -> Result<MemoryKey, Error> {
        self.ask(|carrier| carrier.share(region))
    }

    /// The process at the other side may not use it any more, nor fill room in it that was
    /// posted before.
    ///
    /// # Errors
    /// [`Error::BadConfig`] between threads, which are not told apart.
    pub fn withdraw(&self, region: &Region<F>) -> Result<(), Error> {
        self.ask(|carrier| carrier.withdraw(region))
    }
}

impl<F: DirectMemory> Half<F> {
    fn open(node: &F, queues: Queues<Part<F>>, options: &QueuePairOptions) -> Result<Self, Error> {
        let outlet = queue::Sender::open(node, queue_config())?;
        let inlet = queue::Receiver::open(node, queue_config())?;
        Ok(Self { node: node.clone(), outlet, inlet, queues, options: *options })
    }

    /// What the other side needs to connect to this one.
    #[must_use]
    pub const fn address(&self) -> Address {
        Address { outlet: self.outlet.cookie(), inlet: self.inlet.cookie() }
    }

    /// Connects to the other side. Both do, in any order; what one posts before the other has
    /// connected waits for it.
    ///
    /// # Errors
    /// There is no such end (any more), or it is of another version.
    pub fn connect(self, other: &Address) -> Result<QueuePair<F>, Error> {
        let Self { node, outlet, inlet, queues, options } = self;
        let ends = (outlet.connect(&other.inlet)?, inlet.connect(&other.outlet)?);
        let carrier = Carrier::new(&node, ends, other)?;
        Ok(QueuePair::with(carrier, queues, &options))
    }
}

impl<F: DirectMemory> Half<F> {
    /// Connects to the half of a node that offers a name, which does [`accept`](Self::accept).
    ///
    /// # Errors
    /// Those of [`Found::ask`] and of [`connect`](Self::connect).
    pub fn join(
        self,
        found: &impl Found<Fabric = F>,
        deadline: Option<Instant>,
    ) -> Result<QueuePair<F>, Error> {
        let answer = found.ask(&greeting(&self.address()), deadline)?;
        self.connect(&address_of(&answer)?)
    }

    /// Connects to the half of a node that has found a name, which does [`join`](Self::join).
    ///
    /// # Errors
    /// [`Error::BadConfig`] where it did not come for a queue pair; those of
    /// [`connect`](Self::connect) and of [`NameRequest::answer`].
    pub fn accept(self, request: impl NameRequest<Fabric = F>) -> Result<QueuePair<F>, Error> {
        let theirs = address_of(request.greeting())?;
        let ours = self.address();
        let joined = self.connect(&theirs)?;
        request.answer(&greeting(&ours))?;
        Ok(joined)
    }
}

/// Before an address: streams and queues are found by the same names.
const GREETING: [u8; 8] = *b"pair\0\0\0\x01";

fn greeting(address: &Address) -> Vec<u8> {
    [&GREETING[..], &address.to_bytes()].concat()
}

fn address_of(greeting: &[u8]) -> Result<Address, Error> {
    let address = greeting.strip_prefix(&GREETING).and_then(|bytes| bytes.try_into().ok());
    address.and_then(Address::from_bytes).ok_or(Error::BadConfig("this name is no queue pair's"))
}

impl<F: DirectMemory> fmt::Debug for Half<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Half").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// Where threads wait for completions: nothing has to be driven.
#[derive(Clone, Copy, Debug)]
pub struct InHost {
    clock: Clock,
}

impl CompletionQueue {
    /// With this many places: a request that could not complete here is refused when it is
    /// posted.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(capacity: u32) -> Result<Self, Error> {
        let node = InHost { clock: Clock::start() };
        Self::with_node(node, capacity).map_err(|source| Error::System { call: "eventfd", source })
    }
}

impl software::Node for InHost {
    type Error = Error;

    fn wait(&self, queue: &Queue, limit: Duration) -> Option<Completion> {
        let until = self.clock.now() + limit;
        wait_observing(&mut Completions(queue), (self.clock, Wait::BALANCED), until)
    }
}

struct Completions<'a>(&'a Queue);

impl Observer for Completions<'_> {
    type Output = Completion;

    fn look(&mut self) -> Option<Completion> {
        self.0.poll()
    }

    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Completion> {
        self.0.poll_next(context)
    }
}
