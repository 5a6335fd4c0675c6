//! The side that is called.

use std::time::Instant;

use super::{BUFFER, Config, FLAG, Flag, buffer_len, fits, get};
use crate::clan::layer::any::{Waitable, readiness};
use crate::clan::layer::place::{Place, View};
use crate::clan::layer::waiting::{Connect, ConnectionEnd, Half, Joint, Waiting, unless_lost};
use crate::clan::{Access, Error, Fabric, Local, Misbehaviour, Remote, WORD};

/// Answers calls of one client. Who serves many has one of these for each.
#[derive(Debug)]
pub struct Server<F: Fabric> {
    side: Serving<F>,
    waiting: Waiting<F>,
}

#[derive(Debug)]
struct Serving<F: Fabric> {
    local: F::Local,
    remote: F::Remote,
    config: Config,
    /// The number of the last call that was taken.
    call: u32,
    state: State,
    reply: Vec<u8>,
    /// How long the reply is that is in the client's buffer.
    reply_len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a request.
    Idle,
    /// A request was taken; it is answered with nothing if nobody does better.
    Taken,
    /// The reply is ready, and not written.
    Ready,
    /// It is in the buffer, and the flag is not set.
    Filled,
    /// It is written, and the client is not told for certain.
    Written,
}

impl<F: Fabric> ConnectionEnd<F> for Serving<F> {
    fn remote(&mut self) -> &mut F::Remote {
        &mut self.remote
    }
}

impl<F: Fabric> Connect<F> for Server<F> {
    type Config = Config;

    fn ours(config: &Config) -> Result<u64, Error> {
        Ok(buffer_len(config.request))
    }

    fn theirs(config: &Config) -> Result<u64, Error> {
        Ok(buffer_len(config.reply))
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let wire = fabric.watch(&local, FLAG..FLAG + WORD, Access::Write, Some(&remote))?;
        let (call, state, reply, reply_len) = (0, State::Idle, Vec::new(), 0);
        let side = Serving { local, remote, config, call, state, reply, reply_len };
        Ok(Self { side, waiting: Waiting::new(fabric, config.wait, wire) })
    }
}

