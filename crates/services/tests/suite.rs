//! The servers, over a kernel's TCP and over queue pairs.
