//! Tasks that run only when they were woken, in an order of the test's choosing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::lab::Lab;

/// A task.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Task<'a> {
    future: Option<Running<'a>>,
    is_woken: Arc<Flag>,
}

/// Runs the tasks to their ends, and lets words arrive in between.
///
/// # Panics
/// When nothing is in flight and nobody is woken, but somebody still waits: a wake-up
/// was lost.
pub(crate) fn run(lab: [&Lab; 2], seed: u64, tasks: Vec<Running<'_>>) {
    run_until(lab, seed, u64::MAX, tasks);
}

/// The same, and after so many steps the second node is killed.
pub(crate) fn run_until(lab: [&Lab; 2], seed: u64, kill_after: u64, tasks: Vec<Running<'_>>) {
    let mut random = seed | 1;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    let new =
        |future| Task { future: Some(future), is_woken: Arc::new(Flag(AtomicBool::new(true))) };
    let mut tasks: Vec<Task<'_>> = tasks.into_iter().map(new).collect();
    for step in 0_u64.. {
        if step == kill_after {
            lab[1].kill();
        }
        if tasks.iter().all(|task| task.future.is_none()) {
            return;
        }
        let ready: Vec<usize> = (0..tasks.len())
            .filter(|at| {
                let task = &tasks[*at];
                task.future.is_some() && task.is_woken.0.load(Ordering::SeqCst)
            })
            .collect();
        let flying: Vec<usize> = (0..2).filter(|node| lab[*node].in_flight() > 0).collect();
        let choices = (ready.len() + flying.len()) as u64;
        assert!(choices > 0 || kill_after > step && kill_after < u64::MAX, "a wake-up was lost");
        if choices == 0 {
            continue;
        }
        let choice = next(choices) as usize;
        match ready.get(choice) {
            Some(at) => poll(&mut tasks[*at]),
            None => lab[flying[choice - ready.len()]].deliver(1 + next(9) as usize),
        }
        assert!(step < 2_000_000, "it goes on and on");
    }
}

fn poll(task: &mut Task<'_>) {
    task.is_woken.0.store(false, Ordering::SeqCst);
    let waker = Waker::from(Arc::clone(&task.is_woken));
    let future = task.future.as_mut().unwrap();
    if let Poll::Ready(()) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
        task.future = None;
    }
}

/// Lets others have a turn.
pub(crate) async fn yield_once() {
    let mut is_second = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
