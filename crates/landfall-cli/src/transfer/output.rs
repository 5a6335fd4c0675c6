//! Standard output, as the place of one file.

use std::io::{self, Write};

use super::Presence;
use super::folder::Denied;
use super::wire::MOST_PIECE;

/// Writes a hole, as long as somebody is there who wants it.
pub(super) fn print_zeros(len: u64, presence: &Presence) -> Result<(), Denied> {
    let zeros = vec![0; MOST_PIECE.min(usize::try_from(len).unwrap_or(MOST_PIECE))];
    let mut left = len;
    while left > 0 {
        presence.check().map_err(|gone| Denied::Fatal(gone.to_string()))?;
        let part = left.min(zeros.len() as u64);
        print(&zeros[..part as usize])?;
        left -= part;
    }
    Ok(())
}

/// Writes contents.
pub(super) fn print(bytes: &[u8]) -> Result<(), Denied> {
    io::stdout().lock().write_all(bytes).map_err(|error| output_denied(&error))
}

/// All that was written is out.
pub(super) fn flush_output() -> Result<(), Denied> {
    io::stdout().lock().flush().map_err(|error| output_denied(&error))
}

fn output_denied(error: &io::Error) -> Denied {
    Denied::Fatal(format!("the receiver's standard output: {error}"))
}
