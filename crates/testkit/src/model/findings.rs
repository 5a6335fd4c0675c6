//! What is found out about a run: what is wrong, a digest of what happened, its story.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// What is known of a run so far.
#[derive(Clone, Debug)]
pub struct Findings {
    failures: Vec<String>,
    digest: u64,
    story: Option<Vec<String>>,
}

impl Default for Findings {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Findings {
    /// More failures say nothing new.
    const MOST: usize = 20;

    /// Nothing yet. The story is told where somebody wants to read it.
    #[must_use]
    pub fn new(with_story: bool) -> Self {
        let story = with_story.then(Vec::new);
        Self { failures: Vec::new(), digest: 0xcbf2_9ce4_8422_2325, story }
    }

    /// From now on the story is told.
    pub fn begin_story(&mut self) {
        self.story = Some(Vec::new());
    }

    /// Whether the story is told.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.story.is_some()
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    /// Something is wrong.
    pub fn fail(&mut self, what: String) {
        if self.failures.len() < Self::MOST {
            self.failures.push(what);
        }
    }

    /// These bytes were sent or told.
    pub fn add(&mut self, bytes: &[u8]) {
        self.digest = digest(self.digest, bytes);
    }

    /// The digest of all that was sent and told: equal runs have equal ones.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// What is wrong.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Takes what is wrong; what comes next is counted anew.
    pub fn take_failures(&mut self) -> Vec<String> {
        mem::take(&mut self.failures)
    }

    /// The story, if it was told, and all that is wrong at its end.
    #[must_use]
    pub fn into_story(self) -> Vec<String> {
        let mut story = self.story.unwrap_or_default();
        story.extend(self.failures);
        story
    }
}

/// The digest of what was before and of these bytes: equal runs have equal ones, and runs
/// that differ somewhere hardly ever do. Nobody is meant to be kept out by it.
pub(super) fn digest(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // As FNV-1a, of words: a shift brings the upper bits down, which a product never does.
    let step = |digest: u64, word: &[u8; 8]| {
        let mixed = digest ^ u64::from_le_bytes(*word);
        (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let digest = words.iter().fold(before ^ bytes.len() as u64, step);
    step(digest, &last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_its_place_and_their_number_count() {
        let bytes: Vec<u8> = (0..40).collect();
        let mut all: Vec<u64> = (0..bytes.len()).map(|len| digest(1, &bytes[..len])).collect();
        all.extend((0..bytes.len()).map(|at| {
            let mut other = bytes.clone();
            other[at] ^= 0x80;
            digest(1, &other)
        }));
        all.extend([digest(1, &[0; 3]), digest(1, &[0; 4]), digest(2, &bytes)]);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(digest(1, &bytes), digest(1, &bytes.clone()));
    }

    #[test]
    fn failures_are_bounded_and_stand_at_the_end_of_the_story() {
        let mut findings = Findings::new(true);
        findings.tell(|| "it begins".into());
        (0..30).for_each(|n| findings.fail(alloc::format!("wrong {n}")));
        assert_eq!(findings.failures().len(), 20);
        findings.take_failures();
        findings.fail("wrong at last".into());
        assert_eq!(findings.into_story(), ["it begins", "wrong at last"]);
        let mut findings = Findings::new(false);
        findings.tell(|| unreachable!("nobody reads it"));
        findings.fail("wrong".into());
        assert_eq!(findings.into_story(), ["wrong"]);
    }
}
