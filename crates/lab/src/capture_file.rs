//! Reads capture files: pcap and pcapng, of Ethernet, of bare IP, and of Linux's "any" interface
//! ("cooked": SLL and SLL2).
//!
//! Formats: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng and the pages of tcpdump.org about link
//! types. Blocks that say nothing of frames are passed over, and so are frames of other links where
//! a file has several.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use landfall_inet::ethernet;

/// A frame as it was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapturedFrame {
    /// When, from an epoch that all frames of the file share.
    pub(crate) at: Duration,
    /// Its length on the cable.
    pub(crate) len: u32,
    /// Its first bytes, which may be all.
    pub(crate) bytes: Vec<u8>,
}

/// Longer than any frame: what claims more is no capture.
const MOST_FRAME: usize = 256 << 10;

/// What stands before the packet in each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// `LINKTYPE_ETHERNET`.
    Ethernet,
    /// `LINKTYPE_RAW`, `_IPV4` and `_IPV6`: nothing.
    Ip,
    /// `LINKTYPE_LINUX_SLL`: 16 bytes, of which the last two say what follows.
    Cooked,
    /// `LINKTYPE_LINUX_SLL2`: 20 bytes, of which the first two say what follows.
    Cooked2,
}

impl Link {
    /// The link of this number.
    fn new(number: u16) -> Result<Self> {
        match number {
            1 => Ok(Self::Ethernet),
            // 12 is what some systems write for 101.
            12 | 101 | 228 | 229 => Ok(Self::Ip),
            113 => Ok(Self::Cooked),
            276 => Ok(Self::Cooked2),
            _ => bail!(
                "the capture is of link type {number}; Ethernet (1), raw IP (101, 228, 229) and \
                 Linux cooked (113, 276) are read: record on an Ethernet interface"
            ),
        }
    }

    /// The frame with an Ethernet header. Where there was none, stations are named by the last four
    /// bytes of the addresses of IP: 02:04 and those of IPv4, 02:06 and those of IPv6.
    fn to_ethernet(self, frame: CapturedFrame) -> Option<CapturedFrame> {
        let header = match self {
            Self::Ethernet => return Some(frame),
            Self::Ip => 0,
            Self::Cooked => 16,
            Self::Cooked2 => 20,
        };
        let packet = frame.bytes.get(header..)?;
        let says = match self {
            Self::Cooked => frame.bytes.get(14..16),
            Self::Cooked2 => frame.bytes.get(..2),
            _ => None,
        };
        let is_v6 = packet.first()? >> 4 == 6;
        let ethertype = if is_v6 { ethernet::IPV6 } else { ethernet::IPV4 }.to_be_bytes();
        // What is no IP has no stations.
        if says.is_some_and(|says| says != ethertype) {
            return None;
        }
        let (kind, source, destination) = if is_v6 { (6, 20, 36) } else { (4, 12, 16) };
        let station = |at: usize| Some([&[2, kind], packet.get(at..at + 4)?].concat());
        let header_of = [station(destination)?, station(source)?, ethertype.to_vec()].concat();
        let len = (frame.len - header as u32) + header_of.len() as u32;
        Some(CapturedFrame { at: frame.at, len, bytes: [&header_of, packet].concat() })
    }
}

/// The frames of a file, in its order, with Ethernet headers.
pub(crate) fn frames(file: &[u8]) -> Result<Vec<CapturedFrame>> {
    let magic = *file.first_chunk::<4>().context("it is too short to be a capture")?;
    match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
        (0xa1b2_c3d4, _) => pcap(file, Order::Little, 1_000),
        (_, 0xa1b2_c3d4) => pcap(file, Order::Big, 1_000),
        (0xa1b2_3c4d, _) => pcap(file, Order::Little, 1),
        (_, 0xa1b2_3c4d) => pcap(file, Order::Big, 1),
        (0x0a0d_0d0a, _) => pcapng(file),
        _ => bail!("it is neither pcap nor pcapng"),
    }
}

