//! All rules of this repository, as one program.

mod adapter;
mod documents;
mod graph;
mod packages;
mod runtime;
mod source;
