//! [`FreshDirectories`]: what is not in a directory that was just made.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_files::Name;

/// The most directories and names that are remembered.
const MOST: usize = 4096;

/// Directories that this client has made, and the names that it has made in them since. Any other
/// name was not there when the directory was made, which is believed for as long as everything
/// else: programs that unpack look for each name before they make it.
#[derive(Debug, Default)]
pub(super) struct FreshDirectories(Mutex<HashMap<u64, Fresh>>);

#[derive(Debug)]
struct Fresh {
    since: Instant,
    names: HashSet<Name>,
}

impl FreshDirectories {
    fn locked(&self) -> MutexGuard<'_, HashMap<u64, Fresh>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory was asked for at that moment, and made.
    pub(super) fn made(&self, node: u64, since: Instant, timeout: Duration) {
        let mut all = self.locked();
        if all.len() >= MOST {
            all.retain(|_, fresh| fresh.since.elapsed() < timeout);
        }
        if all.len() < MOST {
            all.insert(node, Fresh { since, names: HashSet::new() });
        }
    }

    /// Something may come to be there under this name.
    pub(super) fn name_made(&self, parent: u64, name: &Name) {
        let mut all = self.locked();
        let is_full = all.get_mut(&parent).is_some_and(|fresh| {
            fresh.names.insert(name.clone());
            fresh.names.len() >= MOST
        });
        if is_full {
            all.remove(&parent);
        }
    }

    /// Is it known that nothing has this name?
    pub(super) fn has_not(&self, parent: u64, name: &Name, timeout: Duration) -> bool {
        let mut all = self.locked();
        let Some(fresh) = all.get(&parent) else {
            return false;
        };
        if fresh.since.elapsed() >= timeout {
            all.remove(&parent);
            return false;
        }
        !fresh.names.contains(name)
    }

    /// The directory's number may be another's from now on.
    pub(super) fn forget(&self, node: u64) {
        self.locked().remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_missing_until_they_are_made_or_time_is_over() {
        let (fresh, name) = (FreshDirectories::default(), Name::new(b"name").unwrap());
        let (other, long) = (Name::new(b"other").unwrap(), Duration::from_secs(1000));
        assert!(!fresh.has_not(7, &name, long), "nothing is known of it");
        fresh.made(7, Instant::now(), long);
        assert!(fresh.has_not(7, &name, long) && !fresh.has_not(8, &name, long));
        fresh.name_made(7, &name);
        assert!(!fresh.has_not(7, &name, long) && fresh.has_not(7, &other, long));
        assert!(!fresh.has_not(7, &other, Duration::ZERO), "the time is over");
        assert!(!fresh.has_not(7, &other, long), "and stays over");
        fresh.made(7, Instant::now(), long);
        fresh.forget(7);
        assert!(!fresh.has_not(7, &other, long));
    }
}
