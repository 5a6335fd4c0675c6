//! `landfall send` and `landfall receive`, as two real processes on loopback.
//!
//! | file | what is tried |
//! | --- | --- |
//! | `ends` | both programs, started, watched, killed |
//! | `trees` | files, folders, links, modes, times; standard input and output; several ways |
//! | `codes` | who does not know the code |
//! | `resume` | either side killed at any moment, and sources that change meanwhile |
//! | `refusals` | what is there already, what cannot be written, full disks |

mod codes;
mod ends;
mod refusals;
mod resume;
mod trees;
