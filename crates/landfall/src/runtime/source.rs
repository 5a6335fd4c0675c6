//! [`Source`]: what one thread has for itself and drives without a lock: a socket, a ring or an
//! interface of the kernel with what belongs to it.
//!
//! The calling thread drives it ([`drive_alone`]), or a thread of its own ([`Worker`]).

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use landfall_placement::Instant;
use landfall_transport::driver::Interest;
use landfall_transport::wait::until_ready;
use landfall_transport::{Bell, Clock, Wait};

use super::drive::{Drive, LONGEST_SLEEP, Turn, drive};

/// What one thread has for itself, and drives.
pub(crate) trait Source {
    /// What it leaves at its end.
    type Output;

    /// Does what is due. Gives whether anything moved, or what it ends with.
    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool>;

    /// What a thread waits for that sleeps, with the bells that it hears.
    fn interests(&self, into: &mut Vec<Interest>);

    /// When a turn makes sense, even if nothing comes.
    fn next_wake(&self) -> Option<Instant>;

    /// A thread is about to sleep: from here on rings of its bells are heard.
    fn arm(&self) {}

    /// Is there work that other threads left? It is asked when the bells are armed.
    fn has_work(&self) -> bool {
        false
    }

    /// The thread is awake.
    fn silence(&self) {}
}

/// Drives a source on this thread, until it is over.
pub(crate) fn drive_alone<S: Source>(source: &mut S, clock: Clock, wait: Wait) -> S::Output {
    drive(&mut Alone { source, clock, interests: Vec::new() }, wait)
}

struct Alone<'a, S> {
    source: &'a mut S,
    clock: Clock,
    interests: Vec<Interest>,
}

impl<S: Source> Drive for Alone<'_, S> {
    type Output = S::Output;

    fn turn(&mut self) -> ControlFlow<S::Output, Turn> {
        let at = self.clock.now();
        let moved = self.source.turn(at)?;
        ControlFlow::Continue(Turn { moved, at })
    }

    fn sleep(&mut self, _: Instant) {
        let Self { source, clock, interests } = self;
        asleep(*source, interests, |source, interests| {
            let patience = source.next_wake().map_or(LONGEST_SLEEP, |until| clock.until(until));
            let time = patience.min(LONGEST_SLEEP);
            if !time.is_zero() && !source.has_work() {
                // A poll that fails is a short sleep: the next turn tells more.
                let _ = until_ready(interests, time);
            }
        });
    }
}

/// Rings of a source's bells are heard while a thread sleeps at its descriptors.
fn asleep<S: Source>(
    source: &S,
    interests: &mut Vec<Interest>,
    sleep: impl FnOnce(&S, &[Interest]),
) {
    source.arm();
    interests.clear();
    source.interests(interests);
    sleep(source, interests);
    source.silence();
}

/// A thread that drives a source. It ends when this is dropped, or the source is over.
#[derive(Debug)]
pub(crate) struct Worker {
    call: Arc<Call>,
    thread: Option<JoinHandle<()>>,
}

/// What reaches a worker from other threads.
#[derive(Debug)]
pub(crate) struct Call {
    bell: Bell,
    is_over: AtomicBool,
}

impl Call {
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { bell: Bell::new()?, is_over: AtomicBool::new(false) }))
    }

    /// There is work, which the source finds when it looks.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// The worker shall end.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Was it told to?
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl Worker {
    /// Starts a thread that drives a source, and leaves it and what it ended with to `finish`:
    /// nothing if it was told to end.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start<S: Source + Send + 'static>(
        name: impl Into<String>,
        call: &Arc<Call>,
        (clock, wait): (Clock, Wait),
        source: S,
        finish: impl FnOnce(S, Option<S::Output>) + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, call, move |call| {
            let mut called = Called { source, call };
            let output = drive_alone(&mut called, clock, wait);
            finish(called.source, output);
        })
    }

    fn spawn(
        name: impl Into<String>,
        call: &Arc<Call>,
        work: impl FnOnce(Arc<Call>) + Send + 'static,
    ) -> io::Result<Self> {
        let theirs = Arc::clone(call);
        let thread = thread::Builder::new().name(name.into()).spawn(move || work(theirs))?;
        Ok(Self { call: Arc::clone(call), thread: Some(thread) })
    }

    /// Ends it, and waits until all that its thread had is gone. What it panicked with was
    /// printed where it did.
    pub(crate) fn join(mut self) {
        self.call.end();
        let is_another = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_another) {
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.call.end();
    }
}

/// A source that ends when its worker is told to.
struct Called<S> {
    source: S,
    call: Arc<Call>,
}

impl<S: Source> Source for Called<S> {
    type Output = Option<S::Output>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        if self.call.is_over() {
            return ControlFlow::Break(None);
        }
        self.source.turn(now).map_break(Some)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        self.source.interests(into);
        into.push(self.call.bell.interest());
    }

    fn next_wake(&self) -> Option<Instant> {
        self.source.next_wake()
    }

    fn arm(&self) {
        self.call.bell.arm();
        self.source.arm();
    }

    fn has_work(&self) -> bool {
        self.call.is_over() || self.source.has_work()
    }

    fn silence(&self) {
        self.call.bell.silence();
        self.source.silence();
    }
}
