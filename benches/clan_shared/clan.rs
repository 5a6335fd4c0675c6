//! CLAN over shared memory: words of the fabric, its queue, copied and in place, and its stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::clan::layer::{queue, stream};
use landfall::clan::shared::{SharedConfig, SharedLocal, SharedNode, SharedRemote, SharedTripwire};
use landfall::clan::{Access, Cookie, Fabric, Local, Remote, Rights, Tripwire, WORD};
use landfall_testkit::TemporaryFolder;
use landfall_transport::Wait;

use crate::sides::{End, Kind, Opened, PATIENCE, Place, Waiting, Work};

/// Elements that are published together, or after so long.
const BATCH: u32 = 64;
const WITHIN: Duration = Duration::from_micros(20);
/// Places of the queue, and bytes of the stream.
const PLACES: u32 = 4096;
const RING: u64 = 512 << 10;
/// Messages under way where they are written and read where they lie: two where they are long.
pub(crate) fn loans(bytes: usize) -> u32 {
    if bytes > 1 << 20 { 2 } else { 8 }
}
/// Where a message begins, behind its number.
const MESSAGE: u64 = 64;

/// Words of the fabric, which no layer is above.
pub(crate) fn open_words(work: &Work, place: &Place) -> Result<Opened> {
    match work.kind {
        Kind::ThereAndBack => open_with(work, place, |node, work, place| {
            Ok(Box::new(Words::open(node, place, work)?))
        }),
        _ => Ok(None),
    }
}

/// Each element is published by itself; bytes are those of a stream.
pub(crate) fn open(work: &Work, place: &Place) -> Result<Opened> {
    match work.kind {
        Kind::ThereAndBack | Kind::Elements => open_with(work, place, |node, work, place| {
            Ok(Box::new(Queues::open(&node, place, work, elements(work)?.singly())?))
        }),
        Kind::Stream => open_with(work, place, |node, work, place| {
            let config = stream::Config::new(RING).wait(wait(work));
            Ok(Box::new(Stream::open(&node, place, config)?))
        }),
        Kind::InPlace => open_with(work, place, |node, work, place| {
            Ok(Box::new(InPlace::open(&node, place, work)?))
        }),
    }
}

pub(crate) fn open_batched(work: &Work, place: &Place) -> Result<Opened> {
    match work.kind {
        Kind::Elements => open_with(work, place, |node, work, place| {
            let config = elements(work)?.batch(BATCH, WITHIN);
            Ok(Box::new(Queues::open(&node, place, work, config)?))
        }),
        _ => Ok(None),
    }
}

/// One end, and the folder where its node is.
struct Housed {
    end: Box<dyn End>,
    _folder: Arc<TemporaryFolder>,
}

impl End for Housed {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.end.send(message)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        self.end.receive(into)
    }

    fn finish(&mut self, receipt: &mut [u8]) -> Result<()> {
        self.end.finish(receipt)
    }

    fn confirm(&mut self, receipt: &[u8]) -> Result<()> {
        self.end.confirm(receipt)
    }
}

pub(crate) fn open_with(
    work: &Work,
    place: &Place,
    make: impl FnOnce(SharedNode, &Work, &Place) -> Result<Box<dyn End>>,
) -> Result<Opened> {
    // One after the other, so that they take different numbers there.
    let (folder, node) = if place.is_first {
        let folder = Arc::new(TemporaryFolder::new("clan-shared"));
        let node = SharedNode::open(SharedConfig::new(folder.path()))?;
        place.exchange(Some(Arc::clone(&folder)))?;
        (folder, node)
    } else {
        let folder =
            place.exchange(None::<Arc<TemporaryFolder>>)?.context("the other end has no folder")?;
        let node = SharedNode::open(SharedConfig::new(folder.path()))?;
        (folder, node)
    };
    Ok(Some(Box::new(Housed { end: make(node, work, place)?, _folder: folder })))
}

/// A queue of elements that are copied in and out.
fn elements(work: &Work) -> Result<queue::Config> {
    Ok(queue::Config::new(u32::try_from(work.bytes)?, PLACES))
}

const fn wait(work: &Work) -> Wait {
    match work.waiting {
        Waiting::Spin => Wait::Spin,
        Waiting::Balanced => Wait::BALANCED,
        Waiting::Sleep => Wait::Block,
    }
}

fn deadline() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

/// A message is one word, or lies behind the word that announces it.
struct Words {
    node: SharedNode,
    local: SharedLocal,
    remote: SharedRemote,
    wire: SharedTripwire,
    sleeps: bool,
    sent: u64,
    seen: u64,
}

impl Words {
    fn open(node: SharedNode, place: &Place, work: &Work) -> Result<Self> {
        let (local, cookie) = node.expose(256, Rights::Write)?;
        let remote = node.map(&place.exchange(cookie)?)?;
        let wire = node.watch(&local, 0..WORD, Access::Write, Some(&remote))?;
        // Both have mapped it before either begins.
        place.meet()?;
        let sleeps = work.waiting == Waiting::Sleep;
        Ok(Self { node, local, remote, wire, sleeps, sent: 0, seen: 0 })
    }

    /// Waits for a word other than the last.
    fn hear(&mut self) -> Result<u64> {
        /// This many looks pass between two at the clock.
        const LOOKS: u32 = 1 << 16;
        let deadline_at = Instant::now() + PATIENCE;
        for look in 1_u32.. {
            if look % LOOKS == 0 && Instant::now() > deadline_at {
                break;
            }
            let word = self.local.load(0)?;
            if word != self.seen {
                self.seen = word;
                return Ok(word);
            }
            if self.sleeps {
                self.wire.arm();
                if self.local.load(0)? == self.seen {
                    self.remote.check()?;
                    self.node.wait(&[&self.wire], deadline())?;
                }
                self.wire.disarm();
            } else {
                self.node.relax();
            }
        }
        bail!("no word came")
    }
}

