//! What handles ask of the management.

use std::net::SocketAddr;
use std::sync::Arc;

use landfall_placement::{Area, Instant, RegionId};
use landfall_transport::memory::{Memory, TakeBackError};
use qpip::{
    Completion, CompletionQueueId, DomainId, ListenerId, Mapping, MemoryKey, QueuePairId,
    QueuePairSetup, Service,
};
use rtrb::{Consumer, Producer, RingBuffer};

use super::completions::Queue;
use super::news::{ListenerState, Listening};
use super::posts::{Pair, Side};
use super::{Core, enter};
use crate::qpip::completion_queue::QueueState;
use crate::qpip::doorbell::{Entry, ring};
use crate::qpip::error::Error;
use crate::qpip::pair_state::{PairState, Phase};

/// The user's ends of a new queue pair.
#[derive(Debug)]
pub(crate) struct NewPair {
    pub(crate) id: QueuePairId,
    pub(crate) state: Arc<PairState>,
    pub(crate) sends: Producer<Entry>,
    pub(crate) receives: Producer<Entry>,
}

impl Core {
    pub(crate) fn create_queue(
        &mut self,
        capacity: u32,
    ) -> Result<(CompletionQueueId, Arc<QueueState>, Consumer<Completion>), Error> {
        let id = self.engine.create_completion_queue(capacity)?;
        let (producer, consumer) = RingBuffer::new(capacity as usize);
        let state = Arc::new(QueueState::new(capacity));
        let queue = Queue { id, state: Arc::clone(&state), ring: Some(producer) };
        enter(&mut self.queues, id.index, queue);
        // From now on the engine tells when there is something.
        self.move_completions(id.index);
        Ok((id, state, consumer))
    }

    /// Makes a queue pair whose requests have at most so many buffers.
    pub(crate) fn create_pair(
        &mut self,
        setup: &QueuePairSetup,
        buffers: u16,
    ) -> Result<NewPair, Error> {
        let id = self.engine.create_queue_pair(setup)?;
        // A datagram's destination is an entry of its own.
        let to_whom = u16::from(setup.service == Service::Udp);
        let (sends, send_ring) = ring(setup.send_depth, buffers + to_whom);
        let (receives, receive_ring) = ring(setup.receive_depth, buffers);
        let state = Arc::new(PairState::default());
        // The engine keeps a place for the part of a request, too.
        let is_stream = setup.service == Service::Tcp(Mapping::Stream);
        let queue = self.queue(setup.receive_completions).filter(|_| is_stream);
        let keeps_place = queue.is_some_and(|queue| queue.state.reserve());
        let pair = Pair {
            id,
            state: Arc::clone(&state),
            keeps_place,
            sends: Side::new(send_ring, setup.send_completions.index),
            receives: Side::new(receive_ring, setup.receive_completions.index),
        };
        enter(&mut self.pairs, id.index, pair);
        Ok(NewPair { id, state, sends, receives })
    }

    /// Its user has dropped it.
    pub(crate) fn destroy_pair(&mut self, now: Instant, id: QueuePairId) {
        // What the engine does not know is not there.
        let _ = self.engine.destroy_queue_pair(now, id);
        self.hear();
        let known = self.pairs.get_mut(id.index as usize);
        let Some(pair) = known.and_then(|known| known.take_if(|pair| pair.id == id)) else {
            return;
        };
        self.flush(pair);
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        id: QueuePairId,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.engine.connect(now, id, local, remote)?;
        self.enter_phase(id, Phase::Opening);
        Ok(())
    }

    pub(crate) fn listen(
        &mut self,
        local: SocketAddr,
    ) -> Result<(ListenerId, Arc<ListenerState>), Error> {
        let id = self.engine.listen(local)?;
        let state = Arc::<ListenerState>::default();
        enter(&mut self.listeners, id.index, Listening { id, state: Arc::clone(&state) });
        Ok((id, state))
    }

    pub(crate) fn stop_listening(&mut self, id: ListenerId) {
        // What the engine does not know is not there.
        let _ = self.engine.stop_listening(id);
        if let Some(known) = self.listeners.get_mut(id.index as usize) {
            known.take_if(|listening| listening.id == id);
        }
    }

    pub(crate) fn offer(&mut self, listener: ListenerId, id: QueuePairId) -> Result<(), Error> {
        self.engine.offer(listener, id)?;
        self.enter_phase(id, Phase::Opening);
        Ok(())
    }

    /// Registers lent memory.
    pub(crate) fn register(
        &mut self,
        domain: DomainId,
        region: RegionId,
        (len, access): (u64, qpip::Access),
    ) -> Result<MemoryKey, Error> {
        Ok(self.engine.register(domain, Area::new(region, 0, len), access)?)
    }

    /// Takes registered memory back, if nothing uses it.
    pub(crate) fn deregister(&mut self, key: MemoryKey, region: RegionId) -> Result<Memory, Error> {
        match self.engine.deregister(key) {
            // Taken back half before, while a driver held it.
            Ok(_) | Err(qpip::Error::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.regions.try_take_back(region)?)
    }

    /// Nobody wants this memory any more: it is freed once nothing uses it.
    pub(crate) fn drop_memory(&mut self, key: MemoryKey, region: RegionId) {
        match self.deregister(key, region) {
            Err(Error::TakeBack(TakeBackError::StillInUse { .. })) => self.orphans.push(region),
            Err(error) if error.is_busy() => self.dropped.push((key, region)),
            _ => {}
        }
    }

    /// Its user is gone: it ends with the last that belongs to it.
    pub(crate) fn drop_domain(&mut self, id: DomainId) {
        if let Err(qpip::Error::Busy(_)) = self.engine.destroy_domain(id) {
            self.left.push(id);
        }
    }
}
