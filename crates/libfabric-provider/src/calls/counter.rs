//! Counters.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::domain::domain_of;
use super::queue::LONGEST_WAIT;
use super::{closes, give, known, of, take};
use crate::abi::*;
use crate::completion::Counter;
use crate::domain::Domain;

#[repr(C)]
pub(super) struct CounterHandle {
    fid: fid_cntr,
    domain: Arc<Domain>,
    pub(super) number: usize,
}

static FID_OPS: fi_ops = closes(close);
static OPS: fi_ops_cntr =
    fi_ops_cntr { size: size_of::<fi_ops_cntr>(), read, readerr, add, set, wait, adderr, seterr };

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    counter: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain, and attributes or none.
    let (domain, attr) = unsafe { (domain_of(domain), attr.as_ref()) };
    if !domain.is_here() {
        return -FI_EOPBADSTATE;
    }
    let waits = attr.map_or(FI_WAIT_NONE, |attr| attr.wait_obj);
    if !matches!(waits, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD) {
        return -FI_ENOSYS;
    }
    let number = domain.lock().world.counters.add(Counter::default());
    let handle = CounterHandle {
        fid: fid_cntr { fid: known(FI_CLASS_CNTR, context, &FID_OPS), ops: &raw const OPS },
        domain: Arc::clone(domain),
        number,
    };
    // SAFETY: a place for the handle, which begins with its `fid_cntr`.
    unsafe { give(handle, counter) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the program uses it no more.
    let handle: Box<CounterHandle> = unsafe { take(fid) };
    handle.domain.lock().world.counters.remove(handle.number);
    0
}

impl CounterHandle {
    fn look(&self) -> Counter {
        let mut state = self.domain.lock();
        state.progress();
        state.world.counters.get(self.number).copied().unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut Counter)) -> c_int {
        match self.domain.lock().world.counters.get_mut(self.number) {
            Some(counter) => change(counter),
            None => return -FI_EOPBADSTATE,
        }
        self.domain.notify.ring();
        0
    }
}

unsafe extern "C" fn read(counter: *mut fid_cntr) -> u64 {
    // SAFETY: an open counter.
    unsafe { of::<CounterHandle, _>(counter) }.look().value
}

unsafe extern "C" fn readerr(counter: *mut fid_cntr) -> u64 {
    // SAFETY: an open counter.
    unsafe { of::<CounterHandle, _>(counter) }.look().errors
}

unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: an open counter.
    let handle: &CounterHandle = unsafe { of(counter) };
    handle.change(|counter| counter.value = counter.value.wrapping_add(value))
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: an open counter.
    unsafe { of::<CounterHandle, _>(counter) }.change(|counter| counter.value = value)
}

unsafe extern "C" fn adderr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: an open counter.
    let handle: &CounterHandle = unsafe { of(counter) };
    handle.change(|counter| counter.errors = counter.errors.wrapping_add(value))
}

unsafe extern "C" fn seterr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: an open counter.
    unsafe { of::<CounterHandle, _>(counter) }.change(|counter| counter.errors = value)
}

unsafe extern "C" fn wait(counter: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: an open counter.
    let handle: &CounterHandle = unsafe { of(counter) };
    if !handle.domain.is_here() {
        return -FI_EOPBADSTATE;
    }
    let errors = handle.look().errors;
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let begun = Instant::now();
    loop {
        let seen = handle.domain.notify.rings();
        let now = handle.look();
        if now.value >= threshold {
            return 0;
        }
        if now.errors != errors {
            return -FI_EAVAIL;
        }
        let left = limit.map_or(LONGEST_WAIT, |limit| limit.saturating_sub(begun.elapsed()));
        if left.is_zero() {
            return -FI_ETIMEDOUT;
        }
        handle.domain.notify.wait(seen, left.min(LONGEST_WAIT));
    }
}
