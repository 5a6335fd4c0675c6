//! [`RingReader`]: reads of one connection that wait for a file's medium, by `io_uring`.
//!
//! One thread for each connection that has such reads: it begins all that are asked for with one
//! entry into the kernel, and answers those that have ended together. Where the stream has memory
//! that it sends from, they land there; else the ring has its own. Whatever the ring cannot do is
//! left to the workers.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use landfall_transport::Bell;
use landfall_transport::uring::FileRing;

use super::connection::ReadJob;
#[cfg(feature = "family")]
use super::ring_in_place::InPlace;
use crate::stream::Stream;

/// Places of a ring: how many, and how long. Together less than what users without privileges
/// may lock, so that several connections can have memory that is registered.
pub(super) const PLACES: [(usize, usize); 2] = [(48, 16 << 10), (8, LONGEST)];
/// A longer read is left to the workers.
const LONGEST: usize = 256 << 10;

/// Can files be read through rings here?
///
/// # Errors
/// Why not, and what would help.
pub(crate) fn probe() -> io::Result<()> {
    FileRing::open(&PLACES).map(drop)
}

/// Dropped, it ends when what was begun has ended.
pub(super) struct RingReader {
    queue: Arc<Queue>,
}

/// A ring, and the way by which its bytes leave.
pub(super) trait Ring: Send {
    /// Ends a [`wait`](Self::wait).
    fn bell(&self) -> Arc<Bell>;

    /// Begins to read. False: there is no room for it.
    fn read(&mut self, file: &Arc<File>, read: &ReadJob, token: u64) -> io::Result<bool>;

    /// Sleeps until something has ended or there is work to do, and answers what has ended. What
    /// it cannot answer is left to the workers.
    fn wait(&mut self, has_work: &dyn Fn() -> bool, under_way: &mut UnderWay) -> io::Result<()>;
}

/// Reads by their tokens.
pub(super) type UnderWay = BTreeMap<u64, ReadJob>;

/// A ring for a stream.
fn open(stream: &dyn Stream) -> io::Result<Box<dyn Ring>> {
    #[cfg(feature = "family")]
    if let Some(ring) = InPlace::open(stream)? {
        return Ok(Box::new(ring));
    }
    let _ = stream;
    Ok(Box::new(Copying { ring: FileRing::open(&PLACES)?, answers: Vec::new() }))
}

/// A ring with memory of its own: answers are copied from there into the stream.
struct Copying {
    ring: FileRing,
    answers: Vec<u8>,
}

impl Ring for Copying {
    fn bell(&self) -> Arc<Bell> {
        self.ring.bell()
    }

    fn read(&mut self, file: &Arc<File>, read: &ReadJob, token: u64) -> io::Result<bool> {
        self.ring.read(file, read.offset(), read.len(), token)
    }

    fn wait(&mut self, has_work: &dyn Fn() -> bool, under_way: &mut UnderWay) -> io::Result<()> {
        let (answers, mut answered) = (&mut self.answers, Vec::new());
        self.ring.wait(has_work, |token, bytes| {
            let read = under_way.remove(&token).expect("each read ends once");
            match bytes {
                Ok(bytes) if bytes.len() == read.len() => {
                    read.answer(bytes, answers);
                    answered.push(read);
                }
                // An error, or the end of the file: the workers say what it is.
                _ => read.leave_to_workers(),
            }
        })?;
        if let Some(read) = answered.last() {
            read.send(answers);
            answers.clear();
        }
        // Only now these have ended.
        drop(answered);
        Ok(())
    }
}

struct Queue {
    reads: Mutex<Vec<ReadJob>>,
    bell: Arc<Bell>,
    is_over: AtomicBool,
    /// The thread takes no more reads.
    is_broken: AtomicBool,
}

impl RingReader {
    /// Starts one for a file.
    ///
    /// # Errors
    /// The kernel has no ring for it, or no thread can be started.
    pub(super) fn start(file: Arc<File>, stream: &dyn Stream) -> io::Result<Self> {
        let mut ring = open(stream)?;
        let queue = Arc::new(Queue {
            reads: Mutex::default(),
            bell: ring.bell(),
            is_over: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        });
        let shared = Arc::clone(&queue);
        let thread = thread::Builder::new().name("landfall-uring".into());
        thread.spawn(move || {
            let (waiting, under_way) = (VecDeque::new(), BTreeMap::new());
            let mut turns = Turns { file, queue: shared, waiting, under_way };
            // A ring that breaks is no error of a read: the workers do what is left.
            let _ = turns.run(&mut *ring);
            turns.give_up();
        })?;
        Ok(Self { queue })
    }

    /// Takes a read, or gives it back.
    pub(super) fn read(&self, read: ReadJob) -> Result<(), ReadJob> {
        if read.len() > LONGEST || self.queue.is_broken.load(Ordering::SeqCst) {
            return Err(read);
        }
        self.queue.reads().push(read);
        self.queue.bell.ring();
        if self.queue.is_broken.load(Ordering::SeqCst) {
            // The thread may have looked for the last time.
            self.queue.give_up();
        }
        Ok(())
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.queue.is_over.store(true, Ordering::Release);
        self.queue.bell.ring();
    }
}

impl Queue {
    fn reads(&self) -> MutexGuard<'_, Vec<ReadJob>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self) {
        let reads = std::mem::take(&mut *self.reads());
        reads.into_iter().for_each(ReadJob::leave_to_workers);
    }
}

/// The thread of a ring.
struct Turns {
    file: Arc<File>,
    queue: Arc<Queue>,
    waiting: VecDeque<ReadJob>,
    under_way: UnderWay,
}

impl Turns {
    fn run(&mut self, ring: &mut dyn Ring) -> io::Result<()> {
        let mut token = 0;
        loop {
            self.waiting.extend(std::mem::take(&mut *self.queue.reads()));
            while let Some(read) = self.waiting.front() {
                if !ring.read(&self.file, read, token)? {
                    break;
                }
                self.under_way.extend(self.waiting.pop_front().map(|read| (token, read)));
                token += 1;
            }
            let is_over = self.queue.is_over.load(Ordering::Acquire);
            if is_over && self.under_way.is_empty() && self.waiting.is_empty() {
                return Ok(());
            }
            let queue = &self.queue;
            let has_work =
                || !queue.reads().is_empty() || queue.is_over.load(Ordering::Acquire) && !is_over;
            ring.wait(&has_work, &mut self.under_way)?;
        }
    }

    /// Nothing is answered here any more.
    fn give_up(&mut self) {
        self.queue.is_broken.store(true, Ordering::SeqCst);
        let left = std::mem::take(&mut self.under_way).into_values();
        left.chain(self.waiting.drain(..)).for_each(ReadJob::leave_to_workers);
        self.queue.give_up();
    }
}
