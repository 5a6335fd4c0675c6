//! What threads of one process have: a channel of crossbeam, which also sleeps, and a ring of rtrb,
//! which does not. Messages are values that the compiler knows the size of.

use std::hint::spin_loop;
use std::time::Instant;

use anyhow::{Result, bail};
use crossbeam_channel::{Receiver, Sender};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::sides::{End, Kind, Opened, PATIENCE, Place, Waiting, Work};

/// As many as a queue of CLAN has.
const PLACES: usize = 4096;

pub(crate) fn open_crossbeam(work: &Work, place: &Place) -> Result<Opened> {
    match (work.kind, work.bytes) {
        (Kind::ThereAndBack, 8) => channel::<8>(work, place),
        (Kind::ThereAndBack, 64) => channel::<64>(work, place),
        (Kind::Elements, 32) => channel::<32>(work, place),
        _ => Ok(None),
    }
}

pub(crate) fn open_rtrb(work: &Work, place: &Place) -> Result<Opened> {
    if work.waiting == Waiting::Sleep {
        return Ok(None);
    }
    match (work.kind, work.bytes) {
        (Kind::ThereAndBack, 8) => ring::<8>(place),
        (Kind::ThereAndBack, 64) => ring::<64>(place),
        (Kind::Elements, 32) => ring::<32>(place),
        _ => Ok(None),
    }
}

struct Channel<const LEN: usize> {
    sender: Sender<[u8; LEN]>,
    receiver: Receiver<[u8; LEN]>,
    spins: bool,
}

fn channel<const LEN: usize>(work: &Work, place: &Place) -> Result<Opened> {
    let (sender, receiver) = crossbeam_channel::bounded(PLACES);
    let receiver = place.exchange(receiver)?;
    let spins = work.waiting == Waiting::Spin;
    Ok(Some(Box::new(Channel::<LEN> { sender, receiver, spins })))
}

impl<const LEN: usize> End for Channel<LEN> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        Ok(self.sender.send_timeout(message.try_into()?, PATIENCE)?)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        let message = if self.spins {
            looked_for(|| self.receiver.try_recv().ok())?
        } else {
            self.receiver.recv_timeout(PATIENCE)?
        };
        into.copy_from_slice(&message);
        Ok(())
    }
}

struct Rings<const LEN: usize> {
    out: Producer<[u8; LEN]>,
    back: Consumer<[u8; LEN]>,
}

fn ring<const LEN: usize>(place: &Place) -> Result<Opened> {
    let (out, theirs) = RingBuffer::<[u8; LEN]>::new(PLACES);
    let back = place.exchange(theirs)?;
    Ok(Some(Box::new(Rings { out, back })))
}

impl<const LEN: usize> End for Rings<LEN> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let message: [u8; LEN] = message.try_into()?;
        looked_for(|| self.out.push(message).ok())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&looked_for(|| self.back.pop().ok())?);
        Ok(())
    }
}

fn looked_for<T>(mut look: impl FnMut() -> Option<T>) -> Result<T> {
    /// This many looks pass between two at the clock.
    const LOOKS: u32 = 1 << 16;
    let mut deadline = None;
    loop {
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return Ok(found);
            }
            spin_loop();
        }
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        if Instant::now() > deadline {
            bail!("the other end did nothing");
        }
    }
}
