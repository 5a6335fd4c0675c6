//! Naive models of the adapter, and what it is compared with them on: the oracle
//! of property tests and fuzzing. Clear, not fast.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `naive` | a host: arrays of bytes, a list of tripwires, one word at a time; tripwires beside naive ones, changed alike and compared |
//! | `native` | hosts around switches: bursts are split, joined and interleaved |
//! | `pair` | two adapters over a network that loses, doubles, mixes up and damages |

pub mod naive;
pub mod native;
pub mod pair;
