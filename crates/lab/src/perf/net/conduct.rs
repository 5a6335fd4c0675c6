//! One test, both sides of which are under way: ours on a thread of its own, while this one
//! carries the news between the two.

use std::sync::mpsc::Sender;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use landfall_placement::Peer;

use super::control::{Control, Happening, Word};
use super::half::{self, Half, Open, PATIENCE, Seat};
use super::test::Test;
use crate::workload::Role;
use crate::workload::side::{OtherSideEnded, Rendezvous, Shared, Update};

/// Why a test gave nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// This test went wrong; the next may go well.
    Test(anyhow::Error),
    /// There is nobody to measure with any more.
    Connection(anyhow::Error),
}

/// Does our half, and gives both.
pub(super) fn conduct(control: &Control, test: &Test, role: Role) -> Result<(Half, Half), Failure> {
    let plan = half::plan(test, role, control).map_err(Failure::Test)?;
    let (open, shared) = (Open::default(), Shared::with_remote(control.remote_side()));
    let (meeting, met) = Rendezvous::with_remote(control.remote_side(), PATIENCE);
    let happen = control.happen();
    let (hears, leaves) = (&shared, &open);
    thread::scope(|scope| {
        let work = move || {
            let half = {
                let _end = hears.end_when_dropped();
                let (meeting, shared, open) = (&meeting, hears, leaves);
                half::run(&Seat { test, role, plan, meeting, shared, open })
            };
            // Nobody listens any more: then nobody needs to know.
            let _ = happen.send(Happening::Ended);
            half
        };
        let ours = thread::Builder::new().name("landfall-half".into()).spawn_scoped(scope, work);
        let ours = ours.context("cannot start a thread").map_err(Failure::Test)?;
        let carrier = Carrier {
            control,
            shared: &shared,
            open: &open,
            met: Some(met),
            is_datagrams: test.latency && test.kind == super::test::Kind::Udp,
            until: Instant::now() + test.time() + 3 * PATIENCE,
        };
        carrier.carry(ours)
    })
}

/// Carries news between the sides until both are done.
struct Carrier<'a> {
    control: &'a Control,
    shared: &'a Shared,
    open: &'a Open,
    /// Where names go that the other side says.
    met: Option<Sender<Option<Peer>>>,
    /// A conversation whose last word may be lost.
    is_datagrams: bool,
    until: Instant,
}

type Outcome = Result<Half>;

impl Carrier<'_> {
    fn carry(mut self, ours: ScopedJoinHandle<'_, Outcome>) -> Result<(Half, Half), Failure> {
        let (mut ours, mut ended, mut theirs, mut gone) = (Some(ours), None, None, None);
        while ended.is_none() || (theirs.is_none() && gone.is_none()) {
            let left = self.until.saturating_duration_since(Instant::now());
            match self.control.next(left.max(Duration::from_millis(1))) {
                Some(Happening::Ended) => {
                    let half = ours.take().map(ScopedJoinHandle::join);
                    let half = half.unwrap_or_else(|| Ok(Err(anyhow!("it ended twice"))));
                    let half = half.unwrap_or_else(|_| Err(anyhow!("a thread panicked")));
                    gone = gone.or(self.tell(&half).err());
                    ended = Some(half);
                }
                Some(Happening::Update(news)) => gone = gone.or(self.control.pass_on(news).err()),
                Some(Happening::Said(word)) => match self.hear(word) {
                    Ok(None) => {}
                    Ok(Some(half)) => theirs = Some(half),
                    Err(error) => gone = Some(error),
                },
                Some(Happening::Gone(why)) => {
                    gone = Some(anyhow!("{}: {why}", self.control.remote()));
                }
                None if Instant::now() >= self.until => {
                    gone = Some(anyhow!("{} does not end its half", self.control.remote()));
                }
                None => {}
            }
            if gone.is_some() {
                self.give_up();
            }
        }
        match (gone, ended, theirs) {
            (Some(error), ..) => Err(Failure::Connection(error)),
            (None, Some(ours), Some(theirs)) => both(ours, theirs).map_err(Failure::Test),
            _ => Err(Failure::Connection(anyhow!("it ended without a result"))),
        }
    }

    fn tell(&self, half: &Outcome) -> Result<()> {
        self.control.say(&match half {
            Ok(half) => Word::Done(*half),
            Err(error) => Word::Refused { reason: format!("{error:#}") },
        })
    }

    /// Deals with a word; gives the other side's half if that is it.
    fn hear(&mut self, word: Word) -> Result<Option<Outcome>> {
        match word {
            Word::Met { name } => {
                if let Some(met) = &self.met {
                    // Our side may have ended before.
                    let _ = met.send(name.map(Peer::Socket));
                }
            }
            Word::Over => {
                self.shared.hear(Update::Over);
                if self.is_datagrams {
                    self.open.shut();
                }
            }
            Word::Done(half) => return Ok(Some(Ok(half))),
            Word::Refused { reason } => {
                self.give_up();
                return Ok(Some(Err(anyhow!(reason))));
            }
            other => bail!("{} is out of step: {other:?}", self.control.remote()),
        }
        Ok(None)
    }

    /// Our side shall not wait for the other any more.
    fn give_up(&mut self) {
        self.met = None;
        self.shared.hear(Update::Over);
        self.open.shut();
    }
}

/// Both halves, or the error that explains the other.
fn both(ours: Outcome, theirs: Outcome) -> Result<(Half, Half)> {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => Ok((ours, theirs)),
        (Ok(_), Err(theirs)) => Err(theirs.context("the other side")),
        (Err(ours), Err(theirs)) if ours.is::<OtherSideEnded>() => {
            Err(theirs.context("the other side"))
        }
        (Err(ours), _) => Err(ours),
    }
}
