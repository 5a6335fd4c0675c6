//! Packets from the kernel: read straight into registered memory, from which they
//! leave by DMA.

use std::collections::VecDeque;
use std::sync::Arc;

use clan_dsm::{HostId, Rights};
use landfall_placement::Instant;
use landfall_transport::driver::Interest;
use landfall_transport::tap::FrameReader;

use super::ClanIpError;
use super::connections::{Held, OutgoingHandle};
use super::exchange::{ExchangeState, Hub};
use super::outgoing::{
    Attempt, Destination, HEADER, PacketInFlight, ROOM, ethernet, in_other_order,
};
use super::terms::BUFFER;
use crate::clan::network::Aperture;
use crate::clan::{Fabric, Local, WORD};
use crate::runtime::locked;

/// Packets that have not left yet.
const SLOTS: usize = 128;
/// Packets taken before that is published to their receivers.
const BATCH: usize = 32;
/// The most bytes of a packet that is copied into its frame, where its completion has room
/// behind it: acknowledgements of TCP, and short messages. What is sent from memory fills a
/// frame of its own, and asks for an answer.
const COPIED: usize = 112;

/// A place for a packet, and the transfer that used it last.
#[derive(Debug, Default)]
struct Slot(Option<(OutgoingHandle, PacketInFlight)>);

/// A packet that was taken and is on its way to a host.
#[derive(Debug)]
struct PacketToSend {
    host: HostId,
    header: [u8; HEADER],
    body: Body,
}

/// Where its bytes are.
#[derive(Debug)]
enum Body {
    /// In the next slot: this many.
    Slot(usize),
    /// It goes to others as well.
    Copy(Arc<[u8]>),
}

/// Reads packets of the kernel into registered memory, slot by slot.
#[derive(Debug)]
pub(super) struct FromKernel {
    reader: FrameReader,
    memory: Aperture,
    slots: Vec<Slot>,
    next: usize,
    /// Of the last packet what has not left, for want of room at its receivers.
    taken: VecDeque<PacketToSend>,
    /// Connections with packets that are not published.
    to_publish: Vec<(HostId, OutgoingHandle)>,
    /// The last look at the kernel found nothing.
    is_empty: bool,
}

impl FromKernel {
    pub(super) fn new(shared: &ExchangeState, reader: FrameReader) -> Result<Self, ClanIpError> {
        let len = BUFFER * SLOTS as u64;
        // Nobody gets the cookie.
        let (memory, _) = shared.node().expose(len, Rights::Read)?;
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        let (taken, to_publish) = (VecDeque::new(), Vec::new());
        Ok(Self { reader, memory, slots, next: 0, taken, to_publish, is_empty: false })
    }

    /// What to wait for; nothing while the last packet blocks the next one.
    pub(super) fn interest(&self) -> Option<Interest> {
        self.is_empty.then(|| self.reader.interest())
    }

    /// Is there something that found no room?
    pub(super) fn waits(&self) -> bool {
        !self.is_empty || !self.to_publish.is_empty()
    }

    /// Takes the packets that are there, up to a bound, as far as they can leave. Returns
    /// whether there were any.
    pub(super) fn take(&mut self, hub: &mut Hub, now: Instant) -> Result<bool, ClanIpError> {
        let mut moved = false;
        self.is_empty = false;
        for _ in 0..BATCH {
            let before = self.taken.len();
            let has_left = self.send_taken(hub, now);
            moved |= self.taken.len() < before;
            if !has_left || !self.is_next_free() {
                break;
            }
            let place = self.memory.span(self.next as u64 * BUFFER, ROOM);
            let mut header = [0; HEADER];
            let read = self.reader.read(&mut header, &place);
            let read = read.map_err(ClanIpError::io("the interface is gone"))?;
            let Some(len) = read else {
                self.is_empty = true;
                break;
            };
            moved = true;
            // The kernel sends neither: a frame without a header, or one longer than IP allows.
            match len.checked_sub(HEADER) {
                Some(len) if len < ROOM as usize => self.route(hub, in_other_order(header), len),
                _ => hub.counts().dropped(),
            }
        }
        self.send_taken(hub, now);
        for (host, outgoing) in std::mem::take(&mut self.to_publish) {
            let published = locked(&outgoing).publish();
            match published {
                Ok(true) => {}
                // The send buffer is full: again, after a look at the kernel.
                Ok(false) => self.to_publish.push((host, outgoing)),
                Err(error) => hub.broken(host, &outgoing, &error),
            }
        }
        Ok(moved)
    }

