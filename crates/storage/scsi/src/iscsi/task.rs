//! [`Task`]: a command whose data come, or that a device works at.

use alloc::vec::Vec;

use super::reply::Transfer;
use crate::sense::Response;
use crate::target::Pending;
use crate::work::Work;

/// What is done when all data are there.
#[derive(Debug)]
pub(crate) enum Then {
    /// It has ended already, and what comes is not used.
    Respond(Response),
    /// It goes on with its data.
    Supply(Pending),
    /// A device works at it; it has no data.
    Work(Pending, Work),
}

/// Data that are coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// The tag that was given for it; without one they come unasked.
    pub(crate) transfer: u32,
    /// Where the next ones belong.
    pub(crate) next: u32,
    /// Where they end.
    pub(crate) end: u32,
    /// The number of the next message.
    pub(crate) number: u32,
}

/// A command whose data come.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) then: Then,
    pub(crate) data: Vec<u8>,
    /// This many are wanted.
    pub(crate) goal: usize,
    pub(crate) sequence: Option<Sequence>,
    /// It is waiting for room to ask for more.
    pub(crate) waits: bool,
}

#[derive(Debug)]
pub(crate) enum State {
    Incoming(Incoming),
    Working(Pending),
}

/// A command that has not ended.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) lun: [u8; 8],
    pub(crate) transfer: Transfer,
    pub(crate) state: State,
    /// It was aborted, and is not answered.
    pub(crate) dropped: bool,
}

/// Why data that came cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl Incoming {
    /// Takes data that came; true at the end of their sequence.
    pub(crate) fn take(
        &mut self,
        (number, offset): (u32, u32),
        data: &[u8],
        is_final: bool,
    ) -> Result<bool, OutOfOrder> {
        let sequence = self.sequence.as_mut().ok_or(OutOfOrder)?;
        let end = offset.checked_add(data.len() as u32).ok_or(OutOfOrder)?;
        if number != sequence.number || offset != sequence.next || end > sequence.end {
            return Err(OutOfOrder);
        }
        sequence.number += 1;
        sequence.next = end;
        let wanted = self.goal.saturating_sub(self.data.len()).min(data.len());
        self.data.extend_from_slice(&data[..wanted]);
        // What was asked for comes whole.
        if is_final && sequence.transfer != super::pdu::NONE && end != sequence.end {
            return Err(OutOfOrder);
        }
        if is_final {
            self.sequence = None;
        }
        Ok(is_final)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.sequence.is_none() && self.data.len() >= self.goal
    }
}
