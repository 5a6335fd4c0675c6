//! The requester by itself.
