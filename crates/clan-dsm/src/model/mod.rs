//! Naive models of the adapter, and what it is compared with them on: the oracle
//! of property tests and fuzzing. Clear, not fast.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `naive` | a host: arrays of bytes, a list of tripwires, one word at a time |
//! | `wires` | tripwires beside naive ones: changed alike and compared |
//! | `choices` | decisions, decoded from any bytes |
//! | `native` | hosts around switches: bursts are split, joined and interleaved |
//! | `pair` | two adapters over a network that loses, doubles, mixes up and damages |

mod choices;
pub mod naive;
pub mod native;
pub mod pair;
mod wires;
