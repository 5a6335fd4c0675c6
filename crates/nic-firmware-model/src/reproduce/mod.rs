//! The tables and figures of the papers, as the model has them.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`exhibit`] | an exhibit: rows with the paper's value beside the model's; [`Constant`]: what the model is made of, with the line it comes from |
//! | [`sensitivity`] | what the assumed constants do to the values |
//! | [`pipeline`] | units that pass one resource after another: bandwidth and latency |
//! | [`stp`], [`qpip`], [`defrag`], [`clan`] | one paper each |
//! | [`beyond`] | the same firmware with today's constants |
//! | [`report`] | all of it as Markdown: `docs/reproduction.md` |
//!
//! As the paper's value counts only what its words and tables state. Points that
//! are drawn and nowhere stated are not invented: there the model's value stands
//! alone. A value is **given** where the model was fed it, **fitted** where constants
//! were fitted to it, **restated** where it follows from one input or says another row
//! again, and **predicted** otherwise. Predictions are scored; what is restated is
//! scored where it is missed. Constants that no source states are **assumed**, and
//! varied. Where a value is off, the remark says what the model lacks.
//!
//! What does not live here: adapters. Where a paper's figures come from firmware that
//! runs frame by frame, that is beside ([`crate::lanai::figures`]); the other hosts,
//! buses and wires are stages of a [`pipeline`].

pub mod beyond;
pub mod clan;
pub mod defrag;
pub mod exhibit;
pub mod pipeline;
pub mod qpip;
pub mod report;
pub mod sensitivity;
pub mod stp;

pub use exhibit::{Constant, Design, Exhibit, Note, Provenance, Row, Value};