/// The order of bytes in the numbers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// What was not read yet.
#[derive(Clone, Copy, Debug)]
struct Input<'a> {
    bytes: &'a [u8],
    order: Order,
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).context("the file is cut short")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16> {
        let bytes = *self.take(2)?.first_chunk().context("two bytes")?;
        Ok(match self.order {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        })
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = *self.take(4)?.first_chunk().context("four bytes")?;
        Ok(match self.order {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        })
    }

    /// A frame of which this many bytes are here.
    fn frame(&mut self, at: Duration, kept: u32, len: u32) -> Result<CapturedFrame> {
        let is_good = kept as usize <= MOST_FRAME && len as usize <= MOST_FRAME && kept <= len;
        ensure!(is_good, "a frame of {len} bytes, of which {kept} are kept: the file is damaged");
        Ok(CapturedFrame { at, len, bytes: self.take(kept as usize)?.to_vec() })
    }
}

fn pcap(file: &[u8], order: Order, nanoseconds: u32) -> Result<Vec<CapturedFrame>> {
    let mut input = Input { bytes: file, order };
    input.take(20)?;
    // The upper half says how long check sequences are.
    let link = Link::new(input.u32()? as u16)?;
    let mut frames = Vec::new();
    while !input.bytes.is_empty() {
        let (seconds, fraction) = (input.u32()?, input.u32()?);
        let at = Duration::from_secs(seconds.into())
            + Duration::from_nanos(u64::from(fraction) * u64::from(nanoseconds));
        let (kept, len) = (input.u32()?, input.u32()?);
        frames.extend(link.to_ethernet(input.frame(at, kept, len)?));
    }
    Ok(frames)
}

/// An interface of a pcapng file.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u16,
    /// This many units of its clock are a second.
    per_second: u64,
}

impl Interface {
    fn read(mut body: Input<'_>) -> Result<Self> {
        let link = body.u16()?;
        body.take(6)?;
        let mut per_second = 1_000_000;
        while body.bytes.len() >= 4 {
            const END: u16 = 0;
            const RESOLUTION: u16 = 9;
            let (code, len) = (body.u16()?, body.u16()?);
            let value = body.take(usize::from(len).next_multiple_of(4))?;
            match (code, value.first()) {
                (END, _) => break,
                (RESOLUTION, Some(exponent)) => per_second = per_second_of(*exponent)?,
                _ => {}
            }
        }
        Ok(Self { link, per_second })
    }

    fn time(&self, units: u64) -> Duration {
        let nanoseconds = u128::from(units % self.per_second) * 1_000_000_000;
        let fraction = (nanoseconds / u128::from(self.per_second)) as u64;
        Duration::from_secs(units / self.per_second) + Duration::from_nanos(fraction)
    }
}

/// `if_tsresol`: a negative power of ten, or of two where the topmost bit is set.
fn per_second_of(exponent: u8) -> Result<u64> {
    let base: u64 = if exponent & 0x80 == 0 { 10 } else { 2 };
    let power = base.checked_pow(u32::from(exponent & 0x7f));
    power.context("a clock that is finer than can be counted")
}

