//! Completion queues.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::{size_t, ssize_t};

use super::domain::domain_of;
use super::{closes, event, give, known, of, take, write_text};
use crate::abi::*;
use crate::completion::Queue;
use crate::domain::{Domain, State};
use crate::notify::{Event, locked};

#[repr(C)]
pub(super) struct QueueHandle {
    fid: fid_cq,
    domain: Arc<Domain>,
    pub(super) number: usize,
    /// The last text that was asked for.
    text: Mutex<CString>,
    /// The last call has looked for more, and found some.
    has_found: AtomicBool,
}

static FID_OPS: fi_ops = fi_ops { control, ..closes(close) };
static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
};

/// How many completions a queue holds that says nothing else.
const SIZE: usize = 1024;
/// Anyone who waits looks again after so long, whatever happens.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// Anyone who waits looks so long before it sleeps: about what a wake costs.
const SPIN: Duration = Duration::from_micros(50);

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    queue: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain, and attributes or none.
    let (domain, attr) = unsafe { (domain_of(domain), attr.as_ref()) };
    if !domain.is_here() {
        return -FI_EOPBADSTATE;
    }
    let format = match attr.map_or(FI_CQ_FORMAT_UNSPEC, |attr| attr.format) {
        FI_CQ_FORMAT_UNSPEC => FI_CQ_FORMAT_CONTEXT,
        format @ FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED => format,
        _ => return -FI_EINVAL,
    };
    let event = match attr.map_or(FI_WAIT_NONE, |attr| attr.wait_obj) {
        FI_WAIT_NONE | FI_WAIT_YIELD => None,
        FI_WAIT_FD | FI_WAIT_UNSPEC => match Event::new() {
            Ok(event) => Some(event),
            Err(_) => return -FI_ENOMEM,
        },
        _ => return -FI_ENOSYS,
    };
    if let Some(event) = &event {
        domain.notify.watch(event);
    }
    let size = attr.map_or(0, |attr| attr.size);
    let size = if size == 0 { SIZE } else { size };
    let number = domain.lock().world.queues.add(Queue::new(format, size, event));
    let handle = QueueHandle {
        fid: fid_cq { fid: known(FI_CLASS_CQ, context, &FID_OPS), ops: &raw const OPS },
        domain: Arc::clone(domain),
        number,
        text: Mutex::default(),
        has_found: AtomicBool::new(false),
    };
    // SAFETY: a place for the handle, which begins with its `fid_cq`.
    unsafe { give(handle, queue) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the program uses it no more.
    let handle: Box<QueueHandle> = unsafe { take(fid) };
    handle.domain.lock().world.queues.remove(handle.number);
    0
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: an open queue.
    let handle: &QueueHandle = unsafe { of(fid) };
    let state = handle.domain.lock();
    let event = state.world.queues.get(handle.number).and_then(|queue| queue.event.as_ref());
    match (command, event) {
        (FI_GETWAIT, Some(event)) => {
            // SAFETY: the program gives a place for a descriptor.
            unsafe { *arg.cast::<c_int>() = event.descriptor() };
            0
        }
        (FI_GETWAITOBJ, event) => {
            let kind = if event.is_some() { FI_WAIT_FD } else { FI_WAIT_NONE };
            // SAFETY: the program gives a place for the kind.
            unsafe { *arg.cast::<c_int>() = kind };
            0
        }
        (FI_GETWAIT, None) => -FI_ENODATA,
        _ => -FI_ENOSYS,
    }
}

impl QueueHandle {
    /// Reads up to `count` completions, and where they are from. Looks for more where there
    /// are none, but not where the call before has found some: programs that read until nothing
    /// is left answer what they have read only then.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn read_on(&self, into: *mut c_void, count: usize, sources: *mut fi_addr_t) -> ssize_t {
        let has_looked = self.has_found.swap(false, Ordering::Relaxed);
        if has_looked && count > 0 {
            let mut state = self.domain.lock();
            // SAFETY: the caller says so.
            return unsafe { take_entries(&mut state, self.number, into, count, sources) };
        }
        // SAFETY: the caller says so.
        let result = unsafe { self.read(into, count, sources) };
        self.has_found.store(result > 0, Ordering::Relaxed);
        result
    }

    /// Reads up to `count` completions, and where they are from.
    ///
    /// # Safety
    /// There is room for `count` entries at `into`, and as many numbers at `sources`, if it is
    /// not null.
    unsafe fn read(&self, into: *mut c_void, count: usize, sources: *mut fi_addr_t) -> ssize_t {
        let mut state = self.domain.lock();
        if state.world.queues.get(self.number).is_none_or(Queue::is_empty) {
            state.progress();
        }
        // SAFETY: the caller says so.
        unsafe { take_entries(&mut state, self.number, into, count, sources) }
    }

    /// The same, and waits for the first of them.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn wait(
        &self,
        into: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        timeout: c_int,
    ) -> ssize_t {
        if !self.domain.is_here() {
            return -FI_EOPBADSTATE as ssize_t;
        }
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        let begun = Instant::now();
        loop {
            let seen = self.domain.notify.rings();
            // SAFETY: the caller says so.
            let result = unsafe { self.read(into, count, sources) };
            if result != -FI_EAGAIN as ssize_t || self.take_signal() {
                return result;
            }
            let passed = begun.elapsed();
            let left = limit.map_or(LONGEST_WAIT, |limit| limit.saturating_sub(passed));
            if left.is_zero() {
                return result;
            }
            if passed > SPIN {
                self.domain.notify.wait(seen, left.min(LONGEST_WAIT));
            }
        }
    }

    fn take_signal(&self) -> bool {
        let mut state = self.domain.lock();
        let queue = state.world.queues.get_mut(self.number);
        queue.is_some_and(|queue| std::mem::take(&mut queue.is_signalled))
    }
}

