//! [`Client`]: a device at the other end, with many requests under way at a time.

mod connect;
mod pending;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use landfall_nbd::client::{Event, Failed, IssueError, Session};
use landfall_nbd::{Command, Export, Extent, ProtocolError, Replies};

use crate::server::Input;
use crate::stream::Stream;
pub use connect::{ConnectError, Options, export_of, exports_of};
pub use pending::Pending;
use pending::{Operation, Outcome};

/// What was received and not used yet has so much room.
const INPUT: usize = 256 << 10;
/// Data of writes up to this length is copied behind its request; longer data is sent from
/// where it lies.
const COPIED: usize = 16 << 10;
/// Requests that nobody waits for yet are sent when there are that many bytes of them.
const QUEUED: usize = 64 << 10;
/// Where reads have this many bytes each, heads are received with less than [`HEADS`] behind them.
const LONG_READ: usize = 64 << 10;
const HEADS: usize = 1 << 10;
/// More bytes than that are sent only where somebody reads: a server that answers does not
/// read meanwhile.
const UNREAD: usize = 16 << 10;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server says so.
    #[error("the server says: {0}")]
    Failed(#[from] Failed),
    /// It was not sent.
    #[error(transparent)]
    NotIssued(#[from] IssueError),
    /// It was not sent: its buffer is not as long as what it reads or writes.
    #[error("a request for {length} bytes has a buffer of {buffer}")]
    Buffer {
        /// What is read or written.
        length: u32,
        /// What there is room for.
        buffer: usize,
    },
    /// The server breaks the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The connection is over.
    #[error("the connection is over: {0}")]
    Gone(Arc<str>),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match &error {
            Error::Failed(failed) => Self::from_raw_os_error(failed.errno.number() as i32),
            Error::NotIssued(_) | Error::Buffer { .. } => {
                Self::new(io::ErrorKind::InvalidInput, error)
            }
            Error::Protocol(_) => Self::new(io::ErrorKind::InvalidData, error),
            Error::Gone(_) => Self::new(io::ErrorKind::ConnectionAborted, error),
        }
    }
}

/// A device at the other end.
///
/// Each operation gives a [`Pending`]: a future for any executor, and something to
/// [wait](Pending::wait) for. What was asked for leaves when somebody waits or polls, or when
/// there is much of it: this many small requests leave with one call. Buffers are given away
/// and come back; what is read lands in its buffer straight from the connection.
///
/// Threads that wait receive by themselves. A future needs a thread that receives: it is
/// started by the first poll.
///
/// Clones are the same connection, which ends with the last one and all that is pending.
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientState>,
    _goodbye: Arc<DisconnectOnDrop>,
}

/// Says goodbye when the last client is gone.
struct DisconnectOnDrop(Arc<ClientState>);

struct ClientState {
    stream: Arc<dyn Stream>,
    state: Mutex<State>,
    /// Operations are over, or nobody receives.
    changed: Condvar,
    /// Anyone who sends holds it.
    sending: Mutex<()>,
    has_thread: AtomicBool,
}

struct State {
    session: Session,
    operations: Vec<Option<Arc<Operation>>>,
    queue: Vec<Queued>,
    queued: usize,
    /// Bytes of reads that have not come.
    unread: usize,
    /// Somebody receives; else the input is here.
    input: Option<Input>,
    gone: Option<Error>,
}

/// Requests one behind another, and perhaps data that is sent from where it lies.
#[derive(Default)]
struct Queued {
    heads: Vec<u8>,
    data: Option<Arc<Vec<u8>>>,
}

impl Client {
    pub(crate) fn over(stream: Arc<dyn Stream>, session: Session, input: Input) -> Self {
        let state = State {
            session,
            operations: Vec::new(),
            queue: Vec::new(),
            queued: 0,
            unread: 0,
            input: Some(input),
            gone: None,
        };
        let shared = Arc::new(ClientState {
            stream,
            state: Mutex::new(state),
            changed: Condvar::new(),
            sending: Mutex::new(()),
            has_thread: AtomicBool::new(false),
        });
        Self { _goodbye: Arc::new(DisconnectOnDrop(Arc::clone(&shared))), shared }
    }

