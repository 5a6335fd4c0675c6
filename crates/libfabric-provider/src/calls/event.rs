//! Event queues.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::{size_t, ssize_t};

use super::queue::LONGEST_WAIT;
use super::{closes, give, known, of, passive, take, write_text};
use crate::abi::*;
use crate::events::{Events, Notice, Occurrence};
use crate::notify::locked;

#[repr(C)]
pub(super) struct EventHandle {
    fid: fid_eq,
    pub(super) events: Arc<Events>,
    wait_object: c_int,
    /// The last text that was asked for.
    text: Mutex<CString>,
}

static FID_OPS: fi_ops = fi_ops { control, ..closes(close) };
static OPS: fi_ops_eq =
    fi_ops_eq { size: size_of::<fi_ops_eq>(), read, readerr, write, sread, strerror };

pub(super) unsafe extern "C" fn open(
    _: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    queue: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program gives attributes or none.
    let wait_object = match unsafe { attr.as_ref() }.map_or(FI_WAIT_NONE, |attr| attr.wait_obj) {
        FI_WAIT_NONE | FI_WAIT_YIELD => FI_WAIT_NONE,
        FI_WAIT_FD | FI_WAIT_UNSPEC => FI_WAIT_FD,
        _ => return -FI_ENOSYS,
    };
    let Ok(events) = Events::new() else { return -FI_ENOMEM };
    let fid = fid_eq { fid: known(FI_CLASS_EQ, context, &FID_OPS), ops: &raw const OPS };
    let handle = EventHandle { fid, events, wait_object, text: Mutex::default() };
    // SAFETY: a place for the handle, which begins with its `fid_eq`.
    unsafe { give(handle, queue) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the program uses it no more.
    drop(unsafe { take::<EventHandle, _>(fid) });
    0
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: an open queue.
    let handle: &EventHandle = unsafe { of(fid) };
    match command {
        FI_GETWAIT if handle.wait_object == FI_WAIT_NONE => -FI_ENODATA,
        FI_GETWAIT => {
            // SAFETY: the program gives a place for a descriptor.
            unsafe { *arg.cast::<c_int>() = handle.events.event.descriptor() };
            0
        }
        FI_GETWAITOBJ => {
            // SAFETY: the program gives a place for the kind.
            unsafe { *arg.cast::<c_int>() = handle.wait_object };
            0
        }
        _ => -FI_ENOSYS,
    }
}

/// Whether a program may sleep at the descriptor of an event queue.
///
/// # Safety
/// It is an open event queue of this provider.
pub(super) unsafe fn may_sleep(fid: *mut fid) -> bool {
    // SAFETY: the caller says so.
    let handle: &EventHandle = unsafe { of(fid) };
    handle.events.may_sleep()
}

/// What the program gives for an event.
struct Room {
    event: *mut u32,
    at: *mut c_void,
    len: usize,
}

impl Room {
    /// Writes an event, with as much of its data as there is room for. How many bytes that is.
    ///
    /// # Safety
    /// A number may be written at `event`, and `len` bytes at `at`.
    unsafe fn fill(&self, notice: &mut Notice) -> ssize_t {
        let entry = match &mut notice.what {
            Occurrence::Written(_) => None,
            Occurrence::Request(request) => {
                if request.info == 0 {
                    request.info = passive::info_of(request) as usize;
                }
                Some(request.info as *mut fi_info)
            }
            Occurrence::Connected | Occurrence::Shutdown | Occurrence::Failed(_) => {
                Some(std::ptr::null_mut())
            }
        };
        let entry = entry.map(|info| fi_eq_cm_entry { fid: notice.fid as *mut fid, info });
        let head = entry.map_or(0, |_| size_of::<fi_eq_cm_entry>());
        if self.len < head || self.at.is_null() {
            return -FI_ETOOSMALL as ssize_t;
        }
        let event = match &notice.what {
            Occurrence::Request(_) => FI_CONNREQ,
            Occurrence::Connected => FI_CONNECTED,
            Occurrence::Written(event) => *event,
            Occurrence::Shutdown | Occurrence::Failed(_) => FI_SHUTDOWN,
        };
        let data = &notice.data[..notice.data.len().min(self.len - head)];
        // SAFETY: the caller says so; the entry is shorter than the room, and so is the rest.
        unsafe {
            *self.event = event;
            if let Some(entry) = entry {
                self.at.cast::<fi_eq_cm_entry>().write_unaligned(entry);
            }
            let rest = self.at.cast::<u8>().add(head);
            std::ptr::copy_nonoverlapping(data.as_ptr(), rest, data.len());
        }
        (head + data.len()) as ssize_t
    }
}

/// # Safety
/// As for [`Room::fill`].
unsafe fn next(events: &Events, room: &Room, flags: u64) -> ssize_t {
    let mut queued = events.lock();
    if queued.has_error() {
        return -FI_EAVAIL as ssize_t;
    }
    let Some(notice) = queued.notices.front_mut() else { return -FI_EAGAIN as ssize_t };
    // SAFETY: the caller says so.
    let result = unsafe { room.fill(notice) };
    if result >= 0 && flags & FI_PEEK == 0 {
        queued.notices.pop_front();
    }
    result
}

unsafe extern "C" fn read(
    queue: *mut fid_eq,
    event: *mut u32,
    at: *mut c_void,
    len: size_t,
    flags: u64,
) -> ssize_t {
    // SAFETY: an open queue.
    let handle: &EventHandle = unsafe { of(queue) };
    if !handle.events.is_here() {
        return -FI_EOPBADSTATE as ssize_t;
    }
    handle.events.progress();
    // SAFETY: the program gives a place for the number, and this much room.
    unsafe { next(&handle.events, &Room { event, at, len }, flags) }
}

unsafe extern "C" fn sread(
    queue: *mut fid_eq,
    event: *mut u32,
    at: *mut c_void,
    len: size_t,
    timeout: c_int,
    flags: u64,
) -> ssize_t {
    // SAFETY: an open queue.
    let events = Arc::clone(&unsafe { of::<EventHandle, _>(queue) }.events);
    if !events.is_here() {
        return -FI_EOPBADSTATE as ssize_t;
    }
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let begun = Instant::now();
    loop {
        let may_sleep = events.may_sleep();
        // SAFETY: the program gives a place for the number, and this much room.
        let result = unsafe { next(&events, &Room { event, at, len }, flags) };
        if result != -FI_EAGAIN as ssize_t {
            return result;
        }
        let left = limit.map_or(LONGEST_WAIT, |limit| limit.saturating_sub(begun.elapsed()));
        if left.is_zero() {
            return result;
        }
        if may_sleep {
            events.event.wait(left.min(LONGEST_WAIT));
        }
    }
}

unsafe extern "C" fn readerr(queue: *mut fid_eq, into: *mut fi_eq_err_entry, _: u64) -> ssize_t {
    // SAFETY: an open queue.
    let handle: &EventHandle = unsafe { of(queue) };
    if !handle.events.is_here() {
        return -FI_EOPBADSTATE as ssize_t;
    }
    let mut queued = handle.events.lock();
    let Some((notice, err, prov_errno)) = queued.take_error() else {
        return -FI_EAGAIN as ssize_t;
    };
    let data = &mut queued.last;
    // SAFETY: the program gives an entry, which may say where data of the error is to go. Else
    // it looks at it here, until it reads again.
    unsafe {
        let (place, room) = ((*into).err_data, (*into).err_data_size);
        let (err_data, err_data_size) = if place.is_null() || room == 0 {
            (data.as_mut_ptr().cast(), data.len())
        } else {
            let len = data.len().min(room);
            std::ptr::copy_nonoverlapping(data.as_ptr(), place.cast(), len);
            (place, len)
        };
        let (fid, context) = (notice.fid as *mut fid, notice.context as *mut c_void);
        into.write(fi_eq_err_entry {
            fid,
            context,
            data: 0,
            err,
            prov_errno,
            err_data,
            err_data_size,
        });
    }
    size_of::<fi_eq_err_entry>() as ssize_t
}

unsafe extern "C" fn write(
    queue: *mut fid_eq,
    event: u32,
    from: *const c_void,
    len: size_t,
    _: u64,
) -> ssize_t {
    // SAFETY: an open queue.
    let handle: &EventHandle = unsafe { of(queue) };
    if !handle.events.is_here() {
        return -FI_EOPBADSTATE as ssize_t;
    }
    if handle.events.is_full() {
        return -FI_EAGAIN as ssize_t;
    }
    let mut data = vec![0_u8; len];
    if len > 0 {
        // SAFETY: the program gives this many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), data.as_mut_ptr(), len) };
    }
    handle.events.push(Notice { fid: 0, context: 0, what: Occurrence::Written(event), data });
    len as ssize_t
}

unsafe extern "C" fn strerror(
    queue: *mut fid_eq,
    number: c_int,
    _: *const c_void,
    into: *mut c_char,
    room: size_t,
) -> *const c_char {
    // SAFETY: an open queue.
    let handle: &EventHandle = unsafe { of(queue) };
    let queued = handle.events.lock();
    let text = queued.texts.get(number).unwrap_or("no such error");
    // SAFETY: the program says how much room there is.
    unsafe { write_text(text, into, room) };
    let mut last = locked(&handle.text);
    *last = CString::new(text).unwrap_or_default();
    last.as_ptr()
}
