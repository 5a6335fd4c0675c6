//! [`Wire`]: what carries the bytes of the two rings from one side to the other.
//!
//! Each carrier writes what was composed here to the same place in the ring over there, says when
//! it is there, and says what has come in the own ring. All else of a link is the same over each,
//! but for long messages and remote memory: STP reads and writes memory of the other side, and
//! QPIP sends long messages in [pieces](super::pieces).

use std::fmt;
use std::ops::Range;

use landfall::stp::Connection;

use super::queue::QueueWire;
use super::stp::StpWire;
use super::transmit::SHORT;
use super::{failure, nonsense, poll, poll_once};
use crate::completion::Failure;
use crate::notify::LinkWaker;
use crate::ring::{RING, offset};

/// The carrier of one link.
pub(super) enum Wire {
    Stp(StpWire),
    Qpip(Box<QueueWire>),
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stp(stp) => stp.fmt(f),
            Self::Qpip(queue) => queue.fmt(f),
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Connecting,
    /// It has begun just now.
    Begun,
    Open,
}

impl Wire {
    /// The connection of STP, once it is there.
    #[inline]
    pub(super) const fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Stp(stp) => stp.connection.as_ref(),
            Self::Qpip(_) => None,
        }
    }

    /// Goes on with the opening.
    #[inline]
    pub(super) fn open(&mut self, waker: &LinkWaker) -> Result<Progress, Failure> {
        match self {
            Self::Stp(stp) => stp.open(waker),
            Self::Qpip(queue) => queue.open(waker),
        }
    }

    /// Can the ring of the other side be written?
    #[inline]
    pub(super) const fn is_writable(&self) -> bool {
        match self {
            Self::Stp(stp) => stp.ring().is_some(),
            Self::Qpip(queue) => queue.is_connected(),
        }
    }

    /// Can the other side write the ring here?
    #[inline]
    pub(super) const fn is_readable(&self) -> bool {
        match self {
            Self::Stp(stp) => stp.shown().is_some(),
            Self::Qpip(queue) => queue.is_connected(),
        }
    }

    /// Writes into the memory here that looks like the ring of the other side.
    #[inline]
    pub(super) fn stage(&self, position: u64, bytes: &[u8]) -> Result<(), Failure> {
        let at = offset(position);
        match self {
            Self::Stp(stp) => stp.staging.copy_in(at, bytes).map_err(|error| failure(&error)),
            Self::Qpip(queue) => queue.stage(at, bytes),
        }
    }

    /// Reads the own ring.
    #[inline]
    pub(super) fn copy_out(&self, position: u64, into: &mut [u8]) -> Result<(), Failure> {
        let at = offset(position);
        match self {
            Self::Stp(stp) => stp.own.copy_out(at, into).map_err(|error| failure(&error)),
            Self::Qpip(queue) => queue.copy_out(at, into),
        }
    }

    /// How many writes are under way.
    #[inline]
    pub(super) fn puts(&self) -> usize {
        match self {
            Self::Stp(stp) => stp.puts.len(),
            Self::Qpip(queue) => queue.puts(),
        }
    }

    /// Writes what was staged there to the other side. Somebody may wait until it is there.
    #[inline]
    pub(super) fn put(&mut self, range: Range<u64>, is_awaited: bool) -> Result<(), Failure> {
        let (from, len) = (offset(range.start), range.end - range.start);
        match self {
            Self::Stp(stp) => {
                let Some(ring) = stp.ring() else { return Ok(()) };
                let part = stp.staging.part(from..from + len).map_err(|error| failure(&error))?;
                let put = ring.put(from, part).with_notice();
                let put = if is_awaited || len > SHORT { put } else { put.answered_later() };
                stp.puts.push_back((range.end, put.start()));
                Ok(())
            }
            Self::Qpip(queue) => queue.put(range),
        }
    }

    /// The next write that is over: up to there all is in place at the other side.
    #[inline]
    pub(super) fn next_done(&mut self, waker: &LinkWaker) -> Result<Option<u64>, Failure> {
        match self {
            Self::Stp(stp) => {
                let Some((end, put)) = stp.puts.front_mut() else { return Ok(None) };
                let std::task::Poll::Ready(result) = poll(put, &waker.operations) else {
                    return Ok(None);
                };
                let end = *end;
                stp.puts.pop_front();
                result.map(|_| Some(end)).map_err(|failed| failure(&failed))
            }
            Self::Qpip(queue) => Ok(queue.next_done(&waker.writes)),
        }
    }

    /// The next bytes that have come, and were read up to there: how many they are.
    #[inline]
    pub(super) fn next_written(
        &mut self,
        consumed: u64,
        waker: &LinkWaker,
    ) -> Result<Option<u64>, Failure> {
        match self {
            Self::Stp(stp) => {
                let Some(shown) = stp.shown() else { return Ok(None) };
                let written = poll_once(shown.written(), &waker.writes);
                let std::task::Poll::Ready(Some(notice)) = written else { return Ok(None) };
                if notice.at != offset(consumed) || notice.at + notice.len > RING {
                    return Err(nonsense("it writes where nothing is expected"));
                }
                Ok(Some(notice.len))
            }
            Self::Qpip(queue) => queue.next_record(consumed, &waker.writes),
        }
    }

    /// Is the connection still there? Of QPIP that is known when all that came before was read.
    pub(super) fn check_open(&self, waker: &LinkWaker) -> Result<(), Failure> {
        match self {
            Self::Stp(stp) => stp.check_open(waker),
            Self::Qpip(_) => Ok(()),
        }
    }

    /// Ends the connection, whatever is under way.
    pub(super) fn abort(&self) {
        if let Self::Stp(stp) = self {
            stp.abort();
        }
        // A queue pair says its last when it is dropped.
    }
}
