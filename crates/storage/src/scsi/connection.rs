//! [`serve`]: one initiator of iSCSI, from its login to its goodbye.
//!
//! One thread takes messages and carries out what needs no waiting: reads that the page cache
//! has, and writes into it. What may wait for a medium goes to the workers.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use landfall_scsi::iscsi::{
    Chap, Config, Job, LONGEST_MESSAGE, ProtocolError, Reply, Session, TaskId,
};
use landfall_scsi::{Failure, NexusId, Work};

use super::Common;
use super::carry_out::UnitDevice;
use crate::server::Input;
use crate::stream::Stream;

/// What was received and not used yet has so much room.
const INPUT: usize = 1 << 20;
const _: () = assert!(INPUT > 2 * LONGEST_MESSAGE);
/// A longer read is left to a worker.
const INLINE: u32 = 512 << 10;
/// How long an initiator may take to log in.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a connection ended otherwise than by the initiator's goodbye.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the initiator went away in mid-request")]
    Vanished,
    #[error("the session before this one of the initiator does not end")]
    Unfinished,
}

/// What the thread of a connection and its jobs share.
pub(super) struct ConnectionState {
    stream: Arc<dyn Stream>,
    common: Arc<Common>,
    /// Held while what it says is sent, so that it is sent in order.
    session: Mutex<Session>,
    jobs: Mutex<Jobs>,
    fewer: Condvar,
}

#[derive(Default)]
struct Jobs {
    under_way: usize,
    /// There will be no more.
    is_over: bool,
}

/// The connections of initiators that have logged in.
#[derive(Default)]
pub(super) struct Sessions(Mutex<BTreeMap<NexusId, Weak<ConnectionState>>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NexusId, Weak<ConnectionState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves an initiator until it goes.
pub(super) fn serve(stream: Arc<dyn Stream>, common: &Arc<Common>) -> Result<(), Ended> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let portal = stream.local().map(|address| address.to_string());
    let session = Session::new(Config { alias: None, portal, chap: chap(common)? });
    let state = ConnectionState {
        stream,
        common: Arc::clone(common),
        session: Mutex::new(session),
        jobs: Mutex::default(),
        fewer: Condvar::new(),
    };
    let state = Arc::new(state);
    let ended = run(&state);
    // What a device has begun is ended, whether or not somebody waits for the answer.
    state.end_of_jobs();
    let mut session = state.session();
    if let Some(nexus) = session.nexus() {
        common.sessions.lock().remove(&nexus);
    }
    session.close(&mut common.target());
    drop(session);
    state.stream.shut_down();
    ended
}

/// What the initiator has to prove, by a question that nobody has heard before.
fn chap(common: &Common) -> io::Result<Option<Chap>> {
    let Some((initiator, target)) = common.chap.clone() else { return Ok(None) };
    let (mut challenge, mut id) = ([0; 16], [0; 1]);
    let filled = getrandom::fill(&mut challenge).and_then(|()| getrandom::fill(&mut id));
    filled.map_err(io::Error::other)?;
    Ok(Some(Chap { initiator, target, challenge, id: id[0] }))
}

fn run(state: &Arc<ConnectionState>) -> Result<(), Ended> {
    let (mut input, mut is_open) = (Input::new(INPUT), false);
    loop {
        let mut session = state.session();
        let mut target = state.common.target();
        let handled = session.handle(input.bytes(), &mut target);
        if !is_open && let Some(nexus) = session.nexus() {
            // As long as nobody else logs in: anyone who does finds it.
            state.common.sessions.lock().insert(nexus, Arc::downgrade(state));
        }
        drop(target);
        while let Some(earlier) = session.poll_reinstated() {
            state.take_the_place_of(earlier)?;
        }
        while let Some(output) = session.poll_output() {
            state.stream.write(&output, &[])?;
        }
        let jobs: Vec<Job> = std::iter::from_fn(|| session.poll_job()).collect();
        let (is_over, opens) = (session.is_over(), session.is_open() && !is_open);
        let is_idle = session.tasks() == 0;
        drop(session);
        let used = handled?;
        input.consume(used);
        if is_over {
            return Ok(());
        }
        if opens {
            is_open = true;
            state.stream.set_read_timeout(None)?;
        }
        for job in jobs {
            state.take_up(job)?;
        }
        if used == 0 && !input.fill(&*state.stream)? {
            let is_whole = input.bytes().is_empty() && is_idle;
            return if is_whole { Ok(()) } else { Err(Ended::Vanished) };
        }
    }
}

impl ConnectionState {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No more are begun: waits for those that were.
    fn end_of_jobs(&self) {
        let mut jobs = self.jobs();
        while jobs.under_way > 0 {
            jobs = self.fewer.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
        jobs.is_over = true;
        drop(jobs);
        self.fewer.notify_all();
    }

    /// Ends an earlier session of the same initiator, and waits until no device works for it any
    /// more: what that wrote is not to be found behind what this one writes.
    fn take_the_place_of(&self, earlier: NexusId) -> Result<(), Ended> {
        let found = self.common.sessions.lock().get(&earlier).and_then(Weak::upgrade);
        // It may have ended by itself.
        let Some(earlier) = found else { return Ok(()) };
        self.common.say("an initiator comes again: its session is reinstated");
        earlier.stream.shut_down();
        let is_not_over = |jobs: &mut Jobs| !jobs.is_over;
        let waited = earlier.fewer.wait_timeout_while(earlier.jobs(), PATIENCE, is_not_over);
        let (jobs, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if jobs.is_over { Ok(()) } else { Err(Ended::Unfinished) }
    }

    /// Carries out what needs no waiting, and leaves the rest to the workers.
    fn take_up(self: &Arc<Self>, job: Job) -> io::Result<()> {
        let Job { task, pending, work, data } = job;
        self.common.count(&work, data.len());
        let Some(unit) = self.common.units.get(&pending.lun()) else {
            return self.finish(task, Err(Failure::Read));
        };
        if work.data_in() <= INLINE
            && let Some(done) = unit.carry_out_now(&work, &data)
        {
            let done = self.common.logged(done);
            return self.finish(task, done);
        }
        self.common.tally.waits();
        self.jobs().under_way += 1;
        let (guard, unit) = (JobGuard(Arc::clone(self)), Arc::clone(unit));
        self.common.workers.run(move || guard.0.work_at(task, &unit, &work, &data));
        Ok(())
    }

    fn work_at(&self, task: TaskId, unit: &UnitDevice, work: &Work, data: &[u8]) {
        let done = self.common.logged(unit.carry_out(work, data));
        if self.finish(task, done).is_err() {
            // Anyone who reads hears of it.
            self.stream.shut_down();
        }
    }

    fn finish(&self, task: TaskId, done: Result<Vec<u8>, Failure>) -> io::Result<()> {
        let mut session = self.session();
        let Reply { data, pieces } = session.finish(&self.common.target(), task, done);
        for piece in pieces {
            self.stream.write(&piece.head, &data[piece.data])?;
        }
        Ok(())
    }
}

/// A job under way; it counts as one however it ends.
struct JobGuard(Arc<ConnectionState>);

impl Drop for JobGuard {
    fn drop(&mut self) {
        self.0.jobs().under_way -= 1;
        self.0.fewer.notify_all();
    }
}
