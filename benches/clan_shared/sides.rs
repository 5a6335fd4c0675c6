//! Two threads, each pinned to its core, that send messages to each other.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use landfall_testbed::cpu::{self, TaskUse};

/// How ends wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// They never sleep.
    Spin,
    /// As each does by default.
    Balanced,
    /// They sleep at once.
    Sleep,
}

/// Where they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    One,
    Two,
}

/// What they do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) kind: Kind,
    pub(crate) bytes: usize,
    pub(crate) waiting: Waiting,
    pub(crate) cores: Cores,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ThereAndBack,
    /// One way, each by itself, out of memory that stays in a cache.
    Elements,
    /// One way, of memory that does not stay in a cache: copied in and copied out.
    Stream,
    /// The same lengths, written where they are to lie, out of one message, and read there, all of
    /// it, into a block that stays in a cache.
    InPlace,
}

/// As much of a message as is read at once where it lies.
const BLOCK: usize = 4096;

impl Work {
    /// Memory that messages go through, one behind another.
    fn walk(&self) -> usize {
        if self.kind == Kind::Stream { WALK } else { self.bytes }
    }

    /// What a message is read into.
    fn taken(&self) -> usize {
        if self.kind == Kind::InPlace { self.bytes.min(BLOCK) } else { self.bytes }
    }
}

/// One end of what messages go through. All messages of a work have one length.
pub(crate) trait End {
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Fills all of it; where messages are read in place, with one part after the other, and the
    /// first of them last.
    fn receive(&mut self, into: &mut [u8]) -> Result<()>;

    /// Waits until the other end has received all.
    fn finish(&mut self, receipt: &mut [u8]) -> Result<()> {
        self.receive(receipt)
    }

    /// All was received; nothing else is asked of this end.
    fn confirm(&mut self, receipt: &[u8]) -> Result<()> {
        self.send(receipt)
    }
}

/// Nothing, where this work is not for it.
pub(crate) type Opened = Option<Box<dyn End>>;

/// Which end it is, and its way to the other before they are joined.
pub(crate) struct Place {
    pub(crate) is_first: bool,
    /// For names that nobody else has.
    pub(crate) number: u64,
    tell: Sender<Box<dyn std::any::Any + Send>>,
    hear: Receiver<Box<dyn std::any::Any + Send>>,
}

/// Nothing takes as long; what does is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

impl Place {
    /// Gives the other end something, and gets something of the same kind.
    pub(crate) fn exchange<T: Send + 'static>(&self, mine: T) -> Result<T> {
        self.tell.send(Box::new(mine)).map_err(|_| anyhow!("the other end has failed"))?;
        let theirs = self.hear.recv_timeout(PATIENCE).context("the other end has failed")?;
        theirs.downcast().map(|theirs| *theirs).map_err(|_| anyhow!("that is something else"))
    }

    /// Waits until the other end is here, too.
    pub(crate) fn meet(&self) -> Result<()> {
        self.exchange(())
    }
}

/// In the first word of the last message.
pub(crate) const END: u64 = u64::MAX;
/// Messages for each look at the clock.
const STRIDE: u64 = 16;
/// What is received goes here, as much as does not stay in a cache.
pub(crate) const WALK: usize = 64 << 20;

