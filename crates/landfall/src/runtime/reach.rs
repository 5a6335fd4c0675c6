//! [`Reach`]: whether what is sent leaves the host.

/// How far what is sent over a path gets.
#[cfg_attr(
    not(any(feature = "clan", feature = "stp")),
    allow(dead_code, reason = "frames of an interface leave the host")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Not out of the process.
    Process,
    /// Not out of the host.
    Host,
    /// Wherever it is sent.
    Network,
}
