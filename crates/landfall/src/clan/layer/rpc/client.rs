//! The side that calls.

use std::time::Instant;

use super::{BUFFER, Config, FLAG, Flag, buffer_len, fits, get};
use crate::clan::layer::place::{Place, View};
use crate::clan::layer::waiting::{Connect, ConnectionEnd, Half, Joint, Waiting, unless_lost};
use crate::clan::{Access, Error, Fabric, Local, Misbehaviour, Remote, WORD};

/// Calls, one at a time.
#[derive(Debug)]
pub struct Client<F: Fabric> {
    side: Calling<F>,
    waiting: Waiting<F>,
}

#[derive(Debug)]
struct Calling<F: Fabric> {
    local: F::Local,
    remote: F::Remote,
    config: Config,
    /// The number of the last call.
    call: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The buffers are free.
    Idle,
    /// The request is written, and the server is not told for certain.
    Written,
    /// The server has it.
    Called,
}

impl<F: Fabric> ConnectionEnd<F> for Calling<F> {
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}

impl<F: Fabric> Connect<F> for Client<F> {
    type Config = Config;

    fn ours(config: &Config) -> Result<u64, Error> {
        Ok(buffer_len(config.reply))
    }

    fn theirs(config: &Config) -> Result<u64, Error> {
        Ok(buffer_len(config.request))
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let wire = fabric.watch(&local, FLAG..FLAG + WORD, Access::Write, Some(&remote))?;
        let side = Calling { local, remote, config, call: 0, state: State::Idle };
        Ok(Self { side, waiting: Waiting::new(fabric, config.wait, wire) })
    }
}

impl<F: Fabric> Client<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`].
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// Calls, and gives the reply. After the deadline the call may still be carried
    /// out; its reply will be dropped, and the next call waits for that.
    ///
    /// # Errors
    /// The request is too long, the deadline is over, or the peer is gone or misbehaves.
    pub fn call(&mut self, request: &[u8], deadline: Option<Instant>) -> Result<Vec<u8>, Error> {
        let Self { side, waiting } = self;
        fits(request, side.config.request)?;
        waiting.until(side, deadline, Calling::finish_earlier)?;
        let mut is_filled = false;
        waiting.until(side, deadline, |side| side.begin(request, &mut is_filled))?;
        waiting.until(side, deadline, Calling::reply)
    }

    /// The same for a task. When the future is dropped, it is as after a deadline.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    pub async fn call_async(&mut self, request: &[u8]) -> Result<Vec<u8>, Error> {
        let Self { side, waiting } = self;
        fits(request, side.config.request)?;
        waiting.reached(side, Calling::finish_earlier).await?;
        let mut is_filled = false;
        waiting.reached(side, |side| side.begin(request, &mut is_filled)).await?;
        waiting.reached(side, Calling::reply).await
    }
}

/// The request of a call, in the memory of the server: write into it, then
/// [send](Self::send) it. Dropped before that, nothing was called.
#[derive(Debug)]
pub struct Call<'a, F: Fabric>(&'a mut Client<F>);

impl<'a, F: Fabric> Call<'a, F> {
    /// The place of the request, to be written into.
    pub fn place(&mut self) -> Place<'_, F::Remote> {
        let Calling { remote, config, .. } = &mut self.0.side;
        Place::new(remote, BUFFER, u64::from(config.request))
    }

    /// Calls with the first `len` bytes of it, and gives the reply where it lies: it is there
    /// until the next call.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub fn send(self, len: usize, deadline: Option<Instant>) -> Result<View<'a, F::Local>, Error> {
        let Client { side, waiting } = self.0;
        let most = u64::from(side.config.request).min(u64::from(u32::MAX) - 1);
        if len as u64 > most {
            return Err(Error::TooLong { len: len as u64, most });
        }
        waiting.until(side, deadline, |side| side.begin_filled(len as u32))?;
        let flag = waiting.until(side, deadline, Calling::reply_in_place)?;
        Ok(View::new(&side.local, BUFFER, u64::from(flag.len)))
    }
}

impl<F: Fabric> Client<F> {
    /// The place of the next request, in the memory of the server, once it is free. See
    /// [`Request::reply_in_place`](super::Request::reply_in_place) for an example.
    ///
    /// # Errors
    /// The deadline is over, or the peer is gone or misbehaves.
    pub fn loan(&mut self, deadline: Option<Instant>) -> Result<Call<'_, F>, Error> {
        let Self { side, waiting } = self;
        waiting.until(side, deadline, Calling::finish_earlier)?;
        Ok(Call(self))
    }
}

impl<F: Fabric> Calling<F> {
    /// Waits for the reply of a call that was given up.
    fn finish_earlier(&mut self) -> Result<Option<()>, Error> {
        match self.state {
            State::Idle => Ok(Some(())),
            State::Written | State::Called => Ok(self.reply()?.map(drop)),
        }
    }

    /// What was written before the send buffer was full is not written again: else it would
    /// never end on a narrow way.
    fn begin(&mut self, request: &[u8], is_filled: &mut bool) -> Result<Option<()>, Error> {
        let len = fits(request, self.config.request)?;
        if !*is_filled {
            self.remote.write(BUFFER, request)?;
            *is_filled = true;
        }
        self.begin_filled(len)
    }

    /// The request is in the buffer.
    fn begin_filled(&mut self, len: u32) -> Result<Option<()>, Error> {
        let flag = Flag { call: self.call.wrapping_add(1), len };
        self.remote.store(FLAG, flag.word())?;
        self.call = flag.call;
        self.state = State::Written;
        Ok(Some(()))
    }

    fn reply(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.reply_in_place()? {
            Some(flag) => get(&self.local, flag).map(Some),
            None => Ok(None),
        }
    }

    /// The reply is there, and stays until the next call.
    fn reply_in_place(&mut self) -> Result<Option<Flag>, Error> {
        if self.state == State::Written {
            match self.remote.commit() {
                Ok(()) => self.state = State::Called,
                // It may have been seen before it was published, and answered by a
                // server that has gone since.
                Err(gone) if gone.is_temporary() || self.look()?.is_none() => return Err(gone),
                Err(_) => {}
            }
        }
        let there = self.look()?;
        let there = match there {
            Some(flag) => Some(flag),
            None => unless_lost(&self.remote, || self.look())?,
        };
        let Some(flag) = there else { return Ok(None) };
        self.local.store(FLAG, 0)?;
        self.state = State::Idle;
        Ok(Some(flag))
    }

    fn look(&self) -> Result<Option<Flag>, Error> {
        let word = self.local.load(FLAG)?;
        match Flag::from_word(word, self.config.reply)? {
            Some(flag) if flag.call != self.call => {
                Err(Error::PeerMisbehaved(Misbehaviour::Flag(word)))
            }
            other => Ok(other),
        }
    }
}
