//! The ring: entered and emptied; and opened, or refused in words that help.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

/// Operations that go in with one entry into the kernel at most.
pub(super) const QUEUE: usize = 128;
/// Each operation can answer twice, and notifications of earlier entries come
/// in between. What finds no room is kept by the kernel until there is.
const COMPLETIONS: u32 = 1024;
/// Entries that may fail to get anything done before the ring counts as broken.
const ATTEMPTS: u32 = 16;
/// The longest wait in the kernel for operations that were told not to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// An operation is complete, or the notification of one has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) token: u64,
    /// Bytes, or a negative error number; for a notification, usage flags.
    pub(super) result: i32,
    /// This is the notification: the kernel holds the memory no longer.
    pub(super) is_notification: bool,
    /// A notification will follow.
    pub(super) notifies_later: bool,
}

impl Completion {
    fn of(entry: &cqueue::Entry) -> Self {
        let flags = entry.flags();
        Self {
            token: entry.user_data(),
            result: entry.result(),
            is_notification: cqueue::notif(flags),
            notifies_later: cqueue::more(flags),
        }
    }

    /// How many bytes were moved.
    pub(super) fn outcome(&self) -> io::Result<usize> {
        usize::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// What is done on a socket, without waiting. The header and all that it names
/// stay until the completion, for `SendUncopied` until the notification.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Receive(*mut libc::msghdr),
    Send(*const libc::msghdr),
    SendUncopied(*const libc::msghdr),
}

/// Report whether the kernel copied after all (`IORING_SEND_ZC_REPORT_USAGE`).
const REPORT_USAGE: u16 = 1 << 3;

impl Operation {
    /// As an entry of the submission queue.
    fn entry(self, fd: RawFd) -> squeue::Entry {
        let (fd, flags) = (types::Fd(fd), libc::MSG_DONTWAIT as u32);
        match self {
            Self::Receive(header) => opcode::RecvMsg::new(fd, header).flags(flags).build(),
            Self::Send(header) => opcode::SendMsg::new(fd, header).flags(flags).build(),
            Self::SendUncopied(header) => {
                opcode::SendMsgZc::new(fd, header).flags(flags).ioprio(REPORT_USAGE).build()
            }
        }
    }

    /// As a system call of its own, where there is one; gives what an entry
    /// would have given.
    ///
    /// # Safety
    /// As for [`Ring::push`].
    unsafe fn call(self, fd: RawFd) -> Option<i32> {
        let done = match self {
            // SAFETY: the caller vouches for the header.
            Self::Receive(header) => unsafe { libc::recvmsg(fd, header, libc::MSG_DONTWAIT) },
            // SAFETY: the caller vouches for the header.
            Self::Send(header) => unsafe { libc::sendmsg(fd, header, libc::MSG_DONTWAIT) },
            Self::SendUncopied(_) => return None,
        };
        Some(i32::try_from(done).ok().filter(|done| *done >= 0).unwrap_or_else(|| {
            let number = io::Error::last_os_error().raw_os_error();
            -number.unwrap_or(libc::EIO)
        }))
    }
}

/// An operation that was pushed when no other was.
#[derive(Clone, Copy, Debug)]
struct First {
    operation: Operation,
    fd: RawFd,
    token: u64,
}

/// One ring and how many operations are in it.
pub(super) struct Ring {
    uring: IoUring,
    /// Not yet in the submission queue: if it stays alone, it need not go there.
    first: Option<First>,
    /// Operations that were pushed and are not complete.
    under_way: usize,
    broken: bool,
    can_send_without_copy: bool,
}

impl Ring {
    /// # Errors
    /// [`Unavailable`] says why there is none and what would help.
    pub(super) fn open() -> io::Result<Self> {
        let uring = IoUring::builder()
            .dontfork()
            .setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(QUEUE as u32)
            .map_err(|error| explain(&error))?;
        let mut probe = Probe::new();
        let probed = uring.submitter().register_probe(&mut probe).is_ok();
        Ok(Self {
            uring,
            first: None,
            under_way: 0,
            broken: false,
            can_send_without_copy: probed && probe.is_supported(opcode::SendMsgZc::CODE),
        })
    }

    /// The kernel has the operation (Linux 6.1).
    pub(super) const fn can_send_without_copy(&self) -> bool {
        self.can_send_without_copy
    }

    /// Readable when there is something to report.
    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }

