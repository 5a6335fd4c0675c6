//! A station in a simulated network.

use landfall_placement::Instant;
use landfall_simnet::{Frame, Node, Outbox, PortId};

use super::host::{Chip, Station};
use super::receive::Hamachi;

/// A host with a Hamachi, on one link.
#[derive(Debug)]
pub struct HamachiNode<F: Chip = Hamachi<'static>> {
    /// The host.
    pub station: Station<F>,
    /// Its link.
    port: PortId,
}

impl<F: Chip> HamachiNode<F> {
    /// This host, on the first link that it gets.
    #[must_use]
    pub const fn new(station: Station<F>) -> Self {
        Self { station, port: PortId(0) }
    }

    /// Frames that are ready leave as the link takes them.
    pub fn transmit(&mut self, now: Instant, out: &mut Outbox<'_>) {
        loop {
            while let Some(departure) = self.station.departure() {
                if !out.has_room(self.port) {
                    return out.call_when_room(self.port);
                }
                out.send(self.port, Frame::raw(departure.bytes));
                self.station.departed();
            }
            // There may be room in the adapter for what waits in the host.
            self.station.run(now);
            if self.station.departure().is_none() {
                return;
            }
        }
    }
}

impl<F: Chip + 'static> Node for HamachiNode<F> {
    fn handle_frame(&mut self, now: Instant, _port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        self.station.arrive(now, &frame.bytes);
        self.transmit(now, out);
    }

    fn handle_room(&mut self, now: Instant, _port: PortId, out: &mut Outbox<'_>) {
        self.transmit(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.station.handle_timeout(now);
        self.transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.station.poll_timeout()
    }
}
