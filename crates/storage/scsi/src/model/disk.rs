//! [`Medium`]: bytes that work is carried out on; [`Naive`]: what commands mean, in the words of
//! the standard.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::{Check, Failure, LbaExtent, Work, lba_status};

/// Bytes that work is carried out on. What lies beyond its end is noted.
#[derive(Clone, Debug)]
pub struct Medium {
    bytes: Vec<u8>,
    /// What was asked for that there is not.
    pub failures: Vec<String>,
}

impl Medium {
    /// This many bytes, all zero.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![0; size], failures: Vec::new() }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn part(&mut self, offset: u64, length: u64) -> &mut [u8] {
        let size = self.bytes.len() as u64;
        let is_within = offset.checked_add(length).is_some_and(|end| end <= size);
        if !is_within {
            self.failures.push(format!("{length} bytes at {offset} of {size}"));
            return &mut [];
        }
        &mut self.bytes[offset as usize..(offset + length) as usize]
    }

    /// Carries out work.
    ///
    /// # Errors
    /// What differs.
    pub fn carry_out(&mut self, work: &Work, data: &[u8]) -> Result<Vec<u8>, Failure> {
        let count = data.len() as u64;
        match *work {
            Work::Read { offset, length } => return Ok(self.part(offset, length.into()).to_vec()),
            Work::Write { offset, .. } => self.part(offset, count).copy_from_slice(data),
            Work::Verify { offset, length, check } => {
                let there = self.part(offset, length);
                let expected: Vec<u8> = match check {
                    Check::Readable => there.to_vec(),
                    Check::Data => data.to_vec(),
                    Check::OneBlock => data.iter().copied().cycle().take(length as usize).collect(),
                };
                compare(there, &expected)?;
            }
            Work::CompareAndWrite { offset, .. } => {
                let (old, new) = data.split_at(data.len() / 2);
                let there = self.part(offset, count / 2);
                compare(there, old)?;
                there.copy_from_slice(new);
            }
            Work::OrWrite { offset, .. } => {
                for (byte, set) in self.part(offset, count).iter_mut().zip(data) {
                    *byte |= set;
                }
            }
            Work::WriteSame { offset, length, .. } => {
                let mut block = data.iter().copied().cycle();
                self.part(offset, length).fill_with(|| block.next().unwrap_or(0));
            }
            Work::Unmap(ref ranges) => {
                for (offset, length) in ranges {
                    self.part(*offset, *length).fill(0);
                }
            }
            Work::Prefetch { offset, length } => {
                self.part(offset, length);
            }
            Work::LbaStatus { offset, length, block, allocation } => {
                self.part(offset, length);
                let extent = LbaExtent { len: length, is_hole: false };
                return Ok(lba_status(offset, block, &[extent], allocation));
            }
            Work::Flush => {}
        }
        Ok(Vec::new())
    }
}

fn compare(there: &[u8], expected: &[u8]) -> Result<(), Failure> {
    let differ = there.iter().zip(expected).position(|(one, other)| one != other);
    differ.map_or(Ok(()), |at| Err(Failure::Miscompare(at as u64)))
}

/// A disk of blocks, each a byte string of its own, with the operations of the standard.
#[derive(Clone, Debug)]
pub struct Naive {
    blocks: Vec<[u8; 512]>,
}

impl Naive {
    /// This many blocks, all zero.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Self { blocks: vec![[0; 512]; blocks] }
    }

    /// Are these blocks all there?
    #[must_use]
    pub fn has(&self, lba: u64, count: u32) -> bool {
        lba.checked_add(count.into()).is_some_and(|end| end <= self.blocks.len() as u64)
    }

    /// The bytes of blocks that are there.
    #[must_use]
    pub fn read(&self, lba: u64, count: u32) -> Vec<u8> {
        self.blocks[lba as usize..][..count as usize].concat()
    }

    /// Writes whole blocks that are there.
    pub fn write(&mut self, lba: u64, data: &[u8]) {
        for (block, new) in self.blocks[lba as usize..].iter_mut().zip(data.chunks_exact(512)) {
            block.copy_from_slice(new);
        }
    }

    /// Sets the bits of whole blocks that are there.
    pub fn or(&mut self, lba: u64, data: &[u8]) {
        let there = self.read(lba, (data.len() / 512) as u32);
        let new: Vec<u8> = there.iter().zip(data).map(|(one, other)| one | other).collect();
        self.write(lba, &new);
    }
}
