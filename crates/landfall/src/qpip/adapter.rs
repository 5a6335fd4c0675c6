//! [`Adapter`] and [`ProtectionDomain`].

use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use landfall_placement::{Duration, Engine as _, Refusals};
use landfall_transport::memory::Memory;
use landfall_transport::{Capabilities, Counters};
use qpip::{Access, Stats};

use super::builder::Builder;
use super::completion_queue::CompletionQueue;
use super::error::{Error, Refused};
use super::link::LinkInfo;
use super::listener::{Listener, Pending};
use super::memory::{DomainName, MemoryParts, MemoryRegion};
use super::notice::Notice;
use super::queue_pair::{QueuePair, QueuePairOptions};
use super::shared_receives::{SharedReceiveOptions, SharedReceiveQueue};
use super::state::{Handle, Submission};
use crate::runtime::Path;

/// A network adapter in software: stations on Ethernets, with TCP, UDP and IP of
/// their own. Clones are the same adapter.
///
/// It runs until the last of its handles is dropped: adapters, domains, queues,
/// listeners, memory.
#[derive(Clone, Debug)]
pub struct Adapter(Arc<Handle>);

impl Adapter {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self(handle)
    }

    /// An adapter to be described, and then opened.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Ends the adapter, and waits until what was asked of it has left: resets of queue pairs that
    /// were dropped above all. Without this they leave in the background, and get lost
    /// where the process ends at once; then peers wait. Queue pairs that are still there end
    /// without a word: [close](QueuePair::close) or drop them before.
    ///
    /// ```
    /// use landfall::qpip::{Adapter, Link};
    ///
    /// let link = Link::tunnel("127.0.0.1:0".parse()?, []);
    /// let adapter = Adapter::builder().link(link).address("10.0.0.1/24").open()?;
    /// adapter.close().wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(self) -> Pending<impl Future<Output = ()> + Unpin> {
        let handle = Arc::clone(&self.0);
        handle.end();
        let ended = poll_fn(move |cx| match handle.watch_end(cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        Pending::new(&self.0, ended)
    }

    /// Makes a protection domain: queue pairs reach only memory of their own.
    ///
    /// # Errors
    /// As many exist as may.
    pub fn domain(&self) -> Result<ProtectionDomain, Error> {
        self.0.check()?;
        let id = self.0.command(|core, _| core.engine.create_domain())?;
        let name = DomainName { adapter: self.0.serial, id };
        Ok(ProtectionDomain(Arc::new(Domain { handle: Arc::clone(&self.0), name })))
    }

    /// Makes a completion queue with room for this many completions: as many as
    /// requests can be under way that complete there. Queue pairs for byte
    /// streams need one place more each, where their receives complete.
    ///
    /// # Errors
    /// No room for this many, or as many queues exist as may; [`Error::NoDescriptor`].
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(&self.0, capacity)
    }

    /// Lets connections come in at a port of one of the adapter's addresses, or
    /// of all of one version of IP (`0.0.0.0`, `::`).
    ///
    /// # Errors
    /// [`Error::Refused`]: somebody listens there already, the address is not
    /// this adapter's, or as many listeners exist as may.
    pub fn listen(&self, local: SocketAddr) -> Result<Listener, Error> {
        Listener::listen(&self.0, local)
    }

    /// Makes one turn: carries out what was posted, exchanges frames with the
    /// links, and completes what is done. Returns whether anything moved.
    ///
    /// For adapters that run inline; an offloaded one does it by itself.
    pub fn turn(&self) -> bool {
        self.0.turn()
    }

    /// Sleeps until a turn makes sense, for so long at most. Others that post
    /// something wake it.
    pub fn wait(&self, at_most: Duration) {
        self.0.sleep(at_most, &[], || false);
    }

    /// The adapter's addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.0.look(|core| core.engine.addresses().collect())
    }

    /// The next thing that happened to the adapter beside completions and connections: an
    /// address that came or went, a datagram that did not arrive. It does not wait; of those that
    /// nobody takes the oldest are forgotten.
    #[must_use]
    pub fn next_notice(&self) -> Option<Notice> {
        self.0.ask(|core, _| core.notices.take())
    }

    /// Its links, and how they fare.
    #[must_use]
    pub fn links(&self) -> Vec<LinkStatus> {
        self.0.look(|core| {
            let links = core.paths.iter().zip(&core.links);
            links.map(|(path, link)| LinkStatus::of(path, link)).collect()
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.look(|core| *core.engine.stats())
    }

    /// What was refused on arrival, by why.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.0.look(|core| *core.engine.refusals())
    }

    /// How many pieces of memory are registered.
    #[must_use]
    pub fn registered(&self) -> u32 {
        self.0.regions.held()
    }
}

