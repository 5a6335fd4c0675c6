//! [`Session`]: what comes in a session, and in which order.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::keys::{LONGEST_DATA, Parameters, pairs, say};
use super::login::{Login, Next};
use super::pdu::{Digests, FINAL, Head, NONE, Pdu, opcode};
use super::reply::{Piece, Reply, Transfer};
use super::task::{Incoming, Sequence, State, Task, Then};
use super::{Config, ProtocolError};
use crate::sense::{Code, Key, Response, Sense, Status};
use crate::target::{NexusId, Pending, Step, Target, TaskManagement};
use crate::work::{Failure, Work};

/// This many commands may be under way.
const QUEUE: u32 = 128;
/// And this many that are immediate, beside them.
const MOST_IMMEDIATE: usize = 16;
/// Data that are asked for take no more room than that, for all commands together, unless it is
/// for one alone.
const MOST_ROOM: usize = 32 << 20;

/// A command that a device works at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(u64);

/// What a device has to do, with the data of the command.
#[derive(Debug)]
pub struct Job {
    /// What [`Session::finish`] is told.
    pub task: TaskId,
    /// The command.
    pub pending: Pending,
    /// What is to be done.
    pub work: Work,
    /// What comes with it.
    pub data: Vec<u8>,
}

/// The numbers that both ends count messages by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    status: u32,
    expected: u32,
    most: u32,
}

impl Numbers {
    pub(crate) const fn next_status(&mut self) -> u32 {
        let number = self.status;
        self.status = number.wrapping_add(1);
        number
    }

    /// What is expected next, and up to where commands may come.
    pub(crate) fn window(&self, head: Head) -> Head {
        head.u32(28, self.expected).u32(32, self.most)
    }
}

/// What a request to abort waits for.
#[derive(Debug)]
struct Aborting {
    tag: u32,
    tasks: Vec<TaskId>,
}

#[derive(Debug)]
enum Phase {
    Login(Login),
    Discovery,
    Full(NexusId),
    Over,
}

/// The target's end of a connection, which is a session.
///
/// Bytes come in by [`handle`](Self::handle). What is to be sent comes out by
/// [`poll_output`](Self::poll_output), and what a device has to do by
/// [`poll_job`](Self::poll_job); its end is told by [`finish`](Self::finish).
#[derive(Debug)]
pub struct Session {
    config: Config,
    phase: Phase,
    parameters: Parameters,
    numbers: Numbers,
    tasks: BTreeMap<TaskId, Task>,
    next_task: u64,
    next_transfer: u32,
    output: VecDeque<Vec<u8>>,
    jobs: VecDeque<Job>,
    aborting: Vec<Aborting>,
    /// Sessions that end since this one began.
    reinstated: VecDeque<NexusId>,
}

