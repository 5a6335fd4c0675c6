//! The tables and figures of the papers, as the model has them.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`exhibit`] | an exhibit: rows with the paper's value beside the model's; [`Constant`]: what the model is made of, with the line it comes from |
//! | [`pipeline`] | units that pass one resource after another: bandwidth and latency |
//! | [`stp`], [`qpip`], [`defrag`], [`clan`] | one paper each |
//! | [`beyond`] | the same firmware with today's constants |
//! | [`report`] | all of it as Markdown: `docs/reproduction.md` |
//!
//! As the paper's value counts only what its words and tables state. Points that
//! are drawn and nowhere stated are not invented: there the model's value stands
//! alone. A value is **given** where the model was fed it as a constant,
//! **calibrated** where constants were fitted to it, and **predicted** otherwise.
//! Where a prediction is off, the remark says what the model lacks.
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
pub mod stp;

pub use exhibit::{Constant, Design, Exhibit, Note, Row, Standing, Value};
