//! Sockets and devices below IP.

use std::fs::OpenOptions;
use std::io;

use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::{self as transport, Driver};
use socket2::{Domain, Socket, Type};

use super::{Feature, Finding};
use crate::lane::transport::PATH;

/// An ethertype for experiments on one's own network (RFC 9542): nobody
/// sends it here.
const LOCAL_EXPERIMENT: u16 = 0x88b5;

pub(super) fn examine() -> Vec<Finding> {
    vec![packet(), packet_offload(), tap(), xdp()]
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
            Finding::missing(feature, name, format!("{error:#}"), remedy)
        }
    }
}

fn try_offload() -> anyhow::Result<()> {
    let framing = Framing::Ethernet { filter: Filter::ethertypes([LOCAL_EXPERIMENT]) };
    let driver = PacketDriver::open(PATH, &PacketConfig::new("lo", framing), &Regions::new(1))?;
    Ok(driver.capabilities().require(transport::Feature::TcpSegmentation)?)
}

fn tap() -> Finding {
    let (feature, name) = (Feature::Tap, "TAP");
    match OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Finding::present(feature, name, "/dev/net/tun opens"),
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

fn xdp() -> Finding {
    let (feature, name) = (Feature::Xdp, "AF_XDP");
    match Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None) {
        Ok(_) => Finding::present(feature, name, "an XDP socket was opened"),
        Err(error) => {
            let remedy = match error.raw_os_error() {
                Some(libc::EAFNOSUPPORT) => "use a kernel built with CONFIG_XDP_SOCKETS",
                _ => RAW_REMEDY,
            };
            Finding::missing(feature, name, format!("socket(AF_XDP): {error}"), remedy)
        }
    }
}
