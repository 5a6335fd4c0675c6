//! [`Initiator`]: commands over STP, many at a time.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use landfall::stp::{Connection, Memory, Offer};
use landfall_scsi::sst::{Answer, GOOD, LONGEST_MESSAGE, MESSAGE, Request, TAGS};
use landfall_scsi::{Lun, Sense, Status, TaskManagement};

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

/// Where a command's outcome comes, and who waits for it.
#[derive(Default)]
struct Cell {
    state: Mutex<State>,
    done: Condvar,
}

enum State {
    UnderWay(Option<Waker>),
    Over(Outcome),
    /// Somebody has the outcome.
    Taken,
}

impl Default for State {
    fn default() -> Self {
        Self::UnderWay(None)
    }
}

impl State {
    /// The outcome, once; an error from then on.
    fn take(&mut self) -> Option<Outcome> {
        match std::mem::replace(self, Self::Taken) {
            Self::Over(outcome) => Some(outcome),
            Self::Taken => {
                let why = "what became of the command was told already";
                Some(Err(InitiatorError::Gone(why.into())))
            }
            under_way @ Self::UnderWay(_) => {
                *self = under_way;
                None
            }
        }
    }
}

impl Cell {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, outcome: Outcome) {
        let before = std::mem::replace(&mut *self.lock(), State::Over(outcome));
        self.done.notify_all();
        if let State::UnderWay(Some(waker)) = before {
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
    /// How it failed; or it was polled to its end before, which has told that.
    pub fn wait(self) -> Result<Completion, InitiatorError> {
        let mut state = self.0.lock();
        loop {
            if let Some(outcome) = state.take() {
                return outcome;
            }
            state = self.0.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.0.lock();
        if let Some(outcome) = state.take() {
            return Poll::Ready(outcome);
        }
        *state = State::UnderWay(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// What somebody wants.
enum Wanted {
    Command(Command),
    Manage { lun: Lun, what: TaskManagement, cell: Arc<Cell> },
    Abort { command: Arc<Cell>, cell: Arc<Cell> },
}

impl Wanted {
    const fn cell(&self) -> &Arc<Cell> {
        match self {
            Self::Command(Command { cell, .. })
            | Self::Manage { cell, .. }
            | Self::Abort { cell, .. } => cell,
        }
    }
}

struct Command {
    lun: [u8; 8],
    cdb: [u8; 16],
    out: Option<Memory>,
    room: Memory,
    cell: Arc<Cell>,
}

/// Task management was carried out, or a command has no data.
fn without_data() -> Outcome {
    Ok(Completion { memory: Memory::zeroed(0), len: 0 })
}

/// A command that had not left when it was to end.
const fn aborted() -> Outcome {
    Err(InitiatorError::Failed { status: Status::TaskAborted.byte(), sense: None })
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
        let (tasks, early, managing) = (BTreeMap::new(), Vec::new(), VecDeque::new());
        let mut connected = Connected { exchange, tasks, next: 0, early, managing };
        let thread = thread::Builder::new().name("landfall-scsi".into());
        let thread = thread.spawn(move || connected.run())?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    /// Begins a command, with data to send and memory for those that come.
    pub fn command(&self, lun: Lun, cdb: &[u8], out: Option<Memory>, room: Memory) -> Pending {
        let mut padded = [0; 16];
        let len = cdb.len().min(16);
        padded[..len].copy_from_slice(&cdb[..len]);
        let out = out.filter(|out| !out.is_empty());
        let lun = lun.encode();
        self.want(|cell| Wanted::Command(Command { lun, cdb: padded, out, room, cell }))
    }

    fn want(&self, wanted: impl FnOnce(Arc<Cell>) -> Wanted) -> Pending {
        let cell = Arc::<Cell>::default();
        let pending = Pending(Arc::clone(&cell));
        if let Err(wanted) = self.inbox.post(wanted(cell)) {
            wanted.cell().fill(Err(InitiatorError::Gone("it has ended".into())));
        }
        pending
    }

    /// Has tasks of a unit end, or of all. It is over when no device works any more for commands
    /// of this initiator that were begun before; those end with TASK ABORTED.
    pub fn manage(&self, lun: Lun, what: TaskManagement) -> Pending {
        self.want(|cell| Wanted::Manage { lun, what, cell })
    }

    /// Has a command end: with TASK ABORTED, or as it does if it is over before. This is over when
    /// no device works for it any more.
    pub fn abort(&self, command: &Pending) -> Pending {
        let command = Arc::clone(&command.0);
        self.want(|cell| Wanted::Abort { command, cell })
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
        wanted.cell().fill(Err(InitiatorError::Gone("it was given up".into())));
    }
}

/// Task management that has not arrived yet.
struct Managed {
    tag: u32,
    /// Until it leaves.
    request: Option<Request>,
    /// Goes on when the messages with these tags have arrived: Transfers overtake each other, and
    /// a target does not know a command that comes later.
    after: Vec<u32>,
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
    early: Vec<Command>,
    /// Until it has arrived no command is begun: it is not about those.
    managing: VecDeque<Managed>,
}

/// This many are under way.
const QUEUE: usize = 32;

impl Connected {
    fn run(&mut self) {
        let why = loop {
            match self.exchange.next() {
                Ok(Happened::Posted(wanted)) => self.wanted(wanted),
                Ok(Happened::Sent) => {}
                Ok(Happened::Offered(offer)) => {
                    if let Err(why) = self.offered(offer) {
                        break why.to_owned();
                    }
                }
                Ok(Happened::Landed(opaque, landed)) => match *landed {
                    Ok(message) if opaque & MESSAGE != 0 => match Answer::decode(&message) {
                        Some(answer) => self.answered(answer),
                        None => break "the target said nothing that makes sense".to_owned(),
                    },
                    Ok(message) => {
                        let (tag, len) = (opaque & !GOOD, message.len());
                        let memory = message.into_memory();
                        if let Some(task) = self.tasks.get_mut(&tag) {
                            task.landed = Some(Completion { memory, len });
                        }
                        if opaque & GOOD == 0 {
                            self.end_if_whole(tag);
                        } else {
                            let (status, data_in) = (Status::Good.byte(), len as u32);
                            self.answered(Answer { tag, status, data_in, sense: None });
                        }
                    }
                    Err(error) => break error.to_string(),
                },
                Ok(Happened::Over) => break "it was given up".to_owned(),
                Err(error) => break error.to_string(),
            }
            self.go_on_managing();
            while self.managing.is_empty() && self.tasks.len() < QUEUE && !self.early.is_empty() {
                let command = self.early.remove(0);
                self.begin(command);
            }
        };
        gone(self.exchange.inbox.end());
        gone(self.early.drain(..).map(Wanted::Command));
        for task in std::mem::take(&mut self.tasks).into_values() {
            task.cell.fill(Err(InitiatorError::Gone(why.clone())));
        }
    }

    fn wanted(&mut self, wanted: Wanted) {
        match wanted {
            Wanted::Command(command) => self.early.push(command),
            Wanted::Manage { lun, what, cell } => {
                let lun = lun.encode();
                let is_meant =
                    |other: &[u8; 8]| what == TaskManagement::TargetReset || *other == lun;
                let meant = self.early.extract_if(.., |command| is_meant(&command.lun));
                meant.for_each(|command| command.cell.fill(aborted()));
                let after = self.tasks.keys().copied().collect();
                self.manage(cell, after, |tag| Request::Manage { tag, lun, what });
            }
            Wanted::Abort { command, cell } => {
                let is_it = |other: &Arc<Cell>| Arc::ptr_eq(other, &command);
                if let Some(at) = self.early.iter().position(|command| is_it(&command.cell)) {
                    self.early.remove(at).cell.fill(aborted());
                }
                match self.tasks.iter().find(|(_, task)| is_it(&task.cell)).map(|(tag, _)| *tag) {
                    Some(task) => {
                        self.manage(cell, vec![task], |tag| Request::Abort { tag, task });
                    }
                    // It is over.
                    None => cell.fill(without_data()),
                }
            }
        }
    }

    fn next_tag(&mut self) -> u32 {
        let tag = self.next;
        self.next = (tag + 1) % TAGS;
        tag
    }

    fn manage(&mut self, cell: Arc<Cell>, after: Vec<u32>, request: impl FnOnce(u32) -> Request) {
        let tag = self.next_tag();
        self.tasks.insert(tag, Task { room: None, landed: None, answer: None, cell });
        self.managing.push_back(Managed { tag, request: Some(request(tag)), after });
    }

    fn go_on_managing(&mut self) {
        while let Some(first) = self.managing.front_mut() {
            if first.after.iter().any(|tag| self.exchange.is_sending(MESSAGE | *tag)) {
                return;
            }
            match first.request.take() {
                Some(request) => {
                    self.exchange.send(MESSAGE | first.tag, request.encode());
                    first.after = vec![first.tag];
                }
                None => drop(self.managing.pop_front()),
            }
        }
    }

    fn begin(&mut self, Command { lun, cdb, out, room, cell }: Command) {
        let tag = self.next_tag();
        let data_out = out.as_ref().map_or(0, |out| out.len() as u32);
        let data_in = room.len() as u32;
        let request = Request::Command { tag, lun, data_out, data_in, cdb };
        self.exchange.send(MESSAGE | tag, request.encode());
        if let Some(out) = out {
            self.exchange.send(tag, out);
        }
        self.tasks.insert(tag, Task { room: Some(room), landed: None, answer: None, cell });
    }

    fn offered(&mut self, offer: Offer) -> Result<(), &'static str> {
        let opaque = offer.opaque();
        if opaque & MESSAGE != 0 {
            // A longer one does not fit, and ends the connection.
            self.exchange.accept(offer, Memory::zeroed(LONGEST_MESSAGE));
            return Ok(());
        }
        let Some(task) = self.tasks.get_mut(&(opaque & !GOOD)) else {
            // Data of no command are refused.
            return Ok(());
        };
        match task.room.take_if(|room| offer.len() <= room.len() as u64) {
            Some(room) => self.exchange.accept(offer, room),
            // Nothing else would say how the command went.
            None if opaque & GOOD != 0 => return Err("the target has more than there is room for"),
            // More than there is room for is refused.
            None => {}
        }
        Ok(())
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
