//! Opening a ring: a socket, its filter, its memory, and only then its interface.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use socket2::{Domain, Socket, Type};

use super::frames::Shared;
use super::{Ring, RingConfig, Statistics};
use crate::OpenError;
use crate::memory::{Mapping, Regions, page_size};
use crate::packet::{
    ALL_PROTOCOLS, LEAST_ETHERTYPE, LinkAddress, attach_filter, bind, find_interface,
    join_interface, set_option, why_no_socket,
};
use crate::scatter::Hearing;

/// The longest block that the kernel can be asked for in one piece
/// (`MAX_PAGE_ORDER`).
const LONGEST_BLOCK: u32 = 4 << 20;
const MOST_BYTES: u64 = 1 << 30;
/// Only a formality here: blocks are not divided into frames of one length.
const FRAME_SIZE: u32 = 2048;

impl Ring {
    /// Opens a ring on an interface of the network namespace that the calling
    /// thread is in, where it stays, and lends its memory in this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(config: &RingConfig, regions: &Regions) -> Result<Self, OpenError> {
        let request = geometry(config)?;
        let protocol = match config.hearing {
            Hearing::Everything => ALL_PROTOCOLS,
            Hearing::Protocol(number) if number < LEAST_ETHERTYPE => {
                return Err(OpenError::NotAnEthertype(number));
            }
            Hearing::Protocol(number) => number,
        };
        // With no protocol it hears nothing until it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).map_err(why_no_socket)?;
        let interface = find_interface(&socket, &config.interface)?;
        let fd = socket.as_raw_fd();
        // Without it (before Linux 4.20) the filter tells own frames.
        let ignored = libc::c_int::from(config.overhear.is_none());
        let _ = set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, ignored);
        let program = match config.overhear {
            None => config.filter.clone().only_received(interface.station).program(),
            Some(most) => config.filter.program_for(most),
        };
        attach_filter(fd, &program).map_err(OpenError::system("attach the packet filter"))?;
        make_ring(fd, &request)?;
        let len = request.tp_block_size as usize * request.tp_block_nr as usize;
        let mapping = Mapping::shared_at(socket.as_fd(), 0, len)
            .map_err(OpenError::system("map the ring"))?;
        hear_more(fd, config, interface.index, interface.station)?;
        let size = request.tp_block_size as usize;
        let shared = Shared::new(socket, Arc::new(mapping), size, interface.station, regions)?;
        bind(fd, &LinkAddress::interface(interface.index, protocol))
            .map_err(OpenError::system("bind to the interface"))?;
        Ok(Self { shared: Arc::new(shared), next: 0, counted: Statistics::default() })
    }
}

/// What the kernel is asked for, if it makes sense.
fn geometry(config: &RingConfig) -> Result<libc::tpacket_req3, OpenError> {
    let RingConfig { block_size, blocks, .. } = *config;
    let page = page_size() as u32;
    let fits = block_size.is_power_of_two()
        && (page..=LONGEST_BLOCK).contains(&block_size)
        && blocks >= 2
        && u64::from(block_size) * u64::from(blocks) <= MOST_BYTES;
    if !fits {
        return Err(OpenError::BadGeometry { block_size, blocks });
    }
    let retire = u32::try_from(config.retire.as_millis()).unwrap_or(u32::MAX);
    Ok(libc::tpacket_req3 {
        tp_block_size: block_size,
        tp_block_nr: blocks,
        tp_frame_size: FRAME_SIZE,
        tp_frame_nr: block_size / FRAME_SIZE * blocks,
        // Zero would leave it to the kernel, and more than so much it stores
        // in a shorter number (`tov_in_jiffies`).
        tp_retire_blk_tov: retire.clamp(1, 60_000),
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    })
}

fn make_ring(fd: RawFd, request: &libc::tpacket_req3) -> Result<(), OpenError> {
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)
        .map_err(OpenError::system("use a ring of blocks (TPACKET_V3, Linux 3.2)"))?;
    let len = size_of_val(request) as libc::socklen_t;
    let value = std::ptr::from_ref(request).cast();
    // SAFETY: numbers, which live through the call, and their length.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, value, len) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            OpenError::NoMemory { block_size: request.tp_block_size, blocks: request.tp_block_nr }
        }
        _ => OpenError::system("make the ring")(error),
    })
}

/// Lets the interface take what the filter names and it would not by itself.
fn hear_more(
    fd: RawFd,
    config: &RingConfig,
    index: u32,
    interface: [u8; 6],
) -> Result<(), OpenError> {
    let other = |station: &[u8; 6]| *station != interface && station[0] & 1 == 0;
    if let Some(station) = config.filter.only_station().filter(other) {
        join_interface(fd, index, Some(station))
            .map_err(OpenError::system("let the interface take frames to another station"))?;
    }
    if config.filter.takes_groups() {
        join_interface(fd, index, None)
            .map_err(OpenError::system("let the interface take frames to all groups"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Filter;
    use std::time::Duration;

    #[test]
    fn rings_that_cannot_be_are_refused() {
        let config = RingConfig::new("lo", Filter::any());
        assert!(geometry(&config).is_ok());
        for (block_size, blocks) in
            [(0, 4), (2048, 4), (100_000, 4), (8 << 20, 4), (4096, 1), (4096, 0), (4 << 20, 257)]
        {
            let refused = geometry(&RingConfig { block_size, blocks, ..config.clone() });
            assert!(matches!(refused, Err(OpenError::BadGeometry { .. })), "{block_size} {blocks}");
        }
        for (retire, told) in [(Duration::ZERO, 1), (Duration::MAX, 60_000)] {
            let request = geometry(&RingConfig { retire, ..config.clone() }).unwrap();
            assert_eq!(request.tp_retire_blk_tov, told);
        }
    }
}
