//! `io_uring` variants of the socket drivers: several calls with one entry into
//! the kernel, and payload that leaves without a copy.
//!
//! | part | what it is |
//! | --- | --- |
//! | `ring` | the ring itself: opened, entered, emptied |
//! | `flight` | which units are in the kernel's hands, and until when |
//! | `zero_copy` | whether sending without a copy is worth trying |
//! | `halves` | what both drivers do alike |
//! | `udp` | [`UringUdpDriver`] |
//! | `packet` | [`UringPacketDriver`] |
//! | `burst` | [`UringBurst`] |
//!
//! # What goes through the ring, and when
//!
//! A driver never sleeps with a guess posted. So a receive is submitted when a
//! turn runs and told not to wait: it is complete when the entry into the
//! kernel returns, whether something came or not. The runs of units that were
//! waiting to be sent go in with the same entry, behind the receive. An
//! operation that is alone is a plain system call: the ring would gain nothing,
//! and costs more than the call where nothing has come.
//!
//! A send that copies is complete as well when the entry returns. A send
//! without a copy is not: the kernel reads the heads and the payload until the
//! device is done with them, and says so in a *notification*. Until then the
//! heads stay where they are, the payload stays pinned, and the engine does
//! not hear [`handle_sent`](landfall_placement::Engine::handle_sent).
//!
//! # Threads
//!
//! A driver may be moved to another thread between any two turns, as tokio
//! does. A ring for a single issuer (`IORING_SETUP_SINGLE_ISSUER`, and with it
//! `IORING_SETUP_DEFER_TASKRUN`) would refuse that. They save work where
//! completions come later than the submission, which here only notifications
//! do; so the ring is opened without them.
//!
//! What does not live here: what a header says and what an error number means,
//! which are those of the plain drivers.
//!
//! Why there is no `io_uring` here, in words that help.

mod burst;
mod flight;
mod halves;
mod packet;
mod ring;
mod udp;
mod zero_copy;

use std::{fs, io};

pub use burst::UringBurst;
pub use packet::UringPacketDriver;
pub use udp::{UringUdpConfig, UringUdpDriver};
pub use zero_copy::{ZeroCopy, ZeroCopyUse};

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
fn explain(error: &io::Error) -> io::Error {
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
