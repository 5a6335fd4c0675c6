//! Mode pages: the few that a disk has, and which bits of them can be changed.

use alloc::vec;
use alloc::vec::Vec;

use crate::sense::{Code, Key, Sense};
use crate::unit::Disk;
use crate::wire::u16_at;

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;
/// The longest list that is taken.
const LONGEST: usize = 1 << 10;

/// What of mode pages can be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModePages {
    /// Sense data have the format of descriptors.
    pub(crate) descriptors: bool,
    /// Nobody writes until this is taken back.
    pub(crate) protected: bool,
}

/// Which values are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
}

impl ModePages {
    fn page(self, page: u8, values: Values) -> Option<Vec<u8>> {
        let of = match values {
            Values::Current => self,
            Values::Changeable => Self { descriptors: true, protected: true },
            Values::Default => Self::default(),
        };
        let fixed = values != Values::Changeable;
        Some(match page {
            CACHING => {
                let mut bytes = vec![0; 20];
                // Writes are cached.
                bytes[2] = if fixed { 0x04 } else { 0 };
                with_head(page, bytes)
            }
            CONTROL => {
                let mut bytes = vec![0; 12];
                bytes[2] = u8::from(of.descriptors) << 2;
                // Any order.
                bytes[3] = if fixed { 0x10 } else { 0 };
                bytes[4] = u8::from(of.protected) << 3;
                // Those who had nothing to do with it are told that a task was aborted.
                bytes[5] = if fixed { 0x40 } else { 0 };
                with_head(page, bytes)
            }
            EXCEPTIONS => with_head(page, vec![0; 12]),
            _ => return None,
        })
    }

    /// Answers MODE SENSE.
    pub(crate) fn sense(
        self,
        disk: &Disk,
        (long, no_blocks): (bool, bool),
        control: u8,
        (page, subpage): (u8, u8),
    ) -> Result<Vec<u8>, Sense> {
        let values = match control {
            0 => Values::Current,
            1 => Values::Changeable,
            2 => Values::Default,
            _ => return Err(Sense::new(Key::IllegalRequest, Code::SAVING_NOT_SUPPORTED)),
        };
        if subpage != 0 && !(page == ALL && subpage == 0xff) {
            return Err(Sense::invalid_field(3, 7));
        }
        let mut pages = Vec::new();
        for known in [CACHING, CONTROL, EXCEPTIONS] {
            if page == ALL || page == known {
                pages.extend(self.page(known, values).unwrap_or_default());
            }
        }
        if pages.is_empty() {
            return Err(Sense::invalid_field(2, 5));
        }
        let mut blocks = Vec::new();
        if !no_blocks {
            let count = u32::try_from(disk.blocks).unwrap_or(u32::MAX);
            blocks.extend_from_slice(&count.to_be_bytes());
            blocks.extend_from_slice(&disk.block.to_be_bytes());
        }
        let is_protected = disk.read_only || self.protected;
        // DPO and FUA are understood.
        let specific = u8::from(is_protected) << 7 | 0x10;
        let mut data = if long {
            let length = (6 + blocks.len() + pages.len()) as u16;
            let [high, low] = length.to_be_bytes();
            vec![high, low, 0, specific, 0, 0, 0, blocks.len() as u8]
        } else {
            let length = 3 + blocks.len() + pages.len();
            vec![length as u8, 0, specific, blocks.len() as u8]
        };
        data.extend(blocks);
        data.extend(pages);
        Ok(data)
    }

    /// Takes the pages of MODE SELECT; gives what is so afterwards.
    pub(crate) fn select(self, long: bool, list: &[u8]) -> Result<Self, Sense> {
        if list.is_empty() {
            return Ok(self);
        }
        let short = Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH);
        let head = if long { 8 } else { 4 };
        if list.len() < head || list.len() > LONGEST {
            return Err(short);
        }
        let blocks = if long { usize::from(u16_at(list, 6)) } else { usize::from(list[3]) };
        if blocks != 0 && blocks != 8 {
            return Err(Sense::invalid_parameter(if long { 6 } else { 3 }));
        }
        let (mut at, mut changed) = (head + blocks, self);
        if at > list.len() {
            return Err(short);
        }
        while at < list.len() {
            let [page, len, ..] = list[at..] else { return Err(short) };
            let end = at + 2 + usize::from(len);
            let given = list.get(at..end).ok_or(short)?;
            let invalid = |within: usize| Sense::invalid_parameter((at + within) as u16);
            let number = page & 0x3f;
            let current = (page & 0x40 == 0).then(|| self.page(number, Values::Current)).flatten();
            let current = current.ok_or_else(|| invalid(0))?;
            if current.len() != given.len() {
                return Err(invalid(1));
            }
            let changeable = self.page(number, Values::Changeable).unwrap_or_default();
            for within in 2..given.len() {
                if (given[within] ^ current[within]) & !changeable[within] != 0 {
                    return Err(invalid(within));
                }
            }
            if number == CONTROL {
                changed.descriptors = given[2] & 0x04 != 0;
                changed.protected = given[4] & 0x08 != 0;
            }
            at = end;
        }
        Ok(changed)
    }
}

fn with_head(page: u8, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[0] = page;
    bytes[1] = (bytes.len() - 2) as u8;
    bytes
}
