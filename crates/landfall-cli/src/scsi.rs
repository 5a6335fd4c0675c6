//! `landfall scsi`: block devices for initiators of iSCSI and over STP, and an initiator over STP.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use landfall_storage::device::{FileAccess, NamedSource};
use landfall_storage::scsi::command::Initiating;
use landfall_storage::scsi::{PORT, Server, UnitSource, address, read_account};
use landfall_transport::signals::Endings;

use crate::files;
use crate::nbd::listen::{ListenArgs, Service};

#[derive(Debug, Subcommand)]
pub(crate) enum Scsi {
    /// Serve files and memory as logical units, to any initiator of iSCSI
    Serve(Box<Args>),
    #[command(flatten)]
    Initiating(Initiating),
}

/// Options of `landfall scsi serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = landfall_storage::program::SCSI_EXAMPLES)]
pub(crate) struct Args {
    /// The name of the target
    #[arg(long, value_name = "IQN")]
    target: String,
    /// The logical unit of this number: file:PATH, for a file or a block device, or mem:SIZE. May
    /// be given several times
    #[arg(long, value_name = "NUMBER=file:PATH|mem:SIZE", required = true)]
    lun: Vec<UnitSource>,
    /// Nobody comes in without this account: a file with a line `NAME SECRET`, for initiators of
    /// iSCSI with CHAP
    #[arg(long, value_name = "FILE")]
    chap: Option<PathBuf>,
    /// The target proves itself by this account, to those that ask for it
    #[arg(long, value_name = "FILE", requires = "chap")]
    chap_target: Option<PathBuf>,
    #[command(flatten)]
    listen: ListenArgs,
}

impl Scsi {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let args = match self {
            Self::Serve(args) => args,
            Self::Initiating(command) => return files::run_by(|program| command.run(program)),
        };
        // Before any thread is started.
        let endings = Endings::catch().context("cannot wait for signals")?;
        let mut service = Service { protocol: "scsi", usual: Some(PORT), ..Service::default() };
        let builder = Server::builder(args.target.as_str()).read_only(args.listen.read_only);
        let mut builder = builder.clients(args.listen.clients).log(args.listen.log());
        if let Some(path) = &args.chap {
            builder = builder.chap(read_account(path)?);
        }
        if let Some(path) = &args.chap_target {
            builder = builder.chap_target(read_account(path)?);
        }
        for unit in &args.lun {
            let UnitSource { number, source } = unit.clone();
            let named = NamedSource { name: number.to_string(), source };
            let device = service.open(&named, (args.listen.read_only, FileAccess::Threads))?;
            builder = builder.shared_unit(number, device);
        }
        service.server = Some(Box::new(builder.start()?));
        args.listen.serve(&endings, service, |carrier| address(&carrier))
    }
}
