//! How packets of the engine become those of their user, and come back from whatever thread
//! drops them. The engine sees memory through a [`MemoryView`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use landfall_placement::Span;
use landfall_transport::Bell;
use landfall_transport::remap::{
    DeliverError, Delivered, Delivery as Deliver, FastBuffers, Pages, Remapping,
};
use landfall_transport::scatter::BurstMemory;
use spec_defrag::{
    Body as EngineBody, BufferId, ListId, Memory, Packet as EnginePacket, Receiver as Engine,
};

use super::error::OpenError;
use super::packet::{Body, Copied, List, Loaned, Packet};
use super::receive_path::ReceivePath;
use super::technique::Delivery;
use crate::runtime::locked;

/// Hands packets out, and gives their memory back to the engine.
#[derive(Debug)]
pub(super) struct Deliverer {
    delivery: Delivery,
    returns: Arc<Returns>,
    pages: Pool,
    large: Pool,
    /// Bytes that were copied for users.
    copied: u64,
    /// For one run of packets, and used again.
    bodies: Vec<Span>,
    delivered: Vec<Delivered>,
}

/// Buffers of one length, and the way of those that are not copied.
#[derive(Debug)]
struct Pool {
    /// Lent as long as this is here.
    pages: Pages,
    way: Option<Box<dyn Deliver>>,
    /// Which buffers users have, by their place in the pool.
    out: Vec<Option<BufferId>>,
    is_out: usize,
}

/// Why a packet was not handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// Users hold as much as there may be.
    Full,
    /// Its memory is gone: our own mistake, but not a reason to end the program.
    Gone,
}

/// Shorter bodies are copied rather than moved: a move takes longer.
const LEAST_MOVED: u32 = 2048;

impl Pool {
    fn new(pages: Pages, delivery: Delivery) -> Result<Self, OpenError> {
        let bytes = pages.area().len;
        let way: Option<Box<dyn Deliver>> = match delivery {
            Delivery::Copy => None,
            Delivery::Auto | Delivery::FastBuffers | Delivery::List => {
                Some(Box::new(FastBuffers::new(&pages)))
            }
            Delivery::Remap => {
                let moved = Remapping::new(&pages, Remapping::BANKS);
                Some(Box::new(moved.map_err(|source| OpenError::NoMemory { bytes, source })?))
            }
        };
        let out = vec![None; pages.buffers()];
        Ok(Self { pages, way, out, is_out: 0 })
    }

    /// The place of a buffer, by some bytes of it.
    fn place(&mut self, span: &Span) -> Option<&mut Option<BufferId>> {
        self.out.get_mut(span.offset as usize / self.pages.buffer_len())
    }

    /// Returns buffers back that users are done with.
    fn fetch(&mut self, engine: &mut Engine) {
        while let Some(span) = self.way.as_mut().and_then(|way| way.poll_returned()) {
            if let Some(id) = self.place(&span).and_then(Option::take) {
                self.is_out -= 1;
                engine.release(id);
            }
        }
    }
}

