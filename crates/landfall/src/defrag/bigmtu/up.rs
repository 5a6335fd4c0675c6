//! From the link below to the kernel: packets, joined.

use std::io::{self, IoSlice};
use std::sync::Arc;

use landfall_transport::tap::FrameWriter;
use spec_defrag::Way;

use super::super::error::Error;
use super::super::packet::Packet;
use super::super::receiver::Receiver;
use super::checksum::Unfinished;
use super::lower::{Shield, is_there};
use super::shared::{Amount, LOOK_UP, Shared, Told};

/// Dropped on its own thread, which is in the namespace of the interface. The order of
/// the fields is that in which they go.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) receiver: Receiver,
    pub(super) lower: String,
    pub(super) tap: FrameWriter,
    pub(super) _shield: Shield,
    pub(super) done: Done,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    to_kernel: Amount,
    not_taken: u64,
    sums_finished: u64,
}

impl Up {
    /// Until it is over, or the link broke.
    pub(super) fn run(mut self, shared: &Arc<Shared>) {
        let result = self.work(shared);
        let told = self.tell(shared);
        drop(self);
        shared.done(result.and(told));
    }

    fn work(&mut self, shared: &Shared) -> Result<(), Error> {
        let mut told = Told::now();
        while !shared.is_over() {
            if let Some(packet) = self.receiver.receive(LOOK_UP)? {
                self.hand_over(&packet)?;
            }
            if told.is_due() {
                self.tell(shared)?;
                if !is_there(&self.lower) {
                    let gone = format!("the interface {} is gone", self.lower);
                    return Err(io::Error::new(io::ErrorKind::NotFound, gone).into());
                }
            }
        }
        Ok(())
    }

    /// One call for a packet: its pieces are where they were joined.
    fn hand_over(&mut self, packet: &Packet) -> Result<(), Error> {
        let unfinished = match packet.way() {
            Way::Whole => Unfinished::of(packet),
            // Pieces have sums: nothing fills them in for a packet in several.
            _ => None,
        };
        let is_taken = match &unfinished {
            Some(sum) => {
                self.done.sums_finished += 1;
                let (before, sum, after) = sum.around(packet);
                let pieces = before.chain([sum]).chain(after).map(IoSlice::new);
                self.tap.write(&pieces.collect::<Vec<_>>())?
            }
            None => match packet.body() {
                Some(body) => self.tap.write(&[IoSlice::new(packet.head()), IoSlice::new(body)])?,
                None => {
                    let pieces = std::iter::once(packet.head()).chain(packet.pieces());
                    self.tap.write(&pieces.map(IoSlice::new).collect::<Vec<_>>())?
                }
            },
        };
        match is_taken {
            true => self.done.to_kernel.add(packet.len()),
            false => self.done.not_taken += 1,
        }
        Ok(())
    }

    fn tell(&mut self, shared: &Shared) -> Result<(), Error> {
        let joined = self.receiver.stats()?;
        let Done { to_kernel, not_taken, sums_finished } = self.done;
        shared.tell(|stats| {
            stats.joined = joined;
            stats.to_kernel = to_kernel;
            stats.not_taken = not_taken;
            stats.sums_finished = sums_finished;
        });
        Ok(())
    }
}
