//! Which connections may become shared memory: what the environment says, and the file of
//! rules that it names.
//!
//! | variable | what it says |
//! | --- | --- |
//! | `LANDFALL_SOCKETS=off` | all is left to the kernel |
//! | `LANDFALL_RULES=FILE` | rules for connections; without one all within this host may |
//! | `LANDFALL_GROUP=NUMBER` | who finds each other are the members of a group ([`group`]), not the programs of one user |
//! | `LANDFALL_LOG=FILE`, `LANDFALL_LOG_LEVEL=LEVEL` | see [`crate::log`] |
//!
//! Files switch programs off that run ([`crate::switch`]).

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use landfall_socket_rules::{Rules, Transport};

use crate::folder::group;
use crate::log::{self, Verdict};
use crate::registry::Name;
use crate::switch;

static ON: AtomicBool = AtomicBool::new(true);
static USES_IO_URING: AtomicBool = AtomicBool::new(false);
/// Leaked when the program begins.
static RULES: AtomicPtr<Rules> = AtomicPtr::new(std::ptr::null_mut());
static PROGRAM: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" {
    /// The name by which the program was started, without its folder.
    static program_invocation_short_name: *const libc::c_char;
}

/// Reads what the environment says, and the rules. Whatever is wrong with them, the program
/// runs: as it would without this library.
pub(crate) fn read() {
    learn_the_name();
    if let Some(path) = variable(c"LANDFALL_LOG") {
        log::begin(path);
    }
    if let Some(level) = variable(c"LANDFALL_LOG_LEVEL").filter(|level| !level.is_empty()) {
        log::set_level(level);
    }
    if let Some(number) = variable(c"LANDFALL_GROUP").filter(|number| !number.is_empty()) {
        match number.to_str().ok().and_then(|number| number.parse().ok()) {
            Some(number) => group::begin(number),
            None => log::complain(format_args!(
                "of this user alone: LANDFALL_GROUP has to be a number (`landfall run --group NAME` finds it)"
            )),
        }
    }
    let is_off = variable(c"LANDFALL_SOCKETS").is_some_and(|said| said == c"off" || said == c"0");
    if is_off || !are_good() {
        ON.store(false, Ordering::Relaxed);
    }
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a name that ends with zero; the library has just been loaded.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the environment is made of C strings.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Reads the file of rules, if there is one; whether there is anything to do after that.
fn are_good() -> bool {
    let Some(path) = variable(c"LANDFALL_RULES").filter(|path| !path.is_empty()) else {
        return true;
    };
    let path = std::path::Path::new(OsStr::from_bytes(path.to_bytes()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(why) => {
            log::complain(format_args!("all by TCP: {}: {why}", path.display()));
            return false;
        }
    };
    let rules: Rules = match text.parse() {
        Ok(rules) => rules,
        Err(why) => {
            log::complain(format_args!("all by TCP: {}: {why}", path.display()));
            return false;
        }
    };
    if let Some(decision) = rules.decide_for_all(program())
        && decision.transport == Transport::Tcp
    {
        log::say(format_args!("all by TCP: rule in line {}", decision.line.unwrap_or(0)));
        return false;
    }
    RULES.store(Box::into_raw(Box::new(rules)), Ordering::Release);
    true
}

/// Whether there is anything to do at all.
pub(crate) fn are_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// What the program is called.
pub(crate) fn program() -> &'static str {
    let name = PROGRAM.load(Ordering::Acquire);
    // SAFETY: leaked when the program began.
    if name.is_null() { "" } else { unsafe { &*name } }
}

/// What libc says that the program is called. It is copied: programs that show a title
/// write over it.
fn learn_the_name() {
    // SAFETY: libc sets it before any library is begun, to a part of the first argument.
    let name = unsafe { program_invocation_short_name };
    if !name.is_null() {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        PROGRAM.store(Box::into_raw(Box::new(name)), Ordering::Release);
    }
}

/// Nothing of this process is touched.
pub(crate) fn switch_off() {
    ON.store(false, Ordering::Relaxed);
}

/// The program has asked the kernel for an `io_uring`. What it watches and moves by that goes past
/// this library, and would never hear of bytes in memory.
pub(crate) fn has_io_uring() {
    USES_IO_URING.store(true, Ordering::Relaxed);
}

/// Why no connection of this process becomes memory any more, if so.
pub(crate) fn is_past_us() -> Result<(), Verdict> {
    if USES_IO_URING.load(Ordering::Relaxed) { Err(Verdict::IoUring) } else { Ok(()) }
}

/// How this connection may go: by memory, or to another host; else why by TCP.
pub(crate) fn allow(name: &Name) -> Result<Transport, Verdict> {
    is_past_us()?;
    if let Some(whose) = switch::is_off() {
        return Err(Verdict::SwitchedOff(whose));
    }
    let rules = RULES.load(Ordering::Acquire);
    let mut transport = Transport::Memory;
    if !rules.is_null() {
        // SAFETY: it was leaked.
        let decision = unsafe { &*rules }.decide(program(), name.acceptor.socket_address());
        transport = decision.transport;
        if transport == Transport::Tcp {
            return Err(Verdict::Rule(decision.line.unwrap_or(0)));
        }
    }
    match name.is_within_this_host() {
        true if name.connector == name.acceptor => Err(Verdict::ItselfAtBothEnds),
        true => Ok(Transport::Memory),
        false if transport == Transport::Memory => Err(Verdict::OtherHost),
        false => Ok(transport),
    }
}
