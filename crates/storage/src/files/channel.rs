//! [`Channel`]: memory at both ends in which requests and replies take turns, over any fabric.

use std::time::{Duration, Instant};

use landfall::clan::{Access, Cookie, Error, Fabric, Local, Remote, Rights, Stage, Tripwire};
use landfall_files::{Layout, ProtocolError};

/// How long a thread sleeps before it looks whether its peer is still there, and whether it shall
/// end.
const SLICE: Duration = Duration::from_millis(100);

/// Looks between two readings of the clock.
const LOOKS: u32 = 32;

/// What went wrong with a channel: it is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error(transparent)]
    Clan(#[from] Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the other side has closed the connection")]
    Closed,
}

/// What keeps a channel up, and knows when the other side has ended it.
pub(crate) trait Connection: Send {
    fn is_over(&self) -> bool;
}

/// Memory of this side that the other one writes, before the two know each other.
pub(crate) struct Half<F: Fabric> {
    fabric: F,
    local: F::Local,
    layout: Layout,
    pub(crate) cookie: Cookie,
}

impl<F: Fabric> Half<F> {
    pub(crate) fn open(fabric: &F, layout: Layout) -> Result<Self, Error> {
        let (local, cookie) =
            fabric.expose(layout.bytes().next_multiple_of(4096), Rights::Write)?;
        Ok(Self { fabric: fabric.clone(), local, layout, cookie })
    }

    pub(crate) fn join(
        self,
        theirs: &Cookie,
        spin: Duration,
        connection: Box<dyn Connection>,
    ) -> Result<Channel<F>, Error> {
        let Self { fabric, local, layout, .. } = self;
        let (expected, found) = (local.len(), theirs.len());
        if expected != found {
            return Err(Error::Mismatch { expected, found });
        }
        let remote = fabric.map(theirs)?;
        let tripwire = fabric.watch(&local, 0..8, Access::Write, Some(&remote))?;
        let spin = Spin { most: spin, budget: spin };
        Ok(Channel { fabric, local, remote, tripwire, layout, spin, connection })
    }
}

/// One request and its reply at a time.
pub(crate) struct Channel<F: Fabric> {
    // The connection goes first: then the other side learns that it was ended, not broken.
    connection: Box<dyn Connection>,
    fabric: F,
    local: F::Local,
    remote: F::Remote,
    tripwire: F::Tripwire,
    layout: Layout,
    spin: Spin,
}

/// How long it pays to look before sleeping: as long as may be where messages come in that time,
/// less and less where they do not, because nobody asks, or others need the processor.
struct Spin {
    most: Duration,
    budget: Duration,
}

impl Spin {
    /// A message came after this time.
    fn learn(&mut self, waited: Duration) {
        self.budget = match waited < self.most {
            true => self.most.min(self.budget * 2 + self.most / 8),
            false => self.budget / 2,
        };
    }
}

impl<F: Fabric> Channel<F> {
    pub(crate) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Writes a message and its data into the memory of the other side.
    pub(crate) fn send(
        &mut self,
        number: u32,
        message: &[u8],
        data: &[u8],
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        let at = self.layout.data_at();
        if !data.is_empty() {
            self.put(deadline, |remote| remote.write(at, data))?;
        }
        self.put(deadline, |remote| remote.write(Layout::MESSAGE_AT, message))?;
        let flag = Layout::flag(number, message.len());
        self.put(deadline, |remote| remote.store(Layout::FLAG_AT, flag))?;
        Ok(self.remote.commit()?)
    }

    /// A write that is done again when there is room for it.
    fn put(
        &mut self,
        deadline: Instant,
        mut write: impl FnMut(&mut F::Remote) -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            match write(&mut self.remote) {
                Err(Error::Busy) => {
                    self.remote.commit()?;
                    self.remote.wait_for(Stage::Room, Some(deadline))?;
                }
                other => return other,
            }
        }
    }

    /// Waits for the message of this number; nothing: it is not there yet.
    pub(crate) fn receive(
        &mut self,
        number: u32,
        deadline: Instant,
        message: &mut Vec<u8>,
    ) -> Result<bool, ChannelError> {
        let start = Instant::now();
        if self.spin(number, message, start)? {
            self.spin.learn(start.elapsed());
            return Ok(true);
        }
        loop {
            self.tripwire.arm();
            if self.look(number, message)? {
                self.tripwire.disarm();
                self.spin.learn(start.elapsed());
                return Ok(true);
            }
            let now = Instant::now();
            if now >= deadline {
                self.tripwire.disarm();
                return Ok(false);
            }
            self.fabric.wait(&[&self.tripwire], Some(deadline.min(now + SLICE)))?;
            if self.look(number, message)? {
                self.spin.learn(start.elapsed());
                return Ok(true);
            }
            self.remote.check()?;
            if self.connection.is_over() {
                return Err(ChannelError::Closed);
            }
        }
    }

    fn spin(
        &mut self,
        number: u32,
        message: &mut Vec<u8>,
        start: Instant,
    ) -> Result<bool, ChannelError> {
        loop {
            for _ in 0..LOOKS {
                if self.look(number, message)? {
                    return Ok(true);
                }
                self.fabric.relax();
            }
            if start.elapsed() >= self.spin.budget {
                return Ok(false);
            }
            // The other side may need this processor.
            std::thread::yield_now();
        }
    }

    fn look(&self, number: u32, message: &mut Vec<u8>) -> Result<bool, ChannelError> {
        let flag = self.local.load(Layout::FLAG_AT)?;
        let Some(len) = Layout::read_flag(flag, number)? else {
            return Ok(false);
        };
        message.resize(len, 0);
        self.local.copy_out(Layout::MESSAGE_AT, message)?;
        Ok(true)
    }

    /// The data that came with the message.
    pub(crate) fn data(&self, len: usize, into: &mut Vec<u8>) -> Result<(), ChannelError> {
        into.resize(len, 0);
        Ok(self.local.copy_out(self.layout.data_at(), into)?)
    }
}