fn pcapng(file: &[u8]) -> Result<Vec<CapturedFrame>> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const INTERFACE: u32 = 1;
    const SIMPLE: u32 = 3;
    const ENHANCED: u32 = 6;
    let mut input = Input { bytes: file, order: Order::Little };
    let (mut interfaces, mut frames) = (Vec::<Interface>::new(), Vec::new());
    let mut passed_over = None;
    while !input.bytes.is_empty() {
        let kind = input.u32()?;
        if kind == SECTION {
            let magic = *input.bytes.get(4..8).and_then(<[u8]>::first_chunk).context("no magic")?;
            input.order = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
                (0x1a2b_3c4d, _) => Order::Little,
                (_, 0x1a2b_3c4d) => Order::Big,
                _ => bail!("a section of no known order of bytes"),
            };
            interfaces.clear();
        }
        let len = input.u32()? as usize;
        ensure!(len >= 12 && len.is_multiple_of(4), "a block of {len} bytes: the file is damaged");
        let mut body = Input { bytes: input.take(len - 12)?, order: input.order };
        input.take(4)?;
        match kind {
            INTERFACE => interfaces.push(Interface::read(body)?),
            ENHANCED => {
                let interface = interfaces.get(body.u32()? as usize).copied();
                let interface = interface.context("a frame of an interface that is not there")?;
                let (high, low) = (body.u32()?, body.u32()?);
                let at = interface.time(u64::from(high) << 32 | u64::from(low));
                let (kept, len) = (body.u32()?, body.u32()?);
                let frame = body.frame(at, kept, len)?;
                match Link::new(interface.link) {
                    Ok(link) => frames.extend(link.to_ethernet(frame)),
                    Err(error) => passed_over = Some(error),
                }
            }
            // It has no time, on which the study rests.
            SIMPLE => bail!("its frames have no times (simple packet blocks)"),
            _ => {}
        }
    }
    match passed_over {
        Some(error) if frames.is_empty() => Err(error),
        _ => Ok(frames),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classic(order: Order, magic: u32, frames: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
        let put = |number: u32| match order {
            Order::Little => number.to_le_bytes(),
            Order::Big => number.to_be_bytes(),
        };
        let mut file = [magic, 0, 0, 0, 65_535, 1].map(put).concat();
        for (seconds, fraction, bytes, len) in frames {
            file.extend([*seconds, *fraction, bytes.len() as u32, *len].map(put).concat());
            file.extend(*bytes);
        }
        file
    }

    #[test]
    fn pcap_is_read_in_both_orders_and_resolutions() {
        let frame = |at| CapturedFrame { at, len: 9, bytes: b"frame".to_vec() };
        for order in [Order::Little, Order::Big] {
            let micro = classic(order, 0xa1b2_c3d4, &[(5, 7, b"frame", 9)]);
            assert_eq!(frames(&micro).unwrap(), [frame(Duration::from_micros(5_000_007))]);
            let nano = classic(order, 0xa1b2_3c4d, &[(5, 7, b"frame", 9)]);
            assert_eq!(frames(&nano).unwrap(), [frame(Duration::from_nanos(5_000_000_007))]);
        }
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let body_len = body.len().next_multiple_of(4);
        let len = (12 + body_len as u32).to_le_bytes();
        let padding = vec![0; body_len - body.len()];
        [&kind.to_le_bytes()[..], &len, body, &padding, &len].concat()
    }

    fn section() -> Vec<u8> {
        block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[255; 8]].concat())
    }

    fn enhanced(interface: u32, units: u64, bytes: &[u8], len: u32) -> Vec<u8> {
        let numbers = [interface, (units >> 32) as u32, units as u32, bytes.len() as u32, len];
        block(6, &[&numbers.map(u32::to_le_bytes).concat()[..], bytes].concat())
    }

    #[test]
    fn pcapng_has_interfaces_with_clocks_of_their_own() {
        let micro = block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
        let nano = block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let other_link = block(1, &[105, 0, 0, 0, 0, 0, 0, 0]);
        let unknown = block(0x0bad, b"what is this");
        let file = [
            section(),
            micro,
            nano,
            other_link,
            unknown,
            enhanced(0, 3, b"one", 3),
            enhanced(1, 3_000_000_005, b"four", 60),
            enhanced(2, 9, b"not Ethernet", 12),
        ];
        let read = frames(&file.concat()).unwrap();
        let at = [Duration::from_micros(3), Duration::new(3, 5)];
        assert_eq!(read[0], CapturedFrame { at: at[0], len: 3, bytes: b"one".to_vec() });
        assert_eq!(read[1], CapturedFrame { at: at[1], len: 60, bytes: b"four".to_vec() });
        assert_eq!(read.len(), 2);
    }

    /// A packet of IPv4 from 10.0.0.1 to 10.0.0.2, and one of IPv6 from ::1 to ::2.
    fn packets() -> [Vec<u8>; 2] {
        let v4 = [&[0x45; 12][..], &[10, 0, 0, 1, 10, 0, 0, 2]].concat();
        let v6 = [&[0x60; 8][..], &[0; 15], &[1], &[0; 15], &[2]].concat();
        [v4, v6]
    }

    #[test]
    fn links_without_an_ethernet_header_get_one() {
        let [v4, v6] = packets();
        let (four, six) = (ethernet::IPV4.to_be_bytes(), ethernet::IPV6.to_be_bytes());
        let cooked = |ethertype: [u8; 2]| [&[0; 14][..], &ethertype].concat();
        let cooked2 = |ethertype: [u8; 2]| [&ethertype[..], &[0; 18]].concat();
        type Before = Vec<u8>;
        let links: [(u32, Before, Before); 5] = [
            (101, vec![], vec![]),
            (12, vec![], vec![]),
            (228, vec![], vec![]),
            (113, cooked(four), cooked(six)),
            (276, cooked2(four), cooked2(six)),
        ];
        for (link, before_v4, before_v6) in links {
            let captured = [[before_v4, v4.clone()].concat(), [before_v6, v6.clone()].concat()];
            let arp = [vec![0; 14], vec![8, 6], vec![0x45; 40]].concat();
            let mut list: Vec<_> =
                captured.iter().map(|bytes| (1, 0, &bytes[..], bytes.len() as u32 + 9)).collect();
            if link == 113 {
                list.push((1, 0, &arp[..], arp.len() as u32));
            }
            let mut file = classic(Order::Little, 0xa1b2_c3d4, &list);
            file[20..24].copy_from_slice(&link.to_le_bytes());
            let read = frames(&file).unwrap();
            let stations: [&[u8]; 2] = [
                &[2, 4, 10, 0, 0, 2, 2, 4, 10, 0, 0, 1, 8, 0],
                &[2, 6, 0, 0, 0, 2, 2, 6, 0, 0, 0, 1, 0x86, 0xdd],
            ];
            assert_eq!(read.len(), 2, "{link}");
            for ((frame, header), packet) in read.iter().zip(stations).zip([&v4, &v6]) {
                assert_eq!(frame.bytes, [header, packet].concat(), "{link}");
                assert_eq!(frame.len, frame.bytes.len() as u32 + 9);
            }
        }
    }

    #[test]
    fn a_link_that_is_not_read_is_named() {
        let mut file = classic(Order::Little, 0xa1b2_c3d4, &[(5, 7, b"frame", 9)]);
        file[20] = 105;
        assert!(frames(&file).unwrap_err().to_string().contains("link type 105"));
        let file = [section(), block(1, &[105, 0, 0, 0, 0, 0, 0, 0]), enhanced(0, 3, b"one!", 4)];
        assert!(frames(&file.concat()).unwrap_err().to_string().contains("link type 105"));
    }

    #[test]
    fn what_is_damaged_is_an_error_wherever_it_is_cut_or_changed() {
        let whole = [section(), block(1, &[1, 0, 0, 0, 0, 0, 0, 0]), enhanced(0, 3, b"one!", 4)];
        let ends: Vec<usize> = (1..=3).map(|n| whole[..n].concat().len()).collect();
        let whole = whole.concat();
        for len in 0..whole.len() {
            assert_eq!(frames(&whole[..len]).is_ok(), ends.contains(&len), "{len}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                // It may be another file, and never is one that panics.
                let _ = frames(&changed);
            }
        }
        let classic = classic(Order::Little, 0xa1b2_c3d4, &[(5, 7, b"frame", 2)]);
        assert!(frames(&classic).unwrap_err().to_string().contains("damaged"));
        assert!(frames(b"#!/bin/sh\n").unwrap_err().to_string().contains("neither"));
    }
}
