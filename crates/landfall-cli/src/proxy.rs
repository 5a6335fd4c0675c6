//! `landfall proxy`: passes connections on, from this machine's TCP to queue pairs and back.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use landfall::metrics::Metrics;
use landfall::qpip::Adapter;
use landfall_services::listener::{Connector, KernelConnector, Listener, QpConnector};
use landfall_services::proxy::{self, Stats};
use sockets_compat::tokio::QpListener;
use sockets_compat::{Address, QpHost, QpOptions};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::adapter::{self, LinkArgs};
use crate::serve::ledger::Ledger;
use crate::serve::tasks::{self, LimitArgs, RunArgs};

const EXAMPLES: &str = "\
Examples:
  sudo landfall proxy --listen qp://10.9.0.2:80 --to 127.0.0.1:8000
                                           others reach a server of this machine by queue pairs
  sudo landfall proxy --listen 127.0.0.1:8080 --to qp://192.168.1.9:80 --interface eth0 --address 192.168.1.77/24
                                           programs of this machine reach others by queue pairs
  landfall proxy --listen 127.0.0.1:8080 --to qp://10.9.0.2:80 --address 10.9.0.3/24 --tunnel 127.0.0.1:0 --peer 127.0.0.1:8118
                                           without privileges: frames inside of UDP

The end of a direction is passed on as such while the other goes on, a reset as a reset. Where a
receiver does not read, its sender is not read from.

It runs until SIGINT or SIGTERM (or for as long as --seconds says); connections that are there
may take --drain seconds to end.";

/// Options of `landfall proxy`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where connections come in: ADDRESS:PORT of this machine, or of the adapter as
    /// qp://ADDRESS:PORT
    #[arg(long, value_name = "[qp://]ADDRESS:PORT")]
    listen: End,
    /// Where they go to: the other of the two
    #[arg(long, value_name = "[qp://]ADDRESS:PORT")]
    to: End,
    /// The address of the adapter, with the length of its prefix [default: that of --listen
    /// qp://…, with 24 or 64 bits; else 10.9.0.2/24]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    address: Option<String>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// One of the two ends: of the kernel, or of the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Kernel(SocketAddr),
    QueuePair(SocketAddr),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (socket, make): (_, fn(SocketAddr) -> Self) = match text.split_once("://") {
            Some(("qp", socket)) => (socket, Self::QueuePair),
            Some(("tcp", socket)) => (socket, Self::Kernel),
            None => (text, Self::Kernel),
            Some(_) => return Err(format!("`{text}`: 127.0.0.1:80 or qp://10.9.0.2:80 would do")),
        };
        let wrong = |_| format!("`{socket}` is no address with a port, as 127.0.0.1:80 is");
        socket.parse().map(make).map_err(wrong)
    }
}

impl Args {
    fn address(&self) -> Option<String> {
        let derived = match self.listen {
            End::QueuePair(at) => Some(adapter::listening_at(at)),
            End::Kernel(_) => None,
        };
        self.address.clone().or(derived)
    }
}

/// Passes on until it is told to end.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.clone();
    args.run.supervise("proxy", move |ledger| pass_on(&options, ledger))
}

fn pass_on(args: &Args, ledger: &Arc<Ledger>) -> Result<()> {
    let is_of_kernel = |end| matches!(end, End::Kernel(_));
    if is_of_kernel(args.listen) == is_of_kernel(args.to) {
        bail!("one of --listen and --to is an address of this machine, the other one qp://…");
    }
    let (adapter, _) = args.link.open(args.address().as_deref())?;
    let host = QpHost::new(adapter.clone(), QpOptions::default())?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    match (args.listen, args.to) {
        (End::QueuePair(at), End::Kernel(to) | End::QueuePair(to)) => {
            let listener = host.listen(Address::Qp(at));
            let listener = listener.with_context(|| format!("cannot listen at qp://{at}"))?;
            let listener = QpListener::from_std(listener)?;
            ready(ledger, &adapter, &format!("qp://{at}, to {to}"))?;
            serve(args, &runtime, &adapter, ledger, listener, KernelConnector(to))
        }
        (End::Kernel(at), End::QueuePair(to) | End::Kernel(to)) => {
            let listener = runtime.block_on(TcpListener::bind(at));
            let listener = listener.with_context(|| format!("cannot listen at {at}"))?;
            ready(ledger, &adapter, &format!("{}, to qp://{to}", listener.local_addr()?))?;
            serve(args, &runtime, &adapter, ledger, listener, QpConnector(host, to))
        }
    }
}

fn ready(ledger: &Ledger, adapter: &Adapter, ends: &str) -> Result<()> {
    let link = adapter.links().into_iter().next().context("an adapter has a link")?;
    let tunnel = link.tunnel_address.map(|at| format!(" at {at}")).unwrap_or_default();
    ledger.ready(format_args!("proxy on {ends}, by {}{tunnel}", link.what))
}

fn serve<L: Listener, C: Connector>(
    args: &Args,
    runtime: &Runtime,
    adapter: &Adapter,
    ledger: &Arc<Ledger>,
    listener: L,
    connector: C,
) -> Result<()> {
    let limits = args.limits.limits();
    let (stats, observer) = (Arc::new(Stats::default()), Arc::clone(ledger));
    let counted = Arc::clone(&stats);
    let serve = |stop| proxy::run(listener, connector, limits, observer, counted, stop);
    tasks::run(runtime, adapter, ledger, serve, |metrics| measure(&stats, metrics))
}

fn measure(stats: &Stats, metrics: &mut Metrics) {
    let counters = [
        ("unreachable", "Connections whose other end did not answer", stats.unreachable()),
        ("resets", "Resets that were passed on", stats.resets()),
        ("idle", "Connections on which no byte moved for too long", stats.idle()),
    ];
    for (name, help, value) in counters {
        metrics.counter(&format!("landfall_proxy_{name}"), help, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_of_the_kernel_or_of_the_adapter() {
        let socket = "10.9.0.2:80".parse().unwrap();
        assert_eq!("10.9.0.2:80".parse(), Ok(End::Kernel(socket)));
        assert_eq!("tcp://10.9.0.2:80".parse(), Ok(End::Kernel(socket)));
        assert_eq!("qp://10.9.0.2:80".parse(), Ok(End::QueuePair(socket)));
        for wrong in ["", "10.9.0.2", "qp://x:80", "stp://10.9.0.2:80"] {
            assert!(wrong.parse::<End>().is_err(), "{wrong}");
        }
    }
}
