//! AF_XDP carries both test engines: the same bytes arrive however the threads
//! wait, wherever the program runs, and whether frames fit a chunk of memory or
//! not; each payload is copied once at each end. As an ordinary user each test
//! skips with one line.

use crate::support::carriage::{self, Opened};
use crate::support::packet::{cable, cable_of};
use crate::support::xdp::{MODES, open_as, pair, require_xdp};
use landfall_placement::{Duration, Peer};
use landfall_transport::Wait;
use landfall_transport::memory::Regions;
use landfall_transport::xdp::XdpConfig;

#[test]
fn messages_cross_in_units_of_all_lengths() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        // The longest fills a frame: 40 bytes are the engine's.
        for unit in [100, 1024, 1460] {
            carriage::messages_in_units(pair(&cable, attach), unit);
        }
    }
}

#[test]
fn messages_cross_in_frames_that_need_several_chunks() {
    require_xdp!();
    let cable = cable_of(9000);
    for attach in MODES {
        for unit in [1024, 4050, 4096, 8192, 8960] {
            carriage::messages_in_units(pair(&cable, attach), unit);
        }
    }
}

/// Frames go round and round, and some are lost for want of room.
#[test]
fn few_frames_carry_much() {
    require_xdp!();
    for mtu in [1500, 9000] {
        let cable = cable_of(mtu);
        for attach in MODES {
            let ends = [&cable.a, &cable.b].map(|end| {
                let regions = Regions::new(8);
                let few = |config| XdpConfig { attach, frames: 256, ..config };
                let driver = open_as(end, &regions, few).unwrap();
                Opened { driver, regions, name: Peer::Ethernet(end.mac.0) }
            });
            carriage::messages_in_units(ends, mtu - 100);
        }
    }
}

#[test]
fn a_stream_with_heads_of_all_lengths_crosses() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        carriage::stream(pair(&cable, attach));
    }
}

#[test]
fn each_payload_is_copied_once() {
    require_xdp!();
    for mtu in [1500, 9000] {
        let cable = cable_of(mtu);
        for attach in MODES {
            let [warm, end] = carriage::steady_messages(pair(&cable, attach));
            let placed = end.payload_bytes - warm.payload_bytes;
            assert!(placed > 0);
            assert_eq!(end.bytes_copied - warm.bytes_copied, placed, "{end:?}");
            assert_eq!((end.guessed_right, end.guessed_wrong), (0, 0));
        }
    }
}

#[test]
fn threads_may_wait_in_any_way() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        for wait in [Wait::Block, Wait::Spin, Wait::SpinThenBlock(Duration::from_micros(50))] {
            carriage::messages_between_threads(pair(&cable, attach), wait);
        }
    }
}

#[test]
fn tokio_tasks_drive_both_ends() {
    require_xdp!();
    let cable = cable();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for attach in MODES {
        runtime.block_on(carriage::messages_between_tasks(pair(&cable, attach)));
    }
}
