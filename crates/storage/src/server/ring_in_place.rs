//! [`InPlace`]: a ring whose reads land in memory that the stream sends from.

use std::fs::File;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_placement::Span;
use landfall_transport::Bell;
use landfall_transport::uring::RegionFileRing;
use sockets_compat::SendMemory;

use super::connection::ReadJob;
use super::ring::{PLACES, Ring, UnderWay};
use crate::stream::Stream;

/// Blocks go from the file to the memory of a queue pair, and from there to the other side: no
/// thread of ours copies them. A place is free again when the other side has acknowledged them.
pub(super) struct InPlace {
    /// Before the memory: it is done with that when it is dropped.
    ring: RegionFileRing,
    memory: SendMemory,
    returned: Arc<Returned>,
}

/// What comes back from the stream, on its own threads.
struct Returned {
    spans: Mutex<Vec<Span>>,
    /// Some will never come back: the connection is broken.
    is_lost: AtomicBool,
    bell: Arc<Bell>,
}

impl Returned {
    fn spans(&self) -> MutexGuard<'_, Vec<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }
}

/// A place that the stream sends from.
struct Sending {
    span: Span,
    returned: Arc<Returned>,
    is_sent: bool,
}

impl Sending {
    fn done(mut self) {
        self.is_sent = true;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.is_sent {
            self.returned.spans().push(self.span);
        } else {
            self.returned.is_lost.store(true, Ordering::Release);
        }
        self.returned.bell.ring();
    }
}

impl InPlace {
    /// Opens one if the stream has memory for it.
    pub(super) fn open(stream: &dyn Stream) -> io::Result<Option<Self>> {
        // Where it cannot be registered the ring has memory of its own.
        let memory = stream.send_memory(RegionFileRing::room(&PLACES)).unwrap_or_default();
        let Some(memory) = memory else { return Ok(None) };
        let ring = RegionFileRing::open(memory.pin()?, &PLACES)?;
        let (spans, is_lost, bell) = (Mutex::default(), AtomicBool::new(false), ring.bell());
        Ok(Some(Self { ring, memory, returned: Arc::new(Returned { spans, is_lost, bell }) }))
    }

    /// Places that were sent from may be read into again.
    fn take_back(&mut self) -> io::Result<()> {
        for span in mem::take(&mut *self.returned.spans()) {
            self.ring.release(&span);
        }
        match self.returned.is_lost() {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        }
    }

    /// Sends a block from where it landed.
    fn answer(&mut self, read: &ReadJob, span: Span) {
        let returned = Arc::clone(&self.returned);
        let sending = Sending { span, returned, is_sent: false };
        let at = span.offset..span.offset + u64::from(span.len);
        // Where it fails the connection is over, which `Sending` has told.
        let _ = read.answer_from(&self.memory, at, move || sending.done());
    }
}

impl Ring for InPlace {
    fn bell(&self) -> Arc<Bell> {
        self.ring.bell()
    }

    fn read(&mut self, file: &Arc<File>, read: &ReadJob, token: u64) -> io::Result<bool> {
        self.take_back()?;
        self.ring.read(file, read.offset(), read.len(), token)
    }

    fn wait(&mut self, has_work: &dyn Fn() -> bool, under_way: &mut UnderWay) -> io::Result<()> {
        self.take_back()?;
        let (returned, mut landed) = (&self.returned, Vec::new());
        let has_work = || has_work() || !returned.spans().is_empty() || returned.is_lost();
        self.ring.wait(has_work, |token, span| {
            let read = under_way.remove(&token).expect("each read ends once");
            landed.push((read, span));
        })?;
        for (read, span) in landed {
            match span {
                Ok(span) if span.len as usize == read.len() => self.answer(&read, span),
                // An error, or the end of the file: the workers say what it is.
                span => {
                    span.iter().for_each(|span| self.ring.release(span));
                    read.leave_to_workers();
                }
            }
        }
        Ok(())
    }
}
