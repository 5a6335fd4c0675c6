//! The side that calls.

use std::time::Instant;

use super::{BUFFER, Config, FLAG, Flag, buffer_len, fits, get};
use crate::clan::layer::waiting::{Connect, Half, Joint, Side, Waiting, unless_lost};
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

impl<F: Fabric> Side<F> for Calling<F> {
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
    /// The request is too long, the deadline is over, or the peer is gone or mad.
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

impl<F: Fabric> Calling<F> {
    /// Waits for the reply of a call that was given up.
    fn finish_earlier(&mut self) -> Result<Option<()>, Error> {
        match self.state {
            State::Idle => Ok(Some(())),
            State::Written | State::Called => Ok(self.reply()?.map(drop)),
        }
    }

    /// What was written before the way was full is not written again: else it would
    /// never end on a narrow way.
    fn begin(&mut self, request: &[u8], is_filled: &mut bool) -> Result<Option<()>, Error> {
        let len = fits(request, self.config.request)?;
        let flag = Flag { call: self.call.wrapping_add(1), len };
        if !*is_filled {
            self.remote.write(BUFFER, request)?;
            *is_filled = true;
        }
        self.remote.store(FLAG, flag.word())?;
        self.call = flag.call;
        self.state = State::Written;
        Ok(Some(()))
    }

    fn reply(&mut self) -> Result<Option<Vec<u8>>, Error> {
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
        let reply = get(&self.local, flag)?;
        self.state = State::Idle;
        Ok(Some(reply))
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
