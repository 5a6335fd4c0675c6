//! The programming layer of CLAN.
//!
//! | module | what it proves |
//! | --- | --- |
//! | `sequences` | any sequence of calls gives what a list gives, also when a peer dies |
//! | `wakeups` | nobody sleeps for ever, whatever arrives when |
//! | `partings` | who has taken all may go at once, and that is no failure |
//! | `hostile` | a peer that scribbles spoils its own data only |
//! | `threads` | all of it between threads that really wait |
//! | `shared` | the same over memory that processes share |
//! | `network` | the same over a network |
//! | `lab` | a fabric on which each word arrives on its own |
//! | `suite` | what holds on any fabric |

mod hostile;
mod lab;
mod network;
mod partings;
mod pieces;
mod sequences;
mod shared;
mod suite;
mod support;
mod tasks;
mod threads;
mod wakeups;
