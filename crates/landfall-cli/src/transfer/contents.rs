//! The hash of contents, of which zeros cost nothing, and that of a file on its way.
//!
//! The hash of contents ([`ContentHasher`]) is BLAKE3 over the contents. Where a whole block of 64 KiB, at a multiple of 64 KiB, is
//! zeros, the block is left out, and the hash is another one: of the hash of the rest, the
//! length, and the hash of the list of runs that were left out, under a key of its own. So a
//! hole of a terabyte is hashed in no time, both sides agree wherever one has a hole and the
//! other has written zeros, and different contents never have the same list, rest and length.

use blake3::{Hash, Hasher};

/// Zeros are left out in blocks of this length.
const BLOCK: usize = 64 << 10;
const CONTEXT: &str = "landfall file transfer, version 2: contents with zeros";
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Hashes contents from their start on; blocks of zeros are left out and listed instead.
#[derive(Clone, Debug)]
pub(crate) struct ContentHasher {
    /// What is not left out.
    rest: Hasher,
    /// Where each run of zeros began, and how long it was.
    runs: Hasher,
    has_runs: bool,
    /// The run that may go on.
    run: Option<(u64, u64)>,
    len: u64,
    /// The block under way began with this many zeros, and has nothing else yet.
    undecided: usize,
}

impl ContentHasher {
    pub(crate) fn new() -> Self {
        Self {
            rest: Hasher::new(),
            runs: Hasher::new(),
            has_runs: false,
            run: None,
            len: 0,
            undecided: 0,
        }
    }

    /// The hash of contents that are in memory.
    pub(crate) fn hash(bytes: &[u8]) -> Hash {
        if bytes.len() < BLOCK {
            return blake3::hash(bytes);
        }
        let mut hasher = Self::new();
        hasher.update(bytes);
        hasher.finalize()
    }

