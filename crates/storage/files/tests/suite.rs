//! The protocol of files: what is written is read the same, and nothing else is believed.

mod messages;
mod strangers;
