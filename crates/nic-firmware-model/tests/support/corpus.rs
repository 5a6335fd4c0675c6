//! What the fuzz targets run, over their corpora: what was found stays found.

use std::path::PathBuf;

/// Every file of this target's corpus, of which there are at least so many, shows no
/// difference.
pub(crate) fn replay(target: &str, least: usize, disagreements: impl Fn(&[u8]) -> Vec<String>) {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is in the repository") {
        let path = entry.expect("it can be read").path();
        let found = disagreements(&std::fs::read(&path).expect("it can be read"));
        assert!(found.is_empty(), "{}: {found:#?}", path.display());
        count += 1;
    }
    assert!(count >= least, "only {count} files");
}
