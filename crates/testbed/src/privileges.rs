//! What this process may do, and how a test says that it was skipped.

use std::fs;

use crate::namespace::Namespace;

pub use landfall_testkit::skip::{NO_SKIP, skip};

/// The privileges that measuring needs, by their numbers in
/// `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// `CAP_NET_ADMIN`: interfaces, addresses, offloads, forced buffer sizes.
    NetAdmin = 12,
    /// `CAP_NET_RAW`: packet sockets.
    NetRaw = 13,
    /// `CAP_SYS_ADMIN`: making and entering namespaces.
    SysAdmin = 21,
}

/// Whether the calling thread has `privilege` in effect.
#[must_use]
pub fn has(privilege: Privilege) -> bool {
    fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| effective_capabilities(&status))
        .is_some_and(|set| set >> (privilege as u32) & 1 == 1)
}

/// Whether the effective user is root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: `geteuid` takes nothing, touches no memory and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Why network namespaces cannot be made here; `None` when they can. Really
/// makes one, as containers refuse for reasons that no capability shows.
#[must_use]
pub fn why_no_namespaces() -> Option<String> {
    match Namespace::new() {
        Ok(_) => None,
        Err(error) if error.is_permission() => Some("needs root to make network namespaces".into()),
        Err(error) => Some(error.to_string()),
    }
}

/// Leaves a test with one clear line where network namespaces cannot be made.
#[macro_export]
macro_rules! require_namespaces {
    () => {
        $crate::skip_unless!($crate::privileges::why_no_namespaces())
    };
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        let status = "Name:\tx\nCapPrm:\t0\nCapEff:\t0000000000003000\n";
        assert_eq!(effective_capabilities(status), Some(0x3000));
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }
}
