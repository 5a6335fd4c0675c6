//! `landfall serve http`: the files of a directory, over queue pairs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use landfall::metrics::Metrics;
use landfall_services::http::{self, Site, Stats};
use sockets_compat::tokio::QpListener;
use sockets_compat::{Address, QpHost, QpOptions};
use tokio::runtime::Builder;

use super::ledger::Ledger;
use super::tasks::{self, LimitArgs, RunArgs, TlsArgs};
use crate::adapter::LinkArgs;

const EXAMPLES: &str = "\
Examples:
  sudo landfall serve http --dir public --listing
                                a cable to this machine's kernel; then: curl http://10.9.0.2/
  sudo landfall serve http --dir public --interface eth0 --address 192.168.1.77/24
                                a station of its own, for others on that network
  sudo landfall serve http --dir public --tls-cert cert.pem --tls-key key.pem
  landfall serve http --dir public --tunnel 127.0.0.1:8118
                                without privileges; a browser gets there by `landfall proxy`

Everything below the directory is served, hidden files too; symbolic links that lead out of it
are not followed.

It runs until SIGINT or SIGTERM (or for as long as --seconds says): responses that have begun
are ended, for as long as --drain says.";

/// Options of `landfall serve http`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Serve what is below this directory
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// List directories that have no index.html
    #[arg(long)]
    listing: bool,
    #[command(flatten)]
    tls: TlsArgs,
    /// The address that clients talk to, with the length of its prefix [default: 10.9.0.2/24 on a
    /// TAP interface or in a tunnel]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    address: Option<String>,
    /// The port [default: 80, or 443 with TLS]
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.clone();
    args.run.supervise("serve", move |ledger| serve(&options, ledger))
}

/// A request is short, a response is not; and there may be a thousand connections.
fn socket_options() -> QpOptions {
    let mut options = QpOptions::default();
    options.receive_buffer = 32 << 10;
    options.backlog = 64;
    options
}

fn serve(args: &Args, ledger: &Arc<Ledger>) -> Result<()> {
    let opened = Site::open(&args.dir);
    let site = opened.with_context(|| format!("cannot serve {}", args.dir.display()))?;
    let site = site.listing(args.listing);
    let (adapter, ip) = args.link.open(args.address.as_deref())?;
    let tls = args.tls.config([ip.to_string()])?;
    let (scheme, usual_port) = if tls.is_some() { ("https", 443) } else { ("http", 80) };
    let local = SocketAddr::new(ip, args.port.unwrap_or(usual_port));
    let host = QpHost::new(adapter.clone(), socket_options())?;
    let listener = host.listen(Address::Qp(local));
    let listener = listener.with_context(|| format!("cannot serve at {local}"))?;
    let listener = QpListener::from_std(listener)?;
    let link = adapter.links().into_iter().next().context("an adapter has a link")?;
    // Sockets of a kernel do not reach into a tunnel.
    let client = link.tunnel_address.map_or_else(
        || format!("; try: curl {scheme}://{local}/"),
        |at| format!(" at {at}; for queue pairs with a tunnel to there"),
    );
    let what = args.dir.display();
    ledger.ready(format_args!("{scheme} on {local}, {what}, by {}{client}", link.what))?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let (stats, limits) = (Arc::new(Stats::default()), args.limits.limits());
    let (counted, observer) = (Arc::clone(&stats), Arc::clone(ledger));
    let serve = |stop| http::run(listener, site, tls, limits, observer, counted, stop);
    tasks::run(&runtime, &adapter, ledger, serve, |metrics| measure(&stats, metrics))
}

fn measure(stats: &Stats, metrics: &mut Metrics) {
    for (count, class) in stats.responses().into_iter().zip(["2xx", "3xx", "4xx", "5xx"]) {
        let labels = [("status", class)];
        metrics.counter("landfall_serve_responses", "Responses", &labels, count);
    }
    let counters = [
        ("bad_requests", "Connections that ended with no request of HTTP", stats.bad_requests()),
        ("timeouts", "Connections given up for slow clients", stats.timeouts()),
        ("failed_handshakes", "Connections whose TLS failed", stats.failed_handshakes()),
    ];
    for (name, help, value) in counters {
        metrics.counter(&format!("landfall_serve_{name}"), help, &[], value);
    }
}
