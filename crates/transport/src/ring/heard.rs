//! Frames as they were heard: for whoever records them.

use std::time::Duration;

use super::block::Header;

/// Where the kernel says how a frame came: behind `struct tpacket3_hdr`, in the
/// `sll_pkttype` of a `struct sockaddr_ll`.
const PACKET_TYPE: usize = 48 + 10;

/// A frame as it was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard<'a> {
    /// Its first bytes, or all.
    pub bytes: &'a [u8],
    /// How long it was.
    pub len: u32,
    /// When, since the beginning of 1970.
    pub at: Duration,
    /// It left the interface here; others came in.
    pub is_leaving: bool,
}

/// The frames of a block, as they were heard.
#[derive(Clone, Debug)]
pub struct HeardFrames<'a> {
    block: &'a [u8],
    left: u32,
    at: usize,
}

impl<'a> HeardFrames<'a> {
    pub(super) const fn new(block: &'a [u8], frames: u32, first: usize) -> Self {
        Self { block, left: frames, at: first }
    }

    fn step(&mut self) -> Option<Heard<'a>> {
        self.left = self.left.checked_sub(1)?;
        let here = self.block.get(self.at..)?;
        let header = Header::read(here)?;
        let start = usize::from(header.frame_at);
        let bytes = here.get(start..start + header.here as usize)?;
        let way = u32::from(*here.get(PACKET_TYPE)?);
        // The last frame of a block has none behind it.
        self.left = if header.to_next == 0 { 0 } else { self.left };
        self.at += header.to_next as usize;
        Some(Heard {
            bytes,
            len: header.len,
            at: Duration::new(header.seconds.into(), header.nanoseconds.min(999_999_999)),
            is_leaving: way == u32::from(libc::PACKET_OUTGOING),
        })
    }
}

impl<'a> Iterator for HeardFrames<'a> {
    type Item = Heard<'a>;

    /// The next one; none at the end, and where a header makes no sense.
    fn next(&mut self) -> Option<Heard<'a>> {
        let next = self.step();
        if next.is_none() {
            self.left = 0;
        }
        next
    }
}
