//! Remote writes, reads and words that are changed in one step: Puts, Gets and FetchOps of STP,
//! to and from regions that the other side gives for the key of its memory.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use landfall::stp::{
    Error, Exposed, Failed, Memory, Message, Operation, Put, Reason, Received, RegionRequest,
    RemoteMemory, RemoteRights, WordFunction, WordWidth,
};

use super::transmit::{Bytes, Outgoing, payload};
use super::wire::Wire;
use super::{Link, failure, poll};
use crate::abi::{FI_EACCES, FI_EKEYREJECTED};
use crate::buffer::Buffer;
use crate::completion::Failure;
use crate::core::{EndpointState, Report};
use crate::world::World;

/// Longer writes are not copied.
const MOST_COPIED: usize = 1024;
/// This many reads and writes of one connection are under way at a time.
const MOST_UNDER_WAY: usize = 128;

/// A read or write of the other side's memory.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) what: RmaKind,
    pub(crate) key: u32,
    /// From the start of the memory on.
    pub(crate) at: u64,
    pub(crate) report: Report,
}

#[derive(Debug)]
pub(crate) enum RmaKind {
    Read(Buffer),
    /// With data for a completion of the other side.
    Write(Bytes, Option<u64>),
    Words(Words),
}

/// Words, one behind the other, each of which is changed in one step.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) width: WordWidth,
    pub(crate) functions: Vec<WordFunction>,
    /// For what they held before.
    pub(crate) result: Option<Buffer>,
}

impl Words {
    fn len(&self) -> usize {
        self.functions.len() * self.width.bytes() as usize
    }
}

/// What is known of a key.
#[derive(Debug)]
pub(super) enum Key {
    Asked(Operation<RemoteMemory>),
    Known(RemoteMemory),
}

/// An access that was begun.
#[derive(Debug)]
pub(super) struct UnderWay {
    operation: Step,
    key: u32,
    report: Report,
    /// Memory of the program that it uses.
    _bytes: Option<Bytes>,
}

#[derive(Debug)]
enum Step {
    Write(Operation<Put>),
    Read(Operation<Received>),
    /// Into memory of several pieces.
    ReadApart(Operation<Message>, Buffer),
    Words(ChangingWords),
}

/// Words that are being changed.
#[derive(Debug)]
struct ChangingWords {
    left: VecDeque<Operation<u64>>,
    width: WordWidth,
    /// What those that are done held before.
    held: Vec<u8>,
    result: Option<Buffer>,
}

impl ChangingWords {
    fn new(words: Words, memory: &RemoteMemory, at: u64) -> Self {
        let Words { width, functions, result } = words;
        let places = (at..).step_by(width.bytes() as usize);
        let begin = |(at, function)| memory.fetch_op(at, width, function).start_later();
        let left = places.zip(functions).map(begin).collect();
        Self { left, width, held: Vec::new(), result }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<(), Failed>> {
        while let Some(first) = self.left.front_mut() {
            let Poll::Ready(held) = poll(first, waker) else { return Poll::Pending };
            self.left.pop_front();
            match held {
                Ok(held) => {
                    self.held.extend(&held.to_le_bytes()[..self.width.bytes() as usize]);
                }
                Err(failed) => return Poll::Ready(Err(failed)),
            }
        }
        if let Some(result) = &self.result {
            result.fill(&self.held);
        }
        Poll::Ready(Ok(()))
    }
}

impl UnderWay {
    pub(super) const fn report(&self) -> Report {
        self.report
    }
}

impl Link {
    /// Begins an access, or gives it back where it has to wait: for others to end, or for the
    /// other side to say where the memory is.
    pub(super) fn begin_access(
        &mut self,
        core: &EndpointState,
        world: &mut World,
        access: Access,
    ) -> Result<Option<Outgoing>, Failure> {
        if self.under_way.len() >= MOST_UNDER_WAY {
            return Ok(Some(Outgoing::Access(access)));
        }
        let waker = self.waker();
        let Wire::Stp(stp) = &self.wire else {
            core.report(world, &access.report, core.network.stp().err());
            return Ok(None);
        };
        let Some(connection) = &stp.connection else {
            return Ok(Some(Outgoing::Access(access)));
        };
        let key = self.keys.entry(access.key).or_insert_with(|| {
            Key::Asked(connection.request_region(access.key, 1, RemoteRights::ALL).start())
        });
        if let Key::Asked(operation) = key {
            let Poll::Ready(result) = poll(operation, &waker) else {
                return Ok(Some(Outgoing::Access(access)));
            };
            match result {
                Ok(memory) => *key = Key::Known(memory),
                Err(failed) => {
                    self.keys.remove(&access.key);
                    let text = format!("the peer has no memory with this key: {}", failed.why());
                    let why = Failure::new(FI_EKEYREJECTED, text);
                    core.report(world, &access.report, Some(why));
                    return Ok(None);
                }
            }
        }
        let Key::Known(memory) = key else { return Ok(Some(Outgoing::Access(access))) };
        let memory = memory.clone();
        Ok(self.begin_known(core, world, access, &memory))
    }