    /// The same.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.uring.as_fd()
    }

    /// Nothing more is pushed to a ring that broke: what it has may be under way for good.
    ///
    /// # Errors
    /// It broke.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.broken {
            true => Err(io::Error::other("the io_uring broke in an earlier turn")),
            false => Ok(()),
        }
    }

    /// How many more operations can be pushed before the next [`run`](Self::run).
    pub(super) const fn room(&self) -> usize {
        QUEUE - self.under_way
    }

    /// Adds an operation to those that the next [`run`](Self::run) carries out.
    ///
    /// # Safety
    /// All that the operation names stays valid, and where the caller leaves
    /// it, until its completion, and its notification if one is announced.
    pub(super) unsafe fn push(&mut self, fd: RawFd, operation: Operation, token: u64) {
        debug_assert!(!self.broken, "nobody would look for its completion");
        if self.under_way == 0 {
            self.first = Some(First { operation, fd, token });
        } else {
            self.queue_first();
            self.queue(operation.entry(fd), token);
        }
        self.under_way += 1;
    }

    fn queue_first(&mut self) {
        if let Some(First { operation, fd, token }) = self.first.take() {
            self.queue(operation.entry(fd), token);
        }
    }

    fn queue(&mut self, entry: squeue::Entry, token: u64) {
        let entry = entry.user_data(token);
        // SAFETY: who pushed it vouches for what the entry names.
        let queued = unsafe { self.uring.submission().push(&entry) };
        debug_assert!(queued.is_ok(), "the caller asked for room");
    }

    /// Carries out what was pushed, and reports its completions and any
    /// notifications. The operations do not wait, so neither does this.
    ///
    /// # Errors
    /// The ring is broken for good.
    pub(super) fn run(&mut self, mut report: impl FnMut(Completion)) -> io::Result<()> {
        self.check()?;
        if self.under_way == 0 || self.run_alone(&mut report) {
            self.reap(&mut report);
            return Ok(());
        }
        // As a rule the first entry completes all, and nothing is waited for.
        let mut entered = self.uring.submit().map(drop);
        let mut attempts = 0;
        loop {
            let reaped = self.reap(&mut report);
            attempts = if reaped > 0 { 0 } else { attempts + 1 };
            match entered {
                Err(error) if !is_passing(&error) || attempts > ATTEMPTS => {
                    self.broken = true;
                    return Err(error);
                }
                _ if self.under_way == 0 => return Ok(()),
                Ok(()) if attempts > ATTEMPTS => {
                    self.broken = true;
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
                _ => entered = self.wait(PATIENCE),
            }
        }
    }

    /// Carries out an operation that is alone, by a plain system call where
    /// there is one: the ring gains nothing with it, and an empty receive takes
    /// more than twice as long there. Returns whether that was done.
    fn run_alone(&mut self, report: &mut impl FnMut(Completion)) -> bool {
        let Some(First { operation, fd, token }) = self.first else { return false };
        // Completions that found no room come with an entry into the ring only.
        let must_enter = self.uring.submission().cq_overflow();
        // SAFETY: who pushed it vouches for what the operation names.
        let result = if must_enter { None } else { unsafe { operation.call(fd) } };
        let Some(result) = result else {
            self.queue_first();
            return false;
        };
        self.first = None;
        self.under_way -= 1;
        report(Completion { token, result, is_notification: false, notifies_later: false });
        true
    }

    /// Reports what is complete. Returns how much it was.
    fn reap(&mut self, report: &mut impl FnMut(Completion)) -> usize {
        let mut count = 0;
        for entry in self.uring.completion() {
            let completion = Completion::of(&entry);
            if !completion.is_notification {
                self.under_way -= 1;
            }
            count += 1;
            report(completion);
        }
        count
    }

    /// Cancels what can be cancelled and reports what comes, until nothing is
    /// under way and `report` says that all is well, but not for ever. Returns
    /// whether that was reached. `report` is asked once before anything came.
    pub(super) fn settle(
        &mut self,
        at_most: Duration,
        mut report: impl FnMut(Option<Completion>) -> bool,
    ) -> bool {
        let start = Instant::now();
        if self.under_way > 0 {
            let (time, all) = (types::Timespec::from(at_most), types::CancelBuilder::any());
            // Whatever it says: what counts is whether the completions come.
            let _ = self.uring.submitter().register_sync_cancel(Some(time), all);
        }
        loop {
            self.reap(&mut |completion| {
                report(Some(completion));
            });
            let quiet = self.under_way == 0 && report(None);
            let left = at_most.saturating_sub(start.elapsed());
            if quiet || left.is_zero() {
                return quiet;
            }
            // A wait that ends early or fails is repeated until time is over.
            let _ = self.wait(left);
        }
    }

    /// Submits all and waits for a completion.
    fn wait(&self, at_most: Duration) -> io::Result<()> {
        let time = types::Timespec::from(at_most);
        let args = types::SubmitArgs::new().timespec(&time);
        self.uring.submitter().submit_with_args(1, &args).map(drop)
    }
}