impl Session {
    /// A connection of which nothing has come.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            phase: Phase::Login(Login::default()),
            parameters: Parameters::default(),
            numbers: Numbers { status: 1, ..Numbers::default() },
            tasks: BTreeMap::new(),
            next_task: 0,
            next_transfer: 0,
            output: VecDeque::new(),
            jobs: VecDeque::new(),
            aborting: Vec::new(),
            reinstated: VecDeque::new(),
        }
    }

    /// Takes a message off the front of what came, and gives how long it was; 0: it is not
    /// there as a whole, and needs no more than
    /// [`LONGEST_MESSAGE`](super::LONGEST_MESSAGE) bytes.
    ///
    /// # Errors
    /// The connection has to end, after what is to be sent.
    pub fn handle(&mut self, input: &[u8], target: &mut Target) -> Result<usize, ProtocolError> {
        let digests = self.digests();
        let Some((pdu, used)) = Pdu::decode(input, digests, LONGEST_DATA)? else { return Ok(0) };
        match &self.phase {
            Phase::Login(_) => self.log_in(&pdu, target)?,
            Phase::Full(nexus) => self.request(&pdu, target, Some(*nexus))?,
            Phase::Discovery => self.request(&pdu, target, None)?,
            Phase::Over => {}
        }
        Ok(used)
    }

    /// Something to be sent.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.output.pop_front()
    }

    /// Something for a device to do.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// An earlier session of the same initiator, whose place this one takes (RFC 7143, section
    /// 6.3.5). It has to be over before anything is sent: its connection is ended, and what a
    /// device works at for it is waited for.
    pub fn poll_reinstated(&mut self) -> Option<NexusId> {
        self.reinstated.pop_front()
    }

    /// What the target knows the initiator by, once it has logged in.
    #[must_use]
    pub const fn nexus(&self) -> Option<NexusId> {
        match self.phase {
            Phase::Full(nexus) => Some(nexus),
            _ => None,
        }
    }

    /// Is it known who is there?
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Login(_))
    }

    /// Has the initiator said goodbye?
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// How many commands have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The connection is gone.
    pub fn close(&mut self, target: &mut Target) {
        if let Phase::Full(nexus) = self.phase {
            target.detach(nexus);
        }
        self.phase = Phase::Over;
        self.tasks.clear();
        self.jobs.clear();
    }

    /// Sums begin behind the login.
    fn digests(&self) -> Digests {
        if self.is_open() { self.parameters.digests } else { Digests::default() }
    }

    fn log_in(&mut self, pdu: &Pdu<'_>, target: &mut Target) -> Result<(), ProtocolError> {
        let Phase::Login(login) = &mut self.phase else { return Ok(()) };
        let next = login.handle(pdu, target.name(), &self.config)?;
        let mut say = |head: Head, text: &[u8]| {
            let head = head.u32(24, self.numbers.next_status());
            self.output.push_back(head.with(text, Digests::default()));
        };
        match next {
            Next::Reply(head, text) => say(head, &text),
            Next::Refused(head, error) => {
                say(head, &[]);
                return Err(error);
            }
            Next::Open(head, text, agreed) => {
                let (phase, number) = if agreed.discovery {
                    (Phase::Discovery, 1)
                } else {
                    // The same name and number of a session, and no handle of one: it is
                    // reinstated.
                    self.reinstated.extend(target.reinstate(&agreed.initiator));
                    let nexus = target.attach(&agreed.initiator);
                    (Phase::Full(nexus), nexus.number())
                };
                say(head.put(14, &number.to_be_bytes()), &text);
                self.phase = phase;
                self.parameters = agreed.parameters;
                self.numbers.expected = agreed.command;
                self.numbers.most = agreed.command.wrapping_add(QUEUE - 1);
            }
        }
        Ok(())
    }

    /// Is it the turn of this message? Those that come in order are counted.
    fn is_due(&mut self, pdu: &Pdu<'_>) -> Result<bool, ProtocolError> {
        let number = pdu.u32(24);
        if pdu.is_immediate() {
            return Ok(true);
        }
        let ahead = number.wrapping_sub(self.numbers.expected);
        let room = self.numbers.most.wrapping_sub(self.numbers.expected).wrapping_add(1);
        if ahead >= room {
            // The standard has these ignored.
            return Ok(false);
        }
        if ahead > 0 {
            return Err(ProtocolError::Malformed("a command out of order"));
        }
        self.numbers.expected = number.wrapping_add(1);
        Ok(true)
    }

    fn request(
        &mut self,
        pdu: &Pdu<'_>,
        target: &mut Target,
        nexus: Option<NexusId>,
    ) -> Result<(), ProtocolError> {
        match (pdu.opcode(), nexus) {
            (opcode::DATA_OUT, Some(nexus)) => return self.data(pdu, target, nexus),
            // The answer to a question that was not asked.
            (opcode::NOP_OUT, _) if pdu.tag() == NONE => return Ok(()),
            _ => {}
        }
        if !self.is_due(pdu)? {
            return Ok(());
        }
        match (pdu.opcode(), nexus) {
            (opcode::COMMAND, Some(nexus)) => self.command(pdu, target, nexus)?,
            (opcode::TASK, Some(nexus)) => self.manage(pdu, target, nexus),
            (opcode::NOP_OUT, _) => {
                let head = Head::new(opcode::NOP_IN, FINAL).put(8, &pdu.lun()).u32(20, NONE);
                self.answer(head, pdu.tag(), pdu.data);
            }
            (opcode::TEXT, _) => self.text(pdu, target.name())?,
            (opcode::LOGOUT, _) => {
                self.answer(Head::new(opcode::LOGOUT_RESPONSE, FINAL), pdu.tag(), &[]);
                self.close(target);
            }
            // A command that is not supported.
            _ => {
                let head = Head::new(opcode::REJECT, FINAL).put(2, &[0x05]);
                self.answer(head, NONE, pdu.head);
            }
        }
        self.open_window();
        Ok(())
    }

    /// Sends a message that has a number.
    fn answer(&mut self, head: Head, tag: u32, data: &[u8]) {
        let head = head.u32(16, tag).u32(24, self.numbers.next_status());
        let head = self.numbers.window(head);
        self.output.push_back(head.with(data, self.parameters.digests));
    }

    /// What has ended makes room for others; what was promised is not taken back.
    fn open_window(&mut self) {
        let room = QUEUE.saturating_sub(self.tasks.len() as u32);
        let most = self.numbers.expected.wrapping_add(room).wrapping_sub(1);
        if most.wrapping_sub(self.numbers.most) <= QUEUE {
            self.numbers.most = most;
        }
    }

    /// Names targets.
    fn text(&mut self, pdu: &Pdu<'_>, target: &str) -> Result<(), ProtocolError> {
        if !pdu.is_final() {
            return Err(ProtocolError::Malformed("a text in several messages"));
        }
        let pairs = pairs(pdu.data).ok_or(ProtocolError::Malformed("a text without keys"))?;
        let mut out = String::new();
        for (key, value) in pairs {
            if key != "SendTargets" {
                say(&mut out, key, "NotUnderstood");
            } else if value.is_empty() || value == "All" || value == target {
                say(&mut out, "TargetName", target);
                if let Some(portal) = &self.config.portal {
                    say(&mut out, "TargetAddress", &format!("{portal},1"));
                }
            }
        }
        if out.len() > self.parameters.send as usize {
            return Err(ProtocolError::Malformed("more keys than the answer has room for"));
        }
        let head = Head::new(opcode::TEXT_RESPONSE, FINAL).put(8, &pdu.lun()).u32(20, NONE);
        self.answer(head, pdu.tag(), out.as_bytes());
        Ok(())
    }

    fn command(
        &mut self,
        pdu: &Pdu<'_>,
        target: &mut Target,
        nexus: NexusId,
    ) -> Result<(), ProtocolError> {
        let (flags, lun, tag) = (pdu.flags(), pdu.lun(), pdu.tag());
        let (reads, writes) = (flags & 0x40 != 0, flags & 0x20 != 0);
        let expected = pdu.u32(20);
        if self.find(tag).is_some() {
            return Err(ProtocolError::Malformed("a tag that is in use"));
        }
        let unasked = if writes { expected.min(self.parameters.first_burst) } else { 0 };
        let is_allowed = self.parameters.immediate || pdu.data.is_empty();
        if pdu.data.len() as u32 > unasked || !is_allowed {
            return Err(ProtocolError::Malformed("data that nobody asked for"));
        }
        let follows = writes && !pdu.is_final();
        if follows && self.parameters.initial_r2t {
            return Err(ProtocolError::Malformed("data that nobody will have asked for"));
        }
        let step = if self.tasks.len() >= QUEUE as usize + MOST_IMMEDIATE {
            Step::Done(Response::status(Status::TaskSetFull))
        } else {
            let data = if writes { expected } else { 0 };
            target.begin(nexus, lun, &pdu.head[32..], data.into())
        };
        let descriptors = target.has_descriptors(lun);
        let data_out = if let Step::Data(pending) = &step { pending.data_out() } else { 0 };
        let transfer =
            Transfer { tag, expected, reads, writes, data_out, requests: 0, descriptors };
        let (then, goal) = match step {
            Step::Done(response) => (Then::Respond(response), 0),
            Step::Work(pending, work) => (Then::Work(pending, work), 0),
            Step::Data(pending) => {
                let room = if writes { u64::from(expected) } else { 0 };
                let goal = pending.data_out().min(room) as usize;
                (Then::Supply(pending), goal)
            }
        };
        let there = pdu.data.len();
        let sequence = follows.then_some(Sequence {
            transfer: NONE,
            next: there as u32,
            end: unasked,
            number: 0,
        });
        let data = pdu.data[..there.min(goal)].to_vec();
        let incoming = Incoming { then, data, goal, sequence, waits: true };
        let id = TaskId(self.next_task);
        self.next_task += 1;
        let task = Task { lun, transfer, state: State::Incoming(incoming), dropped: false };
        self.tasks.insert(id, task);
        self.go_on(id, target, nexus);
        self.ask();
        Ok(())
    }

    /// The task of a tag.
    fn find(&self, tag: u32) -> Option<TaskId> {
        let is_it = |task: &Task| task.transfer.tag == tag && !task.dropped;
        self.tasks.iter().find(|(_, task)| is_it(task)).map(|(id, _)| *id)
    }

    /// Goes on with a task if its data are there.
    fn go_on(&mut self, id: TaskId, target: &mut Target, nexus: NexusId) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let State::Incoming(incoming) = task.state else {
            self.tasks.insert(id, task);
            return;
        };
        if !incoming.is_whole() {
            task.state = State::Incoming(incoming);
            self.tasks.insert(id, task);
            return;
        }
        let Incoming { then, data, .. } = incoming;
        let step = match then {
            Then::Respond(response) => Step::Done(response),
            Then::Work(pending, work) => Step::Work(pending, work),
            Then::Supply(pending) => target.supply(nexus, pending, &data),
        };
        match step {
            Step::Work(pending, work) => {
                task.state = State::Working(pending.clone());
                self.tasks.insert(id, task);
                self.jobs.push_back(Job { task: id, pending, work, data });
            }
            Step::Done(response) => {
                self.open_window();
                let reply = task.transfer.reply(response, &mut self.numbers, &self.parameters);
                self.output.push_back(reply.concat());
            }
            // Nobody asks for data twice.
            Step::Data(_) => {}
        }
    }

    /// Asks for data, for as many tasks as there is room for.
    fn ask(&mut self) {
        let mut room = 0;
        for task in self.tasks.values() {
            if let State::Incoming(incoming) = &task.state
                && !incoming.waits
            {
                room += incoming.goal;
            }
        }
        for task in self.tasks.values_mut() {
            let State::Incoming(incoming) = &mut task.state else { continue };
            if incoming.sequence.is_some() || incoming.data.len() >= incoming.goal {
                continue;
            }
            if incoming.waits && room > 0 && room + incoming.goal > MOST_ROOM {
                continue;
            }
            room += if incoming.waits { incoming.goal } else { 0 };
            incoming.waits = false;
            let next = incoming.data.len() as u32;
            let end = (incoming.goal as u32).min(next + self.parameters.burst);
            let transfer = self.next_transfer;
            self.next_transfer = (transfer + 1) % NONE;
            incoming.sequence = Some(Sequence { transfer, next, end, number: 0 });
            let head = Head::new(opcode::R2T, FINAL)
                .put(8, &task.lun)
                .u32(16, task.transfer.tag)
                .u32(20, transfer)
                .u32(24, self.numbers.status)
                .u32(36, task.transfer.requests)
                .u32(40, next)
                .u32(44, end - next);
            task.transfer.requests += 1;
            self.output.push_back(self.numbers.window(head).with(&[], self.parameters.digests));
        }
    }

    fn data(
        &mut self,
        pdu: &Pdu<'_>,
        target: &mut Target,
        nexus: NexusId,
    ) -> Result<(), ProtocolError> {
        let found = self.find(pdu.tag()).and_then(|id| Some((id, self.tasks.get_mut(&id)?)));
        // It was aborted, or has failed.
        let Some((id, task)) = found else { return Ok(()) };
        let State::Incoming(incoming) = &mut task.state else { return Ok(()) };
        if incoming.sequence.is_none_or(|sequence| sequence.transfer != pdu.transfer()) {
            return Ok(());
        }
        let place = (pdu.u32(36), pdu.u32(40));
        match incoming.take(place, pdu.data, pdu.is_final()) {
            Ok(true) => {
                self.go_on(id, target, nexus);
                self.ask();
            }
            Ok(false) => {}
            Err(_) => {
                let sense = Sense::new(Key::AbortedCommand, Code::DATA_PHASE_ERROR);
                incoming.then = Then::Respond(sense.into());
                (incoming.goal, incoming.sequence) = (0, None);
                self.go_on(id, target, nexus);
                self.ask();
            }
        }
        Ok(())
    }

    fn manage(&mut self, pdu: &Pdu<'_>, target: &mut Target, nexus: NexusId) {
        let what = match pdu.flags() & 0x7f {
            1 => {
                let found = self.find(pdu.u32(20));
                // One that has ended, or that was never seen.
                let response = if found.is_some() { 0 } else { 1 };
                return self.abort(pdu.tag(), found.as_slice(), response);
            }
            2 => TaskManagement::AbortTaskSet,
            4 => TaskManagement::ClearTaskSet,
            5 => TaskManagement::UnitReset,
            6 => TaskManagement::TargetReset,
            // Not supported.
            _ => return self.abort(pdu.tag(), &[], 5),
        };
        let lun = pdu.lun();
        if !target.manage(nexus, lun, what) {
            return self.abort(pdu.tag(), &[], 2);
        }
        let all = what == TaskManagement::TargetReset;
        let meant = self.tasks.iter().filter(|(_, task)| all || task.lun == lun);
        let meant: Vec<TaskId> = meant.map(|(id, _)| *id).collect();
        self.abort(pdu.tag(), &meant, 0);
    }

    /// Ends tasks; what a device works at is waited for before that is answered.
    fn abort(&mut self, tag: u32, tasks: &[TaskId], response: u8) {
        let mut working = Vec::new();
        for id in tasks {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.dropped = true;
            match task.state {
                State::Working(_) => working.push(*id),
                State::Incoming(_) => drop(self.tasks.remove(id)),
            }
        }
        // What no device has begun does not begin.
        let (jobs, tasks) = (&mut self.jobs, &mut self.tasks);
        jobs.retain(|job| {
            let is_dropped = working.contains(&job.task);
            if is_dropped {
                tasks.remove(&job.task);
                working.retain(|id| *id != job.task);
            }
            !is_dropped
        });
        if working.is_empty() {
            let head = Head::new(opcode::TASK_RESPONSE, FINAL).put(2, &[response]);
            self.answer(head, tag, &[]);
        } else {
            self.aborting.push(Aborting { tag, tasks: working });
        }
        self.ask();
    }

    /// A device has ended its work. Gives what is to be sent, now and before anything else.
    pub fn finish(&mut self, target: &Target, id: TaskId, done: Result<Vec<u8>, Failure>) -> Reply {
        let Phase::Full(nexus) = self.phase else { return Reply::default() };
        let Some(task) = self.tasks.remove(&id) else {
            return Reply::default();
        };
        self.open_window();
        let Task { state: State::Working(pending), transfer, dropped, .. } = task else {
            return Reply::default();
        };
        if !dropped {
            let response = target.finish(nexus, &pending, done);
            return transfer.reply(response, &mut self.numbers, &self.parameters);
        }
        for aborting in &mut self.aborting {
            aborting.tasks.retain(|other| *other != id);
        }
        while let Some(at) = self.aborting.iter().position(|aborting| aborting.tasks.is_empty()) {
            let aborting = self.aborting.remove(at);
            self.answer(Head::new(opcode::TASK_RESPONSE, FINAL), aborting.tag, &[]);
        }
        let pieces = self.output.drain(..).map(|head| Piece { head, data: 0..0 }).collect();
        Reply { data: Vec::new(), pieces }
    }
}
