//! How frames come to the receivers that are built: one path for each of them.

use landfall_inet::ethernet;
use landfall_transport::memory::Regions;
use landfall_transport::packet::Filter;
use landfall_transport::ring::{Ring, RingConfig};
use landfall_transport::scatter::{self, CapturePoint, FRAME_MAX, MOST_DESCRIPTORS, Socket};
use landfall_transport::xdp::{XdpConfig, XdpQueue};

use super::builder::ReceiverBuilder;
use super::error::OpenError;
#[cfg(feature = "nic")]
use super::receive_path::HamachiPath;
use super::receive_path::{Blocks, MappedPath, PostedPath, ReceivePath, XdpRings};
use super::technique::{Chosen, Delivery, Technique, Wanted};

/// One for each receiver.
type Paths = Vec<Box<dyn ReceivePath>>;

/// 4095 is no VLAN (IEEE 802.1Q).
const VLAN_MOST: u16 = 4094;
/// Each of two rings that share what comes has at least this many blocks.
const LEAST_BLOCKS: u32 = 8;

impl ReceiverBuilder {
    /// Opens as many paths as there are tables of memory.
    pub(super) fn open_paths(&mut self, regions: &[Regions]) -> Result<(Paths, Chosen), OpenError> {
        self.config.frame_max = FRAME_MAX;
        self.config.burst = self.config.burst.min(MOST_DESCRIPTORS as u16);
        let technique = self.technique;
        if let Some((id, inner)) = self.vlan {
            let hears = technique == Technique::Xdp || self.hearing == CapturePoint::Everything;
            // Where frames are taken apart as they come, the inner tag is in the way.
            let hears = hears && (inner.is_none() || technique.shares_memory());
            let are_numbers =
                [id, inner.unwrap_or(id)].iter().all(|id| (1..=VLAN_MOST).contains(id));
            if !hears || self.gate.is_some() || !are_numbers {
                return Err(OpenError::NoVlan { id });
            }
        }
        let paths = match technique {
            Technique::Auto => return self.open_best(regions),
            Technique::Packet => self.open_packet(regions),
            Technique::PacketRing => self.open_ring(regions),
            Technique::PacketUring => only(regions, technique, |one| self.open_uring(one)),
            Technique::Xdp => self.open_xdp(regions),
            #[cfg(feature = "nic")]
            Technique::Nic => only(regions, technique, |one| {
                let socket = Socket::open(&self.socket_config(), one)?;
                let path = HamachiPath::new(socket, one, self.config.burst, self.pace)?;
                Ok(Box::new(path))
            }),
        };
        Ok((paths?, Chosen { technique, why: "it was asked for".to_owned() }))
    }

    fn open_best(&self, regions: &[Regions]) -> Result<(Paths, Chosen), OpenError> {
        match self.open_ring(regions) {
            Ok(paths) => {
                let why = "the mapped ring costs less than half of the CPU of a call per burst, \
                           and packets can be lent where they lie";
                Ok((paths, Chosen { technique: Technique::PacketRing, why: why.to_owned() }))
            }
            Err(OpenError::Path(error)) if self.vlan.is_none_or(|(_, inner)| inner.is_none()) => {
                let why = format!("the ring, which costs less, is not to be had: {error}");
                let paths = self.open_packet(regions)?;
                Ok((paths, Chosen { technique: Technique::Packet, why }))
            }
            Err(error) => Err(error),
        }
    }

    fn frames(&self) -> Filter {
        let ip = Filter::ethertypes([ethernet::IPV4, ethernet::IPV6]);
        let filter = match (&self.filter, self.wanted) {
            (Some(filter), _) => filter.clone(),
            (None, Wanted::Ip) => ip,
            (None, Wanted::Fragments) => ip.fragments(),
        };
        match self.vlan {
            Some((outer, Some(inner))) => filter.vlan_in_vlan(outer, inner),
            Some((id, None)) => filter.vlan(id),
            None => filter,
        }
    }

