//! What becomes of each connection, and why: a line of the file that `LANDFALL_LOG` names.
//!
//! The file is opened for each line, since a descriptor that we kept could be closed by the
//! program and become another of its files. No memory is allocated: a connection may begin
//! in a signal handler.

use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicPtr, Ordering};

use landfall_socket_rules::Transport;

use crate::between_hosts::Answer;
use crate::folder::Fault;
use crate::kernel::{self, Errno};
use crate::registry::Name;
use crate::segment::{Role, Unusable};
use crate::socket_diag::UnprovenReason;

/// Leaked: programs that show a title write over their environment.
static PATH: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// How a connection goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Memory.
    BothHere,
    /// To another host.
    Carried(Transport),
    NoCarrier(Transport),
    NotCarried(Transport, Answer),
    LostCarrier(Transport),
    Rule(usize),
    OtherHost,
    ItselfAtBothEnds,
    NoMemory(Errno),
    NoFolder(Fault),
    /// What was found in place of an offer.
    Unusable(Unusable),
    /// What is said in the memory of the other end is not what the kernel says.
    Unproven(UnprovenReason),
    NoOffer,
    NoAnswer,
    /// More or less went by TCP than was counted.
    PastUs,
    /// Two processes have it, and went on by TCP.
    PassedOn,
    TooShort,
}

/// Without a folder there is no offer, and what keeps it from being made is why there is no
/// memory.
impl From<Fault> for Verdict {
    fn from(why: Fault) -> Self {
        match why {
            Fault::Kernel(Errno(libc::ENOENT)) => Self::NoOffer,
            Fault::Kernel(why) => Self::NoMemory(why),
            why => Self::NoFolder(why),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BothHere => f.write_str("memory: both ends have the library"),
            Self::Carried(transport) => {
                write!(f, "{}: both hosts have a carrier, both ends the library", transport.word())
            }
            Self::NoCarrier(transport) => {
                write!(
                    f,
                    "tcp: no carrier on this host (landfall carry --over {})",
                    transport.word()
                )
            }
            Self::LostCarrier(transport) => {
                write!(f, "tcp: the carrier for {} has ended", transport.word())
            }
            Self::NotCarried(transport, answer) => {
                let why = match answer {
                    Answer::Full => "this host's carrier has no place left",
                    Answer::Ending => "this host's carrier comes to its end",
                    Answer::Unreached => "no carrier is heard from there",
                    Answer::Refused => "the carrier there does not take it",
                    _ => "the program there has not taken it",
                };
                write!(f, "tcp: not by {}: {why}", transport.word())
            }
            Self::Rule(line) => write!(f, "tcp: rule in line {line}"),
            Self::OtherHost => f.write_str("tcp: the other end is on another host"),
            Self::ItselfAtBothEnds => f.write_str("tcp: the socket is connected to itself"),
            Self::NoMemory(why) => write!(f, "tcp: no memory to share (errno {})", why.0),
            Self::NoFolder(why) => write!(f, "tcp: {why}"),
            Self::Unusable(why) => write!(f, "tcp: {why}"),
            Self::Unproven(why) => write!(f, "tcp: {why}"),
            Self::NoOffer => f.write_str("tcp: the caller offers no memory"),
            Self::NoAnswer => f.write_str("tcp: nobody has taken the memory that was offered"),
            Self::PastUs => f.write_str("tcp: bytes go past the library"),
            Self::PassedOn => f.write_str("tcp: another process got it before it was memory"),
            Self::TooShort => f.write_str("tcp: closed before both ends had found each other"),
        }
    }
}

/// Lines go to this file from now on.
pub(crate) fn begin(path: &CStr) {
    if !path.is_empty() {
        PATH.store(path.to_owned().into_raw(), Ordering::Release);
    }
}

/// Whether anybody wants to know.
pub(crate) fn is_on() -> bool {
    !PATH.load(Ordering::Relaxed).is_null()
}

/// A line about one connection.
pub(crate) fn report(role: Role, name: &Name, verdict: Verdict) {
    let (here, there) = (name.connector.socket_address(), name.acceptor.socket_address());
    match role {
        Role::Connector => say(format_args!("calls {there} from {here}: {verdict}")),
        Role::Acceptor => say(format_args!("is called at {there} from {here}: {verdict}")),
    }
}

/// A line.
pub(crate) fn say(words: fmt::Arguments<'_>) {
    let path = PATH.load(Ordering::Acquire);
    if path.is_null() {
        return;
    }
    // SAFETY: it was leaked by `begin`.
    let path = unsafe { CStr::from_ptr(path) };
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NOCTTY | libc::O_NONBLOCK;
    if let Ok(file) = kernel::open(path, flags, 0o644) {
        let _ = kernel::write(file, line(words).as_bytes());
        let _ = kernel::close(file);
    }
}

/// A line about what should not be; where there is no log, to whom the program complains.
pub(crate) fn complain(words: fmt::Arguments<'_>) {
    if is_on() {
        say(words);
    } else {
        let _ = kernel::write(libc::STDERR_FILENO, line(words).as_bytes());
    }
}

fn line(words: fmt::Arguments<'_>) -> BoundedText {
    let mut line = BoundedText { bytes: [0; 512], len: 0 };
    let now = kernel::now();
    let (program, process) = (crate::rules::program(), kernel::process());
    // What does not fit is cut off.
    let _ = write!(line, "{}.{:03} ", now.tv_sec, now.tv_nsec / 1_000_000);
    let _ = write!(line, "landfall: {program}[{process}] {words}");
    line.end();
    line
}

/// Text of a bounded length.
struct BoundedText {
    bytes: [u8; 512],
    len: usize,
}

impl BoundedText {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn end(&mut self) {
        self.len = self.len.min(self.bytes.len() - 1);
        self.bytes[self.len] = b'\n';
        self.len += 1;
    }
}

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let len = text.len().min(room);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        if len == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_however_long() {
        let long = "x".repeat(2000);
        let line = line(format_args!("{long}"));
        assert_eq!(line.as_bytes().len(), 512);
        assert_eq!(line.as_bytes().iter().position(|byte| *byte == b'\n'), Some(511));
    }

    #[test]
    fn a_short_line_is_whole() {
        let line = line(format_args!("{}", Verdict::Rule(7)));
        let text = std::str::from_utf8(line.as_bytes()).unwrap();
        assert!(text.ends_with("] tcp: rule in line 7\n"), "{text}");
    }
}
