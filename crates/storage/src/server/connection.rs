//! [`serve`]: one client, from its greeting to its goodbye.
//!
//! One thread reads requests and carries out what needs no waiting: reads that the page cache
//! has, and writes into it. Requests that came together are answered together, with one call.
//! What may wait for a medium goes to the [workers](super::workers), so that it holds up
//! nobody.

use std::cell::Cell;
#[cfg(feature = "uring")]
use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_nbd::server::{Config, Incoming, Negotiation, Session, Step, Ticket};
use landfall_nbd::{Command, Errno, ProtocolError};
#[cfg(feature = "family")]
use sockets_compat::Landed;

use super::exports::{ExportTable, Offered};
use super::input::Input;
use super::output::{Outlet, Output, ReadOutcome};
#[cfg(feature = "uring")]
use super::ring::RingReader;
use super::tally::Tally;
use super::workers::Workers;
use crate::stream::Stream;

/// What was received and not used yet has so much room.
const INPUT: usize = 1 << 20;
/// Behind a write as long as this, the next head is received alone: data that follow it are written
/// from where they land.
const LONG_WRITE: u64 = 32 << 10;
/// This many jobs of one client may be under way, and this many bytes of their data.
const MOST_JOBS: usize = 128;
const MOST_BYTES: usize = 64 << 20;
/// How long a client may think about what it wants.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a connection ended otherwise than by the client's goodbye.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the client went away in mid-request")]
    Vanished,
}

/// What all connections of a server share.
pub(crate) struct Common {
    pub(crate) exports: ExportTable,
    pub(crate) workers: Workers,
    pub(crate) config: Config,
    pub(crate) is_ending: Arc<AtomicBool>,
    pub(crate) secure: Option<Secure>,
    pub(crate) tally: Tally,
}

/// Makes a stream one with TLS.
pub(crate) type Secure = Box<dyn Fn(Arc<dyn Stream>) -> io::Result<Arc<dyn Stream>> + Send + Sync>;

/// Serves a client until it goes.
pub(crate) fn serve(stream: Arc<dyn Stream>, common: &Arc<Common>) -> Result<(), Ended> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut input = Input::new(INPUT);
    let (stream, session) = match negotiate(stream, &mut input, common)? {
        Some(agreed) => agreed,
        None => return Ok(()),
    };
    stream.set_read_timeout(None)?;
    let Some(offered) = common.exports.get(&session.export().name) else { return Ok(()) };
    let shared = ConnectionState {
        stream,
        session,
        offered,
        writing: Mutex::new(()),
        jobs: Mutex::new(Jobs::default()),
        fewer: Condvar::new(),
    };
    let shared = Arc::new(shared);
    let mut connection = Connection {
        shared: Arc::clone(&shared),
        common: Arc::clone(common),
        input,
        output: Output::new(),
        head: Vec::with_capacity(64),
        reads_heads_alone: false,
        #[cfg(feature = "uring")]
        ring: OnceCell::new(),
    };
    let ended = connection.run();
    // What was begun is ended: writes have to reach the device whether or not the client
    // waits for its answer.
    shared.wait_for_jobs(0, 0);
    shared.stream.shut_down();
    ended
}

thread_local! {
    /// For the data of the next read of this thread: fresh memory has to be cleared, and its pages
    /// come one by one. A read that fails sends none of what is in it.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A longer buffer is not kept.
const LONGEST_KEPT: usize = 4 << 20;

fn kept_buffer() -> Vec<u8> {
    BUFFER.take()
}

fn keep_buffer(buffer: Vec<u8>) {
    if buffer.capacity() <= LONGEST_KEPT {
        BUFFER.set(buffer);
    }
}

/// The stream of a client that has chosen its export.
type Agreed = (Arc<dyn Stream>, Session);

/// Gives the stream, which may have become one with TLS, and what was agreed on.
fn negotiate(
    mut stream: Arc<dyn Stream>,
    input: &mut Input,
    common: &Common,
) -> Result<Option<Agreed>, Ended> {
    let mut negotiation = Negotiation::new(common.config);
    loop {
        let (used, step) = negotiation.handle(input.bytes(), &common.exports)?;
        input.consume(used);
        if let Some(output) = negotiation.poll_output() {
            stream.write(&output, &[])?;
        }
        match step {
            Step::More if used > 0 => {}
            Step::More => {
                if !input.fill(&*stream)? {
                    return Ok(None);
                }
            }
            Step::StartTls => {
                let Some(secure) = &common.secure else { return Err(Ended::Vanished) };
                if !input.bytes().is_empty() {
                    return Err(ProtocolError::Malformed("bytes in the open before TLS").into());
                }
                stream = secure(stream)?;
                negotiation.secured();
            }
            Step::Transmission(session) => return Ok(Some((stream, session))),
            Step::Ended => return Ok(None),
        }
    }
}

#[derive(Default)]
struct Jobs {
    count: usize,
    bytes: usize,
}

/// What the thread of a connection and its jobs share.
struct ConnectionState {
    stream: Arc<dyn Stream>,
    session: Session,
    offered: Arc<Offered>,
    /// Anyone who writes a reply holds it.
    writing: Mutex<()>,
    jobs: Mutex<Jobs>,
    fewer: Condvar,
}

impl Outlet for ConnectionState {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(bytes, &[])
    }

    #[cfg(feature = "family")]
    fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}

