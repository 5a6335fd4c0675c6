//! How a test says that it was skipped.

use std::env;
use std::io::{self, Write as _};

/// Set to `1` by CI: a test that would skip fails instead, so that nothing is skipped in
/// silence.
pub const NO_SKIP: &str = "LANDFALL_NO_SKIP";

/// Says on stderr that `test` was skipped because of `why`.
///
/// # Panics
///
/// When the environment variable [`NO_SKIP`] is `1`: there a skip is a failure.
pub fn skip(test: &str, why: &str) {
    assert!(
        env::var_os(NO_SKIP).is_none_or(|value| value != "1"),
        "{test} would be skipped ({why}), and {NO_SKIP}=1 forbids that"
    );
    say("SKIPPED", test, why);
}

/// Says on stderr that `test` needs what this kernel was built without: nobody can install it,
/// so CI lists such tests and goes on.
pub fn leave_out(test: &str, why: &str) {
    say("LEFT OUT", test, why);
}

fn say(what: &str, test: &str, why: &str) {
    // Written directly, as the test harness swallows what `eprintln` prints in
    // a test that passes, and at once, so that tests that run side by side do
    // not cut each other's lines. A closed stderr is no reason to fail.
    let line = format!("{what}: {test} {why}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The path of the function in which it stands, for [`skip()`].
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

/// Leaves a test with one clear line unless `why` (an `Option<String>`) is `None`.
#[macro_export]
macro_rules! skip_unless {
    ($why:expr) => {
        if let Some(why) = $why {
            $crate::skip::skip($crate::function_path!(), &why);
            return ::std::default::Default::default();
        }
    };
}

/// What a test needs, out of a `Result` whose error says why it is not here: then the test, or
/// the one that is named, is left with one clear line.
///
/// ```
/// # use landfall_testkit::or_skip;
/// fn port_of(server: Result<u16, String>) -> Option<u16> {
///     Some(or_skip!(server))
/// }
/// assert_eq!(port_of(Ok(80)), Some(80));
/// # if std::env::var_os("LANDFALL_NO_SKIP").is_none() {
/// assert_eq!(port_of(Err("no server is installed".to_owned())), None);
/// # }
/// ```
#[macro_export]
macro_rules! or_skip {
    ($needed:expr) => {
        $crate::or_skip!($needed, $crate::function_path!())
    };
    ($needed:expr, $test:expr) => {
        match $needed {
            Ok(needed) => needed,
            Err(why) => {
                $crate::skip::skip($test, why.as_ref());
                return ::std::default::Default::default();
            }
        }
    };
}

/// Like [`skip_unless!`] where `why` is what this kernel was built without.
#[macro_export]
macro_rules! leave_out_unless {
    ($why:expr) => {
        if let Some(why) = $why {
            $crate::skip::leave_out($crate::function_path!(), &why);
            return ::std::default::Default::default();
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_skipped_test_is_named() {
        assert!(function_path!().ends_with("tests::a_skipped_test_is_named"));
    }
}
