//! [`serve`]: one initiator of iSCSI, from its login to its goodbye.
//!
//! One thread takes messages and carries out what needs no waiting: reads that the page cache
//! has, and writes into it. What may wait for a medium goes to the workers.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_scsi::iscsi::{Config, Job, LONGEST_MESSAGE, ProtocolError, Reply, Session, TaskId};
use landfall_scsi::{Failure, Work};

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
}

/// What the thread of a connection and its jobs share.
struct ConnectionState {
    stream: Arc<dyn Stream>,
    common: Arc<Common>,
    /// Held while what it says is sent, so that it is sent in order.
    session: Mutex<Session>,
    jobs: Mutex<usize>,
    fewer: Condvar,
}

/// Serves an initiator until it goes.
pub(super) fn serve(stream: Arc<dyn Stream>, common: &Arc<Common>) -> Result<(), Ended> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let portal = stream.local().map(|address| address.to_string());
    let session = Session::new(Config { alias: None, portal });
    let state = ConnectionState {
        stream,
        common: Arc::clone(common),
        session: Mutex::new(session),
        jobs: Mutex::new(0),
        fewer: Condvar::new(),
    };
    let state = Arc::new(state);
    let ended = run(&state);
    // What a device has begun is ended, whether or not somebody waits for the answer.
    state.wait_for_jobs();
    state.session().close(&mut common.target());
    state.stream.shut_down();
    ended
}

fn run(state: &Arc<ConnectionState>) -> Result<(), Ended> {
    let (mut input, mut is_open) = (Input::new(INPUT), false);
    loop {
        let mut session = state.session();
        let handled = session.handle(input.bytes(), &mut state.common.target());
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

    fn wait_for_jobs(&self) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        while *jobs > 0 {
            jobs = self.fewer.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
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
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) += 1;
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
        *self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.fewer.notify_all();
    }
}