impl ConnectionState {
    fn send(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.stream.write(head, payload)
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_jobs(&self, count: usize, bytes: usize) {
        let mut jobs = self.jobs();
        while jobs.count > count || jobs.bytes > bytes {
            jobs = self.fewer.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Carries out a command that has no payload any more, and replies. Gives whether it
    /// succeeded.
    fn carry_out(&self, ticket: Ticket, command: Command) -> bool {
        let (device, session, mut head) = (&*self.offered.device, &self.session, Vec::new());
        let mut data = kept_buffer();
        let done = match command {
            Command::Read { offset, length, .. } => {
                data.resize(length as usize, 0);
                device.read(offset, &mut data).map(|()| {
                    session.data(&mut head, ticket, offset, length, true);
                })
            }
            Command::BlockStatus { offset, length, one } => {
                let most = if one { 1 } else { 1024 };
                device.extents(offset, length, most).map(|extents| {
                    session.status(&mut head, ticket, &extents);
                })
            }
            // The data of a write is there.
            Command::Write { .. } => device.flush(),
            Command::Flush => device.flush(),
            Command::Trim { offset, length, fua } => {
                device.trim(offset, length).and_then(|()| if fua { device.flush() } else { Ok(()) })
            }
            Command::Cache { offset, length } => device.cache(offset, length),
            Command::WriteZeroes { offset, length, fua, no_hole, fast_only } => device
                .write_zeroes(offset, length, !no_hole, fast_only)
                .and_then(|()| if fua { device.flush() } else { Ok(()) }),
            Command::Resize { size } => device.resize(size),
            Command::Disconnect => Ok(()),
        };
        let succeeded = done.is_ok();
        match done {
            Ok(()) if head.is_empty() => session.done(&mut head, ticket),
            Ok(()) => {}
            Err(error) => session.error(&mut head, ticket, errno(&error), &error.to_string()),
        }
        let has_data = succeeded && matches!(command, Command::Read { .. });
        let payload = if has_data { &data[..] } else { &[] };
        if self.send(&head, payload).is_err() {
            // Anyone who reads hears of it.
            self.stream.shut_down();
        }
        keep_buffer(data);
        succeeded
    }
}

fn errno(error: &io::Error) -> Errno {
    match (error.raw_os_error(), error.kind()) {
        (Some(number), _) => Errno::from_os(number),
        (None, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Errno::NO_SPACE,
        (None, io::ErrorKind::Unsupported) => Errno::NOT_SUPPORTED,
        (None, io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof) => Errno::INVALID,
        _ => Errno::IO,
    }
}

/// A job under way; it counts as one however it ends.
struct Job {
    shared: Arc<ConnectionState>,
    bytes: usize,
}

impl Drop for Job {
    fn drop(&mut self) {
        let mut jobs = self.shared.jobs();
        jobs.count -= 1;
        jobs.bytes -= self.bytes;
        drop(jobs);
        self.shared.fewer.notify_all();
    }
}

impl Job {
    fn carry_out(self, ticket: Ticket, command: Command, common: &Common) {
        if !self.shared.carry_out(ticket, command) {
            common.tally.error();
        }
    }
}

/// A read that waits for the medium of a file.
#[cfg(feature = "uring")]
pub(super) struct ReadJob {
    job: Job,
    common: Arc<Common>,
    ticket: Ticket,
    offset: u64,
    length: u32,
}

#[cfg(feature = "uring")]
impl ReadJob {
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) const fn len(&self) -> usize {
        self.length as usize
    }

    /// Appends the answer.
    pub(super) fn answer(&self, bytes: &[u8], out: &mut Vec<u8>) {
        self.common.tally.waits_in_ring();
        self.job.shared.session.data(out, self.ticket, self.offset, self.length, true);
        out.extend_from_slice(bytes);
    }

    /// Sends the answer, whose bytes are in memory that the stream sends from. False: it can not.
    #[cfg(feature = "family")]
    pub(super) fn answer_from(
        &self,
        memory: &sockets_compat::SendMemory,
        at: std::ops::Range<u64>,
        sent: impl FnOnce() + Send + 'static,
    ) -> bool {
        let (shared, mut head) = (&self.job.shared, Vec::with_capacity(64));
        self.common.tally.waits_in_ring();
        self.common.tally.sent_in_place();
        shared.session.data(&mut head, self.ticket, self.offset, self.length, true);
        let writing = shared.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_sent = memory.write(&head, at, sent).is_ok();
        drop(writing);
        if !is_sent {
            // Anyone who reads hears of it.
            shared.stream.shut_down();
        }
        is_sent
    }

    /// Sends answers of this connection.
    pub(super) fn send(&self, answers: &[u8]) {
        if self.job.shared.send(answers, &[]).is_err() {
            // Anyone who reads hears of it.
            self.job.shared.stream.shut_down();
        }
    }

    pub(super) fn leave_to_workers(self) {
        let Self { job, common, ticket, offset, length } = self;
        let command = Command::Read { offset, length, dont_fragment: false };
        let of_job = Arc::clone(&common);
        common.workers.run(move || job.carry_out(ticket, command, &of_job));
    }
}

struct Connection {
    shared: Arc<ConnectionState>,
    common: Arc<Common>,
    input: Input,
    output: Output,
    head: Vec<u8>,
    /// Data that follow the next head shall land where they are written from.
    reads_heads_alone: bool,
    /// What reads the device's file where the medium has to be waited for, if it has one for that.
    #[cfg(feature = "uring")]
    ring: OnceCell<Option<RingReader>>,
}

impl Connection {
    fn run(&mut self) -> Result<(), Ended> {
        let head_len = self.shared.session.head_len();
        loop {
            let there = self.input.bytes().len();
            if there < head_len {
                self.send()?;
                let partial = there > 0;
                let most = if self.reads_heads_alone { head_len - there } else { usize::MAX };
                if !self.input.fill_up_to(most, &*self.shared.stream)? {
                    return if partial { Err(Ended::Vanished) } else { Ok(()) };
                }
                continue;
            }
            let size = self.shared.offered.device.size();
            let incoming = self.shared.session.request(self.input.bytes(), size)?;
            self.input.consume(head_len);
            if incoming.command == Ok(Command::Disconnect) {
                return Ok(self.send()?);
            }
            self.request(incoming)?;
        }
    }

    fn request(&mut self, incoming: Incoming) -> Result<(), Ended> {
        let Incoming { ticket, payload, command } = incoming;
        let is_ending = self.common.is_ending.load(Ordering::Acquire);
        if is_ending || self.shared.offered.is_removed() {
            self.skip(payload)?;
            return self.error(ticket, Errno::SHUTDOWN, "the export is withdrawn");
        }
        if let Ok(command) = &command {
            self.common.tally.request(command);
        }
        self.reads_heads_alone = false;
        match command {
            Err(refusal) => {
                self.skip(payload)?;
                self.error(ticket, refusal.errno, refusal.why)
            }
            Ok(Command::Read { length: 0, .. }) => self.done(ticket),
            Ok(Command::Read { offset, length, .. }) => self.read(ticket, offset, length),
            Ok(Command::Write { offset, length, fua }) => {
                let wrote = self.write(offset, u64::from(length))?;
                match wrote {
                    Ok(()) if fua => self.hand_over(ticket, Command::Write { offset, length, fua }),
                    Ok(()) => self.done(ticket),
                    Err(error) => self.error(ticket, errno(&error), &error.to_string()),
                }
            }
            Ok(command) => self.hand_over(ticket, command),
        }
    }

    /// A read that the page cache may have.
    fn read(&mut self, ticket: Ticket, offset: u64, length: u32) -> Result<(), Ended> {
        let shared = Arc::clone(&self.shared);
        let device = &*shared.offered.device;
        self.output.prepare(&*shared, &*shared.stream, device)?;
        let mut outcome = ReadOutcome::NotCached;
        if length <= self.output.longest_read() {
            self.head.clear();
            shared.session.data(&mut self.head, ticket, offset, length, true);
            outcome = self.output.read(&*shared, &self.head, device, (offset, length))?;
        }
        match outcome {
            ReadOutcome::Answered { in_place } => {
                if in_place {
                    self.common.tally.sent_in_place();
                }
                Ok(())
            }
            ReadOutcome::NotCached => {
                self.hand_over(ticket, Command::Read { offset, length, dont_fragment: false })
            }
            ReadOutcome::Failed(error) => self.error(ticket, errno(&error), &error.to_string()),
        }
    }

    /// Writes what follows the request as it comes, however long it is. What is left after
    /// an error is skipped.
    fn write(&mut self, mut offset: u64, length: u64) -> Result<io::Result<()>, Ended> {
        let (mut left, mut result, mut is_in_place) = (length, Ok(()), false);
        while left > 0 {
            let there = self.input.bytes();
            if there.is_empty() {
                // Replies shall not wait for a client that is slow to send.
                self.send()?;
                if result.is_ok()
                    && let Some(landed) = self.write_landed(offset, left, &mut result)?
                {
                    is_in_place = true;
                    offset += landed as u64;
                    left -= landed as u64;
                    continue;
                }
                if !self.input.fill(&*self.shared.stream)? {
                    return Err(Ended::Vanished);
                }
                continue;
            }
            let piece = there.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if result.is_ok() {
                result = self.shared.offered.device.write(offset, &there[..piece]);
            }
            self.input.consume(piece);
            offset += piece as u64;
            left -= piece as u64;
        }
        self.reads_heads_alone = is_in_place && length >= LONG_WRITE;
        if is_in_place {
            self.common.tally.written_in_place();
        }
        Ok(result)
    }

    /// Writes the next bytes from where they landed, this many at most; gives how many. None: the
    /// stream or the device has no such way.
    #[cfg(feature = "family")]
    fn write_landed(
        &self,
        offset: u64,
        most: u64,
        result: &mut io::Result<()>,
    ) -> Result<Option<usize>, Ended> {
        let Some(file) = self.shared.offered.device.file() else { return Ok(None) };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut write = |landed: Landed<'_>| *result = landed.write_to(file, offset);
        match self.shared.stream.read_landed(most, &mut write)? {
            Some(0) => Err(Ended::Vanished),
            landed => Ok(landed),
        }
    }

    #[cfg(not(feature = "family"))]
    #[expect(clippy::unnecessary_wraps, reason = "as the other, which can fail")]
    fn write_landed(&self, _: u64, _: u64, _: &mut io::Result<()>) -> Result<Option<usize>, Ended> {
        Ok(None)
    }

    fn skip(&mut self, mut left: u64) -> Result<(), Ended> {
        while left > 0 {
            let there = self.input.bytes().len();
            if there == 0 {
                if !self.input.fill(&*self.shared.stream)? {
                    return Err(Ended::Vanished);
                }
                continue;
            }
            let piece = there.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.input.consume(piece);
            left -= piece as u64;
        }
        Ok(())
    }

    /// Leaves a command to the workers.
    fn hand_over(&mut self, ticket: Ticket, command: Command) -> Result<(), Ended> {
        let bytes = match command {
            Command::Read { length, .. } => length as usize,
            _ => 0,
        };
        let is_full = {
            let jobs = self.shared.jobs();
            jobs.count >= MOST_JOBS || jobs.bytes + bytes > MOST_BYTES
        };
        if is_full {
            self.send()?;
            self.shared.wait_for_jobs(MOST_JOBS - 1, MOST_BYTES - bytes);
        }
        {
            let mut jobs = self.shared.jobs();
            jobs.count += 1;
            jobs.bytes += bytes;
        }
        self.common.tally.waits();
        let (job, common) =
            (Job { shared: Arc::clone(&self.shared), bytes }, Arc::clone(&self.common));
        #[cfg(feature = "uring")]
        if let (Command::Read { offset, length, .. }, Some(ring)) = (command, self.ring()) {
            let read = ReadJob { job, common, ticket, offset, length };
            if let Err(read) = ring.read(read) {
                read.leave_to_workers();
            }
            return Ok(());
        }
        self.common.workers.run(move || job.carry_out(ticket, command, &common));
        Ok(())
    }

    #[cfg(feature = "uring")]
    fn ring(&self) -> Option<&RingReader> {
        let start = || {
            let file = self.shared.offered.device.uring_file()?;
            // Without one all is left to the workers: memory may be locked up to a limit.
            RingReader::start(file, &*self.shared.stream).ok()
        };
        self.ring.get_or_init(start).as_ref()
    }

    fn done(&mut self, ticket: Ticket) -> Result<(), Ended> {
        self.head.clear();
        self.shared.session.done(&mut self.head, ticket);
        self.reply()
    }

    fn error(&mut self, ticket: Ticket, errno: Errno, why: &str) -> Result<(), Ended> {
        self.common.tally.error();
        self.head.clear();
        self.shared.session.error(&mut self.head, ticket, errno, why);
        self.reply()
    }

    /// Adds what is in `head` to what is sent.
    fn reply(&mut self) -> Result<(), Ended> {
        Ok(self.output.add(&*self.shared, &self.head)?)
    }

    fn send(&mut self) -> io::Result<()> {
        self.output.send(&*self.shared)
    }
}
