#![doc = include_str!("../README.md")]
// The functions that replace those of libc are left out of the unit tests, which would
// else run on them; so what only they call is unused there.
#![cfg_attr(test, allow(dead_code))]

#[cfg(not(test))]
use std::ffi::{c_char, c_int};

mod allocator;
mod bell;
mod between_hosts;
mod borrowers;
#[cfg(not(test))]
mod calls;
mod carrier;
mod connection;
#[cfg(not(test))]
mod constructors;
mod family;
mod folder;
mod interest;
mod io_uring;
mod kernel;
mod known_tcp;
mod lock;
mod log;
mod messages;
#[cfg(not(test))]
mod next;
mod notes;
mod patience;
mod process;
mod readiness;
mod registry;
mod ring;
mod rings;
mod rules;
mod sandbox;
mod segment;
mod signals;
mod socket_diag;
mod status;
mod switch;
mod table;
mod thread;
mod transfer;
mod wake_pipe;
mod watched;

/// Whether bytes of this connection go through memory: 1 for those that are sent, plus 2
/// for those that come. For tests and for the curious: `dlsym(RTLD_DEFAULT, …)`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn landfall_is_shared(fd: std::ffi::c_int) -> std::ffi::c_int {
    table::find(fd).map_or(0, |guard| {
        guard.shared().map_or(0, |shared| {
            i32::from(shared.is_sending_switched())
                + 2 * i32::from(shared.incoming_by_tcp().is_some())
        })
    })
}

/// All that is kept here comes from here: `malloc` may be what a handler has interrupted.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// What is done before the program begins.
#[cfg(not(test))]
extern "C" fn begin(count: c_int, words: *const *const c_char, variables: *const *const c_char) {
    next::look_up_all();
    process::find_out_who_knows_of_threads();
    process::begin();
    rules::read();
    if let Some(text) = carrier::asked_for() {
        rules::switch_off();
        constructors::call_those_after(&BEGIN, (count, words, variables));
        carrier::run(&text);
    }
    if !rules::are_on() {
        return;
    }
    let (before, parent, child) = (before_fork, after_fork_in_parent, after_fork);
    // SAFETY: functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    take_in_what_was_open();
    registry::sweep();
}

/// The descriptors that may be open. Where `/proc` says it, no program that starts has to
/// ask for each number by itself.
fn open_descriptors() -> Vec<i32> {
    const MOST: i32 = 4096;
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return (0..MOST).collect() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|fd| *fd < MOST).collect()
}

/// Descriptors from before `exec` may be ends of connections that are shared.
fn take_in_what_was_open() {
    for fd in open_descriptors() {
        if kernel::status(fd).is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFSOCK) {
            connection::Connection::inherited(fd, false);
        }
    }
}

/// What one thread of this process is in the middle of changing, the child of another's fork
/// would have half changed for ever. So all stands still.
extern "C" fn before_fork() {
    let mut means = connection::Means::of_a_fork();
    table::for_each(|connection, fd| connection.is_held_once_more(fd, &mut means));
    watched::before_fork();
    process::begins();
}

extern "C" fn after_fork_in_parent() {
    process::is_over();
}

extern "C" fn after_fork() {
    process::begin();
    process::is_over();
    table::after_fork();
    table::for_each(|connection, _| connection.after_fork());
    watched::after_fork();
    wake_pipe::after_fork();
    messages::after_fork();
    status::after_fork();
}

/// What is done when the program ends by itself: as if it had closed all it had.
extern "C" fn end() {
    if !process::owns_the_tables() {
        return;
    }
    family::leaves();
    messages::end();
    let mut fd = 0;
    while let Some(found) = table::next_from(fd) {
        table::remove(found);
        fd = found + 1;
    }
    status::end();
}

/// The loader calls it when the program ends.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// The loader calls it when the library has been loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: constructors::Constructor = begin;
