//! [`Workers`]: threads for what may wait for a medium.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads that take jobs from one queue. They are started when they are needed, and
/// end with the last handle.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    most: usize,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    is_over: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state();
            } else if state.is_over {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Workers {
    pub(crate) fn new(most: usize) -> Self {
        let state = State { jobs: VecDeque::new(), idle: 0, threads: 0, is_over: false };
        let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() });
        Self { queue, most }
    }

    /// Has the job done, by and by. Where no thread can be started, by anyone who asks.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.queue.state();
        state.jobs.push_back(Box::new(job));
        if state.idle < state.jobs.len() && state.threads < self.most {
            let queue = Arc::clone(&self.queue);
            let thread = thread::Builder::new().name("landfall-disk".into());
            if thread.spawn(move || queue.work()).is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                let job = state.jobs.pop_back();
                drop(state);
                if let Some(job) = job {
                    job();
                }
                return;
            }
        }
        drop(state);
        self.queue.changed.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.state().is_over = true;
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn every_job_is_done_once_by_no_more_threads_than_may_be() {
        let (workers, (done, heard)) = (Workers::new(3), mpsc::channel());
        for nth in 0..100 {
            let done = done.clone();
            workers.run(move || done.send((nth, thread::current().id())).unwrap());
        }
        drop((workers, done));
        let all: Vec<_> = heard.iter().collect();
        let mut jobs: Vec<_> = all.iter().map(|(nth, _)| *nth).collect();
        jobs.sort_unstable();
        assert_eq!(jobs, (0..100).collect::<Vec<_>>());
        let mut threads: Vec<_> = all.iter().map(|(_, thread)| *thread).collect();
        threads.dedup();
        threads.sort_unstable_by_key(|thread| format!("{thread:?}"));
        threads.dedup();
        assert!(threads.len() <= 3, "{threads:?}");
    }
}
