//! The commands `landfall files serve` and `landfall files mount`: their options, and what they do
//! until they are told to end. Signals and the terminal are their caller's.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Subcommand;
use landfall::clan::network::{HostId, Node, Peer, PortAddress, Transport, read_preshared_key};
use landfall_transport::udp::UdpConfig;
use serde_json::json;

use crate::program::{CommandError, Program};

use super::{Client, Export, Mount, MountOptions, NAME, Options, PORT, Place, Server};

const EXAMPLES: &str = "\
Examples, at two hosts:
  sudo landfall files serve --dir /srv/data --listen 192.0.2.1:7200
  sudo landfall files mount 192.0.2.1:7200 /mnt

Within a host, over shared memory:
  landfall files serve --dir data --listen shm:/run/user/1000/files
  landfall files mount shm:/run/user/1000/files mnt

What leaves the host is encrypted. A server that the superuser runs believes the clients' hosts who
their users are, as NFS does: give it a key file (head -c 32 /dev/urandom > files.key && chmod 600
files.key), so that only hosts that have it come in. One that another user runs does all as that user.

They run until SIGINT or SIGTERM (or for as long as --seconds says). A mount is unmounted then, and
also when its server is gone.";

type Result<T> = std::result::Result<T, CommandError>;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Files {
    /// Let other hosts and processes mount a directory
    Serve(ServeArgs),
    /// Mount what a server exports
    Mount(MountArgs),
}

/// Options of both ends.
#[derive(Clone, Debug, clap::Args)]
struct CommonArgs {
    /// A file of 32 random bytes that both ends have, readable by its owner alone [default: each
    /// end proves itself by the identity of its user]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Encrypt nothing; the other end has to do the same
    #[arg(long, conflicts_with = "key_file")]
    plaintext: bool,
    /// The MTU of the network between [default: 1500; 65536 at a loopback address]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65_536))]
    mtu: Option<u32>,
    /// How long a thread looks for a message before it sleeps, at most, in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    spin: u64,
    /// Nothing can be changed
    #[arg(long)]
    read_only: bool,
    /// End by itself after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// One JSON object when it is ready, and one at the end
    #[arg(long)]
    json: bool,
}

/// Options of `landfall files serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// The directory
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
    /// Let clients come in here. May be given several times
    #[arg(long, value_name = "ADDRESS:PORT|shm:FOLDER", required = true)]
    listen: Vec<Place>,
    /// The number of this host, 0 to 4095, different at each
    #[arg(long, default_value_t = 0)]
    host: u16,
    /// Serve this many requests at a time; each client has four
    #[arg(long, default_value_t = 256)]
    channels: usize,
    #[command(flatten)]
    common: CommonArgs,
}

/// Options of `landfall files mount`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct MountArgs {
    /// Where the server is
    #[arg(value_name = "ADDRESS:PORT|shm:FOLDER")]
    server: Place,
    /// The directory to mount on
    #[arg(value_name = "DIRECTORY")]
    at: PathBuf,
    /// The number of this host, 1 to 4095, different at each client of a server [default: chosen at
    /// random]
    #[arg(long)]
    host: Option<u16>,
    /// How long the kernel believes what it knows, in milliseconds: changes that others make are
    /// seen after that time at the latest
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    timeout: u64,
    /// With extended attributes of users
    #[arg(long)]
    xattrs: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// How often it looks whether it shall end.
const TICK: Duration = Duration::from_millis(200);

/// How often it looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// How long the way to a server may take to open.
const PATIENCE: Duration = Duration::from_secs(10);

impl Files {
    /// Does what it says until the program shall end.
    ///
    /// # Errors
    /// What failed, in words for the user.
    pub fn run(&self, program: &mut dyn Program) -> Result<()> {
        match self {
            Self::Serve(args) => args.run(program),
            Self::Mount(args) => args.run(program),
        }
    }
}

impl CommonArgs {
    fn options(&self) -> Options {
        Options { spin: Duration::from_micros(self.spin), ..Options::default() }
    }

    fn node(&self, host: HostId, at: SocketAddr) -> Result<Node> {
        let mtu = self.mtu.unwrap_or(if at.ip().is_loopback() { 65_536 } else { 1500 });
        let builder = Node::builder(host).path(Transport::udp_with(UdpConfig::new(at, mtu)));
        let builder = match &self.key_file {
            Some(file) => builder.preshared_key(read_preshared_key(file)?),
            None if self.plaintext => builder.plaintext(),
            None => builder,
        };
        Ok(builder.open()?)
    }

    /// Waits until a signal comes, the time is over, or `is_up` says no. Says which.
    fn wait(&self, program: &mut dyn Program, is_up: impl Fn() -> bool) -> Result<&'static str> {
        let until = self.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        loop {
            if program.wait(TICK)? {
                return Ok("a signal");
            }
            if !is_up() {
                return Ok("it is gone");
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok("the time is over");
            }
        }
    }
}

/// What failed, and why.
fn failed<E: Into<CommandError>>(what: String) -> impl FnOnce(E) -> CommandError {
    move |error| format!("{what}: {}", error.into()).into()
}

