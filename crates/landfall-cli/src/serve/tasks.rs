//! What servers have in common that are made of tasks: their bounds, and the thread that looks
//! after them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::metrics::Metrics;
use landfall::qpip::Adapter;
use landfall_services::server::{Limits, Observer, Stop, stopper};
use landfall_services::tls;
use landfall_storage::rustls::ServerConfig;
use landfall_transport::signals::Endings;
use serde::Serialize;

use super::ledger::{Counts, Ledger};
use super::{TICK, supervise};
use crate::{adapter, style};
use landfall_lab::exporter::{Exporter, MetricsAddress};

/// The bounds of a server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Serve this many connections at a time; others wait
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Serve this many connections of one source; those beyond are reset
    #[arg(long, value_name = "COUNT", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    per_source: u16,
    /// Give a connection up on which no byte moves for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    /// Give a client up whose request is not here, or a server that is not connected to, after
    /// this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// After a signal connections may take this long to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u32,
}

impl LimitArgs {
    pub(crate) fn limits(&self) -> Limits {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Limits {
            connections: self.clients.into(),
            per_source: self.per_source.into(),
            idle: seconds(self.idle),
            head: seconds(self.patience),
            drain: seconds(self.drain),
            ..Limits::default()
        }
    }
}

/// TLS of a server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TlsArgs {
    /// TLS: a PEM file of the certificate, and of those that lead to its root
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// TLS with a certificate that is made at start and that nobody vouches for
    #[arg(long, conflicts_with = "tls_cert")]
    tls_self_signed: bool,
}

impl TlsArgs {
    /// What a server of these names and addresses needs for TLS, if it shall have it.
    pub(crate) fn config(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<Option<Arc<ServerConfig>>> {
        Ok(match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(tls::from_files(certificate, key)?),
            _ if self.tls_self_signed => Some(tls::self_signed(names)?),
            _ => None,
        })
    }
}

/// How long a server runs, and what is told of it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// End by itself after this many seconds
    #[arg(long)]
    pub(super) seconds: Option<u64>,
    /// Tell Prometheus what is counted: HTTP at this address (ADDRESS:PORT or unix:PATH), /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<MetricsAddress>,
    /// A line for each connection
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// One JSON object at the end; what is said meanwhile goes to stderr
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Serialize)]
struct Summary {
    seconds: f64,
    ended: &'static str,
    #[serde(flatten)]
    counts: Counts,
}

impl RunArgs {
    /// Runs a server in a thread of its own until it is told to end, and says what it did. Its
    /// metrics have this prefix.
    pub(crate) fn supervise(
        &self,
        prefix: &'static str,
        serve: impl FnOnce(&Arc<Ledger>) -> Result<()> + Send + 'static,
    ) -> Result<ExitCode> {
        // Before any thread is started.
        let endings = Endings::catch().context("cannot wait for signals")?;
        let started = Instant::now();
        let exporter = self.metrics.clone().map(Exporter::listen).transpose()?;
        let ledger = Ledger::new(self.verbose, self.json, false).named(prefix);
        let ledger = Arc::new(ledger.exporting(exporter));
        let serving = Arc::clone(&ledger);
        let ended = supervise(&endings, &ledger, self.seconds, move || serve(&serving))?;
        let (seconds, counts) = (started.elapsed().as_secs_f64(), ledger.counts());
        if self.json {
            style::print_json(&Summary { seconds, ended, counts })?;
            return Ok(ExitCode::SUCCESS);
        }
        let Counts { clients, most_at_once, turned_away, received_bytes, sent_bytes, .. } = counts;
        style::print(&format!(
            "ended after {seconds:.1} s: {ended}; {clients} connections, {most_at_once} at a time \
             at most, {turned_away} turned away; {} came, {} went\n",
            style::bytes(received_bytes),
            style::bytes(sent_bytes),
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Observer for Ledger {
    // A line that cannot be printed ends no connection.
    fn came(&self, peer: SocketAddr) {
        let _ = self.client_came(peer);
    }

    fn gone(&self, peer: SocketAddr, how: &str) {
        let _ = self.client_gone(peer, how);
    }

    fn turned_away(&self, peer: SocketAddr) {
        let _ = self.client_turned_away(peer);
    }

    fn moved(&self, received: u64, sent: u64) {
        Self::moved(self, received, sent);
    }
}

/// Runs a server until the ledger says that it is over, then drains it. It says whether all
/// connections ended in time.
pub(crate) fn run<F>(
    runtime: &tokio::runtime::Runtime,
    adapter: &Adapter,
    ledger: &Ledger,
    serve: impl FnOnce(Stop) -> F,
    measure: impl Fn(&mut Metrics),
) -> Result<()>
where
    F: Future<Output = bool> + Send + 'static,
{
    let (stopper, stop) = stopper();
    let serving = runtime.spawn(serve(stop));
    while !ledger.is_over() && !serving.is_finished() {
        ledger.answer_scrape(|metrics| {
            measure(metrics);
            metrics.add(&[], &adapter.stats());
            metrics.add(&[], &adapter.refusals());
        });
        if let Some(why) = adapter::broken(adapter) {
            bail!("the link broke: {why}");
        }
        thread::sleep(TICK);
    }
    stopper.stop();
    if !runtime.block_on(serving)? {
        ledger.say("the time to drain is over: some connections were cut off\n")?;
    }
    adapter::see_off(adapter);
    Ok(())
}
