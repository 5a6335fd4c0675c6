//! [`serve`]: a connection of an initiator, whose data are Transfers.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall::stp::{Connection, Memory, Message, Offer, Reason};
use landfall_scsi::sst::{Answer, GOOD, LONGEST_MESSAGE, MESSAGE, Request};
use landfall_scsi::{Lun, NexusId, Pending, Response, Status, Step, TaskManagement, Work};

use super::{Exchange, Happened, Inbox};
use crate::scsi::Common;
use crate::scsi::carry_out::{Failed, UnitDevice};

/// This many commands may be under way: a connection has 64 Transfers at a time.
const QUEUE: usize = 40;
/// A longer read is left to a worker, though the cache may have it.
const INLINE: u32 = 256 << 10;

/// A command has ended.
pub(crate) struct Ended {
    tag: u32,
    room: u32,
    response: Response,
    /// What was read, instead of the response's data.
    read: Option<Memory>,
}

impl Ended {
    const fn with(tag: u32, status: Status) -> Self {
        Self { tag, room: 0, response: Response::status(status), read: None }
    }
}

/// A command whose data come.
struct Waiting {
    pending: Pending,
    room: u32,
}

/// A command that a device works at.
struct Working {
    lun: Lun,
    is_aborted: bool,
}

/// Task management that is answered when devices have ended these commands.
struct Managing {
    tag: u32,
    tasks: Vec<u32>,
}

struct Connected {
    exchange: Exchange<Ended>,
    common: Arc<Common>,
    nexus: Option<NexusId>,
    /// What came before the initiator's name: Transfers overtake each other.
    unnamed: Vec<Request>,
    waiting: BTreeMap<u32, Waiting>,
    /// Data whose command has not come.
    early: Vec<Offer>,
    working: BTreeMap<u32, Working>,
    managing: Vec<Managing>,
}

/// What the thread of a listener is told by, and its jobs.
pub(crate) type Replies = Inbox<Ended>;

/// Serves an initiator until it goes.
pub(crate) fn serve(
    connection: Connection,
    common: &Arc<Common>,
    inbox: &Arc<Replies>,
) -> Result<(), String> {
    let mut connected = Connected {
        exchange: Exchange::new(connection, inbox),
        common: Arc::clone(common),
        nexus: None,
        unnamed: Vec::new(),
        waiting: BTreeMap::new(),
        early: Vec::new(),
        working: BTreeMap::new(),
        managing: Vec::new(),
    };
    let ended = connected.run();
    inbox.end();
    if let Some(nexus) = connected.nexus {
        common.target().detach(nexus);
    }
    ended
}

