//! What the tests of the programming layer share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use landfall::clan::layer::{Connect, Half, message, multipart, publish, queue, rpc, stream};
use landfall::clan::{Cookie, Error, Fabric, Remote};
use proptest::prelude::ProptestConfig;

use super::lab::Lab;

/// Connects two halves of one thing.
pub(crate) fn join<F, A, B>(one: Half<F, A>, two: Half<F, B>) -> (A, B)
where
    F: Fabric,
    A: Connect<F>,
    B: Connect<F>,
{
    let (to_one, to_two) = (one.cookie(), two.cookie());
    (one.connect(&to_two).unwrap(), two.connect(&to_one).unwrap())
}

/// A peer that does not keep to anything: anyone who has a cookie may write any word.
pub(crate) fn scribble<F: Fabric>(fabric: &F, cookie: &Cookie, offset: u64, word: u64) {
    let mut remote = fabric.map(cookie).unwrap();
    remote.store(offset, word).unwrap();
    remote.commit().unwrap();
}

/// What a peer that scribbles may lead to: nothing else.
pub(crate) fn is_blamed_on_the_peer(error: &Error) -> bool {
    matches!(error, Error::PeerMisbehaved(_) | Error::Closed | Error::Cut | Error::TimedOut)
}

/// Bytes that differ from place to place, and tell which they are.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((seed + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// This many cases, and no file for those that failed: they become tests of their own.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

// Pairs of each kind, with rings so small that every edge comes soon.

pub(crate) fn queue<F: Fabric>(
    one: &F,
    two: &F,
    config: queue::Config,
) -> (queue::Sender<F>, queue::Receiver<F>) {
    join(queue::Sender::open(one, config).unwrap(), queue::Receiver::open(two, config).unwrap())
}

pub(crate) fn stream<F: Fabric>(
    one: &F,
    two: &F,
    config: stream::Config,
) -> (stream::Writer<F>, stream::Reader<F>) {
    join(stream::Writer::open(one, config).unwrap(), stream::Reader::open(two, config).unwrap())
}

pub(crate) fn both<F: Fabric>(
    one: &F,
    two: &F,
    config: stream::Config,
) -> (stream::Stream<F>, stream::Stream<F>) {
    let one = stream::Stream::open(one, config).unwrap();
    let two = stream::Stream::open(two, config).unwrap();
    let (to_one, to_two) = (one.cookies(), two.cookies());
    (one.connect(&to_two).unwrap(), two.connect(&to_one).unwrap())
}

pub(crate) fn multipart<F: Fabric>(
    one: &F,
    two: &F,
    config: multipart::Config,
) -> (multipart::Sender<F>, multipart::Receiver<F>) {
    let one = multipart::Sender::open(one, config).unwrap();
    join(one, multipart::Receiver::open(two, config).unwrap())
}

pub(crate) fn message<F: Fabric>(
    one: &F,
    two: &F,
    config: message::Config,
) -> (message::Sender<F>, message::Receiver<F>) {
    join(message::Sender::open(one, config).unwrap(), message::Receiver::open(two, config).unwrap())
}

pub(crate) fn rpc<F: Fabric>(
    one: &F,
    two: &F,
    config: rpc::Config,
) -> (rpc::Client<F>, rpc::Server<F>) {
    join(rpc::Client::open(one, config).unwrap(), rpc::Server::open(two, config).unwrap())
}

pub(crate) fn publish<F: Fabric>(
    one: &F,
    two: &F,
    config: publish::Config,
) -> (publish::Publisher<F>, publish::Subscriber<F>) {
    let mut publisher = publish::Publisher::open(one, config).unwrap();
    let subscriber = publish::Subscriber::open(two, config).unwrap();
    publisher.add(&subscriber.cookie()).unwrap();
    let subscriber = subscriber.connect(&publisher.cookie()).unwrap();
    (publisher, subscriber)
}

// Tasks that run only when they were woken, in an order of the test's choosing.

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

/// The same, and after this many steps the second node is killed.
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
