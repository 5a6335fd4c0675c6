//! A cable that loses frames at random, in the kernel, before anybody joins them.
//!
//! A program of six instructions runs for each frame that enters an end (XDP, in the driver
//! of the veth). So whatever crosses the cable is impaired alike: TCP, UDP sockets, packet
//! sockets. While it hangs there the kernel cuts super-packets before the cable, and joins
//! them behind the program: what is lost is one frame of the MTU, as on a real link.
//!
//! Losing IP fragments alone, behind the place where packet sockets hear them, is for
//! [`ingress`](crate::ingress).

use std::os::fd::OwnedFd;

use crate::error::{Error, Tried};
use crate::sys;
use crate::veth::{VethEnd, VethPair};

/// A million of these is everything.
const MILLION: u64 = 1_000_000;

/// A cable whose ends lose what enters them, as long as this lives.
#[derive(Debug)]
pub struct FrameLoss {
    /// What holds the programs in place.
    _links: Vec<OwnedFd>,
}

/// How often, and with which pause, it is tried where another program is attached.
const PATIENCE: u32 = 100;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

impl FrameLoss {
    /// Loses this many frames in a million, in each direction.
    ///
    /// # Errors
    /// More than all shall be lost; the kernel lacks XDP, or does not allow it.
    pub fn new(pair: &VethPair, per_million: u32) -> Result<Self, Error> {
        Self::at(&pair.ends(), per_million)
    }

    /// The same of what enters these ends.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn at(ends: &[&VethEnd], per_million: u32) -> Result<Self, Error> {
        if u64::from(per_million) > MILLION {
            let what = format!("a loss of {per_million} in a million");
            return Err(Error::BadRequest(what));
        }
        let program = program(per_million);
        let links = ends.iter().map(|end| {
            let attach = || end.namespace.enter(|| sys::attach_xdp(end.index, &program));
            let mut link = attach()?;
            // An endpoint over AF_XDP that was closed just now has its program there still.
            for _ in 0..PATIENCE {
                if !matches!(&link, Err(error) if error.raw_os_error() == Some(libc::EBUSY)) {
                    break;
                }
                std::thread::sleep(PAUSE);
                link = attach()?;
            }
            link.tried("attach a program to the cable")
        });
        Ok(Self { _links: links.collect::<Result<_, _>>()? })
    }
}

/// `struct bpf_insn`: operation, registers, distance, number.
const fn instruction(code: u8, distance: i16, number: i32) -> [u8; 8] {
    let ([d0, d1], [n0, n1, n2, n3]) = (distance.to_ne_bytes(), number.to_ne_bytes());
    [code, 0, d0, d1, n0, n1, n2, n3]
}

/// Drops a frame when a random number of 32 bits is below the share.
fn program(per_million: u32) -> Vec<u8> {
    /// `BPF_JMP | BPF_CALL`, and the number of `bpf_get_prandom_u32`.
    const CALL: u8 = 0x85;
    const RANDOM: i32 = 7;
    /// `BPF_JMP32 | BPF_JLT | BPF_K`.
    const IF_LESS: u8 = 0xa6;
    /// `BPF_ALU64 | BPF_MOV | BPF_K`.
    const SET: u8 = 0xb7;
    /// `BPF_JMP | BPF_EXIT`.
    const EXIT: u8 = 0x95;
    const XDP_DROP: i32 = 1;
    const XDP_PASS: i32 = 2;
    let share = (u64::from(per_million) << 32).div_ceil(MILLION);
    // All of them is one more than 32 bits can say: then no number is looked at.
    let (pass, share) = match u32::try_from(share) {
        Ok(share) => (XDP_PASS, share),
        Err(_) => (XDP_DROP, u32::MAX),
    };
    [
        instruction(CALL, 0, RANDOM),
        instruction(IF_LESS, 2, share.cast_signed()),
        instruction(SET, 0, pass),
        instruction(EXIT, 0, 0),
        instruction(SET, 0, XDP_DROP),
        instruction(EXIT, 0, 0),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_million_is_one_of_all_random_numbers() {
        let share = |program: &[u8]| u32::from_ne_bytes(program[12..16].try_into().unwrap());
        assert_eq!(share(&program(0)), 0);
        assert_eq!(share(&program(500_000)), 1 << 31);
        assert_eq!(share(&program(10_000)), 42_949_673);
        assert_eq!(program(1_000_000)[20], 1, "every frame is dropped");
        assert_eq!(program(10_000)[20], 2, "others pass");
    }

    #[test]
    fn more_than_all_is_refused() {
        assert!(matches!(FrameLoss::at(&[], 1_000_001), Err(Error::BadRequest(_))));
    }
}
