//! Frames of a block that have a tag of a VLAN in their bytes, and are to have none.

use landfall_inet::vlan;

use super::frames::Header;

/// Takes the tag behind the stations of each frame of a block away. One that has none stays.
pub(super) fn untag(block: &mut [u8], frames: u32, first: usize) {
    /// Where a header says how much is here, how long the frame was, and where it begins.
    const HERE: usize = 12;
    const LEN: usize = 16;
    const FRAME_AT: usize = 24;
    let mut at = first;
    for _ in 0..frames {
        let Some(header) = block.get(at..).and_then(Header::read) else { return };
        let start = at + usize::from(header.frame_at);
        let frame = block.get_mut(start..start + header.here as usize);
        if frame.is_some_and(vlan::take_tag_away) {
            let tag = vlan::LEN as u32;
            for (field, shorter) in
                [(HERE, header.here - tag), (LEN, header.len.saturating_sub(tag))]
            {
                block[at + field..at + field + 4].copy_from_slice(&shorter.to_ne_bytes());
            }
            let later = header.frame_at + vlan::LEN as u16;
            block[at + FRAME_AT..at + FRAME_AT + 2].copy_from_slice(&later.to_ne_bytes());
        }
        if header.to_next == 0 {
            return;
        }
        at += header.to_next as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of frames, each behind a header of 48 bytes.
    fn block(frames: &[&[u8]]) -> Vec<u8> {
        const HEADER: usize = 48;
        const ROOM: usize = 96;
        let mut block = vec![0; 8];
        for (nth, frame) in frames.iter().enumerate() {
            let is_last = nth + 1 == frames.len();
            let next = if is_last { 0 } else { (HEADER + ROOM) as u32 };
            let len = frame.len() as u32;
            let words = [next, 0, 0, len, len, 0].map(u32::to_ne_bytes).concat();
            let mut all = [words.as_slice(), &(HEADER as u16).to_ne_bytes()].concat();
            all.resize(HEADER, 0);
            all.extend(*frame);
            all.resize(HEADER + ROOM, 0);
            block.extend(all);
        }
        block
    }

    /// The frames that a block has, as its headers say.
    fn frames(block: &[u8], count: u32) -> Vec<Vec<u8>> {
        let mut at = 8;
        let mut all = Vec::new();
        for _ in 0..count {
            let header = Header::read(&block[at..]).unwrap();
            assert_eq!(header.here, header.len);
            let start = at + usize::from(header.frame_at);
            all.push(block[start..start + header.here as usize].to_vec());
            at += header.to_next as usize;
        }
        all
    }

    #[test]
    fn each_tag_is_taken_away_and_what_has_none_stays() {
        let plain = [[1; 6].as_slice(), &[2; 6], &[8, 0, 7, 7, 7]].concat();
        let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
        let mut bytes = block(&[&tagged, &plain, &tagged, &tagged[..15]]);
        untag(&mut bytes, 4, 8);
        assert_eq!(frames(&bytes, 4), [&plain[..], &plain, &plain, &tagged[..15]]);
    }

    #[test]
    fn headers_that_lead_out_of_the_block_end_it() {
        let plain = [[1; 12].as_slice(), &[0x81, 0, 0, 5, 8, 0]].concat();
        let mut bytes = block(&[&plain]);
        let before = bytes.clone();
        untag(&mut bytes, 9, 1_000);
        assert_eq!(bytes, before);
        bytes[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[8 + 12..8 + 16].copy_from_slice(&u32::MAX.to_ne_bytes());
        let before = bytes.clone();
        untag(&mut bytes, 9, 8);
        assert_eq!(bytes, before);
    }
}
