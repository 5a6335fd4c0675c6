//! iceoryx2: samples that are published and subscribed to, and events that wake.

use std::hint::spin_loop;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;

use crate::clan::loans;
use crate::sides::{End, Kind, Opened, PATIENCE, Place, Waiting, Work};

struct Ports {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    /// For those who sleep.
    events: Option<(Notifier<ipc::Service>, Listener<ipc::Service>)>,
    /// Of a message that is written and read where it lies.
    in_place: Option<usize>,
}

pub(crate) fn be_quiet() {
    set_log_level(LogLevel::Fatal);
}

pub(crate) fn open(work: &Work, place: &Place) -> Result<Opened> {
    Ok(Some(Box::new(Ports::open(work, place)?)))
}

impl Ports {
    fn open(work: &Work, place: &Place) -> Result<Self> {
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let name = |way: bool, what: &str| {
            let way = if way { "there" } else { "back" };
            format!("landfall/{}/{}/{way}/{what}", std::process::id(), place.number)
        };
        let (mine, theirs) = (place.is_first, !place.is_first);
        // As much room as a stream of CLAN has, and as its queue.
        let places = match work.kind {
            Kind::Stream | Kind::InPlace => loans(work.bytes) as usize,
            Kind::ThereAndBack | Kind::Elements => 4096,
        };
        let in_place = (work.kind == Kind::InPlace).then_some(work.bytes);
        let samples = |way| -> Result<_> {
            let service = node.service_builder(&name(way, "samples").as_str().try_into()?);
            let service = service.publish_subscribe::<[u8]>().enable_safe_overflow(false);
            Ok(service.subscriber_max_buffer_size(places).open_or_create()?)
        };
        let publisher = samples(mine)?
            .publisher_builder()
            .initial_max_slice_len(work.bytes)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()?;
        let subscriber = samples(theirs)?.subscriber_builder().create()?;
        let event = |way| -> Result<_> {
            let service = node.service_builder(&name(way, "events").as_str().try_into()?);
            Ok(service.event().open_or_create()?)
        };
        let events = if work.waiting == Waiting::Sleep {
            let listener = event(theirs)?.listener_builder().create()?;
            place.meet()?;
            Some((event(mine)?.notifier_builder().create()?, listener))
        } else {
            None
        };
        // Both have both before either begins, and look for each other: what is sent to
        // somebody who has not looked yet is thrown away once its buffer is full.
        place.meet()?;
        publisher.update_connections()?;
        subscriber.update_connections()?;
        place.meet()?;
        Ok(Self { publisher, subscriber, events, in_place })
    }
}

impl End for Ports {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let sample = self.publisher.loan_slice_uninit(message.len())?;
        sample.write_from_slice(message).send()?;
        if let Some((notifier, _)) = &self.events {
            notifier.notify()?;
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        /// This many looks pass between two at the clock.
        const LOOKS: u32 = 1 << 16;
        let deadline = Instant::now() + PATIENCE;
        for look in 1_u32.. {
            if look % LOOKS == 0 && Instant::now() > deadline {
                break;
            }
            if let Some(sample) = self.subscriber.receive()? {
                let payload = sample.payload();
                let expected = self.in_place.unwrap_or(into.len());
                ensure!(payload.len() == expected, "a sample of {} bytes", payload.len());
                for part in payload.chunks_exact(into.len()).rev() {
                    into.copy_from_slice(part);
                }
                return Ok(());
            }
            match &self.events {
                Some((_, listener)) => {
                    listener.timed_wait(|_| (), PATIENCE)?;
                }
                None => spin_loop(),
            }
        }
        bail!("no sample came")
    }
}
