//! From the kernel to the link below: packets, cut where they are too long.

use std::ops::ControlFlow;
use std::sync::Arc;

use landfall_inet::{ethernet, vlan};
use landfall_placement::Instant;
use landfall_transport::driver::Interest;
use landfall_transport::memory::Memory;
use landfall_transport::tap::FrameReader;

use super::super::error::Error;
use super::super::registered::Registered;
use super::super::sender::{Outgoing, Sender};
use super::{Amount, InterfaceState, ReportTimer, turn_of};
use crate::runtime::Source;

/// This many packets are read before they are sent.
const MOST_PACKETS: usize = 64;
/// This many bytes, if that is more than one packet: they shall still be in the cache
/// when the kernel reads them.
const MOST_BYTES: usize = 256 << 10;
/// The first bytes of a packet, which hold the headers that every piece repeats: as
/// many as fit in a head together with a fragment header.
const HEAD: usize = 176;
/// Packets start at cache lines.
const LINE: usize = 64;

/// Takes packets from the kernel, and sends them in frames of the link below.
#[derive(Debug)]
pub(super) struct Down {
    tap: FrameReader,
    sender: Sender,
    /// Bodies, one after another.
    memory: Registered,
    heads: Vec<[u8; HEAD]>,
    /// Of what was read: where the body starts, and the length of all.
    frames: Vec<(usize, usize)>,
    /// The longest frame.
    longest: usize,
    done: Done,
    told: ReportTimer,
    shared: Arc<InterfaceState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    from_kernel: Amount,
    not_cut: u64,
    stuck: u64,
}

impl Down {
    pub(super) fn new(
        tap: FrameReader,
        sender: Sender,
        shared: &Arc<InterfaceState>,
    ) -> Result<Self, Error> {
        /// Also frames of a VLAN above this interface.
        const LINK_HEADER: usize = ethernet::LEN + vlan::LEN;
        let longest = (tap.mtu() as usize + LINK_HEADER).next_multiple_of(LINE);
        let memory = sender.register(Memory::zeroed(MOST_BYTES.max(longest)))?;
        let heads = vec![[0; HEAD]; MOST_PACKETS];
        let frames = Vec::with_capacity(MOST_PACKETS);
        let (done, told, shared) = (Done::default(), ReportTimer::default(), Arc::clone(shared));
        Ok(Self { tap, sender, memory, heads, frames, longest, done, told, shared })
    }

    /// It is over, or a link broke.
    pub(super) fn finish(self, result: Option<Result<(), Error>>) {
        self.tell();
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.done(result.unwrap_or(Ok(())));
    }

    fn work(&mut self, now: Instant) -> Result<bool, Error> {
        let moved = self.read()?;
        if moved {
            self.send()?;
        }
        if self.told.is_due(now) {
            self.tell();
        }
        Ok(moved)
    }

    /// Reads what is there, as far as there is room. False: nothing was.
    fn read(&mut self) -> Result<bool, Error> {
        self.frames.clear();
        let mut at = 0;
        for head in &mut self.heads {
            if at as u64 + self.longest as u64 > self.memory.len() {
                break;
            }
            let place = self.memory.part(at as u64, self.longest as u32)?.span;
            let Some(len) = self.tap.read(head, &place)? else { break };
            self.done.from_kernel.add(len);
            self.frames.push((at, len));
            at += len.saturating_sub(HEAD).next_multiple_of(LINE);
        }
        Ok(!self.frames.is_empty())
    }

    fn send(&mut self) -> Result<(), Error> {
        let packets: Result<Vec<_>, Error> = self
            .heads
            .iter()
            .zip(&self.frames)
            .map(|(head, (at, len))| {
                let body = self.memory.part(*at as u64, len.saturating_sub(HEAD) as u32)?;
                Ok(Outgoing { head: &head[..HEAD.min(*len)], body })
            })
            .collect();
        let packets = packets?;
        let mut rest = &packets[..];
        while !rest.is_empty() {
            let before = self.sender.stats().packets;
            let sent = self.sender.send(rest);
            let taken = (self.sender.stats().packets - before) as usize;
            rest = match sent {
                Ok(()) => &[],
                // The one behind those that were taken.
                Err(Error::Cut(_)) => {
                    self.done.not_cut += 1;
                    rest.get(taken + 1..).unwrap_or_default()
                }
                // As on a wire that is cut for a while.
                Err(Error::Stuck(_)) => {
                    self.done.stuck += 1;
                    rest.get(taken..).unwrap_or_default()
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn tell(&self) {
        let cut = self.sender.stats();
        let Done { from_kernel, not_cut, stuck } = self.done;
        self.shared.tell(|stats| {
            stats.cut = cut;
            stats.from_kernel = from_kernel;
            stats.not_cut = not_cut;
            stats.stuck = stuck;
        });
    }
}

impl Source for Down {
    type Output = Result<(), Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        turn_of(self.shared.is_over(), || self.work(now))
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.push(self.tap.interest());
    }

    fn next_wake(&self) -> Option<Instant> {
        Some(self.told.next())
    }
}
