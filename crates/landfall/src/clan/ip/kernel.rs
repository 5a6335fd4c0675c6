//! Packets from the kernel: read straight into registered memory, from which they
//! leave by DMA.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clan_dsm::{HostId, Rights};
use landfall_transport::tap::FrameReader;
use landfall_transport::wait::until_ready;

use super::ClanIpError;
use super::outgoing::{Destination, HEADER, Leaving, ROOM, ethernet, in_other_order};
use super::switchboard::{Held, Way};
use super::terms::BUFFER;
use super::workers::{LOOK_UP, Shared};
use crate::clan::network::Aperture;
use crate::clan::{Fabric, Local};
use crate::runtime::locked;

/// Packets that have not left yet.
const SLOTS: usize = 128;
/// Packets that are taken before their receivers hear of them.
const TOGETHER: usize = 32;

/// A place for a packet, and the last one that was there.
#[derive(Debug, Default)]
struct Slot(Option<(Way, Leaving)>);

/// Reads packets of the kernel into registered memory, slot by slot.
#[derive(Debug)]
pub(super) struct FromKernel {
    reader: FrameReader,
    memory: Aperture,
    slots: Vec<Slot>,
    next: usize,
    /// Who has to hear of packets.
    told: Vec<(HostId, Way)>,
}

impl FromKernel {
    pub(super) fn new(shared: &Shared, reader: FrameReader) -> Result<Self, ClanIpError> {
        let len = BUFFER * SLOTS as u64;
        // Nobody gets the cookie.
        let (memory, _) = shared.node().expose(len, Rights::Read)?;
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Ok(Self { reader, memory, slots, next: 0, told: Vec::new() })
    }

    /// Until it is over, or the interface is gone.
    pub(super) fn run(mut self, shared: &Arc<Shared>) -> Result<(), ClanIpError> {
        let gone = ClanIpError::io("the interface is gone");
        while !shared.is_over() {
            match self.take(shared) {
                Ok(0) => {}
                Ok(_) => continue,
                Err(error) => return Err(gone(error)),
            }
            if let Err(error) = until_ready(&[self.reader.interest()], LOOK_UP) {
                return Err(gone(error));
            }
        }
        Ok(())
    }

    /// Takes the packets that are there, up to a bound; how many.
    fn take(&mut self, shared: &Arc<Shared>) -> std::io::Result<usize> {
        let mut taken = 0;
        while taken < TOGETHER && self.is_next_free(shared) {
            let at = self.next as u64 * BUFFER;
            let place = self.memory.span(at, ROOM);
            let mut header = [0; HEADER];
            let Some(len) = self.reader.read(&mut header, &place)? else { break };
            taken += 1;
            // Neither is ever seen: a frame without a header, and one that IP has not.
            match len.checked_sub(HEADER) {
                Some(len) if len < ROOM as usize => {
                    self.send(shared, in_other_order(header), at, len);
                }
                _ => shared.counts.dropped(),
            }
        }
        for (host, way) in std::mem::take(&mut self.told) {
            let published = locked(&way).publish();
            match published {
                Ok(true) => {}
                // The way is full: again, after a look at the kernel.
                Ok(false) => self.told.push((host, way)),
                Err(error) => shared.broken(host, &way, &error),
            }
        }
        Ok(taken)
    }

    fn send(&mut self, shared: &Arc<Shared>, header: [u8; HEADER], at: u64, len: usize) {
        match Destination::of(&ethernet(&header)) {
            Destination::Host(host) if shared.is_neighbour(host) => {
                self.send_to(shared, host, header, (at, len));
            }
            Destination::All => {
                let Ok(packet) = self.copy(at, len) else { return };
                for host in shared.neighbours().collect::<Vec<_>>() {
                    self.send_copy(shared, host, header, &packet);
                }
            }
            Destination::Host(_) | Destination::Nobody => shared.counts.dropped(),
        }
    }

    fn send_to(
        &mut self,
        shared: &Arc<Shared>,
        host: HostId,
        header: [u8; HEADER],
        (at, len): (u64, usize),
    ) {
        let held = || Held { header, packet: self.copy(at, len).unwrap_or_default() };
        let Some(way) = shared.way_or_hold(host, held) else { return };
        let sent = locked(&way).send_from(header, (&self.memory, at, len), &shared.counts);
        match sent {
            Ok(None) => {}
            Ok(Some(leaving)) => {
                self.slots[self.next] = Slot(Some((Arc::clone(&way), leaving)));
                self.next = (self.next + 1) % SLOTS;
                self.tell(host, way);
            }
            Err(error) => shared.broken(host, &way, &error),
        }
    }

    fn send_copy(
        &mut self,
        shared: &Arc<Shared>,
        host: HostId,
        header: [u8; HEADER],
        packet: &[u8],
    ) {
        let held = || Held { header, packet: packet.to_vec() };
        let Some(way) = shared.way_or_hold(host, held) else { return };
        let sent = locked(&way).send(header, packet, &shared.counts);
        match sent {
            Ok(is_sent) if is_sent => self.tell(host, way),
            Ok(_) => {}
            Err(error) => shared.broken(host, &way, &error),
        }
    }

    /// Before the next wait it hears of what was sent.
    fn tell(&mut self, host: HostId, way: Way) {
        if !self.told.iter().any(|(_, known)| Arc::ptr_eq(known, &way)) {
            self.told.push((host, way));
        }
    }

    fn copy(&self, at: u64, len: usize) -> Result<Vec<u8>, crate::clan::Error> {
        let mut packet = vec![0; len];
        self.memory.copy_out(at, &mut packet)?;
        Ok(packet)
    }

    /// Waits for the oldest packet to leave; false: it is over before.
    fn is_next_free(&mut self, shared: &Shared) -> bool {
        while let Some((way, leaving)) = &self.slots[self.next].0 {
            if locked(way).has_left(*leaving) {
                self.slots[self.next] = Slot::default();
            } else if shared.is_over() {
                return false;
            } else if !shared.node().turn() {
                thread::sleep(Duration::from_micros(20));
            }
        }
        true
    }
}
