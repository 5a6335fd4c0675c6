//! `landfall nbd`: network block devices, served and used.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the commands |
//! | `serve` | devices for any client of NBD |
//! | `listen` | where clients come in, also those of `landfall scsi` |
//! | `connect` | how a client gets to an export, by whatever carries bytes |
//! | `copy` | everything of one to another |
//! | `info` | what a server says of its exports |
//! | `mount` | a device as a file of this host |
//! | `bench` | how fast it is |

mod bench;
mod connect;
mod copy;
mod info;
pub(crate) mod listen;
mod mount;
mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Nbd {
    /// Serve files and memory as block devices, to any client of NBD
    Serve(serve::Args),
    /// Copy a whole device: between exports and files
    Copy(copy::Args),
    /// What a server says of its exports
    Info(info::Args),
    /// A device as a file of this host, by FUSE
    Mount(mount::Args),
    /// Measure reads and writes of an export
    Bench(bench::Args),
}

impl Nbd {
    /// It takes down itself what it has set up.
    pub(crate) const fn waits_for_signals(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Mount(_))
    }

    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Serve(args) => serve::run(args),
            Self::Copy(args) => copy::run(args),
            Self::Info(args) => info::run(args),
            Self::Mount(args) => mount::run(args),
            Self::Bench(args) => bench::run(args),
        }
    }
}
