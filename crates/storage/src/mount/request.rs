//! Requests that are under way, and how they are answered.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use crate::client::{Client, Error, Pending};

/// This many buffers are kept for the next requests: fresh ones have to be cleared, page by page.
const KEPT: usize = 64;

/// All requests of a mount.
pub(super) struct Requests {
    client: Client,
    next: AtomicU64,
    /// Those under way, by number, and since when: the first is the oldest.
    since: Mutex<BTreeMap<u64, Instant>>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Requests {
    pub(super) fn new(client: Client) -> Self {
        let (since, buffers) = (Mutex::default(), Mutex::default());
        Self { client, next: AtomicU64::new(0), since, buffers }
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// For how long the oldest request has been under way.
    pub(super) fn oldest(&self) -> Option<Duration> {
        lock(&self.since).first_key_value().map(|(_, since)| since.elapsed())
    }

    /// A buffer of this length, with anything in it.
    pub(super) fn buffer(&self, len: usize) -> Vec<u8> {
        let mut buffer = lock(&self.buffers).pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// A buffer with these bytes.
    pub(super) fn buffer_of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = lock(&self.buffers).pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut buffers = lock(&self.buffers);
        if buffers.len() < KEPT {
            buffers.push(buffer);
        }
    }

    /// Follows a job to its end. It leaves for the server at once.
    pub(super) fn follow(self: &Arc<Self>, job: Job) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.since).insert(number, Instant::now());
        let (requests, job) = (Arc::clone(self), Mutex::new(Some(job)));
        let request = Request { number, requests, job, is_woken: AtomicBool::new(true) };
        Arc::new(request).advance();
    }

    /// Follows several operations, which are one for the kernel.
    pub(super) fn follow_all(self: &Arc<Self>, parts: Vec<Pending<()>>, reply: ReplyEmpty) {
        let left = AtomicUsize::new(parts.len());
        let whole = Whole { left, error: Mutex::new(None), reply: Mutex::new(Some(reply)) };
        let whole = Arc::new(whole);
        if parts.is_empty() {
            whole.answer();
        }
        for part in parts {
            self.follow(Job::Part(part, Arc::clone(&whole)));
        }
    }
}

/// What the kernel waits for.
pub(super) enum Job {
    Read(Pending<Vec<u8>>, ReplyData),
    Write(Pending<Vec<u8>>, u32, ReplyWrite),
    Part(Pending<()>, Arc<Whole>),
}

/// Several operations that are one for the kernel.
pub(super) struct Whole {
    left: AtomicUsize,
    error: Mutex<Option<Errno>>,
    reply: Mutex<Option<ReplyEmpty>>,
}

impl Whole {
    fn end_of_part(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            lock(&self.error).get_or_insert(errno(&error));
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.answer();
        }
    }

    fn answer(&self) {
        let Some(reply) = lock(&self.reply).take() else { return };
        match *lock(&self.error) {
            None => reply.ok(),
            Some(errno) => reply.error(errno),
        }
    }
}

/// A request with its number. It is polled where it is woken: mostly by the thread that receives.
struct Request {
    number: u64,
    requests: Arc<Requests>,
    job: Mutex<Option<Job>>,
    is_woken: AtomicBool,
}

impl Wake for Request {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.advance();
    }
}

impl Request {
    /// Polls, unless somebody does: then it polls once more. Waiting for the other thread here
    /// could be for ever, as that one may wait until this one has received.
    fn advance(self: Arc<Self>) {
        loop {
            let mut job = match self.job.try_lock() {
                Ok(job) => job,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if self.is_woken.swap(false, Ordering::SeqCst)
                && let Some(begun) = job.take()
            {
                *job = self.poll(begun);
            }
            drop(job);
            if !self.is_woken.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Answers if it is over; otherwise gives the job back.
    fn poll(self: &Arc<Self>, job: Job) -> Option<Job> {
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        match job {
            Job::Read(mut pending, reply) => match Pin::new(&mut pending).poll(&mut cx) {
                Poll::Pending => return Some(Job::Read(pending, reply)),
                Poll::Ready(Ok(buffer)) => {
                    reply.data(&buffer);
                    self.requests.keep(buffer);
                }
                Poll::Ready(Err(error)) => reply.error(errno(&error)),
            },
            Job::Write(mut pending, len, reply) => match Pin::new(&mut pending).poll(&mut cx) {
                Poll::Pending => return Some(Job::Write(pending, len, reply)),
                Poll::Ready(Ok(buffer)) => {
                    reply.written(len);
                    self.requests.keep(buffer);
                }
                Poll::Ready(Err(error)) => reply.error(errno(&error)),
            },
            Job::Part(mut pending, whole) => match Pin::new(&mut pending).poll(&mut cx) {
                Poll::Pending => return Some(Job::Part(pending, whole)),
                Poll::Ready(result) => whole.end_of_part(result),
            },
        }
        lock(&self.requests.since).remove(&self.number);
        None
    }
}

/// What a program is told that uses the file.
fn errno(error: &Error) -> Errno {
    match error {
        Error::Failed(failed) => {
            i32::try_from(failed.errno.number()).map_or(Errno::EIO, Errno::from_i32)
        }
        Error::NotIssued(_) | Error::Buffer { .. } => Errno::EINVAL,
        Error::Protocol(_) | Error::Gone(_) => Errno::EIO,
    }
}