/// A signal, no memory for the moment, or no room for completions: try again.
/// ETIME is a wait that was over.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME | libc::ENOMEM)
    )
}

// SAFETY: the pointers of `first` are followed only in `run`, under the promise
// that was made when it was pushed; moving a ring moves numbers.
unsafe impl Send for Ring {}
// SAFETY: a shared ring follows no pointer.
unsafe impl Sync for Ring {}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("under_way", &self.under_way)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// No `io_uring` can be had here, and what would help.
///
/// It is inside the [`io::Error`] of whatever was to be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("io_uring is not available: {why} ({error}); {remedy}")]
pub struct Unavailable {
    /// What stands in the way.
    pub why: &'static str,
    /// What the kernel said.
    pub error: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Where an administrator forbids `io_uring`: 1 to those without privilege, 2 to all.
const SETTING: &str = "/proc/sys/kernel/io_uring_disabled";

/// What the kernel's refusal to open a ring means on this machine.
pub(super) fn explain(error: &io::Error) -> io::Error {
    let setting = fs::read_to_string(SETTING).ok();
    explain_with(error, setting.as_deref().map(str::trim))
}

/// The same on a machine where [`SETTING`] reads like this.
fn explain_with(error: &io::Error, setting: Option<&str>) -> io::Error {
    let (why, remedy) = match (error.raw_os_error(), setting) {
        (Some(libc::EPERM | libc::EACCES), Some("1")) => (
            "this system allows it to privileged processes only",
            "set kernel.io_uring_disabled to 0 with sysctl, run with CAP_SYS_ADMIN or in the \
             group kernel.io_uring_group, or use the plain driver",
        ),
        (Some(libc::EPERM | libc::EACCES), Some("2")) => (
            "this system forbids it",
            "set kernel.io_uring_disabled to 0 with sysctl, or use the plain driver",
        ),
        (Some(libc::EPERM | libc::EACCES), _) => (
            "a security policy forbids it, as container runtimes do by default",
            "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile \
             of the container, or use the plain driver",
        ),
        (Some(libc::ENOSYS), _) => (
            "the kernel does not have it, or a security policy hides it",
            "use Linux 5.19 or later, allow it in the seccomp profile of the container, or use \
             the plain driver",
        ),
        (Some(libc::EINVAL), _) => {
            ("the kernel is too old", "use Linux 5.19 or later, or use the plain driver")
        }
        (Some(libc::ENOMEM), _) => (
            "there is no memory for it within the limit of locked memory",
            "raise the limit with ulimit -l, or use the plain driver",
        ),
        (Some(libc::EMFILE | libc::ENFILE), _) => {
            ("no file descriptor is left", "raise the limit with ulimit -n")
        }
        _ => ("the kernel refused it", "use the plain driver"),
    };
    io::Error::new(error.kind(), Unavailable { why, error: error.to_string(), remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(number: i32, setting: Option<&str>) -> String {
        explain_with(&io::Error::from_raw_os_error(number), setting).to_string()
    }

    #[test]
    fn each_refusal_says_what_would_help() {
        let text = words(libc::EPERM, Some("2"));
        assert!(text.contains("set kernel.io_uring_disabled to 0"), "{text}");
        let text = words(libc::EPERM, Some("1"));
        assert!(text.contains("kernel.io_uring_group"), "{text}");
        let text = words(libc::EPERM, Some("0"));
        assert!(text.contains("seccomp profile"), "{text}");
        assert_eq!(text, words(libc::EPERM, None), "a setting that cannot be read says nothing");
        assert!(words(libc::ENOSYS, None).contains("Linux 5.19"));
        assert!(words(libc::ENOMEM, Some("0")).contains("ulimit -l"));
        assert!(words(libc::EMFILE, Some("0")).contains("ulimit -n"));
        assert!(words(libc::EIO, Some("0")).contains("use the plain driver"));
    }

    #[test]
    fn the_kind_stays_and_the_cause_can_be_found() {
        let error = explain_with(&io::Error::from_raw_os_error(libc::EPERM), Some("2"));
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Unavailable>());
        assert_eq!(inner.map(|inner| inner.why), Some("this system forbids it"));
    }
}
