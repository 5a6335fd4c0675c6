//! The lock and its queue in every order that their steps can take:
//! `RUSTFLAGS="--cfg loom" cargo test -p landfall --release --no-default-features
//! --features stp --lib -- runtime::models`.
//!
//! They are the functions that run in earnest, over the words of `loom`.

use loom::sync::Arc;
use loom::thread;

use super::lock::EngineLock;

/// What was served, in its order.
type Lock = EngineLock<Vec<u32>, u32>;

/// Serves the queue, for as long as this thread has to.
fn serve<'a>(lock: &'a Lock, mut state: loom::sync::MutexGuard<'a, Vec<u32>>) {
    loop {
        while let Some(item) = lock.next(&state) {
            state.push(item);
        }
        match lock.release(state) {
            Some(again) => state = again,
            None => return,
        }
    }
}

/// As a runtime does it: served by itself, by the lock's holder, or with the lock where the
/// queue is full.
fn submit(lock: &Lock, item: u32) {
    match lock.submit(item) {
        Ok(None) => {}
        Ok(Some(state)) => serve(lock, state),
        Err(item) => {
            let mut state = lock.lock();
            while let Some(before) = lock.next(&state) {
                state.push(before);
            }
            state.push(item);
            serve(lock, state);
        }
    }
}

#[test]
fn what_is_submitted_while_the_lock_is_let_go_is_served() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(Vec::new(), 2));
        let driving = Arc::clone(&lock);
        let driver = thread::spawn(move || serve(&driving, driving.lock_to_drive()));
        submit(&lock, 1);
        driver.join().unwrap();
        // Nobody comes later who would find it by chance.
        assert_eq!(*lock.try_lock().unwrap(), [1]);
    });
}

#[test]
fn two_threads_that_submit_serve_each_other() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(Vec::new(), 2));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || submit(&other, 1));
        submit(&lock, 2);
        thread.join().unwrap();
        let mut served = lock.try_lock().unwrap().clone();
        served.sort_unstable();
        assert_eq!(served, [1, 2]);
    });
}

#[test]
fn what_one_thread_submits_keeps_its_order_though_another_serves_it() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(Vec::new(), 2));
        let driving = Arc::clone(&lock);
        let driver = thread::spawn(move || serve(&driving, driving.lock_to_drive()));
        submit(&lock, 1);
        submit(&lock, 2);
        driver.join().unwrap();
        assert_eq!(*lock.try_lock().unwrap(), [1, 2]);
    });
}

#[test]
fn a_full_queue_loses_nothing() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(Vec::new(), 2));
        let driving = Arc::clone(&lock);
        let driver = thread::spawn(move || serve(&driving, driving.lock_to_drive()));
        (1..=3).for_each(|item| submit(&lock, item));
        driver.join().unwrap();
        assert_eq!(*lock.try_lock().unwrap(), [1, 2, 3]);
    });
}