    /// What the server has said of the export, with the size that it has now.
    #[must_use]
    pub fn export(&self) -> Export {
        self.shared.state().session.export().clone()
    }

    /// The size that the device has now, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.shared.state().session.export().size
    }

    /// Why the connection is over, if it is.
    #[must_use]
    pub fn gone(&self) -> Option<Error> {
        self.shared.state().gone.clone()
    }

    /// Ends the connection without a goodbye: all that is under way fails for this reason, and so
    /// does whatever is asked for later. For a server that does not answer.
    pub fn end(&self, reason: &str) {
        self.shared.break_off(Error::Gone(reason.into()));
    }

    /// How the server answers.
    #[must_use]
    pub fn replies(&self) -> Replies {
        self.shared.state().session.replies()
    }

    /// Can [`status`](Self::status) be asked for?
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.shared.state().session.has_status()
    }

    /// Fills the buffer with the bytes at `offset`.
    pub fn read(&self, offset: u64, into: Vec<u8>) -> Pending<Vec<u8>> {
        match u32::try_from(into.len()) {
            Ok(length) => self.issue(Command::Read { offset, length, dont_fragment: false }, into),
            Err(_) => Pending::refused(self, too_long()),
        }
    }

    /// Writes the buffer at `offset`, and gives it back.
    pub fn write(&self, offset: u64, from: Vec<u8>) -> Pending<Vec<u8>> {
        self.write_with(offset, from, false)
    }

    /// The same; the bytes are on the medium when it is over.
    pub fn write_durably(&self, offset: u64, from: Vec<u8>) -> Pending<Vec<u8>> {
        self.write_with(offset, from, true)
    }

    fn write_with(&self, offset: u64, from: Vec<u8>, fua: bool) -> Pending<Vec<u8>> {
        match u32::try_from(from.len()) {
            Ok(length) => self.issue(Command::Write { offset, length, fua }, from),
            Err(_) => Pending::refused(self, too_long()),
        }
    }

    /// What was over before is on the medium when this is.
    pub fn flush(&self) -> Pending<()> {
        self.issue(Command::Flush, Vec::new())
    }

    /// These bytes are not needed any more.
    pub fn trim(&self, offset: u64, length: u64) -> Pending<()> {
        self.issue(Command::Trim { offset, length, fua: false }, Vec::new())
    }

    /// These bytes become zeroes. `no_hole`: blocks stay allocated for them.
    pub fn write_zeroes(&self, offset: u64, length: u64, no_hole: bool) -> Pending<()> {
        let (fua, fast_only) = (false, false);
        let command = Command::WriteZeroes { offset, length, fua, no_hole, fast_only };
        self.issue(command, Vec::new())
    }

    /// What is allocated from `offset` on, perhaps for less than `length`.
    pub fn status(&self, offset: u64, length: u64) -> Pending<Vec<Extent>> {
        self.issue(Command::BlockStatus { offset, length, one: false }, Vec::new())
    }

    /// Any command; a write of the bytes in `buffer`, a read into it.
    pub fn command(&self, command: Command, buffer: Vec<u8>) -> Pending<Vec<u8>> {
        self.issue(command, buffer)
    }

    /// The device becomes so long.
    pub fn resize(&self, size: u64) -> Pending<()> {
        self.issue(Command::Resize { size }, Vec::new())
    }

    fn issue<T: Outcome>(&self, command: Command, buffer: Vec<u8>) -> Pending<T> {
        if let Command::Read { length, .. } | Command::Write { length, .. } = command
            && length as usize != buffer.len()
        {
            return Pending::refused(self, Error::Buffer { length, buffer: buffer.len() });
        }
        let mut state = self.shared.state();
        if let Some(error) = &state.gone {
            return Pending::refused(self, error.clone());
        }
        let State { session, queue, .. } = &mut *state;
        if queue.last().is_none_or(|last| last.data.is_some()) {
            queue.push(Queued::default());
        }
        let last = queue.last_mut().expect("one was added");
        let before = last.heads.len();
        let cookie = match session.issue(&command, &mut last.heads) {
            Ok(cookie) => cookie,
            Err(error) => return Pending::refused(self, error.into()),
        };
        let is_write = matches!(command, Command::Write { .. });
        let operation = Arc::new(Operation::new(buffer));
        let mut bytes = 0;
        if is_write {
            let mut data = operation.lock();
            bytes = data.buffer.len();
            if bytes <= COPIED {
                last.heads.extend_from_slice(&data.buffer);
            } else {
                let sent = Arc::new(std::mem::take(&mut data.buffer));
                last.data = Some(Arc::clone(&sent));
                data.sent = Some(sent);
            }
        }
        bytes = bytes.max(last.heads.len() - before);
        state.queued += bytes;
        if let Command::Read { length, .. } = command {
            state.unread += length as usize;
            operation.lock().unread = length as usize;
        }
        let index = Session::index_of(cookie);
        if state.operations.len() <= index {
            state.operations.resize_with(index + 1, || None);
        }
        state.operations[index] = Some(Arc::clone(&operation));
        let is_much = state.queued >= QUEUED;
        drop(state);
        if is_much {
            self.shared.send();
        }
        Pending::of(self, operation)
    }

    /// Sends what was asked for and has not left yet.
    pub fn send(&self) {
        self.shared.send();
    }
}

