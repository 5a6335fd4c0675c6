//! What cargo knows of the packages of this repository.

use std::env;
use std::process::Command;

use landfall_testkit::skip::skip;
use serde_json::Value;

use crate::Repository;

/// Returns what `cargo metadata` says in the root folder, without asking a network. `None`,
/// with a word on stderr, if cargo cannot say: another user's toolchain or registry may be
/// out of reach.
///
/// # Panics
///
/// If cargo cannot say and `LANDFALL_NO_SKIP=1` is set.
#[must_use]
pub fn cargo_metadata(arguments: &[&str]) -> Option<Value> {
    let answer = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--offline", "--format-version=1"])
        .args(arguments)
        .current_dir(Repository::here().root())
        .output();
    match answer {
        Ok(output) if output.status.success() => {
            Some(serde_json::from_slice(&output.stdout).expect("cargo speaks JSON"))
        }
        Ok(output) => skipped(&String::from_utf8_lossy(&output.stderr)),
        Err(error) => skipped(&error.to_string()),
    }
}

fn skipped(why: &str) -> Option<Value> {
    let why = why.trim().lines().next().unwrap_or("no reason given");
    skip("the list of packages", &format!("is not to be had from cargo: {why}"));
    None
}
