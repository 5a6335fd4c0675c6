//! A naive reassembler, and the traffic that the engine is compared with it on: the
//! oracle of property tests and fuzzing. Clear, not fast.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `read`, `naive` | the reference model: frames in, packets out |
//! | `traffic` | flows, their packets, and a naive cutter |
//! | `forge` | frames that were changed, and frames that were made to harm |
//! | `operations`, `generator` | what may happen, decoded from any bytes |

mod forge;
mod generator;
mod naive;
mod operations;
mod read;
mod traffic;

pub use generator::{Step, Steps};
pub use naive::{Expired, Naive};
pub use read::{Name, Piece, Reading, read};
pub use traffic::{Flow, Shape, cut, seal};
