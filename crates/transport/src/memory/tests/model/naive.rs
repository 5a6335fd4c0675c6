//! The naive table: a list of all grants there ever were, with their bytes.

use landfall_placement::{InternetSum, RegionId, Span, WordOp, WordWidth};

use super::super::memory::{AccessError, Rights};

/// What has become of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Live,
    Revoked,
    TakenBack,
}

/// One grant, kept forever.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) id: RegionId,
    pub(super) rights: Rights,
    pub(super) status: Status,
    pub(super) bytes: Vec<u8>,
    /// Where the bytes lie: they must not move.
    pub(super) address: usize,
    /// How many pins there are.
    pub(super) pins: u32,
}

/// All grants.
#[derive(Debug, Default)]
pub(super) struct Naive {
    pub(super) grants: Vec<Grant>,
}

impl Naive {
    /// How many regions the table holds.
    pub(super) fn held(&self) -> usize {
        self.grants.iter().filter(|grant| grant.status != Status::TakenBack).count()
    }

    /// How many slots went through their last generation.
    pub(super) fn retired(&self) -> usize {
        let last =
            |grant: &&Grant| grant.status == Status::TakenBack && grant.id.generation == u32::MAX;
        self.grants.iter().filter(last).count()
    }

    /// The grant, whatever became of it.
    pub(super) fn any(&mut self, id: RegionId) -> Option<&mut Grant> {
        self.grants.iter_mut().find(|grant| grant.id == id)
    }

    /// The grant, if it is good.
    pub(super) fn live(&mut self, id: RegionId) -> Result<&mut Grant, AccessError> {
        let grant = self.any(id).ok_or(AccessError::Unknown(id))?;
        match grant.status {
            Status::Live => Ok(grant),
            Status::Revoked => Err(AccessError::Revoked(id)),
            Status::TakenBack => Err(AccessError::Stale(id)),
        }
    }

    /// The bytes of a span, if they may be used so.
    pub(super) fn span(&mut self, span: &Span, right: Rights) -> Result<&mut [u8], AccessError> {
        let grant = self.live(span.region)?;
        if !grant.rights.contains(right) {
            let (region, granted) = (span.region, grant.rights);
            return Err(AccessError::Forbidden { region, needed: right, granted });
        }
        let len = grant.bytes.len() as u64;
        let end = u128::from(span.offset) + u128::from(span.len);
        if end > u128::from(len) {
            return Err(AccessError::OutOfBounds { span: *span, len });
        }
        Ok(&mut grant.bytes[span.offset as usize..end as usize])
    }

    pub(super) fn copy_in(&mut self, span: &Span, bytes: &[u8]) -> Result<(), AccessError> {
        let there = self.span(span, Rights::WRITE)?;
        if there.len() != bytes.len() {
            return Err(AccessError::WrongLength { span: *span, buffer: bytes.len() });
        }
        there.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn copy_out(&mut self, span: &Span, len: usize) -> Result<Vec<u8>, AccessError> {
        let there = self.span(span, Rights::READ)?;
        if there.len() != len {
            return Err(AccessError::WrongLength { span: *span, buffer: len });
        }
        Ok(there.to_vec())
    }

    pub(super) fn sum(&mut self, spans: &[Span]) -> Result<InternetSum, AccessError> {
        let mut sum = InternetSum::new();
        for span in spans {
            sum.add(self.span(span, Rights::NONE)?);
        }
        Ok(sum)
    }

    pub(super) fn word(&mut self, op: &WordOp) -> Result<u64, AccessError> {
        let width = op.width.bytes();
        let there = self.span(&op.region.span(op.offset, width), Rights::WORDS)?;
        if !op.offset.is_multiple_of(u64::from(width)) {
            return Err(AccessError::Misaligned(*op));
        }
        match op.width {
            WordWidth::Eight => {
                let old = u64::from_ne_bytes(there.try_into().unwrap());
                there.copy_from_slice(&op.function.apply(old).to_ne_bytes());
                Ok(old)
            }
            WordWidth::Four => {
                let old = u32::from_ne_bytes((&*there).try_into().unwrap());
                let new = match op.function {
                    landfall_placement::WordFunction::CompareSwap { expected, new } => {
                        if old == expected as u32 { new as u32 } else { old }
                    }
                    other => other.apply(u64::from(old)) as u32,
                };
                there.copy_from_slice(&new.to_ne_bytes());
                Ok(u64::from(old))
            }
        }
    }
}