    fn begin_known(
        &mut self,
        core: &EndpointState,
        world: &mut World,
        access: Access,
        memory: &RemoteMemory,
    ) -> Option<Outgoing> {
        let Access { what, key, at, report } = access;
        let (len, right) = match &what {
            RmaKind::Read(buffer) => (buffer.len(), RemoteRights::GET),
            RmaKind::Write(bytes, _) => (bytes.len(), RemoteRights::PUT),
            RmaKind::Words(words) => (words.len(), RemoteRights::FETCH),
        };
        let is_within = at.checked_add(len as u64).is_some_and(|end| end <= memory.len());
        if !is_within || !memory.rights().has(right) {
            let text = format!("{len} bytes at {at} of {}: not granted", memory.len());
            core.report(world, &report, Some(Failure::new(FI_EACCES, text)));
            return None;
        }
        if len == 0 {
            // Nothing moves; an empty write may still be told of.
            core.report(world, &report, None);
            return match what {
                RmaKind::Write(_, Some(data)) => Some(Outgoing::Written(0, data)),
                _ => None,
            };
        }
        let begun = match what {
            RmaKind::Read(buffer) => {
                begin_read(core, memory, at, buffer).map(|step| (step, None, None))
            }
            RmaKind::Words(words) => {
                Ok((Step::Words(ChangingWords::new(words, memory, at)), None, None))
            }
            RmaKind::Write(bytes, data) => {
                let copy = match bytes {
                    Bytes::Buffer(buffer) if len <= MOST_COPIED => Bytes::Copy(buffer.to_vec(len)),
                    other => other,
                };
                payload(core, &copy, len)
                    .map(|payload| (Step::Write(memory.put(at, payload).start()), Some(copy), data))
            }
        };
        match begun {
            Ok((operation, bytes, data)) => {
                if let (Step::Words(_), Some(connection)) = (&operation, self.wire.connection()) {
                    connection.turn();
                }
                self.under_way.push(UnderWay { operation, key, report, _bytes: bytes });
                data.map(|data| Outgoing::Written(len as u64, data))
            }
            Err(why) => {
                core.report(world, &report, Some(why));
                None
            }
        }
    }

    /// Takes note of accesses that are over. Were there any?
    pub(super) fn finish_accesses(&mut self, core: &EndpointState, world: &mut World) -> bool {
        let waker = self.waker();
        let before = self.under_way.len();
        let mut at = 0;
        while let Some(under_way) = self.under_way.get_mut(at) {
            let result = match &mut under_way.operation {
                Step::Write(operation) => poll(operation, &waker).map_ok(|_| ()),
                Step::Read(operation) => poll(operation, &waker).map_ok(|_| ()),
                Step::Words(words) => words.poll(&waker),
                Step::ReadApart(operation, buffer) => {
                    poll(operation, &waker).map_ok(|message| buffer.fill(&message))
                }
            };
            let Poll::Ready(result) = result else {
                at += 1;
                continue;
            };
            let UnderWay { report, key, .. } = self.under_way.remove(at);
            let why = result.err().map(|failed| self.access_failed(key, failed.why()));
            core.report(world, &report, why);
        }
        self.under_way.len() < before
    }

    /// Memory may have been closed, and registered anew by the same key: it is asked for again.
    fn access_failed(&mut self, key: u32, why: &Error) -> Failure {
        self.keys.remove(&key);
        let mut failure = failure(why);
        if failure.error == crate::abi::FI_EIO {
            failure.error = FI_EKEYREJECTED;
        }
        failure
    }

    /// The other side asks for memory by its key.
    pub(super) fn show_memory(
        &mut self,
        core: &EndpointState,
        world: &mut World,
        request: RegionRequest,
    ) {
        let key = request.name();
        // Where it fails the peer is told by a refusal, and its program by an error.
        if let Ok(Some(shown)) = grant(core, world, request) {
            self.shown.push((key, shown));
        }
    }
}

fn grant(
    core: &EndpointState,
    world: &mut World,
    request: RegionRequest,
) -> Result<Option<Exposed>, Failure> {
    let Some(registered) = world.memory.get_mut(&request.name()) else {
        request.refuse(Reason::Refused);
        return Ok(None);
    };
    let part = registered.part(core.number, core.network.stp()?);
    let part = part.map_err(|error| failure(&error))?;
    request.expose(&part, registered.rights).map(Some).map_err(|error| failure(&error))
}

fn begin_read(
    core: &EndpointState,
    memory: &RemoteMemory,
    at: u64,
    buffer: Buffer,
) -> Result<Step, Failure> {
    let len = buffer.len();
    if let Some((mapped, within)) = buffer.map(len) {
        let registered = core.network.stp()?.as_async().register_mapped(&mapped);
        let part = registered.and_then(|region| region.part(within));
        let part = part.map_err(|error| failure(&error))?;
        return Ok(Step::Read(memory.get_into(at, &part).start()));
    }
    let into = core.network.stp()?.memory(len).unwrap_or_else(|_| Memory::zeroed(len));
    Ok(Step::ReadApart(memory.get(at, into).start(), buffer))
}
