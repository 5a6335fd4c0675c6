//! Sockets and devices below UDP; UDP batching, tried with two endpoints over loopback; socket
//! buffers; io_uring: a ring is really set up, and asked what it can do.

use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::workload::trial::{Trial, over_udp};
use io_uring::{IoUring, Probe, opcode};
use landfall::stp::PathStats;
use landfall_placement::PathId;
use landfall_testbed::Namespace;
use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::privileges::{self, Privilege};
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::udp::UdpConfig;
use landfall_transport::xdp::{XdpConfig, XdpDriver};
use landfall_transport::{self as transport, Driver, Missing, OpenError};
use socket2::{Domain, Socket, Type};

use super::{Feature, Finding};
use crate::style::bytes;
use crate::{machine, style};

/// An ethertype for experiments on one's own network (RFC 9542): nobody
/// sends it here.
const LOCAL_EXPERIMENT: u16 = 0x88b5;
/// Likewise, an IP protocol (RFC 3692).
const PROTOCOL_FOR_EXPERIMENTS: u8 = 253;

pub(super) fn examine() -> Vec<Finding> {
    vec![packet(), packet_offload(), raw_ip(), tap(), xdp(), nft()]
}

const RAW_REMEDY: &str = "run as root, or `setcap cap_net_raw+ep` on the program";

fn packet() -> Finding {
    let (feature, name) = (Feature::Packet, "AF_PACKET");
    // Protocol 0: the socket hears nothing.
    match Socket::new(Domain::PACKET, Type::RAW, None) {
        Ok(_) => Finding::present(feature, name, "a packet socket was opened"),
        Err(error) => {
            Finding::missing(feature, name, format!("socket(AF_PACKET): {error}"), RAW_REMEDY)
        }
    }
}

/// Tried on the loopback interface, with a filter that lets nothing in.
fn packet_offload() -> Finding {
    let (feature, name) = (Feature::PacketOffload, "AF_PACKET offload");
    match try_offload() {
        Ok(()) => Finding::present(feature, name, "a packet socket took PACKET_VNET_HDR"),
        Err(error) => {
            let remedy = "see AF_PACKET above; the offload needs Linux 4.6 or newer";
            Finding::missing(feature, name, style::causes(&error), remedy)
        }
    }
}

fn try_offload() -> anyhow::Result<()> {
    let framing = Framing::Ethernet { filter: Filter::ethertypes([LOCAL_EXPERIMENT]) };
    let driver =
        PacketDriver::open(PathId(0), &PacketConfig::new("lo", framing), &Regions::new(1))?;
    Ok(driver.capabilities().require(transport::Feature::TcpSegmentation)?)
}

fn nft() -> Finding {
    let (feature, name) = (Feature::Nft, "nft");
    match why_no_ingress() {
        None => {
            Finding::present(feature, name, "it runs; `bigmtu` keeps frames from the kernel by it")
        }
        Some(why) => Finding::missing(feature, name, why, "apt-get install nftables"),
    }
}

fn tap() -> Finding {
    let (feature, name) = (Feature::Tap, "TAP");
    match OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(_) if privileges::has(Privilege::NetAdmin) => {
            Finding::present(feature, name, "/dev/net/tun opens")
        }
        Ok(_) => {
            let what = "/dev/net/tun opens: for interfaces that root has made for you, as long as \
                        CAP_NET_ADMIN is missing";
            Finding::present(feature, name, what)
        }
        Err(error) => {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => {
                    "sudo modprobe tun; in a container add `--device /dev/net/tun`"
                }
                _ => "run as root, or change the rights of /dev/net/tun",
            };
            Finding::missing(feature, name, format!("/dev/net/tun: {error}"), remedy)
        }
    }
}

fn raw_ip() -> Finding {
    let (feature, name) = (Feature::RawIp, "raw IP");
    let config = RawIpConfig::new(Ipv4Addr::LOCALHOST.into(), PROTOCOL_FOR_EXPERIMENTS, 1500);
    match RawIpDriver::open(PathId(0), &config, &Regions::new(1)) {
        Ok(_) => Finding::present(feature, name, "a raw IPv4 socket was opened"),
        Err(error) => Finding::missing(feature, name, error.to_string(), RAW_REMEDY),
    }
}

/// Tried on the loopback interface of a namespace of its own, where nobody
/// else's program can be in the way.
fn xdp() -> Finding {
    let (feature, name) = (Feature::Xdp, "AF_XDP");
    match try_xdp() {
        Ok(()) => Finding::present(feature, name, "a program redirects frames to a socket"),
        Err(error) => {
            let remedy = match error.downcast_ref() {
                Some(OpenError::NoXdpSockets) => "use a kernel built with CONFIG_XDP_SOCKETS",
                Some(OpenError::LockedMemory { .. }) => "see locked memory below",
                _ => XDP_REMEDY,
            };
            Finding::missing(feature, name, style::causes(&error), remedy)
        }
    }
}

const XDP_REMEDY: &str = "run as root; in a container add `--cap-add NET_ADMIN --cap-add NET_RAW \
                          --cap-add BPF --cap-add SYS_ADMIN`";

