//! All rules of this repository, as one program.

mod adapter;
mod assumptions;
mod documents;
mod engine;
mod graph;
mod headers;
mod names;
mod packages;
mod runtime;
mod source;
mod tuples;
