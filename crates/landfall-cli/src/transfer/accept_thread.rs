//! Who knocks at a receiver: greeted side by side, each within a time of its own.
//!
//! A thread accepts, and tasks greet. Nobody who has not proven the code can end the
//! receiver or keep others out of it:
//!
//! | what a stranger may do | bound |
//! | --- | --- |
//! | say nothing, or slowly | [`GREETING`] seconds for all of it |
//! | come often | [`MOST_STRANGERS`] at a time; one more, and the oldest of the source that has most goes |
//! | guess | [`Guesses`]: a source that was wrong too often is told to come later |
//! | fill the screen | [`Notices`] |
//!
//! Who has proven the code is never sent away for a stranger. One session runs at a time:
//! [`Admitted`] holds the place until it is dropped, and anyone who else knows the code waits
//! for it for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::stp;
use landfall::stp::Listener;
use landfall::stp::blocking::{Connection, Endpoint};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::allowance::{Allowance, Guesses, Source};
use super::code::Code;
use super::greet::{self, Greeted, Proven};
use super::seals::Seals;
use super::ways;
use super::wire::{Refusal, SERVICE};

/// So long may a greeting take: longer only for who does not mean it.
const GREETING: Duration = Duration::from_secs(10);
/// So long waits who knows the code for a session to end. Senders wait longer for an answer.
const WAITING: Duration = Duration::from_secs(8);
/// This many who have not proven the code are greeted at a time.
pub(crate) const MOST_STRANGERS: usize = 64;
/// How long the last word to somebody may take.
const PARTING: Duration = Duration::from_secs(2);
/// How often it is looked whether the receiver goes on.
const LOOK: Duration = Duration::from_millis(100);

/// A sender that knows the code. Until it is dropped there is no other.
pub(crate) struct Admitted {
    pub(crate) connection: Connection,
    pub(crate) seals: Seals,
    /// Anyone who holds it is the one that is served.
    pub(crate) place: Place,
}

/// The place of the one sender that is served.
pub(crate) struct Place(Arc<AtomicBool>);

