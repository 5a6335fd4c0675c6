//! Where clients of block devices come in, and for how long: of `landfall nbd serve` and
//! `landfall scsi serve`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::metrics::Metrics;
use landfall::stp::{Endpoint, Transport};
use landfall_storage::device::{BlockDevice, FileAccess, NamedSource, Opened};
use landfall_storage::server::{BlockServer, Hosts, ListenAddress, listen_at};
use landfall_storage::stream::queue_pair_options;
use landfall_storage::uri::Carrier;
use landfall_transport::signals::Endings;
use serde::Serialize;
use serde_json::json;
use sockets_compat::{QpHost, StpHost, StpOptions};

use crate::adapter::{self, LinkArgs};
use crate::endpoint::{self, SecurityArgs};
use crate::{leaving, style};
use landfall_lab::exporter::{Exporter, MetricsAddress};

/// Options of every server of block devices.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListenArgs {
    /// Nobody writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let clients come in here: at ADDRESS:PORT over the kernel's TCP, at qp://ADDRESS:PORT over
    /// queue pairs, at stp://ADDRESS:PORT[/udp/PORT] over STP. May be given several times [default:
    /// the usual port at 127.0.0.1, if no other way is given]
    #[arg(long, value_name = "[qp://|stp://]ADDRESS:PORT")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Serve this many clients at a time
    #[arg(long, default_value_t = 1024)]
    pub(crate) clients: usize,
    /// The address of the adapter, with the length of its prefix [default: that of --listen
    /// qp://…, with 24 or 64 bits]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    address: Option<String>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    security: SecurityArgs,
    /// Tell Prometheus what is counted: HTTP at this address (ADDRESS:PORT or unix:PATH), /metrics
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<MetricsAddress>,
    /// End by itself after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// A line for each client
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// One JSON object when it is ready, and one at the end; what is said meanwhile goes to
    /// stderr
    #[arg(long)]
    json: bool,
}

/// How often it looks whether it shall end.
const TICK: Duration = Duration::from_millis(200);

#[derive(Debug, Serialize)]
pub(crate) struct Offered {
    name: String,
    size: u64,
    source: String,
    access: &'static str,
}

/// What is served, in the words of its protocol.
#[derive(Default)]
pub(crate) struct Service {
    pub(crate) server: Option<Box<dyn BlockServer>>,
    /// `nbd`, for one.
    pub(crate) protocol: &'static str,
    /// Where clients come in if nothing else is said.
    pub(crate) usual: Option<u16>,
    pub(crate) offered: Vec<Offered>,
    /// Where clients come in.
    pub(crate) listening: Vec<String>,
}

impl Service {
    /// Opens a device that is offered.
    pub(crate) fn open(
        &mut self,
        named: &NamedSource,
        (read_only, access): (bool, FileAccess),
    ) -> Result<Arc<dyn BlockDevice>> {
        let Opened { device, access, refusal } = named.source.open(read_only, access)?;
        if let Some(why) = refusal {
            eprintln!("device `{}` is read by {access}: {why}", named.name);
        }
        let (name, size, source) = (named.name.clone(), device.size(), named.source.to_string());
        self.offered.push(Offered { name, size, source, access });
        Ok(device)
    }
}

/// What carries clients.
struct Carriers<'a> {
    args: &'a ListenArgs,
    adapter: Option<QpHost>,
    endpoints: Vec<Endpoint>,
}

impl Hosts for Carriers<'_> {
    type Error = anyhow::Error;

    fn queue_pairs(&mut self, at: SocketAddr) -> Result<QpHost> {
        if let Some(host) = &self.adapter {
            return Ok(host.clone());
        }
        let address = self.args.address.clone().unwrap_or_else(|| adapter::listening_at(at));
        let (adapter, _) = self.args.link.open(Some(&address))?;
        Ok(self.adapter.insert(QpHost::new(adapter, queue_pair_options())?).clone())
    }

    fn stp(&mut self, at: SocketAddr) -> Result<StpHost> {
        let endpoint = self.args.security.bind(Transport::udp(at))?;
        self.endpoints.push(endpoint.clone());
        Ok(StpHost::new(endpoint, StpOptions::default()))
    }
}

impl Carriers<'_> {
    fn measure(&self, metrics: &mut Metrics) {
        if let Some(host) = &self.adapter {
            metrics.add(&[], &host.adapter().stats());
            metrics.add(&[], &host.adapter().refusals());
        }
        for endpoint in &self.endpoints {
            metrics.add(&[], &endpoint.stats());
        }
    }
}

