//! [`Initiator`]: commands over STP, many at a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use landfall::stp::{Connection, Memory, Offer};
use landfall_scsi::sst::{Answer, LONGEST_MESSAGE, MESSAGE, Request};
use landfall_scsi::{Lun, Sense};

use super::{Exchange, Happened, Inbox};

/// Why a command did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitiatorError {
    /// The connection is over.
    #[error("the connection is over: {0}")]
    Gone(String),
    /// The target says so.
    #[error("status {status:#04x}{}", .sense.map(|sense| format!(": {sense}")).unwrap_or_default())]
    Failed {
        /// The status of SCSI.
        status: u8,
        /// Why.
        sense: Option<Sense>,
    },
}

/// A command that succeeded.
#[derive(Debug)]
pub struct Completion {
    /// The memory that was lent for its data.
    pub memory: Memory,
    /// How many bytes of it the target has written.
    pub len: usize,
}

type Outcome = Result<Completion, InitiatorError>;

#[derive(Default)]
struct Cell {
    state: Mutex<(Option<Outcome>, Option<Waker>)>,
    done: Condvar,
}

impl Cell {
    fn fill(&self, outcome: Outcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(outcome);
        let waker = state.1.take();
        drop(state);
        self.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A command under way: a future, and something to wait for. Dropped, it is carried out all the
/// same.
#[must_use = "how it goes is told to those who wait"]
pub struct Pending(Arc<Cell>);

impl Pending {
    /// Waits until it is over.
    ///
    /// # Errors
    /// How it failed.
    pub fn wait(self) -> Result<Completion, InitiatorError> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = state.0.take() {
                return outcome;
            }
            state = self.0.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// A command that somebody wants.
struct Wanted {
    lun: [u8; 8],
    cdb: [u8; 16],
    out: Option<Memory>,
    room: Memory,
    cell: Arc<Cell>,
}

/// The initiator's end of a connection: a thread has it, and any thread or task asks.
///
/// What is read lands in the memory that is given, by a Transfer, and what is written leaves from
/// it. Dropped, commands under way are given up.
pub struct Initiator {
    inbox: Arc<Inbox<Wanted>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Initiator").finish_non_exhaustive()
    }
}

impl Initiator {
    /// An initiator of this name, which is the same when it comes again.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(connection: Connection, name: &str) -> std::io::Result<Self> {
        let inbox = Inbox::new();
        let mut exchange = Exchange::new(connection, &inbox);
        exchange.send(MESSAGE, Request::Name(name.into()).encode());
        let (tasks, next) = (BTreeMap::new(), 0);
        let mut connected = Connected { exchange, tasks, next, early: Vec::new() };
        let thread = thread::Builder::new().name("landfall-scsi".into());
        let thread = thread.spawn(move || connected.run())?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    /// Begins a command, with data to send and memory for those that come.
    pub fn command(&self, lun: Lun, cdb: &[u8], out: Option<Memory>, room: Memory) -> Pending {
        let mut padded = [0; 16];
        let len = cdb.len().min(16);
        padded[..len].copy_from_slice(&cdb[..len]);
        let cell = Arc::<Cell>::default();
        let pending = Pending(Arc::clone(&cell));
        let out = out.filter(|out| !out.is_empty());
        let wanted = Wanted { lun: lun.encode(), cdb: padded, out, room, cell };
        if let Err(wanted) = self.inbox.post(wanted) {
            wanted.cell.fill(Err(InitiatorError::Gone("it has ended".into())));
        }
        pending
    }

    /// What the unit is: the standard data of INQUIRY.
    pub fn inquiry(&self, lun: Lun) -> Pending {
        self.command(lun, &[0x12, 0, 0, 0, 96, 0], None, Memory::zeroed(96))
    }

    /// TEST UNIT READY: a unit that has something to tell tells it.
    pub fn ready(&self, lun: Lun) -> Pending {
        self.command(lun, &[0; 6], None, Memory::zeroed(0))
    }

    /// READ CAPACITY (16): the last block, in eight bytes, and the size of blocks, in four.
    pub fn capacity(&self, lun: Lun) -> Pending {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        self.command(lun, &cdb, None, Memory::zeroed(32))
    }

    /// Fills memory with blocks of 512 bytes.
    pub fn read(&self, lun: Lun, lba: u64, into: Memory) -> Pending {
        let cdb = about(0x88, lba, into.len());
        self.command(lun, &cdb, None, into)
    }

    /// Writes blocks of 512 bytes.
    pub fn write(&self, lun: Lun, lba: u64, from: Memory) -> Pending {
        let cdb = about(0x8a, lba, from.len());
        self.command(lun, &cdb, Some(from), Memory::zeroed(0))
    }

    /// Whatever was answered before is on the medium when this is over.
    pub fn flush(&self, lun: Lun) -> Pending {
        self.command(lun, &about(0x91, 0, 0), None, Memory::zeroed(0))
    }
}

/// A command of 16 bytes about blocks.
fn about(code: u8, lba: u64, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&((len / 512) as u32).to_be_bytes());
    cdb
}

impl Drop for Initiator {
    fn drop(&mut self) {
        gone(self.inbox.end());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn gone(wanted: impl IntoIterator<Item = Wanted>) {
    for wanted in wanted {
        wanted.cell.fill(Err(InitiatorError::Gone("it was given up".into())));
    }
}

/// A command that the target has.
struct Task {
    room: Option<Memory>,
    landed: Option<Completion>,
    answer: Option<Answer>,
    cell: Arc<Cell>,
}

struct Connected {
    exchange: Exchange<Wanted>,
    tasks: BTreeMap<u32, Task>,
    next: u32,
    /// Commands that wait for a place among those under way.
    early: Vec<Wanted>,
}

/// This many are under way.
const QUEUE: usize = 16;

impl Connected {
    fn run(&mut self) {
        let why = loop {
            match self.exchange.next() {
                Ok(Happened::Posted(wanted)) => self.early.push(wanted),
                Ok(Happened::Offered(offer)) => self.offered(offer),
                Ok(Happened::Landed(opaque, landed)) => match *landed {
                    Ok(message) if opaque & MESSAGE != 0 => match Answer::decode(&message) {
                        Some(answer) => self.answered(answer),
                        None => break "the target said nothing that makes sense".to_owned(),
                    },
                    Ok(message) => {
                        let len = message.len();
                        let memory = message.into_memory();
                        if let Some(task) = self.tasks.get_mut(&opaque) {
                            task.landed = Some(Completion { memory, len });
                        }
                        self.end_if_whole(opaque);
                    }
                    Err(error) => break error.to_string(),
                },
                Ok(Happened::Over) => break "it was given up".to_owned(),
                Err(error) => break error.to_string(),
            }
            while self.tasks.len() < QUEUE && !self.early.is_empty() {
                let wanted = self.early.remove(0);
                self.begin(wanted);
            }
        };
        gone(self.exchange.inbox.end());
        gone(self.early.drain(..));
        for task in std::mem::take(&mut self.tasks).into_values() {
            task.cell.fill(Err(InitiatorError::Gone(why.clone())));
        }
    }

    fn begin(&mut self, Wanted { lun, cdb, out, room, cell }: Wanted) {
        let tag = self.next;
        self.next = (tag + 1) % MESSAGE;
        let data_out = out.as_ref().map_or(0, |out| out.len() as u32);
        let data_in = room.len() as u32;
        let request = Request::Command { tag, lun, data_out, data_in, cdb };
        self.exchange.send(MESSAGE | tag, request.encode());
        if let Some(out) = out {
            self.exchange.send(tag, out);
        }
        self.tasks.insert(tag, Task { room: Some(room), landed: None, answer: None, cell });
    }

    fn offered(&mut self, offer: Offer) {
        let opaque = offer.opaque();
        if opaque & MESSAGE != 0 {
            // A longer one does not fit, and ends the connection.
            self.exchange.accept(offer, Memory::zeroed(LONGEST_MESSAGE));
            return;
        }
        let task = self.tasks.get_mut(&opaque);
        // Data of no command, or more than there is room for, are refused.
        let fits = |room: &mut Memory| offer.len() <= room.len() as u64;
        if let Some(room) = task.and_then(|task| task.room.take_if(fits)) {
            self.exchange.accept(offer, room);
        }
    }

    fn answered(&mut self, answer: Answer) {
        let tag = answer.tag;
        // What was not taken of its data is not wanted.
        self.exchange.withdraw(tag);
        if let Some(task) = self.tasks.get_mut(&tag) {
            task.answer = Some(answer);
        }
        self.end_if_whole(tag);
    }

    /// A command has ended when its status and its data are there.
    fn end_if_whole(&mut self, tag: u32) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        let Some(answer) = &task.answer else { return };
        if answer.data_in > 0 && task.landed.is_none() {
            return;
        }
        let Some(mut task) = self.tasks.remove(&tag) else { return };
        let room = task.room.take().unwrap_or_else(|| Memory::zeroed(0));
        let landed = task.landed.unwrap_or(Completion { memory: room, len: 0 });
        let outcome = match task.answer {
            Some(Answer { status: 0, .. }) => Ok(landed),
            Some(Answer { status, sense, .. }) => Err(InitiatorError::Failed { status, sense }),
            None => return,
        };
        task.cell.fill(outcome);
    }
}
