//! Queue pairs over CLAN: messages that are sent out of registered memory into posted room, and
//! words that are written into the memory of the other end without it.

use anyhow::{Context, Result, ensure};
use landfall::clan::Rights;
use landfall::clan::shared::SharedNode;
use landfall::verbs::clan::{
    Address, CompletionQueue, MemoryKey, QueuePair, QueuePairOptions, Region,
};
use landfall::verbs::{
    Completion, CompletionQueue as _, Operation, QueuePair as _, RdmaQueuePair as _, RdmaRequest,
    ReceiveRequest, SendRequest,
};

use crate::clan::{loans, open_with};
use crate::sides::{End, Kind, Opened, PATIENCE, Place, Waiting, Work};

/// A receipt is this long.
const RECEIPT: u64 = 64;

/// Messages.
pub(crate) fn open(work: &Work, place: &Place) -> Result<Opened> {
    match (work.kind, work.waiting) {
        // Memory that was copied in is what registered memory saves.
        (Kind::Elements | Kind::Stream, _) => Ok(None),
        // A wait for completions spins before it sleeps.
        (_, Waiting::Sleep) => Ok(None),
        _ => open_with(work, place, |node, work, place| {
            Ok(Box::new(Pair::open(&node, place, work)?))
        }),
    }
}

/// Writes into the memory of the other end, which looks there.
pub(crate) fn open_writes(work: &Work, place: &Place) -> Result<Opened> {
    match (work.kind, work.waiting) {
        (Kind::ThereAndBack, Waiting::Spin) => open_with(work, place, |node, work, place| {
            Ok(Box::new(Writes::open(&node, place, work)?))
        }),
        _ => Ok(None),
    }
}

fn connect(node: &SharedNode, place: &Place) -> Result<(CompletionQueue, QueuePair<SharedNode>)> {
    let done = CompletionQueue::new(64)?;
    let half = QueuePair::open(node, &done, &done, &QueuePairOptions::default())?;
    let theirs: Address = place.exchange(half.address())?;
    let pair = half.connect(&theirs)?;
    place.meet()?;
    Ok((done, pair))
}

struct Pair {
    done: CompletionQueue,
    pair: QueuePair<SharedNode>,
    /// The message, and the room: as many pieces as there are messages under way.
    out: Region<SharedNode>,
    room: Region<SharedNode>,
    bytes: u64,
    pieces: u64,
    /// Sends that have not completed.
    sends: u64,
    received: u64,
    spins: bool,
    is_filled: bool,
}

impl Pair {
    fn open(node: &SharedNode, place: &Place, work: &Work) -> Result<Self> {
        let (bytes, pieces) = (work.bytes as u64, u64::from(loans(work.bytes)));
        let (done, pair) = connect(node, place)?;
        let out = Region::new(node, bytes, Rights::Read)?;
        let room = Region::new(node, bytes.max(RECEIPT) * pieces, Rights::Write)?;
        let spins = work.waiting == Waiting::Spin;
        let (sends, received, is_filled) = (0, 0, false);
        let mut all =
            Self { done, pair, out, room, bytes, pieces, sends, received, spins, is_filled };
        (0..pieces).try_for_each(|piece| all.post(piece))?;
        // Neither sends before the other has room.
        place.meet()?;
        Ok(all)
    }

    fn post(&mut self, piece: u64) -> Result<()> {
        let at = self.at(piece);
        let into = [self.room.part(at..at + self.bytes)?];
        Ok(self.pair.post_receive(&ReceiveRequest { id: piece, into: &into })?)
    }

    fn at(&self, piece: u64) -> u64 {
        piece * self.bytes.max(RECEIPT)
    }

    fn next(&mut self, operation: Operation) -> Result<Completion> {
        loop {
            let next = match self.spins {
                true => loop {
                    match self.done.poll() {
                        Some(next) => break next,
                        None => std::hint::spin_loop(),
                    }
                },
                false => self.done.wait_for(PATIENCE)?.context("nothing completes")?,
            };
            ensure!(next.status.is_success(), "{}", next.status);
            if next.operation == Operation::Send {
                self.sends -= 1;
            }
            if next.operation == operation {
                return Ok(next);
            }
        }
    }
}

impl End for Pair {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        while self.sends >= self.pieces {
            self.next(Operation::Send)?;
        }
        // The message is one and the same but for its number.
        let new = if self.is_filled { &message[..8] } else { message };
        self.is_filled = true;
        self.out.copy_in(0, new)?;
        let from = [self.out.part(0..message.len() as u64)?];
        self.pair.post_send(&SendRequest::new(0, &from))?;
        self.sends += 1;
        // A number is written over when its message is sent.
        while self.sends > 0 {
            self.next(Operation::Send)?;
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        let came = self.next(Operation::Receive)?;
        let at = self.at(came.id);
        let len = came.len as usize;
        for from in (0..len).step_by(into.len()).rev() {
            let part = into.len().min(len - from);
            self.room.copy_out(at + from as u64, &mut into[..part])?;
        }
        self.received += 1;
        self.post(came.id)
    }
}

struct Writes {
    _done: CompletionQueue,
    pair: QueuePair<SharedNode>,
    out: Region<SharedNode>,
    /// Which the other end writes; the last word of it says how many it has written.
    shared: Region<SharedNode>,
    key: MemoryKey,
    sent: u64,
    seen: u64,
}

impl Writes {
    fn open(node: &SharedNode, place: &Place, work: &Work) -> Result<Self> {
        let (done, pair) = connect(node, place)?;
        let region = || Region::new(node, work.bytes as u64 + 8, Rights::Write);
        let (out, shared) = (region()?, region()?);
        let key = place.exchange(pair.share(&shared)?)?;
        Ok(Self { _done: done, pair, out, shared, key, sent: 0, seen: 0 })
    }
}

impl End for Writes {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.sent += 1;
        self.out.copy_in(0, message)?;
        self.out.copy_in(message.len() as u64, &self.sent.to_le_bytes())?;
        let cut = message.len() as u64;
        // The number follows what it is about.
        for (id, range) in [(0, 0..cut), (1, cut..cut + 8)] {
            let at = range.start;
            let local = [self.out.part(range)?];
            let (key, is_signaled, immediate) = (self.key, false, None);
            let write = RdmaRequest { id, local: &local, key, at, is_signaled, immediate };
            self.pair.post_write(&write)?;
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        use landfall::clan::Local;
        let began = std::time::Instant::now();
        for look in 1_u32.. {
            let number = self.shared.local().load(into.len() as u64)?;
            if number > self.seen {
                self.seen = number;
                break;
            }
            ensure!(look % (1 << 20) != 0 || began.elapsed() < PATIENCE, "no word came");
            std::hint::spin_loop();
        }
        Ok(self.shared.copy_out(0, into)?)
    }
}
