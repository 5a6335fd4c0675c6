//! `landfall send` and `landfall receive`, as two real processes on loopback.
//!
//! | file | what is tried |
//! | --- | --- |
//! | `ends` | both programs, started, watched, killed |
//! | `trees` | files, folders, links, modes, times; standard input and output; several ways |
//! | `codes` | from where the code comes, and which are taken |
//! | `strangers` | who does not know the code |
//! | `resume` | either side killed at any moment, and sources that change meanwhile |
//! | `folder` | what names, permissions and holes do to the receiver's folder |
//! | `middle`, `meddling`, `listening` | who changes bytes on the way, and who records them |
//! | `refusals` | what is there already, what cannot be written, full disks |

mod codes;
mod ends;
mod folder;
mod listening;
mod meddling;
mod middle;
mod refusals;
mod resume;
mod strangers;
mod trees;