    /// These contents come next.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let under_way = self.within();
        let to_next = if under_way == 0 { 0 } else { BLOCK - under_way };
        let (head, bytes) = bytes.split_at(to_next.min(bytes.len()));
        self.part_of_block(head);
        let (blocks, tail) = bytes.split_at(bytes.len() - bytes.len() % BLOCK);
        // What lies between zeros is hashed in one go.
        let mut from = 0;
        for (nth, block) in blocks.chunks_exact(BLOCK).enumerate() {
            if is_zero(block) {
                let at = nth * BLOCK;
                self.keep(&blocks[from..at]);
                self.leave_out(BLOCK as u64);
                from = at + BLOCK;
            }
        }
        self.keep(&blocks[from..]);
        self.part_of_block(tail);
    }

    /// This many zeros come next.
    pub(crate) fn zeros(&mut self, len: u64) {
        let under_way = self.within();
        let to_next = if under_way == 0 { 0 } else { (BLOCK - under_way) as u64 };
        let head = to_next.min(len);
        self.part_of_block(&ZEROS[..head as usize]);
        let tail = (len - head) % BLOCK as u64;
        self.leave_out(len - head - tail);
        self.part_of_block(&ZEROS[..tail as usize]);
    }

    /// The hash of what came so far; more may come.
    pub(crate) fn finalize(&self) -> Hash {
        let mut rest = self.rest.clone();
        rest.update(&ZEROS[..self.undecided]);
        if !self.has_runs && self.run.is_none() {
            return rest.finalize();
        }
        let mut runs = self.runs.clone();
        if let Some(run) = self.run {
            put_run(&mut runs, run);
        }
        let mut whole = Hasher::new_derive_key(CONTEXT);
        whole.update(rest.finalize().as_bytes());
        whole.update(&self.len.to_le_bytes());
        whole.update(runs.finalize().as_bytes());
        whole.finalize()
    }

    /// How much of the block under way has come.
    const fn within(&self) -> usize {
        (self.len % BLOCK as u64) as usize
    }

    /// Contents that lie in one block.
    fn part_of_block(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.undecided != self.within() || !is_zero(bytes) {
            let zeros = std::mem::take(&mut self.undecided);
            self.len -= zeros as u64;
            self.keep(&ZEROS[..zeros]);
            self.keep(bytes);
            return;
        }
        self.undecided += bytes.len();
        self.len += bytes.len() as u64;
        if self.undecided == BLOCK {
            self.undecided = 0;
            self.len -= BLOCK as u64;
            self.leave_out(BLOCK as u64);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(run) = self.run.take() {
            put_run(&mut self.runs, run);
            self.has_runs = true;
        }
        self.rest.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// Whole blocks, at the start of one.
    fn leave_out(&mut self, len: u64) {
        if len > 0 {
            debug_assert!(self.within() == 0 && len.is_multiple_of(BLOCK as u64));
            let (at, before) = self.run.unwrap_or((self.len, 0));
            self.run = Some((at, before + len));
            self.len += len;
        }
    }
}

/// The hash of a file on its way: over the hash of what the receiver had of it, and then over
/// each piece, by its hash, and each hole. So nothing is hashed twice.
#[derive(Clone, Debug)]
pub(crate) struct Chain(Hasher);

impl Chain {
    pub(crate) fn new() -> Self {
        Self(Hasher::new())
    }

    /// Of a file whose start is there.
    pub(crate) fn behind(start: &Hash) -> Self {
        let mut chain = Self::new();
        chain.link(b"s", start.as_bytes());
        chain
    }

    pub(crate) fn piece(&mut self, digest: &Hash) {
        self.link(b"p", digest.as_bytes());
    }

    pub(crate) fn hole(&mut self, len: u64) {
        self.link(b"h", &len.to_le_bytes());
    }

    pub(crate) fn finalize(&self) -> Hash {
        self.0.finalize()
    }

    /// The kind says how long the link is: no two chains are the same bytes.
    fn link(&mut self, kind: &[u8; 1], bytes: &[u8]) {
        self.0.update(kind).update(bytes);
    }
}

fn put_run(runs: &mut Hasher, (at, len): (u64, u64)) {
    runs.update(&at.to_le_bytes());
    runs.update(&len.to_le_bytes());
}

fn is_zero(bytes: &[u8]) -> bool {
    // Most contents show what they are at once; the others are looked through in large steps.
    bytes.chunks(256).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Contents by spans of zeros and of something else.
    fn spans() -> impl Strategy<Value = Vec<(bool, usize)>> {
        let len = prop_oneof![1usize..300, Just(BLOCK), Just(2 * BLOCK), 1..3 * BLOCK];
        prop::collection::vec((any::<bool>(), len), 0..8)
    }

    fn written_out(spans: &[(bool, usize)]) -> Vec<u8> {
        let each = |(is_hole, len): &(bool, usize)| vec![if *is_hole { 0 } else { 7 }; *len];
        spans.iter().flat_map(each).collect()
    }

    proptest! {
        #[test]
        fn cuts_and_holes_make_no_difference(
            spans in spans(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = written_out(&spans);
            let whole = ContentHasher::hash(&bytes);
            let mut with_holes = ContentHasher::new();
            let mut at = 0;
            for (is_hole, len) in &spans {
                if *is_hole {
                    with_holes.zeros(*len as u64);
                } else {
                    with_holes.update(&bytes[at..at + len]);
                }
                at += len;
            }
            prop_assert_eq!(with_holes.finalize(), whole);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut in_parts = ContentHasher::new();
            let mut at = 0;
            for cut in cuts {
                in_parts.update(&bytes[at..cut]);
                prop_assert_eq!(in_parts.finalize(), ContentHasher::hash(&bytes[..cut]));
                at = cut;
            }
        }

        #[test]
        fn other_contents_have_another_hash(a in spans(), b in spans()) {
            let (a, b) = (written_out(&a), written_out(&b));
            prop_assert_eq!(a == b, ContentHasher::hash(&a) == ContentHasher::hash(&b));
        }
    }

    #[test]
    fn contents_without_blocks_of_zeros_hash_as_blake3_does() {
        let mut bytes = vec![0; 3 * BLOCK - 1];
        for at in [BLOCK - 1, BLOCK + 9] {
            bytes[at] = 1;
        }
        assert_eq!(ContentHasher::hash(&bytes), blake3::hash(&bytes));
        bytes[BLOCK + 9] = 0;
        assert_ne!(ContentHasher::hash(&bytes), blake3::hash(&bytes));
    }

    #[test]
    fn a_chain_tells_starts_pieces_and_holes_apart() {
        let digest = blake3::hash(b"a piece");
        let mut chains = vec![Chain::new(), Chain::behind(&digest)];
        for links in 1..3 {
            let mut of_pieces = Chain::new();
            let mut of_holes = Chain::new();
            let mut behind = Chain::behind(&digest);
            for _ in 0..links {
                of_pieces.piece(&digest);
                of_holes.hole(65_536);
                behind.hole(65_536);
            }
            chains.extend([of_pieces, of_holes, behind]);
        }
        let hashes: std::collections::BTreeSet<_> =
            chains.iter().map(|chain| *chain.finalize().as_bytes()).collect();
        assert_eq!(hashes.len(), chains.len());
    }

    /// As long as lengths are: it would take centuries if zeros were hashed.
    #[test]
    fn a_hole_of_any_length_is_hashed_at_once() {
        let mut hasher = ContentHasher::new();
        hasher.zeros(u64::MAX - 1);
        let before = hasher.finalize();
        hasher.update(b"x");
        assert_ne!(hasher.finalize(), before);
    }
}