fn print_json(program: &mut dyn Program, value: &serde_json::Value) -> Result<()> {
    Ok(program.print(&format!("{value:#}\n"))?)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn host(number: u16) -> Result<HostId> {
    HostId::new(number).ok_or_else(|| "--host: 0 to 4095 are hosts".into())
}

impl ServeArgs {
    fn run(&self, program: &mut dyn Program) -> Result<()> {
        let started = Instant::now();
        // Clients say what permissions new files have.
        rustix::process::umask(rustix::fs::Mode::empty());
        let export = Export::open(&self.dir)?;
        let export = if self.common.read_only { export.read_only() } else { export };
        let options = Options { channels: self.channels, ..self.common.options() };
        let server = Server::start(export, &options)?;
        let (mut nodes, mut listening) = (Vec::new(), Vec::new());
        for place in &self.listen {
            let at = self.listen_at(&server, place, &mut nodes);
            let at = at.map_err(failed(format!("cannot listen at {place}")))?;
            listening.push(at.to_string());
        }
        let key = nodes.iter().find_map(Node::fingerprint).map(|key| key.to_string());
        let directory = self.dir.display().to_string();
        if self.common.json {
            let ready = json!({ "directory": directory, "listening": listening, "key": key });
            program.print(&format!("{ready}\n"))?;
        } else {
            let key = key.map_or_else(String::new, |key| format!(", key {key}"));
            for at in &listening {
                program.print(&format!("serving {directory} at {at}{key}\n"))?;
            }
        }
        let ended = self.common.wait(program, || true)?;
        let stats = server.stats();
        // Requests that have begun are ended, and their clients hear of the end.
        let ending = std::thread::spawn(move || drop((server, nodes)));
        while !ending.is_finished() {
            if program.wait(LOOK)? {
                return Err("a second signal: what was under way is cut off".into());
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        if self.common.json {
            print_json(
                program,
                &json!({
                    "seconds": seconds, "ended": ended, "requests": stats.requests,
                    "failed": stats.failed, "read_bytes": stats.read_bytes,
                    "written_bytes": stats.written_bytes,
                }),
            )?;
        } else {
            program.print(&format!(
                "ended after {seconds:.1} s: {ended}; {} requests, {} read, {} written\n",
                stats.requests,
                megabytes(stats.read_bytes),
                megabytes(stats.written_bytes)
            ))?;
        }
        Ok(())
    }

    /// Listens there, and says where that is.
    fn listen_at(&self, server: &Server, place: &Place, nodes: &mut Vec<Node>) -> Result<Place> {
        match place {
            Place::Udp(address) => {
                let node = self.common.node(host(self.host)?, *address)?;
                server.listen(&node, PORT)?;
                let local = node.local();
                nodes.push(node);
                match local {
                    Some(Peer::Socket(address)) => Ok(Place::Udp(address)),
                    _ => Ok(place.clone()),
                }
            }
            Place::Host(folder) => {
                private_folder(folder)?;
                server.listen_on_host(folder, NAME)?;
                Ok(place.clone())
            }
        }
    }
}

/// A folder for processes of this user; one that is there stays as it is.
fn private_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(failed(format!("cannot make the folder {}", folder.display())))
}

impl MountArgs {
    fn run(&self, program: &mut dyn Program) -> Result<()> {
        let options = self.common.options();
        let (client, node) = match &self.server {
            Place::Host(folder) => {
                let client = Client::connect_on_host(folder, NAME, &options);
                (client.map_err(failed(format!("nobody serves at {}", self.server)))?, None)
            }
            Place::Udp(address) => {
                let (client, node) = self.connect(*address, &options)?;
                (client, Some(node))
            }
        };
        let mounting = MountOptions {
            timeout: Duration::from_millis(self.timeout),
            extended: self.xattrs,
            read_only: self.common.read_only,
            ..MountOptions::default()
        };
        let mount = Mount::new(client, &self.at, &mounting)?;
        let at = mount.path().display().to_string();
        let server = self.server.to_string();
        if self.common.json {
            program.print(&format!("{}\n", json!({ "server": server, "mounted": at })))?;
        } else {
            program.print(&format!("{server} is mounted on {at}\n"))?;
        }
        let ended = self.common.wait(program, || mount.is_up())?;
        let gone = mount.client().gone();
        mount.unmount().map_err(failed(format!("cannot unmount {at}")))?;
        drop(node);
        if let Some(why) = gone {
            return Err(format!("the server at {server} is gone ({why}); {at} is unmounted").into());
        }
        if self.common.json {
            print_json(program, &json!({ "ended": ended }))?;
        } else {
            program.print(&format!("{at} is unmounted: {ended}\n"))?;
        }
        Ok(())
    }

    /// Connects over UDP, from any port.
    fn connect(&self, to: SocketAddr, options: &Options) -> Result<(Client, Node)> {
        let number = match self.host {
            Some(number) => number,
            None => 1 + getrandom::u32().unwrap_or(0) as u16 % HostId::MAX,
        };
        let any: SocketAddr = match (to.ip().is_loopback(), to.is_ipv4()) {
            (true, _) => (to.ip(), 0).into(),
            (false, true) => ([0, 0, 0, 0], 0).into(),
            (false, false) => ([0; 16], 0).into(),
        };
        let node = self.common.node(host(number)?, any)?;
        let link = node.link(to)?;
        let what = format!(
            "no way to a server at {to}; if another client has number {number}, use --host"
        );
        let server = link.wait_up(Some(Instant::now() + PATIENCE)).map_err(failed(what))?;
        let to = PortAddress { host: server, port: PORT };
        Ok((Client::connect(&node, to, options)?, node))
    }
}
