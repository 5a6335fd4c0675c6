//! What the tests share: a host that owns memory, sends pieces and reads packets.

use std::vec::Vec;

use landfall_placement::{Area, Duration, Ecn, Instant, Refusal, RegionId, Span};
use landfall_tables::HashSecret;

use super::{Arrived, Config, Reassembly};
use crate::buffers::{Buffers, LARGE};
use crate::memory::{Body, Memory, Packet, Pieces};
use crate::wire::{Fragment, Parsed, parse};

mod adopting;
mod bounds;
mod model;
mod rules;

const NOW: Instant = Instant::from_millis(1);
const PAGE: u32 = 4096;

const PAGES: RegionId = RegionId::new(0, 1);
const LARGES: RegionId = RegionId::new(1, 1);
const FRAME: RegionId = RegionId::new(2, 1);

/// Plain bytes for each region.
#[derive(Debug)]
struct Bytes([Vec<u8>; 3]);

impl Bytes {
    fn at(&self, span: Span) -> &[u8] {
        let start = span.offset as usize;
        &self.0[span.region.index as usize][start..start + span.len as usize]
    }
}

impl Memory for Bytes {
    fn head(&self, _slot: u16) -> &[u8] {
        unreachable!("heads are handed in")
    }

    fn copy(&mut self, from: Span, to: Span) {
        assert_eq!(from.len, to.len);
        let bytes = self.at(from).to_vec();
        let start = to.offset as usize;
        self.0[to.region.index as usize][start..start + bytes.len()].copy_from_slice(&bytes);
    }

    fn read(&self, from: Span, into: &mut [u8]) {
        into.copy_from_slice(self.at(from));
    }
}

/// Addresses and headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FragmentSource {
    is_v6: bool,
    host: u32,
    protocol: u8,
    ecn: Ecn,
    /// Bytes of options in each IPv4 header.
    options: usize,
}

const V4: FragmentSource =
    FragmentSource { is_v6: false, host: 1, protocol: 17, ecn: Ecn::NotCapable, options: 0 };
const V6: FragmentSource = FragmentSource { is_v6: true, ..V4 };

/// A frame with a piece, or (without one) with the whole packet.
fn frame(from: FragmentSource, piece: Option<(u32, u32, bool)>, bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::from([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    let (id, offset, more) = piece.unwrap_or((0, 0, false));
    let place = (offset as u16) | u16::from(more);
    if from.is_v6 {
        frame.extend([0x86, 0xdd, 0x60, (from.ecn as u8) << 4, 0, 0]);
        let fragment = if piece.is_some() { 8 } else { 0 };
        frame.extend((bytes.len() as u16 + fragment).to_be_bytes());
        frame.extend([if piece.is_some() { 44 } else { from.protocol }, 64]);
        let address = |host: u32| 0xfd00_u128 << 112 | u128::from(host);
        frame.extend(address(from.host).to_be_bytes());
        frame.extend(address(2).to_be_bytes());
        if piece.is_some() {
            frame.extend([from.protocol, 0]);
            frame.extend(place.to_be_bytes());
            frame.extend(id.to_be_bytes());
        }
    } else {
        let words = 5 + from.options / 4;
        frame.extend([0x08, 0x00, 0x40 | words as u8, from.ecn as u8]);
        frame.extend(((words * 4 + bytes.len()) as u16).to_be_bytes());
        frame.extend((id as u16).to_be_bytes());
        let place = (offset / 8) as u16 | u16::from(more) << 13;
        frame.extend(place.to_be_bytes());
        frame.extend([64, from.protocol, 0, 0]);
        frame.extend((10 << 24 | from.host).to_be_bytes());
        frame.extend([10, 255, 0, 2]);
        frame.extend(std::iter::repeat_n(1, from.options));
        let sum = !landfall_placement::checksum::sum_of(&frame[14..]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame.extend(bytes);
    frame
}

/// A host with pages, large buffers and a place where one frame arrives.
#[derive(Debug)]
struct Host {
    reassembly: Reassembly,
    buffers: Buffers,
    bytes: Bytes,
    pages: u32,
    large: u32,
}

impl Host {
    fn new(config: Config, pages: u32, large: u32) -> Self {
        let pages_len = Buffers::bytes_needed(pages, PAGE);
        let large_len = Buffers::bytes_needed(large, LARGE);
        let buffers =
            Buffers::new(Area::new(PAGES, 0, pages_len), PAGE, Area::new(LARGES, 0, large_len));
        // Bytes that no piece brought.
        let region = |len: u64| std::vec![0xee; len as usize];
        let bytes = Bytes([region(pages_len), region(large_len), region(70_000)]);
        Self {
            reassembly: Reassembly::new(config, HashSecret::new(1, 2)),
            buffers,
            bytes,
            pages,
            large,
        }
    }

    fn small() -> Self {
        Self::new(Config::default(), 8, 2)
    }

    /// A frame arrives, in one piece.
    fn receive(
        &mut self,
        now: Instant,
        frame: &[u8],
        split: u16,
    ) -> Result<Option<Packet>, Refusal> {
        let parsed = parse(frame, frame.len() as u32).unwrap();
        self.bytes.0[2][..frame.len()].copy_from_slice(frame);
        let pieces = Pieces::one(FRAME.span(0, frame.len() as u32));
        let arrived = Arrived { parsed: &parsed, head: frame, frame: &pieces, split };
        self.reassembly.insert(now, &arrived, &mut self.buffers, &mut self.bytes)
    }

    /// A piece (id, offset, whether more follow) arrives; 8 bytes of it are taken
    /// for the transport header.
    fn piece(
        &mut self,
        from: FragmentSource,
        piece: (u32, u32, bool),
        bytes: &[u8],
    ) -> Result<Option<Packet>, Refusal> {
        self.receive(NOW, &frame(from, Some(piece), bytes), 8)
    }

    /// The bytes of a packet. Its buffer is given back.
    fn take(&mut self, packet: &Packet) -> Vec<u8> {
        let Body::Buffer(buffer, span) = packet.body else { panic!("{packet:?}") };
        assert_eq!(span.len, packet.body_len);
        let mut all = packet.head.to_vec();
        all.extend_from_slice(self.bytes.at(span));
        assert!(self.buffers.give_back(buffer));
        all
    }

    /// Is no buffer held?
    fn is_clean(&self) -> bool {
        self.buffers.free_pages() == self.pages as usize
            && self.buffers.free_large() == self.large as usize
    }

    fn at(&mut self, now: Instant) {
        self.reassembly.handle_timeout(now, &mut self.buffers, &self.bytes);
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// What is read of a frame with a piece.
fn read(from: FragmentSource, piece: (u32, u32, bool), bytes: &[u8]) -> (Parsed, Vec<u8>) {
    let frame = frame(from, Some(piece), bytes);
    (parse(&frame, frame.len() as u32).unwrap(), frame)
}
