//! The programming layer over memory that processes share; here both nodes are in one.

use landfall::clan::shared::{Shared, SharedConfig};
use landfall_testkit::TemporaryFolder;

use crate::suite;

/// Two nodes that meet in a folder of their own, which goes with them.
struct Meeting {
    one: Shared,
    two: Shared,
    _folder: TemporaryFolder,
}

impl Meeting {
    fn new() -> Self {
        let folder = TemporaryFolder::new("layer");
        let node = || Shared::open(SharedConfig::new(folder.path())).unwrap();
        let (one, two) = (node(), node());
        Self { one, two, _folder: folder }
    }
}

suite::over_each_test! {
    let (meeting, _none) = (Meeting::new(), ());
    suite((&meeting.one, &meeting.two), { let two = meeting.two.clone(); move || two.close() });
}
