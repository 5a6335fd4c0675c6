//! Sockets and devices below UDP.

use std::fs::OpenOptions;
use std::io;
use std::net::Ipv4Addr;

use landfall_placement::PathId;
use landfall_testbed::Namespace;
use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::privileges::{self, Privilege};
use landfall_transport::OpenError;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::xdp::{XdpConfig, XdpDriver};
use landfall_transport::{self as transport, Driver};
use socket2::{Domain, Socket, Type};

use super::{Feature, Finding};
use crate::style;

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