/// # Safety
/// As for [`QueueHandle::read`].
unsafe fn take_entries(
    state: &mut State,
    number: usize,
    into: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
) -> ssize_t {
    let Some(queue) = state.world.queues.get_mut(number) else { return -FI_EOPBADSTATE as ssize_t };
    let size = queue.entry_size();
    let mut taken = 0;
    while taken < count
        && let Some(completion) = queue.take()
    {
        let entry = fi_cq_tagged_entry::from(completion);
        // SAFETY: room for one more; the shorter formats are the start of the longest.
        unsafe {
            let place = into.byte_add(taken * size);
            std::ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), place.cast(), size);
            if !sources.is_null() {
                *sources.add(taken) = completion.source;
            }
        }
        taken += 1;
    }
    match taken {
        0 if queue.has_error() => -FI_EAVAIL as ssize_t,
        0 => -FI_EAGAIN as ssize_t,
        taken => taken as ssize_t,
    }
}

unsafe extern "C" fn read(queue: *mut fid_cq, into: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: an open queue, and room for this many entries.
    unsafe { of::<QueueHandle, _>(queue).read_on(into, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    queue: *mut fid_cq,
    into: *mut c_void,
    count: size_t,
    sources: *mut fi_addr_t,
) -> ssize_t {
    // SAFETY: an open queue, and room for this many entries and numbers.
    unsafe { of::<QueueHandle, _>(queue).read_on(into, count, sources) }
}

unsafe extern "C" fn sread(
    queue: *mut fid_cq,
    into: *mut c_void,
    count: size_t,
    _: *const c_void,
    timeout: c_int,
) -> ssize_t {
    // SAFETY: an open queue, and room for this many entries.
    unsafe { of::<QueueHandle, _>(queue).wait(into, count, std::ptr::null_mut(), timeout) }
}

unsafe extern "C" fn sreadfrom(
    queue: *mut fid_cq,
    into: *mut c_void,
    count: size_t,
    sources: *mut fi_addr_t,
    _: *const c_void,
    timeout: c_int,
) -> ssize_t {
    // SAFETY: an open queue, and room for this many entries and numbers.
    unsafe { of::<QueueHandle, _>(queue).wait(into, count, sources, timeout) }
}

unsafe extern "C" fn readerr(queue: *mut fid_cq, into: *mut fi_cq_err_entry, _: u64) -> ssize_t {
    // SAFETY: an open queue.
    let handle: &QueueHandle = unsafe { of(queue) };
    let mut state = handle.domain.lock();
    let queue = state.world.queues.get_mut(handle.number);
    match queue.and_then(Queue::take_error) {
        Some(mut entry) => {
            // SAFETY: the program gives an entry, which may say where error data is to go:
            // there is none.
            unsafe {
                (entry.err_data, entry.err_data_size) = ((*into).err_data, 0);
                into.write(entry);
            }
            1
        }
        None => -FI_EAGAIN as ssize_t,
    }
}

unsafe extern "C" fn signal(queue: *mut fid_cq) -> c_int {
    // SAFETY: an open queue.
    let handle: &QueueHandle = unsafe { of(queue) };
    let mut state = handle.domain.lock();
    let Some(queue) = state.world.queues.get_mut(handle.number) else { return -FI_EOPBADSTATE };
    queue.is_signalled = true;
    drop(state);
    handle.domain.notify.ring();
    0
}

unsafe extern "C" fn strerror(
    queue: *mut fid_cq,
    number: c_int,
    _: *const c_void,
    into: *mut c_char,
    room: size_t,
) -> *const c_char {
    // SAFETY: an open queue.
    let handle: &QueueHandle = unsafe { of(queue) };
    let state = handle.domain.lock();
    let known = state.world.queues.get(handle.number).and_then(|queue| queue.text(number));
    let text = known.unwrap_or("no such error");
    // SAFETY: the program says how much room there is.
    unsafe { write_text(text, into, room) };
    let mut last = locked(&handle.text);
    *last = CString::new(text).unwrap_or_default();
    last.as_ptr()
}

/// May a program sleep at the descriptors of these queues? Not while there are completions.
pub(super) unsafe extern "C" fn trywait(
    _: *mut fid_fabric,
    fids: *mut *mut fid,
    count: c_int,
) -> c_int {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the program gives this many handles.
        let fid = unsafe { *fids.add(at) };
        // SAFETY: each begins with its class.
        match unsafe { (*fid).fclass } {
            FI_CLASS_CQ => {}
            FI_CLASS_EQ => {
                // SAFETY: its class says that it is an event queue.
                if !unsafe { event::may_sleep(fid) } {
                    return -FI_EAGAIN;
                }
                continue;
            }
            FI_CLASS_CNTR => continue,
            _ => return -FI_EINVAL,
        }
        // SAFETY: its class says that it is a queue of this provider.
        let handle: &QueueHandle = unsafe { of(fid) };
        if !handle.domain.is_here() {
            return -FI_EOPBADSTATE;
        }
        let mut state = handle.domain.lock();
        if let Some(event) =
            state.world.queues.get(handle.number).and_then(|queue| queue.event.clone())
        {
            event.arm();
        }
        // What happened before it was armed shows here, what happens later rings it.
        state.progress();
        if !state.world.queues.get(handle.number).is_none_or(Queue::is_empty) {
            return -FI_EAGAIN;
        }
    }
    0
}
