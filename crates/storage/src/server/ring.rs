//! [`RingReader`]: reads of one connection that wait for a file's medium, by `io_uring`.
//!
//! One thread for each connection that has such reads: it begins all that are asked for with one
//! entry into the kernel, and answers those that have ended together. Whatever the ring cannot do
//! is left to the workers.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use landfall_transport::Bell;
use landfall_transport::uring::FileRing;

use super::connection::ReadJob;

/// Places of a ring: how many, and how long. Together less than what users without privileges
/// may lock, so that several connections can have memory that is registered.
const PLACES: [(usize, usize); 2] = [(48, 16 << 10), (8, LONGEST)];
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
    pub(super) fn start(file: Arc<File>) -> io::Result<Self> {
        let ring = FileRing::open(&PLACES)?;
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
            let mut turns = Turns { ring, file, queue: shared, waiting, under_way };
            // A ring that breaks is no error of a read: the workers do what is left.
            let _ = turns.run();
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
    ring: FileRing,
    file: Arc<File>,
    queue: Arc<Queue>,
    waiting: VecDeque<ReadJob>,
    under_way: BTreeMap<u64, ReadJob>,
}

impl Turns {
    fn run(&mut self) -> io::Result<()> {
        let (mut token, mut answers, mut answered) = (0, Vec::new(), Vec::new());
        loop {
            self.waiting.extend(std::mem::take(&mut *self.queue.reads()));
            while let Some(read) = self.waiting.front() {
                if !self.ring.read(&self.file, read.offset(), read.len(), token)? {
                    break;
                }
                self.under_way.extend(self.waiting.pop_front().map(|read| (token, read)));
                token += 1;
            }
            let is_over = self.queue.is_over.load(Ordering::Acquire);
            if is_over && self.under_way.is_empty() && self.waiting.is_empty() {
                return Ok(());
            }
            let Self { ring, queue, under_way, .. } = self;
            let has_work =
                || !queue.reads().is_empty() || queue.is_over.load(Ordering::Acquire) && !is_over;
            ring.wait(has_work, |token, bytes| {
                let read = under_way.remove(&token).expect("each read ends once");
                match bytes {
                    Ok(bytes) if bytes.len() == read.len() => {
                        read.answer(bytes, &mut answers);
                        answered.push(read);
                    }
                    // An error, or the end of the file: the workers say what it is.
                    _ => read.leave_to_workers(),
                }
            })?;
            if let Some(read) = answered.last() {
                read.send(&answers);
                answers.clear();
                // Only now these have ended.
                answered.clear();
            }
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
