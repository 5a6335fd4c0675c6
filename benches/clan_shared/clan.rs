//! CLAN over shared memory: words of the fabric, its queue and its stream.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::clan::layer::{queue, stream};
use landfall::clan::shared::{SharedConfig, SharedLocal, SharedNode, SharedRemote, SharedTripwire};
use landfall::clan::{Access, Cookie, Fabric, Local, Remote, Rights, Tripwire, WORD};
use landfall_transport::Wait;

use crate::sides::{End, Opened, PATIENCE, Place, Waiting, Work};

/// Elements that are published together, or after so long.
const BATCH: u32 = 64;
const WITHIN: Duration = Duration::from_micros(20);
/// Places of the queue, and bytes of the stream.
const PLACES: u32 = 4096;
const RING: u64 = 512 << 10;
/// Where a message begins, behind its number.
const MESSAGE: u64 = 64;

/// Where nodes meet; goes with the last of them.
struct Folder(PathBuf);

impl Folder {
    fn new(number: u64) -> Result<Self> {
        let name = format!("landfall-clan-shared-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to anyone who cleans up temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(work: &Work, place: &Place) -> Result<Opened> {
    open_with(work, place, 1)
}

pub(crate) fn open_batched(work: &Work, place: &Place) -> Result<Opened> {
    if work.there_and_back || work.is_stream {
        return Ok(None);
    }
    open_with(work, place, BATCH)
}

fn open_with(work: &Work, place: &Place, batch: u32) -> Result<Opened> {
    // One after the other, so that they take different numbers there.
    let (folder, node) = if place.is_first {
        let folder = Arc::new(Folder::new(place.number)?);
        let node = SharedNode::open(SharedConfig::new(&folder.0))?;
        place.exchange(Some(Arc::clone(&folder)))?;
        (folder, node)
    } else {
        let folder = place.exchange(None::<Arc<Folder>>)?.context("the other end has no folder")?;
        let node = SharedNode::open(SharedConfig::new(&folder.0))?;
        (folder, node)
    };
    let wait = match work.waiting {
        Waiting::Spin => Wait::Spin,
        Waiting::Balanced => Wait::BALANCED,
        Waiting::Sleep => Wait::Block,
    };
    let end: Box<dyn End> = if work.there_and_back {
        Box::new(Words::open(node, place, work, folder)?)
    } else if !work.is_stream {
        let config = queue::Config::new(u32::try_from(work.bytes)?, PLACES);
        Box::new(Queue::open(&node, place, config.batch(batch, WITHIN).wait(wait), folder)?)
    } else {
        Box::new(Stream::open(&node, place, stream::Config::new(RING).wait(wait), folder)?)
    };
    Ok(Some(end))
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
    _folder: Arc<Folder>,
}

impl Words {
    fn open(node: SharedNode, place: &Place, work: &Work, folder: Arc<Folder>) -> Result<Self> {
        let (local, cookie) = node.expose(256, Rights::Write)?;
        let remote = node.map(&place.exchange(cookie)?)?;
        let wire = node.watch(&local, 0..WORD, Access::Write, Some(&remote))?;
        // Both have mapped it before either begins.
        place.meet()?;
        let sleeps = work.waiting == Waiting::Sleep;
        Ok(Self { node, local, remote, wire, sleeps, sent: 0, seen: 0, _folder: folder })
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

struct Queue {
    half: Half,
    _folder: Arc<Folder>,
}

/// One of them sends, the other receives.
enum Half {
    Sends(queue::Sender<SharedNode>),
    Receives(queue::Receiver<SharedNode>),
    /// It has received all and let go of its side, which is what tells the sender.
    Gone,
}

impl Queue {
    fn open(
        node: &SharedNode,
        place: &Place,
        config: queue::Config,
        folder: Arc<Folder>,
    ) -> Result<Self> {
        let meet = |cookie: Cookie| place.exchange(cookie);
        let half = if place.is_first {
            let half = queue::Sender::open(node, config)?;
            let theirs = meet(half.cookie())?;
            Half::Sends(half.connect(&theirs)?)
        } else {
            let half = queue::Receiver::open(node, config)?;
            let theirs = meet(half.cookie())?;
            Half::Receives(half.connect(&theirs)?)
        };
        Ok(Self { half, _folder: folder })
    }
}

impl End for Queue {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let Half::Sends(sender) = &mut self.half else { bail!("this end receives") };
        if !sender.try_put(message)? {
            sender.put(message, deadline())?;
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        let Half::Receives(receiver) = &mut self.half else { bail!("this end sends") };
        if !receiver.try_get(into)? {
            receiver.get(into, deadline())?;
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<()> {
        let Half::Sends(sender) = &mut self.half else { bail!("this end receives") };
        sender.publish()?;
        Ok(sender.drain(deadline())?)
    }

    fn confirm(&mut self, _: &[u8]) -> Result<()> {
        self.half = Half::Gone;
        Ok(())
    }
}

struct Stream {
    /// Nothing once it has received all: letting go of its side is what tells the sender.
    sides: Option<(stream::Reader<SharedNode>, stream::Writer<SharedNode>)>,
    _folder: Arc<Folder>,
}

impl Stream {
    fn open(
        node: &SharedNode,
        place: &Place,
        config: stream::Config,
        folder: Arc<Folder>,
    ) -> Result<Self> {
        let opening = stream::Stream::open(node, config)?;
        let theirs = place.exchange(opening.cookies())?;
        Ok(Self { sides: Some(opening.connect(&theirs)?.into_split()), _folder: folder })
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
