//! Tests of the region table; by invariant where one applies.

mod grants;
