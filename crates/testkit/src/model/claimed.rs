//! A set of bytes in regions.

use alloc::collections::BTreeMap;

use landfall_placement::Span;

use landfall_placement::Area;

/// Bytes by region; neighbours are joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Claimed {
    regions: BTreeMap<(u32, u32), BTreeMap<u64, u64>>,
}

impl Claimed {
    /// Adds these bytes.
    pub(super) fn insert(&mut self, span: &Span) {
        let (mut start, mut end) = (span.offset, span.offset.saturating_add(span.len.into()));
        let parts = self.regions.entry((span.region.index, span.region.generation)).or_default();
        while let Some((&from, &to)) =
            parts.range(..=end).next_back().filter(|part| *part.1 >= start)
        {
            parts.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        parts.insert(start, end);
    }

    /// Takes these bytes out.
    pub(super) fn remove(&mut self, area: &Area) {
        let (start, end) = (area.offset, area.offset.saturating_add(area.len));
        let key = (area.region.index, area.region.generation);
        let Some(parts) = self.regions.get_mut(&key) else { return };
        while let Some((&from, &to)) = parts.range(..end).next_back().filter(|part| *part.1 > start)
        {
            parts.remove(&from);
            if from < start {
                parts.insert(from, start);
            }
            if to > end {
                parts.insert(end, to);
            }
        }
    }

    /// Is one of these bytes in the set?
    pub(super) fn overlaps(&self, span: &Span) -> bool {
        let (start, end) = (span.offset, span.offset.saturating_add(span.len.into()));
        let key = (span.region.index, span.region.generation);
        let parts = self.regions.get(&key);
        parts
            .is_some_and(|parts| parts.range(..end).next_back().is_some_and(|part| *part.1 > start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..40u64, 1..9u32), 0..40)) {
            let region = RegionId::new(1, 2);
            let mut claimed = Claimed::default();
            let mut bytes = BTreeSet::new();
            for (adds, offset, len) in steps {
                let span = region.span(offset, len);
                let range = offset..offset + u64::from(len);
                if adds {
                    claimed.insert(&span);
                    bytes.extend(range);
                } else {
                    claimed.remove(&span.into());
                    bytes.retain(|byte| !range.contains(byte));
                }
                for at in 0..50 {
                    prop_assert_eq!(claimed.overlaps(&region.span(at, 1)), bytes.contains(&at));
                }
            }
        }
    }
}
