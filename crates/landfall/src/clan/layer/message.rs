//! One message at a time, with two flags (section 4.1 of the paper).
//!
//! The sender has `tx_ready`: the buffer is free. The receiver has the buffer and
//! `rx_ready`: a message is in it; here it holds the length plus one, so that a
//! message of any length costs one flag. Each clears its own flag and sets the
//! other's. Sender and receiver take turns: for a flow of messages there are
//! [`queue`](super::queue) and [`multipart`](super::multipart).
//!
//! A sleeping receiver is woken early: it also watches the first word of the buffer,
//! which the sender of a long message publishes before the rest, so that getting up
//! and the arrival of the message overlap (section 4.3).
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::message::{Config, Receiver, Sender};
//!
//! let (here, there) = Threads::pair()?;
//! let config = Config::new(4096);
//! let (sender, receiver) = (Sender::open(&here, config)?, Receiver::open(&there, config)?);
//! let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
//! let (mut sender, mut receiver) = (sender.connect(&to_receiver)?, receiver.connect(&to_sender)?);
//!
//! sender.send(b"every byte has its place", None)?;
//! let message = receiver.receive(None)?;
//! assert_eq!(message.to_vec()?, b"every byte has its place");
//! # Ok::<(), landfall::clan::Error>(())
//! ```

use std::time::Instant;

use landfall_transport::Wait;

use super::any::{Waitable, readiness};
use super::place::{Place, View};
use super::waiting::{Connect, ConnectionEnd, Half, Joint, Waiting, unless_lost};
use crate::clan::{Access, Error, Fabric, Local, Misbehaviour, Remote, WORD};

/// The sender's flag, in the sender's memory.
const TX_READY: u64 = 0;
/// The receiver's flag, in the receiver's memory.
const RX_READY: u64 = 0;
/// Where the buffer begins, in the receiver's memory: on another cache line.
const BUFFER: u64 = 64;
/// Messages from this length on announce themselves.
const LONG: usize = 8192;
/// By this many bytes.
const FIRST: usize = 64;

/// What both sides agree on.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    capacity: u32,
    wait: Wait,
}

impl Config {
    /// Messages of up to this many bytes.
    #[must_use]
    pub const fn new(capacity: u32) -> Self {
        Self { capacity, wait: Wait::BALANCED }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    fn receiver_len(&self) -> u64 {
        BUFFER + u64::from(self.capacity).next_multiple_of(WORD)
    }
}

/// Sends messages.
#[derive(Debug)]
pub struct Sender<F: Fabric> {
    side: Sending<F>,
    waiting: Waiting<F>,
}

#[derive(Debug)]
struct Sending<F: Fabric> {
    local: F::Local,
    remote: F::Remote,
    capacity: u32,
    progress: Progress,
}

/// How far a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// Nothing of it is there for certain.
    None,
    /// The first word is there, and the sleeping receiver gets up.
    Begun,
    /// It is in the buffer.
    Filled,
    /// The flag is set, and the receiver is not told for certain.
    Flagged,
}

impl<F: Fabric> ConnectionEnd<F> for Sending<F> {
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}

impl<F: Fabric> Connect<F> for Sender<F> {
    type Config = Config;

    fn ours(_: &Config) -> Result<u64, Error> {
        Ok(WORD)
    }

    fn theirs(config: &Config) -> Result<u64, Error> {
        Ok(config.receiver_len())
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        local.store(TX_READY, 1)?;
        let wire = fabric.watch(&local, TX_READY..TX_READY + WORD, Access::Write, Some(&remote))?;
        let side = Sending { local, remote, capacity: config.capacity, progress: Progress::None };
        Ok(Self { side, waiting: Waiting::new(fabric, config.wait, wire) })
    }
}

