//! `landfall nbd serve`: devices for any client of NBD.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use landfall_storage::device::{FileAccess, NamedSource};
use landfall_storage::server::{Offer, Server};
use landfall_storage::uri::{Carrier, ExportUri, PORT};
use landfall_transport::signals::Endings;

use super::listen::{ListenArgs, Service};
use crate::serve::tasks::TlsArgs;

/// Options of `landfall nbd serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = landfall_storage::program::NBD_EXAMPLES)]
pub(crate) struct Args {
    /// Offer this under that name: file:PATH, for a file or a block device, or mem:SIZE. May
    /// be given several times
    #[arg(long, value_name = "NAME=file:PATH|mem:SIZE", required = true)]
    export: Vec<NamedSource>,
    /// How reads of files wait for the medium: threads, or io_uring (threads where the kernel does
    /// not allow it). The figures are in docs/storage.md
    #[arg(long, value_name = "threads|io_uring", default_value = FileAccess::default().name())]
    access: FileAccess,
    #[command(flatten)]
    listen: ListenArgs,
    /// Let clients of this host come in at this path
    #[arg(long, value_name = "PATH")]
    unix: Vec<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Nobody comes in without TLS
    #[arg(long)]
    tls_required: bool,
}

/// Serves until it is told to end.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let usual = args.unix.is_empty().then_some(PORT);
    let mut service = Service { protocol: "nbd", usual, ..Service::default() };
    let mut builder = Server::builder().clients(args.listen.clients).log(args.listen.log());
    for export in &args.export {
        let device = service.open(export, (args.listen.read_only, args.access))?;
        let offer = Offer::shared(export.name.as_str(), device).read_only(args.listen.read_only);
        builder = builder.offer(offer.description(export.source.to_string()));
    }
    match args.tls.config(args.listen.names().chain(["localhost".to_owned()]))? {
        Some(config) => builder = builder.tls(config, args.tls_required),
        None if args.tls_required => bail!("--tls-required needs --tls-cert or --tls-self-signed"),
        None => {}
    }
    let server = builder.start()?;
    let address =
        |carrier| ExportUri { carrier, name: String::new(), tls: args.tls_required }.to_string();
    for path in &args.unix {
        let told = path.display();
        server.listen_unix(path).with_context(|| format!("cannot listen at {told}"))?;
        service.listening.push(address(Carrier::Unix { path: path.clone() }));
    }
    service.server = Some(Box::new(server));
    args.listen.serve(&endings, service, address)
}
