//! The programming layer over memory that processes share; here both nodes are in one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use landfall::clan::shared::{Shared, SharedConfig};

use crate::suite;

/// Two nodes that meet in a folder of their own, which goes with them.
struct Meeting {
    folder: PathBuf,
    one: Shared,
    two: Shared,
}

impl Meeting {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("landfall-layer-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let node = || Shared::open(SharedConfig::new(&folder)).unwrap();
        let (one, two) = (node(), node());
        Self { folder, one, two }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

suite::over_each_test! {
    let (meeting, _none) = (Meeting::new(), ());
    suite((&meeting.one, &meeting.two), { let two = meeting.two.clone(); move || two.close() });
}