fn try_xdp() -> anyhow::Result<()> {
    let config = XdpConfig { frames: 64, ..XdpConfig::new("lo", LOCAL_EXPERIMENT) };
    let open = || XdpDriver::open(PathId(0), &config, &Regions::new(1)).map(drop);
    Ok(Namespace::new()?.enter(open)??)
}

/// Old kernels are the one thing that a user can change.
const NEWER_KERNEL: &str = "use Linux 5.0 or newer; until then datagrams go one by one";
const LIMITS: [(&str, &str); 2] = [
    ("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
    ("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
];

pub(super) fn examine_udp() -> Vec<Finding> {
    let [gso, gro] = match over_udp(Duration::from_secs(3)) {
        Ok(trial) => batching(&trial),
        Err(error) => [(Feature::UdpGso, GSO), (Feature::UdpGro, GRO)].map(|(feature, name)| {
            let what = format!("a megabyte over loopback failed: {error:#}");
            Finding::missing(feature, name, what, "allow UDP on the loopback interface")
        }),
    };
    vec![gso, gro, buffers()]
}

const GSO: &str = "UDP batched send";
const GRO: &str = "UDP batched receive";

fn batching(trial: &Trial) -> [Finding; 2] {
    let Trial { sender, receiver, .. } = trial;
    let missing = |path: &PathStats, feature| path.capabilities.require(feature).err();
    let per_send = ratio(sender.counters.units_sent, sender.counters.send_calls);
    let per_receive = receiver.counters.units_per_receive();
    let send = missing(sender, landfall_transport::Feature::BatchedSend);
    let receive = missing(receiver, landfall_transport::Feature::BatchedReceive);
    [
        batch(Feature::UdpGso, GSO, per_send, "send", send.as_ref()),
        batch(Feature::UdpGro, GRO, per_receive, "receive", receive.as_ref()),
    ]
}

fn batch(
    feature: Feature,
    name: &'static str,
    units: f64,
    call: &str,
    missing: Option<&Missing>,
) -> Finding {
    match missing {
        Some(missing) => Finding::missing(feature, name, missing.why.clone(), NEWER_KERNEL),
        None => {
            let seen = format!("tried over loopback: {units:.0} units per {call} call");
            Finding::present(feature, name, seen)
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn buffers() -> Finding {
    let (feature, name) = (Feature::SocketBuffers, "socket buffers");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let wanted = UdpConfig::new(any, 1500).socket_buffer as u64;
    let limits = LIMITS.map(|(name, path)| (name, machine::number(path)));
    let seen = limits.map(|(name, limit)| {
        format!("{name} = {}", limit.map_or_else(|| "unknown".to_owned(), bytes))
    });
    let seen = format!("{}; the driver asks for {}", seen.join(", "), bytes(wanted));
    if privileges::has(Privilege::NetAdmin) {
        return Finding::present(feature, name, format!("{seen} and may exceed the limits"));
    }
    let low: Vec<_> = limits
        .iter()
        .filter(|(_, limit)| limit.is_none_or(|limit| limit < wanted))
        .map(|(name, _)| format!("{name}={wanted}"))
        .collect();
    if low.is_empty() {
        return Finding::present(feature, name, seen);
    }
    Finding::missing(feature, name, seen, format!("sudo sysctl -w {}", low.join(" ")))
}

const RING: (Feature, &str) = (Feature::IoUring, "io_uring");
const ZERO_COPY: (Feature, &str) = (Feature::SendZc, "io_uring SendZc");

pub(super) fn examine_uring() -> Vec<Finding> {
    match IoUring::new(8) {
        Ok(ring) => {
            let detail = "a ring was set up";
            vec![Finding::present(RING.0, RING.1, detail), zero_copy(&ring)]
        }
        Err(error) => {
            let remedy = remedy(&error);
            let detail = format!("io_uring_setup: {error}");
            vec![
                Finding::missing(RING.0, RING.1, detail, remedy),
                Finding::missing(ZERO_COPY.0, ZERO_COPY.1, "there is no ring to ask", remedy),
            ]
        }
    }
}

fn zero_copy(ring: &IoUring) -> Finding {
    let mut probe = Probe::new();
    let (feature, name) = ZERO_COPY;
    match ring.submitter().register_probe(&mut probe) {
        Ok(()) if probe.is_supported(opcode::SendZc::CODE) => {
            Finding::present(feature, name, "the ring offers it")
        }
        Ok(()) => {
            Finding::missing(feature, name, "the ring does not offer it", "use Linux 6.0 or newer")
        }
        Err(error) => Finding::missing(
            feature,
            name,
            format!("the ring does not say what it can do: {error}"),
            "use Linux 5.6 or newer",
        ),
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match (error.raw_os_error(), machine::number("/proc/sys/kernel/io_uring_disabled")) {
        (_, Some(1 | 2)) => "sudo sysctl -w kernel.io_uring_disabled=0",
        (Some(libc::ENOMEM), _) => "raise the limit of locked memory: `ulimit -l unlimited`",
        (Some(libc::EPERM), _) => {
            "allow io_uring_setup: a container's seccomp profile refuses it (docker: \
             --security-opt seccomp=unconfined)"
        }
        _ => "use Linux 5.6 or newer, built with CONFIG_IO_URING",
    }
}
