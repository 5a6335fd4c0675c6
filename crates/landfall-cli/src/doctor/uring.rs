//! io_uring: a ring is really set up, and asked what it can do.

use std::io;

use io_uring::{IoUring, Probe, opcode};

use super::{Feature, Finding};
use crate::machine;

const RING: (Feature, &str) = (Feature::IoUring, "io_uring");
const ZERO_COPY: (Feature, &str) = (Feature::SendZc, "io_uring SendZc");

pub(super) fn examine() -> Vec<Finding> {
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
