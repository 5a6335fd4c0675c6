//! The tests of `landfall-scsi`, in one program.

mod commands;
mod reservations;
mod sessions;
mod strangers;
