//! What becomes of each connection, and why: a line of the file that `LANDFALL_LOG` names.
//! `LANDFALL_LOG_LEVEL` says how much: `errors` alone, `connections` (a line for each end, as
//! without it), or `all`.
//!
//! The file is opened for each line, since a descriptor that we kept could be closed by the
//! program and become another of its files. No memory is allocated: a connection may begin
//! in a signal handler.

use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use landfall_socket_rules::Transport;
use landfall_socket_status::{self as status, Explanation, Reason};

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
    /// A file switches new connections off: that of this user, or of the host.
    SwitchedOff(u32),
    /// Bytes of the program may go past the library.
    IoUring,
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

impl Verdict {
    /// How its bytes go.
    pub(crate) const fn transport(&self) -> status::Transport {
        match self {
            Self::BothHere => status::Transport::Memory,
            Self::Carried(transport) => transport_of(*transport),
            _ => status::Transport::Tcp,
        }
    }

    /// Why, as others hear of it.
    pub(crate) const fn explanation(&self) -> Explanation {
        let (reason, detail) = match self {
            Self::BothHere => (Reason::BothHere, 0),
            Self::Carried(transport) => (Reason::Carried, transport_of(*transport) as u32),
            Self::NoCarrier(transport) => (Reason::NoCarrier, transport_of(*transport) as u32),
            Self::LostCarrier(transport) => (Reason::LostCarrier, transport_of(*transport) as u32),
            Self::NotCarried(transport, answer) => {
                let reason = match answer {
                    Answer::Full => Reason::CarrierFull,
                    Answer::Ending => Reason::CarrierEnding,
                    Answer::Unreached => Reason::CarrierUnreached,
                    Answer::Refused => Reason::CarrierRefused,
                    _ => Reason::NotTakenThere,
                };
                (reason, transport_of(*transport) as u32)
            }
            Self::Rule(line) => (Reason::Rule, *line as u32),
            Self::SwitchedOff(whose) => (Reason::SwitchedOff, *whose),
            Self::IoUring => (Reason::IoUring, 0),
            Self::OtherHost => (Reason::OtherHost, 0),
            Self::ItselfAtBothEnds => (Reason::ItselfAtBothEnds, 0),
            Self::NoMemory(why) => (Reason::NoMemory, why.0.cast_unsigned()),
            Self::NoFolder(why) => match why {
                Fault::Kernel(why) => (Reason::NoMemory, why.0.cast_unsigned()),
                Fault::NoFolder => (Reason::NoFolder, 0),
                Fault::NotOfGroup(group) => (Reason::FolderNotOfGroup, *group),
                Fault::NotForUs(group, _) => (Reason::NotInGroup, *group),
                Fault::OfUser(user) => (Reason::FolderOfUser, *user),
                Fault::OpenToOthers(mode) => (Reason::FolderOpen, *mode),
                Fault::Nameless => (Reason::Nameless, 0),
            },
            Self::Unusable(why) => match why {
                Unusable::OfUser(user) => (Reason::OfferOfUser, *user),
                Unusable::OpenToOthers(mode) => (Reason::OfferOpen, *mode),
                Unusable::Names(names) => (Reason::OfferNames, *names as u32),
                Unusable::Unknown => (Reason::OfferUnknown, 0),
                Unusable::Unfinished => (Reason::OfferUnfinished, 0),
                Unusable::OfAnother => (Reason::OfferOfAnother, 0),
                Unusable::Kernel(why) => (Reason::OfferUnusable, why.0.cast_unsigned()),
            },
            Self::Unproven(why) => match why {
                UnprovenReason::Silent(why) => (Reason::KernelSilent, why.0.cast_unsigned()),
                UnprovenReason::Gone => (Reason::Gone, 0),
                UnprovenReason::Another => (Reason::AnotherSocket, 0),
                UnprovenReason::OfUser(user) => (Reason::PeerOfUser, *user),
                UnprovenReason::Apart => (Reason::AnotherNamespace, 0),
            },
            Self::NoOffer => (Reason::NoOffer, 0),
            Self::NoAnswer => (Reason::NoAnswer, 0),
            Self::PastUs => (Reason::PastUs, 0),
            Self::PassedOn => (Reason::PassedOn, 0),
            Self::TooShort => (Reason::TooShort, 0),
        };
        Explanation { reason, detail }
    }

