//! Cables, routers and namespaces, and a station at the end of a cable.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use landfall_placement::PathId;
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair, privileges};
use landfall_testkit::{TemporaryFolder, tshark};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::tap::{TapConfig, TapDriver};
use landfall_transport::wait;
use qpip::{Config, Interface, OwnAddress};

use super::Station;
use super::kernel::Kernel;

pub const PATH: PathId = PathId(1);
/// The host part of the station's addresses.
const OURS: u8 = 100;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const REGIONS: u32 = 4096;

/// The station's address on the cable of an end: one that no kernel has.
pub fn ours(end: &VethEnd, is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        let [a, b, c, _] = end.ipv4.octets();
        Ipv4Addr::new(a, b, c, OURS).into()
    } else {
        let mut octets = end.ipv6.octets();
        octets[15] = OURS;
        Ipv6Addr::from(octets).into()
    }
}

/// Runs a program in a namespace until it ends, and gives what it said.
#[track_caller]
pub fn run(namespace: &Namespace, command: &[&str]) -> String {
    let done = namespace
        .enter(|| Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output())
        .unwrap();
    let output = done.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A cable with the station at one end and the kernel that it talks to at the
/// other. The kernel of the station's end has an address of its own, and none
/// of the station's.
///
/// Where a test fails, `LANDFALL_CAPTURE=file` keeps what it saw on its last cable.
pub struct Cable {
    /// First, so that it ends while there still is a cable.
    _capture: Option<Capture>,
    pub pair: VethPair,
    pub kernel: Kernel,
}

impl Cable {
    pub fn new() -> Self {
        Self::with(VethConfig::default())
    }

    pub fn with(config: VethConfig) -> Self {
        let pair = VethPair::new(config).unwrap();
        let kernel = Kernel::at(&pair.b);
        let file = std::env::var_os("LANDFALL_CAPTURE").map(PathBuf::from);
        let _capture = file.map(|file| Capture::to(&pair.b.namespace, &pair.b.name, file));
        Self { _capture, pair, kernel }
    }

    /// A station on the cable, that shares the interface with its kernel.
    pub fn station(&self) -> Station<PacketDriver> {
        self.station_as(Config::default(), |config| config)
    }

    pub fn station_as(
        &self,
        config: Config,
        adjust: impl FnOnce(PacketConfig) -> PacketConfig + Send,
    ) -> Station<PacketDriver> {
        let (driver, regions) = open(&self.pair.a, shared(), adjust);
        Station::new(config, interface(&self.pair.a, self.pair.a.mac.0), driver, regions)
    }

    /// The same with faults on what the station sends.
    pub fn faulty_station(&self, faults: Faults, seed: u8) -> Station<Faulty<PacketDriver>> {
        let (driver, regions) = open(&self.pair.a, shared(), |config| config);
        let driver = Faulty::new(driver, faults, [seed; 32], &regions).unwrap();
        let interface = interface(&self.pair.a, self.pair.a.mac.0);
        Station::new(Config::default(), interface, driver, regions)
    }
}

/// What a station hears that is the interface's own.
pub fn shared() -> Filter {
    Filter::ethertypes([IPV4, ARP, IPV6])
}

/// A driver at this end of a cable, and its regions.
pub fn open(
    end: &VethEnd,
    filter: Filter,
    adjust: impl FnOnce(PacketConfig) -> PacketConfig + Send,
) -> (PacketDriver, Regions) {
    let regions = Regions::new(REGIONS);
    let config = adjust(PacketConfig::new(end.name.as_str(), Framing::Ethernet { filter }));
    let driver = end.namespace.enter(|| PacketDriver::open(PATH, &config, &regions));
    (driver.unwrap().unwrap(), regions)
}

/// The station at this end, by this hardware address.
pub fn interface(end: &VethEnd, mac: [u8; 6]) -> Interface {
    Interface {
        mac,
        addresses: vec![
            OwnAddress::new(ours(end, true), 24),
            OwnAddress::new(ours(end, false), 64),
        ],
        ..Interface::default()
    }
}

/// A virtual cable to the kernel of a namespace.
pub struct Tap {
    pub kernel: Kernel,
}

impl Tap {
    const NAME: &str = "lftap0";
    const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
    const KERNEL6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x78, 0, 0, 0, 0, 0, 1);
    const MAC: [u8; 6] = [2, b'l', b'f', 0, 0x78, OURS];

    pub fn new() -> Self {
        let namespace = Namespace::new().unwrap();
        let (ipv4, ipv6) = (Self::KERNEL, Self::KERNEL6);
        Self { kernel: Kernel { namespace, ipv4, ipv6 } }
    }

    /// A station with a hardware address of its own at the other end.
    pub fn station(
        &self,
        adjust: impl FnOnce(TapConfig) -> TapConfig + Send,
    ) -> Station<TapDriver> {
        let regions = Regions::new(REGIONS);
        let kernel_address = Some((IpAddr::from(Self::KERNEL), 24));
        let config = adjust(TapConfig { kernel_address, ..TapConfig::new(Self::NAME) });
        let namespace = &self.kernel.namespace;
        let driver = namespace.enter(|| TapDriver::open(PATH, &config, &regions));
        let address = format!("{}/64", Self::KERNEL6);
        run(namespace, &["ip", "address", "add", &address, "dev", Self::NAME, "nodad"]);
        let ours6 = Ipv6Addr::new(0xfd00, 0x78, 0, 0, 0, 0, 0, u16::from(OURS));
        let interface = Interface {
            mac: Self::MAC,
            addresses: vec![
                OwnAddress::new(Ipv4Addr::new(10, 78, 0, OURS).into(), 24),
                OwnAddress::new(ours6.into(), 64),
            ],
            ..Interface::default()
        };
        Station::new(Config::default(), interface, driver.unwrap().unwrap(), regions)
    }
}