impl Place {
    fn take(taken: &Arc<AtomicBool>) -> Option<Self> {
        let was_taken = taken.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Listens for senders on a thread of its own, and hands over those that know the code.
pub(crate) struct AcceptThread {
    admitted: Receiver<Admitted>,
    is_over: Arc<AtomicBool>,
}

impl AcceptThread {
    /// Listens, and greets from now on.
    pub(crate) fn open(endpoint: &Endpoint, code: Code) -> Result<Self> {
        let listener = endpoint.as_async().listen(SERVICE)?;
        let (to, admitted) = sync_channel(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let ports = ways::addresses_of(endpoint).iter().map(std::net::SocketAddr::port).collect();
        let greetings = Greetings {
            code,
            ports,
            guesses: Mutex::default(),
            notices: Mutex::new(Notices::new()),
            is_taken: Arc::default(),
            to,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .context("cannot start the thread that greets")?;
        let ended = Arc::clone(&is_over);
        thread::Builder::new()
            .name("landfall-greet".into())
            .spawn(move || runtime.block_on(accept(&listener, &Arc::new(greetings), &ended)))
            .context("cannot start the thread that greets")?;
        Ok(Self { admitted, is_over })
    }

    /// The next sender that knows the code; nothing within the limit.
    pub(crate) fn next(&self, limit: Duration) -> Result<Option<Admitted>> {
        match self.admitted.recv_timeout(limit) {
            Ok(admitted) => Ok(Some(admitted)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("nobody listens any more"),
        }
    }
}

impl Drop for AcceptThread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// What all greetings share.
struct Greetings {
    code: Code,
    /// The UDP port of each path.
    ports: Vec<u16>,
    guesses: Mutex<Guesses>,
    notices: Mutex<Notices>,
    is_taken: Arc<AtomicBool>,
    to: SyncSender<Admitted>,
}

/// Somebody who is being greeted.
struct Greeter {
    source: Source,
    connection: stp::Connection,
    task: AbortHandle,
    has_proven: Arc<AtomicBool>,
}

async fn accept(listener: &Listener, greetings: &Arc<Greetings>, is_over: &AtomicBool) {
    let mut tasks = JoinSet::new();
    let mut greeters: Vec<Greeter> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let accepted = timeout(LOOK, listener.accept()).await;
        while tasks.try_join_next().is_some() {}
        greeters.retain(|greeter| !greeter.task.is_finished());
        let connection = match accepted {
            Ok(Ok(connection)) => connection,
            // The endpoint is closed.
            Ok(Err(_)) => return,
            Err(_) => continue,
        };
        let strangers = greeters.iter().filter(|g| !g.has_proven.load(Ordering::Relaxed)).count();
        if strangers >= MOST_STRANGERS
            && let Some(at) = dispensable(&greeters)
        {
            let gone = greeters.remove(at);
            gone.task.abort();
            gone.connection.abort();
        }
        let source = Source::of(connection.peer());
        let has_proven = Arc::new(AtomicBool::new(false));
        let greeting =
            greet(Arc::clone(greetings), connection.clone(), source, Arc::clone(&has_proven));
        let task = tasks.spawn(greeting);
        greeters.push(Greeter { source, connection, task, has_proven });
    }
}

/// The oldest stranger of the source that has most of them.
fn dispensable(greeters: &[Greeter]) -> Option<usize> {
    let is_stranger = |g: &&Greeter| !g.has_proven.load(Ordering::Relaxed);
    let count = |source| greeters.iter().filter(is_stranger).filter(|g| g.source == source).count();
    let strangers = greeters.iter().filter(is_stranger);
    let most = strangers.max_by_key(|greeter| count(greeter.source))?.source;
    greeters.iter().position(|greeter| is_stranger(&greeter) && greeter.source == most)
}

async fn greet(
    greetings: Arc<Greetings>,
    connection: stp::Connection,
    source: Source,
    has_proven: Arc<AtomicBool>,
) {
    let from = connection.peer();
    let port = greetings.ports.get(usize::from(connection.path().0)).copied().unwrap_or(0);
    let may_try = || greetings.guesses().may_try(source, Instant::now());
    let greeting = greet::as_receiver(&connection, &greetings.code, port, may_try);
    let refusal = match timeout(GREETING, greeting).await {
        Ok(Ok(Greeted::Knows(proven))) => {
            has_proven.store(true, Ordering::Relaxed);
            match admit(&greetings, &connection, proven).await {
                Ok(()) => return,
                Err(why) => {
                    greetings.say(&format!("{from} knows the code, and waited in vain: {why}"));
                    Refusal::BUSY
                }
            }
        }
        Ok(Ok(Greeted::Wrong)) => {
            greetings.guesses().wrong(source, Instant::now());
            greetings.say(&format!("{from} does not know the code"));
            Refusal::WRONG
        }
        Ok(Ok(Greeted::Later)) => {
            greetings.say(&format!("{from} is to come later: too many wrong codes from there"));
            Refusal::LATER
        }
        Ok(Err(why)) => {
            greetings.say(&format!("{from} knocked: {why}"));
            // It may have been told why, and is to hear that.
            let _ = timeout(PARTING, connection.close()).await;
            return;
        }
        Err(_) => {
            greetings.say(&format!("{from} knocked: it says nothing"));
            connection.abort();
            return;
        }
    };
    // Whether it is heard or not, that was all.
    let _ = timeout(PARTING, greet::refuse(&connection, refusal)).await;
    let _ = timeout(PARTING, connection.close()).await;
}

/// Waits for the place, and hands the sender over.
async fn admit(
    greetings: &Greetings,
    connection: &stp::Connection,
    proven: Box<Proven>,
) -> Result<()> {
    let until = Instant::now() + WAITING;
    let place = loop {
        if let Some(place) = Place::take(&greetings.is_taken) {
            break place;
        }
        if Instant::now() >= until {
            bail!("another sender is served");
        }
        if let Ok(ended) = timeout(LOOK, connection.closed()).await {
            ended?;
            bail!("it went away");
        }
    };
    let seals = timeout(GREETING, proven.welcome(connection)).await??;
    let connection = Connection::from(connection.clone());
    // Who has the place is the only one: there is room, unless the receiver has ended.
    let _ = greetings.to.try_send(Admitted { connection, seals, place });
    Ok(())
}

impl Greetings {
    fn guesses(&self) -> std::sync::MutexGuard<'_, Guesses> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, text: &str) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = notices.line(text, Instant::now()) {
            eprintln!("landfall: {text}");
        }
    }
}

/// What is printed about strangers: not more than somebody reads.
struct Notices {
    allowance: Allowance,
    left_out: u64,
}

impl Notices {
    fn new() -> Self {
        /// Lines at once, and a second.
        const LINES: (u32, u32) = (20, 1);
        Self { allowance: Allowance::new(LINES.0, LINES.1, Instant::now()), left_out: 0 }
    }

    fn line(&mut self, text: &str, now: Instant) -> Option<String> {
        if !self.allowance.has_one(now) {
            self.left_out += 1;
            return None;
        }
        self.allowance.spend(now);
        Some(match std::mem::take(&mut self.left_out) {
            0 => text.into(),
            more => format!("{text} (and {more} more like that before)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_about_strangers_is_bounded() {
        let mut notices = Notices::new();
        let now = Instant::now();
        let shown = (0..1000).filter_map(|_| notices.line("knocked", now)).count();
        assert!((1..=20).contains(&shown), "{shown}");
        let later = notices.line("knocked", now + Duration::from_secs(60)).unwrap();
        assert_eq!(later, format!("knocked (and {} more like that before)", 1000 - shown));
    }
}