    /// Decides which hosts get the packet in the next slot.
    fn route(&mut self, hub: &Hub, header: [u8; HEADER], len: usize) {
        match Destination::of(&ethernet(&header)) {
            Destination::Host(host) if hub.is_neighbour(host) => {
                self.taken.push_back(PacketToSend { host, header, body: Body::Slot(len) });
            }
            Destination::All => {
                let Ok(packet) = self.copy(len) else { return };
                let packet: Arc<[u8]> = packet.into();
                let to =
                    |host| PacketToSend { host, header, body: Body::Copy(Arc::clone(&packet)) };
                self.taken.extend(hub.neighbours().map(to));
            }
            Destination::Host(_) | Destination::Nobody => hub.counts().dropped(),
        }
    }

    /// Sends what was taken. False: there is no room for the rest.
    fn send_taken(&mut self, hub: &mut Hub, now: Instant) -> bool {
        while let Some(taken) = self.taken.pop_front() {
            if !self.send(hub, &taken, now) {
                self.taken.push_front(taken);
                return false;
            }
        }
        true
    }

    /// False: there is no room for it.
    fn send(&mut self, hub: &mut Hub, taken: &PacketToSend, now: Instant) -> bool {
        let PacketToSend { host, header, ref body } = *taken;
        let held = || match body {
            Body::Slot(len) => Held { header, packet: self.copy(*len).unwrap_or_default() },
            Body::Copy(packet) => Held { header, packet: packet.to_vec() },
        };
        let Some(outgoing) = hub.route_or_hold(host, now, held) else { return true };
        let (counts, at) = (hub.counts(), self.next as u64 * BUFFER);
        let sent = match body {
            Body::Slot(len) if *len <= COPIED => {
                let mut packet = [0; COPIED];
                let packet = &mut packet[..len.next_multiple_of(WORD as usize)];
                let sent = self
                    .memory
                    .copy_out(at, packet)
                    .and_then(|()| locked(&outgoing).send(header, (packet, *len), counts, now));
                sent.map(|attempt| attempt.map(|()| None))
            }
            Body::Slot(len) => {
                let from = (&self.memory, at, *len);
                let sent = locked(&outgoing).send_from(header, from, counts, now);
                sent.map(|attempt| attempt.map(Some))
            }
            Body::Copy(packet) => {
                let sent = locked(&outgoing).send(header, (packet, packet.len()), counts, now);
                sent.map(|attempt| attempt.map(|()| None))
            }
        };
        match sent {
            Ok(Attempt::Later) => return false,
            Ok(Attempt::Dropped) => {}
            Ok(Attempt::Sent(leaving)) => {
                if let Some(leaving) = leaving {
                    self.slots[self.next] = Slot(Some((Arc::clone(&outgoing), leaving)));
                    self.next = (self.next + 1) % SLOTS;
                }
                self.publish_later(host, outgoing);
            }
            Err(error) => hub.broken(host, &outgoing, &error),
        }
        true
    }

    /// What was sent to it is published before the next wait.
    fn publish_later(&mut self, host: HostId, outgoing: OutgoingHandle) {
        if !self.to_publish.iter().any(|(_, known)| Arc::ptr_eq(known, &outgoing)) {
            self.to_publish.push((host, outgoing));
        }
    }

    /// The packet in the next slot.
    fn copy(&self, len: usize) -> Result<Vec<u8>, crate::clan::Error> {
        let mut packet = vec![0; len];
        self.memory.copy_out(self.next as u64 * BUFFER, &mut packet)?;
        Ok(packet)
    }

    /// Has the packet left that was in the next slot?
    fn is_next_free(&mut self) -> bool {
        let slot = &mut self.slots[self.next];
        if let Some((outgoing, leaving)) = &slot.0 {
            if !locked(outgoing).has_left(*leaving) {
                return false;
            }
            *slot = Slot::default();
        }
        true
    }
}
