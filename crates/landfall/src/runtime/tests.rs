//! Who drives, sleeps and is woken, with a protocol of nothing but events.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Poll, Wake, Waker};
use std::thread;

use landfall_placement::{Duration, Instant};
use landfall_transport::driver::Interest;
use landfall_transport::{Bell, Clock, Wait};
use stp_core::{Config, Endpoint};

use super::{Deferred, Driving, Handle, Paths, Protocol, Runtime, RuntimeConfig, Source};

/// An engine without paths, and things that happen when somebody says so.
struct EventEngine {
    engine: Endpoint,
    paths: Paths<Endpoint>,
    happened: u32,
    /// Happens with the next turn.
    due: u32,
    watchers: Vec<Waker>,
    wake: Vec<Waker>,
    told: Vec<&'static str>,
    turns: u32,
    /// A turn says that it has begun, and goes on when it is told to.
    in_kernel: Option<(Sender<()>, Receiver<()>)>,
    /// What another thread does during each turn.
    meanwhile: Option<Box<dyn FnMut() + Send>>,
}

struct Wakers(Vec<Waker>);

impl Deferred for Wakers {
    fn run(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Protocol for EventEngine {
    type Engine = Endpoint;
    type Deferred = Wakers;
    type Submission = u32;
    type Cleanup = ();

    fn serve(&mut self, _: Instant, submission: u32) {
        self.due += submission;
    }

    fn engine(&self) -> &Endpoint {
        &self.engine
    }

    fn paths(&self) -> &Paths<Endpoint> {
        &self.paths
    }

    fn paths_mut(&mut self) -> &mut Paths<Endpoint> {
        &mut self.paths
    }

    fn turn(&mut self, _: Instant) -> bool {
        self.turns += 1;
        if let Some((begun, go_on)) = self.in_kernel.take() {
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile();
        }
        if self.due == 0 {
            return false;
        }
        self.happened += std::mem::take(&mut self.due);
        self.wake.append(&mut self.watchers);
        true
    }

    fn take_deferred(&mut self) -> Wakers {
        Wakers(std::mem::take(&mut self.wake))
    }

    fn close(&mut self, _: Instant) {
        self.told.push("close");
    }

    fn is_closed(&self) -> bool {
        self.happened > 0
    }

    fn abort(&mut self, _: Instant) {
        self.told.push("abort");
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn release(&mut self) {
        self.told.push("release");
        self.wake.append(&mut self.watchers);
    }
}

impl EventEngine {
    fn start(driving: Driving, wait: Wait, linger: Duration) -> Handle<Self> {
        let (clock, mut engine) =
            (Clock::start(), Endpoint::new(Config::default(), [0; 32]).unwrap());
        let paths = Paths::new(Vec::new(), clock, &mut engine);
        let (happened, due) = (0, 0);
        let (watchers, wake, told) = (Vec::new(), Vec::new(), Vec::new());
        let (turns, in_kernel, meanwhile) = (0, None, None);
        let protocol = Self {
            engine,
            paths,
            happened,
            due,
            watchers,
            wake,
            told,
            turns,
            in_kernel,
            meanwhile,
        };
        let config = RuntimeConfig { driving, wait, linger, thread: "landfall-test" };
        Handle(Runtime::start(protocol, clock, Bell::new().unwrap(), config).unwrap())
    }
}

/// Waits until this many things have happened, or all is over.
fn happened(runtime: &Runtime<EventEngine>, count: u32) -> u32 {
    runtime.wait_for(poll_fn(|context| {
        runtime.look(|protocol| {
            if protocol.happened >= count || protocol.told.contains(&"release") {
                return Poll::Ready(protocol.happened);
            }
            protocol.watchers.push(context.waker().clone());
            Poll::Pending
        })
    }))
}

const LONG: Duration = Duration::from_secs(600);

/// Runs a test that would wait forever if it failed.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    let in_time = is_done.recv_timeout(Duration::from_secs(60));
    assert!(in_time.is_ok() || thread.is_finished(), "somebody waits in vain");
    thread.join().unwrap();
}

/// Nothing but the call wakes the sleeper: there are no paths and no timers.
#[test]
fn what_one_thread_makes_happen_wakes_another_that_sleeps_at_the_descriptors() {
    within_a_minute(|| {
        for driving in [Driving::Shared, Driving::OwnThread, Driving::Callers] {
            let runtime = Arc::new(EventEngine::start(driving, Wait::Block, LONG));
            for round in 1..=50 {
                let waiting = Arc::clone(&runtime);
                let waiter = thread::spawn(move || happened(&waiting, round));
                // Whether it sleeps already is the scheduler's choice: both must do.
                if round % 2 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
                runtime.ask(|protocol, _| protocol.due = 1);
                assert_eq!(waiter.join().unwrap(), round, "{driving:?}");
            }
        }
    });
}

#[test]
fn several_threads_wait_and_all_are_woken() {
    within_a_minute(|| {
        for driving in [Driving::Shared, Driving::OwnThread, Driving::Callers] {
            let runtime = EventEngine::start(driving, Wait::BALANCED, LONG);
            thread::scope(|scope| {
                let waiters: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| happened(&runtime, 1))).collect();
                thread::sleep(Duration::from_millis(5));
                runtime.ask(|protocol, _| protocol.due = 1);
                for waiter in waiters {
                    assert_eq!(waiter.join().unwrap(), 1, "{driving:?}");
                }
            });
        }
    });
}