impl End for Words {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.sent += 1;
        if let Ok(word) = <[u8; 8]>::try_from(message) {
            // One more, for memory is all zero at first.
            self.remote.store(0, u64::from_le_bytes(word).wrapping_add(1))?;
        } else {
            self.remote.write(MESSAGE, message)?;
            self.remote.store(0, self.sent)?;
        }
        Ok(self.remote.commit()?)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        let word = self.hear()?;
        if let Ok(into) = <&mut [u8; 8]>::try_from(&mut *into) {
            *into = word.wrapping_sub(1).to_le_bytes();
        } else {
            self.local.copy_out(MESSAGE, into)?;
        }
        Ok(())
    }
}

/// A queue each way, or one.
struct Queues {
    sender: Option<queue::Sender<SharedNode>>,
    /// Nothing once it has received all: letting go of its side is what tells the sender.
    receiver: Option<queue::Receiver<SharedNode>>,
}

impl Queues {
    fn open(node: &SharedNode, place: &Place, work: &Work, config: queue::Config) -> Result<Self> {
        let config = config.wait(wait(work));
        let is_two_way = work.kind == Kind::ThereAndBack;
        let mut ends = Self { sender: None, receiver: None };
        for is_there in [true, false] {
            if !is_there && !is_two_way {
                break;
            }
            if is_there == place.is_first {
                ends.sender = Some(sender(node, place, config)?);
            } else {
                ends.receiver = Some(receiver(node, place, config)?);
            }
        }
        Ok(ends)
    }

    fn sender(&mut self) -> Result<&mut queue::Sender<SharedNode>> {
        self.sender.as_mut().context("this end receives")
    }
}

fn sender(
    node: &SharedNode,
    place: &Place,
    config: queue::Config,
) -> Result<queue::Sender<SharedNode>> {
    let half = queue::Sender::open(node, config)?;
    let theirs: Cookie = place.exchange(half.cookie())?;
    Ok(half.connect(&theirs)?)
}

fn receiver(
    node: &SharedNode,
    place: &Place,
    config: queue::Config,
) -> Result<queue::Receiver<SharedNode>> {
    let half = queue::Receiver::open(node, config)?;
    let theirs: Cookie = place.exchange(half.cookie())?;
    Ok(half.connect(&theirs)?)
}

impl End for Queues {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let sender = self.sender()?;
        if !sender.try_put(message)? {
            sender.put(message, deadline())?;
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        let receiver = self.receiver.as_mut().context("this end sends")?;
        if !receiver.try_get(into)? {
            receiver.get(into, deadline())?;
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<()> {
        let sender = self.sender()?;
        sender.publish()?;
        Ok(sender.drain(deadline())?)
    }

    fn confirm(&mut self, _: &[u8]) -> Result<()> {
        self.receiver = None;
        Ok(())
    }
}

/// Elements that are written and read where they lie.
struct InPlace {
    queues: Queues,
    bytes: usize,
}

impl InPlace {
    fn open(node: &SharedNode, place: &Place, work: &Work) -> Result<Self> {
        let config = queue::Config::new(u32::try_from(work.bytes)?, loans(work.bytes)).singly();
        let queues = Queues::open(node, place, work, config)?;
        Ok(Self { queues, bytes: work.bytes })
    }
}

impl End for InPlace {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut loan = self.queues.sender()?.loan(deadline())?;
        loan.write(0, message)?;
        Ok(loan.publish()?)
    }

    fn receive(&mut self, block: &mut [u8]) -> Result<()> {
        let receiver = self.queues.receiver.as_mut().context("this end sends")?;
        let elements = receiver.elements(deadline())?;
        for at in (0..self.bytes).step_by(block.len()).rev() {
            elements.read(at, block)?;
        }
        elements.take_only(1);
        Ok(())
    }

    fn finish(&mut self, receipt: &mut [u8]) -> Result<()> {
        self.queues.finish(receipt)
    }

    fn confirm(&mut self, receipt: &[u8]) -> Result<()> {
        self.queues.confirm(receipt)
    }
}

struct Stream {
    /// Nothing once it has received all: letting go of its side is what tells the sender.
    sides: Option<(stream::Reader<SharedNode>, stream::Writer<SharedNode>)>,
}

impl Stream {
    fn open(node: &SharedNode, place: &Place, config: stream::Config) -> Result<Self> {
        let opening = stream::Stream::open(node, config)?;
        let theirs = place.exchange(opening.cookies())?;
        Ok(Self { sides: Some(opening.connect(&theirs)?.into_split()) })
    }
}

impl End for Stream {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let (_, writer) = self.sides.as_mut().context("this end has gone")?;
        let (mut done, deadline) = (0, deadline());
        while done < message.len() {
            done += writer.write_some(&message[done..], deadline)?;
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        let (reader, _) = self.sides.as_mut().context("this end has gone")?;
        let (mut done, deadline) = (0, deadline());
        while done < into.len() {
            done += reader.read_some(&mut into[done..], deadline)?;
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<()> {
        let (_, writer) = self.sides.as_mut().context("this end has gone")?;
        Ok(writer.drain(deadline())?)
    }

    fn confirm(&mut self, _: &[u8]) -> Result<()> {
        self.sides = None;
        Ok(())
    }
}
