//! From the link below to the kernel: packets, joined.
//!
//! A peer on the same machine leaves transport checksums to its device to finish. Over a
//! virtual link the device never does, since the bytes leave no memory. Such a
//! packet has the sum of its pseudo-header where the checksum belongs
//! (`CHECKSUM_PARTIAL` of `linux/skbuff.h`), and is handed over as such: what stays on this
//! machine needs no checksum, and what leaves it gets one from the kernel. A packet that comes
//! over a wire with just this number there by chance keeps the right checksum if it had it: it is
//! the same.

use std::io;
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::sync::Arc;

use landfall_inet::checksum::InternetSum;
use landfall_inet::{checksum, ethernet, ipv4, ipv6, protocol, tcp, udp};
use landfall_placement::{Instant, SumSlot};
use landfall_transport::driver::Interest;
use landfall_transport::redirect::{Passed, Redirect};
use landfall_transport::tap::{FrameWriter, offload_header};
use spec_defrag::ReassemblyPath;

use super::super::error::Error;
use super::super::packet::Packet;
use super::super::receiver::Receiver;
use super::lower::{InterfaceGuard, is_there};
use super::{Amount, InterfaceState, ReportTimer, turn_of};
use crate::runtime::Source;

/// Dropped on its own thread, which is in the namespace of the interface. The order of
/// the fields is that in which they go.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) queue: u16,
    pub(super) receiver: Receiver,
    pub(super) lower: String,
    /// That of the first queue holds these, for all.
    pub(super) redirect: Option<Redirect>,
    pub(super) tap: FrameWriter,
    pub(super) _shield: Option<InterfaceGuard>,
    pub(super) done: Done,
    pub(super) told: ReportTimer,
    pub(super) shared: Arc<InterfaceState>,
}

/// This many packets are handed to the kernel between two looks at the link.
const MOST_PACKETS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    to_kernel: Amount,
    not_taken: u64,
    sums_left: u64,
}

impl Up {
    /// It is over, or the link broke.
    pub(super) fn finish(mut self, result: Option<Result<(), Error>>) {
        let (told, shared) = (self.tell(), Arc::clone(&self.shared));
        drop(self);
        shared.done(result.unwrap_or(Ok(())).and(told));
    }

    /// Packets that became whole, up to a bound, and what is due. Gives whether there were any.
    fn work(&mut self, now: Instant) -> Result<bool, Error> {
        let mut moved = self.receiver.turn(now)?;
        for _ in 0..MOST_PACKETS {
            let Some(packet) = self.receiver.next() else { break };
            self.hand_over(&packet)?;
            moved = true;
        }
        if self.told.is_due(now) {
            self.tell()?;
            if !is_there(&self.lower) {
                let gone = format!("the interface {} is gone", self.lower);
                return Err(io::Error::new(io::ErrorKind::NotFound, gone).into());
            }
        }
        Ok(moved)
    }

    /// One call for a packet: its pieces are where they were joined.
    fn hand_over(&mut self, packet: &Packet) -> Result<(), Error> {
        let unfinished = match packet.path() {
            ReassemblyPath::Whole => unfinished(packet),
            // Pieces have sums: nothing fills them in for a packet in several.
            _ => None,
        };
        self.done.sums_left += u64::from(unfinished.is_some());
        let header = offload_header(unfinished);
        let first = [&header[..], packet.head()];
        let is_taken = match packet.body() {
            Some(body) => self.tap.write(&[first[0], first[1], body].map(IoSlice::new))?,
            None => {
                let pieces = first.into_iter().chain(packet.pieces());
                self.tap.write(&pieces.map(IoSlice::new).collect::<Vec<_>>())?
            }
        };
        match is_taken {
            true => self.done.to_kernel.add(packet.len()),
            false => self.done.not_taken += 1,
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<(), Error> {
        let joined = self.receiver.stats()?;
        let Done { to_kernel, not_taken, sums_left } = self.done;
        let passed = self.redirect.as_ref().map(Redirect::counts).transpose()?.unwrap_or_default();
        let amount = |Passed { packets, bytes }| Amount { packets, bytes };
        self.shared.tell(self.queue, |stats| {
            stats.passed_down = amount(passed.out);
            stats.passed_up = amount(passed.into);
            stats.joined = joined;
            stats.to_kernel = to_kernel;
            stats.not_taken = not_taken;
            stats.sums_left = sums_left;
        });
        Ok(())
    }
}

impl Source for Up {
    type Output = Result<(), Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        turn_of(self.shared.is_over(), || self.work(now))
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        self.receiver.interests(into);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.receiver.next_wake().into_iter().chain([self.told.next()]).min()
    }

    fn arm(&self) {
        self.receiver.returns().bell.arm();
    }

    fn has_work(&self) -> bool {
        self.receiver.returns().is_there()
    }

    fn silence(&self) {
        self.receiver.returns().bell.silence();
    }
}

/// Where the transport part of a packet is.
struct Transport {
    protocol: u8,
    start: usize,
    len: usize,
    /// The sum of the pseudo-header, but for the length.
    addresses: InternetSum,
}

/// Where a packet lacks its checksum; `None` where that is there.
fn unfinished(packet: &Packet) -> Option<SumSlot> {
    let mut first = [0; ethernet::LEN + ipv4::LEN_MAX];
    let len = packet.copy_out(0, &mut first);
    let Transport { protocol, start, len, addresses } = Transport::of(&first[..len])?;
    if start + len > packet.len() {
        return None;
    }
    let offset = if protocol == protocol::TCP { tcp::SUM_OFFSET } else { udp::SUM_OFFSET };
    let mut there = [0; 2];
    let is_unfinished = packet.copy_out(start + usize::from(offset), &mut there) == 2
        && u16::from_be_bytes(there) == checksum::with_len(addresses, len as u32);
    is_unfinished.then_some(SumSlot { start: start as u16, offset })
}

impl Transport {
    /// Of TCP and UDP, not behind extension headers.
    fn of(first: &[u8]) -> Option<Self> {
        let (link, network) = ethernet::read(first).ok()?;
        let (protocol, header_len, len, addresses) = match link.ethertype.get() {
            ethernet::IPV4 => {
                let (header, header_len) = ipv4::read(network).ok()?;
                let len = usize::from(header.total_len.get()) - header_len;
                let addresses = (header.source().into(), header.destination().into());
                (
                    header.protocol,
                    header_len,
                    Some(len).filter(|_| !header.is_fragment())?,
                    addresses,
                )
            }
            ethernet::IPV6 => {
                let header = ipv6::read(network).ok()?;
                let len = usize::from(header.payload_len.get());
                let addresses = (header.source().into(), header.destination().into());
                (header.next_header, ipv6::LEN, len, addresses)
            }
            _ => return None,
        };
        if !matches!(protocol, protocol::TCP | protocol::UDP) || len < udp::LEN {
            return None;
        }
        let addresses = checksum::pseudo_header(addresses.0, addresses.1, protocol);
        Some(Self { protocol, start: ethernet::LEN + header_len, len, addresses })
    }
}