/// A Linux router between the station and the kernel that it talks to.
pub struct Routed {
    /// From the station to the router.
    pub near: VethPair,
    /// From the router to the kernel.
    pub far: VethPair,
    pub router: Namespace,
    pub kernel: Kernel,
}

impl Routed {
    pub fn new() -> Self {
        let [host, router, other] = [(); 3].map(|()| Namespace::new().unwrap());
        let near = VethPair::between(&host, &router, VethConfig::default()).unwrap();
        let config = VethConfig { cable: 1, ..VethConfig::default() };
        let far = VethPair::between(&router, &other, config).unwrap();
        for knob in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            sysctl(&router, knob, "1");
        }
        let kernel = Kernel::at(&far.b);
        let (via4, via6) = (far.a.ipv4.to_string(), far.a.ipv6.to_string());
        run(&other, &["ip", "route", "add", "default", "via", &via4]);
        run(&other, &["ip", "-6", "route", "add", "default", "via", &via6]);
        Self { near, far, router, kernel }
    }

    pub fn station(&self) -> Station<PacketDriver> {
        let (driver, regions) = open(&self.near.a, shared(), |config| config);
        let mut interface = interface(&self.near.a, self.near.a.mac.0);
        interface.gateways = vec![self.near.b.ipv4.into(), self.near.b.ipv6.into()];
        Station::new(Config::default(), interface, driver, regions)
    }

    /// Connections are tracked, and what is invalid is dropped; who comes from
    /// the near side leaves with the router's address, and who connects to that
    /// address on the far side, at this port, comes to the station.
    pub fn translate(&self, port: u16) {
        let (near, far) = (&self.near.b.name, &self.far.a.name);
        let (ours4, ours6) = (ours(&self.near.a, true), ours(&self.near.a, false));
        let through = "type filter hook forward priority 0; ct state invalid counter drop;";
        let out = format!(
            "type nat hook postrouting priority 100; iifname {near} oifname {far} masquerade;"
        );
        let come = format!(
            "type nat hook prerouting priority -100; iifname {far} tcp dport {port} dnat to"
        );
        // Nft wants each block on lines of its own.
        let table = |family, name, chains: &[String]| {
            format!("table {family} {name} {{\n{}\n}}\n", chains.join("\n"))
        };
        let chain = |name, rules: &str| format!("chain {name} {{ {rules} }}");
        let rules = [
            table("inet", "tracked", &[chain("through", through)]),
            table("ip", "away", &[chain("out", &out), chain("come", &format!("{come} {ours4};"))]),
            table("ip6", "away", &[chain("out", &out), chain("come", &format!("{come} {ours6};"))]),
        ]
        .concat();
        run(&self.router, &["nft", &rules]);
    }

    /// Packets that the router's connection tracking called invalid.
    pub fn invalid_packets(&self) -> u64 {
        let rules = run(&self.router, &["nft", "list", "table", "inet", "tracked"]);
        let mut words = rules.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).and_then(|count| count.parse().ok()).unwrap()
    }

    /// Where the far side finds the station: at the router.
    pub fn translated(&self, is_ipv4: bool, port: u16) -> SocketAddr {
        match is_ipv4 {
            true => SocketAddr::new(self.far.a.ipv4.into(), port),
            false => SocketAddr::new(self.far.a.ipv6.into(), port),
        }
    }
}

