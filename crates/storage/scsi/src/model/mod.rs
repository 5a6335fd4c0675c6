//! What must hold for any bytes: for property tests, fuzz targets and the replay of their
//! corpora.
//!
//! | file | what it is |
//! | --- | --- |
//! | `disk` | a medium, and a naive disk that does what commands say |
//! | `commands` | initiators with commands of their own, and raw ones: [`commands()`] |
//! | `sessions` | iSCSI, with an initiator that keeps the rules or a stranger: [`sessions()`] |

mod commands;
mod disk;
mod sessions;

pub use commands::commands;
pub use disk::{Medium, Naive};
pub use sessions::sessions;
