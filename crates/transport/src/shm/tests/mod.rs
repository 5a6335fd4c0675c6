//! Tests of shared memory between processes, within one process where that shows it;
//! processes that are killed are in `tests/shm_kill.rs`.

// Miri has neither mappings nor eventfds.
#[cfg(not(miri))]
mod corpus;
#[cfg(not(miri))]
mod rendezvous;
mod rings;
#[cfg(not(miri))]
mod scribbler;
#[cfg(not(miri))]
mod wake;
#[cfg(not(miri))]
mod watched;