    /// Whether something should be mended: that somebody has no library, or only a word to say, is
    /// as it should be, and so is what rules and switches say.
    const fn is_error(&self) -> bool {
        match self {
            Self::NoMemory(_) | Self::NoFolder(_) | Self::Unusable(_) => true,
            Self::NoCarrier(_) | Self::LostCarrier(_) => true,
            Self::NotCarried(_, answer) => !matches!(answer, Answer::Nobody),
            Self::Unproven(why) => !matches!(why, UnprovenReason::Gone),
            _ => false,
        }
    }
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Level {
    /// What should be mended.
    Errors,
    /// A line for each end of a connection, too.
    Connections,
    /// Also what begins and ends, with bytes.
    All,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Connections as u8);

/// The words that are said of levels.
const LEVELS: [(&CStr, Level); 3] =
    [(c"errors", Level::Errors), (c"connections", Level::Connections), (c"all", Level::All)];

/// How much is told from now on. Who says something else hears of it.
pub(crate) fn set_level(word: &CStr) {
    match LEVELS.iter().find(|(name, _)| *name == word) {
        Some((_, level)) => LEVEL.store(*level as u8, Ordering::Relaxed),
        None => complain(format_args!(
            "LANDFALL_LOG_LEVEL is `errors`, `connections` or `all`, not `{}`",
            word.to_string_lossy()
        )),
    }
}

fn has(level: Level) -> bool {
    is_on() && LEVEL.load(Ordering::Relaxed) >= level as u8
}

/// Whether what begins and ends is told, too.
pub(crate) fn tells_all() -> bool {
    has(Level::All)
}

const fn transport_of(transport: Transport) -> status::Transport {
    match transport {
        Transport::Memory => status::Transport::Memory,
        Transport::Tcp => status::Transport::Tcp,
        Transport::Stp => status::Transport::Stp,
        Transport::Qpip => status::Transport::Qpip,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // It says which one.
            Self::NoFolder(why) => write!(f, "tcp: {why}"),
            _ => write!(f, "{}: {}", self.transport().word(), self.explanation()),
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
    if has(if verdict.is_error() { Level::Errors } else { Level::Connections }) {
        tell_of(role, name, format_args!("{verdict}"));
    }
}

/// How a connection has ended.
pub(crate) fn report_end(role: Role, name: &Name, milliseconds: u64, bytes: [u64; 2]) {
    if has(Level::All) {
        let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
        let [sent, received] = bytes;
        tell_of(
            role,
            name,
            format_args!(
                "closed after {seconds}.{rest:03} s, {sent} bytes sent, {received} received"
            ),
        );
    }
}

fn tell_of(role: Role, name: &Name, words: fmt::Arguments<'_>) {
    let (here, there) = (name.connector.socket_address(), name.acceptor.socket_address());
    match role {
        Role::Connector => write_line(format_args!("calls {there} from {here}: {words}")),
        Role::Acceptor => write_line(format_args!("is called at {there} from {here}: {words}")),
    }
}

/// A line that is no error.
pub(crate) fn say(words: fmt::Arguments<'_>) {
    if has(Level::Connections) {
        write_line(words);
    }
}

fn write_line(words: fmt::Arguments<'_>) {
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
        write_line(words);
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
    fn a_verdict_says_how_and_why() {
        let by = Transport::Qpip;
        for (verdict, words) in [
            (Verdict::BothHere, "memory: both ends have the library"),
            (Verdict::Carried(by), "qpip: both hosts have a carrier, both ends the library"),
            (Verdict::NoCarrier(by), "tcp: no carrier on this host (landfall carry --over qpip)"),
            (
                Verdict::NotCarried(by, Answer::Refused),
                "tcp: not by qpip: the carrier there does not take it",
            ),
            (Verdict::LostCarrier(by), "tcp: the carrier for qpip has ended"),
            (Verdict::Unusable(Unusable::OfUser(7)), "tcp: the offer belongs to user 7"),
            (Verdict::Unproven(UnprovenReason::OfUser(8)), "tcp: the other end belongs to user 8"),
        ] {
            assert_eq!(verdict.to_string(), words);
        }
        let folder = Verdict::NoFolder(Fault::OpenToOthers(0o755)).to_string();
        assert!(folder.contains("/dev/shm/landfall-sockets-"), "{folder}");
        assert!(folder.ends_with(" is open to others (mode 0755): remove it"), "{folder}");
    }

    #[test]
    fn a_short_line_is_whole() {
        let line = line(format_args!("{}", Verdict::Rule(7)));
        let text = std::str::from_utf8(line.as_bytes()).unwrap();
        assert!(text.ends_with("] tcp: rule in line 7\n"), "{text}");
    }
}
