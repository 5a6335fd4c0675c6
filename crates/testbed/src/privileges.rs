//! What this process may do, and how a test says that it was skipped.

use std::env;
use std::fs;
use std::io::{self, Write};

use crate::namespace::Namespace;

/// Set to `1` by CI: a test that would skip fails instead, so that nothing is
/// skipped in silence.
pub const NO_SKIP: &str = "LANDFALL_NO_SKIP";

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

/// Says on stderr that `test` was skipped because of `why`.
///
/// # Panics
///
/// When the environment variable [`NO_SKIP`] is `1`: there a skip is a
/// failure.
pub fn skip(test: &str, why: &str) {
    assert!(
        env::var_os(NO_SKIP).is_none_or(|value| value != "1"),
        "{test} would be skipped ({why}), and {NO_SKIP}=1 forbids that"
    );
    // Written directly, as the test harness swallows what `eprintln` prints in
    // a test that passes, and at once, so that tests that run side by side do
    // not cut each other's lines. A closed stderr is no reason to fail.
    let line = format!("SKIPPED: {test} {why}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The path of the function in which it stands, for [`skip`].
#[doc(hidden)]
#[macro_export]
macro_rules! function_path {
    () => {{
        fn here() {}
        fn path_of<T>(_: T) -> &'static str {
            ::std::any::type_name::<T>()
        }
        path_of(here).trim_end_matches("::here")
    }};
}

/// Leaves a test with one clear line unless `why` (an `Option<String>`) is
/// `None`.
#[macro_export]
macro_rules! skip_unless {
    ($why:expr) => {
        if let Some(why) = $why {
            $crate::privileges::skip($crate::function_path!(), &why);
            return ::std::default::Default::default();
        }
    };
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

    #[test]
    fn a_skipped_test_is_named() {
        assert!(function_path!().ends_with("tests::a_skipped_test_is_named"));
    }
}
