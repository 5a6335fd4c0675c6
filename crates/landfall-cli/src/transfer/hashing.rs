//! A thread that hashes the pieces of a file while another writes them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use blake3::{Hash, Hasher};
use landfall::stp::Message;

enum Job {
    Start(Box<Hasher>),
    Piece(Arc<Message>),
    Finish(SyncSender<Hash>),
}

/// So many pieces may wait to be hashed.
const WAITING: usize = 4;

/// See the module. The thread ends when this is dropped.
pub(crate) struct HashLine(SyncSender<Job>);

impl HashLine {
    pub(crate) fn start() -> io::Result<Self> {
        let (to, jobs) = sync_channel(WAITING);
        let thread = thread::Builder::new().name("landfall-hash".into());
        thread.spawn(move || work(&jobs))?;
        Ok(Self(to))
    }

    /// A file begins, or goes on where its hash is under way.
    pub(crate) fn begin(&self, hasher: Box<Hasher>) {
        self.hand_on(Job::Start(hasher));
    }

    /// Waits only where hashing cannot keep up.
    pub(crate) fn piece(&self, piece: Arc<Message>) {
        self.hand_on(Job::Piece(piece));
    }

    /// The hash of all pieces since the file began.
    pub(crate) fn finish(&self) -> Option<Hash> {
        let (to, hash) = sync_channel(1);
        self.hand_on(Job::Finish(to));
        hash.recv().ok()
    }

    /// The thread ends with this handle only; `finish` tells if it did before.
    fn hand_on(&self, job: Job) {
        let _ = self.0.send(job);
    }
}

fn work(jobs: &Receiver<Job>) {
    let mut hasher = Box::new(Hasher::new());
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Start(begun) => hasher = begun,
            Job::Piece(piece) => {
                hasher.update(&piece);
            }
            Job::Finish(to) => {
                // Whoever asked and does not wait needs no answer.
                let _ = to.send(hasher.finalize());
            }
        }
    }
}