#[test]
fn a_wait_ends_with_its_time() {
    for driving in [Driving::Shared, Driving::OwnThread, Driving::Callers] {
        let runtime = EventEngine::start(driving, Wait::BALANCED, LONG);
        let until = runtime.clock.now() + Duration::from_millis(3);
        assert_eq!(runtime.wait_until(std::future::pending::<()>(), until), None);
        assert!(runtime.clock.now() >= until);
    }
}

#[test]
fn the_end_waits_for_what_is_under_way_and_comes_once() {
    within_a_minute(|| {
        for driving in [Driving::Shared, Driving::OwnThread] {
            let handle = EventEngine::start(driving, Wait::Block, LONG);
            let runtime = Arc::clone(&handle.0);
            drop(handle);
            // Something is under way: nothing is over before it has happened.
            runtime.ask(|_, _| ());
            assert!(!runtime.has_ended());
            runtime.ask(|protocol, _| protocol.due = 1);
            runtime.wait_for(poll_fn(|context| match runtime.watch_end(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }));
            while !runtime.has_ended() {
                thread::yield_now();
            }
            runtime.turn();
            assert_eq!(
                runtime.look(|protocol| protocol.told.clone()),
                ["close", "abort", "release"]
            );
        }
    });
}

#[test]
fn what_takes_too_long_ends_with_the_time_to_linger() {
    within_a_minute(|| {
        let handle = EventEngine::start(Driving::Shared, Wait::Block, Duration::from_millis(5));
        let runtime = Arc::clone(&handle.0);
        drop(handle);
        // It never happens; who waits for it learns of the end.
        assert_eq!(happened(&runtime, 1), 0);
        assert!(runtime.has_ended());
    });
}

#[test]
fn without_a_thread_the_last_handle_ends_all_at_once() {
    let handle = EventEngine::start(Driving::Callers, Wait::Block, LONG);
    let runtime = Arc::clone(&handle.0);
    drop(handle);
    assert!(runtime.has_ended());
    assert_eq!(runtime.look(|protocol| protocol.told.clone()), ["close", "abort", "release"]);
}

#[test]
fn a_panic_under_the_lock_leaves_a_runtime_that_ends() {
    within_a_minute(|| {
        let handle = EventEngine::start(Driving::Shared, Wait::Block, Duration::from_millis(1));
        let runtime = Arc::clone(&handle.0);
        let panicking = thread::spawn(move || handle.look(|_| panic!("this is no bug")));
        assert!(panicking.join().is_err());
        assert_eq!(happened(&runtime, 1), 0);
    });
}

/// While another thread is in the middle of its turn, which ends when the calls are made.
#[test]
fn a_submission_does_not_wait_for_a_turn_and_several_make_one() {
    within_a_minute(|| {
        for driving in [Driving::Callers, Driving::Shared] {
            let runtime = Arc::new(EventEngine::start(driving, Wait::Block, LONG));
            let ((begun, has_begun), (go_on, told)) = (channel(), channel());
            let other = Arc::clone(&runtime);
            let thread = thread::spawn(move || {
                other.ask(|protocol, _| {
                    protocol.in_kernel = Some((begun, told));
                    protocol.turns = 0;
                });
            });
            has_begun.recv().unwrap();
            (0..5).for_each(|_| runtime.submit(1));
            go_on.send(()).unwrap();
            thread.join().unwrap();
            let (happened, turns) = runtime.look(|protocol| (protocol.happened, protocol.turns));
            assert_eq!(happened, 5, "{driving:?}");
            // The own thread may make some, too.
            assert!(turns == 2 || driving == Driving::Shared, "{turns} turns");
        }
    });
}

/// Calls back what woke it, as the wakers of sockets do.
struct Looks(Arc<Runtime<EventEngine>>);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.0.look(|_| ());
    }
}

