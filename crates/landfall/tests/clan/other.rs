//! Another process of a test: this program itself, started again for one test that does nothing
//! unless it finds in its environment what it is for.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall_testkit::TemporaryFolder;

pub(crate) fn node_in(folder: &TemporaryFolder) -> SharedNode {
    node_at(folder.path())
}

pub(crate) fn node_at(folder: &Path) -> SharedNode {
    SharedNode::open(SharedConfig::new(folder)).unwrap()
}

/// More than anything here takes: when it is over, somebody hangs.
pub(crate) fn long() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Another process, which does not outlive its test.
pub(crate) struct Other(pub(crate) Child);

impl Other {
    /// This program, which runs this test alone.
    pub(crate) fn start(test: &str, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--test-threads=1"]);
        configure(command.stdout(Stdio::null()));
        Self(command.spawn().unwrap())
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Stops all its threads, and waits until they have.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let deadline = long();
        while !self.is_stopped() {
            assert!(Some(Instant::now()) < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success(), "kill {name}");
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        threads.flatten().all(|thread| {
            // One that has ended meanwhile does nothing either.
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_none_or(|rest| !rest.contains(|c| "RSD".contains(c)))
        })
    }

    /// It ends by itself; was it content?
    pub(crate) fn ended_well(&mut self) -> bool {
        let deadline = long().unwrap();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