impl<F: Fabric> Server<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`].
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// The request that is there, if one is.
    ///
    /// # Errors
    /// The way of an earlier reply is full, or the peer is gone or misbehaves.
    pub fn try_next(&mut self) -> Result<Option<Request<'_, F>>, Error> {
        let found = self.side.take()?;
        Ok(found.map(|len| Request { side: &mut self.side, len }))
    }

    /// The next request.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next), or the deadline is over.
    pub fn next(&mut self, deadline: Option<Instant>) -> Result<Request<'_, F>, Error> {
        let Self { side, waiting } = self;
        let len = waiting.until(side, deadline, Serving::take)?;
        Ok(Request { side, len })
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_async(&mut self) -> Result<Request<'_, F>, Error> {
        let Self { side, waiting } = self;
        let len = waiting.reached(side, Serving::take).await?;
        Ok(Request { side, len })
    }

    /// Answers one call with what `answer` puts behind the empty reply. The reply has
    /// left when this returns.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), or the reply is too long (then the client
    /// gets an empty one).
    pub fn serve_one(
        &mut self,
        deadline: Option<Instant>,
        answer: impl FnOnce(&[u8], &mut Vec<u8>),
    ) -> Result<(), Error> {
        let mut reply = std::mem::take(&mut self.side.reply);
        reply.clear();
        let request = self.next(deadline)?;
        let bytes = request.to_vec()?;
        answer(&bytes, &mut reply);
        let answered = request.reply(&reply);
        let Self { side, waiting } = self;
        let sent = waiting.until(side, deadline, |side| side.send().map(Some));
        answered.and(sent)
    }
}

impl<F: Fabric> Server<F> {
    /// A copy of the next request, to be answered with [`reply_to_kept`](Self::reply_to_kept)
    /// whenever the answer is there. The next request answers it with nothing.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn next_to_keep(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>, Error> {
        let Self { side, waiting } = self;
        let len = waiting.until(side, deadline, Serving::take)?;
        get(&side.local, Flag { call: 0, len })
    }

    /// Answers the request that was kept. The reply has left when this returns. That the client
    /// is gone is told by the next request: it may have seen the reply, and gone.
    ///
    /// # Errors
    /// No request waits for an answer, or the reply is too long.
    pub fn reply_to_kept(&mut self, reply: &[u8]) -> Result<(), Error> {
        let Self { side, waiting } = self;
        if side.state != State::Taken {
            return Err(Error::BadConfig("no request waits for an answer"));
        }
        fits(reply, side.config.reply)?;
        side.reply.clear();
        side.reply.extend_from_slice(reply);
        side.state = State::Ready;
        match waiting.until(side, None, |side| side.send().map(Some)) {
            Err(error) if error.is_gone() => Ok(()),
            other => other,
        }
    }
}

impl<F: Fabric> Waitable<F> for Server<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.is_asked())
    }
}

impl<F: Fabric> Serving<F> {
    /// The length of the next request. From here on it is answered, some way or other.
    fn take(&mut self) -> Result<Option<u32>, Error> {
        match self.send() {
            Err(error) if !error.is_gone() => return Err(error),
            // Or its client is gone, and nobody else asks here.
            _ => {}
        }
        let there = match self.look()? {
            Some(flag) => Some(flag),
            None => unless_lost(&self.remote, || self.look())?,
        };
        let Some(flag) = there else { return Ok(None) };
        self.local.store(FLAG, 0)?;
        self.call = flag.call;
        self.state = State::Taken;
        Ok(Some(flag.len))
    }

    /// Is a request there? It stays.
    fn is_asked(&mut self) -> Result<Option<Flag>, Error> {
        match self.send() {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
        match self.look()? {
            Some(flag) => Ok(Some(flag)),
            None => unless_lost(&self.remote, || self.look()),
        }
    }

    fn look(&self) -> Result<Option<Flag>, Error> {
        let word = self.local.load(FLAG)?;
        match Flag::from_word(word, self.config.request)? {
            Some(flag) if flag.call != self.call.wrapping_add(1) => {
                Err(Error::PeerMisbehaved(Misbehaviour::Flag(word)))
            }
            other => Ok(other),
        }
    }

    /// Sends the reply, if one is owed. What the way is too full for is done by the next
    /// call.
    fn send(&mut self) -> Result<(), Error> {
        if self.state == State::Taken {
            self.reply.clear();
            self.state = State::Ready;
        }
        if self.state == State::Ready {
            self.remote.write(BUFFER, &self.reply)?;
            self.reply_len = self.reply.len() as u32;
            self.state = State::Filled;
        }
        if self.state == State::Filled {
            let flag = Flag { call: self.call, len: self.reply_len };
            self.remote.store(FLAG, flag.word())?;
            self.state = State::Written;
        }
        if self.state == State::Written {
            self.remote.commit()?;
            self.state = State::Idle;
        }
        Ok(())
    }
}

/// A request, where it landed. When it is dropped without a reply, the client gets an
/// empty one.
#[derive(Debug)]
pub struct Request<'a, F: Fabric> {
    side: &'a mut Serving<F>,
    len: u32,
}

impl<F: Fabric> Request<'_, F> {
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

    /// Replies with what `fill` writes into the memory of the client, where the reply will be
    /// read: how many bytes it says. The request is there meanwhile.
    ///
    /// # Errors
    /// Those of `fill`, or the reply is too long: then the client gets an empty one.
    ///
    /// ```
    /// # use landfall::clan::Threads;
    /// # use landfall::clan::layer::rpc::{Client, Config, Server};
    /// # let (here, there) = Threads::pair()?;
    /// # let config = Config::new(1024, 1024);
    /// # let (client, server) = (Client::open(&here, config)?, Server::open(&there, config)?);
    /// # let (to_server, to_client) = (server.cookie(), client.cookie());
    /// # let mut client = client.connect(&to_server)?;
    /// # let mut server = server.connect(&to_client)?;
    /// let serving = std::thread::spawn(move || {
    ///     let request = server.next(None)?;
    ///     request.reply_in_place(|request, reply| {
    ///         let [a, b] = request.get::<[u64; 2]>(0)?;
    ///         reply.put(0, &(a + b)).map(|()| 8)
    ///     })
    /// });
    /// let mut call = client.loan(None)?;
    /// call.place().put(0, &[40u64, 2])?;
    /// let sum = call.send(16, None)?;
    /// assert_eq!(sum.get::<u64>(0)?, 42);
    /// serving.join().unwrap()?;
    /// # Ok::<(), landfall::clan::Error>(())
    /// ```
    pub fn reply_in_place(
        self,
        fill: impl FnOnce(View<'_, F::Local>, &mut Place<'_, F::Remote>) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let Serving { local, remote, config, .. } = &mut *self.side;
        let request = View::new(local, BUFFER, u64::from(self.len));
        let mut reply = Place::new(remote, BUFFER, u64::from(config.reply));
        let len = fill(request, &mut reply)? as u64;
        let most = u64::from(config.reply).min(u64::from(u32::MAX) - 1);
        if len > most {
            return Err(Error::TooLong { len, most });
        }
        self.side.reply_len = len as u32;
        self.side.state = State::Filled;
        Ok(())
    }

    /// Copies bytes of it out, from `at` on.
    ///
    /// # Errors
    /// They are not all in the request.
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
        get(&self.side.local, Flag { call: 0, len: self.len })
    }

    /// Replies. If the send buffer is full just now, the server's next call sends it.
    ///
    /// # Errors
    /// The reply is too long: then the client gets an empty one.
    pub fn reply(self, reply: &[u8]) -> Result<(), Error> {
        fits(reply, self.side.config.reply)?;
        self.side.reply.clear();
        self.side.reply.extend_from_slice(reply);
        self.side.state = State::Ready;
        Ok(())
    }
}

impl<F: Fabric> Drop for Request<'_, F> {
    fn drop(&mut self) {
        // What cannot be sent now is sent by the server's next call.
        let _ = self.side.send();
    }
}
