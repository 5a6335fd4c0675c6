//! Vectors that were worked out by hand, and properties.
