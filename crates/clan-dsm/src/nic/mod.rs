//! The adapter: joins what the other modules own into one engine.

pub(crate) mod note;