const fn too_long() -> Error {
    Error::NotIssued(IssueError::TooLong(u32::MAX as u64))
}

impl ClientState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(self: &Arc<Self>) {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        if state.queued == 0 {
            return;
        }
        let queue = std::mem::take(&mut state.queue);
        let queued = std::mem::take(&mut state.queued);
        let needs_reader = queued + state.unread > UNREAD && queued > UNREAD;
        drop(state);
        if needs_reader {
            self.start_thread();
        }
        for Queued { heads, data } in queue {
            let sent = self.stream.write(&heads, data.as_deref().map_or(&[], Vec::as_slice));
            if let Err(error) = sent {
                self.break_off(Error::Gone(error.to_string().into()));
                return;
            }
        }
    }

    /// Somebody has to receive who does nothing else.
    fn start_thread(self: &Arc<Self>) {
        if self.has_thread.swap(true, Ordering::AcqRel) {
            // It may sleep since nothing was under way.
            self.changed.notify_all();
            return;
        }
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("landfall-nbd".into());
        let started = thread.spawn(move || {
            let mut state = shared.state();
            while state.gone.is_none() {
                if state.session.in_flight() == 0 || state.input.is_none() {
                    state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                state = shared.receive(state);
            }
        });
        if let Err(error) = started {
            self.break_off(Error::Gone(format!("no thread can be started: {error}").into()));
        }
    }

    /// The connection is over, and so is all that is under way.
    fn break_off(&self, error: Error) {
        let mut state = self.state();
        let error = state.gone.get_or_insert(error).clone();
        let operations = std::mem::take(&mut state.operations);
        state.queue.clear();
        state.queued = 0;
        drop(state);
        self.stream.shut_down();
        for operation in operations.into_iter().flatten() {
            operation.finish(Err(error.clone()));
        }
        self.changed.notify_all();
    }

    /// Receives for all who wait: takes the input, and puts it back when something has come.
    fn receive<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(mut input) = state.input.take() else { return state };
        drop(state);
        let received = self.receive_some(&mut input);
        if let Err(error) = received {
            self.break_off(error);
        }
        let mut state = self.state();
        state.input = Some(input);
        self.changed.notify_all();
        state
    }

    /// Waits for bytes once, and uses all that came.
    fn receive_some(&self, input: &mut Input) -> Result<(), Error> {
        let gone = |error: io::Error| Error::Gone(error.to_string().into());
        let mut has_waited = false;
        loop {
            let mut state = self.state();
            let next = state.session.handle(input.bytes())?;
            // The session gives the cookie of what is over to the next request, so the operation
            // leaves its place before anybody can ask for more.
            let over = match &next {
                Some((_, Event::Done { cookie, .. })) => {
                    let index = Session::index_of(*cookie);
                    let over = state.operations.get_mut(index).and_then(Option::take);
                    // What a read that failed has not brought does not come any more.
                    state.unread -= over.as_ref().map_or(0, |over| over.lock().unread);
                    over
                }
                _ => None,
            };
            // What is received beyond a head is copied once more: of long reads that is little.
            let is_long = state.unread >= LONG_READ * state.session.in_flight().max(1);
            let most = if is_long { HEADS } else { usize::MAX };
            drop(state);
            let Some((used, event)) = next else {
                if has_waited {
                    return Ok(());
                }
                has_waited = true;
                if !input.fill_up_to(most, &*self.stream).map_err(gone)? {
                    return Err(Error::Gone("the server has ended it".into()));
                }
                continue;
            };
            input.consume(used);
            match event {
                Event::Data { cookie, at, len } => self.land(cookie, (at, len), input)?,
                Event::Hole { cookie, at, len } => {
                    let mut state = self.state();
                    state.unread -= len as usize;
                    if let Some(operation) = state.operation(cookie) {
                        let mut data = operation.lock();
                        data.unread -= len as usize;
                        data.buffer[at as usize..][..len as usize].fill(0);
                    }
                }
                Event::Status { cookie, extents } => {
                    if let Some(operation) = self.state().operation(cookie) {
                        operation.lock().extents.extend(extents);
                    }
                }
                Event::Failing { .. } => {}
                Event::Done { result, .. } => {
                    if let Some(operation) = over {
                        operation.finish(result.map_err(Error::Failed));
                    }
                }
            }
        }
    }

    /// Data goes to its buffer: what is here already is copied, the rest is received there.
    fn land(&self, cookie: u64, (at, len): (u32, u32), input: &mut Input) -> Result<(), Error> {
        let (at, len) = (at as usize, len as usize);
        let operation = {
            let mut state = self.state();
            state.unread -= len;
            state.operation(cookie)
        };
        let Some(operation) = operation else {
            return Err(Error::Gone("the connection is being ended".into()));
        };
        let mut buffer = {
            let mut data = operation.lock();
            data.unread -= len;
            std::mem::take(&mut data.buffer)
        };
        let place = &mut buffer[at..at + len];
        let here = input.bytes().len().min(len);
        place[..here].copy_from_slice(&input.bytes()[..here]);
        input.consume(here);
        let mut rest = &mut place[here..];
        let mut result = Ok(());
        while !rest.is_empty() {
            match self.stream.read(rest) {
                Ok(0) => {
                    result = Err(Error::Gone("the server has ended it in mid-reply".into()));
                    break;
                }
                Ok(count) => rest = &mut rest[count..],
                Err(error) => {
                    result = Err(Error::Gone(error.to_string().into()));
                    break;
                }
            }
        }
        operation.lock().buffer = buffer;
        result
    }
}

impl State {
    fn operation(&mut self, cookie: u64) -> Option<Arc<Operation>> {
        self.operations.get(Session::index_of(cookie)).cloned().flatten()
    }
}

impl Drop for DisconnectOnDrop {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.gone.is_none() {
            let mut goodbye = Queued::default();
            if state.session.issue(&Command::Disconnect, &mut goodbye.heads).is_ok() {
                state.queued += goodbye.heads.len();
                state.queue.push(goodbye);
            }
            drop(state);
            self.0.send();
            self.0.break_off(Error::Gone("the client has ended it".into()));
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("export", &self.export()).finish_non_exhaustive()
    }
}