impl ListenArgs {
    /// The addresses that it listens at, as names of a certificate.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.listen.iter().map(|listen| listen.ip().to_string())
    }

    /// Where a log goes.
    pub(crate) fn log(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let verbose = self.verbose;
        move |line| {
            if verbose {
                eprintln!("{}", crate::printable::printable_lines(line));
            }
        }
    }

    /// Serves until it is told to end. Signals were caught before any thread was started.
    pub(crate) fn serve(
        &self,
        endings: &Endings,
        mut service: Service,
        address: impl Fn(Carrier) -> String,
    ) -> Result<ExitCode> {
        let started = Instant::now();
        let exporter = self.metrics.clone().map(Exporter::listen).transpose()?;
        let server = service.server.take().context("a service has a server")?;
        let mut carriers = Carriers { args: self, adapter: None, endpoints: Vec::new() };
        let usual = service.usual.filter(|_| self.listen.is_empty());
        let usual = usual.map(|port| ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
        for (at, listen) in usual.iter().chain(&self.listen).enumerate() {
            let carrier = listen_at(&*server, listen, &mut carriers);
            let carrier = carrier.with_context(|| format!("cannot listen at {listen}"))?;
            service.listening.insert(at, address(carrier));
        }
        if carriers.adapter.is_none()
            && let Some(option) = self.link.first_given()
        {
            bail!("{option} means nothing here: leave it out, or add --listen qp://ADDRESS:PORT");
        }
        self.announce(&service, &carriers, exporter.as_ref())?;
        let until = self.seconds.map(|seconds| started + Duration::from_secs(seconds));
        let ended = loop {
            if endings.wait(TICK)? {
                leaving::end_at_next_signal(endings)?;
                break "a signal";
            }
            if let Some(exporter) = &exporter {
                exporter.answer(|metrics| {
                    measure(&*server, service.protocol, metrics);
                    carriers.measure(metrics);
                });
            }
            let adapter = carriers.adapter.iter().map(QpHost::adapter);
            if let Some(why) = adapter.into_iter().find_map(adapter::broken) {
                bail!("the link broke: {why}");
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break "the time is over";
            }
        };
        let clients = server.streams().served();
        // What has begun is ended.
        drop(server);
        carriers.adapter.iter().map(QpHost::adapter).for_each(adapter::see_off);
        carriers.endpoints.iter().for_each(endpoint::see_off);
        let seconds = started.elapsed().as_secs_f64();
        if self.json {
            style::print_json(&json!({ "clients": clients, "seconds": seconds, "ended": ended }))?;
        } else {
            style::print(&format!("ended after {seconds:.1} s: {ended}; {clients} clients\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn announce(
        &self,
        Service { offered, listening, .. }: &Service,
        carriers: &Carriers<'_>,
        exporter: Option<&Exporter>,
    ) -> Result<()> {
        if let Some(exporter) = exporter {
            eprintln!("{}", exporter.describe());
        }
        let mut links = carriers.adapter.iter().flat_map(|host| host.adapter().links());
        // Where other queue pairs send frames to, if that is a tunnel.
        let tunnel = links.find_map(|link| link.tunnel_address);
        // What the endpoint of STP proves itself by.
        let key = carriers.endpoints.iter().find_map(Endpoint::fingerprint);
        let key = key.map(|key| key.to_string());
        if self.json {
            // In one line: anyone who waits for it reads lines.
            let ready = json!({
                "exports": offered, "listening": listening, "tunnel": tunnel, "key": key,
            });
            return Ok(style::print(&format!("{ready}\n"))?);
        }
        let mut text = String::new();
        for Offered { name, size, source, access } in offered {
            let size = style::bytes(*size);
            let way = if source == access { "" } else { &format!(", read by {access}") };
            text += &format!("device `{name}`: {size}, {source}{way}\n");
        }
        for address in listening {
            text += &format!("serving at {address}\n");
        }
        if let Some(tunnel) = tunnel {
            text += &format!("queue pairs by a tunnel at {tunnel}\n");
        }
        if let Some(key) = key {
            text += &format!("key of STP {key}\n");
        }
        Ok(style::print(&text)?)
    }
}

fn measure(server: &dyn BlockServer, protocol: &str, metrics: &mut Metrics) {
    let (name, here) = (format!("landfall_{protocol}_clients"), server.streams().clients());
    metrics.gauge(&name, "Clients that are here", &[], here as u64);
    let help = "Clients that have been here, the present ones among them";
    metrics.counter(&name, help, &[], server.streams().served());
    metrics.counters(protocol, &[], server.stats().counters());
}