/// Sets a knob under `/proc/sys/net` in a namespace.
#[track_caller]
pub fn sysctl(namespace: &Namespace, knob: &str, value: &str) {
    let path = format!("/proc/sys/net/{knob}");
    let written = namespace.enter(|| std::fs::write(&path, value)).unwrap();
    written.unwrap_or_else(|error| panic!("{path}: {error}"));
}

// Captures of an interface, and what tshark says of them.

/// Why frames cannot be looked at here.
pub fn why_no_tshark() -> Option<String> {
    let run = |program| Command::new(program).arg("--version").output();
    match ["tshark", "dumpcap"].into_iter().find_map(|program| run(program).err()) {
        Some(error) => Some(format!("needs tshark and dumpcap: {error}")),
        None => privileges::why_no_namespaces(),
    }
}

/// A capture under way. Dropped, it ends and leaves nothing but a file that was asked for.
pub struct Capture {
    child: Child,
    file: PathBuf,
    folder: Option<TemporaryFolder>,
}

impl Capture {
    /// Captures an interface from now on.
    pub fn start(namespace: &Namespace, interface: &str, name: &str) -> Self {
        let folder = TemporaryFolder::new(name);
        let file = folder.join("capture.pcapng");
        let mut capture = Self::to(namespace, interface, file);
        capture.folder = Some(folder);
        capture
    }

    /// The same to this file.
    pub fn to(namespace: &Namespace, interface: &str, file: PathBuf) -> Self {
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-B", "64", "-i", interface, "-w"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = namespace.enter(|| command.spawn()).unwrap().unwrap();
        // It says where it writes to once it captures.
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("File:") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "dumpcap has nothing more to say");
        }
        // Nobody reads what it says at its end: that is less than a pipe holds.
        child.stderr = Some(said.into_inner());
        Self { child, file, folder: None }
    }

    /// Ends the capture, once what was on the cable before is in the file: the
    /// kernel hands frames over in blocks, at the latest after a quarter of a
    /// second, and those of a block that is not full would be missing.
    pub fn finish(mut self) -> Captured {
        wait::until_ready(&[], Duration::from_millis(800)).unwrap();
        self.stop();
        Captured { file: std::mem::take(&mut self.file), _folder: self.folder.take() }
    }

    fn stop(&mut self) {
        // What it has buffered it writes when it is told to stop, not when it is killed.
        let process = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &process]).status();
        let _ = self.child.wait();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.file.as_os_str().is_empty() {
            self.stop();
        }
    }
}

/// A capture that is over.
pub struct Captured {
    file: PathBuf,
    _folder: Option<TemporaryFolder>,
}

impl Captured {
    /// These fields of each frame that the filter lets through, a line each,
    /// with a bar between two fields.
    pub fn fields(&self, filter: &str, fields: &[&str]) -> Vec<String> {
        // Random bytes look like the messages of some protocol sooner or later.
        let options = ["-d", "tcp.port==1-65535,data", "-Y", filter];
        let packets = tshark::fields(&self.file, fields, &options).expect("there is a tshark");
        packets.into_iter().map(|cells| cells.join("|")).collect()
    }

    pub fn count(&self, filter: &str) -> usize {
        self.fields(filter, &["frame.number"]).len()
    }
}
