//! [`Source`]: what one thread has for itself and drives without a lock: a socket, a ring or an
//! interface of the kernel with what belongs to it.
//!
//! The calling thread drives it ([`drive_alone`]), a thread of its own ([`Worker`]), or one that
//! drives a runtime as well ([`Runtime::drive_beside`]).

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
use super::user_drivers::DriverGuard;
use super::{Protocol, Runtime};

/// What one thread has for itself, and drives.
pub(crate) trait Source {
    /// What it leaves at its end.
    type Output;

    /// Does what is due. Returns whether anything moved, or what it ends with.
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
    drive(&mut SoleSource { source, clock, interests: Vec::new() }, wait)
}

struct SoleSource<'a, S> {
    source: &'a mut S,
    clock: Clock,
    interests: Vec<Interest>,
}

impl<S: Source> Drive for SoleSource<'_, S> {
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

impl<P: Protocol> Runtime<P> {
    /// Drives this runtime and a source beside it on this thread, until the source is over. Its
    /// turns follow those of the runtime, without the lock: it may call handles. The own thread
    /// makes none meanwhile, and other threads should ask for nothing: what their turns bring
    /// is not told here.
    pub(crate) fn drive_beside<S: Source>(&self, source: &mut S) -> S::Output {
        let driver = self.begin_driving();
        drive(
            &mut DrivenSource { runtime: self, source, interests: Vec::new(), _driver: driver },
            self.wait,
        )
    }
}

struct DrivenSource<'a, P: Protocol, S> {
    runtime: &'a Runtime<P>,
    source: &'a mut S,
    interests: Vec<Interest>,
    _driver: DriverGuard<'a>,
}

impl<P: Protocol, S: Source> Drive for DrivenSource<'_, P, S> {
    type Output = S::Output;

    fn turn(&mut self) -> ControlFlow<S::Output, Turn> {
        let turn = self.runtime.turn_and_tell();
        let moved = self.source.turn(turn.at)?;
        ControlFlow::Continue(Turn { moved: moved || turn.moved, at: turn.at })
    }

    fn sleep(&mut self, _: Instant) {
        let Self { runtime, source, interests, .. } = self;
        asleep(*source, interests, |source, interests| {
            let clock = runtime.clock;
            let at_most = source.next_wake().map_or(LONGEST_SLEEP, |until| clock.until(until));
            runtime.rest(at_most, interests, || source.has_work());
        });
    }
}

/// A thread that drives a source. It ends when this is dropped, or the source is over.
#[derive(Debug)]
pub(crate) struct Worker {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// What reaches a worker from other threads.
#[derive(Debug)]
pub(crate) struct Signal {
    bell: Bell,
    is_over: AtomicBool,
}

impl Signal {
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
        signal: &Arc<Signal>,
        (clock, wait): (Clock, Wait),
        source: S,
        finish: impl FnOnce(S, Option<S::Output>) + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, signal, move |signal| {
            let mut called = Signalled { source, signal };
            let output = drive_alone(&mut called, clock, wait);
            finish(called.source, output);
        })
    }

    /// Starts a thread that drives a source beside a runtime, of which it holds a handle.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start_beside<P, H, S>(
        name: impl Into<String>,
        signal: &Arc<Signal>,
        handle: H,
        source: S,
        finish: impl FnOnce(S, Option<S::Output>) + Send + 'static,
    ) -> io::Result<Self>
    where
        P: Protocol,
        H: std::ops::Deref<Target = Runtime<P>> + Send + 'static,
        S: Source + Send + 'static,
    {
        Self::spawn(name, signal, move |signal| {
            let mut called = Signalled { source, signal };
            let output = handle.drive_beside(&mut called);
            finish(called.source, output);
        })
    }

    fn spawn(
        name: impl Into<String>,
        signal: &Arc<Signal>,
        work: impl FnOnce(Arc<Signal>) + Send + 'static,
    ) -> io::Result<Self> {
        let theirs = Arc::clone(signal);
        let thread = thread::Builder::new().name(name.into()).spawn(move || work(theirs))?;
        Ok(Self { signal: Arc::clone(signal), thread: Some(thread) })
    }

    /// Ends it, and waits until all that its thread had is gone. What it panicked with was
    /// printed where it did.
    pub(crate) fn join(mut self) {
        self.signal.end();
        let is_another = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_another) {
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.signal.end();
    }
}

/// A source that ends when its worker is told to.
struct Signalled<S> {
    source: S,
    signal: Arc<Signal>,
}