    fn socket_config(&self) -> scatter::Config {
        scatter::Config {
            hearing: self.hearing,
            socket_buffer: self.socket_buffer,
            ..scatter::Config::new(self.interface.clone(), self.frames())
        }
    }

    fn open_packet(&self, regions: &[Regions]) -> Result<Paths, OpenError> {
        let config = self.socket_config();
        let sockets = match regions {
            [one] => vec![Socket::open(&config, one)?],
            several => Socket::open_members(&config, several)?,
        };
        let path = |(socket, regions)| -> Result<Box<dyn ReceivePath>, OpenError> {
            Ok(Box::new(PostedPath::new(socket, regions, self.config.burst)?))
        };
        sockets.into_iter().zip(regions).map(path).collect()
    }

    #[cfg(feature = "io-uring")]
    fn open_uring(&self, regions: &Regions) -> Result<Box<dyn ReceivePath>, OpenError> {
        let socket = Socket::open(&self.socket_config(), regions)?;
        let socket = super::receive_path::ThroughRing::new(socket).map_err(OpenError::Uring)?;
        Ok(Box::new(PostedPath::new(socket, regions, self.config.burst)?))
    }

    #[cfg(not(feature = "io-uring"))]
    fn open_uring(&self, _regions: &Regions) -> Result<Box<dyn ReceivePath>, OpenError> {
        let help = "build with the feature `io-uring`";
        Err(OpenError::NotBuilt { technique: self.technique, help })
    }

    fn open_xdp(&self, regions: &[Regions]) -> Result<Paths, OpenError> {
        if self.wanted != Wanted::Fragments || self.filter.is_some() {
            return Err(OpenError::OnlyFragments);
        }
        let mut config = XdpConfig::fragments(self.interface.clone());
        if let Some((outer, inner)) = self.vlan {
            config = config.fragments_of_vlan(outer, inner);
        }
        let queues = XdpQueue::open_all(&config, regions)?;
        let (found, members) = (queues.len(), regions.len());
        if found < members {
            return Err(OpenError::Members { members, found });
        }
        // Queue n lends its memory in table n, and around.
        let mut shares: Vec<Vec<_>> = regions.iter().map(|_| Vec::new()).collect();
        for (nth, queue) in queues.into_iter().enumerate() {
            shares[nth % members].push(queue);
        }
        let path = |(queues, regions): (Vec<_>, _)| -> Result<Box<dyn ReceivePath>, OpenError> {
            Ok(Box::new(MappedPath::new(XdpRings::new(queues.into()), regions, self.most_lent)?))
        };
        shares.into_iter().zip(regions).map(path).collect()
    }

    fn open_ring(&self, regions: &[Regions]) -> Result<Paths, OpenError> {
        let (block_size, blocks, retire) = self.ring;
        let config = RingConfig {
            hearing: self.hearing,
            block_size,
            blocks,
            retire,
            ..RingConfig::new(self.interface.clone(), self.frames())
        };
        let lends = matches!(self.delivery, Delivery::Auto | Delivery::List);
        let rings: Vec<Box<[Ring]>> = match regions {
            [one] if lends => {
                let blocks = (blocks / 2).max(LEAST_BLOCKS);
                vec![Ring::open_two(&RingConfig { blocks, ..config }, one)?.into()]
            }
            [one] => vec![Box::new([Ring::open(&config, one)?])],
            several => {
                let members = Ring::open_members(&config, several)?;
                members.into_iter().map(|ring| [ring].into()).collect()
            }
        };
        let path = |(rings, regions)| -> Result<Box<dyn ReceivePath>, OpenError> {
            Ok(Box::new(MappedPath::new(Blocks::new(rings, retire), regions, self.most_lent)?))
        };
        rings.into_iter().zip(regions).map(path).collect()
    }
}

/// A technique that has one receiver.
fn only(
    regions: &[Regions],
    technique: Technique,
    open: impl FnOnce(&Regions) -> Result<Box<dyn ReceivePath>, OpenError>,
) -> Result<Paths, OpenError> {
    match regions {
        [one] => Ok(vec![open(one)?]),
        _ => Err(OpenError::NotShared { what: format!("{technique}") }),
    }
}