impl Connected {
    fn run(&mut self) -> Result<(), String> {
        loop {
            match self.exchange.next() {
                Ok(Happened::Offered(offer)) => self.offered(offer)?,
                Ok(Happened::Landed(opaque, landed)) => {
                    let message = landed.map_err(|error| error.to_string())?;
                    self.landed(opaque, message)?;
                }
                Ok(Happened::Posted(ended)) => self.ended(ended),
                Ok(Happened::Sent) => {}
                Ok(Happened::Over) => return Ok(()),
                Err(landfall::stp::Error::Closed { why: None }) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn offered(&mut self, offer: Offer) -> Result<(), String> {
        let (opaque, len) = (offer.opaque(), offer.len());
        if opaque & MESSAGE != 0 {
            if len > LONGEST_MESSAGE as u64 || self.exchange.receiving.len() > 2 * QUEUE {
                return Err(format!("a message of {len} bytes"));
            }
            self.exchange.accept(offer, Memory::zeroed(len as usize));
            return Ok(());
        }
        match self.waiting.get(&opaque) {
            Some(waiting) if waiting.pending.data_out() == len => {
                self.exchange.accept(offer, Memory::zeroed(len as usize));
            }
            Some(_) => return Err(format!("{len} bytes of data, which are not those announced")),
            None => {
                if self.early.len() >= QUEUE {
                    self.early.remove(0).refuse(Reason::Refused);
                }
                self.early.push(offer);
            }
        }
        Ok(())
    }

    fn landed(&mut self, opaque: u32, message: Message) -> Result<(), String> {
        if opaque & MESSAGE == 0 {
            let (Some(waiting), Some(nexus)) = (self.waiting.remove(&opaque), self.nexus) else {
                return Ok(());
            };
            let step = self.common.target().supply(nexus, waiting.pending, &message);
            self.step(opaque, waiting.room, step, Some(message));
            return Ok(());
        }
        self.requested(Request::decode(&message).ok_or("a message that says nothing")?)
    }

    fn requested(&mut self, request: Request) -> Result<(), String> {
        match (request, self.nexus) {
            (Request::Name(name), None) => {
                self.nexus = Some(self.common.target().attach(&name));
                return std::mem::take(&mut self.unnamed)
                    .into_iter()
                    .try_for_each(|request| self.requested(request));
            }
            (request, None) if self.unnamed.len() < QUEUE => self.unnamed.push(request),
            (Request::Command { tag, lun, data_out, data_in, cdb }, Some(nexus)) => {
                if self.working.contains_key(&tag) || self.waiting.contains_key(&tag) {
                    return Err("a command with the tag of another".into());
                }
                let is_full = self.working.len() + self.waiting.len() >= QUEUE;
                let step = if is_full {
                    Step::Done(Response::status(Status::TaskSetFull))
                } else {
                    self.common.target().begin(nexus, lun, &cdb, data_out.into())
                };
                // All data come, or none.
                let step = match step {
                    Step::Data(pending) if pending.data_out() != u64::from(data_out) => {
                        let byte = landfall_scsi::Sense::invalid_field(0, 7);
                        Step::Done(byte.into())
                    }
                    other => other,
                };
                self.step(tag, data_in, step, None);
            }
            (Request::Manage { .. } | Request::Abort { .. }, Some(_))
                if self.managing.len() >= QUEUE =>
            {
                return Err("more task management than there can be commands".into());
            }
            (Request::Manage { tag, lun, what }, Some(nexus)) => {
                if !self.common.target().manage(nexus, lun, what) {
                    self.answer(Ended::with(tag, Status::CheckCondition));
                    return Ok(());
                }
                let lun = Lun::decode(lun).filter(|_| what != TaskManagement::TargetReset);
                self.end_tasks(tag, |_, other| lun.is_none_or(|lun| lun == other));
            }
            (Request::Abort { tag, task }, Some(_)) => {
                self.end_tasks(tag, |other, _| other == task);
            }
            _ => return Err("a message out of its turn".into()),
        }
        Ok(())
    }

    fn step(&mut self, tag: u32, room: u32, step: Step, data: Option<Message>) {
        match step {
            Step::Done(response) => self.answer(Ended { tag, room, response, read: None }),
            Step::Data(pending) => {
                let len = pending.data_out();
                self.waiting.insert(tag, Waiting { pending, room });
                let early = self.early.iter().position(|offer| offer.opaque() == tag);
                if let Some(at) = early.filter(|at| self.early[*at].len() == len) {
                    let offer = self.early.remove(at);
                    self.exchange.accept(offer, Memory::zeroed(len as usize));
                }
            }
            Step::Work(pending, work) => {
                let (Some(unit), Some(nexus)) = (self.common.units.get(&pending.lun()), self.nexus)
                else {
                    return;
                };
                self.common.count(&work, data.as_deref().map_or(0, <[u8]>::len));
                if let Some((read, done)) = carry_out_now(unit, &work) {
                    let done = self.common.logged(done);
                    let response = self.common.target().finish(nexus, &pending, done);
                    self.answer(Ended { tag, room, response, read });
                    return;
                }
                let working = Working { lun: pending.lun(), is_aborted: false };
                self.working.insert(tag, working);
                let (unit, common) = (Arc::clone(unit), Arc::clone(&self.common));
                let inbox = Arc::clone(&self.exchange.inbox);
                self.common.workers.run(move || {
                    let (read, done) = carry_out(&unit, &work, data.as_deref().unwrap_or(&[]));
                    let done = common.logged(done);
                    let response = common.target().finish(nexus, &pending, done);
                    // Nobody hears where the initiator is gone.
                    let _ = inbox.post(Ended { tag, room, response, read });
                });
            }
        }
    }

    /// A device has ended its work.
    fn ended(&mut self, ended: Ended) {
        let tag = ended.tag;
        let working = self.working.remove(&tag);
        self.managing.iter_mut().for_each(|managing| managing.tasks.retain(|task| *task != tag));
        let is_aborted = working.is_some_and(|working| working.is_aborted);
        let aborted = || Ended::with(tag, Status::TaskAborted);
        self.answer(if is_aborted { aborted() } else { ended });
        self.answer_management();
    }

    /// Ends commands, and answers this tag when no device works at any of them.
    fn end_tasks(&mut self, tag: u32, is_meant: impl Fn(u32, Lun) -> bool) {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|(task, waiting)| is_meant(**task, waiting.pending.lun()));
        let waiting: Vec<u32> = waiting.map(|(task, _)| *task).collect();
        for task in waiting {
            self.waiting.remove(&task);
            self.exchange.give_up(task);
            self.answer(Ended::with(task, Status::TaskAborted));
        }
        let mut tasks = Vec::new();
        for (task, working) in &mut self.working {
            if is_meant(*task, working.lun) {
                working.is_aborted = true;
                tasks.push(*task);
            }
        }
        self.managing.push(Managing { tag, tasks });
        self.answer_management();
    }

    fn answer_management(&mut self) {
        let is_over = |managing: &mut Managing| managing.tasks.is_empty();
        let over: Vec<Managing> = self.managing.extract_if(.., is_over).collect();
        over.iter().for_each(|managing| self.answer(Ended::with(managing.tag, Status::Good)));
    }

    /// Data bring the status GOOD with them. Other data and their status travel side by side: the
    /// initiator waits for both.
    fn answer(&mut self, Ended { tag, room, response, read }: Ended) {
        let Response { status, sense, mut data } = response;
        data.truncate(room as usize);
        let read = read.filter(|read| status == Status::Good && read.len() <= room as usize);
        let data_in = read.as_ref().map_or(data.len(), |read| read.len()) as u32;
        let is_good = status == Status::Good && sense.is_none() && data_in > 0;
        let opaque = if is_good { GOOD | tag } else { tag };
        match read {
            Some(read) if data_in > 0 => self.exchange.send(opaque, read),
            None if !data.is_empty() => self.exchange.send(opaque, data),
            _ => {}
        }
        if is_good {
            return;
        }
        let answer = Answer { tag, status: status.byte(), data_in, sense };
        self.exchange.send(MESSAGE | tag, answer.encode());
    }
}

/// What was read, and otherwise the data of the response.
type CarriedOut = (Option<Memory>, Result<Vec<u8>, Failed>);

/// What a device does, if that needs no waiting for a medium.
fn carry_out_now(unit: &UnitDevice, work: &Work) -> Option<CarriedOut> {
    let Work::Read { offset, length } = *work else { return None };
    if length > INLINE {
        return None;
    }
    let mut memory = Memory::zeroed(length as usize);
    let done = unit.read_now(offset, &mut memory)?;
    Some((Some(memory), done.map(|()| Vec::new())))
}

/// What a device does. What is read is read into memory that a Transfer leaves from.
fn carry_out(unit: &UnitDevice, work: &Work, data: &[u8]) -> CarriedOut {
    let Work::Read { offset, length } = *work else { return (None, unit.carry_out(work, data)) };
    let mut memory = Memory::zeroed(length as usize);
    let done = unit.read_into(offset, &mut memory).map(|()| Vec::new());
    (Some(memory), done)
}