/// Seconds for each message; nothing if this work is not for it.
pub(crate) fn run(
    work: &Work,
    open: impl Fn(&Work, &Place) -> Result<Opened> + Sync,
    time: Duration,
) -> Result<Option<f64>> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let ((tell_b, hear_a), (tell_a, hear_b)) = (channel(), channel());
    let first = Place { is_first: true, number, tell: tell_a, hear: hear_a };
    let second = Place { is_first: false, number, tell: tell_b, hear: hear_b };
    let settle = |place: &Place| -> Result<Opened> {
        let allowed = cpu::allowed_cores()?;
        let (near, far) = (allowed.first(), allowed.last());
        let is_near = place.is_first || work.cores == Cores::One;
        let core = if is_near { near } else { far };
        cpu::pin_this_thread(*core.context("there is no core")?)?;
        open(work, place)
    };
    thread::scope(|scope| {
        let asking = scope.spawn(|| -> Result<Option<InitiatorResult>> {
            let place = first;
            let Some(mut end) = settle(&place)? else { return Ok(None) };
            let asked = ask(work, &mut *end, time)?;
            // Neither goes while the other still needs it: what an end has sent last may
            // go with it before the other one has looked.
            place.meet()?;
            Ok(Some(asked))
        });
        let answering = scope.spawn(|| -> Result<Option<f64>> {
            let place = second;
            let Some(mut end) = settle(&place)? else { return Ok(None) };
            let used = answer(work, &mut *end)?;
            place.meet()?;
            Ok(Some(used))
        });
        let joined = |panicked| anyhow!("a thread panicked: {panicked:?}");
        let asked = asking.join().map_err(joined)?;
        let answered = answering.join().map_err(joined)?;
        // Who failed first says why; the other one only noticed it.
        match (asked, answered) {
            // On one core the two take turns: what both use of it is how long it takes,
            // when nobody else runs there.
            (Ok(Some(asked)), Ok(Some(used))) if work.cores == Cores::One => {
                Ok(Some((asked.used_s + used) / asked.count as f64))
            }
            (Ok(asked), Ok(_)) => Ok(asked.map(|asked| asked.seconds / asked.count as f64)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            (Err(one), Err(other)) => Err(one.context(format!("{other:#}"))),
        }
    })
}

/// What the first end saw.
struct InitiatorResult {
    count: u64,
    seconds: f64,
    used_s: f64,
}

fn ask(work: &Work, end: &mut dyn End, time: Duration) -> Result<InitiatorResult> {
    let (mut memory, mut back) = (vec![1; work.walk()], vec![0; work.bytes]);
    let is_one_way = work.kind != Kind::ThereAndBack;
    let used = TaskUse::of_this_thread()?;
    let (mut count, started) = (0, Instant::now());
    while !u64::is_multiple_of(count, STRIDE) || started.elapsed() < time {
        let message = piece(&mut memory, count, work.bytes);
        message[..8].copy_from_slice(&count.to_le_bytes());
        end.send(message)?;
        if !is_one_way {
            end.receive(&mut back)?;
            ensure!(number_of(&back) == count, "{} is no answer to {count}", number_of(&back));
        }
        count += 1;
    }
    back[..8].copy_from_slice(&END.to_le_bytes());
    let mut seconds = started.elapsed().as_secs_f64();
    end.send(&back)?;
    if is_one_way {
        end.finish(&mut back)?;
        seconds = started.elapsed().as_secs_f64();
    }
    let used_s = (TaskUse::of_this_thread()? - used).busy_s();
    Ok(InitiatorResult { count, seconds, used_s })
}

/// Gives the processor time that it used.
fn answer(work: &Work, end: &mut dyn End) -> Result<f64> {
    let (mut memory, mut next) = (vec![0; work.walk()], 0);
    let is_one_way = work.kind != Kind::ThereAndBack;
    let used = TaskUse::of_this_thread()?;
    loop {
        let message = piece(&mut memory, next, work.taken());
        end.receive(message)?;
        let number = number_of(message);
        if number == END {
            break;
        }
        ensure!(number == next, "message {number} came instead of {next}");
        if !is_one_way {
            end.send(message)?;
        }
        next += 1;
    }
    if is_one_way {
        end.confirm(&memory[..work.bytes])?;
    }
    Ok((TaskUse::of_this_thread()? - used).busy_s())
}

fn piece(memory: &mut [u8], nth: u64, bytes: usize) -> &mut [u8] {
    let at = nth as usize % (memory.len() / bytes) * bytes;
    &mut memory[at..at + bytes]
}

fn number_of(message: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&message[..8]);
    u64::from_le_bytes(word)
}
