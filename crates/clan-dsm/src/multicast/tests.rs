//! Tests of streams by themselves.
