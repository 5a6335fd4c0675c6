//! Facts about this machine that a figure is worth nothing without.

use std::fs;
use std::net::IpAddr;

use landfall_testbed::cpu;
use landfall_testbed::privileges::{self, Privilege};
use landfall_transport::interfaces::interface_at;
use serde::{Deserialize, Serialize};

/// What a measurement ran on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The architecture that this program was built for.
    pub architecture: &'static str,
    /// What the processor calls itself.
    pub processor: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// How the kernel chooses the clock frequency; `unknown` where it does not say.
    pub governor: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The version of this program.
    pub landfall: &'static str,
    /// Whether this program was built without optimisation, so that no figure counts.
    pub debug_build: bool,
}

impl Machine {
    /// Reads what the kernel says.
    pub fn read() -> Self {
        Self {
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            architecture: std::env::consts::ARCH,
            processor: processor().unwrap_or_else(unknown),
            cores: cpu::allowed_cores().map_or(0, |cores| cores.len()),
            governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .unwrap_or_else(unknown),
            memory_bytes: memory_line("MemTotal").unwrap_or(0),
            landfall: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
        }
    }

    /// The machine in one line.
    pub fn describe(&self) -> String {
        let governor = match self.governor.as_str() {
            "unknown" => "governor unknown".to_owned(),
            known => format!("governor {known}"),
        };
        format!(
            "{} ({}), {} cores, {governor}, Linux {}",
            self.processor, self.architecture, self.cores, self.kernel
        )
    }
}

/// The network interface that a measurement went through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The driver of its card; `none` where no card is below it: loopback, a bridge, a cable
    /// between namespaces.
    pub driver: String,
    /// Mbit/s, where the driver says it.
    pub speed_mbit: Option<u64>,
    /// The longest packet.
    pub mtu: Option<u64>,
    /// Queues for packets that come.
    pub receive_queues: usize,
    /// And for those that go.
    pub transmit_queues: usize,
}

impl Interface {
    /// That of an address of this host; none where the kernel knows none.
    pub fn at(address: IpAddr) -> Option<Self> {
        let name = interface_at(address.to_canonical()).ok()??;
        let folder = format!("/sys/class/net/{name}");
        let driver = fs::read_link(format!("{folder}/device/driver"))
            .ok()
            .and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
        let queues = |begin: &str| {
            let entries = fs::read_dir(format!("{folder}/queues")).into_iter().flatten().flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(begin)).count()
        };
        Some(Self {
            driver: driver.unwrap_or_else(|| "none".into()),
            speed_mbit: number(&format!("{folder}/speed")),
            mtu: number(&format!("{folder}/mtu")),
            receive_queues: queues("rx-"),
            transmit_queues: queues("tx-"),
        })
    }

    /// The interface in one line.
    pub fn describe(&self) -> String {
        let driver = match self.driver.as_str() {
            "none" => "no card".to_owned(),
            driver => format!("driver {driver}"),
        };
        let speed = self.speed_mbit.map_or("speed unknown".into(), |it| format!("{it} Mbit/s"));
        let mtu = self.mtu.map_or("MTU unknown".into(), |mtu| format!("MTU {mtu}"));
        let (receive, transmit) = (self.receive_queues, self.transmit_queues);
        format!("{driver}, {speed}, {mtu}, {receive} + {transmit} queues")
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The first line of a file, if it can be read and says something.
pub fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// A number that a file holds alone.
pub fn number(path: &str) -> Option<u64> {
    first_line(path)?.parse().ok()
}

/// A line of `/proc/meminfo` in bytes; lines without a unit count things.
pub fn memory_line(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = line.split_ascii_whitespace();
    let value: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { value.saturating_mul(1024) } else { value })
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    };
    text.lines().find_map(name)
}

/// How large a socket's receive buffer will be. Without privilege it is at most twice
/// `rmem_max` (`sock_setsockopt` doubles), and over loopback nobody paces a sender but its
/// window: more under way than fits the buffer is lost.
pub fn receive_buffer() -> u32 {
    const PLENTY: u32 = 32 << 20;
    if privileges::has(Privilege::NetAdmin) {
        return PLENTY;
    }
    let most = number("/proc/sys/net/core/rmem_max").unwrap_or(208 << 10);
    u32::try_from(most).map_or(PLENTY, |most| most.saturating_mul(2).min(PLENTY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = Machine::read();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert_ne!(machine.kernel, "unknown");
        assert!(machine.describe().contains(&machine.kernel));
    }

    #[test]
    fn the_loopback_interface_has_no_card_and_an_mtu() {
        let loopback = Interface::at(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!(loopback.driver, "none");
        assert!(loopback.mtu >= Some(1_280) && loopback.receive_queues > 0, "{loopback:?}");
        assert!(loopback.describe().starts_with("no card, "));
        // Nobody has an address that is for documents.
        assert_eq!(Interface::at("192.0.2.1".parse().unwrap()), None);
    }

    #[test]
    fn what_is_not_there_is_no_number() {
        assert_eq!(number("/proc/no-such-file"), None);
        assert_eq!(number("/proc/sys/kernel/osrelease"), None);
        assert_eq!(memory_line("NoSuchLine"), None);
    }
}