impl<F: Fabric> Sender<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`].
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// Sends a message if the buffer is free; true if it was. After [`Error::Busy`]
    /// it is called again with the same message.
    ///
    /// # Errors
    /// It is too long, the send buffer is full, or the peer is gone or misbehaves.
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool, Error> {
        self.side.send(message).map(|sent| sent.is_some())
    }

    /// Sends a message once the buffer is free.
    ///
    /// # Errors
    /// Those of [`try_send`](Self::try_send), or the deadline is over.
    pub fn send(&mut self, message: &[u8], deadline: Option<Instant>) -> Result<(), Error> {
        let Self { side, waiting } = self;
        let again = ResetOnDrop(side);
        waiting.until(&mut *again.0, deadline, |side| side.send(message))
    }

    /// The buffer of the receiver, once it is free: write a message into it, then
    /// [publish](Loan::publish) it.
    ///
    /// # Errors
    /// The deadline is over, or the peer is gone or misbehaves.
    ///
    /// ```
    /// # use landfall::clan::Threads;
    /// # use landfall::clan::layer::message::{Config, Receiver, Sender};
    /// # let (here, there) = Threads::pair()?;
    /// # let config = Config::new(4096);
    /// # let (sender, receiver) = (Sender::open(&here, config)?, Receiver::open(&there, config)?);
    /// # let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
    /// # let (mut sender, mut receiver) = (sender.connect(&to_receiver)?, receiver.connect(&to_sender)?);
    /// let mut loan = sender.loan(None)?;
    /// loan.place().write(0, b"written once")?;
    /// loan.publish(12)?;
    /// assert_eq!(receiver.receive(None)?.view().get::<[u8; 12]>(0)?, *b"written once");
    /// # Ok::<(), landfall::clan::Error>(())
    /// ```
    pub fn loan(&mut self, deadline: Option<Instant>) -> Result<Loan<'_, F>, Error> {
        let Self { side, waiting } = self;
        waiting.until(side, deadline, Sending::free)?;
        Ok(Loan(side))
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_send`](Self::try_send).
    pub async fn send_async(&mut self, message: &[u8]) -> Result<(), Error> {
        let Self { side, waiting } = self;
        let again = ResetOnDrop(side);
        waiting.reached(&mut *again.0, |side| side.send(message)).await
    }
}

/// The buffer of the receiver, which is free. Dropped before it is
/// [published](Self::publish), it stays free.
#[derive(Debug)]
pub struct Loan<'a, F: Fabric>(&'a mut Sending<F>);

impl<F: Fabric> Loan<'_, F> {
    /// The buffer, to be written into.
    pub fn place(&mut self) -> Place<'_, F::Remote> {
        let len = u64::from(self.0.capacity);
        Place::new(&mut self.0.remote, BUFFER, len)
    }

    /// Its first `len` bytes are the message.
    ///
    /// # Errors
    /// They do not fit, the send buffer is full (what was written is lost), or the peer is gone.
    pub fn publish(self, len: usize) -> Result<(), Error> {
        let most = u64::from(self.0.capacity);
        if len as u64 > most {
            return Err(Error::TooLong { len: len as u64, most });
        }
        let ResetOnDrop(side) = &mut ResetOnDrop(self.0);
        side.progress = Progress::Filled;
        side.finish(len as u64)
    }
}

/// A message that was given up is begun again by the next one, unless the receiver has
/// it already.
struct ResetOnDrop<'a, F: Fabric>(&'a mut Sending<F>);

impl<F: Fabric> Drop for ResetOnDrop<'_, F> {
    fn drop(&mut self) {
        if self.0.progress < Progress::Flagged {
            self.0.progress = Progress::None;
        }
    }
}

impl<F: Fabric> Sending<F> {
    fn send(&mut self, message: &[u8]) -> Result<Option<()>, Error> {
        let (len, most) = (message.len() as u64, u64::from(self.capacity));
        if len > most {
            return Err(Error::TooLong { len, most });
        }
        if self.progress < Progress::Flagged && self.is_free()?.is_none() {
            return Ok(None);
        }
        self.put(message).map(Some)
    }

    /// Is the buffer free?
    fn is_free(&self) -> Result<Option<()>, Error> {
        if is_set(&self.local)? {
            return Ok(Some(()));
        }
        unless_lost(&self.remote, || Ok(is_set(&self.local)?.then_some(())))
    }

    /// The same, after a message that the receiver was not told of for certain.
    fn free(&mut self) -> Result<Option<()>, Error> {
        if self.progress == Progress::Flagged {
            self.finish(0)?;
        }
        self.is_free()
    }

    /// What the way is too full for is done by the next call, and what is done is not
    /// done again: else it would never end on a narrow way.
    fn put(&mut self, message: &[u8]) -> Result<(), Error> {
        let (first, rest) = message.split_at(if message.len() < LONG { 0 } else { FIRST });
        if self.progress < Progress::Begun {
            if !first.is_empty() {
                // The receiver gets up while the rest is on its way.
                self.remote.write(BUFFER, first)?;
                self.remote.commit()?;
            }
            self.progress = Progress::Begun;
        }
        if self.progress < Progress::Filled {
            self.remote.write(BUFFER + first.len() as u64, rest)?;
            self.progress = Progress::Filled;
        }
        self.finish(message.len() as u64)
    }

    /// The message is in the buffer: sets the flag, unless it is, and tells the receiver.
    fn finish(&mut self, len: u64) -> Result<(), Error> {
        if self.progress < Progress::Flagged {
            self.local.store(TX_READY, 0)?;
            if let Err(error) = self.remote.store(RX_READY, len + 1) {
                self.local.store(TX_READY, 1)?;
                return Err(error);
            }
            self.progress = Progress::Flagged;
        }
        self.remote.commit()?;
        self.progress = Progress::None;
        Ok(())
    }
}

fn is_set<L: Local>(local: &L) -> Result<bool, Error> {
    match local.load(TX_READY)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::PeerMisbehaved(Misbehaviour::Flag(other))),
    }
}

/// Receives messages.
#[derive(Debug)]
pub struct Receiver<F: Fabric> {
    side: Receiving<F>,
    waiting: Waiting<F>,
}

#[derive(Debug)]
struct Receiving<F: Fabric> {
    local: F::Local,
    remote: F::Remote,
    capacity: u32,
    /// The buffer is free, and the sender is not told for certain.
    owes: bool,
}

impl<F: Fabric> ConnectionEnd<F> for Receiving<F> {
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}

impl<F: Fabric> Connect<F> for Receiver<F> {
    type Config = Config;

    fn ours(config: &Config) -> Result<u64, Error> {
        Ok(config.receiver_len())
    }

    fn theirs(_: &Config) -> Result<u64, Error> {
        Ok(WORD)
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let end = local.len().min(BUFFER + WORD);
        let wire = fabric.watch(&local, RX_READY..end, Access::Write, Some(&remote))?;
        let side = Receiving { local, remote, capacity: config.capacity, owes: false };
        Ok(Self { side, waiting: Waiting::new(fabric, config.wait, wire) })
    }
}

impl<F: Fabric> Receiver<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`].
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// The message that is there, if one is.
    ///
    /// # Errors
    /// The peer is gone or misbehaves.
    pub fn try_receive(&mut self) -> Result<Option<Message<'_, F>>, Error> {
        let found = self.side.look()?;
        Ok(found.map(|len| Message { side: &mut self.side, len }))
    }

    /// The next message.
    ///
    /// # Errors
    /// Those of [`try_receive`](Self::try_receive), or the deadline is over.
    pub fn receive(&mut self, deadline: Option<Instant>) -> Result<Message<'_, F>, Error> {
        let Self { side, waiting } = self;
        let len = waiting.until(side, deadline, Receiving::look)?;
        Ok(Message { side, len })
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_receive`](Self::try_receive).
    pub async fn receive_async(&mut self) -> Result<Message<'_, F>, Error> {
        let Self { side, waiting } = self;
        let len = waiting.reached(side, Receiving::look).await?;
        Ok(Message { side, len })
    }
}

impl<F: Fabric> Waitable<F> for Receiver<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.look())
    }
}

impl<F: Fabric> Receiving<F> {
    /// The length of the message that is there.
    fn look(&mut self) -> Result<Option<u32>, Error> {
        if self.owes {
            // Once the sender is gone, nobody waits for the buffer.
            match self.release() {
                Err(error) if !error.is_gone() => return Err(error),
                _ => {}
            }
        }
        if let Some(len) = self.len()? {
            return Ok(Some(len));
        }
        unless_lost(&self.remote, || self.len())
    }

    fn len(&self) -> Result<Option<u32>, Error> {
        let Some(len) = self.local.load(RX_READY)?.checked_sub(1) else { return Ok(None) };
        match u32::try_from(len).ok().filter(|len| *len <= self.capacity) {
            Some(len) => Ok(Some(len)),
            None => {
                let most = u64::from(self.capacity);
                Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }))
            }
        }
    }

    fn release(&mut self) -> Result<(), Error> {
        self.remote.store(TX_READY, 1)?;
        self.remote.commit()?;
        self.owes = false;
        Ok(())
    }
}

/// A message, where it landed. The buffer is free again when this is dropped.
#[derive(Debug)]
pub struct Message<'a, F: Fabric> {
    side: &'a mut Receiving<F>,
    len: u32,
}

impl<F: Fabric> Message<'_, F> {
    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Has it none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its bytes, where they lie.
    #[must_use]
    pub const fn view(&self) -> View<'_, F::Local> {
        View::new(&self.side.local, BUFFER, self.len as u64)
    }

    /// Copies bytes of it out, from `at` on.
    ///
    /// # Errors
    /// They are not all in the message.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        if at.checked_add(into.len()).is_none_or(|end| end > self.len()) {
            let (offset, len, size) = (at as u64, into.len() as u64, u64::from(self.len));
            return Err(Error::OutOfBounds { offset, len, size });
        }
        self.side.local.copy_out(BUFFER + at as u64, into)
    }

    /// A copy of the whole.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

impl<F: Fabric> Drop for Message<'_, F> {
    fn drop(&mut self) {
        // Ours is cleared first: after the other flag the next message may come.
        // What fails is done again by the next look.
        self.side.owes = true;
        if self.side.local.store(RX_READY, 0).is_ok() {
            let _ = self.side.release();
        }
    }
}