/// How a link fares.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkStatus {
    /// What it is, in words.
    pub what: String,
    /// The station address of the adapter there.
    pub mac: [u8; 6],
    /// The longest IP packet that it carries.
    pub mtu: u32,
    /// Where the other ends of a tunnel send to.
    pub tunnel_address: Option<SocketAddr>,
    /// Why it carries nothing any more.
    pub broken: Option<String>,
    /// What its driver could switch on here, and what not.
    pub capabilities: Capabilities,
    /// What its driver did.
    pub counters: Counters,
}

impl LinkStatus {
    fn of(path: &Path<qpip::Adapter>, link: &LinkInfo) -> Self {
        const ETHERNET_HEADER: u32 = 14;
        Self {
            what: link.what.clone(),
            mac: link.station,
            mtu: path.driver.limits().unit.saturating_sub(ETHERNET_HEADER),
            tunnel_address: link.carrier,
            broken: path.broken.clone(),
            capabilities: path.driver.capabilities().clone(),
            counters: *path.driver.counters(),
        }
    }
}

/// Memory and queue pairs that belong together: requests of one domain never
/// reach memory of another. Clones are the same domain.
#[derive(Clone, Debug)]
pub struct ProtectionDomain(Arc<Domain>);

#[derive(Debug)]
struct Domain {
    handle: Arc<Handle>,
    name: DomainName,
}

impl ProtectionDomain {
    /// Registers memory: it is lent to the adapter until it is deregistered.
    ///
    /// # Errors
    /// The memory itself, where it has no bytes, or as much is registered as may.
    pub fn register(
        &self,
        memory: Memory,
        access: Access,
    ) -> Result<MemoryRegion, Refused<Memory>> {
        MemoryRegion::register(&self.0.handle, self.0.name, memory, access)
    }

    /// Registers memory in parts of `part` bytes (a multiple of 64), each of which can be
    /// read where messages landed in it while the others stay posted.
    ///
    /// # Errors
    /// [`Error::NotLent`], and [`Error::Refused`] where as much is registered as may.
    pub fn register_parts(
        &self,
        memory: Memory,
        access: Access,
        part: u32,
    ) -> Result<MemoryParts, Error> {
        MemoryParts::register(&self.0.handle, self.0.name, memory, (access, part))
    }

    /// Makes a queue pair whose sends and receives complete in these queues,
    /// which may be one and serve others as well.
    ///
    /// # Errors
    /// [`Error::Refused`] at a bound, [`Error::ForeignHandle`] where a queue is of
    /// another adapter.
    pub fn queue_pair(
        &self,
        options: &QueuePairOptions,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
    ) -> Result<QueuePair, Error> {
        QueuePair::create(&self.0.handle, self.0.name, options, (sends, receives), None)
    }

    /// Makes a queue of room that queue pairs of this domain can share. What they take
    /// completes in this queue.
    ///
    /// # Errors
    /// [`Error::Refused`] at a bound, [`Error::ForeignHandle`] where the queue is of another
    /// adapter.
    pub fn shared_receive_queue(
        &self,
        options: &SharedReceiveOptions,
        completions: &CompletionQueue,
    ) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create(&self.0.handle, self.0.name, options, completions)
    }

    /// Makes a queue pair that takes room for what comes from a shared queue. Its receives
    /// complete where those of the shared queue do.
    ///
    /// # Errors
    /// As [`queue_pair`](Self::queue_pair); [`Error::Refused`] where the shared queue is of
    /// another domain, or completes elsewhere.
    pub fn queue_pair_sharing(
        &self,
        options: &QueuePairOptions,
        (sends, receives): (&CompletionQueue, &CompletionQueue),
        shared: &SharedReceiveQueue,
    ) -> Result<QueuePair, Error> {
        let queues = (sends, receives);
        QueuePair::create(&self.0.handle, self.0.name, options, queues, Some(shared))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let id = self.name.id;
        self.handle.submit(Submission::DropDomain(id));
    }
}