impl Deliverer {
    pub(super) fn new(
        delivery: Delivery,
        pages: Pages,
        large: Pages,
        returns: Arc<Returns>,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            delivery,
            returns,
            pages: Pool::new(pages, delivery)?,
            large: Pool::new(large, delivery)?,
            copied: 0,
            bodies: Vec::new(),
            delivered: Vec::new(),
        })
    }

    pub(super) const fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Bytes that were copied for users.
    pub(super) fn bytes_copied(&self) -> u64 {
        let ways = [&self.pages, &self.large].into_iter().filter_map(|pool| pool.way.as_ref());
        self.copied + ways.map(|way| way.counters().bytes_copied).sum::<u64>()
    }

    /// Whether users have buffers of the long kind.
    pub(super) fn has_large_out(&self) -> bool {
        self.large.is_out > 0
    }

    /// Buffers that users gave back.
    pub(super) fn fetch_returned(&mut self, engine: &mut Engine) {
        self.pages.fetch(engine);
        self.large.fetch(engine);
    }

    /// How many packets at the start of these can be handed out together: those whose
    /// bodies are in buffers of one pool.
    pub(super) fn run(&self, packets: &[EnginePacket]) -> usize {
        let kind = |packet: &EnginePacket| match packet.body {
            EngineBody::Buffer(_, span) if self.is_moved(span) => Some(span.region),
            _ => None,
        };
        let Some(first) = packets.first() else { return 0 };
        match kind(first) {
            None => 1,
            one => packets.iter().take_while(|packet| kind(packet) == one).count(),
        }
    }

    fn is_moved(&self, span: Span) -> bool {
        match self.delivery {
            Delivery::Copy => false,
            Delivery::Remap => span.len >= LEAST_MOVED,
            Delivery::Auto | Delivery::FastBuffers | Delivery::List => span.len > 0,
        }
    }

    /// Hands a [run](Self::run) of packets out: all of them or none. Where that fails,
    /// they are as they were.
    pub(super) fn deliver(
        &mut self,
        run: &[EnginePacket],
        engine: &mut Engine,
        receive_path: &mut dyn ReceivePath,
        mut hand_out: impl FnMut(Packet),
    ) -> Result<(), NotNow> {
        let mut finish = |packet: &EnginePacket, body| {
            let EnginePacket { head, path, body_len, .. } = *packet;
            hand_out(Packet { head, path, body_len, body });
        };
        match run.first().map(|packet| packet.body) {
            None => {}
            Some(EngineBody::Lent(id)) => finish(&run[0], Self::list(id, engine, receive_path)?),
            Some(EngineBody::Buffer(id, span)) if !self.is_moved(span) => {
                finish(&run[0], self.copy(id, span, engine, receive_path));
            }
            Some(EngineBody::Buffer(_, span)) => {
                self.lend(run, span)?;
                // What was moved has other pages in its place at once.
                self.fetch_returned(engine);
                for (packet, delivered) in run.iter().zip(self.delivered.drain(..)) {
                    let returns = Arc::clone(&self.returns);
                    finish(packet, Body::Page(Loaned::new(delivered, returns)));
                }
            }
        }
        Ok(())
    }

    /// Lends or moves the bodies of a run.
    fn lend(&mut self, run: &[EnginePacket], first: Span) -> Result<(), NotNow> {
        let Self { pages, large, bodies, delivered, .. } = self;
        let pool = if first.region == large.pages.area().region { large } else { pages };
        bodies.clear();
        delivered.clear();
        for packet in run {
            if let EngineBody::Buffer(_, span) = packet.body {
                bodies.push(span);
            }
        }
        let way = pool.way.as_mut().ok_or(NotNow::Gone)?;
        match way.deliver_all(bodies, delivered) {
            Ok(()) => {
                for packet in run {
                    if let EngineBody::Buffer(id, span) = packet.body
                        && let Some(place) = pool.place(&span)
                    {
                        *place = Some(id);
                        pool.is_out += 1;
                    }
                }
                Ok(())
            }
            Err(DeliverError::Full(_) | DeliverError::InUse(_)) => Err(NotNow::Full),
            Err(_) => Err(NotNow::Gone),
        }
    }

    fn list(
        id: ListId,
        engine: &mut Engine,
        receive_path: &dyn ReceivePath,
    ) -> Result<Body, NotNow> {
        let spans = engine.lent(id).ok_or(NotNow::Gone)?.into();
        let held = engine.lent_from(id).and_then(|bunches| receive_path.hold(bunches));
        // What the engine knows of it is with the packet now.
        engine.release_list(id);
        Ok(Body::List(List { spans, held: held.ok_or(NotNow::Gone)? }))
    }

    fn copy(
        &mut self,
        id: BufferId,
        span: Span,
        engine: &mut Engine,
        receive_path: &mut dyn ReceivePath,
    ) -> Body {
        let mut bytes = self.returns.spare();
        bytes.resize(span.len as usize, 0);
        receive_path.read(&span, &mut bytes);
        self.copied += u64::from(span.len);
        engine.release(id);
        Body::Copy(Copied { bytes, returns: Arc::clone(&self.returns) })
    }
}

/// Where dropped packets go, for the receiver to fetch.
#[derive(Debug)]
pub(super) struct Returns {
    /// Something is there: looked at without the lock.
    is_there: AtomicBool,
    /// Memory of copies, to be used again: a few.
    copies: Mutex<Vec<Vec<u8>>>,
    pub(super) bell: Bell,
}

/// More spare memory than this is freed.
const MOST_COPIES: usize = 256;

impl Returns {
    pub(super) const fn new(bell: Bell) -> Self {
        Self { is_there: AtomicBool::new(false), copies: Mutex::new(Vec::new()), bell }
    }

    /// The memory of a copy is free.
    pub(super) fn copy(&self, memory: Vec<u8>) {
        let mut copies = locked(&self.copies);
        if copies.len() < MOST_COPIES {
            copies.push(memory);
        }
    }

    /// Something has changed that a receiver may wait for.
    pub(super) fn tell(&self) {
        self.is_there.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Has something come back since the last [`fetch`](Self::fetch)?
    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::SeqCst)
    }

    /// The same, and from here on for what comes back later.
    pub(super) fn fetch(&self) -> bool {
        self.is_there() && self.is_there.swap(false, Ordering::SeqCst)
    }

    /// Memory for a copy, as long as there is some that was used before.
    pub(super) fn spare(&self) -> Vec<u8> {
        locked(&self.copies).pop().unwrap_or_default()
    }
}

/// The memory of a burst, for an engine.
///
/// What the engine asks for lies in memory that it was given, so nothing is ever
/// refused; if it were, bytes would be missing that a checksum finds.
#[derive(Debug)]
pub(super) struct MemoryView<'a>(pub(super) BurstMemory<'a>);

impl Memory for MemoryView<'_> {
    #[inline]
    fn head(&self, slot: u16) -> &[u8] {
        self.0.head(slot)
    }

    #[inline]
    fn copy(&mut self, from: Span, to: Span) {
        let copied = self.0.copy(&from, &to);
        debug_assert_eq!(copied, Ok(()), "{from} to {to}");
    }

    #[inline]
    fn read(&self, from: Span, into: &mut [u8]) {
        let read = self.0.read(&from, into);
        debug_assert_eq!(read, Ok(()), "{from}");
    }
}