#[test]
fn wakers_may_call_back_however_much_is_submitted_meanwhile() {
    within_a_minute(|| {
        for driving in [Driving::Callers, Driving::Shared] {
            let handle = EventEngine::start(driving, Wait::Block, LONG);
            let runtime = &handle.0;
            let (submitting, mut left) = (Arc::clone(runtime), 40);
            runtime.ask(|protocol, _| {
                protocol.watchers.push(Waker::from(Arc::new(Looks(Arc::clone(runtime)))));
                protocol.due = 1;
                protocol.meanwhile = Some(Box::new(move || {
                    if left > 0 {
                        left -= 1;
                        submitting.submit(1);
                    }
                }));
            });
            // The own thread makes turns of its own.
            assert_eq!(happened(runtime, 41), 41, "{driving:?}");
            runtime.look(|protocol| protocol.meanwhile = None);
        }
    });
}

#[test]
fn more_than_the_queue_holds_is_served_in_order_and_wakes_those_who_wait() {
    within_a_minute(|| {
        for driving in [Driving::Shared, Driving::OwnThread, Driving::Callers] {
            let runtime = EventEngine::start(driving, Wait::BALANCED, LONG);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| happened(&runtime, 4_000));
                for _ in 0..4 {
                    scope.spawn(|| (0..1_000).for_each(|_| runtime.submit(1)));
                }
                assert_eq!(waiter.join().unwrap(), 4_000, "{driving:?}");
            });
        }
    });
}

#[test]
fn what_is_submitted_after_the_end_is_served() {
    within_a_minute(|| {
        for driving in [Driving::Shared, Driving::OwnThread, Driving::Callers] {
            let handle = EventEngine::start(driving, Wait::Block, Duration::ZERO);
            let runtime = Arc::clone(&handle.0);
            drop(handle);
            while !runtime.has_ended() {
                thread::yield_now();
            }
            runtime.submit(3);
            assert_eq!(runtime.look(|protocol| protocol.due + protocol.happened), 3);
        }
    });
}

/// Looks at what happened, beside the runtime that it drives.
struct RuntimeProbe {
    handle: Arc<Runtime<EventEngine>>,
    enough: u32,
}

impl Source for RuntimeProbe {
    type Output = u32;

    fn turn(&mut self, _: Instant) -> ControlFlow<u32, bool> {
        let happened = self.handle.look(|protocol| protocol.happened);
        if happened >= self.enough {
            return ControlFlow::Break(happened);
        }
        ControlFlow::Continue(false)
    }

    fn interests(&self, _: &mut Vec<Interest>) {}

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    /// What no descriptor tells of here; and what the own thread may have brought before.
    fn has_work(&self) -> bool {
        self.handle.look(|protocol| protocol.due > 0 || protocol.happened >= self.enough)
    }
}

/// The own thread may be about to make a turn when the source begins to drive.
#[test]
fn a_source_beside_a_runtime_misses_nothing_that_the_own_thread_brought() {
    within_a_minute(|| {
        for wait in [Wait::Block, Wait::BALANCED] {
            let runtime = EventEngine::start(Driving::Shared, wait, LONG);
            for round in 1..=100 {
                thread::scope(|scope| {
                    let (handle, enough) = (Arc::clone(&runtime.0), round);
                    let driving = scope.spawn(move || {
                        let mut beside = RuntimeProbe { handle: Arc::clone(&handle), enough };
                        handle.drive_beside(&mut beside)
                    });
                    if round % 3 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    // As a packet that arrives: who sleeps at the descriptors is woken.
                    runtime.look(|protocol| protocol.due = 1);
                    runtime.ring();
                    assert_eq!(driving.join().unwrap(), round);
                });
            }
        }
    });
}

/// Anyone who begins to drive looks, and may sleep next: what a late turn brings it would miss.
#[test]
fn the_own_thread_makes_no_turn_once_another_has_begun_to_drive() {
    within_a_minute(|| {
        let runtime = EventEngine::start(Driving::Shared, Wait::Spin, LONG);
        for _ in 0..100 {
            runtime.hand_over();
            // The own thread spins, and mostly waits for this very lock.
            let turns = runtime.look(|protocol| protocol.turns);
            while runtime.look(|protocol| protocol.turns) == turns {
                runtime.ring();
                thread::yield_now();
            }
            let (driver, turns) =
                runtime.look(|protocol| (runtime.begin_driving(), protocol.turns));
            thread::sleep(Duration::from_micros(200));
            assert_eq!(runtime.look(|protocol| protocol.turns), turns);
            drop(driver);
        }
    });
}