impl<S: Source> Source for Signalled<S> {
    type Output = Option<S::Output>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        if self.signal.is_over() {
            return ControlFlow::Break(None);
        }
        self.source.turn(now).map_break(Some)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        self.source.interests(into);
        into.push(self.signal.bell.interest());
    }

    fn next_wake(&self) -> Option<Instant> {
        self.source.next_wake()
    }

    fn arm(&self) {
        self.signal.bell.arm();
        self.source.arm();
    }

    fn has_work(&self) -> bool {
        self.signal.is_over() || self.source.has_work()
    }

    fn silence(&self) {
        self.signal.bell.silence();
        self.source.silence();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;

    use landfall_placement::Duration;

    use super::*;

    /// Counts what others leave, and is over with so much, or in time.
    struct Counter {
        left: Arc<AtomicU32>,
        counted: u32,
        enough: u32,
        until: Option<Instant>,
        bell: Arc<Bell>,
    }

    impl Counter {
        fn new(enough: u32) -> Self {
            let (left, bell) = (Arc::default(), Arc::new(Bell::new().unwrap()));
            Self { left, counted: 0, enough, until: None, bell }
        }
    }

    impl Source for Counter {
        type Output = u32;

        fn turn(&mut self, now: Instant) -> ControlFlow<u32, bool> {
            let came = self.left.swap(0, Ordering::SeqCst);
            self.counted += came;
            let is_late = self.until.is_some_and(|until| now >= until);
            match self.counted >= self.enough || is_late {
                true => ControlFlow::Break(self.counted),
                false => ControlFlow::Continue(came > 0),
            }
        }

        fn interests(&self, into: &mut Vec<Interest>) {
            into.push(self.bell.interest());
        }

        fn next_wake(&self) -> Option<Instant> {
            self.until
        }

        fn arm(&self) {
            self.bell.arm();
        }

        fn has_work(&self) -> bool {
            self.left.load(Ordering::SeqCst) > 0
        }

        fn silence(&self) {
            self.bell.silence();
        }
    }

    /// Nothing but the bell wakes it: in tests nobody looks up by itself.
    #[test]
    fn what_another_thread_leaves_wakes_a_source_however_it_waits() {
        const ALL: u32 = 2000;
        for wait in [Wait::Block, Wait::BALANCED, Wait::Spin] {
            let mut counter = Counter::new(ALL);
            let (left, bell) = (Arc::clone(&counter.left), Arc::clone(&counter.bell));
            let thread = thread::spawn(move || {
                for nth in 0..ALL {
                    left.fetch_add(1, Ordering::SeqCst);
                    bell.ring();
                    if nth % 64 == 0 {
                        thread::yield_now();
                    }
                }
            });
            assert_eq!(drive_alone(&mut counter, Clock::start(), wait), ALL);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_source_is_over_in_time_though_nothing_comes() {
        for wait in [Wait::Block, Wait::BALANCED, Wait::Spin] {
            let (clock, mut counter) = (Clock::start(), Counter::new(1));
            let until = clock.now() + Duration::from_millis(3);
            counter.until = Some(until);
            assert_eq!(drive_alone(&mut counter, clock, wait), 0);
            assert!(clock.now() >= until);
        }
    }

    #[test]
    fn a_worker_is_woken_and_ends_when_it_is_told_or_its_source_is_over() {
        for is_told in [true, false] {
            let (counter, signal) = (Counter::new(7), Signal::new().unwrap());
            let left = Arc::clone(&counter.left);
            let (ended, has_ended) = channel();
            let finish = move |counter: Counter, output| {
                ended.send((counter.counted, output)).unwrap();
            };
            let pace = (Clock::start(), Wait::Block);
            let worker = Worker::start("test", &signal, pace, counter, finish).unwrap();
            if is_told {
                worker.join();
                assert_eq!(has_ended.try_recv().unwrap(), (0, None));
            } else {
                // Its own bell is not rung: the worker's reaches it, too.
                left.store(7, Ordering::SeqCst);
                signal.ring();
                assert_eq!(has_ended.recv().unwrap(), (7, Some(7)));
                worker.join();
            }
            assert!(signal.is_over());
        }
    }

    #[test]
    fn a_worker_that_is_joined_by_its_own_thread_does_not_wait_for_itself() {
        let (counter, signal) = (Counter::new(1), Signal::new().unwrap());
        let left = Arc::clone(&counter.left);
        let own: Arc<Mutex<Option<Worker>>> = Arc::default();
        let (ended, has_ended) = channel();
        let joins = Arc::clone(&own);
        let finish = move |_, _| {
            joins.lock().unwrap().take().unwrap().join();
            ended.send(()).unwrap();
        };
        let pace = (Clock::start(), Wait::Block);
        *own.lock().unwrap() = Some(Worker::start("test", &signal, pace, counter, finish).unwrap());
        left.store(1, Ordering::SeqCst);
        signal.ring();
        has_ended.recv().unwrap();
    }
}
