//! [`read_account`]: names and secrets of CHAP, which are in files: command lines are seen by all.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Account;

/// A file that is longer has something else in it.
const LONGEST: u64 = 1024;

/// Reads an account of CHAP from a file with one line, `NAME SECRET`, that nobody else can read.
///
/// # Errors
/// It cannot be read, others can read it, or it has no such line.
pub fn read_account(path: &Path) -> io::Result<Account> {
    let named = |kind, what: String| io::Error::new(kind, format!("{}: {what}", path.display()));
    let failed = |error: io::Error| named(error.kind(), error.to_string());
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        let what = "others can use this file: chmod 600 would do".to_owned();
        return Err(named(io::ErrorKind::PermissionDenied, what));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
    let (name, secret) = text.trim_end_matches(['\r', '\n']).split_once(' ').unwrap_or_default();
    let is_line = !secret.contains(['\n', '\r']);
    let account = Account::new(name, secret).filter(|_| is_line);
    account.ok_or_else(|| {
        let least = Account::SHORTEST_SECRET;
        let what = format!("no line `NAME SECRET` with a secret of {least} to 255 bytes");
        named(io::ErrorKind::InvalidData, what)
    })
}
