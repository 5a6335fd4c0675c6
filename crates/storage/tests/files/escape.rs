//! Nothing outside of the exported directory is reached.
