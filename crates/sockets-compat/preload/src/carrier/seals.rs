//! What a byte stream between two carriers is sealed with where nothing below encrypts it.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 3 | the length of the contents, authenticated |
//! | 4 to | the contents, encrypted |
//! | the last 16 | the tag |
//!
//! A stream loses nothing and keeps its order, so both ends count and no number travels. A
//! record that was changed, left out, repeated or moved fails, and with it the link.

use std::error::Error;
use std::io;

use landfall_seal::provider::Provider;
use landfall_seal::{Keys, ScheduledOpener, ScheduledSealer, Suite, TAG_LEN, Tag};

/// What the greeting agrees on.
pub(super) const SUITE: Suite = Suite::Aes128Gcm;
const HEAD: usize = 4;
/// What a record is longer than its contents.
pub(super) const OVERHEAD: usize = HEAD + TAG_LEN;

fn broken(why: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// What one end seals with, and opens with.
pub(super) struct Seals {
    sealer: ScheduledSealer<Provider>,
    opener: ScheduledOpener<Provider>,
    /// Records that were opened.
    opened: u64,
}

impl Seals {
    pub(super) fn new(keys: Keys) -> Self {
        let (sealer, opener) = keys.scheduled_records();
        Self { sealer, opener, opened: 0 }
    }

    /// Appends a record with these contents.
    pub(super) fn seal(&mut self, contents: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        let len = u32::try_from(contents.len()).map_err(broken)?;
        let head = len.to_be_bytes();
        let slot = self.sealer.slot().map_err(broken)?;
        output.extend_from_slice(&head);
        let begin = output.len();
        output.resize(begin + contents.len(), 0);
        let Tag(tag) = slot.seal_copy(&head, contents, &mut output[begin..]).map_err(broken)?;
        output.extend_from_slice(&tag);
        Ok(())
    }

    /// How long the record is that these bytes begin with, whose contents may be as long as
    /// `most`. Zero: not all of it is there yet.
    pub(super) fn record_len(bytes: &[u8], most: usize) -> io::Result<usize> {
        let Some(head) = bytes.first_chunk() else { return Ok(0) };
        let contents = u32::from_be_bytes(*head) as usize;
        if contents > most {
            return Err(broken("a record is too long"));
        }
        let len = contents + OVERHEAD;
        Ok(if bytes.len() < len { 0 } else { len })
    }

    /// Opens a record where it lies; its contents.
    pub(super) fn open<'a>(&mut self, record: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let cut = || broken("a record is cut short");
        let (head, rest) = record.split_first_chunk_mut::<HEAD>().ok_or_else(cut)?;
        let (contents, tag) = rest.split_last_chunk_mut().ok_or_else(cut)?;
        self.opener.open(self.opened, head, contents, &Tag(*tag)).map_err(broken)?;
        self.opened += 1;
        Ok(contents)
    }
}

#[cfg(test)]
mod tests {
    use landfall_seal::{Role, Secret};
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 1_000;

    fn seals(role: Role) -> Seals {
        Seals::new(Keys::new(Secret::new([7; 32]), role, SUITE))
    }

    fn sealed(all: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut sender = seals(Role::Initiator);
        let seal = |contents: &Vec<u8>| {
            let mut record = Vec::new();
            sender.seal(contents, &mut record).unwrap();
            record
        };
        all.iter().map(seal).collect()
    }

    proptest! {
        #[test]
        fn what_was_sealed_is_opened_and_nothing_else(
            all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 2..6),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let records = sealed(&all);
            let mut receiver = seals(Role::Responder);
            for (record, contents) in records.iter().zip(&all) {
                prop_assert_eq!(Seals::record_len(record, MOST).unwrap(), record.len());
                for cut in 0..record.len() {
                    prop_assert_eq!(Seals::record_len(&record[..cut], MOST).unwrap(), 0);
                }
                let mut record = record.clone();
                prop_assert_eq!(receiver.open(&mut record).unwrap(), &contents[..]);
            }
            // Left out, repeated, changed, cut short, or what this end has sealed itself.
            prop_assert!(seals(Role::Responder).open(&mut records[1].clone()).is_err());
            prop_assert!(receiver.open(&mut records[0].clone()).is_err());
            let mut changed = records[0].clone();
            let place = at.index(changed.len());
            changed[place] ^= flip;
            prop_assert!(seals(Role::Responder).open(&mut changed).is_err());
            let mut cut = records[0].clone();
            cut.pop();
            prop_assert!(seals(Role::Responder).open(&mut cut).is_err());
            prop_assert!(seals(Role::Initiator).open(&mut records[0].clone()).is_err());
            prop_assert!(Seals::record_len(&[0xff; 4], MOST).is_err());
        }
    }
}
